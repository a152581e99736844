//! `segue probe --peer`: two equal ends.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use segue_wire::{Header, PacketType, Probe, ProbeKey};
use serde_json::Value;

use super::{PATIENT, Probing, key_file};

#[test]
fn one_becomes_the_client_the_other_the_server_and_both_measure() {
    let [a, b] = addresses();
    // Neither end gives up soon, so a busy machine may stall either for a while.
    let mut first = start(&a, &b, &["-k", "250"]);
    let mut second = start(&b, &a, &["-k", "250"]);
    let roles = [&mut first, &mut second].map(|end| {
        let role = end.until(|line| line["type"] == "role" && line["role"] != "asking");
        // The loss of the downlink is known from the second echo on.
        (0..3).for_each(|_| drop(sampled(end)));
        role["role"].as_str().unwrap().to_owned()
    });
    assert!(roles.contains(&"client".into()) && roles.contains(&"server".into()), "{roles:?}");
    for (end, role) in [(first, &roles[0]), (second, &roles[1])] {
        let lines = end.interrupt();
        let summary = lines.last().unwrap();
        assert_eq!(
            (&summary["type"], &summary["role"]),
            (&"summary".into(), &role.as_str().into())
        );
        let measured = &summary[if role == "client" { "targets" } else { "clients" }][0];
        assert_eq!(measured["state"], "up", "{summary}");
        assert!(measured["rtt_ms"]["avg"].as_f64().is_some_and(|ms| ms >= 0.0), "{summary}");
        assert_eq!((&measured["owl_up"], &measured["owl_down"]), (&0.0.into(), &0.0.into()));
    }
}

#[test]
fn either_end_may_start_again_whatever_its_role() {
    let [a, b] = addresses();
    let mut stays = start(&a, &b, &[]);
    let mut other = start(&b, &a, &[]);
    sampled(&mut stays);
    // The new end draws another random number each time, so both roles occur.
    for _ in 0..4 {
        drop(other);
        other = start(&b, &a, &[]);
        sampled(&mut other);
        stays.until(|line| line["state"] == "up" || line["type"] == "sample");
    }
    sampled(&mut stays);
}

#[test]
fn a_nat_that_gives_another_port_is_no_hindrance_where_a_key_is_set() {
    let (_directory, key) = key_file("000102030405060708090a0b0c0d0e0f");
    let [reachable, hidden] = addresses();
    let nat = Nat::start(&reachable);
    // The reachable end is configured with an address from which nothing ever arrives.
    let [nobody, _] = addresses();
    let mut outside = start(&reachable, &nobody, &["--key", &key]);
    let mut inside = start(&hidden, &nat.inside.to_string(), &["--key", &key]);
    sampled(&mut outside);
    sampled(&mut inside);
}

#[test]
fn a_peer_without_the_key_is_never_heard() {
    let (_directory, key) = key_file("000102030405060708090a0b0c0d0e0f");
    // On a busy machine one end may have finished before the other began.
    let met = ["1s", "5s", "25s"].iter().any(|length| {
        let [a, b] = addresses();
        let mut with = start(&a, &b, &["--key", &key, "-w", length]);
        let mut without = start(&b, &a, &["-w", length]);
        let refused = [&mut with, &mut without].map(|end| {
            let summary = end.until(|line| line["type"] == "summary");
            assert_eq!(summary["role"], "asking");
            assert_eq!(summary["targets"][0]["received"], 0);
            summary["targets"][0]["drops"]["mac"].as_u64().unwrap_or(0)
        });
        refused.iter().all(|packets| *packets > 0)
    });
    assert!(met, "neither end counted the other's requests");
}

#[test]
fn forged_requests_of_the_lowest_and_highest_sessions_win_no_role() {
    let [a, b] = addresses();
    let forger = Forger::start([&a, &b]);
    let mut first = start(&a, &b, &["-k", "100"]);
    // With only the forger present, the end keeps asking, however many requests arrive.
    let before = forger.sent.load(Ordering::Relaxed);
    while forger.sent.load(Ordering::Relaxed) < before + 2_000 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut second = start(&b, &a, &["-k", "100"]);
    for end in [&mut first, &mut second] {
        let role = end.until(|line| line["type"] == "role" && line["role"] != "asking");
        let client = role["role"] == "client";
        (0..3).for_each(|_| drop(sampled(end)));
        assert!(client || role["role"] == "server", "{role}");
    }
    let summaries = [first, second].map(|end| end.interrupt().pop().unwrap());
    let role = |summary: &Value| summary["role"].as_str().unwrap().to_owned();
    let mut roles = summaries.each_ref().map(role);
    roles.sort();
    assert_eq!(roles, ["client", "server"], "{summaries:?}");
    let server = summaries.iter().find(|summary| summary["role"] == "server").unwrap();
    let client = &server["clients"][0];
    assert_eq!(client["state"], "up", "{server}");
    let session = client["session"].as_str().unwrap();
    assert!(u32::from_str_radix(session, 16).unwrap() > FORGED, "{server}");
    forger.stop();
}

/// Forged sessions have indices up to this; a client's index is random.
const FORGED: u32 = 4;

/// Sends requests of sessions with the lowest and the highest cookies from a peer's address (but other ports), and
/// ignores answers.
struct Forger {
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Forger {
    fn start(to: [&String; 2]) -> Forger {
        let (over, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ended, count) = (Arc::clone(&over), Arc::clone(&sent));
        let to = to.map(|address| address.parse::<SocketAddr>().unwrap());
        let thread = std::thread::spawn(move || {
            let sockets = [0; 2].map(|_| UdpSocket::bind((to[0].ip(), 0)).unwrap());
            for seq in 1.. {
                for (to, index) in to.iter().flat_map(|to| (1..=FORGED).map(move |n| (to, n))) {
                    let cookie = if index % 2 == 0 { u64::MAX } else { 0 };
                    let packet_type = PacketType::Request;
                    let header = Header::new(packet_type, 3, index, cookie);
                    let probe = Probe { seq, t_sc: seq, t_ss: seq, sc: seq, ..Probe::default() };
                    // Errors are expected while no process listens there.
                    let socket = &sockets[usize::from(index > FORGED / 2)];
                    let _ = socket.send_to(&probe.seal(&header, &ProbeKey::default()), to);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(3));
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Forger { over, sent, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Reads lines until this end reports a round-trip time.
fn sampled(end: &mut Probing) -> Value {
    end.until(|line| line["type"] == "sample" && line["rtt_ms"].is_f64())
}

fn start(bind: &str, peer: &str, more: &[&str]) -> Probing {
    let mut args = vec!["--peer", peer, "--bind", bind];
    // Patient, but short enough that a test need not wait long before a dead peer is given up.
    args.extend(&PATIENT[..2]);
    if !more.contains(&"-k") {
        args.extend(["-k", "25"]);
    }
    args.extend(more);
    if !more.contains(&"-w") {
        args.extend(["-w", "60s"]);
    }
    Probing::plain(&args)
}

/// Two unused ports on a loopback address; each call uses another address.
fn addresses() -> [String; 2] {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let host = format!("127.77.0.{}", CALLS.fetch_add(1, Ordering::Relaxed));
    let sockets = [0; 2].map(|_| UdpSocket::bind((host.as_str(), 0)).unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().to_string())
}

/// Forwards packets from the inside through a separate port, and answers back.
struct Nat {
    inside: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Nat {
    fn start(outside: &str) -> Nat {
        let [inner, outer] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        outer.connect(outside).unwrap();
        for socket in [&inner, &outer] {
            socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        }
        let inside = inner.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        std::thread::spawn(move || {
            let (mut buffer, mut client) = ([0; 2_048], None);
            while !ended.load(Ordering::Relaxed) {
                if let Ok((length, from)) = inner.recv_from(&mut buffer) {
                    client = Some(from);
                    let _ = outer.send(&buffer[..length]);
                }
                if let (Ok(length), Some(client)) = (outer.recv(&mut buffer), client) {
                    let _ = inner.send_to(&buffer[..length], client);
                }
            }
        });
        Nat { inside, over }
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
