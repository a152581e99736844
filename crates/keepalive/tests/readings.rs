//! A datapath that measures: the machines decide as they do with probes.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::datapath::{Plane, idle};
use common::{Dir, Link, at_ms, config, ms};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{
    Asking, Client, ClientInput, ClientOutput, Config, Estimates, MeasuredBy, Reading, Server,
    ServerInput, ServerOutput, State, Traffic,
};
use segue_wire::Mode;

/// Random losses that depend on the time and not on the packet, so that two runs see the same ones.
fn random_losses(seed: u64, one_way: Span) -> Link {
    Box::new(move |dir, at| {
        // Outages of about 0.6 s from time to time, and 10 % loss between them.
        let outage = Rng::new(seed ^ (at.0 / 600_000_000)).chance(0.15);
        let lost = Rng::new(seed ^ at.0 ^ (dir == Dir::Up) as u64).chance(0.1);
        (!outage && !lost).then_some(one_way)
    })
}

fn run(measured_by: MeasuredBy, seed: u64, end: Time) -> Plane {
    let mut rng = Rng::new(seed);
    let (k, t_ka) = (1 + rng.below(4) as u8, ms(40 + rng.below(100)));
    let one_way = Span(rng.below(t_ka.0));
    let config = Config { measured_by, ..config(k, t_ka) };
    let mut plane = Plane::new(config, random_losses(seed, one_way), idle());
    plane.run_until(end);
    plane
}

#[test]
fn readings_and_probes_give_the_same_changes_of_state_at_the_same_time() {
    let mut changes = 0;
    for seed in 0..60 {
        let end = at_ms(60_000);
        let (probes, readings) =
            (run(MeasuredBy::Machine, seed, end), run(MeasuredBy::PacketPath, seed, end));
        let times = |plane: &Plane| plane.requests.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(times(&probes), times(&readings), "seed {seed}");
        assert_eq!(probes.states, readings.states, "seed {seed}");
        assert_eq!(probes.server_states, readings.server_states, "seed {seed}");
        assert_eq!(probes.heard, readings.heard, "seed {seed}");
        assert_eq!(probes.unsolicited, readings.unsolicited, "seed {seed}");
        let [a, b] = [&probes, &readings].map(|plane| plane.client.estimates().clone());
        assert_eq!((a.sent, a.transitions), (readings.requests.len() as u64, b.transitions));
        changes += probes.states.len() + probes.server_states.len();
    }
    assert!(changes > 1_000, "only {changes} changes");
}

#[test]
fn round_trip_loss_from_readings_is_that_from_probes() {
    for seed in 0..10 {
        let link = || -> Link {
            Box::new(move |dir, at| {
                let lost = Rng::new(seed ^ at.0 ^ (dir == Dir::Up) as u64).chance(0.1);
                (!lost).then_some(ms(10))
            })
        };
        let mean = |measured_by| {
            let config = Config { measured_by, ..config(7, ms(100)) };
            let mut plane = Plane::new(config, link(), idle());
            plane.run_until(at_ms(300_000));
            let values: Vec<f64> = plane.samples.iter().filter_map(|s| s.rtl).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        let (probes, readings) = (mean(MeasuredBy::Machine), mean(MeasuredBy::PacketPath));
        assert!((probes - readings).abs() < 0.01, "seed {seed}: {probes}, {readings}");
    }
}

fn reading(at: Time, received: u32) -> Reading {
    let estimates = Estimates {
        rtt_last: Some(ms(30)),
        rtt_ewma: vec![0.031],
        owl_up: vec![0.25],
        duplicates: 4,
        sent: 999,
        received: 999,
        transitions: 999,
        ..Estimates::default()
    };
    Reading {
        at,
        sent: received + 1,
        rode: 0,
        last_sent: Some(at),
        received,
        last_received: Some(at),
        last_heard: Some(at),
        watched: None,
        traffic: Default::default(),
        run: 9,
        k: 5,
        t_ka: Some(ms(300)),
        estimates,
    }
}

#[test]
fn a_reading_is_the_truth_for_counts_and_averages_and_gives_one_sample_if_it_is_new() {
    let config = Config { measured_by: MeasuredBy::PacketPath, ..config(3, ms(100)) };
    let mut client = Client::new(config, Time(0), 1);
    let samples = |client: &mut Client, at, received| {
        client.handle(at, ClientInput::Reading(reading(at, received)));
        core::iter::from_fn(|| client.poll())
            .filter(|output| matches!(output, ClientOutput::Sample(_)))
            .count()
    };
    assert_eq!(samples(&mut client, at_ms(20), 1), 1);
    assert_eq!(client.state(), State::Up);
    assert_eq!(samples(&mut client, at_ms(50), 1), 0, "nothing new");
    assert_eq!(samples(&mut client, at_ms(120), 2), 1);
    let e = client.estimates();
    assert_eq!((e.sent, e.received, e.duplicates, e.transitions), (3, 2, 4, 0));
    assert_eq!((e.rtt_ewma.as_slice(), e.owl_up.as_slice()), (&[0.031][..], &[0.25][..]));
}

#[test]
fn a_server_takes_k_and_t_ka_from_a_reading() {
    let config = Config { measured_by: MeasuredBy::PacketPath, ..config(3, ms(100)) };
    let mut server = Server::new(config, Time(0), true);
    server.handle(at_ms(20), ServerInput::Reading(reading(at_ms(20), 1)));
    assert_eq!(server.in_force(), (5, ms(300)));
    assert!(server.heard());
    let outputs: Vec<_> = core::iter::from_fn(|| server.poll()).collect();
    assert!(matches!(outputs[..], [ServerOutput::State(State::Up), ServerOutput::Sample(_)]));
    assert_eq!(server.deadline().unwrap().0, at_ms(20 + 450));
    server.tick(at_ms(20 + 1_650));
    assert_eq!(server.state(), State::Down);
}

#[test]
fn a_run_from_before_the_outage_does_not_bring_a_path_up() {
    let config = Config { measured_by: MeasuredBy::PacketPath, ..config(3, ms(100)) };
    let mut client = Client::new(config, Time(0), 1);
    client.tick(Time(0));
    client.handle(at_ms(20), ClientInput::Reading(reading(at_ms(20), 1)));
    for tick in 1..10 {
        client.tick(at_ms(tick * 100));
    }
    assert_eq!(client.state(), State::Down);
    for (received, state) in [(2, State::Down), (3, State::Down), (4, State::Up)] {
        let at = at_ms(900 + 20 * u64::from(received));
        client.handle(at, ClientInput::Reading(reading(at, received)));
        assert_eq!(client.state(), state, "{received}");
    }
}

#[test]
fn the_round_trip_loss_is_the_datapaths_in_modes_that_report_it() {
    for (mode, want) in
        [(Mode::Both, &[][..]), (Mode::Reports, &[0.125][..]), (Mode::RoundTripLoss, &[0.125][..])]
    {
        let config = Config { measured_by: MeasuredBy::PacketPath, mode, ..config(3, ms(100)) };
        let mut client = Client::new(config, Time(0), 1);
        let mut reading = reading(at_ms(20), 1);
        reading.estimates.rtl = vec![0.125];
        client.handle(at_ms(20), ClientInput::Reading(reading));
        assert_eq!(client.estimates().rtl, want, "{mode:?}");
    }
}

#[test]
fn data_show_use_and_that_the_path_is_heard_also_where_no_questions_are_asked() {
    for doubt in [None, Some(Asking { k: 3, spacing: ms(8) })] {
        let config = Config { measured_by: MeasuredBy::PacketPath, doubt, ..config(3, ms(100)) };
        let mut client = Client::new(config, Time(0), 1);
        assert_eq!(client.use_of_path().0, Time(0));
        let (sent_at, received_at) = (Some(at_ms(40)), Some(at_ms(70)));
        let traffic = Traffic { sent_at, received_at, received: 5, bytes: 900, ..Traffic::NONE };
        let reading =
            Reading { traffic, last_heard: None, last_received: None, ..reading(at_ms(80), 0) };
        client.handle(at_ms(80), ClientInput::Reading(reading));
        assert_eq!(client.use_of_path().0, at_ms(2_070), "{doubt:?}");
        assert_eq!(client.heard_at(), at_ms(70));
    }
}

#[test]
fn where_the_client_alone_measures_a_server_takes_what_requests_state_and_nothing_before_any_came()
{
    let config =
        Config { measured_by: MeasuredBy::PacketPath, mode: Mode::Client, ..config(3, ms(100)) };
    let mut server = Server::new(config, Time(0), true);
    server.handle(at_ms(100), ServerInput::Reading(reading(at_ms(100), 0)));
    assert_eq!((server.state(), server.in_force()), (State::Starting, (3, ms(100))));
    server.handle(at_ms(200), ServerInput::Reading(reading(at_ms(200), 1)));
    assert_eq!((server.state(), server.in_force()), (State::Up, (5, ms(300))));
    assert_eq!(server.estimates().received, 0);
}
