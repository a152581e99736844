//! `[[lma]]` and `[[mag]]`: the anchors and gateways of Proxy Mobile IPv6. Hosts are in `mobile_node.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use segue_grammar::{
    Address, AttachKey, End, HandoffKey, LmaPolicyKeys, MagPolicyKeys, Mistake, Name, PrefixText,
    Spanned, TechnologyKey, Within, WrongTable, named, parts,
};
use segue_ip::Prefix;
use segue_mobility::Pool;
use segue_pmip::{
    Access, Allowed, Identities, Identity, LinkLayer, LmaConfig, LmaRecord, MOBILITY, MagConfig,
};
use segue_sim::net::CellId;
use segue_sim::pmip::{LmaRole, MagRole, Uses, add_lma, add_mag, no_clock};
use segue_sim::{AgentId, NodeId, RoleAgent};
use segue_wire::mih::identity::LinkAddress;
use segue_wire::mobility::Profile;
use serde::Deserialize;

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
struct LmaTable {
    own: LmaKeys,
    policy: LmaPolicyKeys,
}

parts!(LmaTable { own: LmaKeys, policy: LmaPolicyKeys });

/// The keys of an anchor that the daemon's file does not have, or has with other values.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LmaKeys {
    /// In front of its results
    name: Name,
    /// Where it is, with `transit = true`; a node has one anchor or gateway
    node: Spanned<End>,
    /// Its address, one of the node's
    #[schemars(extend("x-unset" = "its first of IPv6"))]
    address: Option<Spanned<Address>>,
    /// Hosts get 64-bit prefixes from it, one for each of their interfaces
    pool: Spanned<PrefixText>,
    /// `[[mih]]` tables: functions that announce departures of hosts to it; it must be able to reach their nodes
    #[serde(default)]
    functions: Vec<Name>,
    /// Addresses that may register hosts
    #[serde(default)]
    #[schemars(extend("x-unset" = "all"))]
    gateways: Vec<Spanned<PrefixText>>,
    /// Maximum number of bindings
    #[serde(default)]
    max_bindings: Within<1_048_576, 1, 1_048_576>,
}

/// A mobile access gateway.
struct MagTable {
    own: MagKeys,
    policy: MagPolicyKeys,
}

parts!(MagTable { own: MagKeys, policy: MagPolicyKeys });

/// The keys of a gateway that the daemon's file does not have, or has with other values.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MagKeys {
    /// In front of its results
    name: Name,
    /// Where it is, with `transit = true`
    node: Name,
    /// The `[[lma]]` of its hosts
    anchor: Name,
    /// Its accesses
    #[serde(default)]
    #[schemars(extend("x-required" = true))]
    access: Vec<Spanned<AccessTable>>,
}

/// A link to hosts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessTable {
    /// A cell of the node, or an interface of it with a link to a host. A host may be at one access of a gateway only
    interface: Name,
    /// Address under which hosts there are registered, one of the node's, unique among accesses
    #[schemars(extend("x-rfc" = "Proxy-CoA", "x-unset" = "its next IPv6 address"))]
    proxy_coa: Option<Spanned<Address>>,
    /// Access technology
    #[serde(default)]
    technology: TechnologyKey,
    /// Source of attachments; with `"mih"`, the `[[mih]]` of the gateway's node that watches the link
    #[serde(default)]
    attach: AttachKey,
    /// How an attaching host got there
    #[serde(default)]
    handoff: HandoffKey,
}

impl Table for LmaTable {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.own.name)?;
        let node = builder.end_node(&self.own.node)?;
        settle(builder, node, &self.own.node, &self.own.name)?;
        let own = builder.addresses(&self.own.node, node)?;
        let address = match &self.own.address {
            Some(written) => of_node(builder, node, written)?,
            None => own.iter().copied().find_map(v6).ok_or_else(|| {
                Mistake::of(&self.own.node, "it has no IPv6 address: give it one in `addresses`")
            })?,
        };
        let config = self.config(address)?;
        let (taken, leases) = (BTreeSet::new(), Vec::new());
        let planned = Planned { node, config, taken, leases, agent: None };
        builder.kept::<Domain>().anchors.insert(self.own.name.get_ref().clone(), planned);
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let (name, seed) = (self.own.name.get_ref(), seed(builder));
        let Planned { node, config, leases, .. } = builder.kept::<Domain>().anchors[name].clone();
        let mut role = LmaRole::new(config);
        if !self.own.functions.is_empty() {
            role.uses.mih = Some(mih::function(builder, (name, node), &self.own.functions, &[])?);
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
        let LmaTable { own, policy } = self;
        let PrefixText(network) = *own.pool.get_ref();
        let parts = Pool::prefixes(network, LENGTH, 0).filter(|_| network.addr.is_ipv6());
        let Some(pool) = parts else {
            let message =
                format!("{network} must be an IPv6 network with prefixes of {LENGTH} bits");
            return Err(Mistake::of(&own.pool, message));
        };
        let everybody = [Prefix::default_of(true)];
        let written = own.gateways.iter().map(|text| text.get_ref().0);
        let gateways: Vec<Prefix> =
            if own.gateways.is_empty() { everybody.into() } else { written.collect() };
        let allowed = |prefix| Allowed { prefix, profile: Profile::STRICT };
        let config = LmaConfig {
            gateways: gateways.into_iter().map(allowed).collect(),
            capacity: own.max_bindings.get(),
            ..LmaConfig::new(address, pool, no_clock())
        };
        policy.config(config).map_err(|WrongTable { name, place, error }| match place {
            Some(place) => Mistake::of(&Spanned::new(place, ()), format!("{name}: {error:#}")),
            None => Mistake::of(&own.name, format!("{error:#}")),
        })
    }
}

impl Table for MagTable {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.own.name)?;
        let node = builder.node(&self.own.node)?;
        settle(builder, node, &self.own.node, &self.own.name)
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.own.node)?;
        let anchor = named("lma", &self.own.anchor, &builder.kept::<Domain>().anchors)?;
        let (mut accesses, mut cells) = (Vec::new(), BTreeMap::new());
        let mut told = BTreeMap::new();
        for written in &self.own.access {
            let (access, cell) = written.get_ref().access(builder, node)?;
            self.expect_reach(builder, node, &anchor, access.proxy_coa)?;
            cells.extend(cell.map(|cell| (cell, access.interface.clone())));
            if written.get_ref().attach == AttachKey::Mih {
                let link = mih::link_of(builder, node, &written.get_ref().interface)?;
                told.insert(access.interface.clone(), link);
            }
            accesses.push(access);
        }
        if accesses.is_empty() {
            let message = "it has no access: write a [[mag.access]] for each link to hosts";
            return Err(Mistake::of(&self.own.name, message));
        }
        let known = builder.kept::<Domain>().known.clone();
        let config = MagConfig {
            identities: Some(Identities { known, realm: None }),
            ..MagConfig::new(anchor.config.address, accesses, no_clock())
        };
        let config = self.policy.config(config);
        let config = config.map_err(|(key, what)| Mistake::beside(&self.own.name, key, what))?;
        let (name, seed) = (self.own.name.get_ref(), seed(builder));
        let links: Vec<LinkAddress> = told.values().cloned().collect();
        let hears = !links.is_empty();
        let mih = hears.then(|| mih::function(builder, (name, node), &[], &links)).transpose()?;
        let uses = Uses { mih, radius: None };
        let role = MagRole { config, cells, watched: true, uses, told };
        let agent = RoleAgent::of(role, seed);
        let id = add_mag(&mut builder.network, node, name, agent);
        builder.add_role::<MagRole>(name, id);
        Ok(())
    }
}

impl MagTable {
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
        both.map(drop).map_err(Mistake::at(&self.own.anchor))
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
            technology: self.technology.code(),
            proxy_coa: proxy_coa.into(),
            handoff: self.handoff.code(),
            by: self.attach.by(),
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

/// A seed for the next role.
fn seed(builder: &mut Builder<'_>) -> u64 {
    let seeds = &mut builder.kept::<Domain>().seeds;
    *seeds += 1;
    let number = *seeds;
    builder.network.seed_of(PMIP, number)
}

#[cfg(test)]
mod tests;
