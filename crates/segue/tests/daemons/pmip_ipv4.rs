//! Proxy Mobile IPv6 end to end with anchor and gateways over IPv4 (RFC 5844), with and without a NAT between them, and
//! with GRE tunnels (RFC 5845).

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_linux::netns::Netns;
use serde_json::Value;

use crate::pmip::{Domain, FIRST, cn, example, walks};
use crate::traffic::{Stream, UdpEcho, one_datagram};
use crate::world::{text, wait_for};

/// Addresses of the example's domain and their IPv4 replacements.
const ADDRESSES: [(&str, &str); 7] = [
    ("fd00:1::1", "10.1.0.1"),
    ("fd00:1::2", "10.1.0.2"),
    ("fd00:2::1", "10.2.0.1"),
    ("fd00:2::2", "10.2.0.2"),
    ("fd00:2::3", "10.2.0.3"),
    ("fd00:3::1", "10.3.0.1"),
    ("fd00:3::2", "10.3.0.2"),
];

fn read(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

/// The example's network with routers that use only IPv4 between each other.
fn network() -> String {
    let mut text = read("lab.toml");
    for (v6, v4) in ADDRESSES {
        text = text.replace(&format!("{v6}/64"), &format!("{v4}/24"));
        text = text.replace(&format!("default via {v6}\""), &format!("default via {v4}\""));
    }
    let routes = "\"fd00:2::/64 via fd00:1::2\", \"fd00:3::/64 via fd00:1::2\"";
    let text = text.replace(routes, "\"10.2.0.0/15 via 10.1.0.2\"");
    text.replace(", \"fd00:3::3/64\"", "")
}

/// The example's file for a daemon, over IPv4.
fn file(name: &str) -> String {
    ADDRESSES.iter().fold(read(name), |text, (v6, v4)| text.replace(v6, v4))
}

/// Starts the domain with an anchor for gateways at these addresses, and with further keys for the gateways.
pub(crate) fn domain(
    datapath: &'static str,
    gateways: &str,
    anchor: &str,
    more: &str,
) -> Option<Domain> {
    let mut domain = Domain::over(datapath, &network())?;
    let lma = file("lma.toml").replace("\"fd00:2::/64\", \"fd00:3::/64\"", gateways);
    domain.lma = Some(domain.start_with("lma", "lma", &format!("{anchor}{lma}")));
    for access in ["wlan1", "wlan2"] {
        let mag = format!("{more}{}", file(&format!("{access}.toml")));
        domain.mags.insert(access, domain.start_with("mag", access, &mag));
    }
    Some(domain)
}

/// A capture of packets from and to the anchor.
struct Capture {
    tshark: Child,
    file: std::path::PathBuf,
}

impl Capture {
    fn start(domain: &Domain, node: &Netns, interface: &str) -> Option<Capture> {
        let file = domain.dir.path().join("capture.pcap");
        let mut tshark = node.command("tshark");
        // Full-size packets of the stream are many, and show nothing that its short ones do not.
        tshark.args(["-q", "-f", "less 300", "-i", interface, "-w"]).arg(&file);
        let Ok(tshark) = tshark.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("skipped: there is no tshark");
            return None;
        };
        wait_for("the capture", || file.metadata().is_ok_and(|file| file.len() > 0));
        Some(Capture { tshark, file })
    }

    /// Ends the capture; returns how many packets match each filter.
    fn end<const N: usize>(mut self, filters: [&str; N]) -> [usize; N] {
        kill(Pid::from_raw(self.tshark.id().cast_signed()), Signal::SIGINT).unwrap();
        wait_for("the capture's end", || self.tshark.try_wait().unwrap().is_some());
        let file = &self.file;
        filters.map(|filter| {
            let mut tshark = Command::new("tshark");
            let output = tshark.arg("-r").arg(file).args(["-Y", filter]).output().unwrap();
            assert!(output.status.success(), "{filter}: {}", text(&output.stderr));
            text(&output.stdout).lines().count()
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tshark.kill();
        let _ = self.tshark.wait();
    }
}

fn moves_over_ipv4(datapath: &'static str) {
    let _turn = crate::among_others();
    let gateways = "\"10.2.0.2\", \"10.3.0.2\"";
    let Some(domain) = domain(datapath, gateways, "", "") else { return };
    let capture = Capture::start(&domain, domain.node("lma"), "core");
    walks(&domain, ["10.2.0.2", "10.3.0.2"]);
    let status = domain.lma().status();
    assert_eq!(status["tunnels"][0]["form"], "ip", "{status}");
    let Some(capture) = capture else { return };
    let filters = [
        "mipv6 && _ws.malformed",
        "udp.port == 5436 && mipv6",
        "ip.proto == 41",
        "udp.port == 5437",
    ];
    let [malformed, messages, packets, udp] = capture.end(filters);
    assert_eq!((malformed, udp), (0, 0));
    assert!(messages >= 8 && packets > 100, "{messages} {packets}");
}

#[test]
fn a_stock_host_moves_between_gateways_that_are_reached_over_ipv4() {
    moves_over_ipv4("ebpf");
}

#[test]
fn a_stock_host_moves_between_gateways_that_are_reached_over_ipv4_in_user_space() {
    moves_over_ipv4("user");
}

/// Both gateways are behind one address of the router next to the anchor.
fn moves_behind_a_nat(datapath: &'static str) {
    let _turn = crate::among_others();
    let anchor = "nat_keepalive = \"3s\"\n";
    let Some(mut domain) = domain(datapath, "\"10.1.0.2\"", anchor, "") else { return };
    let nft = |commands: &str| {
        let done = domain.node("core").command("nft").arg(commands).status().unwrap();
        assert!(done.success(), "{commands}");
    };
    nft("add table ip nat; add chain ip nat out { type nat hook postrouting priority srcnat; }; \
         add rule ip nat out oifname \"lma\" masquerade");
    // As behind a real NAT, packets from the anchor's side pass only if they belong to a mapping.
    nft("add table ip shut; add chain ip shut through { type filter hook forward priority 0; }; \
         add rule ip shut through iifname \"lma\" ct state new drop");
    let capture = Capture::start(&domain, domain.node("lma"), "core");
    walks(&domain, ["10.1.0.2 (10.2.0.2)", "10.1.0.2 (10.3.0.2)"]);
    if let Some(capture) = capture {
        let filters = [
            "mipv6 && _ws.malformed",
            "udp.port == 5436 && mipv6",
            "udp.port == 5437",
            "ip.proto == 41",
        ];
        let [malformed, messages, packets, plain] = capture.end(filters);
        assert_eq!((malformed, plain), (0, 0));
        assert!(messages >= 8 && packets > 100, "{messages} {packets}");
    }
    // The router loses all mappings: keepalives create new ones, from another port.
    let port = |status: &Value| status["tunnels"][0]["form"].as_str().unwrap().to_owned();
    let before = port(&domain.lma().status());
    assert!(before.starts_with("udp "), "{before}");
    let (host, far) = (domain.node("host"), domain.node("cn"));
    let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
    stream.flows_on(100_000);
    nft(
        "flush chain ip nat out; add rule ip nat out oifname \"lma\" ip protocol udp masquerade to :30000-31000",
    );
    let flushed = domain.node("core").run(segue_linux::conntrack::flush).unwrap();
    flushed.unwrap();
    let status = domain.lma().wait("the other port", |status| port(status) != before);
    println!("{datapath}: from {before} to {}", port(&status));
    stream.flows_on(100_000);
    // A restarted anchor finds the way again.
    domain.lma.as_mut().unwrap().end(Signal::SIGKILL);
    let lma = file("lma.toml").replace("\"fd00:2::/64\", \"fd00:3::/64\"", "\"10.1.0.2\"");
    domain.lma = Some(domain.start_with("lma", "lma", &format!("{anchor}{lma}")));
    domain.is_bound(FIRST, "10.1.0.2 (10.3.0.2)");
    stream.flows_on(100_000);
}

#[test]
fn a_stock_host_moves_between_gateways_behind_a_nat() {
    moves_behind_a_nat("ebpf");
}

#[test]
fn a_stock_host_moves_between_gateways_behind_a_nat_in_user_space() {
    moves_behind_a_nat("user");
}

fn moves_with_keys(datapath: &'static str) {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::new(datapath, &[]) else { return };
    let more = "encapsulation = \"gre\"\n";
    for access in ["wlan1", "wlan2"] {
        domain.mags.insert(access, domain.start("mag", access, more));
    }
    let capture = Capture::start(&domain, domain.node("lma"), "core");
    walks(&domain, ["fd00:2::2", "fd00:3::2"]);
    let status = domain.lma().status();
    let tunnels = status["tunnels"].as_array().unwrap();
    let form = tunnels.last().unwrap()["form"].as_str().unwrap().to_owned();
    assert!(tunnels.len() == 2 && form.starts_with("gre "), "{status}");
    if let Some(capture) = capture {
        let filters = ["mipv6 && _ws.malformed", "mip6.gre_key", "gre.key", "ipv6.nxt == 41"];
        let [malformed, keys, packets, plain] = capture.end(filters);
        assert_eq!((malformed, plain), (0, 0));
        assert!(keys >= 8 && packets > 100, "{keys} {packets}");
    }
    // A restarted gateway has the same keys as before.
    domain.mags.get_mut("wlan2").unwrap().end(Signal::SIGKILL);
    domain.mags.insert("wlan2", domain.start("mag", "wlan2", more));
    let echo = UdpEcho::start(domain.node("cn"), cn());
    wait_for("an answer", || one_datagram(domain.node("host"), echo.address).is_some());
    let status = domain.lma().status();
    assert_eq!(status["tunnels"].as_array().unwrap().last().unwrap()["form"], form.as_str());
}

#[test]
fn a_stock_host_moves_with_tunnels_that_have_its_own_keys() {
    moves_with_keys("ebpf");
}

#[test]
fn a_stock_host_moves_with_tunnels_that_have_its_own_keys_in_user_space() {
    moves_with_keys("user");
}
