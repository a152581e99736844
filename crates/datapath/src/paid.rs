//! Until when inner addresses have paid for the flows that began there. The record outlives the owner: a host that
//! registers anew must not get a new share.

use std::collections::HashMap;
use std::net::IpAddr;

use segue_clock::Time;

/// Addresses to remember before forgetting those that owe nothing.
const ROOM: usize = 1_024;

/// Times in the past no longer matter. They are forgotten when there are twice as many entries as owed something the
/// last time: at most two for each address from which flows began within [`FLOWS_AT_ONCE`](crate::FLOWS_AT_ONCE)
/// times [`FLOW_PACE`](crate::FLOW_PACE), a minute, plus [`ROOM`].
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
    /// What an address has paid, for update.
    pub(crate) fn of(&mut self, address: IpAddr, now: Time) -> &mut Time {
        if self.until.len() >= self.room && !self.until.contains_key(&address) {
            self.until.retain(|_, until| *until > now);
            self.room = ROOM.max(2 * self.until.len());
        }
        self.until.entry(address).or_default()
    }

    /// Returns what an address has paid, and forgets it.
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
