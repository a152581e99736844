//! Two parsers of one format: for packets corrupted in thousands of ways, the programs in the kernel must accept and
//! refuse the same packets as `segue-wire`, for the same reasons, and read the same flow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};

use etherparse::PacketBuilder;
use segue_clock::{Rng, Span};
use segue_datapath::LinuxDatapath;
use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_wire::flow::Inner;
use segue_wire::header::flags::{DATA_ONE_WAY, RIDE_ONE_WAY, RIDE_RESPONSE};
use segue_wire::{DropReason, FlowKey, Header, PacketType, Probe, Size};

use crate::rides::agree_on_rides;
use crate::world::{Family, KEY, PORT, Wire, World, anchor_slot, eventually, may_run};

const COOKIE: u64 = 0xa000;
const BATCHES: usize = 12;
const BATCH: usize = 100;

#[test]
fn ipv4_kernel_and_wire_crate_agree_on_spoilt_packets() {
    agree(Family::V4, Xdp::Off, 1, false);
}
#[test]
fn ipv6_kernel_and_wire_crate_agree_on_spoilt_packets() {
    agree(Family::V6, Xdp::Off, 2, false);
}
#[test]
fn xdp_and_wire_crate_agree_on_spoilt_packets() {
    agree(Family::V4, Xdp::On, 3, false);
}
#[test]
fn ipv4_kernel_and_wire_crate_agree_on_spoilt_rides() {
    agree(Family::V4, Xdp::Off, 4, true);
}
#[test]
fn ipv6_kernel_and_wire_crate_agree_on_spoilt_rides() {
    agree(Family::V6, Xdp::Off, 5, true);
}
#[test]
fn xdp_and_wire_crate_agree_on_spoilt_rides() {
    agree(Family::V6, Xdp::On, 6, true);
}

/// The reference: the fate of packets at the anchor.
#[derive(Default)]
struct Reference {
    /// The path's probes may ride.
    rides: bool,
    last_seq: Option<u32>,
    drops: BTreeMap<DropReason, u64>,
    /// Value of the path's packet counter: packets with a correct cookie or authenticator, even if their content is
    /// refused, because they were not lost.
    counted: u32,
    learned: BTreeSet<FlowKey>,
}

impl Reference {
    fn take(&mut self, bytes: &[u8]) {
        let result = self.check(bytes);
        let inner = [Err(DropReason::InnerPacket), Err(DropReason::InnerSource)];
        let is_size = bytes.first().is_some_and(|first| first & 15 == PacketType::Size as u8);
        self.counted += u32::from(result.is_ok() && !is_size || inner.contains(&result));
        if let Err(reason) = result {
            *self.drops.entry(reason).or_insert(0) += 1;
        }
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        let header = Header::parse(bytes)?;
        if header.index != anchor_slot(0) {
            return Err(DropReason::UnknownIndex);
        }
        if header.cookie != COOKIE {
            return Err(DropReason::Cookie);
        }
        match header.packet_type {
            PacketType::Response => Err(DropReason::Type),
            PacketType::Request => self.newer(Probe::open(bytes, &KEY)?.seq),
            PacketType::Data => self.data(&bytes[Header::LEN..], header.flags & DATA_ONE_WAY != 0),
            PacketType::Size => Ok(Size::open(bytes, &KEY, true).map(|_| ())?),
            PacketType::Ride if !self.rides || header.flags & RIDE_RESPONSE != 0 => {
                Err(DropReason::Type)
            }
            PacketType::Ride => {
                let (probe, inner) = Probe::open_ride(bytes, &KEY)?;
                // A fault in the probe alone does not affect the inner packet.
                if let Err(reason) = self.newer(probe.seq) {
                    *self.drops.entry(reason).or_insert(0) += 1;
                }
                self.data(inner, header.flags & RIDE_ONE_WAY != 0)
            }
        }
    }

    fn newer(&mut self, seq: u32) -> Result<(), DropReason> {
        if self.last_seq.is_some_and(|last| seq.wrapping_sub(last) as i32 <= 0) {
            return Err(DropReason::Replay);
        }
        self.last_seq = Some(seq);
        Ok(())
    }

    fn data(&mut self, inner: &[u8], one_way: bool) -> Result<(), DropReason> {
        let key = Inner::parse(inner)?.key;
        if Family::BOTH.iter().all(|family| family.inner(1) != key.src) {
            return Err(DropReason::InnerSource);
        }
        if !one_way {
            self.learned.insert(key.reversed());
        }
        Ok(())
    }
}

fn agree(outer: Family, xdp: Xdp, seed: u64, rides: bool) {
    if !may_run() {
        return;
    }
    let world = World::ready(outer, Wire::Whole, 1, EbpfOptions { xdp, ..EbpfOptions::default() });
    let mut reference = Reference { rides, last_seq: Some(1), ..Reference::default() };
    if rides {
        reference.last_seq = Some(agree_on_rides(&world, Span::from_secs(100)));
    }
    let local = SocketAddr::new(outer.outer(0, 1), 6000);
    let socket = world.host.ns.run(|| UdpSocket::bind(local)).unwrap().unwrap();
    socket.connect(SocketAddr::new(outer.outer(0, 2), PORT)).unwrap();
    let before = world.anchor.counters(anchor_slot(0)).rx_packets;
    let mut rng = Rng::new(seed);
    for _ in 0..BATCHES {
        let packets: Vec<Vec<u8>> = (0..BATCH).map(|_| packet(&mut rng, rides)).collect();
        for packet in &packets {
            reference.take(packet);
            socket.send(packet).unwrap();
        }
        let (mut counted, mut drops) = (0, BTreeMap::new());
        eventually("the fate of every packet", || {
            counted = world.anchor.counters(anchor_slot(0)).rx_packets.wrapping_sub(before);
            drops = world.anchor.datapath.lock().unwrap().drops();
            let refused: u64 = drops.values().sum();
            refused >= reference.drops.values().sum() && counted >= reference.counted
        });
        assert_eq!(drops, reference.drops, "seed {seed}: {packets:02x?}");
        assert_eq!(counted, reference.counted, "seed {seed}: {packets:02x?}");
    }
    println!("{outer:?} {xdp:?}: {} counted, refused {:?}", reference.counted, reference.drops);
    assert!(reference.counted > 100 && reference.drops.len() >= 9, "{:?}", reference.drops);
    let flows = world.anchor.datapath.lock().unwrap().flows();
    // The anchor's daemon binds errors that the anchor itself sends (ICMP).
    let own = |key: &FlowKey| Family::BOTH.iter().any(|family| family.inner(2) == key.src);
    let learned = flows.iter().map(|flow| flow.key).filter(|key| !own(key));
    let learned: BTreeSet<FlowKey> = learned.collect();
    reference.learned.retain(|key| !own(key));
    let missing: Vec<_> = reference.learned.difference(&learned).collect();
    assert!(missing.is_empty(), "not learned by the programs: {missing:?}");
    let strange: Vec<_> = learned.difference(&reference.learned).collect();
    assert!(strange.is_empty(), "learned by the programs alone: {strange:?}");
}

/// A packet, valid at first and then corrupted in up to three places.
fn packet(rng: &mut Rng, rides: bool) -> Vec<u8> {
    let pick = |rng: &mut Rng, n: u64| rng.below(n) as usize;
    let plain = if rides && pick(rng, 3) > 0 { PacketType::Ride } else { PacketType::Data };
    let header = Header {
        packet_type: [plain, PacketType::Request][usize::from(pick(rng, 3) == 0)],
        flags: 0,
        k: 0,
        age: 0,
        index: anchor_slot(0),
        cookie: COOKIE,
    };
    let seq = [2, 3, 50, 1 << 30, 1 << 31, u32::MAX][pick(rng, 6)];
    let seq = seq + pick(rng, 3) as u32 * u32::from(seq < 100);
    let probe = Probe { seq, t_sc: rng.below(1 << 32) as u32, ..Probe::default() };
    let mut bytes = match header.packet_type {
        PacketType::Request => probe.seal(&Header { k: 3, ..header }, &KEY).to_vec(),
        PacketType::Ride => {
            let flags = [0, 0, RIDE_ONE_WAY, RIDE_ONE_WAY, RIDE_RESPONSE][pick(rng, 5)];
            [&probe.seal(&Header { k: 3, flags, ..header }, &KEY)[..], &inner(rng)].concat()
        }
        PacketType::Data | PacketType::Response | PacketType::Size => {
            let flags = u8::from(pick(rng, 4) == 0);
            [&Header { flags, ..header }.emit()[..], &inner(rng)].concat()
        }
    };
    for _ in 0..[0, 0, 1, 1, 2, 3][pick(rng, 6)] {
        if bytes.is_empty() {
            break;
        }
        let end = if pick(rng, 2) == 0 {
            bytes.len()
        } else {
            bytes.len().min(26 + 40 * usize::from(rides))
        };
        let at = pick(rng, end as u64);
        match pick(rng, 8) {
            0 => bytes.truncate(at),
            1 => bytes.extend(std::iter::repeat_n(0x55, pick(rng, 9))),
            2 | 3 => bytes[at] = rng.below(256) as u8,
            _ => bytes[at] ^= 1 << pick(rng, 8),
        }
    }
    bytes
}

/// An inner packet from the host to an address where nothing answers.
fn inner(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (sport, dport) = (1000 + rng.below(8) as u16, 2000);
    let payload = vec![0; rng.below(40) as usize];
    let tcp = rng.below(2) == 0;
    let v6 = rng.below(2) == 0;
    let addresses = |family: Family| (family.inner(1), family.inner(77));
    let ip = match addresses(if v6 { Family::V6 } else { Family::V4 }) {
        (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => {
            PacketBuilder::ipv4(a.octets(), b.octets(), 64)
        }
        (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => {
            PacketBuilder::ipv6(a.octets(), b.octets(), 64)
        }
        mixed => panic!("{mixed:?}"),
    };
    if tcp {
        ip.tcp(sport, dport, 1, 100).write(&mut bytes, &payload).unwrap();
    } else {
        ip.udp(sport, dport).write(&mut bytes, &payload).unwrap();
    }
    if v6 {
        extend(rng, &mut bytes);
        bytes[3] = rng.below(4) as u8;
    } else {
        match rng.below(6) {
            0 => bytes[6] = 0x20, // more fragments
            1 => bytes[7] = 3,    // a later fragment
            2 => bytes[9] = [33, 47, 50, 132, 136][rng.below(5) as usize],
            _ => {}
        }
    }
    bytes
}

/// Inserts up to five extension headers after an IPv6 header.
fn extend(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..[0, 0, 1, 2, 4, 5][rng.below(6) as usize] {
        let kind = [0, 43, 60, 60, 44][rng.below(5) as usize];
        let units = if kind == 44 { 0 } else { rng.below(3) };
        let mut extension = vec![0; 8 + units as usize * 8];
        extension[..2].copy_from_slice(&[bytes[6], units as u8]);
        bytes[6] = kind;
        bytes.splice(40..40, extension);
    }
    let len = (bytes.len() - 40) as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
}
