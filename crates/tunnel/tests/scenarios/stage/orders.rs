//! Inputs that no network delivers: orders, and messages of a peer that lies.

use segue_clock::{Machine, Span, Time};
use segue_ip::{Input, Interface, Output};
use segue_sim::role::Order;
use segue_sim::tunnel::{
    AnchorAgent, AnchorEffect, AnchorEnd, Effect, Enrolment, HostAgent, HostEffect, HostEnd, Inner,
};
use segue_sim::{Io, Packet};
use segue_steering::Class;
use segue_tunnel::{AnchorInput, AnchorOutput, ConnId, HostInput, Known};
use segue_wire::FlowKey;
use segue_wire::signal::{FromAnchor, FromHost};

use super::Stage;
use super::apps::{BYTES, Data, NO_APP, packet};

/// Connections with this number or a larger one are opened by hand.
const BY_HAND: u64 = 1_000_000;

impl Stage {
    fn at_host<R>(
        &mut self,
        host: usize,
        happen: impl FnOnce(&mut HostAgent, &mut Io<'_>) -> R,
    ) -> R {
        let mut result = None;
        self.network.command(self.hosts[host].agent, |agent, io| result = Some(happen(agent, io)));
        self.check();
        result.unwrap()
    }

    fn at_anchor<R>(&mut self, happen: impl FnOnce(&mut AnchorAgent, &mut Io<'_>) -> R) -> R {
        let mut result = None;
        self.network.command(self.anchor, |agent, io| result = Some(happen(agent, io)));
        self.check();
        result.unwrap()
    }

    /// Runs code on a host's end.
    pub(crate) fn at_host_end<R>(
        &mut self,
        host: usize,
        happen: impl FnOnce(&mut HostEnd<Packet>, Time, &mut Vec<HostEffect<Packet>>) -> R,
    ) -> R {
        let mut result = None;
        self.at_host(host, |agent, io| {
            agent.at_end(io, |end, now, effects| result = Some(happen(end, now, effects)));
        });
        result.unwrap()
    }

    /// Runs code on the anchor's end.
    pub(crate) fn at_anchor_end<R>(
        &mut self,
        happen: impl FnOnce(&mut AnchorEnd<Packet>, Time, &mut Vec<AnchorEffect<Packet>>) -> R,
    ) -> R {
        let mut result = None;
        self.at_anchor(|agent, io| {
            agent.at_end(io, |end, now, effects| result = Some(happen(end, now, effects)));
        });
        result.unwrap()
    }

    pub(crate) fn tell_host(&mut self, host: usize, input: HostInput) {
        self.at_host(host, |agent, io| agent.obey(io, Order::Own(Box::new(input))));
    }

    /// Announces false interfaces to a host's machine.
    pub(crate) fn announce_falsely(&mut self, host: usize, interfaces: Vec<Interface>) {
        self.lied = true;
        self.at_host(host, |agent, io| agent.handle(io, Input::Interfaces(interfaces)));
    }

    /// Announces a host's real interfaces to its machine.
    pub(crate) fn announce(&mut self, host: usize) {
        let adapters = self.network.node(self.hosts[host].node).adapters.iter();
        let present = adapters.filter(|adapter| adapter.out.is_some());
        let interfaces = present.map(|adapter| adapter.interface.clone()).collect();
        self.at_host(host, |agent, io| agent.handle(io, Input::Interfaces(interfaces)));
    }

    pub(crate) fn handover(
        &mut self,
        host: usize,
        flow: Option<FlowKey>,
        class: Option<Class>,
        to: Option<&str>,
    ) {
        let to = to.map(String::from);
        self.tell_host(host, HostInput::Handover { flow, class, to });
    }

    /// Gives the anchor's machine an input. Returns its immediate messages to hosts, on all connections.
    pub(crate) fn tell_anchor(&mut self, input: AnchorInput) -> Vec<(ConnId, FromAnchor)> {
        self.tell_anchor_at(self.now(), input)
    }

    /// The same, at a later time.
    pub(crate) fn tell_anchor_at(
        &mut self,
        at: Time,
        input: AnchorInput,
    ) -> Vec<(ConnId, FromAnchor)> {
        let (said, closed) = self.at_anchor_end(|end, _, effects| {
            end.handle(at, input, effects);
            let (mut said, mut closed) = (Vec::new(), Vec::new());
            for effect in &*effects {
                match effect {
                    Effect::Ask(Output::Own(AnchorOutput::Signal(conn, message))) => {
                        said.push((*conn, message.clone()));
                    }
                    Effect::Ask(Output::Own(AnchorOutput::Close(conn))) => closed.push(*conn),
                    _ => {}
                }
            }
            (said, closed)
        });
        self.closed.extend(closed.into_iter().filter(|conn| conn.0 >= BY_HAND));
        said
    }

    /// Opens a connection as host `name` to the anchor, without the host's machine.
    pub(crate) fn open(&mut self, name: &str) -> ConnId {
        let conn = ConnId(BY_HAND + self.opened);
        self.opened += 1;
        self.tell_anchor(AnchorInput::Connected { conn, host: name.into() });
        conn
    }

    /// The anchor's answers to a message, on the same connection.
    pub(crate) fn say(&mut self, conn: ConnId, message: FromHost) -> Vec<FromAnchor> {
        let said = self.tell_anchor(AnchorInput::Signal { conn, message }).into_iter();
        said.filter(|(to, _)| *to == conn).map(|(_, answer)| answer).collect()
    }

    /// Ends the connections opened by hand that the anchor has closed.
    pub(super) fn tell_of_closed(&mut self) {
        for conn in std::mem::take(&mut self.closed) {
            self.tell_anchor(AnchorInput::Disconnected { conn });
        }
    }

    /// Ends the signalling connection of a host.
    pub(crate) fn break_signal(&mut self, host: usize) {
        self.at_host(host, |agent, io| {
            agent.signal_mut().close(io.now);
            agent.work(io);
        });
    }

    /// Restarts the anchor with its stored records.
    pub(crate) fn restart_anchor(&mut self) {
        self.at_anchor(|agent, io| agent.obey(io, Order::Restart(Span::ZERO)));
    }

    /// Begins or ends a host's enrolment.
    pub(crate) fn enrol(&mut self, enrolment: Enrolment) {
        self.at_anchor(|agent, io| agent.obey(io, Order::Own(enrolment)));
    }

    /// Supplies a record of an earlier start of the anchor, before the run.
    pub(crate) fn recall(&mut self, known: Known) {
        self.network.agent_mut::<AnchorAgent>(self.anchor).unwrap().recall([known]);
    }

    /// Sends a packet of a flow without an application.
    pub(crate) fn miss_at_host(&mut self, host: usize, key: FlowKey, dscp: u8) {
        self.at_host_end(host, |end, now, effects| end.send(now, stray(now, key, dscp), effects));
    }

    pub(crate) fn miss_at_anchor(&mut self, key: FlowKey) {
        self.at_anchor_end(|end, now, effects| end.send(now, stray(now, key, 0), effects));
    }

    /// Ticks at any time, without readings before.
    pub(crate) fn tick_host_unread(&mut self, host: usize) {
        self.at_host_end(host, |end, now, effects| {
            end.machine.tick(now);
            while let Some(output) = end.machine.poll() {
                end.carry_out(now, output, effects);
            }
        });
    }

    /// Like [`Stage::tick_host_unread`], at the anchor.
    pub(crate) fn tick_anchor_unread(&mut self) {
        self.at_anchor_end(|end, now, effects| {
            end.machine.tick(now);
            while let Some(output) = end.machine.poll() {
                end.carry_out(now, output, effects);
            }
        });
    }
}

/// A packet of a flow without an application.
pub(crate) fn stray(now: Time, key: FlowKey, dscp: u8) -> Inner<Packet> {
    let payload = packet(now, key, dscp, Data { app: NO_APP, round: 0 });
    Inner { key, dscp, bytes: BYTES, payload }
}
