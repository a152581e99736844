//! Flows and their placement: an order about a flow is carried out whenever possible.

use alloc::format;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::Time;
use segue_ip::{FlowKey, Prefix};
use segue_keepalive::State;
use segue_pmip::{Flow, LmaInput, Placed, SessionState};
use segue_sim::role::Order as At;

use super::{Anchor, Domain};
use crate::Violation;

impl Domain {
    /// A flow to the first prefix of a node.
    fn key(&self, n: u8, port: u16) -> Option<FlowKey> {
        let prefix = self.first.iter().find(|((owner, _), _)| *owner == n)?;
        let IpAddr::V6(network) = prefix.1.first()?.addr else { return None };
        let dst = Ipv6Addr::from_bits(network.to_bits() | 1).into();
        let src = Ipv6Addr::new(0x2001, 0xdba, 0, 0, 0, 0, 0, 9).into();
        Some(FlowKey { src, dst, sport: 443, dport: port, protocol: 17, label: 0 })
    }

    /// Orders a flow to one of its node's bindings.
    pub(super) fn place(&mut self, n: u8, port: u16) {
        let Some(key) = self.key(n, port) else { return };
        let bid = Some(1 + port % 2);
        self.stage.command(self.lma, |agent: &mut Anchor, io| {
            agent.obey(io, At::Own(LmaInput::Place { key, bid }));
        });
    }

    /// Returns true if the interface ordered for a flow is present and usable.
    fn may_be_as_ordered(&self, key: &FlowKey, flow: &Flow) -> bool {
        let lma = self.lma();
        let prefix = Prefix::new(key.dst, 64).network();
        let mut own = lma.sessions_of(&flow.node);
        own.any(|(_, gateway, _, session)| {
            Some(&session.link_layer) == flow.ordered()
                && session.state == SessionState::Active
                && (session.prefixes.contains(&prefix) || session.elsewhere().contains(&prefix))
                && lma.measured(gateway).is_none_or(|(state, _)| state != State::Down)
        })
    }

    /// The first packet of a flow to the first prefix of a node.
    pub(super) fn flow(&mut self, now: Time, n: u8, port: u16) {
        let Some(key) = self.key(n, port) else { return };
        if self.lma().flow(&key).is_some() {
            return;
        }
        self.asked.push((key, now));
        self.stage.command(self.lma, |agent: &mut Anchor, io| {
            agent.obey(io, At::Own(LmaInput::Flow { key, dscp: 0 }));
        });
    }

    /// Checks that each flow has a binding that can carry it, and that it is the ordered one if possible.
    pub(super) fn check_flows(&self) -> Result<(), Violation> {
        let lma = self.lma();
        for (key, flow) in lma.flows() {
            let session = lma.session(flow.session);
            let good = session.is_some_and(|session| {
                session.node == flow.node && session.state == SessionState::Active
            });
            Violation::unless(good, "flow", || format!("{key} goes to {session:?}"))?;
            let astray = flow.why != Placed::Decision && self.may_be_as_ordered(key, flow);
            Violation::unless(!astray, "ordered", || {
                format!("{key} is ordered to {:?} and goes to {session:?}", flow.ordered())
            })?;
        }
        Ok(())
    }
}
