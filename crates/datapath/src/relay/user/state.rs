//! The user-space version of the programs' tables. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use segue_clock::Time;
use segue_ip::{Bindings, Exit, Port, Prefix, Source, Sources, Traffic, Tunnel};
use segue_linux::route::Hop;
use segue_wire::{DropReason, FlowKey};

use super::head::{self, HEAD_MAX};
use super::raw::Out;
use crate::checksum::set_ipv4;
use crate::device::is_local;
use crate::relay::end::{End, Front};
use crate::relay::plane::{Waits, Way};
use crate::relay::words::{Carried, Count, Counts, RelaySetup, read_inner};
use crate::user::class::{capable, class_of, congested, mark_inner};
use crate::user::segment::{Cut, VnetHeader};

/// A bit in the flags of a virtio header that has no other use: the packet came out of a tunnel and is bound again.
pub(super) const TURNED: u8 = 0x80;

/// Tunnels by slot, inner sources and bindings.
#[derive(Default)]
pub(in crate::relay) struct State {
    tunnels: BTreeMap<u32, Placed>,
    ends: BTreeMap<End, u32>,
    sources: Sources,
    /// This node's addresses.
    own: BTreeSet<IpAddr>,
    bindings: Bindings<Bound>,
    /// Flows are distinguished by their flow labels, too.
    labels: bool,
    counting: Counts,
    /// Counters of prefixes, each stored as a prefix of destinations.
    counts: Bindings<Count>,
}

/// Source and destination of an inner packet.
type InnerEnds = (IpAddr, IpAddr);

struct Placed {
    tunnel: Tunnel,
    hop: Option<Hop>,
    carried: Carried,
}

struct Bound {
    way: Way,
    carried: Carried,
}

/// How a packet leaves.
pub(super) struct Leave {
    /// The traffic that the packet belongs to.
    pub(super) traffic: Traffic,
    ends: InnerEnds,
    /// The slot of its tunnel, if it leaves through one.
    pub(super) slot: Option<u32>,
    pub(super) out: Out,
}

/// A decapsulated packet.
#[derive(Debug)]
pub(in crate::relay) struct Opened {
    /// The tunnel's slot.
    pub(in crate::relay) slot: u32,
    pub(super) flow: FlowKey,
    /// How to segment the inner packet.
    pub(in crate::relay) vnet: VnetHeader,
    /// The range of the inner packet in the buffer.
    pub(in crate::relay) inner: Range<usize>,
    /// Number of packets to count: more than 1 for a super-packet.
    pub(in crate::relay) packets: u32,
    /// Bytes of these packets.
    pub(in crate::relay) bytes: usize,
    /// The inner packet is bound again, which its virtio header marks.
    pub(in crate::relay) turns: bool,
}

impl State {
    /// An empty state.
    pub(super) fn new(setup: &RelaySetup) -> State {
        State { labels: setup.labels, counting: setup.counts, ..State::default() }
    }

    pub(super) fn count(&mut self, prefix: Prefix) {
        self.counts.insert(Traffic::To(prefix), Count::default());
    }

    pub(super) fn count_no_more(&mut self, prefix: Prefix) {
        self.counts.remove(&Traffic::To(prefix));
    }

    pub(super) fn counted(&self, prefix: Prefix) -> Count {
        self.counts.get(&Traffic::To(prefix)).copied().unwrap_or_default()
    }

    /// Counts packets from a host.
    fn count_from(&mut self, host: IpAddr, packets: u64, bytes: u64) {
        if let Some(of) = self.counts.to(host)
            && let Some(count) = self.counts.get_mut(&of)
        {
            count.from_packets += packets;
            count.from_bytes += bytes;
        }
    }

    /// Counts packets to a host.
    fn count_to(&mut self, host: IpAddr, packets: u64, bytes: u64) {
        if let Some(of) = self.counts.to(host)
            && let Some(count) = self.counts.get_mut(&of)
        {
            count.to_packets += packets;
            count.to_bytes += bytes;
        }
    }

    pub(in crate::relay) fn set_tunnel(
        &mut self,
        slot: u32,
        tunnel: &Tunnel,
        hop: Option<Hop>,
        old: Option<&Tunnel>,
    ) {
        let had = old.and_then(|old| {
            self.ends.remove(&End::of(old));
            self.tunnels.remove(&slot)
        });
        let carried = had.map_or_else(Carried::default, |had| had.carried);
        self.ends.insert(End::of(tunnel), slot);
        self.tunnels.insert(slot, Placed { tunnel: *tunnel, hop, carried });
    }

    pub(super) fn remove_tunnel(&mut self, slot: u32, tunnel: &Tunnel) {
        self.ends.remove(&End::of(tunnel));
        self.tunnels.remove(&slot);
    }

    pub(super) fn set_own(&mut self, own: BTreeSet<IpAddr>) {
        self.own = own;
    }

    pub(super) fn set_hop(&mut self, slot: u32, hop: Option<Hop>) {
        if let Some(placed) = self.tunnels.get_mut(&slot) {
            placed.hop = hop;
        }
    }

    pub(super) fn tunnel_carried(&self, slot: u32) -> Carried {
        self.tunnels.get(&slot).map_or_else(Carried::default, |placed| placed.carried)
    }

    /// Allows packets from a source to arrive through a port.
    pub(in crate::relay) fn allow(&mut self, source: &Source) {
        self.sources.allow(*source);
    }

    /// Withdraws a permission.
    pub(super) fn forbid(&mut self, source: &Source) {
        self.sources.forbid(source);
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

    /// The binding of a packet. The interface of arrival is unknown: a packet with a host's source is assumed to have
    /// come over a checked link, unless it came out of a tunnel and `turned`.
    fn binding_of(&self, key: &FlowKey, turned: bool) -> Option<(Traffic, Way)> {
        let traffic = self.bindings.of(key, !turned && self.is_hosts(key.src))?;
        self.bindings.get(&traffic).map(|bound| (traffic, bound.way))
    }

    /// True if a source is behind a checked link.
    fn is_hosts(&self, source: IpAddr) -> bool {
        !self.own.contains(&source) && self.sources.is_behind_link(source)
    }

    /// The queue in which a packet must wait, if any.
    pub(super) fn waits(&self, key: &FlowKey, turned: bool) -> Option<Waits> {
        match self.binding_of(key, turned)?.1 {
            Way { releasing: true, queue, .. } => Some(Waits::Held(queue)),
            Way { exit: Exit::Hold { .. }, queue, .. } => Some(Waits::Held(queue)),
            Way { exit: Exit::Ask, queue, .. } => Some(Waits::Asked(queue)),
            _ => None,
        }
    }

    /// The way on which a packet leaves.
    ///
    /// # Errors
    /// The reason why the packet is refused.
    pub(super) fn leave(
        &self,
        key: &FlowKey,
        turned: bool,
        mark: u32,
    ) -> Result<Leave, DropReason> {
        let (traffic, way) = self.binding_of(key, turned).ok_or(DropReason::NoBinding)?;
        let (slot, out) = match way.exit {
            Exit::Tunnel(_) => {
                let placed = self.tunnels.get(&way.slot).ok_or(DropReason::NoRemote)?;
                let hop = placed.hop.ok_or(DropReason::NoRemote)?;
                // The kernel itself resolves a next hop of the other family.
                let same = hop.next.is_ipv6() == placed.tunnel.remote.is_ipv6();
                let next = if same { hop.next } else { placed.tunnel.remote };
                (Some(way.slot), Out { hop: Hop { next, ..hop }, mark })
            }
            Exit::Link { interface, next } => {
                let to = next.unwrap_or(key.dst);
                if to.is_ipv6() != key.dst.is_ipv6() {
                    return Err(DropReason::Encapsulation);
                }
                (None, Out { hop: Hop { interface, next: to }, mark: 0 })
            }
            Exit::Drop => return Err(DropReason::Denied),
            Exit::Hold { .. } | Exit::Ask => return Err(DropReason::NoBinding),
        };
        Ok(Leave { traffic, ends: (key.src, key.dst), slot, out })
    }

    /// The outer headers of the tunnel in a slot, for packets of this version, class and length.
    ///
    /// # Errors
    /// When the tunnel is gone, or the packet does not fit.
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

    /// Counts sent packets.
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
        match self.counting {
            Counts::BehindTunnels if leave.slot.is_some() => {
                self.count_to(leave.ends.1, packets, bytes);
            }
            Counts::AtLinks if leave.slot.is_some() => {
                self.count_from(leave.ends.0, packets, bytes);
            }
            _ => {}
        }
    }

    /// Decapsulates an IP packet, and copies a congestion mark of the outer header to the inner packet. `None` if the
    /// packet belongs to no tunnel.
    ///
    /// # Errors
    /// The reason why the packet is refused.
    pub(in crate::relay) fn take_out(
        &self,
        vnet: VnetHeader,
        packet: &mut [u8],
    ) -> Result<Option<Opened>, DropReason> {
        let Some(read) = head::read(packet) else { return Ok(None) };
        let Some(&slot) = self.ends.get(&read.end) else { return Ok(None) };
        let parsed = read_inner(&packet[read.len..], self.labels)?;
        let inner = read.len..read.len + parsed.len;
        // Only UDP super-packets may consist of segments that no device has merged. For other packets, bytes after a
        // short inner packet are padding of the frame.
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
        // One of the node's hosts sends to another one. Routing the packet to the TUN device would make it look as if
        // that host had just sent it.
        let to = self.bindings.of(&parsed.key, false).filter(is_no_source);
        let turns = self.is_hosts(parsed.key.src) && to.is_some();
        let way = to.and_then(|to| self.bindings.get(&to)).map(|bound| bound.way);
        let back = |way: Way| matches!(way.exit, Exit::Tunnel(_)) && way.slot == slot;
        if turns && way.is_some_and(back) {
            return Err(DropReason::NoBinding);
        }
        let vnet = match turns {
            true if !one_hop_less(packet) => return Err(DropReason::Decapsulation),
            true => VnetHeader { flags: vnet.flags | TURNED, ..vnet },
            false => vnet,
        };
        let cut = Cut::new(&vnet, packet)?;
        let (flow, packets, bytes) = (parsed.key, cut.count, cut.bytes);
        Ok(Some(Opened { slot, flow, vnet, inner, packets, bytes, turns }))
    }

    /// True if packets of this flow may arrive through the tunnel in a slot.
    fn may_bring(&self, slot: u32, key: &FlowKey) -> bool {
        let port = self.tunnels.get(&slot).map(|placed| Port::Tunnel(placed.tunnel.number));
        !is_local(key.src)
            && !is_local(key.dst)
            && port.is_some_and(|port| self.sources.may_bring(port, key.src))
    }

    /// Counts packets received through a tunnel.
    pub(super) fn count_received(&mut self, slot: u32, flow: &FlowKey, packets: u64, bytes: u64) {
        let tunnel = self.tunnels.get_mut(&slot).map(|placed| &mut placed.carried);
        let bound = self.bindings.get_mut(&Traffic::Flow(flow.reversed()));
        let bound = bound.map(|bound| &mut bound.carried);
        for carried in tunnel.into_iter().chain(bound) {
            carried.received_packets += packets;
            carried.received_bytes += bytes;
        }
        match self.counting {
            Counts::BehindTunnels => self.count_from(flow.src, packets, bytes),
            Counts::AtLinks => self.count_to(flow.dst, packets, bytes),
            Counts::Nothing => {}
        }
    }
}

fn is_no_source(traffic: &Traffic) -> bool {
    !matches!(traffic, Traffic::From(_))
}

/// Decrements a packet's hop limit; false if it would expire.
fn one_hop_less(packet: &mut [u8]) -> bool {
    let v4 = packet[0] >> 4 == 4;
    let hops = &mut packet[if v4 { 8 } else { 7 }];
    if *hops < 2 {
        return false;
    }
    *hops -= 1;
    if v4 {
        let len = usize::from(packet[0] & 15) * 4;
        set_ipv4(&mut packet[..len]);
    }
    true
}

/// A packet's virtio header relative to the inner packet; `None` if it does not fit.
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
        // The checksum belongs to an outer header, which has been removed.
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use segue_wire::flow::Inner;

    use super::*;
    use segue_ip::Form;

    const NUMBER: u32 = 7;
    const SLOT: u32 = 3;
    const HOP: Hop =
        Hop { interface: 9, next: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)) };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn tunnel(form: Form) -> Tunnel {
        let (local, remote) = (ip("192.0.2.1"), ip("192.0.2.2"));
        Tunnel { number: NUMBER, local, remote, interface: None, form }
    }

    /// A host behind link 5, whose traffic is bound to the tunnel; any source may arrive through the tunnel.
    fn state(form: Form) -> State {
        let mut state = State::default();
        state.set_tunnel(SLOT, &tunnel(form), Some(HOP), None);
        let source = |port, prefix| Source { port, prefix };
        state.allow(&source(Port::Tunnel(NUMBER), prefix("fd0d::/64")));
        state.allow(&source(Port::Link(5), prefix("fd0c::/64")));
        let into = |exit| Way { exit, slot: SLOT, queue: 4, releasing: false };
        state.bind(&Traffic::From(prefix("fd0c::/64")), into(Exit::Tunnel(NUMBER)));
        let link = Exit::Link { interface: 5, next: None };
        state.bind(&Traffic::To(prefix("fd0c::/64")), into(link));
        state
    }

    /// An IPv6 packet to the host with a class and without ports.
    fn inner(from: &str, class: u8) -> Vec<u8> {
        let mut packet = vec![0; 50];
        packet[..2].copy_from_slice(&[0x60 | class >> 4, class << 4]);
        packet[5..8].copy_from_slice(&[10, 59, 9]);
        let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        packet[8..24].copy_from_slice(&octets(from));
        packet[24..40].copy_from_slice(&octets("fd0c::2"));
        packet
    }

    /// The packet as the tunnel's remote end encapsulates it.
    fn outer(form: Form, class: u8, inner: &[u8]) -> Vec<u8> {
        let there = tunnel(form);
        let there = Tunnel { local: there.remote, remote: there.local, ..there };
        let (head, len) = head::write(&there, true, class, inner.len()).unwrap();
        [&head[..len], inner].concat()
    }

    #[test]
    fn congestion_on_the_way_is_carried_in_and_drops_what_cannot_say_it() {
        let state = state(Form::Ip);
        for (outer_class, class, expected) in [
            (0b11, 0b01, Ok(0b11)),
            (0b11, 0b10, Ok(0b11)),
            (0b11, 0b00, Err(DropReason::Decapsulation)),
            (0b10, 0b00, Ok(0b00)),
            (0b01, 0b10, Ok(0b10)),
        ] {
            let mut packet = outer(Form::Ip, outer_class, &inner("fd0d::2", class));
            let opened = state.take_out(VnetHeader::default(), &mut packet);
            let got = opened.map(|opened| class_of(&packet[opened.unwrap().inner]));
            assert_eq!(got, expected, "{outer_class:02b} around {class:02b}");
        }
    }

    #[test]
    fn only_sources_of_the_tunnel_come_out_and_what_is_behind_them_stays() {
        let state = state(Form::Ip);
        for (from, allowed) in
            [("fd0d::2", true), ("fd0c::3", false), ("fe80::1", false), ("ff02::1", false)]
        {
            let mut packet = outer(Form::Ip, 0, &inner(from, 0));
            let whole = packet.len();
            packet.extend([0xaa; 6]);
            match state.take_out(VnetHeader::default(), &mut packet) {
                Ok(Some(opened)) => assert!(allowed && opened.inner.end == whole, "{from}"),
                refused => assert!(!allowed && refused.unwrap_err() == DropReason::InnerSource),
            }
        }
        let stranger = Tunnel { local: ip("192.0.2.9"), ..tunnel(Form::Ip) };
        let (head, len) = head::write(&stranger, true, 0, 50).unwrap();
        let mut packet = [&head[..len], &inner("fd0d::2", 0)].concat();
        assert!(state.take_out(VnetHeader::default(), &mut packet).unwrap().is_none());
    }

    #[test]
    fn what_a_device_was_to_finish_is_the_inner_packets_then() {
        let form = Form::Udp { local: 5437, remote: 5437 };
        let state = state(form);
        let packet = outer(form, 0, &inner("fd0d::2", 0));
        let opened = |vnet, packet: &[u8]| {
            let opened = state.take_out(vnet, &mut packet.to_vec());
            opened.map(|opened| opened.unwrap().vnet)
        };
        let finish = |csum_start| VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            csum_start,
            csum_offset: 6,
            ..VnetHeader::default()
        };
        // The outer headers are 28 bytes long.
        assert_eq!(opened(finish(68), &packet), Ok(finish(40)));
        assert_eq!(opened(finish(20), &packet), Ok(VnetHeader::default()), "the outer checksum");
        let several = VnetHeader { gso_type: VnetHeader::GSO_UDP_L4, gso_size: 58, ..finish(20) };
        assert_eq!(opened(several, &packet), Err(DropReason::Decapsulation));
        let longer = [&packet[..], &packet[20..]].concat();
        assert_eq!(opened(several, &longer), Err(DropReason::Uncut));
    }

    /// The packet came up over the link and goes down to the other host: it must not go up again.
    #[test]
    fn what_one_host_sends_to_another_goes_to_it_when_it_comes_out_of_the_tunnel() {
        let mut state = state(Form::Ip);
        let everything = Source { port: Port::Tunnel(NUMBER), prefix: prefix("::/0") };
        state.allow(&everything);
        let mut packet = outer(Form::Ip, 0, &inner("fd0c::3", 0));
        let opened = state.take_out(VnetHeader::default(), &mut packet).unwrap().unwrap();
        let key = Inner::parse(&packet[opened.inner.clone()]).unwrap().key;
        assert!(opened.turns && opened.vnet.flags == TURNED);
        assert_eq!(packet[opened.inner.start + 7], 8, "of nine hops");
        assert_eq!(state.leave(&key, false, 1).unwrap().slot, Some(SLOT));
        assert_eq!(state.leave(&key, true, 1).unwrap().slot, None);
        let mut last = inner("fd0c::3", 0);
        last[7] = 1;
        let refused = state.take_out(VnetHeader::default(), &mut outer(Form::Ip, 0, &last));
        assert_eq!(refused.unwrap_err(), DropReason::Decapsulation);
        // Not back into the tunnel of its arrival.
        let to_other = Traffic::To(prefix("fd0c::2/128"));
        let exit = Exit::Tunnel(NUMBER);
        state.bind(&to_other, Way { exit, slot: SLOT, queue: 0, releasing: false });
        let mut packet = outer(Form::Ip, 0, &inner("fd0c::3", 0));
        let refused = state.take_out(VnetHeader::default(), &mut packet);
        assert_eq!(refused.unwrap_err(), DropReason::NoBinding);
        // Only packets of hosts are bound again.
        let mut packet = outer(Form::Ip, 0, &inner("fd0d::2", 0));
        assert!(!state.take_out(VnetHeader::default(), &mut packet).unwrap().unwrap().turns);
    }

    /// A packet of this node to a host, for instance an ICMP error, must not enter the tunnel as if the host had sent
    /// it.
    #[test]
    fn what_a_host_sends_goes_by_its_source_and_what_this_node_sends_by_its_destination() {
        let mut state = state(Form::Ip);
        state.set_own([ip("fd0c::1")].into());
        let key = |src, dst| FlowKey {
            src: ip(src),
            dst: ip(dst),
            sport: 0,
            dport: 0,
            protocol: 58,
            label: 0,
        };
        let slot = |src| state.leave(&key(src, "fd0c::2"), false, 1).unwrap().slot;
        assert_eq!([slot("fd0c::3"), slot("fd0c::1"), slot("fd0d::2")], [Some(SLOT), None, None]);
        assert_eq!(
            state.leave(&key("fd0e::1", "fd0f::1"), false, 1).err(),
            Some(DropReason::NoBinding)
        );
        let hold = Exit::Hold { packets: 1, within_ms: 1 };
        let way = Way { exit: hold, slot: 0, queue: 4, releasing: false };
        let to_host = Traffic::To(prefix("fd0c::/64"));
        state.bind(&to_host, way);
        assert_eq!(state.waits(&key("fd0d::2", "fd0c::2"), false), Some(Waits::Held(4)));
        let exit = Exit::Tunnel(NUMBER);
        state.bind(&to_host, Way { exit, slot: SLOT, releasing: true, ..way });
        assert_eq!(state.waits(&key("fd0d::2", "fd0c::2"), false), Some(Waits::Held(4)));
        let Ok(leave) = state.leave(&key("fd0d::2", "fd0c::2"), false, 1) else { panic!() };
        assert_eq!(leave.out, Out { hop: HOP, mark: 1 });
        state.count_sent(&leave, 2, 90, Time(5));
        // The counters stay with the traffic, and with the tunnel when its remote end moves.
        state.bind(&to_host, Way { exit: Exit::Drop, ..way });
        assert_eq!(state.traffic_carried(&to_host).sent_bytes, 90);
        let moved = Tunnel { remote: ip("192.0.2.3"), ..tunnel(Form::Ip) };
        state.set_tunnel(SLOT, &moved, None, Some(&tunnel(Form::Ip)));
        state.bind(&to_host, Way { exit, slot: SLOT, ..way });
        let lost = state.leave(&key("fd0d::2", "fd0c::2"), false, 1);
        assert_eq!(lost.err(), Some(DropReason::NoRemote), "no route leads there");
        assert_eq!(state.tunnel_carried(SLOT).sent_packets, 2);
        let mut packet = outer(Form::Ip, 0, &inner("fd0d::2", 0));
        assert!(state.take_out(VnetHeader::default(), &mut packet).unwrap().is_none());
    }
}
