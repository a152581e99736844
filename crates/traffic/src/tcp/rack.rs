//! RACK (RFC 8985, section 6): loss detection by time. A segment sent well before one that has arrived is lost,
//! whether it was a first transmission or a retransmission.
//!
//! Every segment in flight is stored with the time of its last transmission, ordered by its bytes and by that
//! time, so the cost of an acknowledgement depends on its contents and not on the window. The window bounds both
//! tables. Tail loss probes are in [`tlp`](super::tlp).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_clock::{Span, Time};

use super::min_rtt::MinRtt;

/// Number of recoveries without a duplicate until the reordering window shrinks back (step 4).
const PERSIST: u32 = 16;

/// A segment in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// First byte.
    pub seq: u64,
    /// The byte after the last.
    pub end: u64,
    /// When it was last sent.
    pub xmit: Time,
    /// Number of segments sent up to and including this one.
    pub serial: u64,
    /// It was sent more than once.
    pub retransmitted: bool,
    /// The receiver holds it.
    pub sacked: bool,
    /// It is lost and has not been retransmitted.
    pub lost: bool,
}

impl Sent {
    /// Defines the order of RACK_sent_after. For equal times the RFC compares sequence numbers, which puts a
    /// retransmission before everything else of its instant. In virtual time many segments share an instant, so a
    /// count of sent segments decides which was first.
    fn stamp(&self) -> (Time, u64) {
        (self.xmit, self.serial)
    }
}

/// Results of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes newly known to have arrived, by number or by block.
    pub bytes: u64,
    /// Bytes among them above the acknowledged number.
    pub sacked: u64,
    /// RTT of the newest segment among them, if all were sent only once (Karn).
    pub rtt: Option<Span>,
    /// Range that the receiver got twice (RFC 2883).
    pub dsack: Option<(u64, u64)>,
}

/// Results of a loss detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// Bytes found lost.
    pub lost: u64,
    /// Serial number of the newest lost segment.
    pub newest: Option<u64>,
    /// Time of the next detection, if nothing arrives before.
    pub timer: Option<Time>,
}

/// Segments in flight, and measurements of them. Names in capitals in the comments are the RFC's.
#[derive(Clone, Debug)]
pub struct Rack {
    dup_thresh: u32,
    una: u64,
    segments: VecDeque<Sent>,
    /// Ends of segments that are neither lost nor held by the receiver, ordered by last transmission.
    order: BTreeMap<(Time, u64), u64>,
    /// First bytes of lost segments.
    lost: BTreeSet<u64>,
    sacked_segments: u32,
    sacked_bytes: u64,
    lost_bytes: u64,
    min_rtt: MinRtt,
    /// RACK.rtt.
    rtt: Option<Span>,
    /// The newest transmission known to have arrived: RACK.xmit_ts.
    newest: (Time, u64),
    /// Number of segments sent, including retransmissions.
    serial: u64,
    /// RACK.fack.
    fack: u64,
    reordering_seen: bool,
    dsack_round: Option<u64>,
    reo_wnd_mult: u32,
    reo_wnd_persist: u32,
}

impl Rack {
    /// State without segments in flight; `dup_thresh` in segments.
    #[must_use]
    pub fn new(dup_thresh: u32) -> Rack {
        Rack {
            dup_thresh,
            una: 0,
            segments: VecDeque::new(),
            order: BTreeMap::new(),
            lost: BTreeSet::new(),
            sacked_segments: 0,
            sacked_bytes: 0,
            lost_bytes: 0,
            min_rtt: MinRtt::default(),
            rtt: None,
            newest: (Time::ZERO, 0),
            serial: 0,
            fack: 0,
            reordering_seen: false,
            dsack_round: None,
            reo_wnd_mult: 1,
            reo_wnd_persist: PERSIST,
        }
    }

    /// First byte that is not acknowledged.
    #[must_use]
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The byte after the last one sent: SND.NXT.
    #[must_use]
    pub(crate) fn high_data(&self) -> u64 {
        self.segments.back().map_or(self.una, |last| last.end)
    }

    /// Bytes in flight: neither held by the receiver nor lost.
    #[must_use]
    pub fn pipe(&self) -> u64 {
        self.high_data() - self.una - self.sacked_bytes - self.lost_bytes
    }

    /// Bytes above `una` that the receiver holds.
    #[must_use]
    pub(crate) fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }

    /// Number of segments not cumulatively acknowledged.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The first segment that is lost and was not retransmitted.
    #[must_use]
    pub(crate) fn next_lost(&self) -> Option<Sent> {
        let seq = *self.lost.first()?;
        self.find(seq).map(|place| self.segments[place])
    }

    /// Number of segments sent, including retransmissions.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The last segment sent, for a probe.
    #[must_use]
    pub fn last(&self) -> Option<Sent> {
        self.segments.back().copied()
    }

    /// RACK.rtt and the minimum RTT.
    #[must_use]
    pub fn rtts(&self) -> (Option<Span>, Option<Span>) {
        (self.rtt, self.min_rtt.get())
    }

    /// Notes that the bytes `seq..end` are sent: new data, or a retransmitted segment.
    pub fn sent(&mut self, now: Time, seq: u64, end: u64) {
        self.serial += 1;
        let serial = self.serial;
        if seq >= self.high_data() {
            let (retransmitted, sacked, lost) = (false, false, false);
            self.segments.push_back(Sent {
                seq,
                end,
                xmit: now,
                serial,
                retransmitted,
                sacked,
                lost,
            });
            self.order.insert((now, serial), end);
            return;
        }
        let Some(place) = self.find(seq) else { return };
        let segment = &mut self.segments[place];
        self.order.remove(&segment.stamp());
        if segment.lost {
            self.lost.remove(&segment.seq);
            self.lost_bytes -= segment.end - segment.seq;
        }
        (segment.xmit, segment.serial) = (now, serial);
        (segment.retransmitted, segment.lost) = (true, false);
        if !segment.sacked {
            self.order.insert((now, serial), segment.end);
        }
    }

    /// Steps 1 to 3 of section 6.2 for an acknowledgement; `echo` is the sending time returned by a timestamp.
    /// Data never sent and invalid ranges are ignored; blocks count for whole segments only.
    pub fn acknowledge(
        &mut self,
        now: Time,
        ack: u64,
        blocks: &[(u64, u64)],
        echo: Option<Time>,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        if ack > self.high_data() {
            return delivered;
        }
        delivered.dsack = dsack(ack, blocks).filter(|(_, end)| *end <= self.high_data());
        let mut news = News { newest: (Time::ZERO, 0), ambiguous: false, now, echo };
        self.una = self.una.max(ack);
        while let Some(&first) = self.segments.front().filter(|first| first.seq < ack) {
            let got = first.end.min(ack) - first.seq;
            if first.end <= ack {
                self.segments.pop_front();
                self.take_out(first);
            }
            if !first.sacked {
                delivered.bytes += got;
                if first.end <= ack {
                    self.learn(&mut news, first);
                }
            }
            if first.end > ack {
                self.trim(ack);
            }
        }
        for &(start, end) in blocks {
            if start < end && end <= self.high_data() && end > self.una {
                let held = self.hold(&mut news, start, end);
                delivered.sacked += held;
                delivered.bytes += held;
            }
        }
        if news.newest.1 > 0 && !news.ambiguous {
            delivered.rtt = Some(now.since(news.newest.0));
        }
        delivered
    }

    /// Steps 4 and 5: finds lost segments. `srtt` bounds the reordering window; `recovering`: losses are being
    /// repaired.
    pub fn detect(&mut self, now: Time, srtt: Option<Span>, recovering: bool) -> Detected {
        let mut detected = Detected::default();
        let Some(rtt) = self.rtt else { return detected };
        let patience = rtt + self.reordering_window(srtt, recovering);
        while let Some((&stamp, &end)) = self.order.first_key_value() {
            let xmit = stamp.0;
            if stamp >= self.newest {
                break;
            }
            if xmit + patience > now {
                // The RFC waits for the last of them, so that one timer finds all.
                let last = self.order.range(..self.newest).next_back();
                detected.timer = last.map(|((xmit, _), _)| *xmit + patience);
                break;
            }
            self.order.pop_first();
            if let Some(segment) = self.lose(end) {
                detected.lost += segment.end - segment.seq;
                detected.newest = detected.newest.max(Some(segment.serial));
            }
        }
        detected
    }

    /// Step 4 for the newest acknowledgement: duplicates at the receiver widen the reordering window, since the
    /// supposedly lost segments were only late. They also prove reordering, which step 3 cannot see if the late
    /// segment had been retransmitted before it arrived.
    pub(crate) fn on_duplicate(&mut self, dsack: bool) {
        if self.dsack_round.is_some_and(|round| self.una >= round) {
            self.dsack_round = None;
        }
        self.reordering_seen |= dsack;
        if dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(self.high_data());
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = PERSIST;
        }
    }

    /// Notes the end of a recovery, after which the reordering window may shrink again (step 4).
    pub(crate) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// RACK_mark_losses_on_RTO (section 6.3). If the receiver claimed to hold the first segment and did not
    /// acknowledge it, none of its claims is trusted (RFC 2018, section 8).
    pub(crate) fn on_timeout(&mut self, now: Time, srtt: Option<Span>) {
        if self.segments.front().is_some_and(|first| first.sacked) {
            for segment in self.segments.iter_mut().filter(|segment| segment.sacked) {
                segment.sacked = false;
                self.order.insert(segment.stamp(), segment.end);
            }
            (self.sacked_segments, self.sacked_bytes) = (0, 0);
        }
        let patience = self.rtt.unwrap_or_default() + self.reordering_window(srtt, true);
        while let Some((&(xmit, _), &end)) = self.order.first_key_value() {
            if xmit + patience > now {
                break;
            }
            self.order.pop_first();
            self.lose(end);
        }
        if let Some(first) = self.segments.front().copied().filter(|first| !first.lost) {
            self.order.remove(&first.stamp());
            self.lose(first.end);
        }
    }

    /// The result of RACK_update_reo_wnd (step 4).
    #[must_use]
    pub(crate) fn reordering_window(&self, srtt: Option<Span>, recovering: bool) -> Span {
        if !self.reordering_seen && (recovering || self.sacked_segments >= self.dup_thresh) {
            return Span::ZERO;
        }
        let min_rtt = self.min_rtt.get().unwrap_or_default();
        let window = Span(min_rtt.0 / 4) * u64::from(self.reo_wnd_mult);
        srtt.map_or(window, |srtt| window.min(srtt))
    }

    /// Marks the segments within a block as held by the receiver. Returns the number of new bytes.
    fn hold(&mut self, news: &mut News, start: u64, end: u64) -> u64 {
        let mut place = self.segments.partition_point(|segment| segment.seq < start);
        let mut bytes = 0;
        while let Some(&segment) = self.segments.get(place).filter(|segment| segment.end <= end) {
            if !segment.sacked {
                self.take_out(segment);
                let known = &mut self.segments[place];
                (known.sacked, known.lost) = (true, false);
                self.sacked_segments += 1;
                self.sacked_bytes += segment.end - segment.seq;
                bytes += segment.end - segment.seq;
                self.learn(news, segment);
            }
            place += 1;
        }
        bytes
    }

    /// Steps 1 to 3 for a segment that has newly arrived.
    fn learn(&mut self, news: &mut News, segment: Sent) {
        let at = segment.stamp();
        news.ambiguous |= segment.retransmitted;
        news.newest = news.newest.max(at);
        if segment.end > self.fack {
            self.fack = segment.end;
        } else if segment.end < self.fack && !segment.retransmitted {
            self.reordering_seen = true;
        }
        let rtt = news.now.since(segment.xmit);
        if segment.retransmitted {
            // An earlier transmission may have arrived. The echo applies only to cumulatively acknowledged data:
            // the receiver does not echo segments beyond a hole (RFC 7323, section 4.3).
            let earlier =
                news.echo.is_some_and(|echo| segment.end <= self.una && echo < segment.xmit);
            if earlier || self.min_rtt.get().is_some_and(|min_rtt| rtt < min_rtt) {
                return;
            }
        } else {
            self.min_rtt.sample(news.now, rtt);
        }
        self.rtt = Some(rtt);
        self.newest = self.newest.max(at);
    }

    /// Removes a segment from all counts.
    fn take_out(&mut self, segment: Sent) {
        self.order.remove(&segment.stamp());
        let bytes = segment.end - segment.seq;
        if segment.sacked {
            self.sacked_segments -= 1;
            self.sacked_bytes -= bytes;
        }
        if segment.lost {
            self.lost.remove(&segment.seq);
            self.lost_bytes -= bytes;
        }
    }

    /// Handles a partial acknowledgement of the first segment.
    fn trim(&mut self, ack: u64) {
        let Some(first) = self.segments.front_mut() else { return };
        let gone = ack - first.seq;
        if first.sacked {
            self.sacked_bytes -= gone;
        }
        if first.lost {
            self.lost_bytes -= gone;
            self.lost.remove(&first.seq);
            self.lost.insert(ack);
        }
        first.seq = ack;
    }

    fn lose(&mut self, end: u64) -> Option<Sent> {
        let place = self.segments.partition_point(|segment| segment.end < end);
        let segment = self.segments.get_mut(place).filter(|segment| segment.end == end)?;
        segment.lost = true;
        self.lost.insert(segment.seq);
        self.lost_bytes += segment.end - segment.seq;
        Some(*segment)
    }

    fn find(&self, seq: u64) -> Option<usize> {
        self.segments.binary_search_by_key(&seq, |segment| segment.seq).ok()
    }
}

/// State collected while processing one acknowledgement.
struct News {
    newest: (Time, u64),
    ambiguous: bool,
    now: Time,
    echo: Option<Time>,
}

/// The first block if it reports a duplicate (RFC 2883): it lies below the acknowledged number, or within the
/// second block.
#[must_use]
pub(crate) fn dsack(ack: u64, blocks: &[(u64, u64)]) -> Option<(u64, u64)> {
    let first = *blocks.first().filter(|(start, end)| start < end)?;
    let within = |second: &&(u64, u64)| second.0 <= first.0 && first.1 <= second.1;
    (first.1 <= ack || blocks.get(1).filter(within).is_some()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    #[test]
    fn what_was_sent_before_something_that_arrived_is_lost_after_a_quarter_of_the_round_trip() {
        let mut rack = flight(10);
        // Segment 1 is missing; 0 and 2 arrive 100 ms after they were sent.
        rack.acknowledge(ms(100), MSS, &[], None);
        rack.acknowledge(ms(102), MSS, &[(2_000, 3_000)], None);
        let found = rack.detect(ms(102), Some(Span::from_millis(100)), false);
        assert_eq!(found, Detected { timer: Some(ms(1 + 100 + 25)), ..Detected::default() });
        let found = rack.detect(ms(126), Some(Span::from_millis(100)), false);
        assert_eq!(found, Detected { lost: MSS, newest: Some(2), timer: None });
        assert_eq!(rack.next_lost().unwrap().seq, MSS);
        assert_eq!(rack.pipe(), 7 * MSS, "segments 3 to 9");
    }

    #[test]
    fn with_three_segments_above_it_and_no_reordering_ever_seen_it_is_lost_at_once() {
        let mut rack = flight(10);
        rack.acknowledge(ms(103), 0, &[(1_000, 4_000)], None);
        let found = rack.detect(ms(103), Some(Span::from_millis(100)), false);
        assert_eq!((found.lost, found.timer), (MSS, None));
    }

    #[test]
    fn after_reordering_three_segments_are_no_sign_of_loss() {
        let mut rack = flight(10);
        rack.acknowledge(ms(101), 0, &[(1_000, 2_000)], None);
        assert!(!rack.reordering_seen);
        rack.acknowledge(ms(101), 2_000, &[], None);
        assert!(rack.reordering_seen, "segment 0 came behind segment 1");
        rack.acknowledge(ms(106), 2_000, &[(3_000, 7_000)], None);
        let found = rack.detect(ms(106), Some(Span::from_millis(100)), false);
        assert_eq!(found.lost, 0);
        assert!(found.timer.is_some());
    }

    #[test]
    fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
        let mut rack = flight(4);
        rack.acknowledge(ms(103), 0, &[(1_000, 4_000)], None);
        assert_eq!(rack.detect(ms(103), None, false).lost, MSS);
        rack.sent(ms(103), 0, MSS);
        rack.sent(ms(104), 4_000, 5_000);
        assert_eq!(rack.next_lost(), None);
        rack.acknowledge(ms(204), 0, &[(1_000, 5_000)], None);
        assert_eq!(rack.detect(ms(204), None, true).lost, MSS);
        assert_eq!(rack.next_lost().unwrap().seq, 0);
    }

    #[test]
    fn an_answer_to_the_first_transmission_does_not_make_the_second_newest() {
        let answer = |echo| {
            let mut rack = flight(4);
            rack.acknowledge(ms(103), 0, &[(1_000, 4_000)], None);
            rack.detect(ms(103), None, false);
            rack.sent(ms(105), 0, MSS);
            let told = rack.acknowledge(ms(230), 4_000, &[], echo);
            (rack.rtts().0, told.rtt)
        };
        assert_eq!(answer(Some(ms(0))), (Some(Span::from_millis(100)), None));
        assert_eq!(answer(Some(ms(105))), (Some(Span::from_millis(125)), None));
        // Without timestamps, an answer faster than any RTT so far belongs to the first transmission.
        let mut rack = flight(4);
        rack.acknowledge(ms(103), 0, &[(1_000, 4_000)], None);
        rack.detect(ms(103), None, false);
        rack.sent(ms(105), 0, MSS);
        rack.acknowledge(ms(110), 4_000, &[], None);
        assert_eq!(rack.rtts().0, Some(Span::from_millis(100)));
    }

    #[test]
    fn duplicates_widen_the_reordering_window_once_a_round_up_to_srtt_for_sixteen_recoveries() {
        let mut rack = flight(10);
        rack.acknowledge(ms(100), MSS, &[], None);
        let window = |rack: &Rack| rack.reordering_window(Some(Span::from_millis(60)), false);
        assert_eq!(window(&rack), Span::from_millis(25));
        rack.on_duplicate(true);
        rack.on_duplicate(true);
        assert_eq!(window(&rack), Span::from_millis(50));
        rack.acknowledge(ms(109), 10_000, &[], None);
        rack.on_duplicate(true);
        assert_eq!(window(&rack), Span::from_millis(60));
        (0..15).for_each(|_| rack.on_recovered());
        assert_eq!(window(&rack), Span::from_millis(60));
        rack.on_recovered();
        assert_eq!(window(&rack), Span::from_millis(25));
    }

    #[test]
    fn a_timeout_loses_the_first_segment_and_what_is_older_than_a_round_trip() {
        let mut rack = flight(3);
        rack.acknowledge(ms(100), MSS, &[], None);
        rack.sent(ms(295), 3_000, 4_000);
        rack.on_timeout(ms(300), None);
        assert_eq!((rack.pipe(), rack.next_lost().unwrap().seq), (MSS, MSS));
        let mut rack = flight(3);
        rack.on_timeout(ms(0), None);
        assert_eq!(rack.next_lost().unwrap().seq, 0, "the first, however young");
    }

    #[test]
    fn a_receiver_that_took_back_what_it_held_gets_it_again() {
        let mut rack = flight(3);
        rack.acknowledge(ms(101), 0, &[(1_000, 3_000)], None);
        rack.acknowledge(ms(102), 1_000, &[], None);
        rack.on_timeout(ms(1_000), None);
        assert_eq!((rack.sacked_bytes(), rack.next_lost().unwrap().seq), (0, 1_000));
        assert_eq!(rack.pipe(), 0);
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut rack = flight(10);
        rack.acknowledge(ms(100), 3_000, &[], None);
        let before = alloc::format!("{rack:?}");
        let none = Delivered::default();
        assert_eq!(rack.acknowledge(ms(101), 10_001, &[(4_000, 5_000)], None), none);
        let blocks = [(5_000, 5_000), (9_000, 10_001), (7_000, 6_000), (3_500, 3_900)];
        assert_eq!(rack.acknowledge(ms(101), 2_000, &blocks, None), none);
        assert_eq!(alloc::format!("{rack:?}"), before);
    }

    #[test]
    fn a_part_of_a_segment_may_be_acknowledged() {
        let mut rack = flight(3);
        let told = rack.acknowledge(ms(100), 500, &[], None);
        assert_eq!((told.bytes, rack.pipe(), told.rtt), (500, 2_500, None));
        rack.on_timeout(ms(500), None);
        rack.acknowledge(ms(501), 700, &[], None);
        assert_eq!((rack.next_lost().unwrap().seq, rack.pipe()), (700, 0));
    }

    #[test]
    fn the_smallest_round_trip_is_forgotten_when_the_path_has_become_longer() {
        let mut rack = Rack::new(3);
        for step in 0..30 {
            let rtt = if step < 10 { 10 } else { 200 };
            rack.sent(ms(step * 1_000), step * MSS, (step + 1) * MSS);
            rack.acknowledge(ms(step * 1_000 + rtt), (step + 1) * MSS, &[], None);
        }
        assert_eq!(rack.rtts().1, Some(Span::from_millis(200)));
    }

    /// Segments of 1000 bytes, sent at 0 ms, 1 ms and so on.
    fn flight(segments: u64) -> Rack {
        let mut rack = Rack::new(3);
        (0..segments).for_each(|i| rack.sent(ms(i), i * MSS, (i + 1) * MSS));
        rack
    }

    fn ms(at: u64) -> Time {
        Time(at * 1_000_000)
    }
}
