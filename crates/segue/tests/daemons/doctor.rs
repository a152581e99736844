//! `segue doctor` on machines with something missing or misconfigured.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use segue_lab::{DemoNet, Direction};
use segue_linux::netns::Netns;
use serde_json::Value;

use crate::world::{SEGUE, World, paths_up, text};

/// Runs `segue doctor`. Returns its exit status and its lines as check, verdict and text.
pub(crate) fn doctor(node: &Netns, args: &[&str]) -> (i32, Vec<(String, String, String)>) {
    doctor_with(node, None, args)
}

/// Like [`doctor`], searching for programs in another directory.
fn doctor_with(
    node: &Netns,
    programs: Option<&Path>,
    args: &[&str],
) -> (i32, Vec<(String, String, String)>) {
    let mut command = node.command(SEGUE);
    command.env("COLUMNS", "1000");
    command.envs(programs.map(|programs| ("PATH", programs)));
    let output = command.args(["doctor", "--json"]).args(args).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let lines = all.iter().map(|f| (word(f, "check"), word(f, "verdict"), word(f, "text")));
    (output.status.code().unwrap(), lines.collect())
}

#[track_caller]
pub(crate) fn expect(lines: &[(String, String, String)], check: &str, verdict: &str, part: &str) {
    let found = lines.iter().any(|(c, v, t)| c == check && v == verdict && t.contains(part));
    assert!(found, "{check} {verdict} {part}: {lines:#?}");
}

fn ip(node: &Netns, args: &[&str]) {
    assert!(node.command("ip").args(args).status().unwrap().success(), "{args:?}");
}

#[test]
fn at_a_host_each_thing_that_is_wrong_is_said() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let state = world.path("doctor.db");
    let socket = world.path("none.sock");
    let config = world.file("host.toml", &format!("state = {state:?}\ncontrol = {socket:?}\n"));
    let (v4, v6) = DemoNet::ANCHOR;
    let host = world.net.host();
    let at = |anchor: &str| doctor(host, &["-c", &config, "--anchor", anchor]);

    let (code, lines) = at(&v4.to_string());
    assert_eq!(code, 1);
    expect(&lines, "anchor", "todo", "nothing listens there");
    expect(&lines, "enrolment", "todo", "segue enroll");
    expect(&lines, "kernel", "ok", "Linux");
    expect(&lines, "capabilities", "ok", "all four");
    expect(&lines, "datapath", "ok", "eBPF");
    expect(&lines, "port", "ok", "5005 is free");
    expect(&lines, "access", "ok", "over wifi, lte");
    expect(&lines, "clock", "ok", "");
    expect(&lines, "leftovers", "ok", "none");

    let anchor = world.anchor();
    for address in [v4.to_string(), v6.to_string(), format!("{v4}:5006")] {
        expect(&at(&address).1, "anchor", "ok", "answers after");
    }
    expect(&at(&format!("{v4}:5005")).1, "anchor", "todo", "");
    for link in [world.net.wifi(), world.net.lte()] {
        link.set_silent(Direction::Up, true);
    }
    expect(&at(&v4.to_string()).1, "anchor", "todo", "firewall");
    for link in [world.net.wifi(), world.net.lte()] {
        link.set_silent(Direction::Up, false);
    }

    let taken = host.run(|| UdpSocket::bind("0.0.0.0:5005").unwrap()).unwrap();
    expect(&at(&v4.to_string()).1, "port", "todo", "5005");
    drop(taken);
    ip(host, &["link", "set", "wifi", "mtu", "1400"]);
    let (_, lines) = at(&v4.to_string());
    expect(&lines, "mtu", "ok", "wifi: 1400 bytes, 1356");
    expect(&lines, "mtu", "ok", "lte: 1500 bytes, 1456");
    ip(host, &["link", "set", "wifi", "mtu", "1300"]);
    expect(&at(&v4.to_string()).1, "mtu", "todo", "IPv6 needs 1280");
    ip(host, &["link", "set", "wifi", "mtu", "1500"]);

    // While a host runs, doctor reports its status; after a host was killed, its leftovers.
    let mut daemon = world.host(&world.enroll(&anchor, "laptop"));
    daemon.wait("two paths up", |status| paths_up(status) == 2);
    let socket = daemon.socket();
    let running = ["-c", &config, "--control", socket.to_str().unwrap()];
    let (code, lines) = doctor(host, &running);
    expect(&lines, "anchor", "ok", "registered at 10.61.9.2");
    expect(&lines, "datapath", "ok", "user");
    expect(&lines, "port", "ok", "a host runs here");
    assert_eq!(code, 0, "{lines:#?}");
    daemon.end(Signal::SIGKILL);
    let state = world.path("host.db");
    let config = world.file("host2.toml", &format!("state = {state:?}\n"));
    let (code, lines) = doctor(host, &["-c", &config]);
    expect(&lines, "leftovers", "todo", "routing rules");
    expect(&lines, "leftovers", "todo", "nftables table segue_past_segue0");
    // The certificate is good for 90 days, of which the first may have begun.
    expect(&lines, "enrolment", "ok", "the certificate is good for ");
    expect(&lines, "anchor", "ok", "10.61.9.2:5006 answers after");
    assert_eq!(code, 1);
    assert!(host.command(SEGUE).arg("clean").status().unwrap().success());
    let (code, lines) = doctor(host, &["-c", &config]);
    assert_eq!(code, 0, "{lines:#?}");
}

#[test]
fn at_an_anchor_the_ways_out_and_back_are_looked_at() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let node = world.net.anchor();
    let socket = world.path("none.sock");
    let plain = world.file("anchor.toml", &format!("nat = false\ncontrol = {socket:?}\n"));
    let (code, lines) = doctor(node, &["-c", &plain]);
    assert_eq!(code, 1);
    expect(
        &lines,
        "way back",
        "todo",
        "10.77.0.0/16 is private and not translated: set nat = true",
    );
    expect(&lines, "way out", "ok", "IPv6 over core");
    let nat = world.file("anchor-nat.toml", &format!("nat = true\ncontrol = {socket:?}\n"));
    let (code, lines) = doctor(node, &["-c", &nat]);
    expect(&lines, "way back", "ok", "NAT66");
    expect(&lines, "nftables", "ok", "v1");
    assert_eq!(code, 0, "{lines:#?}");
    ip(node, &["-6", "route", "del", "default"]);
    let (code, lines) = doctor(node, &["-c", &nat]);
    expect(&lines, "way out", "todo", "IPv6: this machine has no default route");
    assert_eq!(code, 1);
}

#[test]
fn a_table_that_fits_tcp_connections_and_is_gone_or_not_whole_is_said() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let node = world.net.anchor();
    let anchor = world.anchor();
    let socket = anchor.socket();
    let seen = || doctor(node, &["--control", socket.to_str().unwrap()]);
    let check = "segment sizes";
    expect(&seen().1, check, "ok", "fits forwarded TCP connections");
    let nft = |line: &str| assert!(node.command("nft").arg(line).status().unwrap().success());
    nft("flush chain inet segue_clamp_segue0 forwarded");
    let (code, lines) = seen();
    expect(&lines, check, "todo", "restart the daemon");
    assert_eq!(code, 1);
    nft("delete table inet segue_clamp_segue0");
    expect(&seen().1, check, "todo", "segue_clamp_segue0 is not in nftables");
    let none = tempfile::tempdir().unwrap();
    let (_, lines) = doctor_with(node, Some(none.path()), &["--control", socket.to_str().unwrap()]);
    expect(&lines, check, "todo", "install it (package nftables)");
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        node.run(|| segue_linux::link::sysctl(key, "0").unwrap()).unwrap();
    }
    expect(&seen().1, check, "ok", "forwards nothing");
}

#[test]
fn beside_a_running_anchor_its_role_and_what_it_does_count() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let node = world.net.anchor();
    let anchor = world.anchor_with(&["--nat"]);
    // No file names the role or enables NAT.
    let socket = anchor.socket();
    let args = ["--control", socket.to_str().unwrap()];
    let (code, lines) = doctor(node, &args);
    expect(&lines, "signal port", "ok", "in use, and an anchor runs here");
    expect(&lines, "way back", "ok", "10.77.0.0/16 is translated");
    expect(&lines, "past tunnel", "ok", "drops plain packets");
    expect(&lines, "segment sizes", "ok", "fits forwarded TCP connections to what segue0 takes");
    assert!(
        !lines.iter().any(|(check, ..)| check == "enrolment" || check == "anchor"),
        "{lines:?}"
    );
    assert_eq!(code, 0, "{lines:#?}");
    // Reloading a firewall often flushes all tables first.
    assert!(node.command("nft").args(["flush", "ruleset"]).status().unwrap().success());
    let nat = world.file("with-nat.toml", "nat = true\n");
    let (code, lines) = doctor(node, &["-c", &nat, args[0], args[1]]);
    expect(&lines, "way back", "todo", "is not translated: something removed");
    expect(&lines, "way back", "todo", "or the anchor started without nat = true");
    expect(&lines, "past tunnel", "todo", "nothing drops plain packets");
    assert_eq!(code, 1);
    // nftables is not installed, or fails.
    let programs = world.path("programs");
    std::fs::create_dir(&programs).unwrap();
    let (code, lines) = doctor_with(node, Some(&programs), &args);
    expect(&lines, "past tunnel", "todo", "nftables is missing");
    assert_eq!(code, 1);
    let nft = world.file("programs/nft", "#!/bin/sh\n[ $1 = --version ] && echo nftables v1\n");
    std::fs::set_permissions(nft, PermissionsExt::from_mode(0o755)).unwrap();
    expect(
        &doctor_with(node, Some(&programs), &args).1,
        "past tunnel",
        "unknown",
        "nft list tables",
    );
}

#[test]
fn a_local_mobility_anchor_is_judged_by_its_file() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let socket = world.path("none.sock");
    let file = format!(
        "address = \"fd00:9::1\"\npool = \"fd00:77::/48\"\ngateways = [\"fd00:2::1\"]\ncontrol = {socket:?}\n"
    );
    let config = world.file("pmip-lma.toml", &file);
    let (code, lines) = doctor(world.net.anchor(), &["-c", &config]);
    for (check, verdict, part) in [
        ("address", "todo", "fd00:9::1 is none of this machine's"),
        ("daemon", "ok", "none answers at "),
        ("datapath", "ok", "eBPF"),
        ("kernel", "ok", "Linux"),
        ("leftovers", "ok", "none"),
    ] {
        expect(&lines, check, verdict, part);
    }
    assert!(!lines.iter().any(|(check, ..)| check == "enrolment"), "{lines:#?}");
    assert_eq!(code, 1);
}

#[test]
fn without_root_it_says_what_it_cannot_know() {
    if !crate::world::possible() {
        return;
    }
    let nobody = |args: &[&str]| -> Vec<Value> {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", SEGUE, "doctor"]);
        let output = command.arg("--json").args(args).output().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    let is_unknown = |lines: &[Value], check: &str| {
        let found = lines.iter().any(|f| f["check"] == check && f["verdict"] == "unknown");
        assert!(found, "{check}: {lines:#?}");
    };
    let lines = nobody(&[]);
    is_unknown(&lines, "capabilities");
    is_unknown(&lines, "datapath");
    // A host's control socket that only root may use.
    let directory = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(directory.path(), 0o755);
    let socket = directory.path().join("host.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    allow(&socket, 0o600);
    let lines = nobody(&["--control", socket.to_str().unwrap()]);
    is_unknown(&lines, "daemon");
    let closed = |f: &Value| f["text"].as_str().is_some_and(|said| said.contains("closed to you"));
    assert!(lines.iter().any(closed), "{lines:#?}");
}
