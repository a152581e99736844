//! RTT samples, their error bounds, and their statistics.

use segue_clock::{Rng, Span};
use segue_keepalive::Sample;
use serde::Serialize;

/// The samples of one path.
pub struct Samples {
    rtt: Kept,
    error: Kept,
    wakeup: Kept,
    last_error: Option<Span>,
}

/// Statistics of durations. Count, mean and standard deviation are exact; percentiles are exact up to `keep_max`
/// values, and computed from a uniform sample of that size beyond it (Vitter's algorithm R).
pub(crate) struct Kept {
    kept: Vec<Span>,
    keep_max: usize,
    count: u64,
    mean_s: f64,
    /// Sum of the squared distances from the mean (Welford's algorithm).
    squares: f64,
    rng: Rng,
}

/// The origin of a sample's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The kernel recorded the departure; otherwise this process did, before sending.
    pub tx: bool,
    /// The kernel recorded the arrival; otherwise this process did, on reading.
    pub rx: bool,
    /// The far end has stated the delay of its packets; otherwise the error bound does not include it.
    pub far: bool,
    /// Time from the arrival until this process read the packet.
    pub wakeup: Span,
}

/// The origin of a sample's timestamps, for output.
#[derive(Serialize)]
pub struct StampNames {
    tx: &'static str,
    rx: &'static str,
    far: &'static str,
}

/// A distribution in milliseconds; `None` (null) before the first value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The largest value that was kept.
    pub max: Option<f64>,
}

impl Stamps {
    /// True if all timestamps of this end are the kernel's.
    pub fn kernel(&self) -> bool {
        self.tx && self.rx
    }

    /// Names for output.
    pub fn names(&self) -> StampNames {
        let who = |kernel| if kernel { "kernel" } else { "user" };
        StampNames {
            tx: who(self.tx),
            rx: who(self.rx),
            far: if self.far { "stated" } else { "unknown" },
        }
    }
}

/// RTTs in milliseconds; `None` (null) before the first sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RttMs {
    /// Minimum.
    pub min: Option<f64>,
    /// Mean.
    pub avg: Option<f64>,
    /// Standard deviation.
    pub stddev: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// The moving average with the main time constant.
    pub ewma: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The moving averages with each time constant, the main one first.
    pub ewmas: Vec<f64>,
}

impl Samples {
    /// Statistics without samples; keeps at most `keep_max` values of each kind.
    pub fn new(keep_max: usize, seed: u64) -> Samples {
        let kept = |n: u64| Kept::new(keep_max, seed.wrapping_add(n));
        Samples { rtt: kept(0), error: kept(1), wakeup: kept(2), last_error: None }
    }

    /// Adds a sample, if it has a round-trip time.
    pub fn take(&mut self, sample: &Sample, stamps: Stamps) {
        if let Some(rtt) = sample.rtt {
            self.rtt.push(rtt);
            self.error.push(sample.uncertainty);
            self.last_error = Some(sample.uncertainty);
            self.wakeup.push(stamps.wakeup);
        }
    }

    /// The statistics, with the estimator's values.
    pub fn summary(&self, estimates: &segue_keepalive::Estimates) -> RttMs {
        let Distribution { p50, p99, .. } = self.rtt.distribution();
        let ewmas: Vec<f64> = estimates.rtt_ewma.iter().map(|s| s * 1e3).collect();
        RttMs {
            min: estimates.rtt_min.map(Span::as_millis_f64),
            avg: self.rtt.mean_ms(),
            stddev: self.rtt.stddev_ms(),
            max: estimates.rtt_max.map(Span::as_millis_f64),
            ewma: ewmas.first().copied(),
            p50,
            p99,
            ewmas,
        }
    }

    /// Error bounds of the round-trip times.
    pub fn errors(&self) -> Distribution {
        self.error.distribution()
    }

    /// Error bound of the last round-trip time.
    pub fn last_error(&self) -> Option<Span> {
        self.last_error
    }

    /// Times from arrivals until this process read them.
    pub(crate) fn wakeups(&self) -> Distribution {
        self.wakeup.distribution()
    }
}

impl Kept {
    /// Statistics without values; keeps at most `keep_max` values.
    pub(crate) fn new(keep_max: usize, seed: u64) -> Kept {
        let rng = Rng::new(seed);
        Kept { kept: Vec::new(), keep_max, count: 0, mean_s: 0.0, squares: 0.0, rng }
    }

    /// Adds a value.
    pub(crate) fn push(&mut self, value: Span) {
        self.count += 1;
        let off = value.as_secs_f64() - self.mean_s;
        self.mean_s += off / self.count as f64;
        self.squares += off * (value.as_secs_f64() - self.mean_s);
        if self.kept.len() < self.keep_max {
            self.kept.push(value);
        } else if let Some(slot) = self.kept.get_mut(self.rng.below(self.count) as usize) {
            *slot = value;
        }
    }

    fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean_s * 1e3)
    }

    fn stddev_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares / self.count as f64).sqrt() * 1e3)
    }

    /// Median, 99th percentile, maximum.
    pub(crate) fn distribution(&self) -> Distribution {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        // Nearest rank: the smallest value with at least a share p of all values at or below it.
        let percentile = |p: f64| {
            let rank = (p * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).map(|value| value.as_millis_f64())
        };
        Distribution { p50: percentile(0.5), p99: percentile(0.99), max: percentile(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_keepalive::Estimates;

    fn sample(rtt: Span) -> Sample {
        let uncertainty = Span::from_micros(3);
        let (at, seq) = (segue_clock::Time::ZERO, 0);
        Sample { at, seq, rtt: Some(rtt), owl_up: None, owl_down: None, rtl: None, uncertainty }
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let mut samples = Samples::new(1_000, 1);
        for ms in (1..=200).rev() {
            let wakeup = Span::from_micros(ms);
            samples.take(&sample(Span::from_millis(ms)), Stamps { wakeup, ..Stamps::default() });
        }
        let summary = samples.summary(&Estimates::default());
        assert_eq!((summary.p50, summary.p99), (Some(100.0), Some(198.0)));
        assert!((summary.avg.unwrap() - 100.5).abs() < 1e-9);
        // For the integers from 1 to n: √((n² − 1)/12).
        assert!((summary.stddev.unwrap() - (39_999f64 / 12.0).sqrt()).abs() < 1e-6);
        assert_eq!(samples.errors().p99, Some(0.003));
        assert_eq!((samples.wakeups().p50, samples.wakeups().max), (Some(0.1), Some(0.2)));
        assert_eq!(Samples::new(1_000, 1).summary(&Estimates::default()), RttMs::default());
    }

    #[test]
    fn a_long_run_is_sampled_evenly_and_within_bounds() {
        let mut samples = Samples::new(100_000, 7);
        for us in 0..400_000 {
            samples.take(&sample(Span::from_micros(us)), Stamps::default());
        }
        assert_eq!(samples.rtt.kept.len(), 100_000);
        let p50 = samples.summary(&Estimates::default()).p50.unwrap();
        assert!((p50 - 200.0).abs() < 5.0, "median {p50} ms of 0 to 400 ms");
    }
}
