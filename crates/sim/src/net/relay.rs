//! A node's tunnels and the traffic bound to them: does for packets of this network what the relay of
//! `segue-datapath` does for real ones.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{
    Binding, Bindings, Exit, FlowKey, Form, Port, Prefix, Source, Sources, Traffic, Tunnel,
};
use segue_wire::DropReason;

use super::ids::AgentId;
use crate::packet::{Packet, Raw, encapsulate, ip_header_bytes};

/// Protocol number of GRE (RFC 2784).
const GRE: u8 = 47;
/// Flags of a GRE header with a key (RFC 2890).
const KEYED: [u8; 2] = [0x20, 0];

/// Tunnels, permitted inner sources and bindings of a node.
#[derive(Clone, Debug, Default)]
pub struct Relay {
    tunnels: BTreeMap<u32, Tunnel>,
    sources: Sources,
    bindings: Bindings<Bound>,
    /// Traffic of prefixes of hosts, for which it is counted.
    counts: BTreeMap<Prefix, Count>,
    refused: BTreeMap<DropReason, u64>,
}

/// Traffic of a prefix: whole IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets and octets from the prefix.
    pub from: [u64; 2],
    /// Packets and octets to the prefix.
    pub to: [u64; 2],
}

#[derive(Clone, Debug)]
struct Bound {
    exit: Exit,
    /// The agent that decides about new flows.
    by: AgentId,
    held: VecDeque<(Time, Packet)>,
    last_sent: Option<Time>,
}

/// Treatment of a packet whose traffic is bound.
#[derive(Debug)]
pub(super) enum Led {
    /// Route this encapsulated packet.
    Into(Packet),
    /// Send it over this interface.
    Over(u32, Packet),
    /// Pass it to this agent for a decision.
    Ask(AgentId, Packet),
    /// Nothing; the relay holds it.
    Held,
    /// Drop it.
    Refused(Packet, DropReason),
}

impl Relay {
    /// Number of refused packets by reason.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<DropReason, u64> {
        &self.refused
    }

    pub(super) fn set_tunnel(&mut self, tunnel: Tunnel) {
        self.tunnels.insert(tunnel.number, tunnel);
    }

    /// Also removes the tunnel's permitted sources.
    pub(super) fn remove_tunnel(&mut self, number: u32) {
        self.tunnels.remove(&number);
        let sources: Vec<Source> = self.sources.at(Port::Tunnel(number)).copied().collect();
        for source in sources {
            self.sources.forbid(&source);
        }
    }

    pub(super) fn allow(&mut self, source: Source) {
        self.sources.allow(source);
    }

    pub(super) fn forbid(&mut self, source: &Source) {
        self.sources.forbid(source);
    }

    /// Binds traffic to an exit. Returns the held packets that may leave as a result, oldest first.
    pub(super) fn bind(&mut self, now: Time, by: AgentId, binding: Binding) -> Vec<Packet> {
        let Binding { traffic, exit } = binding;
        let held = self.bindings.remove(&traffic).map(|bound| (bound.exit, bound.held));
        let mut bound = Bound { exit, by, held: VecDeque::new(), last_sent: None };
        let mut released = Vec::new();
        if let Some((Exit::Hold { within_ms, .. }, held)) = held {
            let all = held.len();
            let young = |since: Time| now.since(since) < Span::from_millis(within_ms.into());
            let kept: VecDeque<_> = held.into_iter().filter(|(since, _)| young(*since)).collect();
            self.refuse(DropReason::HoldExpired, (all - kept.len()) as u64);
            match exit {
                Exit::Hold { packets, .. } => {
                    let surplus = kept.len().saturating_sub(packets.into());
                    self.refuse(DropReason::HoldFull, surplus as u64);
                    bound.held = kept.into_iter().skip(surplus).collect();
                }
                _ => released = kept.into_iter().map(|(_, packet)| packet).collect(),
            }
        }
        self.bindings.insert(traffic, bound);
        released
    }

    /// Removes a binding and drops its held packets.
    pub(super) fn unbind(&mut self, traffic: &Traffic) {
        if let Some(bound) = self.bindings.remove(traffic) {
            self.refuse(DropReason::NoBinding, bound.held.len() as u64);
        }
    }

    /// The traffic of a prefix since counting began.
    #[must_use]
    pub fn counted(&self, prefix: &Prefix) -> Count {
        self.counts.get(prefix).copied().unwrap_or_default()
    }

    /// Counts the traffic of a prefix from now on, or no longer.
    pub(super) fn count(&mut self, prefix: Prefix, present: bool) {
        if present {
            self.counts.entry(prefix).or_default();
        } else {
            self.counts.remove(&prefix);
        }
    }

    /// The tunnel to which a packet for this node belongs.
    pub(super) fn tunnel_of(&self, packet: &Packet) -> Option<u32> {
        let raw = packet.value::<Raw>()?;
        raw.inner.as_ref()?;
        let is_of = |tunnel: &&Tunnel| {
            (tunnel.local, tunnel.remote) == (packet.dst, packet.src)
                && match tunnel.form {
                    Form::Ip => matches!(packet.protocol, 4 | 41),
                    Form::Gre { receive, .. } => {
                        packet.protocol == GRE && raw.bytes == gre(receive, v6(raw))
                    }
                    Form::Udp { local, remote } => {
                        packet.protocol == 17 && packet.ports == (remote, local)
                    }
                    Form::Optimized { .. } => false,
                }
        };
        self.tunnels.values().find(is_of).map(|tunnel| tunnel.number)
    }

    /// Decapsulates a packet.
    ///
    /// # Errors
    /// The inner packet, if its source is not permitted to come out of this tunnel.
    pub(super) fn take_out(&mut self, number: u32, packet: Packet) -> Result<Packet, Packet> {
        let raw = packet.into_value::<Raw>();
        let inner = match raw.map(|raw| raw.inner) {
            Ok(Some(inner)) => inner,
            Ok(None) => unreachable!("tunnel_of has seen it"),
            Err(packet) => return Err(packet),
        };
        if self.sources.may_bring(Port::Tunnel(number), inner.src) {
            note(&mut self.counts, inner.src, &inner, |count| &mut count.from);
            return Ok(inner);
        }
        self.refuse(DropReason::InnerSource, 1);
        Err(inner)
    }

    /// The binding that applies to a packet of the node itself.
    pub(super) fn binding_of(&self, packet: &Packet) -> Option<Traffic> {
        self.bindings.of(&flow_key(packet), false)
    }

    /// The binding that applies to a packet that the node forwards, if any. Packets out of a tunnel are not led
    /// back by a binding of their source.
    pub(super) fn leads(
        &mut self,
        over: Option<u32>,
        packet: &Packet,
    ) -> Option<Result<Traffic, DropReason>> {
        let key = flow_key(packet);
        let checked = over.is_some_and(|link| self.sources.is_checked(link));
        let bound = self.bindings.of(&key, checked);
        let traffic = bound.filter(|to| over.is_some() || !matches!(to, Traffic::From(_)))?;
        let good = self.has_good_source(over, packet);
        Some(if good { Ok(traffic) } else { Err(DropReason::InnerSource) })
    }

    /// Time of the last packet sent for exactly this traffic.
    #[must_use]
    pub fn last_sent(&self, traffic: &Traffic) -> Option<Time> {
        self.bindings.get(traffic)?.last_sent
    }

    /// Returns true if a forwarded packet may use its source address.
    fn has_good_source(&mut self, over: Option<u32>, packet: &Packet) -> bool {
        let Some(link) = over else { return true };
        let good = if self.sources.is_checked(link) {
            self.sources.may_bring(Port::Link(link), packet.src)
        } else {
            self.bindings.to(packet.src).is_none() && !self.sources.is_behind_link(packet.src)
        };
        self.refuse(DropReason::InnerSource, u64::from(!good));
        good
    }

    /// Sends a packet to the exit of its binding.
    pub(super) fn lead(&mut self, now: Time, traffic: Traffic, packet: Packet) -> Led {
        let Some(bound) = self.bindings.get_mut(&traffic) else {
            return self.refused_as(packet, DropReason::NoBinding);
        };
        bound.last_sent = Some(now);
        match (bound.exit, traffic) {
            (Exit::Tunnel(_), Traffic::From(_)) => {
                note(&mut self.counts, packet.src, &packet, |count| &mut count.from);
            }
            (Exit::Tunnel(_) | Exit::Link { .. }, _) => {
                note(&mut self.counts, packet.dst, &packet, |count| &mut count.to);
            }
            _ => {}
        }
        match bound.exit {
            Exit::Tunnel(number) => match self.tunnels.get(&number) {
                Some(tunnel) => match put_into(tunnel, packet) {
                    Ok(outer) => Led::Into(outer),
                    Err(packet) => self.refused_as(packet, DropReason::Encapsulation),
                },
                None => self.refused_as(packet, DropReason::NoRemote),
            },
            Exit::Link { interface, .. } => Led::Over(interface, packet),
            Exit::Ask => Led::Ask(bound.by, packet),
            Exit::Drop => self.refused_as(packet, DropReason::Denied),
            Exit::Hold { packets, within_ms } => {
                let within = Span::from_millis(within_ms.into());
                let (mut full, mut expired) = (0, 0);
                while bound.held.front().is_some_and(|(since, _)| now.since(*since) >= within) {
                    bound.held.pop_front();
                    expired += 1;
                }
                bound.held.push_back((now, packet));
                while bound.held.len() > packets.into() {
                    bound.held.pop_front();
                    full += 1;
                }
                self.refuse(DropReason::HoldExpired, expired);
                self.refuse(DropReason::HoldFull, full);
                Led::Held
            }
        }
    }

    fn refused_as(&mut self, packet: Packet, why: DropReason) -> Led {
        self.refuse(why, 1);
        Led::Refused(packet, why)
    }

    pub(super) fn refuse(&mut self, why: DropReason, packets: u64) {
        if packets > 0 {
            *self.refused.entry(why).or_default() += packets;
        }
    }
}

/// Counts a packet for the prefixes that have this address.
fn note(
    counts: &mut BTreeMap<Prefix, Count>,
    address: IpAddr,
    packet: &Packet,
    of: impl Fn(&mut Count) -> &mut [u64; 2],
) {
    for (_, count) in counts.iter_mut().filter(|(prefix, _)| prefix.contains(address)) {
        let [packets, octets] = of(count);
        (*packets, *octets) = (*packets + 1, *octets + u64::from(packet.bytes));
    }
}

/// The flow of a packet as packet paths see it.
pub(crate) fn flow_key(packet: &Packet) -> FlowKey {
    let (sport, dport) = packet.ports;
    let label = if (sport, dport) == (0, 0) { packet.label } else { 0 };
    FlowKey { src: packet.src, dst: packet.dst, sport, dport, protocol: packet.protocol, label }
}

fn v6(raw: &Raw) -> bool {
    raw.inner.as_ref().is_some_and(|inner| inner.src.is_ipv6())
}

/// A GRE header in front of an IPv6 or IPv4 packet.
fn gre(key: Option<u32>, v6: bool) -> Vec<u8> {
    let protocol: [u8; 2] = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    match key {
        Some(key) => [&KEYED[..], &protocol, &key.to_be_bytes()].concat(),
        None => vec![0, 0, protocol[0], protocol[1]],
    }
}

/// Encapsulates a packet.
///
/// # Errors
/// The packet, if this network does not support the tunnel's form.
fn put_into(tunnel: &Tunnel, packet: Packet) -> Result<Packet, Packet> {
    let Tunnel { local, remote, .. } = *tunnel;
    let (dscp, sent) = (packet.dscp, packet.sent);
    let outer = match tunnel.form {
        Form::Ip => return Ok(encapsulate(local, remote, packet)),
        Form::Gre { send, .. } => {
            let bytes = gre(send, packet.src.is_ipv6());
            let length = ip_header_bytes(local) + bytes.len() as u32 + packet.bytes;
            let raw = Raw { bytes, inner: Some(packet) };
            Packet::new(GRE, (local, 0), (remote, 0), length, raw)
        }
        Form::Udp { local: from, remote: to } => {
            Packet::carrying((local, from), (remote, to), Vec::new(), Some(packet))
        }
        Form::Optimized { .. } => return Err(packet),
    };
    Ok(Packet { dscp, sent, ..outer })
}
