//! The packet sizes of paths, and the resulting MTU of the tunnel.

use segue_keepalive::size::Direction;
use segue_sim::net::LinkFault;
use segue_tunnel::{AnchorConfig, AnchorInput, HostConfig, HostInput, Report};
use segue_wire::TooBig;
use segue_wire::signal::FromAnchor;

use crate::stage::{Stage, Way, anchor_config, host_config, ms, secs};

/// The tunnel's MTU at the host, and the anchor's largest packet to the host.
fn sizes(stage: &Stage, host: usize) -> (Option<u16>, Option<u16>) {
    let end = &stage.host(host).end();
    let inner = end.machine.inner()[0];
    (end.datapath.mtu(), stage.anchor().end().datapath.mtu_to(inner))
}

/// The largest IP packet of a path in each direction, in bytes.
fn mtu(stage: &Stage, host: usize, name: &str) -> [u16; 2] {
    let mut paths = stage.host(host).end().machine.paths();
    let (_, path) = paths.find(|(_, path)| path.name() == name).unwrap();
    [Direction::Up, Direction::Down].map(|way| path.mtu(way))
}

fn narrow(stage: &mut Stage, host: usize, name: &str, takes: [u16; 2]) {
    for (way, takes) in [Way::Up, Way::Down].into_iter().zip(takes) {
        stage.fault(host, name, way, LinkFault::Narrow(takes));
    }
}

/// A host with Wi-Fi and LTE. Wi-Fi takes packets of `takes` bytes; with `own` its interface has that MTU too.
fn with_wifi(takes: [u16; 2], own: bool, config: HostConfig) -> (Stage, usize) {
    let mut stage = Stage::with_anchor(1, anchor_config());
    let host = stage.add_host("alice", config);
    stage.add_link(host, "wifi", ms(10));
    stage.add_link(host, "lte", ms(30));
    narrow(&mut stage, host, "wifi", takes);
    if own {
        stage.interface(host, "wifi").mtu_bytes = takes[0].into();
    }
    stage.run_for(secs(5));
    (stage, host)
}

#[test]
fn the_tunnel_takes_what_every_path_takes_each_direction_by_itself() {
    for own in [false, true] {
        let (stage, host) = with_wifi([1_400, 1_400], own, host_config(3, 60));
        assert_eq!(sizes(&stage, host), (Some(1_356), Some(1_356)), "{own}");
        assert_eq!(mtu(&stage, host, "wifi"), [1_400; 2]);
        assert_eq!(mtu(&stage, host, "lte"), [1_500; 2]);
        let told = |report: &Report| matches!(report, Report::PathMtu { .. });
        let told = stage.host(host).reports().iter().filter(|(_, report)| told(report)).count();
        assert_eq!(told > 0, !own, "what the interface itself says is no news");
    }
    let (stage, host) = with_wifi([1_500, 1_420], false, host_config(3, 60));
    assert_eq!(sizes(&stage, host), (Some(1_456), Some(1_376)));
    let (stage, host) = with_wifi([1_420, 1_500], false, host_config(3, 60));
    assert_eq!(sizes(&stage, host), (Some(1_376), Some(1_456)));
}

#[test]
fn the_smaller_of_both_ends_devices_counts_at_both_ends() {
    for (at_host, at_anchor, both) in [
        (Some(1_456), Some(1_436), 1_436),
        (Some(1_400), Some(1_436), 1_400),
        (None, Some(1_380), 1_380),
        (Some(1_380), None, 1_380),
        (Some(9_000), Some(9_000), 1_456),
    ] {
        let anchor = AnchorConfig { largest: at_anchor, ..anchor_config() };
        let mut stage = Stage::with_anchor(1, anchor);
        let host = stage.add_host("alice", HostConfig { largest: at_host, ..host_config(3, 60) });
        stage.add_link(host, "wifi", ms(10));
        stage.run_for(secs(5));
        let (up, down) = sizes(&stage, host);
        assert_eq!(up, Some(both));
        // The anchor's own device limits what it sends.
        assert_eq!(down.into_iter().chain(at_anchor).min(), Some(both));
        // A path that narrows still counts, and so does one that takes everything again.
        for (takes, both) in [(1_400, both.min(1_356)), (1_500, both)] {
            narrow(&mut stage, host, "wifi", [takes; 2]);
            stage.interface(host, "wifi").mtu_bytes = takes.into();
            stage.announce(host);
            stage.run_for(secs(5));
            assert_eq!(sizes(&stage, host).0, Some(both), "{takes}");
        }
    }
}

#[test]
fn a_path_too_narrow_for_ipv6_carries_nothing_while_another_lives() {
    let (mut stage, host) = with_wifi([1_280, 1_280], false, host_config(3, 60));
    assert_eq!(sizes(&stage, host), (Some(1_456), Some(1_456)));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(3));
    assert!(stage.flows_use(bulk, "lte"), "{:?}", stage.routes(bulk));
    stage.set_alive(host, "lte", Way::Both, false);
    stage.run_for(secs(2));
    assert!(stage.flows_use(bulk, "wifi"), "narrow is better than nothing");
    stage.set_alive(host, "lte", Way::Both, true);
    stage.run_for(secs(10));
    assert!(stage.flows_use(bulk, "lte"), "{:?}", stage.routes(bulk));
    // If the only path is narrow, so is the tunnel.
    stage.set_present(host, "lte", false);
    stage.run_for(secs(2));
    assert_eq!(sizes(&stage, host), (Some(1_236), Some(1_236)));
}

#[test]
fn flows_that_only_come_down_leave_a_path_that_becomes_too_narrow_for_ipv6() {
    let (mut stage, host) = with_wifi([1_500, 1_500], true, host_config(3, 60));
    let own = |stage: &mut Stage, bytes: u16| {
        narrow(stage, host, "wifi", [bytes; 2]);
        stage.interface(host, "wifi").mtu_bytes = bytes.into();
        stage.announce(host);
        stage.run_for(secs(3));
    };
    let before = stage.add_bulk(host);
    stage.apps[before].up.silent = true;
    stage.run_for(secs(1));
    assert_eq!(stage.routes(before).1.as_deref(), Some("wifi"));
    own(&mut stage, 1_280);
    assert_eq!(stage.routes(before).1.as_deref(), Some("lte"));
    let new = stage.add_bulk(host);
    stage.apps[new].up.silent = true;
    stage.run_for(secs(1));
    assert_eq!(stage.routes(new).1.as_deref(), Some("lte"));
    stage.set_alive(host, "lte", Way::Both, false);
    stage.run_for(secs(2));
    for app in [before, new] {
        assert_eq!(stage.routes(app).1.as_deref(), Some("wifi"), "narrow is better than nothing");
    }
    stage.set_alive(host, "lte", Way::Both, true);
    stage.run_for(secs(10));
    for app in [before, new] {
        assert_eq!(stage.routes(app).1.as_deref(), Some("lte"));
    }
    own(&mut stage, 1_500);
    assert_eq!(stage.routes(before).1.as_deref(), Some("wifi"), "it is wide again");
}

#[test]
fn a_way_that_narrows_under_large_data_narrows_the_tunnel_within_a_second() {
    for takes in [[1_400, 1_500], [1_500, 1_400], [1_400, 1_400]] {
        let mut stage = Stage::with_anchor(1, anchor_config());
        let host = stage.add_host("alice", host_config(3, 60));
        stage.add_link(host, "wifi", ms(10));
        stage.run_for(secs(2));
        let bulk = stage.add_bulk(host);
        stage.run_for(secs(5));
        assert!(stage.flows_use(bulk, "wifi"));
        assert_eq!(sizes(&stage, host), (Some(1_456), Some(1_456)));
        narrow(&mut stage, host, "wifi", takes);
        stage.run_for(secs(1));
        let (up, down) = sizes(&stage, host);
        let fits = |size: Option<u16>, takes: u16| size.is_some_and(|size| size + 44 <= takes);
        assert!(fits(up, takes[0]) && fits(down, takes[1]), "{up:?} {down:?}");
        stage.run_for(secs(3));
        let inner = takes.map(|takes| Some(takes - 44));
        assert_eq!(sizes(&stage, host), (inner[0], inner[1]));
    }
}

#[test]
fn another_mtu_of_the_interface_is_followed_in_both_directions() {
    let (mut stage, host) = with_wifi([1_500, 1_500], true, host_config(3, 60));
    for own in [1_380, 1_500, 1_300] {
        narrow(&mut stage, host, "wifi", [own; 2]);
        stage.interface(host, "wifi").mtu_bytes = own.into();
        stage.announce(host);
        stage.run_for(secs(2));
        let inner = own - 44;
        // 1 300 leaves less than IPv6 needs, so LTE decides.
        let inner = if inner < 1_280 { 1_456 } else { inner };
        assert_eq!(sizes(&stage, host), (Some(inner), Some(inner)), "{own}");
    }
}

#[test]
fn an_anchor_that_started_again_is_told_what_a_path_takes_since_then() {
    for takes in [1_500, 1_400] {
        let (mut stage, host) = with_wifi([1_400, 1_400], false, host_config(3, 60));
        assert_eq!(sizes(&stage, host), (Some(1_356), Some(1_356)));
        stage.restart_anchor();
        narrow(&mut stage, host, "wifi", [takes; 2]);
        let registered = |stage: &Stage| stage.is_registered(host);
        assert!(stage.run_while_not(secs(1), |stage| !registered(stage)));
        // Until the host has tested the size, the anchor does not rely on the interface's MTU.
        let too_large = |stage: &Stage| {
            let takes_all = takes == 1_500 || mtu(stage, host, "wifi")[1] < 1_500;
            !takes_all && sizes(stage, host).1.is_some_and(|to| to > 1_356)
        };
        assert!(!stage.run_while_not(secs(5), too_large), "{:?}", sizes(&stage, host));
        let inner = Some(takes - 44);
        assert_eq!(sizes(&stage, host), (inner, inner));
        assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
    }
}

#[test]
fn where_probes_ride_and_the_way_is_narrower_than_its_interface_there_is_room_for_them() {
    let mut config = host_config(3, 60);
    config.path.keepalive.rides = true;
    let (stage, host) = with_wifi([1_400, 1_400], false, config.clone());
    assert_eq!(sizes(&stage, host), (Some(1_316), Some(1_316)));
    let (stage, host) = with_wifi([1_500, 1_500], false, config);
    assert_eq!(sizes(&stage, host), (Some(1_456), Some(1_456)));
}

#[test]
fn an_outage_says_nothing_of_sizes() {
    let (mut stage, host) = with_wifi([1_500, 1_500], false, host_config(3, 60));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(3));
    for name in ["wifi", "lte"] {
        stage.set_alive(host, name, Way::Both, false);
    }
    stage.run_for(secs(30));
    for name in ["wifi", "lte"] {
        stage.set_alive(host, name, Way::Both, true);
    }
    stage.run_for(secs(10));
    assert_eq!(sizes(&stage, host), (Some(1_456), Some(1_456)));
    assert_eq!(mtu(&stage, host, "wifi"), [1_500; 2]);
    assert!(stage.routes(bulk).0.is_some());
}

#[test]
fn what_a_router_says_is_tested_at_once_and_believed_only_then() {
    let (mut stage, host) = with_wifi([1_500, 1_500], false, host_config(3, 60));
    let grant = stage.host(host).end().datapath.tx_of(0).unwrap();
    let said = |cookie, mtu| TooBig { index: grant.0, cookie, mtu: Some(mtu) };
    // No traffic reveals the new size, and the search does not try it by itself.
    let narrower = 1_411;
    narrow(&mut stage, host, "wifi", [narrower, 1_500]);
    stage.run_for(secs(5));
    stage.tell_host(host, HostInput::TooBig(said(grant.1 ^ 1, 1_411)));
    stage.run_for(secs(5));
    assert_eq!(mtu(&stage, host, "wifi"), [1_500; 2], "who does not know the cookie is not heard");
    stage.tell_host(host, HostInput::TooBig(said(grant.1, 1_411)));
    stage.run_for(ms(400));
    assert_eq!(mtu(&stage, host, "wifi"), [1_411, 1_500]);
    assert_eq!(sizes(&stage, host).0, Some(1_367));
    // A false report changes nothing.
    stage.tell_host(host, HostInput::TooBig(said(grant.1, 600)));
    stage.run_for(secs(2));
    assert_eq!(mtu(&stage, host, "wifi"), [1_411, 1_500]);

    // The anchor hears about the other direction, and reports it as often as the host can test it.
    let at_anchor = stage.anchor().end().datapath.tx_of(grant.0).unwrap();
    narrow(&mut stage, host, "wifi", [narrower, narrower]);
    let said = TooBig { index: at_anchor.0, cookie: at_anchor.1, mtu: Some(1_411) };
    let told = |stage: &Stage| {
        stage.said().iter().filter(|m| matches!(m, FromAnchor::TooBig { .. })).count()
    };
    for _ in 0..20 {
        stage.tell_anchor(AnchorInput::TooBig(said));
        stage.run_for(ms(20));
    }
    assert!((3..=5).contains(&told(&stage)), "{}", told(&stage));
    stage.tell_anchor(AnchorInput::TooBig(TooBig { cookie: 0, ..said }));
    assert!(told(&stage) <= 5);
    assert_eq!(mtu(&stage, host, "wifi"), [1_411; 2]);
}
