//! The engine of either tunnel end: the end over its packet path model, and its signalling.

use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::{Input, Output};
use segue_tunnel::datapath;
use segue_tunnel::{Report, Side};

use super::super::bytes::inner;
use super::super::end::{Effects, SimEnd};
use super::super::packets::{Came, came, tunnelled};
use super::super::signal::Signalling;
use super::super::{Arrived, Effect, SWEEP};
use crate::role::{Engine, Role, RoleAgent};
use crate::{Io, Packet};

/// Counters of the packet path, over all starts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Probes sent without data.
    pub probes_sent: u64,
    /// Probes received, and the part of them that the packet path did not pass on.
    pub probes: u64,
    pub quiet: u64,
    /// Packets that came out of the tunnels.
    pub data: u64,
}

/// A tunnel end with its signalling.
pub struct Tunnels<M: Side, S> {
    pub(super) end: SimEnd<M, Packet>,
    pub(super) signal: S,
    pub(super) traffic: Traffic,
    /// When a host next sweeps its flow table.
    sweep_at: Option<Time>,
    effects: Effects<Packet, M>,
    /// Earlier requests that are not done yet, last first.
    asked: Effects<Packet, M>,
}

/// Requests that a tunnel end leaves to its role.
pub enum Wish<W, S> {
    /// A request of the machine.
    Machine(W),
    /// An output of the signalling.
    Signal(S),
}

impl<M: Side, S: Signalling> Tunnels<M, S> {
    pub(super) fn new(now: Time, end: SimEnd<M, Packet>, signal: S) -> Tunnels<M, S> {
        let next = Time::ZERO + SWEEP * (now.0 / SWEEP.0 + 1);
        Tunnels {
            end,
            signal,
            traffic: Traffic::default(),
            sweep_at: (M::ROLE == datapath::Role::Host).then_some(next),
            effects: Effects::<Packet, M>::new(),
            asked: Effects::<Packet, M>::new(),
        }
    }
}

impl<R, M, S> RoleAgent<R>
where
    R: Role<Engine = Tunnels<M, S>>,
    M: Side<Own: 'static, Wish: 'static, Record: Clone + 'static> + 'static,
    S: Signalling,
{
    /// Its tunnel end.
    #[must_use]
    pub fn end(&self) -> &SimEnd<M, Packet> {
        &self.engine().end
    }

    /// Its signalling.
    #[must_use]
    pub fn signal(&self) -> &S {
        &self.engine().signal
    }

    /// Its signalling, for example to close a connection; call [`work`](RoleAgent::work) afterwards.
    pub fn signal_mut(&mut self) -> &mut S {
        &mut self.engine_mut().signal
    }

    /// Applies `happen` to its tunnel end, for events that no network delivers, and carries out the consequences.
    pub fn at_end(
        &mut self,
        io: &mut Io<'_>,
        happen: impl FnOnce(&mut SimEnd<M, Packet>, Time, &mut Vec<Effect<Packet, M::Wish, M::Record>>),
    ) {
        let Tunnels { end, effects, .. } = self.engine_mut();
        happen(end, io.now, effects);
        self.work(io);
    }

    /// Probes that its packet path did not pass on, over all starts.
    #[must_use]
    pub fn probes_quiet(&self) -> u64 {
        self.engine().traffic.quiet
    }
}

impl<M, S> Engine for Tunnels<M, S>
where
    M: Side<Own: 'static, Wish: 'static, Record: Clone + 'static> + 'static,
    S: Signalling,
{
    type Own = M::Own;
    type Wish = Wish<M::Wish, S::Output>;
    type Report = Report;
    type Record = M::Record;

    fn follows(&mut self, before: &Tunnels<M, S>) {
        self.traffic = before.traffic;
    }

    fn handle(&mut self, now: Time, input: Input<M::Own, M::Record>) {
        self.end.handle(now, input, &mut self.effects);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        if !io.node.owns(packet.dst) {
            self.end.send(io.now, inner(packet), &mut self.effects);
            return;
        }
        match came(packet) {
            Some(Came::Tunnel(from, to, dscp, raw)) => {
                let ends = (from, to);
                let arrived = self.end.receive_raw(io.now, ends, dscp, raw, &mut self.effects);
                let probe = matches!(arrived, Arrived::Probe | Arrived::Quiet);
                self.traffic.probes += u64::from(probe);
                self.traffic.quiet += u64::from(arrived == Arrived::Quiet);
            }
            Some(Came::Signal(from, to, datagram)) => {
                self.signal.receive(io.now, from, to, datagram);
            }
            None => {}
        }
    }

    fn tick(&mut self, now: Time) {
        if self.end.deadline().is_some_and(|at| at <= now) {
            self.end.tick(now, &mut self.effects);
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep_at = Some(now + SWEEP);
            self.end.sweep(now, &mut self.effects);
        }
        if self.signal.deadline().is_some_and(|at| at <= now) {
            self.signal.tick(now);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let times = [self.end.deadline(), self.signal.deadline(), self.sweep_at];
        times.into_iter().flatten().min()
    }

    /// Requests of machine and packet path precede outputs of the signalling.
    fn poll(
        &mut self,
        io: &mut Io<'_>,
    ) -> Option<Output<Wish<M::Wish, S::Output>, Report, M::Record>> {
        loop {
            if self.asked.is_empty() {
                core::mem::swap(&mut self.asked, &mut self.effects);
                self.asked.reverse();
            }
            let Some(effect) = self.asked.pop() else {
                return self.signal.poll().map(|output| Output::Own(Wish::Signal(output)));
            };
            match effect {
                Effect::Transmit(outer, message) => {
                    self.traffic.probes_sent += u64::from(message.is_probe());
                    let packet = tunnelled(io.now, outer.local, outer.remote, message);
                    match outer.ifindex {
                        0 => io.send(packet),
                        index => io.send_on(index, packet),
                    }
                }
                Effect::Deliver(inner, _) => {
                    self.traffic.data += 1;
                    io.arrive(inner.payload);
                }
                Effect::Ask(output) => return Some(output.map_own(Wish::Machine)),
            }
        }
    }
}
