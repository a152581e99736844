//! How a server processes readings of a datapath that measures.

use segue_clock::Time;
use segue_wire::Mode;

use super::{LastRequest, Server};
use crate::config::{MeasuredBy, stated_ms};
use crate::counts::grown;
use crate::{Reading, Sample, ServerOutput};

/// Counts of the last reading, and their values at the last change of state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastCounts {
    sent: u32,
    received: u32,
    marked: u32,
}

impl LastCounts {
    /// Starts a new count of consecutive requests.
    pub(super) fn mark(&mut self) {
        self.marked = self.received;
    }
}

impl Server {
    pub(super) fn on_reading(&mut self, now: Time, mut reading: Reading) {
        if self.config.measured_by == MeasuredBy::Machine {
            return;
        }
        if self.config.mode == Mode::Client {
            if reading.received > 0 {
                self.on_sign_of_any(reading.k, reading.t_ka.map_or(0, stated_ms));
            }
            return;
        }
        let sent = grown(&mut self.taken.sent, reading.sent);
        let received = grown(&mut self.taken.received, reading.received);
        let estimates = core::mem::take(&mut reading.estimates);
        self.measure.take_over(estimates, sent, received);
        let Some(at) = reading.last_received.filter(|_| received > 0) else { return };
        let at = at.min(now);
        let first = self.last.is_none();
        self.alive = self.alive.max(at);
        self.adopt(reading.k, reading.t_ka.map_or(0, stated_ms));
        let last = self.last.map_or((0, 0, 0), |last| (last.seq, last.t_sc, last.sc));
        if self.last.is_none_or(|last| at > last.at) {
            self.last = Some(LastRequest { at, seq: last.0, t_sc: last.1, sc: last.2 });
            // A reading leaves no requests in a queue.
            self.expect_next(at, at);
        }
        let since = self.taken.received.wrapping_sub(self.taken.marked);
        self.on_sign_of_life(reading.run.min(u8::try_from(since).unwrap_or(u8::MAX)), first);
        self.sample_reading(at, reading.received);
    }

    fn sample_reading(&mut self, at: Time, received: u32) {
        let sample = Sample {
            at,
            seq: received,
            rtt: self.measure.estimates.rtt_last,
            owl_up: None,
            owl_down: None,
            rtl: None,
            uncertainty: self.measure.estimates.uncertainty,
        };
        if self.gives_samples && !sample.is_empty() {
            self.outputs.push_back(ServerOutput::Sample(sample));
        }
    }
}
