//! IPv4 addresses embedded in IPv6 addresses for translators (NAT64, RFC 6052).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Prefix;

/// The allowed prefix lengths (RFC 6052, section 2.2), longest first.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// Index of the octet that must be zero (RFC 6052, section 2.2).
const U: usize = 8;
/// The addresses of `ipv4only.arpa` (RFC 7050, section 8.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// `Pref64::/n`, the prefix of the IPv6 addresses that a translator maps to IPv4.
///
/// ```text
/// +--+--+--+--+--+--+--+--+--+--+--+--+--+--+--+--+
/// |32|     prefix    |v4(32)         | u | suffix |
/// |40|     prefix        |v4(24)     | u |(8)|    |
/// |48|     prefix            |v4(16) | u | (16)|  |
/// |56|     prefix                |(8)| u |v4(24)| |
/// |64|     prefix                    | u | v4(32) |
/// |96|     prefix                            |v4  |
/// +--+--+--+--+--+--+--+--+--+--+--+--+--+--+--+--+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pref64 {
    network: Ipv6Addr,
    len: u8,
}

/// Why a prefix is not a [`Pref64`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPref64 {
    /// An IPv4 prefix, or not one of the six lengths.
    Length(u8),
    /// Bits 64 to 71 are not zero.
    OctetU(u8),
    /// Loopback, link-local, multicast or another reserved range.
    Reserved(Ipv6Addr),
}

impl Pref64 {
    /// Checks the prefix and clears its host bits.
    ///
    /// # Errors
    /// The prefix is not allowed for a translator.
    pub fn new(prefix: Prefix) -> Result<Pref64, BadPref64> {
        let len = prefix.len;
        let Prefix { addr: IpAddr::V6(network), .. } = prefix.network() else {
            return Err(BadPref64::Length(len));
        };
        let u = network.octets()[U];
        match () {
            () if !LENGTHS.contains(&len) => Err(BadPref64::Length(len)),
            () if u != 0 => Err(BadPref64::OctetU(u)),
            () if is_reserved(network, len) => Err(BadPref64::Reserved(network)),
            () => Ok(Pref64 { network, len }),
        }
    }

    /// The prefix that a resolver used to synthesize an address of `ipv4only.arpa` (RFC 7050, section 3). All bits
    /// other than the prefix and the IPv4 address must be zero, so an answer has at most one reading.
    #[must_use]
    pub fn of_well_known(answer: Ipv6Addr) -> Option<Pref64> {
        LENGTHS.into_iter().find_map(|len| {
            let pref64 = Pref64::new(Prefix::new(answer, len)).ok()?;
            WELL_KNOWN.iter().any(|known| pref64.embed(*known) == answer).then_some(pref64)
        })
    }

    /// The IPv6 address that the translator maps to `address`.
    #[must_use]
    pub fn embed(&self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.network.octets();
        for (at, octet) in self.places().zip(address.octets()) {
            octets[at] = octet;
        }
        octets.into()
    }

    /// The IPv4 address to which the translator maps `address`; `None` if it is outside the prefix or octet u is not
    /// zero. The suffix is ignored.
    #[must_use]
    pub fn extract(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = address.octets();
        if !self.prefix().contains(address.into()) || octets[U] != 0 {
            return None;
        }
        let mut v4 = [0; 4];
        for (octet, at) in v4.iter_mut().zip(self.places()) {
            *octet = octets[at];
        }
        Some(v4.into())
    }

    /// The prefix as a set of addresses.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        Prefix { addr: self.network.into(), len: self.len }
    }

    /// Indices of the octets that hold the IPv4 address.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (usize::from(self.len / 8)..16).filter(|at| *at != U).take(4)
    }
}

/// The prefixes reserved for translators: the well-known one (RFC 6052, section 2.1), and the local-use one (RFC 8215).
pub const TRANSLATED: [Prefix; 2] = [
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), len: 96 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0)), len: 48 },
];

/// True if no translator can have the prefix: link-local, multicast, or in ::/8 (loopback, IPv4-mapped and similar)
/// outside [`TRANSLATED`].
fn is_reserved(network: Ipv6Addr, len: u8) -> bool {
    let within = |of: &Prefix| len >= of.len && of.contains(network.into());
    let first = network.octets()[0];
    first == 0 && !TRANSLATED.iter().any(within)
        || network.is_unicast_link_local()
        || network.is_multicast()
}

impl fmt::Display for Pref64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

impl fmt::Display for BadPref64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPref64::Length(len) => {
                write!(
                    f,
                    "a prefix of {len} bits, where a translator's has 32, 40, 48, 56, 64 or 96"
                )
            }
            BadPref64::OctetU(u) => write!(f, "bits 64 to 71 are {u:#04x} and not zero"),
            BadPref64::Reserved(network) => {
                write!(f, "{network} is not of addresses that a translator can have")
            }
        }
    }
}

impl core::error::Error for BadPref64 {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    fn pref64(text: &str) -> Result<Pref64, BadPref64> {
        Pref64::new(text.parse().unwrap())
    }

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_those_of_the_tables_of_rfc_6052_section_2_4() {
        let address = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, embedded) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let known = pref64(prefix).unwrap();
            assert_eq!(known.embed(address), v6(embedded), "{prefix}");
            assert_eq!(known.extract(v6(embedded)), Some(address), "{prefix}");
            assert_eq!(known.to_string(), prefix);
        }
    }

    #[test]
    fn nothing_is_extracted_outside_of_the_prefix_or_with_another_octet_u() {
        let known = pref64("2001:db8:122:300::/56").unwrap();
        assert_eq!(known.extract(v6("2001:db8:122:4c0:0:221::")), None);
        assert_eq!(known.extract(v6("2001:db8:122:3c0:100:221::")), None);
        let behind = known.extract(v6("2001:db8:122:3c0:0:221:7:9"));
        assert_eq!(behind, Some(Ipv4Addr::new(192, 0, 2, 33)), "the suffix does not matter");
    }

    #[test]
    fn prefixes_that_no_translator_can_have_are_refused() {
        let local = "64:ff9b:1:abcd::/96";
        for fits in ["64:ff9b::/96", "64:ff9b:1::/48", local, "fd00:64::/96", "2001:db8::5/32"] {
            assert!(pref64(fits).is_ok(), "{fits}");
        }
        for (prefix, len) in [
            ("10.0.0.0/24", 24),
            ("10.0.0.0/32", 32),
            ("2001:db8::/33", 33),
            ("2001:db8::/128", 128),
        ] {
            assert_eq!(pref64(prefix), Err(BadPref64::Length(len)), "{prefix}");
        }
        assert_eq!(pref64("2001:db8:0:0:700::/96"), Err(BadPref64::OctetU(7)));
        for reserved in [
            "::/96",
            "::ffff:0:0/96",
            "::/32",
            "64:ff9b::/32",
            "64:ff9b:2::/48",
            "fe80::/64",
            "febf::/32",
            "ff02::/96",
        ] {
            let refused = pref64(reserved);
            assert!(matches!(refused, Err(BadPref64::Reserved(_))), "{reserved}: {refused:?}");
        }
    }

    #[test]
    fn a_resolvers_answer_shows_its_prefix_and_anything_else_shows_none() {
        let of = |answer: &str| Pref64::of_well_known(v6(answer)).map(|known| known.to_string());
        for (answer, prefix) in [
            ("64:ff9b::c000:aa", "64:ff9b::/96"),
            ("2001:db8:64::c000:ab", "2001:db8:64::/96"),
            ("2001:db8:64:0:c0:0:aa00::", "2001:db8:64::/64"),
            // The address occurs twice, once as part of the prefix.
            ("2001:db8:c000:aa::c000:ab", "2001:db8:c000:aa::/96"),
            ("2001:db8:c000:aa::", "2001:db8::/32"),
        ] {
            assert_eq!(of(answer).as_deref(), Some(prefix), "{answer}");
        }
        for none in [
            "2001:db8::1",
            "2001:db8:64::c000:ac",
            "::192.0.0.170",
            "::ffff:192.0.0.170",
            "fe80::c000:aa",
            "ff02::c000:aa",
            "2001:db8:0:0:100::c000:aa",
            // The suffix is not zero.
            "2001:db8:c000:aa::1",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    fn any_pref64() -> impl Strategy<Value = Pref64> {
        let prefix = (any::<u128>(), proptest::sample::select(&LENGTHS[..]));
        prefix.prop_filter_map("a translator's", |(bits, len)| {
            let bits = bits & !(0xff << 56);
            Pref64::new(Prefix::new(Ipv6Addr::from_bits(bits), len)).ok()
        })
    }

    proptest! {
        #[test]
        fn what_is_embedded_is_extracted(known in any_pref64(), v4: u32, suffix: u128) {
            let address = Ipv4Addr::from_bits(v4);
            let embedded = known.embed(address);
            prop_assert!(known.prefix().contains(embedded.into()));
            prop_assert_eq!(embedded.octets()[U], 0);
            prop_assert_eq!(known.extract(embedded), Some(address));
            // The result does not depend on the suffix.
            let end = known.places().last().unwrap() + 1;
            let behind = u128::MAX.checked_shr(8 * end as u32).unwrap_or(0) & !(0xff << 56);
            let longer = Ipv6Addr::from_bits(embedded.to_bits() | suffix & behind);
            prop_assert_eq!(known.extract(longer), Some(address));
        }

        #[test]
        fn a_resolvers_prefix_is_found_whatever_it_is(known in any_pref64(), which in 0..2usize) {
            let answer = known.embed(WELL_KNOWN[which]);
            prop_assert_eq!(Pref64::of_well_known(answer), Some(known));
        }

        #[test]
        fn no_address_has_a_prefix_that_does_not_lead_back_to_it(bits: u128) {
            let answer = Ipv6Addr::from_bits(bits);
            if let Some(known) = Pref64::of_well_known(answer) {
                prop_assert!(WELL_KNOWN.contains(&known.extract(answer).unwrap()));
            }
        }
    }
}
