//! Nodes, links, routes and events of a scenario as a network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_grammar::link::Way;
use segue_netem::LinkSpec;
use segue_sim::net::{Adapter, CellId, Hop, RadioId, Rule};
use segue_sim::{AgentId, ChannelId, Network, NodeId};
use toml::Spanned;

use super::beside::Beside;
use super::tables::{Address, End, File, Link, Name, Route};
use super::{Built, Mistake, air, events, hint, tcp, tunnels, udp};

/// Network for nodes without an address; the host part is the node's number in the file.
const GIVEN: [u8; 2] = [10, 255];
/// Network for mobile hosts' interfaces without an address; the host part is a number.
const PATHS: [u8; 2] = [10, 254];

/// A network under construction.
pub struct Builder<'a> {
    file: &'a File,
    /// The network so far.
    pub network: Network,
    end: Time,
    limit: Span,
    nodes: BTreeMap<&'a str, NodeId>,
    /// Links by name.
    pub links: Vec<(String, [ChannelId; 2])>,
    addresses: BTreeMap<IpAddr, NodeId>,
    /// Inner addresses of hosts' nodes.
    pub inner: BTreeMap<NodeId, Vec<IpAddr>>,
    /// Hosts by name.
    pub hosts: BTreeMap<String, AgentId>,
    /// Anchors by name.
    pub anchors: BTreeMap<String, AgentId>,
    /// Cells by name.
    pub cells: BTreeMap<String, CellId>,
    /// Radios by node and interface.
    pub radios: BTreeMap<String, RadioId>,
    /// Names of applications.
    pub names: BTreeSet<String>,
    /// Node, protocol and port, with the owner's name.
    pub ports: BTreeMap<(NodeId, u8, u16), String>,
    beside: &'a Beside,
    apps: u32,
}

/// Seeds of applications (`Network::seed_of`).
const APP: u64 = 0x61_7070;

impl<'a> Builder<'a> {
    /// Makes the network of a scenario.
    pub fn build(file: &'a File, limit: Span, beside: &'a Beside) -> Result<Built, Mistake> {
        let Span(duration) = file.duration.get_ref().0;
        if duration == 0 {
            return Err(Mistake::of(&file.duration, "a run of no time"));
        }
        let mut builder = Builder {
            file,
            network: Network::new(file.seed),
            end: Time(duration),
            limit,
            nodes: BTreeMap::new(),
            links: Vec::new(),
            addresses: BTreeMap::new(),
            inner: BTreeMap::new(),
            hosts: BTreeMap::new(),
            anchors: BTreeMap::new(),
            cells: BTreeMap::new(),
            radios: BTreeMap::new(),
            names: BTreeSet::new(),
            ports: BTreeMap::new(),
            beside,
            apps: 0,
        };
        builder.add_nodes()?;
        for link in &file.link {
            builder.add_link(link)?;
        }
        file.cell.iter().try_for_each(|cell| air::add_cell(&mut builder, cell))?;
        file.walk.iter().try_for_each(|walk| air::add_radio(&mut builder, walk))?;
        builder.give_addresses()?;
        file.nat.iter().try_for_each(|nat| air::add_nat(&mut builder, nat))?;
        builder.find_routes();
        file.walk.iter().try_for_each(|walk| air::add_walk(&mut builder, walk))?;
        for route in &file.route {
            builder.add_route(route)?;
        }
        tunnels::add(&mut builder, &file.anchor, &file.host)?;
        builder.add_applications()?;
        file.event.iter().try_for_each(|event| events::add(&mut builder, event))?;
        let Builder { network, end, links, .. } = builder;
        Ok(Built { network, end, links })
    }

    fn add_applications(&mut self) -> Result<(), Mistake> {
        let file = self.file;
        file.tcp.iter().try_for_each(|table| tcp::add(self, table))?;
        file.ftp.iter().try_for_each(|table| tcp::add_ftp(self, table))?;
        file.web.iter().try_for_each(|table| tcp::add_web(self, table))?;
        file.voip.iter().try_for_each(|table| udp::add_voip(self, table))?;
        file.video.iter().try_for_each(|table| udp::add_video(self, table))?;
        file.conference.iter().try_for_each(|table| udp::add_conference(self, table))
    }

    /// A seed for the next application.
    pub fn app_seed(&mut self) -> u64 {
        self.apps += 1;
        self.network.seed_of(APP, self.apps)
    }

    /// The text of a file that the scenario names.
    pub fn read_beside(&self, name: &Name) -> Result<Arc<str>, Mistake> {
        self.beside.read(name.get_ref()).map_err(|message| Mistake::of(name, message))
    }

    /// A direction of the link or cell with this name, with its recorded losses.
    pub fn loaded(&self, way: Way, name: &Name) -> Result<LinkSpec, Mistake> {
        let way = way.load(|file| self.beside.losses(file));
        way.map(Way::spec).map_err(|message| Mistake::beside(name, "loss", message))
    }

    /// A host's node.
    pub fn host_node(&self, host: &str) -> Option<NodeId> {
        let table = self.file.host.iter().find(|table| table.name.get_ref() == host)?;
        self.node(&table.node).ok()
    }

    fn add_nodes(&mut self) -> Result<(), Mistake> {
        for node in &self.file.node {
            check_name(&node.name)?;
            let id = self.network.add_node(node.name.get_ref());
            if self.nodes.insert(node.name.get_ref(), id).is_some() {
                let message = format!("there is another node {}", node.name.get_ref());
                return Err(Mistake::of(&node.name, message));
            }
            for address in &node.addresses {
                self.own(id, address)?;
                self.network.node_mut(id).addresses.push(address.get_ref().0);
            }
        }
        Ok(())
    }

    /// Gives an address to a node; fails if another has it.
    pub fn own(&mut self, id: NodeId, address: &Spanned<Address>) -> Result<(), Mistake> {
        let ip = address.get_ref().0;
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(Mistake::of(address, format!("{ip} is no address of a node")));
        }
        match self.addresses.insert(ip, id) {
            None => Ok(()),
            Some(other) => {
                let other = &self.network.node(other).name;
                Err(Mistake::of(address, format!("{other} has the address {ip}")))
            }
        }
    }

    /// The node with this name.
    pub fn node(&self, name: &Name) -> Result<NodeId, Mistake> {
        self.node_named(name.get_ref()).map_err(|message| Mistake::of(name, message))
    }

    /// The node with this name.
    pub fn node_named(&self, name: &str) -> Result<NodeId, String> {
        self.nodes.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = self.nodes.keys().copied().collect();
            format!("there is no node {name}{}", hint(name, &known))
        })
    }

    fn add_link(&mut self, link: &Link) -> Result<(), Mistake> {
        check_name(&link.name)?;
        let name = link.name.get_ref();
        if self.links.iter().any(|(known, _)| known == name) {
            return Err(Mistake::of(&link.name, format!("there is another link {name}")));
        }
        let mut ends = Vec::new();
        for (end, addresses) in link.ends.iter().zip(&link.addresses) {
            ends.push(self.add_end(name, end, addresses)?);
            if ends[0].0 == ends[ends.len() - 1].0 && ends.len() == 2 {
                let message = format!("a link from {} to itself", end.get_ref().node);
                return Err(Mistake::of(end, message));
            }
        }
        let [there, back] = link.ways();
        let there = self.loaded(there, &link.name)?;
        let back = self.loaded(back, &link.name)?;
        for (way, spec) in [("up", &there), ("down", &back)] {
            spec.check().map_err(|e| Mistake::of(&link.name, format!("{way}: {e}")))?;
        }
        let channels = self.network.connect(ends[0], ends[1], there, back);
        let (up, down) = channels.expect("both were checked");
        self.links.push((name.clone(), [up, down]));
        Ok(())
    }

    fn add_end(
        &mut self,
        link: &str,
        end: &Spanned<End>,
        addresses: &[Spanned<Address>],
    ) -> Result<(NodeId, u32), Mistake> {
        let End { node, interface } = end.get_ref();
        let id = self.node_named(node).map_err(|message| Mistake::of(end, message))?;
        let interface = interface.as_deref().unwrap_or(link);
        let index = self.add_end_named(id, interface, addresses, end)?;
        Ok((id, index))
    }

    /// Adds an interface with these addresses to a node.
    pub fn add_end_named(
        &mut self,
        id: NodeId,
        interface: &str,
        addresses: &[Spanned<Address>],
        end: &Spanned<End>,
    ) -> Result<u32, Mistake> {
        let node = &end.get_ref().node;
        if self.network.node(id).interfaces().any(|known| known.name == interface) {
            let message = format!("{node} has another interface {interface}");
            return Err(Mistake::of(end, message));
        }
        let index = self.network.add_interface(id, interface);
        for address in addresses {
            self.own(id, address)?;
            let adapter = &mut self.network.node_mut(id).adapters[index as usize - 1];
            adapter.interface.addresses.push(address.get_ref().0);
        }
        Ok(index)
    }

    /// Whether a node has this address.
    pub fn owned(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// Which nodes carry packets for others.
    pub fn transit(&self) -> Vec<bool> {
        self.file.node.iter().map(|node| node.transit).collect()
    }

    /// Upper bound of times in the file.
    pub fn limit(&self) -> Span {
        self.limit
    }

    /// Gives an address to each node without one, and to each wired interface of a mobile host.
    fn give_addresses(&mut self) -> Result<(), Mistake> {
        let mut given = 0u32;
        for host in &self.file.host {
            let id = self.node(&host.node)?;
            for place in 0..self.network.node(id).adapters.len() {
                let adapter = &self.network.node(id).adapters[place];
                if adapter.air || !adapter.interface.addresses.is_empty() {
                    continue;
                }
                given += 1;
                let [_, _, high, low] = given.to_be_bytes();
                let address = IpAddr::from([PATHS[0], PATHS[1], high, low]);
                self.own(id, &Spanned::new(host.node.span(), Address(address)))?;
                let adapter = &mut self.network.node_mut(id).adapters[place];
                adapter.interface.addresses.push(address);
            }
        }
        for (number, written) in self.file.node.iter().enumerate() {
            let id = self.nodes[written.name.get_ref().as_str()];
            let node = self.network.node(id);
            let of_interfaces = node.interfaces().any(|i| !i.addresses.is_empty());
            if of_interfaces || !node.addresses.is_empty() {
                continue;
            }
            let [_, _, high, low] = (number as u32 + 1).to_be_bytes();
            let address = IpAddr::from([GIVEN[0], GIVEN[1], high, low]);
            let address = Spanned::new(written.name.span(), Address(address));
            self.own(id, &address)?;
            self.network.node_mut(id).addresses.push(address.get_ref().0);
        }
        Ok(())
    }

    fn find_routes(&mut self) {
        let transit = self.transit();
        for (node, transit) in (0..).map(NodeId).zip(&transit) {
            self.network.node_mut(node).forwards = *transit;
        }
        self.network.route_all(|node| transit[node.0 as usize]);
        self.network.route_cells(|node| transit[node.0 as usize]);
    }

    fn add_route(&mut self, route: &Route) -> Result<(), Mistake> {
        let node = self.node(&route.node)?;
        if let Some(dscp) = route.dscp.as_ref().filter(|dscp| *dscp.get_ref() > 63) {
            return Err(Mistake::of(dscp, "a code point lies between 0 and 63"));
        }
        let hop = match route.via.get_ref().as_str() {
            "reject" => Hop::Reject,
            via => Hop::Interface(self.way_out(node, via).map_err(|m| Mistake::of(&route.via, m))?),
        };
        self.network.node_mut(node).routes.add_rule(Rule {
            from: route.from.as_ref().map(|p| p.get_ref().0),
            to: route.to.as_ref().map(|p| p.get_ref().0),
            dscp: route.dscp.as_ref().map(|dscp| *dscp.get_ref()),
            protocol: route.protocol.map(|p| p.0),
            dport: route.dport,
            hop,
        });
        Ok(())
    }

    /// The interface of a node with this name, or the one to the neighbour with this name.
    pub fn way_out(&self, node: NodeId, via: &str) -> Result<u32, String> {
        let at = self.network.node(node);
        let named = |adapter: &&Adapter| {
            let neighbour = adapter.out.map(|out| self.network.channel(out).to.0);
            let leads_there = |n| self.network.node(n).name == via;
            adapter.interface.name == via || neighbour.is_some_and(leads_there)
        };
        let found = at.adapters.iter().filter(named).map(|adapter| adapter.interface.index);
        let found: Vec<u32> = found.collect();
        match found[..] {
            [index] => Ok(index),
            [] => {
                let known: Vec<&str> = at.interfaces().map(|i| i.name.as_str()).collect();
                let name = &at.name;
                Err(format!("{name} has no interface or neighbour {via}{}", hint(via, &known)))
            }
            _ => Err(format!("{via} is reached over several interfaces: name one of them")),
        }
    }

    /// A time within the run.
    pub fn within(&self, at: &Spanned<segue_grammar::Duration>) -> Result<Time, Mistake> {
        let Span(ns) = at.get_ref().0;
        if ns > self.limit.0 {
            return Err(Mistake::of(at, format!("the run has ended by then, at {}", self.limit)));
        }
        Ok(Time(ns))
    }
}

/// Checks a name, since names are parts of dotted keys and of columns.
pub fn check_name(name: &Name) -> Result<(), Mistake> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.get_ref().is_empty() || !name.get_ref().chars().all(fits) {
        let message = format!("{:?}: a name has letters, digits, - and _", name.get_ref());
        return Err(Mistake::of(name, message));
    }
    Ok(())
}
