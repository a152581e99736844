//! Time constants that hosts ask for. Paths with the same constants share an entry of the datapath's table, which is
//! small: a host may use two sets, and all hosts together only as many as fit. A path beyond these limits gets the
//! anchor's defaults.

use alloc::collections::BTreeMap;

use segue_clock::Span;
use segue_keepalive::Tau;
use segue_wire::signal::{PathOffer, Timescale};

/// The time constants of a path's averages.
pub(super) type Taus = [Tau; 2];

/// The default set, for paths whose request cannot be met.
pub(super) const TAUS: Taus =
    [Tau::symmetric(Span::from_secs(1)), Tau::symmetric(Span::from_secs(10))];
/// Maximum number of distinct sets of one host.
pub(super) const SCALES_PER_HOST: usize = 2;
/// Maximum number of distinct sets of all hosts. The datapath's table has 64 entries, and a path that changes its set
/// briefly has two.
pub(super) const SCALES_MAX: usize = 62;
/// The longest time constant.
const LONGEST: Span = Span::from_secs(3_600);

/// How many paths use each set.
#[derive(Debug, Default)]
pub(super) struct Scales(BTreeMap<[u64; 4], u32>);

fn key(taus: &Taus) -> [u64; 4] {
    [taus[0].rise.0, taus[0].fall.0, taus[1].rise.0, taus[1].fall.0]
}

/// The set that an offer asks for.
pub(super) fn wanted(offer: &PathOffer) -> Taus {
    let span = |ms: u32| Span::from_millis(ms.into()).min(LONGEST);
    offer
        .taus
        .map(|Timescale { rise_ms, fall_ms }| Tau { rise: span(rise_ms), fall: span(fall_ms) })
}

impl Scales {
    /// Returns `wanted`, or the default set if a limit is reached. `others` are the sets of the host's other paths.
    pub(super) fn take(&mut self, wanted: Taus, others: impl Iterator<Item = Taus>) -> Taus {
        let mut own: alloc::vec::Vec<[u64; 4]> =
            others.filter(|t| *t != TAUS).map(|t| key(&t)).collect();
        own.push(key(&wanted));
        own.sort_unstable();
        own.dedup();
        let room = self.0.contains_key(&key(&wanted)) || self.0.len() + 1 < SCALES_MAX;
        let taus = if own.len() <= SCALES_PER_HOST && room { wanted } else { TAUS };
        *self.0.entry(key(&taus)).or_default() += 1;
        taus
    }

    /// Releases a path's use of a set.
    pub(super) fn release(&mut self, taus: &Taus) {
        let key = key(taus);
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ms: u64) -> Taus {
        [Tau::symmetric(Span::from_millis(ms)); 2]
    }

    #[test]
    fn a_host_has_two_sets_and_all_together_as_many_as_there_is_room_for() {
        let mut scales = Scales::default();
        let mut mine = alloc::vec::Vec::new();
        for ms in 1..=5 {
            mine.push(scales.take(set(ms), mine.clone().into_iter()));
        }
        assert_eq!(mine, [set(1), set(2), TAUS, TAUS, TAUS]);
        let given =
            (10..200).filter(|ms| scales.take(set(*ms), [].into_iter()) == set(*ms)).count();
        assert_eq!(
            given,
            SCALES_MAX - 4,
            "the anchor's own is one of them, and one stays free for it"
        );
        assert_eq!(scales.take(set(12), [].into_iter()), set(12), "what is there is shared");
        scales.release(&set(1));
        assert_eq!(scales.take(set(999), [].into_iter()), set(999));
    }
}
