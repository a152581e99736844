//! `segue probe` between namespaces, compared with the emulator's record of each packet: the listener ([`listener`]),
//! and the program in the kernel ([`kernel`]). The tests need root; otherwise each prints a note and does nothing.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod kernel;
mod listener;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use segue_clock::Span;
use segue_ip::Prefix;
use segue_lab::topology::End;
use segue_lab::{Direction, EmulatorSpec, Fate, Lab, Record};
use segue_netem::{LinkSpec, Loss};
use serde_json::Value;

/// Whether the tests may run; prints a note if not.
fn may_run() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Nodes a and b, and between them the emulated link `link` with this delay in milliseconds and these losses.
fn network(tag: &str, [near, far]: [&str; 2], ms: u64, [up, down]: [f64; 2]) -> Lab {
    let mut lab = nodes(tag);
    let (near, far) = ([near.parse().unwrap()], [far.parse().unwrap()]);
    let link = |loss| LinkSpec {
        delay: Span::from_millis(ms),
        loss: Loss::Bernoulli(loss),
        ..LinkSpec::default()
    };
    let spec = EmulatorSpec { up: link(up), down: link(down), seed: 9, log: true };
    let [a, b] = ends(&near, &far);
    lab.emulate("link", a, b, &spec).unwrap();
    lab
}

/// Nodes a and b, directly connected.
fn direct(tag: &str, near: &[Prefix], far: &[Prefix]) -> Lab {
    let mut lab = nodes(tag);
    let [a, b] = ends(near, far);
    lab.connect(a, b).unwrap();
    lab
}

fn nodes(tag: &str) -> Lab {
    let mut lab = Lab::new(tag).unwrap();
    lab.add_node("a", false).unwrap();
    lab.add_node("b", false).unwrap();
    lab
}

fn ends<'a>(near: &'a [Prefix], far: &'a [Prefix]) -> [End<'a>; 2] {
    [
        End { node: "a", device: "a0", addresses: near },
        End { node: "b", device: "b0", addresses: far },
    ]
}

#[test]
fn a_probe_goes_on_when_its_interface_comes_anew() {
    if !may_run() {
        return;
    }
    for stamp in [false, true] {
        let (near, far) = (["10.1.0.1/24".parse().unwrap()], ["10.1.0.2/24".parse().unwrap()]);
        let lab = direct("anew", &near, &far);
        let mode = if stamp { &["--stamp"][..] } else { &[] };
        let port = if stamp { "862" } else { "5005" };
        let mut listener = Listening::start(&lab, mode);
        let mut command = lab.node("a").unwrap().command(env!("CARGO_BIN_EXE_segue"));
        command
            .args(["probe", "-I", "a0", "-i", "50ms", "-k", "20", "-w", "20s", "--json"])
            .args(mode);
        let mut probe = command
            .arg(format!("10.1.0.2:{port}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(probe.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut sample = |what: &str| {
            let is_sample = |line: &String| line.contains(r#""type":"sample""#);
            assert!(lines.any(|line| is_sample(&line)), "no sample {what}");
        };
        let ip = |node: &str, command: &str| {
            let done = lab.node(node).unwrap().command("ip").args(command.split(' ')).status();
            assert!(done.unwrap().success(), "ip {command}");
        };
        sample("at first");
        ip("a", "link del a0");
        std::thread::sleep(std::time::Duration::from_millis(300));
        // Create the pair in one namespace first.
        ip("a", "link add a0 type veth peer name b0");
        let other = lab.node("b").unwrap().name().unwrap();
        ip("a", &format!("link set b0 netns {other}"));
        ip("a", "addr add 10.1.0.1/24 dev a0");
        ip("b", "addr add 10.1.0.2/24 dev b0");
        ip("b", "link set b0 up");
        ip("a", "link set a0 up");
        (0..5).for_each(|_| sample("over the interface that came anew"));
        probe.kill().unwrap();
        probe.wait().unwrap();
        listener.stop();
    }
}

/// The summary of a client in node a with two seconds of patience.
fn measure(lab: &Lab, options: &[&str]) -> Value {
    let mut command = lab.node("a").unwrap().command(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.args(["probe", "-i", "10ms", "-k", "200", "--json"]).args(options);
    let output = command.output().unwrap();
    last(&String::from_utf8(output.stdout).unwrap())
}

/// Checks the reports of client and listener on compact probes against the emulator's record.
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
    // The counters cover the packets from the first exchange to the last.
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

/// The compact probes of one direction, in order of arrival.
fn of(log: &[Record], direction: Direction) -> Vec<&Record> {
    let mut records: Vec<&Record> =
        log.iter().filter(|r| r.direction == direction && r.is_udp(5005)).collect();
    records.sort_by_key(|r| r.arrival);
    assert!(records.iter().all(|r| r.fate != Fate::SendFailed), "the emulator failed");
    records
}

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// `segue probe --listen` in node b. Dropping it ends the process.
struct Listening(Child);

impl Listening {
    fn start(lab: &Lab, options: &[&str]) -> Listening {
        let mut command: Command = lab.node("b").unwrap().command(env!("CARGO_BIN_EXE_segue"));
        command.env("COLUMNS", "1000");
        command.args(["probe", "--listen", "--json"]).args(options).stdout(Stdio::piped());
        let mut listening = Listening(command.spawn().unwrap());
        // Read byte by byte, so that no later output is consumed.
        let output = listening.0.stdout.as_mut().unwrap();
        let mut ready = String::new();
        BufReader::with_capacity(1, output).read_line(&mut ready).unwrap();
        assert!(ready.contains("listening"), "{ready}");
        listening
    }

    /// Ends the listener; returns its summary.
    fn stop(&mut self) -> Value {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut text = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        last(&text)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
