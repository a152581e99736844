//! The receiver: cumulative and selective acknowledgements.

use alloc::vec::Vec;

use segue_clock::{Span, Time};

use super::config::Config;
use super::segment::{Sack, Segment};

/// Receives segments, delivers bytes in order, and decides when to acknowledge. Numbers are bytes.
#[derive(Clone, Debug)]
pub struct Receiver {
    delay: Option<Span>,
    most_blocks: usize,
    dsack: bool,
    /// The next byte expected: all bytes before it are delivered.
    next: u64,
    /// Data received beyond it, the run with the newest arrival first (RFC 2018, section 4). Bounded by the
    /// sender's window: no two runs touch.
    runs: Vec<(u64, u64)>,
    /// Time by which a delayed acknowledgement is due.
    owed: Option<Time>,
    /// Timestamp to echo (RFC 7323, section 4.3).
    echo: u64,
    acknowledged: u64,
    segments: u64,
    duplicates: u64,
}

/// An acknowledgement to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The next byte expected.
    pub next: u64,
    /// Ranges received beyond it.
    pub sack: Sack,
    /// Timestamp to echo.
    pub echo: u64,
}

impl Receiver {
    /// A receiver in its initial state.
    #[must_use]
    pub fn new(config: &Config) -> Receiver {
        Receiver {
            delay: config.delayed_ack,
            most_blocks: usize::from(config.sack_blocks),
            dsack: config.dsack,
            next: 0,
            runs: Vec::new(),
            owed: None,
            echo: 0,
            acknowledged: 0,
            segments: 0,
            duplicates: 0,
        }
    }

    /// Handles a segment. Returns an acknowledgement at once, or one follows by [`deadline`](Self::deadline).
    pub(crate) fn on_segment(&mut self, now: Time, segment: &Segment) -> Option<Acknowledgement> {
        let (start, end) = (segment.seq, segment.seq + u64::from(segment.len));
        self.segments += 1;
        let duplicate = end <= self.next || self.runs.iter().any(|r| r.0 <= start && end <= r.1);
        self.duplicates += u64::from(duplicate);
        // A delayed acknowledgement echoes the timestamp of the earliest segment that it answers; a segment out
        // of order does not hide the sending time of the last one in order.
        if let Some((value, _)) = segment.timestamps
            && (self.delay.is_none() || start <= self.acknowledged)
        {
            self.echo = value;
        }
        let filled_gap = !self.runs.is_empty();
        let in_order = start <= self.next && !duplicate;
        if in_order {
            self.next = end;
            self.hand_over();
        } else if !duplicate {
            self.store(start, end);
        } else if let Some(i) = self.runs.iter().position(|r| r.0 <= start && end <= r.1) {
            self.runs[..=i].rotate_right(1);
        }
        let report = (duplicate && self.dsack).then_some((start, end));
        match self.delay {
            // RFC 5681, section 4.2: acknowledge every second segment, segments out of order, and segments that
            // fill a gap at once.
            Some(delay) if in_order && !filled_gap && self.owed.is_none() && !segment.fin => {
                self.owed = Some(now + delay);
                None
            }
            _ => Some(self.acknowledge(report)),
        }
    }

    /// When a delayed acknowledgement is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.owed
    }

    /// Handles an expired deadline.
    pub fn on_deadline(&mut self, now: Time) -> Option<Acknowledgement> {
        self.owed.filter(|at| *at <= now).map(|_| self.acknowledge(None))
    }

    fn acknowledge(&mut self, duplicate: Option<(u64, u64)>) -> Acknowledgement {
        self.owed = None;
        self.acknowledged = self.next;
        let mut sack = Sack::default();
        for (start, end) in duplicate.iter().chain(&self.runs).take(self.most_blocks) {
            sack.push(*start, *end);
        }
        Acknowledgement { next: self.next, sack, echo: self.echo }
    }

    fn hand_over(&mut self) {
        while let Some(i) = self.runs.iter().position(|r| r.0 <= self.next) {
            self.next = self.next.max(self.runs.remove(i).1);
        }
    }

    fn store(&mut self, mut start: u64, mut end: u64) {
        self.runs.retain(|run| {
            let touches = run.0 <= end && start <= run.1;
            if touches {
                (start, end) = (start.min(run.0), end.max(run.1));
            }
            !touches
        });
        self.runs.insert(0, (start, end));
    }

    /// Number of bytes delivered in order.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// Number of segments received.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Number of segments received more than once.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Variant;

    #[test]
    fn blocks_come_with_the_newest_arrival_first_and_vanish_when_the_gap_is_filled() {
        let mut receiver = Receiver::new(&Config::ns2_35(Variant::Sack));
        let blocks = |receiver: &mut Receiver, n: u64| {
            let ack = receiver.on_segment(Time(n), &segment(n)).unwrap();
            (
                ack.next / 10,
                ack.sack.blocks().iter().map(|b| (b.0 / 10, b.1 / 10)).collect::<Vec<_>>(),
            )
        };
        assert_eq!(blocks(&mut receiver, 0), (1, [].to_vec()));
        assert_eq!(blocks(&mut receiver, 2), (1, [(2, 3)].to_vec()));
        assert_eq!(blocks(&mut receiver, 4), (1, [(4, 5), (2, 3)].to_vec()));
        assert_eq!(blocks(&mut receiver, 6), (1, [(6, 7), (4, 5), (2, 3)].to_vec()));
        assert_eq!(blocks(&mut receiver, 3), (1, [(2, 5), (6, 7)].to_vec()));
        assert_eq!(
            blocks(&mut receiver, 6),
            (1, [(6, 7), (2, 5)].to_vec()),
            "a duplicate is new again"
        );
        assert_eq!(blocks(&mut receiver, 1), (5, [(6, 7)].to_vec()));
        assert_eq!(blocks(&mut receiver, 5), (7, [].to_vec()));
        assert_eq!((receiver.delivered(), receiver.duplicates()), (70, 1));
    }

    #[test]
    fn a_delayed_acknowledgement_waits_for_a_second_segment_in_order_or_its_time() {
        let mut config = Config::ns2_35(Variant::Reno);
        config.delayed_ack = Some(Span(100));
        let mut receiver = Receiver::new(&config);
        assert_eq!(receiver.on_segment(Time(0), &segment(0)), None);
        assert_eq!(receiver.on_segment(Time(1), &segment(1)).unwrap().next, 20);
        assert_eq!(receiver.on_segment(Time(2), &segment(2)), None);
        assert_eq!(receiver.deadline(), Some(Time(102)));
        assert_eq!(receiver.on_deadline(Time(101)), None);
        assert_eq!(receiver.on_deadline(Time(102)).unwrap().next, 30);
        assert_eq!(receiver.on_segment(Time(200), &segment(4)).unwrap().next, 30, "out of order");
        assert_eq!(receiver.on_segment(Time(201), &segment(3)).unwrap().next, 50, "fills a gap");
    }

    fn segment(n: u64) -> Segment {
        Segment { seq: n * 10, len: 10, ..Segment::default() }
    }
}
