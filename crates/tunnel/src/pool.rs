//! Inner addresses to give away.

use alloc::collections::BTreeSet;
use core::net::IpAddr;
use core::ops::Range;

use segue_ip::Prefix;

/// A prefix of inner addresses. The first address after the network's own is the anchor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(Prefix);

/// Addresses tried in a pool before it counts as full.
const MAX_POOL: u32 = 1 << 20;

impl Pool {
    /// A pool of these addresses; `None` if host bits are set, or if there is no room for an anchor and one host.
    #[must_use]
    pub fn new(prefix: Prefix) -> Option<Pool> {
        let has_room = prefix.nth(2).is_some();
        (has_room && prefix == prefix.network()).then_some(Pool(prefix))
    }

    /// Its addresses.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        self.0
    }

    /// The anchor's own address.
    #[must_use]
    pub fn anchor(&self) -> IpAddr {
        self.0.nth(1).expect("a pool has room for its anchor")
    }

    /// The first address that is not in `taken`, searching from offset `from` and wrapping around. Moves `from` behind
    /// it, so that a pool filled one by one is not searched from its start each time.
    pub(crate) fn free(&self, taken: &BTreeSet<IpAddr>, from: &mut u32) -> Option<IpAddr> {
        let free = |offsets: Range<u32>| {
            let mut all = offsets.map_while(|offset| Some((offset, self.0.nth(offset)?)));
            all.find(|(_, address)| !taken.contains(address))
        };
        let from_now = (*from).clamp(2, MAX_POOL);
        let (offset, address) = free(from_now..MAX_POOL).or_else(|| free(2..from_now))?;
        *from = offset + 1;
        Some(address)
    }

    /// Whether a host may have `address`: all but the network's own, the anchor's, and those that are never given away.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let offset = number(address).wrapping_sub(number(self.0.addr));
        let offset = u32::try_from(offset).ok().filter(|offset| (2..MAX_POOL).contains(offset));
        offset.and_then(|offset| self.0.nth(offset)) == Some(address)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn pool(text: &str) -> Option<Pool> {
        Pool::new(text.parse().unwrap())
    }

    #[test]
    fn a_pool_gives_each_address_once_and_neither_network_nor_broadcast() {
        let pool = pool("10.7.0.0/29").unwrap();
        assert_eq!(pool.anchor(), "10.7.0.1".parse::<IpAddr>().unwrap());
        let mut taken = BTreeSet::new();
        let mut from = 4;
        while let Some(address) = pool.free(&taken, &mut from) {
            assert!(pool.contains(address));
            taken.insert(address);
        }
        let last: IpAddr = "10.7.0.6".parse().unwrap();
        assert_eq!((taken.len(), taken.last()), (5, Some(&last)));
        assert!(!pool.contains("10.7.0.7".parse().unwrap()));
        assert!(!pool.contains("10.7.0.1".parse().unwrap()));
    }

    #[test]
    fn an_address_that_was_given_back_at_once_is_not_the_next_to_be_given() {
        let pool = pool("10.7.0.0/29").unwrap();
        let mut from = 0;
        let given = [(); 6].map(|()| pool.free(&BTreeSet::new(), &mut from).unwrap().to_string());
        let all = ["10.7.0.2", "10.7.0.3", "10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.0.2"];
        assert_eq!(given, all);
    }

    #[test]
    fn networks_with_host_bits_or_without_room_are_refused() {
        for refused in ["10.7.0.1/24", "10.7.0.0/31", "10.7.0.0/32", "fd00::1/64", "fd00::/127"] {
            assert_eq!(pool(refused), None, "{refused}");
        }
        for taken in ["10.7.0.0/30", "0.0.0.0/0", "fd00::/126", "fd00::/64", "::/0"] {
            assert!(pool(taken).is_some(), "{taken}");
        }
    }

    #[test]
    fn an_address_of_the_other_family_or_beyond_the_bound_is_no_hosts() {
        let has = |pool: Pool, address: &str| pool.contains(address.parse().unwrap());
        let (v4, v6) = (pool("0.0.0.0/0").unwrap(), pool("::/0").unwrap());
        assert!(has(v4, "0.15.255.255") && has(v6, "::f:ffff"));
        assert!(!has(v4, "0.16.0.0") && !has(v6, "::10:0"));
        assert!(!has(v4, "::7") && !has(v6, "0.0.0.7"));
    }
}
