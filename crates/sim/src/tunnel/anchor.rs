//! The anchor's end: its machine and its packet path.

use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Machine, Time};
use segue_keepalive::Source;
use segue_tunnel::{Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, Known, Report};
use segue_wire::signal::FromAnchor;

use super::datapath::{Datapath, Outer, Received, Sent, Wrong};
use super::message::{Body, Inner, Message};
use super::{Arrived, MAX_OUTPUTS};

/// What an anchor's end wants done by whoever has its links, its connections, its disk and the networks
/// behind it.
#[derive(Clone, Debug)]
pub enum AnchorEffect<P> {
    /// A packet leaves.
    Transmit(Outer, Message<P>),
    /// An inner packet that came over the path in this slot.
    Deliver(Inner<P>, u32),
    /// Send a message.
    Signal(ConnId, FromAnchor),
    /// End a connection after what was sent.
    Close(ConnId),
    /// Write this down before anything said after it is sent.
    Persist(Known),
    /// Something to tell.
    Report(Report),
}

/// The machine of an anchor with the model of its packet path, driven as [`super::HostEnd`].
pub struct AnchorEnd<P> {
    /// The machine.
    pub machine: Anchor,
    /// The packet path.
    pub datapath: Datapath<P>,
    /// The datapath measures by itself.
    reads: bool,
}

impl<P: Clone> AnchorEnd<P> {
    /// An anchor that knows what `config.known` says. `seed` is unlike that of any other end and start.
    #[must_use]
    pub fn new(config: AnchorConfig, seed: [u8; 32]) -> AnchorEnd<P> {
        let source = config.source;
        AnchorEnd {
            machine: Anchor::new(config, seed),
            datapath: Datapath::of_anchor(source),
            reads: source == Source::Readings,
        }
    }

    /// When to call [`AnchorEnd::tick`].
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
    pub fn handle(&mut self, now: Time, input: AnchorInput, effects: &mut Vec<AnchorEffect<P>>) {
        self.machine.handle(now, input);
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.machine.poll() else { return };
            self.carry_out(now, output, effects);
        }
        self.datapath.note(Wrong::Endless);
    }

    /// The deadline has come: what was measured on the paths that are due, then the tick.
    pub fn tick(&mut self, now: Time, effects: &mut Vec<AnchorEffect<P>>) {
        if self.reads {
            for slot in self.machine.due(now) {
                if let Some(reading) = self.datapath.reading(now, slot) {
                    self.handle(now, AnchorInput::Reading(slot, reading), effects);
                }
            }
        }
        self.handle(now, AnchorInput::Tick, effects);
    }

    /// Takes a packet for a host.
    pub fn send(&mut self, now: Time, inner: Inner<P>, effects: &mut Vec<AnchorEffect<P>>) {
        let key = inner.key;
        match self.datapath.send(now, inner) {
            Sent::Out(outer, message) => effects.push(AnchorEffect::Transmit(outer, message)),
            Sent::Miss(ticket) => self.handle(now, AnchorInput::Miss { key, ticket }, effects),
            Sent::Nothing => {}
        }
    }

    /// Takes a packet of a host that came from `from` to the anchor's address `to`. The answer to a request
    /// leaves first.
    pub fn receive(
        &mut self,
        now: Time,
        from: SocketAddr,
        to: SocketAddr,
        message: Message<P>,
        effects: &mut Vec<AnchorEffect<P>>,
    ) -> Arrived {
        let is_size = matches!(message.body, Body::Size { .. });
        let (arrived, probe, answer) = match self.datapath.receive(now, from, to, message) {
            Received::Data(inner, slot) => {
                effects.push(AnchorEffect::Deliver(inner, slot));
                return Arrived::Data;
            }
            Received::Probe(probe, answer) => (Arrived::Probe, Some(probe), answer),
            Received::Quiet(answer) if is_size => (Arrived::Size, None, answer),
            Received::Quiet(answer) => (Arrived::Quiet, None, answer),
            Received::Size(..) | Received::Nothing => return Arrived::Refused,
        };
        effects.extend(answer.map(|(outer, message)| AnchorEffect::Transmit(outer, message)));
        if let Some(probe) = probe {
            self.handle(now, AnchorInput::Probe(probe), effects);
        }
        arrived
    }

    /// Does one thing that the machine has said.
    pub fn carry_out(
        &mut self,
        now: Time,
        output: AnchorOutput,
        effects: &mut Vec<AnchorEffect<P>>,
    ) {
        let datapath = &mut self.datapath;
        match output {
            AnchorOutput::Signal(conn, message) => {
                effects.push(AnchorEffect::Signal(conn, message));
            }
            AnchorOutput::Close(conn) => effects.push(AnchorEffect::Close(conn)),
            AnchorOutput::SetPath(slot, setup) => datapath.set_path(slot, setup),
            AnchorOutput::RemovePath(slot) => datapath.remove_path(slot),
            AnchorOutput::SetMtu(address, mtu) => datapath.set_mtu_to(address, mtu),
            AnchorOutput::SetOneByOne(slot) => datapath.set_one_by_one(slot),
            AnchorOutput::SetVia(slot, via) => datapath.set_via(slot, via),
            AnchorOutput::SetQuiet(slot, quiet) => datapath.set_quiet(slot, quiet),
            // The model measures no loss.
            AnchorOutput::SetDown(..) | AnchorOutput::SetDeaf(..) => {}
            AnchorOutput::SetHeard(slots, word) => datapath.set_heard(&slots, word),
            AnchorOutput::SetInner(address, owner) => datapath.set_inner(address, owner),
            AnchorOutput::RemoveInner(address) => datapath.remove_inner(address),
            AnchorOutput::Reinject(order) => {
                let sent = datapath.reinject(now, order).into_iter();
                effects.extend(sent.map(|(outer, message)| AnchorEffect::Transmit(outer, message)));
            }
            AnchorOutput::SendProbe(order) => {
                let sent = datapath.send_probe(now, &order);
                effects.extend(sent.map(|(outer, message)| AnchorEffect::Transmit(outer, message)));
            }
            AnchorOutput::Bind(key, slot) => datapath.bind(now, key, slot),
            AnchorOutput::Inject(ticket) => {
                for inner in datapath.take_held(ticket) {
                    let sent = self.datapath.send_bound(now, inner);
                    effects.extend(
                        sent.map(|(outer, message)| AnchorEffect::Transmit(outer, message)),
                    );
                }
            }
            AnchorOutput::Discard(ticket) => drop(datapath.take_held(ticket)),
            AnchorOutput::Persist(known) => effects.push(AnchorEffect::Persist(known)),
            AnchorOutput::Report(report) => effects.push(AnchorEffect::Report(report)),
        }
    }
}
