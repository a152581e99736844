//! Translators between IPv6 and IPv4 on the way to the anchor (NAT64, 464XLAT). They may drop data without a UDP
//! checksum (RFC 7915, 4.5 and 5.1), which a datapath in the kernel leaves out, while probes have one and pass.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Prefix;

use super::{Host, Path};

/// Prefixes for addresses of IPv4 hosts: the well-known one (RFC 6052), and the one for use within a network (RFC 8215).
const MAPPED: [Prefix; 2] = [
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), len: 96 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0)), len: 48 },
];
/// IPv4 addresses of hosts whose packets are translated to IPv6 before they leave (RFC 7335).
const TRANSLATED: Prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), len: 29 };

/// Whether the addresses alone say that a translator is on the way. The anchor sees others by the family of what arrives.
fn shows(local: IpAddr, remote: IpAddr) -> bool {
    TRANSLATED.contains(local) || MAPPED.iter().any(|prefix| prefix.contains(remote))
}

impl Path {
    /// Whether the host thinks that the path's data need a UDP checksum.
    pub(super) fn wants_checksums(&self) -> bool {
        self.filters_data || shows(self.local, self.remote.ip())
    }

    /// Data have a UDP checksum, whatever the datapath.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.checksums)
    }
}

impl Host {
    /// Data die on a path where probes pass: perhaps for want of a checksum.
    pub(super) fn suspect_translator(&mut self, number: u8) {
        let Some(path) = self.paths.get_mut(&number).filter(|path| !path.filters_data) else {
            return;
        };
        path.filters_data = true;
        if !path.checksums() {
            self.offer(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translator_shows_in_the_prefix_of_the_anchor_and_in_the_own_address() {
        for (local, remote, shown) in [
            ("2001:db8::2", "64:ff9b::192.0.2.1", true),
            ("2001:db8::2", "64:ff9b:1:abcd::192.0.2.1", true),
            ("2001:db8::2", "64:ff9b:2::192.0.2.1", false),
            ("192.0.0.4", "192.0.2.1", true),
            ("192.0.0.9", "192.0.2.1", false),
            ("10.0.0.1", "192.0.2.1", false),
        ] {
            let [local, remote] = [local, remote].map(|a| a.parse().unwrap());
            assert_eq!(shows(local, remote), shown, "{local} to {remote}");
        }
    }
}
