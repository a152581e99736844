//! What both ends must agree on once nothing has happened for a while, and what must hold at the end.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use segue_clock::{Span, Time};

use super::access::{Access, LARGE, SILENT, shape_of};
use super::invariants::settle;
use super::{Tunnels, all_flows};
use crate::Violation;
use crate::link::Link;
use crate::schedule::MTU;

/// Data may be lost for their size no longer than this, the bar of the mtu tests, for each path of their host that
/// takes less than its interface: while one is being found out, they may meet the next.
const BLACK_HOLE: Span = Span::from_secs(3);
/// Events of the same instant are not yet wrong.
const EDGE: Span = Span::from_millis(1);

impl Tunnels {
    /// Since when nothing has happened to a host or the anchor, and signalling stands; `None` while
    /// something is wrong.
    fn calm_since(&self, host: usize) -> Option<Time> {
        let node = &self.hosts[host];
        let mut since = node.disturbed.max(node.began).max(self.reference.anchor_began);
        for access in &node.accesses {
            if access.absent_since.is_none() {
                since = since.max(access.clean_since()?);
            }
        }
        Some(since.max(self.reference.registered_since(host)?))
    }

    /// From when both ends of a host's paths must agree, if nothing else happens.
    fn agreement_due(&self, host: usize) -> Option<Time> {
        let node = &self.hosts[host];
        Some(self.calm_since(host)? + settle(&node.config.path.keepalive, node.rtt_max()))
    }

    pub(super) fn expect_agreement(&mut self, now: Time) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let Some(due) = self.agreement_due(host) else { continue };
            self.note_routes(now, host);
            if now > due {
                self.expect_paths_agree(host)?;
                self.expect_routes_agree(now, host, due)?;
            }
        }
        Ok(())
    }

    fn expect_paths_agree(&self, host: usize) -> Result<(), Violation> {
        let agree = |holds: bool, what: &dyn Fn() -> String| {
            Violation::unless(holds, "both ends agree", what)
        };
        let node = &self.hosts[host];
        let known = self.anchor.machine.hosts().find(|known| known.name == node.name);
        let Some(known) = known else { return agree(false, &|| format!("host {host} is unknown")) };
        agree(node.end.machine.inner() == known.inner, &|| {
            format!(
                "host {host} has {:?}, by the anchor {:?}",
                node.end.machine.inner(),
                known.inner
            )
        })?;
        agree(self.reference.inner(host) == known.inner, &|| {
            format!("host {host} has {:?}, was told {:?}", known.inner, self.reference.inner(host))
        })?;
        let present = node.accesses.iter().filter(|access| access.absent_since.is_none());
        let (wanted, at_host) = (present.clone().count(), node.end.machine.paths().count());
        agree((at_host, known.paths.len()) == (wanted, wanted), &|| {
            format!(
                "host {host} has {wanted} interfaces, {at_host} paths, {} at the anchor",
                known.paths.len()
            )
        })?;
        let all = known.paths.keys().fold(0u16, |word, number| word | 1 << number);
        for access in present {
            self.expect_path_agrees(host, access, all)?;
        }
        Ok(())
    }

    fn expect_path_agrees(&self, host: usize, access: &Access, all: u16) -> Result<(), Violation> {
        let node = &self.hosts[host];
        let mut paths = node.end.machine.paths().filter(|(_, path)| path.name() == access.name);
        let at_host = paths.next();
        let slot = at_host
            .and_then(|(number, _)| node.end.datapath.tx_of(u32::from(number)))
            .map(|(slot, _)| slot);
        let at_anchor = slot.and_then(|slot| self.anchor.machine.path(slot));
        let (Some((number, at_host)), Some(slot), Some(at_anchor)) = (at_host, slot, at_anchor)
        else {
            let what = format!("{} of host {host} is not at both ends", access.name);
            return Err(Violation::new("both ends agree", what));
        };
        let watched = access.keepalive.0;
        let back = self.anchor.datapath.tx_of(slot).map(|(index, _)| index);
        let state = [
            (at_host.is_up(), "it is not up at the host"),
            (at_host.is_unwatched() != watched, "the host does not probe it as ordered"),
            (at_host.client().is_some_and(|client| client.heard()), "the host does not hear it"),
            (at_host.via().is_none(), "the host redirects it"),
            (at_anchor.is_watched() == watched, "the anchor does not watch it as ordered"),
            (at_anchor.is_up() || !watched, "it is not up at the anchor"),
            (at_anchor.via().is_none(), "the anchor redirects it"),
            (at_anchor.name == access.name, "it has another name at the anchor"),
            (at_anchor.number == number, "it has another number at the anchor"),
            (back == Some(u32::from(number)), "the anchor sends to another index"),
            (self.anchor.datapath.heard(slot) == Some(all), "the anchor's word lacks a path"),
        ];
        for (holds, what) in state {
            Violation::unless(holds, "both ends agree", || {
                format!("{} of host {host}: {what}", access.name)
            })?;
        }
        Ok(())
    }

    /// Notes since when each flow has gone where it goes.
    fn note_routes(&mut self, now: Time, host: usize) {
        let node = &mut self.hosts[host];
        for flow in all_flows() {
            let slot = node.key(flow).and_then(|key| node.end.datapath.route(&key));
            if node.routes[flow].0 != slot {
                node.routes[flow] = (slot, now);
            }
        }
    }

    /// The downlink of a flow follows its uplink: a packet tells the anchor, one way later. After a move to a faster
    /// path the last packet over the slower one still arrives and points to the old path once more, until the next
    /// packet.
    fn expect_routes_agree(&self, now: Time, host: usize, due: Time) -> Result<(), Violation> {
        let node = &self.hosts[host];
        for flow in all_flows().filter(|flow| node.flows[*flow].runs && *flow != SILENT) {
            let (Some(slot), moved) = node.routes[flow] else { continue };
            let (Some(access), Some(key)) = (node.access_of(slot), node.key(flow)) else {
                continue;
            };
            let ways = node.accesses.iter().map(|access| access.up.delays().1);
            let way = shape_of(flow).0 + ways.max().unwrap_or_default() + EDGE;
            // A packet lost for its size tells the anchor nothing.
            let lost = access.lost_up.filter(|_| flow == LARGE).unwrap_or(due);
            if now <= moved.max(due).max(lost) + way {
                continue;
            }
            let down = self.anchor.datapath.route(&key.reversed());
            let down = down.and_then(|slot| self.anchor.machine.path(slot));
            let same = down.is_some_and(|path| path.name == access.name);
            Violation::unless(same, "both ends agree", || {
                let down = down.map(|path| &path.name);
                format!("flow {host}.{flow} goes up over {}, down over {down:?}", access.name)
            })?;
        }
        Ok(())
    }

    /// No path takes a flow's packets that are too large for it for longer than [`BLACK_HOLE`].
    pub(super) fn expect_large_packets_pass(&self) -> Result<(), Violation> {
        for (host, node) in self.hosts.iter().enumerate() {
            let lost = |access: &Access| access.too_large.iter().flatten().next().is_some();
            if !node.accesses.iter().any(lost) {
                continue;
            }
            let Some(due) = self.agreement_due(host) else { continue };
            let narrow = |access: &&Access| access.up.takes().min(access.down.takes()) < MTU;
            let most = BLACK_HOLE * node.accesses.iter().filter(narrow).count() as u64;
            for access in node.accesses.iter().filter(|access| access.keepalive.0) {
                for (way, lost) in ["up", "down"].into_iter().zip(access.too_large) {
                    let Some((since, last)) = lost else { continue };
                    Violation::unless(last <= since.max(due) + most, "large packets pass", || {
                        let links = [&access.up, &access.down].map(Link::takes);
                        let lasted = last.since(since);
                        format!(
                            "{} of host {host} takes {links:?} bytes and loses what goes {way} for {lasted}",
                            access.name
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// At the end of the quiet time.
    pub(super) fn expect_recovered(&self, now: Time) -> Result<(), Violation> {
        for (host, node) in self.hosts.iter().enumerate() {
            let due = self.agreement_due(host);
            Violation::unless(due.is_some_and(|due| now > due), "recovered", || {
                let since = now.since(self.watch.quiet());
                format!(
                    "host {host} is not registered with all its paths {since} after all was mended"
                )
            })?;
            for flow in all_flows() {
                let counts = &node.flows[flow];
                let up = counts.up.sent > 0 || flow == SILENT;
                let sent = up && counts.down.sent > 0;
                let lost = [true, false].map(|up| {
                    let of = |at: &&(u8, u8, u32, bool)| {
                        (usize::from(at.0), usize::from(at.1), at.3) == (host, flow, up)
                    };
                    self.too_large.difference(&self.arrived).filter(of).count() as u32
                });
                let arrived = (counts.up.received + lost[0], counts.down.received + lost[1])
                    == (counts.up.sent, counts.down.sent);
                Violation::unless(sent && arrived, "recovered", || {
                    format!("flow {host}.{flow} does not deliver everything: {counts:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// The state of all machines, a line for each path.
pub(super) fn describe(tunnels: &Tunnels) -> String {
    let mut text = String::new();
    for (host, node) in tunnels.hosts.iter().enumerate() {
        let machine = &node.end.machine;
        let _ = writeln!(
            text,
            "host {host}: registered {}, signalling {:?} over {:?}, inner {:?}",
            machine.registered(),
            node.conn,
            machine.signal_interface(),
            machine.inner()
        );
        for access in &node.accesses {
            let (up, down) = (access.uplink_dead_since(), access.downlink_dead_since());
            let _ = writeln!(
                text,
                "  {}: index {}, {} as {}, up dead {up:?}, down dead {down:?}, clean {:?}",
                access.name,
                access.ifindex,
                access.inside,
                access.outside,
                access.clean_since()
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
            let down = tunnels.anchor.datapath.route(&key.reversed());
            let up = node.end.datapath.route(key);
            let _ = writeln!(text, "  {key}: path {}, goes {up:?}, comes {down:?}", flow.path);
        }
    }
    for (slot, path) in tunnels.anchor.machine.paths() {
        let _ = writeln!(
            text,
            "anchor's slot {slot}: owner {}, number {} {}: {:?}, via {:?}, watched {}, heard {:?}",
            path.owner,
            path.number,
            path.name,
            path.server().state(),
            path.via(),
            path.is_watched(),
            tunnels.anchor.datapath.heard(slot)
        );
    }
    text
}
