//! The daemons: each drives one pure machine with sockets, netlink, a datapath and the clock.

pub mod anchor;
pub mod events;
pub mod host;
pub mod packets;
pub mod routing;
pub mod status;
