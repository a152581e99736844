//! What an anchor tells programs that decide about its flows, and how it carries out their orders.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::FlowKey;
use segue_pmip::{
    LinkLayer, Lma, LmaInput, LmaWish, Mag, NodeId, PeerAddress, Presence, Refusal, Report,
    Session, SessionState,
};

use crate::{Event, FlowRate, LinkStatus, QualityStatus, Role};

/// A role whose flows programs may place. The defaults are those of a role without flows.
pub trait Decided: Role {
    /// The event that follows from a request of the machine.
    fn event(&self, _wish: &Self::Wish) -> Option<Event> {
        None
    }

    /// All bindings, links and flows, for a program that connects.
    fn present(&self, _now: Time) -> Vec<Event> {
        Vec::new()
    }

    /// The quality of all measured paths.
    fn qualities(&self) -> Vec<Event> {
        Vec::new()
    }

    /// True if the report means that the quality of a path has changed.
    fn changes_quality(_report: &Self::Report) -> bool {
        false
    }

    /// The event about the traffic of a flow, and when the flow began.
    fn rate(&self, _key: &FlowKey) -> Option<(Time, Event)> {
        None
    }

    /// The input that reports when flows last carried a packet.
    fn last_sent(_flows: Vec<(FlowKey, Option<Time>)>) -> Option<Self::Own> {
        None
    }

    /// The input that reports whether any program decides.
    fn deciding(_anybody: bool) -> Option<Self::Own> {
        None
    }

    /// The input that places a flow on a binding, or returns it to the rule.
    fn place(_key: FlowKey, _bid: Option<u16>) -> Option<Self::Own> {
        None
    }

    /// Number of orders that could not be carried out.
    fn not_placed(&self) -> u64 {
        0
    }

    /// Why a flow cannot be placed on a binding.
    fn why_not(&self, _key: &FlowKey, _bid: Option<u16>) -> String {
        String::new()
    }
}

impl Decided for Mag {}

impl Decided for Lma {
    fn event(&self, wish: &LmaWish) -> Option<Event> {
        match wish {
            LmaWish::Release(key) => flow(self, key, false),
            LmaWish::Decide(key) => flow(self, key, true),
            LmaWish::Went { key, asked } => flow(self, key, *asked),
            LmaWish::Ended(key) => Some(Event::FlowEnded { flow: (*key).into() }),
            LmaWish::Link { link_layer, now } => {
                let mut all = self.sessions();
                let (.., own) = all.find(|(.., own)| own.link_layer == *link_layer)?;
                link(own, *now)
            }
            LmaWish::Interface { node, link_layer, now } => interface(self, node, link_layer, *now),
            _ => None,
        }
    }

    fn present(&self, now: Time) -> Vec<Event> {
        let there = self.sessions().filter(|(.., own)| own.state == SessionState::Active);
        let bindings = there.map(|(_, gateway, _, own)| binding(gateway, own));
        let links = self.sessions().filter_map(|(.., own)| link(own, now));
        let flows = self.flows().filter_map(|(key, _)| flow(self, key, false));
        bindings.chain(links).chain(flows).collect()
    }

    fn qualities(&self) -> Vec<Event> {
        let gateways: BTreeSet<PeerAddress> = self.tunnels().map(|(_, gateway)| gateway).collect();
        let measured = gateways.into_iter().filter_map(|gateway| {
            let quality = QualityStatus::of(self.measured(gateway)?);
            Some(Event::Quality { proxy_coa: gateway.to_string(), quality })
        });
        measured.collect()
    }

    fn changes_quality(report: &Report) -> bool {
        matches!(report, Report::Silent { .. } | Report::Answers { .. })
    }

    fn rate(&self, key: &FlowKey) -> Option<(Time, Event)> {
        let flow = self.flow(key)?;
        let bid = self.session(flow.session)?.bid;
        let (mn_id, carried) = (flow.node.to_string(), FlowRate::default());
        Some((flow.since, Event::Rate { flow: (*key).into(), mn_id, bid, carried }))
    }

    fn last_sent(flows: Vec<(FlowKey, Option<Time>)>) -> Option<LmaInput> {
        Some(LmaInput::LastSent(flows))
    }

    fn deciding(anybody: bool) -> Option<LmaInput> {
        Some(LmaInput::Deciding(anybody))
    }

    fn place(key: FlowKey, bid: Option<u16>) -> Option<LmaInput> {
        Some(LmaInput::Place { key, bid })
    }

    fn not_placed(&self) -> u64 {
        self.refused().get(&Refusal::NoBinding).copied().unwrap_or(0)
    }

    fn why_not(&self, key: &FlowKey, bid: Option<u16>) -> String {
        let Some(flow) = self.flow(key) else { return "there is no such flow".to_owned() };
        let bid = bid.unwrap_or_default();
        let mut own = self.sessions_of(&flow.node);
        match own.find(|(.., session)| session.bid == bid) {
            None => format!("its host has no interface with bid {bid}"),
            Some((.., session)) if session.state == SessionState::Leaving => {
                format!("the interface with bid {bid} has left")
            }
            Some(_) => format!("the interface with bid {bid} cannot carry it now"),
        }
    }
}

/// A flow; `asked` requests a decision.
fn flow(lma: &Lma, key: &FlowKey, asked: bool) -> Option<Event> {
    let flow = lma.flow(key)?;
    let bid = lma.session(flow.session)?.bid;
    let (mn_id, dscp, why) = (flow.node.to_string(), flow.dscp, flow.why.name());
    let carried = FlowRate::default();
    Some(Event::Flow { flow: (*key).into(), mn_id, dscp, bid, why, asked, carried })
}

/// The link to an interface; `None` if nothing is known of it.
fn link(session: &Session, now: Time) -> Option<Event> {
    let link = LinkStatus::of(session.link(now))?;
    let (mn_id, llid) = (session.node.to_string(), session.link_layer.to_string());
    Some(Event::Link { mn_id, llid, link })
}

fn binding(gateway: PeerAddress, session: &Session) -> Event {
    Event::Binding {
        mn_id: session.node.to_string(),
        llid: session.link_layer.to_string(),
        bid: session.bid,
        att: session.access.name().unwrap_or("unknown").to_owned(),
        prefixes: session.prefixes.iter().map(ToString::to_string).collect(),
        proxy_coa: gateway.to_string(),
    }
}

/// A change of a host's interface.
fn interface(lma: &Lma, node: &NodeId, of: &LinkLayer, now: Presence) -> Option<Event> {
    let (mn_id, llid) = (node.to_string(), of.to_string());
    Some(match now {
        Presence::There => {
            let mut own = lma.sessions_of(node);
            let (_, gateway, _, session) = own.find(|(.., session)| session.link_layer == *of)?;
            binding(gateway, session)
        }
        Presence::GoingDown(within) => {
            Event::GoingDown { mn_id, llid, within_ms: within.as_millis_f64() }
        }
        Presence::Stays => Event::Stays { mn_id, llid },
        Presence::Left => Event::Left { mn_id, llid },
    })
}
