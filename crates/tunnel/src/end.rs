//! An end of tunnels: a machine over its packet path. Daemons, simulator and fault harness all drive this.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use segue_clock::{Deadline, Machine, Time, earlier};
use segue_ip::Input;
use segue_keepalive::Reading;
use segue_wire::{FlowKey, TooBig};

use crate::datapath::{
    Carried, Datapath, DatapathEvent, FlowCount, Missed, Order, ProbeEvent, ProbeOrder, Role,
    Ticket,
};
use crate::{
    Anchor, AnchorInput, AnchorOutput, Host, HostInput, HostOutput, Known, Output, Report,
};
use segue_clock::planted::fault;

/// Packets without a binding that wait for the machine's decision; the oldest is dropped for a new one.
const HELD: usize = 1_024;
/// Number of readings after which the packet path is told again that its driver lives: with very many paths they take
/// long on a busy machine.
const PASS: usize = 1_024;
/// More orders than this in a row are a loop: an anchor with a million paths has fewer.
const ENDLESS: usize = 1 << 24;

/// The machine of either side of tunnels.
pub trait Side:
    Machine<Input = Input<Self::Own, Self::Record>, Output = Output<Self::Wish, Self::Record>>
{
    /// Which side it is.
    const ROLE: Role;
    /// Its own inputs.
    type Own;
    /// What it wants of its driver, beside what all roles do.
    type Wish;
    /// What it stores.
    type Record;

    /// The paths on which something is due at `now`, of which a reading comes first.
    fn due(&self, now: Time) -> Vec<u32>;
    /// All paths.
    fn slots(&self) -> Vec<u32>;
    /// A probe arrived.
    fn probe(probe: ProbeEvent) -> Self::Own;
    /// What was measured on a path.
    fn reading(slot: u32, reading: Reading) -> Self::Own;
    /// What a path has carried, for a side that wants to know.
    fn carried(slot: u32, carried: impl FnOnce() -> Carried) -> Option<Self::Own>;
    /// A flow has no binding; its packet is held.
    fn miss(key: FlowKey, dscp: u8, ticket: Ticket) -> Self::Own;
    /// When all flows were last in use, for a side that forgets those that ended.
    fn in_use(seen: Vec<(FlowKey, Time)>) -> Option<Self::Own>;
    /// What was counted of some flows.
    fn counted(round: u32, counts: Vec<Option<FlowCount>>) -> Self::Own;
    /// Several packets came in one piece on a path.
    fn uncut(slot: u32) -> Self::Own;
    /// A test of the packet size was answered, for a side that asks.
    fn sized(slot: u32, token: u32) -> Option<Self::Own>;
    /// A router says that a packet was too big.
    fn too_big(said: TooBig) -> Self::Own;
}

impl Side for Host {
    const ROLE: Role = Role::Host;
    type Own = HostInput;
    type Wish = HostOutput;
    type Record = Infallible;

    fn due(&self, now: Time) -> Vec<u32> {
        self.due(now)
    }

    fn slots(&self) -> Vec<u32> {
        self.paths().map(|(number, _)| number.into()).collect()
    }

    fn probe(probe: ProbeEvent) -> HostInput {
        HostInput::Probe(probe)
    }

    fn reading(slot: u32, reading: Reading) -> HostInput {
        HostInput::Reading(slot, reading)
    }

    fn carried(slot: u32, carried: impl FnOnce() -> Carried) -> Option<HostInput> {
        Some(HostInput::Carried(slot, carried()))
    }

    fn miss(key: FlowKey, dscp: u8, ticket: Ticket) -> HostInput {
        HostInput::Miss { key, dscp, ticket }
    }

    fn in_use(seen: Vec<(FlowKey, Time)>) -> Option<HostInput> {
        Some(HostInput::Flows { seen, last: true })
    }

    fn counted(round: u32, counts: Vec<Option<FlowCount>>) -> HostInput {
        HostInput::Counted(round, counts)
    }

    fn uncut(slot: u32) -> HostInput {
        HostInput::Uncut(slot)
    }

    fn sized(slot: u32, token: u32) -> Option<HostInput> {
        Some(HostInput::Sized(slot, token))
    }

    fn too_big(said: TooBig) -> HostInput {
        HostInput::TooBig(said)
    }
}

impl Side for Anchor {
    const ROLE: Role = Role::Anchor;
    type Own = AnchorInput;
    type Wish = AnchorOutput;
    type Record = Known;

    fn due(&self, now: Time) -> Vec<u32> {
        self.due(now)
    }

    fn slots(&self) -> Vec<u32> {
        self.paths().map(|(slot, _)| slot).collect()
    }

    fn probe(probe: ProbeEvent) -> AnchorInput {
        AnchorInput::Probe(probe)
    }

    fn reading(slot: u32, reading: Reading) -> AnchorInput {
        AnchorInput::Reading(slot, reading)
    }

    fn carried(_: u32, _: impl FnOnce() -> Carried) -> Option<AnchorInput> {
        None
    }

    fn miss(key: FlowKey, _: u8, ticket: Ticket) -> AnchorInput {
        AnchorInput::Miss { key, ticket }
    }

    fn in_use(_: Vec<(FlowKey, Time)>) -> Option<AnchorInput> {
        None
    }

    fn counted(round: u32, counts: Vec<Option<FlowCount>>) -> AnchorInput {
        AnchorInput::Counted(round, counts)
    }

    fn uncut(slot: u32) -> AnchorInput {
        AnchorInput::Uncut(slot)
    }

    fn sized(_: u32, _: u32) -> Option<AnchorInput> {
        None
    }

    fn too_big(said: TooBig) -> AnchorInput {
        AnchorInput::TooBig(said)
    }
}

/// What a side asks of its driver.
pub type ToDriver<M> = segue_ip::Output<<M as Side>::Wish, Report, <M as Side>::Record>;

/// What could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// An order, of which nothing was carried out.
    Order(E),
    /// Probes were not sent. They count as lost, like any that are lost on the way.
    Probes(E),
    /// The packet that an order names is not held.
    Ticket(Ticket),
    /// The machine does not come to an end: the driver stopped in the middle.
    Endless,
}

/// What to do before a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Read the paths that are due.
    Due,
    /// They have been read.
    Tick,
}

/// What is under way between an end and its driver. Between two calls of the end nothing is, so a driver with very many
/// ends needs only one. It begins with what happened, and [`End::poll`] completes it.
#[derive(Debug)]
#[must_use]
pub struct Turn<E> {
    /// Consecutive probe orders, sent in one go: a single one, which allocates nothing, or several.
    order: Option<ProbeOrder>,
    orders: Vec<ProbeOrder>,
    /// Probes to send before what is due.
    waiting: vec::IntoIter<ProbeEvent>,
    /// Paths to read, and one whose carried data the machine has yet to learn.
    to_read: vec::IntoIter<u32>,
    carried: Option<u32>,
    /// Counts of flows that the machine has yet to learn.
    counted: Vec<(u32, Vec<Option<FlowCount>>)>,
    stage: Stage,
    /// What could not be done.
    pub failures: Vec<Failure<E>>,
}

impl<E> Default for Turn<E> {
    fn default() -> Turn<E> {
        Turn {
            order: None,
            orders: Vec::new(),
            waiting: Vec::new().into_iter(),
            to_read: Vec::new().into_iter(),
            carried: None,
            counted: Vec::new(),
            stage: Stage::Idle,
            failures: Vec::new(),
        }
    }
}

impl<E> Turn<E> {
    /// The deadline has come. Waiting probes and the packet path's readings of the paths that are due go before
    /// time-outs: a late driver must not take its own lateness for silence.
    pub fn at_deadline(waiting: Vec<ProbeEvent>) -> Turn<E> {
        Turn { waiting: waiting.into_iter(), stage: Stage::Due, ..Turn::default() }
    }

    /// Tells the machine what the packet path knows of these paths.
    pub fn reading(slots: Vec<u32>) -> Turn<E> {
        Turn { to_read: slots.into_iter(), ..Turn::default() }
    }

    fn order(&mut self, probe: ProbeOrder) {
        if self.orders.is_empty() && self.order.is_none() {
            self.order = Some(probe);
        } else {
            self.orders.extend(self.order.take());
            self.orders.push(probe);
        }
    }
}

/// A machine and its packet path.
///
/// As with a machine itself: call [`handle`](End::handle) or [`on_event`](End::on_event), or begin a [`Turn`] with what
/// is due; then [`poll`](End::poll) with the turn until `None`, then arm [`deadline`](End::deadline). Meanwhile the end
/// carries out the machine's orders to the packet path, in order; `poll` returns the other outputs.
pub struct End<M: Side, D: Datapath> {
    /// The machine.
    pub machine: M,
    /// The packet path.
    pub datapath: D,
    held: BTreeMap<Ticket, D::Packet>,
    next_ticket: u64,
    /// Paths on which probes ride, and when the packet path wants the sweep of what waits for a ride.
    riding: BTreeSet<u32>,
    sweep_at: Option<Time>,
    /// A probe came since the last sweep.
    probed: bool,
    reinjected: u64,
}

impl<M: Side, D: Datapath> End<M, D> {
    /// A new end.
    pub fn new(machine: M, datapath: D) -> End<M, D> {
        End {
            machine,
            datapath,
            held: BTreeMap::new(),
            next_ticket: 0,
            riding: BTreeSet::new(),
            sweep_at: None,
            probed: false,
            reinjected: 0,
        }
    }

    /// When to begin a turn [at the deadline](Turn::at_deadline), and why.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let sweep = self.sweep_at.map(|at| (at, "a response has waited for a ride"));
        earlier(self.machine.deadline(), sweep)
    }

    /// Packets that were sent a second time.
    #[must_use]
    pub fn reinjected(&self) -> u64 {
        self.reinjected
    }

    /// Gives the machine an input.
    pub fn handle(
        &mut self,
        now: Time,
        input: impl Into<Input<M::Own, M::Record>>,
    ) -> Turn<D::Error> {
        self.machine.handle(now, input.into());
        Turn::default()
    }

    /// Takes an event of the packet path.
    pub fn on_event(&mut self, now: Time, event: DatapathEvent<D::Packet>) -> Turn<D::Error> {
        match event {
            DatapathEvent::Probe(probe) => {
                self.probed = true;
                self.handle(now, M::probe(probe))
            }
            DatapathEvent::Uncut(slot) => self.handle(now, M::uncut(slot)),
            DatapathEvent::Look(slot) => Turn::reading(vec![slot]),
            DatapathEvent::Size(slot, token) => match M::sized(slot, token) {
                Some(input) => self.handle(now, input),
                None => Turn::default(),
            },
            DatapathEvent::Miss(packet) => {
                let (key, dscp) = (packet.key(), packet.dscp());
                let ticket = self.keep(packet);
                self.handle(now, M::miss(key, dscp, ticket))
            }
        }
    }

    /// The machine's next output for its driver; `None` when all is done. `clock` gives the present instant, which
    /// moves while very many paths are read. `changing` sees each order before it is carried out.
    pub fn poll_with(
        &mut self,
        turn: &mut Turn<D::Error>,
        clock: impl Fn() -> Time,
        mut changing: impl FnMut(&Order),
    ) -> Option<ToDriver<M>> {
        for _ in 0..ENDLESS {
            match self.machine.poll() {
                Some(Output::Order(order)) => {
                    changing(&order);
                    self.carry_out(turn, order);
                }
                // Probes ordered earlier leave earlier.
                Some(Output::Driver(output)) => {
                    self.flush(turn);
                    return Some(output);
                }
                None if self.go_on(turn, &clock) => {}
                None => {
                    self.flush(turn);
                    self.sweep(clock());
                    return None;
                }
            }
        }
        turn.failures.push(Failure::Endless);
        None
    }

    /// As [`poll_with`](End::poll_with) for a driver that need not see orders.
    pub fn poll(
        &mut self,
        turn: &mut Turn<D::Error>,
        clock: impl Fn() -> Time,
    ) -> Option<ToDriver<M>> {
        self.poll_with(turn, clock, |_| {})
    }

    /// Gives the machine the next thing it has to know. Returns whether there was one.
    fn go_on(&mut self, turn: &mut Turn<D::Error>, clock: &impl Fn() -> Time) -> bool {
        loop {
            // A path that was taken down has no counts to compare with its earlier ones.
            if let Some(slot) = turn.carried.take().filter(|slot| self.datapath.is_set(*slot)) {
                // Probes that were ordered count.
                self.flush(turn);
                let carried = || self.datapath.counters(slot).carried();
                if let Some(input) = M::carried(slot, carried) {
                    self.machine.handle(clock(), input.into());
                    return true;
                }
            } else if let Some((round, counts)) = turn.counted.pop() {
                self.machine.handle(clock(), M::counted(round, counts).into());
                return true;
            } else if let Some(probe) = turn.waiting.next() {
                self.probed = true;
                self.machine.handle(clock(), M::probe(probe).into());
                return true;
            } else if let Some(slot) = turn.to_read.next() {
                if turn.to_read.len() % PASS == PASS - 1 {
                    self.datapath.heartbeat();
                }
                turn.carried = (M::ROLE == Role::Host).then_some(slot);
                if let Some(reading) = self.datapath.reading(slot) {
                    self.machine.handle(clock(), M::reading(slot, reading).into());
                    return true;
                }
            } else {
                match turn.stage {
                    Stage::Idle => return false,
                    Stage::Due => {
                        turn.to_read = self.machine.due(clock()).into_iter();
                        turn.stage = Stage::Tick;
                    }
                    Stage::Tick => {
                        self.machine.tick(clock());
                        turn.stage = Stage::Idle;
                        return true;
                    }
                }
            }
        }
    }

    /// Carries out one order of the machine to its packet path.
    pub fn carry_out(&mut self, turn: &mut Turn<D::Error>, order: Order) {
        if let Order::SendProbe(probe) = order {
            return turn.order(probe);
        }
        self.flush(turn);
        match &order {
            Order::SetPath(slot, setup) if M::ROLE == Role::Anchor && setup.probing.rides => {
                self.riding.insert(*slot);
            }
            Order::SetPath(slot, _) | Order::RemovePath(slot) => {
                self.riding.remove(slot);
            }
            _ => {}
        }
        let datapath = &mut self.datapath;
        let mut done = Ok(());
        match order {
            // Above.
            Order::SendProbe(_) => {}
            Order::SetPath(slot, setup) => done = datapath.set_path(slot, &setup),
            Order::RemovePath(slot) => datapath.remove_path(slot),
            Order::SetVia(slot, via) => done = datapath.set_via(slot, via),
            Order::SetQuiet(slot, quiet) => datapath.set_quiet(slot, quiet),
            Order::SetDown(slot, silence) => datapath.set_down(slot, silence),
            Order::SetDeaf(slot, deaf) => datapath.set_deaf(slot, deaf),
            Order::SetHeard(slots, word) => datapath.set_heard(&slots, word),
            Order::SetInner(address, owner) => done = datapath.set_inner(address, owner),
            Order::RemoveInner(address) => datapath.remove_inner(address),
            Order::SetOneByOne(slot) => datapath.set_one_by_one(slot),
            Order::Reinject(order) => self.reinjected += datapath.reinject(order) as u64,
            Order::TestSize(slot, test, dscp) => datapath.test_size(slot, test, dscp),
            Order::Bind(key, slot) => done = datapath.bind_flow(key, slot),
            Order::Unbind(key) => datapath.unbind_flow(&key),
            Order::CountFlows(round, flows) => {
                let counts = flows.iter().map(|key| datapath.count_flow(key)).collect();
                turn.counted.push((round, counts));
            }
            Order::Inject(ticket) => {
                if let Some(packet) = self.take(turn, ticket) {
                    self.datapath.inject(packet);
                }
            }
            Order::Discard(ticket) => {
                if let Some(packet) = self.take(turn, ticket) {
                    self.datapath.refuse(packet);
                }
            }
        }
        turn.failures.extend(done.err().map(Failure::Order));
    }

    /// Sends the probes that were ordered. Mostly there are none, which is to cost no call.
    #[inline]
    fn flush(&mut self, turn: &mut Turn<D::Error>) {
        if turn.order.is_some() || !turn.orders.is_empty() {
            self.send_ordered(turn);
        }
    }

    fn send_ordered(&mut self, turn: &mut Turn<D::Error>) {
        let sent = match turn.order.take() {
            Some(order) => self.datapath.send_probes(core::slice::from_ref(&order)),
            None => self.datapath.send_probes(&core::mem::take(&mut turn.orders)),
        };
        turn.failures.extend(sent.err().map(Failure::Probes));
    }

    /// Sends the probes that have waited long enough for a ride. Also called after each request: its response may wait,
    /// and for less time than those before.
    fn sweep(&mut self, now: Time) {
        // At anchors alone: a host's set need not come to the processor.
        if M::ROLE == Role::Host {
            return;
        }
        let probed = core::mem::take(&mut self.probed);
        if self.riding.is_empty() || fault(13) {
            self.sweep_at = None;
        } else if probed || self.sweep_at.is_none_or(|at| at <= now) {
            self.sweep_at = self.datapath.sweep(now);
        }
    }

    fn keep(&mut self, packet: D::Packet) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.held.insert(ticket, packet);
        if self.held.len() > HELD {
            self.held.pop_first();
        }
        ticket
    }

    fn take(&mut self, turn: &mut Turn<D::Error>, ticket: Ticket) -> Option<D::Packet> {
        let packet = self.held.remove(&ticket);
        if packet.is_none() {
            turn.failures.push(Failure::Ticket(ticket));
        }
        packet
    }
}
