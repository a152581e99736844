//! How a client processes readings of a datapath that rides or measures.

use segue_clock::{Span, Time};
use segue_wire::Mode;

use super::Client;
use crate::config::MeasuredBy;
use crate::counts::grown;
use crate::measure::Scale;
use crate::{Counted, Estimates, Reading, Sample};

impl Client {
    pub(super) fn on_reading(&mut self, now: Time, mut reading: Reading) {
        let carried = self.carried.take().is_some();
        self.take(now, &mut reading);
        self.carry(now, &reading);
        if carried && !self.is_carried() {
            self.wake(now, reading.watched);
        }
    }

    fn take(&mut self, now: Time, reading: &mut Reading) {
        self.on_traffic(reading.at, reading.traffic);
        let rode = reading.rode.wrapping_sub(self.taken.rode);
        self.taken.rode = reading.rode;
        if let Some(last_sent) = reading.last_sent {
            self.schedule.on_sent(now, last_sent, rode != 0);
        }
        if self.config.measured_by == MeasuredBy::Machine {
            self.measure.estimates.sent += u64::from(rode);
            self.seq = self.seq.wrapping_add(rode);
            return;
        }
        let sent = grown(&mut self.taken.sent, reading.sent);
        let received = grown(&mut self.taken.received, reading.received);
        self.seq = reading.sent;
        self.bursts.on_counts(sent, received, self.longest_burst(), self.config.t_ka);
        let rtl = core::mem::take(&mut self.measure.estimates.rtl);
        let estimates = core::mem::take(&mut reading.estimates);
        self.measure.take_over(estimates, sent, received);
        if !self.is_told_rtl() {
            self.measure.estimates.rtl = rtl;
        }
        let heard = reading.last_heard.max(reading.last_received);
        if let Some(at) = heard.filter(|at| *at > self.last_heard) {
            self.on_heard(now, at);
        }
        let Some(at) = reading.last_received.filter(|_| received > 0) else { return };
        self.settle(reading);
        self.on_alive(at.min(now));
        let since = self.taken.received.wrapping_sub(self.taken.marked);
        self.on_answer(now, reading.run.min(u8::try_from(since).unwrap_or(u8::MAX)));
        self.sample_reading(at.min(now), reading);
    }

    /// Whether the datapath evaluates the round-trip loss and reports it. Otherwise the client does.
    pub(super) fn is_told_rtl(&self) -> bool {
        let reports = matches!(self.config.mode, Mode::Reports | Mode::RoundTripLoss);
        reports && self.config.measured_by == MeasuredBy::PacketPath
    }

    /// Requests that left within the last round trip may still be answered.
    fn settle(&mut self, reading: &Reading) {
        let Estimates { sent, received, rtt_last, .. } = self.measure.estimates;
        let age = reading.last_sent.map_or(Span::ZERO, |at| reading.at.since(at));
        let rtt = rtt_last.unwrap_or(Span::ZERO);
        let under_way = match rtt.0.checked_sub(age.0) {
            Some(rest) if rest > 0 => 1 + rest / self.config.t_ka.0.max(1),
            _ => 0,
        };
        self.round_trips = Counted { sent: sent.saturating_sub(under_way), received };
    }

    fn sample_reading(&mut self, at: Time, reading: &Reading) {
        let scale = Scale { taus: &self.config.taus, pace: self.config.pace() };
        let sample = Sample {
            at,
            seq: reading.received,
            rtt: self.measure.estimates.rtt_last,
            owl_up: None,
            owl_down: None,
            rtl: if self.is_told_rtl() { None } else { self.measure.rtl(scale, at) },
            uncertainty: self.measure.estimates.uncertainty,
        };
        if !sample.is_empty() {
            self.give(sample);
        }
    }
}
