//! A network under construction, and the operations that tables use to build it.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_grammar::link::OverLink;
use segue_grammar::{
    Duration, End, Mistake, Name, Spanned, check_address, check_name, hint, named,
};
use segue_netem::LinkSpec;
use segue_sim::net::Adapter;
use segue_sim::role::Order;
use segue_sim::{AgentId, ChannelId, Network, NodeId, Role, RoleAgent};

use super::files::Files;

/// Network for nodes without an address; the host part is the node's number in the file.
const GIVEN: [u8; 2] = [10, 255];

/// Seeds of applications (`Network::seed_of`).
const APP: u64 = 0x61_7070;

/// Restarts a role at a virtual time, after a delay.
type Restart = fn(&mut Network, AgentId, Time, Span);

/// A network under construction.
pub(super) struct Builder<'a> {
    /// The network so far.
    pub(super) network: Network,
    /// Links by name.
    pub(super) links: Vec<(String, [ChannelId; 2])>,
    /// Inner addresses of hosts' nodes.
    pub(super) inner: BTreeMap<NodeId, Vec<IpAddr>>,
    /// Addresses that stock hosts will form from router advertisements, by interface.
    pub(super) homes: BTreeMap<(NodeId, u32), IpAddr>,
    limit: Span,
    nodes: BTreeMap<String, NodeId>,
    /// Name of each node, and whether it forwards packets for others.
    written: Vec<(Name, bool)>,
    addresses: BTreeMap<IpAddr, NodeId>,
    roles: BTreeMap<String, (AgentId, Restart)>,
    /// Names of objects that produce results.
    names: BTreeSet<String>,
    /// The owner's name, by node, protocol and port.
    ports: BTreeMap<(NodeId, u8, u16), String>,
    kept: BTreeMap<TypeId, Box<dyn Any>>,
    files: &'a Files,
    apps: u32,
    /// The first sender that would stop virtual time.
    pub(super) standstill: Option<Mistake>,
}

impl<'a> Builder<'a> {
    /// A network without nodes; times in the file are at most `limit`.
    pub(super) fn new(seed: u64, limit: Span, files: &'a Files) -> Builder<'a> {
        Builder {
            network: Network::new(seed),
            links: Vec::new(),
            inner: BTreeMap::new(),
            homes: BTreeMap::new(),
            limit,
            nodes: BTreeMap::new(),
            written: Vec::new(),
            addresses: BTreeMap::new(),
            roles: BTreeMap::new(),
            names: BTreeSet::new(),
            ports: BTreeMap::new(),
            kept: BTreeMap::new(),
            files,
            apps: 0,
            standstill: None,
        }
    }

    /// Shared state of the tables of one kind and their events: one value per type.
    pub(super) fn kept<T: Default + 'static>(&mut self) -> &mut T {
        let kept = self.kept.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        kept.downcast_mut().expect("it stands under its type")
    }

    /// A seed for the next application.
    pub(super) fn app_seed(&mut self) -> u64 {
        self.apps += 1;
        self.network.seed_of(APP, self.apps)
    }

    /// The text of a file that the scenario refers to.
    pub(super) fn read_file(&self, name: &Name) -> Result<Arc<str>, Mistake> {
        self.files.read(name.get_ref()).map_err(Mistake::at(name))
    }

    /// The link parameters, up and down, of the link or cell with this name.
    pub(super) fn specs<T>(
        &self,
        link: &OverLink<T>,
        name: &Name,
    ) -> Result<[LinkSpec; 2], Mistake> {
        link.specs(name, |file| self.files.losses(file))
    }

    /// The channels of the link with this name, up and down.
    pub(super) fn link(&self, name: &Name) -> Result<[ChannelId; 2], Mistake> {
        let links = self.links.iter().cloned().collect();
        named("link", name, &links)
    }

    /// Adds a node.
    pub(super) fn add_node(&mut self, name: &Name, transit: bool) -> Result<NodeId, Mistake> {
        check_name(name)?;
        let id = self.network.add_node(name.get_ref());
        if self.nodes.insert(name.get_ref().clone(), id).is_some() {
            return Err(Mistake::of(name, format!("there is another node {}", name.get_ref())));
        }
        self.written.push((name.clone(), transit));
        Ok(id)
    }

    /// Assigns an address to a node; fails if another node has it. `place` is where the file states it.
    pub(super) fn own<T>(
        &mut self,
        id: NodeId,
        ip: IpAddr,
        place: &Spanned<T>,
    ) -> Result<(), Mistake> {
        check_address(ip, place)?;
        match self.addresses.insert(ip, id) {
            None => Ok(()),
            Some(other) => {
                let other = &self.network.node(other).name;
                Err(Mistake::of(place, format!("{other} has the address {ip}")))
            }
        }
    }

    /// The node with this name.
    pub(super) fn node(&self, name: &Name) -> Result<NodeId, Mistake> {
        named("node", name, &self.nodes)
    }

    /// The node of an end.
    pub(super) fn end_node(&self, end: &Spanned<End>) -> Result<NodeId, Mistake> {
        self.node(&Spanned::new(end.span(), end.get_ref().node.clone()))
    }

    /// Adds an interface with these addresses to a node.
    pub(super) fn add_end(
        &mut self,
        id: NodeId,
        interface: &str,
        addresses: impl IntoIterator<Item = Spanned<IpAddr>>,
        end: &Spanned<End>,
    ) -> Result<u32, Mistake> {
        let node = &end.get_ref().node;
        if self.network.node(id).interfaces().any(|known| known.name == interface) {
            let message = format!("{node} has another interface {interface}");
            return Err(Mistake::of(end, message));
        }
        let index = self.network.add_interface(id, interface);
        for address in addresses {
            self.own(id, *address.get_ref(), &address)?;
            let adapter = &mut self.network.node_mut(id).adapters[index as usize - 1];
            adapter.interface.addresses.push(address.into_inner());
        }
        Ok(index)
    }

    /// True if a host forms this address from router advertisements; its route is only known during the run.
    pub(super) fn is_home(&self, address: IpAddr) -> bool {
        self.homes.values().any(|home| *home == address)
    }

    /// True if a node has this address.
    pub(super) fn owned(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// Returns a function that reports whether a node forwards packets for others.
    pub(super) fn transit(&self) -> impl Fn(NodeId) -> bool + use<> {
        let transit: Vec<bool> = self.written.iter().map(|(_, transit)| *transit).collect();
        move |node| transit[node.0 as usize]
    }

    /// Upper limit of times in the file.
    pub(super) fn limit(&self) -> Span {
        self.limit
    }

    /// Assigns an address to each node without one.
    pub(super) fn give_addresses(&mut self) -> Result<(), Mistake> {
        for (number, (name, _)) in (0..).zip(self.written.clone()) {
            let node = self.network.node(NodeId(number));
            let of_interfaces = node.interfaces().any(|i| !i.addresses.is_empty());
            if of_interfaces || !node.addresses.is_empty() {
                continue;
            }
            let [_, _, high, low] = (number + 1).to_be_bytes();
            let address = IpAddr::from([GIVEN[0], GIVEN[1], high, low]);
            self.own(NodeId(number), address, &name)?;
            self.network.node_mut(NodeId(number)).addresses.push(address);
        }
        Ok(())
    }

    /// Installs the shortest paths at all nodes.
    pub(super) fn find_routes(&mut self) {
        let transit = self.transit();
        for node in (0..self.written.len() as u32).map(NodeId) {
            self.network.node_mut(node).forwards = transit(node);
        }
        self.network.route_all(&transit);
        self.network.route_cells(&transit);
    }

    /// The index of a node's interface by its name.
    pub(super) fn interface(&self, node: NodeId, name: &str) -> Result<u32, String> {
        let node = self.network.node(node);
        let mut interfaces = node.interfaces();
        interfaces.find(|known| known.name == name).map(|known| known.index).ok_or_else(|| {
            let known: Vec<&str> = node.interfaces().map(|i| i.name.as_str()).collect();
            format!("{} has no interface {name}{}", node.name, hint(name, &known))
        })
    }

    /// The interface of a node with this name, or the one to the neighbour with this name.
    pub(super) fn way_out(&self, node: NodeId, via: &str) -> Result<u32, String> {
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

    /// The addresses of an end. If it names an interface, the addresses of that interface; else the inner addresses of
    /// a tunnel and those formed from prefixes, then the node's, then those of its interfaces.
    pub(super) fn addresses(&self, end: &Spanned<End>, id: NodeId) -> Result<Vec<IpAddr>, Mistake> {
        let node = self.network.node(id);
        let Some(name) = &end.get_ref().interface else {
            let of_interfaces = node.interfaces().flat_map(|i| &i.addresses);
            let inner = self.inner.get(&id).into_iter().flatten();
            let inner = inner.chain(self.homes.range((id, 0)..=(id, u32::MAX)).map(|(_, ip)| ip));
            return Ok(inner.chain(&node.addresses).chain(of_interfaces).copied().collect());
        };
        let index = self.interface(id, name).map_err(Mistake::at(end))?;
        let own = node.adapter(index).map_or(&[][..], |a| &a.interface.addresses);
        let home = self.homes.get(&(id, index));
        let addresses: Vec<IpAddr> = home.into_iter().chain(own).copied().collect();
        if addresses.is_empty() {
            let message = format!("{}:{name} has no address of its own", node.name);
            return Err(Mistake::of(end, message));
        }
        Ok(addresses)
    }

    /// A time within the run.
    pub(super) fn within(&self, at: &Spanned<Duration>) -> Result<Time, Mistake> {
        let Span(ns) = at.get_ref().0;
        if ns > self.limit.0 {
            return Err(Mistake::of(at, format!("the run has ended by then, at {}", self.limit)));
        }
        Ok(Time(ns))
    }

    /// Reserves the name of an object with results; it must be unique.
    pub(super) fn take_name(&mut self, name: &Name) -> Result<(), Mistake> {
        check_name(name)?;
        let text = name.get_ref();
        if RESERVED.contains(&text.as_str()) {
            return Err(Mistake::of(name, format!("{text} is the name of other results")));
        }
        if !self.names.insert(text.clone()) {
            return Err(Mistake::of(name, format!("something else has the name {text}")));
        }
        Ok(())
    }

    /// Reserves ports for `owner`; fails if one of them is in use.
    pub(super) fn take_ports(
        &mut self,
        node: NodeId,
        protocol: u8,
        port: &Spanned<u16>,
        count: u16,
        owner: &str,
    ) -> Result<u16, Mistake> {
        let first = *port.get_ref();
        if first == 0 || first.checked_add(count - 1).is_none() {
            return Err(Mistake::of(port, "a port lies between 1 and 65535"));
        }
        for number in first..=first + (count - 1) {
            if let Some(other) = self.ports.get(&(node, protocol, number)) {
                let node = &self.network.node(node).name;
                let message = format!("port {number} of {node} is used by {other}");
                return Err(Mistake::of(port, message));
            }
        }
        self.mark_ports(node, protocol, first, count, owner);
        Ok(first)
    }

    /// Reserves the first free range of this many ports for `owner`.
    pub(super) fn free_ports(
        &mut self,
        node: NodeId,
        protocol: u8,
        from: u16,
        count: u16,
        owner: &str,
    ) -> u16 {
        let free = |first: &u16| {
            (*first..first + count).all(|n| !self.ports.contains_key(&(node, protocol, n)))
        };
        let range = (from..u16::MAX - count).step_by(usize::from(count));
        let first = { range }.find(free).unwrap_or(from);
        self.mark_ports(node, protocol, first, count, owner);
        first
    }

    fn mark_ports(&mut self, node: NodeId, protocol: u8, first: u16, count: u16, owner: &str) {
        for number in first..first + count {
            self.ports.insert((node, protocol, number), owner.to_owned());
        }
    }

    /// Registers a role by name, so that events can restart it.
    pub(super) fn add_role<R: Role>(&mut self, name: &str, id: AgentId) {
        let restart: Restart = |network, id, at, down| {
            let agent = network.agent_mut::<RoleAgent<R>>(id).expect("it is of this role");
            agent.order(at, Order::Restart(down));
        };
        self.roles.insert(name.to_owned(), (id, restart));
    }

    /// Crashes the role with this name, and starts it again after `down`.
    pub(super) fn restart(&mut self, name: &Name, at: Time, down: Span) -> Result<(), Mistake> {
        let (id, restart) = named("host", name, &self.roles)?;
        restart(&mut self.network, id, at, down);
        Ok(())
    }
}

/// Reserved names of results.
const RESERVED: [&str; 2] = ["link", "nodes"];
