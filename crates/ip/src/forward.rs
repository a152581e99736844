//! Changes to the forwarding of a node.

use core::net::IpAddr;

use crate::{Binding, Prefix, Route, Rule, Source, Tunnel};

/// A part of a node's forwarding. Adding the same part twice has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// An address of an interface, with the prefix that is on the link.
    Address {
        /// Index of the interface.
        interface: u32,
        /// The address; host bits are kept.
        prefix: Prefix,
    },
    /// A route. Replaces a route with the same destination, table and metric.
    Route(Route),
    /// A rule that selects a routing table.
    Rule(Rule),
    /// An address for which the node answers neighbour solicitations on an interface's link (RFC 4861, 7.2.8). Packets
    /// to it are forwarded.
    Proxy {
        /// Index of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// A static neighbour, which needs no address resolution. Replaces one with the same address.
    Neighbour {
        /// Index of the interface.
        interface: u32,
        /// The neighbour's address.
        address: IpAddr,
        /// Its link-layer address (Ethernet or Wi-Fi).
        mac: [u8; 6],
    },
    /// A tunnel. Replaces one with the same number; bindings to it stay.
    Tunnel(Tunnel),
    /// Inner sources that a tunnel or a link may bring.
    Source(Source),
    /// The exit for some traffic. Replaces the binding of the same traffic.
    Bind(Binding),
}

/// A node whose forwarding can be changed: `segue-linux` implements this over netlink, `segue-datapath` adds tunnels,
/// and the nodes of `segue-sim` implement it as well.
pub trait Forwarding {
    /// Why a change failed.
    type Error;

    /// Adds this part.
    ///
    /// # Errors
    /// The part cannot be added; nothing has changed.
    fn put(&mut self, part: &Forward) -> Result<(), Self::Error>;

    /// Removes this part, if present.
    ///
    /// # Errors
    /// The part cannot be removed.
    fn take_back(&mut self, part: &Forward) -> Result<(), Self::Error>;
}
