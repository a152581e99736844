//! Variation of the one-way delay from one request to the next (IPDV, RFC 3393), separately for each direction. Uses
//! only differences within each clock, so the clocks need not be synchronised. A lost request or answer leaves no value
//! for itself and for the next one.

use segue_clock::{Span, Time};
use serde::Serialize;

use super::samples::{Distribution, Kept};

/// Number of values per direction that are kept for percentiles.
const KEPT_MAX: usize = 100_000;
/// The far clock counts microseconds modulo 2³²: longer gaps could be mistaken for shorter ones.
const GAP_MAX: Span = Span::from_secs(1_800);

/// The delay variation of both directions.
pub struct Ipdv {
    up: Kept,
    down: Kept,
    last: Option<Exchange>,
}

/// A request and its answer, timed by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The request's number.
    pub seq: u32,
    /// When the request left, by this end's clock.
    pub left: Time,
    /// When its answer arrived, by this end's clock.
    pub arrived: Time,
    /// When the request arrived, by the far clock: microseconds modulo 2³².
    pub far_arrived_us: u32,
    /// When the answer left, by the far clock.
    pub far_left_us: u32,
}

/// Absolute difference between the delays of consecutive requests, in each direction, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IpdvMs {
    /// To the far end.
    pub up: Distribution,
    /// To this end.
    pub down: Distribution,
}

impl Ipdv {
    /// A variation without values.
    pub fn new(seed: u64) -> Ipdv {
        let kept = |n: u64| Kept::new(KEPT_MAX, seed.wrapping_add(n));
        Ipdv { up: kept(3), down: kept(4), last: None }
    }

    /// Adds an exchange; ignores one that was overtaken.
    pub fn take(&mut self, now: Exchange) {
        let Some(before) = self.last else {
            self.last = Some(now);
            return;
        };
        let ahead = now.seq.wrapping_sub(before.seq) as i32;
        if ahead > 0 {
            self.last = Some(now);
        }
        if ahead == 1 && now.left.since(before.left) < GAP_MAX {
            let far = |now: u32, before: u32| i64::from(now.wrapping_sub(before)) * 1_000;
            let near = |now: Time, before: Time| now.0 as i64 - before.0 as i64;
            self.push(
                far(now.far_arrived_us, before.far_arrived_us) - near(now.left, before.left),
                near(now.arrived, before.arrived) - far(now.far_left_us, before.far_left_us),
            );
        }
    }

    /// Adds the differences between two consecutive delays.
    pub fn push(&mut self, up_ns: i64, down_ns: i64) {
        self.up.push(Span(up_ns.unsigned_abs()));
        self.down.push(Span(down_ns.unsigned_abs()));
    }

    /// The distributions.
    pub fn ms(&self) -> IpdvMs {
        IpdvMs { up: self.up.distribution(), down: self.down.distribution() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sent every 10 ms with these delays in milliseconds; the far clock is about to wrap.
    fn exchange(seq: u32, up_ms: u64, down_ms: u64) -> Exchange {
        let left = Time(u64::from(seq) * 10_000_000);
        let far = |ns: u64| ((ns / 1_000) as u32).wrapping_sub(20_000);
        let arrived = left.0 + up_ms * 1_000_000;
        let back = arrived + 500_000;
        Exchange {
            seq,
            left,
            arrived: Time(back + down_ms * 1_000_000),
            far_arrived_us: far(arrived),
            far_left_us: far(back),
        }
    }

    #[test]
    fn each_direction_has_its_own_variation_whatever_the_far_clock_says() {
        let mut ipdv = Ipdv::new(1);
        for (seq, up, down) in [(1, 5, 20), (2, 9, 20), (3, 5, 21), (4, 5, 21)] {
            ipdv.take(exchange(seq, up, down));
        }
        let ms = ipdv.ms();
        assert_eq!((ms.up.p50, ms.up.max), (Some(4.0), Some(4.0)));
        assert_eq!((ms.down.p50, ms.down.max), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn a_lost_request_and_an_overtaken_one_have_no_value() {
        let mut ipdv = Ipdv::new(1);
        for (seq, up) in [(1, 5), (3, 9), (2, 1), (4, 8)] {
            ipdv.take(exchange(seq, up, 5));
        }
        let ms = ipdv.ms();
        assert_eq!((ms.up.p50, ms.up.max), (Some(1.0), Some(1.0)), "of 3 and 4 alone");
        assert_eq!(Ipdv::new(1).ms(), IpdvMs::default());
    }
}
