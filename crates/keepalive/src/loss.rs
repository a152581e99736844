//! Loss: one way from counters of all packets (section 4.2), round trip from probes alone
//! (appendix III).

use segue_clock::{Span, Time};

use crate::Counted;

/// No interface sends more: 100 Gbit/s of smallest frames are 149 packets in a microsecond. A counter that grows faster
/// belongs to a restarted peer.
const MAX_PACKETS_PER_US: u64 = 150;
/// Extra allowance: probes that a stalled link releases together carry counters from far apart.
const COUNTER_SLACK: u64 = 1 << 24;

/// Packets of a direction that end a loss interval before its time, and the time that it then takes at least.
pub const EARLY_PACKETS: u64 = 50;
/// See [`EARLY_PACKETS`].
pub const EARLY_AFTER: Span = Span::from_millis(250);

/// What ends a loss interval: the first probe that counts at which either is so. The rule looks at packets sent and at
/// time, never at losses, or the averages would be biased.
///
/// * (N − ½)·T_KA has passed since it began, with the T_KA now in force.
/// * On a path whose T_KA follows its use, [`EARLY_PACKETS`] have been sent and [`EARLY_AFTER`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// T_KA now.
    pub t_ka: Span,
    /// N.
    pub n: u32,
    /// T_KA follows the use of the path.
    pub follows_use: bool,
}

impl Pace {
    /// The time after which an interval ends: that of N probes, less half a period for jitter.
    fn length(self) -> Span {
        (self.t_ka * u64::from(self.n)) - self.t_ka.half()
    }

    fn ends(self, lasted: Span, sent: u64) -> bool {
        let early = self.follows_use && sent >= EARLY_PACKETS && lasted >= EARLY_AFTER;
        early || lasted >= self.length()
    }
}

/// Loss of one direction: sent and received counters of *all* packets, data and probes, as the
/// probes carry them, modulo 2³².
///
/// Feed it only with probes newer than all before. The first pair of counters is the baseline:
/// packets before it do not count. Counters that go backwards, or forwards faster than any link,
/// make a new baseline. A value lies in [0, 1]. More arrivals than packets sent (late ones, or duplicates) make up for
/// losses of the next interval and no further.
///
/// **Outages.** However long nothing comes, the next value includes what was lost meanwhile (section 4.2). Only an
/// outage is left out, from the moment when the path is declared down until it is up again. Losses before the
/// declaration count: on a lossy path that lives they are what caused it, and without them the average would be too
/// low. The current interval stands still meanwhile, and then goes on.
///
/// No counter tells how many packets of the silence were sent before the declaration. The estimator assumes that they
/// left evenly in that time, and that all but the last, which came, are alike: of *S* packets, *L* of them lost, in a
/// silence of which the share *g* had passed, it keeps *B* = ⌊*g S*⌋ ≤ *S* − 1, and of the lost ones *L B*/(*S* − 1),
/// rounded up as often as the fraction says. Without data *B* is K.
///
/// A server whose client hears nothing still gets requests, which repeat the last pair of the way down. The silence is
/// then the time from that pair to the next different one.
#[derive(Clone, Debug, Default)]
pub struct OneWayLoss {
    last: Option<Pair>,
    interval: Counted,
    /// Arrivals that the interval before had more than packets sent.
    surplus: u64,
    /// When the current interval began, moved later by what is left out of it.
    begun: Time,
    outage: Outage,
}

/// Whether losses are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outage {
    #[default]
    None,
    /// Since this instant, and no pair has come since.
    Declared(Time),
    /// Since the last pair but one, as it were: the next one is from before.
    Echoed,
    /// Since this instant by the clock that counts what is sent, while pairs come that repeat the last one.
    Deaf(Time),
    /// Since the last pair.
    Lasting,
}

/// The value of a finished loss interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Share of the packets that was lost, in [0, 1].
    pub loss: f64,
    /// How long it lasted, without outages: its weight in an average.
    pub length: Span,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    sent: u32,
    received: u32,
    at: Time,
    /// The instant that the counters describe.
    of: Time,
}

impl OneWayLoss {
    /// No baseline yet.
    #[must_use]
    pub fn new() -> OneWayLoss {
        OneWayLoss::default()
    }

    /// Forgets the baseline and the current interval.
    pub fn reset(&mut self) {
        *self = OneWayLoss { outage: self.outage, ..OneWayLoss::default() };
    }

    /// The path is declared down at `now`: from then on losses count only in the total.
    pub fn declare(&mut self, now: Time) {
        self.outage = Outage::Declared(now);
    }

    /// As [`declare`](OneWayLoss::declare) for counters that the other end echoes: those of the next pair are from
    /// before the silence, and count.
    pub fn declare_echoed(&mut self) {
        self.outage = Outage::Echoed;
    }

    /// The other end has said that it hears nothing of what was sent from `from` on: until it hears again, losses count
    /// only in the total. Does nothing in an outage.
    pub fn declare_deaf(&mut self, from: Time) {
        if self.outage == Outage::None {
            self.outage = Outage::Deaf(from);
        }
    }

    /// The path is up again with the last pair.
    pub fn over(&mut self) {
        self.outage = Outage::None;
    }

    /// Takes the counters of the instant `of`, which a probe brought at `at`, adds what is new to `total`, and
    /// evaluates the interval if it [ends](Pace): 1 − ΔR/ΔS, `None` if nothing was sent in it. The probe is a `question`
    /// or answers one: it does not count, and ends no interval.
    ///
    /// `of` equals `at` unless the other end echoes the counters: then it is when this end's last probe to arrive had
    /// left (t_Ss). So an interval is as long as the time in which its packets were sent.
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

    /// How many of the packets between two pairs count in an outage, and how much of the time does not.
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

/// `whole`·`part`/`of`; all of it if `of` is zero.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part);
    product.checked_div(u128::from(of)).map_or(whole, |share| share as u64)
}

impl Counted {
    /// How many of these packets of a silence, the last of which ended it at `at`, are from before its first `passed`,
    /// and how much of its time the others take.
    fn part(self, passed: Span, silence: Span, at: Time) -> (Counted, Span) {
        let kept = self.before(passed, silence, at);
        let others = self.sent.saturating_sub(kept.sent);
        (kept, Span::from_micros(share(silence.0, others, self.sent) / 1_000))
    }

    /// How many of these packets of a silence, the last of which ended it at `at`, are from before its first `passed`.
    fn before(self, passed: Span, silence: Span, at: Time) -> Counted {
        if passed >= silence {
            return self;
        }
        let sent = share(passed.0, self.sent, silence.0).min(self.sent.saturating_sub(1));
        let lost = self.sent.saturating_sub(self.received);
        // The microsecond of an arrival, spread evenly below 2³².
        let chance = u64::from(at.micros32().wrapping_mul(2_654_435_761));
        let others = self.sent.saturating_sub(1).max(1);
        let lost = (lost * sent + ((chance * others) >> 32)) / others;
        Counted { sent, received: sent.saturating_sub(lost) }
    }
}

impl Pair {
    /// How far both counters went from `self` to `later`, `None` if that is not credible.
    fn growth(self, later: Pair) -> Option<Counted> {
        let sent = u64::from(later.sent.wrapping_sub(self.sent));
        let received = u64::from(later.received.wrapping_sub(self.received));
        let elapsed_us = later.at.since(self.at).0 / 1_000;
        let most = elapsed_us.saturating_mul(MAX_PACKETS_PER_US).saturating_add(COUNTER_SLACK);
        (sent.max(received) <= most.min(1 << 31)).then_some(Counted { sent, received })
    }
}

/// Loss of the round trip, from the client's own counts of requests and responses.
///
/// A response that arrives after the end of the interval in which its request was sent counts as lost there, and as
/// surplus in a later one. The surplus is carried over, or it would be lost for good when the RTT shrinks.
#[derive(Clone, Debug, Default)]
pub struct RoundTripLoss {
    last: Option<Counted>,
}

impl RoundTripLoss {
    /// No baseline yet.
    #[must_use]
    pub fn new() -> RoundTripLoss {
        RoundTripLoss::default()
    }

    /// Takes Sc (requests sent) and Rc (responses received) as of a response, and evaluates if the interval has had
    /// `n` requests. The first response gives the baseline.
    pub fn observe(&mut self, sc: u64, rc: u64, n: u32) -> Option<f64> {
        self.last.get_or_insert(Counted { sent: sc, received: rc });
        self.evaluate(sc, rc, n)
    }

    /// The same just before another request leaves (Patriarca et al., "When sending out a probe"), so that
    /// there are values while nothing comes.
    pub fn evaluate(&mut self, sc: u64, rc: u64, n: u32) -> Option<f64> {
        let last = self.last?;
        let sent = sc.saturating_sub(last.sent);
        let received = rc.saturating_sub(last.received);
        if sent < u64::from(n.max(1)) {
            return None;
        }
        // Count the surplus against the Sc_last of this interval before that moves on.
        let surplus = received.saturating_sub(sent);
        self.last = Some(Counted { sent: sc, received: rc - surplus });
        Some((1.0 - received as f64 / sent as f64).clamp(0.0, 1.0))
    }
}
