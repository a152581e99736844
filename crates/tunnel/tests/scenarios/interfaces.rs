//! Interfaces that go, come and change while the host runs.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::{Machine, Time};
use segue_ip::Input;
use segue_ip::Interface;
use segue_ip::Output::Own;
use segue_tunnel::{Cause, Host, HostConfig, HostInput, HostOutput, Output};

use crate::stage::{Stage, Way, host_config, ms, secs};

#[test]
fn flows_leave_an_interface_that_goes_away_and_return_to_it() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(3));
    stage.reset_streams();
    stage.set_present(host, "wifi", false);
    stage.run_for(ms(200));
    assert!(stage.flows_use(bulk, "lte"), "{:?}", stage.routes(bulk));
    assert!(stage.causes(host).contains(&Cause::InterfaceGone));
    stage.run_for(secs(1));
    let app = &stage.apps[bulk];
    // The anchor learns this over the other path, so the downlink waits only for that delay.
    assert!(app.down.gap(app.interval) <= ms(30 + 30 + 20), "{:?}", app.down);
    assert_eq!(stage.anchor().end().machine.paths().count(), 1);
    assert_eq!(stage.host(host).end().machine.signal_interface(), Some("lte"));

    stage.renumber(host, "wifi", Ipv4Addr::new(198, 51, 0, 77).into());
    stage.set_present(host, "wifi", true);
    assert!(stage.run_while_not(secs(2), |stage| stage.flows_use(bulk, "wifi")));
    assert_eq!(stage.anchor().end().machine.paths().count(), 2);
}

/// Regression, found by the fault harness with seed 1271: the anchor kept the path as long as the host was registered.
#[test]
fn an_interface_that_goes_while_signalling_is_broken_goes_at_the_anchor_too() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    stage.break_signal(host);
    stage.set_present(host, "lte", false);
    stage.run_for(secs(5));
    assert!(stage.is_registered(host));
    let paths: Vec<_> =
        stage.anchor().end().machine.paths().map(|(_, path)| path.name.clone()).collect();
    assert_eq!(paths, ["wifi"]);
}

#[test]
fn a_new_address_or_gateway_is_followed_at_once() {
    let (mut stage, host) = Stage::two_paths(2, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.handover(host, None, None, Some("wifi"));
    stage.run_for(secs(2));
    stage.reset_streams();
    let new: IpAddr = Ipv4Addr::new(198, 51, 0, 88).into();
    stage.interface(host, "wifi").gateways.clear();
    stage.renumber(host, "wifi", new);
    stage.run_for(secs(2));
    assert!(stage.flows_use(voice, "wifi"));
    let (_, path) =
        stage.host(host).end().machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
    assert_eq!(path.local(), new);
    let app = &stage.apps[voice];
    assert_eq!(app.up.sent, app.up.received + 1, "all but the one in flight");
    // The anchor learns the address from the next request.
    assert!(app.down.gap(app.interval) <= ms(60 + 20 + 20), "{:?}", app.down);
    assert!(stage.causes(host).iter().all(|cause| *cause == Cause::Requested));
}

#[test]
fn an_interface_that_appears_gets_a_path_and_takes_over_if_it_is_better() {
    let mut stage = Stage::new(3);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "lte", ms(30));
    stage.run_for(secs(1));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(1));
    stage.reset_streams();
    stage.add_link(host, "wifi", ms(10));
    assert!(stage.run_while_not(secs(2), |stage| stage.flows_use(bulk, "wifi")));
    stage.stop_apps();
    let app = &stage.apps[bulk];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
}

#[test]
fn all_interfaces_may_go_and_come_back() {
    for pause in [ms(500), secs(20), secs(50)] {
        let (mut stage, host) = Stage::two_paths(4, host_config(3, 60));
        let bulk = stage.add_bulk(host);
        stage.run_for(secs(2));
        let inner = stage.host(host).end().machine.inner().to_vec();
        for name in ["wifi", "lte"] {
            stage.set_present(host, name, false);
        }
        assert_eq!(stage.host(host).end().machine.paths().count(), 0);
        stage.run_for(pause);
        stage.set_present(host, "lte", true);
        let through = |path: &'static str| move |stage: &Stage| stage.flows_use(bulk, path);
        assert!(stage.run_while_not(secs(9), through("lte")), "{pause}: {:?}", stage.routes(bulk));
        stage.set_present(host, "wifi", true);
        assert!(stage.run_while_not(secs(9), through("wifi")), "{pause}: {:?}", stage.routes(bulk));
        assert_eq!(stage.host(host).end().machine.inner(), inner);
        assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
    }
}

#[test]
fn a_host_without_interfaces_is_quiet_and_one_without_a_live_one_asks_less_and_less() {
    let mut stage = Stage::new(5);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "wifi", ms(10));
    stage.set_alive(host, "wifi", Way::Both, false);
    stage.set_present(host, "wifi", false);
    stage.announce(host);
    stage.run_for(secs(10));
    assert_eq!(stage.load().worst_signals, 0);
    stage.set_present(host, "wifi", true);
    for _ in 0..100 {
        // An announcement without changes is no reason to connect again.
        stage.announce(host);
        stage.run_for(ms(100));
    }
    stage.run_for(secs(60));
    assert!(stage.load().worst_signals <= 2, "{:?}", stage.load());
    stage.set_alive(host, "wifi", Way::Both, true);
    assert!(stage.run_while_not(secs(14), |stage| stage.is_registered(host)));
}

#[test]
fn signalling_takes_its_interface_again_when_that_comes_back_as_another() {
    let mut stage = Stage::new(8);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "wifi", ms(10));
    stage.run_for(secs(1));
    let conn = stage.connection(host);
    stage.set_present(host, "wifi", false);
    stage.run_for(ms(500));
    stage.set_present(host, "wifi", true);
    stage.run_for(ms(100));
    assert!(stage.host(host).end().machine.paths().all(|(_, path)| path.is_up()));
    assert_eq!(stage.connection(host), conn, "the connection outlived it");
}

#[test]
fn an_interface_is_tried_as_soon_as_it_has_an_address() {
    let mut stage = Stage::new(7);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "wifi", ms(10));
    let addresses = std::mem::take(&mut stage.interface(host, "wifi").addresses);
    stage.announce(host);
    stage.run_for(secs(30));
    assert_eq!(stage.load().worst_signals, 0);
    stage.interface(host, "wifi").addresses = addresses;
    stage.announce(host);
    stage.run_for(ms(100));
    assert!(stage.is_registered(host));
}

#[test]
fn more_interfaces_than_paths_use_what_there_is() {
    let mut stage = Stage::new(6);
    let host = stage.add_host("alice", host_config(3, 200));
    for i in 0..20 {
        stage.add_link(host, &format!("if{i}"), ms(10 + i));
    }
    stage.run_for(secs(2));
    let up =
        |stage: &Stage| stage.host(host).end().machine.paths().filter(|(_, p)| p.is_up()).count();
    assert_eq!(up(&stage), 16);
    // When other interfaces go, those without a path get one.
    for i in 0..10 {
        stage.set_present(host, &format!("if{i}"), false);
    }
    stage.run_for(secs(2));
    assert_eq!(up(&stage), 10);
}

#[test]
fn where_one_family_goes_away_signalling_connects_afresh_over_the_other() {
    let anchor: [SocketAddr; 2] =
        ["192.0.2.1:5005", "[2001:db8::1]:5005"].map(|text| text.parse().unwrap());
    let config = HostConfig { anchor: anchor.to_vec(), ..host_config(3, 60) };
    let mut machine = Host::new(config, [1; 32]);
    let now = Time(1_000_000_000);
    let [v4, v6]: [IpAddr; 2] = ["10.0.0.7", "2001:db8:1::7"].map(|text| text.parse().unwrap());
    let interfaces = |addresses: &[IpAddr]| {
        let one = |index: u32, name: &str| Interface {
            name: name.into(),
            index,
            addresses: addresses.to_vec(),
            gateways: vec![],
            mtu_bytes: 1_500,
            ..Interface::default()
        };
        Input::Interfaces(vec![one(1, "wifi"), one(2, "lte")])
    };
    let mut tell = |input: Input<HostInput, Infallible>| {
        machine.handle(now, input);
        let said = std::iter::from_fn(|| machine.poll()).filter_map(|output| match output {
            Output::Driver(Own(HostOutput::Connect { interfaces })) => {
                Some(format!("connect {interfaces:?}"))
            }
            Output::Driver(Own(HostOutput::MoveSignal { interface })) => {
                Some(format!("move {interface}"))
            }
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    let up = |interface: &str, anchor| {
        HostInput::SignalUp { interface: interface.into(), anchor }.into()
    };
    let both = || String::from("connect [\"wifi\", \"lte\"]");
    assert_eq!(tell(interfaces(&[v4, v6])), [both()]);
    assert_eq!(tell(up("wifi", anchor[0])), [""; 0]);
    // A connection over IPv4 cannot move to an IPv6 socket.
    assert_eq!(tell(interfaces(&[v6])), [both()]);
    assert_eq!(tell(up("lte", anchor[1])), [""; 0]);
    assert_eq!(tell(interfaces(&[v4, v6])), ["move lte"], "a new address: another socket");
    // Without an interface to connect over, the connection may still be moved later.
    assert_eq!(tell(interfaces(&[])), [""; 0]);
    assert_eq!(tell(interfaces(&[v4, v6])).last().map(String::as_str), Some("move lte"));
}
