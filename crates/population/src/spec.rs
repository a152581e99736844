//! Parameters of a population.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use segue_clock::{Span, Time};
use segue_keepalive::{Config as Keepalive, MeasuredBy};
use segue_netem::Loss;
use segue_wire::MAX_PATHS;

/// Maximum number of hosts. Path numbers are part of addresses, which limits them.
pub const MAX_HOSTS: u32 = 1 << 22;
/// Maximum number of shards.
pub(crate) const MAX_SHARDS: u32 = 1 << 10;
/// Maximum number of anchors in all shards together.
pub(crate) const MAX_ANCHORS: u32 = 1 << 16;

/// Hosts without a topology. Each host has access paths of the same classes to one of a set of anchors.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of anchors, at least one in each shard.
    pub anchors: u32,
    /// Number of shards, which are simulated independently. It belongs to the scenario and not to the machine, so that
    /// the result does not depend on the number of cores.
    pub shards: u32,
    /// Duration of the run in virtual time.
    pub duration: Span,
    /// The hosts start at random times within this span.
    pub start_over: Span,
    /// K of the keepalive. K and T_KA are set here; other keepalive settings are a host's defaults.
    pub k: u8,
    /// T_KA of the keepalive.
    pub t_ka: Span,
    /// Let the machines see each probe, or let the packet path measure for them.
    pub measured_by: MeasuredBy,
    /// Classes of access paths.
    pub classes: Vec<Class>,
    /// The classes of a host's paths, as indices of `classes`.
    pub paths: Vec<usize>,
    /// Application traffic.
    pub flows: Option<Flows>,
    /// Mean time between two orders to move the flow of a host.
    pub planned_every: Option<Span>,
}

/// A class of access paths. Both directions have the same parameters, but independent randomness.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name of the class, and of the hosts' interfaces.
    pub name: String,
    /// One-way delay.
    pub delay: Span,
    /// The delay varies uniformly by up to this much in either direction. Packets do not overtake each other.
    pub jitter: Span,
    /// Loss in each direction.
    pub loss: Loss,
    /// Times when the path carries nothing.
    pub outages: Option<Outages>,
}

/// Random outages of a class of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outages {
    /// Mean time from the end of one outage to the start of the next (exponential).
    pub every: Span,
    /// Mean duration (uniform, from half to one and a half times the mean).
    pub lasts: Span,
    /// The silent direction.
    pub direction: Silent,
}

/// The silent direction of an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Silent {
    /// Both directions.
    #[default]
    Both,
    /// From host to anchor.
    Up,
    /// From anchor to host.
    Down,
}

/// Application traffic, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flows {
    /// Fraction of the hosts that have a flow.
    pub share: f64,
    /// Time between packets.
    pub interval: Span,
    /// Length of an inner packet in bytes.
    pub bytes: u32,
}

/// An invalid parameter of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The key, as a scenario names it.
    pub key: &'static str,
    /// The problem, and a valid range where there is one.
    pub what: &'static str,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

impl core::error::Error for SpecError {}

impl Spec {
    /// Validates all parameters.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), SpecError> {
        let err = |key, what| Err(SpecError { key, what });
        let loss_ok = |class: &Class| match class.loss {
            Loss::None => true,
            Loss::Bernoulli(p) => (0.0..1.0).contains(&p),
            Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
                [p, r, loss_good, loss_bad].iter().all(|x| (0.0..=1.0).contains(x))
            }
            Loss::Exact(_) | Loss::Armed(_) | Loss::Trace(_) => false,
        };
        let outage_ok = |outages: &Outages| outages.every > Span::ZERO && outages.lasts.0 >= 2;
        if self.hosts == 0 || self.hosts > MAX_HOSTS {
            err("hosts", "must be from 1 to 4194304")
        } else if self.shards == 0 || self.shards > MAX_SHARDS || self.shards > self.hosts {
            err("shards", "must be from 1 to 1024 and no more than there are hosts")
        } else if self.anchors < self.shards || self.anchors > MAX_ANCHORS {
            err("anchors", "must be from the number of shards to 65536")
        } else if self.paths.is_empty() || self.paths.len() > MAX_PATHS {
            err("paths", "a host has from 1 to 16")
        } else if self.paths.iter().any(|class| *class >= self.classes.len()) {
            err("paths", "names no class")
        } else if (1..self.paths.len()).any(|n| self.paths[..n].contains(&self.paths[n])) {
            err("paths", "each class once: a host's interfaces have different names")
        } else if self.k == 0 {
            err("k", "must be at least 1")
        } else if !self.t_ka.0.is_multiple_of(1_000_000)
            || !(5..=60_000).contains(&(self.t_ka.0 / 1_000_000))
        {
            err("t_ka", "must be whole milliseconds from 5 ms to 60 s")
        } else if self.duration <= self.measured_from().since(Time::ZERO) {
            err(
                "duration",
                "must be longer than start_over and K + 3 periods, after which it counts",
            )
        } else if !self.classes.iter().all(loss_ok) {
            err("loss", "must be a probability below 1, for each packet or of two states")
        } else if self.classes.iter().any(|class| class.jitter > class.delay) {
            err("jitter", "must not be more than the delay")
        } else if self.classes.iter().any(|class| (class.delay + class.jitter) * 2 >= self.t_ka) {
            err("delay", "there and back must be shorter than t_ka")
        } else if !self.classes.iter().filter_map(|class| class.outages.as_ref()).all(outage_ok) {
            err("outages", "every and lasts must be more than nothing")
        } else if self.flows.is_some_and(|f| !(0.0..=1.0).contains(&f.share)) {
            err("flows.share", "must be from 0 to 1")
        } else if self.flows.is_some_and(|f| f.interval < Span::from_millis(1)) {
            err("flows.interval", "must be at least 1 ms")
        } else if self.planned_every.is_some_and(|every| every < Span::from_millis(1)) {
            err("planned_every", "must be at least 1 ms")
        } else {
            Ok(())
        }
    }

    /// Start of the measurement: by then all hosts have started and all paths are up. Outages begin later.
    #[must_use]
    pub fn measured_from(&self) -> Time {
        Time::ZERO + self.start_over + self.t_ka * (u64::from(self.k) + 3)
    }

    /// A host's default keepalive settings, with K and T_KA of the population.
    #[must_use]
    pub fn keepalive(&self) -> Keepalive {
        Keepalive {
            k: self.k,
            t_ka: self.t_ka,
            measured_by: self.measured_by,
            ..Keepalive::default()
        }
    }

    /// The hosts of a shard: number of the first, and count.
    #[must_use]
    pub(crate) fn hosts_of(&self, shard: u32) -> (u32, u32) {
        part(self.hosts, self.shards, shard)
    }

    /// Number of anchors of a shard.
    #[must_use]
    pub(crate) fn anchors_of(&self, shard: u32) -> u32 {
        part(self.anchors, self.shards, shard).1
    }
}

/// Divides `all` as evenly as possible into `parts`, and returns the start and the size of the `n`th part.
fn part(all: u32, parts: u32, n: u32) -> (u32, u32) {
    let at = |n: u32| (u64::from(all) * u64::from(n) / u64::from(parts)) as u32;
    (at(n), at(n + 1) - at(n))
}
