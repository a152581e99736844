//! Probes that ride on data: no bare probe leaves while data run, responses wait no longer than allowed, and outages
//! are detected within the bound.

use segue_clock::{Span, Time};
use segue_keepalive::{MeasuredBy, Reading, State};
use segue_tunnel::{AnchorConfig, HostConfig, Report};

use crate::stage::{Stage, Way, anchor_config, host_config, keepalive, ms, secs};

const K: u8 = 3;
const T_KA: u64 = 100;
const BOTH: [MeasuredBy; 2] = [MeasuredBy::Machine, MeasuredBy::PacketPath];

/// A host whose probes ride, with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), and voice on Wi-Fi.
fn riding(measured_by: MeasuredBy) -> (Stage, usize, usize) {
    let mut stage = Stage::with_anchor(1, AnchorConfig { measured_by, ..anchor_config() });
    let mut config = HostConfig { measured_by, ..host_config(K, T_KA) };
    config.path.keepalive.rides = true;
    let host = stage.add_host("alice", config);
    stage.add_link(host, "wifi", ms(10));
    stage.add_link(host, "lte", ms(30));
    stage.run_for(secs(2));
    let voice = stage.add_voice(host);
    stage.run_for(secs(3));
    assert!(stage.flows_use(voice, "wifi"));
    (stage, host, voice)
}

fn bound(round_trip: Span) -> Span {
    let mut keepalive = keepalive(K, T_KA);
    keepalive.rides = true;
    keepalive.t_r_max(round_trip)
}

fn reading(stage: &Stage, host: usize, path: &str) -> Reading {
    let end = stage.host(host).end();
    let slot = end.machine.path_named(path).unwrap();
    end.datapath.reading_at(stage.now(), slot.into()).unwrap()
}

/// When a path last went down.
fn down_at(stage: &Stage, host: usize, path: &str) -> Option<Time> {
    let down = |(at, report): &(Time, Report)| match report {
        Report::PathState { path: name, state: State::Down, .. } => {
            (**name == *path).then_some(*at)
        }
        _ => None,
    };
    stage.host(host).reports().iter().rev().find_map(down)
}

#[test]
fn while_data_run_one_request_rides_in_each_period_and_none_goes_alone() {
    for measured_by in BOTH {
        let (mut stage, host, voice) = riding(measured_by);
        let before = reading(&stage, host, "wifi");
        stage.run_for(secs(10));
        let after = reading(&stage, host, "wifi");
        let (sent, rode) = (after.sent - before.sent, after.rode - before.rode);
        assert_eq!((sent, rode), (100, 100), "{measured_by:?}");
        // Nothing rides without data.
        let idle = reading(&stage, host, "lte");
        assert_eq!(idle.rode, 0, "{measured_by:?}");
        // The requests were answered on time: the path is up, and its RTT is that of the links.
        let client = stage.host(host).end().machine.paths().next().unwrap().1.client().unwrap();
        assert_eq!(client.state(), State::Up);
        assert_eq!(client.estimates().rtt_max, Some(ms(20)), "{measured_by:?}");
        assert_eq!(stage.apps[voice].down.worst, ms(20));
        // The responses rode too, and the anchor measures by the echoes in requests.
        let (slot, path) =
            stage.anchor().end().machine.paths().find(|(_, path)| path.name == "wifi").unwrap();
        let answered = stage.anchor().end().datapath.reading_at(stage.now(), slot).unwrap();
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
    let (mut stage, host, _) = riding(MeasuredBy::PacketPath);
    let end = stage.host(host).end();
    let path = end.machine.carried();
    assert_eq!(path, [u32::from(end.machine.path_named("wifi").unwrap())]);
    let watched = reading(&stage, host, "wifi").watched.unwrap();
    assert!(watched > stage.now() && watched <= stage.now() + ms(2 * T_KA));
    // The machine wakes only for the other path's requests and for the check.
    stage.stop_apps();
    assert_eq!(stage.host(host).end().machine.carried(), [], "it is awake when rides are over");
}

#[test]
fn an_outage_while_requests_ride_and_after_rides_are_over_is_found_within_the_bound() {
    for measured_by in BOTH {
        for (way, stops) in [Way::Up, Way::Down, Way::Both].into_iter().zip([true, false, true]) {
            let (mut stage, host, voice) = riding(measured_by);
            stage.apps[voice].running = !stops;
            stage.set_alive(host, "wifi", way, false);
            let died = stage.now();
            stage.run_for(secs(2));
            let found = down_at(&stage, host, "wifi").unwrap().since(died);
            assert!(found <= bound(ms(20)), "{measured_by:?}, {way:?}, {stops}: {found}");
            assert!(found >= ms(T_KA * u64::from(K)), "{measured_by:?}, {way:?}, {stops}: {found}");
        }
    }
}

/// The report must ride: no bare request leaves on the other path while data run there.
#[test]
fn the_anchor_hears_of_a_dead_downlink_from_requests_that_ride() {
    for measured_by in BOTH {
        let (mut stage, host, voice) = riding(measured_by);
        let key = stage.apps[voice].key;
        // A second flow keeps the other path's requests riding.
        let other = stage.add_voice(host);
        stage.run_for(ms(100));
        let moved = stage.apps[other].key;
        stage.handover(host, Some(moved), None, Some("lte"));
        stage.run_for(secs(3));
        assert!(stage.flows_use(other, "lte"), "{:?}", stage.routes(other));
        stage.handover(host, Some(key), None, Some("wifi"));
        stage.apps[voice].up.silent = true;
        stage.run_for(secs(1));
        let before = reading(&stage, host, "lte");
        stage.set_alive(host, "wifi", Way::Down, false);
        // The host's detection time, two periods until the next ride, and the delay.
        stage.run_for(bound(ms(20)) + ms(2 * T_KA + 30));
        let down = stage.anchor().end().datapath.route(&key.reversed());
        let down =
            down.and_then(|slot| stage.anchor().end().machine.path(slot)).map(|path| &*path.name);
        assert_eq!(down, Some("lte"), "{measured_by:?}");
        let after = reading(&stage, host, "lte");
        assert_eq!(after.sent - before.sent, after.rode - before.rode, "all of them rode");
    }
}

#[test]
fn a_response_without_a_ride_is_sent_when_its_time_is_up() {
    for measured_by in BOTH {
        let (mut stage, host, voice) = riding(measured_by);
        // The anchor's next packet would be too late for the next response.
        stage.apps[voice].down.silent = true;
        let before = reading(&stage, host, "wifi").rode;
        stage.run_for(secs(5));
        assert!(reading(&stage, host, "wifi").rode - before >= 49, "{measured_by:?}");
        assert_eq!(down_at(&stage, host, "wifi"), None, "{measured_by:?}");
        let client = stage.host(host).end().machine.paths().next().unwrap().1.client().unwrap();
        assert_eq!(client.estimates().rtt_max, Some(ms(20)), "{measured_by:?}");
    }
}
