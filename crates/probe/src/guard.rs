//! Restricts the sources that a public listener answers, and the rate of answers.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Context;
use segue_clock::{Span, Time};
use segue_ip::Prefix;

/// Number of buckets for all sources. Sources that share a bucket share its rate, so a flood of sources needs no more
/// memory. The hash differs in every run, so an attacker cannot choose which sources share a bucket.
const BUCKETS: usize = 1 << 16;

/// Refused: the source is not listed in `--allow`.
pub(crate) const NOT_ALLOWED: &str = "not_allowed";
/// Refused: more requests than `--rate-limit` or `--rate-limit-total` allows.
pub(crate) const RATE_LIMIT: &str = "rate_limit";

/// Limits in answers per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Per source: an IPv4 address, or an IPv6 /64.
    pub source: Option<u32>,
    /// For all sources together.
    pub total: Option<u32>,
}

/// Decides which requests are answered.
pub struct Guard {
    allowed: Vec<Prefix>,
    rates: Rates,
    /// The bucket for all sources together.
    total: Bucket,
    sources: Vec<Bucket>,
    hasher: RandomState,
}

impl Guard {
    /// Answers sources in `allowed` (all, if it is empty) at these rates.
    pub fn new(allowed: Vec<Prefix>, rates: Rates) -> Guard {
        let buckets = if rates.source.is_some() { BUCKETS } else { 0 };
        Guard {
            allowed,
            rates,
            total: Bucket::default(),
            sources: vec![Bucket::default(); buckets],
            hasher: RandomState::new(),
        }
    }

    /// True if every source is allowed.
    pub fn is_open(&self) -> bool {
        self.allowed.is_empty()
    }

    /// True if this source is allowed.
    pub fn allows(&self, source: IpAddr) -> bool {
        self.allowed.is_empty() || self.allowed.iter().any(|prefix| prefix.contains(source))
    }

    /// True if an answer to this source may be sent; if so, counts it against the limits.
    pub(crate) fn admits(&mut self, source: IpAddr, now: Time) -> bool {
        let place = (self.hasher.hash_one(network(source)) % BUCKETS as u64) as usize;
        let (one, all) = (self.rates.source, self.rates.total);
        let bucket = self.sources.get_mut(place);
        // The source's bucket comes first, so that an excessive source does not use up the total.
        let Some(bucket) = bucket else { return self.total.take(all, now) };
        bucket.take(one, now) && self.total.take(all, now)
    }
}

/// Parses the networks of `--allow`.
///
/// # Errors
/// One line that shows the form of a network.
pub(crate) fn parse_allowed(texts: &[String]) -> anyhow::Result<Vec<Prefix>> {
    let parse = |text: &String| {
        Prefix::parse_network(text).ok().with_context(|| {
            format!(
                "--allow {text}: not an address or network; examples: 192.0.2.0/24, 2001:db8::/32"
            )
        })
    };
    texts.iter().map(parse).collect()
}

/// The unit that shares a limit: over IPv6 the /64, since one client usually controls all of it.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A token bucket that holds tokens for one second; initially full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// When it will be full again.
    full_at: Time,
}

impl Bucket {
    fn take(&mut self, rate: Option<u32>, now: Time) -> bool {
        let Some(rate) = rate else { return true };
        let each = Span(1_000_000_000 / u64::from(rate.max(1)));
        let full_at = self.full_at.max(now) + each;
        let admitted = full_at.since(now) <= Span::from_secs(1);
        if admitted {
            self.full_at = full_at;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str], source: Option<u32>, total: Option<u32>) -> Guard {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        Guard::new(parse_allowed(&allowed).unwrap(), Rates { source, total })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_networks_on_the_list_are_allowed() {
        let some = guard(&["192.0.2.0/25", "2001:db8::/32", "198.51.100.7"], None, None);
        for (address, allowed) in [
            ("192.0.2.127", true),
            ("192.0.2.128", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(some.allows(ip(address)), allowed, "{address}");
        }
        assert!(guard(&["0.0.0.0/0"], None, None).allows(ip("203.0.113.1")));
        assert!(!guard(&["0.0.0.0/0"], None, None).allows(ip("::1")));
        assert!(guard(&[], None, None).allows(ip("::1")));
        assert!(parse_allowed(&["192.0.2.0/33".to_owned()]).is_err());
    }

    #[test]
    fn a_source_gets_its_rate_and_what_is_refused_takes_nothing_from_others() {
        let mut guard = guard(&[], Some(10), Some(15));
        let count = |guard: &mut Guard, source: &str, now| {
            (0..100).filter(|_| guard.admits(ip(source), now)).count()
        };
        let start = Time(5_000_000_000);
        assert_eq!(count(&mut guard, "192.0.2.1", start), 10);
        assert_eq!(count(&mut guard, "192.0.2.1", start + Span::from_millis(500)), 5);
        // The total is a bucket for one second as well: 15 tokens are used, and half a second has returned 7.
        assert_eq!(count(&mut guard, "192.0.2.2", start + Span::from_millis(500)), 7);
        let much_later = start + Span::from_secs(3_600);
        assert_eq!(count(&mut guard, "192.0.2.1", much_later), 10, "no more than a second's worth");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_rate() {
        let mut guard = guard(&[], Some(10), None);
        let now = Time(5_000_000_000);
        let admitted = (0..100).filter(|n| guard.admits(ip(&format!("2001:db8::{n}")), now));
        assert_eq!(admitted.count(), 10);
    }
}
