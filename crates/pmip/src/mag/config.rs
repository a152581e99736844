//! What a gateway needs to know.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{DayClock, Span};
use segue_ip::{MAIN_TABLE, Prefix};
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::{AccessTechnology, Handoff};

use crate::{LinkLayer, NodeId};

/// Most hosts of a gateway: each may have an update that is not acknowledged, and these are known by numbers of 16 bits.
pub const HOSTS_MAX: usize = 1 << 15;

/// The address that every gateway has on every access link (RFC 6543).
pub const FIXED_LINK_LOCAL: Ipv6Addr =
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0200, 0x5eff, 0xfe00, 0x5213);

/// The link-layer address of every gateway on every access link (RFC 6543).
pub const FIXED_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x52, 0x13];

/// What a gateway needs to know.
#[derive(Clone, Debug)]
pub struct MagConfig {
    /// Its accesses.
    pub accesses: Vec<Access>,
    /// The anchor of hosts whose identity names none.
    pub anchor: IpAddr,
    /// What is to be around hosts' packets between gateway and anchor.
    pub encapsulation: Encapsulation,
    /// Where anchors depart from the standards.
    pub profile: Profile,
    /// Who hosts are; `None`: its driver is asked ([`crate::Wish::Identify`]).
    pub identities: Option<Identities>,
    /// The link-layer address that advertisements say the gateway has; `None`: hosts resolve it.
    pub mac: Option<[u8; 6]>,
    /// The MTU that it advertises, in bytes: what fits into the tunnel.
    pub mtu_bytes: u32,
    /// Name servers that it advertises.
    pub name_servers: Vec<Ipv6Addr>,
    /// Everything that comes out of anchors' tunnels goes to the host, and it may send from anywhere: for anchors that tell nothing of
    /// flows that move (paper 3). It serves one host at a time and refuses others.
    pub forward_all: bool,
    /// Time between advertisements to a host.
    pub advertise_every: Span,
    /// Bounds of the lifetimes that it asks for, and the one for a host that has not stayed here yet.
    pub lifetime: Lifetimes,
    /// The routing table for what is for hosts.
    pub table: u32,
    /// Most hosts, at most [`HOSTS_MAX`].
    pub capacity: usize,
    /// Another number at each start: peers that see it change register again (RFC 5847).
    pub restart_counter: u32,
    /// Any number, another at each start: messages are numbered from there.
    pub seed: u64,
    /// The time of day.
    pub clock: DayClock,
}

impl MagConfig {
    /// With usual values, for hosts with this anchor.
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

    /// The anchors that it names: the usual one, and those of single hosts.
    pub fn anchors(&self) -> impl Iterator<Item = IpAddr> {
        let known = self.identities.iter().flat_map(|all| all.known.values());
        known.filter_map(|identity| identity.anchor).chain([self.anchor])
    }
}

/// What a gateway asks its anchors to have around hosts' packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// An IP header. Behind a NAT also UDP.
    #[default]
    Ip,
    /// GRE with keys of each host's interface (RFC 5845).
    Gre,
    /// Over IPv4 UDP, whether there is a NAT or not (RFC 5844).
    Udp,
}

/// An access: a link to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The name of its interface.
    pub interface: String,
    /// Its kind.
    pub technology: AccessTechnology,
    /// The address that hosts there are registered at (Proxy-CoA).
    pub proxy_coa: IpAddr,
    /// How a host that attaches came there, as far as the gateway can know (Handoff Indicator).
    pub handoff: Handoff,
    /// Who says that a host is there.
    pub by: AttachBy,
}

/// Who says that a host has attached or left; only one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachBy {
    /// The driver ([`crate::MagInput::Attached`], [`crate::MagInput::Detached`]): IEEE 802.21, or what its system tells.
    Driver,
    /// The host itself, by a router solicitation; it has left when the link goes down.
    Solicitation,
}

/// Who hosts are, by their link-layer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Those that are known.
    pub known: BTreeMap<LinkLayer, Identity>,
    /// The realm of others, which are called by their link-layer addresses; `None`: they are refused.
    pub realm: Option<String>,
}

impl Default for Identities {
    fn default() -> Identities {
        Identities { known: BTreeMap::new(), realm: Some("segue.invalid".into()) }
    }
}

/// Who a host is, and what it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its MN-ID.
    pub node: NodeId,
    /// Its anchor; `None`: the gateway's usual one.
    pub anchor: Option<IpAddr>,
    /// Prefixes that it is to ask for; none: any.
    pub prefixes: Vec<Prefix>,
}

/// Lifetimes that a gateway asks for. A host's is its mean stay at this gateway: the average of its stays so far, in which each
/// counts a quarter and those before it the rest; between the two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The shortest.
    pub shortest: Span,
    /// That of a host whose stays are not known.
    pub first: Span,
    /// The longest.
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
