//! A discrete-event simulator: networks on virtual time whose nodes run the same machines as the daemons.
//!
//! ```text
//!   scenario ──► Network ── nodes ── agents (tunnel ends, TCP, applications)
//!                   │          │         │  receive, wake, deadline
//!                   │          └ routes ─┤
//!                   ├ channels (netem::LinkModel, one for each direction)
//!                   ├ EventQueue: (time, order of scheduling)
//!                   └ Observer: traces and measurements
//! ```
//!
//! A run is single-threaded, and its output depends only on the scenario and the seed. The crate reads no files
//! and no clock; the caller advances time with [`Network::run_until`].
//!
//! Nodes, channels and agents share one `EventQueue`, ordered by time and then by scheduling. Sending a packet over a
//! link decides at once when it arrives or that it is lost: one event per packet and link. A deadline that moves later
//! costs no event until the old one is due. An observer changes nothing: a run with a trace and one without are the
//! same. Data are values; control messages travel as the bytes of `wire`, authenticators included, so that a run
//! exercises both.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod echo;
pub mod mih;
pub mod net;
pub mod packet;
pub mod pmip;
mod present;
pub mod queue;
pub mod radius;
pub mod results;
pub mod role;
pub mod stock;
pub mod tunnel;

pub use agent::{Agent, Io};
pub use net::{AgentId, ChannelId, Network, NodeId, Observer};
pub use packet::{Packet, Payload, Raw};
pub use queue::EventQueue;
pub use results::{Results, Value};
pub use role::{Role, RoleAgent};
