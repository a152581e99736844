//! Hosts and anchors of tunnels as agents of a network.

mod applications;
mod outages;
mod talk;
mod world;
