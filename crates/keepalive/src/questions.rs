//! Number and spacing of the questions of a client in doubt, such that it rarely declares a working path down.
//!
//! A doubt begins because an answer did not arrive, or because a stream stopped. The client then asks K questions, y
//! apart. The path is down if none is answered within A, the time allowed for an answer. The time from the beginning of
//! doubt to down is
//!
//! ```text
//! T_D = (K − 1)·y + A
//! ```
//!
//! A question fails with probability q. If losses occur in bursts of mean length B, a question at time t after a lost
//! packet fails with probability
//!
//! ```text
//! c(t) = q + (1 − q)·e^(−t/B)
//! ```
//!
//! which is the two-state chain of [`crate::planner`] in continuous time; without bursts c = q. A doubt about an answer
//! begins with a loss, A before the first question. A doubt about a stream may have no loss at all, because the stream
//! may just have paused. A doubt on a working path therefore ends in a false positive with probability
//!
//! ```text
//! p_loss = c(A)·c(y)^(K−1)        p_pause = q·c(y)^(K−1)
//! ```
//!
//! At r requests per second, r·q doubts per second begin with a loss. With bursts it is the rate of bursts, q/B, if
//! that is higher. With s pauses of streams per second, the mean time between false positives is
//!
//! ```text
//! T_fp = 1 / (max(r·q, q/B)·p_loss + s·p_pause)
//! ```
//!
//! [`questions`] selects the K and y with the shortest T_D that keep T_fp and that spread the questions, (K − 1)·y,
//! over more than the longest recent burst.

use crate::config::Asking;
use segue_clock::Span;

/// Minimum number of questions: an unmeasured burst may swallow two.
pub const K_MIN: u8 = 3;
/// Minimum spacing in seconds. Closer questions fail together in any queue.
pub const SPACING_MIN: f64 = 0.008;
/// Maximum spacing in seconds.
const SPACING_MAX: f64 = 1.0;

/// Allowance for an answer beyond the RTT variation: the peer's queues and timers.
pub const MARGIN: Span = Span::from_millis(10);
/// Minimum time between questions about unanswered data.
pub const QUESTION_GAP: Span = Span::from_millis(60);

/// Properties of a path. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Silence {
    /// A: time allowed for an answer ([`crate::Client::answer_within`]).
    pub answer: f64,
    /// q: share of requests without an answer, in [0, 1).
    pub loss: f64,
    /// B: mean length of a loss burst; `None` for independent losses.
    pub burst: Option<f64>,
    /// Length of the longest recent burst; 0 if there was none.
    pub longest: f64,
    /// r: requests per second.
    pub requests: f64,
    /// s: pauses of streams per second.
    pub pauses: f64,
    /// T_fp^min: lower bound of the mean time between two false positives.
    pub fp_interval: f64,
    /// Maximum number of questions.
    pub k_max: u8,
}

/// The questions and their properties. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Questions {
    /// K: number of questions.
    pub k: u8,
    /// y: spacing.
    pub spacing: f64,
    /// T_D: time from the beginning of doubt to down.
    pub t_d: f64,
    /// T_fp: mean time between false positives; infinite without loss.
    pub t_fp: f64,
}

impl Questions {
    /// As settings of a client.
    #[must_use]
    pub fn asking(&self) -> Asking {
        Asking { k: self.k, spacing: Span::from_secs_f64(self.spacing) }
    }
}

/// The questions with the shortest T_D that keep T_fp. If no questions keep it, those with the longest T_fp; the result
/// states by how much they miss it.
#[must_use]
pub fn questions(silence: &Silence) -> Questions {
    let most = silence.k_max.max(K_MIN);
    let candidates = spacings().flat_map(|y| (K_MIN..=most).map(move |k| (k, y)));
    let mut best: Option<Questions> = None;
    for (k, y) in candidates {
        let found = evaluate(silence, k, y);
        let (good, best_good) =
            (is_good(silence, &found), best.is_some_and(|best| is_good(silence, &best)));
        let better = best.is_none_or(|best| match (good, best_good) {
            (true, true) => found.t_d < best.t_d,
            (false, false) => found.t_fp > best.t_fp,
            (good, _) => good,
        });
        if better {
            best = Some(found);
        }
    }
    best.unwrap_or_else(|| evaluate(silence, K_MIN, SPACING_MIN))
}

/// The properties of K questions, `spacing` seconds apart, on such a path.
#[must_use]
pub fn evaluate(silence: &Silence, k: u8, spacing: f64) -> Questions {
    let after = |t: f64| match silence.burst {
        Some(burst) if burst > 0.0 => silence.loss + (1.0 - silence.loss) * libm::exp(-t / burst),
        _ => silence.loss,
    };
    let more = f64::from(k.max(1)) - 1.0;
    let rest = libm::pow(after(spacing), more);
    let q = silence.loss;
    let bursts = silence.burst.filter(|burst| *burst > 0.0).map_or(0.0, |burst| q / burst);
    let losses = (silence.requests * q).max(bursts);
    let rate = losses * after(silence.answer) * rest + silence.pauses * q * rest;
    let t_fp = if rate > 0.0 { 1.0 / rate } else { f64::INFINITY };
    Questions { k, spacing, t_d: more * spacing + silence.answer, t_fp }
}

fn is_good(silence: &Silence, found: &Questions) -> bool {
    let spread = (f64::from(found.k) - 1.0) * found.spacing;
    found.t_fp >= silence.fp_interval && spread >= silence.longest
}

fn spacings() -> impl Iterator<Item = f64> {
    (0..).map(|n| SPACING_MIN * libm::pow(1.25, f64::from(n))).take_while(|y| *y < SPACING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Silence = Silence {
        answer: 0.032,
        loss: 0.002,
        burst: None,
        longest: 0.0,
        requests: 4.0,
        pauses: 1.0,
        fp_interval: 1e5,
        k_max: 20,
    };

    #[test]
    fn by_hand() {
        // Per second: s·q·q^2 = 8e-9 and r·q·q·q^2 = 6.4e-11.
        let found = questions(&PATH);
        assert_eq!((found.k, found.spacing), (3, 0.008));
        assert!((found.t_d - 0.048).abs() < 1e-12);
        assert!((found.t_fp * 8.064e-9 - 1.0).abs() < 1e-3, "{}", found.t_fp);
        // At 36 %, s·q^K < 1e-5 from K = 12, to which r·q·q^K adds.
        let lossy = questions(&Silence { loss: 0.36, ..PATH });
        assert_eq!((lossy.k, lossy.spacing), (13, 0.008));
    }

    #[test]
    fn bursts_spread_the_questions() {
        let with =
            |burst: f64, longest: f64| questions(&Silence { burst: Some(burst), longest, ..PATH });
        let (short, long) = (with(0.005, 0.0), with(0.05, 0.0));
        assert!(short.t_d < long.t_d && long.t_d < 0.5, "{short:?} {long:?}");
        assert!(long.t_fp >= 1e5);
        let seen = with(0.005, 0.3);
        assert!((f64::from(seen.k) - 1.0) * seen.spacing >= 0.3, "{seen:?}");
    }

    #[test]
    fn where_most_is_lost_a_question_after_a_burst_still_fails_with_q() {
        // c(t) = q + (1 − q)·e^(−t/B): 1 at first, and exactly q once the burst is long over.
        let silence = |burst| Silence { loss: 0.8, burst, pauses: 0.0, ..PATH };
        let rate = |burst: Option<f64>, spacing| 1.0 / evaluate(&silence(burst), 4, spacing).t_fp;
        let over = rate(Some(0.001), 1.0);
        // More bursts begin per second than requests are lost: q/B = 800.
        assert!((over / (800.0 * 0.8 * 0.8 * 0.8 * 0.8) - 1.0).abs() < 1e-6, "{over}");
        // At B·ln 2, half of the excess over q remains: c = 0.9.
        let answer = 0.8 + 0.2 * libm::exp(-PATH.answer / 0.2);
        let half = rate(Some(0.2), 0.2 * core::f64::consts::LN_2);
        assert!((half / (4.0 * answer * 0.9 * 0.9 * 0.9) - 1.0).abs() < 1e-9, "{half}");
        assert!((rate(None, 0.1) / (4.0 * 0.8 * libm::pow(0.8, 4.0)) - 1.0).abs() < 1e-9);
    }

    /// The closest spacing is usually the fastest. To cover 0.4547 s, three questions take less time than twenty.
    #[test]
    fn what_is_chosen_is_the_soonest_of_all_that_are_rare_enough_and_spread_wide_enough() {
        for (loss, burst, longest) in [
            (0.002, None, 0.0),
            (0.05, Some(0.05), 0.0),
            (0.01, Some(0.02), 0.25),
            (0.002, None, 0.4547),
        ] {
            let silence = Silence { loss, burst, longest, ..PATH };
            let found = questions(&silence);
            let mut soonest = f64::INFINITY;
            for (k, n) in (K_MIN..=20).flat_map(|k| (0..22).map(move |n| (k, n))) {
                let one = evaluate(&silence, k, 0.008 * libm::pow(1.25, f64::from(n)));
                let spread = f64::from(k - 1) * one.spacing;
                if one.t_fp >= 1e5 && spread >= longest && one.spacing < 1.0 {
                    soonest = soonest.min(one.t_d);
                }
            }
            assert!(soonest.is_finite() && found.t_fp >= 1e5, "{silence:?}");
            assert!((found.t_d - soonest).abs() < 1e-12, "{found:?}, not {soonest} s");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let lossy = Silence { loss: 0.9, burst: Some(0.1), k_max: 5, ..PATH };
        let found = questions(&lossy);
        assert!(found.t_fp < 1e5);
        // The longest possible T_fp: the maximum number of questions at the maximum spacing.
        assert_eq!(found.k, 5);
        assert!((0.8..1.0).contains(&found.spacing), "{found:?}");
        assert_eq!(found, evaluate(&lossy, 5, found.spacing));
    }
}
