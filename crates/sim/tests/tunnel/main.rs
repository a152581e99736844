//! Hosts and anchors of tunnels as agents of a network.

#![expect(clippy::unwrap_used, reason = "the world of the tests may panic")]

mod applications;
mod defaults;
mod filters;
mod losses;
mod networks;
mod outages;
mod talk;
mod world;
