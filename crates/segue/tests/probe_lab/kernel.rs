//! `segue probe --listen --stamp --kernel`: the kernel answers STAMP and the compact probe, with user space as
//! fallback.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use segue_ip::Prefix;
use segue_lab::{Direction, Lab};
use segue_wire::{Header, PacketType, Probe, ProbeKey};

use super::{Listening, check, direct, may_run, measure, network};

/// Enables all kernel answers on node b's interface.
const KERNEL: [&str; 4] = ["--stamp", "--kernel", "-I", "b0"];

#[test]
fn the_kernel_answers_plain_requests_and_user_space_the_others() {
    if !may_run() {
        return;
    }
    for (tag, near, far, to) in [
        ("stampa", "10.61.9.1/24", "10.61.9.2/24", "10.61.9.2"),
        ("stampb", "fd61:9::1/64", "fd61:9::2/64", "fd61:9::2"),
    ] {
        let lab = network(tag, [near, far], 20, [0.1, 0.05]);
        let mut reflector = Listening::start(&lab, &KERNEL);
        let plain = measure(&lab, &["--stamp", to, "-c", "300", "--session-id", "9"]);
        let log = lab.emulator("link").unwrap().take_log();
        let count = |direction, lost: Option<bool>| {
            let stamp = log.iter().filter(|r| r.direction == direction && r.is_udp(862));
            stamp.filter(|r| lost.is_none_or(|lost| r.delay().is_none() == lost)).count()
        };
        let target = &plain["targets"][0];
        assert_eq!(target["sent"], count(Direction::Up, None), "{target}");
        assert_eq!(count(Direction::Up, Some(false)), count(Direction::Down, None), "all answered");
        assert_eq!(target["received"], count(Direction::Down, Some(false)), "{target}");
        // The directions cover only the packets between the first and the last answer; losses before and after belong
        // to neither.
        let lost = |way: &str| {
            let packets = &target[way];
            packets["sent"].as_u64().unwrap() - packets["received"].as_u64().unwrap()
        };
        assert!(target["reflector"]["stateful"].as_bool().unwrap(), "{target}");
        assert!(lost("packets_up") <= count(Direction::Up, Some(true)) as u64, "{target}");
        let between = lost("packets_up") + lost("packets_down");
        let all = 300 - target["received"].as_u64().unwrap();
        assert!(between <= all && between + 20 > all, "{between} of {all}: {target}");
        assert_eq!(
            (&target["reflector"]["ttl"], &target["reflector"]["implausible"]),
            (&255.into(), &0.into())
        );
        // 20 ms each way, plus delay added by the emulator and the machine.
        let rtt = target["rtt_ms"]["min"].as_f64().unwrap();
        assert!((40.0..60.0).contains(&rtt), "{rtt} ms");

        let extended = measure(&lab, &["--stamp", to, "-c", "50", "--direct"]);
        let told = reflector.stop();
        assert_eq!(told["kernel_answers"], count(Direction::Down, None), "{told}");
        let session = &told["sessions"][0];
        assert!(
            session["received"].as_u64().unwrap()
                >= extended["targets"][0]["received"].as_u64().unwrap()
        );
        assert_eq!(
            told["sessions"].as_array().unwrap().len(),
            1,
            "only what has extensions: {told}"
        );
    }
}

/// No emulator lies between the ends that could hide remains of the request in the reflected packet.
#[test]
fn the_round_trip_time_of_a_link_within_the_machine_is_found() {
    if !may_run() {
        return;
    }
    let prefixes = |texts: [&str; 2]| texts.map(|text| text.parse::<Prefix>().unwrap());
    let near = prefixes(["10.61.9.1/24", "fd61:9::1/64"]);
    let far = prefixes(["10.61.9.2/24", "fd61:9::2/64"]);
    let lab = direct("stampc", &near, &far);
    let mut reflector = Listening::start(&lab, &KERNEL);
    for to in ["10.61.9.2", "fd61:9::2"] {
        let plausible = |target: &serde_json::Value| {
            assert_eq!(
                (&target["sent"], &target["received"]),
                (&50.into(), &50.into()),
                "{target}"
            );
            // The first answer may arrive before the kernel takes timestamps.
            assert_ne!(target["stamp"], "user", "{target}");
            // A few microseconds on an idle machine.
            let rtt = target["rtt_ms"]["min"].as_f64().unwrap();
            assert!((0.0..20.0).contains(&rtt), "{rtt} ms");
        };
        let target = measure(&lab, &["--stamp", to, "-c", "50"])["targets"][0].clone();
        plausible(&target);
        assert_eq!(target["reflector"]["implausible"], 0, "{target}");
        plausible(&measure(&lab, &[to, "-c", "50"])["targets"][0]);
    }
    let told = reflector.stop();
    assert_eq!(
        (&told["kernel_answers"], &told["probes"]["kernel_answers"]),
        (&100.into(), &100.into())
    );
}

#[test]
fn compact_probes_that_the_kernel_answers_lose_what_the_emulator_dropped() {
    if !may_run() {
        return;
    }
    for (tag, near, far, to) in [
        ("compacta", "10.61.9.1/24", "10.61.9.2/24", "10.61.9.2"),
        ("compactb", "fd61:9::1/64", "fd61:9::2/64", "fd61:9::2"),
    ] {
        let lab = network(tag, [near, far], 20, [0.1, 0.05]);
        let mut reflector = Listening::start(&lab, &KERNEL);
        let summary = measure(&lab, &[to, "-c", "300", "-s", "200", "--dscp", "ef"]);
        let log = lab.emulator("link").unwrap().take_log();
        pass_on(&lab, to);
        let told = reflector.stop();
        let answers = &told["probes"]["kernel_answers"];
        let listener = serde_json::json!({ "received": answers, "sent": answers });
        check(&summary["targets"][0], &listener, &log);
        assert_eq!(told["kernel_answers"], 0, "{told}");
        let clients = told["probes"]["clients"].as_array().unwrap();
        assert_eq!(clients.len(), 1, "only what the kernel passed on: {told}");
        assert!(clients[0]["received"].as_u64() >= Some(1), "{told}");
        assert!(told["probes"]["drops"]["mac"].as_u64() >= Some(1), "{told}");
    }
}

/// User space answers a request with a report, which the kernel does not handle, and refuses a request with a wrong
/// authenticator.
fn pass_on(lab: &Lab, to: &str) {
    let to = SocketAddr::new(to.parse().unwrap(), 5005);
    let header =
        Header { packet_type: PacketType::Request, flags: 1, k: 3, age: 0, index: 7, cookie: 9 };
    let ask = || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        // Repeat, because the link loses packets.
        (1..=60).any(|seq| {
            let probe = Probe { seq, t_sc: seq, sc: seq, ..Probe::default() };
            let forged = Header { flags: 0, ..header };
            socket.send_to(&probe.seal(&forged, &ProbeKey([1; 16])), to).unwrap();
            socket.send_to(&probe.seal(&header, &ProbeKey::default()), to).unwrap();
            socket.recv(&mut [0; 100]).is_ok_and(|len| len == Probe::PACKET_LEN) && seq >= 5
        })
    };
    assert!(lab.node("a").unwrap().run(ask).unwrap(), "user space does not answer");
}
