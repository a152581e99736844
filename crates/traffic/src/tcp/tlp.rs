//! Tail loss probes (RFC 8985, section 7): after two round trips without an acknowledgement the sender sends a
//! segment to provoke one, so that a lost tail is detected without a retransmission timeout.

use segue_clock::{Span, Time};

/// The probe timeout before the first RTT measurement (section 7.2).
const FIRST: Span = Span::from_secs(1);

/// Time of the probe (TLP_calc_PTO, section 7.2). `one_segment`: a single segment is in flight, whose
/// acknowledgement the receiver may delay by `max_ack_delay`. A probe never comes after the retransmission
/// timeout at `rto_at`.
#[must_use]
pub fn probe_at(
    now: Time,
    srtt: Option<Span>,
    one_segment: bool,
    max_ack_delay: Span,
    rto_at: Time,
) -> Time {
    let delay = if one_segment { max_ack_delay } else { Span::ZERO };
    let pto = srtt.map_or(FIRST, |srtt| srtt * 2 + delay);
    (now + pto).min(rto_at)
}

/// The outstanding probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    end_seq: u64,
    is_retrans: bool,
}

/// Probe state; at most one probe is outstanding at a time.
#[derive(Clone, Debug, Default)]
pub struct Tlp {
    probe: Option<Probe>,
}

impl Tlp {
    /// Returns true if a probe is outstanding.
    #[must_use]
    pub fn outstanding(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns true if the segment that ends here was retransmitted as the outstanding probe.
    #[must_use]
    pub fn is_probe(&self, end: u64) -> bool {
        self.probe.is_some_and(|probe| probe.is_retrans && probe.end_seq == end)
    }

    /// Notes that a probe was sent, with new data or as a retransmission; `end_seq` is SND.NXT after it (section
    /// 7.3).
    pub fn sent(&mut self, end_seq: u64, is_retrans: bool) {
        self.probe = Some(Probe { end_seq, is_retrans });
    }

    /// TLP_process_ack (section 7.4.2). Returns true if the probe repaired a loss, to which the window must
    /// respond. `dup`: the acknowledgement is a duplicate without blocks.
    pub fn on_ack(&mut self, ack: u64, dsack: Option<(u64, u64)>, dup: bool) -> bool {
        let Some(Probe { end_seq, is_retrans }) = self.probe.filter(|p| ack >= p.end_seq) else {
            return false;
        };
        let twice = dsack.is_some_and(|(_, end)| self.is_probe(end));
        let repaired = is_retrans && !twice && ack > end_seq;
        if !is_retrans || twice || repaired || dup {
            self.probe = None;
        }
        repaired
    }

    /// Recovery begins for any reason: the probe is no longer needed.
    pub fn forget(&mut self) {
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_comes_after_two_round_trips_and_not_after_the_timeout() {
        let ms = Span::from_millis;
        let at = |srtt, one, rto: u64| {
            probe_at(Time(5_000_000), srtt, one, ms(200), Time(5_000_000) + ms(rto))
                .since(Time(5_000_000))
        };
        assert_eq!(at(Some(ms(50)), false, 1_000), ms(100));
        assert_eq!(at(Some(ms(50)), true, 1_000), ms(300));
        assert_eq!(at(Some(ms(50)), true, 250), ms(250));
        assert_eq!(at(None, true, 3_000), ms(1_000));
    }

    #[test]
    fn a_repeated_segment_that_arrived_once_was_a_loss_and_twice_was_none() {
        let after = |ack, dsack, dup| {
            let mut tlp = Tlp::default();
            tlp.sent(10_000, true);
            (tlp.on_ack(ack, dsack, dup), tlp.outstanding())
        };
        assert_eq!(after(9_000, None, false), (false, true), "not yet");
        assert_eq!(after(10_000, None, false), (false, true), "which of the two is not known");
        assert_eq!(after(10_000, Some((9_000, 10_000)), false), (false, false), "both arrived");
        assert_eq!(
            after(10_000, None, true),
            (false, false),
            "both arrived, a receiver without DSACK"
        );
        assert_eq!(after(11_000, None, false), (true, false), "one arrived");
    }

    #[test]
    fn a_probe_of_new_data_asks_nothing_of_the_window() {
        let mut tlp = Tlp::default();
        tlp.sent(11_000, false);
        assert_eq!((tlp.on_ack(11_000, None, false), tlp.outstanding()), (false, false));
    }
}
