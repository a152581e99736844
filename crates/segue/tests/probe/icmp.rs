//! ICMP errors about requests: a closed port, and forged errors.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Probing, segue, segue_json, targets};

/// An unused port.
fn closed() -> String {
    let taken = UdpSocket::bind("127.77.3.1:0").unwrap();
    taken.local_addr().unwrap().to_string()
}

#[test]
fn a_closed_port_is_no_dead_host() {
    for protocol in [&[][..], &["--stamp"]] {
        let target = closed();
        let args = [&["probe", &target, "-c", "4", "-i", "50ms", "-k", "4"], protocol].concat();
        let (status, lines) = segue_json(&[&args[..], &["--json"]].concat());
        assert_eq!(status, 1);
        let told: Vec<&Value> = lines.iter().filter(|line| line["type"] == "icmp").collect();
        assert_eq!(told.len(), 1, "{lines:?}");
        assert_eq!(told[0]["reason"], "port_unreachable", "{lines:?}");
        let [summary] = targets(&lines)[..] else { panic!("{lines:?}") };
        let [said] = &summary["icmp"].as_array().unwrap()[..] else { panic!("{summary}") };
        assert_eq!(said["from"], "127.77.3.1", "{said}");
        assert_eq!((&said["quoted"], &said["count"]), (&true.into(), &4.into()), "{said}");
        assert_eq!((&summary["sent"], &summary["drops"]), (&4.into(), &json!({})), "{summary}");

        let plain = String::from_utf8(segue(&args).stdout).unwrap();
        let line = format!("{target}: port unreachable, says 127.77.3.1\n");
        assert_eq!(plain.matches(&line).count(), 1, "{plain}");
        assert!(plain.contains("\nICMP: port unreachable, says 127.77.3.1 (4 times)"), "{plain}");
    }
    let plain = segue(&["probe", &closed(), "-c", "2", "-i", "50ms", "-k", "2"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("no answer, and the port is closed: does `segue probe"), "{plain}");
}

/// An ICMP error with this type and code that quotes a datagram with this payload.
fn error(kind: u8, code: u8, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("IPv4 alone") };
    let length = (28 + payload.len()) as u16;
    let mut quoted = vec![0x45, 0];
    quoted.extend(length.to_be_bytes());
    quoted.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    quoted.extend(from.ip().octets());
    quoted.extend(to.ip().octets());
    quoted.extend(from.port().to_be_bytes());
    quoted.extend(to.port().to_be_bytes());
    quoted.extend((length - 20).to_be_bytes());
    quoted.extend([0, 0]);
    quoted.extend(payload);
    let mut packet = vec![kind, code, 0, 0, 0, 0, 0, 0];
    packet.extend(quoted);
    let words =
        packet.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn an_error_about_packets_of_others_is_not_believed() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    // A socket that receives requests and never answers.
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    hole.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let there = hole.local_addr().unwrap();
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    let to: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    for protocol in [&[][..], &["--stamp"]] {
        let target = there.to_string();
        let mut probing =
            Probing::start(&[&[&target, "-i", "50ms", "-k", "100"], protocol].concat());
        let mut request = [0; 2_000];
        let (length, prober) = hole.recv_from(&mut request).unwrap();
        let request = &request[..length];
        let send = |packet: Vec<u8>| raw.send_to(&packet, &to.into()).unwrap();
        let mut forged = request.to_vec();
        forged[4..24].fill(0x55);
        send(error(3, 1, prober, there, &forged));
        send(error(3, 13, prober, there, &[]));
        send(error(3, 0, prober, there, request));
        probing.until(|line| line["reason"] == "no_route");
        let lines = probing.interrupt();
        let [summary] = targets(&lines)[..] else { panic!("{lines:?}") };
        assert_eq!(summary["drops"]["icmp"], 1, "{summary}");
        let said: Vec<(&Value, &Value)> = summary["icmp"]
            .as_array()
            .unwrap()
            .iter()
            .map(|said| (&said["reason"], &said["quoted"]))
            .collect();
        let wanted = [(&json!("no_route"), &json!(true)), (&json!("prohibited"), &json!(false))];
        assert_eq!(said, wanted, "{summary}");
    }
}
