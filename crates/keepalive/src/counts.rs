//! Differences of consecutive numbers and counters.

/// Length of a run of consecutive sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    last: u32,
    length: u8,
}

impl Run {
    /// Adds the next number. Returns the length of the run that it ends.
    pub(crate) fn push(&mut self, seq: u32) -> u8 {
        let follows = self.length > 0 && seq == self.last.wrapping_add(1);
        self.length = if follows { self.length.saturating_add(1) } else { 1 };
        self.last = seq;
        self.length
    }
}

/// Growth of a counter since the last reading. A counter that went backwards has restarted from zero.
pub(crate) fn grown(last: &mut u32, present: u32) -> u64 {
    let growth = present.wrapping_sub(*last);
    *last = present;
    u64::from(if growth < 1 << 31 { growth } else { present })
}
