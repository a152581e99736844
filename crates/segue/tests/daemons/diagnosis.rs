//! Diagnosis of failures: the first line of `status` or `doctor` names the cause and the remedy.

use std::time::Duration;

use nix::sys::signal::Signal;
use segue_linux::netns::Netns;

use crate::clocks::shim;
use crate::doctor::doctor;
use crate::several::Two;
use crate::world::{Daemon, SEGUE, nft, paths_up, registered, text, wait_for};

/// The first line that `segue doctor` prints about a daemon.
fn first(node: &Netns, daemon: &Daemon) -> String {
    let socket = daemon.socket();
    doctor(node, &["--control", socket.to_str().unwrap()]).1[0].2.clone()
}

/// Waits until the first line of the status contains all of `parts`.
fn expect_status(daemon: &Daemon, parts: &[&str]) {
    let mut line = String::new();
    wait_for(&format!("a status with {parts:?}"), || {
        let said = text(&daemon.cli(&["status"]).stdout);
        line = said.lines().next().unwrap_or_default().to_owned();
        parts.iter().all(|part| line.contains(part))
    });
}

fn expect(line: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
}

/// The lines of a log at the default level.
fn usual(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| !line.contains("DEBUG"))
}

#[test]
fn a_removed_host_says_so_everywhere_and_after_its_restart() {
    const SAID: [&str; 2] = ["no longer enrolled", "run `segue enroll a` at the anchor"];
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let mut host = two.host(&anchor, 1, "a");
    assert!(anchor.cli(&["enroll", "a", "--remove"]).status.success());
    expect_status(&host, &SAID);
    expect(&first(two.node("a"), &host), &SAID);
    // Wait for several attempts.
    std::thread::sleep(Duration::from_secs(3));
    expect_status(&host, &SAID);
    expect(&host.log(), &SAID);
    wait_for("the anchor's log", || anchor.log().contains("its certificate is no longer enrolled"));
    for log in [host.log(), anchor.log()] {
        let code = usual(&log).find(|line| line.contains("error 44") || line.contains("Revoked"));
        assert_eq!(code, None, "words, not codes");
    }
    host.end(Signal::SIGKILL);
    // The restarted daemon exits, so that only its stored state can explain the failure.
    let state = two.directory().join("a.db");
    let state = state.to_str().unwrap();
    let config = two.directory().join("a.toml");
    let none = two.directory().join("none.sock");
    std::fs::write(&config, format!("state = {state:?}\ncontrol = {none:?}\n")).unwrap();
    let config = config.to_str().unwrap();
    let mut host = two.node("a").command(SEGUE);
    host.env("COLUMNS", "1000");
    let ended = host.args(["host", "--datapath", "user", "-c", config]).output().unwrap();
    expect(&text(&ended.stderr), &SAID);
    expect(&doctor(two.node("a"), &["-c", config]).1[0].2, &SAID);
}

#[test]
fn an_expired_and_a_revoked_join_line_are_told_by_doctor_too() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let enroll = |more: &[&str]| {
        let done = anchor.cli(&[&["enroll", "a", "--at", "10.61.1.1"], more].concat());
        text(&done.stdout).trim().to_owned()
    };
    let late = enroll(&["--valid", "1s"]);
    std::thread::sleep(Duration::from_millis(2_100));
    let replaced = enroll(&[]);
    enroll(&[]);
    for (name, line, why) in
        [("late", late, "does not know this join line"), ("former", replaced, "newer one")]
    {
        let state = two.directory().join(format!("{name}.db"));
        let config = two.directory().join(format!("{name}.toml"));
        std::fs::write(&config, format!("state = {state:?}\ncontrol = \"/nowhere\"\n")).unwrap();
        let config = config.to_str().unwrap();
        let control = two.directory().join("none.sock");
        let mut host = two.node("a").command(SEGUE);
        host.env("COLUMNS", "1000");
        host.args(["host", "--datapath", "user", "-c", config, "--join", &line, "--control"]);
        let ended = host.arg(control).output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
        expect(&doctor(two.node("a"), &["-c", config]).1[0].2, &[why, "segue enroll a"]);
    }
}

#[test]
fn a_clock_that_makes_a_good_certificate_expired_is_named() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let mut anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    anchor.end(Signal::SIGTERM);
    let state = two.directory().join("anchor.db");
    let preload = format!("LD_PRELOAD={}", shim(two.directory()).display());
    let under = ["env", &preload, "CLOCK_OFFSET_S=31536000"];
    let args = ["anchor", "--datapath", "user", "--state", state.to_str().unwrap()];
    let base = two.directory().join("later");
    let _later = Daemon::start_under(two.node("anchor"), &under, base, &args);
    expect_status(&host, &["the clock of the anchor or of this host", "is wrong; set it"]);
    expect(&first(two.node("a"), &host), &["the clock of the anchor or of this host"]);
}

#[test]
fn closed_firewalls_are_named_by_both_ends() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let mut anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let node = two.node("anchor");
    nft(
        node,
        "add table inet filter; add chain inet filter input { type filter hook input priority 0; }",
    );
    nft(node, "add rule inet filter input udp dport 5005 drop");
    expect_status(&host, &["no path", "UDP 5005"]);
    expect(&first(two.node("a"), &host), &["UDP 5005"]);
    expect(&first(node, &anchor), &["keeps UDP 5005 out"]);
    nft(node, "flush chain inet filter input");
    host.wait("a path up", |status| registered(status) && paths_up(status) == 1);
    nft(node, "add chain inet filter input { type filter hook input priority 0; policy drop; }");
    anchor.end(Signal::SIGKILL);
    let anchor = two.anchor();
    expect_status(&host, &["no answer from the anchor", "firewall", "UDP 5006"]);
    expect(&first(two.node("a"), &host), &["no answer from the anchor", "firewall"]);
    expect(&first(node, &anchor), &["none accepts UDP 5006 and 5005", "nft insert rule"]);
}

#[test]
fn dockers_forwarding_policy_is_found_and_the_rule_that_doctor_names_mends_it() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let _host = two.host(&anchor, 1, "a");
    let node = two.node("anchor");
    nft(
        node,
        "add table ip filter; add chain ip filter DOCKER-USER; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
    );
    nft(node, "add rule ip filter FORWARD jump DOCKER-USER");
    let passes = || {
        let ping = ["-c", "1", "-W", "2", "10.61.3.2"];
        two.node("a").command("ping").args(ping).output().unwrap().status.success()
    };
    assert!(!passes(), "the policy drops it");
    expect(&first(node, &anchor), &["Docker drops", "iptables -I DOCKER-USER -i segue0 -j ACCEPT"]);
    for way in ["iifname", "oifname"] {
        nft(node, &format!("insert rule ip filter DOCKER-USER {way} segue0 accept"));
    }
    assert!(passes());
    let socket = anchor.socket();
    let (_, lines) = doctor(node, &["--control", socket.to_str().unwrap()]);
    crate::doctor::expect(&lines, "firewall", "ok", "forwards what leaves and enters segue0");
}

#[test]
fn an_anchor_starts_where_ipv6_is_off_and_where_settings_cannot_be_written() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let node = two.node("anchor");
    let sysctl = |settings: &str| {
        let mut command = node.command("sysctl");
        assert!(command.arg("-qw").args(settings.split(' ')).status().unwrap().success());
    };
    sysctl("net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    let mut anchor = two.anchor();
    let inner = |status: &serde_json::Value| status["inner"].as_array().unwrap().len();
    assert_eq!(inner(&anchor.status()), 2, "its device has IPv6 all the same");
    let socket = anchor.socket();
    let (_, lines) = doctor(node, &["--control", socket.to_str().unwrap()]);
    crate::doctor::expect(&lines, "way out", "todo", "IPv6 is switched off on this machine");
    let host = two.host(&anchor, 1, "a");
    drop(host);
    anchor.end(Signal::SIGTERM);

    // As in a container, /proc/sys is read-only.
    sysctl("net.ipv4.ip_forward=1");
    let base = two.directory().join("contained");
    let state = two.directory().join("anchor.db");
    let run = "mount --bind -o ro /proc/sys /proc/sys && exec \"$0\" \"$@\"";
    let under = ["unshare", "--mount", "sh", "-c", run];
    let args = ["anchor", "--datapath", "user", "--state", state.to_str().unwrap()];
    let anchor = Daemon::start_under(node, &under, base, &args);
    let status = anchor.wait("it runs", |_| true);
    assert_eq!(inner(&status), 1, "IPv4 alone");
    wait_for("a word about it", || {
        usual(&anchor.log()).any(|line| line.contains("hosts get no addresses of fd"))
    });
    let _host = two.again("a");
}

#[test]
fn without_a_network_a_host_says_that_there_is_none() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let down = two.node("a").command("ip").args(["link", "set", "up0", "down"]).status().unwrap();
    assert!(down.success());
    expect_status(&host, &["no network", "up0"]);
}
