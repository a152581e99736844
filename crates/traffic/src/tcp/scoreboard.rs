//! Data that the receiver holds beyond the first hole, and the holes that were retransmitted.

use alloc::vec::Vec;

use super::segment::Sack;

/// Runs of units reported as received, in ascending order; no two of them touch. Bounded by the window.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    runs: Vec<(u64, u64)>,
    /// Holes up to here were retransmitted.
    resent: u64,
}

impl Scoreboard {
    /// Forgets all reports.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.resent = 0;
    }

    /// Processes the blocks of an acknowledgement up to `una`. Returns true if they contain new information.
    pub fn update(&mut self, una: u64, sack: &Sack) -> bool {
        self.runs.retain(|run| run.1 > una);
        let before = self.held();
        for (start, end) in sack.blocks() {
            if *end > una {
                self.insert((*start).max(una), *end);
            }
        }
        self.held() > before
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        let first = self.runs.partition_point(|run| run.1 < start);
        let mut last = first;
        while let Some(run) = self.runs.get(last).filter(|run| run.0 <= end) {
            (start, end) = (start.min(run.0), end.max(run.1));
            last += 1;
        }
        self.runs.splice(first..last, [(start, end)]);
    }

    /// Number of units held beyond the first hole.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.runs.iter().map(|run| run.1 - run.0).sum()
    }

    /// Returns true if the receiver holds this unit.
    #[must_use]
    pub fn holds(&self, unit: u64) -> bool {
        self.runs.iter().any(|run| run.0 <= unit && unit < run.1)
    }

    /// The unit after the highest one held; 0 if none is.
    #[must_use]
    pub fn forward(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.1)
    }

    /// The first unit from `una` on that is missing below a held one and was not retransmitted.
    #[must_use]
    pub fn hole(&self, una: u64) -> Option<u64> {
        let mut at = una.max(self.resent);
        for (start, end) in &self.runs {
            if at < *start {
                return Some(at);
            }
            at = at.max(*end);
        }
        None
    }

    /// Marks holes before `end` as retransmitted.
    pub fn mark(&mut self, end: u64) {
        self.resent = self.resent.max(end);
    }
}
