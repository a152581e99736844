//! The packets of flows that nobody has decided on yet, as both halves keep them.

use std::collections::{HashMap, VecDeque};

use segue_clock::{Span, Time};
use segue_wire::FlowKey;

use crate::MissPacket;

/// Packets held for a flow while its first is with the daemon.
const HELD_PER_FLOW: usize = 64;
/// Bytes held for all flows together.
const HELD_BYTES: usize = 16 << 20;
/// Flows for which packets are held; a further one is refused until an older one is settled.
const HELD_FLOWS: usize = 1024;
/// After this time without a decision a flow is reported again.
const REPORT_AGAIN: Span = Span::from_millis(100);
/// After this time without a decision what is held for a flow is given up.
const GIVE_UP: Span = Span::from_secs(1);

/// Packets of flows without a binding.
#[derive(Default)]
pub struct Misses {
    flows: HashMap<FlowKey, Held>,
    bytes: usize,
}

struct Held {
    reported: Time,
    packets: VecDeque<Vec<u8>>,
}

/// What becomes of a packet that missed.
pub enum Missed {
    /// Give this to the daemon.
    Report(MissPacket),
    /// Kept until the flow's first packet is injected.
    Held,
    /// No room.
    Full,
}

impl Misses {
    /// Takes a packet without a binding, with its virtio header.
    pub fn take(&mut self, key: FlowKey, dscp: u8, bytes: &[u8], now: Time) -> Missed {
        if !self.flows.contains_key(&key) {
            if self.flows.len() >= HELD_FLOWS {
                return Missed::Full;
            }
            self.flows.insert(key, Held { reported: now, packets: VecDeque::new() });
            return Missed::Report(MissPacket { key, dscp, bytes: bytes.to_vec() });
        }
        let room = self.bytes + bytes.len() <= HELD_BYTES;
        let Some(held) = self.flows.get_mut(&key) else { return Missed::Full };
        let again = now.since(held.reported) >= REPORT_AGAIN;
        if !again && (held.packets.len() >= HELD_PER_FLOW || !room) {
            return Missed::Full;
        }
        self.bytes += bytes.len();
        held.packets.push_back(bytes.to_vec());
        if !again {
            return Missed::Held;
        }
        // The oldest goes first, so that the flow's packets stay in order.
        held.reported = now;
        let bytes = held.packets.pop_front().unwrap_or_default();
        self.bytes -= bytes.len();
        Missed::Report(MissPacket { key, dscp, bytes })
    }

    /// Ends the wait of a flow and returns what was held for it, in order.
    pub fn settle(&mut self, key: &FlowKey) -> VecDeque<Vec<u8>> {
        let packets = self.flows.remove(key).map(|held| held.packets).unwrap_or_default();
        self.bytes -= packets.iter().map(Vec::len).sum::<usize>();
        packets
    }

    /// Gives up what nobody decided on in time, and says how many packets that were.
    pub fn purge(&mut self, now: Time) -> u64 {
        let old = |held: &Held| now.since(held.reported) >= GIVE_UP;
        let flows = self.flows.iter().filter(|(_, held)| old(held));
        let keys: Vec<FlowKey> = flows.map(|(key, _)| *key).collect();
        keys.iter().map(|key| self.settle(key).len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u16) -> FlowKey {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        FlowKey { src: address, dst: address, sport: n, dport: 1, protocol: 17, label: 0 }
    }

    #[test]
    fn a_missing_flow_is_reported_once_in_100_ms_and_its_packets_keep_their_order() {
        let mut misses = Misses::default();
        let ms = |n: u64| Time(n * 1_000_000);
        assert!(matches!(misses.take(key(1), 0, &[0], ms(0)), Missed::Report(_)));
        assert!(matches!(misses.take(key(1), 0, &[1], ms(50)), Missed::Held));
        let Missed::Report(again) = misses.take(key(1), 0, &[2], ms(100)) else { panic!() };
        assert_eq!(again.bytes, [1]);
        assert!(matches!(misses.take(key(1), 0, &[3], ms(150)), Missed::Held));
        assert_eq!(misses.settle(&key(1)), [vec![2], vec![3]]);
        assert!(misses.settle(&key(1)).is_empty());
    }

    #[test]
    fn what_is_held_is_bounded_by_flow_and_in_all() {
        let mut misses = Misses::default();
        assert!(matches!(misses.take(key(0), 0, &[0], Time(0)), Missed::Report(_)));
        for _ in 0..HELD_PER_FLOW {
            assert!(matches!(misses.take(key(0), 0, &[1], Time(0)), Missed::Held));
        }
        assert!(matches!(misses.take(key(0), 0, &[2], Time(0)), Missed::Full));
        for n in 1..HELD_FLOWS as u16 {
            assert!(matches!(misses.take(key(n), 0, &[0], Time(0)), Missed::Report(_)));
        }
        let last = key(HELD_FLOWS as u16);
        assert!(matches!(misses.take(last, 0, &[0], Time(0)), Missed::Full));
        let later = Time(2_000_000_000);
        assert_eq!(misses.purge(later), HELD_PER_FLOW as u64);
        assert!(matches!(misses.take(last, 0, &[0], later), Missed::Report(_)));
        let big = vec![0; HELD_BYTES / 10];
        let held = (0..20).filter(|_| matches!(misses.take(last, 0, &big, later), Missed::Held));
        assert_eq!(held.count(), 10);
        assert_eq!((misses.settle(&last).len(), misses.bytes), (10, 0));
    }
}
