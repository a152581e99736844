//! Events at preset times.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use segue_clock::{Span, Time};
use segue_grammar::event::{ATTACH, CUT, DETACH, MEND, STALL};
use segue_grammar::{Event, EventKeys, Link, Mistake, Ways, named};
use segue_netem::Step;

use super::air::{PlannedCell, PlannedRadio};
use crate::agenda::{Act, Agenda};
use crate::log::Direction;
use crate::topology::Lab;

/// All kinds of events.
const KINDS: [EventKeys; 5] = [CUT, MEND, STALL, ATTACH, DETACH];

/// An event of a link or a radio, at a time after the network came up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Happening {
    pub(super) at: Span,
    /// Name of the link or of the radio.
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// The kind of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Cuts a link, and mends it after this time if there is one.
    Cut(Ways, Option<Span>),
    /// Mends a link.
    Mend(Ways),
    /// Stalls a link for this time.
    Stall(Ways, Span),
    /// Attaches a radio to a cell.
    Attach(String),
    /// Detaches a radio from a cell.
    Detach(String),
}

pub(super) fn happenings(
    events: &[Event],
    links: &[Link],
    cells: &[PlannedCell],
    radios: &[PlannedRadio],
) -> Result<Vec<Happening>, Mistake> {
    let names = |all: Vec<&String>| -> BTreeMap<String, ()> {
        all.into_iter().map(|name| (name.clone(), ())).collect()
    };
    let links = names(links.iter().map(|link| link.own.name.get_ref()).collect());
    let cells = names(cells.iter().map(|cell| &cell.name).collect());
    let radios = names(radios.iter().map(|radio| &radio.name).collect());
    let happening = |event: &Event| {
        let (number, at, name) = event.read(&KINDS)?;
        let of_radio = [ATTACH, DETACH].contains(&KINDS[number]);
        let (what, known) = if of_radio { ("radio", &radios) } else { ("link", &links) };
        named(what, &name, known)?;
        let kind = match KINDS[number] {
            CUT => Kind::Cut(event.ways()?, event.lasting()?),
            MEND => Kind::Mend(event.ways()?),
            STALL => Kind::Stall(event.ways()?, event.stalled(&name)?),
            attach_or_detach => {
                let cell = event.cell(&name)?;
                named("cell", &cell, &cells)?;
                let cell = cell.into_inner();
                if attach_or_detach == ATTACH { Kind::Attach(cell) } else { Kind::Detach(cell) }
            }
        };
        Ok(Happening { at: at.get_ref().0, name: name.into_inner(), kind })
    };
    events.iter().map(happening).collect()
}

impl Happening {
    /// Whether this is an event of the link with this name.
    pub(super) fn is_of_link(&self, name: &str) -> bool {
        let of_link = matches!(self.kind, Kind::Cut(..) | Kind::Mend(_) | Kind::Stall(..));
        of_link && self.name == name
    }

    /// Adds the event to the agenda; `up` is when the network came up.
    pub(super) fn begin(&self, lab: &Lab, up: Time, agenda: &mut Agenda) -> Result<()> {
        let at = up + self.at;
        let directions = |ways: &Ways| ways.of(Direction::ALL).collect::<Vec<_>>();
        let mut cut = |at: Time, ways: &Ways, cut: bool| -> Result<()> {
            let link = Arc::clone(lab.emulated(&self.name)?);
            agenda.add(at, Act::Cut(link, directions(ways), cut));
            Ok(())
        };
        match &self.kind {
            Kind::Cut(ways, lasting) => {
                cut(at, ways, true)?;
                lasting.map_or(Ok(()), |lasting| cut(at + lasting, ways, false))?;
            }
            Kind::Mend(ways) => cut(at, ways, false)?,
            Kind::Stall(ways, lasting) => {
                for way in directions(ways) {
                    lab.emulator(&self.name)?.stall(way, at, at + *lasting);
                }
            }
            Kind::Attach(cell) => {
                agenda.add(at, Act::Radio(self.name.clone(), Step::Attach(cell.clone())));
            }
            Kind::Detach(cell) => {
                agenda.add(at, Act::Radio(self.name.clone(), Step::Detach(cell.clone())));
            }
        }
        Ok(())
    }
}
