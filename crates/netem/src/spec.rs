//! What a link is like: the parameters of a [`LinkModel`](crate::LinkModel) and their check.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use segue_clock::Span;

/// One direction of a link. The default is a perfect one: no delay, no loss, unlimited rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    /// Serialisation rate in bits per second; `None` serialises in no time (and nothing ever queues).
    pub rate_bps: Option<u64>,
    /// Propagation delay.
    pub delay: Span,
    /// Variation of the delay from packet to packet.
    pub jitter: Jitter,
    /// Whether jitter and changes of delay may let a packet overtake another. If not, a packet
    /// arrives no earlier than the one before it.
    pub reordering: bool,
    /// Room for packets that wait for serialisation.
    pub queue: Queue,
    /// Loss on the wire.
    pub loss: Loss,
    /// Drops everything.
    pub silent: bool,
    /// How the link changes with time.
    pub profile: Profile,
}

/// Variation of the propagation delay; a delay never becomes negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Uniform between delay − span and delay + span.
    Uniform(Span),
    /// Normal around the delay with this standard deviation.
    Normal(Span),
}

/// Bound of a drop-tail queue: a packet that would exceed it is dropped on arrival. The packet being
/// serialised is not counted, so ns-2's DropTail with limit L is `Packets(L - 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// Everything waits. The one unbounded choice; its user bounds what is offered.
    #[default]
    Unbounded,
    /// At most this many packets wait.
    Packets(u32),
    /// At most this many bytes wait.
    Bytes(u64),
    /// No packet waits longer than this for its serialisation, as tc-tbf's "latency".
    Delay(Span),
}

/// The loss process. It steps once for every packet that starts serialisation.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability, independently.
    Bernoulli(f64),
    /// Two states (Gilbert 1960, Elliott 1963), left after a packet with probability `p` (good to bad)
    /// and `r` (bad to good), each with a loss probability of its own. It starts in a state drawn from
    /// the stationary distribution. With `loss_good` 0 and `loss_bad` 1, bursts are 1/r long in the
    /// mean and the loss is p/(p + r).
    GilbertElliott {
        /// Probability of going from good to bad after a packet.
        p: f64,
        /// Probability of going from bad to good after a packet.
        r: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
    /// Exactly the packets with these numbers, in ascending order; the first packet that ever starts
    /// serialisation on this link is number 0.
    Exact(Vec<u64>),
    /// At each of these times from the start of the link a counter is set, whatever it was; while it is
    /// positive, every packet that starts serialisation is lost and takes one from it.
    Armed(Vec<(Span, u32)>),
    /// What was recorded, an entry for each packet; behind the last entry the first follows.
    Trace(LossTrace),
}

/// A recorded sequence of lost and kept packets, a bit each. Copies share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossTrace {
    words: Arc<[u64]>,
    /// Entries in `words`, or how many were given where those are too many to be held.
    len: u64,
}

impl LossTrace {
    /// Entries that a trace may have: 2 MiB.
    pub const MAX: u64 = 1 << 24;

    /// How many packets were recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many of them were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether entry `i`, counted from 0 and below [`len`](Self::len), is a loss.
    pub(crate) fn get(&self, i: u64) -> bool {
        self.words.get((i / 64) as usize).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }
}

impl FromIterator<bool> for LossTrace {
    /// A trace of these entries, true for a loss. It holds [`LossTrace::MAX`] of them; a link refuses one
    /// that was given more.
    fn from_iter<I: IntoIterator<Item = bool>>(entries: I) -> LossTrace {
        let (mut words, mut len) = (Vec::new(), 0);
        for lost in entries {
            if len < LossTrace::MAX {
                if len % 64 == 0 {
                    words.push(0);
                }
                if let Some(word) = words.last_mut() {
                    *word |= u64::from(lost) << (len % 64);
                }
            }
            len += 1;
        }
        LossTrace { words: words.into(), len }
    }
}

impl Loss {
    /// The expected share of lost packets; `None` for a list, which has none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        match *self {
            Loss::None => Some(0.0),
            Loss::Bernoulli(p) => Some(p),
            Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
                let bad = stationary_bad(p, r);
                Some(bad * loss_bad + (1.0 - bad) * loss_good)
            }
            Loss::Exact(_) | Loss::Armed(_) => None,
            Loss::Trace(ref trace) => Some(trace.lost() as f64 / trace.len().max(1) as f64),
        }
    }
}

/// The share of packets that meet the bad state in the long run.
pub(crate) fn stationary_bad(p: f64, r: f64) -> f64 {
    if p + r > 0.0 { p / (p + r) } else { 0.0 }
}

/// A change of a link; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// New propagation delay.
    pub delay: Option<Span>,
    /// New loss process, started afresh.
    pub loss: Option<Loss>,
    /// New rate in bits per second; `Some(None)` is unlimited.
    pub rate_bps: Option<Option<u64>>,
    /// Silence begins or ends.
    pub silent: Option<bool>,
}

/// Piecewise constant changes over time. Each adds to those before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// When, counted from the start of the link (or of the period), and what; in ascending order.
    pub steps: Vec<(Span, Change)>,
    /// After this span everything starts again from the link's own values.
    pub period: Option<Span>,
}

/// A parameter that makes no link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpecError {
    /// A probability outside [0, 1].
    Probability {
        /// Which one.
        name: &'static str,
        /// The refused value.
        value: f64,
    },
    /// A rate of zero. Silence is `silent`.
    ZeroRate,
    /// A list of losses whose entry at this position is not above the one before it.
    UnsortedLoss(usize),
    /// A trace of losses without an entry.
    EmptyTrace,
    /// A trace of losses with this many entries.
    LongTrace(u64),
    /// A profile whose step at this position does not come after the one before it.
    UnsortedProfile(usize),
    /// A profile whose step at this position lies at or beyond the period.
    BeyondPeriod(usize),
    /// A period of zero.
    ZeroPeriod,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Probability { name, value } => {
                write!(f, "{name} is {value}, but a probability lies between 0 and 1")
            }
            SpecError::ZeroRate => f.write_str("the rate is 0 (to drop everything use silent)"),
            SpecError::UnsortedLoss(i) => {
                write!(f, "entry {} of the loss list is not above the one before it", i + 1)
            }
            SpecError::EmptyTrace => f.write_str("the trace of losses is empty"),
            SpecError::LongTrace(n) => {
                write!(f, "the trace of losses has {n} entries, more than {}", LossTrace::MAX)
            }
            SpecError::UnsortedProfile(i) => {
                write!(f, "step {} of the profile is not later than the one before it", i + 1)
            }
            SpecError::BeyondPeriod(i) => {
                write!(f, "step {} of the profile does not lie within the period", i + 1)
            }
            SpecError::ZeroPeriod => f.write_str("the profile's period is 0"),
        }
    }
}

impl core::error::Error for SpecError {}

impl LinkSpec {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first one that makes no link.
    pub fn check(&self) -> Result<(), SpecError> {
        check_rate(self.rate_bps)?;
        check_loss(&self.loss)?;
        let Profile { steps, period } = &self.profile;
        if *period == Some(Span::ZERO) {
            return Err(SpecError::ZeroPeriod);
        }
        for (i, (at, change)) in steps.iter().enumerate() {
            if i > 0 && steps[i - 1].0 >= *at {
                return Err(SpecError::UnsortedProfile(i));
            }
            if period.is_some_and(|p| *at >= p) {
                return Err(SpecError::BeyondPeriod(i));
            }
            check_rate(change.rate_bps.flatten())?;
            change.loss.as_ref().map_or(Ok(()), check_loss)?;
        }
        Ok(())
    }
}

fn check_rate(rate_bps: Option<u64>) -> Result<(), SpecError> {
    if rate_bps == Some(0) { Err(SpecError::ZeroRate) } else { Ok(()) }
}

fn check_loss(loss: &Loss) -> Result<(), SpecError> {
    let probability = |name, value: f64| {
        if (0.0..=1.0).contains(&value) {
            Ok(())
        } else {
            Err(SpecError::Probability { name, value })
        }
    };
    match loss {
        Loss::None => Ok(()),
        Loss::Bernoulli(p) => probability("loss", *p),
        Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
            probability("p", *p)?;
            probability("r", *r)?;
            probability("loss_good", *loss_good)?;
            probability("loss_bad", *loss_bad)
        }
        Loss::Exact(list) => match list.windows(2).position(|w| w[0] >= w[1]) {
            Some(i) => Err(SpecError::UnsortedLoss(i + 1)),
            None => Ok(()),
        },
        Loss::Armed(list) => match list.windows(2).position(|w| w[0].0 >= w[1].0) {
            Some(i) => Err(SpecError::UnsortedLoss(i + 1)),
            None => Ok(()),
        },
        Loss::Trace(trace) if trace.is_empty() => Err(SpecError::EmptyTrace),
        Loss::Trace(trace) if trace.len() > LossTrace::MAX => {
            Err(SpecError::LongTrace(trace.len()))
        }
        Loss::Trace(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_makes_no_link_is_refused_by_name() {
        let with = |loss| LinkSpec { loss, ..LinkSpec::default() }.check();
        assert_eq!(with(Loss::Bernoulli(1.0)), Ok(()));
        assert_eq!(
            with(Loss::Bernoulli(1.5)),
            Err(SpecError::Probability { name: "loss", value: 1.5 })
        );
        assert!(with(Loss::Bernoulli(f64::NAN)).is_err());
        assert_eq!(with(Loss::Exact(vec![1, 3, 3])), Err(SpecError::UnsortedLoss(2)));
        let trace = |n: u64| Loss::Trace((0..n).map(|_| false).collect());
        assert_eq!(with(trace(0)), Err(SpecError::EmptyTrace));
        assert_eq!(with(trace(LossTrace::MAX)), Ok(()));
        assert_eq!(with(trace(LossTrace::MAX + 1)), Err(SpecError::LongTrace(LossTrace::MAX + 1)));
        let with = |at: &[u64], period: Option<u64>| {
            let steps = at.iter().map(|s| (Span(*s), Change::default())).collect();
            let profile = Profile { steps, period: period.map(Span) };
            LinkSpec { profile, ..LinkSpec::default() }.check()
        };
        assert_eq!(with(&[0, 5], Some(6)), Ok(()));
        assert_eq!(with(&[0, 5], Some(5)), Err(SpecError::BeyondPeriod(1)));
        assert_eq!(with(&[5, 5], None), Err(SpecError::UnsortedProfile(1)));
        assert_eq!(with(&[], Some(0)), Err(SpecError::ZeroPeriod));
        let zero = LinkSpec { rate_bps: Some(0), ..LinkSpec::default() };
        assert_eq!(zero.check(), Err(SpecError::ZeroRate));
    }
}
