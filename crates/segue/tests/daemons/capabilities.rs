//! Daemons with the documented capabilities and no others.

use crate::pmip::{Domain, FIRST, OTHER, cn};
use crate::traffic::{UdpEcho, correspondents, one_datagram};
use crate::world::{Daemon, World};

const UNDER: [&str; 4] = [
    "setpriv",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all,+net_admin,+net_raw,+bpf,+perfmon",
];
/// The same as the kernel numbers them: CAP_NET_ADMIN is 12, CAP_NET_RAW 13, CAP_PERFMON 38,
/// CAP_BPF 39.
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
        // Nothing is mapped where a null pointer points.
        assert!(lowest_address(daemon) >= 0x1_0000, "{:x}", lowest_address(daemon));
    }
    for address in correspondents() {
        let echo = UdpEcho::start(world.net.cn(), address);
        one_datagram(world.net.host(), echo.address).expect("through the tunnel");
    }
}

/// The capabilities that the unit of a daemon leaves it, as a command.
fn as_unit(role: &str) -> Vec<String> {
    let unit = format!("{}/../../packaging/segue-{role}.service", env!("CARGO_MANIFEST_DIR"));
    let unit = std::fs::read_to_string(unit).unwrap();
    let all = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_"));
    let all = all.unwrap().replace(" CAP_", ",+").to_lowercase();
    let mut command: Vec<String> = UNDER[..3].iter().map(|&part| part.to_owned()).collect();
    command.push(format!("--bounding-set=-all,+{all}"));
    command
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
