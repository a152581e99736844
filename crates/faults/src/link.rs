//! One direction of a path, with everything that can go wrong on it.

use segue_clock::{Rng, Span, Time};

use super::schedule::{Fault, MTU};

/// How much later than the first a copy arrives, at most.
const COPY_LATER: Span = Span::from_millis(20);

/// A direction of a path, and the truth about it.
#[derive(Clone, Debug)]
pub struct Link {
    rng: Rng,
    delay: Span,
    loss: f64,
    burst: u16,
    duplicate: f64,
    reorder: f64,
    held_up: Span,
    /// Bytes of the largest packet that passes.
    takes: u16,
    cut: bool,
    /// Arrival of the last packet that was not held up: the order of sending is kept.
    last_arrival: Time,
    dead_since: Option<Time>,
    settled_since: Time,
    /// The smallest and largest delay of its packets.
    least: Span,
    most: Span,
}

impl Link {
    /// A link without faults.
    #[must_use]
    pub fn new(delay_ms: u16, seed: u64, now: Time) -> Link {
        let delay = Span::from_millis(delay_ms.into());
        Link {
            rng: Rng::new(seed),
            delay,
            loss: 0.0,
            burst: 0,
            duplicate: 0.0,
            reorder: 0.0,
            held_up: Span::ZERO,
            takes: MTU,
            cut: false,
            last_arrival: now,
            dead_since: None,
            settled_since: now,
            least: delay,
            most: delay,
        }
    }

    /// When a packet of this many bytes that is sent now arrives, and its copy if it is doubled.
    pub fn send(&mut self, now: Time, bytes: u32) -> [Option<Time>; 2] {
        let lost = self.rng.chance(self.loss);
        let doubled = self.rng.chance(self.duplicate);
        let held_up = self.rng.chance(self.reorder);
        let extra = Span(self.rng.below(self.held_up.0.saturating_add(1)));
        let copy_later = Span(self.rng.below(COPY_LATER.0));
        if self.cut || lost || bytes > u32::from(self.takes) {
            return [None, None];
        }
        if self.burst > 0 {
            self.burst -= 1;
            if self.burst == 0 {
                self.settled_since = now;
            }
            return [None, None];
        }
        let in_order = self.last_arrival.max(now + self.delay);
        let at = if held_up { in_order + extra } else { in_order };
        if !held_up {
            self.last_arrival = in_order;
        }
        let copy = doubled.then_some(at + copy_later);
        self.least = self.least.min(at.since(now));
        self.most = self.most.max(copy.unwrap_or(at).since(now));
        [Some(at), copy]
    }

    /// Applies the part of a fault that concerns this direction.
    pub fn inject(&mut self, now: Time, fault: &Fault) {
        let share = |permille: u16| f64::from(permille.min(1_000)) / 1_000.0;
        match fault {
            Fault::Loss(_, _, permille) => self.loss = share(*permille),
            Fault::Burst(_, _, count) => self.burst = *count,
            Fault::Duplicate(_, _, permille) => self.duplicate = share(*permille),
            Fault::Reorder(_, _, permille, ms) => {
                self.reorder = share(*permille);
                self.held_up = Span::from_millis(u64::from(*ms));
            }
            Fault::Delay(_, _, ms) => self.delay = Span::from_millis(u64::from(*ms)),
            // Small packets do not notice: for them the link is as clean as before.
            Fault::Narrow(_, _, mtu) => {
                self.takes = *mtu;
                return;
            }
            Fault::Cut(..) | Fault::CutAll(_) => {
                self.cut = true;
                self.dead_since.get_or_insert(now);
            }
            Fault::Mend(..) | Fault::MendAll if self.is_faulty() => {
                (self.loss, self.duplicate, self.reorder) = (0.0, 0.0, 0.0);
                (self.burst, self.cut, self.dead_since) = (0, false, None);
            }
            _ => return,
        }
        self.settled_since = now;
    }

    fn is_faulty(&self) -> bool {
        let shares = self.loss + self.duplicate + self.reorder;
        shares > 0.0 || self.burst > 0 || self.cut
    }

    /// Since when nothing arrives.
    #[must_use]
    pub fn dead_since(&self) -> Option<Time> {
        self.dead_since
    }

    /// Since when it has carried everything in order and at one delay; `None` while it does not.
    #[must_use]
    pub fn clean_since(&self) -> Option<Time> {
        (!self.is_faulty()).then_some(self.settled_since)
    }

    /// Bytes of the largest packet that passes, IP header included.
    #[must_use]
    pub fn takes(&self) -> u16 {
        self.takes
    }

    /// The probability that it loses a packet.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The smallest and the largest delay of any packet so far.
    #[must_use]
    pub fn delays(&self) -> (Span, Span) {
        (self.least.min(self.delay), self.most.max(self.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{PathRef, Way};

    const AT: PathRef = PathRef { host: 0, path: 0 };
    const SMALL: u32 = 100;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_link_delivers_in_order_once_unless_told_otherwise() {
        let mut link = Link::new(10, 1, ms(0));
        assert_eq!(link.send(ms(1), SMALL), [Some(ms(11)), None]);
        link.inject(ms(2), &Fault::Delay(AT, Way::Up, 3));
        assert_eq!(link.send(ms(2), SMALL), [Some(ms(11)), None], "none overtakes");
        link.inject(ms(20), &Fault::Burst(AT, Way::Up, 2));
        assert_eq!(link.clean_since(), None);
        assert_eq!([link.send(ms(21), SMALL), link.send(ms(22), SMALL)], [[None; 2]; 2]);
        assert_eq!(link.clean_since(), Some(ms(22)));
        assert_eq!(link.send(ms(23), SMALL), [Some(ms(26)), None]);
        link.inject(ms(30), &Fault::Duplicate(AT, Way::Up, 1_000));
        let [Some(first), Some(copy)] = link.send(ms(30), SMALL) else { panic!("no copy") };
        assert!(first == ms(33) && copy >= first && copy < ms(53));
        link.inject(ms(40), &Fault::Cut(AT, Way::Up));
        assert_eq!((link.send(ms(41), SMALL), link.dead_since()), ([None; 2], Some(ms(40))));
        link.inject(ms(50), &Fault::MendAll);
        assert_eq!(link.send(ms(60), SMALL), [Some(ms(63)), None]);
        assert_eq!((link.dead_since(), link.clean_since()), (None, Some(ms(50))));
    }

    #[test]
    fn losses_and_hold_ups_have_the_given_frequency() {
        let mut link = Link::new(10, 1, ms(0));
        link.inject(ms(0), &Fault::Loss(AT, Way::Up, 300));
        let lost = (0..10_000).filter(|i| link.send(ms(*i), SMALL)[0].is_none()).count();
        assert!((2_800..3_200).contains(&lost), "{lost}");
        link.inject(ms(0), &Fault::MendAll);
        link.inject(ms(0), &Fault::Reorder(AT, Way::Up, 500, 100));
        let late =
            |i: &u64| link.send(ms(20_000 + *i), SMALL)[0].is_some_and(|at| at > ms(20_010 + *i));
        let late = (0..10_000).filter(late).count();
        assert!((4_800..5_200).contains(&late), "{late}");
    }

    #[test]
    fn a_narrow_link_loses_what_is_larger_and_nothing_else() {
        let mut link = Link::new(10, 1, ms(0));
        link.inject(ms(5), &Fault::Narrow(AT, Way::Up, 1_400));
        assert_eq!(link.send(ms(6), 1_400), [Some(ms(16)), None]);
        assert_eq!(link.send(ms(6), 1_401), [None; 2]);
        link.inject(ms(7), &Fault::MendAll);
        assert_eq!((link.takes(), link.clean_since()), (1_400, Some(ms(0))));
    }
}
