//! Durations of loss bursts, from lost probes.

use segue_clock::Span;

/// Weight of a burst relative to the next one: about the last twenty matter.
const KEEP: f64 = 0.95;

/// Runs of lost probes, recent ones with more weight.
///
/// If a loss follows a loss one period T later with probability e^(−T/D), D is the mean duration of a burst. The
/// maximum likelihood estimate of D from runs at one period is T/ln(1 + T/c), where c is the mean time from the first
/// to the last loss of a run. Runs at other periods are included with the mean of their periods, so that the length in
/// probes adapts when the period changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    newest: Option<u32>,
    waiting: u64,
    /// Sum of the times from first to last loss, in seconds.
    lasted: f64,
    /// Sum of the periods, in seconds.
    periods: f64,
    runs: f64,
}

impl Bursts {
    /// No bursts yet.
    #[must_use]
    pub(crate) fn new() -> Bursts {
        Bursts::default()
    }

    /// Records that the newest answered request is `seq`, at a period of `t_ka`. A gap of more than `longest` requests
    /// is an outage and not a burst.
    pub(crate) fn on_answer(&mut self, seq: u32, longest: u32, t_ka: Span) {
        let gap = self.newest.map_or(0, |newest| seq.wrapping_sub(newest).wrapping_sub(1));
        self.newest = Some(seq);
        self.push(u64::from(gap), longest, t_ka);
    }

    /// Like [`on_answer`](Bursts::on_answer), from counts: `sent` more requests and `received` more answers since the
    /// last call. Without any answer, the requests count as lost together; two bursts between two calls count as one.
    /// Calls with more than `longest` requests are ignored, because the counts do not show which requests were lost
    /// together.
    pub(crate) fn on_counts(&mut self, sent: u64, received: u64, longest: u32, t_ka: Span) {
        self.waiting += sent;
        if received > 0 {
            let asked = self.waiting;
            let lost = asked.saturating_sub(received);
            // One may still be in flight.
            self.waiting = lost.min(1);
            if asked <= u64::from(longest) {
                self.push(lost.saturating_sub(1), longest, t_ka);
            }
        }
    }

    /// Mean length in probes at a period of `t_ka`, at least 1; `None` below the weight of five bursts.
    #[must_use]
    pub(crate) fn mean(&self, t_ka: Span) -> Option<f64> {
        if self.runs < 5.0 * KEEP * KEEP {
            return None;
        }
        if self.lasted <= 0.0 {
            return Some(1.0);
        }
        let again_after = self.periods / self.runs;
        let lasts = again_after / libm::log(1.0 + self.periods / self.lasted);
        Some(1.0 / -libm::expm1(-t_ka.as_secs_f64() / lasts))
    }

    fn push(&mut self, length: u64, longest: u32, t_ka: Span) {
        if (1..=u64::from(longest)).contains(&length) {
            let t_ka = t_ka.as_secs_f64();
            self.lasted = self.lasted * KEEP + (length - 1) as f64 * t_ka;
            self.periods = self.periods * KEEP + t_ka;
            self.runs = self.runs * KEEP + 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_clock::Rng;

    use super::*;

    #[test]
    fn bursts_last_as_long_whatever_the_period_at_which_they_were_seen() {
        let (lasts, mut rng) = (0.2, Rng::new(1));
        for periods in [[50, 50], [100, 100], [200, 200], [50, 200]] {
            let (mut bursts, mut sum, runs) = (Bursts::new(), 0.0, 20_000);
            let mut seq = 0;
            bursts.on_answer(seq, 100, Span::ZERO);
            for run in 0..runs {
                let t_ka = Span::from_millis(periods[run % 2]);
                let again = libm::exp(-t_ka.as_secs_f64() / lasts);
                seq += 2;
                while rng.chance(again) {
                    seq += 1;
                }
                bursts.on_answer(seq, 100, t_ka);
                sum += bursts.mean(Span::from_millis(100)).unwrap_or(1.0);
            }
            let (mean, want) = (sum / runs as f64, 1.0 / (1.0 - libm::exp(-0.5)));
            assert!((mean / want - 1.0).abs() < 0.1, "{periods:?}: {mean}, {want} expected");
        }
    }

    #[test]
    fn bursts_at_a_short_period_are_told_for_a_long_one_also_where_most_is_lost() {
        // Runs of 1, 2, … 19 losses and back: a mean of 10 in spite of the higher weight of recent ones.
        let (short, long) = (Span::from_millis(20), Span::from_millis(200));
        let (mut bursts, mut seq) = (Bursts::new(), 0);
        bursts.on_answer(seq, 100, short);
        for round in 0..40 {
            for run in 1..20 {
                seq += 1 + if round % 2 == 0 { run } else { 20 - run };
                bursts.on_answer(seq, 100, short);
            }
        }
        let seen = bursts.mean(short).unwrap();
        assert!((8.0..12.0).contains(&seen), "{seen}");
        // A loss follows a loss with probability 1 − 1/b after 20 ms, and with its tenth power after 200 ms.
        let expected = 1.0 / (1.0 - libm::pow(1.0 - 1.0 / seen, 10.0));
        assert!((bursts.mean(long).unwrap() / expected - 1.0).abs() < 1e-9, "{expected}");
        assert!((1.4..1.7).contains(&expected), "{expected}");
    }

    #[test]
    fn losses_among_many_requests_of_one_call_are_no_burst() {
        let t_ka = Span::from_millis(20);
        let mut bursts = Bursts::new();
        for _ in 0..50 {
            bursts.on_counts(75, 71, 16, t_ka);
        }
        assert_eq!(bursts.mean(t_ka), None);
        for _ in 0..50 {
            bursts.on_counts(4, 1, 16, t_ka);
            bursts.on_counts(1, 1, 16, t_ka);
        }
        assert!(bursts.mean(t_ka).is_some_and(|mean| mean > 1.5));
    }

    #[test]
    fn single_losses_and_outages_are_no_bursts() {
        let t_ka = Span::from_millis(100);
        let mut bursts = Bursts::new();
        for n in 0..4_u32 {
            bursts.on_answer(n * 2, 10, t_ka);
        }
        assert_eq!(bursts.mean(t_ka), None);
        for n in 4..20_u32 {
            bursts.on_answer(n * 2, 10, t_ka);
        }
        assert_eq!(bursts.mean(t_ka), Some(1.0));
        bursts.on_answer(100, 10, t_ka);
        assert_eq!(bursts.mean(t_ka), Some(1.0));
        bursts.on_answer(105, 10, t_ka);
        assert!(bursts.mean(t_ka).is_some_and(|mean| mean > 1.0));
    }
}
