//! Populations of a few hundred hosts on virtual time, with everything that the run of a million hosts reports.

use segue_clock::{Span, Time};
use segue_keepalive::MeasuredBy;
use segue_netem::Loss;
use segue_population::{
    Class, Distribution, Flows, Outages, Shard, Silent, Spec, Stats, results, verdicts,
};

const BOTH: [MeasuredBy; 2] = [MeasuredBy::Machine, MeasuredBy::PacketPath];

#[test]
fn every_host_registers_and_every_path_comes_up_with_the_load_that_the_period_gives() {
    for measured_by in BOTH {
        let spec = spec(300, measured_by);
        let stats = run(&spec);
        assert_eq!((stats.registered, stats.accounted), (300, 600));
        assert_eq!((stats.refused, stats.wrong), (0, 0));
        // Per host: a handshake, a registration, two paths, and the three answers.
        assert_eq!(stats.signals, 300 * 7);
        let measured = 60 - 5 - 6;
        assert_eq!(stats.requests_sent, 600 * measured);
        let came: u64 = stats.anchors.iter().map(|anchor| anchor.requests).sum();
        assert!(came.abs_diff(stats.requests_sent) <= 600, "{came} of {}", stats.requests_sent);
        expect_no_failure(&spec, &stats, 14);
    }
}

#[test]
fn a_seed_gives_the_same_findings_each_time_and_in_any_order_of_the_shards() {
    let spec = Spec { shards: 3, anchors: 5, ..eventful(200, MeasuredBy::Machine) };
    let forward: Vec<Stats> = (0..3).map(|number| shard(&spec, number)).collect();
    let mut backward: Vec<Stats> = (0..3).rev().map(|number| shard(&spec, number)).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let other = run(&Spec { seed: 2, ..spec.clone() });
    assert_ne!(merged(forward.clone()), other);
    assert_eq!(results(&spec, &merged(forward)), results(&spec, &run(&spec)));
}

#[test]
fn outages_of_one_class_are_the_same_whatever_the_other_class_does() {
    let quiet = eventful(100, MeasuredBy::Machine);
    let mut noisy = quiet.clone();
    noisy.classes[1].loss = Loss::Bernoulli(0.2);
    noisy.classes[1].outages = None;
    let (quiet, noisy) = (run(&quiet), run(&noisy));
    assert_eq!(quiet.classes[0].outages, noisy.classes[0].outages);
    assert_ne!(quiet.classes[1].windows, noisy.classes[1].windows);
}

#[test]
fn each_outage_is_found_within_eq_1_and_on_average_when_the_time_out_says() {
    for measured_by in BOTH {
        let spec = Spec { flows: None, planned_every: None, ..eventful(500, measured_by) };
        let stats = run(&spec);
        expect_no_failure(&spec, &stats, 16);
        for class in &stats.classes {
            for end in &class.ends {
                let d = Distribution::of(&end.detections).unwrap();
                assert!(d.count > 100, "{d:?}");
                // Timeout K + ½ periods after the last probe, which was sent up to a period before the outage: 2.5 s to
                // 3.5 s, plus a one-way delay.
                assert!(d.max <= 4.0 + 0.1 && d.min < d.mean, "{d:?}");
                assert!((2.9..3.2).contains(&d.mean), "{d:?}");
                assert_eq!((end.missed, end.late), (0, 0));
            }
        }
    }
}

#[test]
fn an_outage_of_the_uplink_alone_is_found_by_both_ends_and_one_of_the_downlink_by_the_host() {
    for (direction, anchor_sees) in [(Silent::Up, true), (Silent::Down, false)] {
        let mut spec = eventful(200, MeasuredBy::Machine);
        spec.classes.iter_mut().for_each(|class| {
            class.outages.as_mut().unwrap().direction = direction;
        });
        let stats = run(&spec);
        expect_no_failure(&spec, &stats, if anchor_sees { 16 } else { 12 });
        for class in &stats.classes {
            assert!(class.ends[0].detections.len() > 40, "{direction:?}");
            assert_eq!(!class.ends[1].detections.is_empty(), anchor_sees, "{direction:?}");
        }
    }
}

#[test]
fn false_positives_are_as_frequent_as_eq_4_and_the_chain_of_answers_say() {
    for measured_by in BOTH {
        let mut spec = spec(400, measured_by);
        spec.classes[0].loss = Loss::Bernoulli(0.25);
        spec.classes[1].loss = Loss::Bernoulli(0.15);
        let stats = run(&spec);
        expect_no_failure(&spec, &stats, 14);
        // 44 % and 28 % of the exchanges fail, so 8 % and 2 % of the periods end three failures in a row.
        assert!(stats.classes[0].windows > 1_000 && stats.classes[1].windows > 200);
        for class in &stats.classes {
            assert!(class.ends[0].false_positives > 50, "{class:?}");
        }
        let judged = verdicts(&spec, &stats).into_iter().filter(|v| v.what.contains("unanswered"));
        assert!(judged.map(|v| v.holds).eq([Some(true); 2]), "{:?}", verdicts(&spec, &stats));
    }
}

#[test]
fn flows_survive_outages_and_orders_and_the_gaps_of_planned_handovers_are_those_of_the_delays() {
    let spec = Spec { duration: Span::from_secs(120), ..eventful(300, MeasuredBy::Machine) };
    let stats = run(&spec);
    expect_no_failure(&spec, &stats, 16);
    let [down, _, _, _, _, requested, _] = stats.handovers;
    assert!(down > 100 && requested > 100, "{:?}", stats.handovers);
    let flows = &stats.flows;
    assert_eq!(flows.flows, 150);
    assert!(flows.delivered * 10 > flows.sent * 9, "{} of {}", flows.delivered, flows.sent);
    let median = |times: &[u32]| Distribution::of(times).unwrap().median;
    // An order moves a flow between two packets, so the gap is at most the difference of the delays.
    assert!(median(&flows.planned) < 0.1, "{}", median(&flows.planned));
    let (gap, bound) = (median(&flows.interruptions), 4.1);
    assert!(gap > 1.0 && gap < bound, "{gap}");
}

/// Asserts that no verdict failed and that `judged` verdicts were decided. Only results of random loss may have too few
/// events.
fn expect_no_failure(spec: &Spec, stats: &Stats, judged: usize) {
    let (mut facts, mut held) = (std::collections::BTreeSet::new(), 0);
    for verdict in verdicts(spec, stats) {
        assert!(facts.insert(verdict.what.clone()), "judged twice: {verdict:?}");
        assert!(verdict.bar.chars().any(|c| c.is_ascii_digit()), "{verdict:?}");
        assert_ne!(verdict.holds, Some(false), "{verdict:?}");
        assert!(verdict.holds.is_some() || verdict.what.contains("a path-second"), "{verdict:?}");
        held += usize::from(verdict.holds.is_some());
    }
    assert_eq!(held, judged, "{facts:#?}");
}

/// Two classes without loss or outages; T_KA is 1 s.
fn spec(hosts: u32, measured_by: MeasuredBy) -> Spec {
    let class = |name: &str, delay, jitter| Class {
        name: name.into(),
        delay: Span::from_millis(delay),
        jitter: Span::from_millis(jitter),
        loss: Loss::None,
        outages: None,
    };
    let spec = Spec {
        seed: 1,
        hosts,
        anchors: 3,
        shards: 2,
        duration: Span::from_secs(60),
        start_over: Span::from_secs(5),
        k: 3,
        t_ka: Span::from_secs(1),
        measured_by,
        classes: vec![class("wlan", 10, 5), class("cell", 35, 10)],
        paths: vec![0, 1],
        flows: None,
        planned_every: None,
    };
    spec.check().expect("it makes a population");
    spec
}

/// With losses, outages, flows and orders.
fn eventful(hosts: u32, measured_by: MeasuredBy) -> Spec {
    let mut spec = spec(hosts, measured_by);
    for (class, loss) in spec.classes.iter_mut().zip([0.01, 0.005]) {
        class.loss = Loss::Bernoulli(loss);
        class.outages = Some(Outages {
            every: Span::from_secs(60),
            lasts: Span::from_secs(16),
            direction: Silent::Both,
        });
    }
    spec.flows = Some(Flows { share: 0.5, interval: Span::from_millis(100), bytes: 200 });
    spec.planned_every = Some(Span::from_secs(30));
    spec.check().expect("it makes a population");
    spec
}

fn shard(spec: &Spec, number: u32) -> Stats {
    let mut shard = Shard::new(spec, number);
    shard.run_until(Time::ZERO + spec.duration);
    shard.finish()
}

fn merged(all: Vec<Stats>) -> Stats {
    let mut stats = Stats::default();
    all.into_iter().for_each(|each| stats.merge(each));
    stats
}

fn run(spec: &Spec) -> Stats {
    merged((0..spec.shards).map(|number| shard(spec, number)).collect())
}
