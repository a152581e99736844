//! Deliberate mistakes, one line each, which the fault harness must find (docs/simulator/faults.md).
//!
//! In a normal build [`fault`] is a constant `false`, so the compiler removes the mistakes. With `--cfg segue_planted`
//! the test selects one of them.

/// Returns whether to make mistake `number`: never in this build.
#[cfg(not(segue_planted))]
#[must_use]
pub const fn fault(_number: u8) -> bool {
    false
}

#[cfg(segue_planted)]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering};

    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Returns whether to make mistake `number`.
    #[must_use]
    pub fn fault(number: u8) -> bool {
        CHOSEN.load(Ordering::Relaxed) == number
    }

    /// Makes this mistake from now on; 0 selects none.
    pub fn choose(number: u8) {
        CHOSEN.store(number, Ordering::Relaxed);
    }
}

#[cfg(segue_planted)]
pub use chosen::{choose, fault};
