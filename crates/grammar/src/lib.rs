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
mod pmip;
mod source;
mod text;
mod values;

pub use air::{Access, Cell, FIRST_ADDRESS, Walk};
pub use config::{Config, parse, read};
pub use event::{Event, EventKeys};
pub use keepalive::{KeepaliveKeys, PeerKeepaliveKeys, Probed, complete};
pub use names::{check_address, check_name};
pub use network::{Address, End, EndAddress, Ends, Link, Node, PrefixText, RouteText, Ways};
pub use part::{Part, known, tables, value};
pub use paths::{PathKeys, Paths, SteeringKeys};
pub use pmip::{HandoffKey, ScheduleKey, TechnologyKey, WorthKeys};
pub use source::{Mistake, Name, Source, hint, named, printable};
pub use text::{text, text_up_to};
pub use values::{Duration, Ratio};
