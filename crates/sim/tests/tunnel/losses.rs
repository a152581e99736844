//! How soon a flow leaves a path that begins to lose packets, and how rarely it leaves a good path, with a host's
//! default settings.

use std::cell::RefCell;
use std::rc::Rc;

use segue_clock::{Rng, Span, Time};
use segue_keepalive::MeasuredBy;
use segue_keepalive::size::Direction;
use segue_netem::{LinkSpec, Queue};
use segue_sim::net::{Change, LinkFault, Lost, Observer};
use segue_sim::{ChannelId, NodeId, Packet, Value};
use segue_traffic::apps::{Ends, FtpConfig, Period};
use segue_tunnel::{Cause, Known, Report};
use segue_wire::FlowKey;

use crate::world::{INNER, MS, SECS, SERVER, Setup, World, ip};

/// A flow, and the loss on one direction of its path.
#[derive(Clone, Copy, Debug)]
struct Case {
    talk: Talk,
    /// In thousandths.
    loss: u16,
    direction: Direction,
    measured_by: MeasuredBy,
    /// The path is idle before the loss begins; otherwise it carries the same flow.
    idle: bool,
}

#[derive(Clone, Copy, Debug)]
enum Talk {
    /// This many packets per second in each direction.
    Udp(u64),
    /// An endless transfer in the direction with the loss, 10 segments per round trip.
    Tcp,
}

/// Seconds from the start of the loss until the flow is on the other path; `None` if it takes longer than five
/// minutes.
fn moved_after(case: Case, seed: u64) -> Option<f64> {
    let known = vec![Known { name: "alice".into(), epoch: 0, inner: vec![ip(INNER)] }];
    let measured_by = case.measured_by;
    let setup = Setup { seed, measured_by, adaptive: true, lte_ms: 10, known, ..Setup::default() };
    let mut world = World::new(&setup);
    for channels in world.access.values().copied().collect::<Vec<_>>() {
        channels.into_iter().for_each(|channel| world.network.make_faulty(channel, Span::ZERO));
    }
    let begins = Time(600_000_000_000) + Span(Rng::new(seed).below(5_000_000_000));
    let from = if case.idle { begins - SECS(3) } else { Time(6_000_000_000) };
    let (protocol, sport, dport) = match case.talk {
        Talk::Udp(per_second) => {
            let interval = Span(1_000_000_000 / per_second);
            let ends = world.talk_every(interval, 7_000, [Time(u64::MAX); 2]);
            ends.into_iter().for_each(|end| world.begin_at(end, from));
            (17, 7_000, 7_000)
        }
        Talk::Tcp => {
            let ends = Ends { first: (ip(INNER), 4_000), second: (ip(SERVER), 80) };
            let period = Period { start: from.since(Time::ZERO), ..Period::default() };
            let upload = case.direction == Direction::Up;
            let ftp = FtpConfig { period, upload, ..FtpConfig::default() };
            // The tunnel packet has to fit into 1500 bytes.
            let tcp = segue_traffic::tcp::Config { window: 10, mss: 1_300, ..ftp.tcp };
            let nodes = (world.mobile, world.server);
            FtpConfig { tcp, ..ftp }.pair(&ends).unwrap().add(&mut world.network, nodes, "ftp");
            (6, 4_000, 80)
        }
    };
    let flow = FlowKey { src: ip(INNER), dst: ip(SERVER), sport, dport, protocol, label: 0 };
    let [uplink, downlink] = world.access["wifi"];
    let channel = if case.direction == Direction::Up { uplink } else { downlink };
    world.network.schedule(begins, Change::Fault(channel, LinkFault::Loss(case.loss)));
    world.run(begins);
    if let Some(delivered) = world.network.results().get("ftp.delivered_bytes") {
        assert!(matches!(delivered, Value::Int(100_000..)), "{case:?} {seed}: {delivered:?}");
    }
    assert_eq!(world.way_of_flow(&flow).as_deref(), Some("wifi"), "{case:?} {seed}");
    let mut now = begins;
    while world.way_of_flow(&flow).as_deref() == Some("wifi") {
        now += MS(10);
        if now.since(begins) > SECS(300) {
            return None;
        }
        world.run(now);
    }
    Some(now.since(begins).as_secs_f64())
}

/// Median and 95th percentile in seconds; infinite if the flow stayed.
fn delays(case: Case, seeds: u64) -> (f64, f64) {
    let delays = (0..seeds).map(|seed| moved_after(case, seed).unwrap_or(f64::INFINITY));
    let mut delays: Vec<f64> = delays.collect();
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[(share * (delays.len() - 1) as f64) as usize];
    let (median, late) = (at(0.5), at(0.95));
    println!("{case:?}: median {median:.2} s, 95 % {late:.2} s");
    (median, late)
}

/// Packets per second, loss in thousandths, and upper bounds of the median and 95th percentile in seconds.
const BARS: [(u64, u16, f64, f64); 5] = [
    (100, 400, 0.7, 1.4),
    (100, 150, 1.2, 2.5),
    (100, 50, 5.0, 9.0),
    (50, 150, 2.0, 4.0),
    (20, 150, 3.5, 7.0),
];

/// Runs all combinations: measuring end, direction, and idle or busy before the loss.
fn each_way(mut of: impl FnMut(MeasuredBy, Direction, bool)) {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for direction in [Direction::Up, Direction::Down] {
            [true, false].into_iter().for_each(|idle| of(measured_by, direction, idle));
        }
    }
}

fn leaves_in_time(seeds: u64, mut wanted: impl FnMut() -> bool) {
    for (per_second, loss, median, late) in BARS {
        each_way(|measured_by, direction, idle| {
            if wanted() {
                let talk = Talk::Udp(per_second);
                let case = Case { talk, loss, direction, measured_by, idle };
                let found = delays(case, seeds);
                assert!(found.0 <= median && found.1 <= late, "{case:?}: {found:?}");
            }
        });
    }
}

/// Runs every fifth case, which covers each value of each setting.
#[test]
fn a_flow_soon_leaves_a_path_that_loses_its_packets() {
    let mut case = 0;
    leaves_in_time(12, || {
        case += 1;
        case % 5 == 1
    });
}

/// Two percent loss of a slow flow, and the losses of a TCP transfer that slows down. No bounds on the times; the
/// flow just has to leave.
#[test]
#[ignore = "minutes"]
fn soak_a_flow_leaves_a_path_that_loses_little_or_slows_it_down() {
    let slow = [20, 50, 100].map(|per_second| (Talk::Udp(per_second), 20));
    let transfers = [20, 50, 150, 400].map(|loss| (Talk::Tcp, loss));
    for (talk, loss) in slow.into_iter().chain(transfers) {
        each_way(|measured_by, direction, idle| {
            let case = Case { talk, loss, direction, measured_by, idle };
            let (median, _) = delays(case, 20);
            assert!(median.is_finite(), "{case:?}");
        });
    }
}

#[test]
#[ignore = "minutes"]
fn soak_a_flow_soon_leaves_a_path_that_loses_its_packets() {
    leaves_in_time(200, || true);
}

/// Traffic and impairments that do not put one path at a disadvantage.
#[derive(Clone, Copy, Debug)]
enum Calm {
    /// Both paths lose this many packets in a thousand.
    Loss(u16),
    /// One packet in a hundred is overtaken, by up to 20 ms.
    Reordered,
    /// One packet in a hundred arrives twice.
    Doubled,
    /// Only from the host.
    UpOnly,
    /// Only to the host.
    DownOnly,
    /// An upload (true) or a download that fills its queue.
    Bulk(bool),
    /// Successive downloads of a megabyte.
    Downloads,
    /// Both paths lose bursts of up to this many packets, some ten seconds apart. A burst may hit only one flow.
    Bursts(u16),
}

/// Number of verdicts and of voluntary moves in this many seconds with this seed.
fn alarms(calm: Calm, measured_by: MeasuredBy, seed: u64, seconds: u64) -> (usize, usize) {
    let link = LinkSpec {
        rate_bps: Some(20_000_000),
        delay: MS(10),
        queue: Queue::Packets(100),
        ..LinkSpec::default()
    };
    let wifi_link = matches!(calm, Calm::Bulk(_) | Calm::Downloads).then_some(link);
    let lte_ms = 10;
    let known = vec![Known { name: "alice".into(), epoch: 0, inner: vec![ip(INNER)] }];
    let setup =
        Setup { seed, measured_by, adaptive: true, lte_ms, wifi_link, known, ..Setup::default() };
    let mut world = World::new(&setup);
    let fault = match calm {
        Calm::Loss(thousandths) => Some(LinkFault::Loss(thousandths)),
        Calm::Reordered => Some(LinkFault::Reorder(10, 20)),
        Calm::Doubled => Some(LinkFault::Duplicate(10)),
        _ => None,
    };
    for channel in world.access.values().flatten().copied().collect::<Vec<_>>() {
        let Some(fault) = fault else { continue };
        world.network.make_faulty(channel, Span::ZERO);
        world.network.schedule(Time(1_000_000_000), Change::Fault(channel, fault));
    }
    if let Calm::Bursts(most) = calm {
        let mut rng = Rng::new(seed);
        for channel in world.access.values().flatten().copied().collect::<Vec<_>>() {
            world.network.make_faulty(channel, Span::ZERO);
            let mut at = Time(1_000_000_000);
            while at < Time(seconds * 1_000_000_000) {
                at += Span(rng.below(20_000_000_000));
                let burst = LinkFault::Burst(1 + rng.below(most.into()) as u16);
                world.network.schedule(at, Change::Fault(channel, burst));
            }
        }
    }
    let (never, early) = (Time(u64::MAX), Time(3_000_000_000));
    match calm {
        Calm::Bulk(_) | Calm::Downloads => {
            let ends = Ends { first: (ip(INNER), 4_000), second: (ip(SERVER), 80) };
            let file_bytes = matches!(calm, Calm::Downloads).then_some(1_000_000);
            let period = Period { start: SECS(6), ..Period::default() };
            let upload = matches!(calm, Calm::Bulk(true));
            let ftp =
                FtpConfig { file_bytes, period, upload, pause: SECS(1), ..FtpConfig::default() };
            let tcp = segue_traffic::tcp::Config { window: 1_000, ..ftp.tcp };
            let nodes = (world.mobile, world.server);
            FtpConfig { tcp, ..ftp }.pair(&ends).unwrap().add(&mut world.network, nodes, "ftp");
        }
        Calm::UpOnly => drop(world.talk_every(MS(10), 7_000, [never, early])),
        Calm::DownOnly => drop(world.talk_every(MS(10), 7_000, [early, never])),
        _ => drop(world.talk_every(MS(10), 7_000, [never, never])),
    }
    // A second flow, since only single flows can be reported as filtered.
    world.talk_every(MS(50), 7_002, [never, never]);
    world.run(Time(seconds * 1_000_000_000));
    let reports = world.host().reports();
    let verdict = |report: &Report| matches!(report, Report::PathLoss { verdict: Some(_), .. });
    // A download of the default class moves between equal paths because of the round-trip time of its own queue:
    // docs/measured.md.
    let queues = matches!(calm, Calm::Bulk(_) | Calm::Downloads);
    let moved = |report: &Report| match report {
        Report::Handover { cause, .. } => {
            *cause == Cause::Lossy || *cause == Cause::Better && !queues
        }
        _ => false,
    };
    let count = |is: &dyn Fn(&Report) -> bool| reports.iter().filter(|(_, r)| is(r)).count();
    let filtered = count(&|report| matches!(report, Report::FlowFiltered { .. }));
    assert_eq!(filtered, 0, "{calm:?} {measured_by:?} {seed}: a flow is called filtered");
    (count(&verdict), count(&moved))
}

const CALMS: [Calm; 11] = [
    Calm::Loss(10),
    Calm::Loss(30),
    Calm::Loss(50),
    Calm::Reordered,
    Calm::Doubled,
    Calm::UpOnly,
    Calm::DownOnly,
    Calm::Bulk(false),
    Calm::Bulk(true),
    Calm::Downloads,
    Calm::Bursts(30),
];

fn stays_calm(seeds: u64, seconds: u64) {
    for calm in CALMS {
        for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
            let (mut verdicts, mut moves) = (0, 0);
            for seed in 0..seeds {
                let found = alarms(calm, measured_by, seed, seconds);
                (verdicts, moves) = (verdicts + found.0, moves + found.1);
            }
            let hours = (seeds * seconds) as f64 / 3_600.0;
            println!(
                "{calm:?} {measured_by:?}: {verdicts} verdicts, {moves} moves in {hours:.1} h"
            );
            // Losses of 3 and 5 % on both paths cause correct verdicts, and so do bursts.
            let allowed = (hours * 3_600.0 / 1e5).ceil() as usize;
            let lossy = matches!(calm, Calm::Loss(30 | 50) | Calm::Bursts(_));
            assert!(lossy || verdicts <= allowed, "{calm:?} {measured_by:?}: {verdicts} verdicts");
            assert!(moves as f64 <= hours.ceil(), "{calm:?} {measured_by:?}: {moves} moves");
        }
    }
}

#[test]
fn what_is_no_loss_of_one_path_alone_moves_nothing() {
    stays_calm(1, 300);
}

#[test]
#[ignore = "hours"]
fn soak_what_is_no_loss_of_one_path_alone_moves_nothing() {
    let seeds = std::env::var("ALARM_SEEDS").map_or(20, |seeds| seeds.parse().unwrap());
    stays_calm(seeds, 6 * 3_600);
}

/// Losses of each direction of a link, with their times.
#[derive(Clone, Default)]
struct Losses(Rc<RefCell<Vec<(Time, ChannelId)>>>);

impl Observer for Losses {
    fn sent(&mut self, now: Time, channel: ChannelId, _: &Packet, at: Result<Time, Lost>) {
        if at.is_err() {
            self.0.borrow_mut().push((now, channel));
        }
    }

    fn arrived(&mut self, _: Time, _: ChannelId, _: &Packet) {}

    fn dropped(&mut self, _: Time, _: NodeId, _: &Packet, _: Lost) {}

    fn said(&mut self, _: Time, _: NodeId, _: &str) {}
}

/// A fast stream leaves a path that dies, and returns; jitter accounts for some of the few packets lost on the
/// way. The counts in a verdict must not exceed the path's real losses in that period.
#[test]
fn no_verdict_counts_what_the_path_has_not_lost() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for (seed, rides) in [(1, false), (2, true), (3, false), (4, true)] {
            let (jitter, loss) = (MS(5), 0.003);
            let setup = Setup {
                seed,
                measured_by,
                rides,
                jitter,
                loss,
                adaptive: true,
                ..Setup::default()
            };
            let mut world = World::new(&setup);
            let losses = Losses::default();
            world.network.observe(Box::new(losses.clone()));
            world.talk_every(MS(1), 7_000, [Time(u64::MAX); 2]);
            let at = |s: u64| Time(s * 1_000_000_000);
            world.cut("wifi", at(10), Some(at(20)));
            world.run(at(60));
            let host = world.host().reports();
            let moves = host.iter().filter(|(_, r)| matches!(r, Report::Handover { .. })).count();
            assert!(moves >= 2, "{measured_by:?} {seed}: there and back");
            for (at, report) in host {
                let Report::PathLoss { path, direction, verdict: Some(verdict), .. } = report
                else {
                    continue;
                };
                let channel =
                    world.access[path.as_str()][usize::from(*direction == Direction::Down)];
                // A pair of counters is at most one round trip old.
                let span = verdict.since - MS(200)..=*at;
                let lost = losses.0.borrow();
                let lost = lost.iter().filter(|(at, of)| *of == channel && span.contains(at));
                let (lost, said) = (lost.count() as u64, verdict.counted.lost());
                assert!(said <= lost, "{path} {direction:?}: {said} of {lost}, {verdict:?}");
            }
        }
    }
}
