//! Nodes and their interfaces.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Interface, MAIN_TABLE, Route};

use super::channel::Channel;
use super::ids::{AgentId, CellId, ChannelId};
use super::nat::Nat;
use super::policy::Policy;
use super::relay::Relay;
use super::routes::{Hop, Routes};
use crate::packet::Packet;

/// A node's attachment to a link: the interface, and the channel to the other end.
#[derive(Clone, Debug, Default)]
pub struct Adapter {
    /// The interface as agents see it. Its index starts at 1, as in a kernel, and is its position among the
    /// node's adapters. Its addresses are reached over this interface only; leave them empty if the node's own
    /// addresses are used. Its gateway is the router at the other end.
    pub interface: Interface,
    /// The direction away from the node; `None` while it is attached to nothing.
    pub out: Option<ChannelId>,
    /// It notices when the channel towards it is cut or mended, as a wired interface senses its carrier; the
    /// node's agents are notified. Outages that it does not notice are silent.
    pub senses: bool,
    /// It is a radio, or a cell's interface towards a radio; static routing ignores it.
    pub air: bool,
    /// Cells to which a radio is attached, newest last.
    pub cells: Vec<CellId>,
    /// The cell, if this is a router's interface towards a radio.
    pub of_cell: Option<CellId>,
    /// Addresses for which the node answers on the link.
    pub proxied: Vec<IpAddr>,
}

/// A host or router.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// Addresses of the node itself, reachable over any of its interfaces.
    pub addresses: Vec<IpAddr>,
    /// Its adapters; index 1 is the first element.
    pub adapters: Vec<Adapter>,
    /// The main routing table, used unless a policy rule selects another.
    pub routes: Routes,
    /// Additional tables, and the rules that select among all tables.
    pub policy: Policy,
    /// True if it forwards packets like a router.
    pub forwards: bool,
    /// Packets for others that it dropped because it does not forward.
    pub not_forwarded: u64,
    /// Protocol, port and agent, in ascending order. Port 0 receives everything that has no specific listener.
    pub(super) ports: Vec<((u8, u16), AgentId)>,
    pub(super) nat: Option<Box<Nat>>,
    /// Created when an agent first installs a tunnel, source or binding.
    pub(super) relay: Option<Box<Relay>>,
    /// End of a stall.
    pub(super) stalled: Time,
}

impl Node {
    pub(super) fn new(name: String) -> Node {
        Node {
            name,
            addresses: Vec::new(),
            adapters: Vec::new(),
            routes: Routes::default(),
            policy: Policy::default(),
            forwards: true,
            not_forwarded: 0,
            ports: Vec::new(),
            nat: None,
            relay: None,
            stalled: Time::ZERO,
        }
    }

    /// Returns true if an address belongs to this node.
    #[must_use]
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
            || self.interfaces().any(|interface| interface.addresses.contains(&address))
    }

    /// Its interfaces, ordered by index.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.adapters.iter().map(|adapter| &adapter.interface)
    }

    /// An adapter by the index of its interface.
    #[must_use]
    pub fn adapter(&self, index: u32) -> Option<&Adapter> {
        self.adapters.get((index as usize).checked_sub(1)?)
    }

    /// The outgoing interface of a route: the one that it names, or the one that has its gateway.
    #[must_use]
    pub fn way_of(&self, route: &Route) -> Option<u32> {
        match (route.index, route.gateway) {
            (0, Some(gateway)) => {
                let mut all = self.interfaces();
                Some(all.find(|interface| interface.gateways.contains(&gateway))?.index)
            }
            (index, _) => self.adapter(index).map(|adapter| adapter.interface.index),
        }
    }

    /// The table with this number.
    pub(super) fn table(&mut self, number: u32) -> &mut Routes {
        if number == MAIN_TABLE { &mut self.routes } else { self.policy.table(number) }
    }

    /// Routing decision for a packet that came over interface `over`, or out of a tunnel.
    pub(super) fn way_on(&self, over: Option<u32>, packet: &Packet) -> Option<Hop> {
        let by = over.and_then(|index| self.adapter(index));
        let by = by.map(|adapter| adapter.interface.name.as_str());
        self.policy.look_up(&self.routes, by, packet)
    }

    /// Routing decision for a packet that the node sends.
    pub(super) fn way_out(&self, packet: &Packet) -> Option<Hop> {
        self.policy.look_up(&self.routes, Some("lo"), packet)
    }

    /// Its address translator.
    #[must_use]
    pub fn nat(&self) -> Option<&Nat> {
        self.nat.as_deref()
    }

    /// Its relay, once agents have installed anything there.
    #[must_use]
    pub fn relay(&self) -> Option<&Relay> {
        self.relay.as_deref()
    }

    pub(super) fn adapter_mut(&mut self, index: u32) -> &mut Adapter {
        &mut self.adapters[index as usize - 1]
    }

    pub(super) fn agent_at(&self, protocol: u8, port: u16) -> Option<AgentId> {
        let find = |key: (u8, u16)| self.ports.binary_search_by_key(&key, |(known, _)| *known);
        let place = find((protocol, port)).or_else(|_| find((protocol, 0))).ok()?;
        Some(self.ports[place].1)
    }
}

/// Returns true if packets to this address stay on their link: 224.0.0.0/24 (RFC 5771, section 4) and ff02::/16
/// with any flags (RFC 4291, section 2.7).
#[must_use]
pub fn is_link_scope(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => matches!(a.octets(), [224, 0, 0, _]),
        IpAddr::V6(a) => a.segments()[0] & 0xff0f == 0xff02,
    }
}

/// The interface over which the owner of `address` is reached without a router in between. The neighbours of a
/// radio are in the cells to which it is attached; the neighbours of a cell are the attached radios.
pub(crate) fn neighbour(
    node: &Node,
    nodes: &[Node],
    channels: &[Channel],
    address: IpAddr,
) -> Option<u32> {
    let found = node.adapters.iter().find(|adapter| {
        let Some(out) = adapter.out else { return false };
        let (there, index) = channels[out.0 as usize].to;
        let there = &nodes[there.0 as usize];
        let has =
            |a: &Adapter| a.interface.addresses.contains(&address) || a.proxied.contains(&address);
        let at_end = there.adapter(index).is_some_and(has);
        at_end || there.addresses.contains(&address)
    });
    found.map(|adapter| adapter.interface.index)
}
