//! What a machine asks of the forwarding of its node.

use core::net::IpAddr;

use crate::{Binding, Prefix, Route, Rule, Source, Tunnel};

/// A part of a node's forwarding. The node has it or not: to give it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// An interface's own address, with the prefix that it reaches on the link.
    Address {
        /// Index of the interface.
        interface: u32,
        /// The address, host bits and all.
        prefix: Prefix,
    },
    /// A route. One to the same destination, in the same table and with the same metric, takes its place.
    Route(Route),
    /// A rule that chooses among routing tables.
    Rule(Rule),
    /// An address that the node answers for on the link of an interface, when neighbours ask who has it (RFC 4861,
    /// 7.2.8). What they send there is forwarded.
    Proxy {
        /// Index of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// A neighbour whose link-layer address is known, so that nobody asks for it. One with the same address takes its place.
    Neighbour {
        /// Index of the interface.
        interface: u32,
        /// Its address.
        address: IpAddr,
        /// Its link-layer address, on Ethernet and Wi-Fi.
        mac: [u8; 6],
    },
    /// A tunnel. One with the same number takes its place; what is bound to it stays so.
    Tunnel(Tunnel),
    /// Inner sources that a tunnel or a link may bring.
    Source(Source),
    /// Where traffic goes. One for the same traffic takes its place.
    Bind(Binding),
}

/// A node whose forwarding can be changed: `segue-linux` does so over netlink, `segue-datapath` adds tunnels, `segue-sim`
/// has its nodes.
pub trait Forwarding {
    /// Why something could not be done.
    type Error;

    /// Gives the node this part.
    ///
    /// # Errors
    /// It cannot have it; nothing has changed.
    fn put(&mut self, part: &Forward) -> Result<(), Self::Error>;

    /// Takes this part from the node, if it has it.
    ///
    /// # Errors
    /// It cannot be taken away.
    fn take_back(&mut self, part: &Forward) -> Result<(), Self::Error>;
}
