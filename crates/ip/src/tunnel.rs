//! Tunnels to other nodes, and which packets take them.

use core::net::{IpAddr, Ipv6Addr};

use crate::{FlowKey, Prefix};

/// A tunnel to another node. What comes out of it is carried on only if its inner source is one of the [`Source`]s of the
/// tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its number, unlike that of any other tunnel of this node; less than 2³¹.
    pub number: u32,
    /// This end's address: source of what goes in, destination of what comes out.
    pub local: IpAddr,
    /// The other end's address, of the same family.
    pub remote: IpAddr,
    /// Index of the interface that it leaves over; `None` for the one that routes choose, unless they lead to the relay.
    pub interface: Option<u32>,
    /// What is around inner packets.
    pub form: Form,
}

/// What is around the inner packets of a [`Tunnel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An IP header alone: IPv6 in IPv6 and IPv4 in IPv6 (RFC 2473), IPv4 in IPv4 (RFC 2003), IPv6 in IPv4 (RFC 4213).
    Ip,
    /// IP and GRE (RFC 2784), with a key (RFC 2890) where there is one. The ends may have chosen different keys
    /// (RFC 5845).
    Gre {
        /// Key in what goes in.
        send: Option<u32>,
        /// Key in what comes out; packets with another, or with one where there is none, are of another tunnel.
        receive: Option<u32>,
    },
    /// IP and UDP; the first four bits of what follows say whether it is IPv4 or IPv6 (RFC 5555, 5844).
    Udp {
        /// This end's port.
        local: u16,
        /// The other end's port.
        remote: u16,
    },
    /// No header around, but an address kept in an extension header while a care-of address stands in its place (RFC 6275,
    /// 6.3 and 6.4). The tunnel's addresses are those on the wire, both IPv6. At least one of the two is given.
    Optimized {
        /// This node's home address, in a Home Address option of what it sends, in the type 2 routing header of what it
        /// gets.
        home: Option<Ipv6Addr>,
        /// The other node's home address, the other way round.
        peer: Option<Ipv6Addr>,
    },
}

/// Where packets come into a node that relays them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// Out of the tunnel with this number. Its packets are checked.
    Tunnel(u32),
    /// Over the interface with this index. Its packets are checked if it has at least one [`Source`]. If it has none, it is the
    /// rest of the world's, from which nothing comes with a source that [`Traffic::To`] is bound for, or that a checked
    /// interface may bring.
    Link(u32),
}

/// Packets that come in at `port` may have inner sources in `prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Where they come in.
    pub port: Port,
    /// Where they may come from.
    pub prefix: Prefix,
}

/// Some of the packets that the routes of a node lead to its tunnels. Each packet goes by its flow, if that is named. If
/// not, a packet that came over a checked link goes by its source, any other by its destination, each by the longest
/// prefix; if there is none, by the other of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// Those of one flow.
    Flow(FlowKey),
    /// Those to a prefix.
    To(Prefix),
    /// Those from a prefix.
    From(Prefix),
}

impl Traffic {
    /// The same without host bits of its prefix, which mean nothing.
    #[must_use]
    pub fn network(self) -> Traffic {
        match self {
            Traffic::Flow(_) => self,
            Traffic::To(prefix) => Traffic::To(prefix.network()),
            Traffic::From(prefix) => Traffic::From(prefix.network()),
        }
    }
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Into the tunnel with this number.
    Tunnel(u32),
    /// Out of an interface, to the next hop, or to the destination itself.
    Link {
        /// Index of the interface.
        interface: u32,
        /// Next hop.
        next: Option<IpAddr>,
    },
    /// Nowhere for now. They leave in order when the traffic is bound to something else.
    Hold {
        /// Most packets; for each one more the oldest is dropped.
        packets: u16,
        /// Longest stay in milliseconds; then a packet is dropped.
        within_ms: u16,
    },
    /// Nowhere.
    Drop,
    /// The first packet of each flow goes to the node's driver, which binds the flow; its next ones are kept meanwhile.
    Ask,
}

/// Where some traffic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Which.
    pub traffic: Traffic,
    /// Where to.
    pub exit: Exit,
}
