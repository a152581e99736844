//! Join lines that name the anchor: hosts resolve the name over any access with a working name
//! server, and again after its address has changed.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Stdio};
use std::time::Duration;

use segue_ip::Prefix;
use segue_lab::DemoNet;
use segue_lab::Direction;
use segue_linux::link;

use crate::doctor::{doctor, expect};
use crate::over_both;
use crate::traffic::Stream;
use crate::world::{Daemon, World, inner, nft, paths_up, registered, text};

over_both! { among_others:
    a_host_finds_its_anchor_by_name_over_the_access_that_works
    a_host_follows_its_anchors_name_to_another_address
    a_name_that_nobody_knows_is_said_and_looked_up_again
}

const NAME: &str = "anchor.example.net";
/// The router's address on the anchor's side.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 61, 9, 1);
/// The address that the name has later.
const MOVED: Ipv4Addr = Ipv4Addr::new(10, 61, 9, 77);

/// A name server on the router. Dropping it stops the server.
struct NameServer(Child);

impl NameServer {
    /// Starts a server that resolves the name to all of these addresses.
    fn start(world: &World, addresses: &[IpAddr]) -> NameServer {
        let mut command = world.net.router().command("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ]);
        command.args(["--bind-interfaces", "--pid-file=", "--user=root", "--except-interface=lo"]);
        command.arg(format!("--listen-address={SERVER}"));
        command.args(addresses.iter().map(|ip| format!("--host-record={NAME},{ip}")));
        NameServer(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line(anchor: &Daemon) -> String {
    let done = anchor.cli(&["enroll", "laptop", "--at", NAME]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout).trim().to_owned()
}

fn host(world: &World, line: &str) -> Daemon {
    let config = format!("nameservers = [\"{SERVER}\"]\n[keepalive]\nk = 6\nperiod = \"50ms\"\n");
    world.host_in(world.net.host(), "host", line, &config)
}

fn a_host_finds_its_anchor_by_name_over_the_access_that_works(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    // The first address belongs to another machine.
    let router = Ipv4Addr::new(10, 61, 1, 1);
    let found = [router.into(), DemoNet::ANCHOR.0.into(), DemoNet::ANCHOR.1.into()];
    let _names = NameServer::start(&world, &found);
    for way in Direction::ALL {
        world.net.wifi().set_silent(way, true);
    }
    let host = host(&world, &line(&anchor));
    let status = host.wait("in, over lte", |status| registered(status) && paths_up(status) == 1);
    assert_eq!(status["signalling"], "lte", "{status:#}");
    // Before the host starts, doctor uses the name server in the file, too.
    let file = format!("nameservers = [\"{SERVER}\"]\ncontrol = \"/nowhere\"\n");
    let file = world.file("before.toml", &file);
    let (_, lines) = doctor(world.net.host(), &["-c", &file, "--anchor", NAME]);
    expect(&lines, "anchor", "ok", &format!("{}:5006", DemoNet::ANCHOR.0));
    for way in Direction::ALL {
        world.net.wifi().set_silent(way, false);
    }
    host.wait("over both, none of them to somebody else", |status| paths_up(status) == 2);
}

fn a_host_follows_its_anchors_name_to_another_address(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    let names = NameServer::start(&world, &[DemoNet::ANCHOR.0.into()]);
    let host = host(&world, &line(&anchor));
    let before = host.wait("two paths", |status| registered(status) && paths_up(status) == 2);
    let cn = DemoNet::CN.0.into();
    let stream = Stream::start(world.net.host(), world.net.cn(), cn, Duration::from_millis(20));
    stream.flows_on(10_000);

    drop(names);
    let _names = NameServer::start(&world, &[MOVED.into()]);
    let address = Prefix::new(MOVED, 24);
    world.net.anchor().run(|| link::add_address("core", address).unwrap()).unwrap();
    let drop_old = format!(
        "table ip old {{\nchain c {{\ntype filter hook forward priority 0; ip daddr {} udp dport 5005-5006 drop\n}}\n}}\n",
        DemoNet::ANCHOR.0
    );
    nft(world.net.router(), &drop_old);
    let there = format!("{MOVED}:5005");
    let after = host.wait("at the new address", |status| {
        registered(status) && status["anchor"] == *there && paths_up(status) == 2
    });
    assert_eq!(inner(&before), inner(&after));
    stream.flows_on(10_000);
    drop(stream);
}

fn a_name_that_nobody_knows_is_said_and_looked_up_again(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    let host = host(&world, &line(&anchor));
    let status = host.wait("why", |status| !status["trouble"].is_null());
    let why = status["trouble"]["why"].as_str().unwrap();
    assert!(why.contains(NAME), "{why}");
    assert!(
        host.log().contains(&format!("WARN where the anchor's name {NAME} leads is not known"))
    );
    let names = NameServer::start(&world, &[DemoNet::ANCHOR.0.into()]);
    host.wait("in", |status| registered(status) && paths_up(status) == 2);

    // The stored addresses serve a start without a name server.
    drop((names, host));
    let config = "nameservers = [\"10.61.10.9\"]\n";
    let host = world.host_with(world.net.host(), "host", config, &[]);
    host.wait("in again", |status| registered(status) && paths_up(status) == 2);
}
