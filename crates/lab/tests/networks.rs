//! Emulated networks on the running kernel. Skipped without root.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use segue_clock::Span;
use segue_ip::Prefix;
use segue_lab::topology::{self, End};
use segue_lab::{DemoNet, DemoOptions, Direction, EmulatorSpec, Fate, Lab};
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_linux::netns::{self, Netns};
use segue_netem::{LinkSpec, Loss};

const PATIENCE: Duration = Duration::from_secs(20);

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

fn bind(node: &Netns, addr: impl Into<IpAddr>, port: u16) -> UdpSocket {
    let addr = SocketAddr::new(addr.into(), port);
    let socket = node.run(|| UdpSocket::bind(addr).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Two nodes a and b with one emulated link between them.
fn two_nodes(tag: &str, up: LinkSpec, down: LinkSpec) -> Lab {
    let mut lab = Lab::new(tag).unwrap();
    lab.add_node("a", false).unwrap();
    lab.add_node("b", false).unwrap();
    let (near, far) = ([prefix("10.61.3.1/24")], [prefix("10.61.3.2/24")]);
    let a = End { node: "a", device: "a0", addresses: &near };
    let b = End { node: "b", device: "b0", addresses: &far };
    let spec = EmulatorSpec { up, down, seed: 7, log: true };
    lab.emulate("link", a, b, &spec).unwrap();
    lab
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Sends numbered datagrams from a to b and returns the numbers that arrive.
fn numbered(lab: &Lab, count: u32) -> Vec<u32> {
    let to = bind(lab.node("b").unwrap(), [10, 61, 3, 2], 5005);
    let from = bind(lab.node("a").unwrap(), [10, 61, 3, 1], 0);
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let mut buffer = [0; 64];
    let mut read = || {
        while let Ok(len) = to.recv(&mut buffer) {
            got.push(u32::from_be_bytes(buffer[..len].try_into().unwrap()));
        }
    };
    for n in 0..count {
        from.send(&n.to_be_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(300));
        // The receive buffer is too small for all of these datagrams.
        read();
    }
    let emulator = lab.emulator("link").unwrap();
    wait_for(|| {
        let c = emulator.counters(Direction::Up);
        c.offered >= u64::from(count) && emulator.under_way(Direction::Up) == 0
    });
    read();
    got
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let end = monotonic() + Span::from_secs(PATIENCE.as_secs());
    while !done() {
        assert!(monotonic() < end, "it did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn exactly_the_listed_packets_are_lost_and_the_log_accounts_for_every_one() {
    if !root() {
        return;
    }
    let list = vec![0, 5, 6, 7, 300, 499];
    let up = LinkSpec { loss: Loss::Exact(list.clone()), ..LinkSpec::default() };
    let lab = two_nodes("tloss", up, LinkSpec::default());
    let got = numbered(&lab, 500);
    let expected: Vec<u32> = (0..500).filter(|n| !list.contains(&u64::from(*n))).collect();
    assert_eq!(got, expected);
    let emulator = lab.emulator("link").unwrap();
    let counters = emulator.counters(Direction::Up);
    assert_eq!((counters.offered, counters.lost, counters.delivered), (500, 6, 494));
    let log = emulator.take_log();
    assert!(log.iter().all(|r| r.direction == Direction::Up && r.is_udp(5005) && r.bytes == 32));
    let sent = log.iter().filter(|r| matches!(r.fate, Fate::Delivered { .. })).count();
    assert_eq!((log.len(), sent), (500, 494));
    assert_eq!((emulator.health().overruns, emulator.health().send_failures), (0, 0));
}

#[test]
fn a_stalled_direction_holds_what_comes_and_what_is_under_way_and_releases_it_in_order() {
    if !root() {
        return;
    }
    let lasting = Span::from_millis(300);
    let delay = Span::from_millis(50);
    let slow = LinkSpec { delay, ..LinkSpec::default() };
    let lab = two_nodes("tstall", slow, LinkSpec::default());
    let emulator = lab.emulator("link").unwrap();
    let to = bind(lab.node("b").unwrap(), [10, 61, 3, 2], 5005);
    let from = bind(lab.node("a").unwrap(), [10, 61, 3, 1], 0);
    from.connect(to.local_addr().unwrap()).unwrap();
    from.send(&[0]).unwrap();
    wait_for(|| emulator.counters(Direction::Up).offered == 1);
    let start = monotonic();
    // The first packet is in flight, unless the machine paused for 50 ms.
    emulator.stall(Direction::Up, start, start + lasting);
    for n in 1..20 {
        from.send(&[n]).unwrap();
    }
    let mut got = [0; 20];
    for byte in &mut got {
        to.recv(std::slice::from_mut(byte)).unwrap();
    }
    assert_eq!(got.to_vec(), (0..20).collect::<Vec<u8>>());
    let log = emulator.take_log();
    let due = log.iter().filter_map(|r| match r.fate {
        Fate::Delivered { due, .. } if r.arrival >= start => Some(due),
        _ => None,
    });
    let due: Vec<_> = due.collect();
    // Packets that a busy machine sent after the end of the stall were not held.
    let held = log.iter().filter(|r| r.arrival >= start && r.arrival + delay < start + lasting);
    let held = held.count();
    println!("{held} held of {}", due.len());
    assert!(due[..held].iter().all(|due| *due == start + lasting));
    assert_eq!(emulator.counters(Direction::Up).delivered, 20);
}

#[test]
fn a_silent_direction_drops_everything_while_both_devices_stay_up() {
    if !root() {
        return;
    }
    let lab = two_nodes("tsilent", LinkSpec::default(), LinkSpec::default());
    assert_eq!(numbered(&lab, 10).len(), 10);
    let emulator = lab.emulator("link").unwrap();
    emulator.set_silent(Direction::Up, true);
    let to = bind(lab.node("b").unwrap(), [10, 61, 3, 2], 5006);
    let from = bind(lab.node("a").unwrap(), [10, 61, 3, 1], 0);
    // The neighbour entry is deleted, but the sender must not notice anything.
    lab.node("a").unwrap().run(|| link::set_up("a0", false).unwrap()).unwrap();
    lab.node("a").unwrap().run(|| link::set_up("a0", true).unwrap()).unwrap();
    for _ in 0..20 {
        from.send_to(b"lost", to.local_addr().unwrap()).unwrap();
    }
    wait_for(|| emulator.counters(Direction::Up).silenced >= 20);
    for (node, device) in [("a", "a0"), ("b", "b0")] {
        let links = lab.node(node).unwrap().run(|| link::links().unwrap()).unwrap();
        assert!(links.iter().any(|l| l.name == device && l.up && l.running), "{links:?}");
    }
    to.send_to(b"other way", from.local_addr().unwrap()).unwrap();
    assert_eq!(from.recv(&mut [0; 64]).unwrap(), 9);
    emulator.set_silent(Direction::Up, false);
    from.send_to(b"back", to.local_addr().unwrap()).unwrap();
    assert_eq!(to.recv(&mut [0; 64]).unwrap(), 4);
    assert_eq!(emulator.counters(Direction::Up).silenced, 20);
}

#[test]
fn silence_drops_what_waits_for_its_turn_and_lets_arrive_what_is_on_the_wire() {
    if !root() {
        return;
    }
    // 80 kbit/s: a datagram of 1000 bytes takes 100 ms, so that the second one still waits.
    let up = LinkSpec { rate_bps: Some(80_000), ..LinkSpec::default() };
    let lab = two_nodes("tqueue", up, LinkSpec::default());
    let to = bind(lab.node("b").unwrap(), [10, 61, 3, 2], 5005);
    let from = bind(lab.node("a").unwrap(), [10, 61, 3, 1], 0);
    let emulator = lab.emulator("link").unwrap();
    for _ in 0..50 {
        from.send_to(&[0; 972], to.local_addr().unwrap()).unwrap();
    }
    wait_for(|| emulator.counters(Direction::Up).offered == 50);
    let at = emulator.set_silent(Direction::Up, true);
    wait_for(|| emulator.under_way(Direction::Up) == 0);
    let counters = emulator.counters(Direction::Up);
    assert_eq!(counters.delivered + counters.silenced, 50);
    assert!(counters.silenced >= 1, "{counters:?}");
    let late = at + Span::from_millis(101);
    for record in emulator.take_log() {
        if let Fate::Delivered { due, .. } = record.fate {
            assert!(due <= late, "{record:?} was not on the wire at {at:?}");
        }
    }
}

#[test]
fn both_accesses_of_the_demonstration_carry_both_families_with_their_delay() {
    if !root() {
        return;
    }
    let mut options = DemoOptions { tag: "tdemo".to_owned(), ..DemoOptions::default() };
    for way in [&mut options.wifi, &mut options.lte] {
        way.up.loss = Loss::None;
        way.down.loss = Loss::None;
    }
    let net = DemoNet::start(&options).unwrap();
    let families: [[(IpAddr, IpAddr); 2]; 2] =
        [(DemoNet::HOST_WIFI, DemoNet::CN), (DemoNet::HOST_LTE, DemoNet::ANCHOR)]
            .map(|(h, p)| [(h.0.into(), p.0.into()), (h.1.into(), p.1.into())]);
    for (index, (device, round_trip, node)) in
        [("wifi", 20.0, net.cn()), ("lte", 60.0, net.anchor())].into_iter().enumerate()
    {
        for (host, peer) in families[index] {
            let to = bind(node, peer, 5005);
            let from = bind(net.host(), host, 0);
            socket2::SockRef::from(&from).bind_device(Some(device.as_bytes())).unwrap();
            let mut times: Vec<f64> = (0..15)
                .map(|_| {
                    let begin = monotonic();
                    from.send_to(b"?", (peer, 5005)).unwrap();
                    let (_, back) = to.recv_from(&mut [0; 8]).unwrap();
                    assert_eq!(back.ip(), host);
                    to.send_to(b"!", back).unwrap();
                    from.recv(&mut [0; 8]).unwrap();
                    monotonic().since(begin).as_millis_f64()
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let least = times[0];
            println!("{device} to {peer}: {least:.3} ms of {round_trip} ms, {times:.2?}");
            assert!(least >= round_trip, "faster than the link: {least}");
            // Delays beyond this come from a busy machine and not from the link.
            assert!(least < round_trip + 4.0, "least {least} ms");
        }
    }
    for handle in [net.wifi(), net.lte()] {
        let (log, health) = (handle.take_log(), handle.health());
        println!("{health:?}");
        assert!(log.len() >= 60, "{}", log.len());
        for record in log {
            let imposed = handle.spec(record.direction).delay;
            assert!(record.delay().is_some_and(|d| d >= imposed), "{record:?}");
        }
    }
}

#[test]
fn a_download_over_tcp_arrives_whole_and_is_held_to_the_rate() {
    if !root() {
        return;
    }
    let options = DemoOptions { tag: "ttcp".to_owned(), ..DemoOptions::default() };
    let net = DemoNet::start(&options).unwrap();
    let server =
        net.cn().run(|| TcpListener::bind((IpAddr::from(DemoNet::CN.0), 80)).unwrap()).unwrap();
    let size = 4_000_000;
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let data: Vec<u8> = (0..size).map(|i| (i * 7 / 5) as u8).collect();
        stream.write_all(&data).unwrap();
    });
    let begin = monotonic();
    let mut client =
        net.host().run(|| TcpStream::connect((IpAddr::from(DemoNet::CN.0), 80)).unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut data = Vec::new();
    client.read_to_end(&mut data).unwrap();
    sender.join().unwrap();
    let rate = data.len() as f64 * 8.0 / monotonic().since(begin).as_secs_f64();
    let health = net.wifi().health();
    println!("{:.1} Mbit/s of 50; {health:?}", rate / 1e6);
    assert_eq!(data.len(), size);
    assert!(data.iter().enumerate().all(|(i, b)| *b == (i * 7 / 5) as u8));
    assert!(rate < 50e6, "{rate} bit/s");
    assert_eq!(health.overruns, 0);
    let longest = net.wifi().take_log().iter().map(|r| r.bytes).max();
    assert!(longest <= Some(1500), "a super-packet of {longest:?} bytes passed");
}

#[test]
fn a_translated_host_is_seen_from_outside_and_from_another_port_after_a_rebinding() {
    if !root() {
        return;
    }
    let options = DemoOptions { tag: "tnat".to_owned(), nat: true, ..DemoOptions::default() };
    let mut net = DemoNet::start(&options).unwrap();
    let accesses = [(DemoNet::WIFI, DemoNet::HOST_WIFI, 11), (DemoNet::LTE, DemoNet::HOST_LTE, 12)];
    let sockets = accesses.map(|(device, host, _)| {
        let from = bind(net.host(), host.0, 0);
        socket2::SockRef::from(&from).bind_device(Some(device.as_bytes())).unwrap();
        from.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        from
    });
    let to = bind(net.anchor(), DemoNet::ANCHOR.0, 5005);
    // Some packets are lost: repeat until one is answered.
    let seen = |from: &UdpSocket| loop {
        from.send_to(b"?", to.local_addr().unwrap()).unwrap();
        let (_, peer) = to.recv_from(&mut [0; 8]).unwrap();
        to.send_to(b"!", peer).unwrap();
        if from.recv(&mut [0; 8]).is_ok() {
            return peer;
        }
    };
    let before = sockets.each_ref().map(seen);
    for (peer, (_, _, host)) in before.iter().zip(accesses) {
        assert_eq!(peer.ip(), IpAddr::from([10, 61, 9, host]));
    }
    net.rebind(DemoNet::WIFI).unwrap();
    let after = sockets.each_ref().map(seen);
    assert_ne!(after[0].port(), before[0].port(), "wifi has another port");
    assert_eq!(after[0].ip(), before[0].ip());
    assert_eq!(after[1], before[1], "lte keeps its own");
}

#[test]
fn leftovers_of_a_dead_process_are_cleaned_and_those_of_a_living_one_are_not() {
    if !root() {
        return;
    }
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = format!("segue-tclean{}-x", child.id());
    std::mem::forget(Netns::create(&dead).unwrap());
    child.wait().unwrap();
    let alive = Lab::new("tclean").unwrap();
    topology::clean();
    assert!(netns::list_with_prefix(&dead).is_empty());
    assert_eq!(netns::list_with_prefix(alive.prefix()).len(), 1);
    let prefix = alive.prefix().to_owned();
    drop(alive);
    assert!(netns::list_with_prefix(&prefix).is_empty());
}
