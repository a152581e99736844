//! Hosts, and the forwarding that they need: derived anew from their bindings at each change, so that what the node has is
//! always what the bindings say.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::Time;
use segue_ip::{
    Binding as Bind, Exit, Form, Forward, Output, Port, Prefix, Source, Traffic, Tunnel,
};

use super::Lma;
use super::io::{LmaRecord, StoredLease};
use super::state::{Host, Peer, SessionState, TUNNEL};
use crate::{LinkLayer, NodeId};

impl Lma {
    /// The sessions of a host that are there, by number: the gateway.
    pub(super) fn active(&self, host: &Host) -> Vec<(u32, Ipv6Addr)> {
        let known = host.sessions.iter().filter_map(|n| Some((*n, self.sessions.get(n)?)));
        let active = known.filter(|(_, at)| at.value.state == SessionState::Active);
        active.map(|(number, at)| (number, at.peer)).collect()
    }

    /// Where what is for a prefix goes: to the only interface that can have it, or where each flow is placed.
    fn exit(&self, node: &NodeId, prefix: Prefix) -> Exit {
        let usable = self.usable(node, prefix);
        let tunnel = |number: &u32| {
            let gateway = self.sessions.get(number).map(|at| at.peer)?;
            self.peers.get(&gateway).map(|peer| peer.tunnel)
        };
        let asks = usable.len() > 1 || self.config.always_ask && !usable.is_empty();
        match usable.first().and_then(tunnel) {
            Some(_) if asks => Exit::Ask,
            Some(tunnel) => Exit::Tunnel(tunnel),
            None => Exit::Drop,
        }
    }

    /// What a host needs. The first lines are to be there before the later ones.
    fn wanted(&self, node: &NodeId, host: &Host) -> Vec<Forward> {
        let active = self.active(host);
        if host.sessions.is_empty() {
            return Vec::new();
        }
        // Any gateway that serves the host may bring any of its prefixes: flows go up where the host chooses.
        let gateways = Lma::gateways(&active);
        let tunnels = gateways.iter().filter_map(|gateway| self.peers.get(gateway));
        let ports: Vec<Port> = tunnels.map(|peer| Port::Tunnel(peer.tunnel)).collect();
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

    /// Gives the node what a host needs now, and takes back what it needs no longer; forgets a host without bindings, whose
    /// prefixes rest.
    pub(super) fn follow(&mut self, now: Time, node: &NodeId) {
        // Flows first: what is bound by itself goes on where it can while the rest is led anew.
        self.follow_flows(node);
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

    /// There is a binding at this gateway: makes the tunnel to it.
    pub(super) fn reach(&mut self, now: Time, gateway: Ipv6Addr) {
        if self.peers.contains_key(&gateway) {
            return;
        }
        // Their numbers come round after more gateways than there can be at a time.
        let used: BTreeSet<u32> = self.peers.values().map(|peer| peer.tunnel).collect();
        let number = loop {
            let number = (self.number(TUNNEL) % (1 << 31)) as u32;
            if !used.contains(&number) {
                break number;
            }
        };
        let (local, remote) = (self.config.address.into(), gateway.into());
        let tunnel = Tunnel { number, local, remote, interface: None, form: Form::Ip };
        self.out.push_back(Output::Forward(Forward::Tunnel(tunnel)));
        self.hearts.listen(now, gateway, self.rng.next_u64());
        self.peers.insert(gateway, Peer { tunnel: number });
    }

    /// Takes back the tunnel to a gateway that has no binding any more.
    pub(super) fn leave_gateway(&mut self, gateway: Ipv6Addr) {
        if self.sessions.of(&gateway).next().is_some() {
            return;
        }
        let Some(peer) = self.peers.remove(&gateway) else { return };
        self.hearts.forget(gateway);
        let (local, remote) = (self.config.address.into(), gateway.into());
        let number = peer.tunnel;
        let tunnel = Tunnel { number, local, remote, interface: None, form: Form::Ip };
        self.out.push_back(Output::Withdraw(Forward::Tunnel(tunnel)));
    }
}

/// Whether a part takes the place of another, or is the same.
fn replaces(new: &Forward, old: &Forward) -> bool {
    match (new, old) {
        (Forward::Bind(new), Forward::Bind(old)) => new.traffic == old.traffic,
        _ => new == old,
    }
}
