//! One generic agent for every role: it drives the engine of a protocol on a node. Each role only supplies a few
//! lines of its own.
//!
//! ```text
//!   Network ── packets, link events, deadlines ──► RoleAgent<R> ── Input, tick ──► R::Engine (a machine)
//!           ◄── Io: packets, addresses, log ──────      │       ◄── poll: Output ──
//!                                  R: Role ◄── own outputs, orders, reports, results
//! ```

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;

use segue_clock::{Machine, Rng, Span, Time};
use segue_ip::{Datagram, Forward, Forwarding, Input, Interface, LinkEvent, Output};

use crate::agent::CannotForward;
use crate::net::Adapter;
use crate::packet::{Raw, UDP, ip_header_bytes};
use crate::{Agent, Io, Packet, Results};

/// The part of a role that lives from one start to the next: a machine ([`Pure`]), or a tunnel end with its
/// signalling and packet path. After each call, call [`poll`](Engine::poll) until it returns `None`.
pub trait Engine: 'static {
    /// The role's own inputs.
    type Own;
    /// Requests beyond those common to all roles.
    type Wish;
    /// Events to report, as lines of the event log.
    type Report: Display;
    /// State kept in stable storage.
    type Record: Clone;

    /// Called after a restart with the engine that ran before, so that counters can be carried over.
    fn follows(&mut self, _before: &Self) {}
    /// Handles an input.
    fn handle(&mut self, now: Time, input: Input<Self::Own, Self::Record>);
    /// Handles a packet from an interface or from its own node.
    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet);
    /// Handles a timer that has expired.
    fn tick(&mut self, now: Time);
    /// When to call [`tick`](Engine::tick).
    fn deadline(&self) -> Option<Time>;
    /// Returns the next request. The engine itself sends packets that go through tunnels.
    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<Self::Wish, Self::Report, Self::Record>>;
}

/// Engine requests that the role itself carries out.
pub type WishOf<R> = <<R as Role>::Engine as Engine>::Wish;
/// Reports of a role's engine.
pub type ReportOf<R> = <<R as Role>::Engine as Engine>::Report;
/// Stored records of a role's engine.
pub type RecordOf<R> = <<R as Role>::Engine as Engine>::Record;
/// Inputs of a role's engine.
pub type InputOf<R> = Input<<<R as Role>::Engine as Engine>::Own, RecordOf<R>>;

/// The specifics of a role, apart from its engine.
pub trait Role: Sized + 'static {
    /// The engine.
    type Engine: Engine;
    /// Orders that a scenario can give at a preset time, apart from a restart.
    type Order: 'static;

    /// Creates the engine. Records stored by earlier starts are delivered to it afterwards.
    fn start(&mut self, start: &Start) -> Self::Engine;
    /// The role crashes; its node loses everything the role had installed there.
    fn crash(&mut self, _io: &mut Io<'_>) {}
    /// Carries out an order, usually with [`RoleAgent::handle`].
    fn order(agent: &mut RoleAgent<Self>, io: &mut Io<'_>, order: Self::Order);
    /// Carries out a request of the engine.
    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Self::Engine, wish: WishOf<Self>);
    /// The description of an attached interface for the engine, or `None` if the engine does not use this
    /// interface.
    fn sees(&self, adapter: &Adapter) -> Option<Interface> {
        Some(adapter.interface.clone())
    }
    /// Returns true if the report means that flows of its node took another path.
    fn moves_flows(_report: &ReportOf<Self>) -> bool {
        false
    }
    /// Identifies the subject of a record: a later record with the same key replaces it.
    fn key(record: &RecordOf<Self>) -> String;
    /// Adds its results, always under the same names.
    fn results(agent: &RoleAgent<Self>, name: &str, results: &mut Results);
}

/// One start of a role.
pub struct Start {
    /// Time of the start.
    pub now: Time,
    /// Number of earlier starts.
    pub number: u64,
    /// Seed of the role's randomness, the same for all its starts.
    pub seed: u64,
}

impl Start {
    /// The random generator of this start.
    #[must_use]
    pub fn rng(&self) -> Rng {
        Rng::new(self.seed ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Random bytes of this start.
    #[must_use]
    pub fn random(&self) -> [u8; 32] {
        let mut rng = self.rng();
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes
    }
}

/// An event scheduled for a role.
#[derive(Clone, Debug)]
pub enum Order<O> {
    /// Crash, and restart after this time with nothing but the stored records.
    Restart(Span),
    /// An order specific to the role.
    Own(O),
}

/// An agent that runs a role on a node.
pub struct RoleAgent<R: Role> {
    role: R,
    engine: R::Engine,
    seed: u64,
    starts: u64,
    orders: VecDeque<(Time, Order<R::Order>)>,
    /// While crashed, the time of the restart.
    dead_until: Option<Time>,
    /// Interfaces reported to the engine.
    interfaces: Vec<Interface>,
    /// Forwarding installed at its node.
    parts: Vec<Forward>,
    records: BTreeMap<String, RecordOf<R>>,
    reports: Vec<(Time, ReportOf<R>)>,
}

impl<R: Role> RoleAgent<R> {
    /// A role that has not started. Each role needs a different `seed`.
    #[must_use]
    pub fn of(mut role: R, seed: u64) -> RoleAgent<R> {
        let engine = role.start(&Start { now: Time::ZERO, number: 0, seed });
        RoleAgent {
            role,
            engine,
            seed,
            starts: 0,
            orders: VecDeque::new(),
            dead_until: None,
            interfaces: Vec::new(),
            parts: Vec::new(),
            records: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// Schedules an event at `at`, after earlier orders for the same time.
    pub fn order(&mut self, at: Time, order: Order<R::Order>) {
        let place = self.orders.partition_point(|(other, _)| *other <= at);
        self.orders.insert(place, (at, order));
    }

    /// Carries out an order at once.
    pub fn obey(&mut self, io: &mut Io<'_>, order: Order<R::Order>) {
        match order {
            Order::Own(order) => R::order(self, io, order),
            Order::Restart(rest) => self.crash(io, rest),
        }
    }

    /// Loads records that an earlier start stored; call it before the run.
    pub fn recall(&mut self, records: impl IntoIterator<Item = RecordOf<R>>) {
        for record in records {
            self.engine.handle(Time::ZERO, Input::Record(record.clone()));
            self.records.insert(R::key(&record), record);
        }
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &R {
        &self.role
    }

    /// The role, for modification.
    pub fn role_mut(&mut self) -> &mut R {
        &mut self.role
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &R::Engine {
        &self.engine
    }

    /// The engine, to give it orders; call [`work`](Self::work) afterwards.
    pub(crate) fn engine_mut(&mut self) -> &mut R::Engine {
        &mut self.engine
    }

    /// Number of restarts.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Reports so far, with their times.
    #[must_use]
    pub fn reports(&self) -> &[(Time, ReportOf<R>)] {
        &self.reports
    }

    /// Records in storage.
    pub fn records(&self) -> impl Iterator<Item = &RecordOf<R>> {
        self.records.values()
    }

    /// Removes a record from storage.
    pub fn forget(&mut self, key: &str) -> Option<RecordOf<R>> {
        self.records.remove(key)
    }

    /// Passes an input to the engine unless the role has crashed, and carries out the resulting requests.
    pub fn handle(&mut self, io: &mut Io<'_>, input: impl Into<InputOf<R>>) {
        if self.dead_until.is_none() {
            self.engine.handle(io.now, input.into());
            self.work(io);
        }
    }

    /// Carries out the engine's requests until there are none left.
    pub fn work(&mut self, io: &mut Io<'_>) {
        while let Some(output) = self.engine.poll(io) {
            match output {
                // A simulated disk answers at once.
                Output::Send(datagram, _) => send(io, datagram),
                Output::Forward(part) => self.forward(io, part, true),
                Output::Withdraw(part) => self.forward(io, part, false),
                Output::Persist(record) => {
                    self.records.insert(R::key(&record), record);
                }
                Output::Report(report) => {
                    io.log(|| report.to_string());
                    if R::moves_flows(&report) {
                        io.report_moved_flows();
                    }
                    self.reports.push((io.now, report));
                }
                Output::Own(wish) => self.role.apply(io, &mut self.engine, wish),
            }
        }
    }

    fn forward(&mut self, io: &mut Io<'_>, part: Forward, present: bool) {
        self.parts.retain(|known| *known != part);
        let done = if present { io.put(&part) } else { io.take_back(&part) };
        match done {
            Ok(()) => self.parts.extend(present.then_some(part)),
            Err(CannotForward(why)) => io.log(|| format!("cannot forward: {why}: {part:?}")),
        }
    }

    fn look_at_interfaces(&mut self, io: &mut Io<'_>) {
        let attached = io.node.adapters.iter().filter(|adapter| adapter.out.is_some());
        let interfaces: Vec<Interface> = attached.filter_map(|a| self.role.sees(a)).collect();
        if interfaces != self.interfaces {
            self.interfaces.clone_from(&interfaces);
            self.handle(io, Input::Interfaces(interfaces));
        }
    }

    fn crash(&mut self, io: &mut Io<'_>, rest: Span) {
        self.role.crash(io);
        for part in core::mem::take(&mut self.parts) {
            let _ = io.take_back(&part);
        }
        match rest {
            Span::ZERO => self.start_anew(io),
            _ => self.dead_until = Some(io.now + rest),
        }
    }

    fn start_anew(&mut self, io: &mut Io<'_>) {
        self.starts += 1;
        let (number, seed) = (self.starts, self.seed);
        let before = &self.engine;
        let mut engine = self.role.start(&Start { now: io.now, number, seed });
        engine.follows(before);
        self.engine = engine;
        for record in self.records.values() {
            self.engine.handle(io.now, Input::Record(record.clone()));
        }
        self.interfaces.clear();
        self.look_at_interfaces(io);
    }
}

impl<R: Role> Agent for RoleAgent<R> {
    fn start(&mut self, io: &mut Io<'_>) {
        self.look_at_interfaces(io);
        self.work(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        if self.dead_until.is_none() {
            self.engine.receive(io, over, packet);
            self.work(io);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if self.dead_until.take_if(|until| *until <= io.now).is_some() {
            self.start_anew(io);
        }
        while self.orders.front().is_some_and(|(at, _)| *at <= io.now) {
            if let Some((_, order)) = self.orders.pop_front() {
                self.obey(io, order);
            }
        }
        if self.dead_until.is_none() {
            self.engine.tick(io.now);
            self.work(io);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let order = self.orders.front().map(|(at, _)| *at);
        let own = match self.dead_until {
            Some(until) => Some(until),
            None => self.engine.deadline(),
        };
        order.into_iter().chain(own).min()
    }

    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        if self.dead_until.is_none() {
            self.look_at_interfaces(io);
        }
    }

    fn link_changed(&mut self, io: &mut Io<'_>, event: LinkEvent) {
        self.handle(io, Input::Link(event));
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        R::results(self, name, results);
    }
}

/// A machine as an engine. Packets that carry only bytes are passed to it as datagrams; tunnel packets are
/// ignored.
pub struct Pure<M>(pub M);

impl<M, I, O, N, P> Engine for Pure<M>
where
    M: Machine<Input = Input<I, P>, Output = Output<O, N, P>> + 'static,
    N: Display,
    P: Clone,
{
    type Own = I;
    type Wish = O;
    type Report = N;
    type Record = P;

    fn handle(&mut self, now: Time, input: Input<I, P>) {
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        if let Some(datagram) = datagram(over, packet) {
            self.0.handle(io.now, Input::Datagram(datagram));
        }
    }

    fn tick(&mut self, now: Time) {
        self.0.tick(now);
    }

    fn deadline(&self) -> Option<Time> {
        self.0.deadline().map(|(at, _)| at)
    }

    fn poll(&mut self, _io: &mut Io<'_>) -> Option<Output<O, N, P>> {
        self.0.poll()
    }
}

/// Converts a packet into a datagram for a machine. `None` if the packet carries another packet.
pub(crate) fn datagram(over: Option<u32>, packet: Packet) -> Option<Datagram> {
    let (from, to) = ((packet.src, packet.ports.0), (packet.dst, packet.ports.1));
    let (protocol, hop_limit) = (packet.protocol, packet.ttl);
    let raw = packet.into_value::<Raw>().ok().filter(|raw| raw.inner.is_none())?;
    Some(Datagram {
        waited_ns: 0,
        interface: over,
        from,
        to,
        protocol,
        hop_limit,
        bytes: raw.bytes,
    })
}

/// Converts a machine's datagram into a packet and the interface that it names.
pub(crate) fn packet_of(now: Time, datagram: Datagram) -> (Option<u32>, Packet) {
    let Datagram { interface, from, to, protocol, hop_limit, bytes, waited_ns: _ } = datagram;
    let header = ip_header_bytes(from.0) + if protocol == UDP { 8 } else { 0 };
    let length = header + bytes.len() as u32;
    let packet = Packet::new(protocol, from, to, length, Raw { bytes, inner: None });
    (interface, Packet { ttl: hop_limit, sent: now, ..packet })
}

/// Sends a datagram over the interface that it names, or else according to the routes.
fn send(io: &mut Io<'_>, datagram: Datagram) {
    let (interface, packet) = packet_of(io.now, datagram);
    match interface {
        Some(index) => io.send_on(index, packet),
        None => io.send(packet),
    }
}
