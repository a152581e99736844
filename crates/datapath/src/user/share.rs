//! How many flows each of an anchor's hosts may begin.

use std::collections::HashMap;
use std::net::IpAddr;

use segue_clock::{Span, Time};

use crate::{FLOW_PACE, FLOWS_AT_ONCE};

/// By inner address, of which a host has one for each family. Bounded by these.
#[derive(Default)]
pub struct Shares {
    /// When all flows so far would have begun at the pace.
    paid: HashMap<IpAddr, Time>,
}

impl Shares {
    /// Whether a flow more from this address is within its share; counts it if so.
    pub fn take(&mut self, from: IpAddr, now: Time) -> bool {
        const AHEAD: Span = Span(FLOW_PACE.0 * FLOWS_AT_ONCE as u64);
        let paid = self.paid.entry(from).or_default();
        if paid.since(now) > AHEAD {
            return false;
        }
        *paid = (*paid).max(now) + FLOW_PACE;
        true
    }

    /// The address goes to somebody else, or to nobody.
    pub fn forget(&mut self, address: &IpAddr) {
        self.paid.remove(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_used_up_at_once_or_at_its_pace_and_is_of_one_address() {
        let mut shares = Shares::default();
        let [own, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let begin = |shares: &mut Shares, from, tries: u32, now: Time| {
            (0..tries).filter(|_| shares.take(from, now)).count() as u32
        };
        let now = Time(5_000_000_000);
        assert_eq!(begin(&mut shares, own, 100_000, now), FLOWS_AT_ONCE + 1);
        assert_eq!(begin(&mut shares, other, 1_000, now), 1_000);
        let later = now + Span::from_secs(2);
        let at_its_pace = begin(&mut shares, own, 100_000, later);
        assert!((2_047..=2_049).contains(&at_its_pace), "{at_its_pace}");
        shares.forget(&own);
        assert_eq!(begin(&mut shares, own, 1_000, later), 1_000);
    }
}
