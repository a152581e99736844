//! Configuration files of Proxy Mobile IPv6 anchors and gateways.

mod accesses;
mod transport;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use schemars::JsonSchema;
use segue_clock::{DayClock, Time, UnixTime};
use segue_grammar::values::{H, S};
use segue_grammar::{
    Config, Duration, Flag, LmaPolicyKeys, MagPolicyKeys, PrefixText, Within, WrongTable, joined,
};
use segue_ip::Prefix;
use segue_mobility::Pool;
use segue_pmip::{
    Allowed, Encapsulation, Identities, Identity, LinkLayer, LmaConfig, MagConfig, NodeId,
};
use segue_wire::mobility::Profile;
use serde::{Deserialize, Serialize};

pub(super) use self::accesses::AccessKeys;
use self::accesses::{accesses, apart, mih_links, told_of};
use self::transport::{
    EncapsulationKey, GreKey, encapsulation, has_family, own_addresses, same_family, unicast,
};
use super::groups::{DaemonKeys, DatapathKeys, StateKeys};
use super::mih::{self, MihKeys};
use super::radius::RadiusKeys;
use crate::settings::{Common, Lma, Mag, Relay};

/// Default maximum of tunnels of a relay.
const TUNNELS: u32 = 4_096;

joined! {
    /// The keys of an anchor's file.
    LmaFile {
        own: LmaKeys,
        policy: LmaPolicyKeys,
        relay: RelayKeys,
        datapath: DatapathKeys,
        state: StateKeys,
        daemon: DaemonKeys,
    }
}

joined! {
    /// The keys of a gateway's file.
    MagFile {
        own: MagKeys,
        policy: MagPolicyKeys,
        relay: RelayKeys,
        datapath: DatapathKeys,
        state: StateKeys,
        daemon: DaemonKeys,
    }
}

/// An anchor's own keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LmaKeys {
    /// The anchor's own address, with which gateways register hosts
    #[schemars(extend("x-rfc" = "LMAA", "x-required" = true))]
    address: Option<IpAddr>,
    /// An additional address for gateways [over IPv4](pmip.md#over-ipv4), if `address` is IPv6
    #[schemars(extend("x-rfc" = "IPv4-LMAA"))]
    address_v4: Option<Ipv4Addr>,
    /// Accept hosts' packets in UDP from gateways without a NAT
    accept_udp: bool,
    /// Time between keepalives of gateways behind a NAT
    #[schemars(extend("x-rfc" = "NATKATIMEOUT"))]
    nat_keepalive: Duration<{ 110 * S }, { S }, { H }>,
    /// [GRE tunnels with keys](pmip.md#gre-with-keys)
    gre: GreKey,
    /// Hosts get parts of it
    #[schemars(extend("x-value" = "IPv6 prefix", "x-required" = true))]
    pool: Option<String>,
    /// Length of these parts. Unmodified hosts require 64
    prefix_length: Within<64, 1, 128>,
    /// Gateways that may register hosts, by address or prefix; those listed by address are [greeted](pmip.md#prefixes) at
    /// the start
    #[serde(skip_serializing)]
    #[schemars(extend("x-required" = true))]
    gateways: Vec<PrefixText>,
    /// Behaviour of the gateways
    profile: ProfileKey,
    /// Notify gateways of the prefixes that their hosts have elsewhere; see [flows](pmip.md#flows)
    flow_mobility_initiate: Flag<true>,
    /// Distinguish flows by their IPv6 flow labels even if they have ports. Linux changes a connection's label at each TCP
    /// timeout
    flow_label: bool,
    /// Socket of [programs that decide](decision.md) the placement of flows
    #[schemars(extend("x-value" = "path", "x-unset" = "nobody"))]
    decisions: PathBuf,
    /// Functions of IEEE 802.21 that report which hosts are about to leave
    #[serde(skip_serializing)]
    mih: Option<MihKeys>,
    /// RADIUS servers that are asked which hosts may be registered
    #[serde(skip_serializing)]
    radius: Option<RadiusKeys>,
    /// Maximum number of bindings; then the gateway with the most makes room
    max_bindings: Within<1_048_576, 1, { i64::MAX }>,
    /// Maximum number of tunnels: one for each gateway, one more for each binding with GRE; further ones are refused (130)
    max_tunnels: Within<{ TUNNELS as i64 }, 1, 262_144>,
}

/// A gateway's own keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MagKeys {
    /// The hosts' anchor
    #[schemars(extend("x-required" = true))]
    anchor: Option<IpAddr>,
    /// Encapsulation of hosts' packets to the anchor
    encapsulation: EncapsulationKey,
    /// Behaviour of the anchor
    profile: ProfileKey,
    /// Links to hosts, at least one
    #[serde(skip_serializing)]
    #[schemars(extend("x-required" = true))]
    access: Vec<AccessKeys>,
    /// Hosts known by their link-layer addresses
    #[serde(skip_serializing)]
    node: Vec<NodeKeys>,
    /// RADIUS servers that identify hosts, instead of `node` and `realm`
    #[serde(skip_serializing)]
    radius: Option<RadiusKeys>,
    /// Hosts without a `[[node]]` are named by their link-layer addresses, at this realm; `""` refuses them
    #[schemars(extend("x-unset" = "`\"segue.invalid\"`"))]
    realm: Option<String>,
    /// Functions of IEEE 802.21 that report hosts at accesses with `attach = "mih"`
    #[serde(skip_serializing)]
    mih: Option<MihKeys>,
    /// Name servers announced to hosts
    name_servers: Vec<Ipv6Addr>,
    /// Set the link-layer address of RFC 6543, common to all gateways, on access interfaces
    fixed_mac: Flag<true>,
    /// Forward everything from anchors to the host at the access and from it, for anchors that
    /// [do not report prefixes](pmip.md#flows). For one access with one host at a time; a second is refused
    /// (`second_host`)
    forward_all: bool,
}

/// Keys of a relay.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RelayKeys {
    /// MTU of the tunnel device and the hosts; the default fits all tunnels over paths of 1500 bytes
    // 1500 bytes less an outer IPv6 header and a GRE header with key; at least the minimum MTU of IPv6 (RFC 8200, section 5).
    mtu: Within<1_452, 1_280, 65_535>,
}

/// The keys of a `[[node]]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeKeys {
    /// The link-layer address of one of its interfaces, such as `"02:00:00:00:00:01"`
    link_layer: String,
    /// The host's identity; interfaces with the same name belong to one host
    #[schemars(extend("x-rfc" = "MN-ID"))]
    name: String,
    /// The anchor of this host, of the same family
    #[schemars(extend("x-unset" = "the gateway's"))]
    anchor: Option<IpAddr>,
    /// Prefixes to request, parts of the anchor's pool
    #[serde(default)]
    #[schemars(extend("x-value" = "IPv6 prefixes", "x-unset" = "any"))]
    prefixes: Vec<String>,
}

/// The behaviour of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ProfileKey {
    /// As in the standards.
    #[default]
    Standard,
    /// As in OpenAirInterface's PMIPv6.
    Oai,
}

impl ProfileKey {
    fn profile(self) -> Profile {
        match self {
            ProfileKey::Standard => Profile::STRICT,
            ProfileKey::Oai => Profile::OAI,
        }
    }
}

impl Config for LmaFile {}
impl Config for MagFile {}

/// Placeholder until a start sets the clock.
const NO_CLOCK: DayClock = DayClock::new(Time::ZERO, UnixTime(0));

impl LmaFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid or missing key.
    pub fn validate(self) -> anyhow::Result<Lma> {
        let LmaFile { own, policy, relay, datapath, state, daemon } = self;
        let address = own.address.context("address is missing: the anchor's own IP address")?;
        own_addresses(address, own.address_v4)?;
        let pool = pool(own.pool, own.prefix_length.get())?;
        let gateways = gateways(&own.gateways, own.profile)?;
        has_family(&gateways, address, own.address_v4)?;
        let radius = own.radius.map(RadiusKeys::validate).transpose()?.flatten();
        policy.check_accesses()?;
        let usual = LmaConfig::new(address, pool, NO_CLOCK);
        let wrong = |WrongTable { name, error, .. }| anyhow!("\"{name}\": {error:#}");
        let usual = policy.config(usual).map_err(wrong)?;
        let instance = daemon.instance();
        let listens = |keys: MihKeys| keys.listens(("pmip-lma", instance), mih::of_all_links());
        let mih = own.mih.map(listens).transpose()?;
        let file = state.file("pmip-lma", instance);
        let relay = relay.relay(&datapath, own.max_tunnels.get());
        Ok(Lma {
            common: Common {
                interfaces: datapath.interfaces()?,
                history: state.history(&file),
                ..daemon.common("pmip-lma")?
            },
            relay: Relay { labels: own.flow_label, ..relay },
            state: file,
            decisions: Some(own.decisions).filter(|path| !path.as_os_str().is_empty()),
            mih,
            machine: LmaConfig {
                authorize: radius.is_some(),
                address_v4: own.address_v4,
                accept_udp: own.accept_udp,
                nat_keepalive: own.nat_keepalive.0,
                gre: own.gre.gre(),
                max_tunnels: own.max_tunnels.get(),
                gateways,
                flow_mobility_initiate: own.flow_mobility_initiate.0,
                capacity: own.max_bindings.get(),
                ..usual
            },
            radius,
        })
    }
}

impl MagFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid or missing key.
    pub fn validate(self) -> anyhow::Result<Mag> {
        let MagFile { own, policy, relay, datapath, state, daemon } = self;
        let anchor = own.anchor.context("anchor is missing: the address of the hosts' anchor")?;
        unicast("anchor", anchor)?;
        let encapsulation = encapsulation(own.encapsulation, anchor)?;
        let mih_links = mih_links(&own.access)?;
        let accesses = accesses(own.access, anchor)?;
        if own.forward_all && accesses.len() > 1 {
            bail!("forward_all is for a gateway with one access: run one for each");
        }
        let interfaces = datapath.interfaces()?;
        apart(&accesses, &interfaces)?;
        let mih = told_of(own.mih, daemon.instance(), &mih_links)?;
        let radius = own.radius.map(RadiusKeys::validate).transpose()?.flatten();
        if radius.is_some() && (own.realm.is_some() || !own.node.is_empty()) {
            bail!("with [radius] servers say who hosts are: [[node]] and realm have no place");
        }
        let realm = own.realm.unwrap_or_else(|| "segue.invalid".into());
        let identities = Identities {
            known: own.node.into_iter().map(|k| node(k, anchor)).collect::<anyhow::Result<_>>()?,
            realm: Some(realm).filter(|realm| !realm.is_empty()),
        };
        let usual = policy.config(MagConfig::new(anchor, accesses, NO_CLOCK));
        let usual = usual.map_err(|(key, what)| anyhow!("{key} is {what}"))?;
        // With GRE, each host has its own tunnel.
        let tunnels = match encapsulation {
            Encapsulation::Gre => usual.capacity as u32 + TUNNELS,
            Encapsulation::Ip | Encapsulation::Udp => TUNNELS,
        };
        let relay = relay.relay(&datapath, tunnels);
        let file = state.file("pmip-mag", daemon.instance());
        Ok(Mag {
            common: Common {
                interfaces,
                history: state.history(&file),
                ..daemon.common("pmip-mag")?
            },
            state: file,
            fixed_mac: own.fixed_mac.0,
            mih_links,
            mih,
            machine: MagConfig {
                profile: own.profile.profile(),
                encapsulation,
                identities: radius.is_none().then_some(identities),
                mtu_bytes: relay.mtu,
                name_servers: own.name_servers,
                forward_all: own.forward_all,
                ..usual
            },
            radius,
            relay,
        })
    }
}

impl RelayKeys {
    fn relay(self, datapath: &DatapathKeys, tunnels: u32) -> Relay {
        let (device, datapath) = (datapath.device.0.clone(), datapath.datapath);
        Relay { device, mtu: self.mtu.get(), datapath, tunnels, labels: false }
    }
}

/// The network from which an anchor assigns prefixes.
fn pool(text: Option<String>, length: u8) -> anyhow::Result<Pool> {
    let text = text.context("pool is missing: a prefix, such as 2001:db8::/48")?;
    let network: Prefix = text.parse().with_context(|| format!("pool: {text:?}"))?;
    let pool = Pool::prefixes(network, length, 0).filter(|_| network.addr.is_ipv6());
    pool.with_context(|| {
        format!(
            "pool: {text} must be an IPv6 network without host bits that has parts of length {length}"
        )
    })
}

/// The gateways that may register hosts.
fn gateways(all: &[PrefixText], profile: ProfileKey) -> anyhow::Result<Vec<Allowed>> {
    if all.is_empty() {
        bail!("gateways is missing: the addresses or prefixes of those that may register hosts");
    }
    let allowed =
        |PrefixText(prefix): &PrefixText| Allowed { prefix: *prefix, profile: profile.profile() };
    Ok(all.iter().map(allowed).collect())
}

fn node(keys: NodeKeys, usual: IpAddr) -> anyhow::Result<(LinkLayer, Identity)> {
    let NodeKeys { link_layer, name, anchor, prefixes } = keys;
    anchor.map_or(Ok(()), |anchor| same_family("node: anchor", anchor, usual))?;
    let bytes = link_layer.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes
        .collect::<Result<_, _>>()
        .ok()
        .filter(|bytes: &Vec<u8>| bytes.len() == 6)
        .with_context(|| {
            format!("node: {link_layer:?} is no link-layer address, such as 02:00:00:00:00:01")
        })?;
    super::values::one_station(&link_layer, &bytes).context("node: link_layer")?;
    if name.is_empty() {
        bail!("node: {link_layer} needs a name, such as user@realm");
    }
    let prefix = |text: &String| -> anyhow::Result<Prefix> {
        let prefix: Prefix = text.parse().with_context(|| format!("node: {text:?}"))?;
        if prefix != prefix.network() || prefix.addr.is_ipv4() {
            bail!("node: {text} is no IPv6 prefix without host bits");
        }
        Ok(prefix)
    };
    let prefixes = prefixes.iter().map(prefix).collect::<anyhow::Result<_>>()?;
    Ok((LinkLayer(bytes), Identity { node: NodeId::nai(&name), anchor, prefixes }))
}
