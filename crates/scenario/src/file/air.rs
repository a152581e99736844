//! `[[cell]]`, `[[walk]]` and `[[nat]]`.

use segue_clock::{Span, Time};
use segue_grammar::link::Way as Parameters;
use segue_grammar::{Duration, link_table};
use segue_sim::net::{
    Behaviour, CellConfig, CellId, Change, NatConfig, RadioConfig, RadioId, Walk as Way,
};
use serde::Deserialize;
use toml::Spanned;

use super::network::{Builder, check_name};
use super::tables::{Address, End, Name, PrefixText};
use super::{Mistake, hint};

/// Most handovers of a walk.
const MAX_HANDOVERS: u64 = 1_000_000;

link_table! {
    /// The cell of an access router: a separate link for each radio in it, with `up` from the
    /// radio.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Cell {
        /// Unique among cells.
        pub name: Name,
        /// The access router.
        pub router: Name,
        /// Radios without an address get one from this prefix.
        pub prefix: Option<Spanned<PrefixText>>,
        /// The router's address on the air.
        pub gateway: Option<Spanned<Address>>,
        /// Parameters that differ from radio to router.
        pub up: Option<Parameters>,
        /// Parameters that differ from router to radio.
        pub down: Option<Parameters>,
    }
}

/// A radio, and where it goes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// The node and the name of its radio.
    pub node: Spanned<End>,
    /// Cells along its way; a single one if it stays there.
    pub cells: Spanned<Vec<Name>>,
    /// Addresses that it keeps; without, it gets one in each cell.
    #[serde(default)]
    pub addresses: Vec<Spanned<Address>>,
    /// When it attaches to the first cell.
    pub begin: Option<Spanned<Duration>>,
    /// Time from one handover to the next.
    pub period: Option<Duration>,
    /// Time from its beginning to the first handover; by default the period.
    pub first: Option<Duration>,
    /// How long it is attached to both cells.
    pub overlap: Option<Duration>,
    /// How long it is attached to neither.
    pub gap: Option<Duration>,
    /// It walks back from the last cell.
    pub back_and_forth: Option<bool>,
    /// Of this many hosts that take turns … …
    pub turns: Option<u32>,
    /// … it is this one, from 0.
    pub turn: Option<u32>,
}

/// An address translator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nat {
    /// Where it is.
    pub node: Name,
    /// Interfaces, or neighbours, on the inside.
    #[serde(default)]
    pub inside: Vec<Name>,
    /// Whether radios in the node's cells are inside, too.
    pub cells_inside: Option<bool>,
    /// The address seen from outside; by default the node's own.
    pub outside: Option<Spanned<Address>>,
    /// What the outside port depends on.
    pub mapping: Option<BehaviourName>,
    /// Which packets from outside come in.
    pub filtering: Option<BehaviourName>,
    /// How long a UDP mapping lives.
    pub udp_timeout: Option<Duration>,
    /// How long a TCP mapping lives.
    pub tcp_timeout: Option<Duration>,
    /// Whether packets from outside keep a mapping alive.
    pub inbound_refresh: Option<bool>,
    /// First and last outside port.
    pub ports: Option<(u16, u16)>,
}

/// Behaviour of a translator (RFC 4787).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BehaviourName {
    /// Only the inside endpoint.
    Endpoint,
    /// The remote address, too.
    Address,
    /// The remote address and port, too.
    Port,
}

impl BehaviourName {
    fn behaviour(self) -> Behaviour {
        match self {
            BehaviourName::Endpoint => Behaviour::EndpointIndependent,
            BehaviourName::Address => Behaviour::AddressDependent,
            BehaviourName::Port => Behaviour::AddressAndPortDependent,
        }
    }
}

/// Adds `[[cell]]`.
pub fn add_cell(builder: &mut Builder<'_>, cell: &Cell) -> Result<(), Mistake> {
    check_name(&cell.name)?;
    let name = cell.name.get_ref();
    if builder.cells.contains_key(name) {
        return Err(Mistake::of(&cell.name, format!("there is another cell {name}")));
    }
    let router = builder.node(&cell.router)?;
    if let Some(gateway) = &cell.gateway {
        builder.own(router, gateway)?;
    }
    let both = cell.both();
    let spec = |own: &Option<Parameters>| {
        builder.loaded(own.clone().unwrap_or_default().over(&both), &cell.name)
    };
    let config = CellConfig {
        router,
        gateway: cell.gateway.as_ref().map(|a| a.get_ref().0),
        prefix: cell.prefix.as_ref().map(|p| p.get_ref().0),
        down: spec(&cell.down)?,
        up: spec(&cell.up)?,
    };
    let id = builder.network.add_cell(config);
    let id = id.map_err(|error| Mistake::of(&cell.name, error.to_string()))?;
    builder.cells.insert(name.clone(), id);
    Ok(())
}

/// Makes the radio of a `[[walk]]`: its interface must exist before routes are computed.
pub fn add_radio(builder: &mut Builder<'_>, walk: &Walk) -> Result<(), Mistake> {
    let End { node, interface } = walk.node.get_ref();
    let id = builder.end_node(&walk.node)?;
    let interface = interface.as_deref().unwrap_or("radio");
    let index = builder.add_end_named(id, interface, &walk.addresses, &walk.node)?;
    let at_once = if walk.overlap.is_some() { 2 } else { 1 };
    let radio = builder.network.add_radio(RadioConfig { node: id, interface: index, at_once });
    let radio = radio.map_err(|error| Mistake::of(&walk.node, error.to_string()))?;
    builder.radios.insert(format!("{node}:{interface}"), radio);
    Ok(())
}

/// Lets the radio of a `[[walk]]` walk.
pub fn add_walk(builder: &mut Builder<'_>, walk: &Walk) -> Result<(), Mistake> {
    let End { node, interface } = walk.node.get_ref();
    let radio = builder.radios[&format!("{node}:{}", interface.as_deref().unwrap_or("radio"))];
    let mut cells = Vec::new();
    for name in walk.cells.get_ref() {
        cells.push(cell(builder, name)?);
    }
    let begin = walk.begin.as_ref().map_or(Ok(Time::ZERO), |at| builder.within(at))?;
    let Some(period) = walk.period else {
        let [only] = cells[..] else {
            return Err(Mistake::of(&walk.cells, "a way through cells needs a period"));
        };
        builder.network.schedule(begin, Change::Attach(radio, only));
        return Ok(());
    };
    let first = walk.first.map_or(period.0, |d| d.0);
    let rest = builder.limit().0.saturating_sub(begin.0 + first.0);
    let handovers = rest / period.0.0.max(1) + 1;
    if handovers > MAX_HANDOVERS {
        let message = format!("{handovers} handovers are more than {MAX_HANDOVERS}");
        return Err(Mistake::of(&walk.cells, message));
    }
    let mut way = Way {
        first,
        begin,
        overlap: walk.overlap.map_or(Span::ZERO, |d| d.0),
        gap: walk.gap.map_or(Span::ZERO, |d| d.0),
        back_and_forth: walk.back_and_forth.unwrap_or(true),
        ..Way::new(radio, cells, period.0, handovers as u32)
    };
    if let Some(turns) = walk.turns {
        let turn = walk.turn.unwrap_or(0);
        if turn >= turns {
            let message = format!("turn {turn} of {turns}: they count from 0");
            return Err(Mistake::of(&walk.node, message));
        }
        way = way.taking_turns(turn, turns);
    }
    let done = builder.network.walk(&way);
    done.map_err(|error| Mistake::of(&walk.cells, error.to_string()))
}

/// The cell with this name.
pub fn cell(builder: &Builder<'_>, name: &Name) -> Result<CellId, Mistake> {
    builder.cells.get(name.get_ref()).copied().ok_or_else(|| {
        let known: Vec<&str> = builder.cells.keys().map(String::as_str).collect();
        let hint = hint(name.get_ref(), &known);
        Mistake::of(name, format!("there is no cell {}{hint}", name.get_ref()))
    })
}

/// The radio with this name, `NODE:INTERFACE`.
pub fn radio(builder: &Builder<'_>, name: &Name) -> Result<RadioId, Mistake> {
    builder.radios.get(name.get_ref()).copied().ok_or_else(|| {
        let known: Vec<&str> = builder.radios.keys().map(String::as_str).collect();
        let hint = hint(name.get_ref(), &known);
        Mistake::of(name, format!("there is no radio {}{hint}", name.get_ref()))
    })
}

/// Adds `[[nat]]`.
pub fn add_nat(builder: &mut Builder<'_>, nat: &Nat) -> Result<(), Mistake> {
    let node = builder.node(&nat.node)?;
    let mut inside = Vec::new();
    for name in &nat.inside {
        let index = builder.way_out(node, name.get_ref());
        inside.push(index.map_err(|message| Mistake::of(name, message))?);
    }
    let own = {
        let at = builder.network.node(node);
        let outer = at.interfaces().filter(|interface| !inside.contains(&interface.index));
        let outer = outer.flat_map(|interface| &interface.addresses);
        outer.chain(&at.addresses).next().copied()
    };
    let Some(outside) = nat.outside.as_ref().map(|a| a.get_ref().0).or(own) else {
        return Err(Mistake::of(&nat.node, "it has no address outside"));
    };
    let mut config = NatConfig::new(inside, outside);
    config.cells_inside = nat.cells_inside.unwrap_or(config.cells_inside);
    config.mapping = nat.mapping.map_or(config.mapping, BehaviourName::behaviour);
    config.filtering = nat.filtering.map_or(config.filtering, BehaviourName::behaviour);
    config.udp_timeout = nat.udp_timeout.map_or(config.udp_timeout, |d| d.0);
    config.tcp_timeout = nat.tcp_timeout.map_or(config.tcp_timeout, |d| d.0);
    config.inbound_refresh = nat.inbound_refresh.unwrap_or(config.inbound_refresh);
    config.ports = nat.ports.unwrap_or(config.ports);
    let done = builder.network.add_nat(node, config);
    done.map_err(|error| Mistake::of(&nat.node, error.to_string()))
}
