//! Proxy Mobile IPv6 keys that its daemons' files and scenarios share.

use std::ops::Range;

use anyhow::bail;
use schemars::JsonSchema;
use segue_mobility::Lifetime;
use segue_pmip::{
    AttachBy, Lifetimes, LmaConfig, MagConfig, NodeId, Nodes, Rated, Schedule, Worth,
};
use segue_wire::mih::codes::LinkType;
use segue_wire::mobility::option::{AccessTechnology, Handoff};
use serde::{Deserialize, Serialize};

use crate::values::{H, MIN, S};
use crate::{Duration, Flag, PeerKeepaliveKeys, PrefixText, Spanned, SteeringKeys, Tenths, Within};

/// The lifetime of a registration; a message carries at most 65535 times 4 s.
pub type LifetimeKey<const DEFAULT: u64> = Duration<DEFAULT, { 8 * S }, { 4 * 65_535 * S }>;

/// How an anchor keeps bindings and places flows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LmaPolicyKeys {
    /// How long a prefix stays reserved after the host's last binding has ended
    prefix_hold: Duration<H>,
    /// Identities of the hosts that the anchor serves
    #[schemars(extend("x-unset" = "all that gateways register"))]
    nodes: Option<Vec<String>>,
    /// Longest lifetime of a registration
    lifetime: LifetimeKey<H>,
    /// Maximum difference between the clocks of anchor and gateways
    #[schemars(extend("x-rfc" = "TimestampValidityWindow"))]
    timestamp_window: Duration<300>,
    /// How long a binding stays after its host has left
    #[schemars(extend("x-rfc" = "MinDelayBeforeBCEDelete"))]
    delete_delay: Duration<{ 10 * S }>,
    /// How long a registration with unknown handoff waits for another one to end
    #[schemars(extend("x-rfc" = "MaxDelayBeforeNewBCEAssign"))]
    assign_delay: Duration<1_500>,
    /// Flows may move to an interface other than the one whose prefix they use
    flow_mobility: Flag<true>,
    /// Placement of flows
    schedule: ScheduleKey,
    /// With `schedule = "preferred"` or `"quality"`: the [value of accesses](pmip.md#by-price-and-preference); the first
    /// match applies
    #[serde(skip_serializing)]
    access: Vec<Spanned<WorthKeys>>,
    /// Measurement of gateways, planned once: some keys of a host's [`[keepalive]`](configuration.md#keepalive). Without
    /// the table gateways are measured only with `schedule = "quality"`
    #[serde(skip_serializing)]
    keepalive: Option<Spanned<PeerKeepaliveKeys>>,
    /// With `schedule = "quality"`: as a host's [`[steering]`](configuration.md#steering)
    #[serde(skip_serializing)]
    steering: SteeringKeys,
    /// Place each flow individually, even without a choice, and notify [programs](decision.md) of it
    every_flow: bool,
    /// Idle time after which a flow is forgotten
    flow_idle: Duration<MIN, S>,
    /// Maximum number of placed flows; the oldest is evicted
    max_flows: Within<131_072, 1, 262_144>,
}

/// A wrong table of an anchor.
#[derive(Debug)]
pub struct WrongTable {
    /// Its name.
    pub name: &'static str,
    /// Its place, if it is in the file.
    pub place: Option<Range<usize>>,
    /// The mistake.
    pub error: anyhow::Error,
}

impl LmaPolicyKeys {
    /// The settings of an anchor, completed by these keys.
    ///
    /// # Errors
    /// A table is wrong.
    pub fn config(&self, usual: LmaConfig) -> Result<LmaConfig, WrongTable> {
        let quality = self.schedule == ScheduleKey::Quality;
        let keys = self.keepalive.as_ref();
        let keepalive = PeerKeepaliveKeys::validate(keys.map(Spanned::get_ref), quality);
        let keepalive = keepalive.map_err(|error| WrongTable {
            name: "keepalive",
            place: keys.map(Spanned::span),
            error,
        })?;
        let listed = |all: &Vec<String>| {
            Nodes::Listed(all.iter().map(|mn_id| (NodeId::nai(mn_id), true)).collect())
        };
        let rated = |keys: &Spanned<WorthKeys>| {
            let place = Some(keys.span());
            keys.get_ref().validate().map_err(|error| WrongTable { name: "access", place, error })
        };
        Ok(LmaConfig {
            prefix_hold: self.prefix_hold.0,
            nodes: self.nodes.as_ref().map_or(Nodes::All, listed),
            longest: Lifetime::of(self.lifetime.0),
            window: self.timestamp_window.0,
            delete_delay: self.delete_delay.0,
            assign_delay: self.assign_delay.0,
            flow_mobility: self.flow_mobility.0,
            schedule: self.schedule.schedule(),
            accesses: self.access.iter().map(rated).collect::<Result<_, _>>()?,
            steering: self.steering.validate(keepalive.as_ref().map(|probed| probed.t_ka)),
            keepalive,
            always_ask: self.every_flow,
            flow_idle: self.flow_idle.0,
            max_flows: self.max_flows.get(),
            ..usual
        })
    }

    /// Checks that the schedule uses the values of accesses, and has those that it requires.
    ///
    /// # Errors
    /// The schedule ignores them, or requires one that is missing.
    pub fn check_accesses(&self) -> anyhow::Result<()> {
        match (self.schedule, self.access.is_empty()) {
            (ScheduleKey::Preferred, true) => {
                bail!("schedule = \"preferred\" needs an [[access]] with a price or a preference")
            }
            (ScheduleKey::Preferred | ScheduleKey::Quality, _) | (_, true) => Ok(()),
            (_, false) => {
                bail!("[[access]] counts with schedule = \"preferred\" or \"quality\" alone")
            }
        }
    }
}

/// How a gateway serves hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MagPolicyKeys {
    /// Time between advertisements to a host
    advertise_every: Duration<{ 10 * MIN }, { 4 * S }, { 30 * MIN }>,
    /// Lifetime of the first registration of a host; later ones follow
    /// [how long hosts stay](pmip.md#how-a-host-is-noticed)
    lifetime_first: LifetimeKey<{ 10 * MIN }>,
    /// Shortest lifetime to request, at most `lifetime_max`
    lifetime_min: LifetimeKey<MIN>,
    /// Longest lifetime to request
    lifetime_max: LifetimeKey<H>,
    /// Maximum number of hosts' interfaces
    max_hosts: Within<32_768, 1, 32_768>,
}

impl MagPolicyKeys {
    /// The settings of a gateway, completed by these keys.
    ///
    /// # Errors
    /// The first wrong key and its mistake.
    pub fn config(&self, usual: MagConfig) -> Result<MagConfig, (&'static str, &'static str)> {
        let lifetime = Lifetimes {
            shortest: self.lifetime_min.0,
            first: self.lifetime_first.0,
            longest: self.lifetime_max.0,
        };
        if lifetime.shortest > lifetime.longest {
            return Err(("lifetime_min", "longer than lifetime_max"));
        }
        let advertise_every = self.advertise_every.0;
        Ok(MagConfig { lifetime, advertise_every, capacity: self.max_hosts.get(), ..usual })
    }
}

/// The source that reports hosts at an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
pub enum AttachKey {
    /// The link.
    #[default]
    Link,
    /// The host, by its router solicitations.
    Solicitation,
    /// An IEEE 802.21 function.
    Mih,
}

impl AttachKey {
    /// How the gateway's machine learns of hosts.
    #[must_use]
    pub fn by(self) -> AttachBy {
        match self {
            AttachKey::Link | AttachKey::Mih => AttachBy::Driver,
            AttachKey::Solicitation => AttachBy::Solicitation,
        }
    }
}

/// How an anchor assigns flows to interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-explained" = true))]
pub enum ScheduleKey {
    /// To the interface whose prefix they have.
    #[default]
    Static,
    /// By a hash of their addresses, ports and protocol.
    Hash,
    /// At random.
    Random,
    /// To the interface with the fewest flows.
    LeastLoaded,
    /// To the [cheapest interface, then to the preferred one](pmip.md#by-price-and-preference).
    Preferred,
    /// To the interface that [serves the flow's class best](pmip.md#by-quality).
    Quality,
}

/// Access technologies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-plain" = true))]
pub enum TechnologyKey {
    /// A virtual or logical interface.
    Virtual,
    /// Point-to-point protocol.
    Ppp,
    /// IEEE 802.3.
    #[default]
    Ethernet,
    /// IEEE 802.11.
    Wlan,
    /// IEEE 802.16e.
    Wimax,
    /// 3GPP's second generation.
    Geran,
    /// 3GPP's third generation.
    Utran,
    /// 3GPP's fourth generation.
    EUtran,
}

/// The price and the preference of accesses, for an anchor.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorthKeys {
    /// Technology of the accesses
    #[schemars(extend("x-unset" = "any"))]
    technology: Option<TechnologyKey>,
    /// Their gateway, by address or prefix
    #[schemars(extend("x-unset" = "any"))]
    gateway: Option<PrefixText>,
    /// Relative price of a byte
    price: Tenths<0>,
    /// Points added to the score of the accesses
    preference: f64,
}

impl WorthKeys {
    /// Validates the entry.
    ///
    /// # Errors
    /// The preference is not a number.
    pub fn validate(&self) -> anyhow::Result<Rated> {
        let (price, preference) = (self.price.0, self.preference);
        if !preference.is_finite() {
            bail!("preference must be a number");
        }
        Ok(Rated {
            access: self.technology.map(TechnologyKey::code),
            gateway: self.gateway.map(|PrefixText(prefix)| prefix),
            worth: Worth { price, preference },
        })
    }
}

/// How a host attached to an access (Handoff Indicator).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-plain" = true))]
pub enum HandoffKey {
    /// Attachment over a new interface.
    #[default]
    NewInterface,
    /// Handoff between two interfaces of the host.
    BetweenInterfaces,
    /// Handoff of the same interface between gateways.
    BetweenGateways,
    /// Unknown.
    Unknown,
    /// A further interface, which shares the prefixes.
    Sharing,
}

impl ScheduleKey {
    /// The anchor's schedule.
    #[must_use]
    pub fn schedule(self) -> Schedule {
        match self {
            ScheduleKey::Static => Schedule::Static,
            ScheduleKey::Hash => Schedule::Hash,
            ScheduleKey::Random => Schedule::Random,
            ScheduleKey::LeastLoaded => Schedule::LeastLoaded,
            ScheduleKey::Preferred => Schedule::Preferred,
            ScheduleKey::Quality => Schedule::Quality,
        }
    }
}

impl TechnologyKey {
    /// The link type of IEEE 802.21-2008, which has none for later cellular networks.
    #[must_use]
    pub fn link_type(self) -> LinkType {
        match self {
            TechnologyKey::Ethernet | TechnologyKey::Virtual | TechnologyKey::Ppp => {
                LinkType::ETHERNET
            }
            TechnologyKey::Wlan => LinkType::IEEE_802_11,
            TechnologyKey::Wimax => LinkType::IEEE_802_16,
            TechnologyKey::Geran => LinkType::GSM,
            TechnologyKey::Utran => LinkType::UMTS,
            TechnologyKey::EUtran => LinkType::WIRELESS_OTHER,
        }
    }

    /// The value on the wire.
    #[must_use]
    pub fn code(self) -> AccessTechnology {
        match self {
            TechnologyKey::Virtual => AccessTechnology::VIRTUAL,
            TechnologyKey::Ppp => AccessTechnology::PPP,
            TechnologyKey::Ethernet => AccessTechnology::ETHERNET,
            TechnologyKey::Wlan => AccessTechnology::WLAN,
            TechnologyKey::Wimax => AccessTechnology::WIMAX,
            TechnologyKey::Geran => AccessTechnology::GERAN,
            TechnologyKey::Utran => AccessTechnology::UTRAN,
            TechnologyKey::EUtran => AccessTechnology::E_UTRAN,
        }
    }
}

impl HandoffKey {
    /// The value on the wire.
    #[must_use]
    pub fn code(self) -> Handoff {
        match self {
            HandoffKey::NewInterface => Handoff::NEW_INTERFACE,
            HandoffKey::BetweenInterfaces => Handoff::BETWEEN_INTERFACES,
            HandoffKey::BetweenGateways => Handoff::BETWEEN_GATEWAYS,
            HandoffKey::Unknown => Handoff::UNKNOWN,
            HandoffKey::Sharing => Handoff::NEW_INTERFACE_SHARING_PREFIXES,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use segue_clock::{DayClock, Time, UnixTime};
    use segue_mobility::Pool;

    use super::*;

    #[test]
    fn accesses_have_a_worth_where_that_counts() {
        let policy = |accesses, schedule| LmaPolicyKeys {
            access: vec![Spanned::new(0..1, WorthKeys::default()); accesses],
            schedule,
            ..LmaPolicyKeys::default()
        };
        for (accesses, schedule, expected) in [
            (1, ScheduleKey::Quality, ""),
            (0, ScheduleKey::Static, ""),
            (1, ScheduleKey::Hash, "counts with"),
            (0, ScheduleKey::Preferred, "needs an [[access]]"),
        ] {
            let said = policy(accesses, schedule).check_accesses();
            let said = said.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
        }
    }

    #[test]
    fn the_defaults_of_keys_are_those_of_the_machines() {
        let clock = DayClock::new(Time::ZERO, UnixTime(0));
        let pool = Pool::prefixes("2001:db8::/48".parse().unwrap(), 64, 0).unwrap();
        let anchor = LmaConfig::new(Ipv6Addr::LOCALHOST, pool, clock);
        let config = LmaPolicyKeys::default().config(anchor.clone()).unwrap();
        assert_eq!(format!("{config:?}"), format!("{anchor:?}"));
        let gateway = MagConfig::new(Ipv6Addr::LOCALHOST, Vec::new(), clock);
        let config = MagPolicyKeys::default().config(gateway.clone()).unwrap();
        assert_eq!(format!("{config:?}"), format!("{gateway:?}"));
    }
}
