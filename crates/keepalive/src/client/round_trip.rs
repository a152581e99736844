//! Round-trip loss while no responses arrive.

use segue_clock::{Span, Time};

use super::Client;
use crate::Sample;
use crate::measure::Scale;

impl Client {
    /// Evaluates the round-trip loss of an interval that ended without a response.
    pub(super) fn evaluate_at_sending(&mut self, now: Time) {
        if self.is_told_rtl() {
            return;
        }
        let scale = Scale { taus: &self.config.taus, pace: self.config.pace() };
        let Some(rtl) = self.measure.rtl_at_sending(scale, now) else { return };
        self.unreported = Some(rtl);
        let sample = Sample {
            at: now,
            seq: self.seq,
            rtt: None,
            owl_up: None,
            owl_down: None,
            rtl: Some(rtl),
            uncertainty: Span::ZERO,
        };
        self.give(sample);
    }
}
