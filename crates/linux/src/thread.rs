//! Real-time scheduling of the calling thread.

/// How a thread was prepared for precise timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Scheduled before all ordinary threads (`SCHED_FIFO`).
    Realtime,
    /// An ordinary thread with a better nice value.
    Nice,
    /// An ordinary thread, because the system permits no more.
    Ordinary,
}

/// Requests timers without slack and the best scheduling that the system permits. A thread with [`Precision::Realtime`]
/// must not spin for long.
pub fn prefer_precision() -> Precision {
    // SAFETY: changes an attribute of the calling thread, no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64) };
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: the structure outlives the call; 0 names the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } == 0 {
        return Precision::Realtime;
    }
    // SAFETY: no memory is passed; 0 names the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) } == 0 {
        return Precision::Nice;
    }
    Precision::Ordinary
}

/// Makes the calling thread an ordinary one again.
pub fn ordinary() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call; 0 names the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
    // SAFETY: no memory is passed; 0 names the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}
