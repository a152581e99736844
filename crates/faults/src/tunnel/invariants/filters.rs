//! Loss reports of hosts: filtered flows leave their path, and packets reported as lost were really lost.

use alloc::format;

use segue_clock::{Span, Time};
use segue_keepalive::size::Direction;
use segue_keepalive::{Counted, LossVerdict};
use segue_sim::net::FaultyLink;
use segue_sim::tunnel::HostAgent;
use segue_tunnel::Report;
use segue_wire::Mode;

use super::super::layout::{APP_PORT, FLOWS, LARGE, SILENT, hits};
use super::super::state::Tunnels;
use super::LOOK;
use crate::Violation;
use crate::truth::Truth;

/// Time within which a filtered flow leaves its path, if it sends at least fourteen packets per second.
const LEFT: Span = Span::from_secs(6);
/// Maximum time from the last packet that a filter dropped to the report of the filter, given how far back
/// counters go.
const NAMED: Span = Span::from_secs(10);
/// The MTU of an interface.
const MTU: u32 = 1_500;

fn link_of(truth: Truth<'_>, direction: Direction) -> &FaultyLink {
    if direction == Direction::Up { truth.up } else { truth.down }
}

impl Tunnels {
    /// Checks new loss reports.
    pub(in super::super) fn expect_true_losses(
        &mut self,
        now: Time,
        host: usize,
    ) -> Result<(), Violation> {
        let agent = self.stage.agent::<HostAgent>(self.hosts[host].agent);
        let reports = agent.reports();
        for (_, report) in reports.get(self.hosts[host].reports..).unwrap_or_default() {
            match report {
                Report::FlowFiltered { flow, path, direction, counted, .. } => {
                    let flow = usize::from(flow.sport.wrapping_sub(APP_PORT));
                    self.expect_filter(now, (host, flow), path, *direction, *counted)?;
                }
                Report::PathLoss { path, direction, verdict: Some(verdict), .. } => {
                    self.expect_loss(host, path, *direction, verdict)?;
                }
                _ => {}
            }
        }
        self.hosts[host].reports = reports.len();
        Ok(())
    }

    /// Only flows whose packets were dropped by a filter, or by a link with a smaller size limit, may be reported
    /// as filtered.
    fn expect_filter(
        &self,
        now: Time,
        (host, flow): (usize, usize),
        path: &str,
        direction: Direction,
        counted: Counted,
    ) -> Result<(), Violation> {
        let truth = self.stage.truths(host).find(|truth| truth.access.name == path);
        let drops = |truth: Truth<'_>| {
            let link = link_of(truth, direction);
            let recent = link.filtered().filter(|(_, last)| now.since(*last) <= NAMED);
            recent.is_some_and(|(filter, _)| hits(filter, flow))
                || flow == LARGE && link.takes() < MTU
        };
        Violation::unless(truth.is_some_and(drops), "only filtered flows are called so", || {
            let direction = direction.name();
            format!("flow {host}.{flow} is called filtered on {path}: {counted} {direction}")
        })
    }

    /// A loss verdict must be based on packets from a time in which the path was not free of faults.
    fn expect_loss(
        &self,
        host: usize,
        path: &str,
        direction: Direction,
        verdict: &LossVerdict,
    ) -> Result<(), Violation> {
        let Some(truth) = self.stage.truths(host).find(|truth| truth.access.name == path) else {
            return Ok(());
        };
        // A pair of counters is at most one round trip old.
        let from = verdict.since - self.stage.rtt_max(host) * 2 - LOOK;
        let node = &self.stage.hosts[host];
        let began = node.began.max(self.reference.anchor_began).max(self.stage.resumed(host));
        let link = link_of(truth, direction);
        let filtered = link.filtered().is_some_and(|(_, last)| last >= from);
        let whole = truth.clean_since().is_some_and(|at| at.max(node.disturbed).max(began) < from);
        let holds = !whole || filtered || link.takes() < MTU;
        Violation::unless(holds, "only lost packets are called lost", || {
            let (counted, direction) = (verdict.counted, direction.name());
            format!("{path} of host {host} loses nothing {direction}, by the host it {counted}")
        })
    }

    /// A flow must not be on a path that filters it if another path carries it and nothing has disturbed the host
    /// since `due`.
    pub(in super::super) fn expect_filtered_flows_left(
        &self,
        now: Time,
        host: usize,
        due: Time,
    ) -> Result<(), Violation> {
        let known = &self.hosts[host];
        let narrow = |truth: Truth<'_>| truth.up.takes().min(truth.down.takes()) < MTU;
        // Without questions the host cannot see that probes pass. During path MTU discovery, large packets are
        // lost because of their size.
        if !known.follows_use
            || known.keepalive.mode != Mode::Both
            || self.stage.truths(host).any(narrow)
        {
            return Ok(());
        }
        let pinned = known.pins.0.iter().chain(&known.pins.1).any(Option::is_some);
        let watched = known.paths.iter().all(|path| path.keepalive.0);
        if pinned || !watched {
            return Ok(());
        }
        for flow in (0..FLOWS).filter(|flow| known.flows[*flow].runs && *flow != SILENT) {
            let (Some(slot), moved) = known.routes[flow] else { continue };
            let Some((_, on)) = self.truth_of(host, slot) else { continue };
            let drops = |truth: &Truth<'_>| {
                let filters = [truth.up, truth.down].into_iter().filter_map(|link| link.filter());
                filters.filter(|(filter, _)| hits(*filter, flow)).map(|(_, since)| since).max()
            };
            let Some(since) = drops(&on) else { continue };
            let other =
                |truth: Truth<'_>| truth.access.absent_since.is_none() && drops(&truth).is_none();
            let in_time = now <= since.max(due).max(moved) + LEFT;
            Violation::unless(
                in_time || !self.stage.truths(host).any(other),
                "filtered flows leave",
                || {
                    let (name, lasts) = (&on.access.name, now.since(since));
                    format!("flow {host}.{flow} uses {name}, which has filtered it for {lasts}")
                },
            )?;
        }
        Ok(())
    }
}
