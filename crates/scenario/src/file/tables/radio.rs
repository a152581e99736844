//! `[[cell]]` and `[[walk]]`.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_grammar::link::OverLink;
use segue_grammar::{Address, Duration, End, Mistake, Name, PrefixText};
use segue_sim::net::{self, CellConfig, CellId, Change, RadioConfig, RadioId};
use serde::Deserialize;
use toml::Spanned;

use crate::file::builder::{Builder, check_name, named};
use crate::file::event::{Event, EventKind};
use crate::file::table::{Kind, Table};

pub(super) const CELL: Kind = Kind::of::<OverLink<Cell>>("cell", &[ATTACH, DETACH]);
pub(super) const WALK: Kind = Kind::of::<Walk>("walk", &[]);

/// Most handovers of a walk.
const MAX_HANDOVERS: u64 = 1_000_000;

/// What is in the air.
#[derive(Default)]
struct Radios {
    cells: BTreeMap<String, CellId>,
    /// By node and interface.
    radios: BTreeMap<String, RadioId>,
}

/// The cell of an access router: a separate link for each radio in it, with up from the radio.
#[derive(Deserialize)]
struct Cell {
    /// Unique among cells.
    name: Name,
    /// The access router.
    router: Name,
    /// Radios without an address get one from this prefix.
    prefix: Option<PrefixText>,
    /// The router's address on the air.
    gateway: Option<Spanned<Address>>,
}

impl Table for OverLink<Cell> {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let Cell { name, router, prefix, gateway } = &self.own;
        check_name(name)?;
        if builder.kept::<Radios>().cells.contains_key(name.get_ref()) {
            return Err(Mistake::of(name, format!("there is another cell {}", name.get_ref())));
        }
        let router = builder.node(router)?;
        if let Some(gateway) = gateway {
            builder.own(router, gateway.get_ref().0, gateway)?;
        }
        let [up, down] = builder.specs(self, name)?;
        let gateway = gateway.as_ref().map(|a| a.get_ref().0);
        let prefix = prefix.map(|p| p.0);
        let id = builder.network.add_cell(CellConfig { router, gateway, prefix, down, up });
        builder
            .kept::<Radios>()
            .cells
            .insert(name.get_ref().clone(), id.map_err(Mistake::at(name))?);
        Ok(())
    }
}

/// A radio, and where it goes.
#[derive(Deserialize)]
struct Walk {
    /// The node and the name of its radio.
    node: Spanned<End>,
    /// Cells along its way; a single one if it stays there.
    cells: Spanned<Vec<Name>>,
    /// Addresses that it keeps; without, it gets one in each cell.
    #[serde(default)]
    addresses: Vec<Spanned<Address>>,
    /// When it attaches to the first cell.
    begin: Option<Spanned<Duration>>,
    /// Time from one handover to the next.
    period: Option<Duration>,
    /// Time from its beginning to the first handover; by default the period.
    first: Option<Duration>,
    /// How long it is attached to both cells.
    overlap: Option<Duration>,
    /// How long it is attached to neither.
    gap: Option<Duration>,
    /// How long before it leaves a cell both ends learn of it.
    notice: Option<Duration>,
    /// It walks back from the last cell.
    back_and_forth: Option<bool>,
    /// Of this many hosts that take turns … …
    turns: Option<u32>,
    /// … it is this one, from 0.
    turn: Option<u32>,
}

impl Walk {
    fn interface(&self) -> &str {
        self.node.get_ref().interface.as_deref().unwrap_or("radio")
    }

    fn radio(&self) -> String {
        format!("{}:{}", self.node.get_ref().node, self.interface())
    }
}

impl Table for Walk {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.end_node(&self.node)?;
        let addresses = self.addresses.iter().map(|a| Spanned::new(a.span(), a.get_ref().0));
        let interface = builder.add_end(node, self.interface(), addresses, &self.node)?;
        let at_once = if self.overlap.is_some() { 2 } else { 1 };
        let radio = builder.network.add_radio(RadioConfig { node, interface, at_once });
        let radio = radio.map_err(Mistake::at(&self.node))?;
        builder.kept::<Radios>().radios.insert(self.radio(), radio);
        Ok(())
    }

    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let Radios { cells, radios } = builder.kept();
        let radio = radios[&self.radio()];
        let names = self.cells.get_ref().iter();
        let cells = names.map(|name| named("cell", name, cells)).collect::<Result<Vec<_>, _>>()?;
        let begin = self.begin.as_ref().map_or(Ok(Time::ZERO), |at| builder.within(at))?;
        let Some(period) = self.period else {
            let [only] = cells[..] else {
                return Err(Mistake::of(&self.cells, "a way through cells needs a period"));
            };
            builder.network.schedule(begin, Change::Attach(radio, only));
            return Ok(());
        };
        let first = self.first.map_or(period.0, |d| d.0);
        let rest = builder.limit().0.saturating_sub(begin.0 + first.0);
        let handovers = rest / period.0.0.max(1) + 1;
        if handovers > MAX_HANDOVERS {
            let message = format!("{handovers} handovers are more than {MAX_HANDOVERS}");
            return Err(Mistake::of(&self.cells, message));
        }
        let mut way = net::Walk {
            first,
            begin,
            overlap: self.overlap.map_or(Span::ZERO, |d| d.0),
            gap: self.gap.map_or(Span::ZERO, |d| d.0),
            notice: self.notice.map_or(Span::ZERO, |d| d.0),
            back_and_forth: self.back_and_forth.unwrap_or(true),
            ..net::Walk::new(radio, cells, period.0, handovers as u32)
        };
        if let Some(turns) = self.turns {
            let turn = self.turn.unwrap_or(0);
            if turn >= turns {
                let message = format!("turn {turn} of {turns}: they count from 0");
                return Err(Mistake::of(&self.node, message));
            }
            way = way.taking_turns(turn, turns);
        }
        builder.network.walk(&way).map_err(Mistake::at(&self.cells))
    }
}

const ATTACH: EventKind = EventKind {
    name: "attach",
    with: &["cell"],
    add: |builder, event, at, radio| change(builder, event, at, radio, Change::Attach),
};

const DETACH: EventKind = EventKind {
    name: "detach",
    with: &["cell"],
    add: |builder, event, at, radio| change(builder, event, at, radio, Change::Detach),
};

fn change(
    builder: &mut Builder<'_>,
    event: &Event,
    at: Time,
    radio: &Name,
    change: fn(RadioId, CellId) -> Change,
) -> Result<(), Mistake> {
    let Radios { cells, radios } = builder.kept();
    let found = named("radio", radio, radios)?;
    let cell = event.placed("cell")?.ok_or_else(|| Mistake::of(radio, "which cell?"))?;
    let change = change(found, named("cell", &cell, cells)?);
    builder.network.schedule(at, change);
    Ok(())
}
