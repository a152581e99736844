//! SACK as described by Fall and Floyd (1996), called Sack1 in ns-2: Reno's window reduction; during recovery an
//! estimate of the data in the pipe decides when to send, first holes and then new segments.

use segue_clock::Time;

use super::recovery::{Ack, Core, Recovery};
use super::scoreboard::Scoreboard;

/// Selective acknowledgements with a pipe.
#[derive(Clone, Debug, Default)]
pub(super) struct SackReno {
    recovering: bool,
    /// Estimated data in the network, in units; may be briefly negative.
    pipe: i64,
    board: Scoreboard,
    /// The timer has expired without new acknowledgements since: duplicates answer segments sent before the
    /// timeout.
    timed_out: bool,
}

impl Recovery for SackReno {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if self.recovering {
            self.on_recovering(core, now, ack);
            return;
        }
        if ack.next > core.una {
            let acked = ack.next - core.una;
            core.advance(now, ack, true);
            core.open(acked);
            self.board.clear();
            self.timed_out = false;
            core.fill(now, core.window(), None);
        } else if ack.next == core.una && core.flight() > 0 {
            self.on_duplicate(core, now, ack);
        }
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        *self = SackReno { timed_out: true, ..SackReno::default() };
        core.collapse(now);
        core.fill(now, core.window(), None);
    }

    fn fill(&mut self, core: &mut Core, now: Time) {
        if self.recovering {
            self.fill_pipe(core, now);
        } else {
            core.fill(now, core.window(), None);
        }
    }
}

impl SackReno {
    fn on_duplicate(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        // A duplicate without new information answers an unnecessary retransmission: no packet has left the pipe
        // for it.
        if self.timed_out || !self.board.update(core.una, &ack.sack) {
            return;
        }
        core.dupacks += 1;
        let threshold = core.config.dupack_threshold;
        if core.dupacks == threshold && core.may_retransmit_fast() {
            self.enter(core, now);
        } else if core.dupacks < threshold && core.config.limited_transmit {
            core.limited_transmit(now);
        }
    }

    fn enter(&mut self, core: &mut Core, now: Time) {
        core.recover = core.max;
        core.sent.fast_retransmits += 1;
        let left = u64::from(core.config.dupack_threshold) * core.smss;
        self.pipe = core.flight() as i64 - left as i64;
        let half = core.half();
        core.cut_ssthresh();
        core.cwnd = half.max(core.smss_f64());
        core.stop_timing();
        core.arm(now);
        self.recovering = true;
        self.board.mark(core.una + core.smss);
        core.transmit(now, core.una);
    }

    fn on_recovering(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        let smss = core.smss as i64;
        self.pipe -= smss;
        if ack.next >= core.recover {
            self.recovering = false;
            // The acknowledgement that ends a recovery may be followed by another loss at once.
            core.recover = 0;
            core.advance(now, ack, true);
            self.board.clear();
            core.fill(now, core.window(), None);
            return;
        }
        if ack.next > core.una {
            // The retransmitted segment has left the network too: never slower than slow start.
            self.pipe -= smss;
            core.rtt.forget_backoff();
            core.advance(now, ack, true);
        }
        self.board.update(core.una, &ack.sack);
        self.fill_pipe(core, now);
    }

    fn fill_pipe(&mut self, core: &mut Core, now: Time) {
        let smss = core.smss as i64;
        let window = core.cwnd as i64 / smss * smss;
        while self.pipe < window {
            match self.board.hole(core.una) {
                Some(hole) => {
                    self.board.mark(hole + core.smss);
                    core.transmit(now, hole);
                }
                None if core.may_send_new() => core.transmit(now, core.next),
                None => return,
            }
            self.pipe += smss;
        }
    }
}
