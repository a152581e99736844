//! IP values that protocols, the simulator and Linux share: a [`Prefix`], a translator's [`Pref64`], an [`Interface`],
//! its [`LinkEvent`]s, a [`Route`] and a [`Rule`] of routing tables, a [`Tunnel`] and the [`Binding`] of traffic to it,
//! and the envelope of a machine's inputs and outputs ([`Input`], [`Output`]).
//!
//! This crate only defines values. `segue-linux` reads and writes them over netlink; `segue-sim` models them at its
//! nodes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bound;
mod envelope;
mod flow;
mod forward;
mod interface;
mod link;
mod pref64;
mod prefix;
mod route;
mod source;
mod tunnel;

pub use bound::{Bindings, Sources};
pub use envelope::{After, Datagram, Input, Output, Subject};
pub use flow::FlowKey;
pub use forward::{Forward, Forwarding};
pub use interface::Interface;
pub use link::{DownReason, LinkEvent};
pub use pref64::{BadPref64, Pref64, TRANSLATED};
pub use prefix::{BadPrefix, Prefix};
pub use route::{MAIN_TABLE, Route, Rule, Then};
pub use source::order_sources;
pub use tunnel::{Binding, Exit, Form, Port, Source, Traffic, Tunnel};
