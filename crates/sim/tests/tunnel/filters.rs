//! Paths that drop the data of some flows while probes and other flows pass, with a host's default settings.

use segue_clock::{Rng, Span, Time};
use segue_keepalive::MeasuredBy;
use segue_keepalive::size::Direction;
use segue_sim::AgentId;
use segue_sim::net::{Change, LinkFault, PacketFilter};
use segue_tunnel::Report;

use crate::world::{MS, SECS, Setup, World};

/// Port of the filtered flow.
const PORT: u16 = 7_000;
/// Port of the unfiltered flow.
const BESIDE: u16 = 7_002;

#[derive(Clone, Copy, Debug)]
struct Case {
    per_second: u64,
    direction: Direction,
    measured_by: MeasuredBy,
    /// An unfiltered flow on the same path, with this many packets per second.
    beside: Option<u64>,
    /// Number of filtered ports, from [`PORT`] in steps of ten, with one flow each.
    flows: u16,
    single: bool,
    /// Probes ride on data, so that probes on filtered packets are lost as well.
    rides: bool,
    filter: PacketFilter,
    /// Code point of the filtered flows.
    dscp: u8,
}

const CASE: Case = Case {
    per_second: 100,
    direction: Direction::Up,
    measured_by: MeasuredBy::Machine,
    beside: None,
    flows: 1,
    single: false,
    rides: false,
    filter: PacketFilter::Port(PORT),
    dscp: 0,
};

struct Run {
    world: World,
    filtered: Vec<AgentId>,
    beside: Option<AgentId>,
    begins: Time,
}

fn run(case: Case, seed: u64) -> Run {
    let Case { measured_by, rides, .. } = case;
    let setup = Setup { seed, measured_by, rides, adaptive: true, lte_ms: 10, ..Setup::default() };
    let mut world = World::new(&setup);
    for channels in world.access.values().copied().collect::<Vec<_>>() {
        channels.into_iter().for_each(|channel| world.network.make_faulty(channel, Span::ZERO));
    }
    if case.single {
        world.cut("lte", Time::ZERO, None);
    }
    let interval = |per_second: u64| Span(1_000_000_000 / per_second);
    let forever = [Time(u64::MAX); 2];
    let ports = (0..case.flows).map(|n| PORT + 10 * n);
    let filtered = ports
        .clone()
        .map(|port| world.talkers(interval(case.per_second), case.dscp, port, forever)[0])
        .collect();
    let beside = case.beside.map(|rate| world.talk_every(interval(rate), BESIDE, forever)[0]);
    let begins = Time(60_000_000_000) + Span(Rng::new(seed).below(5_000_000_000));
    let [uplink, downlink] = world.access["wifi"];
    let channel = if case.direction == Direction::Up { uplink } else { downlink };
    // Only one filter is active at a time: several flows are filtered by the port that they share.
    world.network.schedule(begins, Change::Fault(channel, LinkFault::Filter(case.filter)));
    world.run(begins);
    Run { world, filtered, beside, begins }
}

/// Reports of filters, with their times.
fn found(world: &World) -> Vec<(Time, Report)> {
    let is = |report: &Report| matches!(report, Report::FlowFiltered { .. });
    world.host().reports().iter().filter(|(_, report)| is(report)).cloned().collect()
}

/// Seconds until the filtered flow is on the other path, to which no other flow may move.
fn moved_after(case: Case, seed: u64) -> f64 {
    let Run { mut world, filtered, beside, begins } = run(case, seed);
    let flow = filtered[0];
    assert_eq!(world.way_of(flow).as_deref(), Some("wifi"), "{case:?} {seed}");
    let mut now = begins;
    while world.way_of(flow).as_deref() == Some("wifi") {
        now += MS(10);
        assert!(now.since(begins) < SECS(10), "never moved: {case:?} {seed}");
        world.run(now);
    }
    let took = now.since(begins).as_secs_f64();
    world.run(now + SECS(20));
    assert_eq!(world.way_of(flow).as_deref(), Some("lte"), "{case:?} {seed}");
    if let Some(beside) = beside {
        assert_eq!(world.way_of(beside).as_deref(), Some("wifi"), "{case:?} {seed}");
    }
    let reports = found(&world);
    assert_eq!(reports.len(), 1, "{case:?} {seed}: {reports:?}");
    let Report::FlowFiltered { flow, path, direction, to, counted, .. } = &reports[0].1 else {
        panic!("{reports:?}")
    };
    assert_eq!((flow.dport, path.as_str(), *direction), (PORT, "wifi", case.direction));
    assert_eq!(to.as_deref(), Some("lte"));
    assert!(counted.lost() >= 18 && counted.lost() * 10 >= counted.sent * 9, "{counted}");
    let verdict = |report: &Report| matches!(report, Report::PathLoss { verdict: Some(_), .. });
    let verdicts = world.host().reports().iter().filter(|(_, report)| verdict(report)).count();
    assert_eq!(verdicts, 0, "the path loses nothing else: {case:?} {seed}");
    took
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (measured_by, rides) in [
        (MeasuredBy::Machine, false),
        (MeasuredBy::Machine, true),
        (MeasuredBy::PacketPath, true),
        (MeasuredBy::PacketPath, false),
    ] {
        for direction in [Direction::Up, Direction::Down] {
            for (per_second, beside) in [(20, None), (100, None), (20, Some(100)), (100, Some(20))]
            {
                cases.push(Case { per_second, direction, measured_by, beside, rides, ..CASE });
            }
        }
    }
    cases
}

fn moves_in_time(seeds: u64) {
    for case in cases() {
        let mut delays: Vec<f64> = (0..seeds).map(|seed| moved_after(case, seed)).collect();
        delays.sort_by(f64::total_cmp);
        let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        println!("{case:?}: median {median:.2} s, longest {longest:.2} s");
        assert!(longest <= 2.0, "{case:?}: {delays:?}");
    }
}

#[test]
fn a_flow_whose_data_die_moves_alone() {
    moves_in_time(5);
}

#[test]
#[ignore = "minutes"]
fn soak_a_flow_whose_data_die_moves_alone() {
    moves_in_time(200);
}

/// The path is tried after one, two and four minutes, and the flow returns when the filter is gone.
#[test]
fn a_filtered_flow_returns_when_the_filter_has_gone() {
    let Run { mut world, filtered, begins, .. } = run(CASE, 3);
    let flow = filtered[0];
    world.run(begins + SECS(30));
    assert_eq!(world.way_of(flow).as_deref(), Some("lte"));
    // The path passes its test, and the flow is filtered again.
    world.run(begins + SECS(100));
    assert_eq!(found(&world).len(), 2, "{:?}", found(&world));
    assert_eq!(world.way_of(flow).as_deref(), Some("lte"));
    let [uplink, _] = world.access["wifi"];
    world.network.schedule(begins + SECS(101), Change::Fault(uplink, LinkFault::Mend));
    world.run(begins + SECS(300));
    assert_eq!(found(&world).len(), 2, "{:?}", found(&world));
    assert_eq!(world.way_of(flow).as_deref(), Some("wifi"));
}

/// Tests of the path have the flow's length and code point. While a filter on one of these is active, the flow
/// does not return to the path, however often the path is tested.
#[test]
fn a_filtered_flow_tries_a_path_only_when_packets_like_its_own_pass() {
    let filters = [PacketFilter::CodePoint(46), PacketFilter::Length(150, 400)];
    for (filter, direction) in [(filters[0], Direction::Up), (filters[0], Direction::Down)]
        .into_iter()
        .chain([Direction::Up, Direction::Down].map(|direction| (filters[1], direction)))
    {
        for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
            let case = Case { filter, dscp: 46, direction, measured_by, ..CASE };
            let Run { mut world, filtered, begins, .. } = run(case, 5);
            let flow = filtered[0];
            // Tested after 1, 3 and 7 minutes; each test waits for the answer for a second.
            world.run(begins + SECS(600));
            assert_eq!(found(&world).len(), 1, "{case:?}: {:?}", found(&world));
            assert_eq!(world.way_of(flow).as_deref(), Some("lte"), "{case:?}");
            let [uplink, downlink] = world.access["wifi"];
            let channel = if direction == Direction::Up { uplink } else { downlink };
            let mended = begins + SECS(601);
            world.network.schedule(mended, Change::Fault(channel, LinkFault::Mend));
            world.run(mended + SECS(600));
            assert_eq!(found(&world).len(), 1, "{case:?}: {:?}", found(&world));
            assert_eq!(world.way_of(flow).as_deref(), Some("wifi"), "{case:?}");
        }
    }
}

/// The current path of the filtered flow is often in doubt, so copies of its packets also go over the filtering
/// path. They are lost there, but this is not a loss for the flow that stays there.
#[test]
fn copies_of_a_filtered_flow_are_no_loss_of_the_path_that_filters_it() {
    for direction in [Direction::Up, Direction::Down] {
        for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
            let case = Case { direction, measured_by, beside: Some(50), ..CASE };
            let Run { mut world, filtered, beside, begins } = run(case, 6);
            world.run(begins + SECS(5));
            assert_eq!(world.way_of(filtered[0]).as_deref(), Some("lte"), "{case:?}");
            for n in 0..50 {
                for channel in world.access["lte"] {
                    let burst = Change::Fault(channel, LinkFault::Burst(6));
                    world.network.schedule(begins + SECS(5) + MS(1_000 * n), burst);
                }
            }
            world.run(begins + SECS(55));
            let lost = |report: &Report| matches!(report, Report::PathLoss { path, verdict: Some(_), .. } if path == "wifi");
            let reports = world.host().reports();
            let doubts = |report: &Report| matches!(report, Report::PathDoubt { .. });
            assert!(reports.iter().any(|(_, report)| doubts(report)), "{case:?}");
            let lost: Vec<_> = reports.iter().filter(|(_, report)| lost(report)).collect();
            assert!(lost.is_empty(), "{case:?}: {lost:?}");
            assert_eq!(world.way_of(beside.unwrap()).as_deref(), Some("wifi"), "{case:?}");
        }
    }
}

/// Returns true if data have checksums on a path.
fn checksums(world: &World, name: &str) -> bool {
    let mut paths = world.host().end().machine.paths();
    paths.any(|(_, path)| path.name() == name && path.checksums())
}

/// Without another path, the filter is reported and the flow stays.
#[test]
fn a_filter_on_the_only_path_is_named() {
    for direction in [Direction::Up, Direction::Down] {
        let case = Case { single: true, direction, ..CASE };
        let Run { mut world, filtered, begins, .. } = run(case, 4);
        world.run(begins + SECS(5));
        let reports = found(&world);
        assert!(
            matches!(&reports[..], [(_, Report::FlowFiltered { to: None, .. })]),
            "{reports:?}"
        );
        assert_eq!(world.way_of(filtered[0]).as_deref(), Some("wifi"));
        assert_eq!(world.host().end().machine.filters().count(), 1);
        // It may be a translator that drops data without a checksum.
        assert!(checksums(&world, "wifi") && !checksums(&world, "lte"));
        // It is not: the flow tries again after a minute, and its data are lost with checksums as well.
        world.run(begins + SECS(90));
        assert!(!checksums(&world, "wifi"));
    }
}
