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

/// The time on `CLOCK_BOOTTIME`: like [`monotonic`], but it continues while the machine is suspended.
///
/// # Panics
/// Never on Linux, where the clock always exists.
#[must_use]
pub fn boottime() -> Time {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Time of day in nanoseconds since 1970. For records that outlive a boot, and to convert the kernel's receive stamps.
#[must_use]
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).0
}

/// Time of day in the type that the protocol machines use.
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

/// Quality of the realtime clock as the kernel estimates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockQuality {
    /// An external source synchronises it with UTC.
    pub synchronised: bool,
    /// The maximum error in nanoseconds; meaningless without synchronisation.
    pub error_max_ns: u64,
}

/// Reads the kernel's estimate of the realtime clock's quality.
#[must_use]
pub fn realtime_quality() -> ClockQuality {
    let (state, timex) = discipline();
    ClockQuality {
        synchronised: state >= 0 && timex.status & libc::STA_UNSYNC == 0,
        error_max_ns: u64::try_from(timex.maxerror).unwrap_or(u64::MAX).saturating_mul(1_000),
    }
}

/// How far `CLOCK_TAI` is ahead of `CLOCK_REALTIME` in nanoseconds; zero until a program has set the leap seconds.
#[must_use]
pub fn tai_offset_ns() -> i64 {
    i64::from(discipline().1.tai) * 1_000_000_000
}

/// The kernel's clock parameters and state.
fn discipline() -> (libc::c_int, libc::timex) {
    // SAFETY: all zero is a valid value of this plain structure, and requests no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state, timex)
}

fn read(id: ClockId) -> Time {
    let t = clock_gettime(id).expect("the clocks of POSIX exist on Linux");
    Time(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
