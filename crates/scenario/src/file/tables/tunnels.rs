//! `[[host]]` and `[[anchor]]`: the ends of Segue's tunnels.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use segue_clock::Span;
use segue_grammar::{
    Address, Duration, End, EventKeys, KeepaliveKeys, Mistake, Name, PathKeys, Paths, PrefixText,
    SteeringKeys, complete, named,
};
use segue_ip::Prefix;
use segue_keepalive::MeasuredBy;
use segue_sim::net::Adapter;
use segue_sim::tunnel::{
    AnchorAgent, AnchorRole, HostAgent, HostOrder, HostRole, add_anchor, add_host,
};
use segue_sim::{AgentId, NodeId};
use segue_tunnel::{AnchorConfig, HostConfig, HostInput, Known, PathConfig, Pool};
use segue_wire::{Encapsulation, SIGNAL_PORT, TUNNEL_PORT};
use serde::Deserialize;
use toml::Spanned;

use super::apps::UDP;
use crate::file::builder::Builder;
use crate::file::event::{EventKind, RESTART};
use crate::file::reach;
use crate::file::table::{Kind, Table};

/// Anchors need no restart event of their kind: a host's restarts any role.
pub(super) const HOST: Kind = Kind::of::<Host>("host", &[RESTART, HANDOVER]).completed(complete);
pub(super) const ANCHOR: Kind = Kind::of::<Anchor>("anchor", &[]);

/// Pool for hosts of an anchor without one.
const POOL: ([u8; 4], u8) = ([10, 7, 0, 0], 16);
/// Network for hosts' interfaces without an address; the host part is a sequence number.
const PATHS: [u8; 2] = [10, 254];
/// Seeds of tunnel ends (`Network::seed_of`).
const END: u64 = 0x0065_6e64;

/// Shared state of the tables.
#[derive(Default)]
struct Ends {
    anchors: BTreeMap<String, Planned>,
    hosts: BTreeMap<String, (NodeId, AgentId)>,
    /// The hosts that each anchor knows.
    known: BTreeMap<String, Vec<Known>>,
    /// Number of addresses assigned to hosts' interfaces.
    given: u32,
    /// Number of ends with a seed.
    seeds: u32,
}

/// An anchor without an agent yet.
#[derive(Clone)]
struct Planned {
    node: NodeId,
    /// Its outer addresses.
    addresses: Vec<IpAddr>,
    pools: Vec<Pool>,
}

/// An anchor.
#[derive(Deserialize)]
struct Anchor {
    /// Prefix of its results.
    name: Name,
    /// Its location: a node, or an interface whose address it uses.
    node: Spanned<End>,
    /// Inner addresses that it assigns: at most one IPv4 and one IPv6 prefix.
    #[serde(default)]
    pool: Vec<Spanned<PrefixText>>,
    /// Maximum number of paths of all hosts together.
    max_paths: Option<u32>,
    /// Time after which a silent host is forgotten.
    expiry: Option<Duration>,
}

/// A mobile host.
#[derive(Deserialize)]
struct Host {
    /// Prefix of its results, and its name at the anchor.
    name: Name,
    /// Its node.
    node: Name,
    /// Its anchor, by name.
    anchor: Name,
    /// Its inner addresses; by default, the next free ones of the anchor's pool.
    #[serde(default)]
    inner: Vec<Spanned<Address>>,
    /// How its paths are probed, as in a host's file.
    #[serde(default)]
    keepalive: KeepaliveKeys,
    /// Settings for the path of an interface, as in a host's file.
    #[serde(default)]
    path: BTreeMap<String, PathKeys>,
    /// How flows move, as in a host's file.
    #[serde(default)]
    steering: SteeringKeys,
}

impl Table for Anchor {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        builder.take_name(&self.name)?;
        let node = builder.end_node(&self.node)?;
        let addresses = builder.addresses(&self.node, node)?;
        take_ports(builder, node, &self.node, &self.name)?;
        let default = [Spanned::new(self.name.span(), PrefixText(Prefix::new(POOL.0, POOL.1)))];
        let written = if self.pool.is_empty() { &default[..] } else { &self.pool };
        let mut pools: Vec<Pool> = Vec::new();
        for text in written {
            let PrefixText(prefix) = *text.get_ref();
            let Some(pool) = Pool::new(prefix.network()) else {
                return Err(Mistake::of(text, "a pool needs room for the anchor and a host"));
            };
            if pools.iter().any(|known| is_v4(known) == is_v4(&pool)) {
                return Err(Mistake::of(text, "an anchor has one pool of each family"));
            }
            builder.own(node, pool.anchor(), text)?;
            pools.push(pool);
        }
        if let Some(paths) = self.max_paths.filter(|paths| !(2..=1 << 20).contains(paths)) {
            let message = format!("{paths} does not lie between 2 and {}", 1 << 20);
            return Err(Mistake::beside(&self.name, "max_paths", message));
        }
        if self.expiry.is_some_and(|expiry| expiry.0 == Span::ZERO) {
            return Err(Mistake::beside(&self.name, "expiry", "must be above zero"));
        }
        let planned = Planned { node, addresses, pools };
        builder.kept::<Ends>().anchors.insert(self.name.get_ref().clone(), planned);
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let name = self.name.get_ref().clone();
        let seed = seed(builder);
        let Ends { anchors, known, .. } = builder.kept();
        let Planned { node, pools, .. } = anchors[&name].clone();
        let known = known.remove(&name).unwrap_or_default();
        let of = |v4: bool| pools.iter().find(|pool| is_v4(pool) == v4).copied();
        let config = AnchorConfig {
            port: TUNNEL_PORT,
            pool_v4: of(true),
            pool_v6: of(false),
            max_paths: self.max_paths.unwrap_or(4_096),
            expiry: self.expiry.map_or(Span::from_secs(60), |d| d.0),
            rest: Span::ZERO,
            resting: Vec::new(),
            measured_by: MeasuredBy::PacketPath,
            largest: None,
            allow_upmt: false,
        };
        let prefixes: Vec<Prefix> = pools.iter().map(Pool::prefix).collect();
        let names = known.iter().map(|k| k.name.clone());
        let mut agent = AnchorAgent::new(config, names, seed);
        agent.recall(known);
        let transit = builder.transit();
        let network = &mut builder.network;
        let id = add_anchor(network, node, name.clone(), agent, &prefixes, transit);
        builder.add_role::<AnchorRole>(&name, id);
        Ok(())
    }
}

impl Table for Host {
    /// Assigns an address to each wired interface without one.
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.node)?;
        for place in 0..builder.network.node(node).adapters.len() {
            let adapter = &builder.network.node(node).adapters[place];
            if adapter.air || !adapter.interface.addresses.is_empty() {
                continue;
            }
            let given = &mut builder.kept::<Ends>().given;
            *given += 1;
            let [_, _, high, low] = given.to_be_bytes();
            let address = IpAddr::from([PATHS[0], PATHS[1], high, low]);
            builder.own(node, address, &self.node)?;
            let adapter = &mut builder.network.node_mut(node).adapters[place];
            adapter.interface.addresses.push(address);
        }
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let seed = seed(builder);
        let anchor = named("anchor", &self.anchor, &builder.kept::<Ends>().anchors)?;
        builder.take_name(&self.name)?;
        let node = builder.node(&self.node)?;
        take_ports(builder, node, &self.node, &self.name)?;
        self.expect_reach(builder, node, &anchor)?;
        let inner = self.inner_addresses(builder, &anchor, node)?;
        builder.inner.insert(node, inner.clone());
        let Paths { path, paths, steering } = self.paths(builder, node)?;
        let config = HostConfig {
            anchor: anchor.addresses.iter().map(|a| SocketAddr::new(*a, TUNNEL_PORT)).collect(),
            epoch: 1,
            port: TUNNEL_PORT,
            path,
            paths,
            steering: steering.into(),
            measured_by: MeasuredBy::PacketPath,
            largest: None,
        };
        let name = self.name.get_ref().clone();
        let pools: Vec<Prefix> = anchor.pools.iter().map(Pool::prefix).collect();
        let agent = HostAgent::new(name.clone(), config, seed);
        let id = add_host(&mut builder.network, node, name.clone(), agent, &pools);
        builder.add_role::<HostRole>(&name, id);
        let Ends { hosts, known, .. } = builder.kept();
        let known = known.entry(self.anchor.get_ref().clone()).or_default();
        known.push(Known { name: name.clone(), epoch: 0, inner });
        hosts.insert(name, (node, id));
        Ok(())
    }
}

impl Host {
    /// How its paths are probed and its flows move.
    fn paths(&self, builder: &Builder<'_>, node: NodeId) -> Result<Paths, Mistake> {
        let mut all = Paths::validate(&self.keepalive, &self.path, &self.steering, true)
            .map_err(|error| Mistake::of(&self.name, format!("{error:#}")))?;
        for name in all.paths.keys() {
            let found = builder.interface(node, name);
            found.map_err(|message| Mistake::beside(&self.name, "path", message))?;
        }
        let upmt = |path: &PathConfig| path.encapsulation == Encapsulation::Upmt;
        if all.paths.values().chain([&all.path]).any(upmt) {
            return Err(Mistake::beside(&self.name, "path", "upmt is not simulated: leave it out"));
        }
        // By default, probes would ride with adaptive probing; here they ride only if the file says so.
        all.path.keepalive.rides = self.keepalive.asks_for_rides();
        for (name, path) in &mut all.paths {
            path.keepalive.rides = self.path[name].keepalive.asks_for_rides();
        }
        Ok(all)
    }

    /// Its inner addresses, one per pool: those given, or those that the anchor would assign.
    fn inner_addresses(
        &self,
        builder: &mut Builder<'_>,
        anchor: &Planned,
        node: NodeId,
    ) -> Result<Vec<IpAddr>, Mistake> {
        let mut inner = Vec::new();
        for address in &self.inner {
            let Address(ip) = *address.get_ref();
            if !anchor.pools.iter().any(|pool| pool.prefix().contains(ip)) {
                let message = format!("{ip} is not in a pool of {}", self.anchor.get_ref());
                return Err(Mistake::of(address, message));
            }
            builder.own(node, ip, address)?;
            inner.push(ip);
        }
        for pool in &anchor.pools {
            if inner.iter().any(|ip| ip.is_ipv4() == is_v4(pool)) {
                continue;
            }
            // The first two are the addresses of the network and of the anchor.
            let mut candidates = (2..u32::MAX).map_while(|n| pool.prefix().nth(n));
            let Some(ip) = candidates.find(|ip| !builder.owned(*ip)) else {
                return Err(Mistake::of(&self.anchor, "its pool has no address left"));
            };
            builder.own(node, ip, &self.name)?;
            inner.push(ip);
        }
        Ok(inner)
    }

    /// Checks that host and anchor reach each other over at least one of the host's interfaces. A radio has no cell
    /// before the run.
    fn expect_reach(
        &self,
        builder: &Builder<'_>,
        node: NodeId,
        anchor: &Planned,
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
                let both =
                    reach::follow_over(network, node, index, &there).and_then(|translated| {
                        if translated {
                            Ok(true)
                        } else {
                            reach::follow(network, anchor.node, &back)
                        }
                    });
                match both {
                    Ok(_) => return Ok(()),
                    Err(message) => problem = message,
                }
            }
        }
        let name = self.anchor.get_ref();
        Err(Mistake::of(&self.anchor, format!("{name} is out of reach: {problem}")))
    }
}

/// Reserves the ports of tunnels and signalling.
fn take_ports<T>(
    builder: &mut Builder<'_>,
    node: NodeId,
    place: &Spanned<T>,
    owner: &Name,
) -> Result<(), Mistake> {
    for port in [TUNNEL_PORT, SIGNAL_PORT] {
        let port = Spanned::new(place.span(), port);
        builder.take_ports(node, UDP, &port, 1, owner.get_ref())?;
    }
    Ok(())
}

/// A seed for the next end.
fn seed(builder: &mut Builder<'_>) -> u64 {
    let seeds = &mut builder.kept::<Ends>().seeds;
    *seeds += 1;
    let number = *seeds;
    builder.network.seed_of(END, number)
}

/// Orders a host to move all its flows to the interface `to`; without `to`, withdraws an earlier order.
const HANDOVER: EventKind = EventKind {
    keys: EventKeys { name: "handover", with: &["to"] },
    add: |builder, event, at, name| {
        let Ends { anchors, hosts, .. } = builder.kept();
        if anchors.contains_key(name.get_ref()) {
            return Err(Mistake::of(name, format!("{} is an anchor", name.get_ref())));
        }
        let (node, id) = named("host", name, hosts)?;
        let to: Option<Name> = event.placed("to")?;
        if let Some(to) = &to {
            builder.interface(node, to.get_ref()).map_err(Mistake::at(to))?;
        }
        let to = to.map(Spanned::into_inner);
        let input = HostInput::Handover { flow: None, class: None, to };
        let agent = builder.network.agent_mut::<HostAgent>(id);
        agent.expect("it is a host").order(at, HostOrder::Own(Box::new(input)));
        Ok(())
    },
};

fn is_v4(pool: &Pool) -> bool {
    pool.prefix().addr.is_ipv4()
}
