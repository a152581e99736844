//! Translators between IPv6 and IPv4 on the way to the anchor (NAT64, 464XLAT). They may drop data without a UDP
//! checksum (RFC 7915, sections 4.5 and 5.1). A kernel datapath omits this checksum, while probes have one and pass.

use core::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_ip::{Prefix, TRANSLATED};

use super::path::Trial;
use super::{Host, Path};

/// IPv4 addresses of hosts whose packets are translated to IPv6 on the host's side (RFC 7335).
const HOSTS: Prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), len: 29 };
/// Time after which requested checksums are in effect at both ends.
const IN_FORCE: Span = Span::from_secs(2);

/// Returns whether the addresses alone show a translator on the way.
fn shows(local: IpAddr, remote: IpAddr) -> bool {
    HOSTS.contains(local) || TRANSLATED.iter().any(|prefix| prefix.contains(remote))
}

impl Path {
    /// Returns whether the host considers a UDP checksum necessary for the path's data. The anchor knows what the host
    /// cannot: whether packets arrive over another protocol.
    pub(super) fn wants_checksums(&self) -> bool {
        self.translated || matches!(self.checksums_tried, Trial::Since(_))
    }

    /// Returns whether data packets have a UDP checksum, on any datapath.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.wants_checksums() || self.grant.as_ref().is_some_and(|grant| grant.checksums)
    }
}

impl Host {
    /// Returns whether packets between these addresses are translated. A destination that is not one of the anchor's
    /// addresses is a translator's.
    pub(super) fn is_translated(&self, local: IpAddr, remote: IpAddr) -> bool {
        shows(local, remote) || !self.anchors.iter().any(|own| own.ip() == remote)
    }

    /// Handles data lost since `since` while probes pass: the cause may be a missing checksum.
    pub(super) fn suspect_translator(&mut self, now: Time, number: u8, since: Time) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let trial = match path.checksums_tried {
            Trial::Never if !path.checksums() => Trial::Since(now),
            Trial::Since(at) if since > at + IN_FORCE => Trial::InVain,
            standing => standing,
        };
        if trial != path.checksums_tried {
            path.checksums_tried = trial;
            self.configure(number);
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
