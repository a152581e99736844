//! Checks before a run that packets would arrive, by the initial routes.

use std::net::IpAddr;

use segue_netem::{Jitter, LinkSpec, Profile};
use segue_sim::net::Hop;
use segue_sim::{ChannelId, Network, NodeId, Packet, Raw};

/// Maximum number of routers on a route.
const MAX_HOPS: u32 = 64;

/// A packet for a route lookup.
#[must_use]
pub(super) fn probe(from: (IpAddr, u16), to: (IpAddr, u16), protocol: u8, dscp: u8) -> Packet {
    Packet { dscp, ..Packet::new(protocol, from, to, 0, Raw::default()) }
}

/// Follows a packet to the node that has its destination, or to a tunnel, whose route is decided during the run.
/// Returns true if a translator is on the route, so that answers are sent to a different address.
///
/// # Errors
/// The point where the packet is dropped.
pub(super) fn follow(network: &Network, from: NodeId, packet: &Packet) -> Result<bool, String> {
    follow_from(network, from, from, packet, &mut |_| ())
}

/// If no link on a packet's route takes time, the first of them. `None` if one does, or if the route enters a tunnel.
pub(super) fn timeless(network: &Network, from: NodeId, packet: &Packet) -> Option<ChannelId> {
    let (mut first, mut is_timeless) = (None, true);
    let way = follow_from(network, from, from, packet, &mut |id| {
        first.get_or_insert(id);
        is_timeless &= takes_no_time(network.channel(id).spec());
    });
    let arrives = way.is_ok_and(|_| network.nodes().any(|(_, node)| node.owns(packet.dst)));
    first.filter(|_| arrives && is_timeless)
}

fn takes_no_time(spec: &LinkSpec) -> bool {
    let LinkSpec { rate_bps, delay, jitter, profile, .. } = spec;
    rate_bps.is_none() && delay.0 == 0 && *jitter == Jitter::None && *profile == Profile::default()
}

/// The same for a packet that leaves over this interface, regardless of the routes.
///
/// # Errors
/// The point where the packet is dropped.
pub(super) fn follow_over(
    network: &Network,
    from: NodeId,
    index: u32,
    packet: &Packet,
) -> Result<bool, String> {
    let node = network.node(from);
    match node.adapter(index).and_then(|adapter| adapter.out) {
        Some(out) => follow_from(network, from, network.channel(out).to.0, packet, &mut |_| ()),
        None => Err(format!("{} is not attached", node.name)),
    }
}

fn follow_from(
    network: &Network,
    from: NodeId,
    mut at: NodeId,
    packet: &Packet,
    crossed: &mut dyn FnMut(ChannelId),
) -> Result<bool, String> {
    let (first, from, dst) = (from, &network.node(from).name, packet.dst);
    let mut translated = false;
    for _ in 0..MAX_HOPS {
        let node = network.node(at);
        if node.owns(dst) {
            return Ok(translated);
        }
        translated |= node.nat().is_some();
        if at != first && !node.forwards {
            let name = &node.name;
            return Err(format!("{from} does not reach {dst}: {name} is no transit"));
        }
        let out = match node.routes.look_up(packet) {
            Some(Hop::Agent(_)) => return Ok(translated),
            Some(Hop::Interface(index)) => node.adapter(index).and_then(|a| a.out),
            Some(Hop::Reject) => {
                return Err(format!("{from} does not reach {dst}: {} rejects it", node.name));
            }
            None => {
                return Err(format!(
                    "{from} does not reach {dst}: {} has no route to it",
                    node.name
                ));
            }
        };
        let Some(out) = out else {
            return Err(format!("{from} does not reach {dst}: {} is not attached", node.name));
        };
        crossed(out);
        at = network.channel(out).to.0;
    }
    Err(format!("{from} does not reach {dst}: its way goes round in a circle"))
}
