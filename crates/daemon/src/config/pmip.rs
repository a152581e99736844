//! Configuration files of Proxy Mobile IPv6 anchors and gateways.

mod accesses;
mod transport;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_clock::{DayClock, Span, Time, UnixTime};
use segue_grammar::{Config, Duration, PeerKeepaliveKeys, ScheduleKey, SteeringKeys, WorthKeys};
use segue_ip::Prefix;
use segue_mobility::{Lifetime, Pool};
use segue_pmip::{
    Allowed, Encapsulation, HOSTS_MAX, Identities, Identity, Lifetimes, LinkLayer, LmaConfig,
    MagConfig, NodeId, Nodes,
};
use segue_wire::mobility::Profile;
use serde::Deserialize;

use self::accesses::{AccessKeys, accesses, apart, mih_links, told_of};
use self::transport::{
    EncapsulationKey, GreKey, encapsulation, has_family, nat_keepalive, own_addresses, same_family,
    unicast,
};
use super::mih::{self, MihKeys};
use super::radius::RadiusKeys;
use crate::control;
use crate::settings::{Choice, Common, History, Lma, Mag, Relay};

/// 1500 bytes less an outer IPv6 header and a GRE header with key, which an anchor may use for some tunnels.
const MTU: u32 = 1_452;
/// Default maximum of tunnels of a relay.
const TUNNELS: u32 = 4_096;
/// The longest lifetime that a message can carry: 65535 times 4 s.
const LONGEST: Span = Span::from_secs(65_535 * 4);

/// The keys of an anchor's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmaFile {
    /// Name of this daemon, if several of its role run here; it names the control socket and the state file. Default:
    /// no name.
    pub instance: Option<String>,
    /// Address of the anchor (LMAA), which gateways and tunnels use. Required.
    pub address: Option<IpAddr>,
    /// In addition to an IPv6 `address`: an IPv4 address for gateways reached over IPv4; none.
    pub address_v4: Option<Ipv4Addr>,
    /// Let gateways use UDP encapsulation even without a NAT, false.
    pub accept_udp: Option<bool>,
    /// Time between keepalives of gateways behind a NAT, 110 s.
    pub nat_keepalive: Option<Duration>,
    /// GRE tunnels with keys for each interface of a host: `off`, `allowed` if a gateway asks for them, or `required`;
    /// `allowed`.
    pub gre: Option<GreKey>,
    /// The network from which hosts' prefixes are assigned. Required.
    pub pool: Option<String>,
    /// Length of the assigned prefixes, 64.
    pub prefix_length: Option<u8>,
    /// How long a prefix stays reserved for a host that has left, 1 h.
    pub prefix_hold: Option<Duration>,
    /// Addresses or prefixes of the gateways that may register hosts. Required.
    pub gateways: Option<Vec<String>>,
    /// Identities of the hosts to serve; all.
    pub nodes: Option<Vec<String>>,
    /// The dialect of the gateways: `standard` or `oai`; `standard`.
    pub profile: Option<ProfileKey>,
    /// Longest lifetime of a registration, 1 h.
    pub lifetime: Option<Duration>,
    /// Largest difference between the clocks of anchor and gateways, 300 ms.
    pub timestamp_window: Option<Duration>,
    /// How long a binding stays after its host has left (MinDelayBeforeBCEDelete), 10 s.
    pub delete_delay: Option<Duration>,
    /// How long a registration with unknown handoff state waits for the previous one to end
    /// (MaxDelayBeforeNewBCEAssign), 1.5 s.
    pub assign_delay: Option<Duration>,
    /// Let flows move to an interface of their host that does not have their prefix, true.
    pub flow_mobility: Option<bool>,
    /// Inform gateways of the prefixes that their hosts have elsewhere, true.
    pub flow_mobility_initiate: Option<bool>,
    /// How flows are placed without a decision entity: `static`, `hash`, `random`, `least-loaded`, `preferred` or
    /// `quality`; `static`.
    pub schedule: Option<ScheduleKey>,
    /// With `schedule = "preferred"` or `"quality"`: the worth of accesses; all equal.
    #[serde(default)]
    pub access: Vec<WorthKeys>,
    /// How the paths to gateways are measured; by default planned with `schedule = "quality"`, otherwise not measured.
    pub keepalive: Option<PeerKeepaliveKeys>,
    /// With `schedule = "quality"`: when flows move by choice.
    #[serde(default)]
    pub steering: SteeringKeys,
    /// Place each flow individually, even if there is no choice, false.
    pub every_flow: Option<bool>,
    /// Distinguish flows by their flow labels even if they have ports, false.
    pub flow_label: Option<bool>,
    /// Idle time after which a flow is forgotten, 1 min.
    pub flow_idle: Option<Duration>,
    /// Most individually placed flows, 131072.
    pub max_flows: Option<usize>,
    /// Socket for a decision entity, which places flows; none.
    pub decisions: Option<PathBuf>,
    /// IEEE 802.21 functions that announce which hosts are about to leave; none.
    pub mih: Option<MihKeys>,
    /// RADIUS servers that are asked which hosts may register; none.
    pub radius: Option<RadiusKeys>,
    /// Most bindings, 1048576.
    pub max_bindings: Option<usize>,
    /// Most tunnels, one for each gateway and one for each binding with GRE, 4096.
    pub max_tunnels: Option<u32>,
    /// Device of the relay, `segue0`.
    pub device: Option<String>,
    /// Its MTU, 1452.
    pub mtu: Option<u32>,
    /// `auto`, `ebpf` or `user`.
    pub datapath: Option<Choice>,
    /// Interfaces on which tunnel packets are accepted; all.
    pub interfaces: Option<Vec<String>>,
    /// File of the bindings, `/var/lib/segue/pmip-lma.db`.
    pub state: Option<PathBuf>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
    /// How long events are kept in a log next to the state file, 1 d.
    pub history: Option<Duration>,
    /// Largest size of that log in megabytes, 10; 0 disables the log.
    pub history_mb: Option<u32>,
}

/// The keys of a gateway's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MagFile {
    /// Name of this daemon, if several of its role run here; it names the control socket and the state file. Default:
    /// no name.
    pub instance: Option<String>,
    /// Address of the hosts' anchor. Required.
    pub anchor: Option<IpAddr>,
    /// Encapsulation of hosts' packets towards the anchor: `ip`, `gre` with keys for each interface of a host, or `udp`
    /// over IPv4; `ip`. Behind a NAT always UDP.
    pub encapsulation: Option<EncapsulationKey>,
    /// The dialect of the anchor: `standard` or `oai`; `standard`.
    pub profile: Option<ProfileKey>,
    /// Its accesses, at least one.
    #[serde(default)]
    pub access: Vec<AccessKeys>,
    /// Hosts known by their link-layer addresses.
    #[serde(default)]
    pub node: Vec<NodeKeys>,
    /// RADIUS servers that identify hosts; replaces `node` and `realm`; none.
    pub radius: Option<RadiusKeys>,
    /// Realm of hosts not listed, which are named by their link-layer addresses, `segue.invalid`; if empty, such hosts
    /// are refused.
    pub realm: Option<String>,
    /// The IEEE 802.21 function that reports hosts at accesses with `attach = "mih"`.
    pub mih: Option<MihKeys>,
    /// Name servers to advertise to hosts; none.
    pub name_servers: Option<Vec<Ipv6Addr>>,
    /// Give access interfaces the link-layer address shared by all gateways (RFC 6543), true.
    pub fixed_mac: Option<bool>,
    /// Time between advertisements to a host, 10 min.
    pub advertise_every: Option<Duration>,
    /// Forward everything from the anchors to the host at the access, false.
    pub forward_all: Option<bool>,
    /// Lifetime of a host's first registration, 10 min.
    pub lifetime_first: Option<Duration>,
    /// Shortest lifetime to request, 1 min.
    pub lifetime_min: Option<Duration>,
    /// Longest lifetime to request, 1 h.
    pub lifetime_max: Option<Duration>,
    /// Most hosts, 32768.
    pub max_hosts: Option<usize>,
    /// Device of the relay, `segue0`.
    pub device: Option<String>,
    /// Its MTU, which is advertised to hosts, 1452.
    pub mtu: Option<u32>,
    /// `auto`, `ebpf` or `user`.
    pub datapath: Option<Choice>,
    /// Interfaces on which tunnel packets are accepted; all but the accesses.
    pub interfaces: Option<Vec<String>>,
    /// File of the attached hosts, `/var/lib/segue/pmip-mag.db`.
    pub state: Option<PathBuf>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
    /// How long events are kept in a log next to the state file, 1 d.
    pub history: Option<Duration>,
    /// Largest size of that log in megabytes, 10; 0 disables the log.
    pub history_mb: Option<u32>,
}

/// The keys of a `[[node]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeKeys {
    /// The link-layer address of one of its interfaces.
    pub link_layer: String,
    /// Its identity (MN-ID), `user@realm`. Interfaces with the same identity belong to one host.
    pub name: String,
    /// Its anchor, if it differs from the gateway's default.
    pub anchor: Option<IpAddr>,
    /// Prefixes to request; any.
    #[serde(default)]
    pub prefixes: Vec<String>,
}

/// The dialect of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileKey {
    /// No departure from the standards.
    Standard,
    /// The dialect of OAI-PMIPv6-FM.
    Oai,
}

impl ProfileKey {
    fn profile(key: Option<ProfileKey>) -> Profile {
        match key {
            None | Some(ProfileKey::Standard) => Profile::STRICT,
            Some(ProfileKey::Oai) => Profile::OAI,
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
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        let max_tunnels = self.max_tunnels.unwrap_or(TUNNELS);
        let relay = relay(self.device, self.mtu, self.datapath, max_tunnels)?;
        let relay = Relay { labels: self.flow_label.unwrap_or(false), ..relay };
        let address = self.address.context("address is missing: the anchor's own IP address")?;
        own_addresses(address, self.address_v4)?;
        let pool = pool(self.pool, self.prefix_length)?;
        let gateways = gateways(self.gateways.unwrap_or_default(), self.profile)?;
        has_family(&gateways, address, self.address_v4)?;
        let radius = self.radius.map(RadiusKeys::validate).transpose()?.flatten();
        let capacity = self.max_bindings.unwrap_or(1 << 20);
        if capacity == 0 {
            bail!("max_bindings must be above zero");
        }
        let schedule = self.schedule.unwrap_or(ScheduleKey::Static);
        let keepalive = self.keepalive.as_ref();
        let keepalive = PeerKeepaliveKeys::validate(keepalive, schedule == ScheduleKey::Quality)
            .context("[keepalive]")?;
        let steering = self.steering.validate(keepalive.as_ref().map(|probed| probed.t_ka))?;
        let accesses = WorthKeys::all(self.access, schedule)?;
        let default = LmaConfig::new(address, pool, NO_CLOCK);
        let span = |key: Option<Duration>, usual| key.map_or(usual, |Duration(span)| span);
        let longest = span(self.lifetime, default.longest.span());
        check_lifetime("lifetime", longest)?;
        let max_flows = max_flows(self.max_flows, default.max_flows)?;
        let listens = |keys: MihKeys| keys.listens(("pmip-lma", instance), mih::of_all_links());
        let mih = self.mih.map(listens).transpose()?;
        let state = self.state.unwrap_or_else(|| super::state("pmip-lma", instance));
        Ok(Lma {
            common: common(
                self.interfaces,
                self.control.unwrap_or_else(|| control::default_path("pmip-lma", instance)),
                self.control_group,
                self.metrics,
                super::history(self.history, self.history_mb, &state)?,
            )?,
            relay,
            state,
            decisions: self.decisions.filter(|path| !path.as_os_str().is_empty()),
            mih,
            machine: LmaConfig {
                authorize: radius.is_some(),
                flow_idle: flow_idle(self.flow_idle, default.flow_idle)?,
                address_v4: self.address_v4,
                accept_udp: self.accept_udp.unwrap_or(false),
                nat_keepalive: nat_keepalive(self.nat_keepalive, default.nat_keepalive)?,
                gre: GreKey::gre(self.gre),
                max_tunnels: max_tunnels as usize,
                prefix_hold: span(self.prefix_hold, default.prefix_hold),
                gateways,
                nodes: nodes(self.nodes),
                longest: Lifetime::of(longest),
                window: span(self.timestamp_window, default.window),
                delete_delay: span(self.delete_delay, default.delete_delay),
                assign_delay: span(self.assign_delay, default.assign_delay),
                flow_mobility: self.flow_mobility.unwrap_or(true),
                flow_mobility_initiate: self.flow_mobility_initiate.unwrap_or(true),
                schedule: schedule.schedule(),
                accesses,
                keepalive,
                steering,
                always_ask: self.every_flow.unwrap_or(false),
                max_flows,
                capacity,
                ..default
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
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        let anchor = self.anchor.context("anchor is missing: the address of the hosts' anchor")?;
        unicast("anchor", anchor)?;
        let encapsulation = encapsulation(self.encapsulation, anchor)?;
        let mih_links = mih_links(&self.access)?;
        let accesses = accesses(self.access, anchor)?;
        if self.forward_all == Some(true) && accesses.len() > 1 {
            bail!("forward_all is for a gateway with one access: run one for each");
        }
        apart(&accesses, self.interfaces.as_deref().unwrap_or_default())?;
        let mih = told_of(self.mih, instance, &mih_links)?;
        let radius = self.radius.map(RadiusKeys::validate).transpose()?.flatten();
        if radius.is_some() && (self.realm.is_some() || !self.node.is_empty()) {
            bail!("with [radius] servers say who hosts are: [[node]] and realm have no place");
        }
        let realm = self.realm.unwrap_or_else(|| "segue.invalid".into());
        let identities = Identities {
            known: self.node.into_iter().map(|k| node(k, anchor)).collect::<anyhow::Result<_>>()?,
            realm: Some(realm).filter(|realm| !realm.is_empty()),
        };
        let default = MagConfig::new(anchor, accesses, NO_CLOCK);
        let span = |key: Option<Duration>, usual| key.map_or(usual, |Duration(span)| span);
        let lifetime = Lifetimes {
            shortest: span(self.lifetime_min, default.lifetime.shortest),
            first: span(self.lifetime_first, default.lifetime.first),
            longest: span(self.lifetime_max, default.lifetime.longest),
        };
        check_lifetimes(&lifetime)?;
        let capacity = self.max_hosts.unwrap_or(default.capacity);
        if !(1..=HOSTS_MAX).contains(&capacity) {
            bail!("max_hosts must lie between 1 and {HOSTS_MAX}");
        }
        // With GRE, each host has its own tunnel.
        let tunnels = match encapsulation {
            Encapsulation::Gre => capacity as u32 + TUNNELS,
            Encapsulation::Ip | Encapsulation::Udp => TUNNELS,
        };
        let relay = relay(self.device, self.mtu, self.datapath, tunnels)?;
        let advertise_every = span(self.advertise_every, default.advertise_every);
        if !(Span::from_secs(4)..=Span::from_secs(1_800)).contains(&advertise_every) {
            bail!("advertise_every must lie between 4s and 30min (RFC 4861, 6.2.1)");
        }
        let state = self.state.unwrap_or_else(|| super::state("pmip-mag", instance));
        Ok(Mag {
            common: common(
                self.interfaces,
                self.control.unwrap_or_else(|| control::default_path("pmip-mag", instance)),
                self.control_group,
                self.metrics,
                super::history(self.history, self.history_mb, &state)?,
            )?,
            state,
            fixed_mac: self.fixed_mac.unwrap_or(true),
            mih_links,
            mih,
            machine: MagConfig {
                profile: ProfileKey::profile(self.profile),
                encapsulation,
                identities: radius.is_none().then_some(identities),
                mtu_bytes: relay.mtu,
                name_servers: self.name_servers.unwrap_or_default(),
                advertise_every,
                forward_all: self.forward_all.unwrap_or(false),
                lifetime,
                capacity,
                ..default
            },
            radius,
            relay,
        })
    }
}

/// Checked against the relay's capacity.
fn max_flows(key: Option<usize>, usual: usize) -> anyhow::Result<usize> {
    let max_flows = key.unwrap_or(usual);
    if !(1..=1 << 18).contains(&max_flows) {
        bail!("max_flows must lie between 1 and {}", 1 << 18);
    }
    Ok(max_flows)
}

/// The hosts that an anchor serves.
fn nodes(names: Option<Vec<String>>) -> Nodes {
    names.map_or(Nodes::All, |nodes| {
        Nodes::Listed(nodes.iter().map(|node| (NodeId::nai(node), true)).collect())
    })
}

/// The settings that all daemons have.
fn common(
    interfaces: Option<Vec<String>>,
    control: PathBuf,
    group: Option<String>,
    metrics: Option<String>,
    history: Option<History>,
) -> anyhow::Result<Common> {
    let (interfaces, control_group) = (super::interfaces(interfaces)?, super::group(group)?);
    Ok(Common { interfaces, control, control_group, metrics: super::metrics(metrics)?, history })
}

fn flow_idle(key: Option<Duration>, default: Span) -> anyhow::Result<Span> {
    let idle = key.map_or(default, |Duration(span)| span);
    if idle < Span::from_secs(1) {
        bail!("flow_idle must be 1s or longer");
    }
    Ok(idle)
}

fn check_lifetimes(lifetime: &Lifetimes) -> anyhow::Result<()> {
    check_lifetime("lifetime_min", lifetime.shortest)?;
    check_lifetime("lifetime_first", lifetime.first)?;
    check_lifetime("lifetime_max", lifetime.longest)?;
    if lifetime.shortest > lifetime.longest {
        bail!("lifetime_min is longer than lifetime_max");
    }
    Ok(())
}

/// The network from which an anchor assigns prefixes.
fn pool(text: Option<String>, length: Option<u8>) -> anyhow::Result<Pool> {
    let text = text.context("pool is missing: a prefix, such as 2001:db8::/48")?;
    let network: Prefix = text.parse().with_context(|| format!("pool: {text:?}"))?;
    let length = length.unwrap_or(64);
    let pool = Pool::prefixes(network, length, 0).filter(|_| network.addr.is_ipv6());
    pool.with_context(|| {
        format!(
            "pool: {text} must be an IPv6 network without host bits that has parts of length {length}"
        )
    })
}

/// The gateways that may register hosts.
fn gateways(all: Vec<String>, profile: Option<ProfileKey>) -> anyhow::Result<Vec<Allowed>> {
    if all.is_empty() {
        bail!("gateways is missing: the addresses or prefixes of those that may register hosts");
    }
    let profile = ProfileKey::profile(profile);
    let allowed = |text: &String| {
        let prefix = Prefix::parse_network(text).with_context(|| format!("gateways: {text:?}"))?;
        Ok(Allowed { prefix, profile })
    };
    all.iter().map(allowed).collect()
}

fn relay(
    device: Option<String>,
    mtu: Option<u32>,
    choice: Option<Choice>,
    tunnels: u32,
) -> anyhow::Result<Relay> {
    let (device, mtu) = (super::device(device)?, mtu.unwrap_or(MTU));
    // The minimum MTU of IPv6 (RFC 8200, section 5).
    if !(1_280..=65_535).contains(&mtu) {
        bail!("mtu must lie between 1280 and 65535");
    }
    if !(1..=1 << 18).contains(&tunnels) {
        bail!("max_tunnels must lie between 1 and {}", 1 << 18);
    }
    Ok(Relay { device, mtu, datapath: choice.unwrap_or(Choice::Auto), tunnels, labels: false })
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
    super::one_station(&link_layer, &bytes).context("node: link_layer")?;
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

fn check_lifetime(key: &str, span: Span) -> anyhow::Result<()> {
    if !(Span::from_secs(8)..=LONGEST).contains(&span) {
        bail!("{key} must lie between 8s and {}s", LONGEST.as_micros() / 1_000_000);
    }
    Ok(())
}
