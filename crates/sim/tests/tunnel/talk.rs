//! Two ends that send numbered datagrams to each other and record what arrives.

use std::collections::BTreeSet;
use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_sim::packet::UDP;
use segue_sim::{Agent, Io, Packet, Results};
use segue_traffic::apps::Datagram;

/// Sends as soon as it knows its own address and its peer's.
pub(crate) struct Talker {
    /// Prefix that contains its own address, which is one of its node's.
    pub own: Prefix,
    pub port: u16,
    /// Configured, or learned from the first datagram.
    pub peer: Option<(IpAddr, u16)>,
    pub dscp: u8,
    /// Packet length including headers, in bytes.
    pub bytes: u32,
    pub interval: Span,
    pub until: Time,
    /// Start of sending.
    pub from: Time,
    /// Only echoes received packets.
    pub echoes: bool,
    next: Option<Time>,
    pub source: Option<IpAddr>,
    pub sent: u64,
    pub got: Vec<(Time, u64)>,
}

impl Talker {
    pub(crate) fn new(
        own: Prefix,
        port: u16,
        peer: Option<(IpAddr, u16)>,
        interval: Span,
    ) -> Talker {
        let (next, source, until) = (None, None, Time(u64::MAX));
        let (dscp, bytes, from, echoes) = (46, 200, Time::ZERO, false);
        let (sent, got) = (0, Vec::new());
        Talker {
            own,
            port,
            peer,
            dscp,
            bytes,
            interval,
            until,
            from,
            echoes,
            next,
            source,
            sent,
            got,
        }
    }

    /// Numbers sent by `other` that did not arrive.
    pub(crate) fn missing(&self, other: &Talker) -> Vec<u64> {
        let mut there = vec![false; other.sent as usize];
        self.got.iter().for_each(|(_, seq)| there[*seq as usize] = true);
        (0..other.sent).filter(|seq| !there[*seq as usize]).collect()
    }

    /// Longest time between two arrivals since `from`, minus the interval. Duplicates do not end a gap.
    pub(crate) fn gap_since(&self, from: Time) -> Span {
        let after: Vec<Time> =
            self.first().map(|(at, _)| at).filter(|at| *at + self.interval >= from).collect();
        let longest = after.windows(2).map(|pair| pair[1].since(pair[0])).max();
        Span(longest.unwrap_or(Span::ZERO).0.saturating_sub(self.interval.0))
    }

    /// Arrivals without duplicates.
    fn first(&self) -> impl Iterator<Item = (Time, u64)> {
        let mut seen = BTreeSet::new();
        self.got.iter().copied().filter(move |(_, seq)| seen.insert(*seq))
    }

    /// Sending time of a packet, for a talker that is still sending.
    fn sent_at(&self, seq: u64) -> Time {
        self.next.unwrap() - self.interval * (self.sent - seq)
    }

    /// Longest delay until the first arrival of packets that `other` sent since `from`.
    pub(crate) fn longest_delay(&self, other: &Talker, from: Time) -> Span {
        let sent = self.first().map(|(at, seq)| (at, other.sent_at(seq)));
        let later = sent.filter(|(_, sent)| *sent >= from);
        later.map(|(at, sent)| at.since(sent)).max().unwrap_or(Span::ZERO)
    }

    fn say(&mut self, io: &mut Io<'_>, seq: u64) {
        let (Some(src), Some((dst, dport))) = (self.source, self.peer) else { return };
        self.sent += 1;
        let datagram = Datagram { seq, tag: 0 };
        let packet = Packet::new(UDP, (src, self.port), (dst, dport), self.bytes, datagram);
        io.send(Packet { dscp: self.dscp, sent: io.now, ..packet });
    }

    fn begin(&mut self, io: &mut Io<'_>) {
        let own = io.node.interfaces().flat_map(|i| &i.addresses).chain(&io.node.addresses);
        self.source = own.copied().find(|address| self.own.contains(*address));
        if self.source.is_some() && self.peer.is_some() && self.sent == 0 && !self.echoes {
            self.next = Some(io.now.max(self.from));
        }
    }
}

impl Agent for Talker {
    fn start(&mut self, io: &mut Io<'_>) {
        self.begin(io);
    }

    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        self.begin(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let Some(datagram) = packet.value::<Datagram>() else { panic!("{packet:?}") };
        self.got.push((io.now, datagram.seq));
        self.peer = Some((packet.src, packet.ports.0));
        self.begin(io);
        if self.echoes {
            self.say(io, datagram.seq);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.next = (io.now + self.interval <= self.until).then_some(io.now + self.interval);
        self.say(io, self.sent);
    }

    fn deadline(&self) -> Option<Time> {
        self.next
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        results.int(format!("{name}.sent"), self.sent);
        results.int(format!("{name}.received"), self.got.len() as u64);
    }
}
