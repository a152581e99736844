//! Tests of the network from outside: what agents send, and what arrives.

mod forwarding;
mod link;
mod links;
mod nat;
mod paper4;
mod relay;
mod wireless;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{LinkEvent, Prefix};
use segue_netem::LinkSpec;

use super::*;
use crate::agent::Io;
use crate::packet::{Payload, Raw, TTL, UDP, encapsulate};

pub(super) const MS: u64 = 1_000_000;

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A link with this rate and delay.
pub(super) fn spec(mbit: u64, delay_us: u64) -> LinkSpec {
    LinkSpec {
        rate_bps: Some(mbit * 1_000_000),
        delay: Span::from_micros(delay_us),
        ..LinkSpec::default()
    }
}

/// Payload of the packets in these tests.
#[derive(Clone, Debug)]
pub(super) struct Numbered(pub u64);

impl Payload for Numbered {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(self.clone())
    }

    fn write(&self, _packet: &Packet, image: &mut Vec<u8>) {
        image.extend_from_slice(&self.0.to_be_bytes());
    }
}

pub(super) fn udp(src: &str, sport: u16, dst: &str, dport: u16, bytes: u32) -> Packet {
    Packet::new(UDP, (ip(src), sport), (ip(dst), dport), bytes, Numbered(0))
}

/// Sets the number of a datagram.
pub(super) fn numbered(mut packet: Packet, number: u64) -> Packet {
    if let Some(known) = packet.value_mut() {
        *known = Numbered(number);
    }
    packet
}

/// The inner packet of an IP-in-IP packet, or else the packet itself as error.
pub(super) fn opened(packet: Packet) -> Result<Packet, Packet> {
    match packet.into_value::<Raw>() {
        Ok(raw) => Ok(raw.inner.expect("a packet is in it")),
        Err(packet) => Err(packet),
    }
}

/// Sends packets at preset times, and records the packets that arrive.
#[derive(Default)]
pub(super) struct Desk {
    pub plan: VecDeque<(Time, Packet)>,
    pub got: Vec<(Time, Packet)>,
    /// Returns every packet to its sender.
    pub echo: bool,
    /// Times of interface notifications, with the cells attached at that time.
    pub told: Vec<(Time, Vec<CellId>)>,
    /// Link events, with their times.
    pub events: Vec<(Time, LinkEvent)>,
    /// Interfaces over which packets arrived.
    pub over: Vec<Option<u32>>,
    /// Packets to send over an interface.
    pub over_links: VecDeque<(Time, u32, Packet)>,
}

impl Desk {
    pub(super) fn sending(plan: impl IntoIterator<Item = (u64, Packet)>) -> Box<Desk> {
        let plan = plan.into_iter().map(|(at, packet)| (Time(at), packet)).collect();
        Box::new(Desk { plan, ..Desk::default() })
    }
}

impl Agent for Desk {
    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        self.over.push(over);
        if self.echo {
            let (sport, dport) = packet.ports;
            let mut back = packet.clone();
            (back.src, back.dst, back.ttl) = (packet.dst, packet.src, TTL);
            back.set_ports(dport, sport);
            io.send(back);
        }
        self.got.push((io.now, packet));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        while let Some((at, _)) = self.plan.front() {
            if *at > io.now {
                break;
            }
            let (at, mut packet) = self.plan.pop_front().unwrap();
            packet.sent = at;
            io.send(packet);
        }
        while let Some((_, over, packet)) = self.over_links.pop_front_if(|(at, ..)| *at <= io.now) {
            io.send_on(over, packet);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let planned = self.plan.front().map(|(at, _)| *at);
        planned.into_iter().chain(self.over_links.front().map(|(at, ..)| *at)).min()
    }

    fn link_changed(&mut self, io: &mut Io<'_>, event: LinkEvent) {
        self.events.push((io.now, event));
    }

    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        let cells = io.node.adapters.iter().flat_map(|a| a.cells.iter().copied()).collect();
        self.told.push((io.now, cells));
    }
}

/// Arrival time (ns) and number of each datagram that an agent received.
pub(super) fn got(network: &Network, id: AgentId) -> Vec<(u64, u64)> {
    let desk = network.agent::<Desk>(id).unwrap();
    let number =
        |packet: &Packet| packet.value::<Numbered>().map_or(u64::MAX, |Numbered(number)| *number);
    desk.got.iter().map(|(at, packet)| (at.0, number(packet))).collect()
}

/// Records everything that happens.
#[derive(Clone, Default)]
pub(super) struct Record(pub Rc<RefCell<Vec<String>>>);

impl Record {
    fn line(&self, line: String) {
        self.0.borrow_mut().push(line);
    }

    /// FNV-1a of all lines.
    pub(super) fn hash(&self) -> u64 {
        let lines = self.0.borrow();
        let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl Observer for Record {
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>) {
        self.line(alloc::format!("{now:?} sent {channel:?} {packet:?} {at:?}"));
    }

    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        self.line(alloc::format!("{now:?} arrived {channel:?} {packet:?}"));
    }

    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost) {
        self.line(alloc::format!("{now:?} dropped {node:?} {packet:?} {why:?}"));
    }

    fn said(&mut self, now: Time, node: NodeId, line: &str) {
        self.line(alloc::format!("{now:?} said {node:?} {line}"));
    }
}

/// Nodes `n0`, `n1`… in a row; node `i` has address 10.0.0.i.
pub(super) fn chain(seed: u64, links: &[LinkSpec]) -> (Network, Vec<NodeId>, Vec<ChannelId>) {
    let mut network = Network::new(seed);
    let nodes: Vec<_> =
        (0..=links.len()).map(|i| network.add_node(alloc::format!("n{i}"))).collect();
    for (i, node) in nodes.iter().enumerate() {
        network.node_mut(*node).addresses.push(ip(&alloc::format!("10.0.0.{i}")));
    }
    let mut channels = Vec::new();
    for (i, spec) in links.iter().enumerate() {
        channels.push(link(&mut network, nodes[i], nodes[i + 1], spec.clone()).0);
    }
    network.route_all(|_| true);
    (network, nodes, channels)
}

/// Connects two nodes over new interfaces.
pub(super) fn link(
    network: &mut Network,
    a: NodeId,
    b: NodeId,
    spec: LinkSpec,
) -> (ChannelId, ChannelId) {
    let at_a = network.add_interface(a, alloc::format!("to{}", b.0));
    let at_b = network.add_interface(b, alloc::format!("to{}", a.0));
    network.connect((a, at_a), (b, at_b), spec.clone(), spec).unwrap()
}
