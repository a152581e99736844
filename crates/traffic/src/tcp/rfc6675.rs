//! SACK scoreboard of data that the receiver holds, and the resulting recovery decisions (RFC 6675).
//!
//! Ranges are half open: `start..end` covers the octets that the RFC calls `start` to `end - 1`. The RFC's
//! HighACK + 1 is [`una`](Scoreboard::una) here, HighRxt + 1 is `rxt`, and HighData + 1 is the argument
//! `high_data`.
//!
//! IsLost is true below some octet and false above it. [`lost_edge`](Scoreboard::lost_edge) finds this octet from
//! the topmost ranges, at most DupThresh of them. Together with a running count of the data below HighRxt, this
//! avoids every walk over the window.

use alloc::collections::BTreeMap;

/// Maximum number of ranges. Further ranges are dropped as if their block had never arrived: they are reported
/// again, or retransmitted.
pub(crate) const MAX_RANGES: usize = 1 << 16;

/// The decision of NextSeg (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Rule 1: this range is lost.
    Lost(u64, u64),
    /// Rule 2: this many unsent bytes.
    New(u64),
    /// Rule 3: this range lies below one that arrived, and may be lost.
    Hole(u64, u64),
    /// Rule 4: the last outstanding range, once per recovery.
    Rescue(u64, u64),
}

/// The scoreboard.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    dup_thresh: u32,
    mss: u64,
    una: u64,
    /// Ranges above `una` that the receiver holds, start to end, neither overlapping nor touching.
    sacked: BTreeMap<u64, u64>,
    sacked_bytes: u64,
    /// All lost data below this have been retransmitted in this recovery.
    rxt: u64,
    /// Bytes of `sacked` below `rxt`.
    sacked_below_rxt: u64,
    /// No further rescue until `una` has passed this.
    rescue: Option<u64>,
}

impl Scoreboard {
    /// An empty scoreboard; `dup_thresh` (DupThresh) in segments, `mss` (SMSS) in bytes.
    #[must_use]
    pub fn new(dup_thresh: u32, mss: u32) -> Scoreboard {
        Scoreboard {
            dup_thresh: dup_thresh.max(1),
            mss: u64::from(mss.max(1)),
            una: 0,
            sacked: BTreeMap::new(),
            sacked_bytes: 0,
            rxt: 0,
            sacked_below_rxt: 0,
            rescue: None,
        }
    }

    /// First byte that is not acknowledged.
    #[must_use]
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The end of the data known to have arrived; `una` if nothing above it has.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.sacked.last_key_value().map_or(self.una, |(_, end)| *end)
    }

    /// Update (): processes an acknowledgement and its blocks. Ignores data acknowledged before, data never sent,
    /// and invalid ranges. Returns the number of bytes newly known to have arrived above `ack`.
    pub fn update(&mut self, ack: u64, blocks: &[(u64, u64)], high_data: u64) -> u64 {
        if ack > high_data {
            return 0;
        }
        self.advance(ack);
        let before = self.sacked_bytes;
        for &(start, end) in blocks {
            if start < end && end <= high_data {
                self.insert(start.max(self.una), end);
            }
        }
        self.sacked_bytes - before
    }

    /// IsLost (): DupThresh ranges above `seq` have arrived, or more than (DupThresh - 1) * SMSS bytes.
    #[must_use]
    pub(crate) fn is_lost(&self, seq: u64) -> bool {
        seq < self.lost_edge().0
    }

    /// SetPipe (): bytes in flight. Counts data that are not lost, and retransmitted data.
    #[must_use]
    pub fn pipe(&self, high_data: u64) -> u64 {
        let (edge, sacked_above) = self.lost_edge();
        let not_lost = high_data.saturating_sub(edge.max(self.una)) - sacked_above;
        let sent_again = self.rxt.saturating_sub(self.una) - self.sacked_below_rxt;
        not_lost + sent_again
    }

    /// NextSeg (): the data to send next if the window allows; `unsent` bytes are ready that were never sent.
    #[must_use]
    pub(crate) fn next_segment(&self, high_data: u64, unsent: u64) -> Option<Next> {
        let hole = self.hole_from(self.rxt.max(self.una));
        if let Some((start, end)) = hole.filter(|hole| self.is_lost(hole.0)) {
            return Some(Next::Lost(start, end));
        }
        if unsent > 0 {
            return Some(Next::New(unsent.min(self.mss)));
        }
        if let Some((start, end)) = hole {
            return Some(Next::Hole(start, end));
        }
        let rescued = self.rescue.is_some_and(|rescue| self.una <= rescue);
        let (start, end) = self.last_hole(high_data)?;
        (!rescued).then_some(Next::Rescue(start, end))
    }

    /// Starts a recovery: the segment up to `end` is retransmitted (section 5, step 4.3).
    pub fn begin(&mut self, end: u64) {
        self.set_rxt(end);
        self.rescue = Some(end);
    }

    /// Notes that `next` was sent (section 5, step C.2); `recovery_point` is where the recovery ends.
    pub fn sent(&mut self, next: Next, recovery_point: u64) {
        match next {
            Next::Lost(_, end) | Next::Hole(_, end) => self.set_rxt(end.max(self.rxt)),
            Next::Rescue(..) => self.rescue = Some(recovery_point),
            Next::New(_) => {}
        }
    }

    /// Ends a recovery: HighRxt = HighACK (section 5, step 3.1).
    pub fn end(&mut self) {
        self.set_rxt(self.una);
        self.rescue = None;
    }

    /// Forgets arrivals above `una`: after a timeout the receiver may have discarded them (RFC 2018, section 8).
    pub fn clear(&mut self) {
        self.sacked.clear();
        self.sacked_bytes = 0;
        self.sacked_below_rxt = 0;
        self.end();
    }

    /// The octet below which everything that has not arrived is lost (0 without a loss), and the number of bytes
    /// that have arrived above it.
    fn lost_edge(&self) -> (u64, u64) {
        let mut bytes = 0;
        for (count, (start, end)) in (1..).zip(self.sacked.iter().rev()) {
            bytes += end - start;
            if count >= self.dup_thresh || bytes > u64::from(self.dup_thresh - 1) * self.mss {
                return (*start, bytes);
            }
        }
        (0, bytes)
    }

    /// End of a segment that starts at `from`: a full segment, or up to the next range that arrived.
    #[must_use]
    pub(crate) fn hole_end(&self, from: u64) -> u64 {
        let next = self.sacked.range(from..).next().map_or(u64::MAX, |(start, _)| *start);
        next.min(from + self.mss)
    }

    /// `seq`, or the end of the range that contains it.
    #[must_use]
    pub fn past(&self, seq: u64) -> u64 {
        self.sacked.range(..=seq).next_back().map_or(seq, |(_, end)| seq.max(*end))
    }

    /// Bytes of `from..to` that have arrived.
    #[must_use]
    pub(crate) fn sacked_between(&self, from: u64, to: u64) -> u64 {
        let first = self.sacked.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let ranges = self.sacked.range(first..to.max(first));
        ranges.map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum()
    }

    /// The first missing range at or above `from` with an arrived range above it; at most one segment of it.
    fn hole_from(&self, from: u64) -> Option<(u64, u64)> {
        let start = self.past(from);
        (start < self.highest()).then(|| (start, self.hole_end(start)))
    }

    /// The last segment of the outstanding data that has not arrived.
    fn last_hole(&self, high_data: u64) -> Option<(u64, u64)> {
        let mut end = high_data;
        for (start, top) in self.sacked.iter().rev() {
            if *top < end {
                return Some(((*top).max(end.saturating_sub(self.mss)), end));
            }
            end = *start;
        }
        (self.una < end).then(|| (self.una.max(end.saturating_sub(self.mss)), end))
    }

    fn advance(&mut self, ack: u64) {
        if ack <= self.una {
            return;
        }
        self.una = ack;
        while let Some((start, end)) = self.sacked.pop_first() {
            if start >= ack {
                self.sacked.insert(start, end);
                break;
            }
            let gone = end.min(ack);
            self.sacked_bytes -= gone - start;
            self.sacked_below_rxt -= gone.min(self.rxt) - start.min(self.rxt);
            if end > ack {
                self.sacked.insert(ack, end);
                break;
            }
        }
        if self.rxt < ack {
            self.set_rxt(ack);
        }
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        let mut known = 0;
        let mut known_below_rxt = 0;
        // Merge all overlapping or adjacent ranges into the new one.
        while let Some((&a, &b)) =
            self.sacked.range(..=end).next_back().filter(|(_, b)| **b >= start)
        {
            self.sacked.remove(&a);
            known += b - a;
            known_below_rxt += b.min(self.rxt) - a.min(self.rxt);
            (start, end) = (start.min(a), end.max(b));
        }
        if known == 0 && self.sacked.len() >= MAX_RANGES {
            return;
        }
        self.sacked.insert(start, end);
        self.sacked_bytes += end - start - known;
        self.sacked_below_rxt += end.min(self.rxt) - start.min(self.rxt) - known_below_rxt;
    }

    fn set_rxt(&mut self, rxt: u64) {
        if rxt < self.rxt || rxt == self.una {
            self.rxt = rxt;
            self.sacked_below_rxt =
                if rxt == self.una { 0 } else { self.sacked_between(self.una, rxt) };
        } else {
            self.sacked_below_rxt += self.sacked_between(self.rxt, rxt);
            self.rxt = rxt;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 1_000;

    #[test]
    fn the_first_byte_is_lost_with_three_ranges_or_more_than_two_segments_above_it() {
        let mut board = board();
        assert_eq!(board.update(0, &[(1_000, 3_000)], 10_000), 2_000);
        assert!(!board.is_lost(0), "two segments are not more than (3 - 1) * SMSS");
        board.update(0, &[(1_000, 3_001)], 10_000);
        assert!(board.is_lost(0) && !board.is_lost(3_001));

        let mut board = self::board();
        board.update(0, &[(1_000, 1_001), (2_000, 2_001)], 10_000);
        assert!(!board.is_lost(0));
        board.update(0, &[(3_000, 3_001)], 10_000);
        assert!(board.is_lost(999), "three ranges, if only of a byte each");
        assert!(!board.is_lost(1_500), "two ranges above it");
    }

    #[test]
    fn pipe_counts_what_is_not_lost_and_what_was_sent_again() {
        let mut board = board();
        assert_eq!(board.pipe(10_000), 10_000);
        // Segments 0 and 2 of ten are missing, 1 and 3 to 5 arrived.
        board.update(0, &[(3_000, 6_000), (1_000, 2_000)], 10_000);
        assert_eq!(board.pipe(10_000), 4_000, "segments 6 to 9");
        board.begin(1_000);
        assert_eq!(board.pipe(10_000), 5_000, "and segment 0 again");
        let next = board.next_segment(10_000, 5_000).unwrap();
        assert_eq!(next, Next::Lost(2_000, 3_000));
        board.sent(next, 10_000);
        assert_eq!(board.pipe(10_000), 6_000);
        board.update(2_000, &[(3_000, 7_000)], 10_000);
        assert_eq!(board.pipe(10_000), 4_000, "segment 2 again, and 7 to 9");
    }

    #[test]
    fn the_four_rules_of_next_seg_come_in_their_order() {
        let mut board = board();
        // Segments 0, 2 and 8 of ten are missing; three segments above 2 have arrived, and one above 8.
        board.update(0, &[(9_000, 10_000), (3_000, 8_000), (1_000, 2_000)], 10_000);
        board.begin(1_000);
        let mut taken = Vec::new();
        for unsent in [1_500, 1_500, 500, 0, 0, 0] {
            let next = board.next_segment(10_000, unsent);
            taken.push(next);
            if let Some(next) = next {
                board.sent(next, 10_000);
            }
        }
        let expected = [
            Some(Next::Lost(2_000, 3_000)),
            Some(Next::New(1_000)),
            Some(Next::New(500)),
            Some(Next::Hole(8_000, 9_000)),
            None,
            None,
        ];
        assert_eq!(taken, expected, "a rescue waits until the first segment is acknowledged");
        board.update(2_000, &[(3_000, 8_000), (9_000, 10_000)], 12_000);
        let next = board.next_segment(12_000, 0).unwrap();
        assert_eq!(next, Next::Rescue(11_000, 12_000), "the last segment of all");
        board.sent(next, 12_000);
        assert_eq!(board.next_segment(12_000, 0), None, "one rescue in a recovery");
    }

    #[test]
    fn a_rescue_is_the_highest_range_that_has_not_arrived() {
        let mut board = board();
        board.update(0, &[(4_000, 6_000)], 6_000);
        board.sent(Next::Hole(3_000, 4_000), 6_000);
        assert_eq!(board.next_segment(6_000, 0), Some(Next::Rescue(3_000, 4_000)));
    }

    #[test]
    fn blocks_that_mean_nothing_change_nothing() {
        let mut board = board();
        board.update(2_000, &[(4_000, 5_000)], 10_000);
        let before = alloc::format!("{board:?}");
        assert_eq!(board.update(11_000, &[(4_000, 9_000)], 10_000), 0, "never sent");
        let nonsense = [(6_000, 6_000), (7_000, 6_000), (9_000, 10_001), (0, 1_000), (u64::MAX, 0)];
        assert_eq!(board.update(1_000, &nonsense, 10_000), 0);
        assert_eq!(alloc::format!("{board:?}"), before);
    }

    #[test]
    fn what_was_forgotten_counts_as_in_flight() {
        let mut board = board();
        board.update(0, &[(3_000, 8_000)], 10_000);
        board.clear();
        assert_eq!((board.pipe(10_000), board.sacked_bytes, board.highest()), (10_000, 0, 0));
    }

    proptest! {
        /// The running counts equal the RFC's byte-by-byte definitions.
        #[test]
        fn running_counts_equal_the_definitions(
            steps in prop::collection::vec((0u8..5, 0u64..60, 1u64..8), 1..60),
        ) {
            let high_data = 64;
            let mut board = Scoreboard::new(3, 4);
            let mut model = Model { una: 0, held: [false; 64], rxt: 0 };
            for (what, at, len) in steps {
                match what {
                    0 => {
                        let ack = (model.una + len).min(high_data);
                        board.update(ack, &[], high_data);
                        model.una = ack;
                        model.rxt = model.rxt.max(ack);
                    }
                    1 => if let Some(next) = board.next_segment(high_data, 0) {
                        board.sent(next, high_data);
                        if let Next::Lost(_, end) | Next::Hole(_, end) = next {
                            model.rxt = model.rxt.max(end);
                        }
                    },
                    2 if at < 5 => {
                        board.end();
                        model.rxt = model.una;
                    }
                    _ => {
                        let end = (at + len).min(high_data);
                        board.update(model.una, &[(at, end)], high_data);
                        (at..end).for_each(|i| model.held[i as usize] = true);
                    }
                }
                prop_assert_eq!(board.pipe(high_data), model.pipe());
                for seq in model.una..high_data {
                    if !model.held[seq as usize] {
                        prop_assert_eq!(board.is_lost(seq), model.is_lost(seq), "octet {}", seq);
                    }
                }
            }
        }
    }

    struct Model {
        una: u64,
        held: [bool; 64],
        rxt: u64,
    }

    impl Model {
        fn is_lost(&self, seq: u64) -> bool {
            let above: Vec<bool> =
                (seq + 1..64).map(|i| i >= self.una && self.held[i as usize]).collect();
            let ranges =
                (0..above.len()).filter(|&i| above[i] && (i == 0 || !above[i - 1])).count();
            ranges >= 3 || above.iter().filter(|held| **held).count() > 2 * 4
        }

        fn pipe(&self) -> u64 {
            (self.una..64)
                .filter(|&seq| !self.held[seq as usize])
                .map(|seq| u64::from(!self.is_lost(seq)) + u64::from(seq < self.rxt))
                .sum()
        }
    }

    fn board() -> Scoreboard {
        Scoreboard::new(3, MSS as u32)
    }
}
