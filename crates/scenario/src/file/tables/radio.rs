//! `[[cell]]` and `[[walk]]`.

use std::collections::BTreeMap;

use segue_clock::Time;
use segue_grammar::{Access, Cell, Event, Mistake, Name, Spanned, Walk, event, named};
use segue_sim::net::{CellConfig, CellId, Change, RadioConfig, RadioId};

use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::table::{Kind, Table};

pub(super) const CELL: Kind = Kind::of::<Cell>("cell", &[ATTACH, DETACH]);
pub(super) const WALK: Kind = Kind::of::<Walk>("walk", &[]);

/// Maximum number of handovers of a walk.
const MAX_HANDOVERS: u64 = 1_000_000;

/// Shared state of cells and radios.
#[derive(Default)]
struct Radios {
    cells: BTreeMap<String, CellId>,
    /// By node and interface.
    radios: BTreeMap<String, RadioId>,
}

/// The cell with this name.
pub(super) fn cell(builder: &mut Builder<'_>, name: &str) -> Option<CellId> {
    builder.kept::<Radios>().cells.get(name).copied()
}

impl Table for Cell {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let Access { name, router, prefix, gateway } = &self.own;
        self.own.check()?;
        if builder.kept::<Radios>().cells.contains_key(name.get_ref()) {
            return Err(Mistake::of(name, format!("there is another cell {}", name.get_ref())));
        }
        let router = builder.node(router)?;
        if let Some(gateway) = gateway {
            builder.own(router, gateway.get_ref().0, gateway)?;
        }
        let [up, down] = builder.specs(self, name)?;
        let gateway = gateway.as_ref().map(|a| a.get_ref().0);
        let prefix = prefix.as_ref().map(|prefix| prefix.get_ref().0);
        let id = builder.network.add_cell(CellConfig { router, gateway, prefix, down, up });
        builder
            .kept::<Radios>()
            .cells
            .insert(name.get_ref().clone(), id.map_err(Mistake::at(name))?);
        Ok(())
    }
}

impl Table for Walk {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.end_node(&self.node)?;
        let addresses = self.addresses.iter().map(|a| Spanned::new(a.span(), a.get_ref().address));
        let interface = builder.add_end(node, self.interface(), addresses, &self.node)?;
        let radio = RadioConfig { node, interface, at_once: self.at_once() };
        let radio = builder.network.add_radio(radio);
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
        let only = cells.first().copied();
        let Some(mut way) = self.way(cells, Time::ZERO)? else {
            if let Some(cell) = only {
                let prepared = builder.network.prepare_air(radio, cell);
                prepared.map_err(Mistake::at(&self.cells))?;
                builder.network.schedule(begin, Change::Attach(radio, cell));
            }
            return Ok(());
        };
        let rest = builder.limit().0.saturating_sub((begin + way.first).0);
        let handovers = rest / way.period.0 + 1;
        if handovers > MAX_HANDOVERS {
            let message = format!("{handovers} handovers are more than {MAX_HANDOVERS}");
            return Err(Mistake::of(&self.cells, message));
        }
        way.handovers = handovers as u32;
        builder.network.walk(radio, &way).map_err(Mistake::at(&self.cells))
    }
}

const ATTACH: EventKind = EventKind {
    keys: event::ATTACH,
    add: |builder, event, at, radio| change(builder, event, at, radio, Change::Attach),
};

const DETACH: EventKind = EventKind {
    keys: event::DETACH,
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
    let change = change(found, named("cell", &event.cell(radio)?, cells)?);
    builder.network.schedule(at, change);
    Ok(())
}
