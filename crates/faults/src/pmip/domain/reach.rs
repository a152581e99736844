//! Invariants of an anchor and gateways that must be reachable: former gateways are notified, and no flow stays
//! at a silent gateway.

use alloc::format;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_pmip::{PeerAddress, SessionState};

use super::super::config::{FORMER, SLACK};
use super::Domain;
use crate::Violation;
use crate::fault::PathRef;

impl Domain {
    /// When the anchor moves an interface to another gateway, it notifies the former one, which then cannot end
    /// the binding.
    pub(super) fn check_former(&self, now: Time) -> Result<(), Violation> {
        for (_, at, until, session) in self.lma().sessions() {
            // Only the gateway itself may report that an interface has left.
            let left = until - self.lma().config().delete_delay;
            let is_leaving =
                session.state == SessionState::Leaving && now > left + Span::from_secs(2);
            let here = self.addresses.iter().position(|address| *address == at);
            // A gateway that restarted while reporting this will soon report that the interface is present after
            // all.
            let reached = |gateway: &usize| self.clean_since(*gateway).is_some_and(|at| at <= left);
            let stays = here.filter(|_| is_leaving).filter(reached).is_some_and(|gateway| {
                self.mag(gateway).stations().any(|(_, there, station)| {
                    *there == session.link_layer
                        && station.state.is_served()
                        && station.registered.is_some_and(|then| then < left)
                })
            });
            Violation::unless(!stays, "former", || format!("{session:?} has not left {at}"))?;
            let quiet = |gateway: usize| {
                // It is notified when the interface is taken from it, and not again when the interface returns to
                // where it went.
                let place = (session.link_layer.clone(), self.addresses[gateway]);
                let told = self.taken.get(&place).copied().unwrap_or(session.since);
                self.clean_since(gateway).is_some_and(|clean| clean <= told)
            };
            let keeps = |gateway: &usize| {
                self.addresses[*gateway] != at && quiet(*gateway) && {
                    let served =
                        || self.mag(*gateway).stations().filter(|(.., at)| at.state.is_served());
                    served().any(|(_, there, station)| {
                        // If another interface has its prefixes since, the gateway learned this from that
                        // interface.
                        let is_taken_over = served().any(|(_, other, at)| {
                            other != there && at.prefixes == station.prefixes
                        });
                        *there == session.link_layer
                            && !is_taken_over
                            && station.registered.is_some_and(|then| then < session.since)
                    })
                }
            };
            let late = now > session.since + FORMER;
            let former = (0..self.mags.len()).filter(|_| late).find(keeps);
            Violation::unless(former.is_none(), "former", || {
                format!("gateway {former:?} has kept {:?}", session.link_layer)
            })?;
        }
        Ok(())
    }

    /// Time since when the path to a gateway and the gateway itself have been free of faults.
    pub(super) fn clean_since(&self, gateway: usize) -> Option<Time> {
        let clean = self.stage.truth(PathRef { host: gateway, path: 0 }).clean_since();
        clean.map(|clean| clean.max(self.stage.resumed(gateway)))
    }

    /// Time since when a gateway has been reachable without faults, and time since when it has been unreachable.
    fn reached(&self, at: PeerAddress) -> (Option<Time>, Option<Time>) {
        let Some(gateway) = self.addresses.iter().position(|address| *address == at) else {
            return (None, None);
        };
        let truth = self.stage.truth(PathRef { host: gateway, path: 0 });
        let clean = self.clean_since(gateway);
        let dead = truth.uplink_dead_since().into_iter().chain(truth.downlink_dead_since()).min();
        (clean, dead)
    }

    /// If flows are placed by quality, none stays at an unreachable gateway while its host has another one.
    pub(super) fn check_reached(&self, now: Time) -> Result<(), Violation> {
        let lma = self.lma();
        let Some(probed) = &lma.config().keepalive else { return Ok(()) };
        let rtt_max = (0..self.mags.len()).map(|n| self.stage.rtt_max(n)).max().unwrap_or_default();
        // Before the first answer the timeout is K + 1 periods, and a late check is postponed by a quarter of a
        // period.
        let noticed = probed.t_ka * u64::from(probed.k + 2) + rtt_max + SLACK;
        let back = noticed + probed.t_ka * u64::from(probed.up_after + 1);
        let settled = |at: Time, after: Span| now > at.max(self.began) + after;
        for (key, flow) in lma.flows() {
            let Some((_, at, _, session)) =
                lma.sessions_of(&flow.node).find(|(number, ..)| *number == flow.session)
            else {
                continue;
            };
            // The anchor starts probing a gateway when the host arrives there.
            let dead = self.reached(at).1.map(|dead| dead.max(session.since));
            let Some(dead) = dead.filter(|dead| settled(*dead, noticed)) else { continue };
            let prefix = Prefix::new(key.dst, 64).network();
            let other = lma.sessions_of(&flow.node).find(|(_, other, _, session)| {
                let carries =
                    session.prefixes.contains(&prefix) || session.elsewhere().contains(&prefix);
                let clean = self.reached(*other).0.map(|clean| clean.max(session.since));
                *other != at
                    && carries
                    && session.state == SessionState::Active
                    && clean.is_some_and(|clean| settled(clean, back))
            });
            Violation::unless(other.is_none(), "reached", || {
                format!("{key} stays at {at}, dead since {dead:?}, beside {other:?}")
            })?;
        }
        Ok(())
    }
}
