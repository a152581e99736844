//! Packets of flows that wait for a decision, used by both datapaths.
//!
//! Each host has its own share of waiting flows, of bytes, and of reports to the daemon. At an anchor a flow counts
//! towards the host that its packets go to, because the decision waits for that host's state. A mobile host has a
//! single share.

use std::collections::{HashMap, VecDeque};

use segue_clock::{Span, Time};
use segue_wire::FlowKey;

use crate::{MissPacket, Role};

/// Packets held for a flow while the daemon has its first one; further ones are refused.
const HELD_PER_FLOW: usize = 64;
/// Flows of one host that may wait at an anchor; another one is refused until an older one is settled.
const FLOWS_PER_HOST: usize = 256;
/// Bytes held for one host at an anchor, including packets that the daemon has; further packets are refused.
const BYTES_PER_HOST: usize = 1 << 20;
/// Flows that may wait in total; at a mobile host all are its own. If more hosts wait than full shares fit, each gets
/// an equal part, so that a late host finds room: all parts together stay below `HELD_FLOWS · (1 + ln hosts)`.
const HELD_FLOWS: usize = 4_096;
/// Bytes held in total, divided in the same way.
const HELD_BYTES: usize = 16 << 20;
/// Burst of flows of one host that are reported to the daemon.
const REPORTS_AT_ONCE: u64 = 512;
/// Interval of reports for a host after a burst; packets that would need an earlier report are refused.
const REPORT_PACE: Span = Span(1_000_000_000 / 2_048);
/// Time without a decision after which a flow is reported again.
const REPORT_AGAIN: Span = Span::from_millis(100);
/// Time without a decision after which the packets held for a flow are dropped.
const GIVE_UP: Span = Span::from_secs(1);
/// Duration of a refusal by the daemon: at an anchor for all packets to the same host, at a mobile host for the flow.
const REFUSED_FOR: Span = Span::from_millis(100);
/// Refused flows that a mobile host remembers. Beyond that it forgets them all, so that some are reported again.
const REFUSED_FLOWS: usize = 1_024;

/// Packets of flows without a binding.
pub(crate) struct Misses {
    /// Several owners share the room, as at an anchor.
    shared: bool,
    /// A refusal applies to one flow rather than to its owner.
    by_flow: bool,
    flows: HashMap<FlowKey, Held>,
    /// By owner: one entry for each host that has flows, or has recently been refused or reported.
    shares: HashMap<u32, Share>,
}

struct Held {
    owner: u32,
    reported: Time,
    /// Bytes of the packet that the daemon has.
    away: usize,
    packets: VecDeque<Vec<u8>>,
}

/// The room in use by one host.
#[derive(Default)]
struct Share {
    flows: usize,
    bytes: usize,
    /// Virtual time of the last report, if reports were paced.
    paid: Time,
    /// Nothing is reported before this time.
    refused_until: Time,
    refused: HashMap<FlowKey, Time>,
}

/// The outcome for a packet without a binding.
pub(crate) enum Missed {
    /// To be reported to the daemon.
    Report(MissPacket),
    /// Held until the flow's first packet is injected.
    Held,
    /// Refused: no room, or refused recently.
    Full,
}

impl Misses {
    /// An empty table for one end of the tunnel.
    pub(crate) fn new(role: Role) -> Misses {
        let at_anchor = role == Role::Anchor;
        Misses {
            shared: at_anchor,
            by_flow: !at_anchor,
            flows: HashMap::new(),
            shares: HashMap::new(),
        }
    }

    /// An empty table for a relay: each asking binding has its own share, and refusals apply to single flows.
    pub(crate) fn of_relay() -> Misses {
        Misses { by_flow: true, ..Misses::new(Role::Anchor) }
    }

    /// Handles a packet without a binding, with its virtio header. `owner` is the host that owns the inner
    /// destination; 0 at a mobile host.
    pub(crate) fn take(
        &mut self,
        owner: u32,
        key: FlowKey,
        dscp: u8,
        bytes: &[u8],
        now: Time,
    ) -> Missed {
        let (most_flows, most_bytes) = self.most(owner);
        let share = self.shares.entry(owner).or_default();
        if share.is_refused(&key, now) {
            return Missed::Full;
        }
        let room = share.bytes + bytes.len() <= most_bytes;
        let Some(held) = self.flows.get_mut(&key) else {
            if share.flows >= most_flows || !room || !share.may_report(now) {
                return Missed::Full;
            }
            share.flows += 1;
            share.bytes += bytes.len();
            let held = Held { owner, reported: now, away: bytes.len(), packets: VecDeque::new() };
            self.flows.insert(key, held);
            return Missed::Report(MissPacket { key, dscp, bytes: bytes.to_vec() });
        };
        let again = now.since(held.reported) >= REPORT_AGAIN && share.may_report(now);
        if !room || !again && held.packets.len() >= HELD_PER_FLOW {
            return Missed::Full;
        }
        share.bytes += bytes.len();
        held.packets.push_back(bytes.to_vec());
        if !again {
            return Missed::Held;
        }
        // The oldest goes first, so that the flow's packets stay in order.
        held.reported = now;
        let bytes = held.packets.pop_front().unwrap_or_default();
        share.bytes -= held.away;
        held.away = bytes.len();
        Missed::Report(MissPacket { key, dscp, bytes })
    }

    /// Holds a packet behind the waiting ones of its flow; `None` if none wait.
    pub(crate) fn follow(&mut self, key: &FlowKey, bytes: &[u8]) -> Option<Missed> {
        let held = self.flows.get_mut(key)?;
        let share = self.shares.get_mut(&held.owner)?;
        if held.packets.len() >= HELD_PER_FLOW {
            return Some(Missed::Full);
        }
        share.bytes += bytes.len();
        held.packets.push_back(bytes.to_vec());
        Some(Missed::Held)
    }

    /// Most flows and bytes that may be held for a host.
    fn most(&self, owner: u32) -> (usize, usize) {
        if !self.shared {
            return (HELD_FLOWS, HELD_BYTES);
        }
        let hosts = self.shares.len() + usize::from(!self.shares.contains_key(&owner));
        let part = |all: usize, most: usize| (all / hosts).clamp(1, most);
        (part(HELD_FLOWS, FLOWS_PER_HOST), part(HELD_BYTES, BYTES_PER_HOST))
    }

    /// Ends the wait of a flow and returns its held packets in order.
    pub(crate) fn settle(&mut self, key: &FlowKey) -> VecDeque<Vec<u8>> {
        let Some(held) = self.flows.remove(key) else { return VecDeque::new() };
        if let Some(share) = self.shares.get_mut(&held.owner) {
            share.flows -= 1;
            share.bytes -= held.away + held.packets.iter().map(Vec::len).sum::<usize>();
        }
        held.packets
    }

    /// Ends the wait of a flow that will not be carried. Returns the number of affected packets, including the
    /// reported one. For a moment such packets are not reported again.
    pub(crate) fn refuse(&mut self, key: &FlowKey, now: Time) -> u64 {
        let Some(owner) = self.flows.get(key).map(|held| held.owner) else { return 1 };
        if let Some(share) = self.shares.get_mut(&owner) {
            if self.by_flow {
                share.remember(*key, now + REFUSED_FOR);
            } else {
                share.refused_until = now + REFUSED_FOR;
            }
        }
        1 + self.settle(key).len() as u64
    }

    /// Drops packets that have waited too long for a decision. Returns how many.
    pub(crate) fn purge(&mut self, now: Time) -> u64 {
        let old = |held: &Held| now.since(held.reported) >= GIVE_UP;
        let flows = self.flows.iter().filter(|(_, held)| old(held));
        let keys: Vec<FlowKey> = flows.map(|(key, _)| *key).collect();
        let given_up = keys.iter().map(|key| self.settle(key).len() as u64).sum();
        self.shares.retain(|_, share| share.flows > 0 || share.paid > now);
        given_up
    }
}

impl Share {
    fn may_report(&mut self, now: Time) -> bool {
        let paid = self.paid.max(now);
        let may = paid.since(now).0 <= REPORT_PACE.0 * (REPORTS_AT_ONCE - 1);
        if may {
            self.paid = paid + REPORT_PACE;
        }
        may
    }

    fn is_refused(&self, key: &FlowKey, now: Time) -> bool {
        self.refused_until > now || self.refused.get(key).is_some_and(|until| *until > now)
    }

    fn remember(&mut self, key: FlowKey, until: Time) {
        if self.refused.len() >= REFUSED_FLOWS {
            self.refused.clear();
        }
        self.refused.insert(key, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 1;
    const B: u32 = 2;

    fn key(n: u16) -> FlowKey {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        FlowKey { src: address, dst: address, sport: n, dport: 1, protocol: 17, label: 0 }
    }

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    fn reported(missed: Missed) -> bool {
        matches!(missed, Missed::Report(_))
    }

    #[test]
    fn a_missing_flow_is_reported_once_in_100_ms_and_its_packets_keep_their_order() {
        let mut misses = Misses::new(Role::Host);
        assert!(reported(misses.take(0, key(1), 0, &[0], ms(0))));
        assert!(matches!(misses.take(0, key(1), 0, &[1], ms(50)), Missed::Held));
        let Missed::Report(again) = misses.take(0, key(1), 0, &[2], ms(100)) else { panic!() };
        assert_eq!(again.bytes, [1]);
        assert!(matches!(misses.take(0, key(1), 0, &[3], ms(150)), Missed::Held));
        assert_eq!(misses.settle(&key(1)), [vec![2], vec![3]]);
        assert!(misses.settle(&key(1)).is_empty());
        assert_eq!(misses.shares[&0].bytes, 0);
    }

    #[test]
    fn what_is_held_is_bounded_by_flow_and_host_and_is_given_up() {
        let mut misses = Misses::new(Role::Anchor);
        assert!(reported(misses.take(A, key(0), 0, &[0], ms(0))));
        for _ in 0..HELD_PER_FLOW {
            assert!(matches!(misses.take(A, key(0), 0, &[1], ms(0)), Missed::Held));
        }
        assert!(matches!(misses.take(A, key(0), 0, &[2], ms(0)), Missed::Full));
        let later = ms(2_000);
        assert_eq!(misses.purge(later), HELD_PER_FLOW as u64);
        assert!(reported(misses.take(A, key(0), 0, &[0], later)));
        let big = vec![0; BYTES_PER_HOST / 10 + 1];
        let held =
            (0..20).filter(|_| matches!(misses.take(A, key(0), 0, &big, later), Missed::Held));
        assert_eq!(held.count(), 9, "the packet that is with the daemon counts too");
        assert_eq!((misses.settle(&key(0)).len(), misses.shares[&A].bytes), (9, 0));
        misses.purge(ms(4_000));
        assert!(misses.shares.is_empty(), "nobody is remembered for good");
    }

    #[test]
    fn a_flood_of_flows_to_one_host_that_nobody_decides_on_leaves_the_others_their_shares() {
        let mut misses = Misses::new(Role::Anchor);
        let flood = (0..60_000u16).filter(|n| {
            let now = Time(u64::from(*n) * 13_000); // 76 000 packets a second
            reported(misses.take(A, key(*n), 0, &[0], now))
        });
        assert_eq!(flood.count(), FLOWS_PER_HOST);
        for n in 0..40 {
            let other = FlowKey { dport: 2, ..key(n) };
            assert!(reported(misses.take(B, other, 0, &[0], ms(780))), "{n}");
        }
    }

    #[test]
    fn a_host_that_comes_when_all_room_is_taken_finds_some() {
        let mut misses = Misses::new(Role::Anchor);
        let hosts = 200;
        for owner in 0..hosts {
            for n in 0..300u16 {
                let flow = FlowKey { label: owner, ..key(n) };
                misses.take(owner, flow, 0, &[0; 2_000], ms(1));
            }
        }
        assert!(misses.shares.values().all(|share| share.flows > 0 && share.bytes > 0));
        let bound = |all: usize| all as f64 * (1.0 + f64::from(hosts).ln());
        assert!((misses.flows.len() as f64) < bound(HELD_FLOWS), "{}", misses.flows.len());
        let bytes: usize = misses.shares.values().map(|share| share.bytes).sum();
        assert!((bytes as f64) < bound(HELD_BYTES), "{bytes}");
    }

    #[test]
    fn flows_that_are_decided_on_at_once_come_up_at_a_steady_pace() {
        let mut misses = Misses::new(Role::Anchor);
        let mut came = 0;
        for n in 0..76_000u32 {
            let flow = FlowKey { label: n, ..key(0) };
            if reported(misses.take(A, flow, 0, &[0], Time(u64::from(n) * 13_157))) {
                came += 1;
                misses.settle(&flow);
            }
        }
        assert!((2_048..2_048 + REPORTS_AT_ONCE + 2).contains(&came), "{came} in a second");
    }

    #[test]
    fn at_an_anchor_a_refusal_settles_the_flow_and_holds_for_its_host_for_a_moment() {
        let mut misses = Misses::new(Role::Anchor);
        assert!(reported(misses.take(A, key(1), 0, &[0], ms(0))));
        assert!(matches!(misses.take(A, key(1), 0, &[1], ms(0)), Missed::Held));
        assert_eq!(misses.refuse(&key(1), ms(1)), 2);
        assert_eq!((misses.shares[&A].flows, misses.shares[&A].bytes), (0, 0));
        for n in 1..3 {
            assert!(matches!(misses.take(A, key(n), 0, &[2], ms(100)), Missed::Full));
        }
        assert!(reported(misses.take(B, key(4), 0, &[0], ms(2))), "another host's");
        assert!(reported(misses.take(A, key(1), 0, &[3], ms(101))));
    }

    #[test]
    fn at_a_host_a_refusal_concerns_the_flow_alone_and_memory_of_it_is_bounded() {
        let mut misses = Misses::new(Role::Host);
        for n in 0..5_000 {
            if reported(misses.take(0, key(n), 0, &[0], ms(u64::from(n)))) {
                misses.refuse(&key(n), ms(u64::from(n)));
            }
            assert!(matches!(misses.take(0, key(n), 0, &[1], ms(u64::from(n))), Missed::Full));
        }
        assert!(misses.shares[&0].refused.len() <= REFUSED_FLOWS);
        assert!(reported(misses.take(0, key(6_000), 0, &[0], ms(5_000))));
        assert!(reported(misses.take(0, key(4_999), 0, &[2], ms(5_099))));
    }
}
