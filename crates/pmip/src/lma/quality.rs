//! The schedule by quality: measures the ways to hosts and moves flows to better ones. The way to an interface consists
//! of the path to its gateway, which keepalives measure, and of its link, which functions report
//! (Link_Parameters_Report, IEEE 802.21).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::{FlowKey, Output};
use segue_keepalive::{Estimates, LossTest, PathLosses, State};
use segue_steering::{Class, PathId, PathView, Steering, classify};
use segue_wire::Probe;

use super::Lma;
use super::config::Worth;
use super::state::{LinkQuality, Placed};
use crate::heart;
use crate::keepalive::{self, Keepalive, Outcome};
use crate::news::Cause;
use crate::{LmaWish, NodeId, PeerAddress, Report};

/// Interval of checks whether flows should move.
const REVIEW: Span = Span::from_millis(500);

impl Lma {
    /// Keepalive state and measurements of the path to a gateway; `None` without keepalives.
    #[must_use]
    pub fn measured(&self, gateway: PeerAddress) -> Option<(State, &Estimates)> {
        let keepalive = self.peers.get(&gateway)?.keepalive.as_ref()?;
        Some((keepalive.state(), keepalive.estimates()))
    }

    /// Starts to measure the path to a gateway.
    pub(super) fn keepalive(&mut self, now: Time, gateway: PeerAddress) -> Option<Keepalive> {
        let config = self.config.keepalive.clone()?;
        let keepalive = Keepalive::new(config, now, self.rng.next_u64());
        self.probes.extend(keepalive.deadline().map(|at| (at, gateway)));
        Some(keepalive)
    }

    /// Sends the keepalives that are due.
    pub(super) fn probe(&mut self, now: Time) {
        while let Some((at, gateway)) = self.probes.first().copied().filter(|(at, _)| *at <= now) {
            self.probes.remove(&(at, gateway));
            let known = self.peers.get_mut(&gateway).and_then(|peer| peer.keepalive.as_mut());
            // The gateway has no binding any more: stop probing it.
            let Some(keepalive) = known else { continue };
            let outcome = keepalive.tick(now);
            self.probes.extend(keepalive.deadline().map(|at| (at, gateway)));
            self.probed(now, gateway, outcome);
        }
    }

    /// Processes a gateway's answer. `None`: no keepalive with this number is pending.
    pub(super) fn answered(
        &mut self,
        now: Time,
        gateway: PeerAddress,
        number: u32,
        said: Option<Probe>,
    ) -> Option<()> {
        let keepalive = self.peers.get_mut(&gateway)?.keepalive.as_mut()?;
        let before = keepalive.deadline();
        let outcome = keepalive.on_response(now, number, said)?;
        let after = keepalive.deadline();
        before.map(|at| self.probes.remove(&(at, gateway)));
        self.probes.extend(after.map(|at| (at, gateway)));
        self.probed(now, gateway, outcome);
        Some(())
    }

    fn probed(&mut self, now: Time, gateway: PeerAddress, Outcome { requests, changed }: Outcome) {
        let ends = self.ends_to(gateway);
        for (number, probe) in requests {
            self.send(heart::request(number, Some(keepalive::option(&probe)), ends, false));
        }
        let Some(state) = changed else { return };
        let Some(peer) = self.peers.get_mut(&gateway) else { return };
        let down = state == State::Down;
        if core::mem::replace(&mut peer.unreachable, down) == down {
            return;
        }
        peer.since = now;
        self.report(match down {
            true => Report::Silent { peer: gateway },
            false => Report::Answers { peer: gateway },
        });
        let there: Vec<u32> = self.sessions.of(&gateway).map(|(number, _)| *number).collect();
        for number in there {
            self.turn(now, number, if down { Cause::Unreachable } else { Cause::Back });
        }
    }

    /// True if traffic should avoid a binding: its interface is predicted to leave, or its gateway is unreachable.
    pub(super) fn is_doubtful(&self, number: u32) -> bool {
        self.sessions.get(&number).is_some_and(|at| {
            at.value.leaves.is_some() || self.peers.get(&at.peer).is_some_and(|p| p.unreachable)
        })
    }

    /// Processes a report about the link of a host's interface.
    pub(super) fn link_told(
        &mut self,
        now: Time,
        link_layer: &crate::LinkLayer,
        quality: LinkQuality,
    ) {
        for number in self.numbers_of(link_layer) {
            if let Some(session) = self.sessions.value_mut(&number) {
                session.link = session.link(now).and(quality);
                session.link_told = now;
            }
        }
        self.out.push_back(Output::Own(LmaWish::Link { link_layer: link_layer.clone(), now }));
    }

    /// The bindings of a host, as paths that [`Steering`] compares.
    fn views(&self, now: Time, node: &NodeId) -> Vec<(u32, PathView)> {
        let Some(host) = self.hosts.get(node) else { return Vec::new() };
        let view = |(number, gateway): (u32, PeerAddress)| {
            let session = self.session(number)?;
            let peer = self.peers.get(&gateway)?;
            let usable = !self.is_doubtful(number);
            let since = session.steady.max(peer.since);
            let rate_kbps = session.link(now).rate_kbps;
            let view = view(session.bid, peer.keepalive.as_ref(), usable, since);
            let rate_bps = rate_kbps.map(|kbps| f64::from(kbps) * 1e3);
            let Worth { price, preference } = self.worth(number);
            Some((number, PathView { rate_bps, price, preference, ..view }))
        };
        self.active(host).into_iter().filter_map(view).collect()
    }

    /// The best binding for a flow among all bindings of its host.
    pub(super) fn best(
        &mut self,
        now: Time,
        node: &NodeId,
        key: &FlowKey,
        dscp: u8,
    ) -> Option<u32> {
        let class = classify(key, dscp, &self.config.steering);
        let views = self.views(now, node);
        let paths: Vec<PathView> = views.iter().map(|(_, view)| *view).collect();
        let config = &self.config.steering;
        let host = self.hosts.get_mut(node)?;
        let steering = host.steering.get_or_insert_with(|| {
            // The anchor classifies flows with its own tables, so a host's instance needs none.
            let (dscp, ports) = (BTreeMap::new(), BTreeMap::new());
            Box::new(Steering::new(segue_steering::Config { dscp, ports, ..config.clone() }))
        });
        let decision = steering.choose(now, class, &paths)?;
        self.review_at.get_or_insert(now + REVIEW);
        views.iter().find(|(_, view)| view.id == decision.path).map(|(number, _)| *number)
    }

    /// Moves flows to better bindings, if a review is due.
    pub(super) fn review(&mut self, now: Time) {
        if self.review_at.is_none_or(|at| now < at) {
            return;
        }
        let steered = self.hosts.iter().filter(|(_, host)| host.steering.is_some());
        let steered: Vec<NodeId> = steered.map(|(node, _)| node.clone()).collect();
        self.review_at = (!steered.is_empty()).then_some(now + REVIEW);
        for node in steered {
            let views = self.views(now, &node);
            let paths: Vec<PathView> = views.iter().map(|(_, view)| *view).collect();
            let Some(host) = self.hosts.get_mut(&node) else { continue };
            let Some(steering) = host.steering.as_mut() else { continue };
            steering.choose_all(now, &paths, |_, _| {});
            // A flow that arrived since the last review may have changed the choice for its class.
            let chosen = Class::ALL.map(|class| steering.current(class));
            if core::mem::replace(&mut host.settled, chosen) != chosen {
                self.settle_flows(now, &node, &views, chosen);
            }
        }
    }

    /// Moves the flows of a host to the bindings chosen for their classes, except flows placed by the external
    /// scheduler.
    fn settle_flows(
        &mut self,
        now: Time,
        node: &NodeId,
        views: &[(u32, PathView)],
        chosen: [Option<PathId>; Class::ALL.len()],
    ) {
        let Some(host) = self.hosts.get(node) else { return };
        let keys: Vec<FlowKey> = host.flows.iter().map(|(_, key)| *key).collect();
        self.gone.clear();
        for key in keys {
            let Some(flow) = self.flows.get(&key).filter(|flow| flow.why != Placed::Decision)
            else {
                continue;
            };
            let class = classify(&key, flow.dscp, &self.config.steering);
            let path = chosen[class as usize];
            let to = views.iter().find(|(_, view)| Some(view.id) == path).map(|(n, _)| *n);
            let Some(to) = to.filter(|to| *to != flow.session) else { continue };
            if self.flow_usable(&key).contains(&to) {
                // An ordered flow counts as moved, so that it returns when its interface is usable again.
                let is_ordered = flow.ordered.is_some();
                let why = if is_ordered { Placed::Moved } else { Placed::Rule };
                if self.assign(&key, to, why) {
                    self.tell_went(&key, false);
                }
                self.lead(&key);
            } else if let Some(host) = self.hosts.get_mut(node) {
                host.settled = Default::default();
            }
        }
        self.tell_gone(now, node, Cause::Better);
    }
}

/// A binding as a path that [`Steering`] compares.
fn view(bid: u16, keepalive: Option<&Keepalive>, usable: bool, since: Time) -> PathView {
    let estimates = keepalive.map(Keepalive::estimates);
    let losses = keepalive.map(Keepalive::losses);
    // The anchor sends the probes, but up and down are from the host's point of view.
    let up = losses.map(|losses| &losses.down);
    let down = losses.map(|losses| &losses.up);
    let share = |test: Option<&LossTest>| test.map_or(0.0, LossTest::least);
    let bound = |test: Option<&LossTest>| test.map_or(1.0, LossTest::most);
    PathView {
        id: PathId(bid as u8),
        usable,
        rtt_s: estimates.and_then(|e| e.rtt_ewma.first().copied()),
        loss_up: share(up),
        loss_down: share(down),
        lossy: losses.is_some_and(PathLosses::is_lossy),
        bound_up: bound(up),
        bound_down: bound(down),
        // Jitter of one direction: about half of the round trip's.
        jitter_s: estimates.map_or(0.0, |e| e.rtt_jitter / 2.0),
        rate_bps: None,
        price: 0.0,
        since,
        preference: 0.0,
    }
}
