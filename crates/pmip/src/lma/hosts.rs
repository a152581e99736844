//! Forwarding state of hosts. Each change derives it again from the bindings, so that it always matches them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::{Binding as Bind, Exit, Forward, Output, Port, Prefix, Source, Traffic};

use super::Lma;
use super::io::{LmaRecord, StoredLease};
use super::state::{Host, SessionState};
use crate::{LinkLayer, NodeId, PeerAddress};

impl Lma {
    /// The active bindings of a host: number and gateway.
    pub(super) fn active(&self, host: &Host) -> Vec<(u32, PeerAddress)> {
        let known = host.sessions.iter().filter_map(|n| Some((*n, self.sessions.get(n)?)));
        let active = known.filter(|(_, at)| at.value.state == SessionState::Active);
        active.map(|(number, at)| (number, at.peer)).collect()
    }

    /// Exit for traffic to a prefix: the tunnel of the only usable interface, `Ask` if flows are placed individually,
    /// or `Drop` without a usable interface.
    fn exit(&self, node: &NodeId, prefix: Prefix) -> Exit {
        let usable = self.usable(node, prefix);
        let tunnel = |number: &u32| self.tunnel_of(*number);
        let asks = usable.len() > 1 || self.config.always_ask && !usable.is_empty();
        match usable.first().and_then(tunnel) {
            Some(_) if asks => Exit::Ask,
            Some(tunnel) => Exit::Tunnel(tunnel),
            None => Exit::Drop,
        }
    }

    /// Forwarding state that a host needs. Earlier entries must be installed before later ones.
    fn wanted(&self, node: &NodeId, host: &Host) -> Vec<Forward> {
        let active = self.active(host);
        if host.sessions.is_empty() {
            return Vec::new();
        }
        // Any gateway of the host may send from any of its prefixes: the host chooses the interface of its uplink
        // traffic.
        let tunnels = active.iter().filter_map(|(number, _)| self.tunnel_of(*number));
        let ports: BTreeSet<Port> = tunnels.map(Port::Tunnel).collect();
        let prefixes = || host.prefixes.keys().copied();
        let sources = prefixes().flat_map(|prefix| {
            ports.iter().map(move |port| Forward::Source(Source { port: *port, prefix }))
        });
        let binds = prefixes().map(|prefix| {
            let (traffic, exit) = (Traffic::To(prefix), self.exit(node, prefix));
            Forward::Bind(Bind { traffic, exit })
        });
        sources.chain(binds).collect()
    }

    /// Installs the forwarding state that a host needs and withdraws the rest. Forgets a host without bindings; its
    /// prefixes stay reserved.
    pub(super) fn follow(&mut self, now: Time, node: &NodeId) {
        // Flows first: individually placed flows move to a usable binding before the prefixes are rerouted.
        self.follow_flows(now, node);
        let Some(host) = self.hosts.get(node) else { return };
        let wanted = self.wanted(node, host);
        let given = &host.given;
        let new = wanted.iter().filter(|part| !given.contains(part)).cloned();
        let old = given.iter().filter(|part| !wanted.iter().any(|new| replaces(new, part)));
        self.out.extend(new.map(Output::Forward));
        self.out.extend(old.cloned().map(Output::Withdraw));
        let Some(host) = self.hosts.get_mut(node) else { return };
        host.given = wanted;
        if host.sessions.is_empty() {
            let host = self.hosts.remove(node).unwrap_or_default();
            for (prefix, link_layer) in host.prefixes {
                self.leases.release_one(now, prefix);
                self.store_lease(prefix, node, link_layer, Some(now + self.config.prefix_hold));
            }
        }
    }

    pub(super) fn store_lease(
        &mut self,
        prefix: Prefix,
        node: &NodeId,
        link_layer: LinkLayer,
        rests: Option<Time>,
    ) {
        let rests = rests.map(|until| self.config.clock.at(until));
        let lease = StoredLease { node: node.clone(), link_layer, rests };
        self.out.push_back(Output::Persist(LmaRecord::Lease(prefix, Some(lease))));
    }
}

/// Returns true if installing `new` replaces `old`, so that `old` needs no withdrawal.
fn replaces(new: &Forward, old: &Forward) -> bool {
    match (new, old) {
        (Forward::Bind(new), Forward::Bind(old)) => new.traffic == old.traffic,
        _ => new == old,
    }
}
