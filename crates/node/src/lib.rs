//! A role as one machine ([`Node`]): the machine of its protocol, a RADIUS client if servers know its hosts, an IEEE
//! 802.21 function if one reports events of links, and what programs that decide about flows learn and order. Daemons
//! and the simulator drive nodes, so that both run the same composition.
//!
//! ```text
//!   driver ── NodeInput ──► Node ── wishes of the role ──► RADIUS client
//!          ◄─ NodeWish ───       ◄─ verdicts of servers ──
//!                                ◄─ events of links ── IEEE 802.21 function
//!                                ── events, orders ── programs
//! ```
//!
//! A [`Role`] says which of its machine's requests are for the client, and how verdicts return to it; [`Links`] says
//! what follows from an event of a link; [`Decided`] says what programs learn, and how orders reach the machine.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod deciding;
mod event;
mod links;
mod node;
mod pmip;
mod programs;
mod role;

pub use deciding::Decided;
pub use event::{Event, FlowName, FlowRate, LinkStatus, Order, QualityStatus};
pub use links::{AnchorLinks, GatewayLinks, Links};
pub use node::{Node, NodeInput, NodeReport, NodeWish};
pub use programs::{Carried, ProgramInput};
pub use role::Role;

/// Stands for the port of the RADIUS client, which the driver chooses.
pub const RADIUS_PORT: u16 = 0;
/// Stands for the port of the IEEE 802.21 function, if the driver chooses it.
pub const MIH_PORT: u16 = 1;

/// True if a port only stands for one that the driver chooses.
#[must_use]
pub const fn is_chosen(port: u16) -> bool {
    matches!(port, RADIUS_PORT | MIH_PORT)
}
