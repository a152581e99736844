//! `[[mih]]`: IEEE 802.21 functions, which report link events to gateways and anchors.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use segue_clock::Time;
use segue_grammar::link::Rate;
use segue_grammar::{Duration, Mistake, Name, Spanned, Within, named};
use segue_mih::{Interest, LinkConfig, MihfConfig, Remote, Transport};
use segue_pmip::LinkQuality;
use segue_sim::mih::{Measurement, MihfRole, add_mihf};
use segue_sim::net::CellId;
use segue_sim::packet::UDP;
use segue_sim::stock::link_layer;
use segue_sim::{NodeId, RoleAgent};
use segue_wire::mih::PORT;
use segue_wire::mih::codes::{EventList, GenericParameter, LinkType};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::ParameterType;
use serde::Deserialize;

use super::radio;
use crate::file::builder::Builder;
use crate::file::reach;
use crate::file::table::{Kind, Table};

pub(super) const MIH: Kind = Kind::of::<MihTable>("mih", &[]);

/// Seeds of functions (`Network::seed_of`).
const SEED: u64 = 0x6d_6968;
/// Added to a cell's number for its link-layer address, above the numbers of interfaces.
const CELLS: u32 = 0x8000;

/// A function with its service access point, which observes links of its node.
#[derive(Deserialize, JsonSchema)]
struct MihTable {
    /// In front of its results: `stations` at the end, `starts`
    name: Name,
    /// Where it is
    node: Name,
    /// The links that it watches: cells of the node, or interfaces of it with a link to a host
    links: Spanned<Vec<Name>>,
    /// The quality of the links over time
    #[serde(default)]
    #[schemars(extend("x-unset" = "unknown"))]
    quality: Vec<QualityTable>,
}

/// The quality that the function reports for a link from a point in time on.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QualityTable {
    /// One of `links`
    link: Name,
    /// From when on
    #[serde(default)]
    at: Duration,
    /// Data rate of a station, which limits the rate of [bulk flows](pmip.md#by-quality) there
    rate: Option<Rate>,
    /// Signal in dBm, which is shown but has no effect
    signal: Option<Within<1, -127, 0>>,
}

impl QualityTable {
    fn measurement(&self, links: &BTreeMap<String, LinkId>) -> Result<Measurement, Mistake> {
        let link = named("link", &self.link, links)?.clone();
        let rate = self.rate.as_ref().map(|Rate(bps)| {
            let kbps = bps.and_then(|bps| u16::try_from(bps / 1_000).ok());
            (GenericParameter::DATA_RATE, kbps.unwrap_or(LinkQuality::MOST_KBPS))
        });
        if rate.is_some_and(|(_, kbps)| kbps == 0) {
            return Err(Mistake::of(&self.link, "its rate is below 1kbit"));
        }
        let signal = self.signal.map(|dbm| {
            let dbm: i16 = dbm.get();
            (GenericParameter::SIGNAL_STRENGTH, dbm.cast_unsigned())
        });
        let values = rate.into_iter().chain(signal);
        let values: Vec<_> =
            values.map(|(parameter, value)| (ParameterType::Generic(parameter), value)).collect();
        if values.is_empty() {
            return Err(Mistake::of(&self.link, "its quality needs `rate`, `signal` or both"));
        }
        Ok(Measurement { at: Time::ZERO + self.at.0, link, values })
    }
}

/// Shared state for other tables.
#[derive(Default)]
pub(super) struct Functions {
    all: BTreeMap<String, Function>,
    seeds: u32,
}

/// A function.
#[derive(Clone)]
struct Function {
    node: NodeId,
    address: IpAddr,
    port: u16,
    /// Its links, by name of the interface or cell.
    links: BTreeMap<String, LinkId>,
    cells: BTreeMap<CellId, String>,
}

impl Table for MihTable {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.node(&self.node)?;
        let at = builder.network.node(node);
        let own = at.addresses.iter().chain(at.interfaces().flat_map(|i| &i.addresses));
        let address = own.copied().next().ok_or_else(|| {
            Mistake::of(&self.node, "it has no address: give it one in `addresses`")
        })?;
        let (mut links, mut cells) = (BTreeMap::new(), BTreeMap::new());
        if self.links.get_ref().is_empty() {
            return Err(Mistake::of(&self.links, "it needs one at least"));
        }
        for link in self.links.get_ref() {
            let name = link.get_ref();
            let (id, cell) = self.link(builder, node, link)?;
            cells.extend(cell.map(|cell| (cell, name.clone())));
            if links.insert(name.clone(), id).is_some() {
                return Err(Mistake::of(link, format!("{name} is there twice")));
            }
        }
        let name = self.name.get_ref();
        let port = builder.free_ports(node, UDP, PORT, 1, name);
        let function = Function { node, address, port, links, cells };
        builder.kept::<Functions>().all.insert(name.clone(), function);
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let name = self.name.get_ref();
        let functions = builder.kept::<Functions>();
        functions.seeds += 1;
        let (number, function) = (functions.seeds, functions.all[name].clone());
        let seed = builder.network.seed_of(SEED, number);
        let config = MihfConfig {
            port: function.port,
            // The node's links predict their loss themselves, through the notice of walks.
            links: function.links.values().map(own).collect(),
            peers: ["0.0.0.0/0", "::/0"].map(|all| all.parse().expect("a prefix")).into(),
            ..MihfConfig::new(name.as_str().into())
        };
        let (cells, links) = (function.cells, function.links);
        let course = self.quality.iter().map(|quality| quality.measurement(&links));
        let mut course = course.collect::<Result<Vec<_>, _>>()?;
        course.sort_by_key(|measurement| measurement.at);
        let role = MihfRole { cells, links, course, ..MihfRole::new(config) };
        let id = add_mihf(&mut builder.network, function.node, name, RoleAgent::of(role, seed));
        builder.add_role::<MihfRole>(name, id);
        Ok(())
    }
}

fn own(id: &LinkId) -> LinkConfig {
    LinkConfig { forecasting: None, ..LinkConfig::new(id.link_type, id.address.clone()) }
}

impl MihTable {
    /// A link, and its cell if it is one.
    fn link(
        &self,
        builder: &mut Builder<'_>,
        node: NodeId,
        link: &Name,
    ) -> Result<(LinkId, Option<CellId>), Mistake> {
        let name = link.get_ref();
        let of = |link_type, number| LinkId {
            link_type,
            address: LinkAddress::mac(link_layer(node, number)),
        };
        let Some(cell) = radio::cell(builder, name) else {
            let index = builder.interface(node, name).map_err(Mistake::at(link))?;
            return Ok((of(LinkType::ETHERNET, index), None));
        };
        if builder.network.cell(cell).is_none_or(|config| config.router != node) {
            let message = format!("the cell {name} is not one of {}", self.node.get_ref());
            return Err(Mistake::of(link, message));
        }
        Ok((of(LinkType::IEEE_802_11, CELLS + cell.0), Some(cell)))
    }
}

/// The link-layer address that the function at a node reports for an access's link.
pub(super) fn link_of(
    builder: &mut Builder<'_>,
    node: NodeId,
    interface: &Name,
) -> Result<LinkAddress, Mistake> {
    let name = interface.get_ref();
    let here = builder.kept::<Functions>().all.values().filter(|function| function.node == node);
    let link = here.filter_map(|function| function.links.get(name)).next();
    link.map(|link| link.address.clone()).ok_or_else(|| {
        Mistake::of(interface, format!("nobody tells of {name}: write a [[mih]] for its node"))
    })
}

/// Settings of a role's IEEE 802.21 function: it receives events of `links`, or of all links if there are none, from
/// the functions named, or from those at its node.
pub(super) fn function(
    builder: &mut Builder<'_>,
    (role, node): (&str, NodeId),
    named_ones: &[Name],
    links: &[LinkAddress],
) -> Result<MihfConfig, Mistake> {
    let functions = builder.kept::<Functions>().all.clone();
    let mut remotes = Vec::new();
    for name in named_ones {
        let of = named("mih", name, &functions)?;
        let own = builder.network.node(node);
        let own = own.addresses.iter().chain(own.interfaces().flat_map(|i| &i.addresses));
        let own = own.copied().find(|own| own.is_ipv4() == of.address.is_ipv4());
        let own = own.ok_or_else(|| {
            let message = format!("{role} has no address of the family of {}", name.get_ref());
            Mistake::of(name, message)
        })?;
        let (here, there) = ((own, 0), (of.address, of.port));
        let network = &builder.network;
        let both = reach::follow(network, node, &reach::probe(here, there, UDP, 0))
            .and_then(|_| reach::follow(network, of.node, &reach::probe(there, here, UDP, 0)));
        both.map_err(Mistake::at(name))?;
        remotes.push(of);
    }
    if named_ones.is_empty() {
        remotes.extend(functions.into_values().filter(|function| function.node == node));
    }
    let functions = remotes.into_iter().map(|of| {
        let remote = Remote::new(of.address, Transport::Udp);
        Remote { port: of.port, ..remote }
    });
    let events = EventList::LINK_UP | EventList::LINK_DOWN | EventList::LINK_GOING_DOWN;
    let interests = match links {
        [] => vec![Interest { link: None, events }],
        some => some.iter().map(|of| Interest { link: Some(of.clone()), events }).collect(),
    };
    let port = builder.free_ports(node, UDP, PORT, 1, role);
    let config = MihfConfig::new(role.into());
    Ok(MihfConfig { port, functions: functions.collect(), interests, ..config })
}
