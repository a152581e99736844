//! Effect of outages on applications with a host's default settings.

use segue_clock::{Rng, Span, Time};
use segue_keepalive::{MeasuredBy, State};
use segue_netem::{LinkSpec, Queue};
use segue_traffic::apps::{Ends, FtpConfig, Period};
use segue_tunnel::{Known, Report};

use crate::world::{INNER, MS, SECS, SERVER, Setup, World, ip};

const MEASURED_BY: [MeasuredBy; 2] = [MeasuredBy::Machine, MeasuredBy::PacketPath];
const WAYS: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];
/// Additional round-trip time of the other access, in milliseconds.
const LONGER: u64 = 40;

/// Traffic over the tunnel.
#[derive(Clone, Copy, Debug)]
enum Talk {
    /// In both directions, with this interval in milliseconds.
    Both(u64),
    /// Only from the host, with this interval.
    Up(u64),
    /// Only to the host, with this interval.
    Down(u64),
    /// From the host with this interval; the server echoes each packet.
    Keys(u64),
}

fn world(talk: Talk, measured_by: MeasuredBy, seed: u64) -> (World, [segue_sim::AgentId; 2]) {
    let mut world = World::new(&Setup { seed, measured_by, adaptive: true, ..Setup::default() });
    let (every, up, down) = match talk {
        Talk::Both(every) | Talk::Keys(every) => (every, Time(u64::MAX), Time(u64::MAX)),
        Talk::Up(every) => (every, Time(u64::MAX), Time(3_000_000_000)),
        Talk::Down(every) => (every, Time(3_000_000_000), Time(u64::MAX)),
    };
    let ends = world.talk_every(MS(every), 7_000, [up, down]);
    world.talker_mut(ends[1]).echoes = matches!(talk, Talk::Keys(_));
    (world, ends)
}

/// The longest gap after an outage of `ways`, in the directions that carry traffic, in milliseconds.
fn gap(talk: Talk, measured_by: MeasuredBy, seed: u64, ways: [bool; 2]) -> f64 {
    let (mut world, [up, down]) = world(talk, measured_by, seed);
    let fault = Time(20_000_000_000) + Span(Rng::new(seed).below(1_000_000_000));
    world.cut_ways("wifi", ways, fault, None);
    world.run(fault + SECS(4));
    let ends = match talk {
        Talk::Both(_) => vec![up, down],
        Talk::Up(_) => vec![down],
        Talk::Down(_) | Talk::Keys(_) => vec![up],
    };
    let gaps = ends.iter().map(|end| {
        let talker = world.talker(*end);
        assert!(talker.got.last().unwrap().0 > fault + SECS(3), "{talk:?} {measured_by:?} {seed}");
        talker.gap_since(fault)
    });
    gaps.max().unwrap().as_secs_f64() * 1e3
}

#[test]
fn an_outage_of_the_path_in_use_is_a_short_gap() {
    for measured_by in MEASURED_BY {
        for (talk, ways) in [
            (Talk::Both(10), [true, true]),
            (Talk::Both(10), [true, false]),
            (Talk::Both(10), [false, true]),
            (Talk::Both(50), [true, true]),
            (Talk::Both(50), [true, false]),
            (Talk::Both(50), [false, true]),
            (Talk::Up(20), [true, true]),
            (Talk::Up(20), [true, false]),
            (Talk::Down(20), [true, true]),
            (Talk::Down(20), [false, true]),
            (Talk::Keys(200), [true, true]),
            (Talk::Keys(200), [true, false]),
            (Talk::Keys(200), [false, true]),
        ] {
            let mut gaps: Vec<f64> =
                (0..20).map(|seed| gap(talk, measured_by, seed, ways)).collect();
            gaps.sort_by(f64::total_cmp);
            println!(
                "{measured_by:?} {talk:?} {ways:?}: median {:.0}, most {:.0} ms",
                gaps[10], gaps[19]
            );
            assert!(
                gaps[10] <= (150 + LONGER) as f64,
                "{measured_by:?} {talk:?} {ways:?}: {gaps:?}"
            );
            assert!(
                gaps[18] <= (250 + LONGER) as f64,
                "{measured_by:?} {talk:?} {ways:?}: {gaps:?}"
            );
        }
    }
}

/// The anchor has sent the echo over the dead path: packets sent since it was notified of the silence are sent
/// again.
#[test]
fn the_echo_of_what_was_reinjected_follows_at_once() {
    for measured_by in MEASURED_BY {
        for seed in 0..20 {
            let gap = gap(Talk::Keys(200), measured_by, seed, [true, true]);
            assert!(gap <= 130.0, "{measured_by:?} {seed}: {gap}");
        }
    }
}

/// Packets sent in doubt are soon duplicated over the other path, at both ends.
#[test]
fn of_a_sparse_stream_an_outage_loses_nothing() {
    let mut longest = Span::ZERO;
    for measured_by in MEASURED_BY {
        for (every, ways) in [50, 200].into_iter().flat_map(|every| WAYS.map(|ways| (every, ways)))
        {
            for seed in 0..10 {
                let (mut world, [up, down]) = world(Talk::Both(every), measured_by, seed);
                let fault = Time(20_000_000_000) + Span(Rng::new(seed).below(1_000_000_000));
                world.cut_ways("wifi", ways, fault, None);
                world.run(fault + SECS(4) + MS(7));
                for (to, from) in
                    [(up, down), (down, up)].map(|(a, b)| (world.talker(a), world.talker(b)))
                {
                    // Packets in flight at the end are not missing; packets before the first path do not count.
                    let late = |n: &u64| (from.sent / 2..from.sent - 2).contains(n);
                    let missing: Vec<u64> = to.missing(from).into_iter().filter(late).collect();
                    assert_eq!(missing, [], "{measured_by:?} {every} {ways:?} {seed}");
                    let delay = to.longest_delay(from, fault - SECS(1));
                    longest = longest.max(delay);
                }
            }
        }
    }
    println!("the last came after {longest:?}");
    assert!((MS(30)..MS(150 + LONGER)).contains(&longest), "{longest:?}");
}

/// The path died after the last sign of life: the first packet itself discovers it.
#[test]
fn the_first_packet_over_a_path_that_died_a_moment_ago_arrives_over_another() {
    for measured_by in MEASURED_BY {
        for seed in 0..10 {
            let setup = Setup { seed, measured_by, adaptive: true, ..Setup::default() };
            let mut world = World::new(&setup);
            let began = Time(610_000_000_000) + Span(Rng::new(seed).below(5_000_000_000));
            let ends = world.talk_from(began, 7_000);
            world.cut("wifi", began - MS(300), None);
            world.run(began + SECS(2));
            let (first, number) = world.talker(ends[1]).got[0];
            assert_eq!(number, 0, "{measured_by:?} {seed}");
            assert!(first <= began + MS(300), "{measured_by:?} {seed}: {}", first.since(began));
        }
    }
}

/// Towards the host, the next idle probe discovers it, and the packet arrives then.
#[test]
fn the_first_packet_to_a_host_whose_path_died_a_moment_ago_arrives_late() {
    for measured_by in MEASURED_BY {
        for seed in 0..10 {
            let setup = Setup { seed, measured_by, adaptive: true, ..Setup::default() };
            let mut world = World::new(&setup);
            let ends = world.talk_every(SECS(60), 7_000, [Time(5_000_000_000), Time(u64::MAX)]);
            let began = Time(610_000_000_000) + Span(Rng::new(seed).below(5_000_000_000));
            world.begin_at(ends[1], began);
            world.cut("wifi", began - MS(300), None);
            world.run(began + SECS(8));
            let (first, number) = world.talker(ends[0]).got[0];
            assert_eq!(number, 0, "{measured_by:?} {seed}");
            assert!(first <= began + SECS(6), "{measured_by:?} {seed}: {}", first.since(began));
        }
    }
}

#[test]
fn the_first_packet_after_idle_minutes_finds_the_living_path() {
    for measured_by in MEASURED_BY {
        for seed in 0..5 {
            let setup = Setup { seed, measured_by, adaptive: true, ..Setup::default() };
            let mut world = World::new(&setup);
            let began = Time(610_000_000_000);
            let [_, down] = world.talk_from(began, 7_000);
            world.cut("wifi", Time(10_000_000_000), None);
            world.run(began + SECS(1));
            let (first, _) = world.talker(down).got[0];
            assert!(first <= began + MS(100), "{measured_by:?} {seed}: {}", first.since(began));
        }
    }
}

/// Request and response have 84 bytes each over IPv4, 104 over IPv6.
#[test]
fn an_idle_path_costs_less_than_four_megabytes_a_day() {
    for measured_by in MEASURED_BY {
        let mut world = World::new(&Setup { measured_by, adaptive: true, ..Setup::default() });
        world.run(Time(60_000_000_000));
        let sent = |world: &World| -> Vec<u64> {
            let paths = world.host().end().machine.paths();
            paths.map(|(_, path)| path.client().unwrap().estimates().sent).collect()
        };
        let before = sent(&world);
        world.run(Time(660_000_000_000));
        for (before, after) in before.iter().zip(sent(&world)) {
            let a_day = (after - before) as f64 * 208.0 / 600.0 * 86_400.0;
            assert!(after > *before && a_day <= 4e6, "{measured_by:?}: {a_day} bytes a day");
        }
    }
}

/// Bytes of a request and its response over IPv4, and of the tunnel headers per data packet.
const EXCHANGE: u64 = 2 * 84;
const OUTER: u64 = 44;

/// Requests sent over Wi-Fi, and inner bytes carried in both directions.
fn carried(world: &World) -> [u64; 2] {
    let end = world.host().end();
    let mut paths = end.machine.paths();
    let (number, path) = paths.find(|(_, path)| path.name() == "wifi").unwrap();
    let traffic = end.datapath.reading_at(Time::ZERO, number.into()).unwrap().traffic;
    [path.client().unwrap().estimates().sent, traffic.bytes]
}

/// Ratio of probe bytes to data bytes on the path during a minute with this many data packets.
fn share(world: &mut World, from: Time, packets: u64) -> f64 {
    world.run(from);
    let before = carried(world);
    world.run(from + SECS(60));
    let after = carried(world);
    let [probes, bytes] = [after[0] - before[0], after[1] - before[1]];
    assert!(probes > 10 && bytes >= 60 * packets, "{probes} {bytes}");
    (probes * EXCHANGE) as f64 / (bytes + packets * OUTER) as f64
}

#[test]
fn probing_is_a_small_share_of_what_a_path_carries() {
    for measured_by in MEASURED_BY {
        // G.711 and G.729 in packets of 20 ms.
        for bytes in [200, 60] {
            let (mut world, ends) = world(Talk::Both(20), measured_by, 1);
            ends.into_iter().for_each(|end| world.talker_mut(end).bytes = bytes);
            let share = share(&mut world, Time(60_000_000_000), 5_990);
            println!("{measured_by:?} voice of {bytes} bytes: {share:.4}");
            assert!(share <= 0.05, "{measured_by:?} voice of {bytes} bytes: {share}");
        }
        let known = vec![Known { name: "alice".into(), epoch: 0, inner: vec![ip(INNER)] }];
        let spec = LinkSpec { rate_bps: Some(5_000_000), delay: MS(20), ..LinkSpec::default() };
        let setup =
            Setup { measured_by, adaptive: true, known, wifi_link: Some(spec), ..Setup::default() };
        let mut world = World::new(&setup);
        let ends = Ends { first: (ip(INNER), 4_000), second: (ip(SERVER), 80) };
        let period = Period { start: SECS(6), ..Period::default() };
        let ftp = FtpConfig { period, ..FtpConfig::default() };
        let nodes = (world.mobile, world.server);
        ftp.pair(&ends).unwrap().add(&mut world.network, nodes, "ftp");
        let share = share(&mut world, Time(30_000_000_000), 0);
        println!("{measured_by:?} download: {share:.5}");
        assert!(share <= 0.005, "{measured_by:?} download: {share}");
    }
}

fn downs(world: &World) -> usize {
    let down = |report: &&(Time, Report)| {
        matches!(&report.1, Report::PathState { state: State::Down, .. })
    };
    world.host().reports().iter().filter(down).count()
}

/// The target is at most one false alarm per path in 10⁵ s. Each run takes an hour with three talks at once.
#[test]
fn losses_are_no_outages() {
    for measured_by in MEASURED_BY {
        for loss in [0.01, 0.05, 0.2] {
            let setup = Setup { measured_by, adaptive: true, loss, ..Setup::default() };
            let mut world = World::new(&setup);
            for (port, every) in [(7_000, 20), (7_001, 110), (7_002, 1_300)] {
                world.talk_every(MS(every), port, [Time(u64::MAX); 2]);
            }
            world.run(Time(60_000_000_000));
            let learned = downs(&world);
            world.run(Time(3_660_000_000_000));
            println!(
                "{measured_by:?} {loss}: {learned} downs in a minute, {} later",
                downs(&world) - learned
            );
            assert!(learned <= 1 && downs(&world) - learned <= 1, "{measured_by:?} {loss}");
        }
    }
}

/// Silences in both directions, 50 ms long on average, twenty times a minute.
#[test]
fn bursts_are_no_outages_once_they_are_known() {
    for measured_by in MEASURED_BY {
        let (mut early, mut later, mut learnt) = (0, 0, Vec::new());
        for seed in 0..4 {
            let setup = Setup { seed, measured_by, adaptive: true, ..Setup::default() };
            let mut world = World::new(&setup);
            world.talk_every(MS(20), 7_000, [Time(u64::MAX); 2]);
            let (mut rng, mut at) = (Rng::new(seed), Time(5_000_000_000));
            while at < Time(3_660_000_000_000) {
                let lasts = Span::from_secs_f64(-0.05 * (1.0 - rng.unit()).ln());
                world.cut("wifi", at, Some(at + lasts));
                at += lasts + Span(rng.below(6_000_000_000));
            }
            world.run(Time(180_000_000_000));
            let learned = downs(&world);
            world.run(Time(3_660_000_000_000));
            early += learned;
            later += downs(&world) - learned;
            let mut paths = world.host().end().machine.paths();
            let why = paths.find(|(_, path)| path.name() == "wifi").unwrap().1.why().unwrap();
            learnt.push(why.0.known.burst.unwrap());
        }
        println!(
            "{measured_by:?}: {early} downs in four times three minutes, {later} in the hours after"
        );
        assert!(early <= 20 && later <= 1, "{measured_by:?}: {early}, {later}");
        // The learned burst length delays questions: it is at least the true mean, and at most twice as long.
        let mean = learnt.iter().sum::<f64>() / learnt.len() as f64;
        println!(
            "{measured_by:?}: bursts of 50 ms are taken to last {:.0} ms on average",
            mean * 1e3
        );
        assert!((0.05..0.1).contains(&mean), "{measured_by:?}: {learnt:?}");
    }
}

#[test]
fn each_of_several_outages_is_found_as_soon() {
    for measured_by in MEASURED_BY {
        let (mut world, [up, down]) = world(Talk::Both(10), measured_by, 1);
        let mut at = Time(20_000_000_000);
        for outage in 0..6 {
            let mends = at + MS(1_500);
            world.cut("wifi", at, Some(mends));
            world.run(mends);
            let gaps = [up, down].map(|end| world.talker(end).gap_since(at).as_secs_f64() * 1e3);
            let mut paths = world.host().end().machine.paths();
            let why = paths.find(|(_, path)| path.name() == "wifi").unwrap().1.why().unwrap();
            let why = why.0.to_string();
            drop(paths);
            let short = gaps.iter().all(|gap| *gap <= 190.0);
            assert!(short, "{measured_by:?} outage {outage}: {gaps:?} {why}");
            at = mends + SECS(6);
            world.run(at);
            // The steering returns later each time to a path that keeps failing.
            while world.way_of(up).as_deref() != Some("wifi") {
                at += SECS(1);
                world.run(at);
                assert!(at < mends + SECS(60), "{measured_by:?} outage {outage}");
            }
            at += SECS(2);
            world.run(at);
        }
    }
}

/// A download's slow start fills the queue of 100 packets, which delays answers and drops several in a row. With
/// K and T_KA planned for 150 ms, every second download was mistaken for an outage.
#[test]
fn downloads_that_fill_their_queue_are_no_outages() {
    let spec = LinkSpec {
        rate_bps: Some(20_000_000),
        delay: MS(28),
        queue: Queue::Packets(100),
        ..LinkSpec::default()
    };
    for measured_by in MEASURED_BY {
        let (mut downs, mut most, mut dropped) = (0, Span::ZERO, 0);
        for seed in 0..100 {
            let known = vec![Known { name: "alice".into(), epoch: 0, inner: vec![ip(INNER)] }];
            let wifi_link = Some(spec.clone());
            let setup =
                Setup { seed, measured_by, adaptive: true, known, wifi_link, ..Setup::default() };
            let mut world = World::new(&setup);
            let ends = Ends { first: (ip(INNER), 4_000), second: (ip(SERVER), 80) };
            let start = SECS(6) + Span(Rng::new(seed).below(1_000_000_000));
            let period = Period { start, ..Period::default() };
            let ftp = FtpConfig { file_bytes: Some(10_000_000), period, ..FtpConfig::default() };
            let tcp = segue_traffic::tcp::Config { window: 1_000, ..ftp.tcp };
            let ftp = FtpConfig { files: Some(1), tcp, ..ftp };
            let nodes = (world.mobile, world.server);
            ftp.pair(&ends).unwrap().add(&mut world.network, nodes, "ftp");
            world.run(Time(16_000_000_000));
            downs += self::downs(&world);
            let mut paths = world.host().end().machine.paths();
            let (_, wifi) = paths.find(|(_, path)| path.name() == "wifi").unwrap();
            let estimates = wifi.client().unwrap().estimates();
            most = most.max(estimates.rtt_max.unwrap());
            dropped += estimates.down.sent - estimates.down.received;
        }
        println!(
            "{measured_by:?}: {downs} downs; round trips up to {most}, {dropped} packets dropped"
        );
        assert!(most > MS(100), "the queue must be felt: {most}");
        assert!(measured_by == MeasuredBy::PacketPath || dropped > 1_000, "{dropped}");
        assert_eq!(downs, 0, "{measured_by:?}");
    }
}
