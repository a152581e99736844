//! Outages of a trace, as the daemon reports them.

use super::*;

/// Calls one end's path down and up.
#[derive(Default)]
pub(super) struct Judge {
    last: Option<Time>,
    newest: u32,
    pub(super) down: bool,
    run: u32,
    pub(super) outages: u32,
}

impl Judge {
    /// Before a probe is taken: after a long silence both were told of an outage, at some time within it.
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

    /// After it: three bring the path up. From a late one no silence is counted here.
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
