//! The path of a packet through an unloaded network.

use alloc::vec::Vec;

use segue_clock::Span;

use super::meter::Forwarding;
use segue_sim::net::{Hop, Network, NodeId};
use segue_sim::packet::Packet;

/// Maximum number of links of a path.
const MAX_HOPS: u32 = 64;

/// Rate and delay of the links that a packet takes from a node to the owner of its destination, according to the
/// current routes. `None` if a route is missing or leads to an agent, since tunnels are not followed.
#[must_use]
pub fn links_of(
    network: &Network,
    from: NodeId,
    packet: &Packet,
) -> Option<Vec<(Option<u64>, Span)>> {
    let mut node = from;
    let mut links = Vec::new();
    for _ in 0..MAX_HOPS {
        let here = network.node(node);
        if here.owns(packet.dst) {
            return Some(links);
        }
        let Some(Hop::Interface(index)) = here.routes.look_up(packet) else { return None };
        let channel = network.channel(here.adapter(index)?.out?);
        let spec = channel.spec();
        links.push((spec.rate_bps, spec.delay));
        node = channel.to.0;
    }
    None
}

/// [`links_of`] as the forwarding delay of both directions.
#[must_use]
pub fn path_of(network: &Network, from: NodeId, packet: &Packet) -> Option<Forwarding> {
    links_of(network, from, packet).map(Forwarding::Links)
}
