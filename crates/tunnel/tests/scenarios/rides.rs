//! Probes that ride on data: no bare probe leaves while data run, responses wait no longer than they may, and faults
//! are found as early as promised.

use segue_clock::{Span, Time};
use segue_keepalive::{MeasuredBy, Reading, State};
use segue_tunnel::{AnchorConfig, HostConfig, Report};

use crate::net::{Net, Way, anchor_config, host_config, keepalive, ms, secs};

const K: u8 = 3;
const T_KA: u64 = 100;
const BOTH: [MeasuredBy; 2] = [MeasuredBy::Machine, MeasuredBy::PacketPath];

/// A host whose probes ride, with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), and voice on Wi-Fi.
fn riding(measured_by: MeasuredBy) -> (Net, usize, usize) {
    let mut net = Net::with_anchor(1, AnchorConfig { measured_by, ..anchor_config() });
    let mut config = HostConfig { measured_by, ..host_config(K, T_KA) };
    config.path.keepalive.rides = true;
    let host = net.add_host("alice", config);
    net.add_link(host, "wifi", ms(10));
    net.add_link(host, "lte", ms(30));
    net.announce(host);
    net.run_for(secs(2));
    let voice = net.add_voice(host);
    net.run_for(secs(3));
    assert!(net.flows_use(voice, "wifi"));
    (net, host, voice)
}

fn bound(round_trip: Span) -> Span {
    let mut keepalive = keepalive(K, T_KA);
    keepalive.rides = true;
    keepalive.t_r_max(round_trip)
}

fn reading(net: &Net, host: usize, path: &str) -> Reading {
    let end = &net.hosts[host].end;
    let slot = end.machine.path_named(path).unwrap();
    end.datapath.reading_at(net.now, slot.into()).unwrap()
}

/// When a path went down last.
fn down_at(net: &Net, host: usize, path: &str) -> Option<Time> {
    let down = |(at, report): &(Time, Report)| match report {
        Report::PathState { path: name, state: State::Down, .. } => {
            (**name == *path).then_some(*at)
        }
        _ => None,
    };
    net.hosts[host].reports.iter().rev().find_map(down)
}

#[test]
fn while_data_run_one_request_rides_in_each_period_and_none_goes_alone() {
    for measured_by in BOTH {
        let (mut net, host, voice) = riding(measured_by);
        let before = reading(&net, host, "wifi");
        net.run_for(secs(10));
        let after = reading(&net, host, "wifi");
        let (sent, rode) = (after.sent - before.sent, after.rode - before.rode);
        assert_eq!((sent, rode), (100, 100), "{measured_by:?}");
        // Without data nothing rides.
        let idle = reading(&net, host, "lte");
        assert_eq!(idle.rode, 0, "{measured_by:?}");
        // The requests were answered on time: the path is up, and its round trip is that of the links.
        let client = net.hosts[host].end.machine.paths().next().unwrap().1.client().unwrap();
        assert_eq!(client.state(), State::Up);
        assert_eq!(client.estimates().rtt_max, Some(ms(20)), "{measured_by:?}");
        assert_eq!(net.apps[voice].down.worst, ms(20));
        // The responses rode too, and the anchor measures by what requests echo.
        let (slot, path) =
            net.anchor.machine.paths().find(|(_, path)| path.name == "wifi").unwrap();
        let answered = net.anchor.datapath.reading_at(net.now, slot).unwrap();
        assert!((100..=after.sent).contains(&answered.rode), "{measured_by:?}: {}", answered.rode);
        let measured = match measured_by {
            MeasuredBy::Machine => path.server().estimates().rtt_max,
            MeasuredBy::PacketPath => answered.estimates.rtt_max,
        };
        assert_eq!(measured, Some(ms(20)), "{measured_by:?}");
    }
}

#[test]
fn a_host_whose_requests_ride_sleeps() {
    let (mut net, host, _) = riding(MeasuredBy::PacketPath);
    let end = &net.hosts[host].end;
    let path = end.machine.carried();
    assert_eq!(path, [u32::from(end.machine.path_named("wifi").unwrap())]);
    let watched = reading(&net, host, "wifi").watched.unwrap();
    assert!(watched > net.now && watched <= net.now + ms(2 * T_KA));
    // It is called for the requests of the other path and to look, no more.
    net.stop_apps();
    assert_eq!(net.hosts[host].end.machine.carried(), [], "it is awake when rides are over");
}

#[test]
fn an_outage_while_requests_ride_and_after_rides_are_over_is_found_within_the_bound() {
    for measured_by in BOTH {
        for (way, stops) in [Way::Up, Way::Down, Way::Both].into_iter().zip([true, false, true]) {
            let (mut net, host, voice) = riding(measured_by);
            net.apps[voice].running = !stops;
            net.set_alive(host, "wifi", way, false);
            let died = net.now;
            net.run_for(secs(2));
            let found = down_at(&net, host, "wifi").unwrap().since(died);
            assert!(found <= bound(ms(20)), "{measured_by:?}, {way:?}, {stops}: {found}");
            assert!(found >= ms(T_KA * u64::from(K)), "{measured_by:?}, {way:?}, {stops}: {found}");
        }
    }
}

/// The report rides: no bare request of the other path may leave as long as data run there.
#[test]
fn the_anchor_hears_of_a_dead_downlink_from_requests_that_ride() {
    for measured_by in BOTH {
        let (mut net, host, voice) = riding(measured_by);
        let key = net.apps[voice].key;
        // A second flow keeps the other path's requests riding.
        let other = net.add_voice(host);
        net.run_for(ms(100));
        let moved = net.apps[other].key;
        net.handover(host, Some(moved), None, Some("lte"));
        net.run_for(secs(3));
        assert!(net.flows_use(other, "lte"), "{:?}", net.routes(other));
        net.handover(host, Some(key), None, Some("wifi"));
        net.apps[voice].up.silent = true;
        net.run_for(secs(1));
        let before = reading(&net, host, "lte");
        net.set_alive(host, "wifi", Way::Down, false);
        // What the host needs to miss it, two periods until the next ride, and the way there.
        net.run_for(bound(ms(20)) + ms(2 * T_KA + 30));
        let down = net.anchor.datapath.route(&key.reversed());
        let down = down.and_then(|slot| net.anchor.machine.path(slot)).map(|path| &*path.name);
        assert_eq!(down, Some("lte"), "{measured_by:?}");
        let after = reading(&net, host, "lte");
        assert_eq!(after.sent - before.sent, after.rode - before.rode, "all of them rode");
    }
}

#[test]
fn a_response_without_a_ride_is_sent_when_its_time_is_up() {
    for measured_by in BOTH {
        let (mut net, host, voice) = riding(measured_by);
        // The anchor's next packet would come too late for the next response.
        net.apps[voice].down.silent = true;
        let before = reading(&net, host, "wifi").rode;
        net.run_for(secs(5));
        assert!(reading(&net, host, "wifi").rode - before >= 49, "{measured_by:?}");
        assert_eq!(down_at(&net, host, "wifi"), None, "{measured_by:?}");
        let client = net.hosts[host].end.machine.paths().next().unwrap().1.client().unwrap();
        assert_eq!(client.estimates().rtt_max, Some(ms(20)), "{measured_by:?}");
    }
}
