//! A small model of the packet path of either end: slots, cookies, counters, `via`, the flow table and
//! the answers to requests.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Reading, Source};
use segue_tunnel::{PathSetup, ProbeIn, ProbeKind, ProbeOut, Redirect, Ticket};
use segue_wire::{FlowKey, Probe, ProbeKey};

use super::meter::Meter;

/// One packet of an application.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// The flow, as this packet's sender sees it.
    pub key: FlowKey,
    pub dscp: u8,
    /// Which application.
    pub app: usize,
    /// Since which reset of the application's counts.
    pub round: u32,
}

#[derive(Clone, Copy, Debug)]
pub enum Body {
    Data { data: Data, one_way: bool },
    Probe { kind: ProbeKind, k: u8, report: bool, probe: Probe, key: ProbeKey },
}

/// A packet on the wire between the two ends.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub index: u32,
    pub cookie: u64,
    pub body: Body,
}

/// Where a packet leaves: the interface and own address (host), or the host's address (anchor).
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    pub ifindex: u32,
    pub host_end: IpAddr,
}

/// What became of a packet that an application gave to the packet path.
pub enum Sent {
    Out(Outer, Packet),
    Miss(Ticket),
    Nothing,
}

/// What an arriving packet led to.
pub enum Received {
    Data(Data, u32),
    /// A probe for the machine, and the answer that goes back at once.
    Probe(ProbeIn, Option<Packet>),
    /// A probe that says nothing new, and the answer that goes back at once.
    Quiet(Option<Packet>),
    Nothing,
}

struct Slot {
    setup: PathSetup,
    via: Option<Redirect>,
    heard: u16,
    tx: u32,
    rx: u32,
    learned: Option<IpAddr>,
    /// The last source that was none, and what it has to echo.
    asked: Option<(IpAddr, u32)>,
    last_seq: Option<u32>,
    meter: Meter,
}

struct Held {
    key: FlowKey,
    since: Time,
    packets: Vec<Data>,
}

/// Packets of one flow kept while it has no binding.
const MAX_HELD: usize = 64;

#[derive(Default)]
pub struct Datapath {
    is_anchor: bool,
    /// It measures by itself, and its machine learns from readings.
    measures: bool,
    slots: BTreeMap<u32, Slot>,
    flows: BTreeMap<FlowKey, u32>,
    inner: BTreeMap<IpAddr, u32>,
    held: BTreeMap<Ticket, Held>,
    next_ticket: u64,
    pub refused: u64,
}

impl Datapath {
    pub fn of_anchor(source: Source) -> Datapath {
        Datapath { is_anchor: true, ..Datapath::of_host(source) }
    }

    pub fn of_host(source: Source) -> Datapath {
        Datapath { measures: source == Source::Readings, ..Datapath::default() }
    }

    pub fn set_path(&mut self, slot: u32, setup: PathSetup) {
        let same = |old: &Slot| {
            (old.setup.rx_cookie, old.setup.tx_cookie) == (setup.rx_cookie, setup.tx_cookie)
        };
        match self.slots.get_mut(&slot) {
            Some(old) if same(old) => old.setup = setup,
            old => {
                // A redirection outlives the path: the machine has to end it.
                let via = old.and_then(|old| old.via);
                let fresh = Slot {
                    setup,
                    via,
                    heard: 0,
                    tx: 0,
                    rx: 0,
                    learned: None,
                    asked: None,
                    last_seq: None,
                    meter: Meter::default(),
                };
                self.slots.insert(slot, fresh);
            }
        }
    }

    pub fn remove_path(&mut self, slot: u32) {
        assert!(self.slots.remove(&slot).is_some(), "removed a path that is not there: {slot}");
        for (number, other) in &self.slots {
            assert!(
                other.via.is_none_or(|via| via.slot != slot),
                "path {number} still goes over {slot}, which is removed"
            );
        }
    }

    pub fn set_via(&mut self, slot: u32, via: Option<Redirect>) {
        if let Some(via) = via {
            assert!(self.slots.contains_key(&via.slot), "via to a path that is not there");
            assert_ne!(via.slot, slot, "via to itself");
        }
        self.slots.get_mut(&slot).expect("via of a path that is not there").via = via;
    }

    pub fn set_heard(&mut self, slots: &[u32], word: u16) {
        for slot in slots {
            self.slots.get_mut(slot).expect("heard word of a path that is not there").heard = word;
        }
    }

    pub fn set_quiet(&mut self, slot: u32, quiet: bool) {
        assert!(self.measures, "quiet where each probe is needed");
        self.slots.get_mut(&slot).expect("quiet of a path that is not there").meter.quiet = quiet;
    }

    pub fn reading(&self, now: Time, slot: u32) -> Option<Reading> {
        self.slots.get(&slot).filter(|_| self.measures).map(|path| path.meter.reading(now))
    }

    pub fn set_inner(&mut self, address: IpAddr, owner: u32) {
        self.inner.insert(address, owner);
    }

    pub fn set_own(&mut self, addresses: &[IpAddr]) {
        self.inner = addresses.iter().map(|address| (*address, 0)).collect();
    }

    pub fn remove_inner(&mut self, address: IpAddr) {
        assert!(self.inner.remove(&address).is_some(), "removed an address that is not there");
    }

    pub fn bind(&mut self, key: FlowKey, slot: u32) {
        assert!(self.slots.contains_key(&slot), "bound {key} to {slot}, which is not there");
        self.flows.insert(key, slot);
    }

    pub fn unbind(&mut self, key: &FlowKey) {
        self.flows.remove(key);
    }

    /// Every binding is to a path that exists.
    pub fn bindings_hold(&self) -> bool {
        self.flows.values().all(|slot| self.slots.contains_key(slot))
    }

    /// The path that a flow's packets take, `via` followed.
    pub fn route(&self, key: &FlowKey) -> Option<u32> {
        self.next_hop(key).map(|(slot, _)| slot)
    }

    /// Packets received on all paths.
    pub fn received(&self) -> u32 {
        self.slots.values().map(|path| path.rx).sum()
    }

    pub fn heard(&self, slot: u32) -> Option<u16> {
        self.slots.get(&slot).map(|path| path.heard)
    }

    /// Index and cookie under which the other end of a path receives.
    pub fn tx_of(&self, slot: u32) -> (u32, u64) {
        let setup = &self.slots[&slot].setup;
        (setup.tx_index, setup.tx_cookie)
    }

    pub fn slots(&self) -> Vec<u32> {
        self.slots.keys().copied().collect()
    }

    fn next_hop(&self, key: &FlowKey) -> Option<(u32, bool)> {
        let slot = *self.flows.get(key)?;
        let via = self.slots.get(&slot)?.via;
        let (slot, one_way) = via.map_or((slot, false), |via| (via.slot, via.one_way));
        self.slots.contains_key(&slot).then_some((slot, one_way))
    }

    pub fn send(&mut self, now: Time, data: Data) -> Sent {
        let Some((slot, one_way)) = self.next_hop(&data.key) else { return self.hold(now, data) };
        let is_anchor = self.is_anchor;
        let path = self.slots.get_mut(&slot).expect("next_hop looked it up");
        let Some(outer) = outer_of(is_anchor, path) else { return Sent::Nothing };
        path.tx = path.tx.wrapping_add(1);
        Sent::Out(outer, packet(path, Body::Data { data, one_way }))
    }

    fn hold(&mut self, now: Time, data: Data) -> Sent {
        let recent = |held: &&mut Held| {
            held.key == data.key && now.since(held.since) < Span::from_millis(100)
        };
        if let Some(held) = self.held.values_mut().find(recent) {
            if held.packets.len() < MAX_HELD {
                held.packets.push(data);
            }
            return Sent::Nothing;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.held.insert(ticket, Held { key: data.key, since: now, packets: vec![data] });
        Sent::Miss(ticket)
    }

    pub fn take_held(&mut self, ticket: Ticket) -> Vec<Data> {
        self.held.remove(&ticket).expect("a ticket that is not held").packets
    }

    pub fn send_probe(&mut self, now: Time, order: &ProbeOut) -> Option<(Outer, Packet)> {
        let (is_anchor, measures) = (self.is_anchor, self.measures);
        let path = self.slots.get_mut(&order.slot).expect("probe on a path that is not there");
        let outer = outer_of(is_anchor, path)?;
        path.tx = path.tx.wrapping_add(1);
        let mut probe = order.probe;
        let us = now.micros32();
        probe.dt = us.wrapping_sub(order.held_since);
        if measures {
            probe.dt = us.wrapping_sub(path.meter.held_since());
            path.meter.on_order(now, is_anchor, &mut probe);
        }
        let kind = if is_anchor {
            (probe.t_ss, probe.ss, probe.r) = (us, path.tx, path.rx);
            ProbeKind::Unsolicited
        } else {
            (probe.t_sc, probe.sc) = (us, path.tx);
            ProbeKind::Request
        };
        let (k, report) = (order.k, order.report);
        let body = Body::Probe { kind, k, report, probe, key: path.setup.key };
        Some((outer, packet(path, body)))
    }

    pub fn receive(&mut self, now: Time, from: IpAddr, packet: Packet) -> Received {
        let is_anchor = self.is_anchor;
        let Some(path) = self.slots.get_mut(&packet.index) else {
            self.refused += 1;
            return Received::Nothing;
        };
        if packet.cookie != path.setup.rx_cookie {
            self.refused += 1;
            return Received::Nothing;
        }
        match packet.body {
            Body::Data { data, one_way } => {
                path.rx = path.rx.wrapping_add(1);
                let checked = if is_anchor { data.key.src } else { data.key.dst };
                if self.inner.get(&checked) != Some(&path.setup.owner) {
                    self.refused += 1;
                    return Received::Nothing;
                }
                if is_anchor && !one_way {
                    self.flows.insert(data.key.reversed(), packet.index);
                }
                Received::Data(data, packet.index)
            }
            Body::Probe { kind, k, report, probe, key } => {
                let newer =
                    path.last_seq.is_none_or(|last| (probe.seq.wrapping_sub(last) as i32) > 0);
                let fresh = kind == ProbeKind::Response || newer;
                if key != path.setup.key || !fresh || is_anchor != (kind == ProbeKind::Request) {
                    self.refused += 1;
                    return Received::Nothing;
                }
                if kind != ProbeKind::Response {
                    path.last_seq = Some(probe.seq);
                }
                path.rx = path.rx.wrapping_add(1);
                let arrival = Arrival {
                    probe,
                    at: now,
                    received: path.rx,
                    sent_at: None,
                    uncertainty: Span::ZERO,
                };
                let answer = is_anchor.then(|| {
                    let challenge = path.learn(now, from, probe.t_ss);
                    answer(now, path, probe, k, challenge)
                });
                if self.measures && !path.meter.tells(now, kind, k, &arrival, from) {
                    return Received::Quiet(answer);
                }
                let probe = ProbeIn { slot: packet.index, kind, k, report, arrival };
                Received::Probe(probe, answer)
            }
        }
    }
}

impl Slot {
    /// Takes the source of a request as where packets go if it has echoed what an answer to it said;
    /// otherwise what it has to echo, which is ahead of the clock.
    fn learn(&mut self, now: Time, from: IpAddr, echo: u32) -> Option<u32> {
        if self.learned == Some(from) {
            return None;
        }
        match self.asked {
            Some((asked, challenge)) if (asked, challenge) == (from, echo) => {
                self.learned = Some(from);
                None
            }
            Some((asked, challenge)) if asked == from => Some(challenge),
            _ => {
                let challenge = now.micros32().wrapping_add(1 << 30);
                self.asked = Some((from, challenge));
                Some(challenge)
            }
        }
    }
}

fn answer(now: Time, path: &mut Slot, request: Probe, k: u8, challenge: Option<u32>) -> Packet {
    path.tx = path.tx.wrapping_add(1);
    let probe = Probe {
        t_ss: challenge.unwrap_or(now.micros32()),
        dt: 0,
        ss: path.tx,
        r: path.rx,
        heard: path.heard,
        ..request
    };
    let (kind, key) = (ProbeKind::Response, path.setup.key);
    packet(path, Body::Probe { kind, k, report: false, probe, key })
}

fn packet(path: &Slot, body: Body) -> Packet {
    Packet { index: path.setup.tx_index, cookie: path.setup.tx_cookie, body }
}

fn outer_of(is_anchor: bool, path: &Slot) -> Option<Outer> {
    if is_anchor {
        return path.learned.map(|host_end| Outer { ifindex: 0, host_end });
    }
    let local = path.setup.local?.ip();
    path.setup.remote?;
    Some(Outer { ifindex: path.setup.ifindex, host_end: local })
}
