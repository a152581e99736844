//! What an anchor needs to know.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{DayClock, Span};
use segue_ip::Prefix;
use segue_mobility::{Lifetime, Pool, TimestampOrder};
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::AccessTechnology;

use crate::{FIXED_LINK_LOCAL, NodeId};

/// What an anchor needs to know.
#[derive(Clone, Debug)]
pub struct LmaConfig {
    /// Its address (LMAA).
    pub address: IpAddr,
    /// Beside one of IPv6: its address for gateways that are reached over IPv4 (RFC 5844).
    pub address_v4: Option<Ipv4Addr>,
    /// Whether gateways may have what they exchange with it in UDP, though there is no NAT
    /// (AcceptForcedIPv4UDPEncapsulationRequest).
    pub accept_udp: bool,
    /// Time between the keepalives of gateways behind a NAT (NATKATIMEOUT).
    pub nat_keepalive: Span,
    /// Whether bindings have tunnels of GRE with keys (RFC 5845).
    pub gre: GreUse,
    /// Most tunnels: one for each gateway, and one for each binding with GRE.
    pub max_tunnels: usize,
    /// The address that gateways have on links to hosts, for those that ask what it is.
    pub link_local: Ipv6Addr,
    /// The home network prefixes that it gives away.
    pub pool: Pool,
    /// How long a prefix rests for its host when the host's last binding has ended.
    pub prefix_hold: Span,
    /// Which gateways may register hosts; of several that fit, the longest prefix counts.
    pub gateways: Vec<Allowed>,
    /// Which hosts it serves.
    pub nodes: Nodes,
    /// Whether its driver is asked about each host before a binding of it begins ([`crate::LmaWish::Authorize`]).
    pub authorize: bool,
    /// The longest lifetime that it grants.
    pub longest: Lifetime,
    /// By how much the clocks of both ends may differ (TimestampValidityWindow).
    pub window: Span,
    /// How long a binding stays after its host has left (MinDelayBeforeBCEDelete).
    pub delete_delay: Span,
    /// How long a registration whose handoff state is unknown waits for the end of another (MaxDelayBeforeNewBCEAssign).
    pub assign_delay: Span,
    /// Whether flows go to another interface of their host than the one whose prefix they have (RFC 7864).
    pub flow_mobility: bool,
    /// Gateways are told of the prefixes that their hosts have elsewhere (Flow Mobility Initiate, RFC 7864, 3.2.2), and of who is to
    /// be preferred. If not, they have to forward everything ([`crate::MagConfig::forward_all`]), as in paper 3.
    pub flow_mobility_initiate: bool,
    /// How flows are placed.
    pub schedule: Schedule,
    /// What accesses are worth; of several that fit, the first counts.
    pub accesses: Vec<Rated>,
    /// How the ways to gateways are measured; `None`: not at all.
    pub keepalive: Option<segue_keepalive::Config>,
    /// Which class a flow is of, and by how much better a way must be.
    pub steering: segue_steering::Config,
    /// Have each flow placed by itself, also where there is no choice: who decides is told of all.
    pub always_ask: bool,
    /// Most flows that are placed by themselves.
    pub max_flows: usize,
    /// Any number: what the schedule by chance begins with.
    pub seed: u64,
    /// Most bindings.
    pub capacity: usize,
    /// Another number at each start: peers that see it change register again (RFC 5847).
    pub restart_counter: u32,
    /// The time of day.
    pub clock: DayClock,
}

impl LmaConfig {
    /// Its address of the same family as a peer's; unspecified if it has none.
    pub(super) fn own(&self, peer: IpAddr) -> IpAddr {
        let v4 = self.address_v4.unwrap_or(Ipv4Addr::UNSPECIFIED).into();
        match peer.is_ipv6() == self.address.is_ipv6() {
            true => self.address,
            false if peer.is_ipv4() => v4,
            false => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// With the defaults of RFC 5213, for prefixes of this pool.
    #[must_use]
    pub fn new(address: impl Into<IpAddr>, pool: Pool, clock: DayClock) -> LmaConfig {
        LmaConfig {
            address: address.into(),
            address_v4: None,
            accept_udp: false,
            nat_keepalive: Span::from_secs(110),
            gre: GreUse::Allowed,
            max_tunnels: 4_096,
            link_local: FIXED_LINK_LOCAL,
            pool,
            prefix_hold: Span::from_secs(3_600),
            gateways: Vec::new(),
            nodes: Nodes::All,
            authorize: false,
            longest: Lifetime::of(Span::from_secs(3_600)),
            window: TimestampOrder::WINDOW,
            delete_delay: Span::from_millis(10_000),
            assign_delay: Span::from_millis(1_500),
            flow_mobility: true,
            flow_mobility_initiate: true,
            schedule: Schedule::Static,
            accesses: Vec::new(),
            keepalive: None,
            steering: segue_steering::Config::default(),
            always_ask: false,
            max_flows: 1 << 17,
            seed: 0,
            capacity: 1 << 20,
            restart_counter: 1,
            clock,
        }
    }
}

/// Whether an anchor has tunnels of GRE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GreUse {
    /// Never.
    Off,
    /// Where a gateway asks for it.
    #[default]
    Allowed,
    /// Who does not ask for it is refused.
    Required,
}

/// Gateways that may register hosts, and how they speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Their addresses.
    pub prefix: Prefix,
    /// Where they depart from the standards.
    pub profile: Profile,
}

/// Hosts that an anchor serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Any.
    All,
    /// These; with `false` they are known, but not allowed to be moved by proxies.
    Listed(BTreeMap<NodeId, bool>),
}

/// What accesses are worth: those of a kind, at a gateway, or all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rated {
    /// Their kind; `None`: any.
    pub access: Option<AccessTechnology>,
    /// The addresses of their gateways; `None`: any.
    pub gateway: Option<Prefix>,
    /// What they are worth.
    pub worth: Worth,
}

/// What an access is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Relative price per byte, 0 for free.
    pub price: f64,
    /// The more, the sooner it is used.
    pub preference: f64,
}

/// How flows are placed when nobody else decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Each goes to the interface whose prefix it has, and back to it when that returns.
    #[default]
    Static,
    /// By its addresses, ports and protocol.
    Hash,
    /// By chance.
    Random,
    /// To the interface with the fewest flows.
    LeastLoaded,
    /// To the interface whose access is cheapest; of equals to the one that is preferred most. Back to it when that returns.
    Preferred,
    /// To the interface that serves flows of its class best, and to another when that is better ([`segue_steering`]).
    Quality,
}

impl Schedule {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Static => "static",
            Schedule::Hash => "hash",
            Schedule::Random => "random",
            Schedule::LeastLoaded => "least-loaded",
            Schedule::Preferred => "preferred",
            Schedule::Quality => "quality",
        }
    }
}
