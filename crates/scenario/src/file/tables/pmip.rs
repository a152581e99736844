//! `[[lma]]` and `[[mag]]`: the anchors and gateways of Proxy Mobile IPv6. Hosts are in `mobile_node.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use segue_clock::Span;
use segue_grammar::{
    Address, Duration, End, HandoffKey, Mistake, Name, PeerKeepaliveKeys, PrefixText, ScheduleKey,
    SteeringKeys, TechnologyKey, WorthKeys, named,
};
use segue_ip::Prefix;
use segue_mobility::{Lifetime, Pool};
use segue_pmip::{
    Access, Allowed, AttachBy, HOSTS_MAX, Identities, Identity, Lifetimes, LinkLayer, LmaConfig,
    LmaRecord, MOBILITY, MagConfig, NodeId as MnId, Nodes, Schedule,
};
use segue_sim::net::CellId;
use segue_sim::pmip::{LmaRole, MagRole, add_lma, add_mag, no_clock};
use segue_sim::{AgentId, NodeId, RoleAgent};
use segue_wire::mih::identity::LinkAddress;
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::Handoff;
use serde::Deserialize;
use toml::Spanned;

use super::{mih, radio};
use crate::file::builder::Builder;
use crate::file::reach;
use crate::file::table::{Kind, Table};

pub(super) const LMA: Kind = Kind::of::<LmaTable>("lma", &[]);
pub(super) const MAG: Kind = Kind::of::<MagTable>("mag", &[]);

/// Seeds of both roles (`Network::seed_of`).
const PMIP: u64 = 0x706d_6970;
/// Length of hosts' prefixes: a stock host forms addresses only from prefixes of this length.
const LENGTH: u8 = 64;
/// Maximum lifetime on the wire: 65535 units of 4 s.
const LONGEST: Span = Span::from_secs(65_535 * 4);

/// Shared state of the tables.
#[derive(Default)]
pub(super) struct Domain {
    pub(super) anchors: BTreeMap<String, Planned>,
    /// The hosts that gateways are configured with, by the link-layer addresses of their interfaces.
    pub(super) known: BTreeMap<LinkLayer, Identity>,
    /// Nodes with a role; each can have only one.
    roles: BTreeMap<NodeId, String>,
    /// Cells and addresses of gateways' accesses.
    cells: BTreeSet<CellId>,
    addresses: BTreeSet<Ipv6Addr>,
    seeds: u32,
}

/// An anchor, before or after its agent is created.
#[derive(Clone)]
pub(super) struct Planned {
    node: NodeId,
    pub(super) config: LmaConfig,
    /// Prefixes of the hosts that it knows, and below the leases that it starts with.
    pub(super) taken: BTreeSet<Prefix>,
    pub(super) leases: Vec<LmaRecord>,
    pub(super) agent: Option<AgentId>,
}

/// A local mobility anchor.
#[derive(Deserialize)]
struct LmaTable {
    /// Prefix of its results.
    name: Name,
    /// Its location: a node, or an interface whose address it uses.
    node: Spanned<End>,
    /// Its address, one of the node's.
    address: Option<Spanned<Address>>,
    /// The prefix from which it assigns prefixes to hosts.
    pool: Spanned<PrefixText>,
    /// How long it reserves a prefix for a host that has left.
    prefix_hold: Option<Duration>,
    /// IEEE 802.21 functions that report link events to it, by name.
    #[serde(default)]
    functions: Vec<Name>,
    /// Gateways that may register hosts.
    #[serde(default)]
    gateways: Vec<Spanned<PrefixText>>,
    /// Identities of the hosts that it serves.
    nodes: Option<Vec<String>>,
    /// Maximum lifetime that it grants.
    lifetime: Option<Spanned<Duration>>,
    /// Maximum difference between clocks.
    timestamp_window: Option<Duration>,
    /// How long it keeps a binding after the host has left.
    delete_delay: Option<Duration>,
    /// How long a registration with an unknown handoff state waits for the deregistration of another binding.
    assign_delay: Option<Duration>,
    /// Flows may move to another interface of their host.
    flow_mobility: Option<bool>,
    /// How flows are placed.
    schedule: Option<ScheduleKey>,
    /// Price and preference of accesses.
    #[serde(default)]
    access: Vec<Spanned<WorthKeys>>,
    /// How paths to gateways are measured.
    keepalive: Option<Spanned<PeerKeepaliveKeys>>,
    /// When flows move to a better interface.
    steering: Option<Spanned<SteeringKeys>>,
    /// Place every flow individually.
    every_flow: Option<bool>,
    /// Idle time after which a flow is forgotten.
    flow_idle: Option<Spanned<Duration>>,
    /// Maximum number of individually placed flows.
    max_flows: Option<Spanned<usize>>,
    /// Maximum number of bindings.
    max_bindings: Option<Spanned<usize>>,
}

/// A mobile access gateway.
#[derive(Deserialize)]
struct MagTable {
    /// Prefix of its results.
    name: Name,
    /// Its node.
    node: Name,
    /// The default anchor of its hosts, by name.
    anchor: Name,
    /// Its accesses.
    #[serde(default)]
    access: Vec<Spanned<AccessTable>>,
    /// Interval of advertisements to a host.
    advertise_every: Option<Spanned<Duration>>,
    /// Lifetime of a host's first registration.
    lifetime_first: Option<Spanned<Duration>>,
    /// Minimum lifetime that it requests.
    lifetime_min: Option<Spanned<Duration>>,
    /// Maximum lifetime that it requests.
    lifetime_max: Option<Spanned<Duration>>,
    /// Maximum number of hosts.
    max_hosts: Option<Spanned<usize>>,
}

/// A link to hosts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessTable {
    /// A cell of the node, or the name of one of its interfaces.
    interface: Name,
    /// The address at which hosts on this access are registered, one of the node's.
    proxy_coa: Option<Spanned<Address>>,
    /// Its technology.
    technology: Option<TechnologyKey>,
    /// The source that reports hosts.
    attach: Option<AttachKey>,
    /// The handoff state of a host that attaches.
    handoff: Option<HandoffKey>,
}

/// The source that reports hosts at an access.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AttachKey {
    /// The link.
    Link,
    /// The host, by a router solicitation.
    Solicitation,
    /// An IEEE 802.21 function at its node.
    Mih,
}

impl Table for LmaTable {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.end_node(&self.node)?;
        settle(builder, node, &self.node, &self.name)?;
        let own = builder.addresses(&self.node, node)?;
        let address = match &self.address {
            Some(written) => of_node(builder, node, written)?,
            None => own.iter().copied().find_map(v6).ok_or_else(|| {
                Mistake::of(&self.node, "it has no IPv6 address: give it one in `addresses`")
            })?,
        };
        let config = self.config(address)?;
        let (taken, leases) = (BTreeSet::new(), Vec::new());
        let planned = Planned { node, config, taken, leases, agent: None };
        builder.kept::<Domain>().anchors.insert(self.name.get_ref().clone(), planned);
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let (name, seed) = (self.name.get_ref(), seed(builder));
        let Planned { node, config, leases, .. } = builder.kept::<Domain>().anchors[name].clone();
        let mut config = config;
        if let Some(written) = &self.flow_idle {
            let Duration(idle) = *written.get_ref();
            if idle < Span::from_secs(1) {
                return Err(Mistake::of(written, "must be 1s or longer"));
            }
            config.flow_idle = idle;
        }
        let mut role = LmaRole::new(config);
        if !self.functions.is_empty() {
            role.ear = Some(mih::ear(builder, (name, node), &self.functions, &[])?);
        }
        let mut agent = RoleAgent::of(role, seed);
        agent.recall(leases);
        let transit = builder.transit();
        let id = add_lma(&mut builder.network, node, name, agent, transit);
        builder.add_role::<LmaRole>(name, id);
        let planned = builder.kept::<Domain>().anchors.get_mut(name);
        planned.expect("it was planned").agent = Some(id);
        Ok(())
    }
}

impl LmaTable {
    fn config(&self, address: Ipv6Addr) -> Result<LmaConfig, Mistake> {
        let PrefixText(network) = *self.pool.get_ref();
        let parts = Pool::prefixes(network, LENGTH, 0).filter(|_| network.addr.is_ipv6());
        let Some(pool) = parts else {
            let message =
                format!("{network} must be an IPv6 network with prefixes of {LENGTH} bits");
            return Err(Mistake::of(&self.pool, message));
        };
        let usual = LmaConfig::new(address, pool, no_clock());
        let everybody = [Prefix::default_of(true)];
        let written = self.gateways.iter().map(|text| text.get_ref().0);
        let gateways: Vec<Prefix> =
            if self.gateways.is_empty() { everybody.into() } else { written.collect() };
        let allowed = |prefix| Allowed { prefix, profile: Profile::STRICT };
        let span = |key: Option<Duration>, usual| key.map_or(usual, |Duration(span)| span);
        let listed = |all: &Vec<String>| {
            Nodes::Listed(all.iter().map(|mn_id| (MnId::nai(mn_id), true)).collect())
        };
        let schedule = self.schedule.map_or(usual.schedule, ScheduleKey::schedule);
        let keys = self.keepalive.as_ref();
        let keepalive =
            PeerKeepaliveKeys::validate(keys.map(Spanned::get_ref), schedule == Schedule::Quality);
        let keepalive = keepalive.map_err(|error| match keys {
            Some(keys) => Mistake::of(keys, format!("keepalive: {error:#}")),
            None => Mistake::of(&self.name, format!("{error:#}")),
        })?;
        let shortest = keepalive.as_ref().map(|probed| probed.t_ka);
        let steering = match &self.steering {
            None => SteeringKeys::default().validate(shortest).unwrap_or_default(),
            Some(keys) => keys
                .get_ref()
                .validate(shortest)
                .map_err(|error| Mistake::of(keys, format!("{error:#}")))?,
        };
        let worth = |written: &Spanned<WorthKeys>| {
            let rated = written.get_ref().validate();
            rated.map_err(|error| Mistake::of(written, format!("{error:#}")))
        };
        Ok(LmaConfig {
            accesses: self.access.iter().map(worth).collect::<Result<_, _>>()?,
            prefix_hold: span(self.prefix_hold, usual.prefix_hold),
            gateways: gateways.into_iter().map(allowed).collect(),
            nodes: self.nodes.as_ref().map_or(Nodes::All, listed),
            longest: Lifetime::of(lifetime(self.lifetime.as_ref(), usual.longest.span())?),
            window: span(self.timestamp_window, usual.window),
            delete_delay: span(self.delete_delay, usual.delete_delay),
            assign_delay: span(self.assign_delay, usual.assign_delay),
            flow_mobility: self.flow_mobility.unwrap_or(usual.flow_mobility),
            schedule,
            keepalive,
            steering,
            always_ask: self.every_flow.unwrap_or(usual.always_ask),
            max_flows: count(self.max_flows.as_ref(), usual.max_flows, 1 << 18)?,
            capacity: count(self.max_bindings.as_ref(), usual.capacity, usual.capacity)?,
            ..usual
        })
    }
}

impl Table for MagTable {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.node(&self.node)?;
        settle(builder, node, &self.node, &self.name)
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.node)?;
        let anchor = named("lma", &self.anchor, &builder.kept::<Domain>().anchors)?;
        let (mut accesses, mut cells) = (Vec::new(), BTreeMap::new());
        let mut told = BTreeMap::new();
        for written in &self.access {
            let (access, cell) = written.get_ref().access(builder, node)?;
            self.expect_reach(builder, node, &anchor, access.proxy_coa)?;
            cells.extend(cell.map(|cell| (cell, access.interface.clone())));
            if let Some(AttachKey::Mih) = written.get_ref().attach {
                let link = mih::link_of(builder, node, &written.get_ref().interface)?;
                told.insert(access.interface.clone(), link);
            }
            accesses.push(access);
        }
        if accesses.is_empty() {
            let message = "it has no access: write a [[mag.access]] for each link to hosts";
            return Err(Mistake::of(&self.name, message));
        }
        let known = builder.kept::<Domain>().known.clone();
        let config = MagConfig {
            identities: Some(Identities { known, realm: None }),
            ..self.config(anchor.config.address, accesses)?
        };
        let (name, seed) = (self.name.get_ref(), seed(builder));
        let links: Vec<LinkAddress> = told.values().cloned().collect();
        let hears = !links.is_empty();
        let ear = hears.then(|| mih::ear(builder, (name, node), &[], &links)).transpose()?;
        let role = MagRole { config, cells, watched: true, ear, told };
        let agent = RoleAgent::of(role, seed);
        let id = add_mag(&mut builder.network, node, name, agent);
        builder.add_role::<MagRole>(name, id);
        Ok(())
    }
}

impl MagTable {
    fn config(&self, anchor: IpAddr, accesses: Vec<Access>) -> Result<MagConfig, Mistake> {
        let usual = MagConfig::new(anchor, accesses, no_clock());
        let lifetimes = Lifetimes {
            shortest: lifetime(self.lifetime_min.as_ref(), usual.lifetime.shortest)?,
            first: lifetime(self.lifetime_first.as_ref(), usual.lifetime.first)?,
            longest: lifetime(self.lifetime_max.as_ref(), usual.lifetime.longest)?,
        };
        if lifetimes.shortest > lifetimes.longest {
            return Err(Mistake::beside(&self.name, "lifetime_min", "longer than lifetime_max"));
        }
        let advertise_every = match &self.advertise_every {
            None => usual.advertise_every,
            Some(written) => {
                let span = written.get_ref().0;
                if !(Span::from_secs(4)..=Span::from_secs(1_800)).contains(&span) {
                    let message = "must lie between 4s and 30min (RFC 4861, 6.2.1)";
                    return Err(Mistake::of(written, message));
                }
                span
            }
        };
        let capacity = count(self.max_hosts.as_ref(), usual.capacity, HOSTS_MAX)?;
        Ok(MagConfig { lifetime: lifetimes, advertise_every, capacity, ..usual })
    }

    /// Checks that messages and tunnel packets arrive between the address of an access and the anchor.
    fn expect_reach(
        &self,
        builder: &Builder<'_>,
        node: NodeId,
        anchor: &Planned,
        proxy_coa: IpAddr,
    ) -> Result<(), Mistake> {
        let ends = ((proxy_coa, 0), (anchor.config.address, 0));
        let there = reach::probe(ends.0, ends.1, MOBILITY, 0);
        let back = reach::probe(ends.1, ends.0, MOBILITY, 0);
        let network = &builder.network;
        let both = reach::follow(network, node, &there)
            .and_then(|_| reach::follow(network, anchor.node, &back));
        both.map(drop).map_err(Mistake::at(&self.anchor))
    }
}

impl AccessTable {
    /// An access, and its cell if it is one.
    fn access(
        &self,
        builder: &mut Builder<'_>,
        node: NodeId,
    ) -> Result<(Access, Option<CellId>), Mistake> {
        let interface = self.interface.get_ref();
        let cell = radio::cell(builder, interface);
        let is_here = |cell: &CellId| builder.network.cell(*cell).is_some_and(|c| c.router == node);
        match cell {
            Some(cell) if !is_here(&cell) => {
                let name = &builder.network.node(node).name;
                let message = format!("the cell {interface} is not one of {name}");
                return Err(Mistake::of(&self.interface, message));
            }
            Some(_) => {}
            None => {
                let index = builder.interface(node, interface);
                let index = index.map_err(Mistake::at(&self.interface))?;
                if builder.network.node(node).adapter(index).is_some_and(|adapter| adapter.air) {
                    let message = format!("{interface} is a cell's: name the cell");
                    return Err(Mistake::of(&self.interface, message));
                }
            }
        }
        let proxy_coa = match &self.proxy_coa {
            Some(written) => of_node(builder, node, written)?,
            None => {
                let taken = builder.kept::<Domain>().addresses.clone();
                let at = builder.network.node(node);
                let all = at.addresses.iter().chain(at.interfaces().flat_map(|i| &i.addresses));
                let free = |address: &Ipv6Addr| !taken.contains(address);
                all.copied().filter_map(v6).find(free).ok_or_else(|| {
                    let message = "the gateway's node has no IPv6 address left: each access needs \
                                   one of its own";
                    Mistake::of(&self.interface, message)
                })?
            }
        };
        let Domain { cells, addresses, .. } = builder.kept();
        if !cell.is_none_or(|cell| cells.insert(cell)) {
            let message = format!("{interface} is an access already");
            return Err(Mistake::of(&self.interface, message));
        }
        if !addresses.insert(proxy_coa) {
            let written = self.proxy_coa.as_ref().expect("the others are free");
            return Err(Mistake::of(written, format!("{proxy_coa} is another access's")));
        }
        let access = Access {
            interface: interface.clone(),
            technology: self.technology.unwrap_or(TechnologyKey::Ethernet).code(),
            proxy_coa: proxy_coa.into(),
            handoff: self.handoff.map_or(Handoff::NEW_INTERFACE, HandoffKey::code),
            by: match self.attach.unwrap_or(AttachKey::Link) {
                AttachKey::Link | AttachKey::Mih => AttachBy::Driver,
                AttachKey::Solicitation => AttachBy::Solicitation,
            },
        };
        Ok((access, cell))
    }
}

/// Assigns a role to a node, which must forward packets for others and must have no other role.
fn settle<T>(
    builder: &mut Builder<'_>,
    node: NodeId,
    place: &Spanned<T>,
    role: &Name,
) -> Result<(), Mistake> {
    let name = builder.network.node(node).name.clone();
    if !builder.transit()(node) {
        let message = format!("{name} carries nothing for others: give it transit = true");
        return Err(Mistake::of(place, message));
    }
    match builder.kept::<Domain>().roles.insert(node, role.get_ref().clone()) {
        None => Ok(()),
        Some(other) => {
            let message = format!("{other} is at {name}: an anchor or a gateway has a node alone");
            Err(Mistake::of(place, message))
        }
    }
}

/// An address, which must be one of the node's.
fn of_node(
    builder: &Builder<'_>,
    node: NodeId,
    written: &Spanned<Address>,
) -> Result<Ipv6Addr, Mistake> {
    let Address(address) = *written.get_ref();
    let at = builder.network.node(node);
    match v6(address).filter(|_| at.owns(address)) {
        Some(address) => Ok(address),
        None => Err(Mistake::of(written, format!("{address} is no IPv6 address of {}", at.name))),
    }
}

fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// The given lifetime, or the default.
fn lifetime(written: Option<&Spanned<Duration>>, usual: Span) -> Result<Span, Mistake> {
    let Some(written) = written else { return Ok(usual) };
    let Duration(span) = *written.get_ref();
    if (Span::from_secs(8)..=LONGEST).contains(&span) {
        return Ok(span);
    }
    let message = format!("must lie between 8s and {}s", LONGEST.as_micros() / 1_000_000);
    Err(Mistake::of(written, message))
}

/// The given number, or the default.
fn count(written: Option<&Spanned<usize>>, usual: usize, most: usize) -> Result<usize, Mistake> {
    match written.map(|written| (written, *written.get_ref())) {
        None => Ok(usual),
        Some((_, number)) if (1..=most).contains(&number) => Ok(number),
        Some((written, _)) => Err(Mistake::of(written, format!("must lie between 1 and {most}"))),
    }
}

/// A seed for the next role.
fn seed(builder: &mut Builder<'_>) -> u64 {
    let seeds = &mut builder.kept::<Domain>().seeds;
    *seeds += 1;
    let number = *seeds;
    builder.network.seed_of(PMIP, number)
}

#[cfg(test)]
mod tests;
