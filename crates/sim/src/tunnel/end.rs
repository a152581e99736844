//! A tunnel end of either side on virtual time: the daemons' code over a model of the packet path.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::convert::Infallible;
use core::net::SocketAddr;
use core::ops::{Deref, DerefMut};

use segue_clock::{Span, Time};
use segue_ip::{Input, Output};
use segue_tunnel::datapath::{DatapathEvent, Order, Role};
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorOutput, End, Failure, Host, HostConfig, HostOutput, Known, Report,
    Side, Turn,
};

use super::Arrived;
use super::bytes;
use super::message::{Body, Inner, Message, Outer};
use super::model::{Model, Received, Sent, Unbound, Wrong};
use crate::packet::{Packet, Raw};

/// Interval at which a daemon sweeps the flow table of its packet path (`crates/daemon`, host).
pub const SWEEP: Span = Span::from_secs(5);

/// A request of an end to its driver, which provides links, connections, storage and networks.
#[derive(Clone, Debug)]
pub enum Effect<P, O, S> {
    /// Send a packet.
    Transmit(Outer, Message<P>),
    /// Deliver an inner packet that arrived over the path in this slot.
    Deliver(Inner<P>, u32),
    /// A request of the machine to its driver.
    Ask(Output<O, Report, S>),
}

/// Effect of a host's end.
pub type HostEffect<P> = Effect<P, HostOutput, Infallible>;
/// Effect of an anchor's end.
pub type AnchorEffect<P> = Effect<P, AnchorOutput, Known>;
/// The list to which an end of this side adds its effects.
pub(super) type Effects<P, M> = Vec<Effect<P, <M as Side>::Wish, <M as Side>::Record>>;
/// A host's end.
pub type HostEnd<P> = SimEnd<Host, P>;
/// An anchor's end.
pub type AnchorEnd<P> = SimEnd<Anchor, P>;

/// An [`End`] over the [`Model`]. It has no clock, queue, link or connection: its driver calls [`SimEnd::tick`]
/// at [`SimEnd::deadline`] and carries out the effects.
pub struct SimEnd<M: Side, P: Clone> {
    end: End<M, Model<P>>,
    /// Cached deadline: nothing is due before it; zero if the machine may have changed since. Cached because
    /// computing it visits every path.
    told: Cell<Option<Time>>,
}

impl<P: Clone> SimEnd<Host, P> {
    /// A host in its initial state. Each end needs a different `seed`.
    #[must_use]
    pub fn new(config: impl Into<Arc<HostConfig>>, seed: [u8; 32]) -> HostEnd<P> {
        let config = config.into();
        let measured_by = config.measured_by;
        SimEnd::over(Host::new(config, seed), Model::of_host(measured_by))
    }
}

impl<P: Clone> SimEnd<Anchor, P> {
    /// An anchor that knows no hosts. Each end and each start needs a different `seed`.
    #[must_use]
    pub fn new(config: AnchorConfig, seed: [u8; 32]) -> AnchorEnd<P> {
        let measured_by = config.measured_by;
        SimEnd::over(Anchor::new(config, seed), Model::of_anchor(measured_by))
    }
}

impl<M: Side> SimEnd<M, Packet> {
    /// Handles the UDP payload of a packet from the other side, like [`SimEnd::receive`] for a decoded message.
    pub(crate) fn receive_raw(
        &mut self,
        now: Time,
        (from, to): (SocketAddr, SocketAddr),
        dscp: u8,
        raw: Raw,
        effects: &mut Effects<Packet, M>,
    ) -> Arrived {
        let model = &mut self.end.datapath;
        match bytes::open(raw, dscp, M::ROLE == Role::Host, |index| model.key_of(index)) {
            Some(message) => self.receive(now, from, to, message, effects),
            None => {
                model.refuse();
                Arrived::Refused
            }
        }
    }
}

impl<M: Side, P: Clone> Deref for SimEnd<M, P> {
    type Target = End<M, Model<P>>;

    fn deref(&self) -> &End<M, Model<P>> {
        &self.end
    }
}

impl<M: Side, P: Clone> DerefMut for SimEnd<M, P> {
    fn deref_mut(&mut self) -> &mut End<M, Model<P>> {
        self.told.set(Some(Time::ZERO));
        &mut self.end
    }
}

impl<M: Side, P: Clone> SimEnd<M, P> {
    fn over(machine: M, model: Model<P>) -> SimEnd<M, P> {
        SimEnd { end: End::new(machine, model), told: Cell::new(Some(Time::ZERO)) }
    }

    /// When to call [`SimEnd::tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.told.get() == Some(Time::ZERO) {
            self.told.set(self.end.deadline().map(|(at, _)| at));
        }
        let told = self.told.get();
        match self.end.datapath.calls_at() {
            Some(call) => Some(told.map_or(call, |told| told.min(call))),
            None => told,
        }
    }

    /// Returns true if the machine has something due.
    fn is_due(&self, now: Time) -> bool {
        self.told.get().is_some_and(|at| at <= now)
    }

    /// The first invalid order of the machine.
    #[must_use]
    pub fn wrong(&self) -> Option<Wrong> {
        self.datapath.wrong()
    }

    /// Passes an input to the machine and carries out its outputs.
    pub fn handle(
        &mut self,
        now: Time,
        input: impl Into<Input<M::Own, M::Record>>,
        effects: &mut Effects<P, M>,
    ) {
        let mut turn = self.end.handle(now, input);
        self.follow(now, &mut turn, effects);
    }

    /// Reports to the machine when flows were last in use. A daemon does this every [`SWEEP`].
    pub fn sweep(&mut self, now: Time, effects: &mut Effects<P, M>) {
        let seen: Vec<_> = self.datapath.seen().collect();
        if let Some(input) = M::in_use(seen) {
            self.handle(now, Input::Own(input), effects);
        }
    }

    /// Carries out an output that the caller took directly from the machine.
    pub fn carry_out(
        &mut self,
        now: Time,
        output: segue_tunnel::Output<M::Wish, M::Record>,
        effects: &mut Effects<P, M>,
    ) {
        self.end.datapath.now = now;
        let mut turn = Turn::default();
        match output {
            segue_tunnel::Output::Order(order) => self.end.carry_out(&mut turn, order),
            segue_tunnel::Output::Driver(output) => effects.push(Effect::Ask(output)),
        }
        self.follow(now, &mut turn, effects);
    }

    /// Handles an expired deadline: the machine's, or that of a packet path that has to wake its driver, which
    /// sleeps while requests ride.
    pub fn tick(&mut self, now: Time, effects: &mut Effects<P, M>) {
        let mut called = false;
        while let Some(slot) = self.end.datapath.take_due_call(now) {
            called = true;
            self.on_event(now, DatapathEvent::Look(slot), effects);
        }
        if called && !self.is_due(now) {
            return;
        }
        self.follow(now, &mut Turn::at_deadline(Vec::new()), effects);
    }

    /// Sends a packet through the tunnels.
    pub fn send(&mut self, now: Time, inner: Inner<P>, effects: &mut Effects<P, M>) {
        match self.end.datapath.send(now, inner) {
            Sent::Out(outer, message) => {
                effects.push(Effect::Transmit(outer, message));
                self.look(now, effects);
            }
            Sent::Miss(packet) => self.on_event(now, DatapathEvent::Miss(packet), effects),
            Sent::Nothing => {}
        }
    }

    /// Handles a packet of the other side from `from` to the local address `to`. The answer to a request leaves
    /// first.
    pub fn receive(
        &mut self,
        now: Time,
        from: SocketAddr,
        to: SocketAddr,
        message: Message<P>,
        effects: &mut Effects<P, M>,
    ) -> Arrived {
        let is_size = matches!(message.body, Body::Size { .. });
        let received = self.end.datapath.receive(now, from, to, message);
        self.take(now, received, is_size, effects)
    }

    fn take(
        &mut self,
        now: Time,
        received: Received<P>,
        is_size: bool,
        effects: &mut Effects<P, M>,
    ) -> Arrived {
        match received {
            Received::Ride(both) => {
                let [data, probe] = *both;
                let arrived = self.take(now, data, false, effects);
                self.take(now, probe, false, effects);
                arrived
            }
            Received::Data(inner, slot) => {
                effects.push(Effect::Deliver(inner, slot));
                self.look(now, effects);
                Arrived::Data
            }
            Received::Probe(probe, answer) => {
                leave(&mut self.end.datapath, effects);
                if let Some((outer, message)) = answer {
                    effects.push(Effect::Transmit(outer, message));
                }
                // Handling the probe also does what is due at a host, so no tick is needed.
                if M::ROLE == Role::Host && self.is_due(now) {
                    let due = self.end.machine.due(now);
                    self.follow(now, &mut Turn::reading(due), effects);
                }
                self.on_event(now, DatapathEvent::Probe(probe), effects);
                Arrived::Probe
            }
            Received::Size(slot, token) => {
                self.on_event(now, DatapathEvent::Size(slot, token), effects);
                Arrived::Size
            }
            Received::Quiet(answer) => {
                leave(&mut self.end.datapath, effects);
                if let Some((outer, message)) = answer {
                    effects.push(Effect::Transmit(outer, message));
                }
                if is_size { Arrived::Size } else { Arrived::Quiet }
            }
            Received::Nothing => Arrived::Refused,
        }
    }

    fn on_event(&mut self, now: Time, event: DatapathEvent<Unbound>, effects: &mut Effects<P, M>) {
        let mut turn = self.end.on_event(now, event);
        self.follow(now, &mut turn, effects);
    }

    /// Makes the machine look at a path at once if the packet path asks for it, because data follow a silence.
    fn look(&mut self, now: Time, effects: &mut Effects<P, M>) {
        if let Some(slot) = self.end.datapath.take_call() {
            self.on_event(now, DatapathEvent::Look(slot), effects);
        }
    }

    /// Carries out the machine's outputs until there are none left.
    fn follow(&mut self, now: Time, turn: &mut Turn<Infallible>, effects: &mut Effects<P, M>) {
        self.told.set(Some(Time::ZERO));
        self.end.datapath.now = now;
        let mut injects = false;
        let mut notice = |order: &Order| injects |= matches!(order, Order::Inject(_));
        while let Some(output) = self.end.poll_with(turn, || now, &mut notice) {
            leave(&mut self.end.datapath, effects);
            effects.push(Effect::Ask(output));
        }
        leave(&mut self.end.datapath, effects);
        for failure in turn.failures.drain(..) {
            match failure {
                Failure::Order(never) | Failure::Probes(never) => match never {},
                Failure::Ticket(ticket) => self.end.datapath.note(Wrong::NoTicket(ticket)),
                Failure::Endless => self.end.datapath.note(Wrong::Endless),
            }
        }
        if injects {
            self.look(now, effects);
        }
    }
}

/// Transmits packets that the machine ordered.
fn leave<P: Clone, O, S>(model: &mut Model<P>, effects: &mut Vec<Effect<P, O, S>>) {
    // Usually there are none.
    if model.has_sent() {
        let sent = model.take_sent().into_iter();
        effects.extend(sent.map(|(outer, message)| Effect::Transmit(outer, message)));
    }
}
