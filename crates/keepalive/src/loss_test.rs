//! A sequential test for loss: has a direction of a path begun to lose packets?
//!
//! An average reacts late, because it must first forget the loss-free past. [`LossTest`] runs a CUSUM test (Page,
//! Continuous inspection schemes, 1954) on the exact counts that probes carry. For each of four [`LEVELS`] of loss it
//! adds the log-likelihood ratio of that level against [`BASELINE`] to a sum that never falls below zero. It gives a
//! verdict when a sum exceeds its threshold. A path that loses no more than the baseline gets one verdict per
//! [`FALSE_ALARM_S`], for all levels and both directions together.
//!
//! * **Reordering.** A packet that the probe overtook is not lost. The test holds back as many missing packets as
//!   reordering can explain, and never counts them as losses of later packets. A surplus (late arrivals or duplicates)
//!   offsets losses of the next pair of counters but of no later one, because duplicates would otherwise hide loss.
//! * **Bursts.** Packets are lost in bursts, and a burst is one event. A sum therefore grows by at most half its
//!   threshold within [`EVENT`], and a verdict requires two events.
//! * **The flow's own congestion.** Before a full queue drops packets, it delays them. While the round-trip time is far
//!   above its recent minimum, losses count as one event per [`CONGESTED_EVENT`], and the baseline is the loss that
//!   senders cause themselves.
//! * **The end of a verdict.** A packet that arrives does not end a verdict. A second CUSUM does, which tests the
//!   baseline against the verdict's level.

use core::fmt;

use segue_clock::{Span, Time};

use crate::{Client, Counted};

/// Normal loss, in [0, 1].
pub const BASELINE: f64 = 0.01;
/// The tested levels of loss.
pub const LEVELS: [f64; 4] = [0.02, 0.05, 0.15, 0.5];
/// Mean time between false verdicts of a path, in seconds.
pub const FALSE_ALARM_S: f64 = 1e5;
/// Losses within this time are one event.
pub const EVENT: Span = Span::from_millis(100);
/// Like [`EVENT`], while the path is congested.
pub const CONGESTED_EVENT: Span = Span::from_secs(2);
/// Loss that senders cause themselves while the path is congested. Replaces [`BASELINE`]; only higher levels are
/// tested.
const CONGESTION_LOSS: f64 = 0.05;
/// A verdict ends when the baseline is this many times as likely as the geometric mean of baseline and level. The level
/// itself is too far away: losses between the two would alternately cause and end verdicts.
const END_ODDS: f64 = 1_000.0;
/// Distance of the bounds from the counted loss, in standard deviations.
const BOUND_DEVIATIONS: f64 = 1.5;
/// Number of recent packets, approximately, that determine a verdict's loss.
const WINDOW: f64 = 500.0;
/// Time constant of the packet rate, in seconds.
const RATE_TAU_S: f64 = 1.0;
/// Minimum packet rate, per second.
const LEAST_RATE: f64 = 0.1;

/// A path is congested while its RTT exceeds the recent minimum by this plus three times the variation.
const QUEUE_S: f64 = 0.005;
/// The recent minimum covers between one and two of these spans.
const MINIMUM_OF: Span = Span::from_secs(60);

/// Verdict that a direction of a path loses packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossVerdict {
    /// Estimated start of the loss.
    pub since: Time,
    /// Time of the verdict.
    pub at: Time,
    /// The level whose test gave it, one of [`LEVELS`].
    pub level: f64,
    /// The packets from `since` to the verdict.
    pub counted: Counted,
    /// Recent loss, in [0, 1].
    pub loss: f64,
}

/// The state of a path at a pair of counters.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Mean difference of consecutive round-trip times, in seconds.
    pub jitter_s: f64,
    /// The round-trip time is far above its recent minimum.
    pub congested: bool,
}

/// The test of one direction. Packet counts are totals, as in [`Estimates`](crate::Estimates).
#[derive(Clone, Debug)]
pub struct LossTest {
    seen: Counted,
    at: Time,
    /// Packets per second.
    rate: f64,
    /// Missing packets that may only be late; negative for a surplus.
    balance: f64,
    /// Fraction of an event that may still count, in [0, 1].
    credit: f64,
    sums: [Sum; LEVELS.len()],
    verdict: Option<LossVerdict>,
    /// Progress towards the end of the verdict.
    recovery: f64,
    recent: Recent,
}

/// The sum of one level, and the packets since it was zero.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    value: f64,
    since: Time,
    counted: Counted,
}

/// Recent packets and losses, exponentially weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    sent: f64,
    lost: f64,
}

impl Recent {
    /// These packets with their loss ratio, at no more than the weight of the window.
    fn of(counted: Counted) -> Recent {
        let Counted { sent, .. } = counted;
        let share = if sent > 0 { counted.lost() as f64 / sent as f64 } else { 0.0 };
        let sent = (sent as f64).min(WINDOW);
        Recent { sent, lost: share * sent }
    }

    fn push(&mut self, sent: f64, lost: f64) {
        let keep = libm::exp(-sent / WINDOW);
        self.sent = self.sent * keep + sent;
        self.lost = self.lost * keep + lost;
    }

    fn share(self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Bounds of the loss that explains `lost` of `sent` packets: Wilson's score interval, in [0, 1]. It is wide for few
/// packets, and [0, 1] for none.
#[must_use]
pub fn bounds(sent: f64, lost: f64) -> (f64, f64) {
    if sent < 1.0 {
        return (0.0, 1.0);
    }
    let z = BOUND_DEVIATIONS;
    let p = (lost / sent).clamp(0.0, 1.0);
    let half = 0.5 * z * z / sent;
    let deviation = libm::sqrt(z * z * p * (1.0 - p) / sent + half * half);
    let end = |sign: f64| ((p + half + sign * deviation) / (1.0 + 2.0 * half)).clamp(0.0, 1.0);
    (end(-1.0), end(1.0))
}

/// Log-likelihood ratios of a loss `p` against `q`, for a lost packet and for one that arrives.
fn ratios(p: f64, q: f64) -> (f64, f64) {
    (libm::log(p / q), libm::log((1.0 - p) / (1.0 - q)))
}

/// The test of one level against a baseline. Logarithms are costly, and most packets of most paths need none.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// The [`ratios`].
    lost: f64,
    came: f64,
    /// How much the sum falls on average with a packet, at the baseline's loss.
    falls: f64,
    /// No threshold is lower, even at [`LEAST_RATE`].
    least: f64,
}

impl Test {
    const fn new(baseline: f64, lost: f64, came: f64, least: f64) -> Test {
        Test { lost, came, falls: -(baseline * lost + (1.0 - baseline) * came), least }
    }

    /// The threshold at a packet rate, by Wald's approximation of the mean time to a false alarm (Siegmund, Sequential
    /// Analysis, 1985, section 2.6): exp(h + excess)/|mean step|, where the excess over the threshold is about half the
    /// step of a lost packet.
    fn threshold(&self, rate: f64) -> f64 {
        let share_s = FALSE_ALARM_S * 2.0 * LEVELS.len() as f64;
        let packets = share_s * rate.max(LEAST_RATE);
        (libm::log(packets * self.falls) - 0.5 * self.lost).max(self.lost)
    }
}

/// The tests against [`BASELINE`], in the order of [`LEVELS`].
static TESTS: [Test; LEVELS.len()] = [
    Test::new(BASELINE, core::f64::consts::LN_2, -0.010_152_371_464_017_962, 5.1),
    Test::new(BASELINE, 1.609_437_912_434_100_3, -0.041_242_958_534_049_134, 6.7),
    Test::new(BASELINE, 2.708_050_201_102_21, -0.152_468_593_644_273_5, 7.8),
    Test::new(BASELINE, 3.912_023_005_428_146, -0.683_096_844_706_443_8, 8.8),
];
/// The tests against [`CONGESTION_LOSS`], of the two levels above it.
static CONGESTED_TESTS: [Test; 2] = [
    Test::new(CONGESTION_LOSS, 1.098_612_288_668_109_6, -0.111_225_635_110_224_37, 7.7),
    Test::new(CONGESTION_LOSS, core::f64::consts::LN_10, -0.641_853_886_172_394_8, 9.4),
];

impl LossTest {
    /// Starts a test at these totals.
    #[must_use]
    pub fn new(now: Time, seen: Counted) -> LossTest {
        LossTest {
            seen,
            at: now,
            rate: 0.0,
            balance: 0.0,
            credit: 1.0,
            sums: [Sum { since: now, ..Sum::default() }; LEVELS.len()],
            verdict: None,
            recovery: 0.0,
            recent: Recent::of(seen),
        }
    }

    /// The current verdict.
    #[must_use]
    pub fn verdict(&self) -> Option<&LossVerdict> {
        self.verdict.as_ref()
    }

    /// Lower bound of the recent loss while there is a verdict, in [0, 1]; otherwise zero.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.verdict.map_or(0.0, |_| bounds(self.recent.sent, self.recent.lost).0)
    }

    /// Upper bound of the recent loss, in [0, 1].
    #[must_use]
    pub fn most(&self) -> f64 {
        bounds(self.recent.sent, self.recent.lost).1
    }

    /// Whether a sum exceeds a quarter of its threshold, so that a verdict may follow.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        let exceeds = |(sum, test): (&Sum, &Test)| {
            sum.value > 0.25 * test.least && sum.value > 0.25 * test.threshold(self.rate)
        };
        self.sums.iter().zip(&TESTS).any(exceeds)
    }

    /// Ignores losses up to these totals, because the path was down or the counters restarted.
    pub fn skip(&mut self, now: Time, total: Counted) {
        (self.seen, self.at) = (total, now);
        self.balance = 0.0;
        self.sums = [Sum { since: now, ..Sum::default() }; LEVELS.len()];
    }

    /// Like [`skip`](LossTest::skip), and ends the verdict.
    fn restart(&mut self, now: Time, total: Counted) {
        self.skip(now, total);
        (self.verdict, self.recovery) = (None, 0.0);
        // Keep the packets, but forget their losses.
        self.recent.lost = 0.0;
    }

    /// Processes the totals at `now`. Returns whether a verdict was given or ended.
    pub fn observe(&mut self, now: Time, total: Counted, conditions: Conditions) -> bool {
        let (sent, received) = match total.since(self.seen) {
            Some(new) if new.sent > 0 => (new.sent as f64, new.received as f64),
            Some(_) => return false,
            None => {
                self.skip(now, total);
                return false;
            }
        };
        let elapsed = now.since(self.at);
        (self.seen, self.at) = (total, now);
        self.learn_rate(sent, elapsed);
        let lost = self.lost(sent, received, conditions);
        self.recent.push(sent, lost);
        let event = if conditions.congested { CONGESTED_EVENT } else { EVENT };
        self.credit = (self.credit + elapsed.as_secs_f64() / event.as_secs_f64()).min(1.0);
        let given = self.add(now, sent, lost, conditions);
        let ended = !given && self.recover(sent, lost);
        given || ended
    }

    fn learn_rate(&mut self, sent: f64, elapsed: Span) {
        let elapsed_s = elapsed.as_secs_f64();
        if elapsed_s > 0.0 {
            let weight = 1.0 - libm::exp(-elapsed_s / RATE_TAU_S);
            self.rate += weight * (sent / elapsed_s - self.rate);
        }
    }

    /// The packets that are certainly lost. When the rate falls, reordering explains fewer missing packets than before.
    /// Those held back until then went missing among earlier, perhaps many, packets, and are dropped without being
    /// counted.
    fn lost(&mut self, sent: f64, received: f64, conditions: Conditions) -> f64 {
        let late = 2.0 * conditions.jitter_s * self.rate;
        let missing = sent - received;
        let balance = self.balance + missing;
        let excess = libm::floor((balance - late).max(0.0));
        self.balance = (balance - excess).max(missing.min(0.0));
        excess.min(missing.max(0.0))
    }

    /// Updates the sums; returns whether one gives a verdict.
    fn add(&mut self, now: Time, sent: f64, lost: f64, conditions: Conditions) -> bool {
        let above = self.verdict.map_or(0.0, |verdict| verdict.level);
        let (mut used, mut given) = (0.0_f64, None);
        let tests = if conditions.congested { &CONGESTED_TESTS[..] } else { &TESTS[..] };
        let tested = LEVELS.len() - tests.len()..;
        let levels = self.sums[tested.clone()].iter_mut().zip(&LEVELS[tested]).zip(tests);
        for ((sum, level), test) in levels.filter(|((_, level), _)| **level > above) {
            let mut step = lost * test.lost + (sent - lost) * test.came;
            // Packets that all arrived change nothing at zero, and give no verdict below the lowest threshold.
            let matters = step > 0.0 || sum.value + step >= test.least;
            let limit = if matters { test.threshold(self.rate) } else { f64::INFINITY };
            if step > 0.0 {
                step = step.min(0.5 * limit * self.credit);
                used = used.max(step / (0.5 * limit));
            }
            sum.value += step;
            sum.counted.sent += sent as u64;
            sum.counted.received += (sent - lost) as u64;
            if sum.value <= 0.0 {
                *sum = Sum { since: now, ..Sum::default() };
            } else if sum.value >= limit {
                given = Some((*sum, *level));
            }
        }
        self.credit = (self.credit - used).max(0.0);
        let Some((Sum { since, counted, .. }, level)) = given else { return false };
        self.recent = Recent::of(counted);
        let loss = self.recent.share();
        self.verdict = Some(LossVerdict { since, at: now, level, counted, loss });
        self.recovery = 0.0;
        self.sums = [Sum { since: now, ..Sum::default() }; LEVELS.len()];
        true
    }

    /// Tests whether the verdict has ended; returns true if so.
    fn recover(&mut self, sent: f64, lost: f64) -> bool {
        let Some(verdict) = &mut self.verdict else { return false };
        verdict.loss = self.recent.share();
        let halfway = libm::sqrt(BASELINE * verdict.level);
        let (of_lost, of_came) = ratios(BASELINE, halfway);
        self.recovery = (self.recovery + lost * of_lost + (sent - lost) * of_came).max(0.0);
        let ends = self.recovery >= libm::log(END_ODDS);
        if ends {
            self.verdict = None;
            self.recovery = 0.0;
        }
        ends
    }
}

impl Counted {
    /// The packets since `earlier`; `None` if a counter went backwards.
    #[must_use]
    pub fn since(self, earlier: Counted) -> Option<Counted> {
        let sent = self.sent.checked_sub(earlier.sent)?;
        Some(Counted { sent, received: self.received.checked_sub(earlier.received)? })
    }

    /// The number of missing packets.
    #[must_use]
    pub fn lost(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

/// `lost 31 of 214 packets`
impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost {} of {} packets", self.lost(), self.sent)
    }
}

/// The recent minimum of the round-trip time, for the detection of queueing.
#[derive(Clone, Copy, Debug)]
pub struct Queueing {
    /// Minima of the current and the previous span.
    minima: [f64; 2],
    since: Time,
}

impl Queueing {
    /// No measurements yet.
    #[must_use]
    pub fn new(now: Time) -> Queueing {
        Queueing { minima: [f64::INFINITY; 2], since: now }
    }

    /// Processes a round-trip time; returns whether it indicates a queue.
    pub fn observe(&mut self, now: Time, rtt: Span, jitter_s: f64) -> bool {
        if now.since(self.since) >= MINIMUM_OF {
            self.minima = [f64::INFINITY, self.minima[0]];
            self.since = now;
        }
        let rtt_s = rtt.as_secs_f64();
        self.minima[0] = self.minima[0].min(rtt_s);
        let least = self.minima[0].min(self.minima[1]);
        rtt_s > least + QUEUE_S + 3.0 * jitter_s
    }
}

/// The tests of both directions of a path.
#[derive(Clone, Debug)]
pub struct PathLosses {
    queueing: Queueing,
    /// From client to server; round trips if only these are measured.
    pub up: LossTest,
    /// From server to client.
    pub down: LossTest,
}

impl PathLosses {
    /// Starts the tests at the current counts.
    #[must_use]
    pub fn new(now: Time, client: &Client) -> PathLosses {
        let [up, down] = client.counted().map(|total| LossTest::new(now, total));
        PathLosses { queueing: Queueing::new(now), up, down }
    }

    /// Processes a path's counts. Losses while it is not `up`, and until the first counters afterwards, belong to an
    /// outage and are ignored. Returns for each direction whether a verdict was given or ended.
    pub fn observe(&mut self, now: Time, client: &Client, up: bool) -> [bool; 2] {
        let ([total_up, total_down], estimates) = (client.counted(), client.estimates());
        if !up {
            self.up.skip(now, total_up);
            self.down.skip(now, total_down);
            return [false; 2];
        }
        let jitter_s = estimates.rtt_jitter;
        let queue = |rtt| self.queueing.observe(now, rtt, jitter_s);
        let congested = estimates.rtt_last.is_some_and(queue);
        let conditions = Conditions { jitter_s, congested };
        [self.up.observe(now, total_up, conditions), self.down.observe(now, total_down, conditions)]
    }

    /// The newest current verdict.
    #[must_use]
    pub fn latest(&self) -> Option<&LossVerdict> {
        [self.up.verdict(), self.down.verdict()].into_iter().flatten().max_by_key(|v| v.at)
    }

    /// Ends all verdicts because the losses so far are explained, and restarts the tests at the current counts.
    pub fn restart(&mut self, now: Time, client: &Client) {
        let [up, down] = client.counted();
        self.up.restart(now, up);
        self.down.restart(now, down);
    }

    /// Whether a direction has a verdict.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.up.verdict().is_some() || self.down.verdict().is_some()
    }

    /// Whether a direction has a verdict or may get one.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        [&self.up, &self.down].iter().any(|test| test.verdict().is_some() || test.is_suspicious())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_and_lowest_thresholds_of_the_tests_are_those_of_their_levels() {
        let congested = LEVELS.len() - CONGESTED_TESTS.len();
        let all = LEVELS.iter().zip(&TESTS).map(|pair| (BASELINE, pair));
        let congested = LEVELS[congested..].iter().zip(&CONGESTED_TESTS);
        for (baseline, (level, test)) in all.chain(congested.map(|pair| (CONGESTION_LOSS, pair))) {
            assert!(*level > baseline);
            assert_eq!((test.lost, test.came), ratios(*level, baseline), "{level}");
            let lowest = test.threshold(0.0);
            assert!((lowest - 0.1..lowest).contains(&test.least), "{level}: {lowest}");
        }
        assert!(
            LEVELS[..LEVELS.len() - CONGESTED_TESTS.len()].iter().all(|l| *l <= CONGESTION_LOSS)
        );
    }
}
