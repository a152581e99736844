//! One end of the tunnels: a machine and its packet path. The daemons, the simulator and the fault harness all drive
//! it.
//!
//! The end executes the machine's `Order`s in order; consecutive probes leave in one call. At a deadline it handles
//! waiting probes first, then the due readings of paths, then the tick, then responses that wait for a ride, so that a
//! late daemon does not mistake its own lateness for silence. Packets without a binding wait here for the machine's
//! decision. An order that cannot be obeyed is a `Failure`, which daemons log and tests look for. The driver owns the
//! work in progress (`Turn`), so a driver with very many ends needs only one.

use alloc::boxed::Box;
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

/// Maximum number of packets without a binding that wait for the machine's decision; a further one replaces the oldest.
const HELD: usize = 1_024;
/// Number of readings between two heartbeats to the packet path: reading very many paths takes long on a busy machine.
const PASS: usize = 1_024;
/// More consecutive orders than this are an endless loop: an anchor with a million paths causes fewer.
const ENDLESS: usize = 1 << 24;

/// A machine at either side of the tunnels.
pub trait Side:
    Machine<Input = Input<Self::Own, Self::Record>, Output = Output<Self::Wish, Self::Record>>
{
    /// The role of this side.
    const ROLE: Role;
    /// Inputs of this role.
    type Own;
    /// Outputs to the driver that only this role has.
    type Wish;
    /// The record that it stores.
    type Record;

    /// The paths with a timer due at `now`, which need a reading first.
    fn due(&self, now: Time) -> Vec<u32>;
    /// All paths.
    fn slots(&self) -> Vec<u32>;
    /// A probe arrived.
    fn probe(probe: ProbeEvent) -> Self::Own;
    /// The measurements of a path.
    fn reading(slot: u32, reading: Reading) -> Self::Own;
    /// The counters of a path, if this side uses them.
    fn carried(slot: u32, carried: impl FnOnce() -> Carried) -> Option<Self::Own>;
    /// A flow has no binding; its packet is held.
    fn miss(key: FlowKey, dscp: u8, ticket: Ticket) -> Self::Own;
    /// When all flows were last used, if this side expires idle flows.
    fn in_use(seen: Vec<(FlowKey, Time)>) -> Option<Self::Own>;
    /// The counts of some flows.
    fn counted(round: u32, counts: Vec<Option<FlowCount>>) -> Self::Own;
    /// Several unsegmented super-packets arrived on a path.
    fn uncut(slot: u32) -> Self::Own;
    /// A test of the packet size was answered, if this side tests sizes.
    fn sized(slot: u32, token: u32) -> Option<Self::Own>;
    /// A router reported that a packet was too big.
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
        HostInput::Reading(slot, Box::new(reading))
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
        AnchorInput::Reading(slot, Box::new(reading))
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

/// An output of a side for its driver.
pub type ToDriver<M> = segue_ip::Output<<M as Side>::Wish, Report, <M as Side>::Record>;

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// An order; it has had no effect.
    Order(E),
    /// Probes were not sent. They count as lost, like probes lost on the way.
    Probes(E),
    /// No packet is held under the ticket of an order.
    Ticket(Ticket),
    /// The machine keeps producing outputs; the driver stopped polling it.
    Endless,
}

/// Progress of a turn towards its tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Determine the paths that are due.
    Due,
    /// Those paths have been read.
    Tick,
}

/// Work in progress between an end and its driver. Nothing is pending between two calls of the driver, so a driver with
/// very many ends needs only one turn. A turn starts with an event, and [`End::poll`] completes it.
#[derive(Debug)]
#[must_use]
pub struct Turn<E> {
    /// Consecutive probe orders, sent in one batch: either a single one, without an allocation, or several.
    order: Option<ProbeOrder>,
    orders: Vec<ProbeOrder>,
    /// Probes to handle before the timers that are due.
    waiting: vec::IntoIter<ProbeEvent>,
    /// Paths to read, and one whose counters the machine still needs.
    to_read: vec::IntoIter<u32>,
    carried: Option<u32>,
    /// Counts of flows that the machine still needs.
    counted: Vec<(u32, Vec<Option<FlowCount>>)>,
    stage: Stage,
    /// Operations that failed.
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
    /// The deadline has come. The machine handles waiting probes and the packet path's readings before timeouts: a late
    /// driver must not mistake its own lateness for silence.
    pub fn at_deadline(waiting: Vec<ProbeEvent>) -> Turn<E> {
        Turn { waiting: waiting.into_iter(), stage: Stage::Due, ..Turn::default() }
    }

    /// Gives the machine the packet path's readings of these paths.
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
/// The contract is that of a machine: call [`handle`](End::handle) or [`on_event`](End::on_event), or start a [`Turn`]
/// for a deadline; then call [`poll`](End::poll) with the turn until it returns `None`, then arm
/// [`deadline`](End::deadline). Meanwhile the end carries out the machine's orders to the packet path, in order; `poll`
/// returns the other outputs.
pub struct End<M: Side, D: Datapath> {
    /// The machine.
    pub machine: M,
    /// The packet path.
    pub datapath: D,
    held: BTreeMap<Ticket, D::Packet>,
    next_ticket: u64,
    /// Paths on which probes ride, and when the packet path next has to be swept for responses without a ride.
    riding: BTreeSet<u32>,
    sweep_at: Option<Time>,
    /// A probe arrived since the last sweep.
    probed: bool,
    reinjected: u64,
}

impl<M: Side, D: Datapath> End<M, D> {
    /// Creates an end.
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

    /// When to start a turn [at the deadline](Turn::at_deadline), and why.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let sweep = self.sweep_at.map(|at| (at, "a response has waited for a ride"));
        earlier(self.machine.deadline(), sweep)
    }

    /// Number of packets sent again so far.
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

    /// Handles an event of the packet path.
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

    /// Returns the machine's next output for its driver, or `None` when the turn is complete. `clock` returns the
    /// current time, which advances while very many paths are read. `changing` sees each order before it is carried
    /// out.
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
                // Probes that were ordered earlier must leave earlier.
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

    /// Like [`poll_with`](End::poll_with), for a driver that need not see orders.
    pub fn poll(
        &mut self,
        turn: &mut Turn<D::Error>,
        clock: impl Fn() -> Time,
    ) -> Option<ToDriver<M>> {
        self.poll_with(turn, clock, |_| {})
    }

    /// Gives the machine its next pending input. Returns whether there was one.
    fn go_on(&mut self, turn: &mut Turn<D::Error>, clock: &impl Fn() -> Time) -> bool {
        loop {
            // A removed path has no counters to compare with earlier ones.
            if let Some(slot) = turn.carried.take().filter(|slot| self.datapath.is_set(*slot)) {
                // Send ordered probes first, because the counters include them.
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
            // Handled above.
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

    /// Sends ordered probes. Inlined because in most cases there are none.
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

    /// Sends responses that have waited long enough for a ride. Also runs after each request, because its response may
    /// wait, and for less time than earlier ones.
    fn sweep(&mut self, now: Time) {
        // Only anchors sweep: skip without touching a host's set.
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
