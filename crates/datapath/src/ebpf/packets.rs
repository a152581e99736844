//! Tests of the programs under `BPF_PROG_TEST_RUN`: packet in; verdict, bytes and map effects out, judged by the wire
//! crate. Encapsulation of data is not tested here, because the kernel gives test packets a frame header, which the
//! TUN device's packets lack; `tests/ebpf` tests it on a real link.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use segue_wire::flow::Inner;
use segue_wire::header::flags::RESPONSE_UNSOLICITED;
use segue_wire::{Header, PacketType, Probe, ProbeKey, Size};

use super::convert::{kernel_order, kernel_scale};
use super::load::may_load;
use super::tables::Tables;
use super::*;
use crate::ProbeKind;
use crate::maps::Shared;
use crate::maps::unmapped;

pub(super) const PORT: u16 = 5005;
pub(super) const KEY: ProbeKey = ProbeKey([42; 16]);
pub(super) const SLOT: u32 = 5;
pub(super) const COOKIE: u64 = 0x0102_0304_0506_0708;
pub(super) const PEER_INDEX: u32 = 77;
pub(super) const PEER_COOKIE: u64 = 0xa1a2_a3a4_a5a6_a7a8;
const OWNER: u32 = 7;
/// The loopback device of every namespace, on which test packets arrive.
pub(super) const ARRIVED_ON: u32 = 1;
pub(super) const UNSPEC: i32 = -1;
pub(super) const SHOT: i32 = 2;
pub(super) const REDIRECT: i32 = 7;
pub(super) const XDP_PASS: i32 = 2;
pub(super) const ETH: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outer {
    V4,
    V6,
}

impl Outer {
    pub(super) const BOTH: [Outer; 2] = [Outer::V4, Outer::V6];

    pub(super) fn address(self, end: u8) -> IpAddr {
        match self {
            Outer::V4 => [10, 9, 0, end].into(),
            Outer::V6 => [0xfd09, 0, 0, 0, 0, 0, 0, u16::from(end)].into(),
        }
    }

    fn ethertype(self) -> [u8; 2] {
        match self {
            Outer::V4 => [0x08, 0x00],
            Outer::V6 => [0x86, 0xdd],
        }
    }

    pub(super) fn headers(self) -> usize {
        match self {
            Outer::V4 => ETH + 20 + 8,
            Outer::V6 => ETH + 40 + 8,
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// An arriving frame with a UDP datagram, without a UDP checksum.
pub(super) fn frame(outer: Outer, from: IpAddr, to: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![0; 12];
    let udp_len = (payload.len() + 8) as u16;
    match outer {
        Outer::V4 => {
            f.extend([0x08, 0x00, 0x45, 0]);
            f.extend((udp_len + 20).to_be_bytes());
            f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        }
        Outer::V6 => {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend(udp_len.to_be_bytes());
            f.extend([17, 64]);
        }
    }
    f.extend(octets(from));
    f.extend(octets(to));
    f.extend(6000u16.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend(udp_len.to_be_bytes());
    f.extend([0, 0]);
    f.extend(payload);
    f
}

pub(super) fn to_us(outer: Outer, payload: &[u8]) -> Vec<u8> {
    frame(outer, outer.address(1), outer.address(2), PORT, payload)
}

pub(super) fn header(packet_type: PacketType) -> Header {
    let k = if packet_type == PacketType::Data { 0 } else { 3 };
    Header::new(packet_type, k, SLOT, COOKIE)
}

pub(super) fn data(inner: &[u8]) -> Vec<u8> {
    [&header(PacketType::Data).emit()[..], inner].concat()
}

/// 10.8.0.1:4000 > 10.8.0.2:80 with `options` in its header, or a later fragment.
pub(super) fn inner_v4(protocol: u8, options: &[u8], fragment: u16) -> Vec<u8> {
    let mut p = vec![0x45 + (options.len() / 4) as u8, 0xb8];
    p.extend((20 + options.len() as u16 + 24).to_be_bytes());
    p.extend([0, 1]);
    p.extend(fragment.to_be_bytes());
    p.extend([64, protocol, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2]);
    p.extend(options);
    p.extend([0x0f, 0xa0, 0, 80]);
    p.extend([0x50; 20]);
    p
}

/// fd08::1 > fd08::2 with extension headers, each given as its type and bytes.
pub(super) fn inner_v6(extensions: &[(u8, Vec<u8>)], last: u8) -> Vec<u8> {
    let len: usize = extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + 24;
    let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([last]).collect();
    let mut p = vec![0x6b, 0x81, 0x23, 0x45];
    p.extend((len as u16).to_be_bytes());
    p.extend([kinds[0], 64]);
    for end in [1, 2] {
        p.extend(octets([0xfd08, 0, 0, 0, 0, 0, 0, end].into()));
    }
    for ((_, bytes), next) in extensions.iter().zip(&kinds[1..]) {
        p.push(*next);
        p.extend(&bytes[1..]);
    }
    p.extend([0x0f, 0xa0, 0, 80]);
    p.extend([0x50; 20]);
    p
}

fn inners() -> Vec<Vec<u8>> {
    let options = [1; 8];
    let short = |kind| (kind, vec![0; 8]);
    let long = |kind| {
        let mut bytes = vec![0; 24];
        bytes[1] = 2;
        (kind, bytes)
    };
    vec![
        inner_v4(6, &[], 0x4000),
        inner_v4(17, &[], 0),
        inner_v4(17, &options, 0),
        inner_v4(17, &[], 0x2000),
        inner_v4(17, &options, 185),
        inner_v4(132, &[], 0),
        inner_v4(50, &[], 0),
        inner_v6(&[], 6),
        inner_v6(&[], 58),
        inner_v6(&[short(0), long(43), short(60)], 17),
        inner_v6(&[short(60), short(60), short(60), long(60)], 6),
        inner_v6(&[short(60), short(60), short(60), short(60), short(60)], 6),
        inner_v6(&[short(0), short(44)], 17),
    ]
}

/// The loaded programs of one end, with one path and no device.
pub(super) struct Lab {
    pub(super) programs: Programs,
    pub(super) tables: Tables,
}

impl Lab {
    /// `None` without the privilege to load programs.
    pub(super) fn new(role: Role) -> Option<Lab> {
        if !may_load() {
            return None;
        }
        let setup = Setup {
            tun_name: "segue0".into(),
            tun_mtu: 1456,
            port: PORT,
            role,
            max_paths: 16,
            max_flows: 1024,
            mark: 0x5e6,
        };
        let (programs, tables, _) = load(&setup, ARRIVED_ON, None).unwrap();
        let lab = Lab { programs, tables };
        tables_for(&lab.tables, role);
        Some(lab)
    }

    pub(super) fn ingress(&self, frame: &[u8]) -> (i32, Vec<u8>) {
        run(self.programs.ingress.as_fd(), frame, None)
    }

    /// Makes the source of [`to_us`] the path's endpoint, as if it had proved that it receives there.
    pub(super) fn know(&self, outer: Outer) {
        let number = self.tables.add_local(outer.address(2)).unwrap();
        let remote = SocketAddr::new(outer.address(1), 6000);
        let endpoint = kernel_endpoint(remote, ARRIVED_ON, number);
        self.tables.set_state(SLOT, &path_state { endpoint, ..path_state::default() }).unwrap();
    }

    pub(super) fn state(&self) -> path_state {
        self.tables.state(SLOT)
    }
}

pub(super) fn path(role: Role) -> PathSetup {
    PathSetup {
        tx_index: PEER_INDEX,
        tx_cookie: PEER_COOKIE,
        rx_cookie: COOKIE,
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: if role == Role::Anchor { OWNER } else { 0 },
        probing: segue_keepalive::Probing::default(),
    }
}

fn tables_for(tables: &Tables, role: Role) {
    let config = path(role);
    tables.set_scale(0, &kernel_scale(&config.probing.taus)).unwrap();
    tables.set_path(SLOT, &path_config { heard: 0x8001, ..kernel_path(&config, 0) }).unwrap();
    for address in ["10.8.0.1", "fd08::1"] {
        tables.set_inner(address.parse().unwrap(), config.owner).unwrap();
    }
    assert!(tables.set_device(ARRIVED_ON, [0; 6]).unwrap());
    tables.set_locals(&Outer::BOTH.map(|outer| outer.address(2)).into()).unwrap();
    tables.set_alive(monotonic()).unwrap();
}

/// Runs a program once on a frame: its verdict, and the resulting frame.
pub(super) fn run(program: BorrowedFd<'_>, frame: &[u8], mark: Option<u32>) -> (i32, Vec<u8>) {
    let mut out = vec![0u8; 4096];
    // The start of struct __sk_buff: len, pkt_type, mark. The rest is zero.
    let mut context = [0, 0, mark.unwrap_or(0)];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    if mark.is_some() {
        options.ctx_in = (&raw mut context).cast();
        options.ctx_size_in = size_of_val(&context) as u32;
    }
    // SAFETY: all buffers that the options name outlive the call, with the lengths given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(result, 0, "test run of {} bytes", frame.len());
    out.truncate(options.data_size_out as usize);
    (options.retval as i32, out)
}

#[test]
fn data_is_stripped_counted_and_learned_from_in_all_four_combinations() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let (mut packets, mut bytes) = (0, 0);
    for outer in Outer::BOTH {
        for inner in [inner_v4(17, &[], 0), inner_v6(&[], 17)] {
            let (verdict, out) = lab.ingress(&to_us(outer, &data(&inner)));
            assert_eq!(verdict, REDIRECT);
            assert!(out[ETH..] == inner, "{outer:?}: {out:02x?}");
            packets += 1;
            bytes += inner.len() as u64;
            assert_eq!((lab.state().rx_packets, lab.state().rx_bytes), (packets, bytes));
            let key = Inner::parse(&inner).unwrap().key.reversed();
            let flows = lab.tables.flows();
            assert_eq!(flows.iter().filter(|f| f.key == key && f.slot == SLOT).count(), 1);
        }
    }
    assert_eq!(lab.tables.flows().len(), 2);
    assert!(lab.tables.drops().is_empty());
}

#[test]
fn a_ride_is_a_request_and_the_inner_packet_bit_for_bit() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let probing = segue_keepalive::Probing { rides: true, ..Default::default() };
    let rides = kernel_path(&PathSetup { probing, ..path(Role::Anchor) }, 0);
    lab.tables.set_path(SLOT, &rides).unwrap();
    let mut seq = 0;
    for outer in Outer::BOTH {
        for inner in inners() {
            seq += 1;
            let probe = Probe { seq, t_sc: 99, sc: seq, t_ka_ms: 200, ..Probe::default() };
            let ride = [&probe.seal(&header(PacketType::Ride), &KEY)[..], &inner].concat();
            let (verdict, out) = lab.ingress(&to_us(outer, &ride));
            assert_eq!(verdict, REDIRECT);
            assert!(out[ETH..] == inner, "{outer:?}: {out:02x?}");
            let state = lab.state();
            assert_eq!((state.rx_packets, state.received, state.newest as u32), (seq, seq, seq));
            assert_eq!((state.up.sent, state.up.received), (seq, seq));
            let key = Inner::parse(&inner).unwrap().key.reversed();
            assert!(lab.tables.flows().iter().any(|f| f.key == key && f.slot == SLOT));
        }
    }
    assert!(lab.tables.drops().is_empty());
}

#[test]
fn what_is_not_for_this_machine_passes_untouched() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    for outer in Outer::BOTH {
        let payload = data(&inner_v4(17, &[], 0));
        let good = to_us(outer, &payload);
        let mut for_another_machine = good.clone();
        for_another_machine[0] = 2; // hardware address
        let mut not_udp = good.clone();
        not_udp[if outer == Outer::V4 { ETH + 9 } else { ETH + 6 }] = 6;
        let mut foreign = vec![
            for_another_machine,
            not_udp,
            frame(outer, outer.address(1), outer.address(3), PORT, &payload),
            frame(outer, outer.address(1), outer.address(2), PORT + 1, &payload),
        ];
        if outer == Outer::V4 {
            let mut fragment = good.clone();
            fragment[ETH + 6] = 0x20;
            foreign.push(fragment);
        }
        for packet in &foreign[..] {
            assert_eq!(lab.ingress(packet), (UNSPEC, packet.clone()));
        }
        // XDP ignores hardware addresses: a packet for another machine also has another IP address.
        for packet in &foreign[1..] {
            assert_eq!(run(lab.programs.xdp.as_fd(), packet, None), (XDP_PASS, packet.clone()));
        }
        lab.tables.set_alive(segue_clock::Time(1)).unwrap();
        assert_eq!(lab.ingress(&good), (UNSPEC, good.clone()), "the daemon is gone");
        assert_eq!(run(lab.programs.xdp.as_fd(), &good, None), (XDP_PASS, good));
        lab.tables.set_alive(monotonic()).unwrap();
    }
    assert_eq!((lab.state().rx_packets, lab.tables.drops().len()), (0, 0));
}

#[test]
fn refused_packets_are_shot_and_counted_by_their_reason() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let good = header(PacketType::Data);
    let inner = inner_v4(17, &[], 0);
    let mut foreign = inner.clone();
    foreign[15] = 9; // source 10.8.0.9
    let with = |header: Header, rest: &[u8]| [&header.emit()[..], rest].concat();
    for (payload, reason) in [
        (vec![], DropReason::Truncated),
        (with(Header { index: 6, ..good }, &inner), DropReason::UnknownIndex),
        (with(Header { index: 16, ..good }, &inner), DropReason::UnknownIndex),
        (with(Header { cookie: 1, ..good }, &inner), DropReason::Cookie),
        (with(good, &[0x55; 40]), DropReason::InnerPacket),
        (with(good, &inner[..inner.len() - 1]), DropReason::InnerPacket),
        (with(good, &foreign), DropReason::InnerSource),
        (with(header(PacketType::Response), &[0; 40]), DropReason::Type),
    ] {
        for outer in Outer::BOTH {
            let before = lab.tables.drops();
            assert_eq!(lab.ingress(&to_us(outer, &payload)).0, SHOT, "{reason:?}");
            let mut expected = before;
            *expected.entry(reason).or_default() += 1;
            assert_eq!(lab.tables.drops(), expected);
        }
    }
    assert!(lab.tables.flows().is_empty());
}

#[test]
fn a_request_becomes_its_response_in_place_and_teaches_the_endpoint() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    for (outer, seq) in [(Outer::V4, 1), (Outer::V6, 3)] {
        let request = Probe { seq, t_sc: 99, sc: 4, t_ka_ms: 200, ..Probe::default() };
        let packet = to_us(outer, &request.seal(&header(PacketType::Request), &KEY));
        let (verdict, out) = lab.ingress(&packet);
        assert_eq!((verdict, out.len()), (REDIRECT, packet.len()));
        let at = outer.headers();
        let to = frame(outer, outer.address(2), outer.address(1), PORT, &out[at..]);
        assert!(out[at - 8..at - 4] == [PORT.to_be_bytes(), 6000u16.to_be_bytes()].concat()[..]);
        let addresses = if outer == Outer::V4 { ETH + 12..ETH + 20 } else { ETH + 8..ETH + 40 };
        assert_eq!(out[addresses.clone()], to[addresses]);
        if outer == Outer::V4 {
            let words =
                out[ETH..ETH + 20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
            assert_eq!(words.sum::<u32>() % 0xffff, 0, "the header's checksum");
        }
        let answer = Probe::open(&out[at..], &KEY).unwrap();
        let expected =
            Header { index: PEER_INDEX, cookie: PEER_COOKIE, ..header(PacketType::Response) };
        assert_eq!(Header::parse(&out[at..]).unwrap(), expected);
        assert_eq!(
            Probe { t_ss: 0, dt: 0, ..answer },
            Probe { ss: seq, r: seq, heard: 0x8001, ..request }
        );
        let state = lab.state();
        assert_eq!((state.rx_packets, state.tx_packets), (seq, seq));
        assert_ne!(unmapped(state.endpoint.remote), outer.address(1), "it has echoed nothing");
        let echo = Probe { seq: seq + 1, t_ss: answer.t_ss, ..request };
        let echo = to_us(outer, &echo.seal(&header(PacketType::Request), &KEY));
        assert_eq!(lab.ingress(&echo).0, REDIRECT);
        let learned = lab.state().endpoint;
        assert_eq!(unmapped(learned.remote), outer.address(1));
        assert_eq!(lab.tables.local(learned.local), outer.address(2));
        assert_eq!((learned.remote_port, learned.ifindex), (6000u16.to_be(), ARRIVED_ON));
        assert_eq!(lab.ingress(&packet).0, SHOT, "a replay");
    }
    assert_eq!(lab.tables.drops(), [(DropReason::Replay, 2)].into());
}

/// Sets the path's endpoints, and returns the packet that orders a probe on it.
pub(super) fn ordered(
    lab: &Lab,
    role: Role,
    kind: ProbeKind,
    outer: Outer,
    probe: Probe,
) -> Vec<u8> {
    let config = PathSetup {
        tx_index: PEER_INDEX,
        tx_cookie: PEER_COOKIE,
        rx_cookie: COOKIE,
        key: KEY,
        local: Some(SocketAddr::new(outer.address(2), PORT)),
        remote: Some(SocketAddr::new(outer.address(1), 6000)),
        ifindex: ARRIVED_ON,
        gateway: None,
        owner: OWNER,
        probing: segue_keepalive::Probing::default(),
    };
    lab.tables.set_path(SLOT, &path_config { heard: 9, ..kernel_path(&config, 0) }).unwrap();
    let number = lab.tables.add_local(outer.address(2)).unwrap();
    let (_, remote) = both_ends(&config).unwrap();
    let endpoint = kernel_endpoint(remote, ARRIVED_ON, number);
    match role {
        Role::Host => lab.tables.set_route(SLOT, &kernel_route(endpoint, None)).unwrap(),
        Role::Anchor => {
            let state = path_state { endpoint, ..lab.state() };
            lab.tables.set_state(SLOT, &state).unwrap();
        }
    }
    let (held_since, report, question, age) = (0, false, false, 0);
    let order = ProbeOrder { slot: SLOT, kind, k: 3, probe, held_since, report, question, age };
    let mut packet = kernel_order(&order).bytes().to_vec();
    // A test run reads the EtherType here; in an order these bytes have no meaning.
    packet[12..14].copy_from_slice(&outer.ethertype());
    packet
}

#[test]
fn ordered_probes_become_whole_frames_with_a_checksum() {
    for (role, kind) in [(Role::Host, ProbeKind::Request), (Role::Anchor, ProbeKind::Unsolicited)] {
        let Some(lab) = Lab::new(role) else { return };
        for (sent, outer) in (1..).zip(Outer::BOTH) {
            let probe = Probe { seq: 50 + sent, t_ka_ms: 200, heard: 3, ..Probe::default() };
            let packet = ordered(&lab, role, kind, outer, probe);
            let (verdict, out) = run(lab.programs.egress.as_fd(), &packet, Some(MARK_PROBE));
            assert_eq!((verdict, &out[12..14]), (REDIRECT, &outer.ethertype()[..]));
            let at = outer.headers();
            let udp_len = (Probe::PACKET_LEN + 8) as u32;
            let addresses = if outer == Outer::V4 { ETH + 12 } else { ETH + 8 };
            let words = out[addresses..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
            assert_eq!((words.sum::<u32>() + 17 + udp_len) % 0xffff, 0, "the UDP checksum");
            assert_eq!(lab.state().tx_packets, sent);
            let expected = match kind {
                // The programs number requests.
                ProbeKind::Request => Probe { seq: sent, sc: sent, ..probe },
                _ => Probe { ss: sent, heard: 9, ..probe },
            };
            let opened = Probe::open(&out[at..], &KEY).unwrap();
            assert_eq!(Probe { t_sc: 0, t_ss: 0, dt: 0, ..opened }, expected);
            let head = Header::parse(&out[at..]).unwrap();
            assert_eq!((head.index, head.cookie, head.k), (PEER_INDEX, PEER_COOKIE, 3));
            let flags = if kind == ProbeKind::Request { 0 } else { RESPONSE_UNSOLICITED };
            assert_eq!(head.flags, flags);
        }
    }
}

#[test]
fn xdp_strips_valid_data_only_and_says_which_path_it_was() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let program = lab.programs.xdp.as_fd();
    for outer in Outer::BOTH {
        for inner in [inner_v4(6, &[], 0), inner_v6(&[], 6)] {
            let (verdict, out) = run(program, &to_us(outer, &data(&inner)), None);
            assert_eq!(verdict, XDP_PASS);
            let (meta, stripped) = out.split_at(16);
            assert_eq!(meta[4..8], SLOT.to_ne_bytes());
            assert_eq!(meta[8..12], COOKIE.to_be_bytes()[4..], "and its generation");
            assert!(stripped[ETH..] == inner);
        }
        let good = to_us(outer, &data(&inner_v4(6, &[], 0)));
        let mut congested = good;
        congested[ETH + 1] |= if outer == Outer::V4 { 3 } else { 0x30 };
        let wrong = Header { cookie: 1, ..header(PacketType::Data) };
        let wrong = to_us(outer, &[&wrong.emit()[..], &inner_v4(6, &[], 0)].concat());
        for packet in [congested, wrong] {
            assert_eq!(run(program, &packet, None), (XDP_PASS, packet));
        }
    }
    assert_eq!(lab.state().rx_packets, 0, "counting is the TC program's");
}

/// The wire crate's verdict: the flow learned, or the reason for refusal.
fn judge(payload: &[u8]) -> Result<FlowKey, DropReason> {
    let header = Header::parse(payload)?;
    if header.index != SLOT {
        return Err(DropReason::UnknownIndex);
    }
    if header.cookie != COOKIE {
        return Err(DropReason::Cookie);
    }
    match header.packet_type {
        PacketType::Data => {}
        PacketType::Response | PacketType::Ride => return Err(DropReason::Type),
        PacketType::Size => {
            return Err(Size::open(payload, &KEY, true).expect_err("no test was mutated").into());
        }
        PacketType::Request => {
            return Err(Probe::open(payload, &KEY).expect_err("no request was mutated").into());
        }
    }
    let inner = Inner::parse(&payload[Header::LEN..])?;
    let ours = ["10.8.0.1", "fd08::1"].map(|a| a.parse::<IpAddr>().unwrap());
    if !ours.contains(&inner.key.src) {
        return Err(DropReason::InnerSource);
    }
    Ok(inner.key.reversed())
}

#[test]
fn mutated_packets_meet_the_same_verdict_and_flow_as_in_the_wire_crate() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let mut random = 0x5e6e_5e6e_u64;
    let mut next = |bound: usize| {
        // The 64-bit linear congruential generator of Numerical Recipes; uses the high bits.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % bound
    };
    let bases: Vec<Vec<u8>> = inners().iter().map(|inner| data(inner)).collect();
    let (mut learned, mut refused) = (0, BTreeMap::new());
    for round in 0..6000 {
        let mut payload = bases[round % bases.len()].clone();
        if round >= bases.len() {
            // Mostly in the inner headers; the tunnel header is short and soon explored.
            let from = if next(8) == 0 { 0 } else { Header::LEN };
            for _ in 0..1 + next(3) {
                let at = from + next(payload.len() - from);
                payload[at] = match next(3) {
                    0 => payload[at] ^ 1 << next(8),
                    1 => next(256) as u8,
                    _ => [0, 6, 17, 43, 44, 60, 132, 136][next(8)],
                };
            }
            if next(4) == 0 {
                payload.truncate(next(payload.len() + 1));
            }
        }
        let outer = Outer::BOTH[next(2)];
        let before: u64 = lab.tables.drops().values().sum();
        let (verdict, _) = lab.ingress(&to_us(outer, &payload));
        let flows = lab.tables.flows();
        match judge(&payload) {
            Ok(key) => {
                assert_eq!(verdict, REDIRECT, "{payload:02x?}");
                assert_eq!(
                    flows.iter().map(|f| f.key).collect::<Vec<_>>(),
                    [key],
                    "{payload:02x?}"
                );
                lab.tables.unbind(&key);
                learned += 1;
            }
            Err(reason) => {
                assert_eq!(verdict, SHOT, "{reason:?} {payload:02x?}");
                assert!(flows.is_empty());
                *refused.entry(reason).or_insert(0u64) += 1;
                let drops = lab.tables.drops();
                assert_eq!(drops.get(&reason), refused.get(&reason), "{payload:02x?}");
                assert_eq!(drops.values().sum::<u64>(), before + 1);
            }
        }
        if round % 500 == 0 {
            lab.tables.set_alive(monotonic()).unwrap();
        }
    }
    println!("{learned} learned, refused: {refused:?}");
    assert!(learned > 1000 && refused.len() >= 7, "the mutations reach every branch");
}
