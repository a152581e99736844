//! Configuration of a gateway.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{DayClock, Span};
use segue_ip::{MAIN_TABLE, Prefix};
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::{AccessTechnology, Handoff};

use crate::{LinkLayer, NodeId};

/// Maximum number of hosts of a gateway. Each may have an unacknowledged update, which a 16-bit sequence number
/// identifies.
pub const HOSTS_MAX: usize = 1 << 15;

/// Link-local address of every gateway on every access link (RFC 6543).
pub const FIXED_LINK_LOCAL: Ipv6Addr =
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0200, 0x5eff, 0xfe00, 0x5213);

/// Link-layer address of every gateway on every access link (RFC 6543).
pub const FIXED_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x52, 0x13];

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct MagConfig {
    /// The links to hosts.
    pub accesses: Vec<Access>,
    /// The anchor of hosts whose identity names none.
    pub anchor: IpAddr,
    /// Encapsulation of hosts' packets between gateway and anchor.
    pub encapsulation: Encapsulation,
    /// Where anchors depart from the standards.
    pub profile: Profile,
    /// Identities of hosts; `None`: the driver identifies them ([`crate::Wish::Identify`]).
    pub identities: Option<Identities>,
    /// The gateway's link-layer address in advertisements; `None`: hosts resolve it.
    pub mac: Option<[u8; 6]>,
    /// The MTU to advertise, in bytes: the packet size that fits into the tunnel.
    pub mtu_bytes: u32,
    /// Name servers to advertise.
    pub name_servers: Vec<Ipv6Addr>,
    /// Forward everything from anchors' tunnels to the host, and let it send from any address: for anchors that send no
    /// flow mobility notifications (paper 3). The gateway then serves one host at a time and refuses others.
    pub forward_all: bool,
    /// Time between advertisements to a host.
    pub advertise_every: Span,
    /// Lifetimes to request.
    pub lifetime: Lifetimes,
    /// Routing table for routes to hosts.
    pub table: u32,
    /// Maximum number of hosts, at most [`HOSTS_MAX`].
    pub capacity: usize,
    /// Must differ at each start: peers that see it change register again (RFC 5847).
    pub restart_counter: u32,
    /// Seed for initial sequence numbers; must differ at each start.
    pub seed: u64,
    /// Converts between monotonic time and time of day.
    pub clock: DayClock,
}

impl MagConfig {
    /// Default values, for hosts with this anchor.
    #[must_use]
    pub fn new(anchor: impl Into<IpAddr>, accesses: Vec<Access>, clock: DayClock) -> MagConfig {
        MagConfig {
            accesses,
            anchor: anchor.into(),
            encapsulation: Encapsulation::Ip,
            profile: Profile::STRICT,
            identities: Some(Identities::default()),
            mac: Some(FIXED_MAC),
            mtu_bytes: 1_452,
            name_servers: Vec::new(),
            forward_all: false,
            advertise_every: Span::from_secs(600),
            lifetime: Lifetimes::default(),
            table: MAIN_TABLE,
            capacity: HOSTS_MAX,
            restart_counter: 1,
            seed: 0,
            clock,
        }
    }

    /// The configured anchors: the usual one, and those of single hosts.
    pub fn anchors(&self) -> impl Iterator<Item = IpAddr> {
        let known = self.identities.iter().flat_map(|all| all.known.values());
        known.filter_map(|identity| identity.anchor).chain([self.anchor])
    }
}

/// Encapsulation of hosts' packets that a gateway requests from its anchors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// An IP header; behind a NAT, also UDP.
    #[default]
    Ip,
    /// GRE with keys for each host's interface (RFC 5845).
    Gre,
    /// Over IPv4, UDP even without a NAT (RFC 5844).
    Udp,
}

/// An access: a link to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Name of its interface.
    pub interface: String,
    /// Access technology.
    pub technology: AccessTechnology,
    /// Care-of address under which hosts there are registered (Proxy-CoA).
    pub proxy_coa: IpAddr,
    /// Handoff indicator in registrations of newly attached hosts, as far as the gateway can know.
    pub handoff: Handoff,
    /// Source of attachment events.
    pub by: AttachBy,
}

/// Source of the events that a host has attached or left. Exactly one source is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachBy {
    /// The driver ([`crate::MagInput::Attached`], [`crate::MagInput::Detached`]), from IEEE 802.21 or system events.
    Driver,
    /// Router solicitations of the host. It has left when the link goes down.
    Solicitation,
}

/// Identities of hosts, by link-layer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Known hosts.
    pub known: BTreeMap<LinkLayer, Identity>,
    /// Realm of other hosts, which are named by their link-layer address; `None`: they are refused.
    pub realm: Option<String>,
}

impl Default for Identities {
    fn default() -> Identities {
        Identities { known: BTreeMap::new(), realm: Some("segue.invalid".into()) }
    }
}

/// Identity and policy of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its MN-ID.
    pub node: NodeId,
    /// Its anchor; `None`: [`MagConfig::anchor`].
    pub anchor: Option<IpAddr>,
    /// Prefixes to request; empty: any.
    pub prefixes: Vec<Prefix>,
}

/// Lifetimes that a gateway requests. A host's lifetime is its mean stay at this gateway, within the bounds. The mean
/// is an exponential average in which each new stay has a weight of one quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Minimum lifetime.
    pub shortest: Span,
    /// Lifetime for a host without known stays.
    pub first: Span,
    /// Maximum lifetime.
    pub longest: Span,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes {
            shortest: Span::from_secs(60),
            first: Span::from_secs(600),
            longest: Span::from_secs(3_600),
        }
    }
}
