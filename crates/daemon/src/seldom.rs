//! Rate-limits repeated log lines: the first is logged at once, repeats at growing intervals.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};

/// Wait before the first repeat; it doubles each time.
const FIRST_PAUSE: Span = Span::from_secs(60);
/// Longest wait between repeats.
const LONGEST_PAUSE: Span = Span::from_secs(3_600);
/// Lines remembered. When full, a new line is logged only once an old one has outlived the longest wait.
const MOST: usize = 16;

/// The lines logged, and when.
#[derive(Default)]
pub struct Seldom {
    said: BTreeMap<String, Said>,
}

struct Said {
    at: Time,
    pause: Span,
}

impl Seldom {
    /// Returns whether to log a line at this time.
    pub fn is_due(&mut self, now: Time, line: &str) -> bool {
        if let Some(said) = self.said.get_mut(line) {
            let due = now.since(said.at) >= said.pause;
            if due {
                *said = Said { at: now, pause: (said.pause * 2).min(LONGEST_PAUSE) };
            }
            return due;
        }
        if self.said.len() >= MOST {
            self.said.retain(|_, said| now.since(said.at) < LONGEST_PAUSE);
        }
        let due = self.said.len() < MOST;
        if due {
            self.said.insert(line.to_owned(), Said { at: now, pause: FIRST_PAUSE });
        }
        due
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        self.said.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_told_at_once_and_then_ever_more_seldom() {
        let (mut seldom, at) = (Seldom::default(), |s| Time::ZERO + Span::from_secs(s));
        let mut told = Vec::new();
        for s in 0..7_200 {
            let line = if s % 2 == 0 { "no answer" } else { "another anchor" };
            if seldom.is_due(at(s), line) {
                told.push(s);
            }
        }
        assert_eq!(told[..4], [0, 1, 60, 61]);
        // 0, 60, 180, 420, 900, 1 860 and 3 780 s, and the other line too.
        assert_eq!(told.len(), 14, "{told:?}");
        seldom.clear();
        assert!(seldom.is_due(at(7_200), "no answer"));
    }

    #[test]
    fn lines_that_are_always_new_do_not_fill_the_log() {
        let mut seldom = Seldom::default();
        let told = (0..100).filter(|n| seldom.is_due(Time::ZERO, &format!("reason {n}"))).count();
        assert_eq!(told, MOST);
    }

    #[test]
    fn what_was_told_long_ago_makes_room_for_what_is_new() {
        let (mut seldom, at) = (Seldom::default(), |s| Time::ZERO + Span::from_secs(s));
        for n in 0..MOST as u64 {
            assert!(seldom.is_due(at(n), &format!("reason {n}")));
        }
        assert!(!seldom.is_due(at(3_599), "another"));
        assert!(seldom.is_due(at(3_600), "another"));
        assert!(!seldom.is_due(at(3_600), "and another"));
    }
}
