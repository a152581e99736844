//! What the operator of Proxy Mobile IPv6 sees: pages, warnings, and the leftovers of a killed gateway.

use std::process::Command;

use nix::sys::signal::Signal;
use segue_linux::link;

use crate::pmip::{Domain, FIRST, cn, example};
use crate::traffic::{UdpEcho, one_datagram};
use crate::world::{Daemon, SEGUE, text, wait_for};

/// RFC 6543 section 4.2.
const FIXED_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x52, 0x13];

fn said(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.cli(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn anchors_and_gateways_have_pages_that_a_person_can_read() {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::new("ebpf", &["wlan1"]) else { return };
    drop(domain.lma.take());
    domain.lma = Some(domain.start("lma", "lma", "every_flow = true\n"));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    domain.address("host", "wlan");
    let echo = UdpEcho::start(domain.node("cn"), cn());
    wait_for("a flow", || {
        let _ = one_datagram(domain.node("host"), echo.address);
        domain.lma().status()["flow_count"] == 1
    });
    let (lma, mag) = (domain.lma(), &domain.mags["wlan1"]);
    let page = said(lma, &["status"]);
    for part in [
        "pmip-lma, up ",
        "address    fd00:1::1, prefixes of 2001:db8::/48",
        "alice@example.org  ",
        "active",
        "fd00:2::2 (bid ",
        " s ago  ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = said(mag, &["status"]);
    for part in ["pmip-mag, up ", "anchor     fd00:1::1", "wlan1", "active", " ms (", " s ago  "] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for (daemon, role) in [(lma, "pmip-lma"), (mag, "pmip-mag")] {
        let page = said(daemon, &["status"]);
        assert!(!page.contains(['{', '}', '"']), "{page}");
        let mut watch = Command::new(SEGUE);
        watch.args(["status", "--watch", "--control"]).arg(daemon.socket());
        let watched = crate::watch::texts(watch, 2);
        for page in watched {
            assert!(page[0].starts_with(&format!("{role}, up ")), "{page:?}");
        }
        // Verbs for tunnels of hosts say so.
        for args in [&["handover", "--auto"][..], &["keepalive", "wlan", "on"], &["paths"]] {
            let output = daemon.cli(args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("role {role}, and this is for segue host")), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    let flows = said(lma, &["flows"]);
    assert!(flows.contains("fd00:2::2 (bid ") && flows.contains("rule"), "{flows}");
    assert_eq!(said(lma, &["flows", "--host", "bob@example.org"]), "no flows\n");
    assert_eq!(lma.json(&["flows", "--json"]).unwrap().as_array().unwrap().len(), 1);
    let output = mag.cli(&["flows"]);
    assert!(text(&output.stderr).contains("role pmip-mag, and"), "{}", text(&output.stderr));
}

#[test]
fn what_a_file_names_and_the_machine_does_not_have_is_told_at_the_start() {
    let _turn = crate::among_others();
    let Some(domain) = Domain::empty("user") else { return };
    let content = std::fs::read_to_string(example("lma.toml")).unwrap();
    let lma = domain.start_with("lma", "lma", &content.replace("fd00:1::1", "fd00:1::77"));
    assert!(lma.log().contains("address: fd00:1::77 is none of this machine's"), "{}", lma.log());
    let content = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let content = content.replace("\"fd00:2::2\"", "\"fd00:2::77\"");
    let content = content.replace("interface = \"wlan1\"", "interface = \"wlan7\"");
    let mag = domain.start_with("mag", "wlan1", &content);
    let log = mag.log();
    for part in [
        "access wlan7: there is no such interface yet; those here: ",
        "access wlan7: proxy_coa fd00:2::77 is none of this machine's",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    // A gateway with nothing missing logs no warning.
    let right = domain.start("mag", "wlan2", "");
    assert!(!right.log().contains("none of this") && !right.log().contains("no such interface"));
}

#[test]
fn an_access_gets_the_address_back_that_it_had_before_a_gateway_was_killed() {
    let _turn = crate::among_others();
    let Some(domain) = Domain::empty("user") else { return };
    let mac = || {
        let links = domain.node("left").run(link::links).unwrap().unwrap();
        links.into_iter().find(|link| link.name == "wlan1").unwrap().mac
    };
    let own = mac();
    let mut gateway = domain.start("mag", "wlan1", "");
    assert_eq!(mac(), FIXED_MAC);
    gateway.end(Signal::SIGKILL);
    // The next gateway restores the address.
    let mut gateway = domain.start("mag", "wlan1", "");
    assert!(gateway.end(Signal::SIGTERM).success());
    assert_eq!(mac(), own);
    // Without another gateway, `segue clean` restores the address if it finds the state.
    let clean = |more: &[&str]| {
        let mut clean = domain.node("left").command(SEGUE);
        text(&clean.arg("clean").args(more).output().unwrap().stdout)
    };
    let mut gateway = domain.start("mag", "wlan1", "");
    assert!(!clean(&[]).contains("wlan1"), "it is a living gateway's");
    gateway.end(Signal::SIGKILL);
    let said = clean(&[]);
    assert!(said.contains("wlan1 keeps the link-layer address of all gateways"), "{said}");
    let state = domain.dir.path().join("wlan1.db");
    let said = clean(&["--state", state.to_str().unwrap()]);
    assert!(said.contains("removed the link-layer address of all gateways from wlan1"), "{said}");
    assert_eq!(mac(), own);
}
