//! How soon a flow leaves a path that begins to lose packets, and how rarely it leaves one that does not; with the
//! settings that a host has without a configuration.

use segue_clock::{Rng, Span, Time};
use segue_keepalive::MeasuredBy;
use segue_keepalive::size::Direction;
use segue_sim::net::{Change, LinkFault};

use crate::world::{MS, SECS, Setup, World};

/// A flow in both directions, and from when on which direction of its path loses packets.
#[derive(Clone, Copy, Debug)]
struct Case {
    per_second: u64,
    /// In thousandths.
    loss: u16,
    direction: Direction,
    measured_by: MeasuredBy,
    /// Before the loss: idle, or with the same flow.
    idle: bool,
}

fn world(case: Case, seed: u64) -> (World, [segue_sim::AgentId; 2], Time) {
    let measured_by = case.measured_by;
    let setup = Setup { seed, measured_by, adaptive: true, lte_ms: 10, ..Setup::default() };
    let mut world = World::new(&setup);
    for channels in world.access.values().copied().collect::<Vec<_>>() {
        channels.into_iter().for_each(|channel| world.network.make_faulty(channel, Span::ZERO));
    }
    let interval = Span(1_000_000_000 / case.per_second);
    let ends = world.talk_every(interval, 7_000, [Time(u64::MAX); 2]);
    let begins = Time(600_000_000_000) + Span(Rng::new(seed).below(5_000_000_000));
    if case.idle {
        ends.iter().for_each(|end| world.begin_at(*end, begins - SECS(3)));
    }
    (world, ends, begins)
}

/// Seconds from the beginning of the loss until the flow is on the other path.
fn moved_after(case: Case, seed: u64) -> f64 {
    let (mut world, [up, _], begins) = world(case, seed);
    let [uplink, downlink] = world.access["wifi"];
    let channel = if case.direction == Direction::Up { uplink } else { downlink };
    world.network.schedule(begins, Change::Fault(channel, LinkFault::Loss(case.loss)));
    world.run(begins);
    assert_eq!(world.way_of(up).as_deref(), Some("wifi"), "{case:?} {seed}");
    let mut now = begins;
    while world.way_of(up).as_deref() == Some("wifi") {
        now += MS(10);
        assert!(now.since(begins) < SECS(120), "never moved: {case:?} {seed}");
        world.run(now);
    }
    now.since(begins).as_secs_f64()
}

/// The median and the 95th percentile, in seconds.
fn delays(case: Case, seeds: u64) -> (f64, f64) {
    let mut delays: Vec<f64> = (0..seeds).map(|seed| moved_after(case, seed)).collect();
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[(share * (delays.len() - 1) as f64) as usize];
    let (median, late) = (at(0.5), at(0.95));
    println!("{case:?}: median {median:.2} s, 95 % {late:.2} s");
    (median, late)
}

/// Flows per second, loss in thousandths, and the longest median and 95th percentile in seconds.
const BARS: [(u64, u16, f64, f64); 5] = [
    (100, 400, 0.7, 1.4),
    (100, 150, 1.2, 2.5),
    (100, 50, 5.0, 9.0),
    (50, 150, 2.0, 4.0),
    (20, 150, 3.5, 7.0),
];

fn leaves_in_time(seeds: u64, mut wanted: impl FnMut() -> bool) {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for direction in [Direction::Up, Direction::Down] {
            for (per_second, loss, median, late) in BARS {
                for idle in [true, false] {
                    if !wanted() {
                        continue;
                    }
                    let case = Case { per_second, loss, direction, measured_by, idle };
                    let found = delays(case, seeds);
                    assert!(found.0 <= median && found.1 <= late, "{case:?}: {found:?}");
                }
            }
        }
    }
}

/// Every fifth case, so that each value of each setting occurs.
#[test]
fn a_flow_soon_leaves_a_path_that_loses_its_packets() {
    let mut case = 0;
    leaves_in_time(12, || {
        case += 1;
        case % 5 == 1
    });
}

#[test]
#[ignore = "minutes"]
fn soak_a_flow_soon_leaves_a_path_that_loses_its_packets() {
    leaves_in_time(200, || true);
}
