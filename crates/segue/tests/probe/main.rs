//! `segue probe`: the real binary as client and listener over the loopback device.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "../shared/exposition.rs"]
mod exposition;
mod icmp;
mod options;
mod page;
mod peers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use segue_wire::{Header, PacketType, Probe, ProbeKey};
use serde_json::Value;

/// Two seconds of patience, so that a busy machine does not look like a dead path.
const PATIENT: [&str; 4] = ["-i", "20ms", "-k", "100"];

#[test]
fn every_request_is_answered_and_the_summary_has_every_key() {
    for (listen, asked) in
        [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]"), ("[::]:0", "127.0.0.1")]
    {
        let listener = Listener::start(&["--listen", listen]);
        let target = format!("{asked}:{}", listener.address.port());
        let (status, lines) = client(&[&target, "-c", "25", "--loss-interval", "5"]);
        assert_eq!(status, 0, "{lines:?}");

        let opening = &lines[0];
        assert_eq!(
            (&opening["type"], &opening["target"]),
            (&"start".into(), &target.clone().into())
        );
        assert_eq!((&opening["interface"], &opening["count"]), (&"lo".into(), &25.into()));
        assert_eq!(
            (&opening["interval_ms"], &opening["protocol"]),
            (&20.0.into(), &"segue".into())
        );

        let samples: Vec<&Value> = lines.iter().filter(|l| l["type"] == "sample").collect();
        assert_eq!(samples.len(), 25);
        assert!(samples.iter().all(|s| s["rtt_ms"].as_f64().is_some_and(|ms| ms >= 0.0)));
        assert!(samples.iter().any(|s| s["owl_up"] == 0.0 && s["owl_down"] == 0.0));
        assert!(samples.iter().all(|s| s["target"] == target));

        let [summary] = targets(&lines)[..] else { panic!("{lines:?}") };
        assert_eq!((&summary["sent"], &summary["received"]), (&25.into(), &25.into()));
        for way in ["up", "down"] {
            let ipdv = &summary["ipdv_ms"][way];
            let of = |key: &str| ipdv[key].as_f64().unwrap();
            assert!(0.0 <= of("p50") && of("p50") <= of("p99") && of("p99") <= of("max"), "{ipdv}");
            assert!(of("max") < summary["rtt_ms"]["max"].as_f64().unwrap() + 1e3, "{summary}");
        }
        assert_eq!(summary["icmp"], serde_json::json!([]));
        for key in ["min", "avg", "max", "ewma", "p50", "p99", "stddev"] {
            assert!(
                summary["rtt_ms"][key].as_f64().is_some_and(|ms| ms >= 0.0),
                "{key}: {summary}"
            );
        }
        for key in ["owl_up", "owl_down", "rtl"] {
            assert_eq!(summary[key], 0.0, "{key}: {summary}");
        }
        for key in ["transitions", "duplicates", "reordered"] {
            assert_eq!(summary[key], 0, "{key}: {summary}");
        }
        assert_eq!(summary["state"], "up");
        assert!(["kernel", "mixed", "user"].contains(&summary["stamp"].as_str().unwrap()));

        // The listener reports the same counts, and a round trip that it measured itself.
        let told = listener.stop();
        let [seen] = &told["clients"].as_array().unwrap()[..] else { panic!("{told}") };
        assert_eq!((&seen["received"], &seen["sent"]), (&25.into(), &25.into()));
        assert_eq!((&seen["owl_up"], &seen["owl_down"]), (&0.0.into(), &0.0.into()));
        assert!(seen["rtt_ms"]["avg"].as_f64().unwrap() >= 0.0);
        assert_eq!(told["drops"], serde_json::json!({}));
    }
}

#[test]
fn of_two_targets_the_dead_one_is_down_and_makes_the_exit_status_one() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let alive = listener.address.to_string();
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dead = hole.local_addr().unwrap().to_string();
    let (status, lines) =
        segue_json(&["probe", &alive, &dead, "-c", "5", "-i", "50ms", "-k", "40", "--json"]);
    assert_eq!(status, 1);
    let [first, second] = targets(&lines)[..] else { panic!("{lines:?}") };
    assert_eq!((&first["target"], &first["received"]), (&alive.into(), &5.into()));
    assert_eq!((&second["target"], &second["received"]), (&dead.into(), &0.into()));
    assert_eq!((&second["state"], &second["rtl"]), (&"down".into(), &1.0.into()));
    assert_eq!(second["rtt_ms"]["avg"], Value::Null);
}

#[test]
fn a_client_sees_its_listener_die() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let address = listener.address.to_string();
    let mut probing = Probing::start(&[&address, "-i", "50ms", "-k", "20"]);
    probing.until(|line| line["type"] == "sample" && line["seq"].as_u64() >= Some(5));
    drop(listener);
    probing.until(|line| line["state"] == "down");
    let summary = probing.interrupt();
    let [target] = targets(&summary)[..] else { panic!("{summary:?}") };
    assert_eq!(target["state"], "down");
    assert!(target["transitions"].as_u64() >= Some(1));
    assert!(target["sent"].as_u64() > target["received"].as_u64());
    assert!(target["rtl"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_listener_that_starts_again_makes_no_absurd_loss() {
    // Use an address of no other test, so that no other process takes the port in between.
    let first = Listener::start(&["--listen", "127.77.1.1:0"]);
    let address = first.address.to_string();
    let mut probing = Probing::start(&[
        &address,
        "--loss-interval",
        "2",
        PATIENT[0],
        PATIENT[1],
        PATIENT[2],
        PATIENT[3],
    ]);
    let fifty = |line: &Value| line["type"] == "sample" && line["seq"].as_u64() >= Some(50);
    probing.until(fifty);
    drop(first);
    let second = Listener::start(&["--listen", &address]);
    let last = probing.until(|line| line["type"] == "sample")["seq"].as_u64().unwrap();
    probing.until(|line| line["seq"].as_u64() >= Some(last + 20));
    let lines = probing.interrupt();
    let [target] = targets(&lines)[..] else { panic!("{lines:?}") };
    let out = target["sent"].as_u64().unwrap() - target["received"].as_u64().unwrap();
    // Requests sent without a listener were lost together with the first listener's counters, so
    // neither direction can report a higher loss.
    let most = out as f64 / target["sent"].as_f64().unwrap() + 0.02;
    for way in ["owl_up", "owl_down"] {
        let loss = target[way].as_f64().unwrap();
        assert!((0.0..=most).contains(&loss), "{way} {loss}, at most {most}: {target}");
    }
    drop(second);
}

#[test]
fn what_is_no_request_is_counted_by_reason_and_changes_nothing() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(listener.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let key = ProbeKey::default();
    let header = Header::new(PacketType::Request, 3, 7, 9);
    let good = |seq| {
        Probe { seq, t_sc: seq, sc: seq, t_ka_ms: 200, ..Probe::default() }.seal(&header, &key)
    };

    // A session of this test, before and after the bad packets.
    let ask = |seq| {
        socket.send(&good(seq)).unwrap();
        let mut answer = [0; 2048];
        let length = socket.recv(&mut answer).unwrap();
        // An answer is never longer than its request, and matches it.
        assert_eq!(length, Probe::PACKET_LEN);
        let probe = Probe::open(&answer[..length], &key).unwrap();
        assert_eq!((probe.seq, probe.sc, probe.ss, probe.r), (seq, seq, seq, seq));
    };
    ask(1);
    let packet = good(2);
    for length in 0..packet.len() {
        socket.send(&packet[..length]).unwrap();
    }
    let mut flipped = 0;
    for bit in 0..packet.len() * 8 {
        let mut bad = packet;
        bad[bit / 8] ^= 1 << (bit % 8);
        socket.send(&bad).unwrap();
        flipped += 1;
    }
    let response = Header { packet_type: PacketType::Response, ..header };
    socket.send(&Probe::default().seal(&response, &key)).unwrap();
    socket.send(&Probe::default().seal(&header, &ProbeKey([1; 16]))).unwrap();
    socket.send(&vec![0xff; 60_000]).unwrap();
    socket.send(&good(1)).unwrap();
    ask(2);

    let told = listener.stop();
    let [seen] = &told["clients"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!(
        (&seen["received"], &seen["sent"], &seen["duplicates"]),
        (&2.into(), &2.into(), &1.into())
    );
    let drops = told["drops"].as_object().unwrap();
    let count = |reason: &str| drops.get(reason).map_or(0, |n| n.as_u64().unwrap());
    assert_eq!(count("truncated"), packet.len() as u64);
    assert_eq!(count("replay"), 1);
    // Version and type have four bits each (one flip yields a valid type with unsuitable flags),
    // and a request allows one of eight flags; the authenticator catches every other flip.
    let sum: u64 = drops.values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(sum, packet.len() as u64 + flipped + 4, "{told}");
    assert_eq!(count("version"), 4 + 1, "{told}");
    assert!(count("mac") > 400 && count("type") >= 4 && count("field") >= 7, "{told}");
}

#[test]
fn a_client_that_moves_to_another_port_stays_the_same_session() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let header = Header::new(PacketType::Request, 3, 7, 9);
    for seq in 1..=2 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let probe = Probe { seq, t_sc: seq, sc: seq, ..Probe::default() };
        socket.send_to(&probe.seal(&header, &ProbeKey::default()), listener.address).unwrap();
        let mut answer = [0; 100];
        let length = socket.recv(&mut answer).unwrap();
        assert_eq!(Probe::open(&answer[..length], &ProbeKey::default()).unwrap().r, seq);
    }
    assert_eq!(listener.stop()["clients"].as_array().unwrap().len(), 1);
}

#[test]
fn a_key_must_be_the_same_at_both_ends() {
    let (_directory, key) = key_file("000102030405060708090a0b0c0d0e0f\n");
    let key = key.as_str();
    let listener = Listener::start(&["--listen", "127.0.0.1:0", "--key", key]);
    let address = listener.address.to_string();
    assert_eq!(client(&[&address, "-c", "2", "--key", key]).0, 0);
    let (status, _) =
        segue_json(&["probe", &address, "-c", "2", "-i", "20ms", "-k", "1", "--json"]);
    assert_eq!(status, 1);
    assert_eq!(listener.stop()["drops"]["mac"], 2);
}

#[test]
fn bad_input_gets_one_line_and_exit_status_two() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let open = file("open", "000102030405060708090a0b0c0d0e0f", 0o644);
    let short = file("short", "0001", 0o600);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, wanted) in [
        (vec!["host.invalid"], "cannot resolve host.invalid: "),
        (vec!["127.0.0.1:x"], "127.0.0.1:x: the port must be a number"),
        (vec!["127.0.0.1", "-6"], "127.0.0.1 has no IPv6 address"),
        (
            vec!["127.0.0.1", "-I", "sg-none"],
            "there is no interface \"sg-none\" here; there are lo",
        ),
        (vec!["127.0.0.1", "-i", "0s"], "the interval must be 1 ms or longer"),
        (vec!["127.0.0.1", "--key", &open], "can be read by others; run: chmod 600"),
        (vec!["127.0.0.1", "--key", &short], "must hold 32 hexadecimal digits"),
        (vec!["127.0.0.1", "--key", "/nonexistent/key"], "key file /nonexistent/key: No such file"),
        (vec!["127.0.0.1", "--dscp", "gold"], "gold is no DSCP"),
        (vec!["127.0.0.1", "--metrics", "x"], "--metrics x: not an address"),
        (vec!["--listen", &taken, "--allow", "10.0.0.0/33"], "--allow 10.0.0.0/33: not an address"),
        (vec!["--listen", &taken], "is in use by another program"),
        (vec!["--listen", "host.invalid"], "host.invalid is no address to listen on"),
    ] {
        let output = segue(&[&["probe"], &args[..]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.starts_with("segue: ") && error.contains(wanted), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_plain_output_has_a_line_for_each_sample_and_a_summary() {
    let listener = Listener::start(&["--listen", "127.0.0.1:0"]);
    let address = listener.address.to_string();
    let output = segue(&["probe", &address, "-c", "3", "-i", "20ms", "-k", "100"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|l| l.contains(": seq=")).count(), 3, "{text}");
    assert!(text.contains("3 sent, 3 received, loss 0.00 %"), "{text}");
    assert!(text.contains("rtt min/avg/max/ewma/p50/p99 = "), "{text}");
    assert!(text.contains("\nrtt standard deviation = "), "{text}");
    let opening = format!(
        "probing {address} over lo from 127.0.0.1: compact probe, 56 bytes every 20 ms, 3 times\n"
    );
    assert!(text.starts_with(&opening), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no escape sequences: {text}");
    let quiet = segue(&["probe", &address, "-c", "1", "-i", "20ms", "-k", "100", "-q"]);
    assert!(quiet.stdout.starts_with(b"\n--- "), "the summary alone");
}

/// A file with a key, and its directory.
fn key_file(digits: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, digits).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (directory, name)
}

/// Runs a client with [`PATIENT`]; returns its exit status and its JSON lines.
fn client(args: &[&str]) -> (i32, Vec<Value>) {
    segue_json(&[&["probe"], args, &PATIENT, &["--json"]].concat())
}

fn segue_json(args: &[&str]) -> (i32, Vec<Value>) {
    let output = segue(args);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), lines)
}

fn segue(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue")).env("COLUMNS", "1000").args(args).output().unwrap()
}

/// The targets in the summary, which is the last line and the only one of its type.
fn targets(lines: &[Value]) -> Vec<&Value> {
    let summaries = lines.iter().filter(|line| line["type"] == "summary").count();
    assert_eq!(summaries, 1, "{lines:?}");
    lines.last().unwrap()["targets"].as_array().unwrap().iter().collect()
}

/// A background listener. Dropping it ends the process.
struct Listener {
    process: Process,
    address: SocketAddr,
    metrics: Option<String>,
}

impl Listener {
    fn start(args: &[&str]) -> Listener {
        let mut process = Process::start(args);
        let ready = process.line();
        assert_eq!(ready["type"], "listening", "{ready}");
        let address = ready["address"].as_str().unwrap().parse().unwrap();
        let metrics = ready["metrics"].as_str().map(str::to_owned);
        Listener { process, address, metrics }
    }

    /// Interrupts the listener; returns its summary.
    fn stop(mut self) -> Value {
        self.process.interrupt().pop().unwrap()
    }
}

/// A background client. Dropping it ends the process.
struct Probing(Process);

impl Probing {
    fn start(args: &[&str]) -> Probing {
        Probing::plain(&[args, &["-w", "60s"]].concat())
    }

    /// Starts a client with only these arguments.
    fn plain(args: &[&str]) -> Probing {
        Probing(Process::start(args))
    }

    /// Reads up to the wanted line; fails if the client ends before.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.0.line();
            if wanted(&line) {
                return line;
            }
        }
    }

    fn interrupt(mut self) -> Vec<Value> {
        self.0.interrupt()
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.0.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(args: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .env("COLUMNS", "1000")
            .args([&["probe", "--json"], args].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Process { child, output }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap();
        assert!(read > 0, "the process ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Sends the signal of Ctrl-C; returns the remaining lines.
    fn interrupt(&mut self) -> Vec<Value> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::io::stderr().flush();
    }
}
