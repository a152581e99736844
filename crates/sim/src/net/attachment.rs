//! Attachment of radios to cells, detachment, and walks from cell to cell.
//!
//! ```text
//!   router ── interface per radio ══ air link of the cell ══ radio's interface ── node
//!               host routes while attached                    out: the newest attachment
//! ```
//!
//! When a radio detaches, packets waiting for the air are lost, and packets on the air arrive.

use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Span;
use segue_ip::{DownReason, LinkEvent, Prefix};
use segue_netem::{LinkModel, Step, Walk};

use super::wireless::{Pair, Radio};
use super::{
    Adapter, CellConfig, CellId, Change, Channel, ChannelId, Hop, Network, NodeId, RadioConfig,
    RadioId, WirelessError,
};

impl Network {
    /// Adds a cell to an access router.
    ///
    /// # Errors
    /// Invalid parameters of an air link.
    pub fn add_cell(&mut self, config: CellConfig) -> Result<CellId, WirelessError> {
        config.down.check()?;
        config.up.check()?;
        let router = self.node_mut(config.router);
        if let Some(gateway) = config.gateway.filter(|gateway| !router.owns(*gateway)) {
            router.addresses.push(gateway);
        }
        if let Some(prefix) = config.prefix {
            // Addresses of radios that are elsewhere must not leave again by a default route.
            router.routes.set(prefix, Hop::Reject);
        }
        self.wireless.cells.push(config);
        Ok(CellId(self.wireless.cells.len() as u32 - 1))
    }

    /// Turns an interface into a radio that is attached to no cell. Its node stops forwarding; the caller can set
    /// `forwards` again.
    ///
    /// # Errors
    /// The interface does not exist, is connected or is a radio already; or `at_once` is not 1 or 2.
    pub fn add_radio(&mut self, config: RadioConfig) -> Result<RadioId, WirelessError> {
        if !(1..=2).contains(&config.at_once) {
            return Err(WirelessError::AtOnce(config.at_once));
        }
        let adapter = self.node(config.node).adapter(config.interface);
        let adapter = adapter.ok_or(WirelessError::NoInterface(config.interface))?;
        if adapter.air || adapter.out.is_some() {
            return Err(WirelessError::Connected(config.interface));
        }
        let fixed = !adapter.interface.addresses.is_empty();
        let node = self.node_mut(config.node);
        node.adapter_mut(config.interface).air = true;
        node.forwards = false;
        self.wireless.radios.push(Radio { config, fixed });
        Ok(RadioId(self.wireless.radios.len() as u32 - 1))
    }

    /// A cell.
    #[must_use]
    pub fn cell(&self, id: CellId) -> Option<&CellConfig> {
        self.wireless.cells.get(id.0 as usize)
    }

    /// The channels between a cell and a radio (down, up), if they have met.
    #[must_use]
    pub fn air(&self, radio: RadioId, cell: CellId) -> Option<(ChannelId, ChannelId)> {
        let place = self.pair_place(radio, cell).ok()?;
        let Pair { down, up, .. } = self.wireless.pairs[place];
        Some((down, up))
    }

    /// Routes every cell's prefix to its router with the fewest hops ([`route_prefix`](Self::route_prefix)).
    /// Prefixes behind a translator get no routes at other nodes.
    pub fn route_cells(&mut self, transit: impl Fn(NodeId) -> bool) {
        for place in 0..self.wireless.cells.len() {
            let CellConfig { router, prefix, .. } = self.wireless.cells[place];
            if let Some(prefix) = prefix.filter(|_| self.node(router).nat().is_none()) {
                self.route_prefix(prefix, router, &transit);
            }
        }
    }

    /// Schedules the attachments of a walk. If the walk begins before the run, its first attachment happens at
    /// once.
    ///
    /// # Errors
    /// An impossible walk; nothing is scheduled.
    pub fn walk(&mut self, radio: RadioId, walk: &Walk<CellId>) -> Result<(), WirelessError> {
        let known = self.wireless.radios.get(radio.0 as usize);
        let at_once = known.ok_or(WirelessError::NoRadio(radio))?.config.at_once;
        walk.check()?;
        if walk.overlap > Span::ZERO && at_once < 2 {
            return Err(WirelessError::NoOverlap);
        }
        for cell in &walk.cells {
            self.meet(radio, *cell)?;
        }
        if walk.begin == self.now() && !self.started {
            self.attach(radio, walk.cells[0]);
        } else {
            self.schedule(walk.begin, Change::Attach(radio, walk.cells[0]));
        }
        for (at, step) in (0..walk.handovers).flat_map(|number| walk.handover(number)) {
            let change = match step {
                Step::Attach(cell) => Change::Attach(radio, cell),
                Step::Detach(cell) => Change::Detach(radio, cell),
                Step::Announce(cell, leaves) => Change::Announce(radio, cell, leaves),
            };
            self.schedule(at.max(self.now()), change);
        }
        Ok(())
    }

    /// Creates the air link between a radio and a cell before they meet, so that a trace that begins now includes
    /// it.
    ///
    /// # Errors
    /// The radio or the cell does not exist, or no air link between them is possible.
    pub fn prepare_air(&mut self, radio: RadioId, cell: CellId) -> Result<(), WirelessError> {
        self.meet(radio, cell).map(drop)
    }

    /// A router's interfaces towards radios.
    pub(super) fn air_interfaces(&self, router: NodeId) -> Vec<u32> {
        let here = |pair: &&Pair| self.wireless.cells[pair.cell.0 as usize].router == router;
        self.wireless.pairs.iter().filter(here).map(|pair| pair.interface).collect()
    }

    /// Node and interface at both ends of the air link (host first) between a radio and a cell, if the radio is
    /// attached to it.
    pub(super) fn air_ends(&self, radio: RadioId, cell: CellId) -> Option<[(NodeId, u32); 2]> {
        let pair = &self.wireless.pairs[self.pair_place(radio, cell).ok()?];
        let (router, host) = (self.channel(pair.down).from, self.channel(pair.down).to);
        let there = self.node(host.0).adapter(host.1)?.cells.contains(&cell);
        there.then_some([host, router])
    }

    /// The channels to all radios in the cell that this router interface belongs to; `None` if the interface
    /// belongs to no cell.
    pub(super) fn radios_beside(&self, router: NodeId, index: u32) -> Option<Vec<ChannelId>> {
        let own = |pair: &&Pair| self.channel(pair.down).from == (router, index);
        let cell = self.wireless.pairs.iter().find(own)?.cell;
        let all = self.wireless.pairs.iter().filter(|pair| pair.cell == cell);
        Some(all.filter_map(|p| self.node(router).adapter(p.interface)?.out).collect())
    }

    fn pair_place(&self, radio: RadioId, cell: CellId) -> Result<usize, usize> {
        self.wireless.pairs.binary_search_by_key(&(cell, radio), |pair| (pair.cell, pair.radio))
    }

    /// The pair of a radio and a cell. Creates their air link at the first meeting.
    fn meet(&mut self, radio: RadioId, cell: CellId) -> Result<usize, WirelessError> {
        let place = match self.pair_place(radio, cell) {
            Ok(place) => return Ok(place),
            Err(place) => place,
        };
        let config = self.cell(cell).ok_or(WirelessError::NoCell(cell))?.clone();
        let known = self.wireless.radios.get(radio.0 as usize);
        let Radio { config: host, fixed } = known.ok_or(WirelessError::NoRadio(radio))?.clone();
        let address = match config.prefix.filter(|_| !fixed) {
            None => None,
            Some(prefix) => {
                let earlier = self.wireless.pairs.iter().filter(|p| p.cell == cell);
                let number = earlier.filter(|p| p.address.is_some()).count() as u32 + 2;
                // Skip the router's own address.
                let taken = (2..=number)
                    .any(|n| prefix.nth(n) == config.gateway && prefix.nth(n).is_some());
                let own = prefix.nth(number + u32::from(taken));
                Some(own.ok_or(WirelessError::PrefixFull(cell))?)
            }
        };
        let name = {
            let node = self.node(host.node);
            let radio = node.adapter(host.interface);
            let radio = radio.map_or("", |a| a.interface.name.as_str());
            format!("{}.{radio}", node.name)
        };
        let interface = self.add_interface(config.router, name);
        let at = self.node_mut(config.router);
        let adapter = at.adapter_mut(interface);
        (adapter.air, adapter.of_cell) = (true, Some(cell));
        if let Some(nat) = &mut at.nat {
            nat.add_air(interface);
        }
        let (router, host) = ((config.router, interface), (host.node, host.interface));
        // The random sequence of an air link depends on its two ends, not on the time of their first meeting.
        let kind = |kind: u64| kind << 32 | u64::from(cell.0);
        let seeds = [0x646f_776e, 0x7570].map(|k| self.seed_of(kind(k), radio.0));
        let down = LinkModel::new(config.down, seeds[0], self.now())?;
        let up = LinkModel::new(config.up, seeds[1], self.now())?;
        let down = self.push_channel(Channel::new(router, host, down));
        let up = self.push_channel(Channel::new(host, router, up));
        self.wireless.pairs.insert(place, Pair { radio, cell, interface, down, up, address });
        Ok(place)
    }

    /// Attaches a radio to a cell. If the radio has reached its limit it leaves its oldest cell first. If it
    /// cannot attach because the cell's prefix is full, the observer is notified.
    pub(super) fn attach(&mut self, radio: RadioId, cell: CellId) {
        let place = match self.meet(radio, cell) {
            Ok(place) => place,
            Err(error) => {
                if let Some(Radio { config, .. }) = self.wireless.radios.get(radio.0 as usize) {
                    self.say(config.node, || format!("not attached: {error}"));
                }
                return;
            }
        };
        let pair = self.wireless.pairs[place].clone();
        let (node, index, at_once, fixed) = {
            let Radio { config, fixed } = &self.wireless.radios[radio.0 as usize];
            (config.node, config.interface, config.at_once as usize, *fixed)
        };
        let cells = &self.node_mut(node).adapter_mut(index).cells;
        if cells.contains(&cell) {
            return;
        }
        if cells.len() >= at_once {
            let oldest = cells[0];
            self.detach(radio, oldest);
        }
        let CellConfig { router, gateway, .. } = self.wireless.cells[cell.0 as usize];
        let Adapter { interface, cells, out, .. } = self.nodes[node.0 as usize].adapter_mut(index);
        cells.push(cell);
        interface.addresses.extend(pair.address);
        *out = Some(pair.up);
        interface.gateways = gateway.into_iter().collect();
        // Addresses that programs on the node gave to the interface are routed to it by others.
        let addresses =
            if fixed { interface.addresses.clone() } else { Vec::from_iter(pair.address) };
        let name = interface.name.clone();
        self.route_default(node, index, &addresses);
        let at = &mut self.nodes[router.0 as usize];
        at.adapter_mut(pair.interface).out = Some(pair.down);
        for address in &addresses {
            at.routes.set(Prefix::host(*address), Hop::Interface(pair.interface));
        }
        self.say(node, || format!("{name} attached to cell {}", cell.0));
        let ends = [(node, index), (router, pair.interface)];
        self.tell_air(cell, ends, |interface, poa| LinkEvent::Up { interface, poa });
        self.tell_interfaces(node);
        self.tell_interfaces(router);
    }

    /// Adds a default route over the radio if the node has none.
    fn route_default(&mut self, node: NodeId, index: u32, addresses: &[IpAddr]) {
        let routes = &mut self.nodes[node.0 as usize].routes;
        for address in addresses {
            let default = Prefix::default_of(address.is_ipv6());
            if routes.get(default).is_none() {
                routes.set(default, Hop::Interface(index));
            }
        }
    }

    /// Another interface over which a router still reaches a radio, and the radio's addresses there.
    fn other_way(&self, radio: RadioId, router: NodeId) -> Option<(u32, Vec<IpAddr>)> {
        let Radio { config, fixed } = self.wireless.radios.get(radio.0 as usize)?;
        let Adapter { interface, cells, .. } = self.node(config.node).adapter(config.interface)?;
        let here = |cell: &&CellId| self.wireless.cells[cell.0 as usize].router == router;
        let cell = cells.iter().rev().find(here)?;
        let pair = &self.wireless.pairs[self.pair_place(radio, *cell).ok()?];
        let own = || pair.address.into_iter().collect();
        Some((pair.interface, if *fixed { interface.addresses.clone() } else { own() }))
    }

    /// Detaches a radio from a cell; does nothing if it is not attached there.
    pub(super) fn detach(&mut self, radio: RadioId, cell: CellId) {
        let Ok(place) = self.pair_place(radio, cell) else { return };
        let pair = self.wireless.pairs[place].clone();
        let RadioConfig { node, interface: index, .. } =
            self.wireless.radios[radio.0 as usize].config;
        let Adapter { interface, cells, .. } = self.nodes[node.0 as usize].adapter_mut(index);
        let Some(place) = cells.iter().position(|known| *known == cell) else { return };
        cells.remove(place);
        interface.addresses.retain(|address| Some(*address) != pair.address);
        let (name, newest) = (interface.name.clone(), cells.last().copied());
        let addresses = interface.addresses.clone();
        let newest = newest.map(|cell| {
            let place = self.pair_place(radio, cell).expect("an attached pair has met");
            (self.wireless.pairs[place].up, self.wireless.cells[cell.0 as usize].gateway)
        });
        let adapter = self.nodes[node.0 as usize].adapter_mut(index);
        adapter.out = newest.map(|(up, _)| up);
        let gateway = newest.and_then(|(_, gateway)| gateway);
        adapter.interface.gateways = gateway.into_iter().collect();
        let router = self.wireless.cells[cell.0 as usize].router;
        let at = &mut self.nodes[router.0 as usize];
        at.adapter_mut(pair.interface).out = None;
        for address in addresses.into_iter().chain(pair.address) {
            let route = Prefix::host(address);
            // The radio may already be attached to another cell of this router.
            if at.routes.get(route) == Some(Hop::Interface(pair.interface)) {
                at.routes.remove(route);
            }
        }
        if let Some((interface, addresses)) = self.other_way(radio, router) {
            let routes = &mut self.nodes[router.0 as usize].routes;
            for address in addresses {
                routes.set(Prefix::host(address), Hop::Interface(interface));
            }
        }
        let now = self.now();
        for channel in [pair.down, pair.up] {
            self.channels[channel.0 as usize].flush(now);
            self.lose_in_flight(channel, |start| start > now);
        }
        self.say(node, || format!("{name} detached from cell {}", cell.0));
        let why = DownReason::ExplicitDisconnect;
        let ends = [(node, index), (router, pair.interface)];
        self.tell_air(cell, ends, |interface, poa| LinkEvent::Down { interface, poa, why });
        self.tell_interfaces(node);
        self.tell_interfaces(router);
    }
}
