//! Why the anchor is not reached, in words.

use segue_clock::Time;
use tracing::{info, warn};

use crate::seldom::Seldom;

/// The reasons since the anchor was last reached.
#[derive(Default)]
pub(super) struct Unreached {
    told: Seldom,
    /// The last one.
    last: Option<(String, Time)>,
}

impl Unreached {
    /// An attempt has failed.
    pub(super) fn note(&mut self, now: Time, why: String) {
        if self.told.is_due(now, &why) {
            warn!("{why}; trying again");
        }
        self.last = Some((why, now));
    }

    /// The registration stands.
    pub(super) fn reached(&mut self) {
        if self.last.take().is_some() {
            info!("the anchor is reached");
        }
        self.told.clear();
    }

    /// The last known reason why the anchor is not reached, and since when.
    pub(super) fn why(&self) -> Option<(&str, Time)> {
        self.last.as_ref().map(|(why, at)| (why.as_str(), *at))
    }
}
