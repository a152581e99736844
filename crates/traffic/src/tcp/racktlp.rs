//! Recovery by RACK-TLP (RFC 8985), with Reno's or CUBIC's window.
//!
//! Losses within one flight reduce the window once. A loss of a segment sent after a reduction, such as a
//! retransmission, is a new sign of congestion (RFC 5681, section 4.3). During recovery, proportional rate
//! reduction (RFC 6937) sets the window, so that a sender can send from the first acknowledgement on.

use segue_clock::{Deadline, Span, Time};

use super::config::Config;
use super::control::Control;
use super::prr::Prr;
use super::rack::{Detected, Rack};
use super::recovery::{Ack, Core, Recovery};
use super::tlp::{Tlp, probe_at};

/// Assumed maximum ACK delay of a receiver, as in Linux (TLP.max_ack_delay).
const MAX_ACK_DELAY: Span = Span::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No known losses.
    Open,
    /// Losses are being repaired until this unit is acknowledged.
    Recovery(u64),
    /// As `Recovery`, after a timeout.
    Loss(u64),
}

/// The sender of `rack`.
#[derive(Clone, Debug)]
pub(super) struct RackTlp {
    rack: Rack,
    tlp: Tlp,
    control: Control,
    phase: Phase,
    /// Number of segments sent when the window was last reduced, and the state of the recovery since.
    reduced: u64,
    prr: Prr,
    /// Time of the next loss detection.
    reorder_at: Option<Time>,
    /// Time of the next probe.
    probe_at: Option<Time>,
    /// End of new data when the probe was last postponed.
    seen_max: u64,
}

impl RackTlp {
    pub(super) fn new(config: &Config) -> RackTlp {
        RackTlp {
            rack: Rack::new(config.dupack_threshold),
            tlp: Tlp::default(),
            control: Control::new(config),
            phase: Phase::Open,
            reduced: 0,
            prr: Prr::new(1),
            reorder_at: None,
            probe_at: None,
            seen_max: 0,
        }
    }
}

impl Recovery for RackTlp {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next < core.una {
            return;
        }
        let limited = core.flight() + core.smss > core.cwnd as u64;
        let acked = ack.next - core.una;
        let blocks = ack.sack.blocks();
        let told = self.rack.acknowledge(now, ack.next, blocks, ack.echo);
        // An unnecessary probe is no evidence of reordering.
        self.rack.on_duplicate(told.dsack.is_some_and(|(_, end)| !self.tlp.is_probe(end)));
        if acked > 0 {
            core.advance(now, ack, true);
        }
        if self.tlp.on_ack(ack.next, told.dsack, acked == 0 && blocks.is_empty())
            && self.phase == Phase::Open
        {
            // The probe repaired the loss: the window responds, nothing is left to retransmit.
            self.reduce(core);
        }
        let before = self.phase;
        match self.phase {
            Phase::Recovery(point) | Phase::Loss(point) if core.una >= point => {
                if matches!(self.phase, Phase::Recovery(_)) {
                    core.cwnd = core.ssthresh;
                }
                self.phase = Phase::Open;
                self.rack.on_recovered();
            }
            _ => {}
        }
        self.detect(core, now);
        if matches!(self.phase, Phase::Recovery(_)) {
            self.reduce_in_proportion(core, told.bytes);
        } else if acked > 0 && before == self.phase {
            // Data covered by the acknowledgement that ends a recovery arrived long before, so it does not open
            // the window.
            self.control.open(core, now, acked, limited);
        }
        self.send(core, now);
        self.set_probe(core, now, acked > 0);
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        self.rack.on_timeout(now, core.rtt.srtt());
        self.control.collapse(core, now);
        core.next = core.max;
        self.tlp.forget();
        (self.phase, self.reduced) = (Phase::Loss(core.max), self.rack.serial());
        (self.reorder_at, self.probe_at) = (None, None);
        // The first segment is sent regardless of the pipe: without it the connection would stall.
        self.send_lost(core, now);
        self.send(core, now);
    }

    fn fill(&mut self, core: &mut Core, now: Time) {
        self.send(core, now);
        self.set_probe(core, now, false);
    }

    fn deadline(&self, _core: &Core) -> Deadline {
        let reorder = self.reorder_at.map(|at| (at, "reordering"));
        let probe = self.probe_at.map(|at| (at, "tail loss probe"));
        match (reorder, probe) {
            (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    fn on_timer(&mut self, core: &mut Core, now: Time) {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.detect(core, now);
            self.send(core, now);
            self.set_probe(core, now, false);
        } else if self.probe_at.is_some_and(|at| at <= now) {
            self.probe(core, now);
        }
    }
}

impl RackTlp {
    /// Detects losses. The first segment found lost is retransmitted at once (RFC 5681, section 3.2, step 3), the
    /// others as the window allows.
    fn detect(&mut self, core: &mut Core, now: Time) {
        let recovering = self.phase != Phase::Open;
        let Detected { lost, newest, timer } = self.rack.detect(now, core.rtt.srtt(), recovering);
        self.reorder_at = timer;
        let again = matches!(self.phase, Phase::Recovery(_)) && newest > Some(self.reduced);
        if lost == 0 || (recovering && !again) {
            return;
        }
        if !recovering {
            core.sent.fast_retransmits += 1;
            core.arm(now);
        }
        self.tlp.forget();
        core.stop_timing();
        core.recover = core.max;
        self.phase = Phase::Recovery(core.max);
        self.prr = Prr::new(core.flight());
        self.reduce(core);
        self.send_lost(core, now);
    }

    fn reduce(&mut self, core: &mut Core) {
        self.control.reduce(core);
        self.reduced = self.rack.serial();
    }

    fn reduce_in_proportion(&mut self, core: &mut Core, delivered: u64) {
        let (pipe, ssthresh) = (self.rack.pipe(), core.ssthresh as u64);
        let window = self.prr.window(delivered, pipe, ssthresh, core.smss);
        core.cwnd = window.max(core.smss) as f64;
    }

    /// Sends lost segments first, then new ones, while the window has room for a segment.
    fn send(&mut self, core: &mut Core, now: Time) {
        while core.cwnd as u64 >= self.rack.pipe() + core.smss {
            if !self.send_lost(core, now) && !self.send_new(core, now) {
                break;
            }
        }
    }

    fn send_lost(&mut self, core: &mut Core, now: Time) -> bool {
        let Some(segment) = self.rack.next_lost() else { return false };
        core.transmit_range(now, segment.seq, segment.end);
        self.rack.sent(now, segment.seq, segment.end);
        self.prr.sent(segment.end - segment.seq);
        true
    }

    fn send_new(&mut self, core: &mut Core, now: Time) -> bool {
        let units = core.unsent().min(core.smss);
        if units > 0 {
            let start = core.max;
            core.transmit_range(now, start, start + units);
            self.rack.sent(now, start, start + units);
            self.prr.sent(units);
        }
        units > 0
    }

    /// Arms the probe, or leaves the field to the retransmission timer (RFC 8985, section 7.2). A probe is for a
    /// flight without known losses; sent and acknowledged data restart its timer.
    fn set_probe(&mut self, core: &mut Core, now: Time, acked: bool) {
        let quiet = self.phase == Phase::Open && self.rack.sacked_bytes() == 0;
        let Some(rto_at) = core.rto_at.filter(|_| quiet && !self.tlp.outstanding()) else {
            self.probe_at = None;
            return;
        };
        if acked || core.max > self.seen_max || self.probe_at.is_none() {
            let one = self.rack.segments() == 1;
            self.probe_at = Some(probe_at(now, core.rtt.srtt(), one, MAX_ACK_DELAY, rto_at));
            self.seen_max = core.max;
        }
    }

    /// TLP_send_probe (section 7.3): sends new data if there are any, otherwise the last segment again. Restarts
    /// the retransmission timer.
    fn probe(&mut self, core: &mut Core, now: Time) {
        self.probe_at = None;
        if core.flight() == 0 {
            return;
        }
        let is_retrans = !self.send_new(core, now);
        if let Some(last) = self.rack.last().filter(|_| is_retrans) {
            core.transmit_range(now, last.seq, last.end);
            self.rack.sent(now, last.seq, last.end);
        }
        self.tlp.sent(core.max, is_retrans);
        core.stop_timing();
        core.arm(now);
    }
}
