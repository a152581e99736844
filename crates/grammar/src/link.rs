//! The keys of a link's parameters, shared by test networks (`segue lab`) and scenarios (`segue
//! sim`): `delay`, `jitter`, `reordering`, `rate`, `queue`, `loss`, `silent`, `profile`, `period`.

use std::fmt;

use segue_clock::Span;
use segue_netem::{Change, Jitter, LinkSpec, Loss, LossTrace, Profile, Queue};
use segue_text::units;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Duration, Ratio};

/// Defines the table of a link: the given keys, then those of [`Way`] for both directions, with a
/// method `both` that gathers the latter. A single list lets the parser name every valid key in its
/// errors; a flattened struct would lose the positions of values.
#[macro_export]
macro_rules! link_table {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($keys:tt)* }) => {
        $crate::link_keys! {
            { $(#[$meta])* $vis struct $name } { $($keys)* }
        }

        impl $name {
            /// The parameters for both directions.
            fn both(&self) -> $crate::link::Way {
                $crate::link::Way {
                    delay: self.delay,
                    jitter: self.jitter.clone(),
                    reordering: self.reordering,
                    rate: self.rate,
                    queue: self.queue.clone(),
                    loss: self.loss.clone(),
                    silent: self.silent,
                    profile: self.profile.clone(),
                    period: self.period,
                }
            }
        }
    };
}

/// Defines a struct with the given fields, followed by the parameters of a link.
#[macro_export]
macro_rules! link_keys {
    ({ $(#[$meta:meta])* $vis:vis struct $name:ident } { $($keys:tt)* }) => {
        $(#[$meta])*
        $vis struct $name {
            $($keys)*
            /// Propagation delay, one way.
            pub delay: Option<$crate::Duration>,
            /// Variation of the delay.
            pub jitter: Option<$crate::link::JitterText>,
            /// Whether packets may overtake each other.
            pub reordering: Option<bool>,
            /// Serialisation rate.
            pub rate: Option<$crate::link::Rate>,
            /// Bound of the queue.
            pub queue: Option<$crate::link::QueueText>,
            /// The loss process.
            pub loss: Option<$crate::link::LossText>,
            /// Drops everything.
            pub silent: Option<bool>,
            /// Changes with time.
            pub profile: Option<Vec<$crate::link::Step>>,
            /// Time after which the profile repeats.
            pub period: Option<$crate::Duration>,
        }
    };
}

link_keys! {
    {
        /// Parameters of a link or of one direction.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Way
    } {}
}

/// A change in a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    at: Duration,
    delay: Option<Duration>,
    rate: Option<Rate>,
    loss: Option<LossText>,
    silent: Option<bool>,
}

/// Variation of the delay, as written.
#[derive(Clone, Copy, Debug)]
pub struct JitterText(Jitter);

/// A queue's bound, as written.
#[derive(Clone, Copy, Debug)]
pub struct QueueText(Queue);

/// A loss process, as written.
#[derive(Clone, Debug)]
pub enum LossText {
    /// Fully specified.
    Process(Loss),
    /// Recorded in this file, not loaded yet.
    File(String),
}

/// A rate, as in `"50mbit"`; `None` is `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

impl Way {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Way { delay, jitter, reordering, rate, queue, loss, silent, profile, period } = self;
        delay.is_none()
            && jitter.is_none()
            && reordering.is_none()
            && rate.is_none()
            && queue.is_none()
            && loss.is_none()
            && silent.is_none()
            && profile.is_none()
            && period.is_none()
    }

    /// These values, completed from `other`.
    #[must_use]
    pub fn over(self, other: &Way) -> Way {
        Way {
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            reordering: self.reordering.or(other.reordering),
            rate: self.rate.or(other.rate),
            queue: self.queue.or(other.queue),
            loss: self.loss.or_else(|| other.loss.clone()),
            silent: self.silent.or(other.silent),
            profile: self.profile.or_else(|| other.profile.clone()),
            period: self.period.or(other.period),
        }
    }

    /// Replaces files of losses by their content.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn load<E>(mut self, mut read: impl FnMut(&str) -> Result<LossTrace, E>) -> Result<Way, E> {
        let steps = self.profile.iter_mut().flatten().filter_map(|step| step.loss.as_mut());
        for loss in self.loss.iter_mut().chain(steps) {
            if let LossText::File(name) = loss {
                *loss = LossText::Process(Loss::Trace(read(name)?));
            }
        }
        Ok(self)
    }

    /// The direction of a link. Without a `queue`, at most 100 packets wait. A file of losses that
    /// was not [loaded](Self::load) becomes an empty trace, which no link accepts.
    #[must_use]
    pub fn spec(self) -> LinkSpec {
        let steps = self.profile.unwrap_or_default().into_iter();
        LinkSpec {
            rate_bps: self.rate.and_then(|r| r.0),
            delay: self.delay.map_or(Span::ZERO, |d| d.0),
            jitter: self.jitter.map_or(Jitter::None, |j| j.0),
            reordering: self.reordering.unwrap_or(false),
            queue: self.queue.map_or(Queue::Packets(100), |q| q.0),
            loss: self.loss.map_or(Loss::None, LossText::loss),
            silent: self.silent.unwrap_or(false),
            profile: Profile {
                steps: steps.map(|s| (s.at.0, s.change())).collect(),
                period: self.period.map(|p| p.0),
            },
        }
    }
}

impl LossText {
    fn loss(self) -> Loss {
        match self {
            LossText::Process(loss) => loss,
            LossText::File(_) => Loss::Trace(LossTrace::default()),
        }
    }
}

impl Step {
    fn change(self) -> Change {
        Change {
            delay: self.delay.map(|d| d.0),
            loss: self.loss.map(LossText::loss),
            rate_bps: self.rate.map(|r| r.0),
            silent: self.silent,
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let read = |text: &str| match text {
            "unlimited" => Ok(None),
            _ => match units::rate(text)? {
                0 => Err("the rate is 0 (to drop everything use silent)".to_owned()),
                rate => Ok(Some(rate)),
            },
        };
        read(&text).map(Rate).map_err(D::Error::custom)
    }
}

// Written by hand: untagged enums would hide what exactly is wrong in a value.

struct JitterVisitor;

impl<'de> Visitor<'de> for JitterVisitor {
    type Value = JitterText;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a time, or { normal = time }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<JitterText, E> {
        units::duration(text).map(|span| JitterText(Jitter::Uniform(span))).map_err(E::custom)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JitterText, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Normal {
            normal: Duration,
        }
        let Normal { normal } = Normal::deserialize(MapAccessDeserializer::new(map))?;
        Ok(JitterText(Jitter::Normal(normal.0)))
    }
}

struct QueueVisitor;

impl<'de> Visitor<'de> for QueueVisitor {
    type Value = QueueText;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number of packets, or { bytes = number }")
    }
    fn visit_i64<E: Error>(self, packets: i64) -> Result<QueueText, E> {
        let packets = u32::try_from(packets);
        packets
            .map(|packets| QueueText(Queue::Packets(packets)))
            .map_err(|_| E::custom("a queue holds 0 packets or more, up to 4294967295"))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QueueText, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Bytes {
            bytes: u64,
        }
        let Bytes { bytes } = Bytes::deserialize(MapAccessDeserializer::new(map))?;
        Ok(QueueText(Queue::Bytes(bytes)))
    }
}

struct LossVisitor;

impl<'de> Visitor<'de> for LossVisitor {
    type Value = LossText;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a share, a list of packet numbers, { p, r, good, bad }, or { trace }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<LossText, E> {
        units::ratio(text).map(|p| LossText::Process(Loss::Bernoulli(p))).map_err(E::custom)
    }
    fn visit_f64<E: Error>(self, share: f64) -> Result<LossText, E> {
        self.visit_str(&share.to_string())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<LossText, A::Error> {
        let list = Vec::<u64>::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(LossText::Process(Loss::Exact(list)))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LossText, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Burst {
            p: Option<Ratio>,
            r: Option<Ratio>,
            good: Option<Ratio>,
            bad: Option<Ratio>,
            trace: Option<String>,
        }
        let burst = Burst::deserialize(MapAccessDeserializer::new(map))?;
        let Burst { p, r, good, bad, trace } = burst;
        if let Some(trace) = trace {
            return match (p, r, good, bad) {
                (None, None, None, None) => Ok(LossText::File(trace)),
                _ => Err(A::Error::custom("a trace stands alone")),
            };
        }
        let p = p.ok_or_else(|| A::Error::missing_field("p"))?;
        let r = r.ok_or_else(|| A::Error::missing_field("r"))?;
        Ok(LossText::Process(Loss::GilbertElliott {
            p: p.0,
            r: r.0,
            loss_good: good.map_or(0.0, |g| g.0),
            loss_bad: bad.map_or(1.0, |b| b.0),
        }))
    }
}

macro_rules! visited {
    ($type:ty, $visitor:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any($visitor)
            }
        }
    };
}

visited!(JitterText, JitterVisitor);
visited!(QueueText, QueueVisitor);
visited!(LossText, LossVisitor);
