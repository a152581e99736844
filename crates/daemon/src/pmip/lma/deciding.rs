//! Reports bindings and flows to decision entities, and carries out their orders.

use std::collections::BTreeSet;

use segue_ip::{FlowKey, Traffic};
use segue_linux::clock::monotonic;
use segue_node::NodeInput;
use segue_pmip::{LinkLayer, Lma, LmaInput, NodeId, PeerAddress, Presence, Refusal, SessionState};

use super::super::decision::{Decisions, FlowRate, Order, Told};
use super::super::quality::{LinkStatus, QualityStatus};
use super::{Daemon, att};
use crate::run::Role;

impl Daemon {
    /// The event for a flow; `asked` requests a decision.
    fn told_of(&self, key: &FlowKey, asked: bool) -> Option<Told> {
        let lma = self.core.end.sockets.machine.machine();
        let flow = lma.flow(key)?;
        let bid = lma.session(flow.session)?.bid;
        let (mn_id, dscp, why) = (flow.node.to_string(), flow.dscp, flow.why.name());
        let carried = self.carried(key);
        Some(Told::Flow { flow: (*key).into(), mn_id, dscp, bid, why, asked, carried })
    }

    /// The traffic of a flow so far.
    fn carried(&self, key: &FlowKey) -> FlowRate {
        let carried = self.core.end.traffic_carried(&Traffic::Flow(*key));
        let (packets, bytes) = (carried.sent_packets, carried.sent_bytes);
        FlowRate { packets, bytes, rate_kbps: self.rates.of(key) }
    }

    /// Reports the traffic of a flow.
    pub(super) fn tell_of_rate(&mut self, key: &FlowKey) {
        if !self.decisions.as_ref().is_some_and(Decisions::heard) {
            return;
        }
        let lma = self.core.end.sockets.machine.machine();
        let Some(flow) = lma.flow(key) else { return };
        let Some(bid) = lma.session(flow.session).map(|session| session.bid) else { return };
        let (mn_id, carried) = (flow.node.to_string(), self.carried(key));
        if let Some(decisions) = &mut self.decisions {
            decisions.tell(&Told::Rate { flow: (*key).into(), mn_id, bid, carried });
        }
    }

    /// Reports that a flow is forgotten.
    pub(super) fn tell_of_end(&mut self, key: &FlowKey) {
        self.rates.forget(key);
        if let Some(decisions) = &mut self.decisions {
            decisions.tell(&Told::FlowEnded { flow: (*key).into() });
        }
    }

    /// Reports the quality of the path to each gateway.
    pub(super) fn tell_quality(&mut self) {
        let Some(decisions) = self.decisions.as_mut().filter(|decisions| decisions.heard()) else {
            return;
        };
        let lma = self.core.end.sockets.machine.machine();
        let gateways: BTreeSet<PeerAddress> = lma.tunnels().map(|(_, gateway)| gateway).collect();
        for gateway in gateways {
            let Some(quality) = lma.measured(gateway).map(QualityStatus::of) else { continue };
            decisions.tell(&Told::Quality { proxy_coa: gateway.to_string(), quality });
        }
    }

    /// Reports the state of the link to an interface.
    pub(super) fn tell_of_link(&mut self, link_layer: &LinkLayer) {
        let Some(decisions) = self.decisions.as_mut().filter(|decisions| decisions.heard()) else {
            return;
        };
        let lma = self.core.end.sockets.machine.machine();
        let own = lma.sessions().find(|(.., session)| session.link_layer == *link_layer);
        if let Some(told) = own.and_then(|(.., session)| told_link(session)) {
            decisions.tell(&told);
        }
    }

    pub(super) fn tell_of_flow(&mut self, key: &FlowKey, asked: bool) {
        if !self.decisions.as_ref().is_some_and(Decisions::heard) {
            return;
        }
        if let Some((told, decisions)) = self.told_of(key, asked).zip(self.decisions.as_mut()) {
            decisions.tell(&told);
        }
    }

    /// The state that a new connection receives: all bindings, links and flows.
    pub(super) fn present(&self) -> Vec<Told> {
        let lma = self.core.end.sockets.machine.machine();
        let there = lma.sessions().filter(|(.., session)| session.state == SessionState::Active);
        let bindings = there.map(|(_, gateway, _, session)| told_binding(gateway, session));
        let flows = lma.flows().filter_map(|(key, _)| self.told_of(key, false));
        let links = lma.sessions().filter_map(|(.., session)| told_link(session));
        bindings.chain(links).chain(flows).collect()
    }

    /// Reports a change of a host's interface.
    pub(super) fn tell_of_interface(&mut self, node: &NodeId, of: &LinkLayer, now: Presence) {
        let Some(decisions) = &mut self.decisions else { return };
        let (mn_id, llid) = (node.to_string(), of.to_string());
        decisions.tell(&match now {
            Presence::There => {
                let mut own = self.core.end.sockets.machine.machine().sessions_of(node);
                let found = own.find(|(.., session)| session.link_layer == *of);
                let Some((_, gateway, _, session)) = found else { return };
                told_binding(gateway, session)
            }
            Presence::GoingDown(within) => {
                Told::GoingDown { mn_id, llid, within_ms: within.as_millis_f64() }
            }
            Presence::Stays => Told::Stays { mn_id, llid },
            Presence::Left => Told::Left { mn_id, llid },
        });
    }

    /// Carries out an order.
    pub(super) fn ordered(&mut self, number: u64, order: Order) -> anyhow::Result<()> {
        let (flow, bid) = match order {
            Order::Decide {} | Order::Observe {} => {
                let Some(decisions) = &mut self.decisions else { return Ok(()) };
                decisions.decides(number, matches!(order, Order::Decide {}));
                let anybody = decisions.anybody();
                return self.feed(NodeInput::Own(LmaInput::Deciding(anybody)));
            }
            Order::Place { flow, bid } | Order::Move { flow, bid } => (flow, Some(bid)),
            Order::Default { flow } => (flow, None),
        };
        let key = flow.into();
        let before = self.refused(Refusal::NoBinding);
        self.feed(NodeInput::Own(LmaInput::Place { key, bid }))?;
        if self.refused(Refusal::NoBinding) > before
            && let Some(decisions) = &mut self.decisions
        {
            let lma = self.core.end.sockets.machine.machine();
            let why = format!("{key}: {}", why_not(lma, &key, bid));
            decisions.tell_one(number, Told::Refused { why });
        }
        Ok(())
    }
}

/// Why a flow cannot be placed.
fn why_not(lma: &Lma, key: &FlowKey, bid: Option<u16>) -> String {
    let Some(flow) = lma.flow(key) else { return "there is no such flow".into() };
    let bid = bid.unwrap_or_default();
    let mut own = lma.sessions_of(&flow.node);
    match own.find(|(.., session)| session.bid == bid) {
        None => format!("its host has no interface with bid {bid}"),
        Some((.., session)) if session.state == SessionState::Leaving => {
            format!("the interface with bid {bid} has left")
        }
        Some(_) => format!("the interface with bid {bid} cannot carry it now"),
    }
}

/// The event for the link to an interface; `None` if nothing is known of the link.
fn told_link(session: &segue_pmip::Session) -> Option<Told> {
    let link = LinkStatus::of(session.link(monotonic()))?;
    let (mn_id, llid) = (session.node.to_string(), session.link_layer.to_string());
    Some(Told::Link { mn_id, llid, link })
}

/// The event for a binding.
fn told_binding(gateway: PeerAddress, session: &segue_pmip::Session) -> Told {
    Told::Binding {
        mn_id: session.node.to_string(),
        llid: session.link_layer.to_string(),
        bid: session.bid,
        att: att(session),
        prefixes: session.prefixes.iter().map(ToString::to_string).collect(),
        proxy_coa: gateway.to_string(),
    }
}
