//! How well a path suits a class.

use alloc::vec::Vec;
use core::fmt;

use segue_clock::Time;

use crate::Class;

/// Identifies a path of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// The measurements and settings of a path when a decision is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathView {
    /// The path.
    pub id: PathId,
    /// Alive in the direction of the decision, and within its hard limits.
    pub usable: bool,
    /// Round-trip time in seconds, `None` before the first measurement.
    pub rtt_s: Option<f64>,
    /// Share of packets lost upstream, 0 to 1. Must exclude outages, which belong to `usable`: otherwise the path could
    /// not be used again promptly after one.
    pub loss_up: f64,
    /// Share of packets lost downstream, 0 to 1; likewise.
    pub loss_down: f64,
    /// A statistical test found packet loss: flows leave at once if another path is better.
    pub lossy: bool,
    /// Upper confidence bound of the upstream loss, 0 to 1. To take over the flows of a lossy path, a path must score
    /// higher even with this loss.
    pub bound_up: f64,
    /// The same downstream.
    pub bound_down: f64,
    /// Typical deviation of the one-way delay, in seconds.
    pub jitter_s: f64,
    /// Rate of its link in bit/s; `None` if unknown.
    pub rate_bps: Option<f64>,
    /// Relative cost per byte: 0 is free, 1 a metered link.
    pub price: f64,
    /// When the path became usable.
    pub since: Time,
    /// The operator's bonus in points, added to every score of this path.
    pub preference: f64,
}

/// The suitability of a path for a class, and the terms of the calculation.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Sum of the terms. Quality alone lies between 0 and 100; price and preference may exceed this range, so that they
    /// also count for very good and very bad paths.
    pub value: f64,
    /// Named summands, in points.
    pub terms: Vec<(&'static str, f64)>,
    /// Whether the path has been measured. An unmeasured path gets a pessimistic score, so that a path known to be good
    /// comes first.
    pub measured: bool,
}

/// Pessimistic round-trip time and loss of an unmeasured path, so that a path known to be good comes first.
const UNKNOWN_RTT_S: f64 = 1.0;
const UNKNOWN_LOSS: f64 = 0.05;
/// E-model rating without impairments (ITU-T G.107, default values).
const R_MAX: f64 = 93.2;
/// Size of the receiver's jitter buffer, in deviations of the delay.
const BUFFER_DEVIATIONS: f64 = 2.0;
/// Expected response time that gives an interactive score of 50.
const HALF_RESPONSE_S: f64 = 0.15;
/// Extra delay that a lost packet causes in an interactive flow, besides a round trip: Linux's minimum retransmission
/// timeout.
const RETRANSMISSION_S: f64 = 0.2;
/// Mathis' constant √(3/2) (every segment acknowledged) times a segment of 1 460 bytes, in bits.
const MATHIS_BITS: f64 = 1_460.0 * 8.0 * 1.224_744_871_391_589;
/// Probes cannot distinguish a lower loss from zero within minutes.
const MIN_LOSS: f64 = 1e-4;
const MIN_RTT_S: f64 = 1e-3;
/// The rates with bulk score 0 and 100 are 10 kbit/s and 1 Gbit/s, five decades apart.
const RATE_0_BPS: f64 = 1e4;
const DECADES: f64 = 5.0;

/// Scores a usable path for a class; higher is better.
///
/// - Voice: the E-model's R (ITU-T G.107), in the form of Cole and Rosenbluth (Voice over IP performance monitoring,
///   2001) for G.711 with loss concealment. Inputs are the one-way delay (half the round trip plus a jitter buffer) and
///   the loss of the worse direction. Terms that are equal on all paths, such as packetisation delay, are left out.
/// - Interactive: 100/(1 + t/150 ms), where t is the expected response time: round trip, jitter, and a retransmission
///   timeout for the share of exchanges that lose a packet.
/// - Bulk: Mathis' TCP rate MSS·√(3/2)/(RTT·√p), where p is the loss of the worse direction, limited to the link's
///   rate, on a logarithmic scale: 20 points per decade, 6 per factor of two.
/// - Default: half interactive, half bulk.
///
/// The price is weighted by the volume of a class: 10 points per unit for voice and interactive, 30 for bulk, 20 for
/// default. Invalid measurements (negative, NaN) count as zero.
#[must_use]
pub fn score(class: Class, path: &PathView) -> Score {
    let terms = Terms::new(class, path, Quality::of(path));
    Score {
        value: terms.sum(),
        terms: terms.list[..terms.len].to_vec(),
        measured: path.rtt_s.is_some(),
    }
}

/// The parts of a score that several classes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    interactive: f64,
    bulk: f64,
}

impl Quality {
    pub(crate) fn of(path: &PathView) -> Quality {
        Quality { interactive: interactive(path), bulk: bulk(path) }
    }

    /// The value of [`score`].
    pub(crate) fn value(self, class: Class, path: &PathView) -> f64 {
        Terms::new(class, path, self).sum()
    }
}

/// The summands of a score in a fixed array: scores are computed for every sample, so they must not allocate.
struct Terms {
    list: [(&'static str, f64); 5],
    len: usize,
}

impl Terms {
    fn new(class: Class, path: &PathView, quality: Quality) -> Terms {
        let mut terms = Terms { list: [("", 0.0); 5], len: 0 };
        let Quality { interactive, bulk } = quality;
        let per_price = match class {
            Class::Voice => {
                voice(path).into_iter().for_each(|term| terms.push(term));
                10.0
            }
            Class::Interactive => {
                terms.push(("response time", interactive));
                10.0
            }
            Class::Bulk => {
                terms.push(("TCP rate", bulk));
                30.0
            }
            Class::Default => {
                terms.push(("response time", 0.5 * interactive));
                terms.push(("TCP rate", 0.5 * bulk));
                20.0
            }
        };
        let price = not_negative(path.price);
        if price > 0.0 {
            terms.push(("price", -per_price * price));
        }
        if path.preference.is_finite() && path.preference != 0.0 {
            terms.push(("preference", path.preference));
        }
        terms
    }

    fn push(&mut self, term: (&'static str, f64)) {
        self.list[self.len] = term;
        self.len += 1;
    }

    fn sum(&self) -> f64 {
        self.list[..self.len].iter().map(|(_, points)| points).sum()
    }
}

fn voice(path: &PathView) -> [(&'static str, f64); 3] {
    let delay_ms =
        1e3 * (0.5 * rtt_s(path) + BUFFER_DEVIATIONS * not_negative(path.jitter_s)).min(1e6);
    let mut delay = delay_impairment(delay_ms).min(R_MAX);
    let mut loss = loss_impairment(worse_loss(path));
    // R has no meaning below zero; scale both terms down in proportion.
    let excess = (delay + loss) / R_MAX;
    if excess > 1.0 {
        delay /= excess;
        loss /= excess;
    }
    [("best R", R_MAX), ("delay", -delay), ("loss", -loss)]
}

/// Delay impairment Id of the E-model for a one-way delay in milliseconds.
fn delay_impairment(ms: f64) -> f64 {
    0.024 * ms + 0.11 * (ms - 177.3).max(0.0)
}

/// Loss impairment Ie of the E-model for G.711 with concealment, for a loss share of 0 to 1.
fn loss_impairment(loss: f64) -> f64 {
    30.0 * libm::log(1.0 + 15.0 * loss)
}

fn interactive(path: &PathView) -> f64 {
    let rtt_s = rtt_s(path);
    let kept = (1.0 - share(path.loss_up)) * (1.0 - share(path.loss_down));
    let repeats = (1.0 - kept) / kept.max(1e-3);
    let response_s = rtt_s
        + BUFFER_DEVIATIONS * not_negative(path.jitter_s)
        + repeats * (rtt_s + RETRANSMISSION_S);
    100.0 / (1.0 + response_s / HALF_RESPONSE_S)
}

fn bulk(path: &PathView) -> f64 {
    let loss = worse_loss(path).max(MIN_LOSS);
    let rate_bps = MATHIS_BITS / (rtt_s(path).max(MIN_RTT_S) * libm::sqrt(loss));
    let most = path.rate_bps.filter(|rate| rate.is_finite()).map_or(rate_bps, not_negative);
    // A rate of zero also gets a score.
    let share = libm::log10(rate_bps.min(most).max(1.0) / RATE_0_BPS) / DECADES;
    100.0 * share.clamp(0.0, 1.0)
}

fn rtt_s(path: &PathView) -> f64 {
    path.rtt_s.filter(|rtt_s| rtt_s.is_finite()).map_or(UNKNOWN_RTT_S, not_negative)
}

fn worse_loss(path: &PathView) -> f64 {
    let unknown = if path.rtt_s.is_none() { UNKNOWN_LOSS } else { 0.0 };
    share(path.loss_up).max(share(path.loss_down)).max(unknown)
}

fn share(loss: f64) -> f64 {
    not_negative(loss).min(1.0)
}

fn not_negative(x: f64) -> f64 {
    if x.is_finite() { x.max(0.0) } else { 0.0 }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Score {
    /// `90.5 (best R 93.2, delay -0.5, loss -2.2)`, or `not measured yet`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.measured {
            return f.write_str("not measured yet");
        }
        write!(f, "{:.1} (", self.value)?;
        for (i, (name, points)) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {points:.1}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn path(rtt_s: f64, loss: f64) -> PathView {
        PathView {
            id: PathId(0),
            usable: true,
            rtt_s: Some(rtt_s),
            loss_up: loss,
            loss_down: 0.0,
            lossy: false,
            bound_up: 0.0,
            bound_down: 0.0,
            jitter_s: 0.0,
            rate_bps: None,
            price: 0.0,
            since: Time::ZERO,
            preference: 0.0,
        }
    }

    #[test]
    fn voice_follows_the_e_model_at_points_computed_by_hand() {
        // R = 93.2 - (0.024 d + 0.11 max(d - 177.3, 0)) - 30 ln(1 + 15 e), d one way in ms.
        for (rtt_s, loss, r) in [
            (0.0, 0.0, 93.2),
            (0.2, 0.0, 90.8),    // 0.024 * 100 = 2.4
            (0.6, 0.0, 72.503),  // 7.2 + 0.11 * 122.7 = 20.697
            (0.0, 0.01, 89.007), // 30 ln 1.15 = 4.1929
            (0.2, 0.05, 74.012), // 2.4 + 30 ln 1.75 = 2.4 + 16.7885
        ] {
            let got = score(Class::Voice, &path(rtt_s, loss)).value;
            assert!((got - r).abs() < 0.01, "rtt {rtt_s} loss {loss}: {got}, not {r}");
        }
    }

    #[test]
    fn jitter_costs_voice_the_delay_of_its_buffer() {
        let jittery = PathView { jitter_s: 0.05, ..path(0.1, 0.0) };
        // A delay of 50 ms one way plus 2 * 50 ms of buffer equal 150 ms one way.
        assert_eq!(score(Class::Voice, &jittery).value, score(Class::Voice, &path(0.3, 0.0)).value);
    }

    #[test]
    fn bulk_follows_mathis_on_a_scale_of_twenty_points_a_decade() {
        // 1460 * 8 * 1.2247 / (0.1 * 0.1) = 1.430 Mbit/s; log10(143.05) * 20 = 43.11.
        let at_100_ms = score(Class::Bulk, &path(0.1, 0.01)).value;
        assert!((at_100_ms - 43.11).abs() < 0.01, "{at_100_ms}");
        let a_tenth = score(Class::Bulk, &path(1.0, 0.01)).value;
        assert!((at_100_ms - a_tenth - 20.0).abs() < 1e-9);
    }

    #[test]
    fn bulk_is_no_faster_than_its_link() {
        // log10(1e6 / 1e4) * 20 = 40.
        let slow = PathView { rate_bps: Some(1e6), ..path(0.01, 0.0) };
        assert!((score(Class::Bulk, &slow).value - 40.0).abs() < 1e-9);
        let fast = PathView { rate_bps: Some(1e12), ..path(0.01, 0.0) };
        assert_eq!(score(Class::Bulk, &fast).value, score(Class::Bulk, &path(0.01, 0.0)).value);
        assert_eq!(score(Class::Voice, &slow).value, score(Class::Voice, &fast).value);
    }

    #[test]
    fn interactive_is_fifty_at_150_ms_and_pays_a_timeout_for_a_loss() {
        assert!((score(Class::Interactive, &path(0.15, 0.0)).value - 50.0).abs() < 1e-9);
        // Loss 0.2: 0.25 repeats of 0.1 + 0.2 s, in addition to 0.1 s, make 0.175 s.
        let lossy = score(Class::Interactive, &path(0.1, 0.2)).value;
        assert!((lossy - 100.0 / (1.0 + 0.175 / 0.15)).abs() < 1e-9, "{lossy}");
    }

    #[test]
    fn a_metered_path_loses_bulk_flows_before_voice_flows() {
        let metered = PathView { price: 1.0, ..path(0.05, 0.001) };
        let cost = |class| score(class, &path(0.05, 0.001)).value - score(class, &metered).value;
        assert!(cost(Class::Bulk) > cost(Class::Default));
        assert!(cost(Class::Default) > cost(Class::Voice));
    }

    #[test]
    fn a_measured_path_beats_an_unmeasured_one() {
        let unmeasured = PathView { rtt_s: None, ..path(0.0, 0.0) };
        for class in Class::ALL {
            let (known, unknown) = (score(class, &path(0.3, 0.01)), score(class, &unmeasured));
            assert!(known.value > unknown.value, "{class}: {known} and {unknown}");
        }
    }

    #[test]
    fn a_score_tells_what_it_is_made_of() {
        let preferred = PathView { preference: 3.0, ..path(0.2, 0.0) };
        let text = score(Class::Voice, &preferred).to_string();
        assert_eq!(text, "93.8 (best R 93.2, delay -2.4, loss -0.0, preference 3.0)");
    }

    proptest! {
        #[test]
        fn quality_stays_within_0_and_100_and_falls_with_delay_and_loss(
            rtt in 0.0..5.0f64, loss in 0.0..1.0f64, more in 0.0..1.0f64,
        ) {
            for class in Class::ALL {
                let here = score(class, &path(rtt, loss)).value;
                prop_assert!((-1e-9..=100.0).contains(&here), "{class} {here}");
                prop_assert!(score(class, &path(rtt + more, loss)).value <= here + 1e-9);
                prop_assert!(score(class, &path(rtt, (loss + more).min(1.0))).value <= here + 1e-9);
            }
        }

        #[test]
        fn no_measurement_makes_a_score_that_is_not_a_number(
            rtt in proptest::option::of(proptest::num::f64::ANY),
            up in proptest::num::f64::ANY, down in proptest::num::f64::ANY,
            jitter_s in proptest::num::f64::ANY, price in 0.0..10.0f64,
            preference in proptest::num::f64::ANY,
            rate_bps in proptest::option::of(proptest::num::f64::ANY),
        ) {
            let odd = PathView {
                rtt_s: rtt, loss_up: up, loss_down: down, jitter_s, rate_bps, price, preference,
                ..path(0.0, 0.0)
            };
            for class in Class::ALL {
                prop_assert!(!score(class, &odd).value.is_nan());
            }
        }
    }
}
