//! `[[mobile_node]]`: stock hosts that Proxy Mobile IPv6 serves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use segue_clock::Time;
use segue_grammar::{Event, EventKeys, Mistake, Name, PrefixText, Spanned, named};
use segue_ip::Prefix;
use segue_pmip::{Identity, LinkLayer, LmaInput, NodeId as MnId};
use segue_sim::net::Hop;
use segue_sim::pmip::{LmaRole, known_lease};
use segue_sim::role::Order;
use segue_sim::stock::{ICMPV6, StockHost, address_in, link_layer};
use segue_sim::{NodeId, RoleAgent};
use serde::Deserialize;

use super::pmip::{Domain, Planned};
use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::table::{Kind, Table};

pub(super) const MOBILE_NODE: Kind = Kind::of::<MobileNode>("mobile_node", &[REVOKE]);

/// The realm of hosts without a configured identity.
const REALM: &str = "segue.invalid";

/// Hosts by name, each with its node, its identity, and the name of its anchor.
#[derive(Default)]
struct Hosts(BTreeMap<String, (NodeId, MnId, String)>);

/// A host.
#[derive(Deserialize, JsonSchema)]
struct MobileNode {
    /// In front of its results
    name: Name,
    /// A node without `transit`, and with no other mobile node
    node: Name,
    /// Its identity, which all gateways know; anchors treat tables with the same identity as one mobile node. Gateways
    /// refuse hosts without a table
    #[schemars(extend("x-rfc" = "MN-ID", "x-unset" = "`NAME@segue.invalid`"))]
    mn_id: Option<Name>,
    /// The interfaces that get prefixes
    #[schemars(extend("x-unset" = "all of the node"))]
    interfaces: Option<Vec<Name>>,
    /// Its anchor
    #[schemars(extend("x-unset" = "the only one"))]
    anchor: Option<Name>,
    /// A prefix for each interface, of the anchor's pool
    #[schemars(extend("x-unset" = "the next ones"))]
    prefixes: Option<Vec<Spanned<PrefixText>>>,
}

impl Table for MobileNode {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.node(&self.node)?;
        let at = &builder.network.node(node).name;
        if builder.transit()(node) {
            let message = format!("{at} is a router, which takes nothing from advertisements");
            return Err(Mistake::of(&self.node, message));
        }
        let mut others = builder.kept::<Hosts>().0.iter();
        if let Some((other, _)) = others.find(|(_, host)| host.0 == node) {
            return Err(Mistake::of(&self.node, format!("{other} is there already")));
        }
        let (anchor, planned) = self.anchor(builder)?;
        let interfaces = self.indices(builder, node)?;
        let prefixes = self.prefixes(&planned, interfaces.len())?;
        let mn_id = match &self.mn_id {
            Some(mn_id) if mn_id.get_ref().is_empty() => {
                return Err(Mistake::of(mn_id, "nobody is called that: write user@realm"));
            }
            Some(mn_id) => MnId::nai(mn_id.get_ref()),
            None => MnId::nai(&format!("{}@{REALM}", self.name.get_ref())),
        };
        for (index, prefix) in interfaces.into_iter().zip(prefixes) {
            let mac = link_layer(node, index);
            let IpAddr::V6(network) = prefix.addr else { unreachable!("the pool is of IPv6") };
            let address = address_in(network, mac);
            builder.own(node, address.into(), &self.name)?;
            builder.homes.insert((node, index), address.into());
            let Domain { anchors, known, .. } = builder.kept();
            if let Some(planned) = anchors.get_mut(&anchor) {
                planned.taken.insert(prefix);
                planned.leases.push(known_lease(prefix, mn_id.clone(), mac));
            }
            let (anchor, prefixes) = (Some(planned.config.address), Vec::new());
            let identity = Identity { node: mn_id.clone(), anchor, prefixes };
            known.insert(LinkLayer::mac(mac), identity);
        }
        let hosts = &mut builder.kept::<Hosts>().0;
        hosts.insert(self.name.get_ref().clone(), (node, mn_id, anchor));
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.node)?;
        let own = builder.homes.range((node, 0)..=(node, u32::MAX));
        let own: Vec<u32> = own.map(|((_, index), _)| *index).collect();
        // On these interfaces, it uses router advertisements and no shortest paths.
        for index in &own {
            let routes = &mut builder.network.node_mut(node).routes;
            routes.remove_towards(Hop::Interface(*index));
        }
        let host = Box::new(StockHost::new(own));
        builder.network.add_agent(node, self.name.get_ref(), &[(ICMPV6, 0)], host);
        Ok(())
    }
}

impl MobileNode {
    /// Its anchor and the anchor's name.
    fn anchor(&self, builder: &mut Builder<'_>) -> Result<(String, Planned), Mistake> {
        let anchors = &builder.kept::<Domain>().anchors;
        if let Some(name) = &self.anchor {
            return Ok((name.get_ref().clone(), named("lma", name, anchors)?));
        }
        match anchors.iter().next().filter(|_| anchors.len() == 1) {
            Some((name, planned)) => Ok((name.clone(), planned.clone())),
            None if anchors.is_empty() => {
                Err(Mistake::of(&self.name, "there is no anchor: write an [[lma]]"))
            }
            None => {
                let message = "there are several anchors: name its own in `anchor`";
                Err(Mistake::of(&self.name, message))
            }
        }
    }

    /// The interfaces that obtain prefixes.
    fn indices(&self, builder: &Builder<'_>, node: NodeId) -> Result<Vec<u32>, Mistake> {
        let at = builder.network.node(node);
        let Some(written) = &self.interfaces else {
            let all: Vec<u32> = at.interfaces().map(|interface| interface.index).collect();
            return match all[..] {
                [] => {
                    let message = "it has no interface: write a [[walk]] or a [[link]] of it";
                    Err(Mistake::of(&self.node, message))
                }
                _ => Ok(all),
            };
        };
        let mut indices = Vec::new();
        for name in written {
            let index = builder.interface(node, name.get_ref()).map_err(Mistake::at(name))?;
            if indices.contains(&index) {
                return Err(Mistake::of(name, format!("{} stands twice", name.get_ref())));
            }
            indices.push(index);
        }
        match indices[..] {
            [] => Err(Mistake::beside(&self.name, "interfaces", "it needs one at least")),
            _ => Ok(indices),
        }
    }

    /// A prefix from the anchor's pool for each interface.
    fn prefixes(&self, planned: &Planned, count: usize) -> Result<Vec<Prefix>, Mistake> {
        let pool = &planned.config.pool;
        let Some(written) = &self.prefixes else {
            let all = pool.numbers().filter_map(|number| pool.part(number));
            let free = all.filter(|prefix| !planned.taken.contains(prefix));
            let prefixes: Vec<Prefix> = free.take(count).collect();
            if prefixes.len() < count {
                return Err(Mistake::of(&self.name, "its anchor's pool has no prefix left for it"));
            }
            return Ok(prefixes);
        };
        let mut prefixes = Vec::new();
        for text in written {
            let PrefixText(prefix) = *text.get_ref();
            if pool.number(prefix).is_none() {
                let message = format!("{prefix} is no prefix of 64 bits of its anchor's pool");
                return Err(Mistake::of(text, message));
            }
            if planned.taken.contains(&prefix) || prefixes.contains(&prefix) {
                return Err(Mistake::of(text, format!("{prefix} is another interface's")));
            }
            prefixes.push(prefix);
        }
        if prefixes.len() != count {
            let message = format!("{} prefixes for {count} interfaces", prefixes.len());
            return Err(Mistake::beside(&self.name, "prefixes", message));
        }
        Ok(prefixes)
    }
}

/// Makes a host's anchor revoke its bindings (RFC 5846).
const REVOKE: EventKind = EventKind { keys: EventKeys { name: "revoke", with: &[] }, add: revoke };

fn revoke(builder: &mut Builder<'_>, _: &Event, at: Time, name: &Name) -> Result<(), Mistake> {
    let (_, mn_id, anchor) = named("mobile node", name, &builder.kept::<Hosts>().0)?;
    let agent = builder.kept::<Domain>().anchors[&anchor].agent.expect("it has been placed");
    let agent = builder.network.agent_mut::<RoleAgent<LmaRole>>(agent).expect("it is an anchor");
    agent.order(at, Order::Own(LmaInput::Revoke(mn_id)));
    Ok(())
}
