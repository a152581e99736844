//! Reno: fast retransmit and fast recovery (RFC 5681, section 3.2). Recovery ends at the first acknowledgement of
//! new data, so several losses in a window usually end in a timeout.

use segue_clock::Time;

use super::config::Halving;
use super::recovery::{Ack, Core, Recovery};

/// Fast recovery by inflating the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reno {
    /// Duplicates inflate the window.
    recovering: bool,
}

impl Recovery for Reno {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next > core.una {
            let acked = ack.next - core.una;
            core.inflation = 0.0;
            self.recovering = false;
            core.advance(now, ack, true);
            core.open(acked);
            core.fill(now, core.window(), None);
        } else if ack.next == core.una && core.flight() > 0 {
            self.on_duplicate(core, now);
        }
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        self.recovering = false;
        core.collapse(now);
        core.fill(now, core.window(), None);
    }
}

impl Reno {
    fn on_duplicate(&mut self, core: &mut Core, now: Time) {
        core.dupacks += 1;
        let threshold = core.config.dupack_threshold;
        if core.dupacks < threshold {
            if core.config.limited_transmit {
                core.limited_transmit(now);
            }
            return;
        }
        if core.dupacks == threshold && core.may_retransmit_fast() {
            enter(core, now);
            self.recovering = true;
        } else {
            inflate(core, self.recovering);
        }
        core.fill(now, core.window(), None);
    }
}

/// A duplicate at or above the threshold that retransmits nothing.
pub(super) fn inflate(core: &mut Core, recovering: bool) {
    let smss = core.smss_f64();
    if !recovering && core.config.inflate_in_recovery_only {
        return;
    }
    if !recovering && core.dupacks == core.config.dupack_threshold {
        core.inflation = f64::from(core.dupacks) * smss;
    } else {
        core.inflation += smss;
    }
}

/// Fast retransmit: halves the window, resends the hole, and inflates the window by the duplicates that left the
/// network. Shared by Reno and NewReno.
pub(super) fn enter(core: &mut Core, now: Time) {
    core.recover = core.max;
    core.sent.fast_retransmits += 1;
    core.stop_timing();
    core.arm(now);
    let half = core.half();
    core.cut_ssthresh();
    core.cwnd = match core.config.halving {
        // RFC 5681, section 3.2, step 3.
        Halving::Flight => core.ssthresh,
        Halving::Window | Halving::WholeWindow => half.max(core.smss_f64()),
    };
    core.transmit(now, core.una);
    core.inflation = f64::from(core.config.dupack_threshold) * core.smss_f64();
}
