//! The one place where the system's clocks are read.

use nix::time::{ClockId, clock_gettime};
use segue_clock::{Span, Time};

/// The instant on `CLOCK_MONOTONIC`, the clock of eBPF's `bpf_ktime_get_ns` too.
///
/// # Panics
/// Never on Linux, where the clock always exists.
#[must_use]
pub fn monotonic() -> Time {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Time of day in nanoseconds since 1970, for what outlives a boot and for converting the kernel's
/// receive stamps.
#[must_use]
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).0
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Span {
    Span(read(ClockId::CLOCK_THREAD_CPUTIME_ID).0)
}

fn read(id: ClockId) -> Time {
    let t = clock_gettime(id).expect("the clocks of POSIX exist on Linux");
    Time(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
