//! Faults of one direction of a link, in addition to its model, switched while the simulation runs.

use segue_clock::{Rng, Span, Time};
use segue_netem::DropCause;

use super::lost::{Lost, MTU_BYTES};
use crate::Packet;

/// Maximum delay of a duplicate after the original.
const COPY_LATER: Span = Span::from_millis(20);

/// A fault that begins or ends on one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkFault {
    /// Lose packets with this probability, in thousandths.
    Loss(u16),
    /// Lose this many of the next packets.
    Burst(u16),
    /// Duplicate packets with this probability, in thousandths; the copy arrives up to 20 ms later.
    Duplicate(u16),
    /// Hold up packets with this probability, in thousandths, by up to this many milliseconds, so that others
    /// overtake them.
    Reorder(u16, u16),
    /// Delay packets by this much from here on, in milliseconds, in addition to the link's own delay; order is
    /// kept.
    Delay(u16),
    /// Silently lose packets above this size from here on, in bytes, including the IP header.
    Narrow(u16),
    /// Lose packets that match.
    Filter(PacketFilter),
    /// Lose all packets; those in flight arrive.
    Cut,
    /// Ends loss, burst, duplication, reordering, filter and cut. Delay and size limit stay.
    Mend,
}

/// The packets that a filter drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketFilter {
    /// Tunnelled packets with this inner port; the tunnel's own packets pass.
    Port(u16),
    /// Packets with this code point.
    CodePoint(u8),
    /// Packets whose length is within this range, in bytes, including the IP header.
    Length(u16, u16),
}

impl PacketFilter {
    fn drops(self, packet: &Looks) -> bool {
        match self {
            PacketFilter::Port(port) => {
                packet.ports.is_some_and(|(from, to)| [from, to].contains(&port))
            }
            PacketFilter::CodePoint(dscp) => packet.dscp == dscp,
            PacketFilter::Length(from, to) => {
                (u32::from(from)..=u32::from(to)).contains(&packet.bytes)
            }
        }
    }
}

/// The properties of a packet that a link can see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Length including the IP header, in bytes.
    pub bytes: u32,
    /// Code point.
    pub dscp: u8,
    /// Ports of the tunnelled packet, if there is one.
    pub ports: Option<(u16, u16)>,
}

impl Looks {
    pub(super) fn of(packet: &Packet) -> Looks {
        let ports = packet.tunnelled().map(|inner| inner.ports);
        Looks { bytes: packet.bytes, dscp: packet.dscp, ports }
    }
}

/// One direction of a link with its faults, and the ground truth about it.
#[derive(Clone, Debug)]
pub struct FaultyLink {
    rng: Rng,
    delay: Span,
    loss: f64,
    burst: u16,
    duplicate: f64,
    reorder: f64,
    held_up: Span,
    /// Size of the largest packet that passes, in bytes.
    takes: u32,
    /// The active filter, and its start.
    filter: Option<(PacketFilter, Time)>,
    /// The last filter that dropped a packet, and when.
    filtered: Option<(PacketFilter, Time)>,
    cut: bool,
    /// Arrival of the last packet that was not held up; keeps packets in sending order.
    last_arrival: Time,
    dead_since: Option<Time>,
    settled_since: Time,
    /// Smallest and largest delay of its packets.
    least: Span,
    most: Span,
}

impl FaultyLink {
    /// A link without faults that delays packets by `delay`.
    #[must_use]
    pub fn new(delay: Span, seed: u64, now: Time) -> FaultyLink {
        FaultyLink {
            rng: Rng::new(seed),
            delay,
            loss: 0.0,
            burst: 0,
            duplicate: 0.0,
            reorder: 0.0,
            held_up: Span::ZERO,
            takes: MTU_BYTES,
            filter: None,
            filtered: None,
            cut: false,
            last_arrival: now,
            dead_since: None,
            settled_since: now,
            least: delay,
            most: delay,
        }
    }

    /// Sends a packet that would arrive at `now` without the faults. Returns its arrival time or the reason of
    /// its loss, and the arrival time of a duplicate if there is one.
    pub fn send(&mut self, now: Time, packet: &Looks) -> (Result<Time, Lost>, Option<Time>) {
        if packet.bytes > self.takes {
            return (Err(Lost::TooLarge), None);
        }
        if let Some((filter, _)) = self.filter.filter(|(filter, _)| filter.drops(packet)) {
            self.filtered = Some((filter, now));
            return (Err(Lost::Filtered), None);
        }
        if self.cut || self.chance(self.loss) {
            return (Err(Lost::Link(DropCause::Loss)), None);
        }
        if self.burst > 0 {
            self.burst -= 1;
            if self.burst == 0 {
                self.settled_since = now;
            }
            return (Err(Lost::Link(DropCause::Loss)), None);
        }
        let mut at = self.last_arrival.max(now + self.delay);
        if self.chance(self.reorder) {
            at += Span(self.rng.below(self.held_up.0 + 1));
        } else {
            self.last_arrival = at;
        }
        let copy = self.chance(self.duplicate).then(|| at + Span(self.rng.below(COPY_LATER.0)));
        self.least = self.least.min(at.since(now));
        self.most = self.most.max(copy.unwrap_or(at).since(now));
        (Ok(at), copy)
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.chance(share)
    }

    /// Starts or ends a fault.
    pub fn inject(&mut self, now: Time, fault: LinkFault) {
        let share = |permille: u16| f64::from(permille.min(1_000)) / 1_000.0;
        match fault {
            LinkFault::Loss(permille) => self.loss = share(permille),
            LinkFault::Burst(count) => self.burst = count,
            LinkFault::Duplicate(permille) => self.duplicate = share(permille),
            LinkFault::Reorder(permille, ms) => {
                self.reorder = share(permille);
                self.held_up = Span::from_millis(ms.into());
            }
            LinkFault::Delay(ms) => self.delay = Span::from_millis(ms.into()),
            // Small packets are not affected: for them the link is as clean as before.
            LinkFault::Narrow(bytes) => {
                self.takes = bytes.into();
                return;
            }
            // Other packets are not affected.
            LinkFault::Filter(filter) => {
                self.filter = Some((filter, now));
                return;
            }
            LinkFault::Cut => {
                self.cut = true;
                self.dead_since.get_or_insert(now);
            }
            LinkFault::Mend if self.filter.take().is_some() && !self.is_faulty() => return,
            LinkFault::Mend if self.is_faulty() => {
                (self.loss, self.duplicate, self.reorder) = (0.0, 0.0, 0.0);
                (self.burst, self.cut, self.dead_since) = (0, false, None);
            }
            LinkFault::Mend => return,
        }
        self.settled_since = now;
    }

    fn is_faulty(&self) -> bool {
        let shares = self.loss + self.duplicate + self.reorder;
        shares > 0.0 || self.burst > 0 || self.cut
    }

    /// Start of a cut during which nothing arrives.
    #[must_use]
    pub fn dead_since(&self) -> Option<Time> {
        self.dead_since
    }

    /// Time since when it has carried every packet in order and with the same delay; `None` while it is faulty.
    #[must_use]
    pub fn clean_since(&self) -> Option<Time> {
        (!self.is_faulty()).then_some(self.settled_since)
    }

    /// The active filter, and its start.
    #[must_use]
    pub fn filter(&self) -> Option<(PacketFilter, Time)> {
        self.filter
    }

    /// The last filter that dropped a packet, and when it last did so.
    #[must_use]
    pub fn filtered(&self) -> Option<(PacketFilter, Time)> {
        self.filtered
    }

    /// Size of the largest packet that passes, in bytes, including the IP header.
    #[must_use]
    pub fn takes(&self) -> u32 {
        self.takes
    }

    /// Smallest and largest delay of all packets so far.
    #[must_use]
    pub fn delays(&self) -> (Span, Span) {
        (self.least.min(self.delay), self.most.max(self.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const SMALL: u32 = 100;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Arrival time of a packet of this many bytes.
    fn arrival(link: &mut FaultyLink, at: u64, bytes: u32) -> Option<Time> {
        let (arrival, copy) = link.send(ms(at), &Looks { bytes, ..Looks::default() });
        assert_eq!(copy, None);
        arrival.ok()
    }

    #[test]
    fn a_link_delivers_in_order_once_unless_told_otherwise() {
        let mut link = FaultyLink::new(Span::from_millis(10), 1, ms(0));
        assert_eq!(arrival(&mut link, 1, SMALL), Some(ms(11)));
        link.inject(ms(2), LinkFault::Delay(3));
        assert_eq!(arrival(&mut link, 2, SMALL), Some(ms(11)), "none overtakes");
        link.inject(ms(20), LinkFault::Burst(2));
        assert_eq!(link.clean_since(), None);
        assert_eq!([21, 22].map(|at| arrival(&mut link, at, SMALL)), [None; 2]);
        assert_eq!(link.clean_since(), Some(ms(22)));
        assert_eq!(arrival(&mut link, 23, SMALL), Some(ms(26)));
        link.inject(ms(30), LinkFault::Duplicate(1_000));
        let small = Looks { bytes: SMALL, ..Looks::default() };
        let (Ok(first), Some(copy)) = link.send(ms(30), &small) else { panic!("no copy") };
        assert!(first == ms(33) && copy >= first && copy < ms(53));
        link.inject(ms(40), LinkFault::Cut);
        assert_eq!((arrival(&mut link, 41, SMALL), link.dead_since()), (None, Some(ms(40))));
        link.inject(ms(50), LinkFault::Mend);
        assert_eq!(arrival(&mut link, 60, SMALL), Some(ms(63)));
        assert_eq!((link.dead_since(), link.clean_since()), (None, Some(ms(50))));
    }

    #[test]
    fn losses_and_hold_ups_have_the_given_frequency() {
        let mut link = FaultyLink::new(Span::from_millis(10), 1, ms(0));
        link.inject(ms(0), LinkFault::Loss(300));
        let lost = (0..10_000).filter(|i| arrival(&mut link, *i, SMALL).is_none()).count();
        assert!((2_800..3_200).contains(&lost), "{lost}");
        link.inject(ms(0), LinkFault::Mend);
        link.inject(ms(0), LinkFault::Reorder(500, 100));
        let late = |i: &u64| arrival(&mut link, 20_000 + *i, SMALL) > Some(ms(20_010 + *i));
        let late = (0..10_000).filter(late).count();
        assert!((4_800..5_200).contains(&late), "{late}");
    }

    #[test]
    fn a_narrow_link_loses_what_is_larger_and_nothing_else() {
        let mut link = FaultyLink::new(Span::from_millis(10), 1, ms(0));
        link.inject(ms(5), LinkFault::Narrow(1_400));
        assert_eq!(arrival(&mut link, 6, 1_400), Some(ms(16)));
        assert_eq!(arrival(&mut link, 6, 1_401), None);
        link.inject(ms(7), LinkFault::Mend);
        assert_eq!((link.takes(), link.clean_since()), (1_400, Some(ms(0))));
    }

    #[test]
    fn a_filter_drops_what_fits_until_it_is_mended() {
        let voice = Looks { bytes: 200, dscp: 46, ports: Some((7_000, 9)) };
        let bulk = Looks { bytes: 1_400, dscp: 8, ports: Some((7_001, 9)) };
        let probe = Looks { bytes: SMALL, ..Looks::default() };
        let mut link = FaultyLink::new(Span::from_millis(10), 1, ms(0));
        let filters = [
            PacketFilter::Port(7_000),
            PacketFilter::CodePoint(46),
            PacketFilter::Length(150, 400),
        ];
        for filter in filters {
            link.inject(ms(5), LinkFault::Filter(filter));
            let passes = [voice, bulk, probe].map(|packet| link.send(ms(6), &packet).0.is_ok());
            assert_eq!(passes, [false, true, true], "{filter:?}");
            assert_eq!((link.filter(), link.clean_since()), (Some((filter, ms(5))), Some(ms(0))));
            assert_eq!(link.filtered(), Some((filter, ms(6))));
        }
        link.inject(ms(7), LinkFault::Mend);
        assert!(link.send(ms(8), &voice).0.is_ok() && link.filter().is_none());
    }
}
