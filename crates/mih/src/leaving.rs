//! Stations that are about to leave a link, for who leads their traffic another way before they do.

use alloc::collections::BTreeMap;

use segue_clock::Span;
use segue_wire::mih::identity::{LinkAddress, LinkId};

use crate::{Event, Mihf, What};

/// No end is foretold earlier than this.
const FORETOLD_MAX: Span = Span::from_secs(5);

/// Those that are, each with the link that it leaves.
#[derive(Clone, Debug, Default)]
pub struct Leaving(BTreeMap<LinkAddress, LinkId>);

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foretold {
    /// A station is about to leave.
    GoingDown {
        /// The station.
        station: LinkAddress,
        /// Within this time.
        within: Span,
    },
    /// It does not leave after all.
    Stays {
        /// The station.
        station: LinkAddress,
    },
}

impl Leaving {
    /// What follows from an event of which a function was told.
    pub fn follow(&mut self, mihf: &Mihf, event: Event) -> Option<Foretold> {
        if !mihf.is_newest(&event) {
            return None;
        }
        let Event { link, station, what } = event;
        let station = station?;
        match what {
            What::GoingDown { within_ms, .. } => {
                let within = Span::from_millis(within_ms.into()).min(FORETOLD_MAX);
                self.0.insert(station.clone(), link);
                Some(Foretold::GoingDown { station, within })
            }
            // One that comes to another access is still to leave the one where it is bound.
            What::Up => {
                let left = self.0.remove(&station);
                (left == Some(link)).then_some(Foretold::Stays { station })
            }
            What::Down(_) => {
                self.0.remove(&station);
                None
            }
            What::Detected(_) | What::Parameters(_) => None,
        }
    }
}
