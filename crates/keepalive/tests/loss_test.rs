//! The sequential test for loss, on packets drawn one by one: how soon it detects a loss, how rarely it errs, and what
//! it does not mistake for loss.

use segue_clock::{Rng, Span, Time};
use segue_keepalive::Counted;
use segue_keepalive::loss_test::{Conditions, LossTest};

const CALM: Conditions = Conditions { jitter_s: 0.0, congested: false };
/// Period of the probes while a path is in use.
const T_KA: Span = Span::from_millis(250);

/// One direction that carries packets at a constant rate and loses each with a probability.
struct Way {
    rng: Rng,
    now: Time,
    total: Counted,
    test: LossTest,
    rate: f64,
    owed: f64,
    conditions: Conditions,
}

impl Way {
    fn new(seed: u64, rate: f64) -> Way {
        let now = Time(1_000_000_000);
        let total = Counted::default();
        let test = LossTest::new(now, total);
        Way { rng: Rng::new(seed), now, total, test, rate, owed: 0.0, conditions: CALM }
    }

    /// Advances to the next probe; returns whether a verdict was given or ended.
    fn step(&mut self, loss: f64) -> bool {
        self.now += T_KA;
        self.owed += self.rate * T_KA.as_secs_f64();
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.total.sent += 1;
            self.total.received += u64::from(self.rng.unit() >= loss);
        }
        self.test.observe(self.now, self.total, self.conditions)
    }

    fn run(&mut self, seconds: u64, loss: f64) {
        for _ in 0..seconds * 4 {
            self.step(loss);
        }
    }
}

/// Sorted delays in seconds, for 200 seeds, from the start of a loss at any time between two probes to the verdict.
fn delays(rate: f64, loss: f64) -> Vec<f64> {
    let mut delays: Vec<f64> = (0..200)
        .map(|seed| {
            let mut way = Way::new(seed, rate);
            way.run(600, 0.001);
            assert!(way.test.verdict().is_none());
            let begins = way.now;
            while way.test.verdict().is_none() {
                way.step(loss);
                assert!(way.now.since(begins) < Span::from_secs(300), "never noticed");
            }
            way.now.since(begins).as_secs_f64()
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    delays
}

#[test]
fn a_loss_is_noticed_about_as_soon_as_counts_allow_also_after_a_long_clean_past() {
    // Packets per second, loss, maximum median and 95th percentile in seconds.
    for (rate, loss, median, late) in [
        (100.0, 0.40, 0.6, 0.8),
        (100.0, 0.15, 1.0, 1.8),
        (100.0, 0.05, 4.5, 8.0),
        (100.0, 0.02, 45.0, 90.0),
        (50.0, 0.15, 1.8, 3.0),
        (20.0, 0.15, 3.3, 6.0),
    ] {
        let delays = delays(rate, loss);
        println!("{rate}/s {loss}: median {:.2} s, 95 % {:.2} s", delays[100], delays[190]);
        assert!(delays[100] <= median && delays[190] <= late, "{rate}/s {loss}: {delays:?}");
    }
}

#[test]
fn a_loss_of_one_percent_gets_a_verdict_less_than_once_in_a_hundred_thousand_seconds() {
    for (rate, seconds) in [(4.0, 400_000), (100.0, 400_000), (1_000.0, 40_000)] {
        let mut way = Way::new(rate as u64, rate);
        let mut given = 0;
        for _ in 0..seconds * 4 {
            given += u64::from(way.step(0.01) && way.test.verdict().is_some());
        }
        println!("{rate}/s: {given} in {seconds} s");
        // One direction has half of the allowance: two verdicts in 400 000 s on average.
        assert!(given <= 4 * seconds / 400_000, "{rate}/s: {given} verdicts");
    }
}

#[test]
fn copies_and_packets_that_a_probe_overtook_are_no_loss_and_hide_none() {
    // One in a hundred packets is missing at a probe and arrives before the next one, or arrives twice.
    let reordered = |way: &mut Way| {
        way.total.received = way.total.sent;
        way.step(0.01)
    };
    let mut way = Way::new(7, 100.0);
    let given = (0..400_000).filter(|_| reordered(&mut way)).count();
    assert_eq!(given, 0, "reordering");

    let mut way = Way::new(7, 100.0);
    for _ in 0..4_000 {
        way.total.received += u64::from(way.rng.chance(0.25));
        way.step(0.0);
    }
    let begins = way.now;
    while way.test.verdict().is_none() {
        way.total.received += u64::from(way.rng.chance(0.25));
        way.step(0.15);
        assert!(way.now.since(begins) < Span::from_secs(4), "copies hide the loss");
    }
}

/// A fast stream may lose as many packets as reordering explains without any loss being counted. They must not count as
/// losses of the few packets that follow after the stream has left the path, when the rate that explained them decays.
#[test]
fn what_a_stream_has_lost_is_no_loss_of_the_packets_after_it() {
    for seed in 0..20 {
        let mut way = Way::new(seed, 1_500.0);
        way.conditions.jitter_s = 0.005;
        way.run(20, 0.001);
        (way.rate, way.owed) = (4.0, 0.0);
        for _ in 0..40 {
            assert!(!way.step(0.0), "{seed}: {:?}", way.test.verdict());
        }
    }
}

#[test]
fn one_burst_is_one_event_and_needs_another() {
    let mut way = Way::new(1, 100.0);
    way.run(60, 0.0);
    way.step(1.0);
    way.run(10, 0.0);
    assert!(way.test.verdict().is_none(), "{:?}", way.test);
    assert!(way.step(1.0) || way.step(1.0));
}

#[test]
fn losses_at_a_full_queue_count_for_little() {
    let run = |loss: f64, seconds: u64| {
        let mut way = Way::new(3, 100.0);
        way.conditions.congested = true;
        way.run(seconds, loss);
        way.test.verdict().map(|verdict| verdict.at.since(Time(1_000_000_000)))
    };
    assert_eq!(run(0.05, 3_600), None, "what a sender that reacts to loss causes");
    let noticed = run(0.4, 60).unwrap();
    assert!((Span::from_secs(2)..Span::from_secs(8)).contains(&noticed), "{noticed}");
}

#[test]
fn a_verdict_ends_when_the_loss_has_ended_and_not_before() {
    for (loss, least_s, most_s) in [(0.4, 0.5, 5.0), (0.15, 1.0, 5.0), (0.05, 2.0, 12.0)] {
        let mut way = Way::new(5, 100.0);
        way.run(60, 0.0);
        way.run(60, loss);
        let verdict = *way.test.verdict().unwrap();
        assert!((verdict.loss - loss).abs() < 0.05, "{verdict:?}, not {loss}");
        assert!(verdict.since <= verdict.at && verdict.counted.sent > 0);
        let ends = way.now;
        while way.test.verdict().is_some() {
            way.step(0.0);
        }
        let took = way.now.since(ends).as_secs_f64();
        assert!((least_s..=most_s).contains(&took), "{loss}: ended after {took} s");
    }
}
