//! Dead paths: no traffic uses them for longer than eq. 1 allows.

use alloc::format;

use segue_clock::Time;
use segue_keepalive::Config as Keepalive;

use super::super::host::Path;
use super::super::layout::FLOWS;
use super::super::state::Tunnels;
use super::settle;
use crate::Violation;
use crate::truth::Truth;

impl Tunnels {
    /// No flow's packets are sent over a dead path for longer than eq. 1 allows while another path is alive.
    pub(in super::super) fn expect_no_flow_on_a_dead_path(
        &self,
        now: Time,
        host: usize,
    ) -> Result<(), Violation> {
        if !self.stage.truths(host).any(|truth| truth.is_dead()) {
            return Ok(());
        }
        for flow in (0..FLOWS).filter(|flow| self.hosts[host].flows[*flow].runs) {
            self.expect_uplink_alive(now, host, flow)?;
            self.expect_downlink_alive(now, host, flow)?;
        }
        self.expect_detection_at_host(now, host)?;
        self.expect_detection_at_anchor(now, host)
    }

    /// Eq. 1 at the host: it reports a path as down in time when either direction is dead.
    fn expect_detection_at_host(&self, now: Time, host: usize) -> Result<(), Violation> {
        let known = &self.hosts[host];
        for (number, path) in self.host_end(host).machine.paths().filter(|(_, path)| path.is_up()) {
            let Some((at, truth)) = self.truth_of(host, u32::from(number)) else { continue };
            let state = known.paths[at.path].keepalive;
            let dead = [truth.uplink_dead_since(), truth.downlink_dead_since()];
            let Some(dead) = dead.into_iter().flatten().min().filter(|_| state.0) else { continue };
            let began = self.watch.host_path_began(host, number).unwrap_or(now);
            let bound = known.keepalive.t_r_max(truth.rtt().1);
            let since = dead.max(state.1).max(began).max(self.stage.resumed(host));
            let holds = now <= since + bound;
            Violation::unless(holds, "detection within eq. 1", || {
                let (name, for_how_long) = (path.name(), now.since(dead));
                format!("host {host} has {name} up, dead for {for_how_long}, bound {bound}")
            })?;
        }
        Ok(())
    }

    fn expect_uplink_alive(&self, now: Time, host: usize, flow: usize) -> Result<(), Violation> {
        let end = self.host_end(host);
        let slot = self.key(host, flow).and_then(|key| end.datapath.route(&key));
        let found = slot.and_then(|slot| Some((slot, self.truth_of(host, slot)?)));
        let Some((slot, (at, truth))) = found else { return Ok(()) };
        let known = &self.hosts[host];
        let switched = known.paths[at.path].keepalive;
        let (Some(dead), true) = (truth.uplink_dead_since(), switched.0) else { return Ok(()) };
        let lives = |other: Truth<'_>| {
            let name = &other.access.name;
            let path = end.machine.paths().find(|(_, path)| path.name() == name);
            *name != truth.access.name
                && other.clean_since().is_some()
                && path.is_some_and(|(_, path)| path.is_up())
        };
        let began = self.watch.host_path_began(host, slot as u8).unwrap_or(now);
        let since = dead.max(switched.1).max(began).max(self.stage.resumed(host));
        let bound = known.keepalive.t_r_max(truth.rtt().1);
        let holds = now <= since + bound || !self.stage.truths(host).any(lives);
        Violation::unless(holds, "no flow on a dead path", || {
            format!(
                "flow {host}.{flow} goes up over {}, dead for {}, bound {bound}",
                truth.access.name,
                now.since(dead)
            )
        })
    }

    fn expect_downlink_alive(&self, now: Time, host: usize, flow: usize) -> Result<(), Violation> {
        let known = &self.hosts[host];
        let (end, anchor) = (self.host_end(host), self.anchor_end());
        let machine = &anchor.machine;
        let slot = self.key(host, flow).and_then(|key| anchor.datapath.route(&key.reversed()));
        let Some((slot, path)) = slot.and_then(|slot| Some((slot, machine.path(slot)?))) else {
            return Ok(());
        };
        let truths = self.stage.truths(host).zip(&known.paths);
        let on = truths.clone().find(|(truth, _)| truth.access.name == path.name);
        let Some((truth, state)) = on.filter(|(_, state)| state.keepalive.0) else {
            return Ok(());
        };
        let Some(dead) = truth.downlink_dead_since() else { return Ok(()) };
        let began = self.watch.slot_began(slot).unwrap_or(now);
        let resumed = self.stage.resumed(host).max(self.stage.hosts[host].began);
        let since = dead.max(state.keepalive.1).max(began).max(resumed);
        let bound = known.keepalive.t_r_max(truth.rtt().1);
        let lives = |(other, state): (Truth<'_>, &Path)| {
            let name = &other.access.name;
            let at_host = end.machine.paths().find(|(_, path)| path.name() == name);
            let at_anchor = machine
                .paths()
                .find(|(_, its)| its.owner == path.owner && its.name == *name && its.is_up());
            let (Some((number, at_host)), Some((slot, _)), Some(clean)) =
                (at_host, at_anchor, other.clean_since())
            else {
                return false;
            };
            let since = [
                Some(since),
                Some(clean.max(state.keepalive.1)),
                self.watch.host_path_began(host, number),
                self.watch.slot_began(slot),
            ];
            let since = since.into_iter().flatten().max().unwrap_or(now);
            *name != truth.access.name
                && at_host.is_up()
                && state.keepalive.0
                && now > since + bound + settle(&known.keepalive, other.rtt().1)
        };
        Violation::unless(!truths.clone().any(lives), "no flow on a dead path", || {
            format!(
                "flow {host}.{flow} comes down over {}, dead for {}, bound {bound}",
                truth.access.name,
                now.since(dead)
            )
        })
    }

    /// Eq. 1 at the anchor, with K and T_KA in force there: it reports a path as down in time when the uplink is
    /// dead.
    fn expect_detection_at_anchor(&self, now: Time, host: usize) -> Result<(), Violation> {
        let anchor = self.anchor_end();
        let known = &self.hosts[host];
        let there = anchor.machine.hosts().find(|there| there.name == known.name);
        let slots = there.into_iter().flat_map(|there| there.paths.values());
        for (slot, path) in slots.filter_map(|slot| Some((*slot, anchor.machine.path(*slot)?))) {
            let truths = self.stage.truths(host).zip(&known.paths);
            let on = truths.clone().find(|(truth, _)| truth.access.name == path.name);
            let Some((truth, state)) = on.filter(|(_, state)| state.keepalive.0) else { continue };
            let Some(dead) = truth.uplink_dead_since() else { continue };
            // It may have been told late to watch the path, and if only the host measures it keeps no timer.
            let Some(watched) = self.watch.watched(slot) else { continue };
            let since = dead.max(state.keepalive.1).max(watched).max(self.stage.resumed(host));
            let (k, t_ka) = path.keepalive();
            let keepalive = Keepalive { k, t_ka, ..known.keepalive.clone() };
            let bound = keepalive.t_r_max(truth.rtt().1);
            let holds = !path.is_up() || now <= since + bound;
            Violation::unless(holds, "detection within eq. 1", || {
                let (name, for_how_long) = (&path.name, now.since(dead));
                format!(
                    "the anchor has {name} of host {host} up, dead for {for_how_long}, bound {bound}"
                )
            })?;
        }
        Ok(())
    }
}
