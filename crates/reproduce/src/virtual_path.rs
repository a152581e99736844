//! The client machine on virtual time, over a path with a constant round-trip time.

use std::collections::VecDeque;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Arrival, Client, ClientInput, ClientOutput, Config, Sample, State};
use segue_wire::Probe;

/// A client and its path.
pub(crate) struct VirtualPath {
    client: Client,
    rtt: Span,
    /// The instant of the last event.
    pub now: Time,
    /// Answers under way, in order of arrival.
    answers: VecDeque<(Time, Probe)>,
    /// Requests sent.
    pub sent: u32,
    served: u32,
    received: u32,
    /// The sample of the last event, and the number of requests sent before it.
    pub sample: Option<(u32, Sample)>,
}

impl VirtualPath {
    /// A client that is about to send its first request.
    pub(crate) fn new(config: Config, rtt: Span, seed: u64) -> VirtualPath {
        // Not zero: an echoed timestamp of zero would look like a missing one.
        let now = Time(1_000_000_000);
        VirtualPath {
            client: Client::new(config, now, seed),
            rtt,
            now,
            answers: VecDeque::new(),
            sent: 0,
            served: 0,
            received: 0,
            sample: None,
        }
    }

    /// Advances to the next event; returns the state if it changed. `lost` decides whether the request sent at an
    /// instant remains unanswered.
    pub(crate) fn step(&mut self, lost: impl FnOnce(Time) -> bool) -> Option<State> {
        let due = self.client.deadline().map_or(Time(u64::MAX), |(at, _)| at);
        match self.answers.front().copied() {
            Some((at, probe)) if at <= due => {
                self.answers.pop_front();
                self.now = at;
                self.received += 1;
                let arrival = Arrival::new(probe, at, self.received);
                self.client.handle(self.now, ClientInput::Response(arrival));
            }
            _ => {
                self.now = self.now.max(due);
                self.client.tick(self.now);
            }
        }
        let mut lost = Some(lost);
        let mut state = None;
        self.sample = None;
        while let Some(output) = self.client.poll() {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.sent += 1;
                    if lost.take().is_some_and(|lost| !lost(self.now)) {
                        self.answer(request.probe);
                    }
                }
                ClientOutput::State(new) => state = Some(new),
                ClientOutput::Sample(sample) => self.sample = Some((self.sent, sample)),
                ClientOutput::Heard(_) | ClientOutput::Doubt(_) => {}
            }
        }
        state
    }

    fn answer(&mut self, request: Probe) {
        self.served += 1;
        let probe = Probe {
            t_sc: self.now.micros32(),
            sc: self.sent,
            t_ss: (self.now + self.rtt.half()).micros32(),
            ss: self.served,
            r: self.served,
            dt: 0,
            ..request
        };
        self.answers.push_back((self.now + self.rtt, probe));
    }
}
