//! Inner addresses to give away.

use alloc::collections::BTreeSet;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A prefix of inner addresses. The first address after the network's own is the anchor's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    network: IpAddr,
    prefix: u8,
}

/// Addresses tried in a pool before it counts as full.
const MAX_POOL: u128 = 1 << 20;

impl Pool {
    /// A pool of `network`/`prefix`; `None` if host bits are set, the prefix is too long for the
    /// family, or it has no room for an anchor and one host.
    #[must_use]
    pub fn new(network: IpAddr, prefix: u8) -> Option<Pool> {
        let width = if network.is_ipv4() { 32 } else { 128 };
        let host_bits = width - u32::from(prefix.min(width as u8));
        if u32::from(prefix) > width || host_bits < 2 {
            return None;
        }
        let pool = Pool { network, prefix };
        (number(network).trailing_zeros() >= host_bits).then_some(pool)
    }

    /// The prefix length.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The network address.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// The anchor's own address.
    #[must_use]
    pub fn anchor(&self) -> IpAddr {
        self.nth(1)
    }

    /// The first address that is not in `taken`, searching from offset `from` and wrapping around. Moves `from` behind
    /// it, so that a pool filled one by one is not searched from its start each time.
    pub(crate) fn free(&self, taken: &BTreeSet<IpAddr>, from: &mut u128) -> Option<IpAddr> {
        let from_now = (*from).clamp(2, self.size());
        let offset = (from_now..self.size())
            .chain(2..from_now)
            .find(|offset| !taken.contains(&self.nth(*offset)))?;
        *from = offset + 1;
        Some(self.nth(offset))
    }

    /// Whether a host may have `address`.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let offset = number(address).wrapping_sub(number(self.network));
        address.is_ipv4() == self.network.is_ipv4() && (2..self.size()).contains(&offset)
    }

    /// Offsets below this are given away: all but IPv4's broadcast address, and [`MAX_POOL`].
    fn size(&self) -> u128 {
        let host_bits = if self.network.is_ipv4() { 32 } else { 128 } - u32::from(self.prefix);
        let all = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        (all - u128::from(self.network.is_ipv4())).min(MAX_POOL)
    }

    fn nth(&self, n: u128) -> IpAddr {
        let sum = number(self.network) + n;
        match self.network {
            IpAddr::V4(_) => Ipv4Addr::from(sum as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(sum).into(),
        }
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

    #[test]
    fn a_pool_gives_each_address_once_and_neither_network_nor_broadcast() {
        let pool = Pool::new("10.7.0.0".parse().unwrap(), 29).unwrap();
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
        let pool = Pool::new("10.7.0.0".parse().unwrap(), 29).unwrap();
        let mut from = 0;
        let given = [(); 6].map(|()| pool.free(&BTreeSet::new(), &mut from).unwrap().to_string());
        let all = ["10.7.0.2", "10.7.0.3", "10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.0.2"];
        assert_eq!(given, all);
    }

    #[test]
    fn networks_with_host_bits_or_without_room_are_refused() {
        assert_eq!(Pool::new("10.7.0.1".parse().unwrap(), 24), None);
        assert_eq!(Pool::new("10.7.0.0".parse().unwrap(), 31), None);
        assert_eq!(Pool::new("10.7.0.0".parse().unwrap(), 33), None);
        assert_eq!(Pool::new("fd00::".parse().unwrap(), 127), None);
        assert!(Pool::new("fd00::".parse().unwrap(), 64).is_some());
    }
}
