//! Applications that send packets at a fixed pace in both directions and look at what arrives.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_wire::FlowKey;

/// A pair of streams, up and down, of one flow.
pub(crate) struct App {
    pub host: usize,
    /// As packets of the host carry it.
    pub key: FlowKey,
    pub dscp: u8,
    pub interval: Span,
    pub running: bool,
    pub round: u32,
    pub up: Stream,
    pub down: Stream,
}

/// What one direction has seen since the last [`Stream::reset`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub silent: bool,
    pub sent: u64,
    pub received: u64,
    /// Largest distance between two arrivals.
    pub worst: Span,
    pub last_arrival: Option<Time>,
    /// Packets by the name of the path they came over.
    pub over: BTreeMap<String, u64>,
}

impl Stream {
    pub(crate) fn reset(&mut self) {
        let (silent, last_arrival) = (self.silent, self.last_arrival);
        *self = Stream { silent, last_arrival, ..Stream::default() };
    }

    pub(crate) fn arrived(&mut self, now: Time, path: &str, counts: bool) {
        if let Some(last) = self.last_arrival.replace(now) {
            self.worst = self.worst.max(now.since(last));
        }
        if counts {
            self.received += 1;
            *self.over.entry(path.into()).or_default() += 1;
        }
    }

    /// The gap as a listener notes it: what the largest distance is longer than the pace.
    pub(crate) fn gap(&self, interval: Span) -> Span {
        Span(self.worst.0.saturating_sub(interval.0))
    }

    pub(crate) fn count_over(&self, path: &str) -> u64 {
        self.over.get(path).copied().unwrap_or(0)
    }

    /// Packets that came over any other path.
    pub(crate) fn count_not_over(&self, path: &str) -> u64 {
        self.received - self.count_over(path)
    }
}
