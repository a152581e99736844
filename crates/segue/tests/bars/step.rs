//! T_tml: how long the average needs to follow a step of the round-trip time (section 6.2).

use std::time::Duration;

use segue_clock::{Rng, Span, Time};
use segue_lab::{DemoNet, DemoOptions, Direction, EmulatorSpec};
use segue_linux::clock::monotonic;
use segue_netem::LinkSpec;
use serde_json::Value;

use super::round_trip::{PROBE_PORT, Probe, listen};
use super::{late, shared, truth};

/// Those of the paper's Fig. 16.
const TAUS_MS: [f64; 4] = [124.0, 218.0, 392.0, 896.0];
const T_KA_MS: f64 = 200.0;

fn way(rtt_ms: u64) -> LinkSpec {
    LinkSpec { delay: Span::from_micros(rtt_ms * 500), ..LinkSpec::default() }
}

#[test]
fn the_average_follows_a_step_of_the_round_trip_time_as_its_time_constant_says() {
    let Some(_share) = shared() else { return };
    late::watch();
    let access = EmulatorSpec { up: way(100), down: way(100), seed: 1, log: true };
    let options = DemoOptions {
        tag: "barstep".into(),
        wifi: access.clone(),
        lte: access,
        ..DemoOptions::default()
    };
    let net = DemoNet::start(&options).unwrap();
    let _listener = listen(&net);
    let target = format!("{}:{PROBE_PORT}", DemoNet::ANCHOR.0);
    let taus = TAUS_MS.map(|tau| format!("{tau}ms")).join(",");
    let probe =
        Probe::start(&net, &[&target, "-I", "wifi", "--tau", &taus, "-k", "60", "-w", "22s"]);
    std::thread::sleep(Duration::from_secs(3));
    let mut rng = Rng::new(5);
    let mut steps = Vec::new();
    for rtt in [200, 100, 200] {
        std::thread::sleep(Duration::from_micros(rng.below(200_000)));
        let mut at = Time::ZERO;
        for direction in Direction::ALL {
            at = net.wifi().set_model(direction, way(rtt)).unwrap();
        }
        steps.push((at, rtt as f64));
        std::thread::sleep(Duration::from_millis(5_500));
    }
    let ended = monotonic();
    let lines = probe.finish();
    let samples: Vec<&Value> = lines.iter().filter(|line| line["type"] == "sample").collect();
    let imposed = truth::round_trips(&net.wifi().take_log(), PROBE_PORT);
    // The probe's clock begins with the probe: a sample is not earlier than its answer was sent on.
    let began = samples
        .iter()
        .zip(&imposed)
        .map(|(sample, (at, _))| at.as_secs_f64() - sample["at_s"].as_f64().unwrap());
    let mut began: Vec<f64> = began.collect();
    began.sort_by(f64::total_cmp);
    let began = began[began.len() / 2];
    for (at, to) in steps {
        follow(&samples, began, at, to, late::worst(at, ended.min(at + Span::from_secs(3))));
    }
}

fn follow(samples: &[&Value], began: f64, step: Time, to: f64, scheduling: Span) {
    let from = 300.0 - to;
    let reached = from + (1.0 - (-2.3f64).exp()) * (to - from);
    for (i, tau) in TAUS_MS.iter().enumerate() {
        let took = samples
            .iter()
            .map(|sample| {
                let at = sample["at_s"].as_f64().unwrap() + began - step.as_secs_f64();
                (at * 1e3, sample["rtt_ewma_ms"][i].as_f64().unwrap())
            })
            .find(|(at, s)| *at > 0.0 && (s - reached) * (to - from).signum() >= 0.0)
            .expect("the average arrives")
            .0;
        let bounds = (2.3 * tau - T_KA_MS, 2.3 * tau + T_KA_MS + to);
        println!(
            "T_tml {from:.0} to {to:.0} ms, tau {tau} ms: {took:.0} ms (bar {:.0} to {:.0}), scheduling \
             delay {:.1} ms",
            bounds.0,
            bounds.1,
            scheduling.as_millis_f64()
        );
        // Samples that are late by so much hold the average up by as much, where it moves by a tenth of the
        // step in each tau.
        let late = scheduling.as_millis_f64();
        let held_up = late + tau * late / (0.1 * (to - from).abs());
        assert!(took >= bounds.0 && took <= bounds.1 + held_up);
    }
}
