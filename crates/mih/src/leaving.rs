//! Tracks the stations that are about to leave a link, so that their traffic can be redirected before they do.

use alloc::collections::BTreeMap;

use segue_clock::Span;
use segue_wire::mih::identity::{LinkAddress, LinkId};

use crate::{Event, Mihf, What};

/// Upper limit of the announced time to departure.
const FORETOLD_MAX: Span = Span::from_secs(5);

/// The leaving stations, each with the link that it leaves.
#[derive(Clone, Debug, Default)]
pub struct Leaving(BTreeMap<LinkAddress, LinkId>);

/// The consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foretold {
    /// The station is about to leave.
    GoingDown {
        /// The station.
        station: LinkAddress,
        /// Expected time until then.
        within: Span,
    },
    /// The departure is cancelled.
    Stays {
        /// The station.
        station: LinkAddress,
    },
}

impl Leaving {
    /// Processes an event from [`MihfWish::Event`](crate::MihfWish::Event); `None` if nothing follows from it.
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
            // Attaching to another link cancels nothing: the station still leaves the first one.
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
