//! Detects duplicates, reordering and restarts from sequence numbers.

/// Classification of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Newer than all earlier numbers.
    Newest,
    /// First arrival of a number that a newer one has overtaken.
    Late,
    /// Arrived before.
    Duplicate,
    /// Too old to distinguish a late number from a duplicate. Not trustworthy.
    Stale,
    /// The sender restarted its numbers.
    Restart,
}

/// The last 64 sequence numbers.
#[derive(Clone, Debug, Default)]
pub struct SeqWindow {
    newest: Option<Newest>,
    /// Bit *i*: the number `newest − i` was seen.
    seen: u64,
    /// The last stale number. Another one less than `WIDTH` above it proves a restart.
    stale: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    seq: u32,
    stamp: Option<u32>,
}

impl SeqWindow {
    /// Width of the window.
    pub(crate) const WIDTH: u32 = 64;

    /// An empty window.
    #[must_use]
    pub fn new() -> SeqWindow {
        SeqWindow::default()
    }

    /// Records and classifies the number of a probe that arrived. `stamp` is its sending time (microseconds modulo
    /// 2³²); pass it if the sender stamps in the order of its numbers. An old number with a newer stamp then proves a
    /// restart immediately. Otherwise, including after a reboot that sets the clock back, two successive stale numbers
    /// prove a restart.
    pub fn observe(&mut self, seq: u32, stamp: Option<u32>) -> Order {
        let Some(newest) = self.newest else {
            self.begin(seq, stamp);
            return Order::Newest;
        };
        let ahead = seq.wrapping_sub(newest.seq);
        if ahead != 0 && ahead < 1 << 31 {
            self.seen = if ahead < Self::WIDTH { self.seen << ahead | 1 } else { 1 };
            self.newest = Some(Newest { seq, stamp });
            self.stale = None;
            return Order::Newest;
        }
        if let (Some(stamp), Some(before)) = (stamp, newest.stamp)
            && (1..1 << 31).contains(&stamp.wrapping_sub(before))
        {
            self.begin(seq, Some(stamp));
            return Order::Restart;
        }
        let order = self.behind(newest.seq.wrapping_sub(seq));
        if order != Order::Stale {
            return order;
        }
        if self.stale.is_some_and(|s| (1..Self::WIDTH).contains(&seq.wrapping_sub(s))) {
            self.begin(seq, stamp);
            return Order::Restart;
        }
        self.stale = Some(seq);
        Order::Stale
    }

    /// Like [`observe`](SeqWindow::observe), for a sender that never restarts its numbers with the same key. An old
    /// number is then always a replay: [`Order::Stale`], even for successive numbers.
    pub fn observe_once(&mut self, seq: u32) -> Order {
        let Some(newest) = self.newest else {
            self.begin(seq, None);
            return Order::Newest;
        };
        let ahead = seq.wrapping_sub(newest.seq);
        if ahead != 0 && ahead < 1 << 31 {
            return self.observe(seq, None);
        }
        self.behind(newest.seq.wrapping_sub(seq))
    }

    fn behind(&mut self, behind: u32) -> Order {
        if behind >= Self::WIDTH {
            return Order::Stale;
        }
        let bit = 1 << behind;
        let known = self.seen & bit != 0;
        self.seen |= bit;
        if known { Order::Duplicate } else { Order::Late }
    }

    fn begin(&mut self, seq: u32, stamp: Option<u32>) {
        *self = SeqWindow { newest: Some(Newest { seq, stamp }), seen: 1, stale: None };
    }
}
