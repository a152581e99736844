//! Cells and radios of a file.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_grammar::{Access, Cell, EndAddress, Mistake, Walk, named};
use segue_ip::Prefix;
use segue_netem::{self as netem, Step};

use super::places::{Places, unread};
use crate::agenda::{Act, Agenda};
use crate::air::{CellSpec, RadioSpec};

/// A cell.
#[derive(Debug)]
pub(super) struct PlannedCell {
    pub(super) name: String,
    pub(super) spec: CellSpec,
}

/// A radio and its walk.
#[derive(Debug)]
pub(super) struct PlannedRadio {
    /// `NODE:INTERFACE`.
    pub(super) name: String,
    pub(super) spec: RadioSpec,
    goes: Goes,
}

/// The walk of a radio. Cells are indices into the list of all cells.
#[derive(Debug)]
enum Goes {
    Nowhere,
    /// To this cell, after this time.
    To(usize, Span),
    Along(netem::Walk<usize>),
}

pub(super) fn cells(
    written: Vec<Cell>,
    places: &mut Places<'_>,
) -> Result<Vec<PlannedCell>, Mistake> {
    let mut cells: Vec<PlannedCell> = Vec::new();
    for cell in written {
        cell.own.check()?;
        let Access { name, router, prefix, gateway } = &cell.own;
        if cells.iter().any(|other| other.name == *name.get_ref()) {
            return Err(Mistake::of(name, format!("there is another cell {}", name.get_ref())));
        }
        places.check(router.get_ref(), router)?;
        places.take(router.get_ref(), name.get_ref(), name)?;
        let [up, down] = cell.specs(name, unread)?;
        let prefix = prefix.as_ref().map(|prefix| prefix.get_ref().0);
        let spec = CellSpec {
            router: router.get_ref().clone(),
            prefix,
            gateway: gateway.as_ref().map(|gateway| gateway.get_ref().0),
            up,
            down,
        };
        if let Some((own, written)) = spec.own_address().zip(gateway.as_ref()) {
            places.own(router.get_ref(), own, written)?;
        }
        cells.push(PlannedCell { name: name.get_ref().clone(), spec });
    }
    Ok(cells)
}

pub(super) fn radios(
    walks: Vec<Walk>,
    cells: &[PlannedCell],
    places: &mut Places<'_>,
) -> Result<Vec<PlannedRadio>, Mistake> {
    let numbers = cells.iter().enumerate().map(|(number, cell)| (cell.name.clone(), number));
    let numbers: BTreeMap<String, usize> = numbers.collect();
    let radio = |walk: Walk| {
        places.take(&walk.node.get_ref().node, walk.interface(), &walk.node)?;
        let along = walk.cells.get_ref().iter().map(|name| named("cell", name, &numbers));
        let along = along.collect::<Result<Vec<_>, _>>()?;
        let begin = walk.begin.as_ref().map_or(Span::ZERO, |begin| begin.get_ref().0);
        let first = along.first().copied();
        let goes = match (walk.way(along, Time::ZERO)?, first) {
            (Some(way), _) => Goes::Along(way),
            (None, Some(cell)) => Goes::To(cell, begin),
            (None, None) => Goes::Nowhere,
        };
        let node = &walk.node.get_ref().node;
        let addresses = walk.addresses.iter().map(|written| {
            let EndAddress { address, length } = *written.get_ref();
            let own = Prefix::new(address, length.unwrap_or(Prefix::host(address).len));
            places.own(node, own, written).map(|()| own)
        });
        let spec = RadioSpec {
            node: node.clone(),
            interface: walk.interface().to_owned(),
            addresses: addresses.collect::<Result<_, _>>()?,
            at_once: walk.at_once() as usize,
        };
        Ok(PlannedRadio { name: walk.radio(), spec, goes })
    };
    walks.into_iter().map(radio).collect()
}

impl PlannedRadio {
    /// Adds the radio's walk to the agenda; `up` is when the network came up.
    pub(super) fn begin(&self, cells: &[PlannedCell], up: Time, agenda: &mut Agenda) {
        match &self.goes {
            Goes::Nowhere => {}
            Goes::To(cell, begin) => {
                let attach = Step::Attach(cells[*cell].name.clone());
                agenda.add(up + *begin, Act::Radio(self.name.clone(), attach));
            }
            Goes::Along(way) => {
                let names = cells.iter().map(|cell| cell.name.clone()).collect();
                let begin = up + way.begin.since(Time::ZERO);
                agenda.add_walk(&self.name, names, netem::Walk { begin, ..way.clone() });
            }
        }
    }
}
