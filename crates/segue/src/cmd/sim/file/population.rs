//! `[population]`: many hosts without a network of their own.

use segue_clock::Span;
use segue_keepalive::Source;
use segue_netem::Loss;
use segue_sim::population::{Class, Flows, Outages, Silent, Spec};
use serde::Deserialize;
use toml::Spanned;

use super::tables::{File, Name};
use super::{Mistake, hint};
use crate::config::link::LossText;
use crate::config::{Duration, Ratio};

/// A population as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// How many hosts.
    pub hosts: Spanned<u32>,
    /// How many anchors.
    pub anchors: u32,
    /// Parts that are simulated alone.
    pub shards: u32,
    /// The hosts start at random instants of this span.
    pub start_over: Option<Duration>,
    /// Unanswered probes before a path is down.
    pub k: u8,
    /// Time between probes.
    pub t_ka: Duration,
    /// Who measures: `packet-path` or `machine`.
    #[serde(default)]
    pub measured_by: MeasuredBy,
    /// The kinds of a host's paths, by name.
    pub paths: Vec<Name>,
    /// Kinds of access paths.
    pub class: Vec<ClassTable>,
    /// Packets of applications.
    pub flows: Option<FlowsTable>,
    /// Mean time between two orders to a host with a flow to move it.
    pub planned_every: Option<Duration>,
}

/// Who takes probes into the estimates.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredBy {
    /// The packet path, as with eBPF.
    #[default]
    PacketPath,
    /// The machine sees every probe, as with the user-space packet path.
    Machine,
}

/// A kind of access path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassTable {
    /// Its name.
    pub name: Name,
    /// Delay of one direction.
    pub delay: Duration,
    /// How much it varies to either side.
    pub jitter: Option<Duration>,
    /// Loss of one direction.
    pub loss: Option<LossText>,
    /// When it carries nothing.
    pub outages: Option<OutagesTable>,
}

/// Outages at random.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutagesTable {
    every: Duration,
    lasts: Duration,
    #[serde(default)]
    direction: SilentName,
}

/// The silent direction of an outage.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SilentName {
    /// Both.
    #[default]
    Both,
    /// From host to anchor.
    Up,
    /// From anchor to host.
    Down,
}

/// Packets of applications.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsTable {
    share: Ratio,
    interval: Duration,
    bytes: u32,
}

/// The population of a file that has one. It has nothing of a network then.
pub fn spec(file: &File) -> Result<Option<Spec>, Mistake> {
    let Some(table) = &file.population else { return Ok(None) };
    if let Some(name) = file.parts().first() {
        return Err(Mistake::of(name, "a population has no network: leave one of the two out"));
    }
    let known: Vec<&str> = table.class.iter().map(|c| c.name.get_ref().as_str()).collect();
    let mut paths = Vec::new();
    for name in &table.paths {
        let place = known.iter().position(|known| known == name.get_ref());
        paths.push(place.ok_or_else(|| {
            let hint = hint(name.get_ref(), &known);
            Mistake::of(name, format!("there is no class {}{hint}", name.get_ref()))
        })?);
    }
    let spec = Spec {
        seed: file.seed,
        hosts: *table.hosts.get_ref(),
        anchors: table.anchors,
        shards: table.shards,
        duration: file.duration.get_ref().0,
        start_over: table.start_over.map_or(Span::ZERO, |d| d.0),
        k: table.k,
        t_ka: table.t_ka.0,
        source: match table.measured_by {
            MeasuredBy::PacketPath => Source::Readings,
            MeasuredBy::Machine => Source::Probes,
        },
        classes: table.class.iter().map(class).collect(),
        paths,
        flows: table.flows.map(|flows| Flows {
            share: flows.share.0,
            interval: flows.interval.0,
            bytes: flows.bytes,
        }),
        planned_every: table.planned_every.map(|d| d.0),
    };
    match spec.check() {
        Ok(()) => Ok(Some(spec)),
        Err(error) if error.key == "duration" => Err(Mistake::of(&file.duration, error.what)),
        Err(error) => Err(Mistake::beside(&table.hosts, error.key, error.what)),
    }
}

fn class(table: &ClassTable) -> Class {
    Class {
        name: table.name.get_ref().clone(),
        delay: table.delay.0,
        jitter: table.jitter.map_or(Span::ZERO, |d| d.0),
        loss: table.loss.clone().map_or(Loss::None, LossText::loss),
        outages: table.outages.map(|outages| Outages {
            every: outages.every.0,
            lasts: outages.lasts.0,
            direction: match outages.direction {
                SilentName::Both => Silent::Both,
                SilentName::Up => Silent::Up,
                SilentName::Down => Silent::Down,
            },
        }),
    }
}
