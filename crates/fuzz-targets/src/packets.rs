//! The user-space packet path: receiving, cutting and putting together.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use segue_datapath::user::coalesce::Coalescer;
use segue_datapath::user::dry_run::DryRun;
use segue_datapath::user::segment::{Cut, VnetHeader};
use segue_datapath::{InnerEntry, PathConfig, Role};
use segue_wire::flow::Inner;
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};

use crate::take;

const SLOT: u32 = 3;
const COOKIE: u64 = 0xa0a1_a2a3_a4a5_a6a7;
const KEY: ProbeKey = ProbeKey([42; 16]);
const OWNER: u32 = 7;

fn own() -> [IpAddr; 2] {
    [[10, 8, 0, 1].into(), [0xfd08, 0, 0, 0, 0, 0, 0, 1].into()]
}

/// What the rules say about one packet; `last_seq` is that of the last request or
/// unsolicited response taken.
enum Expected<'a> {
    Packet(&'a [u8]),
    Probe,
    Refused(DropReason),
}

fn expected<'a>(role: Role, packet: &'a [u8], last_seq: &mut Option<u32>) -> Expected<'a> {
    let refused = |reason: DropReason| Expected::Refused(reason);
    let header = match Header::parse(packet) {
        Ok(header) => header,
        Err(error) => return refused(error.into()),
    };
    if header.index != SLOT {
        return refused(DropReason::UnknownIndex);
    }
    if header.cookie != COOKIE {
        return refused(DropReason::Cookie);
    }
    match (header.packet_type, role) {
        (PacketType::Data, _) => match Inner::parse(&packet[Header::LEN..]) {
            Err(reason) => refused(reason),
            Ok(inner) if role == Role::Host && !own().contains(&inner.key.dst) => {
                refused(DropReason::InnerDestination)
            }
            Ok(inner) if role == Role::Anchor && !own().contains(&inner.key.src) => {
                refused(DropReason::InnerSource)
            }
            Ok(inner) => Expected::Packet(&packet[Header::LEN..Header::LEN + inner.len]),
        },
        (PacketType::Request, Role::Anchor) | (PacketType::Response, Role::Host) => {
            match Probe::open(packet, &KEY) {
                Err(error) => refused(error.into()),
                Ok(probe) if role == Role::Anchor || header.flags != 0 => {
                    let newer = |last: u32| (probe.seq.wrapping_sub(last) as i32) > 0;
                    if last_seq.is_some_and(|last| !newer(last)) {
                        return refused(DropReason::Replay);
                    }
                    *last_seq = Some(probe.seq);
                    Expected::Probe
                }
                Ok(_) => Expected::Probe,
            }
        }
        _ => refused(DropReason::Type),
    }
}

/// Receiving: every packet of a datagram is delivered, taken as a probe or refused with the reason
/// that the formats' own parsers give, whatever came before it. The first bytes say how the rest is
/// made into packets that get past the first checks.
pub fn receive(data: &[u8]) {
    let mut data = data;
    let [choice, size] = take(&mut data);
    let role = if choice & 1 == 0 { Role::Host } else { Role::Anchor };
    let size = (choice & 2 != 0).then(|| usize::from(size).max(1));
    let mut bytes = data.to_vec();
    for packet in bytes.chunks_mut(size.unwrap_or(data.len()).max(1)) {
        mend(packet, choice);
    }
    let path = PathConfig {
        tx_index: 9,
        tx_cookie: 1,
        rx_cookie: COOKIE,
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: OWNER,
    };
    let inner = own().map(|address| (address, InnerEntry { owner: OWNER }));
    let run = DryRun::new(role, &[(SLOT, path)], &inner).expect("descriptors for two events");
    let mut last_seq = None;
    // Twice, so that replays are seen.
    for _ in 0..2 {
        let taken = run.receive(SocketAddr::from(([192, 0, 2, 9], 4000)), &bytes, size);
        let (mut packets, mut probes, mut refused) = (Vec::new(), 0, BTreeMap::new());
        let chunks = bytes.chunks(size.unwrap_or(bytes.len()).max(1));
        for packet in chunks.chain(bytes.is_empty().then_some(&[][..])) {
            match expected(role, packet, &mut last_seq) {
                Expected::Packet(inner) => packets.push(inner),
                Expected::Probe => probes += 1,
                Expected::Refused(reason) => *refused.entry(reason).or_insert(0) += 1,
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
    if choice & 8 != 0
        && packet.len() == Probe::PACKET_LEN
        && let Ok(header) = Header::parse(packet)
        && let Some(probe) = packet[Header::LEN..].first_chunk()
    {
        let sealed = Probe::parse(probe).seal(&header, &KEY);
        packet.copy_from_slice(&sealed);
    }
    if choice & 16 != 0
        && let Some(head) = packet.get_mut(Header::LEN..Header::LEN + 40)
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

/// Cutting what the TUN device hands over: the pieces are as many and as long as was said, and carry
/// the payload whole and in order.
pub fn segment(data: &[u8]) {
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

/// TCP segments, spoilt ones and other packets as the input says.
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

/// Putting segments together: what comes out, cut again, is what went in.
pub fn coalesce(data: &[u8]) {
    let packets = packets(data);
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut coalescer = Coalescer::new(|vnet: &VnetHeader, headers: &[u8], payloads: &[&[u8]]| {
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

/// A packet without what may change: the identification of an IPv4 packet that may not be fragmented
/// (RFC 6864, 4.1) and the header checksum that covers it.
fn without_meaning(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet.len() >= 20 && packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}
