//! Mistakes made on purpose, one line each, for the fault harness to find (docs/simulator/faults.md).
//!
//! In an ordinary build [`fault`] is `false` for the compiler, and the mistakes are not in the program. With
//! `--cfg segue_planted` the test chooses one of them.

/// Whether to make mistake `number`.
#[cfg(not(segue_planted))]
#[must_use]
pub const fn fault(_number: u8) -> bool {
    false
}

#[cfg(segue_planted)]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering};

    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Whether to make mistake `number`.
    #[must_use]
    pub fn fault(number: u8) -> bool {
        CHOSEN.load(Ordering::Relaxed) == number
    }

    /// Makes this mistake from now on; 0: none.
    pub fn choose(number: u8) {
        CHOSEN.store(number, Ordering::Relaxed);
    }
}

#[cfg(segue_planted)]
pub use chosen::{choose, fault};
