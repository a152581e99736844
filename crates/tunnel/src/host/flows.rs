//! The host's flows: which path each uses, and moving them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Client;
use segue_steering::{Class, Decision, PathId, Reason, Score, classify};
use segue_wire::FlowKey;

use super::{Host, Path, Signalling};
use crate::{Cause, Order, Output, Report, Ticket};
use segue_clock::planted::fault;

/// Maximum number of flows kept; beyond that, those seen longest ago are dropped.
const MAX_FLOWS: usize = 65_536;
/// Number of flows dropped at once. Finding the oldest requires a scan of all flows, which a flood of new flows must
/// not cause each time, but unbinding too many takes long.
const GIVE_WAY: usize = 1_024;
/// Maximum number of packets that wait for a first path; a further one replaces the oldest.
const MAX_WAITING: usize = 256;
/// Maximum wait of such a packet. Later, newer packets would overtake it, and its receiver would long have asked again.
const WAITS: Span = Span::from_secs(1);
/// Idle time after which the host forgets a flow.
const IDLE: Span = Span::from_secs(180);

/// One flow of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its class.
    pub class: Class,
    /// Code point of the packet for which its path was last chosen.
    pub dscp: u8,
    /// Number of the path that it is bound to.
    pub path: u8,
    /// The path that the operator pinned it to.
    pub pinned: Option<u8>,
    /// When it was first seen.
    pub first_seen: Time,
    /// When it was last seen.
    pub last_seen: Time,
}

/// The last move of a class.
pub(super) struct Moved {
    at: Time,
    cause: Cause,
    decision: Decision,
    /// The counts that showed the loss, if that was the cause.
    evidence: String,
}

/// A packet for which no path exists yet.
pub(super) struct Waiting {
    key: FlowKey,
    dscp: u8,
    pub(super) ticket: Ticket,
    since: Time,
}

impl Host {
    pub(super) fn on_miss(&mut self, now: Time, key: FlowKey, dscp: u8, ticket: Ticket) {
        let class = classify(&key, dscp, &self.config.steering);
        let known = self.flows.get(&key);
        let pinned = known.and_then(|flow| flow.pinned);
        let first_seen = known.map_or(now, |flow| flow.first_seen);
        if self.signal == Signalling::Stopped {
            self.out.push_back(Output::Order(Order::Discard(ticket)));
            return;
        }
        let Some(path) = self.path_for(&key, class, pinned) else {
            if self.waiting.len() >= MAX_WAITING
                && let Some(oldest) = self.waiting.pop_front()
            {
                self.out.push_back(Output::Order(Order::Discard(oldest.ticket)));
            }
            self.waiting.push_back(Waiting { key, dscp, ticket, since: now });
            return;
        };
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&key) {
            self.forget_old_ones();
        }
        let flow = Flow { class, dscp, path, pinned, first_seen, last_seen: now };
        self.flows.insert(key, flow);
        self.out.push_back(Output::Order(Order::Bind(key, u32::from(path))));
        self.out.push_back(Output::Order(Order::Inject(ticket)));
    }

    /// Chooses the path for a flow of this class: its pinned path if that is up; else the current path of its class,
    /// even if that is down; else any path that is up; else any path that exists. If the class's path filters the flow,
    /// the best path that does not.
    pub(super) fn path_for(&self, key: &FlowKey, class: Class, pinned: Option<u8>) -> Option<u8> {
        let up = |n: &u8| self.paths.get(n).is_some_and(|path| path.is_up());
        let is_set = |n: &u8| self.paths.get(n).is_some_and(|path| path.is_set());
        let any = |has: &dyn Fn(&Path) -> bool| {
            self.paths.iter().find(|(_, path)| has(path)).map(|(n, _)| *n)
        };
        let current = || self.steering.current(class).map(|PathId(n)| n);
        let open = |n: u8| self.open_path(key, class, n);
        pinned
            .filter(up)
            .or_else(|| current().filter(is_set).map(open))
            .or_else(|| any(&Path::is_up))
            .or_else(|| any(&Path::is_set))
    }

    /// Like [`Host::path_for`], for a flow that has a path: its pinned path takes the flow back only after a while, so
    /// that a flapping path does not drag the flow along.
    fn path_for_bound(&self, now: Time, key: &FlowKey, flow: &Flow) -> Option<u8> {
        let hold = self.config.steering.hold;
        let steady = |n: &u8| {
            *n == flow.path || self.paths.get(n).is_some_and(|path| path.is_up_since(now, hold))
        };
        self.path_for(key, flow.class, flow.pinned.filter(steady))
    }

    fn forget_old_ones(&mut self) {
        let mut by_age: Vec<(Time, FlowKey)> =
            self.flows.iter().map(|(key, flow)| (flow.last_seen, *key)).collect();
        let count = GIVE_WAY.min(by_age.len());
        by_age.select_nth_unstable(count.saturating_sub(1));
        for (_, key) in &by_age[..count] {
            self.flows.remove(key);
            self.out.push_back(Output::Order(Order::Unbind(*key)));
        }
    }

    pub(super) fn on_flows(&mut self, now: Time, seen: &[(FlowKey, Time)], last: bool) {
        for (key, at) in seen {
            if let Some(flow) = self.flows.get_mut(key) {
                flow.last_seen = flow.last_seen.max(*at);
            }
        }
        if !last {
            return;
        }
        let idle: Vec<FlowKey> = self
            .flows
            .iter()
            .filter(|(_, flow)| now.since(flow.last_seen) > IDLE)
            .map(|(key, _)| *key)
            .take(GIVE_WAY)
            .collect();
        for key in idle {
            self.flows.remove(&key);
            self.out.push_back(Output::Order(Order::Unbind(key)));
        }
    }

    /// Evaluates the steering for every class and moves flows accordingly.
    pub(super) fn evaluate(&mut self, now: Time) {
        self.decide(now);
        // Called with each sample; most hosts have no flows then.
        if !self.flows.is_empty() {
            self.rebind_all(now);
        }
        self.serve_waiting(now);
    }

    fn rebind_all(&mut self, now: Time) {
        for class in Class::ALL {
            for ((from, to), flows) in self.rebind(now, class, false) {
                let cause = self.cause(class);
                self.report_handover(Some(class), from, to, cause, flows);
            }
        }
    }

    /// Passes the current path views to the steering and records why each class moved.
    fn decide(&mut self, now: Time) {
        self.evaluated = now;
        let views = self.views();
        let Host { steering, decisions, paths, .. } = self;
        let heard = |PathId(n): PathId| {
            paths.get(&n).and_then(|path| path.client()).is_some_and(Client::heard)
        };
        steering.choose_all(now, &views, |class, decision| {
            let cause = match decision.reason {
                Reason::Requested => Cause::Requested,
                Reason::Down if decision.previous.is_some_and(heard) => Cause::UplinkDown,
                Reason::Down => Cause::Down,
                Reason::Removed => Cause::InterfaceGone,
                Reason::Lossy => Cause::Lossy,
                Reason::First | Reason::Better { .. } | Reason::Unchanged => Cause::Better,
            };
            let evidence = match (decision.reason, decision.previous) {
                (Reason::Lossy, Some(PathId(left))) => {
                    paths.get(&left).map_or_else(String::new, |path| path.loss_evidence(now))
                }
                _ => String::new(),
            };
            decisions.insert(class, Moved { at: now, cause, decision, evidence });
        });
    }

    /// Why a class last moved.
    fn cause(&self, class: Class) -> Cause {
        self.decisions.get(&class).map_or(Cause::Better, |moved| moved.cause)
    }

    /// Why a class of flows uses its path: an order in effect, or else the reason of the last move with the scores at
    /// that time.
    #[must_use]
    pub fn why(&self, now: Time, class: Class) -> String {
        let name = |id: &PathId| self.paths.get(&id.0).map_or("gone", |path| path.name());
        let ordered = self.steering.pinned(class);
        if let Some(path) = ordered.filter(|path| self.steering.current(class) == Some(*path)) {
            return format!("bound to {} by an operator", name(&path));
        }
        let Some(moved) = self.decisions.get(&class) else { return String::new() };
        let decision = &moved.decision;
        let scores: Vec<String> =
            decision.scores.iter().map(|(id, score)| format!("{} {score}", name(id))).collect();
        let reason = match (ordered, decision.reason) {
            (Some(path), _) => format!("an operator wants {}, which is not up", name(&path)),
            (None, Reason::Requested) => "an order that has ended, and no reason to move".into(),
            (None, Reason::Lossy) => {
                let ago = now.since(moved.at).as_secs_f64();
                format!("{}, {ago:.1} s ago", moved.evidence)
            }
            (None, reason) => reason.to_string(),
        };
        format!("{reason}: {}", scores.join("; "))
    }

    /// The orders in effect for classes, with the names of their paths.
    pub fn orders(&self) -> impl Iterator<Item = (Class, &str)> {
        Class::ALL.into_iter().filter_map(|class| {
            let path = self.paths.get(&self.steering.pinned(class)?.0)?;
            Some((class, path.name()))
        })
    }

    /// Binds the flows of a class to the paths where they belong. Returns the number of flows moved from each path to
    /// each other. Flows of a path whose uplink alone is dead keep their binding, because its redirection carries them,
    /// marked one-way; with `whole` they move too, in both directions.
    fn rebind(&mut self, now: Time, class: Class, whole: bool) -> BTreeMap<(u8, u8), usize> {
        let one_way = |n: &u8| {
            self.paths.get(n).and_then(|path| path.via).is_some_and(|redirect| redirect.one_way)
        };
        let moves: Vec<(FlowKey, u8)> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.class == class && (whole || !one_way(&flow.path)))
            .filter_map(|(key, flow)| Some((*key, self.path_for_bound(now, key, flow)?)))
            .collect();
        let mut counts = BTreeMap::new();
        for (key, to) in moves {
            let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.path != to) else {
                continue;
            };
            *counts.entry((flow.path, to)).or_insert(0) += 1;
            flow.path = to;
            self.out.push_back(Output::Order(Order::Bind(key, u32::from(to))));
        }
        counts
    }

    /// Takes all flows off a path at once: first one redirection, then each binding. Classes may move to different
    /// paths.
    pub(super) fn move_off(&mut self, now: Time, number: u8, name: &str, cause: Cause) {
        let Some(target) = self.best_for_all(now).filter(|target| *target != number) else {
            self.set_via(number, None);
            return;
        };
        self.set_via(number, Some(crate::Via { slot: u32::from(target), one_way: false }));
        self.redirect_dead_paths(now);
        let mut left: BTreeMap<u8, usize> = BTreeMap::new();
        for class in Class::ALL {
            for ((from, to), flows) in self.rebind(now, class, false) {
                if from == number {
                    *left.entry(to).or_insert(0) += flows;
                } else {
                    let why = self.cause(class);
                    self.report_handover(Some(class), from, to, why, flows);
                }
            }
        }
        // Packets of unknown flows moved too, if the path carried any.
        let carried = |path: &Path| path.client().is_some_and(|c| c.use_of_path().0 > Time::ZERO);
        if left.is_empty() && self.paths.get(&number).is_some_and(carried) {
            left.insert(target, 0);
        }
        let scores = self.scores(Class::Default);
        for (to, flows) in left {
            let scores = scores.clone();
            let to = self.paths.get(&to).map_or_else(String::new, |p| p.name().to_string());
            self.out.push_back(Output::report(Report::Handover {
                host: String::new(),
                class: None,
                from: name.to_string(),
                to,
                cause,
                flows,
                scores,
            }));
        }
    }

    /// The current path of the default class, if up, after a new evaluation of the steering.
    pub(super) fn best_for_all(&mut self, now: Time) -> Option<u8> {
        self.decide(now);
        self.steering
            .current(Class::Default)
            .map(|PathId(n)| n)
            .filter(|n| self.paths.get(n).is_some_and(|path| path.is_up()))
    }

    fn serve_waiting(&mut self, now: Time) {
        if !self.paths.values().any(|path| path.is_up()) {
            return;
        }
        let waiting = core::mem::take(&mut self.waiting).into_iter();
        let (stale, fresh): (Vec<_>, Vec<_>) =
            waiting.partition(|waiting| now.since(waiting.since) > WAITS);
        for waiting in fresh {
            self.on_miss(now, waiting.key, waiting.dscp, waiting.ticket);
        }
        // Discarded last, because the datapath drops the queued packets of a flow along with it.
        self.out
            .extend(stale.into_iter().map(|waiting| Output::Order(Order::Discard(waiting.ticket))));
    }

    pub(super) fn on_handover(
        &mut self,
        now: Time,
        flow: Option<FlowKey>,
        class: Option<Class>,
        to: Option<String>,
    ) {
        let number = to.as_deref().and_then(|name| self.path_named(name));
        if to.is_some() && number.is_none() {
            return;
        }
        let Some(key) = flow else {
            self.steering.pin(class, number.map(PathId));
            self.on_order(now, class);
            return;
        };
        let Some(entry) = self.flows.get_mut(&key) else { return };
        entry.pinned = number;
        let (from, class) = (entry.path, entry.class);
        if let Some(path) = self.path_for(&key, class, number)
            && path != from
        {
            if let Some(entry) = self.flows.get_mut(&key) {
                entry.path = path;
            }
            self.out.push_back(Output::Order(Order::Bind(key, u32::from(path))));
            self.report_handover(Some(class), from, path, Cause::Requested, 1);
        }
    }

    /// Handles an order for one class or all classes: it replaces orders for single flows and moves both directions.
    fn on_order(&mut self, now: Time, class: Option<Class>) {
        for flow in self.flows.values_mut().filter(|flow| class.is_none_or(|c| c == flow.class)) {
            flow.pinned = None;
        }
        self.decide(now);
        for class in Class::ALL.into_iter().filter(|each| class.is_none_or(|class| class == *each))
        {
            for ((from, to), flows) in self.rebind(now, class, true) {
                self.report_handover(Some(class), from, to, Cause::Requested, flows);
            }
        }
        self.evaluate(now);
    }

    /// Cancels the orders for a path whose number goes to another interface.
    pub(super) fn forget_orders(&mut self, number: u8) {
        self.forget_filters(number);
        for class in Class::ALL {
            if self.steering.pinned(class) == Some(PathId(number)) && !fault(26) {
                self.steering.pin(Some(class), None);
            }
        }
        let kept = fault(19);
        for flow in self.flows.values_mut().filter(|flow| flow.pinned == Some(number) && !kept) {
            flow.pinned = None;
        }
    }

    /// Forgets the flows still bound to a path.
    pub(super) fn unbind_from(&mut self, number: u8) {
        let left: Vec<FlowKey> =
            self.flows.iter().filter(|(_, f)| f.path == number).map(|(key, _)| *key).collect();
        for key in left {
            self.flows.remove(&key);
            self.out.push_back(Output::Order(Order::Unbind(key)));
        }
    }

    pub(super) fn report_move(&mut self, from: u8, to: u8, cause: Cause) {
        let flows = self.flows.values().filter(|flow| flow.path == from).count();
        self.report_handover(None, from, to, cause, flows);
    }

    fn report_handover(
        &mut self,
        class: Option<Class>,
        from: u8,
        to: u8,
        cause: Cause,
        flows: usize,
    ) {
        let name = |n: u8| self.paths.get(&n).map_or_else(String::new, |p| p.name().to_string());
        let (from, to) = (name(from), name(to));
        let scores = self.scores(class.unwrap_or(Class::Default));
        self.out.push_back(Output::report(Report::Handover {
            host: String::new(),
            class,
            from,
            to,
            cause,
            flows,
            scores,
        }));
    }

    /// The scores of the last decision about a class, with path names.
    fn scores(&self, class: Class) -> Vec<(String, Score)> {
        let decision = self.decisions.get(&class).map(|moved| &moved.decision);
        let scores = decision.into_iter().flat_map(|decision| &decision.scores);
        let name = |id: &PathId| self.paths.get(&id.0).map(|path| path.name().to_string());
        scores.filter_map(|(id, score)| Some((name(id)?, score.clone()))).collect()
    }
}
