//! The mean length of runs of unanswered probes.

/// How much an older burst counts against the next: about the last twenty matter.
const KEEP: f64 = 0.95;

/// Lengths of the runs of probes that were lost, the later the more weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bursts {
    newest: Option<u32>,
    waiting: u64,
    lost: f64,
    runs: f64,
}

impl Bursts {
    /// None seen yet.
    #[must_use]
    pub fn new() -> Bursts {
        Bursts::default()
    }

    /// The newest answer so far is that to `seq`. A gap longer than `longest` is an outage and no burst.
    pub fn on_answer(&mut self, seq: u32, longest: u32) {
        let gap = self.newest.map_or(0, |newest| seq.wrapping_sub(newest).wrapping_sub(1));
        self.newest = Some(seq);
        self.push(u64::from(gap), longest);
    }

    /// From counts alone: `sent` more requests and `received` more answers than the last time. If none came
    /// the requests are taken as lost together; of two bursts between two calls it sees one.
    pub fn on_counts(&mut self, sent: u64, received: u64, longest: u32) {
        self.waiting += sent;
        if received > 0 {
            let lost = self.waiting.saturating_sub(received);
            // One may be on its way.
            self.waiting = lost.min(1);
            self.push(lost.saturating_sub(1), longest);
        }
    }

    /// The mean length in probes, at least 1; `None` before five bursts' weight.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.runs >= 5.0 * KEEP * KEEP).then(|| (self.lost / self.runs).max(1.0))
    }

    fn push(&mut self, length: u64, longest: u32) {
        if (1..=u64::from(longest)).contains(&length) {
            self.lost = self.lost * KEEP + length as f64;
            self.runs = self.runs * KEEP + 1.0;
        }
    }
}
