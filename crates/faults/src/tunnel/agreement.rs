//! Agreement of both ends after a calm period, and the invariants at the end of a run.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use segue_clock::{Span, Time};
use segue_wire::Mode;

use super::invariants::settle;
use super::layout::{FLOWS, LARGE, SILENT, hits, shape_of};
use super::state::Tunnels;
use crate::Violation;
use crate::fault::PathRef;
use crate::truth::Truth;

/// Maximum time for which data may be lost because of their size (the bar of the MTU tests), for each narrow path
/// of their host: while one path's MTU is being discovered, the data may move to the next narrow path.
const BLACK_HOLE: Span = Span::from_secs(3);
/// Events of the same instant are still permitted.
const EDGE: Span = Span::from_millis(1);
/// A closing connection waits for acknowledgements for at most half of this.
const LINGER: Span = Span::from_secs(2);
/// MTU of an interface.
const MTU: u32 = 1_500;

/// A violation of `both ends agree`, unless it `holds`.
fn agree(holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    Violation::unless(holds, "both ends agree", what)
}

impl Tunnels {
    /// Returns true if signalling is up at both ends, over an interface that carries it.
    pub(super) fn signalling_stands(&self, host: usize) -> bool {
        let agent = self.host_agent(host);
        let Some((conn, interface)) = agent.signal().current() else { return false };
        let anchor = self.anchor_agent();
        let known = anchor.end().machine.hosts().find(|known| known.name == self.hosts[host].name);
        let there = known.and_then(|known| known.conn).and_then(|id| anchor.signal().conn(id));
        let carried = |truth: Truth<'_>| truth.access.name == interface && !truth.is_dead();
        agent.end().machine.registered()
            && there.is_some_and(|there| there.id() == conn.id())
            && self.stage.truths(host).any(carried)
    }

    /// Time since when a host and the anchor are undisturbed and signalling is up; `None` while something is
    /// wrong.
    fn calm_since(&self, host: usize) -> Option<Time> {
        let node = &self.stage.hosts[host];
        let began = node.began.max(self.reference.anchor_began);
        let mut since = node.disturbed.max(began).max(self.stage.resumed(host));
        for truth in self.stage.truths(host) {
            if truth.access.absent_since.is_none() {
                since = since.max(truth.clean_since()?);
            }
        }
        Some(since.max(self.reference.registered_since(host)?))
    }

    /// Time from which, in calm, everything sent before has arrived and the anchor knows the host's address.
    fn settled_since(&mut self, now: Time, host: usize) -> Option<Time> {
        let calm = self.calm_since(host)?;
        if let Some((since, settled)) = self.hosts[host].settled
            && since == calm
        {
            return Some(settled);
        }
        let heard = calm + self.stage.rtt_max(host);
        let agent = self.host_agent(host);
        let (conn, _) = agent.signal().current()?;
        let anchor = self.anchor_agent();
        let known = anchor.end().machine.hosts().find(|known| known.name == self.hosts[host].name);
        let there = anchor.signal().conn(known?.conn?)?;
        let settled = [conn, there].iter().all(|c| c.is_settled() && c.last_heard() >= heard);
        self.hosts[host].settled = settled.then_some((calm, now));
        settled.then_some(now)
    }

    pub(super) fn expect_agreement(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        self.note_routes(now, host);
        let Some(settled) = self.settled_since(now, host) else { return Ok(()) };
        let settles = settle(&self.hosts[host].keepalive, self.stage.rtt_max(host));
        self.expect_large_packets_pass(host, settled + settles)?;
        // A path goes down when enough probes are lost, whatever they ride on.
        let due = settled.max(self.hosts[host].lost_probe) + settles;
        if now > due {
            self.expect_paths_agree(host)?;
            self.expect_routes_agree(now, host, due)?;
            self.expect_filtered_flows_left(now, host, due)?;
        }
        let name = &self.hosts[host].name;
        let open = if now > due + LINGER { self.anchor_agent().signal().count_of(name) } else { 1 };
        Violation::unless(open == 1, "one connection", || {
            format!("{open} connections of host {host} are open at the anchor")
        })
    }

    fn expect_paths_agree(&self, host: usize) -> Result<(), Violation> {
        let (end, anchor) = (self.host_end(host), self.anchor_end());
        let known = anchor.machine.hosts().find(|known| known.name == self.hosts[host].name);
        let Some(known) = known else { return agree(false, || format!("host {host} is unknown")) };
        let inner = end.machine.inner();
        agree(inner == known.inner, || {
            format!("host {host} has {inner:?}, by the anchor {:?}", known.inner)
        })?;
        agree(self.reference.inner(host) == known.inner, || {
            format!("host {host} has {:?}, was told {:?}", known.inner, self.reference.inner(host))
        })?;
        let accesses = self.stage.hosts[host].accesses.iter();
        let present = accesses.enumerate().filter(|(_, access)| access.absent_since.is_none());
        let (wanted, at_host) = (present.clone().count(), end.machine.paths().count());
        agree((at_host, known.paths.len()) == (wanted, wanted), || {
            let at_anchor = known.paths.len();
            format!(
                "host {host} has {wanted} interfaces, {at_host} paths, {at_anchor} at the anchor"
            )
        })?;
        let all = known.paths.keys().fold(0u16, |word, number| word | 1 << number);
        for (path, _) in present {
            self.expect_path_agrees(PathRef { host, path }, all)?;
        }
        Ok(())
    }

    fn expect_path_agrees(&self, at: PathRef, all: u16) -> Result<(), Violation> {
        let (end, anchor) = (self.host_end(at.host), self.anchor_end());
        let name = &self.stage.hosts[at.host].accesses[at.path].name;
        let at_host = end.machine.paths().find(|(_, path)| path.name() == name);
        let slot = at_host
            .and_then(|(number, _)| end.datapath.tx_of(u32::from(number)))
            .map(|(slot, _)| slot);
        let at_anchor = slot.and_then(|slot| anchor.machine.path(slot));
        let (Some((number, at_host)), Some(slot), Some(at_anchor)) = (at_host, slot, at_anchor)
        else {
            return agree(false, || format!("{name} of host {} is not at both ends", at.host));
        };
        let watched = self.hosts[at.host].paths[at.path].keepalive.0;
        // If only the host measures, the anchor keeps no timer.
        let there = watched && self.hosts[at.host].keepalive.mode != Mode::Client;
        let back = anchor.datapath.tx_of(slot).map(|(index, _)| index);
        for (holds, what) in [
            (at_host.is_up(), "it is not up at the host"),
            (at_host.is_unwatched() != watched, "the host does not probe it as ordered"),
            (at_host.client().is_some_and(|client| client.heard()), "the host does not hear it"),
            (at_host.via().is_none(), "the host redirects it"),
            (at_anchor.is_watched() == there, "the anchor does not watch it as ordered"),
            (at_anchor.is_up() || !there, "it is not up at the anchor"),
            (at_anchor.via().is_none() || at_anchor.is_narrow(), "the anchor redirects it"),
            (at_anchor.name == *name, "it has another name at the anchor"),
            (at_anchor.number == number, "it has another number at the anchor"),
            (back == Some(u32::from(number)), "the anchor sends to another index"),
            (anchor.datapath.heard(slot) == Some(all), "the anchor's word lacks a path"),
        ] {
            agree(holds, || format!("{name} of host {}: {what}", at.host))?;
        }
        Ok(())
    }

    /// Notes since when each flow has had its current path.
    fn note_routes(&mut self, now: Time, host: usize) {
        for flow in 0..FLOWS {
            let slot =
                self.key(host, flow).and_then(|key| self.host_end(host).datapath.route(&key));
            let route = &mut self.hosts[host].routes[flow];
            if route.0 != slot {
                *route = (slot, now);
            }
        }
    }

    /// The downlink of a flow follows its uplink one one-way delay later, when a packet shows the anchor the
    /// path. After a move to a faster path, the last packet over the slower one still arrives and makes the
    /// anchor return to the old path until the next packet.
    fn expect_routes_agree(&self, now: Time, host: usize, due: Time) -> Result<(), Violation> {
        let known = &self.hosts[host];
        for flow in (0..FLOWS).filter(|flow| known.flows[*flow].runs && *flow != SILENT) {
            let (Some(slot), moved) = known.routes[flow] else { continue };
            let (Some((at, truth)), Some(key)) = (self.truth_of(host, slot), self.key(host, flow))
            else {
                continue;
            };
            let ways = self.stage.truths(host).map(|truth| truth.up.delays().1);
            let way = shape_of(flow).0 + ways.max().unwrap_or_default() + EDGE;
            // A packet that is lost because of its size, or filtered, does not reach the anchor.
            let lost = known.paths[at.path].lost_up.filter(|_| flow == LARGE).unwrap_or(due);
            let filtered = truth.up.filtered().filter(|(filter, _)| hits(*filter, flow));
            let lost = filtered.map_or(lost, |(_, last)| last.max(lost));
            if now <= moved.max(due).max(lost) + way {
                continue;
            }
            let anchor = self.anchor_end();
            // A path reported to the anchor as narrow carries only data that no other path carries. The anchor
            // learns the larger size once the host has tested it.
            let far = self.host_end(host).datapath.tx_of(slot).map(|(far, _)| far);
            if far.and_then(|far| anchor.machine.path(far)).is_some_and(|path| path.is_narrow()) {
                continue;
            }
            let down = anchor.datapath.route(&key.reversed());
            let down = down.and_then(|slot| anchor.machine.path(slot)).map(|path| &path.name);
            let up = &truth.access.name;
            agree(down == Some(up), || {
                format!("flow {host}.{flow} goes up over {up}, down over {down:?}")
            })?;
        }
        Ok(())
    }

    /// No path loses a flow's packets because of their size for longer than [`BLACK_HOLE`].
    fn expect_large_packets_pass(&self, host: usize, due: Time) -> Result<(), Violation> {
        let paths = self.hosts[host].paths.iter().filter(|path| path.keepalive.0);
        let lost = |path: &super::host::Path| path.too_large.iter().any(Option::is_some);
        // If only one end measures, losses of a direction are not counted: see the limits.
        let counts = self.hosts[host].keepalive.mode == Mode::Both;
        if !counts || !paths.clone().any(lost) {
            return Ok(());
        }
        let narrow = |truth: &Truth<'_>| truth.up.takes().min(truth.down.takes()) < MTU;
        let most = BLACK_HOLE * self.stage.truths(host).filter(narrow).count() as u64;
        for (path, truth) in self.hosts[host].paths.iter().zip(self.stage.truths(host)) {
            for (way, lost) in ["up", "down"].into_iter().zip(path.too_large) {
                let Some((since, last)) = lost.filter(|_| path.keepalive.0) else { continue };
                let holds = last <= since.max(due) + most;
                Violation::unless(holds, "large packets pass", || {
                    let takes = [truth.up, truth.down].map(|link| link.takes());
                    let (name, lasted) = (&truth.access.name, last.since(since));
                    format!(
                        "{name} of host {host} takes {takes:?} bytes and loses what goes {way} for {lasted}"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Invariants at the end of the quiet time.
    pub(super) fn expect_recovered(&mut self, now: Time) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let settles = settle(&self.hosts[host].keepalive, self.stage.rtt_max(host));
            let settled = self.settled_since(now, host);
            Violation::unless(settled.is_some_and(|at| now > at + settles), "recovered", || {
                let since = now.since(self.watch.quiet());
                format!(
                    "host {host} is not registered with all its paths {since} after all was mended"
                )
            })?;
            for flow in 0..FLOWS {
                let counts = &self.hosts[host].flows[flow];
                let up = counts.sent[0] > 0 || flow == SILENT;
                let sent = up && counts.sent[1] > 0;
                let of = |up: bool| {
                    let lost = self.too_large.difference(&self.arrived);
                    let of = (host, flow, up);
                    let own = lost.filter(|t| (t.host.into(), t.flow.into(), t.up) == of);
                    own.count() as u32
                };
                let arrived = [counts.received[0] + of(true), counts.received[1] + of(false)];
                Violation::unless(sent && arrived == counts.sent, "recovered", || {
                    format!("flow {host}.{flow} does not deliver everything: {counts:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// The state of all machines, one line per path.
pub(super) fn describe(tunnels: &Tunnels) -> String {
    let mut text = String::new();
    let anchor = tunnels.anchor_end();
    for host in 0..tunnels.hosts.len() {
        let agent = tunnels.host_agent(host);
        let machine = &agent.end().machine;
        let current = agent.signal().current().map(|(conn, interface)| (conn.id(), interface));
        let _ = writeln!(
            text,
            "host {host}: registered {}, signalling {current:x?}, inner {:?}",
            machine.registered(),
            machine.inner()
        );
        for truth in tunnels.stage.truths(host) {
            let (up, down) = (truth.uplink_dead_since(), truth.downlink_dead_since());
            let _ = writeln!(
                text,
                "  {}: up dead {up:?}, down dead {down:?}, clean {:?}",
                truth.access.name,
                truth.clean_since()
            );
        }
        for (number, path) in machine.paths() {
            let client = path.client().map(|client| (client.state(), client.heard()));
            let _ = writeln!(
                text,
                "  path {number} {}: {client:?}, via {:?}, probes {}",
                path.name(),
                path.via(),
                !path.is_unwatched()
            );
        }
        for (key, flow) in machine.flows() {
            let down = anchor.datapath.route(&key.reversed());
            let up = agent.end().datapath.route(key);
            let _ = writeln!(text, "  {key}: path {}, goes {up:?}, comes {down:?}", flow.path);
        }
    }
    for (slot, path) in anchor.machine.paths() {
        let _ = writeln!(
            text,
            "anchor's slot {slot}: owner {}, number {} {}: {:?}, via {:?}, watched {}, heard {:?}",
            path.owner,
            path.number,
            path.name,
            path.server().state(),
            path.via(),
            path.is_watched(),
            anchor.datapath.heard(slot)
        );
    }
    text
}
