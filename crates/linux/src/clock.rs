//! The one place where the system's clocks are read.

use nix::time::{ClockId, clock_gettime};
use segue_clock::{Span, Time, UnixTime};

/// The time on `CLOCK_MONOTONIC`, which is also the clock of eBPF's `bpf_ktime_get_ns`.
///
/// # Panics
/// Never on Linux, where the clock always exists.
#[must_use]
pub fn monotonic() -> Time {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time on `CLOCK_BOOTTIME`: as [`monotonic`], but it goes on while the machine is suspended.
///
/// # Panics
/// Never on Linux, where the clock always exists.
#[must_use]
pub fn boottime() -> Time {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Time of day in nanoseconds since 1970, for what outlives a boot and for converting the kernel's
/// receive stamps.
#[must_use]
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).0
}

/// Time of day, as machines take it.
#[must_use]
pub fn realtime() -> UnixTime {
    UnixTime::from_nanos(realtime_ns())
}

/// Time of day in seconds since 1970.
#[must_use]
pub fn realtime_s() -> u64 {
    realtime_ns() / 1_000_000_000
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Span {
    Span(read(ClockId::CLOCK_THREAD_CPUTIME_ID).0)
}

/// How good the realtime clock is, by the kernel's own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockQuality {
    /// An external source keeps it in step with UTC.
    pub synchronised: bool,
    /// The largest error, in nanoseconds; meaningless without synchronisation.
    pub error_max_ns: u64,
}

/// Asks the kernel how good the realtime clock is.
#[must_use]
pub fn realtime_quality() -> ClockQuality {
    let (state, timex) = discipline();
    ClockQuality {
        synchronised: state >= 0 && timex.status & libc::STA_UNSYNC == 0,
        error_max_ns: u64::try_from(timex.maxerror).unwrap_or(u64::MAX).saturating_mul(1_000),
    }
}

/// How far `CLOCK_TAI` is ahead of `CLOCK_REALTIME` in nanoseconds: zero until something tells the kernel the
/// leap seconds.
#[must_use]
pub fn tai_offset_ns() -> i64 {
    i64::from(discipline().1.tai) * 1_000_000_000
}

/// The kernel's clock parameters, and the clock's state.
fn discipline() -> (libc::c_int, libc::timex) {
    // SAFETY: all bytes zero is a value of this plain structure, with which the call changes nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state, timex)
}

fn read(id: ClockId) -> Time {
    let t = clock_gettime(id).expect("the clocks of POSIX exist on Linux");
    Time(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
