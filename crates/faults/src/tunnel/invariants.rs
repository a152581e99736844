//! What must hold after every event, for one end or for a flow's path.

mod answers;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::{Config as Keepalive, Estimates};
use segue_tunnel::ProbeKind;
use segue_wire::{Probe, ProbeKey};

use self::answers::Answers;
use super::access::{Access, Node};
use super::{Tag, Tunnels, Who, all_flows};
use crate::{Violation, counters_of};
use segue_sim::tunnel::{AnchorEnd, Body, HostEffect, Message};

/// A machine that asks for more ticks than this at one instant never comes to rest.
const MAX_TICKS: u32 = 50;
/// Most messages, probes and reports of one input or tick, for each path of the end: the offers of a registration, and
/// as many reports.
const MAX_OUTPUTS_PER_PATH: usize = 16;
/// Signalling messages of a host per second: a registration with its offers, twice, and moves.
const SIGNALS: u32 = 25;
/// More of them for each fault in this second or the one before.
const SIGNALS_PER_FAULT: u32 = 15;
/// Requests per second on each path beyond 1/T_KA: the second's edge, a start, two to show a new address, and two on
/// the way to the instants of another path.
const SPARE_PROBES: u32 = 6;
/// Requests per second on each path: twice as many where they ride, since on a path that is not up bare requests leave
/// too.
fn per_second(keepalive: &Keepalive) -> u32 {
    let periods = (1_000_000_000 / keepalive.t_ka.0) as u32;
    if keepalive.rides { periods * 2 } else { periods }
}

/// Requests per second where detection follows use: questions come eight milliseconds apart, and for those about one
/// path the others have one each.
const QUESTIONS: u32 = 250;
/// Periods more until ends with rides agree: see [`settle`].
const RIDES_SETTLE: u64 = 4;
/// Stamps are whole microseconds, two in a round trip.
const STAMPS: Span = Span::from_micros(2);

/// What was last seen of a path at one end.
#[derive(Clone, Debug)]
struct Seen {
    /// Index and cookie under which the other end receives: another path has others.
    tx: (u32, u64),
    began: Time,
    counters: [u64; 9],
}

/// What was seen of the machines, for comparison with the next state.
pub(super) struct Watch {
    hosts: Vec<Load>,
    host_paths: Vec<BTreeMap<u8, Seen>>,
    anchor_paths: BTreeMap<u32, Seen>,
    /// Number of the last probe to each index with its cookie and key.
    numbers: BTreeMap<(u32, u64, [u8; 16]), u32>,
    answers: Answers,
    ticks: (Time, Who, u32),
    /// The quiet time begins.
    quiet: Time,
}

/// What a host and the anchor said to each other in the current second.
#[derive(Clone, Debug, Default)]
struct Load {
    second: u64,
    signals: u32,
    requests: u32,
    faults: [u32; 2],
    paths: u32,
    per_second: u32,
}

impl Load {
    fn turn(&mut self, now: Time) {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            let before = if second == self.second + 1 { self.faults[0] } else { 0 };
            (self.second, self.signals, self.requests) = (second, 0, 0);
            self.faults = [0, before];
        }
    }

    fn recent_faults(&self) -> u32 {
        self.faults[0] + self.faults[1]
    }
}

impl Watch {
    pub fn new(hosts: &[Node], quiet: Time, start: Time) -> Watch {
        let load = |node: &Node| Load {
            paths: node.accesses.len() as u32,
            per_second: match &node.config.path.adaptive {
                None => per_second(&node.config.path.keepalive),
                Some(_) => QUESTIONS,
            },
            ..Load::default()
        };
        Watch {
            hosts: hosts.iter().map(load).collect(),
            host_paths: hosts.iter().map(|_| BTreeMap::new()).collect(),
            anchor_paths: BTreeMap::new(),
            numbers: BTreeMap::new(),
            answers: Answers::default(),
            ticks: (start, Who::Anchor, 0),
            quiet,
        }
    }

    pub fn host_began(&mut self, host: usize) {
        self.host_paths[host].clear();
    }

    pub fn anchor_began(&mut self) {
        self.anchor_paths.clear();
        self.answers = Answers::default();
    }

    /// A fault about a host, or about all.
    pub fn on_fault(&mut self, now: Time, host: Option<usize>) {
        for (number, load) in self.hosts.iter_mut().enumerate() {
            load.turn(now);
            load.faults[0] += u32::from(host.is_none_or(|host| host == number));
        }
    }

    pub fn on_tick(&mut self, now: Time, who: Who) -> Result<(), Violation> {
        let again = (self.ticks.0, self.ticks.1) == (now, who);
        self.ticks = (now, who, if again { self.ticks.2 + 1 } else { 0 });
        Violation::unless(self.ticks.2 <= MAX_TICKS, "storm", || {
            format!("{who:?} never comes to rest")
        })
    }

    /// The outputs of one input or tick, without packets of flows that waited for a path.
    pub fn on_outputs(&self, who: Who, count: usize) -> Result<(), Violation> {
        let paths = match who {
            Who::Host(host) => self.hosts[host].paths as usize,
            Who::Anchor => self.hosts.iter().map(|load| load.paths as usize).sum(),
        };
        let most = MAX_OUTPUTS_PER_PATH * paths;
        Violation::unless(count <= most, "storm", || {
            format!("{who:?} says {count} things at once, {most} at most")
        })
    }

    pub fn on_signal(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let load = &mut self.hosts[host];
        load.turn(now);
        load.signals += 1;
        let most = SIGNALS + SIGNALS_PER_FAULT * load.recent_faults();
        Violation::unless(load.signals <= most, "storm", || {
            format!("{} messages of host {host} in a second, {most} at most", load.signals)
        })
    }

    pub fn on_host_sends(
        &mut self,
        now: Time,
        node: &Node,
        host: usize,
        message: &Message<Tag>,
    ) -> Result<(), Violation> {
        let Some((_, probe, key)) = probe_of(message) else { return Ok(()) };
        let numbers = node.end.machine.paths().map(|(number, _)| 1u16 << number);
        let known = numbers.fold(0, |word, bit| word | bit);
        Violation::unless(probe.heard & !known == 0, "paths exist", || {
            format!("host {host} hears {:b}, its paths are {known:b}", probe.heard)
        })?;
        let load = &mut self.hosts[host];
        load.turn(now);
        load.requests += 1;
        let most = load.paths * (load.per_second + SPARE_PROBES + 2 * load.recent_faults());
        Violation::unless(load.requests <= most, "storm", || {
            format!("{} requests of host {host} in a second, {most} at most", load.requests)
        })?;
        self.expect_newer(message, key, probe.seq)
    }

    pub fn on_anchor_receives(&mut self, now: Time, end: &AnchorEnd<Tag>, message: &Message<Tag>) {
        if let Some((ProbeKind::Request, probe, key)) = probe_of(message) {
            self.answers.on_request(now, end, message, key, probe.seq);
        }
    }

    pub fn on_anchor_sends(&mut self, _: Time, message: &Message<Tag>) -> Result<(), Violation> {
        match probe_of(message) {
            Some((ProbeKind::Unsolicited, probe, key)) => {
                self.expect_newer(message, key, probe.seq)
            }
            Some((ProbeKind::Response, probe, key)) => {
                self.answers.on_response(key, probe.seq);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Requests and unsolicited responses of a path have growing numbers.
    fn expect_newer(
        &mut self,
        message: &Message<Tag>,
        key: &ProbeKey,
        seq: u32,
    ) -> Result<(), Violation> {
        let path = (message.index, message.cookie, key.0);
        let before = self.numbers.insert(path, seq);
        let newer = before.is_none_or(|before| seq.wrapping_sub(before).cast_signed() > 0);
        Violation::unless(newer, "probe numbers grow", || {
            format!("number {seq} after {before:?} to index {}", message.index)
        })
    }

    pub fn check_host(&mut self, now: Time, host: usize, node: &Node) -> Result<(), Violation> {
        let end = &node.end;
        expect_obeyed(end.wrong(), &format_args!("host {host}"))?;
        let there = |slot: u8| end.machine.paths().any(|(number, _)| number == slot);
        let bound =
            end.datapath.bindings_hold() && end.machine.flows().all(|(_, flow)| there(flow.path));
        Violation::unless(bound, "paths exist", || {
            format!("a flow of host {host} is bound to a path that is gone")
        })?;
        let seen = &mut self.host_paths[host];
        // An interface that is back may, for a moment, get the grant sent for its former path.
        for (_, gone) in seen.iter().filter(|(number, _)| !there(**number)) {
            self.numbers.retain(|(index, cookie, _), _| (*index, *cookie) != gone.tx);
        }
        seen.retain(|number, _| there(*number));
        for (number, path) in end.machine.paths() {
            let Some(client) = path.client() else { continue };
            let Some(tx) = end.datapath.tx_of(u32::from(number)) else { continue };
            let Some(access) = node.access_of(u32::from(number)) else { continue };
            let what = format_args!("path {number} of host {host}");
            let before = seen.entry(number).or_insert(Seen { tx, began: now, counters: [0; 9] });
            note(before, now, tx, client.estimates(), &what)?;
            expect_sense(access, client.estimates(), &what)?;
        }
        Ok(())
    }

    pub fn check_anchor(&mut self, now: Time, end: &AnchorEnd<Tag>) -> Result<(), Violation> {
        expect_obeyed(end.wrong(), &"the anchor")?;
        Violation::unless(
            end.datapath.flows_reach_their_hosts(),
            "flows reach their hosts",
            || "a flow goes over a path of another host than its destination's".into(),
        )?;
        for host in end.machine.hosts() {
            let known = host.paths.keys().fold(0u16, |word, number| word | 1 << number);
            for slot in host.paths.values() {
                let word = end.datapath.heard(*slot);
                Violation::unless(word.is_some_and(|w| w & !known == 0), "paths exist", || {
                    format!("the anchor hears {word:?} of {}, whose paths are {known:b}", host.name)
                })?;
            }
        }
        let machine = &end.machine;
        self.anchor_paths.retain(|slot, _| machine.path(*slot).is_some());
        for (slot, path) in machine.paths() {
            let via = path.via().is_none_or(|via| machine.path(via.slot).is_some());
            Violation::unless(via, "paths exist", || {
                format!("slot {slot} goes over {:?}, which is gone", path.via())
            })?;
            let Some(tx) = end.datapath.tx_of(slot) else { continue };
            let seen = Seen { tx, began: now, counters: [0; 9] };
            let before = self.anchor_paths.entry(slot).or_insert(seen);
            let what = format_args!("the anchor's slot {slot}");
            note(before, now, tx, path.server().estimates(), &what)?;
        }
        Ok(())
    }

    /// Since when a path of a host is the one it is.
    pub fn host_path_began(&self, host: usize, number: u8) -> Option<Time> {
        self.host_paths[host].get(&number).map(|seen| seen.began)
    }

    /// The same for a slot of the anchor.
    pub fn slot_began(&self, slot: u32) -> Option<Time> {
        self.anchor_paths.get(&slot).map(|seen| seen.began)
    }

    pub fn quiet(&self) -> Time {
        self.quiet
    }
}

/// What counts as one of the outputs of [`Watch::on_outputs`].
pub(super) fn is_order(effect: &HostEffect<Tag>) -> bool {
    !matches!(effect, HostEffect::Transmit(_, message) if message.inner().is_some())
}

/// The probe that a packet is, or takes along.
fn probe_of(message: &Message<Tag>) -> Option<(ProbeKind, &Probe, &ProbeKey)> {
    match &message.body {
        Body::Probe { kind, probe, key, .. } => Some((*kind, probe, key)),
        Body::Ride(ride) => Some((ride.kind, &ride.probe, &ride.key)),
        Body::Data { .. } | Body::Size { .. } => None,
    }
}

fn expect_obeyed(
    wrong: Option<segue_sim::tunnel::Wrong>,
    who: &dyn core::fmt::Display,
) -> Result<(), Violation> {
    match wrong {
        None => Ok(()),
        Some(wrong) => Err(Violation::new("paths exist", format!("{who}: {wrong:?}"))),
    }
}

/// Takes the counts of a path: they never decrease on the same path.
fn note(
    seen: &mut Seen,
    now: Time,
    tx: (u32, u64),
    e: &Estimates,
    what: &dyn core::fmt::Display,
) -> Result<(), Violation> {
    let counters = counters_of(e);
    if seen.tx != tx {
        *seen = Seen { tx, began: now, counters };
        return Ok(());
    }
    let grow = counters.iter().zip(&seen.counters).all(|(now, before)| now >= before);
    Violation::unless(grow, "counters grow", || {
        format!("{what} had {:?} and has {counters:?}", seen.counters)
    })?;
    seen.counters = counters;
    Ok(())
}

fn expect_sense(
    access: &Access,
    e: &Estimates,
    what: &dyn core::fmt::Display,
) -> Result<(), Violation> {
    let mut losses = e.owl_up.iter().chain(&e.owl_down).chain(&e.rtl);
    Violation::unless(losses.all(|loss| (0.0..=1.0).contains(loss)), "loss is a share", || {
        format!("{what}: {e:?}")
    })?;
    let least = access.up.delays().0 + access.down.delays().0 - STAMPS;
    let most = access.rtt_max() + STAMPS;
    let spans = [e.rtt_last, e.rtt_min, e.rtt_max].into_iter().flatten();
    let averages = e.rtt_ewma.iter().map(|seconds| Span::from_secs_f64(*seconds));
    for rtt in spans.chain(averages) {
        Violation::unless((least..=most).contains(&rtt), "round trips are possible", || {
            format!("{what} measures {rtt}, the links give {least} to {most}")
        })?;
    }
    Ok(())
}

/// Time from when no path has a fault until both ends have it up and know this of each other: a period until the next
/// request, `up_after` answers a period apart, a period and a one-way delay until the report of it; and round trips for
/// the answer, for what was under way, and for an offer and its grant, whose messages may have to be sent again. Where
/// probes ride a request may come a period later, three times: the first, the last that brings it up, and the one with
/// the report; and a response may wait a period for its ride.
pub(super) fn settle(keepalive: &Keepalive, rtt_max: Span) -> Span {
    let rides = if keepalive.rides { RIDES_SETTLE } else { 0 };
    let periods = u64::from(keepalive.up_after) + 2 + rides;
    keepalive.t_ka * periods + rtt_max * 7 + super::signal::LOOK
}

impl Tunnels {
    /// No flow's packets go where they are lost for longer than eq. 1 allows, while another path lives.
    pub(super) fn expect_no_flow_on_a_dead_path(&self, now: Time) -> Result<(), Violation> {
        for (host, node) in self.hosts.iter().enumerate() {
            let dead =
                |a: &Access| a.uplink_dead_since().is_some() || a.downlink_dead_since().is_some();
            if !node.accesses.iter().any(dead) {
                continue;
            }
            for flow in all_flows().filter(|flow| node.flows[*flow].runs) {
                self.expect_uplink_alive(now, host, flow)?;
                self.expect_downlink_alive(now, host, flow)?;
            }
        }
        Ok(())
    }

    fn expect_uplink_alive(&self, now: Time, host: usize, flow: usize) -> Result<(), Violation> {
        let node = &self.hosts[host];
        let slot = node.key(flow).and_then(|key| node.end.datapath.route(&key));
        let Some((slot, access)) = slot.and_then(|slot| Some((slot, node.access_of(slot)?))) else {
            return Ok(());
        };
        let (Some(dead), true) = (access.uplink_dead_since(), access.keepalive.0) else {
            return Ok(());
        };
        let lives = |other: &Access| {
            let path = node.end.machine.paths().find(|(_, path)| path.name() == other.name);
            other.name != access.name
                && other.clean_since().is_some()
                && path.is_some_and(|(_, path)| path.is_up())
        };
        let began = self.watch.host_path_began(host, slot as u8).unwrap_or(now);
        let since = dead.max(access.keepalive.1).max(began);
        let bound = node.config.path.keepalive.t_r_max(access.rtt_max());
        let holds = now <= since + bound || !node.accesses.iter().any(lives);
        Violation::unless(holds, "no flow on a dead path", || {
            format!(
                "flow {host}.{flow} goes up over {}, dead for {}, bound {bound}",
                access.name,
                now.since(dead)
            )
        })
    }

    fn expect_downlink_alive(&self, now: Time, host: usize, flow: usize) -> Result<(), Violation> {
        let node = &self.hosts[host];
        let machine = &self.anchor.machine;
        let slot = node.key(flow).and_then(|key| self.anchor.datapath.route(&key.reversed()));
        let Some((slot, path)) = slot.and_then(|slot| Some((slot, machine.path(slot)?))) else {
            return Ok(());
        };
        let access = node.accesses.iter().find(|access| access.name == path.name);
        let Some(access) = access.filter(|access| access.keepalive.0) else { return Ok(()) };
        let Some(dead) = access.downlink_dead_since() else { return Ok(()) };
        let keepalive = &node.config.path.keepalive;
        let began = self.watch.slot_began(slot).unwrap_or(now);
        let since = dead.max(access.keepalive.1).max(began).max(node.began);
        let bound = keepalive.t_r_max(access.rtt_max());
        let lives = |other: &Access| {
            let at_host = node.end.machine.paths().find(|(_, path)| path.name() == other.name);
            let at_anchor = machine
                .paths()
                .find(|(_, its)| its.owner == path.owner && its.name == other.name && its.is_up());
            let (Some((number, at_host)), Some((slot, _)), Some(clean)) =
                (at_host, at_anchor, other.clean_since())
            else {
                return false;
            };
            let since = [
                Some(since),
                Some(clean.max(other.keepalive.1)),
                self.watch.host_path_began(host, number),
                self.watch.slot_began(slot),
            ];
            let since = since.into_iter().flatten().max().unwrap_or(now);
            other.name != access.name
                && at_host.is_up()
                && other.keepalive.0
                && now > since + bound + settle(keepalive, other.rtt_max())
        };
        Violation::unless(!node.accesses.iter().any(lives), "no flow on a dead path", || {
            format!(
                "flow {host}.{flow} comes down over {}, dead for {}, bound {bound}",
                access.name,
                now.since(dead)
            )
        })
    }
}
