//! Static routing over fewest hops.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_ip::Prefix;

use super::{Hop, Network, NodeId};

impl Network {
    /// Gives every node a route to every address of every other, over fewest hops; among equals over the
    /// neighbour whose links to the destination were added first. An interface's own addresses are reached
    /// over its own link.
    ///
    /// Nodes with `transit` false carry nothing for others. Air links have no static routes, and addresses
    /// inside of a translator have none outside.
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

    /// Gives every node a route for a prefix to a node, over fewest hops.
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

    /// For each node from which `goal` is reached, the interface that leads there; over the interface
    /// `over` of the goal if one is named.
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
                // The way back from the neighbour is the other direction of the same link.
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
