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

use std::collections::BTreeMap;

use schemars::JsonSchema;
use segue_clock::Span;
use segue_grammar::link::Way;
use segue_grammar::schema::{self, Key, Table};
use segue_grammar::{
    Access, Duration, Ends, Event, LmaPolicyKeys, MagPolicyKeys, Mistake, Part, Source, Spanned,
    Within, known, value,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use apps::Common;

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

/// The seed of all randomness.
pub(super) type Seed = Within<1, 0, { i64::MAX }>;

/// The top-level keys of a scenario.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Top {
    /// Seed of all random numbers
    #[serde(default)]
    pub(super) seed: Seed,
    /// When the run ends
    pub(super) duration: Spanned<Duration>,
    /// Axes of a sweep (`segue sim sweep`); a single run only checks it
    // A sweep parses them itself.
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    pub(super) sweep: Option<IgnoredAny>,
}

/// The tables of keys in the documentation.
pub(super) fn described() -> Vec<Table> {
    vec![
        Table::of::<Top>("scenario", "key"),
        network::NODE.table(),
        Table::of::<Ends>("link", "`[[link]]`"),
        Table::of::<Way>("parameters", "key"),
        network::ROUTE.table(),
        Table::of::<Access>("cell", "`[[cell]]`"),
        radio::WALK.table(),
        nat::NAT.table(),
        tunnels::ANCHOR.table(),
        tunnels::HOST.table(),
        Table::of::<pmip::LmaKeys>("lma", "`[[lma]]`")
            .see::<LmaPolicyKeys>("[an anchor's file](configuration.md#segue-pmip-lma)"),
        Table::of::<pmip::MagKeys>("mag", "`[[mag]]`")
            .see::<MagPolicyKeys>("[a gateway's file](configuration.md#segue-pmip-mag)"),
        Table::of::<pmip::AccessTable>("mag.access", "`[[mag.access]]`"),
        mobile_node::MOBILE_NODE.table(),
        mih::MIH.table(),
        Table::of::<mih::QualityTable>("mih.quality", "`[[mih.quality]]`"),
        echo::SERVER.table(),
        echo::CLIENT.table(),
        Table::of::<Common>("application", "key"),
        Table::of::<tcp::Connection>("connection", "key"),
        Table::of::<tcp::Tcp>("tcp", "`[[tcp]]`"),
        Table::of::<tcp::Ftp>("ftp", "`[[ftp]]`"),
        Table::of::<tcp::Web>("web", "`[[web]]`"),
        Table::of::<udp::Measured>("measured", "key"),
        Table::of::<udp::Voip>("voip", "`[[voip]]`"),
        Table::of::<udp::Frames>("frames", "key"),
        Table::of::<udp::VideoKeys>("video", "`[[video]]`"),
        Table::of::<udp::ConferenceKeys>("conference", "`[[conference]]`"),
    ]
}

/// The keys of a scenario's file.
pub(super) fn top() -> Vec<Key> {
    let tables = KINDS.iter().map(|kind| schema::list(kind.name, (kind.described)()));
    Top::described().into_iter().chain(tables).chain([schema::events()]).collect()
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
        let mut builder = Builder::new(self.top.seed.get(), limit, files);
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
