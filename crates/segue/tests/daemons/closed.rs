//! A host that fails closed: no packet leaves outside the tunnel, whatever happens to the daemon
//! and the routes. Also, a packet thread that dies takes its daemon down.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::over_both;
use crate::traffic::{UdpEcho, any, correspondents, one_datagram, udp};
use crate::world::{Daemon, PATIENCE, World, inner, inventory, paths_up, settled, text};

over_both! { among_others:
    nothing_leaves_a_closed_host_after_a_crash_or_over_a_hostile_route
    a_closed_host_reaches_its_anchor_over_ipv6
    packet_threads_that_panic_end_their_daemon
    a_tunnel_device_that_is_removed_ends_the_daemon
}

const CLOSED: &str = "fail_closed = true\n[keepalive]\nk = 6\nperiod = \"50ms\"\n";

fn ip(node: &Netns, arguments: &str) -> String {
    let done = node.command("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// The gateway of a host's default route over Wi-Fi.
fn gateway(node: &Netns, v6: bool) -> String {
    let family = if v6 { "-6" } else { "-4" };
    let routes = ip(node, &format!("{family} route show default dev wifi"));
    let words: Vec<&str> = routes.split_whitespace().collect();
    let via = words.iter().position(|word| *word == "via").expect("a default route");
    words[via + 1].to_owned()
}

/// Whether a datagram from this node reaches `far` by any route.
fn leaves(node: &Netns, far: &UdpSocket, from: SocketAddr, device: bool) -> bool {
    let near = udp(node, from);
    if device {
        let bound = nix::sys::socket::sockopt::BindToDevice;
        nix::sys::socket::setsockopt(&near, bound, &"wifi".into()).unwrap();
    }
    for _ in 0..3 {
        let _ = near.send_to(b"in clear", far.local_addr().unwrap());
    }
    far.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    far.recv(&mut [0; 16]).is_ok()
}

fn nothing_leaves_a_closed_host_after_a_crash_or_over_a_hostile_route(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let node = world.net.host();
    let before = settled(node);
    let anchor = world.anchor();
    let join = world.enroll(&anchor, "laptop");
    let mut host = world.host_in(node, "host", &join, CLOSED);
    let up = |status: &serde_json::Value| paths_up(status) == 2;
    let status = host.wait("two paths up", up);
    let own = [IpAddr::from(inner(&status).0), inner(&status).1.into()];
    let echoes = correspondents().map(|ip| UdpEcho::start(world.net.cn(), ip));
    for (echo, own) in echoes.iter().zip(own) {
        // A hostile DHCP answer or router advertisement would set this route.
        let to = echo.address.ip();
        let via = gateway(node, to.is_ipv6());
        ip(node, &format!("route add {to} via {via} dev wifi"));
        let (from, _) = one_datagram(node, echo.address).expect("through the tunnel");
        assert_eq!(from.ip(), own, "the hostile route pulled it out");
    }
    drop(echoes);
    host.end(Signal::SIGKILL);
    let far = correspondents().map(|ip| udp(world.net.cn(), SocketAddr::new(ip, 0)));
    let ways = |open: bool| {
        for far in &far {
            let anywhere = any(far.local_addr().unwrap().ip());
            assert_eq!(leaves(node, far, anywhere, false), open, "{datapath} {far:?}");
            let by_device = leaves(node, far, anywhere, true);
            assert_eq!(by_device, open, "{datapath} {far:?}, by device");
        }
    };
    ways(false);
    // Neighbours stay reachable.
    let neighbour = gateway(node, true);
    let ping = |to: &str| node.command("ping").args(["-6", "-c", "1", "-W", "2", to]).output();
    if neighbour.starts_with("fe80") {
        let pinged = ping(&format!("{neighbour}%wifi")).unwrap();
        assert!(pinged.status.success(), "{}", text(&pinged.stdout));
    }
    // A daemon that fails leaves the host closed.
    let taken = udp(node, "0.0.0.0:5005".parse().unwrap());
    let config = world.file("closed.toml", CLOSED);
    let files = ["host.join", "host.db"].map(|name| world.path(name));
    let [file, state] = files.each_ref().map(|path| path.to_str().unwrap());
    let args = ["host", "--datapath", datapath, "-c", &config, "--join-file", file];
    let args = [&args[..], &["--state", state]].concat();
    let mut refused = Daemon::start(node, world.path("refused"), &args);
    assert!(!refused.ended().success());
    assert!(refused.log().contains("5005"), "{}", refused.log());
    drop(taken);
    ways(false);
    let mut host = world.host_in(node, "host", &join, CLOSED);
    host.wait("two paths up again", up);
    host.end(Signal::SIGKILL);
    ways(false);
    let socket = host.socket();
    let clean =
        node.command(crate::world::SEGUE).arg("clean").arg("--control").arg(socket).output();
    let said = text(&clean.unwrap().stdout);
    assert!(said.contains("routing rules") && said.contains("unreachable routes"), "{said}");
    ways(true);
    // A daemon stopped by SIGTERM opens the host again.
    let mut host = world.host_in(node, "host", &join, CLOSED);
    host.wait("two paths up", up);
    assert!(host.end(Signal::SIGTERM).success());
    ways(true);
    for far in &far {
        ip(node, &format!("route del {}", far.local_addr().unwrap().ip()));
    }
    assert_eq!(inventory(node), before);
}

/// An anchor decides a host's addresses, but not which packets the host sends through the tunnel.
#[test]
fn what_enters_the_tunnel_is_what_the_hosts_own_file_says() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (anchor, node) = (world.anchor(), world.net.host());
    let join = world.enroll(&anchor, "laptop");
    let config =
        format!("routes = [\"198.18.0.0/15\"]\n{}", CLOSED.replace("fail_closed = true\n", ""));
    let host = world.host_in(node, "host", &join, &config);
    host.wait("two paths up", |status| paths_up(status) == 2);
    let table = format!("table {} ", segue_daemon::number::Number::of("segue0").table());
    let entering = |family: &str| -> Vec<String> {
        let all = ip(node, &format!("{family} route show table all"));
        let own = all.lines().filter(|line| format!("{line} ").contains(&table));
        own.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(entering("-4"), ["198.18.0.0/15"]);
    assert_eq!(entering("-6"), [] as [String; 0]);
}

fn a_tunnel_device_that_is_removed_ends_the_daemon(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (mut anchor, mut host) = world.running();
    for (daemon, node) in [(&mut host, world.net.host()), (&mut anchor, world.net.anchor())] {
        ip(node, "link del segue0");
        let status = daemon.ended();
        assert!(!status.success(), "{status}");
        let log = daemon.log();
        let said = log.lines().filter(|line| line.contains("has ended")).count();
        assert_eq!(said, 1, "{log}");
        assert!(log.contains("the tunnel device is gone"), "{log}");
    }
}

fn a_closed_host_reaches_its_anchor_over_ipv6(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let anchor = world.anchor();
    let at = DemoNet::ANCHOR.1.to_string();
    let done = anchor.cli(&["enroll", "laptop", "--at", &at]);
    let host = world.host_in(world.net.host(), "host", text(&done.stdout).trim(), CLOSED);
    host.wait("two paths up", |status| paths_up(status) == 2);
    let echoes = correspondents().map(|ip| UdpEcho::start(world.net.cn(), ip));
    for echo in &echoes {
        one_datagram(world.net.host(), echo.address).expect("through the tunnel");
    }
}

/// A tracer that makes one thread's read return an impossible value. It ends with the thread.
struct Tracer(Child);

impl Tracer {
    /// Alters the thread's next read. `None` without `strace`.
    fn attach(thread: u32) -> Option<Tracer> {
        let tracer = Command::new("strace")
            .args(["-qq", "-o", "/dev/null", "-e", "trace=read"])
            .args(["-e", "inject=read:retval=1000000000:when=1"])
            .args(["-p", &thread.to_string()])
            .spawn();
        match tracer {
            Ok(tracer) => Some(Tracer(tracer)),
            Err(error) => {
                println!("skipped: strace: {error}");
                None
            }
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A read that returns more bytes than the buffer holds makes the thread panic, as a bug in the
/// thread would.
fn packet_threads_that_panic_end_their_daemon(datapath: &'static str) {
    let thread = if datapath == "ebpf" { "segue-ebpf" } else { "segue-egress" };
    let Some(world) = World::new(datapath) else { return };
    let (anchor, mut host) = world.running();
    let Some(_tracer) = Tracer::attach(host.thread(thread)) else { return };
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let own = udp(world.net.host(), any(echo.address.ip()));
    let start = Instant::now();
    while host.runs() {
        assert!(start.elapsed() < PATIENCE, "the daemon goes on: {}", host.log());
        let _ = own.send_to(b"to be read", echo.address);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!host.ended().success(), "{datapath}");
    let log = host.log();
    assert!(log.contains(&format!("{thread} has ended: it panicked")), "{log}");
    drop(anchor);
}
