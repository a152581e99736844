//! Source address selection (RFC 6724, section 5).

use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

use crate::Prefix;

/// Sorts candidate source addresses for `destination`, best first. The candidates belong to one interface and to the
/// destination's family. Rules 1, 2, 3, 6 and 8 apply; ties keep their order.
pub fn order_sources(
    destination: IpAddr,
    candidates: &mut [IpAddr],
    is_deprecated: impl Fn(&IpAddr) -> bool,
) {
    let wanted = scope(destination);
    candidates.sort_by_cached_key(|source| {
        let scope = scope(*source);
        (
            *source != destination,
            scope < wanted,
            scope.abs_diff(wanted),
            is_deprecated(source),
            label(*source) != label(destination),
            Reverse(common_bits(*source, destination)),
        )
    });
}

/// Multicast scope values (RFC 4291, section 2.7); for IPv4 as in RFC 6724, section 3.2.
fn scope(address: IpAddr) -> u8 {
    const LINK: u8 = 2;
    const SITE: u8 = 5;
    const GLOBAL: u8 = 14;
    match address {
        IpAddr::V4(a) if a.is_loopback() || a.is_link_local() => LINK,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(a) if a.is_multicast() => a.octets()[1] & 0xf,
        IpAddr::V6(a) if a.is_loopback() || a.is_unicast_link_local() => LINK,
        IpAddr::V6(a) if a.segments()[0] & 0xffc0 == 0xfec0 => SITE,
        IpAddr::V6(_) => GLOBAL,
    }
}

/// Labels of the default policy table (RFC 6724, section 2.1).
const LABELS: [([u16; 2], u8, u8); 5] = [
    ([0x2002, 0], 16, 2),
    ([0x2001, 0], 32, 5),
    ([0xfc00, 0], 7, 13),
    ([0xfec0, 0], 10, 11),
    ([0x3ffe, 0], 16, 12),
];

fn label(address: IpAddr) -> u8 {
    let IpAddr::V6(v6) = address else { return 4 };
    let has = |([a, b], len): ([u16; 2], u8)| {
        Prefix::new(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), len).contains(address)
    };
    let special = LABELS.iter().find(|(start, len, _)| has((*start, *len)));
    special.map_or(u8::from(v6 != Ipv6Addr::LOCALHOST), |(_, _, label)| *label)
}

/// Number of leading bits that two addresses share; for IPv6 at most 64, the length of a subnet prefix.
fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros().min(64),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use super::*;

    fn best(destination: &str, candidates: &[&str], deprecated: &[&str]) -> String {
        let ip = |text: &&str| text.parse::<IpAddr>().unwrap();
        let mut all: Vec<IpAddr> = candidates.iter().map(ip).collect();
        let old: Vec<IpAddr> = deprecated.iter().map(ip).collect();
        order_sources(destination.parse().unwrap(), &mut all, |a| old.contains(a));
        all[0].to_string()
    }

    #[test]
    fn the_examples_of_rfc_6724_section_10_1_hold() {
        for (destination, candidates, chosen) in [
            ("2001:db8:1::1", ["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            ("ff05::1", ["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            ("fe80::1", ["2001:db8:2::1", "fe80::2"], "fe80::2"),
            ("2001:db8:1::1", ["2001:db8:3::2", "2001:db8:1::2"], "2001:db8:1::2"),
            (
                "2002:c633:6401::1",
                ["2001:db8:1::2", "2002:c633:6401::d5e3"],
                "2002:c633:6401::d5e3",
            ),
        ] {
            assert_eq!(best(destination, &candidates, &[]), chosen, "{destination}");
        }
        let own = ["2001:db8:1::1", "fe80::1"];
        assert_eq!(best("2001:db8:1::1", &own, &["2001:db8:1::1"]), "2001:db8:1::1");
    }

    #[test]
    fn deprecated_addresses_come_last_and_unique_local_ones_after_global_ones() {
        let two = ["2001:db8:1::2", "2001:db8:9::2"];
        assert_eq!(best("2001:db8:1::1", &two, &[two[0]]), two[1]);
        assert_eq!(best("2001:db8:1::1", &two, &two), two[0]);
        assert_eq!(best("2001:db8:1::1", &["fd00::2", two[1]], &[]), two[1]);
        assert_eq!(best("fd00::1", &["fd00:1::2", two[1]], &[]), "fd00:1::2");
        assert_eq!(best("10.93.0.2", &["10.0.0.2", "10.91.0.2"], &[]), "10.91.0.2");
        assert_eq!(best("192.0.2.1", &["169.254.1.2", "10.0.0.2"], &[]), "10.0.0.2");
    }
}
