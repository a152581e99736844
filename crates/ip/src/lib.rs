//! The words about IP that protocols, the simulator and Linux share, as plain values: a [`Prefix`] of addresses, an
//! [`Interface`] of a machine, a [`Route`] and a [`Rule`] of its routing tables.
//!
//! Nothing here acts. Machines are told of interfaces and say what they want; `segue-linux` reads and writes all of it over
//! netlink, `segue-sim` has it at its nodes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod envelope;
mod interface;
mod prefix;
mod route;

pub use envelope::{Datagram, Input, Output};
pub use interface::Interface;
pub use prefix::{BadPrefix, Prefix};
pub use route::{MAIN_TABLE, Route, Rule, Then};
