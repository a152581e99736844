//! RADIUS servers that identify and authorize the hosts of a domain, and the orders of operators.

use alloc::format;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_pmip::{LmaInput, MagInput, NodeId, Report, Why};
use segue_sim::radius::{RadiusInput, RadiusServer, Session};
use segue_sim::role::Order as At;

use super::super::config::{LINK, NODES, RadiusAgent, every, gateway_name, name, node, station};
use super::{Anchor, Domain, Gateway};
use crate::Violation;
use crate::fault::PathRef;

/// Time that a client takes to be told, if nothing is lost: a session, an exchange that is given up after 7 s, the
/// hold-off, and the answer.
const TOLD: Span = Span::from_secs(16);
/// Time for which a gateway does not serve a host whose binding was revoked, unless its link reports it anew.
const REVOKED: Span = Span::from_secs(3);

impl Domain {
    fn server(&self) -> Option<&RadiusServer> {
        self.radius.map(|server| &self.stage.agent::<RadiusAgent>(server).engine().0)
    }

    /// True if the server refuses this node.
    pub(super) fn is_refused(&self, n: u8) -> bool {
        self.server().is_some_and(|server| server.refuses(&name(n)))
    }

    /// The server refuses or accepts a node from now on.
    pub(super) fn instruct(&mut self, now: Time, verb: &str, n: u8) {
        let Some(server) = self.radius else { return };
        let order = match verb {
            "refuse" => RadiusInput::Refuse(name(n)),
            _ => RadiusInput::Accept(name(n)),
        };
        self.judged.insert(n, now);
        self.stage.command(server, |agent: &mut RadiusAgent, io| agent.obey(io, At::Own(order)));
    }

    /// The anchor revokes the bindings of a node.
    pub(super) fn revoke(&mut self, n: u8) {
        self.stage.command(self.lma, |agent: &mut Anchor, io| {
            agent.obey(io, At::Own(LmaInput::Revoke(node(n))));
        });
    }

    /// A gateway hears an interface. Notes if it serves one whose binding was revoked a moment ago.
    pub(super) fn hear(&mut self, now: Time, gateway: usize, place: (u8, u8)) {
        let (interface, heard) = (LINK, station(place));
        let is_there = |domain: &Domain| domain.mag(gateway).station(LINK, &heard).is_some();
        let agent = self.stage.agent::<Gateway>(self.mags[gateway]);
        // A restart forgets what was revoked.
        let began = self.stage.hosts[gateway].began;
        let is_recent = |at: Time| at >= began && now.since(at) < REVOKED;
        let mut reports = agent.reports().iter().rev().take_while(|(at, _)| is_recent(*at));
        let revoked = |(_, report): &(Time, Report)| match report {
            Report::Left { link_layer, why: Why::Revoked, .. } => *link_layer == heard,
            _ => false,
        };
        let ignores = reports.any(revoked) && !is_there(self);
        let station = heard.clone();
        self.at_mag(gateway, MagInput::Heard { interface, station, link_local: None });
        if ignores && is_there(self) {
            self.served_again = Some(format!("{heard} at gateway {gateway}"));
        }
    }

    /// Checks what servers have said about hosts.
    pub(super) fn check_servers(&mut self, now: Time) -> Result<(), Violation> {
        let again = self.served_again.take();
        Violation::unless(again.is_none(), "revoked", || again.unwrap_or_default())?;
        if self.radius.is_none() {
            return Ok(());
        }
        for gateway in 0..self.mags.len() {
            self.check_authorized(now, gateway)?;
        }
        Ok(())
    }

    /// A gateway serves no host that the server refuses, once it could be told, and ends the service of no other host as
    /// unauthorized.
    fn check_authorized(&mut self, now: Time, gateway: usize) -> Result<(), Violation> {
        let clean = self.clean_since(gateway);
        for place in every() {
            let settled = self.judged.get(&place.0).copied().unwrap_or(Time::ZERO);
            let told = clean.is_some_and(|clean| now > clean.max(settled).max(self.began) + TOLD);
            let is_served = self.served(gateway, place).is_some();
            let good = !(told && is_served && self.is_refused(place.0));
            Violation::unless(good, "authorized", || {
                format!("gateway {gateway} serves {place:?}, which the server refuses")
            })?;
        }
        let reports = self.stage.agent::<Gateway>(self.mags[gateway]).reports();
        let fresh = reports.iter().rev().take_while(|(at, _)| *at == now);
        let ended = |(_, report): &(Time, Report)| match report {
            Report::Left { node, why: Why::Unauthorized, .. } => Some(node.clone()),
            _ => None,
        };
        let ended: Vec<NodeId> = fresh.filter_map(ended).collect();
        for n in 0..NODES {
            let judged = self.judged.get(&n).is_some_and(|at| now.since(*at) < TOLD);
            let unjust = ended.contains(&node(n)) && !self.is_refused(n) && !judged;
            Violation::unless(!unjust, "authorized", || {
                format!("gateway {gateway} has ended the service of node {n}, which is accepted")
            })?;
        }
        Ok(())
    }

    /// At the end the server has one open session of each interface that is served, as far as its client could report
    /// them.
    pub(super) fn finish_servers(&self) -> Result<(), Violation> {
        let Some(server) = self.server() else { return Ok(()) };
        for gateway in 0..self.mags.len() {
            let Some(clean) = self.stage.truth(PathRef { host: gateway, path: 0 }).clean_since()
            else {
                continue;
            };
            let client = gateway_name(gateway).into_bytes();
            let open = server.sessions().values().filter(|session| {
                session.client == client && !session.ended && session.since > clean
            });
            for place in every() {
                let wanted = station(place);
                let own = |session: &&Session| session.station == wanted.0;
                let count = open.clone().filter(own).count();
                let mut stations = self.mag(gateway).stations();
                let served =
                    stations.find(|(_, there, at)| **there == wanted && at.state.is_served());
                let fits = match served {
                    None => count == 0,
                    Some((.., at)) if at.since > clean => count == 1,
                    Some(_) => count <= 1,
                };
                Violation::unless(fits, "accounted", || {
                    format!("the server has {count} sessions of {place:?} at gateway {gateway}")
                })?;
            }
        }
        Ok(())
    }
}
