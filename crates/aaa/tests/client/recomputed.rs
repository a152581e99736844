//! Checks authenticators and hidden passwords with an independent implementation: Python's hashlib and hmac.

use std::io::Write;
use std::process::{Command, Stdio};

use segue_aaa::Side;
use segue_wire::radius::{AttributeType, Code, Packet, Secret};

use crate::world::*;

/// Reads lines of `kind secret request-authenticator packet`, hexadecimal except for the kind; prints what it decoded,
/// and fails at the first mistake.
const CHECK: &str = r#"
import hashlib, hmac, sys
for line in sys.stdin:
    kind, secret, request, packet = line.split()
    secret, request, packet = map(bytes.fromhex, (secret, request, packet))
    code, ident, length = packet[0], packet[1], int.from_bytes(packet[2:4], "big")
    assert length == len(packet), "length"
    attributes, at = [], 20
    while at < length:
        attributes.append((packet[at], at + 2, packet[at + 2 : at + packet[at + 1]]))
        at += packet[at + 1]
    assert at == length, "attributes"
    zeros = bytes(16)
    base = {"access": packet[4:20], "reply": request, "accounting": zeros}[kind]
    for number, place, value in attributes:
        if number == 80:
            blank = packet[:4] + base + packet[20:place] + zeros + packet[place + 16 :]
            assert hmac.new(secret, blank, hashlib.md5).digest() == value, "Message-Authenticator"
    if kind != "access":
        digest = hashlib.md5(packet[:4] + base + packet[20:] + secret).digest()
        assert digest == packet[4:20], "authenticator"
    password = b""
    for number, _, value in attributes:
        if number == 2 and kind == "access":
            before = packet[4:20]
            for i in range(0, len(value), 16):
                pad = hashlib.md5(secret + before).digest()
                before = value[i : i + 16]
                password += bytes(a ^ b for a, b in zip(before, pad))
    has = any(number == 80 for number, _, _ in attributes)
    print(code, ident, "authenticated" if has else "plain", password.rstrip(b"\0").decode())
"#;

/// The lines that Python prints for the packets; `None` if Python is not installed.
fn checked(lines: &[String]) -> Option<Vec<String>> {
    let mut python = Command::new("python3");
    python.args(["-c", CHECK]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = python.stderr(Stdio::piped()).spawn() else {
        println!("skipped: no python3");
        return None;
    };
    child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(kind: &str, request: &[u8], packet: &[u8]) -> String {
    format!("{kind} {} {} {}", hex(SECRET), hex(request), hex(packet))
}

#[test]
fn another_program_recomputes_all_that_is_sent() {
    // Passwords of zero, one and several blocks.
    for password in
        ["", "x", "sixteen letters.", "a password that has more letters than a block of MD5"]
    {
        let mut config = config(Side::Gateway);
        config.password = Some(password.as_bytes().to_vec());
        let mut world = World::with(config);
        world.does(1, accepts(&[]));
        (1..4).for_each(|key| world.ask(key));
        world.began(1);
        world.ended(1);
        let kind = |port| if port == 1812 { "access" } else { "accounting" };
        let lines: Vec<String> =
            world.sent.iter().map(|(_, to, bytes)| line(kind(to.port()), &[0], bytes)).collect();
        let Some(said) = checked(&lines) else { return };
        assert_eq!(said.len(), 6, "on, three questions, start, stop");
        for (said, (_, to, bytes)) in said.iter().zip(&world.sent) {
            let expected = match to.port() {
                1812 => format!("1 {} authenticated {password}", bytes[1]),
                _ => format!("4 {} plain ", bytes[1]),
            };
            assert_eq!(*said, expected);
        }
    }
}

#[test]
fn another_program_recomputes_answers_with_and_without_message_authenticator() {
    let request = [0x5a; 16];
    let packet = Packet {
        code: Code::ACCESS_ACCEPT,
        id: 9,
        authenticator: [0; 16],
        attributes: vec![identity()],
    };
    let seal = |with| packet.seal_reply(&request, &Secret::new(SECRET), with).unwrap();
    let lines = [true, false].map(|with| line("reply", &request, &seal(with)));
    let Some(said) = checked(&lines) else { return };
    assert_eq!(said, ["2 9 authenticated ", "2 9 plain "]);
    let first = Packet::parse(&seal(true)).unwrap().attributes[0].kind;
    assert_eq!(first, AttributeType::MESSAGE_AUTHENTICATOR);
}
