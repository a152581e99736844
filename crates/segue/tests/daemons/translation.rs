//! An anchor that translates addresses of its pools (`nat = true`), with no route back to them
//! outside.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use segue_linux::netns::Netns;

use crate::over_both;
use crate::reach::pings;
use crate::traffic::{Stream, UdpEcho, correspondents, one_datagram};
use crate::world::{SEGUE, World, inventory, settled, text};

over_both! { among_others:
    with_nat_hosts_reach_a_world_that_has_no_way_back_to_the_pools
    the_translation_goes_with_the_daemon_and_is_there_once_after_a_crash
}

/// Removes the correspondent's routes, so that it answers only neighbours on its link.
pub(crate) fn cut_the_way_back(world: &World) {
    for family in ["-4", "-6"] {
        let mut ip = world.net.cn().command("ip");
        assert!(ip.args([family, "route", "del", "default"]).status().unwrap().success());
    }
}

/// The lines of the inventory about the translation's tables.
fn tables(node: &Netns) -> Vec<String> {
    let all = inventory(node);
    all.into_iter().filter(|line| line.contains("table inet segue_nat_")).collect()
}

fn with_nat_hosts_reach_a_world_that_has_no_way_back_to_the_pools(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    cut_the_way_back(&world);
    let anchor = world.anchor_with(&["--nat"]);
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("two paths up", |status| crate::world::paths_up(status) == 2);
    for ip in correspondents() {
        assert!(pings(world.net.host(), ip), "{ip} does not answer pings");
        let echo = UdpEcho::start(world.net.cn(), ip);
        let (from, _) = one_datagram(world.net.host(), echo.address).expect("UDP and back");
        let inner = host.status()["inner"].to_string();
        assert!(inner.contains(&from.ip().to_string()), "{from} is outside of the tunnel");
        let stream = Stream::start(world.net.host(), world.net.cn(), ip, Duration::ZERO);
        stream.flows_on(4 << 20);
        // Both directions of a connection keep their translation on another path.
        let moved = host.cli(&["handover", "--to", "lte"]);
        assert!(moved.status.success(), "{}", text(&moved.stderr));
        stream.flows_on(1 << 20);
        assert!(host.cli(&["handover", "--auto"]).status.success());
    }
    let log = anchor.log();
    let told = log.lines().filter(|line| line.contains("nat: "));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("10.77.0.0/16 is translated"), "{told:?}");
    assert!(told[0].contains("fd5e:67e0::/64 is translated") && told[0].contains("NAT66"));
}

fn the_translation_goes_with_the_daemon_and_is_there_once_after_a_crash(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let node = world.net.anchor();
    let before = settled(node);
    let config = world.file("anchor.toml", "nat = true\n");
    let start = || world.anchor_with(&["-c", &config]);
    let mut anchor = start();
    assert_eq!(tables(node).len(), 1);
    assert!(anchor.end(Signal::SIGTERM).success());
    assert_eq!(inventory(node), before);

    start().end(Signal::SIGKILL);
    assert_eq!(tables(node).len(), 1, "a crash leaves it");
    let mut anchor = start();
    assert_eq!(tables(node).len(), 1);
    assert_eq!(rules(node), 2, "one rule for each pool");
    anchor.end(Signal::SIGKILL);
    // An anchor without translation removes the table.
    let mut anchor = world.anchor();
    assert_eq!(tables(node), [""; 0]);
    assert!(anchor.log().contains("stays as it is"));
    anchor.end(Signal::SIGKILL);
    start().end(Signal::SIGKILL);
    let clean = node.command(SEGUE).arg("clean").output().unwrap();
    let said = text(&clean.stdout);
    assert!(said.contains("removed nftables table segue_nat_segue0"), "{said}");
    assert_eq!(tables(node), [""; 0]);
}

/// The number of rules that translate.
fn rules(node: &Netns) -> usize {
    let list = node.command("nft").args(["list", "table", "inet", "segue_nat_segue0"]).output();
    text(&list.unwrap().stdout).matches("masquerade").count()
}

#[test]
fn without_nft_an_anchor_that_is_to_translate_says_what_is_missing() {
    if !crate::world::possible() {
        return;
    }
    let Some(world) = World::new("user") else { return };
    let state = world.path("anchor.db");
    let mut segue: Command = world.net.anchor().command(SEGUE);
    segue.args(["anchor", "--datapath", "user", "--nat", "--state"]).arg(state);
    let output =
        segue.arg("--control").arg(world.path("a.sock")).env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("segue: nat = true: ") && last.contains("nft is missing"), "{said}");
}
