//! How soon a flow leaves a path that drops its data although probes and other flows pass, with default settings.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::Direction;
use segue_linux::clock::monotonic;

use super::flow::{Flow, Running};
use super::stage::{Plan, Stage};
use super::voice::{Look, Mode};
use super::{DATAPATHS, shared, together};

/// Time limit for moving the flow.
const MOST: Span = Span::from_secs(2);
/// Time limit for reporting a filter on the only path.
const NAMED: Span = Span::from_secs(5);

/// The property that the router's filter matches.
#[derive(Clone, Copy, Debug)]
enum Match {
    /// A port of the inner packet.
    Port(u16),
    /// Any code point except the default one, which probes use.
    Marked,
    /// The length of the whole packet: small data packets match, with and without a riding probe. Probes alone are
    /// shorter.
    Length,
}

/// Datagrams that match [`Match::Marked`] and [`Match::Length`], and datagrams that match neither.
const FILTERED: Look = Look { bytes: 200, dscp: 34 };
const OTHERS: Look = Look { bytes: 600, dscp: 0 };

impl Match {
    /// Drops matching packets between the access and the anchor.
    fn install(self, stage: &Stage, device: &str, direction: Direction) {
        let side = if direction == Direction::Up { "iifname" } else { "oifname" };
        let nft = |rule: &str| super::stage::nft(stage.net.router(), rule);
        nft("add table inet segue_filter");
        nft("add chain inet segue_filter f { type filter hook forward priority 0; }");
        let add = |what: String| {
            nft(&format!("add rule inet segue_filter f {side} {device} {what} drop"))
        };
        match self {
            // Offset of the inner port behind the UDP header: the tunnel's header, perhaps a probe, and an IPv4 header.
            Match::Port(port) => {
                for before in [16, 56] {
                    let at = 8 + before + 20 + if direction == Direction::Up { 2 } else { 0 };
                    add(format!("udp dport 5005 @th,{},16 {port}", at * 8));
                }
            }
            Match::Marked => add("ip dscp != 0".into()),
            Match::Length => add("udp dport 5005 ip length 150-400".into()),
        }
    }

    fn remove(stage: &Stage) {
        super::stage::nft(stage.net.router(), "delete table inet segue_filter");
    }
}

/// Filters one flow, and checks that it moves while another flow stays. Daemons that a busy machine stalls answer late,
/// which looks like loss of the whole path; such a run is repeated.
fn moves_alone(
    datapath: &'static str,
    filter: fn(u16) -> Match,
    direction: Direction,
    every_ms: u64,
    port: u16,
) {
    let moved = || moved_after(datapath, filter(port), direction, every_ms, port);
    assert!(
        (0..3).any(|_| moved()),
        "{datapath} {:?} {direction:?}: the path was left",
        filter(port)
    );
}

/// Runs once. Returns false if the whole path was left rather than the flow alone.
fn moved_after(
    datapath: &'static str,
    filter: Match,
    direction: Direction,
    every_ms: u64,
    port: u16,
) -> bool {
    let stage = Stage::running(Plan::of_defaults("filter", datapath));
    stage.both_up();
    stage.use_path("wifi");
    let flow = Running::like(&stage, every_ms, FILTERED, port);
    let beside = Running::like(&stage, 20, OTHERS, port + 1);
    std::thread::sleep(Duration::from_secs(4));
    let path_of = |flow: &Running| stage.flow(flow.port()).unwrap()["path"].clone();
    assert_eq!((path_of(&flow), path_of(&beside)), ("wifi".into(), "wifi".into()));
    let begins = monotonic();
    filter.install(&stage, "wifi", direction);
    let Some((at, event)) = found(&stage, begins) else { return false };
    let took = at.since(begins);
    let case = format!("{datapath} {filter:?} {every_ms} ms {direction:?}");
    println!("{case}: {:.2} s, {}", took.as_secs_f64(), event["text"]);
    assert_eq!((&event["path"], &event["to"]), (&"wifi".into(), &"lte".into()), "{case}");
    assert!(took <= MOST, "{case}: {took:?}");
    assert_eq!((path_of(&flow), path_of(&beside)), ("lte".into(), "wifi".into()), "{case}");
    let why = stage.flow(flow.port()).unwrap()["why"].to_string();
    assert!(why.contains("filtered on wifi"), "{case}: {why}");
    // Packets arrive again, in both directions.
    std::thread::sleep(Duration::from_secs(1));
    let now = monotonic();
    let silent = flow.longest(now - Span::from_millis(700), now);
    assert!(silent <= Span::from_millis(400), "{case}: {silent:?}");
    true
}

/// Waits for the first finding; `None` if the path was reported lossy first. Fails after [`NAMED`] without either.
fn found(stage: &Stage, begins: Time) -> Option<(Time, serde_json::Value)> {
    loop {
        let news = |event: &serde_json::Value| is_filtered(event) || event["kind"] == "path_loss";
        if let Some((at, event)) = stage.seen("host", begins, news) {
            return is_filtered(&event).then_some((at, event));
        }
        assert!(monotonic().since(begins) < NAMED, "no filter is named:\n{}", stage.story(begins));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_filtered(event: &serde_json::Value) -> bool {
    event["kind"] == "flow_filtered"
}

/// Filters by code point and by length, each in one direction. The soak test covers the other combinations.
#[test]
fn a_flow_whose_data_a_router_drops_moves_alone() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS.into_iter().zip([9_300, 9_320]), |(datapath, port)| {
        let [mut marked, mut long] = [Direction::Up, Direction::Down];
        if datapath == "user" {
            (marked, long) = (long, marked);
        }
        moves_alone(datapath, |_| Match::Marked, marked, 10, port);
        moves_alone(datapath, |_| Match::Length, long, 20, port + 2);
    });
}

#[test]
#[ignore = "minutes"]
fn soak_a_flow_whose_data_a_router_drops_moves_alone() {
    let Some(_share) = shared() else { return };
    let kinds: [fn(u16) -> Match; 3] = [Match::Port, |_| Match::Marked, |_| Match::Length];
    together(DATAPATHS.into_iter().zip([9_360, 9_400]), |(datapath, first)| {
        let mut port = first;
        for filter in kinds {
            for direction in Direction::ALL {
                for every_ms in [10, 50] {
                    moves_alone(datapath, filter, direction, every_ms, port);
                    port += 2;
                }
            }
        }
    });
}

/// The test packets on the filtered path have the flow's code point and length, so the flow stays away while the filter
/// is in place and returns once it is removed.
#[test]
#[ignore = "four minutes"]
fn soak_a_filtered_flow_returns_when_packets_like_its_own_pass() {
    let Some(_share) = shared() else { return };
    let [up, down] = [Direction::Up, Direction::Down];
    let cases = [("ebpf", up), ("ebpf", down), ("user", up), ("user", down)];
    together(cases.into_iter().zip(9_440..), |((datapath, direction), port)| {
        let side = if direction == up { "up" } else { "down" };
        let stage = Stage::running(Plan::of_defaults(&format!("again{side}"), datapath));
        stage.both_up();
        stage.use_path("wifi");
        let flow = Running::like(&stage, 20, FILTERED, port);
        std::thread::sleep(Duration::from_secs(4));
        let begins = monotonic();
        Match::Marked.install(&stage, "wifi", direction);
        let (at, _) = stage.event("host", begins, is_filtered);
        // The first test of the path runs after a minute.
        std::thread::sleep(Duration::from_secs(75));
        let path_of = |flow: &Running| stage.flow(flow.port()).unwrap()["path"].clone();
        assert_eq!(path_of(&flow), "lte", "{datapath} {direction:?}");
        assert!(
            !stage.story(at + Span::from_millis(1)).contains("filtered"),
            "{datapath} {direction:?}"
        );
        Match::remove(&stage);
        std::thread::sleep(Duration::from_secs(125));
        assert_eq!(path_of(&flow), "wifi", "{datapath} {direction:?}");
    });
}

/// Filters by length on the only path.
#[test]
fn a_filter_on_the_only_path_is_named() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS.into_iter().zip([9_340, 9_350]), |(datapath, port)| {
        let plan = Plan::of_defaults("only", datapath);
        let stage = Stage::running(plan);
        stage.both_up();
        stage.use_path("wifi");
        stage.silence("lte", true);
        let flow = Running::start(&stage, Flow::Udp(20, Mode::Ways([true, true])), port);
        std::thread::sleep(Duration::from_secs(4));
        let begins = monotonic();
        Match::Length.install(&stage, "wifi", Direction::Up);
        let (at, event) = stage.event("host", begins, is_filtered);
        let took = at.since(begins);
        println!("{datapath}: {:.2} s, {}", took.as_secs_f64(), event["text"]);
        assert!(took <= NAMED && event["to"].is_null(), "{took:?} {event}");
        let status = stage.status("host").unwrap();
        let filter = &status["filtered"][0];
        assert_eq!(
            (&filter["path"], &filter["uses"]),
            (&"wifi".into(), &"wifi".into()),
            "{status}"
        );
        Match::remove(&stage);
        drop(flow);
    });
}
