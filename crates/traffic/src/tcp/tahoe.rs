//! Tahoe: any detected loss starts slow start from the first hole.

use segue_clock::Time;

use super::recovery::{Ack, Core, Recovery};

/// Slow start, congestion avoidance and fast retransmit (Jacobson 1988).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tahoe;

impl Recovery for Tahoe {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next > core.una {
            let acked = ack.next - core.una;
            core.advance(now, ack, true);
            core.open(acked);
        } else if ack.next == core.una && core.flight() > 0 {
            self.on_duplicate(core, now);
        }
        core.fill(now, core.window(), None);
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        core.collapse(now);
        core.fill(now, core.window(), None);
    }
}

impl Tahoe {
    fn on_duplicate(self, core: &mut Core, now: Time) {
        core.dupacks += 1;
        let threshold = core.config.dupack_threshold;
        if core.dupacks == threshold && core.may_retransmit_fast() {
            core.recover = core.max;
            core.sent.fast_retransmits += 1;
            core.cut_ssthresh();
            core.cwnd = core.smss_f64();
            core.step_back(now);
        } else if core.dupacks < threshold && core.config.limited_transmit {
            core.limited_transmit(now);
        }
    }
}
