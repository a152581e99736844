//! Bounds an anchor's handshakes in progress, in total and per network.
//!
//! An attacker with many addresses usually has them in one network, so networks are counted: IPv4 by /24 and IPv6 by
//! /48. Providers route nothing longer between them, so an independently held network is at least that large. Hosts
//! behind one provider's address translation count as one network, but would count as one address as well.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::pace::Pace;

/// From this many handshakes in progress, a source must first prove that it receives at its address (RFC 9000, section
/// 8.1.2). This stops handshakes with a spoofed source.
pub(super) const UNASKED: usize = 32;
/// The same, per network.
pub(super) const UNASKED_OF_NETWORK: usize = 8;
/// Most handshakes in progress, including the host's first message; further ones are not answered.
pub(super) const MOST: usize = 1_024;
/// The same, per network. When an anchor restarts, all its hosts connect at once, possibly from one network; each makes
/// attempts over several ways, and packets that it sent during the outage wait in the socket.
pub(super) const MOST_OF_NETWORK: usize = 128;
/// Burst of handshakes per network. Beyond it, a source must first prove that it receives, and even then is not
/// answered.
pub(super) const BURST: u32 = 512;
/// Time between two handshakes of a network that has used its burst.
pub(super) const PACE: Duration = Duration::from_millis(10);
/// Networks remembered before idle ones are forgotten. A network is idle if it has no handshake in progress and has
/// paid off its burst, at one handshake per [`PACE`].
const REMEMBERED: usize = 1_024;

/// The treatment of a new handshake.
pub(super) enum Verdict {
    /// Proceed. Drop the place when the handshake ends.
    Serve(Place),
    /// The source must first prove that it receives.
    Retry,
    /// Ignore it.
    Ignore,
}

/// The handshakes in progress. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Handshakes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    under_way: usize,
    networks: BTreeMap<IpAddr, Network>,
}

#[derive(Default)]
struct Network {
    under_way: usize,
    pace: Pace,
}

/// A handshake in progress.
pub(super) struct Place {
    handshakes: Handshakes,
    network: IpAddr,
}

impl Handshakes {
    /// Decides on a handshake from `source`; `validated` if the source has proved that it receives.
    pub(super) fn begin(&self, source: IpAddr, validated: bool, now: Instant) -> Verdict {
        let network = network_of(source);
        let mut state = self.lock();
        let known = state.networks.get(&network);
        let own = known.map_or(0, |known| known.under_way);
        let spent = known.is_some_and(|known| !known.pace.wait(PACE, BURST, now).is_zero());
        let full = state.under_way >= MOST || own >= MOST_OF_NETWORK || spent;
        if !validated && (full || state.under_way >= UNASKED || own >= UNASKED_OF_NETWORK) {
            return Verdict::Retry;
        }
        if full {
            return Verdict::Ignore;
        }
        if state.networks.len() >= REMEMBERED {
            state.networks.retain(|_, known| known.under_way > 0 || !known.pace.is_settled(now));
        }
        state.under_way += 1;
        let known = state.networks.entry(network).or_default();
        known.under_way += 1;
        known.pace.spend(PACE, BURST, now);
        Verdict::Serve(Place { handshakes: self.clone(), network })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.handshakes.lock();
        state.under_way -= 1;
        if let Some(known) = state.networks.get_mut(&self.network) {
            known.under_way -= 1;
        }
    }
}

fn network_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !0xff).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins handshakes from these sources and lets none end; returns how many were served.
    fn served(
        handshakes: &Handshakes,
        sources: impl Iterator<Item = IpAddr>,
        validated: bool,
        now: Instant,
    ) -> Vec<Place> {
        let begin = |source| match handshakes.begin(source, validated, now) {
            Verdict::Serve(place) => Some(place),
            _ => None,
        };
        sources.filter_map(begin).collect()
    }

    fn v4(network: u8) -> impl Iterator<Item = IpAddr> {
        (0..=255).map(move |n| IpAddr::from([192, 0, network, n]))
    }

    #[test]
    fn a_network_has_its_share_of_the_handshakes_under_way_however_many_addresses_it_has() {
        let (handshakes, now) = (Handshakes::default(), Instant::now());
        let held = served(&handshakes, v4(2), true, now);
        assert_eq!(held.len(), MOST_OF_NETWORK);
        let v6 = (0..5_000u128).map(|n| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n << 60).into());
        let held_v6 = served(&handshakes, v6, true, now);
        assert_eq!(held_v6.len(), MOST_OF_NETWORK);
        assert_eq!(served(&handshakes, v4(3), true, now).len(), MOST_OF_NETWORK, "another's");
        drop(held);
        assert_eq!(served(&handshakes, v4(2), true, now).len(), MOST_OF_NETWORK);
        // An IPv4 address counts the same in its IPv4-mapped form.
        let mapped = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
            v6 => v6,
        };
        assert_eq!(network_of(mapped([192, 0, 2, 1].into())), network_of([192, 0, 2, 9].into()));
    }

    #[test]
    fn fifty_hosts_of_one_network_come_back_at_once() {
        let (handshakes, start) = (Handshakes::default(), Instant::now());
        // Each makes an attempt over each of two ways, and left two more hanging that it gave up during the outage.
        let mut held = Vec::new();
        for attempt in 0..2 {
            held.extend(served(&handshakes, v4(2).take(50), true, start));
            assert_eq!(held.len(), 50 * (attempt + 1), "those that hang");
        }
        for second in 0..3 {
            let now = start + Duration::from_secs(second);
            let ended = (0..100).filter(|n| {
                let source = IpAddr::from([192, 0, 2, n / 2]);
                matches!(handshakes.begin(source, true, now), Verdict::Serve(_))
            });
            assert_eq!(ended.count(), 100, "in second {second}");
        }
    }

    #[test]
    fn a_network_that_ends_its_handshakes_fast_begins_them_at_a_pace() {
        let (handshakes, start) = (Handshakes::default(), Instant::now());
        let tries = |network: u8, at_ms: u64| {
            let now = start + Duration::from_millis(at_ms);
            let source = IpAddr::from([192, 0, network, 1]);
            matches!(handshakes.begin(source, true, now), Verdict::Serve(_))
        };
        // Ten thousand in a second, each of which ends at once.
        let began = (0..10_000).filter(|n| tries(2, n / 10)).count();
        assert!((512 + 99..=512 + 101).contains(&began), "{began}");
        assert!(tries(3, 999), "another network's");
    }

    #[test]
    fn sources_that_have_shown_nothing_can_take_neither_all_places_nor_those_of_a_network() {
        let (handshakes, now) = (Handshakes::default(), Instant::now());
        let mut held = served(&handshakes, v4(2), false, now);
        assert_eq!(held.len(), UNASKED_OF_NETWORK);
        held.extend((3..100).flat_map(|n| served(&handshakes, v4(n), false, now)));
        assert_eq!(held.len(), UNASKED);
        let shown = served(&handshakes, v4(2), true, now);
        assert_eq!(shown.len(), MOST_OF_NETWORK - UNASKED_OF_NETWORK, "who receives is let in");
        let all: Vec<Place> =
            (100..150).flat_map(|n| served(&handshakes, v4(n), true, now)).collect();
        assert_eq!(all.len() + held.len() + shown.len(), MOST);
    }

    #[test]
    fn many_networks_together_fill_all_places_and_the_next_waits_until_one_is_free() {
        let (handshakes, now) = (Handshakes::default(), Instant::now());
        let mut held: Vec<Place> =
            (0..200).flat_map(|n| served(&handshakes, v4(n), true, now)).collect();
        assert_eq!(held.len(), MOST);
        let new = |validated| handshakes.begin([198, 51, 100, 1].into(), validated, now);
        assert!(matches!(new(false), Verdict::Retry));
        assert!(matches!(new(true), Verdict::Ignore), "nothing is answered to it");
        held.pop();
        assert!(matches!(new(true), Verdict::Serve(_)));
    }

    #[test]
    fn networks_of_which_nothing_need_be_remembered_are_forgotten() {
        let (handshakes, start) = (Handshakes::default(), Instant::now());
        for n in 0..50_000u32 {
            let now = start + Duration::from_millis(u64::from(n));
            let source = IpAddr::from(Ipv4Addr::from_bits(n << 8));
            drop(handshakes.begin(source, true, now));
        }
        assert!(handshakes.lock().networks.len() <= REMEMBERED);
    }
}
