//! Runs daemons with exactly the documented capabilities and within the system calls that their units allow.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pmip::{Domain, FIRST, OTHER, cn};
use crate::traffic::{UdpEcho, correspondents, one_datagram};
use crate::world::{Daemon, World};
use segue::cmd::roles;

const UNDER: [&str; 4] = [
    "setpriv",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all,+net_admin,+net_raw,+bpf,+perfmon",
];
/// The same capabilities as a mask: CAP_NET_ADMIN is 12, CAP_NET_RAW 13, CAP_PERFMON 38, CAP_BPF 39.
const CAPABILITIES: u64 = 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;

#[test]
fn ebpf_needs_the_documented_capabilities_and_no_others() {
    let _turn = crate::among_others();
    let Some(mut world) = World::new("ebpf") else { return };
    world.under = &UNDER;
    let (anchor, host) = world.running();
    for daemon in [&anchor, &host] {
        assert_eq!(daemon.status()["datapath"], "ebpf");
        assert_eq!(capabilities(daemon), CAPABILITIES);
        // Nothing is mapped at the addresses that a null pointer reaches.
        assert!(lowest_address(daemon) >= 0x1_0000, "{:x}", lowest_address(daemon));
    }
    for address in correspondents() {
        let echo = UdpEcho::start(world.net.cn(), address);
        one_datagram(world.net.host(), echo.address).expect("through the tunnel");
    }
}

/// The value of a key in the unit of a daemon.
fn of_unit(role: &str, key: &str) -> String {
    let unit = roles::installed().find(|of| of.name == role).unwrap().unit().unwrap();
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap().to_owned()
}

/// The command that limits a daemon to the capabilities of its unit.
fn as_unit(role: &str) -> Vec<String> {
    let all = of_unit(role, "CapabilityBoundingSet");
    let all = all.strip_prefix("CAP_").unwrap().replace(" CAP_", ",+").to_lowercase();
    let mut command: Vec<String> = UNDER[..3].iter().map(|&part| part.to_owned()).collect();
    command.push(format!("--bounding-set=-all,+{all}"));
    command
}

/// The members of a systemd system call group.
fn group(name: &str) -> BTreeSet<String> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", name]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let members = said.lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#'));
    let each = |member: &str| match member.starts_with('@') {
        true => group(member),
        false => [member.to_owned()].into(),
    };
    members.filter(|member| !member.is_empty()).flat_map(each).collect()
}

/// The command that records the system calls of a daemon that its unit forbids. Empty if the tools are missing.
fn watching_calls(role: &str, into: &Path) -> Vec<String> {
    let there = |tool: &str| Path::new("/usr/bin").join(tool).exists();
    if !there("systemd-analyze") || !there("strace") {
        println!("skipped: system calls are not compared without systemd-analyze and strace");
        return Vec::new();
    }
    let filter = of_unit(role, "SystemCallFilter");
    let each = |part: &str| match part.starts_with('@') {
        true => group(part),
        false => [part.to_owned()].into(),
    };
    let allowed: BTreeSet<String> = filter.split(' ').flat_map(each).collect();
    assert!(allowed.len() > 100, "{allowed:?}");
    // The question mark makes strace ignore names that it does not know.
    let allowed: Vec<String> = allowed.iter().map(|name| format!("?{name}")).collect();
    let trace = format!("trace=!{}", allowed.join(","));
    // -D keeps the daemon a direct child of this process.
    let command = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e", &trace];
    // Append, since two daemons may share a file.
    let into = ["-A", "-o", into.to_str().unwrap()];
    command.into_iter().chain(into).map(str::to_owned).collect()
}

#[test]
fn daemons_stay_within_the_system_calls_of_their_units() {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty("ebpf") else { return };
    let calls = |role: &str, domain: &Domain| -> PathBuf { domain.dir.path().join(role) };
    let roles = ["pmip-lma", "pmip-mag", "mih-function", "mih-link-sap"];
    let under = |role: &str, domain: &mut Domain| {
        let into = calls(role, domain);
        domain.under = watching_calls(role, &into);
        domain.under.extend(as_unit(role));
    };
    under("pmip-lma", &mut domain);
    domain.lma = Some(domain.start("lma", "lma", ""));
    under("pmip-mag", &mut domain);
    domain.mags.insert("wlan1", domain.start("mag", "wlan1", ""));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    under("mih-function", &mut domain);
    let function = domain.run("right", "function", &["mih", "function"]);
    under("mih-link-sap", &mut domain);
    let config = domain.config("sap", "[[link]]\ninterface = \"wlan2\"\nsource = \"wire\"\n");
    let sap = domain.run("right", "sap", &["mih", "link-sap", "-c", config.to_str().unwrap()]);
    drop((function, sap, domain.lma.take(), std::mem::take(&mut domain.mags)));
    for role in roles {
        let forbidden = std::fs::read_to_string(calls(role, &domain)).unwrap_or_default();
        assert_eq!(forbidden, "", "{role}");
    }
}

#[test]
fn hosts_and_anchors_stay_within_the_system_calls_of_their_units() {
    let _turn = crate::among_others();
    let Some(mut world) = World::new("ebpf") else { return };
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("calls");
    let command: Vec<&'static str> = watching_calls("host", &into)
        .into_iter()
        .map(|part| &*Box::leak(part.into_boxed_str()))
        .chain(UNDER)
        .collect();
    assert_eq!(of_unit("host", "SystemCallFilter"), of_unit("anchor", "SystemCallFilter"));
    world.under = Box::leak(command.into_boxed_slice());
    let daemons = world.running();
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    one_datagram(world.net.host(), echo.address).expect("through the tunnel");
    drop(daemons);
    assert_eq!(std::fs::read_to_string(&into).unwrap_or_default(), "");
}

#[test]
fn daemons_of_proxy_mobile_ipv6_and_ieee_802_21_do_with_what_their_units_leave_them() {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty("ebpf") else { return };
    domain.under = as_unit("pmip-lma");
    domain.lma = Some(domain.start("lma", "lma", ""));
    domain.under = as_unit("pmip-mag");
    domain.mags.insert("wlan1", domain.start("mag", "wlan1", ""));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    domain.address("host", "wlan");
    let echo = UdpEcho::start(domain.node("cn"), cn());
    one_datagram(domain.node("host"), echo.address).expect("through the tunnel");
    for daemon in [domain.lma(), &domain.mags["wlan1"]] {
        assert_eq!(capabilities(daemon), CAPABILITIES);
        assert!(daemon.log().contains("datapath: eBPF"), "{}", daemon.log());
    }
    domain.under = as_unit("mih-function");
    let _function = domain.run("right", "function", &["mih", "function"]);
    domain.under = as_unit("mih-link-sap");
    let config = domain.config("sap", "[[link]]\ninterface = \"wlan2\"\nsource = \"wire\"\n");
    let sap = domain.run("right", "sap", &["mih", "link-sap", "-c", config.to_str().unwrap()]);
    domain.attach("other:wlan", "wlan2");
    sap.wait("the function is told of a station", |status| {
        let station = &status["links"][0]["stations"][0]["station"];
        status["functions"][0]["registered"] == true && station == OTHER
    });
}

fn capabilities(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

fn lowest_address(daemon: &Daemon) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.process())).unwrap();
    let addresses = maps.lines().filter_map(|line| line.split('-').next());
    addresses.map(|address| u64::from_str_radix(address, 16).unwrap()).min().unwrap()
}
