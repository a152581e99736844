//! Durations of silence on a path that works.

use segue_clock::{Span, Time};

/// Maximum duration of a burst of losses. A longer outage is noticeable to applications, so flows should move.
pub(super) const BURST_AT_MOST: Span = Span::from_millis(400);

/// Silences that ended: their durations, with more weight for recent ones, and their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lapses {
    /// Total number of doubts.
    pub doubts: u64,
    /// Sum of the weights of the silences with a loss.
    pub weight: f64,
    /// Weighted sum of their durations in seconds.
    pub lasted: f64,
    /// The longest recent duration in seconds; decays with time.
    pub longest: f64,
    /// When the last silence ended.
    pub at: Time,
}

impl Lapses {
    pub(super) const NONE: Lapses =
        Lapses { doubts: 0, weight: 0.0, lasted: 0.0, longest: 0.0, at: Time::ZERO };
    /// Weight of a lapse relative to the next one.
    const KEEP: f64 = 0.98;
    /// Time constant of their decay, in seconds without a lapse.
    const FADES: f64 = 180.0;
    /// Minimum weight for a mean.
    const FEW: f64 = 3.5;

    /// Adds a lapse of a duration between `least` and `most`. Its end between two questions was not observed, so it
    /// gets the expected duration, given that durations are exponential with the mean of the others.
    pub(super) fn push(&mut self, now: Time, least: Span, most: Span) {
        let least = least.min(BURST_AT_MOST).as_secs_f64();
        let width = (most.min(BURST_AT_MOST).as_secs_f64() - least).max(0.0);
        let Lapses { doubts, weight, lasted: sum, longest, .. } = self.as_of(now);
        let mean = if weight >= Self::FEW { sum / weight } else { f64::INFINITY };
        let lasted = least + expected(width, mean);
        *self = Lapses {
            doubts,
            weight: weight * Self::KEEP + 1.0,
            lasted: sum * Self::KEEP + lasted,
            longest: (longest * Self::KEEP).max(lasted),
            at: now,
        };
    }

    /// The statistics with their decay until `now`.
    pub(super) fn as_of(&self, now: Time) -> Lapses {
        let keep = libm::exp(-now.since(self.at).as_secs_f64() / Self::FADES);
        let Lapses { weight, lasted, longest, .. } = *self;
        Lapses { weight: weight * keep, lasted: lasted * keep, longest: longest * keep, ..*self }
    }

    /// Mean duration in seconds plus one standard deviation, because the rate of false alarms is exponential in it;
    /// `None` after too few lapses.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let spread = 1.0 + 1.0 / libm::sqrt(self.weight.max(1.0));
        (self.weight >= Self::FEW).then(|| self.lasted / self.weight * spread)
    }
}

/// Mean of an exponential variable with mean `mean`, given that it is below `width`; half of `width` if the mean is
/// unknown.
fn expected(width: f64, mean: f64) -> f64 {
    let x = width / mean.max(1e-9);
    if x >= 1e-3 { mean - width / libm::expm1(x) } else { width / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn lapses_that_end_between_two_questions_are_as_long_as_is_to_be_expected() {
        let (ms, at) = (Span::from_millis, Time(7_000_000_000));
        let mut lapses = Lapses::NONE;
        // Without earlier lapses, halfway between the bounds.
        lapses.push(at, ms(100), ms(140));
        near(lapses.lasted, 0.12);
        near(lapses.weight, 1.0);
        near(lapses.longest, 0.12);
        assert_eq!(lapses.mean(), None);
        for _ in 0..3 {
            lapses.push(at, ms(50), ms(50));
        }
        let weight = 1.0 + 0.98 + 0.98 * 0.98 + 0.98 * 0.98 * 0.98;
        let lasted = 0.05 * (1.0 + 0.98 + 0.98 * 0.98) + 0.12 * 0.98 * 0.98 * 0.98;
        near(lapses.weight, weight);
        near(lapses.lasted, lasted);
        near(lapses.longest, 0.12 * 0.98 * 0.98 * 0.98);
        let mean = lasted / weight;
        near(lapses.mean().unwrap_or(0.0), mean * (1.0 + 1.0 / libm::sqrt(weight)));

        // They decay by a factor of e in three minutes. The next lapse is assumed to be exponential with their mean.
        let later = at + Span::from_secs(180);
        let faded = lapses.as_of(later);
        near(faded.weight, weight / core::f64::consts::E);
        near(faded.lasted, lasted / core::f64::consts::E);
        near(faded.longest, lapses.longest / core::f64::consts::E);
        lapses.push(at, ms(20), ms(220));
        // The mean of an exponential variable below 0.2 s, integrated numerically.
        let (mut sum, mut all) = (0.0, 0.0);
        for n in 0..200_000 {
            let t = (f64::from(n) + 0.5) * 1e-6;
            let density = libm::exp(-t / mean);
            (sum, all) = (sum + t * density, all + density);
        }
        let expected = (lapses.lasted - lasted * 0.98) - 0.02;
        assert!((expected - sum / all).abs() < 1e-6, "{expected}, not {}", sum / all);
    }

    #[test]
    fn what_is_longer_than_a_burst_counts_as_one_of_the_longest() {
        let mut lapses = Lapses::NONE;
        lapses.push(Time(0), Span::from_millis(300), Span::from_secs(9));
        near(lapses.longest, 0.35);
        lapses.push(Time(0), Span::from_secs(5), Span::from_secs(9));
        near(lapses.longest, 0.4);
        near(lapses.lasted, 0.35 * 0.98 + 0.4);
    }
}
