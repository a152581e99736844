//! Probes that ride on data packets.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use segue_clock::{Machine, Span, Time};
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, ProbeKind, ProbeOrder};
use segue_keepalive::{
    Client, ClientInput, ClientOutput, Config, LOOK, MeasuredBy, Probing, Reading, State,
};
use segue_linux::clock::monotonic;
use segue_wire::header::flags::{RIDE_ONE_WAY, RIDE_RESPONSE};
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};

use crate::hostile::stranger;
use crate::raw::{self, Tap};
use crate::traffic::{bulk_tcp, datagrams, set_option};
use crate::world::{End, Family, KEY, Wire, World, anchor_slot, eventually, host_slot, may_run};

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_with_offloads_whole() {
    every_pair_of_families(Wire::Whole);
}

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_without_gso() {
    every_pair_of_families(Wire::NoGso);
}

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_without_checksum_offload() {
    every_pair_of_families(Wire::NoChecksum);
}

fn every_pair_of_families(wire: Wire) {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        // T_KA is so short that nearly every packet of the host falls into its own period.
        let world = riding(outer, wire, Span::from_millis(1));
        for family in Family::BOTH {
            exchange(&world, family);
            // With checksums that the stack left to the device.
            let (host, anchor, to) = (&world.host.ns, &world.anchor.ns, family.inner(2));
            assert_eq!(datagrams(host, anchor, to, 100, 700, 1).len(), 100, "{family:?}");
            bulk_tcp(host, anchor, to, 1 << 20);
        }
        let rode = sent(&world.host, host_slot(0)).rode;
        assert!(rode >= 20, "{rode} rode");
        for end in [&world.host, &world.anchor] {
            let mut drops = end.datapath.lock().unwrap().drops();
            // A response that a newer one overtook on another processor.
            drops.remove(&DropReason::Replay);
            assert!(drops.is_empty(), "{drops:?}");
        }
        // So long that a response always waits for the next packet.
        let world = riding(outer, wire, Span::from_secs(100));
        Family::BOTH.into_iter().for_each(|family| answers_ride(&world, wire, family));
        for end in [&world.host, &world.anchor] {
            let drops = end.datapath.lock().unwrap().drops();
            assert!(drops.is_empty(), "{drops:?}");
        }
    }
}

/// Packets of many kinds in both directions, compared byte by byte.
fn exchange(world: &World, family: Family) {
    let ends = [&world.host, &world.anchor];
    let taps = ends.map(|end| end.ns.run(|| Tap::new("segue0")).unwrap());
    // A socket listens, so that no ICMP error is returned.
    let open = |end: &End, last| end.ns.run(|| UdpSocket::bind((family.inner(last), 4001)));
    let _open = [open(ends[0], 1).unwrap().unwrap(), open(ends[1], 2).unwrap().unwrap()];
    let before = ends.map(|end| end.probes.lock().unwrap().len());
    for n in 0..12u16 {
        let payload: Vec<u8> = (0..n * 100).map(|i| (i ^ n) as u8).collect();
        for (from, to, last) in [(0, 1, [1, 2]), (1, 0, [2, 1])] {
            let [source, destination] = last.map(|last| family.inner(last));
            let packet = raw::packet(source, destination, n, &payload);
            taps[from].send(&packet);
            taps[to].expect(&packet);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for (end, before) in ends.iter().zip(before) {
        eventually("probes of this exchange", || end.probes.lock().unwrap().len() >= before + 10);
    }
}

/// Packets of many kinds from the anchor, each with a response; compared byte by byte. Half of them leave with a
/// checksum that the stack left to the device.
fn answers_ride(world: &World, wire: Wire, family: Family) {
    let (host, anchor) = (&world.host, &world.anchor);
    let [from, to] = [anchor, host].map(|end| end.ns.run(|| Tap::new("segue0")).unwrap());
    let open = |end: &End, port| end.ns.run(|| UdpSocket::bind((family.inner(1), port)).unwrap());
    let _open = open(host, 4001).unwrap();
    let [source, destination] = [2, 1].map(|last| family.inner(last));
    let socket = anchor.ns.run(|| UdpSocket::bind((source, 4000)).unwrap()).unwrap();
    let rode = || sent(anchor, anchor_slot(0)).rode;
    for n in 0..12u16 {
        let payload: Vec<u8> = (0..n * 100).map(|i| (i ^ n) as u8).collect();
        let mut packet = raw::packet(source, destination, n, &payload);
        let leave = |packet: &mut Vec<u8>| {
            if n % 2 == 0 {
                from.send(packet);
                return to.expect(packet);
            }
            socket.send_to(&payload, (destination, 4001)).unwrap();
            to.expect_where("the datagram", |got| {
                is_datagram(got, &payload, wire == Wire::NoChecksum)
            });
        };
        // The first packet shows that data leaves here.
        leave(&mut packet);
        let (before, seq) = (rode(), sent(host, host_slot(0)).sent + 1);
        let probe = Probe { heard: 3, ..Probe::default() };
        let order = ProbeOrder::plain(host_slot(0), ProbeKind::Request, 4, probe);
        host.datapath.lock().unwrap().send_probes(&[order]).unwrap();
        anchor.wait_for_probe(|event| event.arrival.probe.seq == seq);
        leave(&mut packet);
        host.wait_for_probe(|event| event.arrival.probe.seq == seq);
        assert_eq!(rode(), before + 1, "packet {n}");
        // Makes room for the next.
        anchor.datapath.lock().unwrap().sweep(monotonic());
    }
}

/// True for a UDP datagram with this payload and, if no device computes it, the matching checksum.
fn is_datagram(packet: &[u8], payload: &[u8], complete: bool) -> bool {
    let Ok(sliced) = SlicedPacket::from_ip(packet) else { return false };
    let (Some(net), Some(TransportSlice::Udp(udp))) = (&sliced.net, &sliced.transport) else {
        return false;
    };
    let header = udp.to_header();
    let sum = match net {
        NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), payload),
        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), payload),
        NetSlice::Arp(_) => return false,
    };
    udp.payload() == payload && (!complete || sum == Ok(udp.checksum()))
}

#[test]
fn a_period_has_one_ride_and_numbers_go_on_from_what_was_ordered() {
    if !may_run() {
        return;
    }
    let world = riding(Family::V4, Wire::Whole, Span::from_secs(100));
    let (host, anchor) = flow(&world);
    let before = world.host.counters(host_slot(0)).tx_packets;
    // In step with the receiver: a later packet may overtake one that waits for a binding.
    let mut buffer = [0; 200];
    for n in 0..50u8 {
        host.send_to(&[n; 100], anchor.local_addr().unwrap()).unwrap();
        let len = anchor.recv(&mut buffer).expect("data is lost");
        assert_eq!(buffer[..len], [n; 100]);
    }
    let request = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 2);
    assert_eq!((request.kind, request.k, request.arrival.probe.heard), (ProbeKind::Request, 4, 3));
    let response = world.host.wait_for_probe(|e| e.arrival.probe.seq == 2);
    assert_eq!(response.kind, ProbeKind::Response);
    let reading = sent(&world.host, host_slot(0));
    assert_eq!((reading.sent, reading.rode), (2, 1));
    let after = world.host.counters(host_slot(0)).tx_packets;
    assert_eq!(after - before, 50);
    assert_eq!(request.arrival.received, request.arrival.probe.sc);
    assert!((before + 1..=after).contains(&request.arrival.probe.sc));
    assert_eq!(world.anchor.counters(anchor_slot(0)).rx_packets, after);
}

#[test]
fn what_would_be_too_long_with_a_probe_takes_none() {
    if !may_run() {
        return;
    }
    for (outer, room) in [(Family::V4, 1500 - 28 - 56), (Family::V6, 1500 - 48 - 56)] {
        let world = riding(outer, Wire::NoGso, Span::from_secs(100));
        let ends = [&world.host, &world.anchor];
        let taps = ends.map(|end| end.ns.run(|| Tap::new("segue0")).unwrap());
        let packet = |bytes: usize| {
            let [from, to] = [1, 2].map(|last| Family::V4.inner(last));
            let empty = raw::packet(from, to, 9, &[]);
            raw::packet(from, to, 9, &vec![7; bytes - empty.len()])
        };
        for _ in 0..5 {
            taps[0].send(&packet(room + 1));
            taps[1].expect(&packet(room + 1));
        }
        assert_eq!(sent(&world.host, host_slot(0)).rode, 0);
        taps[0].send(&packet(room));
        taps[1].expect(&packet(room));
        assert_eq!(sent(&world.host, host_slot(0)).rode, 1);
    }
}

#[test]
fn a_response_waits_only_where_data_leaves_and_no_longer_than_a_period() {
    if !may_run() {
        return;
    }
    let t_ka = Span::from_secs(1);
    let world = riding(Family::V6, Wire::Whole, t_ka);
    let (host, anchor) = flow(&world);
    let mut buffer = [0; 100];
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    // That packet carried a request; no data has left the anchor, so the answer came at once.
    let seq = sent(&world.host, host_slot(0)).sent;
    let response = world.host.wait_for_probe(|e| e.arrival.probe.seq == seq);
    assert!(response.arrival.probe.dt < 10_000_000, "{response:?}");

    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    let now = monotonic();
    world.order(0, 0);
    let request = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == seq + 1);
    let next = world.anchor.datapath.lock().unwrap().sweep(now).expect("paths have rides");
    assert!(next <= now + t_ka);
    assert!(!answered(&world, seq + 1), "the answer did not wait");
    std::thread::sleep(Duration::from_millis(1050));
    world.anchor.datapath.lock().unwrap().sweep(monotonic());
    let response = world.host.wait_for_probe(|e| e.arrival.probe.seq == seq + 1);
    assert!(response.arrival.probe.dt >= 1_000_000, "{response:?}");
    let fields = |p: &Probe| (p.t_sc, p.sc, p.t_ka_ms);
    assert_eq!(fields(&response.arrival.probe), fields(&request.arrival.probe));
    assert_eq!(response.arrival.probe.r, request.arrival.received);
    let rtt = sent(&world.host, host_slot(0)).estimates.rtt_last.unwrap();
    let total = (response.arrival.at.0 / 1000) as u32 - response.arrival.probe.t_sc;
    assert!(rtt <= Span::from_micros(u64::from(total) - 1_000_000), "{rtt:?} of {total} µs");

    // The next response rides on the next packet.
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    world.order(0, 0);
    world.anchor.wait_for_probe(|e| e.arrival.probe.seq == seq + 2);
    std::thread::sleep(Duration::from_millis(50));
    anchor.send_to(b"again", from).unwrap();
    let response = world.host.wait_for_probe(|e| e.arrival.probe.seq == seq + 2);
    assert!(response.arrival.probe.dt >= 50_000, "{response:?}");
    let len = host.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"again");
    // A response that has left is not swept again.
    std::thread::sleep(Duration::from_millis(1050));
    let tx = world.anchor.counters(anchor_slot(0)).tx_packets;
    world.anchor.datapath.lock().unwrap().sweep(monotonic());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(world.anchor.counters(anchor_slot(0)).tx_packets, tx);
}

#[test]
fn of_two_responses_that_would_wait_the_older_goes() {
    if !may_run() {
        return;
    }
    let world = riding(Family::V4, Wire::Whole, Span::from_secs(100));
    let (host, anchor) = flow(&world);
    let mut buffer = [0; 100];
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 2);
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    world.order(0, 0);
    let first = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 3);
    world.order(0, 0);
    let older = world.host.wait_for_probe(|e| e.arrival.probe.seq == 3);
    assert_eq!(
        (older.arrival.probe.t_sc, older.arrival.probe.sc),
        (first.arrival.probe.t_sc, first.arrival.probe.sc)
    );
    assert_eq!((older.arrival.probe.r, older.k), (first.arrival.received, first.k));
    assert!(!answered(&world, 4));
    anchor.send_to(b"back", from).unwrap();
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 4);
}

#[test]
fn rides_that_are_wrong_are_refused_by_their_reason() {
    if !may_run() {
        return;
    }
    let world = riding(Family::V4, Wire::Whole, Span::from_secs(100));
    let anchor = &world.anchor;
    let tap = anchor.ns.run(|| Tap::new("segue0")).unwrap();
    let open = || UdpSocket::bind((Family::V4.inner(2), 4001)).unwrap();
    let _open = anchor.ns.run(open).unwrap();
    let wire = stranger(&world, 6000);
    let data = raw::packet(Family::V4.inner(1), Family::V4.inner(2), 9, b"good");
    let foreign = raw::packet(Family::V4.inner(7), Family::V4.inner(2), 9, b"foreign");
    let ride = |flags, seq, key: ProbeKey, inner: &[u8]| {
        let (packet_type, index, cookie) = (PacketType::Ride, anchor_slot(0), 0xa000);
        let header = Header { flags, ..Header::new(packet_type, 4, index, cookie) };
        let probe = Probe { seq, ..Probe::default() };
        [&probe.seal(&header, &key)[..], inner].concat()
    };
    let refused = |reason, bytes: &[u8]| {
        let before = anchor.dropped(reason);
        wire.send(bytes).unwrap();
        eventually(&format!("{reason}"), || anchor.dropped(reason) == before + 1);
    };
    let received = || anchor.counters(anchor_slot(0)).rx_packets;
    let before = received();
    refused(DropReason::Mac, &ride(0, 100, ProbeKey([8; 16]), &data));
    refused(DropReason::Type, &ride(RIDE_RESPONSE, 100, KEY, &data));
    refused(DropReason::Field, &ride(8, 100, KEY, &data));
    refused(DropReason::Field, &ride(6, 100, KEY, &data));
    refused(DropReason::Truncated, &ride(0, 100, KEY, &data)[..55]);
    assert_eq!(received(), before, "none of these has arrived");

    // The probe of a ride counts even if the inner packet is refused, and the packet counts once.
    refused(DropReason::InnerSource, &ride(0, 100, KEY, &foreign));
    let event = anchor.wait_for_probe(|e| e.arrival.probe.seq == 100);
    assert_eq!((event.arrival.received, received()), (before + 1, before + 1));
    refused(DropReason::InnerPacket, &ride(0, 101, KEY, &[]));
    anchor.wait_for_probe(|e| e.arrival.probe.seq == 101);

    // Data of a replayed ride are delivered, and counted once.
    wire.send(&ride(RIDE_ONE_WAY, 102, KEY, &data)).unwrap();
    tap.expect(&data);
    let flows = anchor.datapath.lock().unwrap().flows();
    assert!(flows.iter().all(|f| f.key.dport != 4000), "learned from a one-way ride: {flows:?}");
    refused(DropReason::Replay, &ride(0, 102, KEY, &data));
    tap.expect(&data);
    assert_eq!(received(), before + 4);

    world.set_paths(0);
    refused(DropReason::Type, &ride(0, 103, KEY, &data));
}

#[test]
fn every_request_has_one_answer_also_where_data_leaves_in_the_same_instant() {
    if !may_run() {
        return;
    }
    // Enough paths for all responses held in a round.
    let options = super::options(super::Xdp::Off);
    let world = World::with_paths(Family::V4, Wire::Whole, 1, options, 8 * REQUESTS);
    agree_on_rides(&world, Span::from_secs(100));
    let wire = stranger(&world, 6000);
    wire.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    // In step with the receiver, so that the result does not depend on socket buffers.
    set_option(&wire, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
    let (host, anchor) = flow(&world);
    // Answers to a source that has not echoed yet do not wait.
    let request = |seq, t_ss| {
        let (packet_type, index, cookie) = (PacketType::Request, anchor_slot(0), 0xa000);
        let header = Header::new(packet_type, 4, index, cookie);
        let probe = Probe { seq, t_sc: seq * 7, t_ss, sc: seq * 3, ..Probe::default() };
        wire.send(&probe.seal(&header, &KEY)).unwrap();
    };
    request(FIRST - 2, 0);
    let mut bytes = [0; 100];
    let mut challenge = None;
    eventually("an answer", || {
        let len = wire.recv(&mut bytes).unwrap_or(0);
        challenge = Probe::open(&bytes[..len], &KEY).ok().map(|answer| answer.t_ss);
        challenge.is_some()
    });
    std::thread::sleep(Duration::from_millis(5)); // an earlier echo is not compared
    request(FIRST - 1, challenge.unwrap());
    let data = || assert_eq!(anchor.send_to(b"data", host.local_addr().unwrap()).unwrap(), 4);
    let mut answers = Answers::default();
    eventually("the first answer", || {
        data();
        while answers.take(&wire) {}
        answers.seen.contains(&(FIRST - 1))
    });
    for round in 0..ROUNDS {
        let seqs = FIRST + round * REQUESTS..FIRST + (round + 1) * REQUESTS;
        world.anchor.datapath.lock().unwrap().sweep(monotonic());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3 * REQUESTS).for_each(|_| data()));
            seqs.clone().for_each(|seq| request(seq, 0));
        });
        let end = Instant::now() + Duration::from_secs(10);
        while seqs.clone().any(|seq| !answers.seen.contains(&seq)) {
            let drops = world.anchor.datapath.lock().unwrap().drops();
            assert!(Instant::now() < end, "lost: {:?}, {drops:?}", answers.missing(seqs));
            if !answers.take(&wire) {
                // The newest answer waits.
                data();
            }
        }
    }
    let rode = sent(&world.anchor, anchor_slot(0)).rode;
    println!("{rode} of {} answers rode", answers.seen.len());
    assert_eq!((rode, answers.seen.len() as u32), (answers.rode, ROUNDS * REQUESTS + 1));
    assert!(rode >= ROUNDS, "the last of each round at least: {rode}");
}

/// Number of the first request that counts.
const FIRST: u32 = 10;
const ROUNDS: u32 = 200;
const REQUESTS: u32 = 32;

/// Answers as they arrive on the wire: each once, and with the fields of its own request.
#[derive(Default)]
struct Answers {
    seen: BTreeSet<u32>,
    rode: u32,
}

impl Answers {
    /// Reads one arrival; false if there is none.
    fn take(&mut self, wire: &UdpSocket) -> bool {
        let mut bytes = [0; 2000];
        let Ok(n) = wire.recv(&mut bytes) else { return false };
        let header = Header::parse(&bytes[..n]).unwrap();
        if header.packet_type == PacketType::Data {
            return true;
        }
        let rides = header.packet_type == PacketType::Ride;
        assert!(rides || header.packet_type == PacketType::Response, "{header:?}");
        let (answer, inner) = Probe::open_ride(&bytes[..n], &KEY).unwrap();
        assert_eq!(inner.is_empty(), !rides);
        assert_eq!((answer.t_sc, answer.sc), (answer.seq * 7, answer.seq * 3), "{answer:?}");
        assert!(self.seen.insert(answer.seq), "twice: {answer:?}");
        self.rode += u32::from(rides);
        true
    }

    fn missing(&self, mut seqs: std::ops::Range<u32>) -> Option<u32> {
        seqs.find(|seq| !self.seen.contains(seq))
    }
}

/// A world in which both ends have agreed on rides, and one request has then been sent on its own and answered.
pub(crate) fn riding(outer: Family, wire: Wire, t_ka: Span) -> World {
    let world = World::new(outer, wire, 1, super::options(super::Xdp::Off));
    agree_on_rides(&world, t_ka);
    world
}

/// Makes the probes of a world's path ride; one request is sent on its own and answered. Returns its number.
pub(crate) fn agree_on_rides(world: &World, t_ka: Span) -> u32 {
    let host = PathSetup { probing: probing(t_ka), ..world.host_path(0) };
    world.host.datapath.lock().unwrap().set_path(host_slot(0), &host).unwrap();
    set_anchor(world, t_ka);
    let seq = sent(&world.host, host_slot(0)).sent + 1;
    world.probe(0, seq);
    seq
}

fn probing(t_ka: Span) -> Probing {
    Probing { rides: true, t_ka, k: 4, ..Probing::default() }
}

fn set_anchor(world: &World, t_ka: Span) {
    let config = PathSetup { probing: probing(t_ka), ..world.anchor_path(0) };
    world.anchor.datapath.lock().unwrap().set_path(anchor_slot(0), &config).unwrap();
}

fn sent(end: &End, slot: u32) -> Reading {
    end.datapath.lock().unwrap().reading(slot).expect("the path is there")
}

fn answered(world: &World, seq: u32) -> bool {
    world.host.probes.lock().unwrap().iter().any(|e| e.arrival.probe.seq == seq)
}

/// A UDP socket at each end, inside the tunnel.
pub(crate) fn flow(world: &World) -> (UdpSocket, UdpSocket) {
    let bind = |end: &End, last| {
        let bind = || UdpSocket::bind((Family::V4.inner(last), 0)).unwrap();
        let socket = end.ns.run(bind).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    (bind(&world.host, 1), bind(&world.anchor, 2))
}

/// A client as a host's daemon drives it.
struct Driver<'a> {
    world: &'a World,
    client: Client,
    /// Wakeups of the driver by the client's deadline, and by the datapath's notification.
    wakes: [u32; 2],
}

impl Driver<'_> {
    fn run_until(&mut self, end: Time) {
        while monotonic() < end {
            let now = monotonic();
            let calls = std::mem::take(&mut *self.world.host.rides_over.lock().unwrap());
            let due = self.client.deadline().is_some_and(|(at, _)| at <= now);
            self.wakes[0] += u32::from(due);
            self.wakes[1] += calls.len() as u32;
            assert!(calls.iter().all(|slot| *slot == host_slot(0)), "{calls:?}");
            if due || !calls.is_empty() {
                let reading = sent(&self.world.host, host_slot(0));
                self.handle(ClientInput::Reading(reading));
                self.client.tick(monotonic());
                self.drain();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn handle(&mut self, input: ClientInput) {
        self.client.handle(monotonic(), input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.client.poll() {
            if let ClientOutput::SendRequest(_) = output {
                self.world.order(0, 0);
            }
        }
    }
}

#[test]
fn a_host_sleeps_while_requests_ride_and_is_called_when_they_cease() {
    if !may_run() {
        return;
    }
    let t_ka = Span::from_millis(300);
    let world = riding(Family::V4, Wire::Whole, t_ka);
    let config = Config {
        k: 4,
        t_ka,
        rides: true,
        measured_by: MeasuredBy::PacketPath,
        ..Config::default()
    };
    let client = Client::new(config, monotonic(), 1);
    let mut driver = Driver { world: &world, client, wakes: [0; 2] };
    let (host, anchor) = flow(&world);
    world.host.datapath.lock().unwrap().set_quiet(host_slot(0), true);
    let to = anchor.local_addr().unwrap();
    // If the machine stalls for a period, rides stop: try again.
    let slept = (0..20).any(|_| {
        let stop = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let sender = scope.spawn(|| fifty_a_second(&host, to, &stop));
            driver.run_until(monotonic() + t_ka * 4);
            driver.wakes = [0; 2];
            driver.run_until(monotonic() + Span::from_secs(2));
            stop.store(true, Ordering::Relaxed);
            sender.join().unwrap()
        });
        println!("{:?} wake-ups in 2 s, packets at most {longest} apart", driver.wakes);
        let looks = Span::from_secs(2).0 / LOOK.0 + 1;
        driver.wakes[1] == 0 && u64::from(driver.wakes[0]) <= looks
    });
    assert!(slept, "{:?} wake-ups in 2 s, of which the second number are calls", driver.wakes);
    assert_eq!(driver.client.state(), State::Up);
    let rode = sent(&world.host, host_slot(0)).rode;
    assert!(rode >= 6, "{rode}");

    // Rides have ended: one notification, and then a request on its own in each period.
    let (alone, ended) = (sent(&world.host, host_slot(0)), monotonic());
    driver.wakes = [0; 2];
    while driver.wakes[1] == 0 && monotonic() < ended + Span::from_secs(10) {
        driver.run_until(monotonic() + Span::from_millis(20));
    }
    driver.run_until(monotonic() + t_ka * 3);
    assert_eq!(driver.wakes[1], 1);
    let after = sent(&world.host, host_slot(0));
    assert_eq!((after.rode, after.watched), (alone.rode, None));
    assert!(after.sent > alone.sent && driver.wakes[0] > 0, "{after:?}");
    assert_eq!(driver.client.state(), State::Up);
}

/// Sends until `stop` is set; returns the largest interval between two packets.
fn fifty_a_second(from: &UdpSocket, to: std::net::SocketAddr, stop: &AtomicBool) -> Span {
    let (mut last, mut longest) = (monotonic(), Span::ZERO);
    while !stop.load(Ordering::Relaxed) {
        from.send_to(&[5; 100], to).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        longest = longest.max(monotonic().since(last));
        last = monotonic();
    }
    longest
}

#[test]
fn a_host_is_called_when_its_time_out_comes_while_requests_ride() {
    if !may_run() {
        return;
    }
    let t_ka = Span::from_millis(200);
    let world = riding(Family::V6, Wire::Whole, t_ka);
    let (host, anchor) = flow(&world);
    let to = anchor.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| fifty_a_second(&host, to, &stop));
        eventually("a ride", || sent(&world.host, host_slot(0)).rode >= 2);
        // Answers have ended.
        world.anchor.datapath.lock().unwrap().remove_path(anchor_slot(0));
        world.host.rides_over.lock().unwrap().clear();
        eventually("a call", || !world.host.rides_over.lock().unwrap().is_empty());
        stop.store(true, Ordering::Relaxed);
    });
    let reading = sent(&world.host, host_slot(0));
    let watched = reading.watched.expect("a ride was watched last");
    assert!(watched <= reading.last_sent.unwrap() + t_ka * 2, "{reading:?}");
}
