//! A role as one machine ([`Node`]): the machine of its protocol, and a RADIUS client if servers know its hosts. Daemons
//! and the simulator drive nodes, so that both run the same composition.
//!
//! ```text
//!   driver ── NodeInput ──► Node ── wishes of the role ──► RADIUS client
//!          ◄─ NodeWish ───       ◄─ verdicts of servers ──
//! ```
//!
//! A [`Role`] says which of its machine's requests are for the client, and how verdicts return to it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod node;
mod pmip;
mod role;

pub use node::{Node, NodeInput, NodeReport, NodeWish};
pub use role::Role;

/// Stands for the port of the RADIUS client, which the driver chooses.
pub const RADIUS_PORT: u16 = 0;
