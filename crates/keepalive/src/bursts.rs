//! How long losses of probes last.

use segue_clock::Span;

/// How much an older burst counts against the next: about the last twenty matter.
const KEEP: f64 = 0.95;

/// Runs of lost probes, later ones with more weight.
///
/// Where a loss follows a loss one period T later with probability e^(−T/D), D is the mean time that a burst
/// lasts. The likeliest D of runs seen at one period is T/ln(1 + T/c), c being the mean time from the first
/// loss of a run to its last. Runs of other periods count with the mean of these, so that the length follows
/// when the period changes.
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
    /// None seen yet.
    #[must_use]
    pub(crate) fn new() -> Bursts {
        Bursts::default()
    }

    /// The newest answer so far is that to `seq`; requests go every `t_ka`. A gap longer than `longest` is an outage,
    /// not a burst.
    pub(crate) fn on_answer(&mut self, seq: u32, longest: u32, t_ka: Span) {
        let gap = self.newest.map_or(0, |newest| seq.wrapping_sub(newest).wrapping_sub(1));
        self.newest = Some(seq);
        self.push(u64::from(gap), longest, t_ka);
    }

    /// From counts only: `sent` more requests and `received` more answers than the last time. If none came, the
    /// requests count as lost together; of two bursts between two calls it sees one. With more than `longest` requests,
    /// counts do not tell which were lost together: such a call teaches nothing.
    pub(crate) fn on_counts(&mut self, sent: u64, received: u64, longest: u32, t_ka: Span) {
        self.waiting += sent;
        if received > 0 {
            let asked = self.waiting;
            let lost = asked.saturating_sub(received);
            // One may be on its way.
            self.waiting = lost.min(1);
            if asked <= u64::from(longest) {
                self.push(lost.saturating_sub(1), longest, t_ka);
            }
        }
    }

    /// The mean length in probes that go every `t_ka`, at least 1; `None` before five bursts' weight.
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
        // Runs of 1, 2, … 19 losses and back: 10 in the mean, however the later ones weigh more.
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
        // A loss follows a loss with 1 − 1/b after 20 ms, and with the tenth power of it after 200 ms.
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
