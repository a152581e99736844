//! Configuration of an anchor.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{DayClock, Span};
use segue_ip::Prefix;
use segue_mobility::{Lifetime, Pool, TimestampOrder};
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::AccessTechnology;

use crate::{FIXED_LINK_LOCAL, NodeId};

/// Configuration of an anchor.
#[derive(Clone, Debug)]
pub struct LmaConfig {
    /// The anchor's address (LMAA).
    pub address: IpAddr,
    /// If `address` is IPv6: an additional address for gateways that are reached over IPv4 (RFC 5844).
    pub address_v4: Option<Ipv4Addr>,
    /// Let gateways request UDP encapsulation without a NAT (AcceptForcedIPv4UDPEncapsulationRequest).
    pub accept_udp: bool,
    /// Keepalive interval for gateways behind a NAT (NATKATIMEOUT).
    pub nat_keepalive: Span,
    /// Use of GRE tunnels with keys (RFC 5845).
    pub gre: GreUse,
    /// Maximum number of tunnels: one for each gateway, and one for each binding with GRE.
    pub max_tunnels: usize,
    /// Link-local address that gateways have on links to hosts; returned to gateways that ask for it.
    pub link_local: Ipv6Addr,
    /// The home network prefixes to lease.
    pub pool: Pool,
    /// How long a prefix stays reserved for its host after the host's last binding has ended.
    pub prefix_hold: Span,
    /// Gateways that may register hosts. The entry with the longest matching prefix applies.
    pub gateways: Vec<Allowed>,
    /// Hosts that the anchor serves.
    pub nodes: Nodes,
    /// Ask the driver to authorize each new binding ([`crate::LmaWish::Authorize`]).
    pub authorize: bool,
    /// Maximum lifetime that the anchor grants.
    pub longest: Lifetime,
    /// Maximum difference between the clocks of gateway and anchor (TimestampValidityWindow).
    pub window: Span,
    /// How long a binding stays after its host has left (MinDelayBeforeBCEDelete).
    pub delete_delay: Span,
    /// How long a registration with an unknown handoff state waits for the end of another binding
    /// (MaxDelayBeforeNewBCEAssign).
    pub assign_delay: Span,
    /// Let flows go to another interface of their host than the one that holds their prefix (RFC 7864).
    pub flow_mobility: bool,
    /// Notify gateways of the prefixes that their hosts have at other gateways (Flow Mobility Initiate,
    /// RFC 7864, section 3.2.2), and of which gateway the host should prefer. If false, gateways must forward
    /// everything ([`crate::MagConfig::forward_all`]), as in paper 3.
    pub flow_mobility_initiate: bool,
    /// How flows are placed.
    pub schedule: Schedule,
    /// Price and preference of accesses. The first matching entry applies.
    pub accesses: Vec<Rated>,
    /// How the paths to gateways are measured; `None` disables the measurement.
    pub keepalive: Option<segue_keepalive::Config>,
    /// How flows are classified, and how much better a path must be before flows move to it.
    pub steering: segue_steering::Config,
    /// Place every flow individually, even if the host has only one usable interface, so that the external scheduler
    /// sees all flows.
    pub always_ask: bool,
    /// Maximum number of individually placed flows.
    pub max_flows: usize,
    /// Idle time after which a flow is forgotten.
    pub flow_idle: Span,
    /// Seed of the random number generator and of initial sequence numbers.
    pub seed: u64,
    /// Maximum number of bindings.
    pub capacity: usize,
    /// Must differ at each start: peers that see it change register again (RFC 5847).
    pub restart_counter: u32,
    /// Converts between monotonic time and time of day.
    pub clock: DayClock,
}

impl LmaConfig {
    /// The anchor's address in the family of a peer's address; unspecified if it has none.
    pub(super) fn own(&self, peer: IpAddr) -> IpAddr {
        let v4 = self.address_v4.unwrap_or(Ipv4Addr::UNSPECIFIED).into();
        match peer.is_ipv6() == self.address.is_ipv6() {
            true => self.address,
            false if peer.is_ipv4() => v4,
            false => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The defaults of RFC 5213, for prefixes of this pool.
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
            flow_idle: Span::from_secs(60),
            seed: 0,
            capacity: 1 << 20,
            restart_counter: 1,
            clock,
        }
    }
}

/// Use of GRE tunnels by an anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GreUse {
    /// Never.
    Off,
    /// If the gateway requests it.
    #[default]
    Allowed,
    /// Gateways that do not request GRE are refused.
    Required,
}

/// Gateways that may register hosts, and their dialect of the protocol.
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
    /// All hosts.
    All,
    /// Only these. Hosts with `false` are known, but refused proxy registration.
    Listed(BTreeMap<NodeId, bool>),
}

/// Price and preference of the accesses of one kind, of one gateway, or of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rated {
    /// Access technology; `None` matches any.
    pub access: Option<AccessTechnology>,
    /// Addresses of the gateways; `None` matches any.
    pub gateway: Option<Prefix>,
    /// Price and preference.
    pub worth: Worth,
}

/// Price and preference of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Relative price per byte; 0 is free.
    pub price: f64,
    /// Among equally cheap accesses, the one with the higher preference is used.
    pub preference: f64,
}

/// How flows are placed unless an external scheduler decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// On the interface that holds their prefix; they return to it when it comes back.
    #[default]
    Static,
    /// By a hash of addresses, ports and protocol.
    Hash,
    /// At random.
    Random,
    /// On the interface with the fewest flows.
    LeastLoaded,
    /// On the cheapest access; among equally cheap ones, on the most preferred. Flows return to it when it comes back.
    Preferred,
    /// On the interface that serves flows of their class best. Flows move when another becomes better
    /// ([`segue_steering`]).
    Quality,
}

impl Schedule {
    /// Name in configuration files.
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
