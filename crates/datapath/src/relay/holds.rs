//! Packets that are held until their traffic is bound to an exit.

use std::collections::{BTreeMap, VecDeque};

use segue_clock::{Span, Time};

/// Most bytes held in all queues together. Beyond that, a queue that takes another packet first drops its own oldest
/// ones.
const HELD_BYTES: usize = 64 << 20;

/// The queues by number.
#[derive(Default)]
pub(super) struct Holds {
    queues: BTreeMap<u32, Queue>,
    bytes: usize,
}

struct Queue {
    most: usize,
    within: Span,
    /// Packets that were put into the queue, modulo 2³².
    seen: u32,
    packets: VecDeque<(Time, Vec<u8>)>,
}

impl Holds {
    /// Sets a queue's bounds: how many packets it holds, and for how long. Packets already in the queue stay, up to the
    /// new bound; returns how many were dropped as surplus.
    pub(super) fn set(&mut self, queue: u32, most: u16, within: Span) -> u64 {
        let empty = || Queue { most: 0, within, seen: 0, packets: VecDeque::new() };
        let kept = self.queues.entry(queue).or_insert_with(empty);
        (kept.most, kept.within) = (most.into(), within);
        let surplus = kept.packets.len().saturating_sub(kept.most);
        let gone: usize = kept.packets.drain(..surplus).map(|(_, packet)| packet.len()).sum();
        self.bytes -= gone;
        surplus as u64
    }

    /// Holds a packet, at the cost of the oldest packets of its queue if there is no room. Returns how many packets
    /// were dropped, including this one if it still does not fit or the queue does not exist.
    pub(super) fn take(&mut self, queue: u32, packet: &[u8], now: Time) -> u64 {
        let Some(queue) = self.queues.get_mut(&queue) else { return 1 };
        queue.seen = queue.seen.wrapping_add(1);
        let mut dropped = 0;
        let full =
            |held: usize, bytes: usize| held >= queue.most || bytes + packet.len() > HELD_BYTES;
        while full(queue.packets.len(), self.bytes) {
            dropped += 1;
            let Some((_, oldest)) = queue.packets.pop_front() else { return dropped };
            self.bytes -= oldest.len();
        }
        self.bytes += packet.len();
        queue.packets.push_back((now, packet.to_vec()));
        dropped
    }

    /// Empties a queue, the oldest packet first.
    pub(super) fn drain(&mut self, queue: u32) -> Vec<Vec<u8>> {
        let Some(queue) = self.queues.get_mut(&queue) else { return Vec::new() };
        let packets: Vec<_> = queue.packets.drain(..).map(|(_, packet)| packet).collect();
        self.bytes -= packets.iter().map(Vec::len).sum::<usize>();
        packets
    }

    /// How many of the packets that were put into a queue have left it, modulo 2³².
    pub(super) fn gone(&self, queue: u32) -> u32 {
        let gone = |queue: &Queue| queue.seen.wrapping_sub(queue.packets.len() as u32);
        self.queues.get(&queue).map_or(0, gone)
    }

    /// Removes a queue. Returns how many packets were in it.
    pub(super) fn remove(&mut self, queue: u32) -> u64 {
        let left = self.drain(queue).len() as u64;
        self.queues.remove(&queue);
        left
    }

    /// Drops the packets whose holding time has expired. Returns how many.
    pub(super) fn expire(&mut self, now: Time) -> u64 {
        let mut expired = 0;
        for queue in self.queues.values_mut() {
            while let Some((since, packet)) = queue.packets.front()
                && *since + queue.within <= now
            {
                self.bytes -= packet.len();
                queue.packets.pop_front();
                expired += 1;
            }
        }
        expired
    }

    /// When the next packet expires.
    pub(super) fn next(&self) -> Option<Time> {
        let ends = |queue: &Queue| queue.packets.front().map(|(since, _)| *since + queue.within);
        self.queues.values().filter_map(ends).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    #[test]
    fn a_queue_keeps_the_newest_and_gives_them_in_order() {
        let mut holds = Holds::default();
        assert_eq!(holds.take(1, &[0], ms(0)), 1, "there is no such queue");
        holds.set(1, 3, Span::from_millis(100));
        let dropped: Vec<u64> = (0..5u8).map(|n| holds.take(1, &[n], ms(n.into()))).collect();
        assert_eq!(dropped, [0, 0, 0, 1, 1]);
        assert_eq!(holds.drain(1), [vec![2], vec![3], vec![4]]);
        assert_eq!((holds.bytes, holds.next()), (0, None));
        holds.set(1, 0, Span::from_millis(100));
        assert_eq!(holds.take(1, &[9], ms(9)), 1, "a queue without room");
    }

    #[test]
    fn a_packet_is_held_for_its_time_and_not_longer() {
        let mut holds = Holds::default();
        holds.set(1, 10, Span::from_millis(100));
        holds.set(2, 10, Span::from_millis(10));
        holds.take(1, &[1], ms(0));
        holds.take(1, &[2], ms(50));
        holds.take(2, &[3], ms(50));
        assert_eq!(holds.next(), Some(ms(60)));
        assert_eq!((holds.expire(ms(59)), holds.expire(ms(60))), (0, 1));
        assert_eq!((holds.expire(ms(100)), holds.next()), (1, Some(ms(150))));
        assert_eq!((holds.remove(1), holds.remove(1), holds.bytes), (1, 0, 0));
    }

    #[test]
    fn a_smaller_bound_drops_the_oldest_at_once_and_all_queues_share_one_bound_of_bytes() {
        let mut holds = Holds::default();
        holds.set(1, 10, Span::from_secs(1));
        (0..4u8).for_each(|n| assert_eq!(holds.take(1, &[n], ms(0)), 0));
        assert_eq!(holds.set(1, 1, Span::from_secs(1)), 3);
        assert_eq!(holds.drain(1), [vec![3]]);
        let large = vec![0; HELD_BYTES / 4];
        (2..6).for_each(|queue| assert_eq!(holds.set(queue, 10, Span::from_secs(1)), 0));
        (2..6).for_each(|queue| assert_eq!(holds.take(queue, &large, ms(0)), 0));
        assert_eq!(holds.take(2, &large, ms(1)), 1, "its own oldest");
        assert_eq!(holds.take(1, &large, ms(1)), 1, "it has none, so the packet itself");
        assert_eq!(holds.bytes, HELD_BYTES);
    }
}
