//! Packet loss: one way from counters of all packets (section 4.2), and for round trips from probes alone (appendix
//! III).

use segue_clock::{Span, Time};

use crate::Counted;

/// Maximum packet rate of an interface: 100 Gbit/s of minimum-size frames are 149 packets per microsecond. A counter
/// that grows faster belongs to a restarted peer.
const MAX_PACKETS_PER_US: u64 = 150;
/// Extra allowance, because a stalled link releases probes together although their counters are far apart.
const COUNTER_SLACK: u64 = 1 << 24;

/// Number of packets in one direction that may end a loss interval early, after at least [`EARLY_AFTER`].
pub const EARLY_PACKETS: u64 = 50;
/// See [`EARLY_PACKETS`].
pub const EARLY_AFTER: Span = Span::from_millis(250);

/// Rule for the end of a loss interval. The interval ends at the first probe that counts and for which either condition
/// holds. The rule depends on packets sent and on time but never on losses, which would bias the averages.
///
/// * (N − ½)·T_KA has passed since it began, with the current T_KA.
/// * On a path whose T_KA follows its use: [`EARLY_PACKETS`] have been sent and [`EARLY_AFTER`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Current T_KA.
    pub t_ka: Span,
    /// N: probes per interval.
    pub n: u32,
    /// T_KA follows the use of the path.
    pub follows_use: bool,
}

impl Pace {
    /// Time after which an interval ends: N probes, minus half a period for jitter.
    fn length(self) -> Span {
        (self.t_ka * u64::from(self.n)) - self.t_ka.half()
    }

    fn ends(self, lasted: Span, sent: u64) -> bool {
        let early = self.follows_use && sent >= EARLY_PACKETS && lasted >= EARLY_AFTER;
        early || lasted >= self.length()
    }
}

/// Loss of one direction, from the counters of *all* packets sent and received, data and probes, modulo 2³², as probes
/// carry them.
///
/// Call it only for probes that are newer than all earlier ones. The first pair of counters is the baseline; earlier
/// packets do not count. Counters that go backwards, or forwards faster than any link, make a new baseline. A value
/// lies in [0, 1]. Surplus arrivals (late packets or duplicates) offset losses of the next interval but of no later
/// one.
///
/// **Outages.** After a silence of any length, the next value includes all losses during it (section 4.2). The
/// exception is an outage, from the declaration of down until the path is up again. Losses before the declaration
/// count, because on a working but lossy path they caused it, and without them the average would be too low. The
/// current interval is suspended during the outage.
///
/// No counter tells how many packets of the silence were sent before the declaration. The estimator assumes that they
/// left evenly, and that all except the last, which arrived, are alike. Of *S* packets with *L* losses, in a silence of
/// which the share *g* had passed, it counts *B* = ⌊*g S*⌋ ≤ *S* − 1 packets and *L B*/(*S* − 1) losses, rounded up as
/// often as the fraction demands. Without data *B* is K.
///
/// A server whose client hears nothing still receives requests, which repeat the last pair of downlink counters. The
/// silence is then the time from that pair to the next different one.
#[derive(Clone, Debug, Default)]
pub struct OneWayLoss {
    last: Option<Pair>,
    interval: Counted,
    /// Surplus arrivals of the previous interval.
    surplus: u64,
    /// Start of the current interval, moved forward by the time excluded from it.
    begun: Time,
    outage: Outage,
}

/// Whether losses are excluded as an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outage {
    #[default]
    None,
    /// From this instant; no pair of counters has arrived since.
    Declared(Time),
    /// After the next pair, which the peer recorded before the silence.
    Echoed,
    /// From this instant on the sender's clock, while arriving pairs repeat the last one.
    Deaf(Time),
    /// Since the last pair.
    Lasting,
}

/// The value of a finished loss interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Share of lost packets, in [0, 1].
    pub loss: f64,
    /// Duration without outages: the weight of the value in an average.
    pub length: Span,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    sent: u32,
    received: u32,
    at: Time,
    /// The instant at which the counters had these values.
    of: Time,
}

impl OneWayLoss {
    /// An estimator without baseline.
    #[must_use]
    pub fn new() -> OneWayLoss {
        OneWayLoss::default()
    }

    /// Discards the baseline and the current interval.
    pub fn reset(&mut self) {
        *self = OneWayLoss { outage: self.outage, ..OneWayLoss::default() };
    }

    /// Declares the path down at `now`: later losses count only in the total.
    pub fn declare(&mut self, now: Time) {
        self.outage = Outage::Declared(now);
    }

    /// Like [`declare`](OneWayLoss::declare), for counters that the peer echoes: the next pair is from before the
    /// silence and counts.
    pub fn declare_echoed(&mut self) {
        self.outage = Outage::Echoed;
    }

    /// The peer reported that it hears nothing sent from `from` on. Losses count only in the total until it hears
    /// again. No effect during an outage.
    pub fn declare_deaf(&mut self, from: Time) {
        if self.outage == Outage::None {
            self.outage = Outage::Deaf(from);
        }
    }

    /// The path has been up again since the last pair.
    pub fn over(&mut self) {
        self.outage = Outage::None;
    }

    /// Processes counters of the instant `of`, carried by a probe that arrived at `at`. Adds the new packets to
    /// `total`, and returns the loss 1 − ΔR/ΔS if the interval [ends](Pace). `None` while it continues or if nothing
    /// was sent in it. A `question`, or the answer to one, does not count and does not end an interval.
    ///
    /// `of` equals `at` unless the peer echoes the counters. Then it is the time (t_Ss) at which this end sent the last
    /// probe that arrived there. The length of an interval is therefore the time in which its packets were sent.
    pub fn observe(
        &mut self,
        at: Time,
        of: Time,
        (sent, received): (u32, u32),
        pace: Pace,
        question: bool,
        total: &mut Counted,
    ) -> Option<Interval> {
        let pair = Pair { sent, received, at, of };
        let grown = self.last.and_then(|last| Some((last, last.growth(pair)?)));
        let Some((last, new)) = grown else {
            let lasting = self.outage != Outage::None;
            let outage = if lasting { Outage::Lasting } else { Outage::None };
            let interval = Counted::default();
            *self = OneWayLoss { last: Some(pair), interval, surplus: 0, begun: of, outage };
            return None;
        };
        self.last = Some(pair);
        total.sent += new.sent;
        total.received += new.received;
        let kept = if self.outage == Outage::None {
            new
        } else {
            let (kept, left_out) = self.keep(new, last, pair);
            self.begun += left_out;
            kept
        };
        self.interval.sent += kept.sent;
        self.interval.received += kept.received;
        let length = of.since(self.begun);
        if question || self.interval.sent == 0 || !pace.ends(length, self.interval.sent) {
            return None;
        }
        let Counted { sent, received } = core::mem::take(&mut self.interval);
        let arrived = received + self.surplus;
        self.surplus = received.saturating_sub(sent);
        self.begun = of;
        let loss = (1.0 - arrived as f64 / sent as f64).clamp(0.0, 1.0);
        Some(Interval { loss, length })
    }

    /// Splits the packets between two pairs at an outage: returns the packets that count, and the time that does not.
    fn keep(&mut self, new: Counted, last: Pair, pair: Pair) -> (Counted, Span) {
        let (at, silence) = (pair.at, pair.at.since(last.at));
        match core::mem::replace(&mut self.outage, Outage::Lasting) {
            Outage::None => {
                self.outage = Outage::None;
                (new, Span::ZERO)
            }
            Outage::Echoed => (new, silence),
            Outage::Lasting => (Counted::default(), silence),
            Outage::Declared(down) => {
                new.part(Span(silence.0.saturating_sub(at.since(down).0)), silence, at)
            }
            Outage::Deaf(from) if new.sent == 0 => {
                self.outage = Outage::Deaf(from);
                (new, Span::ZERO)
            }
            Outage::Deaf(from) => new.part(from.since(last.of), pair.of.since(last.of), at),
        }
    }
}

/// `whole`·`part`/`of`; `whole` if `of` is zero.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part);
    product.checked_div(u128::from(of)).map_or(whole, |share| share as u64)
}

impl Counted {
    /// For the packets of a silence that ended at `at` with the last of them: returns those from its first part,
    /// `passed`, and the time that the others take.
    fn part(self, passed: Span, silence: Span, at: Time) -> (Counted, Span) {
        let kept = self.before(passed, silence, at);
        let others = self.sent.saturating_sub(kept.sent);
        (kept, Span::from_micros(share(silence.0, others, self.sent) / 1_000))
    }

    /// For the packets of a silence that ended at `at` with the last of them: returns those from its first part,
    /// `passed`.
    fn before(self, passed: Span, silence: Span, at: Time) -> Counted {
        if passed >= silence {
            return self;
        }
        let sent = share(passed.0, self.sent, silence.0).min(self.sent.saturating_sub(1));
        let lost = self.sent.saturating_sub(self.received);
        // A pseudo-random number below 2³², from the microsecond of the arrival.
        let chance = u64::from(at.micros32().wrapping_mul(2_654_435_761));
        let others = self.sent.saturating_sub(1).max(1);
        let lost = (lost * sent + ((chance * others) >> 32)) / others;
        Counted { sent, received: sent.saturating_sub(lost) }
    }
}

impl Pair {
    /// Growth of both counters from `self` to `later`; `None` if it is not credible.
    fn growth(self, later: Pair) -> Option<Counted> {
        let sent = u64::from(later.sent.wrapping_sub(self.sent));
        let received = u64::from(later.received.wrapping_sub(self.received));
        let elapsed_us = later.at.since(self.at).0 / 1_000;
        let most = elapsed_us.saturating_mul(MAX_PACKETS_PER_US).saturating_add(COUNTER_SLACK);
        (sent.max(received) <= most.min(1 << 31)).then_some(Counted { sent, received })
    }
}

/// Round-trip loss, from the client's own counts of requests and responses.
///
/// A response that arrives after the interval of its request counts as lost there and as surplus in a later interval.
/// The surplus is carried over; otherwise it would be lost permanently when the RTT shrinks.
#[derive(Clone, Debug, Default)]
pub struct RoundTripLoss {
    last: Option<Counted>,
}

impl RoundTripLoss {
    /// An estimator without baseline.
    #[must_use]
    pub fn new() -> RoundTripLoss {
        RoundTripLoss::default()
    }

    /// Processes Sc (requests sent) and Rc (responses received) at the arrival of a response. Returns a value if the
    /// interval has had `n` requests. The first response sets the baseline.
    pub fn observe(&mut self, sc: u64, rc: u64, n: u32) -> Option<f64> {
        self.last.get_or_insert(Counted { sent: sc, received: rc });
        self.evaluate(sc, rc, n)
    }

    /// Like [`observe`](RoundTripLoss::observe), just before another request leaves (Patriarca et al., "When sending
    /// out a probe"), so that there are values while no responses arrive.
    pub fn evaluate(&mut self, sc: u64, rc: u64, n: u32) -> Option<f64> {
        let last = self.last?;
        let sent = sc.saturating_sub(last.sent);
        let received = rc.saturating_sub(last.received);
        if sent < u64::from(n.max(1)) {
            return None;
        }
        // Compute the surplus against this interval's Sc_last, before that advances.
        let surplus = received.saturating_sub(sent);
        self.last = Some(Counted { sent: sc, received: rc - surplus });
        Some((1.0 - received as f64 / sent as f64).clamp(0.0, 1.0))
    }
}
