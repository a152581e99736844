//! The two ends of Segue's tunnels on virtual time: the machines of the daemons with a model of the packet
//! path below them.
//!
//! ```text
//!   inputs, ticks ──► HostEnd ┬ segue_tunnel::Host      AnchorEnd ┬ segue_tunnel::Anchor
//!   packets ────────►         └ Datapath                          └ Datapath  ──► effects
//! ```
//!
//! The ends are without queue and links, so that a network of nodes and a population of many hosts drive the same
//! ones.

mod agents;
mod bytes;
mod end;
mod message;
mod meter;
mod model;
mod packets;
mod rides;
pub mod signal;
mod slot;

pub use agents::{
    AnchorAgent, AnchorOrder, AnchorRole, Enrolment, HostAgent, HostOrder, HostRole, Tunnels, Wish,
    add_anchor, add_host,
};
pub use end::{AnchorEffect, AnchorEnd, Effect, HostEffect, HostEnd, SWEEP, SimEnd};
pub use message::{Body, Inner, Message, Outer, Ride};
pub use model::{Model, Wrong};

/// What an arriving packet was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It carried an inner packet, with a probe or without.
    Data,
    /// A probe that the machine got to see.
    Probe,
    /// A probe that the packet path kept to itself.
    Quiet,
    /// A test of a packet size, or the answer to one.
    Size,
    /// It was refused.
    Refused,
}
