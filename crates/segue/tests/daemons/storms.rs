//! Packet storms from one sender in a Proxy Mobile IPv6 domain: another host attaches meanwhile, and the daemons keep
//! answering.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use segue_clock::Rng;
use segue_linux::packet::PacketSocket;
use segue_linux::raw::RawSocket;
use segue_wire::mobility::option::Handoff;
use segue_wire::nd::{Message, NdOption};

use crate::pmip::{Domain, example, update};
use crate::world::{Daemon, drops};

const ANCHOR: &str = "fd00:1::1";
/// The host's interface that comes up in each storm, its link-layer address, its cell and its gateway.
const VICTIMS: [(&str, &str, &str, &str); 3] = [
    ("wlan", "02:5e:67:01:00:00", "wlan1", "fd00:2::2"),
    ("wwan", "02:5e:67:01:00:01", "wlan2", "fd00:3::2"),
    ("wlan", "02:5e:67:01:00:00", "wlan2", "fd00:3::2"),
];

/// The duration of a storm, its lead before the host attaches, and the time limits for attaching and for a status.
#[derive(Clone, Copy)]
struct Bar {
    lasts: Duration,
    before: Duration,
    attaches: Duration,
    answers: Duration,
}

/// Calls `send` with increasing numbers at this rate until `ended`; returns the number of calls.
fn flood(per_second: u64, ended: &AtomicBool, mut send: impl FnMut(u64)) -> u64 {
    let (begun, mut sent) = (Instant::now(), 0);
    while !ended.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_millis() as u64 * per_second / 1_000;
        // A delayed sender does not catch up in one burst.
        sent = sent.max(due.saturating_sub(per_second / 20));
        (sent..due).for_each(&mut send);
        sent = sent.max(due);
        std::thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// A router solicitation from an unknown station. All use one source address: many would fill the kernel's neighbour
/// table, which all namespaces of this machine share, and the host could not send.
fn solicitation(rng: &mut Rng) -> Vec<u8> {
    let mut mac = [0; 6];
    mac.copy_from_slice(&rng.next_u64().to_be_bytes()[..6]);
    mac[0] = mac[0] & 0xfc | 2;
    let from: Ipv6Addr = "fe80::5e:bad".parse().unwrap();
    let to: Ipv6Addr = "ff02::2".parse().unwrap();
    let options = vec![NdOption::SourceLinkLayerAddress { link_layer_address: mac.to_vec() }];
    let message = Message::RouterSolicitation { options }.emit_with_checksum(from, to);
    let length = (message.len() as u16).to_be_bytes();
    let parts = [
        &[0x33, 0x33, 0, 0, 0, 2][..],
        &mac,
        &[0x86, 0xdd, 0x60, 0, 0, 0],
        &length,
        &[58, 255],
        &from.octets(),
        &to.octets(),
        &message,
    ];
    parts.concat()
}

struct Stage {
    domain: Domain,
    bar: Bar,
}

impl Stage {
    /// Starts an anchor and two gateways that serve any host.
    fn new(bar: Bar) -> Option<Stage> {
        let mut domain = Domain::new("ebpf", &[])?;
        for access in ["wlan1", "wlan2"] {
            let content = std::fs::read_to_string(example(&format!("{access}.toml"))).unwrap();
            let unnamed = content.split("\n[[node]]").next().unwrap();
            let gateway = domain.start_with("mag", access, unnamed);
            domain.mags.insert(access, gateway);
        }
        Some(Stage { domain, bar })
    }

    /// Sets an interface of the host up or down.
    fn set(&self, interface: &str, state: &str) {
        let mut ip = self.domain.node("host").command("ip");
        assert!(ip.args(["link", "set", interface, state]).status().unwrap().success());
    }

    /// Attaches a host during the storm, and polls the status of all daemons.
    fn during(&self, kind: &str, victim: usize, storm: impl FnOnce(&AtomicBool) -> u64 + Send) {
        let (interface, llid, cell, gateway) = VICTIMS[victim];
        // The host's interface is in the cell before the storm, but down.
        self.set(interface, "down");
        let radio = format!("host:{interface}");
        let _ = self.domain.lab.detach(&radio, None);
        self.domain.attach(&radio, cell);
        let ended = AtomicBool::new(false);
        let begun = Instant::now();
        let daemons: Vec<&Daemon> =
            [self.domain.lma()].into_iter().chain(self.domain.mags.values()).collect();
        let (sent, attached, slowest) = std::thread::scope(|scope| {
            let storm = scope.spawn(|| storm(&ended));
            std::thread::sleep(self.bar.before);
            self.set(interface, "up");
            let (start, mut attached, mut slowest) = (Instant::now(), None, Duration::ZERO);
            while begun.elapsed() < self.bar.lasts && (attached.is_none() || self.is_long()) {
                for daemon in &daemons {
                    let asked = Instant::now();
                    let status = daemon.status();
                    slowest = slowest.max(asked.elapsed());
                    // The status of the anchor lists only its oldest bindings, so ask the gateways.
                    let hosts = status["hosts"].as_array().into_iter().flatten();
                    let mut at =
                        hosts.filter(|at| at["llid"] == llid && at["proxy_coa"] == gateway);
                    if at.any(|at| at["state"] == "active") {
                        attached.get_or_insert(start.elapsed());
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            ended.store(true, Ordering::Relaxed);
            (storm.join().unwrap(), attached, slowest)
        });
        let rate = sent as f64 / begun.elapsed().as_secs_f64();
        println!("{kind}, {rate:.0} a second: attached in {attached:?}, a status in {slowest:?}");
        for daemon in &daemons {
            let status = daemon.status();
            println!(
                "{}: refused {}, dropped {}",
                status["role"], status["refused"], status["drops"]
            );
        }
        let attached = attached.unwrap_or_else(|| panic!("{kind}: not attached"));
        assert!(attached <= self.bar.attaches, "{kind}: attached in {attached:?}");
        assert!(slowest <= self.bar.answers, "{kind}: a status took {slowest:?}");
    }

    fn is_long(&self) -> bool {
        self.bar.lasts > Duration::from_secs(10)
    }
}

/// Router solicitations with random link-layer addresses on the host's access.
fn solicitations(stage: &Stage) {
    stage.domain.attach("other:wlan", "wlan1");
    let socket = stage.domain.node("other").run(|| PacketSocket::open("wlan")).unwrap().unwrap();
    let mut rng = Rng::new(1);
    stage.during("solicitations", 0, |ended| {
        flood(3_000, ended, |_| drop(socket.send(&solicitation(&mut rng))))
    });
    let status = stage.domain.mags["wlan1"].status();
    let served = status["host_count"].as_u64().unwrap();
    let paced = status["refused"]["paced"].as_u64().unwrap_or(0);
    assert!(paced > 1_000 && served < paced / 4, "{served} served, {paced} paced");
}

/// Registrations with the source address of the other gateway.
fn registrations(stage: &Stage) {
    let left = stage.domain.node("left");
    let socket = left.run(RawSocket::mobility).unwrap().unwrap();
    let (from, to) = ("fd00:2::3".parse().unwrap(), ANCHOR.parse().unwrap());
    stage.during("registrations", 1, |ended| {
        flood(3_000, ended, |n| {
            let _ = socket.send(&update(n as u32, 1, Handoff::NEW_INTERFACE, from, to));
        })
    });
}

/// Messages from a node that is not a gateway.
fn strangers(stage: &Stage) {
    let core = stage.domain.node("core");
    let socket = core.run(RawSocket::mobility).unwrap().unwrap();
    let (from, to): (Ipv6Addr, _) = ("fd00:1::2".parse().unwrap(), ANCHOR.parse().unwrap());
    let message = update(1, 1, Handoff::NEW_INTERFACE, from, to);
    assert_eq!(message.from.0, IpAddr::from(from));
    stage.during("strangers", 2, |ended| flood(20_000, ended, |_| drop(socket.send(&message))));
    let status = stage.domain.lma().status();
    let refused = status["refused"].as_object().unwrap();
    println!("refused: {refused:?}, dropped: {}", drops(&status, "strangers_share"));
}

fn all(bar: Bar) {
    let Some(stage) = Stage::new(bar) else { return };
    solicitations(&stage);
    registrations(&stage);
    strangers(&stage);
}

#[test]
fn a_host_attaches_while_others_send_storms() {
    let _turn = crate::alone();
    let lasts = Duration::from_secs(4);
    // Bounds for a busy machine. Without per-sender shares, no host would attach before the storm ends.
    let bar = Bar {
        lasts,
        before: Duration::from_millis(700),
        attaches: lasts,
        answers: Duration::from_secs(2),
    };
    all(bar);
}

#[test]
#[ignore = "a minute, and a quiet machine: make soak"]
fn soak_a_host_attaches_within_a_second_while_others_send_storms() {
    let _turn = crate::alone();
    let second = Duration::from_secs(1);
    let bar = Bar { lasts: 20 * second, before: 5 * second, attaches: second, answers: second };
    all(bar);
}
