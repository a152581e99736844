//! Access paths without a rate: delay, jitter, loss and outages, with little memory per path.

use segue_clock::{Span, Time};
use segue_netem::Loss;

use super::spec::{Class, Outages, Silent};

/// A small random number generator (SplitMix64; Steele, Lea and Flood, 2014). Its state is eight bytes, since a
/// population needs millions of them. Results depend on its exact sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// A generator that depends only on the seed and on the kind and number of its user.
    pub(super) fn new(seed: u64, kind: u64, number: u64) -> SplitMix {
        let mut mix = SplitMix(seed ^ kind << 56);
        let start = mix.next() ^ number;
        mix = SplitMix(start);
        SplitMix(mix.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), with 53 random bits.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform in [0, n); 0 for n = 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Exponentially distributed with this mean.
    pub(super) fn exponential(&mut self, mean: Span) -> Span {
        Span((-libm::log(1.0 - self.unit()) * mean.0 as f64) as u64)
    }
}

/// One direction of an access path. Loss and jitter have separate random sequences, so that the same packets are lost
/// with and without jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    loss: SplitMix,
    jitter: SplitMix,
    last_arrival: Time,
    /// State of a loss process with two states.
    bad: bool,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The packet arrives.
    Arrives(Time),
    /// The packet is lost at random.
    Lost,
    /// The packet is lost because the path is silent.
    Silent,
}

impl Direction {
    pub(super) fn new(class: &Class, seed: u64, number: u64) -> Direction {
        let mut loss = SplitMix::new(seed, 1, number);
        let bad = match class.loss {
            Loss::GilbertElliott { p, r, .. } if p + r > 0.0 => loss.unit() < p / (p + r),
            _ => false,
        };
        Direction { loss, jitter: SplitMix::new(seed, 2, number), last_arrival: Time::ZERO, bad }
    }

    pub(super) fn last_arrival(&self) -> Time {
        self.last_arrival
    }

    /// Offers a packet. The loss process also advances for packets on a silent path.
    pub(super) fn offer(&mut self, now: Time, class: &Class, silent: bool) -> Fate {
        let lost = match class.loss {
            Loss::None | Loss::Exact(_) | Loss::Armed(_) | Loss::Trace(_) => false,
            Loss::Bernoulli(p) => self.loss.unit() < p,
            Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
                let lost = self.loss.unit() < if self.bad { loss_bad } else { loss_good };
                self.bad ^= self.loss.unit() < if self.bad { r } else { p };
                lost
            }
        };
        if silent {
            return Fate::Silent;
        }
        if lost {
            return Fate::Lost;
        }
        let offset = match class.jitter.0 {
            0 => Span::ZERO,
            jitter => Span(self.jitter.below(2 * jitter + 1)),
        };
        let at = (now + (class.delay + offset - class.jitter)).max(self.last_arrival);
        self.last_arrival = at;
        Fate::Arrives(at)
    }
}

/// The outages of a path, one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    rng: SplitMix,
    /// The current or next outage.
    pub(super) start: Time,
    pub(super) end: Time,
    /// End of the previous outage.
    pub(super) before: Time,
}

impl Outage {
    /// The first outage starts after `from`.
    pub(super) fn new(outages: Option<Outages>, from: Time, seed: u64, number: u64) -> Outage {
        let never = Time(u64::MAX);
        let rng = SplitMix::new(seed, 3, number);
        let mut first = Outage { rng, start: never, end: never, before: Time::ZERO };
        if let Some(outages) = outages {
            first.draw(from, outages);
        }
        first
    }

    fn draw(&mut self, from: Time, outages: Outages) {
        self.start = from + self.rng.exponential(outages.every);
        self.end = self.start + outages.lasts.half() + Span(self.rng.below(outages.lasts.0));
    }

    /// If the current outage is over at `now`, draws the next one and returns the start and end of the finished one.
    pub(super) fn pass(&mut self, now: Time, outages: Option<Outages>) -> Option<(Time, Time)> {
        let outages = outages.filter(|_| self.end <= now)?;
        let over = (self.start, self.end);
        self.before = self.end;
        self.draw(self.end, outages);
        Some(over)
    }

    /// Returns true if the path is in an outage at `now`. Call [`pass`](Outage::pass) up to `now` first.
    pub(super) fn covers(&self, now: Time) -> bool {
        self.start <= now && now < self.end
    }
}

impl Outages {
    /// Returns true if the outages silence this direction.
    pub(super) fn silences(&self, up: bool) -> bool {
        match self.direction {
            Silent::Both => true,
            Silent::Up => up,
            Silent::Down => !up,
        }
    }
}
