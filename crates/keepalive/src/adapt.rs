//! Chooses how to probe a path while it is in use and while it is idle, from measurements of it.
//!
//! The caller periodically calls [`Adaptive`] for a path that is up; the call returns new settings when they are due,
//! and the reason. It chooses three things.
//!
//! * **T_KA while the path is idle**: as long as the idle aim permits. Finding a fault takes T_KA/2 longer on average,
//!   plus the time for an answer and for the questions that follow.
//! * **T_KA while the path is in use**: for measurement; detection follows the data ([`crate::Client`], "Doubt").
//!   Probes cost at most [`Aims::share`] of the path's bytes.
//! * **The questions** of a client in doubt ([`crate::questions`]): as few and as close as T_fp permits.
//!
//! **Loss** of each direction is estimated from the counts of all its packets over two windows, of about 500 and about
//! 50 packets. The estimate is the larger of two values: the long window plus one standard deviation, and the short
//! window minus one. A rise is visible after some dozen packets; a single loss in the short window is not.
//!
//! **Round trips.** The planner needs the probability that a probe fails. Without other information it assumes
//! independent directions. A radio fault affects both at once, and this assumption then counts each loss twice. The
//! client's own counts of requests and answers, over windows of the same size, therefore bound the value from both
//! sides, each with one standard deviation. It is never below the loss of the worse direction.

use core::fmt;

use segue_clock::Span;

use crate::planner::BITS_PER_EXCHANGE;
use crate::questions::{QUESTION_GAP, Questions, Silence, questions};
use crate::{Counted, Estimates, Lapses};

/// Requirements of the user. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aims {
    /// Average time to detect a fault on a path without data.
    pub idle: f64,
    /// T_fp^min: lower bound of the mean time between two false positives.
    pub fp_interval: f64,
    /// Maximum number of probes per second on this path, excluding questions in doubt.
    pub probes_per_s: f64,
    /// Maximum share of a path's bytes that probes may cost.
    pub share: f64,
    /// Maximum number of questions.
    pub k_max: u8,
    /// Minimum loss assumed in each direction: some minutes without loss prove little.
    pub least_loss: f64,
}

impl Default for Aims {
    /// 2.5 s on average, T_fp of 10⁵ s, 50 probes per second, a tenth of the bytes, up to 20 questions, a loss of
    /// 0.1 %.
    fn default() -> Aims {
        Aims {
            idle: 2.5,
            fp_interval: 1e5,
            probes_per_s: 50.0,
            share: 0.1,
            k_max: 20,
            least_loss: 0.001,
        }
    }
}

/// Minimum T_KA of a path in use, in seconds: four RTT samples per second suffice for path selection.
const MEASURING: f64 = 0.25;
/// Maximum T_KA, in seconds: the longest that a probe can state, rounded down.
const LONGEST: f64 = 60.0;
/// Assumed pauses of streams per second on a path in use.
const PAUSES: f64 = 1.0;
/// Bytes of a request and its response.
const EXCHANGE: f64 = BITS_PER_EXCHANGE / 8.0;

/// Measurements on which settings are based. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The path carries data.
    pub used: bool,
    /// Bytes of data per second, both directions.
    pub rate: f64,
    /// RTT_avg, the main average.
    pub rtt_avg: f64,
    /// The largest RTT seen.
    pub rtt_max: f64,
    /// Time allowed for an answer.
    pub answer: f64,
    /// Loss from client to server, as planned for.
    pub loss_up: f64,
    /// Loss from server to client.
    pub loss_down: f64,
    /// Share of probes whose request or response is lost, as planned for.
    pub loss: f64,
    /// Mean length of bursts; `None` if there were none.
    pub burst: Option<f64>,
    /// Length of the longest recent burst, in seconds.
    pub longest: f64,
}

/// State of a path for [`Adaptive::update`].
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The client's estimates.
    pub estimates: &'a Estimates,
    /// Requests up to the last one answered, and answers ([`Client::round_trips`](crate::Client::round_trips)).
    pub round_trips: Counted,
    /// Silences that have ended ([`Client::lapses`](crate::Client::lapses)).
    pub lapses: Lapses,
    /// Time allowed for an answer ([`Client::answer_within`](crate::Client::answer_within)).
    pub answer: Span,
    /// The path carries data.
    pub used: bool,
    /// Bytes of data per second, both directions.
    pub rate: f64,
    /// Answers arrive. Otherwise the call neither learns nor changes anything.
    pub is_up: bool,
}

/// Reason for the settings, and their properties. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Why {
    /// The measurements.
    pub known: Known,
    /// K that probes state to the peer, which uses it as long as it has no other information.
    pub k: u8,
    /// T_KA.
    pub t_ka: f64,
    /// The questions in doubt.
    pub questions: Questions,
    /// Average time to detect a fault: from the first lost packet if the path carries data, otherwise from the fault.
    pub detection: f64,
    /// The required T_fp.
    pub fp_interval: f64,
}

impl Why {
    /// Whether false positives will be more frequent than required, because no permitted number of questions keeps them
    /// rare.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.questions.t_fp < self.fp_interval
    }
}

/// The settings of one path over time.
#[derive(Clone, Debug)]
pub struct Adaptive {
    aims: Aims,
    up: Losses,
    down: Losses,
    round_trips: Losses,
    was_up: bool,
    in_force: Option<Why>,
}

impl Adaptive {
    /// No settings yet; the first call chooses them.
    #[must_use]
    pub fn new(aims: Aims) -> Adaptive {
        Adaptive {
            aims,
            up: Losses::default(),
            down: Losses::default(),
            round_trips: Losses::default(),
            was_up: false,
            in_force: None,
        }
    }

    /// Reason for the current settings; `None` before the first choice.
    #[must_use]
    pub fn why(&self) -> Option<&Why> {
        self.in_force.as_ref()
    }

    /// The user's requirements.
    #[must_use]
    pub fn aims(&self) -> &Aims {
        &self.aims
    }

    /// Call this periodically. Returns the reason if the settings change.
    pub fn update(&mut self, look: Look<'_>) -> Option<&Why> {
        // Losses while the path was down belong to an outage.
        let learns = look.is_up && self.was_up;
        self.was_up = look.is_up;
        let (up, down) = counts(look.estimates);
        self.up.observe(up, learns);
        self.down.observe(down, learns);
        self.round_trips.observe(look.round_trips, learns);
        if !look.is_up {
            return None;
        }
        let why = self.choose(self.known(look));
        let changes = self.in_force.is_none_or(|before| differs(&before, &why));
        if !changes {
            return None;
        }
        self.in_force = Some(why);
        self.in_force.as_ref()
    }

    fn known(&self, look: Look<'_>) -> Known {
        let rtt_avg = look.estimates.rtt_ewma.first().copied().unwrap_or(0.0).max(0.0);
        let rtt_max = look.estimates.rtt_max.map_or(rtt_avg, Span::as_secs_f64).max(rtt_avg);
        let least = self.aims.least_loss;
        let (loss_up, loss_down) = (self.up.loss(least), self.down.loss(least));
        Known {
            used: look.used,
            rate: look.rate,
            rtt_avg,
            rtt_max,
            answer: look.answer.as_secs_f64(),
            loss_up,
            loss_down,
            loss: self.round_trip_loss(loss_up, loss_down),
            burst: look.lapses.mean(),
            longest: look.lapses.longest,
        }
    }

    /// See "Round trips" in the module's documentation.
    fn round_trip_loss(&self, up: f64, down: f64) -> f64 {
        let independent = 1.0 - (1.0 - up) * (1.0 - down);
        let (least, most) = self.round_trips.bounds();
        independent.min(most).max(least).max(up).max(down)
    }

    fn choose(&self, known: Known) -> Why {
        let silence = known.silence(&self.aims);
        let questions = questions(&silence);
        let found_in = known.answer + questions.t_d;
        let shortest = 1.0 / self.aims.probes_per_s;
        let idle = (2.0 * (self.aims.idle - found_in)).clamp(MEASURING.max(shortest), LONGEST);
        let t_ka = if known.used {
            // Powers of two, so that a varying rate does not change the period constantly.
            let costs = EXCHANGE / (self.aims.share * known.rate.max(1e-3)) / MEASURING;
            let doublings = libm::ceil(libm::log2(costs.max(1.0)));
            (MEASURING * libm::exp2(doublings)).max(shortest).min(idle)
        } else {
            idle
        };
        let detection = if known.used { found_in } else { t_ka / 2.0 + found_in };
        let fp_interval = self.aims.fp_interval;
        Why {
            known,
            k: stated_k(&known, t_ka, fp_interval),
            t_ka,
            questions,
            detection,
            fp_interval,
        }
    }
}

impl Known {
    /// The basis for the choice of questions. While data flow in only one direction, questions about them are requests
    /// too.
    #[must_use]
    pub fn silence(&self, aims: &Aims) -> Silence {
        let asked = if self.used { 1.0 / QUESTION_GAP.as_secs_f64() } else { 0.0 };
        Silence {
            answer: self.answer,
            loss: self.loss,
            burst: self.burst,
            longest: self.longest,
            requests: 1.0 / MEASURING + asked,
            pauses: PAUSES,
            fp_interval: aims.fp_interval,
            k_max: aims.k_max,
        }
    }
}

/// Number of consecutive requests that the peer may miss before it declares the uplink dead by itself: enough to make a
/// false positive as rare as required.
fn stated_k(known: &Known, t_ka: f64, fp_interval: f64) -> u8 {
    let rare = |k: &u8| libm::pow(known.loss_up, f64::from(*k)) * fp_interval < t_ka;
    (4..20).find(rare).unwrap_or(20)
}

/// Whether new settings differ enough to be worth a change.
fn differs(before: &Why, after: &Why) -> bool {
    let far = |a: f64, b: f64| libm::fabs(a - b) > 0.1 * a.max(b);
    before.k != after.k
        || far(before.t_ka, after.t_ka)
        || before.questions.k != after.questions.k
        || far(before.questions.spacing, after.questions.spacing)
        || before.is_given_up() != after.is_given_up()
}

/// Counts of each direction. If only the round trip is known, its counts replace the uplink's.
fn counts(e: &Estimates) -> (Counted, Counted) {
    if e.up.sent == 0 && e.down.sent == 0 {
        // The last request may still be in flight.
        return (Counted { sent: e.sent, received: e.received }, Counted::default());
    }
    (e.up, e.down)
}

/// Maximum loss planned for: a path that loses more is useless.
const MOST_LOSS: f64 = 0.9;

/// Packets and losses of one direction in two windows.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    last: Counted,
    long: Window,
    short: Window,
}

/// Approximately the last `size` packets, exponentially weighted.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    sent: f64,
    lost: f64,
}

impl Losses {
    const LONG: f64 = 500.0;
    const SHORT: f64 = 50.0;

    fn observe(&mut self, total: Counted, learns: bool) {
        let sent = total.sent.saturating_sub(self.last.sent) as f64;
        let received = total.received.saturating_sub(self.last.received) as f64;
        self.last = total;
        if learns && sent > 0.0 {
            self.long.push(sent, sent - received, Self::LONG);
            self.short.push(sent, sent - received, Self::SHORT);
        }
    }

    fn loss(&self, least: f64) -> f64 {
        let long = self.long.share(1.0);
        long.max(self.short.share(-1.0)).clamp(least.min(MOST_LOSS), MOST_LOSS)
    }

    /// Bounds of the true loss, one standard deviation in each direction.
    fn bounds(&self) -> (f64, f64) {
        // If none of n packets is lost, the true number may be one.
        let lost = self.long.lost.max(0.0);
        let most = (lost + libm::sqrt(lost + 1.0)) / self.long.sent.max(1.0);
        // The short window shows a rise earlier than the long one.
        (self.long.share(-1.0).min(MOST_LOSS), most.max(self.short.share(-1.0)))
    }
}

impl Window {
    fn push(&mut self, sent: f64, lost: f64, size: f64) {
        let keep = libm::exp(-sent / size);
        self.sent = self.sent * keep + sent;
        self.lost = self.lost * keep + lost;
    }

    /// The loss, plus this many standard deviations.
    fn share(&self, deviations: f64) -> f64 {
        // Negative if packets arrive after an update has counted them as lost.
        let lost = self.lost.max(0.0);
        (lost + deviations * libm::sqrt(lost)) / self.sent.max(Losses::SHORT / 2.0)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = &self.known;
        write!(
            f,
            "{}: T_KA {:.0} ms; in doubt {} questions {:.0} ms apart, down after {:.0} ms; RTT {:.1} ms, loss \
             {:.2} % up {:.2} % down {:.2} % round trip; T_fp {:.3e} s",
            if known.used { "in use" } else { "idle" },
            self.t_ka * 1e3,
            self.questions.k,
            self.questions.spacing * 1e3,
            self.questions.t_d * 1e3,
            known.rtt_avg * 1e3,
            known.loss_up * 1e2,
            known.loss_down * 1e2,
            known.loss * 1e2,
            self.questions.t_fp,
        )?;
        if let Some(burst) = known.burst {
            write!(f, "; bursts of {:.0} ms, {:.0} at most", burst * 1e3, known.longest * 1e3)?;
        }
        if self.is_given_up() {
            write!(f, "; T_fp given up: {:.3e} s asked", self.fp_interval)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why() -> Why {
        let known = Known {
            used: true,
            rate: 1e5,
            rtt_avg: 0.02,
            rtt_max: 0.025,
            answer: 0.03,
            loss_up: 0.01,
            loss_down: 0.02,
            loss: 0.03,
            burst: None,
            longest: 0.0,
        };
        // A single question has no spacing.
        let questions = Questions { k: 1, spacing: 0.0, t_d: 0.03, t_fp: 2e5 };
        Why { known, k: 4, t_ka: 1.0, questions, detection: 0.06, fp_interval: 1e5 }
    }

    #[test]
    fn settings_change_for_a_tenth_of_a_time_for_one_question_and_for_what_is_given_up() {
        let changed = |change: fn(&mut Why)| {
            let mut after = why();
            change(&mut after);
            [differs(&why(), &after), differs(&after, &why())]
        };
        assert_eq!(changed(|_| {}), [false, false]);
        assert_eq!(changed(|why| why.detection = 3.0), [false, false]);
        assert_eq!(changed(|why| why.k = 5), [true, true]);
        assert_eq!(changed(|why| why.t_ka = 1.12), [true, true]);
        assert_eq!(changed(|why| why.t_ka = 1.105), [false, false], "a tenth of the longer");
        assert_eq!(changed(|why| why.questions.k = 2), [true, true]);
        assert_eq!(changed(|why| why.questions.spacing = 0.1), [true, true]);
        assert_eq!(changed(|why| why.questions.t_fp = 0.9e5), [true, true]);
        assert_eq!(changed(|why| why.questions.t_fp = 1e5), [false, false], "it is kept");
    }

    #[test]
    fn the_k_that_is_stated_is_the_least_that_makes_the_other_ends_alarms_as_rare_as_asked() {
        let stated = |loss_up, t_ka| stated_k(&Known { loss_up, ..why().known }, t_ka, 1e5);
        // 0.01⁴ · 10⁵ s is a millisecond, 0.1⁵ · 10⁵ s a second.
        assert_eq!([stated(0.01, 1.0), stated(0.1, 0.99), stated(0.1, 1.01)], [4, 6, 5]);
        // 0.5¹⁷ · 10⁵ s = 0.76 s. The stated K is at most twenty.
        assert_eq!([stated(0.5, 0.75), stated(0.5, 0.77), stated(0.9, 1.0)], [18, 17, 20]);
    }

    /// The loss windows after several rounds of packets sent and lost.
    fn seen(counts: &[(u64, u64)]) -> Losses {
        let (mut losses, mut total) = (Losses::default(), Counted::default());
        for (sent, lost) in counts {
            total.sent += sent;
            total.received += sent - lost;
            losses.observe(total, true);
        }
        losses
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn what_is_lost_is_taken_with_a_deviation_on_top_and_a_rise_with_one_less() {
        let steady = seen(&[(100, 16)]);
        near(steady.loss(0.001), 0.20);
        near(steady.bounds().0, 0.12);
        near(steady.bounds().1, (16.0 + libm::sqrt(17.0)) / 100.0);

        // Half of the last fifty: the long window has 5 ± 1 in a hundred, the short one more.
        let rise = seen(&[(200, 0), (50, 25)]);
        let (long, short) = (200.0 * libm::exp(-0.1) + 50.0, 200.0 * libm::exp(-1.0) + 50.0);
        near(rise.loss(0.001), 20.0 / short);
        near(rise.bounds().0, 20.0 / long);
        near(rise.bounds().1, 20.0 / short);
        assert!(20.0 / short > (25.0 + libm::sqrt(26.0)) / long);

        // Few packets count as 25. No loss in n may really be one.
        near(seen(&[(10, 4)]).loss(0.001), 6.0 / 25.0);
        near(seen(&[(10, 4)]).bounds().1, (4.0 + libm::sqrt(5.0)) / 10.0);
        near(seen(&[(10, 0)]).loss(0.001), 0.001);
        near(seen(&[(10, 0)]).bounds().1, 0.1);
        near(seen(&[(100, 100)]).loss(0.001), MOST_LOSS);
        near(seen(&[(100, 100)]).bounds().0, 0.9);
    }

    #[test]
    fn what_comes_after_it_was_counted_as_lost_takes_no_loss_below_zero_and_no_outage_is_learned() {
        let mut losses = Losses::default();
        losses.observe(Counted { sent: 10, received: 12 }, true);
        near(losses.loss(0.0), 0.0);
        near(losses.bounds().1, 0.1);
        losses.observe(Counted { sent: 1_010, received: 12 }, false);
        near(losses.loss(0.0), 0.0);
        // Counting starts here.
        losses.observe(Counted { sent: 1_020, received: 22 }, true);
        near(losses.loss(0.0), 0.0);
    }

    #[test]
    fn the_loss_of_round_trips_is_between_what_is_counted_and_never_below_the_worse_direction() {
        let mut adaptive = Adaptive::new(Aims::default());
        // Without counts, the directions are assumed independent.
        near(adaptive.round_trip_loss(0.1, 0.2), 0.28);
        // 16 ± 4 of 100: both directions fail together.
        adaptive.round_trips = seen(&[(100, 16)]);
        near(adaptive.round_trip_loss(0.1, 0.15), (16.0 + libm::sqrt(17.0)) / 100.0);
        near(adaptive.round_trip_loss(0.1, 0.25), 0.25);
        near(adaptive.round_trip_loss(0.3, 0.1), 0.3);
        near(adaptive.round_trip_loss(0.01, 0.02), 0.12);
        near(adaptive.round_trip_loss(0.08, 0.08), 1.0 - 0.92 * 0.92);
    }
}
