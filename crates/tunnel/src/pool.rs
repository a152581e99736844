//! Inner addresses for hosts.

use alloc::string::String;
use core::net::IpAddr;

use segue_clock::Span;
use segue_ip::Prefix;
use segue_mobility::Leases;

/// A prefix of inner addresses. The first address after the network address is the anchor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(segue_mobility::Pool);

/// The network address and the anchor's address.
const KEPT_BACK: u32 = 2;

impl Pool {
    /// A pool of a prefix; `None` if host bits are set or there is no room for an anchor and one host.
    #[must_use]
    pub fn new(prefix: Prefix) -> Option<Pool> {
        segue_mobility::Pool::addresses(prefix, KEPT_BACK).map(Pool)
    }

    /// The prefix of the pool.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        self.0.network()
    }

    /// The anchor's own address.
    #[must_use]
    pub fn anchor(&self) -> IpAddr {
        self.prefix().nth(1).expect("a pool has room for its anchor")
    }

    /// Leases by host name. They do not expire, because a host keeps its addresses until it is removed.
    pub(crate) fn leases(&self) -> Leases<String> {
        Leases::new(self.0, Span::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Option<Pool> {
        Pool::new(text.parse().unwrap())
    }

    #[test]
    fn the_first_address_is_the_anchors_and_hosts_get_those_behind_it() {
        let pool = pool("10.7.0.0/30").unwrap();
        assert_eq!(pool.anchor(), "10.7.0.1".parse::<IpAddr>().unwrap());
        let mut leases = pool.leases();
        let mut lease = |name: &str| leases.lease(segue_clock::Time(0), &name.into(), None);
        assert_eq!(lease("a"), Some(Prefix::host([10, 7, 0, 2])));
        assert_eq!(lease("b"), None);
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
}
