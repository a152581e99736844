//! One agent for every role: it drives what runs on a node for a protocol, and the role itself says the rest in a few
//! lines.
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

/// What runs for a role between two starts: a machine ([`Pure`]), or an end of tunnels with what is around it. After
/// each call, call [`poll`](Engine::poll) until it returns nothing.
pub trait Engine: 'static {
    /// The role's own inputs.
    type Own;
    /// What it asks for beside what every role does.
    type Wish;
    /// Its news, as lines of the event log.
    type Report: Display;
    /// What it stores.
    type Record: Clone;

    /// It is started anew: what ran before it, of which it may keep what it counts.
    fn follows(&mut self, _before: &Self) {}
    /// Takes an input.
    fn handle(&mut self, now: Time, input: Input<Self::Own, Self::Record>);
    /// Takes a packet that came over an interface, or from its own node.
    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet);
    /// Does what is due.
    fn tick(&mut self, now: Time);
    /// When to call [`tick`](Engine::tick).
    fn deadline(&self) -> Option<Time>;
    /// The next thing that it asks for. What goes through tunnels it sends itself.
    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<Self::Wish, Self::Report, Self::Record>>;
}

/// The asks of an engine that a role carries out itself.
pub type WishOf<R> = <<R as Role>::Engine as Engine>::Wish;
/// The news of a role's engine.
pub type ReportOf<R> = <<R as Role>::Engine as Engine>::Report;
/// What a role's engine stores.
pub type RecordOf<R> = <<R as Role>::Engine as Engine>::Record;
/// What a role's engine takes.
pub type InputOf<R> = Input<<<R as Role>::Engine as Engine>::Own, RecordOf<R>>;

/// What a role is, beside its engine.
pub trait Role: Sized + 'static {
    /// What runs.
    type Engine: Engine;
    /// What a scenario can order at a preset time, beside a restart.
    type Order: 'static;

    /// Starts the engine. What earlier starts stored comes to it afterwards.
    fn start(&mut self, start: &Start) -> Self::Engine;
    /// It crashes; what it had given to its node goes.
    fn crash(&mut self, _io: &mut Io<'_>) {}
    /// Carries out an order, by [`RoleAgent::handle`] as a rule.
    fn order(agent: &mut RoleAgent<Self>, io: &mut Io<'_>, order: Self::Order);
    /// Does what the engine asks for.
    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Self::Engine, wish: WishOf<Self>);
    /// What the engine is told of an attached interface, if it is told of it.
    fn sees(&self, adapter: &Adapter) -> Option<Interface> {
        Some(adapter.interface.clone())
    }
    /// Whether a report says that flows of its node took another path.
    fn moves_flows(_report: &ReportOf<Self>) -> bool {
        false
    }
    /// What a record is about: a later one about the same takes its place.
    fn key(record: &RecordOf<Self>) -> String;
    /// Adds its results, always under the same names.
    fn results(agent: &RoleAgent<Self>, name: &str, results: &mut Results);
}

/// One start of a role.
pub struct Start {
    /// When.
    pub now: Time,
    /// How many there were before.
    pub number: u64,
    /// Of the role's randomness, the same at each of its starts.
    pub seed: u64,
}

impl Start {
    /// The randomness of this start.
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

/// Something that happens to a role at a preset time.
#[derive(Clone, Debug)]
pub enum Order<O> {
    /// It crashes and starts anew after this time, with nothing but what it has stored.
    Restart(Span),
    /// The role's own.
    Own(O),
}

/// A role on a node.
pub struct RoleAgent<R: Role> {
    role: R,
    engine: R::Engine,
    seed: u64,
    starts: u64,
    orders: VecDeque<(Time, Order<R::Order>)>,
    /// It has crashed and starts then.
    dead_until: Option<Time>,
    /// The interfaces of which the engine was told.
    interfaces: Vec<Interface>,
    /// What its node has of it.
    parts: Vec<Forward>,
    records: BTreeMap<String, RecordOf<R>>,
    reports: Vec<(Time, ReportOf<R>)>,
}

impl<R: Role> RoleAgent<R> {
    /// A role that has not started. `seed` differs from that of any other.
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

    /// Has it know what an earlier start stored, before the run.
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

    /// The role, to change it.
    pub(crate) fn role_mut(&mut self) -> &mut R {
        &mut self.role
    }

    /// What runs.
    #[must_use]
    pub fn engine(&self) -> &R::Engine {
        &self.engine
    }

    /// What runs, to give it orders; [`work`](Self::work) follows.
    pub(crate) fn engine_mut(&mut self) -> &mut R::Engine {
        &mut self.engine
    }

    /// How often it was started anew.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// What it reported, and when.
    #[must_use]
    pub fn reports(&self) -> &[(Time, ReportOf<R>)] {
        &self.reports
    }

    /// What it has stored.
    pub fn records(&self) -> impl Iterator<Item = &RecordOf<R>> {
        self.records.values()
    }

    /// Takes something out of its store.
    pub fn forget(&mut self, key: &str) -> Option<RecordOf<R>> {
        self.records.remove(key)
    }

    /// Gives the engine an input, unless it is dead, and does what it asks for.
    pub fn handle(&mut self, io: &mut Io<'_>, input: impl Into<InputOf<R>>) {
        if self.dead_until.is_none() {
            self.engine.handle(io.now, input.into());
            self.work(io);
        }
    }

    /// Does what the engine asks for until it asks for nothing.
    pub fn work(&mut self, io: &mut Io<'_>) {
        while let Some(output) = self.engine.poll(io) {
            match output {
                Output::Send(datagram) => send(io, datagram),
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

/// A machine as an engine. Packets that carry bytes are its datagrams; one with a packet behind them is not for it.
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

/// What a packet that carries bytes is to a machine; nothing if a packet is behind them.
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

/// A machine's datagram as a packet, with the interface that it names.
pub(crate) fn packet_of(now: Time, datagram: Datagram) -> (Option<u32>, Packet) {
    let Datagram { interface, from, to, protocol, hop_limit, bytes, waited_ns: _ } = datagram;
    let header = ip_header_bytes(from.0) + if protocol == UDP { 8 } else { 0 };
    let length = header + bytes.len() as u32;
    let packet = Packet::new(protocol, from, to, length, Raw { bytes, inner: None });
    (interface, Packet { ttl: hop_limit, sent: now, ..packet })
}

/// Sends a datagram over the interface that it names, or as the routes say.
fn send(io: &mut Io<'_>, datagram: Datagram) {
    let (interface, packet) = packet_of(io.now, datagram);
    match interface {
        Some(index) => io.send_on(index, packet),
        None => io.send(packet),
    }
}
