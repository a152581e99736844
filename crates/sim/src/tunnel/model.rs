//! A model of the packet path of either end: slots, cookies, counters, `via`, the flow table, and answers to
//! requests including rides. It follows `docs/wire/tunnel-and-probe.md` like the daemons' packet paths, without
//! the packets of Salsano 2018.

mod orders;
mod rides;
mod sizes;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Copies, MeasuredBy, Probing};
use segue_tunnel::{ProbeEvent, ProbeKind, Ticket};
use segue_wire::{FlowKey, Probe, ProbeKey};

pub(super) use self::orders::Unbound;
use super::message::{Body, Inner, Message, Outer, Ride};
use super::meter::Meter;
use super::rides::{Request, Rider};
use super::slot::Slot;

/// The outcome of sending a packet.
#[derive(Clone, Debug)]
pub enum Sent<P> {
    /// It leaves.
    Out(Outer, Message<P>),
    /// Its flow has no binding: the packet is held until the machine decides.
    Miss(Unbound),
    /// It was queued with an earlier packet of its flow, or dropped.
    Nothing,
}

/// The outcome of receiving a packet.
#[derive(Clone, Debug)]
pub enum Received<P> {
    /// An inner packet that arrived over the path in this slot.
    Data(Inner<P>, u32),
    /// A probe for the machine, and the answer to return at once.
    Probe(ProbeEvent, Option<(Outer, Message<P>)>),
    /// A probe without news, or a packet size probe, and the answer to return at once.
    Quiet(Option<(Outer, Message<P>)>),
    /// The outcomes of the inner packet and of the probe that rode on it.
    Ride(Box<[Received<P>; 2]>),
    /// The answer to a packet size probe on the path in this slot, with its token.
    Size(u32, u32),
    /// It was refused.
    Nothing,
}

/// An invalid order of a machine. It indicates a bug of the machine, and only tests check for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It names a path that does not exist.
    NoPath(u32),
    /// The first path is being removed while the second still goes over it.
    StillUsed(u32, u32),
    /// A redirection from a path to itself.
    ViaItself(u32),
    /// Probes would be withheld although the machine needs each of them.
    Quiet(u32),
    /// A flow bound to a path that does not exist.
    Bound(FlowKey, u32),
    /// A flow bound to a path of a host that does not own its destination.
    OthersPath(FlowKey, u32),
    /// Removal or MTU of an unknown address.
    NoAddress(IpAddr),
    /// A ticket without a held packet.
    NoTicket(Ticket),
    /// A host's path without addresses or interface.
    NoEnds(u32),
    /// The machine does not stop producing outputs.
    Endless,
}

/// Packets of a flow without a binding.
struct Held<P> {
    ticket: Ticket,
    key: FlowKey,
    since: Time,
    packets: Vec<Inner<P>>,
}

/// A flow's path, and when it was last used.
#[derive(Clone, Copy)]
struct Bound {
    slot: u32,
    /// The path's receive cookie; a later path in the same slot has another one.
    cookie: u64,
    seen: Time,
    /// Packets sent on that path, their bytes, and packets received over it.
    sent: u32,
    bytes: u64,
    received: u32,
}

/// The fields of a probe apart from its measurement data.
struct Head {
    kind: ProbeKind,
    k: u8,
    report: bool,
    question: bool,
    age: u8,
    /// It did not ride.
    alone: bool,
}

/// Maximum number of held packets per flow without a binding.
const MAX_HELD: usize = 64;
/// How long packets are held, counted from the first held packet of the flow.
const HOLD: Span = Span::from_millis(100);

/// The packet path of one end. Inner packets carry an opaque payload `P`.
pub struct Model<P> {
    /// Current time, set by the driver.
    pub(super) now: Time,
    is_anchor: bool,
    /// The packet path measures, and its machine uses readings.
    measures: bool,
    /// Indexed by slot number. Boxed, since an anchor's table has holes and grows.
    slots: Vec<Option<Box<Slot>>>,
    flows: BTreeMap<FlowKey, Bound>,
    inner: BTreeMap<IpAddr, u32>,
    /// The largest packet into the tunnel (host) or to an inner address (anchor), in bytes. The model itself
    /// accepts every size.
    mtu: Option<u16>,
    mtus: BTreeMap<IpAddr, u16>,
    held: Vec<Held<P>>,
    next_ticket: u64,
    refused: u64,
    wrong: Option<Wrong>,
    /// A path whose driver must be called.
    call: Option<u32>,
    /// Timers of the paths with rides.
    timers: BTreeSet<(Time, u32)>,
    /// The most recently sent packets of each path that follows its use and has carried data.
    copies: BTreeMap<u32, Copies<Inner<P>>>,
    /// Packets that leave because of orders, until the driver takes them.
    sent: Vec<(Outer, Message<P>)>,
}

impl<P: Clone> Model<P> {
    /// The packet path of an anchor. It measures if its machine uses readings.
    #[must_use]
    pub fn of_anchor(measured_by: MeasuredBy) -> Model<P> {
        Model { is_anchor: true, ..Model::of_host(measured_by) }
    }

    /// The packet path of a host. It measures if its machine uses readings.
    #[must_use]
    pub fn of_host(measured_by: MeasuredBy) -> Model<P> {
        Model {
            now: Time::ZERO,
            is_anchor: false,
            measures: measured_by == MeasuredBy::PacketPath,
            slots: Vec::new(),
            flows: BTreeMap::new(),
            inner: BTreeMap::new(),
            mtu: None,
            mtus: BTreeMap::new(),
            held: Vec::new(),
            next_ticket: 0,
            refused: 0,
            wrong: None,
            call: None,
            timers: BTreeSet::new(),
            copies: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    /// A path whose packets go over `slot` although that path does not exist.
    fn user_of(&self, slot: u32) -> Option<u32> {
        let uses = |(_, path): &(u32, &Slot)| path.via.is_some_and(|via| via.slot == slot);
        self.paths().find(uses).map(|(number, _)| number)
    }

    /// Like [`Model::warm`], for the fields that every call reads.
    #[must_use]
    pub fn warm_all(&self) -> u64 {
        self.now.0 ^ self.refused ^ self.sent.len() as u64
    }

    /// Returns true if packets ordered by the machine are waiting to leave.
    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Takes the packets that left because of orders since the last call.
    pub(crate) fn take_sent(&mut self) -> Vec<(Outer, Message<P>)> {
        core::mem::take(&mut self.sent)
    }

    /// Takes the path of which the driver must read the counters at once, because data follow a silence.
    pub(crate) fn take_call(&mut self) -> Option<u32> {
        self.call.take()
    }

    /// Checks that every binding and every redirection leads to an existing path. Visits all of them.
    #[must_use]
    pub fn bindings_hold(&self) -> bool {
        let there = |slot: u32| self.path(slot).is_some();
        self.flows.values().all(|bound| there(bound.slot))
            && self.paths().all(|(_, path)| path.via.is_none_or(|via| there(via.slot)))
    }

    /// Checks that every routed flow takes a path of the host that owns its destination (anchor).
    #[must_use]
    pub fn flows_reach_their_hosts(&self) -> bool {
        let owner = |slot: u32| self.path(slot).map(|path| path.setup.owner);
        self.flows.iter().all(|(key, bound)| {
            let hop = self.next_hop(bound).map(|(slot, _)| slot);
            hop.is_none_or(|slot| owner(slot) == self.inner.get(&key.dst).copied())
        })
    }

    /// The first invalid order.
    #[must_use]
    pub fn wrong(&self) -> Option<Wrong> {
        self.wrong
    }

    /// Notes an invalid order; only the first one is kept.
    pub(super) fn note(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// The path that a flow's packets take, after redirection.
    #[must_use]
    pub fn route(&self, key: &FlowKey) -> Option<u32> {
        self.next_hop(self.flows.get(key)?).map(|(slot, _)| slot)
    }

    /// The bound flows and their paths.
    pub fn bindings(&self) -> impl Iterator<Item = (&FlowKey, u32)> {
        self.flows.iter().map(|(key, bound)| (key, bound.slot))
    }

    /// The bound flows, and when a packet of each was last sent or received.
    pub fn seen(&self) -> impl Iterator<Item = (FlowKey, Time)> {
        self.flows.iter().map(|(key, bound)| (*key, bound.seen))
    }

    /// Packets received on all paths since each was set up.
    #[must_use]
    pub fn received(&self) -> u32 {
        self.paths().map(|(_, path)| path.rx).sum()
    }

    /// Packets refused because of an unknown index, a wrong cookie, key or inner address, or an outdated request.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Counts a packet that is malformed or has a wrong authenticator.
    pub(super) fn refuse(&mut self) {
        self.refused += 1;
    }

    /// The `heard` word in a path's answers (anchor).
    #[must_use]
    pub fn heard(&self, slot: u32) -> Option<u16> {
        self.path(slot).map(|path| path.heard)
    }

    /// Index and cookie under which the peer receives on a path.
    #[must_use]
    pub fn tx_of(&self, slot: u32) -> Option<(u32, u64)> {
        self.path(slot).map(|path| (path.setup.tx_index, path.setup.tx_cookie))
    }

    /// The key of a path's probes.
    #[must_use]
    pub fn key_of(&self, slot: u32) -> Option<ProbeKey> {
        self.path(slot).map(|path| path.setup.key)
    }

    /// Probing settings and packet format of a path.
    #[must_use]
    pub fn probing_of(&self, slot: u32) -> Option<Probing> {
        self.path(slot).map(|path| path.setup.probing)
    }

    /// Returns true if the destination of a path's packets is known.
    #[must_use]
    pub fn is_shown(&self, slot: u32) -> bool {
        self.path(slot).is_some_and(|path| path.outer(self.is_anchor).is_some())
    }

    /// Returns true if a path with this key receives under this index and cookie.
    #[must_use]
    pub fn is_path(&self, index: u32, cookie: u64, key: &ProbeKey) -> bool {
        let setup = self.path(index).map(|path| &path.setup);
        setup.is_some_and(|setup| (setup.rx_cookie, &setup.key) == (cookie, key))
    }

    /// Reads the memory that the next packet of a path will need. A driver of very many ends does this for
    /// several of them ahead of time, so that cache misses overlap; the returned number is meaningless.
    #[must_use]
    pub fn warm(&self, slot: u32) -> u64 {
        self.path(slot).map_or(0, |path| {
            path.setup.rx_cookie
                ^ u64::from(path.tx ^ path.heard as u32)
                ^ path.meter.as_deref().map_or(0, Meter::warm)
        })
    }

    /// The paths that exist.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.paths().map(|(slot, _)| slot)
    }

    fn paths(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let numbered = self.slots.iter().zip(0..);
        numbered.filter_map(|(path, slot)| Some((slot, path.as_deref()?)))
    }

    fn path(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)?.as_deref()
    }

    /// A path named by an order.
    fn path_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let path = self.slots.get_mut(slot as usize).and_then(Option::as_deref_mut);
        if path.is_none() {
            self.wrong.get_or_insert(Wrong::NoPath(slot));
        }
        path
    }

    /// The path of a flow's packets, and whether only this direction takes it. Ignores a path that has replaced
    /// another in its slot, and never uses a path of another host.
    fn next_hop(&self, bound: &Bound) -> Option<(u32, bool)> {
        let path = self.path(bound.slot).filter(|path| path.setup.rx_cookie == bound.cookie)?;
        let Some(via) = path.via else { return Some((bound.slot, false)) };
        let over = self.path(via.slot).filter(|over| over.setup.owner == path.setup.owner);
        over.map(|_| (via.slot, via.one_way))
    }

    /// Sends a packet of an application.
    pub fn send(&mut self, now: Time, inner: Inner<P>) -> Sent<P> {
        match self.hop_of(now, &inner.key) {
            Some(hop) => {
                let sent = self.send_over(now, hop, inner);
                sent.map_or(Sent::Nothing, |(outer, message)| Sent::Out(outer, message))
            }
            None => self.hold(now, inner),
        }
    }

    /// Sends a held packet; `None` if its flow still has no binding.
    fn send_bound(&mut self, now: Time, inner: Inner<P>) -> Option<(Outer, Message<P>)> {
        let hop = self.hop_of(now, &inner.key)?;
        self.send_over(now, hop, inner)
    }

    /// Looks up the path for a packet of a flow, and notes the use of the flow.
    fn hop_of(&mut self, now: Time, key: &FlowKey) -> Option<(u32, bool)> {
        let bound = self.flows.get_mut(key)?;
        bound.seen = now;
        let bound = *bound;
        self.next_hop(&bound)
    }

    fn send_over(
        &mut self,
        now: Time,
        hop: (u32, bool),
        inner: Inner<P>,
    ) -> Option<(Outer, Message<P>)> {
        let (slot, one_way) = hop;
        let is_anchor = self.is_anchor;
        let path = self.path_mut(slot)?;
        let outer = path.outer(is_anchor)?;
        path.tx = path.tx.wrapping_add(1);
        path.bytes[0] += u64::from(inner.bytes);
        if let Some(bound) = self.flows.get_mut(&inner.key).filter(|bound| bound.slot == slot) {
            bound.sent = bound.sent.wrapping_add(1);
            bound.bytes += u64::from(inner.bytes);
        }
        let path = self.path_mut(slot)?;
        let calls = !is_anchor && path.carries(now, inner.bytes, None);
        let age = path.age(now);
        if path.setup.probing.follows_use {
            self.copies.entry(slot).or_default().keep(now, || inner.clone());
        }
        let rider = self.rider(now, slot, &outer, &inner);
        let path = self.path_mut(slot)?;
        let message = path.message(match rider {
            None => Body::Data { inner, one_way, age },
            Some(Rider { kind, k, probe }) => {
                let key = path.setup.key;
                Body::Ride(Box::new(Ride { inner, one_way, age, kind, k, probe, key }))
            }
        });
        self.call = calls.then_some(slot).or(self.call);
        Some((outer, message))
    }

    fn hold(&mut self, now: Time, inner: Inner<P>) -> Sent<P> {
        let recent = |held: &&mut Held<P>| held.key == inner.key && now.since(held.since) < HOLD;
        if let Some(held) = self.held.iter_mut().find(recent) {
            if held.packets.len() < MAX_HELD {
                held.packets.push(inner);
            }
            return Sent::Nothing;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let (key, dscp) = (inner.key, inner.dscp);
        self.held.push(Held { ticket, key, since: now, packets: vec![inner] });
        Sent::Miss(Unbound { ticket, key, dscp })
    }

    /// Takes the packets held under a ticket, in order of arrival.
    fn take_held(&mut self, ticket: Ticket) -> Vec<Inner<P>> {
        let Some(place) = self.held.iter().position(|held| held.ticket == ticket) else {
            self.note(Wrong::NoTicket(ticket));
            return Vec::new();
        };
        let packets = self.held.remove(place).packets;
        if self.held.is_empty() {
            // Free the memory: few of a million hosts hold a packet at any time.
            self.held = Vec::new();
        }
        packets
    }

    /// Handles a packet of the peer from `from` to the local address `to`.
    pub fn receive(
        &mut self,
        now: Time,
        from: SocketAddr,
        to: SocketAddr,
        message: Message<P>,
    ) -> Received<P> {
        let path = self.slots.get_mut(message.index as usize).and_then(Option::as_deref_mut);
        let Some(path) = path.filter(|path| message.cookie == path.setup.rx_cookie) else {
            self.refused += 1;
            return Received::Nothing;
        };
        match message.body {
            Body::Data { inner, one_way, age } => {
                self.receive_data(now, message.index, inner, (one_way, age))
            }
            Body::Ride(ride) => {
                let Ride { inner, one_way, age, kind, k, probe, key } = *ride;
                let wrong = (kind == ProbeKind::Request) != self.is_anchor;
                if path.rides.is_none() || wrong || key != path.setup.key {
                    self.refused += 1;
                    return Received::Nothing;
                }
                let data = self.receive_data(now, message.index, inner, (one_way, age));
                let (report, question, alone) = (false, false, false);
                let head = Head { kind, k, report, question, age: 0, alone };
                let probe = self.receive_probe(now, (from, to), message.index, head, probe);
                Received::Ride(Box::new([data, probe]))
            }
            Body::Size { size, dscp, key } => {
                if key != path.setup.key {
                    self.refused += 1;
                    return Received::Nothing;
                }
                if !self.is_anchor {
                    return Received::Size(message.index, size.token);
                }
                let answer = path.message(Body::Size { size: size.answered(), dscp, key });
                Received::Quiet(path.outer(true).map(|outer| (outer, answer)))
            }
            Body::Probe { kind, k, report, question, age, probe, key } => {
                if key != path.setup.key {
                    self.refused += 1;
                    return Received::Nothing;
                }
                let head = Head { kind, k, report, question, age, alone: true };
                self.receive_probe(now, (from, to), message.index, head, probe)
            }
        }
    }

    /// Handles a probe between the addresses `ends` that carries the path's key.
    fn receive_probe(
        &mut self,
        now: Time,
        ends: (SocketAddr, SocketAddr),
        slot: u32,
        head: Head,
        probe: Probe,
    ) -> Received<P> {
        let (is_anchor, measures) = (self.is_anchor, self.measures);
        let Head { kind, k, report, question, age, alone } = head;
        let Some(path) = self.path_mut(slot) else { return Received::Nothing };
        let is_response = kind == ProbeKind::Response;
        let counts = path.takes(is_anchor, kind, &probe)
            && match (&mut path.meter, &path.rides) {
                _ if !is_response => true,
                (Some(meter), _) => meter.counts(probe.seq),
                (None, Some(rides)) => !rides.never_sent(probe.seq),
                (None, None) => true,
            };
        if !counts {
            self.refused += 1;
            return Received::Nothing;
        }
        path.rx = path.rx.wrapping_add(u32::from(alone && !question));
        path.heard_at = Some(now);
        let received = path.rx;
        if let Some(rides) = path.rides.as_deref_mut().filter(|_| is_response && !measures) {
            rides.answered(now, &probe, received);
        }
        let request = Request { probe, k, question, alone };
        let answer = is_anchor.then(|| self.respond(now, ends, slot, request)).flatten();
        let arrival = Arrival { question, ..Arrival::new(probe, now, received) };
        let Some(path) = self.path_mut(slot) else { return Received::Nothing };
        let meter = path.meter.as_deref_mut();
        let has_news = meter.is_none_or(|meter| meter.tells(now, kind, k, &arrival, ends.0));
        if !has_news && age == 0 {
            return Received::Quiet(answer);
        }
        let (remote, kernel_stamp) = (ends.0, true);
        let event = ProbeEvent { slot, kind, k, report, age, arrival, remote, kernel_stamp };
        Received::Probe(event, answer)
    }

    /// Handles an inner packet with the fields of its header: one-way flag and age.
    fn receive_data(
        &mut self,
        now: Time,
        slot: u32,
        inner: Inner<P>,
        (one_way, age): (bool, u8),
    ) -> Received<P> {
        let is_anchor = self.is_anchor;
        let Some(path) = self.path_mut(slot) else { return Received::Nothing };
        path.rx = path.rx.wrapping_add(1);
        path.bytes[1] += u64::from(inner.bytes);
        path.heard_at = Some(now);
        let (owner, cookie) = (path.setup.owner, path.setup.rx_cookie);
        let calls = !is_anchor && path.carries(now, inner.bytes, Some(age));
        self.call = calls.then_some(slot).or(self.call);
        let checked = if self.is_anchor { inner.key.src } else { inner.key.dst };
        if self.inner.get(&checked) != Some(&owner) {
            self.refused += 1;
            return Received::Nothing;
        }
        let key = inner.key.reversed();
        let is_bound = |bound: &&mut Bound| (bound.slot, bound.cookie) == (slot, cookie);
        let learns = self.is_anchor && !one_way;
        if let Some(bound) = self.flows.get_mut(&key).filter(|bound| !learns || is_bound(bound)) {
            bound.seen = now;
            bound.received = bound.received.wrapping_add(u32::from(is_bound(&bound)));
        } else if learns {
            let bound = Bound { slot, cookie, seen: now, sent: 0, bytes: 0, received: 1 };
            self.flows.insert(key, bound);
        }
        Received::Data(inner, slot)
    }
}
