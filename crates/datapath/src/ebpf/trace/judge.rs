//! Outages of a trace, as the daemon reports them.

use super::*;

/// Declares one end's path down and up.
#[derive(Default)]
pub(super) struct Judge {
    last: Option<Time>,
    newest: u32,
    pub(super) down: bool,
    run: u32,
    pub(super) outages: u32,
}

impl Judge {
    /// Before a probe is taken: reports an outage to both estimators after a long silence, at some time
    /// within it.
    pub(super) fn before(
        &mut self,
        rng: &mut Rng,
        kernel: &mut Kernel,
        reference: &mut Reference,
        arrival: &Arrival,
    ) {
        let (at, late) = (arrival.at, arrival.probe.seq < self.newest);
        self.newest = self.newest.max(arrival.probe.seq);
        let Some(last) = self.last.filter(|_| !late) else { return };
        let (silence, shortest) = (at.since(last), Span::from_millis(T_KA_MS * 7 / 2));
        if self.down || silence <= shortest {
            return;
        }
        let told = kernel.set_down(Some(shortest + Span(rng.below(silence.0 - shortest.0))));
        reference.declare(kernel.client, last + told);
        (self.down, self.run) = (true, 0);
        self.outages += 1;
    }

    /// After a probe: three in a row bring the path up. No silence is measured from a late probe.
    pub(super) fn after(
        &mut self,
        kernel: &mut Kernel,
        reference: &mut Reference,
        at: Time,
        late: bool,
    ) {
        self.last = (!late).then_some(at);
        self.run += 1;
        if self.down && self.run == 3 && !late {
            self.down = false;
            kernel.set_down(None);
            reference.up.over();
            reference.down.over();
        }
        self.run -= u32::from(late);
    }
}

/// An end that declares the path down after (K + ½)·T_KA without a probe, and up after three in a row.
#[derive(Default)]
pub(super) struct Verdict {
    last_us: u64,
    newest: u32,
    run: u32,
    down: bool,
    pub(super) downs: u32,
}

impl Verdict {
    /// True if a probe has come in time.
    pub(super) fn hears(&mut self, kernel: &mut Kernel, k: u64, now_us: u64) -> bool {
        let time_out_us = T_KA_MS * 1_000 * (2 * k + 1) / 2;
        let silent = self.last_us > 0 && now_us - self.last_us > time_out_us;
        if silent && !self.down {
            kernel.set_down(Some(Span::from_micros(time_out_us)));
            (self.down, self.run) = (true, 0);
            self.downs += 1;
        }
        !silent
    }

    pub(super) fn heard(&mut self, kernel: &mut Kernel, seq: u32, now_us: u64) {
        self.run = if seq == self.newest + 1 { self.run + 1 } else { 1 };
        (self.newest, self.last_us) = (seq, now_us);
        if self.down && self.run >= 3 {
            kernel.set_down(None);
            self.down = false;
        }
    }
}
