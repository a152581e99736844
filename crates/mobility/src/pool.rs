//! Pools of addresses and prefixes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Prefix;

/// A pool: the addresses of a network, or its subnets of one length (its *parts*), numbered from the first. The first
/// few can be kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    network: Prefix,
    /// Prefix length of a part; for addresses, the full length.
    len: u8,
    /// Number of the first part of the pool.
    first: u32,
    /// Number of the last part plus one.
    end: u32,
}

/// Maximum number of parts of a pool, since each leased part costs memory. Later parts of the network are never leased.
const MOST: u32 = 1 << 20;

impl Pool {
    /// The addresses of a network without the first `kept_back`, which always include the network address, and without
    /// the broadcast address of IPv4. `None` if host bits are set or no address is left.
    #[must_use]
    pub fn addresses(network: Prefix, kept_back: u32) -> Option<Pool> {
        let host = Prefix::host(network.addr).len;
        let all = parts(network, host) - u128::from(network.addr.is_ipv4());
        Pool::new(network, host, kept_back.max(1), all)
    }

    /// The subnets of a network with prefixes of this length, without the first `kept_back`. `None` if host bits are
    /// set, the length is 0, the network has no such subnet, or none is left.
    #[must_use]
    pub fn prefixes(network: Prefix, len: u8, kept_back: u32) -> Option<Pool> {
        let fits = 0 < len && network.len <= len && len <= Prefix::host(network.addr).len;
        fits.then(|| Pool::new(network, len, kept_back, parts(network, len)))?
    }

    fn new(network: Prefix, len: u8, first: u32, parts: u128) -> Option<Pool> {
        let end = u32::try_from(parts).map_or(MOST, |parts| parts.min(MOST));
        (network == network.network() && first < end).then_some(Pool { network, len, first, end })
    }

    /// The network that the parts belong to.
    #[must_use]
    pub fn network(&self) -> Prefix {
        self.network
    }

    /// Numbers of all parts.
    #[must_use]
    pub fn numbers(&self) -> core::ops::Range<u32> {
        self.first..self.end
    }

    /// The part with this number, if it is in the pool.
    #[must_use]
    pub fn part(&self, number: u32) -> Option<Prefix> {
        let addr = || match self.network.addr {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() | number << (32 - self.len)).into(),
            IpAddr::V6(a) => {
                Ipv6Addr::from_bits(a.to_bits() | u128::from(number) << (128 - self.len)).into()
            }
        };
        self.numbers().contains(&number).then(|| Prefix { addr: addr(), len: self.len })
    }

    /// The number of a part, if it is in the pool.
    #[must_use]
    pub fn number(&self, part: Prefix) -> Option<u32> {
        let behind = match (self.network.addr, part.addr) {
            (IpAddr::V4(own), IpAddr::V4(addr)) => {
                (addr.to_bits().checked_sub(own.to_bits())? >> (32 - self.len)).into()
            }
            (IpAddr::V6(own), IpAddr::V6(addr)) => {
                addr.to_bits().checked_sub(own.to_bits())?.checked_shr(128 - u32::from(self.len))?
            }
            _ => return None,
        };
        let number = u32::try_from(behind).ok()?;
        (self.part(number) == Some(part)).then_some(number)
    }
}

/// Number of subnets of this length in a network, saturating.
fn parts(network: Prefix, len: u8) -> u128 {
    1_u128.checked_shl((len - network.len).into()).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    /// All parts of a pool, as text.
    fn all(pool: Pool) -> Vec<String> {
        let part = |number| {
            let part = pool.part(number).unwrap();
            assert_eq!(pool.number(part), Some(number), "{part}");
            part.to_string()
        };
        pool.numbers().map(part).collect()
    }

    #[test]
    fn addresses_are_neither_the_networks_own_nor_broadcast_nor_kept_back() {
        let of = |text, kept_back| Pool::addresses(prefix(text), kept_back).map(all);
        let hosts = ["10.7.0.1/32", "10.7.0.2/32", "10.7.0.3/32", "10.7.0.4/32", "10.7.0.5/32"];
        assert_eq!(of("10.7.0.0/29", 0).unwrap()[..5], hosts);
        assert_eq!(of("10.7.0.0/29", 1).unwrap().len(), 6);
        assert_eq!(of("10.7.0.0/29", 2).unwrap()[..4], hosts[1..]);
        assert_eq!(of("10.7.0.0/30", 2).unwrap(), ["10.7.0.2/32"]);
        assert_eq!(of("fd00::/126", 2).unwrap(), ["fd00::2/128", "fd00::3/128"]);
        for none in ["10.7.0.1/24", "10.7.0.0/31", "10.7.0.0/32", "fd00::1/64", "fd00::/127"] {
            assert_eq!(of(none, 2), None, "{none}");
        }
    }

    #[test]
    fn prefixes_are_all_parts_of_a_length() {
        let of = |text, len, kept_back| Pool::prefixes(prefix(text), len, kept_back);
        let parts = all(of("2001:db8:7::/48", 64, 0).unwrap());
        assert_eq!(parts.len(), 1 << 16);
        assert_eq!(parts[..2], ["2001:db8:7::/64", "2001:db8:7:1::/64"]);
        assert_eq!(parts[0xffff], "2001:db8:7:ffff::/64");
        assert_eq!(all(of("10.0.0.0/30", 31, 1).unwrap()), ["10.0.0.2/31"]);
        assert_eq!(all(of("2001:db8::/64", 64, 0).unwrap()), ["2001:db8::/64"]);
        for (none, len, kept_back) in [
            ("2001:db8::/64", 63, 0),
            ("::/0", 0, 0),
            ("0.0.0.0/0", 0, 0),
            ("2001:db8::1/48", 64, 0),
            ("2001:db8::/64", 64, 1),
        ] {
            assert_eq!(of(none, len, kept_back), None, "{none} {len}");
        }
        assert_eq!(of("10.0.0.0/24", 33, 0), None);
    }

    #[test]
    fn what_is_not_a_part_or_lies_behind_the_bound_has_no_number() {
        let pools =
            [("0.0.0.0/0", 32), ("::/0", 128), ("::/0", 64), ("0.0.0.0/0", 24), ("::/0", 1)];
        for (network, len) in pools {
            let pool = Pool::prefixes(prefix(network), len, 0).unwrap();
            let end = MOST.min(1 << len.min(20));
            assert_eq!(pool.numbers(), 0..end, "{network} {len}");
            let last = pool.part(end - 1).unwrap();
            assert_eq!((pool.number(last), pool.part(end)), (Some(end - 1), None));
        }
        let numbered = |pool: Option<Pool>, part| pool.unwrap().number(prefix(part));
        let v4 = Pool::addresses(prefix("0.0.0.0/0"), 2);
        let v6 = Pool::addresses(prefix("::/0"), 2);
        assert_eq!(numbered(v4, "0.15.255.255/32"), Some(MOST - 1));
        assert_eq!(numbered(v6, "::f:ffff/128"), Some(MOST - 1));
        for (pool, part) in
            [(v4, "0.16.0.0/32"), (v6, "::10:0/128"), (v4, "::7/128"), (v6, "0.0.0.7/32")]
        {
            assert_eq!(numbered(pool, part), None, "{part}");
        }
        let some = Pool::prefixes(prefix("2001:db8::/56"), 60, 0);
        assert_eq!(numbered(some, "2001:db8:0:f0::/60"), Some(15));
        for other in
            ["2001:db8:0:f0::/61", "2001:db8:0:f0::1/60", "2001:db8:0:100::/60", "2001:db7::/60"]
        {
            assert_eq!(numbered(some, other), None, "{other}");
        }
    }
}
