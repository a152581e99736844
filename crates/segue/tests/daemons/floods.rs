//! Floods harm only their sender.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use segue_daemon::control::tunnels;
use segue_daemon::signalling::Worker;
use segue_wire::ProbeKey;
use segue_wire::signal::{FromHost, PathGrant, SIGNAL_VERSION};

use crate::fleet::{Fleet, Member, Peer, data, request};
use crate::over_both;
use crate::several::Two;
use crate::traffic::udp;
use crate::world::{Daemon, PATIENCE, inner, paths_up};

over_both! { alone:
    tls_is_not_done_before_all_other_work
    floods_of_every_kind_take_no_path_down_and_hold_no_answer_up
}
over_both! { among_others:
    a_flood_to_a_host_without_a_path_and_to_nobody_stops_no_other_hosts_flows
}

/// New flows of the host that does not flood.
const FLOWS: usize = 40;

fn a_flood_to_a_host_without_a_path_and_to_nobody_stops_no_other_hosts_flows(
    datapath: &'static str,
) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let (a, mut b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let (own_a, own_b) = (inner(&a.status()).0, inner(&b.status()).0);
    b.end(Signal::SIGKILL);
    // An idle path is probed every five seconds.
    let begun = Instant::now();
    while paths_up(&anchor.status()) != 1 {
        assert!(begun.elapsed() < 3 * PATIENCE, "b has no path");
        std::thread::sleep(Duration::from_millis(100));
    }

    let nobody = Ipv4Addr::from(u32::from(own_b) + 100);
    let ended = AtomicBool::new(false);
    let flood = udp(two.node("cn"), "0.0.0.0:0".parse().unwrap());
    let arrived = std::thread::scope(|scope| {
        scope.spawn(|| {
            let targets = [IpAddr::from(own_b), nobody.into()];
            let ports = (1u16..=60_000).cycle();
            // 1 500 packets per second, each the first of a flow.
            for (n, port) in ports.enumerate().take_while(|_| !ended.load(Ordering::Relaxed)) {
                let _ = flood.send_to(b"?", SocketAddr::new(targets[n % 2], port));
                if n % 15 == 0 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        std::thread::sleep(Duration::from_secs(2));
        let arrived = new_flows(&two, own_a.into());
        ended.store(true, Ordering::Relaxed);
        arrived
    });
    assert_eq!(arrived, FLOWS, "new flows to the other host");
    assert!(crate::world::drops(&anchor.status(), "no_host") > 0, "the flood is counted");
}

/// Sends [`FLOWS`] datagrams, each opening a flow, from the correspondent to host `a`; returns how
/// many arrive.
fn new_flows(two: &Two, to: IpAddr) -> usize {
    let listening = udp(two.node("a"), SocketAddr::new(to, 0));
    let to = listening.local_addr().unwrap();
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let senders: Vec<UdpSocket> = (0..FLOWS).map(|_| udp(two.node("cn"), any)).collect();
    for sender in &senders {
        sender.send_to(b"!", to).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    let mut sources = std::collections::BTreeSet::new();
    while sources.len() < FLOWS && start.elapsed() < PATIENCE / 4 {
        sources.extend(listening.recv_from(&mut [0; 8]).map(|(_, from)| from));
    }
    sources.len()
}

fn tls_is_not_done_before_all_other_work(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    for daemon in [&anchor, &host] {
        let policies = daemon.policies();
        assert_eq!(policies["segue-signal"], "0", "SCHED_OTHER: {policies:?}");
        assert_eq!(policies["segue"], "1", "SCHED_FIFO, or this shows nothing: {policies:?}");
    }
}

/// Number of paths probed during the flood: one host's path, and the paths of a fleet.
const PATHS: usize = 100;
/// Time limit for `status`. If an answer without a flood takes longer than a third of this, the
/// limit is three times that answer.
const ANSWER: Duration = Duration::from_millis(100);

/// Floods of a kind that a busy machine may spoil.
const ATTEMPTS: usize = 3;

/// Rate and duration of a flood.
#[derive(Clone, Copy)]
struct Storm {
    packets_per_second: u32,
    lasts: Duration,
}

fn floods_of_every_kind_take_no_path_down_and_hold_no_answer_up(datapath: &'static str) {
    let storm = Storm { packets_per_second: 100_000, lasts: Duration::from_secs(2) };
    endure(datapath, storm);
}

/// Longer floods on an otherwise idle machine: `make soak`.
#[test]
#[ignore = "minutes, and a quiet machine"]
fn soak_floods_of_every_kind_at_full_strength() {
    let _turn = crate::alone();
    let storm = Storm { packets_per_second: 100_000, lasts: Duration::from_secs(10) };
    endure("ebpf", storm);
    endure("user", storm);
}

fn endure(datapath: &'static str, storm: Storm) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let worker = Arc::new(Worker::start().unwrap());
    let member = |name: &str| {
        let line = two.enroll(&anchor, 2, name);
        Member::enrol(&worker, two.node("b"), &line)
    };
    let members: Vec<Member> = (0..(PATHS - 1).div_ceil(segue_wire::MAX_PATHS))
        .map(|n| member(&format!("f{n}")))
        .collect();
    let fleet = Fleet::start(&worker, two.node("b"), &members, PATHS - 1);
    anchor.wait("all paths up", |status| paths_up(status) == PATHS);
    let stage = Stage { two: &two, anchor: &anchor, host: &host, fleet: &fleet, storm };

    let inner_a = inner(&host.status()).0;
    let tunnel = SocketAddr::from(([10, 61, 3, 1], 5005));
    let outside = || udp(two.node("cn"), "0.0.0.0:0".parse().unwrap());
    let grants = &fleet.grants;
    let some = |n: u32| &grants[n as usize % grants.len()];
    let place = |n: u32| SocketAddrV4::new([10, 61, 3, 2].into(), 1 + (n / 64) as u16);

    let sockets: Vec<UdpSocket> = (0..16).map(|_| outside()).collect();
    stage.flood("packets without a binding", |n| {
        let port = 1 + (n / 16 % 65_000) as u16;
        let _ = sockets[n as usize % 16].send_to(b"?", (inner_a, port));
    });
    let within: Vec<UdpSocket> =
        (0..16).map(|_| udp(two.node("a"), "0.0.0.0:0".parse().unwrap())).collect();
    stage.flood("flows of the host's own applications", |n| {
        let port = 1 + (n / 16 % 65_000) as u16;
        let _ = within[n as usize % 16].send_to(b"?", (Ipv4Addr::new(10, 61, 3, 2), port));
    });
    let socket = outside();
    stage.flood("forged data", |n| {
        let from = SocketAddrV4::new(inner_a, n as u16);
        let _ = socket.send_to(&data(some(n).index, u64::from(n), from, place(n)), tunnel);
    });
    stage.flood("forged probes", |n| {
        let _ = socket.send_to(&request(some(n), &ProbeKey::default(), n), tunnel);
    });
    let signalling = SocketAddr::new(tunnel.ip(), 5006);
    stage.flood("garbage to the signalling port", |n| {
        let byte = |i: u32| (n.wrapping_mul(0x9e37_79b9).wrapping_add(i) >> 7) as u8;
        let bytes: Vec<u8> = (0..64).map(|i| byte(i * i)).collect();
        let _ = socket.send_to(&bytes, signalling);
    });
    let mallory = member("mallory");
    stage.while_it_lasts("registrations of an enrolled host", |ended| {
        register_for_ever(&worker, &two, &mallory, ended)
    });
    let mut peer = Peer::connect(&worker, two.node("b"), &mallory).unwrap();
    let own = peer.register(u64::MAX).expect("registered");
    let grant = peer.add_path(0);
    let socket = udp(two.node("b"), "0.0.0.0:0".parse().unwrap());
    let more: Vec<PathGrant> = (1..16).map(|number| peer.add_path(number)).collect();
    let own_paths: Vec<&PathGrant> = std::iter::once(&grant).chain(&more).collect();
    stage.flood("valid probes of an enrolled host over all its paths", |n| {
        let path = own_paths[n as usize % own_paths.len()];
        let packet = request(path, &ProbeKey(path.key), 1 + n / own_paths.len() as u32);
        let _ = socket.send_to(&packet, peer.tunnel());
    });
    let beyond = crate::world::drops(&anchor.status(), "queue_full");
    assert!(datapath == "ebpf" || beyond > 0, "in user space all of them come to the daemon");
    stage.flood("flows of an enrolled host", |n| {
        let from = SocketAddrV4::new(own, n as u16);
        let _ = socket.send_to(&data(grant.index, grant.cookie, from, place(n)), peer.tunnel());
    });
}

/// Registers as often as the anchor allows, reconnecting whenever the anchor closes the connection.
/// Returns the number of registrations.
fn register_for_ever(worker: &Arc<Worker>, two: &Two, member: &Member, ended: &AtomicBool) -> u32 {
    let mut epoch = 0;
    while !ended.load(Ordering::Relaxed) {
        let Ok(mut peer) = Peer::connect(worker, two.node("b"), member) else { continue };
        for _ in 0..200 {
            epoch += 1;
            let register = FromHost::Register { version: SIGNAL_VERSION, epoch };
            if ended.load(Ordering::Relaxed) || peer.send(&register).is_err() {
                break;
            }
        }
    }
    epoch as u32
}

struct Stage<'a> {
    two: &'a Two,
    anchor: &'a Daemon,
    host: &'a Daemon,
    fleet: &'a Fleet,
    storm: Storm,
}

impl Stage<'_> {
    /// Calls `send` with increasing numbers at the storm's rate.
    fn flood(&self, kind: &str, send: impl Fn(u32) + Sync) {
        let per_ms = u64::from(self.storm.packets_per_second / 1_000);
        let next = AtomicU32::new(0);
        let struck = self.while_it_lasts(kind, |ended| {
            let (start, mut sent) = (Instant::now(), 0u64);
            while !ended.load(Ordering::Relaxed) {
                let due = start.elapsed().as_millis() as u64 * per_ms;
                (sent..due).for_each(|_| send(next.fetch_add(1, Ordering::Relaxed)));
                sent = sent.max(due);
                std::thread::sleep(Duration::from_millis(1));
            }
            sent as u32
        });
        assert!(struck > 10_000.0, "{kind}: {struck:.0} a second is no flood");
    }

    /// Attacks until no path goes down: on a busy machine, the attackers take the daemons' processor time.
    fn while_it_lasts(&self, kind: &str, attack: impl Fn(&AtomicBool) -> u32 + Sync) -> f64 {
        let mut downs = String::new();
        for _ in 0..ATTEMPTS {
            match self.once(kind, &attack) {
                Ok(per_second) => return per_second,
                Err(again) => downs = again,
            }
            println!("{kind}, again: {downs}");
            self.anchor.wait("all paths up again", |status| paths_up(status) >= PATHS);
        }
        panic!("{kind}: {downs}");
    }

    /// Asks for the status while `attack` runs and counts its packets; then checks the paths.
    /// Returns the attack's rate per second, or the paths that went down.
    fn once(
        &self,
        kind: &str,
        attack: &(impl Fn(&AtomicBool) -> u32 + Sync),
    ) -> Result<f64, String> {
        let mark = self.anchor.status()["next_event"].as_u64().unwrap();
        let mark_host = self.host.status()["next_event"].as_u64().unwrap();
        let answered = self.fleet.answered();
        let calm = median((0..9).map(|_| self.asked()).collect());
        let ended = AtomicBool::new(false);
        let start = Instant::now();
        let (struck, asked_for) = std::thread::scope(|scope| {
            let attacker = scope.spawn(|| attack(&ended));
            let mut took = Vec::new();
            while start.elapsed() < self.storm.lasts {
                took.push(self.asked());
                std::thread::sleep(Duration::from_millis(20));
            }
            ended.store(true, Ordering::Relaxed);
            (attacker.join().unwrap(), took)
        });
        let tries = asked_for.len();
        let slowest = asked_for.iter().max().copied().unwrap_or_default();
        let took = median(asked_for);
        let per_second = f64::from(struck) / start.elapsed().as_secs_f64();
        let answers = self.fleet.answered() - answered;
        println!(
            "{}, {kind}: {per_second:.0} a second, of {} wanted; status in {took:?}, the slowest of {tries} in \
             {slowest:?}, before in {calm:?}; {answers} probes answered",
            self.two.datapath, self.storm.packets_per_second
        );
        assert!(took <= ANSWER.max(calm * 3), "{kind}: status took {took:?}, before {calm:?}");
        for (daemon, mark) in [(self.anchor, mark), (self.host, mark_host)] {
            let status = daemon.status();
            let events = status["events"].as_array().unwrap().iter();
            let down = |event: &&serde_json::Value| {
                // Host mallory never probes, so its paths go down.
                event["number"].as_u64() >= Some(mark)
                    && event["detail"] == "down"
                    && event["host"] != "mallory"
            };
            let downs: Vec<_> = events.filter(down).collect();
            if !downs.is_empty() {
                return Err(format!("{downs:?}"));
            }
        }
        assert!(paths_up(&self.anchor.status()) >= PATHS, "{kind}");
        assert!(answers > 0, "{kind}: nothing is probed");
        Ok(per_second)
    }

    /// How long the slower of the two daemons takes to report its status.
    fn asked(&self) -> Duration {
        let ask = |daemon: &Daemon| {
            let start = Instant::now();
            tunnels::status(&daemon.socket(), u64::MAX).unwrap();
            start.elapsed()
        };
        ask(self.anchor).max(ask(self.host))
    }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
