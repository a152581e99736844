//! How well the way between an anchor and a gateway does: the keepalive of papers 1 and 2, whose probes are heartbeats
//! (RFC 5847) with an option of our own. The anchor asks and measures; the gateway answers and counts.
//!
//! A gateway that answers heartbeats without the option is measured too: round trips as exactly, losses of both ways together.

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

/// Requests whose answers count: those of 25 s at twelve in a second.
const REMEMBERED: usize = 300;

/// The option that carries a probe.
pub(crate) fn option(probe: &Probe) -> MobilityOption {
    let (vendor_id, sub_type, data) = (VENDOR, PROBE, Vec::from(probe.emit()));
    MobilityOption::VendorSpecific(VendorSpecific { vendor_id, sub_type, data })
}

/// The asking end, at an anchor.
#[derive(Clone, Debug)]
pub(crate) struct Keepalive {
    client: Client,
    /// The number of a heartbeat is that of its probe and this.
    base: u32,
    sent: u32,
    received: u32,
    requests: VecDeque<Sent>,
    losses: Box<PathLosses>,
}

/// What follows from an answer, or from time.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Requests to send, by the numbers of their heartbeats.
    pub(crate) requests: Vec<(u32, Probe)>,
    /// The state, if it has changed.
    pub(crate) changed: Option<State>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Sent {
    seq: u32,
    at: Time,
    answered: bool,
}

impl Keepalive {
    /// Asks at once. Heartbeats are numbered from anywhere, so that nobody else answers them.
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

    /// The tests of loss.
    pub(crate) fn losses(&self) -> &PathLosses {
        &self.losses
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Time) -> Outcome {
        let was_up = self.state() == State::Up;
        self.client.tick(now);
        self.outcome(now, was_up)
    }

    /// The response to the heartbeat with this number, and its probe if it has one. `None`: nobody asked.
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
        // Without counts of the other end all that was not answered is lost on the way back.
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

/// The answering end, at a gateway, of one anchor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    window: SeqWindow,
    received: u32,
    sent: u32,
}

impl Answers {
    /// The answer to a probe.
    pub(crate) fn answer(&mut self, now: Time, probe: Probe) -> Probe {
        let order = self.window.observe(probe.seq, Some(probe.t_sc));
        // Counted once, as nothing is lost that came twice. An anchor that has started anew goes on from these counts.
        if !matches!(order, Order::Duplicate | Order::Stale) {
            self.received = self.received.wrapping_add(1);
            self.sent = self.sent.wrapping_add(1);
        }
        let t_ss = now.micros32();
        Probe { t_ss, dt: 0, ss: self.sent, r: self.received, heard: 1, ..probe }
    }
}
