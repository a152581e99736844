//! The tables that the programs have in the kernel, in user space. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use segue_clock::Time;
use segue_ip::{Bindings, Exit, Port, Source, Sources, Traffic, Tunnel};
use segue_wire::flow::Inner;
use segue_wire::{DropReason, FlowKey};

use super::head::{self, HEAD_MAX};
use super::raw::Hop;
use crate::device::is_local;
use crate::relay::end::{End, Front};
use crate::relay::plane::{Waits, Way};
use crate::relay::words::Carried;
use crate::user::class::{capable, class_of, congested, mark_inner};
use crate::user::segment::{Cut, VnetHeader};

/// Tunnels by their slots, inner sources and bindings.
#[derive(Default)]
pub(in crate::relay) struct State {
    tunnels: BTreeMap<u32, Placed>,
    ends: BTreeMap<End, u32>,
    sources: Sources,
    /// What comes over checked links, with the number of links that may bring each prefix.
    hosts: Bindings<u32>,
    /// This node's addresses.
    own: BTreeSet<IpAddr>,
    bindings: Bindings<Bound>,
}

struct Placed {
    tunnel: Tunnel,
    ifindex: u32,
    carried: Carried,
}

struct Bound {
    way: Way,
    carried: Carried,
}

/// How a packet leaves.
pub(super) struct Leave {
    /// The traffic that it belongs to.
    pub(super) traffic: Traffic,
    /// The slot of the tunnel that it takes.
    pub(super) slot: Option<u32>,
    pub(super) hop: Hop,
}

/// A packet out of a tunnel.
#[derive(Debug)]
pub(in crate::relay) struct Opened {
    /// The tunnel's slot.
    pub(in crate::relay) slot: u32,
    /// How the inner packet is to be cut.
    pub(in crate::relay) vnet: VnetHeader,
    /// Where it is.
    pub(in crate::relay) inner: Range<usize>,
    /// As how many packets it counts.
    pub(in crate::relay) packets: u32,
    /// Bytes of these.
    pub(in crate::relay) bytes: usize,
}

impl State {
    pub(in crate::relay) fn set_tunnel(
        &mut self,
        slot: u32,
        tunnel: &Tunnel,
        ifindex: u32,
        old: Option<&Tunnel>,
    ) {
        let had = old.and_then(|old| {
            self.ends.remove(&End::of(old));
            self.tunnels.remove(&slot)
        });
        let carried = had.map_or_else(Carried::default, |had| had.carried);
        self.ends.insert(End::of(tunnel), slot);
        self.tunnels.insert(slot, Placed { tunnel: *tunnel, ifindex, carried });
    }

    pub(super) fn remove_tunnel(&mut self, slot: u32, tunnel: &Tunnel) {
        self.ends.remove(&End::of(tunnel));
        self.tunnels.remove(&slot);
    }

    pub(super) fn set_own(&mut self, own: BTreeSet<IpAddr>) {
        self.own = own;
    }

    pub(super) fn set_way(&mut self, slot: u32, ifindex: u32) {
        if let Some(placed) = self.tunnels.get_mut(&slot) {
            placed.ifindex = ifindex;
        }
    }

    pub(super) fn tunnel_carried(&self, slot: u32) -> Carried {
        self.tunnels.get(&slot).map_or_else(Carried::default, |placed| placed.carried)
    }

    /// Lets a port bring packets from a source.
    pub(in crate::relay) fn allow(&mut self, source: &Source) {
        if self.sources.allow(*source)
            && let Port::Link(_) = source.port
        {
            let from = Traffic::From(source.prefix);
            let links = self.hosts.get(&from).copied().unwrap_or(0);
            self.hosts.insert(from, links + 1);
        }
    }

    /// Takes that back.
    pub(super) fn forbid(&mut self, source: &Source) {
        let from = Traffic::From(source.prefix);
        if !self.sources.forbid(source) || matches!(source.port, Port::Tunnel(_)) {
            return;
        }
        match self.hosts.get_mut(&from) {
            Some(links) if *links > 1 => *links -= 1,
            _ => drop(self.hosts.remove(&from)),
        }
    }

    pub(super) fn bind(&mut self, traffic: &Traffic, way: Way) {
        let carried = self.traffic_carried(traffic);
        self.bindings.insert(*traffic, Bound { way, carried });
    }

    pub(super) fn unbind(&mut self, traffic: &Traffic) {
        self.bindings.remove(traffic);
    }

    pub(super) fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        self.bindings.get(traffic).map_or_else(Carried::default, |bound| bound.carried)
    }

    /// What a packet is bound to. Which interface it came over is not known: one with a source behind a checked link
    /// counts as having come from there, unless the source is this node.
    fn binding_of(&self, key: &FlowKey) -> Option<(Traffic, Way)> {
        let is_hosts = !self.own.contains(&key.src) && self.hosts.from(key.src).is_some();
        let traffic = self.bindings.of(key, is_hosts)?;
        self.bindings.get(&traffic).map(|bound| (traffic, bound.way))
    }

    /// Whether a packet waits, and where.
    pub(super) fn waits(&self, key: &FlowKey) -> Option<Waits> {
        match self.binding_of(key)?.1 {
            Way { releasing: true, queue, .. } => Some(Waits::Held(queue)),
            Way { exit: Exit::Hold { .. }, queue, .. } => Some(Waits::Held(queue)),
            Way { exit: Exit::Ask, queue, .. } => Some(Waits::Asked(queue)),
            _ => None,
        }
    }

    /// Where a packet leaves, if it may.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn leave(&self, key: &FlowKey, mark: u32) -> Result<Leave, DropReason> {
        let (traffic, way) = self.binding_of(key).ok_or(DropReason::NoBinding)?;
        let (slot, hop) = match way.exit {
            Exit::Tunnel(_) => {
                let placed = self.tunnels.get(&way.slot).filter(|placed| placed.ifindex != 0);
                let placed = placed.ok_or(DropReason::NoRemote)?;
                let (to, ifindex) = (placed.tunnel.remote, placed.ifindex);
                (Some(way.slot), Hop { to, ifindex, mark })
            }
            Exit::Link { interface, next } => {
                let to = next.unwrap_or(key.dst);
                if to.is_ipv6() != key.dst.is_ipv6() {
                    return Err(DropReason::Encapsulation);
                }
                (None, Hop { to, ifindex: interface, mark: 0 })
            }
            Exit::Drop => return Err(DropReason::Denied),
            Exit::Hold { .. } | Exit::Ask => return Err(DropReason::NoBinding),
        };
        Ok(Leave { traffic, slot, hop })
    }

    /// The headers of the tunnel in a slot, for packets of this version, class and length.
    ///
    /// # Errors
    /// There is no such tunnel any more, or the packet does not fit in.
    pub(super) fn head(
        &self,
        slot: u32,
        v6: bool,
        class: u8,
        len: usize,
    ) -> Result<([u8; HEAD_MAX], usize), DropReason> {
        let placed = self.tunnels.get(&slot).ok_or(DropReason::NoRemote)?;
        head::write(&placed.tunnel, v6, class, len).ok_or(DropReason::Encapsulation)
    }

    /// Counts what has left.
    pub(super) fn count_sent(&mut self, leave: &Leave, packets: u64, bytes: u64, now: Time) {
        let tunnel = leave.slot.and_then(|slot| self.tunnels.get_mut(&slot));
        let bound = self.bindings.get_mut(&leave.traffic).map(|bound| &mut bound.carried);
        for carried in tunnel.map(|placed| &mut placed.carried).into_iter().chain(bound) {
            carried.sent_packets += packets;
            carried.sent_bytes += bytes;
        }
        if let Some(bound) = self.bindings.get_mut(&leave.traffic) {
            bound.carried.last_sent = Some(now);
        }
    }

    /// Takes an IP packet out of the tunnel that it is of, and carries congestion on the way into it; `None` if it is no
    /// tunnel's.
    ///
    /// # Errors
    /// Why it is refused.
    pub(in crate::relay) fn take_out(
        &self,
        vnet: VnetHeader,
        packet: &mut [u8],
    ) -> Result<Option<Opened>, DropReason> {
        let Some(read) = head::read(packet) else { return Ok(None) };
        let Some(&slot) = self.ends.get(&read.end) else { return Ok(None) };
        let parsed = Inner::parse(&packet[read.len..])?;
        let inner = read.len..read.len + parsed.len;
        // Only UDP is cut into pieces that no device has put together. What is behind a short packet fills its frame.
        let is_udp = matches!(read.end.front, Front::Udp { .. });
        if is_udp && inner.end < packet.len() && vnet.gso_type != VnetHeader::GSO_NONE {
            return Err(DropReason::Uncut);
        }
        if !self.may_bring(slot, &parsed.key) {
            return Err(DropReason::InnerSource);
        }
        let vnet = behind(vnet, read.len).ok_or(DropReason::Decapsulation)?;
        let packet = &mut packet[inner.clone()];
        if congested(read.class) {
            if !capable(class_of(packet)) {
                return Err(DropReason::Decapsulation);
            }
            mark_inner(packet);
        }
        let cut = Cut::new(&vnet, packet)?;
        Ok(Some(Opened { slot, vnet, inner, packets: cut.count, bytes: cut.bytes }))
    }

    /// Whether packets of this flow may come out of the tunnel in a slot.
    fn may_bring(&self, slot: u32, key: &FlowKey) -> bool {
        let port = self.tunnels.get(&slot).map(|placed| Port::Tunnel(placed.tunnel.number));
        !is_local(key.src)
            && !is_local(key.dst)
            && port.is_some_and(|port| self.sources.may_bring(port, key.src))
    }

    /// Counts what came out of a tunnel.
    pub(super) fn count_received(&mut self, slot: u32, packets: u64, bytes: u64) {
        if let Some(placed) = self.tunnels.get_mut(&slot) {
            placed.carried.received_packets += packets;
            placed.carried.received_bytes += bytes;
        }
    }
}

/// A packet's virtio header without the outer headers; `None` if it does not fit the inner packet.
fn behind(vnet: VnetHeader, outer: usize) -> Option<VnetHeader> {
    let outer = outer as u16;
    let plain = (vnet.gso_type == VnetHeader::GSO_NONE).then(VnetHeader::default);
    if vnet.flags & VnetHeader::NEEDS_CSUM == 0 {
        return plain;
    }
    match vnet.csum_start.checked_sub(outer) {
        Some(csum_start) => {
            Some(VnetHeader { csum_start, hdr_len: vnet.hdr_len.saturating_sub(outer), ..vnet })
        }
        // It is the outer header's, which is gone.
        None => plain,
    }
}
