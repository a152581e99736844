//! A download that fills the queue in front of a living path: what the planned time-out makes of it, and what
//! adaptation learns.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::collections::BTreeMap;

use common::{Dir, Log, World, at_ms, ms};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::adapt::Look;
use segue_keepalive::planner::{Responsiveness, T_KA_MIN, Targets};
use segue_keepalive::{Adaptive, Aims, Config, State, plan};

/// Packets that the queue takes.
const QUEUE: u64 = 100;
/// Time on the wire of a full packet, at 20 Mbit/s.
const SLOT: u64 = 600_000;
/// Round trip without the queue.
const RTT: u64 = 60_000_000;
/// A download begins with each period of this length, and ends at its middle.
const DOWNLOAD: u64 = 20_000_000_000;
const RUN_MS: u64 = 200_000;

/// A sender with slow start and halving (RFC 5681) through a drop-tail queue.
struct Download {
    now: u64,
    number: u64,
    window: f64,
    threshold: f64,
    flight: u64,
    queue: u64,
    /// When the sender hears of packets: how many came, how many were dropped.
    news: BTreeMap<u64, (u64, u64)>,
    halved: u64,
}

impl Download {
    fn new() -> Download {
        let news = BTreeMap::new();
        let (window, threshold) = (10.0, f64::INFINITY);
        Download { now: 0, number: 0, window, threshold, flight: 0, queue: 0, news, halved: 0 }
    }

    /// Packets in the queue at an instant.
    fn queue_at(&mut self, at: Time) -> u64 {
        while self.now + SLOT <= at.0 {
            self.now += SLOT;
            if self.now / DOWNLOAD != self.number {
                *self = Download { now: self.now, number: self.now / DOWNLOAD, ..Download::new() };
            }
            self.slot();
        }
        self.queue
    }

    fn slot(&mut self) {
        if self.queue > 0 {
            self.queue -= 1;
            self.news.entry(self.now + RTT).or_default().0 += 1;
        }
        while let Some((at, (came, dropped))) = self.news.pop_first() {
            if at > self.now {
                self.news.insert(at, (came, dropped));
                break;
            }
            self.flight -= came + dropped;
            self.hear(came as f64, dropped > 0);
        }
        while (self.flight as f64) < self.window && self.now % DOWNLOAD < DOWNLOAD / 2 {
            self.flight += 1;
            if self.queue == QUEUE {
                self.news.entry(self.now + RTT + QUEUE * SLOT).or_default().1 += 1;
            } else {
                self.queue += 1;
            }
        }
    }

    fn hear(&mut self, came: f64, dropped: bool) {
        let slow_start = self.window < self.threshold;
        self.window += if slow_start { came } else { came / self.window };
        if dropped && self.now > self.halved {
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
            self.halved = self.now + RTT + QUEUE * SLOT;
        }
    }
}

/// A path whose downlink has the queue. A response that comes while it is full is as likely dropped as not.
fn world(config: Config, seed: u64) -> World {
    let (mut rng, mut download) = (Rng::new(seed), Download::new());
    let link = Box::new(move |dir: Dir, at: Time| {
        let one_way = Span(RTT / 2);
        if dir == Dir::Up {
            return Some(one_way);
        }
        let queue = download.queue_at(at);
        let drops = queue + 1 >= QUEUE && rng.chance(0.5);
        (!drops).then(|| one_way + Span(queue * SLOT))
    });
    let mut world = World::new(config, Time(0), Span::ZERO, link);
    world.keep_samples = false;
    world
}

#[test]
fn downloads_bring_an_adaptive_path_down_far_less_often_than_a_planned_one() {
    let plan = plan(&Targets {
        rtt_avg: 0.06,
        rtt_max: None,
        loss_up: 0.01,
        loss_down: 0.01,
        loss: None,
        burst: None,
        rides: false,
        responsiveness: Responsiveness::Avg(0.15),
        fp_interval: 1e5,
        t_ka_min: T_KA_MIN,
        k_max: 32,
    });
    let planned = Config::from_plan(&plan.unwrap());
    let (mut fixed, mut adapted, mut detection) = (0, 0, 0.0_f64);
    for seed in 0..20 {
        let mut world = world(planned.clone(), seed);
        world.run_until(at_ms(RUN_MS));
        fixed += world.count_of(Log::Client(State::Down));
    }
    for seed in 0..20 {
        let mut world = world(planned.clone(), seed);
        let mut adaptive = Adaptive::new(Aims::default());
        while world.now < at_ms(RUN_MS) {
            world.run_for(ms(250));
            let client = &world.client;
            let look = Look {
                estimates: client.estimates(),
                round_trips: client.round_trips(),
                burst: client.burst(),
                active: true,
                is_up: client.state() == State::Up,
                rides: false,
            };
            if let Some(why) = adaptive.update(world.now, look) {
                let config = Config::from_plan(&why.plan);
                world.reconfigure_client(config);
            }
        }
        adapted += world.count_of(Log::Client(State::Down));
        detection += adaptive.why().unwrap().plan.t_r_avg / 20.0;
    }
    println!(
        "200 downloads: {fixed} false downs planned once, {adapted} adaptive, T_Ravg {detection:.3} s"
    );
    assert!(fixed >= 60, "the queue must be felt: {fixed}");
    assert!(adapted * 4 <= fixed, "{adapted} against {fixed}");
    assert!(detection < 0.7, "{detection}");
}
