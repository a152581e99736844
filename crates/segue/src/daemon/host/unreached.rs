//! Why the anchor is not reached, in words: each reason at once, and then ever more seldom while it lasts.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use tracing::{info, warn};

/// Until a reason is told a second time; then twice as long each time.
const FIRST_PAUSE: Span = Span::from_secs(60);
/// Longest time between two lines about the same.
const LONGEST_PAUSE: Span = Span::from_secs(3_600);
/// Reasons that are remembered.
const MOST: usize = 16;

/// The reasons since the anchor was last reached.
#[derive(Default)]
pub struct Unreached {
    reasons: BTreeMap<String, Said>,
    /// The last one.
    last: Option<(String, Time)>,
}

struct Said {
    at: Time,
    pause: Span,
}

impl Unreached {
    /// An attempt has failed.
    pub fn note(&mut self, now: Time, why: String) {
        self.last = Some((why.clone(), now));
        if let Some(said) = self.reasons.get_mut(&why) {
            if now.since(said.at) < said.pause {
                return;
            }
            *said = Said { at: now, pause: (said.pause * 2).min(LONGEST_PAUSE) };
        } else {
            if self.reasons.len() >= MOST {
                return;
            }
            self.reasons.insert(why.clone(), Said { at: now, pause: FIRST_PAUSE });
        }
        warn!("{why}; trying again");
    }

    /// The registration stands.
    pub fn reached(&mut self) {
        if self.last.take().is_some() {
            info!("the anchor is reached");
        }
        self.reasons.clear();
    }

    /// Why the anchor is not reached, and since when that is the last that is known.
    pub fn why(&self) -> Option<(&str, Time)> {
        self.last.as_ref().map(|(why, at)| (why.as_str(), *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_at_once_and_then_ever_more_seldom() {
        let (mut unreached, at) = (Unreached::default(), |s| Time::ZERO + Span::from_secs(s));
        let mut told = Vec::new();
        for s in 0..7_200 {
            let why = if s % 2 == 0 { "no answer" } else { "another anchor" };
            let before = unreached.reasons.get(why).map(|said| said.at);
            unreached.note(at(s), why.into());
            if unreached.reasons.get(why).map(|said| said.at) != before {
                told.push(s);
            }
        }
        assert_eq!(told[..4], [0, 1, 60, 61]);
        // 0, 60, 180, 420, 900, 1 860 and 3 780 s, and the other one beside it.
        assert_eq!(told.len(), 14, "{told:?}");
        assert_eq!(unreached.why(), Some(("another anchor", at(7_199))));
        unreached.reached();
        assert_eq!(unreached.why(), None);
        (0..100).for_each(|n| unreached.note(at(8_000), format!("reason {n}")));
        assert_eq!(unreached.reasons.len(), MOST);
    }
}
