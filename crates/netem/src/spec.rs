//! Parameters of a [`LinkModel`](crate::LinkModel), and their validation.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use segue_clock::Span;

/// One direction of a link. The default is perfect: no delay, no loss, unlimited rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    /// Serialisation rate in bits per second; `None`: serialisation takes no time, and nothing queues.
    pub rate_bps: Option<u64>,
    /// Propagation delay.
    pub delay: Span,
    /// Variation of the delay from packet to packet.
    pub jitter: Jitter,
    /// Let packets overtake each other because of jitter or changes of the delay. Otherwise a packet arrives no earlier
    /// than the previous one.
    pub reordering: bool,
    /// Capacity for packets that wait for serialisation.
    pub queue: Queue,
    /// Loss on the wire.
    pub loss: Loss,
    /// The link drops every packet.
    pub silent: bool,
    /// How the link changes with time.
    pub profile: Profile,
}

/// Variation of the propagation delay. A delay never becomes negative.
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

/// Limit of a drop-tail queue: a packet that would exceed it is dropped on arrival. The packet being serialised is not
/// counted, so ns-2's DropTail with limit L is `Packets(L - 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// No limit: the caller must bound the load.
    #[default]
    Unbounded,
    /// At most this many packets wait.
    Packets(u32),
    /// At most this many bytes wait.
    Bytes(u64),
    /// No packet waits longer than this for serialisation, like tc-tbf's "latency".
    Delay(Span),
}

/// The loss process. It advances by one step for each packet that starts serialisation.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability, independently.
    Bernoulli(f64),
    /// Two states (Gilbert 1960, Elliott 1963), each with its own loss probability. After each packet the state changes
    /// with probability `p` (good to bad) or `r` (bad to good). The initial state is drawn from the stationary
    /// distribution. With `loss_good` 0 and `loss_bad` 1, the mean burst length is 1/r and the loss is p/(p + r).
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
    /// Exactly the packets with these numbers, in ascending order. The first packet that starts serialisation on this
    /// link has number 0.
    Exact(Vec<u64>),
    /// Sets a counter to a value at each of these times from the start of the link. While it is positive, each packet
    /// that starts serialisation is lost and decrements it.
    Armed(Vec<(Span, u32)>),
    /// A recording with one entry per packet, which repeats from its start.
    Trace(LossTrace),
}

/// A recorded sequence of lost and delivered packets, one bit each. Clones share the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossTrace {
    words: Arc<[u64]>,
    /// Number of entries offered. `words` holds at most `MAX` of them.
    len: u64,
}

impl LossTrace {
    /// Maximum number of entries of a trace: 2 MiB.
    pub const MAX: u64 = 1 << 24;

    /// Number of recorded packets.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if no packet was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of lost packets.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns true if entry `i` is a loss; `i` counts from 0 and is below [`len`](Self::len).
    pub(crate) fn get(&self, i: u64) -> bool {
        self.words.get((i / 64) as usize).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }
}

impl FromIterator<bool> for LossTrace {
    /// A trace of these entries, true for a loss. It stores at most [`LossTrace::MAX`] of them; [`LinkSpec::check`]
    /// refuses a trace that was given more.
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
    /// Expected fraction of lost packets; `None` for `Exact` and `Armed`.
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

/// Long-run fraction of packets that find the process in the bad state.
pub(crate) fn stationary_bad(p: f64, r: f64) -> f64 {
    if p + r > 0.0 { p / (p + r) } else { 0.0 }
}

/// A change of a link. `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// New propagation delay.
    pub delay: Option<Span>,
    /// New loss process, in its initial state.
    pub loss: Option<Loss>,
    /// New rate in bits per second; `Some(None)` is unlimited.
    pub rate_bps: Option<Option<u64>>,
    /// Start or end of silence.
    pub silent: Option<bool>,
}

/// Piecewise constant changes over time. Each change applies on top of the previous ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Time from the start of the link (or of the period) and change, in ascending order.
    pub steps: Vec<(Span, Change)>,
    /// After this time the profile repeats, starting from the link's own values.
    pub period: Option<Span>,
}

/// An invalid parameter of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpecError {
    /// A probability outside [0, 1].
    Probability {
        /// Name of the parameter.
        name: &'static str,
        /// The refused value.
        value: f64,
    },
    /// A rate of zero. Use `silent` to drop everything.
    ZeroRate,
    /// The loss list is not ascending: the entry at this index is not above the previous one.
    UnsortedLoss(usize),
    /// The loss trace is empty.
    EmptyTrace,
    /// The loss trace has this many entries, which is too many.
    LongTrace(u64),
    /// The profile is not ascending: the step at this index is not later than the previous one.
    UnsortedProfile(usize),
    /// The step at this index of the profile is at or beyond the period.
    BeyondPeriod(usize),
    /// The period of the profile is zero.
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
    /// Validates all parameters.
    ///
    /// # Errors
    /// The first invalid one.
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
