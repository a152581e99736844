//! What an anchor needs to know.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{DayClock, Span};
use segue_ip::Prefix;
use segue_mobility::{Lifetime, Pool, TimestampOrder};
use segue_wire::mobility::Profile;

use crate::NodeId;

/// What an anchor needs to know.
#[derive(Clone, Debug)]
pub struct LmaConfig {
    /// Its address (LMAA).
    pub address: Ipv6Addr,
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
    /// How flows are placed.
    pub schedule: Schedule,
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
    /// How often it has started, this start included (RFC 5847).
    pub restart_counter: u32,
    /// The time of day.
    pub clock: DayClock,
}

impl LmaConfig {
    /// With the defaults of RFC 5213, for prefixes of this pool.
    #[must_use]
    pub fn new(address: Ipv6Addr, pool: Pool, clock: DayClock) -> LmaConfig {
        LmaConfig {
            address,
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
            schedule: Schedule::Static,
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
    /// To the interface that serves flows of its class best, and to another when that is better ([`segue_steering`]).
    Quality,
}
