//! User-space measurements on the same wire: `segue probe`, irtt, and a simple echo.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use segue_lab::Lab;
use serde_json::Value;

use super::Reported;
use super::capture::{NODES, SERVER};
use crate::stage::patiently;

pub(super) const PROBE_PORT: u16 = 5_007;
pub(super) const IRTT_PORT: u16 = 2_112;
pub(super) const ECHO_PORT: u16 = 7_777;

/// A server process. Dropping it kills the process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `segue probe` at both ends; it states an error bound for each sample.
pub(super) fn segue_probe(lab: &Lab, count: u32, interval: Duration) -> Reported {
    let segue = env!("CARGO_BIN_EXE_segue");
    let mut listen = lab.node(NODES[1]).unwrap().command(segue);
    listen.args(["probe", "--json", "--listen", &format!("{SERVER}:{PROBE_PORT}")]);
    let mut server = Server(listen.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    let output = server.0.stdout.as_mut().unwrap();
    BufReader::with_capacity(1, output).read_line(&mut ready).unwrap();
    assert!(ready.contains("listening"), "{ready}");
    let mut client = lab.node(NODES[0]).unwrap().command(segue);
    client.args(["probe", "--json", "-k", "250", "-c", &count.to_string(), "-i"]);
    client.arg(format!("{}ms", interval.as_millis())).arg(format!("{SERVER}:{PROBE_PORT}"));
    let output = client.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let samples = lines.filter(|line| line["type"] == "sample");
    samples
        .map(|line| {
            let us = |field: &str| line[field].as_f64().unwrap() * 1e3;
            (line["seq"].as_u64().unwrap() as u32, (us("rtt_ms"), Some(us("error_ms"))))
        })
        .collect()
}

/// Runs irtt. The client requests the server's timestamps of arrival and departure by default.
pub(super) fn irtt(lab: &Lab, count: u32, interval: Duration) -> Reported {
    let mut serve = lab.node(NODES[1]).unwrap().command("irtt");
    serve.args(["server", "-b", &format!("{SERVER}:{IRTT_PORT}")]).stdout(Stdio::null());
    let _server = Server(serve.spawn().unwrap());
    let mut client = lab.node(NODES[0]).unwrap().command("irtt");
    let (interval, length) = (interval.as_millis(), (interval * count).as_millis());
    client.args(["client", "-Q", "-o", "-", "-i", &format!("{interval}ms")]);
    client.args(["-d", &format!("{length}ms"), &format!("{SERVER}:{IRTT_PORT}")]);
    // On a busy machine the server may start late, and a client without a server gives up.
    let told: Value = patiently("irtt measures", || {
        serde_json::from_slice(&client.output().unwrap().stdout).ok()
    });
    let trips = told["round_trips"].as_array().unwrap().iter();
    trips
        .filter_map(|trip| {
            let rtt_ns = trip["delay"]["rtt"].as_f64()?;
            Some((trip["seqno"].as_u64()? as u32, (rtt_ns / 1e3, None)))
        })
        .collect()
}

/// The exchange number in irtt's packets: four bytes in host byte order after magic, flags and token. Packets that open
/// or close a session (flags 1 and 4) belong to no exchange.
pub(super) fn irtt_number(payload: &[u8]) -> Option<u32> {
    let number = payload.get(12..16)?.try_into().ok()?;
    (payload[3] & 5 == 0).then_some(u32::from_le_bytes(number))
}

/// Reads the clock before `send` and after `recv`; the server returns each datagram.
pub(super) fn plain_echo(lab: &Lab, count: u32, interval: Duration) -> Reported {
    let bind = |address| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket
    };
    let server = lab.node(NODES[1]).unwrap().run(|| bind((SERVER, ECHO_PORT))).unwrap();
    let client = lab.node(NODES[0]).unwrap().run(|| bind(("0.0.0.0".parse().unwrap(), 0))).unwrap();
    client.connect((SERVER, ECHO_PORT)).unwrap();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((n, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..n], from).unwrap();
        }
    });
    let mut reported = Reported::new();
    for number in 0..count {
        let mut answer = [0; 4];
        let start = Instant::now();
        client.send(&number.to_be_bytes()).unwrap();
        if client.recv(&mut answer).is_ok() && u32::from_be_bytes(answer) == number {
            reported.insert(number, (start.elapsed().as_nanos() as f64 / 1e3, None));
        }
        std::thread::sleep(interval);
    }
    echo.join().unwrap();
    reported
}

/// The exchange number of the simple echo.
pub(super) fn echo_number(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_be_bytes)
}
