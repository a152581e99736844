//! Datagrams that wait for a machine, in one queue per peer. Peers take turns, so that one that sends more than the
//! machine can take delays only itself; datagrams that do not fit into its queue are dropped and counted. All strangers
//! share one queue.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Datagram, Prefix};

/// Most queued datagrams of a peer.
const OF_A_PEER: usize = 1_024;
/// Above this many queued datagrams, or bytes, a peer may have only one datagram queued.
const OF_ALL: usize = 8_192;
const BYTES: usize = 16 << 20;
/// Most queued bytes.
const BYTES_MAX: usize = 2 * BYTES;
/// Most peers with queued datagrams. Datagrams of further peers are dropped.
const PEERS: usize = 4_096;

/// The owner of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    /// Any sender on this link. Addresses there prove nothing, so the link has one share.
    OnLink(u32),
    /// An address of a peer.
    Known(IpAddr),
    /// All other addresses.
    Stranger,
}

/// The queues.
#[derive(Default)]
pub(crate) struct Fair {
    /// Addresses outside these prefixes are strangers; `None`: no address is.
    known: Option<Vec<Prefix>>,
    queues: BTreeMap<Peer, VecDeque<(Time, Datagram)>>,
    /// Peers with a queue, in the order of their turns.
    turns: VecDeque<Peer>,
    waiting: usize,
    bytes: usize,
}

/// The queue is full: a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// From a stranger.
    OfStranger,
    /// From a peer.
    OfPeer,
}

impl Fair {
    /// Sets the addresses of peers.
    pub(crate) fn know(&mut self, known: Vec<Prefix>) {
        self.known = Some(known);
    }

    fn peer(&self, datagram: &Datagram) -> Peer {
        let is_known = |address| {
            self.known.as_ref().is_none_or(|all| all.iter().any(|known| known.contains(address)))
        };
        match (datagram.from, datagram.interface) {
            ((_, 0), Some(link)) if datagram.protocol == segue_linux::raw::ICMPV6 => {
                Peer::OnLink(link)
            }
            ((address, _), _) if is_known(address) => Peer::Known(address),
            _ => Peer::Stranger,
        }
    }

    /// Queues a datagram with its arrival time.
    pub(crate) fn push(&mut self, arrived: Time, datagram: Datagram) -> Result<(), Dropped> {
        let peer = self.peer(&datagram);
        let dropped = if peer == Peer::Stranger { Dropped::OfStranger } else { Dropped::OfPeer };
        let is_calm = self.waiting < OF_ALL && self.bytes < BYTES;
        let most = if is_calm { OF_A_PEER } else { 1 };
        let length = datagram.bytes.len();
        let is_room = self.queues.len() < PEERS && self.bytes < BYTES_MAX;
        match self.queues.get_mut(&peer) {
            Some(queue) if queue.len() < most => queue.push_back((arrived, datagram)),
            Some(_) => return Err(dropped),
            None if is_room => {
                self.queues.insert(peer, VecDeque::from([(arrived, datagram)]));
                self.turns.push_back(peer);
            }
            None => return Err(dropped),
        }
        self.waiting += 1;
        self.bytes += length;
        Ok(())
    }

    /// The next datagram, from the peer whose turn it is.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Datagram> {
        let peer = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&peer)?;
        let (arrived, mut datagram) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        self.waiting -= 1;
        self.bytes -= datagram.bytes.len();
        datagram.waited_ns = now.since(arrived).0;
        Some(datagram)
    }

    /// Returns whether all queues are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use segue_clock::Span;

    use super::*;

    fn from(address: &str, interface: u32, protocol: u8) -> Datagram {
        Datagram {
            interface: Some(interface),
            from: (address.parse().unwrap(), if protocol == 17 { 5_436 } else { 0 }),
            to: ("fd00::1".parse().unwrap(), 0),
            protocol,
            hop_limit: 64,
            waited_ns: 0,
            bytes: Vec::new(),
        }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn one_peer_that_floods_delays_another_by_one_datagram() {
        let mut fair = Fair::default();
        let flood = from("fd00::2", 1, 135);
        let kept = (0..10_000).filter(|_| fair.push(at(0), flood.clone()).is_ok()).count();
        assert_eq!(kept, OF_A_PEER);
        assert_eq!(fair.push(at(0), flood), Err(Dropped::OfPeer));
        fair.push(at(5), from("fd00::3", 1, 135)).unwrap();
        let second = [fair.pop(at(7)), fair.pop(at(7))][1].clone().unwrap();
        assert_eq!(second.from.0, "fd00::3".parse::<IpAddr>().unwrap());
        assert_eq!(second.waited_ns, 2_000_000, "its wait is known");
        while fair.pop(at(8)).is_some() {}
        assert!(fair.is_empty() && fair.queues.is_empty() && fair.turns.is_empty());
    }

    #[test]
    fn strangers_share_one_queue_whatever_their_addresses() {
        let mut fair = Fair::default();
        fair.know(vec!["fd00::/64".parse().unwrap()]);
        for n in 0..5_000u32 {
            let _ = fair.push(at(0), from(&format!("fd77::{n:x}"), 1, 135));
        }
        assert_eq!((fair.waiting, fair.queues.len()), (OF_A_PEER, 1));
        assert_eq!(fair.push(at(0), from("fd77::1", 1, 135)), Err(Dropped::OfStranger));
        fair.push(at(0), from("fd00::3", 1, 135)).unwrap();
        fair.pop(at(0)).unwrap();
        assert_eq!(fair.pop(at(0)).unwrap().from.0, "fd00::3".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn forged_addresses_of_peers_are_bounded_and_leave_room_for_others() {
        let mut fair = Fair::default();
        for n in 0..20_000u32 {
            let _ = fair.push(at(0), from(&format!("fd00::{:x}", n % 2_000 + 2), 1, 135));
        }
        assert!(fair.waiting <= OF_ALL + PEERS, "{}", fair.waiting);
        fair.push(at(0), from("fd00::ffff", 1, 135)).unwrap();
        let first = (0..2_001).find_map(|_| {
            fair.pop(at(0)).filter(|d| d.from.0 == "fd00::ffff".parse::<IpAddr>().unwrap())
        });
        assert!(first.is_some(), "it has its turn after one of each other peer");
    }

    #[test]
    fn long_datagrams_are_bounded_by_their_bytes() {
        let mut fair = Fair::default();
        for n in 0..4_000u32 {
            let long = Datagram { bytes: vec![0; 60_000], ..from(&format!("fd00::{n:x}"), 1, 135) };
            let _ = fair.push(at(0), long.clone());
            let _ = fair.push(at(0), long);
        }
        assert!(fair.bytes < BYTES_MAX + 60_000, "{}", fair.bytes);
        while fair.pop(at(0)).is_some() {}
        assert_eq!(fair.bytes, 0);
    }

    #[test]
    fn stations_of_a_link_share_its_queue() {
        let mut fair = Fair::default();
        for n in 0..5_000u32 {
            let _ = fair.push(at(0), from(&format!("fe80::{n:x}"), 1, 58));
        }
        fair.push(at(0), from("fe80::1", 2, 58)).unwrap();
        fair.pop(at(0)).unwrap();
        assert_eq!(fair.pop(at(0)).unwrap().interface, Some(2));
    }
}
