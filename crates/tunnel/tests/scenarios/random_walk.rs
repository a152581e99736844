//! Feeds both machines any input in any order, including nonsense. The stage checks every output: only existing paths
//! are named, no flow is bound to a removed path, `heard` words have only bits of existing paths, and no address has
//! two owners.

use std::net::{IpAddr, Ipv4Addr};

use segue_clock::{Rng, Time};
use segue_ip::Interface;
use segue_keepalive::{Arrival, MeasuredBy};
use segue_steering::Class;
use segue_tunnel::{
    AnchorConfig, AnchorInput, ConnId, Ending, HostConfig, HostInput, Pool, ProbeEvent, ProbeKind,
};
use segue_wire::signal::{
    CountedFlow, FlowSeen, FromAnchor, FromHost, PathGrant, PathOffer, Refusal, SIGNAL_VERSION,
    WaysOut,
};
use segue_wire::{FlowKey, Mode, Probe};

use crate::stage::{ANCHOR, Stage, Way, anchor_config, host_config, ms};

const SEEDS: u64 = 400;
const STEPS: usize = 250;
const NAMES: [&str; 3] = ["alice", "bob", "eve"];
const LINKS: [&str; 3] = ["wifi", "lte", "usb"];

fn number(rng: &mut Rng) -> u32 {
    match rng.below(4) {
        0 => rng.below(4) as u32,
        1 => rng.below(20) as u32,
        2 => u32::MAX - rng.below(3) as u32,
        _ => rng.next_u64() as u32,
    }
}

fn pick<'a>(rng: &mut Rng, names: &[&'a str]) -> &'a str {
    names[rng.below(names.len() as u64) as usize]
}

fn address(rng: &mut Rng) -> IpAddr {
    if rng.chance(0.8) {
        Ipv4Addr::new(10, 7, 0, rng.below(6) as u8).into()
    } else {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, rng.below(4) as u16])
    }
}

fn key(rng: &mut Rng) -> FlowKey {
    let (sport, dport) = (rng.below(30) as u16, [22, 5060, 873, 443][rng.below(4) as usize]);
    FlowKey { src: address(rng), dst: address(rng), sport, dport, protocol: 17, label: 0 }
}

fn probe(rng: &mut Rng, now: Time) -> ProbeEvent {
    let mut field = || number(rng);
    let probe = Probe {
        seq: field(),
        t_sc: field(),
        t_ss: field(),
        dt: field(),
        sc: field(),
        ss: field(),
        r: field(),
        heard: field() as u16,
        t_ka_ms: field() as u16,
    };
    let kinds = [ProbeKind::Request, ProbeKind::Response, ProbeKind::Unsolicited];
    let sent_at = rng.chance(0.3).then(|| Time(rng.below(now.0 * 2)));
    ProbeEvent {
        slot: number(rng),
        kind: kinds[rng.below(3) as usize],
        k: rng.next_u64() as u8,
        report: rng.chance(0.2),
        age: rng.below(256) as u8,
        remote: ([192, 0, 2, 1], 5005).into(),
        kernel_stamp: true,
        arrival: Arrival {
            question: rng.chance(0.2),
            sent_at,
            ..Arrival::new(probe, now, number(rng))
        },
    }
}

fn interfaces(rng: &mut Rng) -> Vec<Interface> {
    let mut some = Vec::new();
    for _ in 0..rng.below(22) {
        some.push(Interface {
            name: format!("if{}", rng.below(30)),
            index: 1 + rng.below(30) as u32,
            addresses: (0..rng.below(3)).map(|_| address(rng)).collect(),
            gateways: (0..rng.below(2)).map(|_| address(rng)).collect(),
            mtu_bytes: 1_500,
            ..Interface::default()
        });
    }
    some
}

fn mode(rng: &mut Rng) -> Mode {
    let modes = [Mode::Both, Mode::Client, Mode::Reports, Mode::RoundTripLoss];
    modes[rng.below(4) as usize]
}

fn from_anchor(rng: &mut Rng) -> FromAnchor {
    let path = rng.below(20) as u8;
    match rng.below(11) {
        9 => FromAnchor::FlowCounts {
            round: number(rng),
            counts: vec![FlowSeen::default(); rng.below(3) as usize],
        },
        10 => FromAnchor::Largest { bytes: rng.next_u64() as u16 },
        8 => FromAnchor::TooBig { path, mtu: rng.chance(0.5).then(|| rng.next_u64() as u16) },
        7 => FromAnchor::WaysOut(WaysOut { v4: rng.below(64) as u8, v6: rng.below(256) as u8 }),
        6 => FromAnchor::OneByOne { path },
        4 => FromAnchor::Renew,
        5 => FromAnchor::Renewed { certificate: vec![7] },
        0 => FromAnchor::Registered {
            inner: (0..rng.below(3)).map(|_| address(rng)).collect(),
            anchor: Vec::new(),
            tunnel_port: rng.next_u64() as u16,
        },
        1 => FromAnchor::Refused { reason: Refusal::Protocol },
        2 => FromAnchor::PathRefused { path, reason: Refusal::NoPath },
        _ => FromAnchor::PathReady(PathGrant {
            path,
            index: number(rng),
            cookie: rng.below(3),
            key: [rng.below(3) as u8; 16],
            mode: mode(rng),
            rides: false,
            encapsulation: segue_wire::Encapsulation::Segue,
            checksums: false,
        }),
    }
}

fn counted(rng: &mut Rng) -> CountedFlow {
    let (src, dst) = (address(rng), address(rng));
    CountedFlow { src, dst, sport: 1, dport: 2, protocol: 17, label: 0 }
}

fn from_host(rng: &mut Rng) -> FromHost {
    match rng.below(12) {
        11 => FromHost::CountFlows {
            round: number(rng),
            flows: (0..rng.below(30)).map(|_| counted(rng)).collect(),
        },
        10 => FromHost::OneByOne { path: rng.below(20) as u8 },
        9 => FromHost::Renew { request: vec![7] },
        0..3 => FromHost::Register {
            version: if rng.chance(0.9) { SIGNAL_VERSION } else { rng.next_u64() as u16 },
            epoch: rng.below(4),
        },
        3 => FromHost::RemovePath { path: rng.below(20) as u8 },
        4 => FromHost::Leave,
        5 => FromHost::Keepalive { path: rng.below(4) as u8, on: rng.chance(0.5) },
        _ => FromHost::AddPath(PathOffer {
            path: rng.below(18) as u8,
            name: pick(rng, &["wlan0", "", "\u{1b}[2J", "ß"]).into(),
            index: number(rng),
            cookie: rng.below(3),
            k: rng.below(5) as u8,
            t_ka_ms: number(rng) as u16,
            mode: mode(rng),
            rides: false,
            encapsulation: segue_wire::Encapsulation::Segue,
            n: rng.below(3) as u16,
            taus: [segue_wire::signal::Timescale::symmetric(number(rng)); 2],
            follows_use: false,
            largest: 1_456,
            v6: false,
            checksums: false,
        }),
    }
}

fn disturb_host(stage: &mut Stage, host: usize, rng: &mut Rng) {
    let name = pick(rng, &LINKS);
    let input = match rng.below(11) {
        0 => return stage.tick_host_unread(host),
        9 => HostInput::Keepalive { path: name.into(), on: rng.chance(0.5) },
        1 => return stage.announce_falsely(host, interfaces(rng)),
        2 => return stage.announce(host),
        3 => HostInput::SignalUp { interface: name.into(), anchor: ANCHOR },
        4 => HostInput::SignalDown,
        5 => HostInput::Signal(from_anchor(rng)),
        6 => HostInput::Probe(probe(rng, stage.now())),
        7 => HostInput::Flows {
            seen: (0..9).map(|_| (key(rng), Time(rng.below(1 << 40)))).collect(),
            last: rng.chance(0.5),
        },
        8 if rng.chance(0.02) => HostInput::Stop,
        8 => return stage.miss_at_host(host, key(rng), rng.below(64) as u8),
        _ => HostInput::Handover {
            flow: rng.chance(0.3).then(|| key(rng)),
            class: rng.chance(0.3).then(|| Class::ALL[rng.below(4) as usize]),
            to: rng.chance(0.7).then(|| name.into()),
        },
    };
    stage.tell_host(host, input);
}

fn ending(rng: &mut Rng) -> Ending {
    [Ending::Removed, Ending::Replaced, Ending::Expired][rng.below(3) as usize]
}

fn disturb_anchor(stage: &mut Stage, rng: &mut Rng) {
    let conn = ConnId(rng.below(12));
    let name = pick(rng, &NAMES).to_string();
    let input = match rng.below(8) {
        0 => return stage.tick_anchor_unread(),
        1 => AnchorInput::Connected { conn, host: name },
        2 => AnchorInput::Disconnected { conn },
        3 if rng.chance(0.2) => AnchorInput::End { host: name, why: ending(rng) },
        3 => AnchorInput::Probe(probe(rng, stage.now())),
        4 => return stage.miss_at_anchor(key(rng)),
        _ => AnchorInput::Signal { conn, message: from_host(rng) },
    };
    stage.tell_anchor(input);
}

/// One random walk; returns the reports of all ends, to compare runs.
fn walk(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let measured_by = if rng.chance(0.3) { MeasuredBy::PacketPath } else { MeasuredBy::Machine };
    let pool_v6 = Pool::new("fd00::/64".parse().unwrap());
    let config = AnchorConfig { max_paths: 10, pool_v6, measured_by, ..anchor_config() };
    let mut stage = Stage::with_anchor(seed, config);
    for name in &NAMES[..2] {
        let config = host_config(1 + rng.below(4) as u8, 20 + rng.below(200));
        let host = stage.add_host(name, HostConfig { measured_by, ..config });
        for link in LINKS {
            stage.add_link(host, link, ms(1 + rng.below(100)));
        }
        stage.announce(host);
    }
    for _ in 0..STEPS {
        let host = rng.below(2) as usize;
        match rng.below(4) {
            0 => disturb_host(&mut stage, host, &mut rng),
            1 => disturb_anchor(&mut stage, &mut rng),
            2 => {
                let way = [Way::Up, Way::Down, Way::Both][rng.below(3) as usize];
                stage.set_alive(host, pick(&mut rng, &LINKS), way, rng.chance(0.6));
            }
            _ if rng.chance(0.01) => stage.restart_anchor(),
            _ => stage.run_for(ms(rng.below(400))),
        }
    }
    stage.run_for(ms(5_000));
    let hosts = [0, 1].map(|host| stage.host(host).reports());
    format!("{hosts:?} {:?} {:?}", stage.anchor().reports(), stage.load())
}

#[test]
fn no_input_in_no_order_breaks_an_invariant() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| walk(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        assert_eq!(walk(seed), walk(seed), "seed {seed}");
    }
    assert_ne!(walk(0), walk(1));
}
