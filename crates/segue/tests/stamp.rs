//! `segue probe --stamp`: the real binary at both ends, with the packets in between checked by
//! tshark.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// Two seconds of patience, so that a busy machine does not look like a dead path.
const PATIENT: [&str; 4] = ["-i", "20ms", "-k", "100"];

#[test]
fn every_request_is_answered_over_both_families() {
    for (listen, asked) in
        [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]"), ("[::]:0", "127.0.0.1")]
    {
        let reflector = Reflector::start(&["--listen", listen]);
        let (status, summary) = measure(&format!("{asked}:{}", reflector.port()), &[]);
        assert_eq!(status, 0, "{summary}");
        let target = &summary["targets"][0];
        assert_eq!((&target["sent"], &target["received"]), (&10.into(), &10.into()));
        assert!(target["rtt_ms"]["avg"].as_f64().unwrap() >= 0.0);
        assert_eq!((&target["rtl"], &target["reflector"]["ttl"]), (&0.0.into(), &255.into()));
        let told = reflector.stop();
        assert_eq!(
            (&told["sessions"][0]["received"], &told["sessions"][0]["sent"]),
            (&10.into(), &10.into())
        );
        assert_eq!(told["drops"], serde_json::json!({}));
    }
}

#[test]
fn extensions_tell_counters_classes_and_when_answers_left_in_both_modes() {
    let key = key_file("000102030405060708090a0b0c0d0e0f");
    let key = ["--key", key.path().to_str().unwrap()];
    for key in [&[][..], &key] {
        let reflector = Reflector::start(&[&["--listen", "127.0.0.1:0"], key].concat());
        let options = [
            "--direct",
            "--follow-up",
            "--reply-dscp",
            "af11",
            "--dscp",
            "ef",
            "--session-id",
            "7",
            "-s",
            "300",
        ];
        let (status, summary) =
            measure(&format!("127.0.0.1:{}", reflector.port()), &[&options[..], key].concat());
        assert_eq!(status, 0, "{summary}");
        let target = &summary["targets"][0];
        assert_eq!((&target["owl_up"], &target["owl_down"]), (&0.0.into(), &0.0.into()));
        assert_eq!(target["packets_up"], serde_json::json!({"sent": 9, "received": 9}));
        let told = &target["reflector"];
        assert_eq!((&told["dscp_up"], &told["dscp_down"]), (&46.into(), &10.into()), "{told}");
        assert_eq!(told["dscp_refused"], false);
        assert!(told["follow_up_ms"].as_f64().unwrap() >= 0.0, "{told}");
        for key in ["unrecognised", "malformed", "integrity", "implausible"] {
            assert_eq!(told[key], 0, "{key}: {told}");
        }
        assert_eq!(reflector.stop()["sessions"][0]["ssid"], 7);
    }
}

#[test]
fn a_class_of_network_control_is_refused() {
    let reflector = Reflector::start(&["--listen", "127.0.0.1:0"]);
    let (_, summary) =
        measure(&format!("127.0.0.1:{}", reflector.port()), &["--reply-dscp", "cs6"]);
    assert_eq!(summary["targets"][0]["reflector"]["dscp_refused"], true);
}

#[test]
fn without_the_right_key_there_is_no_answer_and_the_reason_is_counted() {
    let (right, wrong) = (key_file(&"42".repeat(32)), key_file(&"43".repeat(32)));
    let (right, wrong) = (right.path().to_str().unwrap(), wrong.path().to_str().unwrap());
    let reflector = Reflector::start(&["--listen", "127.0.0.1:0", "--key", right]);
    let target = format!("127.0.0.1:{}", reflector.port());
    let quick = ["-k", "1"];
    assert_eq!(measure(&target, &[&["--key", wrong], &quick[..]].concat()).0, 1);
    assert_eq!(measure(&target, &quick).0, 1);
    // This is answered after the others, which therefore have been refused by then.
    assert_eq!(measure(&target, &["--key", right]).0, 0);
    assert_eq!(reflector.stop()["drops"], serde_json::json!({"mac": 10, "truncated": 10}));
}

#[test]
fn answers_that_are_too_short_are_counted_and_told_with_their_length() {
    let short = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = short.local_addr().unwrap().to_string();
    // A hasty reading of RFC 8762 leads to such answers: the last field with its padding is
    // missing.
    std::thread::spawn(move || {
        let mut buffer = [0; 1_500];
        while let Ok((_, from)) = short.recv_from(&mut buffer) {
            short.send_to(&buffer[..40], from).unwrap();
        }
    });
    let args = ["probe", "--stamp", &target, "-c", "3", "-i", "20ms"];
    let output = segue(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("3 requests sent, none answered"), "{text}");
    let wanted = "\n3 answers too short for STAMP (41 octets needed, 40 came)\n";
    assert!(text.contains(wanted), "{text}");
    let (_, summary) = measure(&target, &["-k", "2"]);
    assert_eq!(summary["targets"][0]["drops"]["truncated"], 10, "{summary}");
}

#[test]
fn a_path_without_answers_ends_with_a_clear_line_and_status_one() {
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = hole.local_addr().unwrap().to_string();
    let output = segue(&["probe", "--stamp", &target, "-c", "3", "-i", "20ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("3 requests sent, none answered"), "{text}");
}

#[test]
fn a_stateless_reflector_tells_no_direction() {
    let reflector = Reflector::start(&["--listen", "127.0.0.1:0", "--stateless"]);
    let (_, summary) = measure(&format!("127.0.0.1:{}", reflector.port()), &[]);
    assert_eq!(summary["targets"][0]["owl_up"], Value::Null);
}

/// TTL of requests that leave the relay; our sender's TTL is 255.
const RELAY_TTL: u32 = 77;

/// Emulates a foreign sender with hand-made bytes.
#[test]
fn answers_are_as_long_as_requests_and_numbered_by_session() {
    let reflector = Reflector::start(&["--listen", "127.0.0.1:0"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(("127.0.0.1", reflector.port())).unwrap();
    let mut numbers = Vec::new();
    // TWAMP Light's length, the base packet, old-style padding, an unknown extension.
    for (n, len) in [(0u8, 41), (1, 44), (2, 100), (3, 60)] {
        let mut request = vec![0; len];
        request[3] = 10 + n;
        request[4..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        if n == 3 {
            request[44..48].copy_from_slice(&[0x80, 200, 0, 12]);
        }
        socket.send(&request).unwrap();
        let mut answer = [0; 200];
        assert_eq!(socket.recv(&mut answer).unwrap(), len);
        numbers.push(answer[3]);
        assert_eq!(answer[24..36], request[..12], "the request's number and time come back");
        assert!(answer[4..12] >= answer[16..24], "T3 is not before T2");
        if n == 3 {
            assert_eq!(answer[44..len], request[44..], "marked as not understood");
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3]);
    socket.send(&[0; 40]).unwrap();
    // This is answered after the short request, which therefore has been refused by then.
    socket.send(&[0; 44]).unwrap();
    socket.recv(&mut [0; 200]).unwrap();
    assert_eq!(reflector.stop()["drops"], serde_json::json!({"truncated": 1}));
}

#[test]
fn tshark_finds_every_packet_of_both_ends_right() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return;
    }
    let reflector = Reflector::start(&["--listen", "127.0.0.1:0"]);
    let relay = Relay::start(reflector.port());
    let options =
        [&[][..], &["--direct", "--follow-up", "--reply-dscp", "10", "--session-id", "258"]];
    for options in options {
        assert_eq!(measure(&format!("127.0.0.1:{}", relay.port), options).0, 0);
    }
    let packets = relay.stop();
    assert_eq!(packets.len(), 40);
    let lines = dissect(&packets);
    for (n, (line, (answer, bytes))) in lines.iter().zip(&packets).enumerate() {
        let [malformed, checksum, seq, at, scale, receive, sender_seq, sender_at, ttl] = &line[..]
        else {
            panic!("{line:?}")
        };
        assert_eq!((malformed.as_str(), checksum.as_str()), ("", "1"), "packet {n}: {line:?}");
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(seq.parse(), Ok(word(0)), "packet {n}");
        assert!(at.contains("UTC") && !scale.is_empty(), "packet {n}: {line:?}");
        if *answer {
            assert!(receive.contains("UTC"), "packet {n}: {line:?}");
            assert_eq!(sender_seq.parse(), Ok(word(24)), "packet {n}");
            // The values match the preceding request.
            assert_eq!((sender_at, &lines[n - 1][2]), (&lines[n - 1][3], sender_seq), "packet {n}");
            assert_eq!(ttl.as_str(), RELAY_TTL.to_string(), "packet {n}");
        }
    }
}

/// One line of fields for each packet.
fn dissect(packets: &[(bool, Vec<u8>)]) -> Vec<Vec<String>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture(packets)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-n",
        "-d",
        "udp.port==862,twamp.test",
        "-o",
        "udp.check_checksum:TRUE",
        "-T",
        "fields",
        "-r",
    ]);
    tshark.arg(file.path());
    for field in ["_ws.malformed", "udp.checksum.status"] {
        tshark.args(["-e", field]);
    }
    for field in [
        "seq_number",
        "timestamp",
        "error_estimate.scale",
        "receive_timestamp",
        "sender_seq_number",
        "sender_timestamp",
        "sender_ttl",
    ] {
        tshark.args(["-e", &format!("twamp.test.{field}")]);
    }
    let output = tshark.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |line: &str| line.split('\t').map(str::to_owned).collect();
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    assert_eq!(lines.len(), packets.len(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    lines
}

/// A capture file of raw IPv4 packets (link type 101): requests to port 862, answers from it.
fn capture(packets: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (n, (answer, payload)) in (0u32..).zip(packets) {
        let udp_len = (8 + payload.len()) as u16;
        let (near, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let (from, to) = if *answer { (far, near) } else { (near, far) };
        let (sport, dport) = if *answer { (862u16, 4000u16) } else { (4000, 862) };
        let mut udp: Vec<u8> =
            [sport, dport, udp_len, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
        udp.extend(payload);
        let pseudo = [&from[..], &to, &[0, 17], &udp_len.to_be_bytes(), &udp].concat();
        udp[6..8].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        let total = (20 + udp_len).to_be_bytes();
        let mut ip = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
        ip.extend(from);
        ip.extend(to);
        let sum = checksum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        let len = (ip.len() + udp.len()) as u32;
        [n, 0, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(ip);
        file.extend(udp);
    }
    file
}

fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Relays packets between a sender and a reflector and keeps a copy of every payload, in order.
struct Relay {
    port: u16,
    copies: mpsc::Receiver<(bool, Vec<u8>)>,
}

impl Relay {
    fn start(to: u16) -> Relay {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        back.connect(("127.0.0.1", to)).unwrap();
        back.set_ttl(RELAY_TTL).unwrap();
        back.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let port = front.local_addr().unwrap().port();
        let (sender, copies) = mpsc::channel();
        // The thread ends with the test's process, or when the receiver of the copies is gone.
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = front.recv_from(&mut buffer) {
                back.send(&buffer[..n]).unwrap();
                if sender.send((false, buffer[..n].to_vec())).is_err() {
                    break;
                }
                let Ok(n) = back.recv(&mut buffer) else { break };
                let _ = sender.send((true, buffer[..n].to_vec()));
                front.send_to(&buffer[..n], from).unwrap();
            }
        });
        Relay { port, copies }
    }

    fn stop(self) -> Vec<(bool, Vec<u8>)> {
        self.copies.try_iter().collect()
    }
}

fn segue(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.args(args);
    command
}

/// Sends ten requests; returns exit status and summary.
fn measure(target: &str, options: &[&str]) -> (i32, Value) {
    let mut command = segue(&["probe", "--stamp", target, "-c", "10", "--json"]);
    let patience = if options.contains(&"-k") { &PATIENT[..2] } else { &PATIENT };
    let output = command.args(patience).args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_else(|| panic!("{errors}"));
    (output.status.code().unwrap(), serde_json::from_str(last).unwrap())
}

fn key_file(digits: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(digits.as_bytes()).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// A reflector. Dropping it ends the process.
struct Reflector {
    child: Child,
    address: SocketAddr,
}

impl Reflector {
    fn start(options: &[&str]) -> Reflector {
        let mut command = segue(&["probe", "--stamp", "--json"]);
        let mut child = command.args(options).stdout(Stdio::piped()).spawn().unwrap();
        // Read byte by byte, so that no later output is consumed.
        let mut ready = String::new();
        let output = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, output).read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let address = ready["address"].as_str().unwrap().parse().unwrap();
        Reflector { child, address }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    fn stop(mut self) -> Value {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut text = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
