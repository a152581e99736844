//! The words about IP that protocols, the simulator and Linux share, as plain values: a [`Prefix`] of addresses, a
//! translator's [`Pref64`], an [`Interface`] of a machine, a [`LinkEvent`] at it, a [`Route`] and a [`Rule`] of its routing
//! tables, a [`Tunnel`] and the [`Binding`] of traffic to it, and the envelope of what machines take and give ([`Input`],
//! [`Output`]).
//!
//! Nothing here acts. Machines are told of interfaces and say what they want; `segue-linux` reads and writes all of it over
//! netlink, `segue-sim` has it at its nodes.

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
pub use envelope::{Datagram, Input, Output};
pub use flow::FlowKey;
pub use forward::{Forward, Forwarding};
pub use interface::Interface;
pub use link::{DownReason, LinkEvent};
pub use pref64::{BadPref64, Pref64, TRANSLATED};
pub use prefix::{BadPrefix, Prefix};
pub use route::{MAIN_TABLE, Route, Rule, Then};
pub use source::order_sources;
pub use tunnel::{Binding, Exit, Form, Port, Source, Traffic, Tunnel};
