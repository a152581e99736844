//! Wireless attachment: cells of access routers, radios that attach to them, and walks from cell to cell.
//!
//! A radio has a link of its own to every cell that it is attached to, with the cell's parameters in each
//! direction: cells do not share their rate among the hosts in them. Nothing is said here about fading;
//! the loss of a cell is that of its [`LinkSpec`].
//!
//! ```text
//!   router ── interface per radio ══ air link of the cell ══ radio's interface ── node
//!               host routes while attached                    out: the newest attachment
//! ```
//!
//! At a detachment what waits for the air is lost, and what is on the air arrives.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{DownReason, LinkEvent, Prefix};
use segue_netem::{LinkModel, LinkSpec, SpecError};

use super::{Adapter, Change, Channel, ChannelId, Hop, Network, NodeId};

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellId(pub u32);

/// Which radio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RadioId(pub u32);

/// The cell of an access router.
#[derive(Clone, Debug, PartialEq)]
pub struct CellConfig {
    /// The access router.
    pub router: NodeId,
    /// Its address on the air, the gateway of radios; it becomes one of the router's own.
    pub gateway: Option<IpAddr>,
    /// The prefix from which radios without an address of their own get one: the prefix's first address
    /// and a number, from 2.
    pub prefix: Option<Prefix>,
    /// The air link from router to host.
    pub down: LinkSpec,
    /// The air link from host to router.
    pub up: LinkSpec,
}

/// A node's interface that attaches to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioConfig {
    /// The node.
    pub node: NodeId,
    /// Its interface, which is connected to nothing. Addresses that it has are fixed: it keeps them, and
    /// routes to them from beyond the cell are others' concern. Without one it gets an address in each
    /// cell that has a prefix.
    pub interface: u32,
    /// Cells that it can be attached to at one time: 1, or 2 for make-before-break. Attaching to one more
    /// leaves the oldest.
    pub at_once: u32,
}

/// A way from cell to cell: attached to the first from its beginning, then to the next with every period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Who walks.
    pub radio: RadioId,
    /// Where it comes along.
    pub cells: Vec<CellId>,
    /// From the last cell it walks back; otherwise it stays there.
    pub back_and_forth: bool,
    /// When it attaches to the first cell.
    pub begin: Time,
    /// From its beginning to its first handover.
    pub first: Span,
    /// From one handover to the next.
    pub period: Span,
    /// How long it is attached to both cells; needs a radio that can.
    pub overlap: Span,
    /// How long it is attached to neither. One of the two is 0.
    pub gap: Span,
    /// How long before it leaves a cell that is announced; zero: never.
    pub notice: Span,
    /// How many handovers at most; those behind the end of a run cost nothing but their memory.
    pub handovers: u32,
}

impl Walk {
    /// A walk from time 0 back and forth, with a handover every `period`.
    #[must_use]
    pub fn new(radio: RadioId, cells: Vec<CellId>, period: Span, handovers: u32) -> Walk {
        Walk {
            radio,
            cells,
            back_and_forth: true,
            begin: Time::ZERO,
            first: period,
            period,
            overlap: Span::ZERO,
            gap: Span::ZERO,
            notice: Span::ZERO,
            handovers,
        }
    }

    /// The walk of host `turn` (from 0) of `hosts` who take turns: one handover in the period that was
    /// given, by one host after the other.
    #[must_use]
    pub fn taking_turns(mut self, turn: u32, hosts: u32) -> Walk {
        self.first = self.first + self.period * u64::from(turn);
        self.period = self.period * u64::from(hosts.max(1));
        self
    }

    /// Where the walk is after so many handovers: a place in the list of cells.
    fn place(&self, handovers: u32) -> usize {
        let last = self.cells.len() - 1;
        if !self.back_and_forth {
            return last.min(handovers as usize);
        }
        let at = handovers as usize % (2 * last).max(1);
        if at <= last { at } else { 2 * last - at }
    }
}

/// Parameters that make no cell, radio or walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WirelessError {
    /// The air link makes no link.
    Link(SpecError),
    /// The node has no interface with this index.
    NoInterface(u32),
    /// The radio's interface is connected, or a radio already.
    Connected(u32),
    /// A radio attaches to one cell at a time or to two.
    AtOnce(u32),
    /// A walk through fewer than two cells.
    FewCells,
    /// A cell stands twice in succession in a walk, the second time at this position.
    SameCell(usize),
    /// The period is 0, or no longer than overlap or gap.
    Period,
    /// Overlap and gap exclude each other.
    OverlapAndGap,
    /// An overlap for a radio that attaches to one cell at a time.
    NoOverlap,
    /// The cell's prefix has no address left.
    PrefixFull(CellId),
    /// There is no such cell.
    NoCell(CellId),
    /// There is no such radio.
    NoRadio(RadioId),
}

impl fmt::Display for WirelessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WirelessError::Link(error) => write!(f, "air link: {error}"),
            WirelessError::NoInterface(index) => write!(f, "the node has no interface {index}"),
            WirelessError::Connected(index) => {
                write!(f, "interface {index} is connected, a radio is not")
            }
            WirelessError::AtOnce(n) => {
                write!(f, "a radio attaches to 1 cell at a time or to 2, not to {n}")
            }
            WirelessError::FewCells => f.write_str("a walk needs two cells"),
            WirelessError::SameCell(i) => {
                write!(f, "cell {} of the walk is the one before it", i + 1)
            }
            WirelessError::Period => {
                f.write_str("the walk's period is not longer than its overlap or gap")
            }
            WirelessError::OverlapAndGap => f.write_str("a walk has an overlap or a gap, not both"),
            WirelessError::NoOverlap => {
                f.write_str("the walk has an overlap, but its radio attaches to one cell at a time")
            }
            WirelessError::PrefixFull(cell) => {
                write!(f, "the prefix of cell {} has no address left", cell.0)
            }
            WirelessError::NoCell(cell) => write!(f, "there is no cell {}", cell.0),
            WirelessError::NoRadio(radio) => write!(f, "there is no radio {}", radio.0),
        }
    }
}

impl core::error::Error for WirelessError {}

impl From<SpecError> for WirelessError {
    fn from(error: SpecError) -> WirelessError {
        WirelessError::Link(error)
    }
}

#[derive(Clone, Debug)]
struct Radio {
    config: RadioConfig,
    fixed: bool,
}

/// A radio and a cell that have met.
#[derive(Clone, Debug)]
struct Pair {
    radio: RadioId,
    cell: CellId,
    /// The router's interface towards this radio.
    interface: u32,
    down: ChannelId,
    up: ChannelId,
    /// The radio's address in this cell, if it gets one.
    address: Option<IpAddr>,
}

/// Cells, radios, and which have met.
#[derive(Clone, Debug, Default)]
pub(super) struct Wireless {
    cells: Vec<CellConfig>,
    radios: Vec<Radio>,
    /// By cell and radio, in ascending order.
    pairs: Vec<Pair>,
}

impl Network {
    /// Gives an access router a cell.
    ///
    /// # Errors
    /// An air link that makes no link.
    pub fn add_cell(&mut self, config: CellConfig) -> Result<CellId, WirelessError> {
        config.down.check()?;
        config.up.check()?;
        let router = self.node_mut(config.router);
        if let Some(gateway) = config.gateway.filter(|gateway| !router.owns(*gateway)) {
            router.addresses.push(gateway);
        }
        if let Some(prefix) = config.prefix {
            // Addresses of radios that are elsewhere: not out again by a default route.
            router.routes.set(prefix, Hop::Reject);
        }
        self.wireless.cells.push(config);
        Ok(CellId(self.wireless.cells.len() as u32 - 1))
    }

    /// Makes an interface a radio, attached to no cell. Its node forwards nothing, unless `forwards` is set
    /// again.
    ///
    /// # Errors
    /// An interface that cannot be one.
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

    /// The channels between a cell and a radio, down and up, if they have met.
    #[must_use]
    pub fn air(&self, radio: RadioId, cell: CellId) -> Option<(ChannelId, ChannelId)> {
        let place = self.pair_place(radio, cell).ok()?;
        let Pair { down, up, .. } = self.wireless.pairs[place];
        Some((down, up))
    }

    /// Routes every cell's prefix to its router, over fewest hops ([`route_prefix`](Self::route_prefix)). No other node
    /// gets a route to a prefix behind a translator.
    pub fn route_cells(&mut self, transit: impl Fn(NodeId) -> bool) {
        for place in 0..self.wireless.cells.len() {
            let CellConfig { router, prefix, .. } = self.wireless.cells[place];
            if let Some(prefix) = prefix.filter(|_| self.node(router).nat().is_none()) {
                self.route_prefix(prefix, router, &transit);
            }
        }
    }

    /// Lets a radio walk: its attachments are scheduled, and the first is made at once if the walk begins
    /// before the run.
    ///
    /// # Errors
    /// A walk that cannot be; then nothing is scheduled.
    pub fn walk(&mut self, walk: &Walk) -> Result<(), WirelessError> {
        self.check_walk(walk)?;
        for cell in &walk.cells {
            self.meet(walk.radio, *cell)?;
        }
        let attach = |cell| Change::Attach(walk.radio, cell);
        let detach = |cell| Change::Detach(walk.radio, cell);
        if walk.begin == self.now() && !self.started {
            self.attach(walk.radio, walk.cells[0]);
        } else {
            self.schedule(walk.begin, attach(walk.cells[0]));
        }
        for handover in 0..walk.handovers {
            let (from, to) = (walk.place(handover), walk.place(handover + 1));
            if from == to {
                break;
            }
            let (from, to) = (walk.cells[from], walk.cells[to]);
            let at = walk.begin + walk.first + walk.period * u64::from(handover);
            let leaves = at + walk.overlap;
            if walk.notice > Span::ZERO {
                let notice = Time(leaves.0.saturating_sub(walk.notice.0)).max(self.now());
                self.schedule(notice, Change::Announce(walk.radio, from, leaves));
            }
            if walk.overlap > Span::ZERO {
                self.schedule(at, attach(to));
                self.schedule(leaves, detach(from));
            } else {
                self.schedule(at, detach(from));
                self.schedule(at + walk.gap, attach(to));
            }
        }
        Ok(())
    }

    fn check_walk(&self, walk: &Walk) -> Result<(), WirelessError> {
        let radio = self.wireless.radios.get(walk.radio.0 as usize);
        let radio = radio.ok_or(WirelessError::NoRadio(walk.radio))?;
        if walk.cells.len() < 2 {
            return Err(WirelessError::FewCells);
        }
        if let Some(i) = walk.cells.windows(2).position(|pair| pair[0] == pair[1]) {
            return Err(WirelessError::SameCell(i + 1));
        }
        let both = walk.overlap > Span::ZERO && walk.gap > Span::ZERO;
        let shortest = walk.overlap.max(walk.gap);
        match () {
            () if both => Err(WirelessError::OverlapAndGap),
            () if walk.overlap > Span::ZERO && radio.config.at_once < 2 => {
                Err(WirelessError::NoOverlap)
            }
            () if walk.period <= shortest => Err(WirelessError::Period),
            () => Ok(()),
        }
    }

    /// A router's interfaces towards radios.
    pub(super) fn air_interfaces(&self, router: NodeId) -> Vec<u32> {
        let here = |pair: &&Pair| self.wireless.cells[pair.cell.0 as usize].router == router;
        self.wireless.pairs.iter().filter(here).map(|pair| pair.interface).collect()
    }

    /// Node and interface of both ends of the air link between a radio and the cell that it is attached to.
    pub(super) fn air_ends(&self, radio: RadioId, cell: CellId) -> Option<[(NodeId, u32); 2]> {
        let pair = &self.wireless.pairs[self.pair_place(radio, cell).ok()?];
        let (router, host) = (self.channel(pair.down).from, self.channel(pair.down).to);
        let there = self.node(host.0).adapter(host.1)?.cells.contains(&cell);
        there.then_some([host, router])
    }

    /// The ways to all radios in the cell of a router's interface, if that is a cell's.
    pub(super) fn radios_beside(&self, router: NodeId, index: u32) -> Option<Vec<ChannelId>> {
        let own = |pair: &&Pair| self.channel(pair.down).from == (router, index);
        let cell = self.wireless.pairs.iter().find(own)?.cell;
        let all = self.wireless.pairs.iter().filter(|pair| pair.cell == cell);
        Some(all.filter_map(|p| self.node(router).adapter(p.interface)?.out).collect())
    }

    fn pair_place(&self, radio: RadioId, cell: CellId) -> Result<usize, usize> {
        self.wireless.pairs.binary_search_by_key(&(cell, radio), |pair| (pair.cell, pair.radio))
    }

    /// The pair of a radio and a cell; at their first meeting they get their air link.
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
                Some(prefix.nth(number).ok_or(WirelessError::PrefixFull(cell))?)
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
        at.adapter_mut(interface).air = true;
        if let Some(nat) = &mut at.nat {
            nat.add_air(interface);
        }
        let (router, host) = ((config.router, interface), (host.node, host.interface));
        // The chance of an air link depends on the two ends of it, not on when they first met.
        let kind = |kind: u64| kind << 32 | u64::from(cell.0);
        let seeds = [0x646f_776e, 0x7570].map(|k| self.seed_of(kind(k), radio.0));
        let down = LinkModel::new(config.down, seeds[0], self.now())?;
        let up = LinkModel::new(config.up, seeds[1], self.now())?;
        let down = self.push_channel(Channel::new(router, host, down));
        let up = self.push_channel(Channel::new(host, router, up));
        self.wireless.pairs.insert(place, Pair { radio, cell, interface, down, up, address });
        Ok(place)
    }

    /// Attaches a radio to a cell; it leaves the oldest if it is attached to as many as it can be. What
    /// cannot be, because the cell's prefix is full, is told to the observer.
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
        let (node, index, at_once) = {
            let config = &self.wireless.radios[radio.0 as usize].config;
            (config.node, config.interface, config.at_once as usize)
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
        let addresses = interface.addresses.clone();
        let name = interface.name.clone();
        self.route_default(node, index, &addresses);
        let at = &mut self.nodes[router.0 as usize];
        at.adapter_mut(pair.interface).out = Some(pair.down);
        for address in &addresses {
            if pair.address.is_none_or(|own| own == *address) {
                at.routes.set(Prefix::host(*address), Hop::Interface(pair.interface));
            }
        }
        self.say(node, || format!("{name} attached to cell {}", cell.0));
        let ends = [(node, index), (router, pair.interface)];
        self.tell_air(cell, ends, |interface, poa| LinkEvent::Up { interface, poa });
        self.tell_interfaces(node);
        self.tell_interfaces(router);
    }

    /// A node without a default route gets one over its radio.
    fn route_default(&mut self, node: NodeId, index: u32, addresses: &[IpAddr]) {
        let routes = &mut self.nodes[node.0 as usize].routes;
        for address in addresses {
            let default = Prefix::default_of(address.is_ipv6());
            if routes.get(default).is_none() {
                routes.set(default, Hop::Interface(index));
            }
        }
    }

    /// The interface over which a router still reaches a radio, and the radio's addresses there.
    fn other_way(&self, radio: RadioId, router: NodeId) -> Option<(u32, Vec<IpAddr>)> {
        let Radio { config, fixed } = self.wireless.radios.get(radio.0 as usize)?;
        let Adapter { interface, cells, .. } = self.node(config.node).adapter(config.interface)?;
        let here = |cell: &&CellId| self.wireless.cells[cell.0 as usize].router == router;
        let cell = cells.iter().rev().find(here)?;
        let pair = &self.wireless.pairs[self.pair_place(radio, *cell).ok()?];
        let own = || pair.address.into_iter().collect();
        Some((pair.interface, if *fixed { interface.addresses.clone() } else { own() }))
    }

    /// Detaches a radio from a cell; nothing happens if it is not attached to it.
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
            // Another cell of this router may have the radio by now.
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
