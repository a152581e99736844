//! Vegas (Brakmo and Peterson 1995): once per round trip, the difference between the rate expected with an empty
//! queue and the actual rate shows how many of its segments are queued. Vegas keeps this number between α and β.
//! A fine-grained timer, checked on duplicates, detects losses early.

use alloc::collections::VecDeque;

use segue_clock::{Span, Time};

use super::recovery::{Ack, Core, Recovery, Transmit};

/// Congestion avoidance by delay.
#[derive(Clone, Debug)]
pub(super) struct Vegas {
    /// Last transmission of each outstanding segment: first unit, time, number of transmissions.
    log: VecDeque<(u64, Time, u32)>,
    /// Minimum RTT.
    base: Option<Span>,
    /// Sum and number of the RTT samples in this period.
    sum: Span,
    samples: u64,
    /// The period ends when this unit is acknowledged.
    mark: u64,
    mark_at: Time,
    /// Window increase per acknowledgement, in segments.
    step: f64,
    /// Slow start doubles the window only every other round trip, and measures in between.
    growing: bool,
    /// Fine-grained RTT, its deviation, and the resulting timeout, in nanoseconds.
    srtt: f64,
    deviation: f64,
    timeout: f64,
    /// Number of acknowledgements on which the fine timer is still checked.
    worried: u32,
    /// Time of the last window reduction.
    cut_at: Time,
    /// The window without the inflation by duplicates, while it is inflated.
    deflated: Option<f64>,
    /// The last reduction was a timeout: until the data outstanding at that time are acknowledged, duplicates
    /// answer retransmissions.
    collapsed: bool,
}

impl Default for Vegas {
    fn default() -> Vegas {
        Vegas {
            log: VecDeque::new(),
            base: None,
            sum: Span::ZERO,
            samples: 0,
            mark: 0,
            mark_at: Time::ZERO,
            step: 1.0,
            growing: true,
            srtt: 0.0,
            deviation: 0.0,
            timeout: f64::MAX,
            worried: 0,
            cut_at: Time::ZERO,
            deflated: None,
            collapsed: false,
        }
    }
}

impl Recovery for Vegas {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next > core.una {
            self.on_new(core, now, ack);
        } else if ack.next == core.una && core.flight() > 0 {
            self.on_duplicate(core, now);
        }
        if core.dupacks == 0 || core.dupacks >= core.config.dupack_threshold {
            core.fill(now, core.window(), None);
        }
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        core.collapse(now);
        core.cwnd = 2.0 * core.smss_f64();
        self.worried = 0;
        self.cut_at = now;
        self.deflated = None;
        self.collapsed = true;
        core.fill(now, core.window(), None);
    }

    fn on_sent(&mut self, _core: &mut Core, now: Time, segment: Transmit) {
        match self.log.binary_search_by_key(&segment.start, |entry| entry.0) {
            Ok(place) => {
                self.log[place].1 = now;
                self.log[place].2 += 1;
            }
            Err(place) => self.log.insert(place, (segment.start, now, 1)),
        }
    }
}

impl Vegas {
    fn on_new(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if let Some(window) = self.deflated.take() {
            core.cwnd = core.cwnd.min(window);
            core.ssthresh = 2.0 * core.smss_f64();
        }
        core.advance(now, ack, true);
        if ack.next > self.mark {
            self.end_period(core, now);
        }
        core.cwnd += self.step * core.smss_f64();
        self.measure(core, now);
        if self.worried > 0 {
            self.worried -= 1;
            if self.expired(now) {
                core.dupacks = core.config.dupack_threshold;
                core.transmit(now, core.una);
            } else if core.config.vegas_of_ns2 {
                self.worried = 0;
            }
        }
    }

    /// Compares the data sent in the last round trip with the amount that an empty queue would have let through
    /// (section 3.2 of the paper).
    fn end_period(&mut self, core: &mut Core, now: Time) {
        let (alpha, beta, gamma) = core.config.vegas;
        let smss = core.smss_f64();
        let mean = self.sum.0.checked_div(self.samples).map(Span);
        let rtt = mean.unwrap_or(now.since(self.mark_at));
        (self.sum, self.samples) = (Span::ZERO, 0);
        let through = (core.next - self.mark) as f64 / smss;
        if rtt > Span::ZERO {
            let afresh = core.config.vegas_of_ns2 && through <= 1.0;
            if afresh || self.base.is_none_or(|base| rtt < base) {
                self.base = Some(rtt);
            }
            let base = self.base.unwrap_or(rtt).as_secs_f64();
            let expected = (core.next - core.una + core.smss) as f64 / smss / base;
            let actual = through / rtt.as_secs_f64();
            let queued = ((expected - actual) * base + 0.5).max(0.0) as u32;
            if core.cwnd < core.ssthresh {
                self.growing = !self.growing;
                if queued > gamma {
                    core.ssthresh = 2.0 * smss;
                    core.cwnd = (core.cwnd * 7.0 / 8.0).max(2.0 * smss);
                    self.step = 0.0;
                } else {
                    self.step = if self.growing { 1.0 } else { 0.0 };
                }
            } else if queued > beta {
                core.cwnd = (core.cwnd - smss).max(2.0 * smss);
                self.step = 0.0;
            } else {
                self.step = if queued < alpha { smss / core.cwnd } else { 0.0 };
            }
        }
        (self.mark, self.mark_at) = (core.next, now);
    }

    /// Fine-grained RTT of the newest acknowledged segment, if it was sent only once.
    fn measure(&mut self, core: &Core, now: Time) {
        let mut newest = None;
        while let Some(entry) = self.log.front().filter(|entry| entry.0 < core.una) {
            newest = Some(*entry);
            self.log.pop_front();
        }
        let Some((_, sent, 1)) = newest else { return };
        let rtt = now.since(sent);
        self.sum = self.sum + rtt;
        self.samples += 1;
        if self.base.is_none_or(|base| rtt < base) {
            self.base = Some(rtt);
        }
        let rtt = rtt.0 as f64;
        if self.srtt > 0.0 {
            let error = rtt - self.srtt;
            self.srtt += error / 8.0;
            self.deviation += (error.abs() - self.deviation) / 4.0;
        } else {
            self.srtt = rtt;
            self.deviation = rtt / 2.0;
        }
        self.timeout = self.srtt + 4.0 * self.deviation;
        if core.config.vegas_of_ns2 {
            // Prevents the packet after a lost one from being considered late.
            self.timeout *= 17.0 / 16.0;
        }
    }

    fn expired(&self, now: Time) -> bool {
        self.log.front().is_some_and(|entry| now.since(entry.1).0 as f64 > self.timeout)
    }

    fn on_duplicate(&mut self, core: &mut Core, now: Time) {
        core.dupacks += 1;
        let threshold = core.config.dupack_threshold;
        let expired = core.dupacks <= threshold && self.expired(now);
        if (expired || core.dupacks == threshold) && self.may_retransmit(core) {
            self.retransmit(core, now);
        } else if core.dupacks > threshold {
            core.cwnd += core.smss_f64();
        }
    }

    fn may_retransmit(&self, core: &Core) -> bool {
        !core.config.careful || !self.collapsed || core.una > core.recover
    }

    fn retransmit(&mut self, core: &mut Core, now: Time) {
        let smss = core.smss_f64();
        core.recover = core.max;
        self.collapsed = false;
        core.sent.fast_retransmits += 1;
        self.worried = 2.min((core.next - core.una) / core.smss) as u32;
        let (sent, times) = self.log.front().map_or((now, 1), |entry| (entry.1, entry.2));
        if self.cut_at < sent || self.cut_at == Time::ZERO {
            let window = core.window() / core.smss;
            let cut = match window {
                0..=3 => 2,
                _ if times > 1 && core.config.vegas_of_ns2 => window / 2,
                _ => window - window / 4,
            };
            let cut = cut as f64 * smss;
            self.deflated = Some(cut);
            core.cwnd = cut + f64::from(core.dupacks) * smss;
            self.cut_at = now;
        }
        core.stop_timing();
        if core.config.vegas_of_ns2 {
            self.timeout *= if times > 1 { 2.0 } else { 1.125 };
            core.rtt.back_off();
        }
        core.arm(now);
        core.transmit(now, core.una);
        core.dupacks = core.dupacks.max(core.config.dupack_threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::sender::{Input, Sender};
    use crate::tcp::{Config, Variant};
    use segue_clock::Machine;

    #[test]
    fn a_fast_retransmit_doubles_the_timeout_in_ns_2_alone() {
        for (config, expected) in [
            (Config::modern(Variant::Vegas), Span::from_millis(200)),
            (Config::ns2_35(Variant::Vegas), Span::from_millis(400)),
        ] {
            let mut sender = Sender::new(Config { initial_window: 10, ..config });
            let unit = sender.core().smss;
            sender.handle(Time(0), Input::Start);
            sender.handle(Time(0), Input::Offer(100 * unit));
            while sender.poll().is_some() {}
            let mut now = Time(0);
            for next in [1; 4] {
                now += Span::from_millis(20);
                sender.handle(now, Input::Ack(Ack { next: next * unit, ..Ack::default() }));
            }
            assert_eq!(sender.core().sent.fast_retransmits, 1);
            assert_eq!(sender.core().rto_at, Some(now + expected));
        }
    }

    #[test]
    fn the_fine_grained_timeout_is_the_papers_and_a_sixteenth_more_in_ns_2() {
        for (config, more) in
            [(Config::modern(Variant::Vegas), 1.0), (Config::ns2_35(Variant::Vegas), 17.0 / 16.0)]
        {
            let mut core = Sender::new(config).core().clone();
            core.una = core.smss;
            let mut vegas = Vegas { log: [(0, Time(0), 1)].into(), ..Vegas::default() };
            vegas.measure(&core, Time(80_000_000));
            // The first sample: mean 80 ms, deviation half of the mean, timeout 80 + 4 · 40.
            assert_eq!(vegas.timeout, 240e6 * more);
        }
    }
}
