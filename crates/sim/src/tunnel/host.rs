//! The mobile host's end: its machine and its packet path.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Machine, Span, Time};
use segue_tunnel::{Host, HostConfig, HostInput, HostOutput, Report};
use segue_wire::signal::FromHost;

use super::datapath::{Datapath, Outer, Received, Sent, Wrong};
use super::message::{Inner, Message};
use super::{Arrived, MAX_OUTPUTS};

/// How often a daemon looks at the flow table of its packet path (`crates/segue`, host).
pub const SWEEP: Span = Span::from_secs(5);

/// What a host's end wants done by whoever has its links, its connection and its applications.
#[derive(Clone, Debug)]
pub enum HostEffect<P> {
    /// A packet leaves.
    Transmit(Outer, Message<P>),
    /// An inner packet that came over the path in this slot.
    Deliver(Inner<P>, u32),
    /// Set signalling up over any of these interfaces, in this order of preference, at once.
    Connect {
        /// Interfaces by name.
        interfaces: Vec<String>,
    },
    /// Move the signalling connection to another interface.
    MoveSignal {
        /// Its name.
        interface: String,
    },
    /// Send a message to the anchor.
    Signal(FromHost),
    /// The inner addresses are these.
    Addresses {
        /// The host's own.
        inner: Vec<IpAddr>,
        /// The anchor's.
        anchor: Vec<IpAddr>,
    },
    /// Something to tell.
    Report(Report),
}

/// The machine of a host with the model of its packet path. It has no clock, queue, link or connection:
/// whoever drives it calls [`HostEnd::tick`] at its [`HostEnd::deadline`] and does what the effects say.
pub struct HostEnd<P> {
    /// The machine.
    pub machine: Host,
    /// The packet path.
    pub datapath: Datapath<P>,
}

impl<P: Clone> HostEnd<P> {
    /// A host that has seen nothing yet. `seed` is unlike that of any other end.
    #[must_use]
    pub fn new(config: HostConfig, seed: [u8; 32]) -> HostEnd<P> {
        let source = config.source;
        HostEnd { machine: Host::new(config, seed), datapath: Datapath::of_host(source) }
    }

    /// When to call [`HostEnd::tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.machine.deadline().map(|(at, _)| at)
    }

    /// The first order of the machine that could not be obeyed.
    #[must_use]
    pub fn wrong(&self) -> Option<Wrong> {
        self.datapath.wrong()
    }

    /// Gives the machine an input and carries out what it says.
    pub fn handle(&mut self, now: Time, input: HostInput, effects: &mut Vec<HostEffect<P>>) {
        self.machine.handle(now, input);
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.machine.poll() else { return };
            self.carry_out(now, output, effects);
        }
        self.datapath.note(Wrong::Endless);
    }

    /// The deadline has come: what was measured on the paths that are due, then the tick.
    pub fn tick(&mut self, now: Time, effects: &mut Vec<HostEffect<P>>) {
        for slot in self.machine.due(now) {
            self.read(now, slot, effects);
        }
        self.handle(now, HostInput::Tick, effects);
    }

    /// Gives the machine what its packet path knows of a path.
    fn read(&mut self, now: Time, slot: u32, effects: &mut Vec<HostEffect<P>>) {
        if let Some(reading) = self.datapath.reading(now, slot) {
            self.handle(now, HostInput::Reading(slot, reading), effects);
        }
        if let Some(carried) = self.datapath.carried(slot) {
            self.handle(now, HostInput::Carried(slot, carried), effects);
        }
    }

    /// The same where the packet path calls for it.
    fn look(&mut self, now: Time, effects: &mut Vec<HostEffect<P>>) {
        if let Some(slot) = self.datapath.take_call() {
            self.read(now, slot, effects);
        }
    }

    /// Tells the machine which flows were in use when, so that it forgets those that ended. A daemon does it
    /// every [`SWEEP`].
    pub fn sweep(&mut self, now: Time, effects: &mut Vec<HostEffect<P>>) {
        let seen: Vec<_> = self.datapath.seen().collect();
        self.handle(now, HostInput::Flows { seen, last: true }, effects);
    }

    /// Takes a packet of an application on the host.
    pub fn send(&mut self, now: Time, inner: Inner<P>, effects: &mut Vec<HostEffect<P>>) {
        let (key, dscp) = (inner.key, inner.dscp);
        match self.datapath.send(now, inner) {
            Sent::Out(outer, message) => {
                effects.push(HostEffect::Transmit(outer, message));
                self.look(now, effects);
            }
            Sent::Miss(ticket) => self.handle(now, HostInput::Miss { key, dscp, ticket }, effects),
            Sent::Nothing => {}
        }
    }

    /// Takes a packet of the anchor that came from `from` to the host's address `to`.
    pub fn receive(
        &mut self,
        now: Time,
        from: SocketAddr,
        to: SocketAddr,
        message: Message<P>,
        effects: &mut Vec<HostEffect<P>>,
    ) -> Arrived {
        match self.datapath.receive(now, from, to, message) {
            Received::Data(inner, slot) => {
                effects.push(HostEffect::Deliver(inner, slot));
                self.look(now, effects);
                Arrived::Data
            }
            Received::Probe(probe, _) => {
                self.handle(now, HostInput::Probe(probe), effects);
                Arrived::Probe
            }
            Received::Size(slot, token) => {
                self.handle(now, HostInput::Sized(slot, token), effects);
                Arrived::Size
            }
            Received::Quiet(_) => Arrived::Quiet,
            Received::Nothing => Arrived::Refused,
        }
    }

    /// Does one thing that the machine has said.
    pub fn carry_out(&mut self, now: Time, output: HostOutput, effects: &mut Vec<HostEffect<P>>) {
        let datapath = &mut self.datapath;
        match output {
            HostOutput::Connect { interfaces } => effects.push(HostEffect::Connect { interfaces }),
            HostOutput::MoveSignal { interface } => {
                effects.push(HostEffect::MoveSignal { interface });
            }
            HostOutput::Signal(message) => effects.push(HostEffect::Signal(message)),
            HostOutput::Addresses { inner, anchor } => {
                datapath.set_own(&inner);
                effects.push(HostEffect::Addresses { inner, anchor });
            }
            HostOutput::SetPath(slot, setup) => {
                if setup.local.is_none() || setup.remote.is_none() || setup.ifindex == 0 {
                    datapath.note(Wrong::NoEnds(slot));
                }
                datapath.set_path(slot, setup);
            }
            HostOutput::RemovePath(slot) => datapath.remove_path(slot),
            HostOutput::SetOneByOne(slot) => datapath.set_one_by_one(slot),
            HostOutput::SetVia(slot, via) => datapath.set_via(slot, via),
            HostOutput::SetQuiet(slot, quiet) => datapath.set_quiet(slot, quiet),
            // The model measures no loss.
            HostOutput::SetDown(..) => {}
            HostOutput::Reinject(order) => {
                let sent = datapath.reinject(now, order).into_iter();
                effects.extend(sent.map(|(outer, message)| HostEffect::Transmit(outer, message)));
            }
            HostOutput::SendProbe(order) => {
                let sent = datapath.send_probe(now, &order);
                effects.extend(sent.map(|(outer, message)| HostEffect::Transmit(outer, message)));
            }
            HostOutput::TestSize(slot, test) => {
                let sent = datapath.test_size(slot, test).into_iter();
                effects.extend(sent.map(|(outer, message)| HostEffect::Transmit(outer, message)));
            }
            HostOutput::SetMtu(mtu) => datapath.set_mtu(mtu),
            HostOutput::Bind(key, slot) => datapath.bind(now, key, slot),
            HostOutput::Unbind(key) => datapath.unbind(&key),
            HostOutput::Inject(ticket) => {
                for inner in datapath.take_held(ticket) {
                    let sent = self.datapath.send_bound(now, inner);
                    effects
                        .extend(sent.map(|(outer, message)| HostEffect::Transmit(outer, message)));
                }
                self.look(now, effects);
            }
            HostOutput::Discard(ticket) => drop(datapath.take_held(ticket)),
            HostOutput::Report(report) => effects.push(HostEffect::Report(report)),
        }
    }
}
