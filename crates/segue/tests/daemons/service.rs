//! A daemon as a system service: access to its control socket, and its metrics page.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use segue_linux::netns::Netns;

use crate::exposition::{Values, page_over, scrape_over};
use crate::over_both;
use crate::pmip::Domain;
use crate::traffic::{Stream, correspondents};
use crate::world::{Daemon, SEGUE, World, text, wait_for};

over_both! { among_others:
    both_daemons_serve_metrics_on_loopback_while_paths_come_and_go
}

const PORT: u16 = 9_101;

fn connect(node: &Netns) -> TcpStream {
    node.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).unwrap()).unwrap()
}

fn scrape(node: &Netns) -> Values {
    scrape_over(connect(node))
}

/// Checks a page with promtool, Prometheus' own checker.
fn judge(page: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool is there (scripts/deps.sh test)");
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{page}", text(&output.stderr));
}

fn value(page: &Values, name: &str, labels: &str) -> f64 {
    let found = page.get(&(name.to_owned(), labels.to_owned()));
    *found.unwrap_or_else(|| panic!("{name} {labels}: {page:#?}"))
}

fn both_daemons_serve_metrics_on_loopback_while_paths_come_and_go(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let setting = format!("metrics = \":{PORT}\"\n");
    let config = world.file("anchor.toml", &setting);
    let anchor = world.anchor_with(&["-c", &config]);
    let join = world.enroll(&anchor, "laptop");
    let config = setting + "[keepalive]\nk = 6\nperiod = \"50ms\"\n";
    let host = world.host_in(world.net.host(), "host", &join, &config);
    host.wait("two paths up", |status| crate::world::paths_up(status) == 2);
    anchor.wait("two paths up", |status| crate::world::paths_up(status) == 2);
    let stream =
        Stream::start(world.net.host(), world.net.cn(), correspondents()[0], Default::default());
    stream.flows_on(1 << 20);

    let sides = [(world.net.host(), ""), (world.net.anchor(), "host=\"laptop\",")];
    for (node, host) in sides {
        judge(&page_over(connect(node)));
        let page = scrape(node);
        let of_wifi = |more: &str| format!("{host}path=\"wifi\"{more}");
        let at_wifi = |name: &str, more: &str| value(&page, name, &of_wifi(more));
        assert!((0.01..10.0).contains(&at_wifi("segue_rtt_seconds", "")));
        assert!((0.01..10.0).contains(&at_wifi("segue_rtt_average_seconds", ",tau=\"1s\"")));
        assert!(at_wifi("segue_probes_sent_total", "") > 0.0);
        assert!(at_wifi("segue_inner_bytes_total", ",direction=\"up\"") > f64::from(1 << 20));
        assert!(at_wifi("segue_packets_sent_total", ",direction=\"up\"") > 0.0);
        assert_eq!(at_wifi("segue_path_state", ",state=\"up\""), 1.0);
        assert_eq!(at_wifi("segue_path_state", ",state=\"down\""), 0.0);
        assert_eq!(value(&page, "segue_paths", "state=\"up\""), 2.0);
        assert_eq!(value(&page, "segue_paths", "state=\"down\""), 0.0);
        let ups = value(&page, "segue_events_total", "kind=\"path_state\",cause=\"up\"");
        assert!(ups >= 2.0, "each path came up: {ups}");
    }
    let page = scrape(world.net.host());
    assert_eq!(value(&page, "segue_class_path", "class=\"voice\",path=\"wifi\""), 1.0);
    assert!(value(&page, "segue_path_mtu_bytes", "path=\"wifi\",direction=\"up\"") >= 1_280.0);
    assert_eq!(value(&scrape(world.net.host()), "segue_registered", ""), 1.0);
    assert_eq!(value(&scrape(world.net.anchor()), "segue_hosts", ""), 1.0);

    // While paths come and go, each page is complete and correct and reports each value once per
    // path.
    for (state, paths) in [("down", 1.0), ("up", 2.0)] {
        let mut ip = world.net.host().command("ip");
        assert!(ip.args(["link", "set", "lte", state]).status().unwrap().success());
        if state == "up" {
            for (family, gateway) in [("-4", "10.61.2.1"), ("-6", "fd61:2::1")] {
                let mut ip = world.net.host().command("ip");
                let metric = ["dev", "lte", "metric", "200"];
                ip.args([family, "route", "replace", "default", "via", gateway]).args(metric);
                let _ = ip.output();
            }
        }
        for (node, _) in sides {
            wait_for("the paths on the page", || {
                value(&scrape(node), "segue_paths", "state=\"up\"") == paths
            });
        }
    }
    assert!(is_closed_from_outside(world.net.host()), "only this machine is served");
}

#[test]
fn anchors_and_gateways_of_proxy_mobile_ipv6_count_what_happens() {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty("user") else { return };
    let setting = format!("metrics = \":{PORT}\"\n");
    domain.lma = Some(domain.start("lma", "lma", &setting));
    let left = domain.start("mag", "wlan1", &setting);
    domain.attach("host:wlan", "wlan1");
    domain.lma().wait("a binding", |status| status["bindings"].as_array().unwrap().len() == 1);
    left.wait("a host", |status| status["host_count"] == 1);
    let counted = |node: &str| {
        let node = domain.node(node);
        judge(&page_over(connect(node)));
        scrape(node)
    };
    let (lma, mag) = (counted("lma"), counted("left"));
    assert_eq!(value(&lma, "segue_bindings", ""), 1.0);
    assert_eq!(value(&mag, "segue_attached", ""), 1.0);
    for page in [&lma, &mag] {
        assert_eq!(value(page, "segue_events_total", "kind=\"registered\",cause=\"\""), 1.0);
    }
    domain.lab.detach("host:wlan", None).unwrap();
    left.wait("no host", |status| status["host_count"] == 0);
    let left = counted("left");
    let gone = left.iter().filter(|((name, labels), _)| {
        name == "segue_events_total" && labels.starts_with("kind=\"left\",cause=\"")
    });
    assert_eq!(gone.map(|(_, count)| *count).sum::<f64>(), 1.0, "{left:#?}");
}

fn is_closed_from_outside(host: &Netns) -> bool {
    let address = (segue_lab::DemoNet::HOST_WIFI.0, PORT);
    host.run(|| TcpStream::connect(address).is_err()).unwrap()
}

/// Runs `segue status` as another user in these groups.
fn status_as(user: &str, group: &str, groups: &str, daemon: &Daemon) -> Output {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid", user, "--regid", group]);
    match groups {
        "" => setpriv.arg("--clear-groups"),
        groups => setpriv.args(["--groups", groups]),
    };
    setpriv.args([SEGUE, "status", "--control"]).arg(daemon.socket()).output().unwrap()
}

#[test]
fn a_group_may_use_the_control_socket_and_nobody_else() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.dir.path(), open).unwrap();
    let daemon_group = nix::unistd::Group::from_name("daemon").unwrap().unwrap().gid.to_string();
    let config = world.file("anchor.toml", "control_group = \"daemon\"\n");
    let anchor = world.anchor_with(&["-c", &config]);
    let mode =
        |anchor: &Daemon| std::fs::metadata(anchor.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&anchor), 0o660);
    let may = |user: &str, group: &str, groups: &str| {
        let output = status_as(user, group, groups, &anchor);
        assert!(output.status.success(), "{user} {group} {groups}: {}", text(&output.stderr));
    };
    may("65534", &daemon_group, "");
    may("65534", "65534", &format!("65534,{daemon_group}"));
    let refused = status_as("65534", "65534", "", &anchor);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("closed to you"), "{}", text(&refused.stderr));

    // The daemon checks clients itself, whatever the mode of the socket.
    std::fs::set_permissions(anchor.socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
    may("65534", &daemon_group, "");
    may("65534", "65534", &format!("65534,{daemon_group}"));
    let refused = status_as("65534", "65534", "", &anchor);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("control_group"), "{}", text(&refused.stderr));
    drop(anchor);

    // Without the setting, only root may use it.
    let anchor = world.anchor();
    assert_eq!(mode(&anchor), 0o600);
    std::fs::set_permissions(anchor.socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let refused = status_as("65534", &daemon_group, &daemon_group, &anchor);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
}

#[test]
fn a_group_that_is_not_there_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("anchor.toml");
    std::fs::write(&file, "control_group = \"segue-no-such\"\n").unwrap();
    let output = Command::new(SEGUE).args(["anchor", "-c"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("control_group") && said.contains("groupadd"), "{said}");
}
