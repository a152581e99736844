//! The keys of a link's parameters, shared by test networks (`segue lab`) and scenarios (`segue
//! sim`): `delay`, `jitter`, `reordering`, `rate`, `queue`, `loss`, `silent`, `profile`, `period`.

use std::fmt;

use schemars::JsonSchema;
use segue_clock::Span;
use segue_netem::{Change, Jitter, LinkSpec, Loss, LossTrace, Profile, Queue};
use segue_text::units;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::part::{Part, inherit, pick, value};
use crate::placed::Name;
use crate::schema::{self, Key};
use crate::source::Mistake;
use crate::values::{Duration, Ratio};

/// Parameters of a link, or of one of its directions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Delay of one direction
    pub delay: Option<Duration>,
    /// Uniform around the delay in both directions, or normal with this deviation
    pub jitter: Option<JitterText>,
    /// Jitter may make packets overtake each other
    #[schemars(extend("x-unset" = "`false`"))]
    pub reordering: Option<bool>,
    /// Bits per second of IP packets
    #[schemars(extend("x-value" = "rate", "x-unset" = "`\"unlimited\"`"))]
    pub rate: Option<Rate>,
    /// Maximum number, size or time of queued packets
    pub queue: Option<QueueText>,
    /// Independent; exactly these packets, from 0; Gilbert–Elliott; or recorded, see below
    pub loss: Option<LossText>,
    /// Everything is dropped
    #[schemars(extend("x-unset" = "`false`"))]
    pub silent: Option<bool>,
    /// Changes at times from the start, each in addition to the earlier ones
    #[schemars(extend("x-value" = "list of `{ at, delay, rate, loss, silent }`"))]
    pub profile: Option<Vec<Step>>,
    /// The profile repeats after it
    #[schemars(extend("x-unset" = "never"))]
    pub period: Option<Duration>,
}

/// A table with link parameters: those for both directions, and overrides in `up` and `down`.
#[derive(Clone, Debug)]
pub struct OverLink<T> {
    /// The other keys of the table.
    pub own: T,
    /// Parameters up and down; `None` if the table contains no link parameters.
    pub ways: Option<[Way; 2]>,
}

impl<T> OverLink<T> {
    /// The specifications, up and down, of the link with this name. `read` reads files of recorded losses.
    ///
    /// # Errors
    /// The error of `read`, or parameters that no link can have.
    pub fn specs(
        &self,
        name: &Name,
        mut read: impl FnMut(&str) -> Result<LossTrace, String>,
    ) -> Result<[LinkSpec; 2], Mistake> {
        let [up, down] = self.ways.clone().unwrap_or_default();
        let mut spec = |which: &str, way: Way| {
            let way = way.load(&mut read).map_err(|error| Mistake::beside(name, "loss", error))?;
            let spec = way.spec();
            spec.check().map_err(|error| Mistake::of(name, format!("{which}: {error}")))?;
            Ok(spec)
        };
        Ok([spec("up", up)?, spec("down", down)?])
    }
}

impl<T: Part> Part for OverLink<T> {
    fn keys() -> Vec<&'static str> {
        [T::keys(), vec!["up", "down"], Way::keys()].concat()
    }

    fn described() -> Vec<Key> {
        let way = schema::table(Way::described());
        let way = |name, from| {
            let mut schema = way.clone();
            schema.insert("description".into(), format!("Parameters {from} alone").into());
            Key { name, schema, required: false }
        };
        let ways = vec![way("up", "from the first end"), way("down", "from the second end")];
        [T::described(), ways, Way::described()].concat()
    }

    fn take(table: &mut Spanned<DeTable<'_>>) -> Result<OverLink<T>, Mistake> {
        let ways = ["up", "down"].map(|way| table.get_mut().remove(way));
        let both = pick(table.get_mut(), &Way::keys());
        let says = !both.is_empty() || ways.iter().any(Option::is_some);
        let read = |written: Option<Spanned<DeValue<'_>>>| {
            let nothing = || Spanned::new(table.span(), DeValue::Table(DeTable::new()));
            let mut way = written.unwrap_or_else(nothing);
            if let DeValue::Table(way) = way.get_mut() {
                inherit(way, &both);
            }
            value::<Way>(way)
        };
        // Parameters that both directions override are read too, to find errors in them.
        read(None)?;
        let [up, down] = ways;
        let ways = [read(up)?, read(down)?];
        Ok(OverLink { own: T::take(table)?, ways: says.then_some(ways) })
    }
}

/// One step of a profile.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    at: Duration,
    delay: Option<Duration>,
    rate: Option<Rate>,
    loss: Option<LossText>,
    silent: Option<bool>,
}

/// Variation of the delay, as written in the file.
#[derive(Clone, Copy, Debug)]
pub struct JitterText(Jitter);

/// Maximum length of a queue, as written in the file.
#[derive(Clone, Copy, Debug)]
pub struct QueueText(Queue);

/// A loss process, as written in the file.
#[derive(Clone, Debug)]
pub enum LossText {
    /// Completely specified.
    Process(Loss),
    /// Recorded in this file, not loaded yet.
    File(String),
}

/// A rate, as in `"50mbit"`; `None` is `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

impl Way {
    /// Replaces files of losses by their contents.
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

    /// One direction of a link. Without `queue`, at most 100 packets wait. A loss file that was not
    /// [loaded](Self::load) becomes an empty trace, which no link accepts.
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

from_text!(Rate, "rate", |text: &str| match text {
    "unlimited" => Ok(Rate(None)),
    _ => match units::rate(text)? {
        0 => Err("the rate is 0 (to drop everything use silent)".to_owned()),
        rate => Ok(Rate(Some(rate))),
    },
});

// Written by hand: the errors of untagged enums do not name the wrong part of a value.

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
        f.write_str("a number of packets, { bytes = number }, or { delay = time }")
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
        struct Bound {
            bytes: Option<u64>,
            delay: Option<Duration>,
        }
        match Bound::deserialize(MapAccessDeserializer::new(map))? {
            Bound { bytes: Some(bytes), delay: None } => Ok(QueueText(Queue::Bytes(bytes))),
            Bound { bytes: None, delay: Some(wait) } => Ok(QueueText(Queue::Delay(wait.0))),
            _ => Err(A::Error::custom("a queue is bounded by either bytes or delay")),
        }
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
    ($type:ty, $visitor:expr, $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any($visitor)
            }
        }

        described!($type, $schema);
    };
}

visited!(JitterText, JitterVisitor, {
    "type": ["string", "object"],
    "x-value": "time, or `{ normal = \"1ms\" }`",
});
visited!(QueueText, QueueVisitor, {
    "type": ["integer", "object"],
    "x-value": "packets, `{ bytes = 150000 }`, or `{ delay = \"50ms\" }`",
    "default": 100,
});
visited!(LossText, LossVisitor, {
    "type": ["string", "number", "array", "object"],
    "x-value": "share; list of numbers; `{ p, r, good, bad }`; or `{ trace = \"FILE\" }`",
});
