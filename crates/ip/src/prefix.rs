//! Address prefixes.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address and a prefix length.
///
/// Used in two ways. *The address of an interface with its prefix*, `10.0.0.7/24`, keeps its host bits. *A set of
/// addresses*, `10.0.0.0/24`, has none: [`network`](Prefix::network) returns the set that contains an address.
/// [`contains`](Prefix::contains) and [`nth`](Prefix::nth) treat the prefix as a set and ignore host bits. Equality
/// compares host bits, so code that compares sets, such as a routing table, must compare networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; host bits may be set.
    pub addr: IpAddr,
    /// Prefix length in bits: at most 32 or 128.
    pub len: u8,
}

impl Prefix {
    /// `addr/len` with host bits; a `len` beyond the address is reduced to its width.
    #[must_use]
    pub fn new(addr: impl Into<IpAddr>, len: u8) -> Prefix {
        let addr = addr.into();
        Prefix { addr, len: len.min(width(addr)) }
    }

    /// The prefix that contains only this address.
    #[must_use]
    pub fn host(addr: impl Into<IpAddr>) -> Prefix {
        Prefix::new(addr, u8::MAX)
    }

    /// 0.0.0.0/0 or ::/0.
    #[must_use]
    pub fn default_of(v6: bool) -> Prefix {
        let addr: IpAddr =
            if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        Prefix { addr, len: 0 }
    }

    /// Parses a set of addresses: a prefix, whose host bits are cleared, or a single address.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse_network(text: &str) -> Result<Prefix, BadPrefix> {
        match text.parse::<IpAddr>() {
            Ok(addr) => Ok(Prefix::host(addr)),
            Err(_) => text.parse().map(|prefix: Prefix| prefix.network()),
        }
    }

    /// True if the prefix contains a single address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.host_bits() == 0
    }

    /// True if the prefix contains this address; false for the other family.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        let host_bits = self.host_bits();
        match (self.addr, addr) {
            (IpAddr::V4(own), IpAddr::V4(addr)) => {
                let differing = own.to_bits() ^ addr.to_bits();
                differing.checked_shr(host_bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(addr)) => {
                let differing = own.to_bits() ^ addr.to_bits();
                differing.checked_shr(host_bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The prefix with host bits cleared, as the kernel reports destinations.
    #[must_use]
    pub fn network(&self) -> Prefix {
        let host_bits = self.host_bits();
        let addr = match self.addr {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
        };
        Prefix { addr, len: self.len }
    }

    /// The address `number` after the network's first. `None` beyond the prefix, and for the last IPv4 address
    /// (broadcast).
    #[must_use]
    pub fn nth(&self, number: u32) -> Option<IpAddr> {
        let len = u32::from(self.len);
        match self.network().addr {
            IpAddr::V4(a) => {
                let last = u32::MAX.checked_shr(len).unwrap_or(0);
                (number < last).then(|| Ipv4Addr::from_bits(a.to_bits() + number).into())
            }
            IpAddr::V6(a) => {
                let last = u128::MAX.checked_shr(len).unwrap_or(0);
                let number = u128::from(number);
                (number <= last).then(|| Ipv6Addr::from_bits(a.to_bits() + number).into())
            }
        }
    }

    fn host_bits(&self) -> u32 {
        width(self.addr).saturating_sub(self.len).into()
    }
}

/// Width of an address in bits.
fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// The text that is not a [`Prefix`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPrefix(String);

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadPrefix(text) = self;
        write!(f, "{text:?} is not an address with a prefix length, like 10.0.0.1/24 or fd00::1/64")
    }
}

impl core::error::Error for BadPrefix {}

impl FromStr for Prefix {
    type Err = BadPrefix;
    fn from_str(text: &str) -> Result<Prefix, BadPrefix> {
        let bad = || BadPrefix(text.to_owned());
        let (addr, len) = text.split_once('/').ok_or_else(bad)?;
        let addr: IpAddr = addr.parse().map_err(|_| bad())?;
        let len: u8 = len.parse().map_err(|_| bad())?;
        if len > width(addr) { Err(bad()) } else { Ok(Prefix { addr, len }) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_read_strictly() {
        assert_eq!("10.0.0.1/24".parse(), Ok(Prefix::new([10, 0, 0, 1], 24)));
        assert_eq!("fd00::1/64".parse::<Prefix>().map(|p| p.len), Ok(64));
        for bad in
            ["", "/", "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/-1", "x/3", "fd00::/129"]
        {
            let refused = bad.parse::<Prefix>().unwrap_err().to_string();
            let why = "is not an address with a prefix length, like 10.0.0.1/24 or fd00::1/64";
            assert_eq!(refused, alloc::format!("{bad:?} {why}"));
        }
    }

    #[test]
    fn a_prefix_reads_back_from_its_text_with_its_host_bits() {
        for text in ["0.0.0.0/0", "10.1.2.3/24", "10.1.2.3/32", "::/0", "fd00::1/64", "::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn a_network_is_a_prefix_or_one_address() {
        let network = |text: &str| Prefix::parse_network(text).map(|p| p.to_string());
        assert_eq!(network("192.0.2.7/24").as_deref(), Ok("192.0.2.0/24"));
        assert_eq!(network("192.0.2.7").as_deref(), Ok("192.0.2.7/32"));
        assert_eq!(network("2001:db8::7").as_deref(), Ok("2001:db8::7/128"));
        for bad in ["", "192.0.2", "192.0.2.0/33", "2001:db8::/", "default"] {
            assert_eq!(network(bad), Err(BadPrefix(bad.into())));
        }
    }

    #[test]
    fn a_length_beyond_the_address_means_all_of_it() {
        assert_eq!(Prefix::new([10, 0, 0, 1], 33), Prefix::host([10, 0, 0, 1]));
        assert_eq!(Prefix::new(ip("fd00::1"), 129), Prefix::host(ip("fd00::1")));
        assert_eq!([prefix("10.0.0.1/32"), prefix("::1/128")].map(|p| p.is_host()), [true; 2]);
        assert_eq!([prefix("10.0.0.1/31"), prefix("::1/32")].map(|p| p.is_host()), [false; 2]);
        assert_eq!(Prefix::default_of(false), prefix("0.0.0.0/0"));
        assert_eq!(Prefix::default_of(true), prefix("::/0"));
    }

    #[test]
    fn a_prefix_contains_the_addresses_of_its_family_that_begin_like_it() {
        for (text, first, last) in [
            ("10.8.0.0/23", "10.8.0.0", "10.8.1.255"),
            ("10.8.0.1/32", "10.8.0.1", "10.8.0.1"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("fd08::/64", "fd08::", "fd08::ffff:ffff:ffff:ffff"),
            ("2001:db8::/32", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fd08::1/128", "fd08::1", "fd08::1"),
            ("::/0", "::", "ffff::"),
        ] {
            for set in [prefix(text), Prefix { addr: ip(last), ..prefix(text) }] {
                assert!(set.contains(ip(first)) && set.contains(ip(last)), "{set}");
                assert_eq!(set.network(), prefix(text));
            }
        }
        for (text, other) in [
            ("10.8.0.0/23", "10.8.2.0"),
            ("10.8.0.0/23", "10.7.255.255"),
            ("10.8.0.1/32", "10.8.0.2"),
            ("0.0.0.0/0", "::"),
            ("fd08::/64", "fd08:0:0:1::"),
            ("2001:db8::/32", "2001:db9::1"),
            ("::/0", "10.8.0.1"),
        ] {
            assert!(!prefix(text).contains(ip(other)), "{text} {other}");
        }
    }

    #[test]
    fn host_bits_are_cleared_at_every_length() {
        for len in 0..=32 {
            let kept = (0..len).map(|bit| 1 << (31 - bit)).sum::<u32>();
            let network = Prefix::new([255; 4], len).network();
            assert_eq!(network, Prefix { addr: kept.to_be_bytes().into(), len });
        }
        for len in 0..=128 {
            let kept = (0..len).map(|bit| 1 << (127 - bit)).sum::<u128>();
            let network = Prefix::new([255; 16], len).network();
            assert_eq!(network, Prefix { addr: kept.to_be_bytes().into(), len });
        }
        let cleared = |text: &str| prefix(text).network().to_string();
        assert_eq!(cleared("10.1.2.3/24"), "10.1.2.0/24");
        assert_eq!(cleared("fd61:1::5/64"), "fd61:1::/64");
    }

    #[test]
    fn addresses_are_counted_from_the_network_to_its_end() {
        let nth = |text: &str, number| prefix(text).nth(number).map(|a| a.to_string());
        // Host bits are ignored; the last IPv4 address is the broadcast address.
        for text in ["10.1.0.0/30", "10.1.0.2/30"] {
            assert_eq!(nth(text, 0).as_deref(), Some("10.1.0.0"));
            assert_eq!(nth(text, 2).as_deref(), Some("10.1.0.2"));
            assert_eq!(nth(text, 3), None);
        }
        assert_eq!(nth("10.1.0.1/32", 0), None);
        assert_eq!(nth("0.0.0.0/0", u32::MAX - 1).as_deref(), Some("255.255.255.254"));
        assert_eq!(nth("0.0.0.0/0", u32::MAX), None);
        for text in ["fd00::/126", "fd00::2/126"] {
            assert_eq!(nth(text, 3).as_deref(), Some("fd00::3"));
            assert_eq!(nth(text, 4), None);
        }
        assert_eq!(nth("fd00::1/128", 0).as_deref(), Some("fd00::1"));
        assert_eq!(nth("fd00::1/128", 1), None);
        assert_eq!(nth("::/0", u32::MAX).as_deref(), Some("::ffff:ffff"));
    }
}
