//! `[[anchor]]` and `[[host]]`: the ends of Segue's tunnels.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use segue_clock::Span;
use segue_grammar::{Duration, KeepaliveKeys, PathKeys, Paths, SteeringKeys};
use segue_ip::Prefix;
use segue_keepalive::Source;
use segue_sim::NodeId;
use segue_sim::net::Adapter;
use segue_sim::tunnel::{AnchorAgent, HostAgent, add_anchor, add_host};
use segue_tunnel::{AnchorConfig, HostConfig, Known, Pool};
use segue_wire::{Encapsulation, SIGNAL_PORT, TUNNEL_PORT};
use serde::Deserialize;
use toml::Spanned;

use super::common::UDP;
use super::network::Builder;
use super::tables::{Address, End, Name, PrefixText};
use super::{Mistake, hint, reach};

/// Addresses of hosts whose anchor names none.
const POOL: ([u8; 4], u8) = ([10, 7, 0, 0], 16);
/// Seeds of tunnel ends (`Network::seed_of`).
const END: u64 = 0x0065_6e64;

/// An anchor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// In front of its results.
    pub name: Name,
    /// Where it is: a node, or an interface whose address it has.
    pub node: Spanned<End>,
    /// Inner addresses that it assigns: at most one IPv4 and one IPv6 prefix.
    #[serde(default)]
    pub pool: Vec<Spanned<PrefixText>>,
    /// Most paths of all hosts together.
    pub max_paths: Option<u32>,
    /// Time after which a silent host is forgotten.
    pub expiry: Option<Duration>,
}

/// A mobile host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// In front of its results, and its name at the anchor.
    pub name: Name,
    /// Where it is.
    pub node: Name,
    /// Its anchor, by name.
    pub anchor: Name,
    /// Its inner addresses; the next of the anchor's pool if none are given.
    #[serde(default)]
    pub inner: Vec<Spanned<Address>>,
    /// How its paths are probed, as in a host's file.
    #[serde(default)]
    pub keepalive: KeepaliveKeys,
    /// Settings for the path of an interface, as in a host's file.
    #[serde(default)]
    pub path: BTreeMap<String, PathKeys>,
    /// How flows move, as in a host's file.
    #[serde(default)]
    pub steering: SteeringKeys,
}

/// An anchor whose hosts are yet to be added.
struct Planned<'a> {
    table: &'a Anchor,
    node: NodeId,
    /// Its outer addresses.
    addresses: Vec<IpAddr>,
    pools: Vec<(Prefix, Pool)>,
    known: Vec<Known>,
    hosts: u32,
}

/// Adds both kinds.
pub fn add(builder: &mut Builder<'_>, anchors: &[Anchor], hosts: &[Host]) -> Result<(), Mistake> {
    let mut planned = Vec::new();
    for table in anchors {
        planned.push(plan(builder, table)?);
    }
    let mut number = 0;
    for host in hosts {
        number += 1;
        let name = host.anchor.get_ref();
        let names: Vec<&str> = planned.iter().map(|p| p.table.name.get_ref().as_str()).collect();
        let Some(place) = names.iter().position(|known| known == name) else {
            let message = format!("there is no anchor {name}{}", hint(name, &names));
            return Err(Mistake::of(&host.anchor, message));
        };
        add_one_host(builder, &mut planned[place], host, number)?;
    }
    for anchor in planned {
        number += 1;
        add_one_anchor(builder, anchor, number);
    }
    Ok(())
}

fn plan<'a>(builder: &mut Builder<'_>, table: &'a Anchor) -> Result<Planned<'a>, Mistake> {
    builder.take_name(&table.name)?;
    let node = builder.end_node(&table.node)?;
    let addresses = builder.addresses(&table.node, node)?;
    for port in [TUNNEL_PORT, SIGNAL_PORT] {
        let place = Spanned::new(table.node.span(), port);
        builder.take_ports(node, UDP, &place, 1, table.name.get_ref())?;
    }
    let default = [Spanned::new(table.name.span(), PrefixText(Prefix::new(POOL.0, POOL.1)))];
    let written = if table.pool.is_empty() { &default[..] } else { &table.pool };
    let mut pools: Vec<(Prefix, Pool)> = Vec::new();
    for text in written {
        let PrefixText(prefix) = *text.get_ref();
        let network = prefix.nth(0);
        let pool = network.and_then(|network| Pool::new(network, prefix.len));
        let Some(pool) = pool else {
            return Err(Mistake::of(text, "a pool needs room for the anchor and a host"));
        };
        let family =
            |known: &(Prefix, Pool)| known.1.network().is_ipv4() == pool.network().is_ipv4();
        if pools.iter().any(family) {
            return Err(Mistake::of(text, "an anchor has one pool of each family"));
        }
        builder.own(node, &Spanned::new(text.span(), Address(pool.anchor())))?;
        pools.push((prefix, pool));
    }
    if let Some(paths) = table.max_paths.filter(|paths| !(2..=1 << 20).contains(paths)) {
        let message = format!("{paths} does not lie between 2 and {}", 1 << 20);
        return Err(Mistake::beside(&table.name, "max_paths", message));
    }
    if table.expiry.is_some_and(|expiry| expiry.0 == Span::ZERO) {
        return Err(Mistake::beside(&table.name, "expiry", "must be above zero"));
    }
    Ok(Planned { table, node, addresses, pools, known: Vec::new(), hosts: 0 })
}

fn add_one_host(
    builder: &mut Builder<'_>,
    anchor: &mut Planned<'_>,
    host: &Host,
    number: u32,
) -> Result<(), Mistake> {
    builder.take_name(&host.name)?;
    let node = builder.node(&host.node)?;
    for port in [TUNNEL_PORT, SIGNAL_PORT] {
        let place = Spanned::new(host.node.span(), port);
        builder.take_ports(node, UDP, &place, 1, host.name.get_ref())?;
    }
    expect_reach(builder, node, anchor, host)?;
    anchor.hosts += 1;
    let inner = inner_addresses(builder, anchor, host, node)?;
    builder.inner.insert(node, inner.clone());
    let name = host.name.get_ref().clone();
    anchor.known.push(Known { name: name.clone(), epoch: 0, inner });
    let Paths { mut path, mut paths, steering } =
        Paths::validate(&host.keepalive, &host.path, &host.steering, true)
            .map_err(|error| Mistake::of(&host.name, format!("{error:#}")))?;
    let interfaces = builder.network.node(node).interfaces();
    let known: Vec<&str> = interfaces.map(|interface| interface.name.as_str()).collect();
    if let Some(unknown) = paths.keys().find(|name| !known.contains(&name.as_str())) {
        let hint = hint(unknown, &known);
        let message = format!("{} has no interface {unknown}{hint}", host.node.get_ref());
        return Err(Mistake::beside(&host.name, "path", message));
    }
    if paths.values().chain([&path]).any(|p| p.encapsulation == Encapsulation::Upmt) {
        return Err(Mistake::beside(&host.name, "path", "upmt is not simulated: leave it out"));
    }
    let keys = host.path.values().map(|path| &path.keepalive).chain([&host.keepalive]);
    if keys.into_iter().any(KeepaliveKeys::asks_for_rides) {
        return Err(Mistake::beside(
            &host.name,
            "keepalive",
            "rides are not simulated: leave them out",
        ));
    }
    // Without a key in the file, probes would ride.
    paths.values_mut().chain([&mut path]).for_each(|path| path.keepalive.rides = false);
    let config = HostConfig {
        anchor: anchor.addresses.iter().map(|a| SocketAddr::new(*a, TUNNEL_PORT)).collect(),
        epoch: 1,
        port: TUNNEL_PORT,
        path,
        paths,
        steering,
        source: Source::Readings,
    };
    let seed = builder.network.seed_of(END, number);
    let pools: Vec<Prefix> = anchor.pools.iter().map(|(prefix, _)| *prefix).collect();
    let agent = HostAgent::new(name.clone(), config, seed);
    let id = add_host(&mut builder.network, node, name.clone(), agent, &pools);
    builder.hosts.insert(name, id);
    Ok(())
}

/// Its inner addresses, one of each pool: those given, or those that the anchor would give it.
fn inner_addresses(
    builder: &mut Builder<'_>,
    anchor: &Planned<'_>,
    host: &Host,
    node: NodeId,
) -> Result<Vec<IpAddr>, Mistake> {
    let mut inner = Vec::new();
    for address in &host.inner {
        let Address(ip) = *address.get_ref();
        if !anchor.pools.iter().any(|(prefix, _)| prefix.contains(ip)) {
            let message = format!("{ip} is not in a pool of {}", anchor.table.name.get_ref());
            return Err(Mistake::of(address, message));
        }
        builder.own(node, address)?;
        inner.push(ip);
    }
    for (prefix, pool) in &anchor.pools {
        if inner.iter().any(|ip| ip.is_ipv4() == pool.network().is_ipv4()) {
            continue;
        }
        // The first two are the network and the anchor.
        let mut candidates = (2..u32::MAX).map_while(|n| prefix.nth(n));
        let Some(ip) = candidates.find(|ip| !builder.owned(*ip)) else {
            return Err(Mistake::of(&host.anchor, "its pool has no address left"));
        };
        builder.own(node, &Spanned::new(host.name.span(), Address(ip)))?;
        inner.push(ip);
    }
    Ok(inner)
}

/// Checks that host and anchor reach each other over at least one of the host's interfaces. A radio
/// has no place before the run begins.
fn expect_reach(
    builder: &Builder<'_>,
    node: NodeId,
    anchor: &Planned<'_>,
    host: &Host,
) -> Result<(), Mistake> {
    let network = &builder.network;
    let mut problem = "it has no interface with an address".to_owned();
    for Adapter { interface, air, .. } in &network.node(node).adapters {
        if *air {
            return Ok(());
        }
        let index = interface.index;
        for (own, far) in interface.addresses.iter().flat_map(|own| {
            let same = |far: &&IpAddr| far.is_ipv4() == own.is_ipv4();
            anchor.addresses.iter().filter(same).map(move |far| (*own, *far))
        }) {
            let there = reach::probe((own, TUNNEL_PORT), (far, TUNNEL_PORT), UDP, 0);
            let back = reach::probe((far, TUNNEL_PORT), (own, TUNNEL_PORT), UDP, 0);
            let both = reach::follow_over(network, node, index, &there).and_then(|translated| {
                if translated { Ok(true) } else { reach::follow(network, anchor.node, &back) }
            });
            match both {
                Ok(_) => return Ok(()),
                Err(message) => problem = message,
            }
        }
    }
    let name = host.anchor.get_ref();
    Err(Mistake::of(&host.anchor, format!("{name} is out of reach: {problem}")))
}

fn add_one_anchor(builder: &mut Builder<'_>, anchor: Planned<'_>, number: u32) {
    let Planned { table, node, pools, known, .. } = anchor;
    let of = |v4: bool| {
        let mut found = pools.iter().filter(|(_, pool)| pool.network().is_ipv4() == v4);
        found.next().map(|(_, pool)| pool.clone())
    };
    let config = AnchorConfig {
        port: TUNNEL_PORT,
        pool_v4: of(true),
        pool_v6: of(false),
        max_paths: table.max_paths.unwrap_or(4_096),
        expiry: table.expiry.map_or(Span::from_secs(60), |d| d.0),
        rest: Span::ZERO,
        resting: Vec::new(),
        source: Source::Readings,
        allow_upmt: false,
    };
    let seed = builder.network.seed_of(END, number);
    let names = known.iter().map(|k| k.name.clone());
    let mut agent = AnchorAgent::new(config, names, seed);
    agent.recall(known);
    let prefixes: Vec<Prefix> = pools.iter().map(|(prefix, _)| *prefix).collect();
    let transit = builder.transit();
    let name = table.name.get_ref().clone();
    let network = &mut builder.network;
    let id = add_anchor(network, node, name.clone(), agent, &prefixes, |n| transit[n.0 as usize]);
    builder.anchors.insert(name, id);
}
