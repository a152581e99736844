//! NewReno: fast recovery lasts until all data outstanding at its start are acknowledged; each partial
//! acknowledgement reveals the next hole (RFC 6582).

use segue_clock::Time;

use super::recovery::{Ack, Core, Recovery};
use super::reno::{enter, inflate};

/// Reno that responds to partial acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewReno {
    recovering: bool,
    /// A partial acknowledgement has arrived in this recovery.
    partial: bool,
}

impl Recovery for NewReno {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next > core.una {
            if self.recovering && ack.next < core.recover {
                self.on_partial(core, now, ack);
            } else {
                self.on_full(core, now, ack);
            }
        } else if ack.next == core.una && core.flight() > 0 {
            self.on_duplicate(core, now);
        }
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        *self = NewReno::default();
        core.collapse(now);
        core.fill(now, core.window(), None);
    }
}

impl NewReno {
    fn on_full(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        let acked = ack.next - core.una;
        let ended = self.recovering;
        *self = NewReno::default();
        core.inflation = 0.0;
        core.advance(now, ack, true);
        if ended && core.config.exit_burst_guard {
            let guard = core.flight().max(core.smss) + core.smss;
            core.cwnd = core.ssthresh.min(guard as f64);
        } else {
            core.open(acked);
        }
        core.fill(now, core.window(), None);
    }

    fn on_partial(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        let acked = (ack.next - core.una) as f64;
        let restart = !(self.partial && core.config.impatient);
        self.partial = true;
        core.advance(now, ack, restart);
        let smss = core.smss_f64();
        core.inflation = if !core.config.partial_deflation {
            0.0
        } else if core.inflation > acked {
            core.inflation - acked + smss
        } else {
            // More data were acknowledged than duplicates had arrived: the rest is subtracted from the window
            // itself.
            core.cwnd = (core.cwnd - (acked - core.inflation)).max(smss);
            smss
        };
        core.transmit(now, core.una);
        core.fill(now, core.window(), core.config.recovery_burst);
    }

    fn on_duplicate(&mut self, core: &mut Core, now: Time) {
        core.dupacks += 1;
        let threshold = core.config.dupack_threshold;
        if core.dupacks < threshold && !self.recovering {
            if core.config.limited_transmit {
                core.limited_transmit(now);
            }
            return;
        }
        if core.dupacks == threshold && !self.recovering && core.may_retransmit_fast() {
            enter(core, now);
            self.recovering = true;
        } else {
            inflate(core, self.recovering);
        }
        core.fill(now, core.window(), core.config.recovery_burst);
    }
}
