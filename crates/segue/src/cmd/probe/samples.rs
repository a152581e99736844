//! RTT samples and what a summary says about them.

use segue_clock::{Rng, Span};
use serde::Serialize;

/// RTT samples of one path: count and mean exact, percentiles exact up to a number of samples and
/// from a uniform choice of as many beyond it (Vitter's algorithm R).
pub struct Samples {
    kept: Vec<Span>,
    keep_max: usize,
    count: u64,
    sum_s: f64,
    rng: Rng,
}

/// RTTs in milliseconds; `None` (null) before the first sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RttMs {
    /// The smallest.
    pub min: Option<f64>,
    /// Mean of all.
    pub avg: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The average with the main time constant.
    pub ewma: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99 % are not larger.
    pub p99: Option<f64>,
    /// The averages with each time constant, the main one first.
    pub ewmas: Vec<f64>,
}

impl Samples {
    /// None yet; keeps at most `keep_max`.
    pub fn new(keep_max: usize, seed: u64) -> Samples {
        Samples { kept: Vec::new(), keep_max, count: 0, sum_s: 0.0, rng: Rng::new(seed) }
    }

    /// Takes a sample.
    pub fn push(&mut self, rtt: Span) {
        self.count += 1;
        self.sum_s += rtt.as_secs_f64();
        if self.kept.len() < self.keep_max {
            self.kept.push(rtt);
        } else if let Some(slot) = self.kept.get_mut(self.rng.below(self.count) as usize) {
            *slot = rtt;
        }
    }

    /// Mean of all, in milliseconds.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_s / self.count as f64 * 1e3)
    }

    /// The summary, with what the estimator knows.
    pub fn summary(&self, estimates: &segue_keepalive::Estimates) -> RttMs {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        // Nearest rank: the smallest sample that is not exceeded by more than 1 − p of all.
        let percentile = |p: f64| {
            let rank = (p * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).map(|rtt| rtt.as_millis_f64())
        };
        let ewmas: Vec<f64> = estimates.rtt_ewma.iter().map(|s| s * 1e3).collect();
        RttMs {
            min: estimates.rtt_min.map(Span::as_millis_f64),
            avg: self.mean_ms(),
            max: estimates.rtt_max.map(Span::as_millis_f64),
            ewma: ewmas.first().copied(),
            p50: percentile(0.5),
            p99: percentile(0.99),
            ewmas,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_keepalive::Estimates;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let mut samples = Samples::new(1_000, 1);
        for ms in (1..=200).rev() {
            samples.push(Span::from_millis(ms));
        }
        let summary = samples.summary(&Estimates::default());
        assert_eq!((summary.p50, summary.p99), (Some(100.0), Some(198.0)));
        assert!((summary.avg.unwrap() - 100.5).abs() < 1e-9);
        assert_eq!(Samples::new(1_000, 1).summary(&Estimates::default()), RttMs::default());
    }

    #[test]
    fn a_long_run_is_sampled_evenly_and_within_bounds() {
        let mut samples = Samples::new(100_000, 7);
        for us in 0..400_000 {
            samples.push(Span::from_micros(us));
        }
        assert_eq!(samples.kept.len(), 100_000);
        let p50 = samples.summary(&Estimates::default()).p50.unwrap();
        assert!((p50 - 200.0).abs() < 5.0, "median {p50} ms of 0 to 400 ms");
    }
}
