//! The language of configuration, scenario and lab files: TOML with values that carry their units ([`Duration`],
//! [`Ratio`]). Contains the shared tables: nodes, links and radio ([`Node`], [`Link`], [`link`], [`Cell`], [`Walk`]),
//! events ([`Event`]), and probing and steering ([`KeepaliveKeys`], [`PathKeys`], [`PeerKeepaliveKeys`],
//! [`SteeringKeys`]). Every error is one line with file, line and key.

#![forbid(unsafe_code)]

#[macro_use]
mod from_text;
mod air;
mod config;
pub mod event;
mod keepalive;
pub mod link;
mod names;
mod network;
mod part;
mod paths;
mod placed;
mod pmip;
pub mod schema;
mod source;
mod text;
pub mod values;

pub use air::{Access, Cell, FIRST_ADDRESS, Walk};
pub use config::{Config, parse, read};
pub use event::{Event, EventKeys};
pub use keepalive::{KeepaliveKeys, PeerKeepaliveKeys, Probed, complete};
pub use names::{check_address, check_name};
pub use network::{Address, End, EndAddress, Ends, Link, Node, PrefixText, RouteText, Ways};
pub use part::{Part, Values, known, tables, value};
pub use paths::{PathKeys, Paths, SteeringKeys};
pub use placed::{Name, Spanned};
pub use pmip::{
    AttachKey, HandoffKey, LifetimeKey, LmaPolicyKeys, MagPolicyKeys, ScheduleKey, TechnologyKey,
    WorthKeys, WrongTable,
};
pub use source::{Mistake, Source, hint, named, printable};
pub use text::{text, text_up_to};
pub use values::{Duration, Flag, Ratio, Tenths, Within};
