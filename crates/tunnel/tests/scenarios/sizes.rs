//! What paths take, and what that makes of the tunnel.

use segue_keepalive::size::Direction;
use segue_tunnel::{AnchorInput, HostConfig, HostInput, Report};
use segue_wire::TooBig;
use segue_wire::signal::FromAnchor;

use crate::net::{Net, anchor_config, host_config, ms, secs};

/// What enters the tunnel at the host, and what the anchor sends to it.
fn sizes(net: &Net, host: usize) -> (Option<u16>, Option<u16>) {
    let end = &net.hosts[host].end;
    let inner = end.machine.inner()[0];
    (end.datapath.mtu(), net.anchor.datapath.mtu_to(inner))
}

/// The largest IP packet of each direction of a path.
fn mtu(net: &Net, host: usize, name: &str) -> [u16; 2] {
    let mut paths = net.hosts[host].end.machine.paths();
    let (_, path) = paths.find(|(_, path)| path.name() == name).unwrap();
    [Direction::Up, Direction::Down].map(|way| path.mtu(way))
}

fn narrow(net: &mut Net, host: usize, name: &str, takes: [u32; 2]) {
    let link = net.link(host, name);
    (link.up.mtu, link.down.mtu) = (takes[0], takes[1]);
}

/// A host with Wi-Fi and LTE, of which Wi-Fi takes so much, hidden or as its interface says.
fn with_wifi(takes: [u32; 2], own: bool, config: HostConfig) -> (Net, usize) {
    let mut net = Net::with_anchor(1, anchor_config());
    let host = net.add_host("alice", config);
    net.add_link(host, "wifi", ms(10));
    net.add_link(host, "lte", ms(30));
    narrow(&mut net, host, "wifi", takes);
    if own {
        net.link(host, "wifi").mtu = takes[0];
    }
    net.announce(host);
    net.run_for(secs(5));
    (net, host)
}

#[test]
fn the_tunnel_takes_what_every_path_takes_each_direction_by_itself() {
    for own in [false, true] {
        let (net, host) = with_wifi([1_400, 1_400], own, host_config(3, 60));
        assert_eq!(sizes(&net, host), (Some(1_356), Some(1_356)), "{own}");
        assert_eq!(mtu(&net, host, "wifi"), [1_400; 2]);
        assert_eq!(mtu(&net, host, "lte"), [1_500; 2]);
        let told = |report: &Report| matches!(report, Report::PathMtu { .. });
        let told = net.hosts[host].reports.iter().filter(|(_, report)| told(report)).count();
        assert_eq!(told > 0, !own, "what the interface itself says is no news");
    }
    let (net, host) = with_wifi([1_500, 1_420], false, host_config(3, 60));
    assert_eq!(sizes(&net, host), (Some(1_456), Some(1_376)));
    let (net, host) = with_wifi([1_420, 1_500], false, host_config(3, 60));
    assert_eq!(sizes(&net, host), (Some(1_376), Some(1_456)));
}

#[test]
fn a_path_too_narrow_for_ipv6_carries_nothing_while_another_lives() {
    let (mut net, host) = with_wifi([1_280, 1_280], false, host_config(3, 60));
    assert_eq!(sizes(&net, host), (Some(1_456), Some(1_456)));
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    assert!(net.flows_use(bulk, "lte"), "{:?}", net.routes(bulk));
    net.set_alive(host, "lte", crate::net::Way::Both, false);
    net.run_for(secs(2));
    assert!(net.flows_use(bulk, "wifi"), "narrow is better than nothing");
    net.set_alive(host, "lte", crate::net::Way::Both, true);
    net.run_for(secs(10));
    assert!(net.flows_use(bulk, "lte"), "{:?}", net.routes(bulk));
    // One narrow path makes the tunnel narrow.
    net.link(host, "lte").present = false;
    net.announce(host);
    net.run_for(secs(2));
    assert_eq!(sizes(&net, host), (Some(1_236), Some(1_236)));
}

#[test]
fn a_way_that_narrows_under_large_data_narrows_the_tunnel_within_a_second() {
    for takes in [[1_400, 1_500], [1_500, 1_400], [1_400, 1_400]] {
        let mut net = Net::with_anchor(1, anchor_config());
        let host = net.add_host("alice", host_config(3, 60));
        net.add_link(host, "wifi", ms(10));
        net.announce(host);
        net.run_for(secs(2));
        let bulk = net.add_bulk(host);
        net.run_for(secs(5));
        assert!(net.flows_use(bulk, "wifi"));
        assert_eq!(sizes(&net, host), (Some(1_456), Some(1_456)));
        narrow(&mut net, host, "wifi", takes);
        net.run_for(secs(1));
        let (up, down) = sizes(&net, host);
        let fits =
            |size: Option<u16>, takes: u32| size.is_some_and(|size| u32::from(size) + 44 <= takes);
        assert!(fits(up, takes[0]) && fits(down, takes[1]), "{up:?} {down:?}");
        net.run_for(secs(3));
        let inner = takes.map(|takes| Some(takes as u16 - 44));
        assert_eq!(sizes(&net, host), (inner[0], inner[1]));
    }
}

#[test]
fn another_mtu_of_the_interface_is_followed_in_both_directions() {
    let (mut net, host) = with_wifi([1_500, 1_500], true, host_config(3, 60));
    for own in [1_380, 1_500, 1_300] {
        narrow(&mut net, host, "wifi", [own; 2]);
        net.link(host, "wifi").mtu = own;
        net.announce(host);
        net.run_for(secs(2));
        let inner = own as u16 - 44;
        // 1 300 leaves less than IPv6 needs, and LTE has it.
        let inner = if inner < 1_280 { 1_456 } else { inner };
        assert_eq!(sizes(&net, host), (Some(inner), Some(inner)), "{own}");
    }
}

#[test]
fn an_anchor_that_started_again_is_told_what_a_path_takes_since_then() {
    for takes in [1_500, 1_400] {
        let (mut net, host) = with_wifi([1_400, 1_400], false, host_config(3, 60));
        assert_eq!(sizes(&net, host), (Some(1_356), Some(1_356)));
        net.restart_anchor();
        narrow(&mut net, host, "wifi", [takes; 2]);
        let registered = |net: &Net| net.hosts[host].end.machine.registered();
        assert!(net.run_while_not(secs(1), |net| !registered(net)));
        // Until the host has tested it the anchor does not take the interface's word.
        let too_large = |net: &Net| {
            let takes_all = takes == 1_500 || mtu(net, host, "wifi")[1] < 1_500;
            !takes_all && sizes(net, host).1.is_some_and(|to| to > 1_356)
        };
        assert!(!net.run_while_not(secs(5), too_large), "{:?}", sizes(&net, host));
        let inner = Some(takes as u16 - 44);
        assert_eq!(sizes(&net, host), (inner, inner));
        assert!(net.load.worst_signals <= 20, "{:?}", net.load);
    }
}

#[test]
fn where_probes_ride_and_the_way_is_narrower_than_its_interface_there_is_room_for_them() {
    let mut config = host_config(3, 60);
    config.path.keepalive.rides = true;
    let (net, host) = with_wifi([1_400, 1_400], false, config.clone());
    assert_eq!(sizes(&net, host), (Some(1_316), Some(1_316)));
    let (net, host) = with_wifi([1_500, 1_500], false, config);
    assert_eq!(sizes(&net, host), (Some(1_456), Some(1_456)));
}

#[test]
fn an_outage_says_nothing_of_sizes() {
    let (mut net, host) = with_wifi([1_500, 1_500], false, host_config(3, 60));
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    for name in ["wifi", "lte"] {
        net.set_alive(host, name, crate::net::Way::Both, false);
    }
    net.run_for(secs(30));
    for name in ["wifi", "lte"] {
        net.set_alive(host, name, crate::net::Way::Both, true);
    }
    net.run_for(secs(10));
    assert_eq!(sizes(&net, host), (Some(1_456), Some(1_456)));
    assert_eq!(mtu(&net, host, "wifi"), [1_500; 2]);
    assert!(net.routes(bulk).0.is_some());
}

#[test]
fn what_a_router_says_is_tested_at_once_and_believed_only_then() {
    let (mut net, host) = with_wifi([1_500, 1_500], false, host_config(3, 60));
    let grant = net.hosts[host].end.datapath.tx_of(0).unwrap();
    let said = |cookie, mtu| TooBig { index: grant.0, cookie, mtu: Some(mtu) };
    // Nothing went through that would show it; and it is no size that is tried by itself.
    let narrower = 1_411;
    narrow(&mut net, host, "wifi", [narrower, 1_500]);
    net.run_for(secs(5));
    net.tell_host(host, HostInput::TooBig(said(grant.1 ^ 1, 1_411)));
    net.run_for(secs(5));
    assert_eq!(mtu(&net, host, "wifi"), [1_500; 2], "who does not know the cookie is not heard");
    net.tell_host(host, HostInput::TooBig(said(grant.1, 1_411)));
    net.run_for(ms(400));
    assert_eq!(mtu(&net, host, "wifi"), [1_411, 1_500]);
    assert_eq!(sizes(&net, host).0, Some(1_367));
    // What is not so changes nothing.
    net.tell_host(host, HostInput::TooBig(said(grant.1, 600)));
    net.run_for(secs(2));
    assert_eq!(mtu(&net, host, "wifi"), [1_411, 1_500]);

    // Of the other direction the anchor hears, and tells it as often as the host can test it.
    let at_anchor = net.anchor.datapath.tx_of(grant.0).unwrap();
    narrow(&mut net, host, "wifi", [narrower, narrower]);
    let said = TooBig { index: at_anchor.0, cookie: at_anchor.1, mtu: Some(1_411) };
    let told =
        |net: &Net| net.said.iter().filter(|(_, m)| matches!(m, FromAnchor::TooBig { .. })).count();
    for _ in 0..20 {
        net.tell_anchor(AnchorInput::TooBig(said));
        net.run_for(ms(20));
    }
    assert!((3..=5).contains(&told(&net)), "{}", told(&net));
    net.tell_anchor(AnchorInput::TooBig(TooBig { cookie: 0, ..said }));
    assert!(told(&net) <= 5);
    assert_eq!(mtu(&net, host, "wifi"), [1_411; 2]);
}
