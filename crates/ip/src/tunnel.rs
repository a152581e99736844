//! Tunnels to other nodes, and the packets that use them.

use core::net::{IpAddr, Ipv6Addr};

use crate::{FlowKey, Prefix};

/// A tunnel to another node. A packet that leaves the tunnel is forwarded only if its inner source is one of the
/// tunnel's [`Source`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Unique number on this node, less than 2³¹.
    pub number: u32,
    /// Our address: the outer source when sending, the outer destination when receiving.
    pub local: IpAddr,
    /// The peer's address, of the same family.
    pub remote: IpAddr,
    /// Index of the outgoing interface. `None`: chosen by the routes, unless they lead to the relay.
    pub interface: Option<u32>,
    /// The encapsulation.
    pub form: Form,
}

/// The encapsulation of a [`Tunnel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Only an IP header: IPv6 in IPv6 and IPv4 in IPv6 (RFC 2473), IPv4 in IPv4 (RFC 2003), IPv6 in IPv4 (RFC 4213).
    Ip,
    /// IP and GRE (RFC 2784), optionally with a key (RFC 2890). Each end may choose its own key (RFC 5845).
    Gre {
        /// Key of sent packets.
        send: Option<u32>,
        /// Key of received packets. Packets with another key, or with a key if this is `None`, belong to another
        /// tunnel.
        receive: Option<u32>,
    },
    /// IP and UDP; the first four bits of the payload tell IPv4 from IPv6 (RFC 5555, 5844).
    Udp {
        /// Our port.
        local: u16,
        /// The peer's port.
        remote: u16,
    },
    /// No outer header: a care-of address replaces the home address, which an extension header carries (RFC 6275, 6.3
    /// and 6.4). The tunnel's addresses are those on the wire, both IPv6. At least one home address is set.
    Optimized {
        /// Our home address: in the Home Address option of sent packets, and in the type 2 routing header of received
        /// packets.
        home: Option<Ipv6Addr>,
        /// The peer's home address: in the type 2 routing header of sent packets, and in the Home Address option of
        /// received packets.
        peer: Option<Ipv6Addr>,
    },
}

/// The point where packets enter a relaying node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// The tunnel with this number. Its packets are checked.
    Tunnel(u32),
    /// The interface with this index. If it has at least one [`Source`], its packets are checked. Otherwise it faces
    /// the rest of the world, and packets from it are dropped if [`Traffic::To`] is bound for their source, or if a
    /// checked interface may bring it.
    Link(u32),
}

/// Packets that enter at `port` may have inner sources in `prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The entry point.
    pub port: Port,
    /// The allowed inner sources.
    pub prefix: Prefix,
}

/// Part of the packets that a node's routes lead to its tunnels. A packet follows the binding of its flow, if there is
/// one. Otherwise the longest matching prefix decides: by source and then destination for packets from a checked link,
/// and by destination and then source for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// Packets of one flow.
    Flow(FlowKey),
    /// Packets to a prefix.
    To(Prefix),
    /// Packets from a prefix.
    From(Prefix),
}

impl Traffic {
    /// Clears the host bits of the prefix, which are ignored.
    #[must_use]
    pub fn network(self) -> Traffic {
        match self {
            Traffic::Flow(_) => self,
            Traffic::To(prefix) => Traffic::To(prefix.network()),
            Traffic::From(prefix) => Traffic::From(prefix.network()),
        }
    }
}

/// The destination of packets inside this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Into the tunnel with this number.
    Tunnel(u32),
    /// Out of an interface.
    Link {
        /// Index of the interface.
        interface: u32,
        /// Next hop; `None`: the packet's destination.
        next: Option<IpAddr>,
    },
    /// Queue the packets, and send them in order when the traffic is bound to another exit.
    Hold {
        /// Maximum number of packets; beyond it, the oldest is dropped.
        packets: u16,
        /// Maximum time in the queue, in milliseconds; then a packet is dropped.
        within_ms: u16,
    },
    /// Drop the packets.
    Drop,
    /// Pass the first packet of each flow to the node's driver, which binds the flow. Further packets are queued
    /// meanwhile.
    Ask,
}

/// Assigns an exit to traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The traffic.
    pub traffic: Traffic,
    /// Its exit.
    pub exit: Exit,
}
