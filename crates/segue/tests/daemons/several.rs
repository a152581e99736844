//! Two hosts at one anchor: neither can receive the other's packets or impersonate the other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nix::sys::signal::Signal;
use segue_ip::Prefix;
use segue_lab::Lab;
use segue_lab::topology::End;
use segue_linux::link;
use segue_linux::netns::Netns;

use crate::over_both;
use crate::traffic::{UdpEcho, one_datagram, udp};
use crate::world::{
    Daemon, HOST_FILE, PATIENCE, SEGUE, World, drops, inner, inventory, paths_up, possible,
    registered, tag, text,
};

over_both! { among_others:
    two_hosts_are_kept_apart_and_may_not_borrow_addresses
    packets_for_a_host_that_has_left_reach_no_other
    what_a_crash_left_is_cleaned_by_hand
    two_hosts_on_one_machine_have_tables_and_rules_of_their_own
}

/// An anchor with hosts `a` and `b` and a correspondent `cn`, each on a separate network next to it.
pub(crate) struct Two {
    lab: Lab,
    dir: tempfile::TempDir,
    pub datapath: &'static str,
}

impl Two {
    pub(crate) fn new(datapath: &'static str) -> Option<Two> {
        if !possible() {
            return None;
        }
        let _building = crate::building();
        let mut lab = Lab::new(&tag()).unwrap();
        for (net, node) in ["anchor", "a", "b", "cn"].into_iter().enumerate() {
            lab.add_node(node, node == "anchor").unwrap();
            if net == 0 {
                continue;
            }
            let ends = [1, 2]
                .map(|host| -> [Prefix; 1] { [format!("10.61.{net}.{host}/24").parse().unwrap()] });
            lab.connect(
                End { node: "anchor", device: node, addresses: &ends[0] },
                End { node, device: "up0", addresses: &ends[1] },
            )
            .unwrap();
            let gateway: IpAddr = format!("10.61.{net}.1").parse().unwrap();
            lab.route(node, Prefix::default_of(false), gateway, None).unwrap();
        }
        // Hosts send through the tunnel only what the anchor has a route for.
        let out: IpAddr = "10.61.3.2".parse().unwrap();
        lab.route("anchor", Prefix::default_of(false), out, None).unwrap();
        Some(Two { lab, dir: tempfile::tempdir().unwrap(), datapath })
    }

    pub(crate) fn node(&self, name: &str) -> &Netns {
        self.lab.node(name).unwrap()
    }

    pub(crate) fn start(&self, name: &str, args: &[&str]) -> Daemon {
        let args = [args, &["--datapath", self.datapath]].concat();
        let daemon = Daemon::start(self.node(name), self.dir.path().join(name), &args);
        daemon.wait("the daemon answers", |_| true);
        daemon
    }

    pub(crate) fn anchor(&self) -> Daemon {
        self.anchor_with("")
    }

    pub(crate) fn anchor_with(&self, config: &str) -> Daemon {
        let [state, file] = ["anchor.db", "anchor.toml"].map(|name| self.dir.path().join(name));
        std::fs::write(&file, config).unwrap();
        let [state, file] = [&state, &file].map(|path| path.to_str().unwrap());
        self.start("anchor", &["anchor", "--state", state, "-c", file])
    }

    /// The directory with this test's files.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Starts an anchor with its state at `state`.
    pub(crate) fn anchor_at(&self, state: &std::path::Path) -> Daemon {
        self.start("anchor", &["anchor", "--state", state.to_str().unwrap()])
    }

    /// A join line for a host on a network.
    pub(crate) fn enroll(&self, anchor: &Daemon, net: u8, name: &str) -> String {
        let done = anchor.cli(&["enroll", name, "--at", &format!("10.61.{net}.1")]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout).trim().to_owned()
    }

    /// The arguments of a host with its own state.
    pub(crate) fn host_args(&self, name: &str, line: &str) -> [String; 5] {
        let state = self.dir.path().join(format!("{name}.db"));
        let state = state.to_str().unwrap();
        ["host", "--join", line, "--state", state].map(str::to_owned)
    }

    pub(crate) fn host(&self, anchor: &Daemon, net: u8, name: &str) -> Daemon {
        self.joined(name, &self.enroll(anchor, net, name))
    }

    /// Restarts an enrolled host.
    pub(crate) fn again(&self, name: &str) -> Daemon {
        let state = self.dir.path().join(format!("{name}.db"));
        let host = self.start(name, &["host", "--state", state.to_str().unwrap()]);
        host.wait("a path up", |status| registered(status) && paths_up(status) == 1);
        host
    }

    fn joined(&self, name: &str, join: &str) -> Daemon {
        let args = self.host_args(name, join);
        let host = self.start(name, &args.each_ref().map(String::as_str));
        host.wait("a path up", |status| registered(status) && paths_up(status) == 1);
        host
    }
}

fn two_hosts_are_kept_apart_and_may_not_borrow_addresses(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor_with("reach_hosts = true\n");
    let (a, b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let (own_a, own_b) = (inner(&a.status()), inner(&b.status()));
    assert!(own_a.0 != own_b.0 && own_a.1 != own_b.1, "{own_a:?} {own_b:?}");

    // Use the same ports at both hosts, so that only the inner address distinguishes the flows.
    let echo = UdpEcho::start(two.node("cn"), "10.61.3.2".parse().unwrap());
    let sockets = [("a", IpAddr::from(own_a.0)), ("b", own_b.0.into())].map(|(name, ip)| {
        let socket = udp(two.node(name), SocketAddr::new(ip, 40_000));
        socket.connect(echo.address).unwrap();
        (name, socket)
    });
    let mut buffer = [0; 64];
    for round in 0..50 {
        for (name, socket) in &sockets {
            socket.send(format!("{name} {round}").as_bytes()).unwrap();
        }
        for (name, socket) in &sockets {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let len = socket.recv(&mut buffer).expect("the echo comes back");
            assert_eq!(text(&buffer[..len]), format!("{name} {round}"));
        }
    }
    // Hosts reach each other through the anchor if it allows them to.
    let at_b = UdpEcho::start(two.node("b"), own_b.0.into());
    one_datagram(two.node("a"), at_b.address).expect("from host to host");
    assert_eq!(drops(&anchor.status(), "inner_source"), 0);

    // Host a takes host b's address and sends from it.
    two.node("a")
        .run(|| link::add_address("segue0", Prefix::host(IpAddr::from(own_b.0))).unwrap())
        .unwrap();
    let liar = udp(two.node("a"), SocketAddr::new(own_b.0.into(), 41_000));
    liar.connect(echo.address).unwrap();
    for _ in 0..10 {
        liar.send(b"I am b").unwrap();
    }
    let status = anchor.wait("refused and counted", |s| drops(s, "inner_source") >= 10);
    assert_eq!(drops(&status, "inner_source"), 10);
    liar.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    assert!(liar.recv(&mut buffer).is_err(), "nothing comes back");
    assert!(anchor.flow(&[":41000"]).is_none(), "and nothing was learned");
    let (name, socket) = &sockets[1];
    socket.send(b"still here").unwrap();
    let len = socket.recv(&mut buffer).expect("the real owner is not disturbed");
    assert_eq!((&buffer[..len], *name), (&b"still here"[..], "b"));
}

/// The anchor has room for two paths (slot 0 is unused), so the third path reuses the slot of the first.
fn packets_for_a_host_that_has_left_reach_no_other(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor_with("max_paths = 3\n");
    let [join_a, join_b] = [(1, "a"), (2, "b")].map(|(net, name)| two.enroll(&anchor, net, name));
    let mut b = two.joined("b", &join_b);
    let echo = UdpEcho::start(two.node("cn"), "10.61.3.2".parse().unwrap());
    let far = udp(two.node("cn"), "10.61.3.2:0".parse().unwrap());
    let near = udp(two.node("b"), SocketAddr::new(inner(&b.status()).0.into(), 0));
    near.send_to(b"hello", far.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far.connect(far.recv_from(&mut [0; 64]).expect("the flow begins").1).unwrap();
    assert!(b.end(nix::sys::signal::Signal::SIGTERM).success());
    anchor.wait("b has left", |status| status["hosts"] == serde_json::json!([]));

    for _ in 0..3 {
        let mut a = two.joined("a", &join_a);
        let before = drops(&anchor.status(), "no_host");
        for _ in 0..200 {
            far.send(b"for b alone").unwrap();
        }
        // Once this is answered, the anchor has handled all of them.
        one_datagram(two.node("a"), echo.address).expect("a's own traffic");
        assert_eq!(drops(&a.status(), "inner_destination"), 0, "a was sent what is b's");
        anchor.wait("they went nowhere", |s| drops(s, "no_host") == before + 200);
        assert!(a.end(nix::sys::signal::Signal::SIGTERM).success());
        anchor.wait("a has left", |status| status["hosts"] == serde_json::json!([]));
    }
}

fn what_a_crash_left_is_cleaned_by_hand(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let clean = |daemon: &Daemon| {
        let mut command = two.node("a").command(crate::world::SEGUE);
        command.env("COLUMNS", "1000");
        let output = command.arg("clean").arg("--control").arg(daemon.socket()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let before = crate::world::settled(two.node("a"));
    let anchor = two.anchor();
    let mut host = two.host(&anchor, 1, "a");
    let running = crate::world::inventory(two.node("a"));
    let said = clean(&host);
    assert!(said.contains("segue0 belongs to a running daemon"), "{said}");
    assert_eq!(crate::world::inventory(two.node("a")), running);
    assert!(host.socket().exists());

    host.end(nix::sys::signal::Signal::SIGKILL);
    assert_ne!(crate::world::inventory(two.node("a")), before);
    let said = clean(&host);
    assert!(said.contains("routing rules") && said.contains("a.sock"), "{said}");
    assert_eq!(crate::world::inventory(two.node("a")), before);
    assert!(!host.socket().exists());
    assert!(clean(&host).contains("nothing to clean"));
}

fn two_hosts_on_one_machine_have_tables_and_rules_of_their_own(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, first) = world.running();
    let node = world.net.host();
    let own = |number: u32| {
        let lines = inventory(node).into_iter();
        let of = |line: &String| match number {
            0 => ["24160", "rule: 5280:"].iter().any(|mine| line.contains(mine)),
            _ => ["24162", "rule: 5285:", "segue1"].iter().any(|mine| line.contains(mine)),
        };
        lines.filter(of).collect::<Vec<_>>()
    };
    let of_first = own(0);
    assert!(!of_first.is_empty() && own(1).is_empty());
    let join = world.enroll(&anchor, "second");
    let config = format!("device = \"segue1\"\nport = 5105\n{HOST_FILE}");
    let mut second = world.host_in(node, "second", &join, &config);
    second.wait("both paths of the second", |status| registered(status) && paths_up(status) == 2);
    let status = first.wait("both paths of the first", |status| paths_up(status) == 2);
    assert!(own(1).iter().any(|line| line.contains("24162")), "{:#?}", inventory(node));

    // Each host is reached over its own tunnel.
    let (a, b) = (inner(&status).0, inner(&second.status()).0);
    assert_ne!(a, b);
    let pings = |to: Ipv4Addr| {
        let args = ["-c", "3", "-i", "0.2", "-W", "2", &to.to_string()];
        world.net.anchor().command("ping").args(args).status().unwrap().success()
    };
    assert!(pings(a) && pings(b));

    // A third host whose device ends in the same number as the first's does not start, and takes nothing from it.
    let join = world.file("third.join", &world.enroll(&anchor, "third"));
    std::fs::set_permissions(&join, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = format!("device = \"segue-b0\"\nport = 5205\n{HOST_FILE}");
    let config = world.file("third.toml", &config);
    let (state, socket) = (world.path("third.db"), world.path("third.sock"));
    let mut command = node.command("timeout");
    command.args([
        "20",
        SEGUE,
        "host",
        "--datapath",
        datapath,
        "-c",
        &config,
        "--join-file",
        &join,
    ]);
    command.arg("--state").arg(state).arg("--control").arg(socket);
    let third = command.output().unwrap();
    assert_eq!(third.status.code(), Some(2), "{}", text(&third.stderr));
    let said = text(&third.stderr);
    assert!(said.contains("ends in the number 0") && said.contains("segue1"), "{said}");
    assert_eq!(own(0), of_first);
    assert!(!first.log().contains("somebody removed"), "{}", first.log());

    // The leftovers of the second host after a crash are removed while the first runs unaffected.
    second.end(Signal::SIGKILL);
    assert_ne!(own(1), Vec::<String>::new());
    let mut command = node.command(SEGUE);
    command.env("COLUMNS", "1000");
    let cleaned = command.arg("clean").arg("--control").arg(second.socket()).output().unwrap();
    let said = text(&cleaned.stdout);
    assert!(said.contains("removed 6 routing rules") && said.contains("second.sock"), "{said}");
    assert_eq!((own(0), own(1)), (of_first, Vec::new()));
    assert!(pings(a));
}

#[test]
fn a_role_without_a_name_is_the_only_daemon_of_it_that_has_one() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left.toml");
    std::fs::write(&file, "instance = \"left\"\n").unwrap();
    // Give these daemons a separate /run, where sockets are by default.
    let script = format!(
        "mount -t tmpfs tmpfs /run && ip link set lo up && mkdir /run/segue || exit 9
         {SEGUE} mih function -c {} 2>/dev/null & left=$!
         until [ -S /run/segue/mih-function-left.sock ]; do sleep 0.05; done
         {SEGUE} status mih-function; echo code $?
         {SEGUE} status mih-function --instance left >/dev/null; echo code $?
         touch /run/segue/mih-function-right.sock
         {SEGUE} status mih-function 2>&1; echo code $?
         kill $left",
        file.display()
    );
    let output = std::process::Command::new("timeout")
        .args(["60", "unshare", "--mount", "--net", "sh", "-c", &script])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(said.starts_with("mih-function mihf-left@"), "{said} {}", text(&output.stderr));
    assert_eq!(said.matches("code 0").count(), 2, "{said}");
    let which = "which mih-function? Name one with --instance: left, right";
    assert!(said.contains(which) && said.trim_end().ends_with("code 2"), "{said}");
}
