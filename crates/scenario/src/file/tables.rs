//! The tables of scenarios. A new kind requires a file in this directory, and its lines here.

mod apps;
mod echo;
mod mih;
mod mobile_node;
mod nat;
mod network;
mod pmip;
mod radio;
mod tcp;
mod tunnels;
mod udp;

use segue_clock::Span;
use segue_grammar::{Duration, Event, Mistake, Part, Source, known, value};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::builder::Builder;
use super::event::{EventKind, schedule};
use super::files::Files;
use super::table::{Kind, Tables};

/// All kinds, in the order in which they execute each step.
const KINDS: &[Kind] = &[
    network::NODE,
    network::LINK,
    radio::CELL,
    nat::NAT,
    radio::WALK,
    network::ROUTE,
    tunnels::HOST,
    tunnels::ANCHOR,
    echo::SERVER,
    echo::CLIENT,
    mih::MIH,
    pmip::LMA,
    mobile_node::MOBILE_NODE,
    pmip::MAG,
    tcp::TCP,
    tcp::FTP,
    tcp::WEB,
    udp::VOIP,
    udp::VIDEO,
    udp::CONFERENCE,
];

/// The names of all kinds.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// A parsed scenario.
pub(super) struct File {
    /// The top-level keys.
    pub(super) top: Top,
    tables: Tables,
    events: Vec<Event>,
}

/// The top-level keys of a scenario.
#[derive(Deserialize)]
pub(super) struct Top {
    /// The seed of all randomness.
    #[serde(default = "first_seed")]
    pub(super) seed: u64,
    /// When the run ends.
    pub(super) duration: Spanned<Duration>,
    /// The axes of a sweep. A sweep parses them itself; a single run ignores them.
    pub(super) sweep: Option<IgnoredAny>,
}

/// The seed of a scenario without one.
pub(super) fn first_seed() -> u64 {
    1
}

impl File {
    /// Reads a scenario, checking only the form of its tables.
    pub(super) fn read(source: &Source) -> Result<File, Mistake> {
        let mut file = source.values();
        let keys: Vec<&str> = Top::keys().into_iter().chain(names()).chain(["event"]).collect();
        known(file.get_ref(), &keys)?;
        let mut tables = Tables::new();
        for kind in KINDS {
            if let Some(list) = file.get_mut().remove(kind.name) {
                tables.extend(kind.read(list)?);
            }
        }
        let events = file.get_mut().remove("event").map(value).transpose()?.unwrap_or_default();
        Ok(File { top: Top::take(&mut file)?, tables, events })
    }

    /// Builds the network. Times in the file are limited by `limit`.
    pub(super) fn build<'a>(&self, limit: Span, files: &'a Files) -> Result<Builder<'a>, Mistake> {
        if self.top.duration.get_ref().0 == Span::ZERO {
            return Err(Mistake::of(&self.top.duration, "a run of no time"));
        }
        let mut builder = Builder::new(self.top.seed, limit, files);
        self.tables.iter().try_for_each(|table| table.plan(&mut builder))?;
        builder.give_addresses()?;
        self.tables.iter().try_for_each(|table| table.place(&mut builder))?;
        builder.find_routes();
        self.tables.iter().try_for_each(|table| table.reach(&mut builder))?;
        let kinds: Vec<&EventKind> = KINDS.iter().flat_map(|kind| kind.events).collect();
        self.events.iter().try_for_each(|event| schedule(event, &mut builder, &kinds))?;
        Ok(builder)
    }
}
