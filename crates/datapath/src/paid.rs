//! How much of their flow quota inner addresses have used. The record outlives the owner: a host that registers
//! again must not get a fresh quota.

use std::collections::HashMap;
use std::net::IpAddr;

use segue_clock::Time;

/// Number of remembered addresses above which those with a full quota are forgotten.
const ROOM: usize = 1_024;

/// Times in the past no longer matter. They are removed when the table has twice as many entries as were still in
/// use at the last removal. So there are at most [`ROOM`] entries plus two for each address from which flows began
/// within [`FLOWS_AT_ONCE`](crate::FLOWS_AT_ONCE) times [`FLOW_PACE`](crate::FLOW_PACE), about a minute.
#[derive(Debug)]
pub(crate) struct Paid {
    until: HashMap<IpAddr, Time>,
    room: usize,
}

impl Default for Paid {
    fn default() -> Paid {
        Paid { until: HashMap::new(), room: ROOM }
    }
}

impl Paid {
    /// The record of an address, for update.
    pub(crate) fn of(&mut self, address: IpAddr, now: Time) -> &mut Time {
        if self.until.len() >= self.room && !self.until.contains_key(&address) {
            self.until.retain(|_, until| *until > now);
            self.room = ROOM.max(2 * self.until.len());
        }
        self.until.entry(address).or_default()
    }

    /// Removes and returns the record of an address.
    pub(crate) fn take(&mut self, address: IpAddr) -> Time {
        self.until.remove(&address).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use segue_clock::Span;

    #[test]
    fn what_is_paid_is_kept_until_it_is_past_and_no_longer_than_there_is_room() {
        let mut paid = Paid::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let now = |n: u32| Time(1) + Span::from_millis(1) * u64::from(n);
        let minute = 60_000;
        *paid.of(address(0), now(0)) = now(10 * minute);
        for n in 1..5 * minute {
            *paid.of(address(n), now(n)) = now(n + 1_000);
            assert!(paid.until.len() <= 2 * 1_001 + ROOM, "{} at {n}", paid.until.len());
        }
        assert_eq!(*paid.of(address(0), now(5 * minute)), now(10 * minute));
        assert_eq!(paid.take(address(0)), now(10 * minute));
        assert_eq!(paid.take(address(0)), Time::default());
    }
}
