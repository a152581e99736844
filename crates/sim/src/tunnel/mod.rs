//! The two ends of Segue's tunnels on virtual time: the daemons' machines over a model of the packet path.
//!
//! ```text
//!   inputs, ticks ──► HostEnd ┬ segue_tunnel::Host      AnchorEnd ┬ segue_tunnel::Anchor
//!   packets ────────►         └ Datapath                          └ Datapath  ──► effects
//! ```
//!
//! The ends contain neither a queue nor links, so that a network of nodes and a large population of hosts can use
//! the same code.
//!
//! Signalling is a stand-in for QUIC, with its timeouts: quinn takes times and keys from the system, so no run would
//! repeat another. The packet path is a model, since programs in the kernel cannot run on virtual time. An impossible
//! order is kept as `Wrong`, and tests look for it after every event.

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

/// The kind of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It carried an inner packet, with or without a probe.
    Data,
    /// A probe that was passed to the machine.
    Probe,
    /// A probe that the packet path did not pass on.
    Quiet,
    /// A packet size probe, or its answer.
    Size,
    /// It was refused.
    Refused,
}
