//! A host with an IPv6-only access and a join line with the anchor's IPv4 address, behind a translator (NAT64). A name
//! server reveals the translator's prefix (RFC 7050), or a router advertises it (RFC 8781).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use segue_ip::{Datagram, Pref64};
use segue_lab::DemoNet;
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::raw::{ICMPV6, RawSocket};
use segue_wire::nd::{
    Message, NdOption, Preference, RouterAdvertisement, RouterAdvertisementFlags,
};
use serde_json::Value;

use crate::doctor::{doctor, expect};
use crate::over_both;
use crate::world::{Daemon, HOST_FILE, World, path, paths_up, registered, text, wait_for};

/// The translator's prefix, and its pool of IPv4 addresses for hosts.
const PREFIX: &str = "2001:db8:64::/96";
const POOL: &str = "192.168.255.0/24";
const TRANSLATOR: &str = "192.168.255.1";
/// The router's address on the host's access.
const ROUTER: &str = "fd61:1::1";
/// The all-nodes and all-routers multicast addresses.
const NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

over_both! { among_others:
    a_literal_reaches_the_anchor_by_a_name_servers_prefix
    a_literal_reaches_the_anchor_by_a_routers_prefix
    an_access_that_loses_ipv4_is_reached_by_its_translator_until_ipv4_is_back
    an_access_without_a_known_translator_is_named_and_used_once_there_is_one
}

fn a_literal_reaches_the_anchor_by_a_name_servers_prefix(datapath: &'static str) {
    let Some(rig) = Rig::new(datapath) else { return };
    rig.without_lte();
    rig.without_ipv4();
    let _names = rig.names();
    let (anchor, before) = (rig.world.anchor(), rig.doctor(&[]));
    let by = format!("{PREFIX}, known from the name server {ROUTER} over wifi");
    expect(&before, "translator", "ok", &by);
    expect(&before, "anchor", "ok", &format!("[{}]:5006 answers", synthesized()));
    let host = rig.host(&anchor);
    rig.is_up_by_translator(&host);
    expect(&rig.doctor_of(&host), "translator", "ok", &by);
    // A restarted host is already enrolled.
    drop(host);
    let host = rig.world.host_with(rig.node(), "host", &rig.config(), &[]);
    rig.is_up_by_translator(&host);
}

fn a_literal_reaches_the_anchor_by_a_routers_prefix(datapath: &'static str) {
    let Some(rig) = Rig::new(datapath) else { return };
    rig.without_lte();
    rig.without_ipv4();
    let accept = || link::sysctl("net.ipv6.conf.wifi.accept_ra", "1").unwrap();
    rig.node().run(accept).unwrap();
    let router = Router::start(rig.world.net.router());
    let anchor = rig.world.anchor();
    let host = rig.host(&anchor);
    rig.is_up_by_translator(&host);
    let by = format!("{PREFIX}, known from a router's advertisement");
    expect(&rig.doctor_of(&host), "translator", "ok", &by);
    // The prefix is withdrawn and advertised again.
    router.advertise(0);
    host.wait("no path", |status| path(status, "wifi").is_null());
    router.advertise(600);
    rig.is_up_by_translator(&host);
    // The prefix expires with its lifetime. The router is stopped, so it answers no solicitation.
    router.advertise(8);
    while router.told.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(router);
    host.wait("the end of its lifetime", |status| path(status, "wifi").is_null());
}

fn an_access_that_loses_ipv4_is_reached_by_its_translator_until_ipv4_is_back(
    datapath: &'static str,
) {
    let Some(rig) = Rig::new(datapath) else { return };
    let names = rig.names();
    let anchor = rig.world.anchor();
    let host = rig.host(&anchor);
    let own = format!("{}:5005", DemoNet::ANCHOR.0);
    let remote = |status: &Value, name| path(status, name)["remote"].as_str().map(str::to_owned);
    let is_whole =
        |status: &Value| paths_up(status) == 2 && remote(status, "wifi").as_deref() == Some(&own);
    host.wait("two paths up", is_whole);
    assert!(!names.log().contains("ipv4only.arpa"), "{}", names.log());
    rig.without_ipv4();
    let status = host.wait("wifi by the translator", |status| {
        paths_up(status) == 2 && remote(status, "wifi") == Some(rig.remote())
    });
    assert_eq!(remote(&status, "lte").as_deref(), Some(&*own));
    assert!(names.log().contains("ipv4only.arpa"), "{}", names.log());
    // The existing connection uses IPv4 and cannot migrate to the translator.
    rig.without_lte();
    rig.is_up_by_translator(&host);
    let (v4, _) = DemoNet::HOST_WIFI;
    ip(rig.node(), &format!("addr add {v4}/24 dev wifi"));
    ip(rig.node(), "route add default via 10.61.1.1 dev wifi metric 100");
    host.wait("wifi by IPv4", |status| {
        registered(status) && remote(status, "wifi").as_deref() == Some(&own)
    });
    rig.pings_pass();
}

fn an_access_without_a_known_translator_is_named_and_used_once_there_is_one(
    datapath: &'static str,
) {
    let Some(rig) = Rig::new(datapath) else { return };
    rig.without_lte();
    rig.without_ipv4();
    let anchor = rig.world.anchor();
    let host = rig.host(&anchor);
    let cause = "wifi has IPv6 alone";
    let status = host.wait("why", |status| !status["trouble"].is_null());
    let why = status["trouble"]["why"].as_str().unwrap();
    assert!(why.contains(cause) && why.contains(ROUTER), "{why}");
    expect(&rig.doctor_of(&host), "translator", "todo", cause);
    // The first address would map the anchor to the host itself, the second is link-local, the third embeds no address.
    let own = Ipv6Addr::from_bits(0xfd61_0001_0000_0000_0000_0000_0a3d_0902);
    ip(rig.node(), &format!("-6 addr add {own}/64 dev wifi nodad"));
    let names = rig.names_with(&["fd61:1::c000:aa", "fe80::c000:aa", "2001:db8::1"]);
    wait_for("an answer", || names.log().contains("ipv4only.arpa"));
    host.wait("why not", |status| {
        let why = status["translators"][0]["why"].as_str().unwrap_or_default();
        why.contains("shows no translator's prefix")
    });
    assert!(path(&host.status(), "wifi").is_null());
    drop(names);
    let _names = rig.names();
    rig.is_up_by_translator(&host);
}

/// The demonstration's network with a translator on the router.
struct Rig {
    world: World,
    translator: Child,
}

impl Rig {
    fn new(datapath: &'static str) -> Option<Rig> {
        let world = World::new(datapath)?;
        let directory = world.path("tayga");
        std::fs::create_dir(&directory).unwrap();
        let config = format!(
            "tun-device nat64\nipv4-addr {TRANSLATOR}\nprefix {PREFIX}\ndynamic-pool {POOL}\ndata-dir {}\n",
            directory.display()
        );
        let config = world.file("tayga.conf", &config);
        let router = world.net.router();
        let tayga = |more: &[&str]| {
            let mut command = router.command("tayga");
            command.args(["-c", &config]).args(more).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        assert!(tayga(&["--mktun"]).status().unwrap().success());
        ip(router, "link set nat64 up");
        ip(router, &format!("addr add {TRANSLATOR}/32 dev nat64"));
        ip(router, &format!("route add {POOL} dev nat64"));
        ip(router, &format!("-6 route add {PREFIX} dev nat64"));
        let translator = tayga(&["--nodetach"]).spawn().unwrap();
        Some(Rig { world, translator })
    }

    fn node(&self) -> &Netns {
        self.world.net.host()
    }

    fn without_ipv4(&self) {
        ip(self.node(), "-4 addr flush dev wifi");
    }

    fn without_lte(&self) {
        ip(self.node(), "link set lte down");
    }

    /// Starts a name server on the router that reveals the translator.
    fn names(&self) -> Names {
        self.names_with(&["2001:db8:64::c000:aa", "2001:db8:64::c000:ab"])
    }

    fn names_with(&self, answers: &[&str]) -> Names {
        let log = self.world.path("names.log");
        let mut command = self.world.net.router().command("dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv"]);
        command.args(["--no-hosts", "--bind-interfaces", "--pid-file=", "--user=root"]);
        command.args(["--except-interface=lo", "--log-queries", "--local-ttl=600"]);
        command.arg(format!("--listen-address={ROUTER}"));
        command.arg(format!("--log-facility={}", log.display()));
        command.args(answers.iter().map(|ip| format!("--host-record=ipv4only.arpa,{ip}")));
        Names { server: command.stderr(Stdio::null()).spawn().unwrap(), log }
    }

    fn config(&self) -> String {
        format!("nameservers = [\"{ROUTER}\"]\n{HOST_FILE}")
    }

    /// Starts a host that is not yet enrolled, with a join line with the anchor's IPv4 address.
    fn host(&self, anchor: &Daemon) -> Daemon {
        let join = self.world.enroll(anchor, "laptop");
        self.world.host_in(self.node(), "host", &join, &self.config())
    }

    fn remote(&self) -> String {
        format!("[{}]:5005", synthesized())
    }

    fn is_up_by_translator(&self, host: &Daemon) {
        let status = host.wait("a path by the translator", |status| {
            registered(status) && path(status, "wifi")["state"] == "up"
        });
        assert_eq!(path(&status, "wifi")["remote"], *self.remote(), "{status:#}");
        assert_eq!(status["anchor"], *self.remote());
        assert_eq!(status["translators"][0]["prefix"], PREFIX);
        self.pings_pass();
    }

    fn pings_pass(&self) {
        let (to, _) = DemoNet::CN;
        wait_for("answers through the tunnel", || {
            let mut ping = self.node().command("ping");
            ping.args(["-c", "5", "-i", "0.05", "-W", "1", "-q", &to.to_string()]);
            ping.stdout(Stdio::null()).status().unwrap().success()
        });
    }

    /// The findings of `segue doctor` for a running host.
    fn doctor_of(&self, host: &Daemon) -> Vec<(String, String, String)> {
        self.doctor(&["--control", host.socket().to_str().unwrap()])
    }

    fn doctor(&self, more: &[&str]) -> Vec<(String, String, String)> {
        let file = format!("nameservers = [\"{ROUTER}\"]\ncontrol = \"/nowhere\"\n");
        let file = self.world.file("doctor.toml", &file);
        let anchor = DemoNet::ANCHOR.0.to_string();
        doctor(self.node(), &[&["-c", &file, "--anchor", &anchor], more].concat()).1
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.translator.kill();
        let _ = self.translator.wait();
    }
}

/// The address at which the translator presents the anchor.
fn synthesized() -> Ipv6Addr {
    let (anchor, _): (Ipv4Addr, _) = DemoNet::ANCHOR;
    prefix().embed(anchor)
}

fn prefix() -> Pref64 {
    Pref64::new(PREFIX.parse().unwrap()).unwrap()
}

fn ip(node: &Netns, line: &str) {
    let done = node.command("ip").args(line.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {line}: {}", text(&done.stderr));
}

/// A name server. Dropping it stops the server.
struct Names {
    server: Child,
    log: std::path::PathBuf,
}

impl Names {
    /// The log of its queries.
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A router that advertises only the translator's prefix, on solicitation and on [`advertise`](Router::advertise).
/// Dropping it stops the router.
struct Router {
    lifetime: Arc<AtomicU16>,
    told: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    fn start(node: &Netns) -> Router {
        let (interface, mut socket) = node
            .run(|| (link::index_of("wifi").unwrap(), RawSocket::icmpv6(&[133]).unwrap()))
            .unwrap();
        socket.join(ROUTERS, interface).unwrap();
        let lifetime = Arc::new(AtomicU16::new(600));
        let (told, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let shared = (lifetime.clone(), told.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let (lifetime, told, ends) = shared;
            while !ends.load(Ordering::Relaxed) {
                let asked = socket.receive(&mut [0; 1_500]).unwrap().is_some();
                if asked || told.swap(false, Ordering::Relaxed) {
                    let lifetime = lifetime.load(Ordering::Relaxed);
                    socket.send(&advertisement(interface, lifetime)).unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Router { lifetime, told, ends, thread: Some(thread) }
    }

    /// Sends an advertisement and gives the prefix this lifetime in seconds.
    fn advertise(&self, lifetime: u16) {
        self.lifetime.store(lifetime, Ordering::Relaxed);
        self.told.store(true, Ordering::Relaxed);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn advertisement(interface: u32, lifetime: u16) -> Datagram {
    let message = Message::RouterAdvertisement(RouterAdvertisement {
        cur_hop_limit: 0,
        flags: RouterAdvertisementFlags::default(),
        prf: Preference::Medium,
        router_lifetime: 0,
        reachable_time: 0,
        retrans_timer: 0,
        options: vec![NdOption::Pref64 { lifetime, prefix: prefix() }],
    });
    Datagram {
        waited_ns: 0,
        interface: Some(interface),
        from: (Ipv6Addr::UNSPECIFIED.into(), 0),
        to: (NODES.into(), 0),
        protocol: ICMPV6,
        hop_limit: 255,
        bytes: message.emit(),
    }
}
