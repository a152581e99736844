//! Measures the path between an anchor and a gateway: the keepalive of papers 1 and 2, whose probes travel in
//! heartbeats (RFC 5847) as a vendor-specific option. The anchor sends requests and measures; the gateway answers and
//! counts.
//!
//! A gateway that answers heartbeats without the option is measured too: round-trip times with the same precision, but
//! only the total loss of both directions.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use segue_clock::{Machine, Time};
use segue_keepalive::seq::{Order, SeqWindow};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Estimates, PathLosses, State,
};
use segue_wire::Probe;
use segue_wire::mobility::MobilityOption;
use segue_wire::mobility::option::VendorSpecific;

use crate::{PROBE, VENDOR};

/// Number of requests remembered, so that their responses count: 25 s at twelve a second.
const REMEMBERED: usize = 300;

/// The vendor-specific option that carries a probe.
pub(crate) fn option(probe: &Probe) -> MobilityOption {
    let (vendor_id, sub_type, data) = (VENDOR, PROBE, Vec::from(probe.emit()));
    MobilityOption::VendorSpecific(VendorSpecific { vendor_id, sub_type, data })
}

/// The requesting end, at an anchor.
#[derive(Clone, Debug)]
pub(crate) struct Keepalive {
    client: Client,
    /// Added to a probe's number to get the heartbeat's sequence number.
    base: u32,
    sent: u32,
    received: u32,
    requests: VecDeque<Sent>,
    losses: Box<PathLosses>,
}

/// The result of a response or a tick.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Requests to send: the heartbeat's sequence number and the probe.
    pub(crate) requests: Vec<(u32, Probe)>,
    /// The state, if it has changed.
    pub(crate) changed: Option<State>,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    seq: u32,
    at: Time,
    answered: bool,
}

impl Keepalive {
    /// The first request is due at once. Sequence numbers start at a random value, so that an off-path attacker cannot
    /// guess them.
    pub(crate) fn new(config: Config, now: Time, seed: u64) -> Keepalive {
        let client = Client::new(config, now, seed);
        Keepalive {
            losses: Box::new(PathLosses::new(now, &client)),
            client,
            base: (seed >> 32) as u32,
            sent: 0,
            received: 0,
            requests: VecDeque::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.client.deadline().map(|(at, _)| at)
    }

    pub(crate) fn state(&self) -> State {
        self.client.state()
    }

    pub(crate) fn estimates(&self) -> &Estimates {
        self.client.estimates()
    }

    /// The loss tests of both directions.
    pub(crate) fn losses(&self) -> &PathLosses {
        &self.losses
    }

    pub(crate) fn tick(&mut self, now: Time) -> Outcome {
        let was_up = self.state() == State::Up;
        self.client.tick(now);
        self.outcome(now, was_up)
    }

    /// Handles the response to the heartbeat with this number, and its probe if it has one. `None` if no such request
    /// is remembered.
    pub(crate) fn on_response(
        &mut self,
        now: Time,
        number: u32,
        said: Option<Probe>,
    ) -> Option<Outcome> {
        let seq = number.wrapping_sub(self.base);
        let sent = self.requests.iter_mut().find(|sent| sent.seq == seq)?;
        let said = said.filter(|probe| probe.seq == seq);
        if !core::mem::replace(&mut sent.answered, true) {
            self.received = self.received.wrapping_add(1);
        }
        let sent = *sent;
        // The peer sends no counts: assume that it received and answered everything, so all loss falls on the way back.
        let unsaid = || Probe {
            seq,
            t_sc: sent.at.micros32(),
            sc: seq,
            ss: seq,
            r: seq,
            ..Probe::default()
        };
        let probe = said.unwrap_or_else(unsaid);
        let arrival = Arrival { sent_at: Some(sent.at), ..Arrival::new(probe, now, self.received) };
        let was_up = self.state() == State::Up;
        self.client.handle(now, ClientInput::Response(arrival));
        Some(self.outcome(now, was_up))
    }

    fn outcome(&mut self, now: Time, was_up: bool) -> Outcome {
        let up = was_up && self.state() == State::Up;
        self.losses.observe(now, &self.client, up);
        let mut outcome = Outcome::default();
        while let Some(output) = self.client.poll() {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.sent = self.sent.wrapping_add(1);
                    let t_sc = now.micros32();
                    let dt = match request.probe.t_ss {
                        0 => 0,
                        _ => t_sc.wrapping_sub(request.held_since),
                    };
                    let probe = Probe { t_sc, dt, sc: self.sent, ..request.probe };
                    if self.requests.len() == REMEMBERED {
                        self.requests.pop_front();
                    }
                    self.requests.push_back(Sent { seq: probe.seq, at: now, answered: false });
                    outcome.requests.push((self.base.wrapping_add(probe.seq), probe));
                }
                ClientOutput::State(state) => outcome.changed = Some(state),
                ClientOutput::Heard(_) | ClientOutput::Doubt(_) | ClientOutput::Sample(_) => {}
            }
        }
        outcome
    }
}

/// The answering end, at a gateway; one for each anchor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    window: SeqWindow,
    received: u32,
    sent: u32,
}

impl Answers {
    /// The probe to answer with.
    pub(crate) fn answer(&mut self, now: Time, probe: Probe) -> Probe {
        let order = self.window.observe(probe.seq, Some(probe.t_sc));
        // A duplicate counts once: nothing was lost. After a restart, an anchor continues from these counts.
        if !matches!(order, Order::Duplicate | Order::Stale) {
            self.received = self.received.wrapping_add(1);
            self.sent = self.sent.wrapping_add(1);
        }
        let t_ss = now.micros32();
        Probe { t_ss, dt: 0, ss: self.sent, r: self.received, heard: 1, ..probe }
    }
}
