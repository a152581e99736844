//! The user-space packet path: receiving, segmenting and coalescing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use segue_datapath::user::coalesce::Coalescer;
use segue_datapath::user::dry_run::DryRun;
use segue_datapath::user::partial;
use segue_datapath::user::segment::{Cut, VnetHeader};
use segue_datapath::{PathSetup, Role};
use segue_keepalive::Probing;
use segue_keepalive::seq::{Order, SeqWindow};
use segue_wire::flow::Inner;
use segue_wire::header::flags::RIDE_RESPONSE;
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey, Size};

use crate::take::take;

const SLOT: u32 = 3;
const COOKIE: u64 = 0xa0a1_a2a3_a4a5_a6a7;
const KEY: ProbeKey = ProbeKey([42; 16]);
const OWNER: u32 = 7;

fn own() -> [IpAddr; 2] {
    [[10, 8, 0, 1].into(), [0xfd08, 0, 0, 0, 0, 0, 0, 1].into()]
}

/// Expected result for one packet: the inner packet to deliver, whether a probe is accepted, and the reason if the
/// packet or a part of it is rejected.
#[derive(Default)]
struct Expected<'a> {
    packet: Option<&'a [u8]>,
    probe: bool,
    refused: Vec<DropReason>,
}

/// A reference receiver. `last_seq` is the number of the last accepted request or unsolicited response.
struct Rules {
    role: Role,
    rides: bool,
    last_seq: Option<u32>,
    responses: SeqWindow,
}

impl Rules {
    fn expected<'a>(&mut self, packet: &'a [u8]) -> Expected<'a> {
        let mut expected = Expected::default();
        if let Err(reason) = self.take(packet, &mut expected) {
            expected.refused.push(reason);
        }
        expected
    }

    fn take<'a>(
        &mut self,
        packet: &'a [u8],
        expected: &mut Expected<'a>,
    ) -> Result<(), DropReason> {
        let header = Header::parse(packet)?;
        if header.index != SLOT {
            return Err(DropReason::UnknownIndex);
        }
        if header.cookie != COOKIE {
            return Err(DropReason::Cookie);
        }
        match (header.packet_type, self.role) {
            (PacketType::Data, _) => {
                expected.packet = Some(self.data(&packet[Header::LEN..])?);
            }
            (PacketType::Request, Role::Anchor) | (PacketType::Response, Role::Host) => {
                let probe = Probe::open(packet, &KEY)?;
                let numbered = self.role == Role::Anchor || header.flags != 0;
                self.probe(probe, numbered)?;
                expected.probe = true;
            }
            (PacketType::Ride, role) => {
                let response = header.flags & RIDE_RESPONSE != 0;
                if !self.rides || response != (role == Role::Host) {
                    return Err(DropReason::Type);
                }
                let (probe, inner) = Probe::open_ride(packet, &KEY)?;
                match self.probe(probe, !response) {
                    Ok(()) => expected.probe = true,
                    Err(reason) => expected.refused.push(reason),
                }
                expected.packet = Some(self.data(inner)?);
            }
            (PacketType::Size, role) => {
                Size::open(packet, &KEY, role == Role::Anchor)?;
            }
            _ => return Err(DropReason::Type),
        }
        Ok(())
    }

    fn data<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], DropReason> {
        let inner = Inner::parse(body)?;
        match self.role {
            Role::Host if !own().contains(&inner.key.dst) => Err(DropReason::InnerDestination),
            Role::Anchor if !own().contains(&inner.key.src) => Err(DropReason::InnerSource),
            _ => Ok(&body[..inner.len]),
        }
    }

    /// Checks a probe. If `numbered`, it must be newer than the last one. Otherwise it answers a request, and a path
    /// with rides has sent none.
    fn probe(&mut self, probe: Probe, numbered: bool) -> Result<(), DropReason> {
        let newer = |last: u32| probe.seq.wrapping_sub(last) as i32 > 0;
        if !numbered {
            let never_sent = self.rides && newer(0);
            let once = !never_sent
                && matches!(self.responses.observe_once(probe.seq), Order::Newest | Order::Late);
            return if once { Ok(()) } else { Err(DropReason::Replay) };
        }
        if self.last_seq.is_some_and(|last| !newer(last)) {
            return Err(DropReason::Replay);
        }
        self.last_seq = Some(probe.seq);
        Ok(())
    }
}

/// Receiving: every packet of a datagram is delivered, accepted as a probe, or rejected with the reason given by the
/// parsers of its format, regardless of earlier packets. The first bytes determine how to turn the rest into packets
/// that pass the first checks.
pub(crate) fn receive(data: &[u8]) {
    let mut data = data;
    let [choice, size] = take(&mut data);
    let role = if choice & 1 == 0 { Role::Host } else { Role::Anchor };
    let size = (choice & 2 != 0).then(|| usize::from(size).max(1));
    let rides = choice & 32 != 0;
    let mut bytes = data.to_vec();
    for packet in bytes.chunks_mut(size.unwrap_or(data.len()).max(1)) {
        mend(packet, choice);
    }
    let path = PathSetup {
        tx_index: 9,
        tx_cookie: 1,
        rx_cookie: COOKIE,
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: OWNER,
        probing: Probing { rides, ..Probing::default() },
    };
    let inner = own().map(|address| (address, OWNER));
    let run = DryRun::new(role, &[(SLOT, path)], &inner).expect("descriptors for two events");
    let responses = SeqWindow::new();
    let mut rules = Rules { role, rides, last_seq: None, responses };
    // Twice, to include replays.
    for _ in 0..2 {
        let taken = run.receive(SocketAddr::from(([192, 0, 2, 9], 4000)), &bytes, size);
        let (mut packets, mut probes, mut refused) = (Vec::new(), 0, BTreeMap::new());
        let chunks = bytes.chunks(size.unwrap_or(bytes.len()).max(1));
        for packet in chunks.chain(bytes.is_empty().then_some(&[][..])) {
            let expected = rules.expected(packet);
            packets.extend(expected.packet);
            probes += usize::from(expected.probe);
            for reason in expected.refused {
                *refused.entry(reason).or_insert(0) += 1;
            }
        }
        assert_eq!(taken.packets, packets);
        assert_eq!(taken.refused, refused);
        assert_eq!(taken.probes.len(), probes);
        assert_eq!(taken.answers, if role == Role::Anchor { probes } else { 0 });
        assert!(run.flows().len() <= packets.len());
    }
}

fn mend(packet: &mut [u8], choice: u8) {
    if choice & 4 != 0 && packet.len() >= Header::LEN {
        packet[4..8].copy_from_slice(&SLOT.to_be_bytes());
        packet[8..16].copy_from_slice(&COOKIE.to_be_bytes());
    }
    let ride = packet.first() == Some(&0x11);
    if choice & 8 != 0
        && (ride || packet.len() == Probe::PACKET_LEN)
        && let Ok(header) = Header::parse(packet)
        && let Some(probe) = packet[Header::LEN..].first_chunk()
    {
        let sealed = Probe::parse(probe).seal(&header, &KEY);
        if let Some(front) = packet.get_mut(..sealed.len()) {
            front.copy_from_slice(&sealed);
        }
    }
    let inner_at = if ride { Probe::PACKET_LEN } else { Header::LEN };
    if choice & 16 != 0
        && let Some(head) = packet.get_mut(inner_at..inner_at + 40)
    {
        let (address, at): (&[u8], _) = match (head[0] >> 4, choice & 1) {
            (4, 0) => (&[10, 8, 0, 1], 16),
            (4, _) => (&[10, 8, 0, 1], 12),
            (_, 0) => (&[0xfd, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 24),
            _ => (&[0xfd, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 8),
        };
        head[at..at + address.len()].copy_from_slice(address);
    }
}

/// Segmenting a packet from the TUN device: the segments have the announced number and lengths, and carry the whole
/// payload in order.
pub(crate) fn segment(data: &[u8]) {
    let Some((vnet, packet)) = VnetHeader::split(data) else { return };
    let Ok(inner) = Inner::parse(packet) else { return };
    let mut packet = packet[..inner.len].to_vec();
    let Ok(cut) = Cut::new(&vnet, &packet) else { return };
    let mut pieces = Vec::new();
    cut.apply(&mut packet, |header, body| pieces.push((header.to_vec(), body)));
    assert_eq!(pieces.len(), cut.count as usize);
    let lengths: Vec<usize> = pieces.iter().map(|(head, body)| head.len() + body.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), cut.bytes);
    let (last, others) = lengths.split_last().expect("at least one piece");
    assert!(others.iter().all(|len| *len == cut.size) && *last <= cut.size);
    let mut at = pieces[0].1.start;
    for (head, body) in &pieces {
        assert_eq!(body.start, at);
        at = body.end;
        if !head.is_empty() {
            let piece = [&head[..], &packet[body.clone()]].concat();
            let read = Inner::parse(&piece).expect("a piece is an IP packet");
            assert_eq!((read.len, read.key.src), (piece.len(), inner.key.src));
        }
    }
    assert_eq!(at, packet.len());
}

/// TCP segments, corrupted segments and other packets, as determined by the input.
fn packets(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut seq = 0u32;
    let mut packets = Vec::new();
    while !data.is_empty() && packets.len() < 80 {
        let [how, flags, len_high, len_low, spoil] = take(&mut data);
        if how & 128 != 0 {
            let n = usize::from(len_low).min(data.len());
            let (raw, rest) = data.split_at(n);
            data = rest;
            if let Ok(inner) = Inner::parse(raw) {
                packets.push(raw[..inner.len].to_vec());
            }
            continue;
        }
        let len = usize::from(u16::from_be_bytes([len_high & 15, len_low]));
        let ip = if how & 1 == 0 {
            etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        } else {
            etherparse::PacketBuilder::ipv6([1; 16], [2; 16], 64)
        };
        let mut packet = Vec::new();
        let payload = vec![spoil; len];
        let tcp = ip.tcp(1000, 2000, seq, 5000);
        let tcp = if flags & 1 == 0 { tcp.ack(77) } else { tcp };
        let tcp = if flags & 2 != 0 { tcp.psh() } else { tcp };
        let tcp = if flags & 4 != 0 { tcp.fin() } else { tcp };
        let tcp = if flags & 8 != 0 { tcp.cwr() } else { tcp };
        let tcp = if flags & 16 != 0 { tcp.ece() } else { tcp };
        tcp.write(&mut packet, &payload).expect("a segment that fits");
        if how & 2 != 0 {
            let at = usize::from(spoil) % packet.len();
            packet[at] ^= flags;
        }
        if how & 4 == 0 {
            seq = seq.wrapping_add(len as u32);
        }
        if let Ok(inner) = Inner::parse(&packet) {
            packet.truncate(inner.len);
            packets.push(packet);
        }
    }
    packets
}

/// Coalescing segments: segmenting the output restores the input.
pub(crate) fn coalesce(data: &[u8]) {
    let mut packets = packets(data);
    // Packets with partial checksums leave the coalescer with complete ones, so they would differ.
    packets.retain(|packet| partial::left_open(packet).is_none());
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut coalescer =
        Coalescer::new(1456, |vnet: &VnetHeader, headers: &[u8], payloads: &[&[u8]]| {
            let mut packet = [headers, &payloads.concat()].concat();
            let whole = vnet.gso_type == VnetHeader::GSO_NONE;
            assert!(whole || payloads.len() > 1);
            if whole {
                return out.push(packet);
            }
            assert_eq!(Inner::parse(&packet).map(|inner| inner.len), Ok(packet.len()));
            let cut = Cut::new(vnet, &packet).expect("a super-packet of our own can be cut");
            let mut ranges = Vec::new();
            cut.apply(&mut packet, |header, body| ranges.push((header.to_vec(), body)));
            for (header, body) in ranges {
                out.push([&header[..], &packet[body]].concat());
            }
        });
    packets.iter().for_each(|packet| coalescer.push(packet));
    coalescer.flush();
    assert_eq!(out.len(), packets.len());
    for (out, packet) in out.iter().zip(&packets) {
        assert_eq!(without_meaning(out), without_meaning(packet));
    }
}

/// A packet without its mutable fields: the identification of an IPv4 packet that must not be fragmented (RFC 6864,
/// 4.1) and the header checksum that covers it.
fn without_meaning(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet.len() >= 20 && packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}
