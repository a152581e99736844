//! Corrupted, truncated, forged or replayed packets from the access router, with the right
//! addresses, are refused and counted by reason, and change nothing else.

use std::time::{Duration, Instant};

use segue_lab::DemoNet;
use segue_linux::packet::PacketSocket;
use serde_json::Value;

use crate::over_both;
use crate::traffic::{Voice, correspondents};
use crate::world::{Daemon, World, paths_up, registered};

over_both! { among_others:
    damaged_and_repeated_packets_are_refused_counted_and_change_nothing
}

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
/// Bytes of header, probe and authenticator.
const PROBE: usize = 56;
const HEADER: usize = 16;
const TUNNEL_PORT: u16 = 5005;
const SIGNAL_PORT: u16 = 5006;

/// A packet socket on one side of the router.
struct Tap {
    socket: PacketSocket,
}

impl Tap {
    fn open(world: &World, device: &str) -> Tap {
        let socket = world.net.router().run(|| PacketSocket::open(device).unwrap()).unwrap();
        Tap { socket }
    }

    /// The next matching UDP packet over IPv4 on the host's first path, from or to a port.
    fn catch(&mut self, port: u16, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut buffer = vec![0; 9_216];
        let start = Instant::now();
        while start.elapsed() < crate::world::PATIENCE {
            let Some(got) = self.socket.receive(&mut buffer).unwrap() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let frame = &buffer[..got.len];
            let udp = frame.len() > ETHERNET + IP + UDP
                && frame[12..15] == [8, 0, 0x45]
                && frame[ETHERNET + 9] == 17;
            let ends = [12, 16].map(|at| frame.get(ETHERNET + at..ETHERNET + at + 4));
            if !udp || !ends.contains(&Some(&DemoNet::HOST_WIFI.0.octets()[..])) {
                continue;
            }
            let ports = [0, 2].map(|at| {
                u16::from_be_bytes([frame[ETHERNET + IP + at], frame[ETHERNET + IP + at + 1]])
            });
            if ports.contains(&port) && wanted(&frame[ETHERNET + IP + UDP..]) {
                return frame.to_vec();
            }
        }
        panic!("no such packet passes");
    }
}

/// Sends packets to a daemon as if they came from its peer.
struct Forger<'a> {
    out: &'a PacketSocket,
    /// Ethernet header towards the daemon.
    ethernet: [u8; ETHERNET],
    /// Number of packets sent.
    sent: usize,
}

impl Forger<'_> {
    /// Sends the captured `frame` with another UDP payload and no UDP checksum.
    fn send(&mut self, frame: &[u8], payload: &[u8]) {
        let mut packet = self.ethernet.to_vec();
        packet.extend_from_slice(&frame[ETHERNET..ETHERNET + IP + UDP]);
        packet.extend_from_slice(payload);
        let ip = &mut packet[ETHERNET..];
        let total = (IP + UDP + payload.len()) as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[10..12].fill(0);
        let sum: u32 =
            ip[..IP].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let check = !((folded & 0xffff) + (folded >> 16)) as u16;
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        let len = (UDP + payload.len()) as u16;
        ip[IP + 4..IP + 6].copy_from_slice(&len.to_be_bytes());
        ip[IP + 6..IP + 8].fill(0);
        assert!(self.out.send(&packet).unwrap());
        self.sent += 1;
        // Pause, so that neither the emulator's queue nor a socket buffer overflows.
        if self.sent.is_multiple_of(32) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn refused(status: &Value) -> u64 {
    status["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

fn is_probe(payload: &[u8]) -> bool {
    payload.len() == PROBE && matches!(payload[0] & 15, 2 | 3)
}

/// Whether this is a tunnel packet with a datagram of the voice flow.
fn is_voice(payload: &[u8]) -> bool {
    payload.len() == HEADER + IP + UDP + 172 && payload[0] & 15 == 0
}

/// Sends all bad packets to `daemon` and waits until it has counted each.
fn attack(daemon: &Daemon, forger: &mut Forger, probe: &[u8], data: &[u8]) {
    let probe_payload = &probe[ETHERNET + IP + UDP..];
    let data_payload = &data[ETHERNET + IP + UDP..];
    let mut step = |what: &str, frame: &[u8], payloads: Vec<Vec<u8>>, reasons: &[&str]| {
        let before = daemon.status();
        for payload in &payloads {
            forger.send(frame, payload);
        }
        let n = payloads.len() as u64;
        let after = daemon.wait(what, |status| refused(status) >= refused(&before) + n);
        assert_eq!(refused(&after), refused(&before) + n, "{what}: {}", after["drops"]);
        for (reason, count) in after["drops"].as_object().unwrap() {
            let new = count.as_u64() != before["drops"][reason].as_u64();
            assert!(!new || reasons.contains(&reason.as_str()), "{what}: {reason}");
        }
    };
    let cut = |payload: &[u8], from: usize| -> Vec<Vec<u8>> {
        (from..payload.len()).map(|len| payload[..len].to_vec()).collect()
    };
    let flipped = |payload: &[u8], bits: &mut dyn Iterator<Item = usize>| -> Vec<Vec<u8>> {
        bits.map(|bit| {
            let mut bad = payload.to_vec();
            bad[bit / 8] ^= 0x80 >> (bit % 8);
            bad
        })
        .collect()
    };
    step("cut probes", probe, cut(probe_payload, 1), &["truncated"]);
    step("cut data", data, cut(data_payload, 1), &["truncated", "inner_packet"]);
    let every = ["version", "type", "field", "unknown_index", "cookie", "mac"];
    let probes = flipped(probe_payload, &mut (0..PROBE * 8));
    let may = [&every[..], &["inner_packet", "replay", "truncated"]].concat();
    step("probes with one wrong bit", probe, probes, &may);
    // In a data packet, the one-way flag and the age may have any value, and K is ignored.
    let bits = &mut (0..HEADER * 8).filter(|bit| !(15..32).contains(bit));
    let may = [&every[..], &["truncated"]].concat();
    step("data with one wrong bit in the header", data, flipped(data_payload, bits), &may);
    let repeats = vec![probe_payload.to_vec(); 20];
    step("a repeated probe", probe, repeats, &["replay"]);
    let mut state = 0x5e9e_u64;
    let garbage = (0..100)
        .map(|len| {
            let byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            std::iter::repeat_with(byte).take(len + 1).collect()
        })
        .collect();
    let may = [&every[..], &["truncated"]].concat();
    step("garbage", probe, garbage, &may);
}

/// The part of the status that must not change: registration, paths, endpoints, transitions, inner
/// addresses.
fn state(status: &Value) -> Value {
    let paths: Vec<Value> = status["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| serde_json::json!([path["name"], path["local"], path["remote"], path["via"]]))
        .collect();
    let keys = ["registered", "anchor", "inner", "signalling", "hosts"].map(|key| &status[key]);
    serde_json::json!([keys, paths])
}

fn damaged_and_repeated_packets_are_refused_counted_and_change_nothing(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let voice = Voice::start(world.net.host(), world.net.cn(), correspondents()[0]);
    voice.flows_on(10);
    let (mut near, mut far) = (Tap::open(&world, "wifi"), Tap::open(&world, "core"));
    let up = [near.catch(TUNNEL_PORT, is_probe), near.catch(TUNNEL_PORT, is_voice)];
    let down = [
        far.catch(TUNNEL_PORT, |payload| is_probe(payload) && payload[0] & 15 == 3),
        far.catch(TUNNEL_PORT, is_voice),
    ];
    let before = [host.status(), anchor.status()].map(|status| state(&status));

    let turned = |frame: &[u8]| -> [u8; ETHERNET] {
        let mut header = [0; ETHERNET];
        header[..6].copy_from_slice(&frame[6..12]);
        header[6..12].copy_from_slice(&frame[..6]);
        header[12..].copy_from_slice(&frame[12..14]);
        header
    };
    let mut to_anchor = Forger { out: &far.socket, ethernet: turned(&down[0]), sent: 0 };
    attack(&anchor, &mut to_anchor, &up[0], &up[1]);
    println!(
        "{datapath}: {} bad packets to the anchor: {}",
        to_anchor.sent,
        anchor.status()["drops"]
    );
    let mut to_host = Forger { out: &near.socket, ethernet: turned(&up[0]), sent: 0 };
    attack(&host, &mut to_host, &down[0], &down[1]);
    println!("{datapath}: {} bad packets to the host: {}", to_host.sent, host.status()["drops"]);

    // The same attack on signalling, where QUIC authenticates every packet.
    let mut tap = Tap::open(&world, "wifi");
    let signal = tap.catch(SIGNAL_PORT, |_| true);
    let mut to_anchor = Forger { out: &far.socket, ethernet: turned(&down[0]), sent: 0 };
    let payload = signal[ETHERNET + IP + UDP..].to_vec();
    for at in 0..payload.len() {
        to_anchor.send(&signal, &payload[..at]);
        let mut bad = payload.clone();
        bad[at] ^= 0xff;
        to_anchor.send(&signal, &bad);
        to_anchor.send(&signal, &payload);
    }
    voice.flows_on(50);
    let after = [host.status(), anchor.status()];
    assert_eq!(after.each_ref().map(state), before);
    for status in &after {
        assert!(registered(status) && paths_up(status) == 2, "{status:#}");
    }
}
