//! Daemons with the documented capabilities and no others.

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
