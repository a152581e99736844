//! Interfaces and addresses that appear and disappear while traffic flows.

use segue_ip::{Prefix, Route};
use segue_lab::DemoNet;
use segue_lab::Direction;
use segue_linux::link;

use crate::over_both;
use crate::traffic::{Stream, UdpEcho, Voice, correspondents, one_datagram};
use crate::world::{World, path, paths_up, registered, wait_for};

over_both! { among_others:
    flows_and_signalling_survive_an_interface_that_goes_down_and_comes_back
    an_interface_that_is_deleted_and_made_again_becomes_a_path_again
    a_new_address_on_an_interface_breaks_nothing
    a_path_that_is_dead_at_the_start_does_not_delay_it
}

const WIFI_GATEWAY: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 61, 1, 1);

/// Restores the default route over wifi, which disappeared with the interface. A network manager
/// would do this.
fn route_over_wifi(world: &World) {
    let route = Route::via(Prefix::default_of(false), WIFI_GATEWAY).metric(100);
    world.net.host().run(|| link::add_route(&route).unwrap()).unwrap();
}

fn flows_and_signalling_survive_an_interface_that_goes_down_and_comes_back(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let node = world.net.host();
    let [v4, v6] = correspondents();
    let stream = Stream::start(node, world.net.cn(), v4, std::time::Duration::from_millis(10));
    let voice = Voice::start(node, world.net.cn(), v6);
    host.wait("signalling over wifi", |status| status["signalling"] == "wifi");
    node.run(|| link::set_up("wifi", false).unwrap()).unwrap();
    let status = host.wait("one path, signalling moved", |status| {
        path(status, "wifi").is_null() && status["signalling"] == "lte" && registered(status)
    });
    assert_eq!(paths_up(&status), 1);
    stream.flows_on(40_000);
    voice.flows_on(20);
    anchor.wait("the anchor knows", |status| path(status, "wifi").is_null());
    let moved = host.events("handover", "wifi", 0);
    assert!(moved.iter().any(|event| event["detail"] == "interface_gone"), "{moved:#?}");

    node.run(|| link::set_up("wifi", true).unwrap()).unwrap();
    route_over_wifi(&world);
    host.wait("two paths again", |status| paths_up(status) == 2);
    let port = format!(":{}", stream.host.port());
    wait_for("back over wifi", || host.flow(&[&port]).is_some_and(|flow| flow["path"] == "wifi"));
    stream.flows_on(40_000);
    voice.flows_on(20);
    let refusals = host.events("refused", "", 0);
    assert!(refusals.is_empty(), "{refusals:#?}");
}

fn an_interface_that_is_deleted_and_made_again_becomes_a_path_again(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (_anchor, host) = world.running();
    let node = world.net.host();
    let voice = Voice::start(node, world.net.cn(), correspondents()[0]);
    // A perfect direct link to the router replaces the emulated one.
    node.run(|| link::delete("wifi").unwrap()).unwrap();
    host.wait("one path", |status| path(status, "wifi").is_null() && registered(status));
    voice.flows_on(20);
    let router = world.net.router();
    router.run(|| link::delete("wifi").unwrap()).unwrap();
    node.run(|| link::create_veth("wifi", "wifi", Some(router)).unwrap()).unwrap();
    for (end, address) in [(node, "10.61.1.2/24"), (router, "10.61.1.1/24")] {
        end.run(|| {
            link::add_address("wifi", address.parse().unwrap()).unwrap();
            link::set_up("wifi", true).unwrap();
        })
        .unwrap();
    }
    route_over_wifi(&world);
    host.wait("two paths again", |status| paths_up(status) == 2);
    let port = format!(":{}", voice.host.port());
    wait_for("back over wifi", || host.flow(&[&port]).is_some_and(|flow| flow["path"] == "wifi"));
    voice.flows_on(20);
}

fn a_new_address_on_an_interface_breaks_nothing(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let node = world.net.host();
    let voice = Voice::start(node, world.net.cn(), correspondents()[0]);
    let (old, new) = (DemoNet::HOST_WIFI.0, std::net::Ipv4Addr::new(10, 61, 1, 77));
    node.run(|| {
        link::add_address("wifi", Prefix::new(new, 24)).unwrap();
        link::delete_address("wifi", Prefix::new(old, 24)).unwrap();
        // Deleting the first address of a network also deletes the others and their routes, unless
        // the system promotes them.
        let _ = link::add_address("wifi", Prefix::new(new, 24));
        let route = Route::via(Prefix::default_of(false), WIFI_GATEWAY).metric(100);
        let _ = link::add_route(&route);
    })
    .unwrap();
    let local = new.to_string();
    host.wait("wifi up with its new address", |status| {
        let wifi = path(status, "wifi");
        wifi["state"] == "up"
            && wifi["local"].as_str().is_some_and(|text| text.contains(&local))
            && paths_up(status) == 2
    });
    anchor.wait("the anchor answers there", |status| {
        path(status, "wifi")["remote"].as_str().is_some_and(|text| text.starts_with(&local))
    });
    voice.flows_on(30);
    host.wait("registered", |status| registered(status) && !status["signalling"].is_null());
    let echo = UdpEcho::start(world.net.cn(), correspondents()[1]);
    one_datagram(node, echo.address).expect("a new flow passes");
}

fn a_path_that_is_dead_at_the_start_does_not_delay_it(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    for way in Direction::ALL {
        world.net.wifi().set_silent(way, true);
    }
    let anchor = world.anchor();
    let host = world.host(&world.enroll(&anchor, "laptop"));
    let start = std::time::Instant::now();
    let up = |status: &serde_json::Value| registered(status) && paths_up(status) >= 1;
    let status = host.wait("registered over lte", up);
    let taken = start.elapsed();
    println!("{datapath}: registered and a path up {taken:?} after the control socket answered");
    assert_eq!(status["signalling"], "lte");
    // A handshake over the dead path would take ten seconds to time out.
    assert!(taken.as_secs() < 9, "{taken:?}");
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    one_datagram(world.net.host(), echo.address).expect("traffic passes");
    for way in Direction::ALL {
        world.net.wifi().set_silent(way, false);
    }
    host.wait("both paths", |status| paths_up(status) == 2);
}
