//! Duplicates, reordering and restarts, told from sequence numbers.

/// What a sequence number says about its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Newer than all before it.
    Newest,
    /// Overtaken by a newer one, and seen for the first time.
    Late,
    /// Seen before.
    Duplicate,
    /// Too old to tell late from duplicate; not to be trusted.
    Stale,
    /// The sender began again.
    Restart,
}

/// The last 64 sequence numbers.
#[derive(Clone, Debug, Default)]
pub struct SeqWindow {
    newest: Option<Newest>,
    /// Bit *i*: the number `newest − i` was seen.
    seen: u64,
    /// The last stale number: a second one in its succession proves a restart.
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

    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> SeqWindow {
        SeqWindow::default()
    }

    /// Takes the number of a probe that arrived. `stamp` is when the sender sent it (microseconds
    /// modulo 2³²), where the sender stamps in the order of its numbers: an old number with a newer
    /// stamp is then a restart at once. Otherwise (also after a reboot, which sets the clock back) a
    /// restart shows in two stale numbers in succession.
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

    /// As [`observe`](SeqWindow::observe) for a sender that never begins again with the same key. An
    /// old number is a replay then, however many come in succession: [`Order::Stale`].
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
