//! `segue probe` against the emulator's own record of what it did to each packet. Needs root; without
//! it the test says so and does nothing.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use segue_clock::Span;
use segue_lab::topology::End;
use segue_lab::{Direction, EmulatorSpec, Fate, Lab, Record};
use segue_linux::link::Prefix;
use segue_netem::{LinkSpec, Loss};
use serde_json::Value;

const REQUESTS: u64 = 500;

#[test]
fn loss_counters_equal_the_emulators_drops_and_rtt_is_the_delay_it_imposed() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    for (tag, near, far) in
        [("probea", "10.61.4.1/24", "10.61.4.2/24"), ("probeb", "fd61:4::1/64", "fd61:4::2/64")]
    {
        let lab = network(tag, near, far);
        let to: IpAddr = far.split('/').next().unwrap().parse().unwrap();
        let mut listener = Listener::start(&lab);
        let count = REQUESTS.to_string();
        let client = lab
            .node("a")
            .unwrap()
            .command(env!("CARGO_BIN_EXE_segue"))
            .args(["probe", &to.to_string(), "-i", "10ms", "-k", "200", "--json", "-c", &count])
            .output()
            .unwrap();
        let summary = last(&String::from_utf8(client.stdout).unwrap());
        let told = listener.stop();
        let log = lab.emulator("link").unwrap().take_log();
        check(&summary["targets"][0], &told["clients"][0], &log);
    }
}

/// What the client and the listener say against what the emulator did.
fn check(client: &Value, listener: &Value, log: &[Record]) {
    let (up, down) = (of(log, Direction::Up), of(log, Direction::Down));
    let delivered = |records: &[&Record]| records.iter().filter(|r| r.delay().is_some()).count();
    assert_eq!(client["sent"], up.len(), "{client}");
    assert_eq!(listener["received"], delivered(&up), "{listener}");
    assert_eq!(listener["sent"], down.len(), "{listener}");
    assert_eq!(client["received"], delivered(&down), "{client}");

    // Each request that arrived has its response in the other direction, in the same order.
    let mut responses = down.iter().enumerate();
    let mut answered = Vec::new();
    for (request, record) in up.iter().enumerate() {
        let Some(there) = record.delay() else { continue };
        let (response, record) = responses.next().unwrap();
        if let Some(back) = record.delay() {
            answered.push((request, response, there + back));
        }
    }
    // The counters speak about the packets from the first exchange to the last.
    let (first, last) = (answered[0], answered[answered.len() - 1]);
    for (packets, all, from, to) in [
        (&client["packets_up"], &up, first.0, last.0),
        (&client["packets_down"], &down, first.1, last.1),
    ] {
        let between = &all[from + 1..=to];
        assert_eq!(packets["sent"], between.len(), "{client}");
        assert_eq!(packets["received"], delivered(between), "{client}");
    }

    let mut imposed: Vec<f64> = answered.iter().map(|(.., rtt)| rtt.as_millis_f64()).collect();
    imposed.sort_by(f64::total_cmp);
    let imposed = imposed[(imposed.len() - 1) / 2];
    let measured = client["rtt_ms"]["p50"].as_f64().unwrap();
    println!("median RTT: imposed {imposed:.3} ms, measured {measured:.3} ms");
    let error = (measured - imposed).abs();
    assert!(error <= 1.0 && error <= 0.02 * imposed, "imposed {imposed}, measured {measured} ms");
}

/// The probes of one direction, in the order in which they came.
fn of(log: &[Record], direction: Direction) -> Vec<&Record> {
    let mut records: Vec<&Record> =
        log.iter().filter(|r| r.direction == direction && r.is_udp(5005)).collect();
    records.sort_by_key(|r| r.arrival);
    assert!(records.iter().all(|r| r.fate != Fate::SendFailed), "the emulator failed");
    records
}

fn network(tag: &str, near: &str, far: &str) -> Lab {
    let mut lab = Lab::new(tag).unwrap();
    lab.add_node("a", false).unwrap();
    lab.add_node("b", false).unwrap();
    let (near, far): ([Prefix; 1], [Prefix; 1]) = ([near.parse().unwrap()], [far.parse().unwrap()]);
    let a = End { node: "a", device: "a0", addresses: &near };
    let b = End { node: "b", device: "b0", addresses: &far };
    let link = |ms, loss| LinkSpec {
        delay: Span::from_millis(ms),
        loss: Loss::Bernoulli(loss),
        ..LinkSpec::default()
    };
    let spec = EmulatorSpec { up: link(30, 0.05), down: link(30, 0.1), seed: 7, log: true };
    lab.emulate("link", a, b, &spec).unwrap();
    lab
}

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// A listener in node b, gone with the value.
struct Listener(Child);

impl Listener {
    fn start(lab: &Lab) -> Listener {
        let mut command: Command = lab.node("b").unwrap().command(env!("CARGO_BIN_EXE_segue"));
        command.args(["probe", "--listen", "--json"]).stdout(Stdio::piped());
        let mut listener = Listener(command.spawn().unwrap());
        // Byte by byte, so that nothing of what follows is taken away.
        let output = listener.0.stdout.as_mut().unwrap();
        let mut ready = String::new();
        BufReader::with_capacity(1, output).read_line(&mut ready).unwrap();
        assert!(ready.contains("listening"), "{ready}");
        listener
    }

    fn stop(&mut self) -> Value {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut text = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        last(&text)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
