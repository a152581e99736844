//! What both ends agree on: which end measures, whether paths are probed, and who gets unsolicited responses.

use std::collections::BTreeSet;

use segue_clock::{Machine, Span, Time};
use segue_ip::Output::Own;
use segue_keepalive::{Arrival, MeasuredBy, Reading, Tau};
use segue_sim::net::LinkFault;
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, HostConfig, HostInput, Order, Output,
    ProbeEvent, ProbeKind,
};
use segue_wire::signal::{FromAnchor, FromHost, PathOffer, SIGNAL_VERSION};
use segue_wire::{Encapsulation, Mode, Probe};

use crate::stage::{Stage, Way, anchor_config, host_config, ms, offer, secs};

fn in_mode(mode: Mode) -> HostConfig {
    let mut config = host_config(3, 60);
    config.path.keepalive.mode = mode;
    config
}

#[test]
fn both_ends_have_the_mode_and_the_form_that_was_granted() {
    for mode in [Mode::Both, Mode::Client, Mode::Reports, Mode::RoundTripLoss] {
        let mut config = in_mode(mode);
        config.path.encapsulation = Encapsulation::Upmt;
        config.path.keepalive.rides = true;
        let (stage, host) = Stage::two_paths(1, config);
        for (_, path) in stage.host(host).end().machine.paths() {
            assert!(path.is_up());
            assert_eq!((path.keepalive().mode, path.keepalive().rides), (mode, true));
            assert_eq!(path.encapsulation(), Encapsulation::Segue, "the anchor has no other");
        }
        for (_, path) in stage.anchor().end().machine.paths() {
            assert_eq!((path.mode(), path.rides()), (mode, true));
            assert_eq!(path.server().config().mode, mode);
            assert_eq!(path.is_watched(), mode != Mode::Client);
        }
    }
}

#[test]
fn where_the_client_alone_measures_the_downlink_follows_the_host() {
    for seed in 0..20 {
        let (mut stage, host) = Stage::two_paths(seed, in_mode(Mode::Client));
        let bulk = stage.add_bulk(host);
        stage.run_for(secs(3) + ms(seed * 7));
        assert!(stage.flows_use(bulk, "wifi"), "{:?}", stage.routes(bulk));
        stage.set_alive(host, "wifi", Way::Both, false);
        stage.run_for(ms(60 * 4 + 20 + 100));
        assert!(stage.flows_use(bulk, "lte"), "seed {seed}: {:?}", stage.routes(bulk));
        stage.set_alive(host, "wifi", Way::Both, true);
        stage.run_for(secs(5));
        assert!(stage.flows_use(bulk, "wifi"), "seed {seed}: {:?}", stage.routes(bulk));
        stage.expect_no_redirections();
        assert!(
            stage
                .anchor()
                .reports()
                .iter()
                .all(|(_, report)| { !matches!(report, segue_tunnel::Report::PathState { .. }) })
        );
    }
}

#[test]
fn where_only_the_loss_of_the_round_trip_is_known_half_of_it_steers() {
    for mode in [Mode::RoundTripLoss, Mode::Both] {
        let (mut stage, host) = Stage::two_paths(3, in_mode(mode));
        let bulk = stage.add_bulk(host);
        stage.run_for(secs(3));
        assert!(stage.flows_use(bulk, "wifi"), "{mode:?}: {:?}", stage.routes(bulk));
        stage.fault(host, "wifi", Way::Both, LinkFault::Loss(30));
        let moved = stage.run_while_not(secs(90), |stage| stage.flows_use(bulk, "lte"));
        assert!(moved, "{mode:?}: {:?}", stage.routes(bulk));
    }
}

#[test]
fn the_anchor_averages_over_the_times_that_the_host_asks_for() {
    let mut config = host_config(3, 60);
    let tau = |rise, fall| Tau { rise: ms(rise), fall: ms(fall) };
    let taus = vec![tau(500, 8_000), tau(20_000, 20_000)];
    (config.path.keepalive.taus, config.path.keepalive.n) = (taus.clone(), 25);
    let mut slow = config.path.clone();
    slow.keepalive.taus = vec![tau(90_000, 90_000)];
    config.paths.insert("lte".into(), slow);
    let (mut stage, _) = Stage::two_paths(1, config);
    stage.run_for(secs(2));
    for (_, path) in stage.anchor().end().machine.paths() {
        let of = path.server().config();
        let wanted = if path.name == "wifi" { taus.clone() } else { vec![tau(90_000, 90_000); 2] };
        assert_eq!((&of.taus, of.n), (&wanted, 25), "{}", path.name);
    }
    assert_eq!(stage.anchor().end().machine.paths().count(), 2);
}

#[test]
fn an_offer_with_other_terms_changes_a_standing_path() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let (number, cookie, before) = {
        let (slot, path) =
            stage.anchor().end().machine.paths().find(|(_, path)| path.name == "lte").unwrap();
        (path.number, (slot, path.server().estimates().received), path.keepalive())
    };
    assert_eq!(before, (3, ms(60)));
    let receiver = stage.anchor().end().datapath.tx_of(cookie.0).unwrap();
    let conn = stage.conn_of("alice").unwrap();
    let offer = PathOffer {
        name: "lte".into(),
        index: receiver.0,
        cookie: receiver.1,
        k: 4,
        t_ka_ms: 80,
        rides: true,
        ..offer(number)
    };
    let message = FromHost::AddPath(offer);
    let said = stage.tell_anchor(AnchorInput::Signal { conn, message });
    let (slot, path) =
        stage.anchor().end().machine.paths().find(|(_, path)| path.name == "lte").unwrap();
    assert_eq!(slot, cookie.0, "it is the same path");
    assert!(path.rides() && path.is_up());
    assert_eq!(path.server().estimates().received, cookie.1);
    let granted = said.last().map(|(_, message)| message.clone());
    assert!(
        matches!(&granted, Some(segue_wire::signal::FromAnchor::PathReady(g)) if g.index == slot && g.rides),
        "{granted:?}"
    );
    // The host accepts the grant although it did not ask for it.
    stage.run_for(secs(1));
    let (_, path) =
        stage.host(host).end().machine.paths().find(|(_, p)| p.name() == "lte").unwrap();
    assert!(path.keepalive().rides && path.is_up());
}

fn switch(stage: &mut Stage, host: usize, path: &str, on: bool) {
    stage.tell_host(host, HostInput::Keepalive { path: path.into(), on });
}

#[test]
fn a_path_that_is_not_watched_sends_nothing_and_keeps_its_flows() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let anchor = AnchorConfig { measured_by, ..anchor_config() };
        let (mut stage, host) =
            Stage::two_paths_to(1, HostConfig { measured_by, ..host_config(3, 60) }, anchor);
        let bulk = stage.add_bulk(host);
        stage.run_for(secs(3));
        assert!(stage.flows_use(bulk, "wifi"));
        switch(&mut stage, host, "wifi", false);
        stage.run_for(secs(1));
        let sent = |stage: &Stage| {
            let machine = &stage.host(host).end().machine;
            let (_, path) = machine.paths().find(|(_, p)| p.name() == "wifi").unwrap();
            (path.is_unwatched(), path.is_up(), path.client().unwrap().estimates().sent)
        };
        let before = sent(&stage);
        assert_eq!((before.0, before.1), (true, true));
        let at_anchor =
            stage.anchor().end().machine.paths().find(|(_, path)| path.name == "wifi").unwrap().1;
        assert!(!at_anchor.is_watched());
        // The outage goes unnoticed: nothing is sent or moved.
        stage.set_alive(host, "wifi", Way::Both, false);
        stage.run_for(secs(5));
        assert_eq!(sent(&stage), before);
        assert!(stage.flows_use(bulk, "wifi"), "{measured_by:?}: {:?}", stage.routes(bulk));
        // Once watched again, the path is found dead.
        switch(&mut stage, host, "wifi", true);
        stage.run_for(ms(60 * 4 + 20 + 150));
        assert!(stage.flows_use(bulk, "lte"), "{measured_by:?}: {:?}", stage.routes(bulk));
        stage.set_alive(host, "wifi", Way::Both, true);
        stage.run_for(secs(5));
        assert!(stage.flows_use(bulk, "wifi"), "{measured_by:?}: {:?}", stage.routes(bulk));
        stage.expect_no_redirections();
    }
}

#[test]
fn a_path_that_shall_not_be_watched_is_probed_until_its_anchor_knows_it_also_after_a_new_address() {
    let mut config = host_config(3, 60);
    config.path.enabled = false;
    let (mut stage, host) = Stage::two_paths(1, config);
    let voice = stage.add_voice(host);
    stage.run_for(secs(1));
    assert!(
        stage.host(host).end().machine.paths().all(|(_, path)| path.is_unwatched() && path.is_up())
    );
    let over = stage.routes(voice);
    assert!(over.0.is_some() && over.0 == over.1, "{over:?}");
    let sent = |stage: &Stage| -> u64 {
        let paths = stage.host(host).end().machine.paths();
        paths.map(|(_, path)| path.client().unwrap().estimates().sent).sum()
    };
    let before = sent(&stage);
    stage.run_for(secs(5));
    assert_eq!(sent(&stage), before);
    // A new address: the downlink must find it.
    let name = over.0.unwrap();
    stage.renumber(host, &name, "198.51.100.77".parse().unwrap());
    stage.run_for(secs(1));
    stage.reset_streams();
    stage.run_for(secs(2));
    stage.stop_apps();
    assert_eq!(stage.apps[voice].down.sent, stage.apps[voice].down.received);
    assert!(stage.host(host).end().machine.paths().all(|(_, path)| path.is_unwatched()));
    // An order outlives the interface.
    switch(&mut stage, host, &name, true);
    stage.set_present(host, &name, false);
    stage.set_present(host, &name, true);
    stage.run_for(secs(2));
    let machine = &stage.host(host).end().machine;
    assert!(machine.paths().all(|(_, path)| path.is_unwatched() == (path.name() != name)));
}

#[test]
fn packet_paths_that_measure_keep_the_probes_of_live_paths_to_themselves() {
    let measured_by = MeasuredBy::PacketPath;
    let anchor = AnchorConfig { measured_by, ..anchor_config() };
    let (mut stage, host) =
        Stage::two_paths_to(3, HostConfig { measured_by, ..host_config(3, 60) }, anchor);
    let quiet = |stage: &Stage| stage.host(host).probes_quiet() + stage.anchor().probes_quiet();
    let before = quiet(&stage);
    stage.run_for(secs(10));
    // With two paths, each end hears one probe per path and period.
    let (all, quiet) = (10_000 / 60 * 4, quiet(&stage));
    assert!(quiet - before >= all - 8, "{} of {all}", quiet - before);
    for (_, path) in stage.host(host).end().machine.paths() {
        let estimates = path.client().unwrap().estimates();
        assert!(path.is_up() && estimates.received > 150, "{estimates:?}");
    }
}

#[test]
fn paths_of_one_period_send_their_requests_at_the_same_instants() {
    let mut host = HostTicks::default();
    let (mut stage, at) = Stage::two_paths(5, host_config(3, 60));
    let end = stage.now() + secs(3);
    while stage.now() < end {
        let due = stage.host(at).end().machine.deadline().unwrap().0;
        stage.run_until(due - Span(1));
        let requests = stage.at_host_end(at, |end, _, effects| {
            end.machine.tick(due);
            let outputs: Vec<_> = std::iter::from_fn(|| end.machine.poll()).collect();
            let request = |output: &&_| matches!(output, Output::Order(Order::SendProbe(_)));
            let requests = outputs.iter().filter(request).count() as u32;
            outputs.into_iter().for_each(|output| end.carry_out(due, output, effects));
            requests
        });
        host.ticks += u32::from(requests > 0);
        host.requests += requests;
    }
    assert_eq!(host.requests, host.ticks * 2, "{host:?}");
    assert!(host.ticks >= 49, "{host:?}");
}

#[derive(Debug, Default)]
struct HostTicks {
    ticks: u32,
    requests: u32,
}

#[test]
fn the_pace_and_the_form_of_an_offer_are_in_force_before_any_request_and_after_each_change() {
    for allow_upmt in [true, false] {
        let mut anchor = Anchor::new(AnchorConfig { allow_upmt, ..anchor_config() }, [1; 32]);
        let conn = ConnId(1);
        let mut tell = |input: AnchorInput| {
            anchor.handle(Time(1_000_000_000), input.into());
            core::iter::from_fn(|| anchor.poll()).collect::<Vec<_>>()
        };
        tell(AnchorInput::Connected { conn, host: "alice".into() });
        let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
        tell(AnchorInput::Signal { conn, message });
        let mut cookies = BTreeSet::new();
        for (k, t_ka_ms, wanted) in [
            (4, 80, Encapsulation::Segue),
            (7, 4_000, Encapsulation::Segue),
            (7, 4_000, Encapsulation::Upmt),
            (3, 60, Encapsulation::Segue),
        ] {
            let offer = PathOffer { k, t_ka_ms, encapsulation: wanted, ..offer(0) };
            let message = FromHost::AddPath(offer);
            let outputs = tell(AnchorInput::Signal { conn, message });
            let form = if allow_upmt { wanted } else { Encapsulation::Segue };
            let granted = outputs.iter().find_map(|output| match output {
                Output::Driver(Own(AnchorOutput::Signal(_, FromAnchor::PathReady(grant)))) => {
                    Some(grant)
                }
                _ => None,
            });
            assert_eq!(granted.map(|grant| grant.encapsulation), Some(form), "{outputs:?}");
            cookies.extend(granted.map(|grant| grant.cookie));
            // The datapath is updated only on changes.
            let told = outputs.iter().find_map(|output| match output {
                Output::Order(Order::SetPath(_, setup)) => Some(&setup.probing),
                _ => None,
            });
            let told = told.map(|probing| (probing.k, probing.t_ka, probing.encapsulation));
            let unchanged = wanted == Encapsulation::Upmt && !allow_upmt;
            assert_eq!(told, (!unchanged).then_some((k, ms(t_ka_ms.into()), form)));
        }
        assert_eq!(cookies.len(), 1, "it is one path all the time");
        let (_, path) = anchor.paths().next().unwrap();
        assert_eq!((path.keepalive(), path.encapsulation()), ((3, ms(60)), Encapsulation::Segue));
    }
}

#[test]
fn a_path_whose_requests_ride_is_read_of_with_the_others_and_not_waited_for() {
    let measured_by = MeasuredBy::PacketPath;
    let mut config = HostConfig { measured_by, ..host_config(3, 60) };
    config.path.keepalive.rides = true;
    let anchor = AnchorConfig { measured_by, ..anchor_config() };
    let (mut stage, host) = Stage::two_paths_to(1, config, anchor);
    // Stop between two requests.
    stage.run_for(ms(10));
    assert_eq!(stage.host(host).end().machine.carried(), []);
    // The packet path reports that a request has just ridden, and that it will call if no other does.
    let now = stage.now();
    let wifi = u32::from(stage.host(host).end().machine.path_named("wifi").unwrap());
    let reading = stage.host(host).end().datapath.reading_at(now, wifi).unwrap();
    let watched = Some(now + ms(60));
    let reading = Reading { rode: 1, last_sent: Some(now), watched, ..reading };
    stage.tell_host(host, HostInput::Reading(wifi, Box::new(reading)));
    let machine = &stage.host(host).end().machine;
    assert_eq!(machine.carried(), [wifi]);
    // It becomes due together with the other path, which sends its own requests, and never earlier.
    let (at, _) = machine.deadline().unwrap();
    assert!(at < now + ms(60));
    assert_eq!(machine.due(at - Span(1)), []);
    let all: Vec<u32> = machine.paths().map(|(number, _)| u32::from(number)).collect();
    assert_eq!((machine.due(at), all.len()), (all, 2));
}

/// Slots of a path at its host and at the anchor.
fn slots(stage: &Stage, host: usize, name: &str) -> (u32, u32) {
    let number = stage.host(host).end().machine.path_named(name).unwrap();
    let (slot, _) =
        stage.anchor().end().machine.paths().find(|(_, path)| path.name == name).unwrap();
    (u32::from(number), slot)
}

#[test]
fn data_of_a_path_have_checksums_at_both_ends_where_its_packets_arrive_over_another_protocol() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let (number, slot) = slots(&stage, host, "lte");
    let checksums = |stage: &Stage| {
        let [at_host, at_anchor] = [
            stage.host(host).end().datapath.probing_of(number),
            stage.anchor().end().datapath.probing_of(slot),
        ]
        .map(|probing| probing.unwrap().checksums);
        let machine = &stage.host(host).end().machine;
        let known = machine.paths().find(|(_, path)| path.name() == "lte").unwrap().1.checksums();
        assert_eq!(known, at_host);
        [at_host, at_anchor]
    };
    assert_eq!(checksums(&stage), [false; 2]);
    // The host claims to send over IPv6, but its packets arrive over IPv4.
    let receiver = stage.anchor().end().datapath.tx_of(slot).unwrap();
    let conn = stage.conn_of("alice").unwrap();
    let (index, cookie) = receiver;
    let offer = PathOffer { name: "lte".into(), index, cookie, v6: true, ..offer(number as u8) };
    stage.tell_anchor(AnchorInput::Signal { conn, message: FromHost::AddPath(offer) });
    assert_eq!(checksums(&stage), [false, true]);
    stage.run_for(ms(100));
    assert_eq!(checksums(&stage), [true; 2]);
    // After a reconnect the host offers the true family.
    stage.break_signal(host);
    stage.run_for(secs(5));
    assert_eq!(checksums(&stage), [false; 2]);
    // A request arrives over IPv6: the path counts as translated until one arrives over IPv4 again.
    let probe = Probe { seq: 1 << 20, t_ka_ms: 60, ..Probe::default() };
    let request = ProbeEvent {
        slot,
        kind: ProbeKind::Request,
        k: 3,
        report: false,
        age: 0,
        remote: "[2001:db8::2]:5005".parse().unwrap(),
        kernel_stamp: true,
        arrival: Arrival::new(probe, stage.now(), 1 << 20),
    };
    let said = stage.tell_anchor(AnchorInput::Probe(request));
    assert!(
        matches!(&said[..], [(_, FromAnchor::PathReady(grant))] if grant.checksums),
        "{said:?}"
    );
    assert!(checksums(&stage)[1]);
    stage.run_for(secs(1));
    assert_eq!(checksums(&stage), [false; 2]);
}

#[test]
fn an_end_that_gets_several_packets_in_one_piece_has_the_other_send_one_by_one() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let ((wifi, wifi_at_anchor), (lte, lte_at_anchor)) =
        (slots(&stage, host, "wifi"), slots(&stage, host, "lte"));
    let state = |stage: &Stage| {
        let (at_host, at_anchor) =
            (&stage.host(host).end().datapath, &stage.anchor().end().datapath);
        [
            [wifi, lte].map(|slot| at_host.is_one_by_one(slot)),
            [wifi_at_anchor, lte_at_anchor].map(|slot| at_anchor.is_one_by_one(slot)),
        ]
    };
    stage.tell_host(host, HostInput::Uncut(wifi));
    stage.run_for(ms(100));
    assert_eq!(state(&stage), [[false, false], [true, false]]);
    stage.tell_anchor(AnchorInput::Uncut(lte_at_anchor));
    stage.run_for(ms(100));
    assert_eq!(state(&stage), [[false, true], [true, false]]);
    // Repeats while the order is in flight are suppressed; a lasting problem is reported again.
    let told = |stage: &mut Stage, wait: Span| {
        stage.run_for(wait);
        let mut again = || stage.tell_anchor(AnchorInput::Uncut(lte_at_anchor)).len();
        (0..5).map(|_| again()).sum::<usize>()
    };
    assert_eq!([ms(0), secs(1), ms(500)].map(|wait| told(&mut stage, wait)), [0, 1, 0]);
    // Nothing is sent without a connection, or about unknown paths.
    stage.break_signal(host);
    stage.tell_host(host, HostInput::Uncut(lte));
    stage.tell_host(host, HostInput::Uncut(u32::MAX));
    // The anchor has noticed the end of the connection, and there is no new one yet.
    stage.run_for(ms(15));
    assert_eq!(stage.tell_anchor(AnchorInput::Uncut(wifi_at_anchor)), []);
    stage.run_for(secs(3));
    assert_eq!(state(&stage), [[false, true], [true, false]], "the paths stand");
    stage.tell_host(host, HostInput::Uncut(lte));
    stage.run_for(ms(100));
    assert_eq!(state(&stage)[1], [true, true]);
}
