//! Static routing with the fewest hops.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_ip::Prefix;

use super::{Hop, Network, NodeId};

impl Network {
    /// Adds routes from every node to every address of all other nodes with the fewest hops. Among equals it
    /// prefers the neighbour whose links to the destination were added first. Addresses of an interface are
    /// reached over its own link.
    ///
    /// Nodes for which `transit` is false do not carry traffic for others. Air links get no static routes, and
    /// nodes outside of a translator get no routes to inside addresses.
    pub fn route_all(&mut self, transit: impl Fn(NodeId) -> bool) {
        let goals: Vec<(NodeId, IpAddr, Option<u32>)> = self
            .nodes()
            .flat_map(|(id, node)| {
                let own = node.addresses.iter().map(move |a| (id, *a, None));
                let far = node.interfaces().flat_map(move |interface| {
                    interface.addresses.iter().map(move |a| (id, *a, Some(interface.index)))
                });
                own.chain(far)
            })
            .collect();
        for (goal, address, over) in goals {
            for (node, index) in self.towards(goal, over, &transit) {
                let routes = &mut self.nodes[node.0 as usize].routes;
                routes.set(Prefix::host(address), Hop::Interface(index));
            }
        }
    }

    /// Adds routes for a prefix from every node to `goal` with the fewest hops.
    pub(crate) fn route_prefix(
        &mut self,
        prefix: Prefix,
        goal: NodeId,
        transit: impl Fn(NodeId) -> bool,
    ) {
        for (node, index) in self.towards(goal, None, &transit) {
            self.nodes[node.0 as usize].routes.set(prefix, Hop::Interface(index));
        }
    }

    /// For each node that can reach `goal`, the interface in its direction. If `over` is given, `goal` is reached
    /// over that interface of it.
    fn towards(
        &self,
        goal: NodeId,
        over: Option<u32>,
        transit: &impl Fn(NodeId) -> bool,
    ) -> Vec<(NodeId, u32)> {
        let mut reached = vec![None; self.nodes.len()];
        let mut inside = vec![false; self.nodes.len()];
        let mut frontier = VecDeque::from([goal]);
        let mut found = Vec::new();
        while let Some(node) = frontier.pop_front() {
            if node != goal && !transit(node) {
                continue;
            }
            let nat = self.node(node).nat();
            for adapter in &self.node(node).adapters {
                let index = adapter.interface.index;
                let own = node != goal || over.is_none_or(|over| over == index);
                let known = nat.is_none_or(|nat| !inside[node.0 as usize] || nat.inside(index));
                let allowed = own && known && !adapter.air;
                let Some(out) = adapter.out.filter(|_| allowed) else { continue };
                // The way back from the neighbour is the opposite direction of the same link.
                let (next, back) = self.channel(out).to;
                if next != goal && reached[next.0 as usize].is_none() {
                    reached[next.0 as usize] = Some(back);
                    let nat = self.node(next).nat();
                    inside[next.0 as usize] = nat.is_some_and(|nat| nat.inside(back));
                    found.push((next, back));
                    frontier.push_back(next);
                }
            }
        }
        found
    }
}
