//! How soon a flow leaves a path that drops its data while probes and other flows pass, with default settings.

use std::time::Duration;

use segue_clock::Span;
use segue_lab::Direction;
use segue_linux::clock::monotonic;

use super::flow::{Flow, Running};
use super::stage::{Plan, Stage};
use super::voice::Mode;
use super::{DATAPATHS, shared, together};

/// By when the flow has to be elsewhere.
const MOST: Span = Span::from_secs(2);
/// A filter on the only path has to be named by then.
const NAMED: Span = Span::from_secs(5);

/// What the router looks at.
#[derive(Clone, Copy, Debug)]
enum Match {
    /// A port of the packet in the tunnel.
    Port(u16),
    /// The length of the whole packet: that of the flow's packets, with and without a probe that rides.
    Length,
}

impl Match {
    /// Drops what fits between the access and the anchor.
    fn install(self, stage: &Stage, device: &str, direction: Direction) {
        let side = if direction == Direction::Up { "iifname" } else { "oifname" };
        let nft = |rule: &str| super::stage::nft(stage.net.router(), rule);
        nft("add table inet segue_filter");
        nft("add chain inet segue_filter f { type filter hook forward priority 0; }");
        let add = |what: String| {
            nft(&format!("add rule inet segue_filter f {side} {device} {what} drop"))
        };
        match self {
            // Behind the UDP header: the tunnel's header, perhaps a probe, and an IPv4 header.
            Match::Port(port) => {
                for before in [16, 56] {
                    let at = 8 + before + 20 + if direction == Direction::Up { 2 } else { 0 };
                    add(format!("udp dport 5005 @th,{},16 {port}", at * 8));
                }
            }
            Match::Length => add("ip length 150-260".into()),
        }
    }

    fn remove(stage: &Stage) {
        super::stage::nft(stage.net.router(), "delete table inet segue_filter");
    }
}

/// A flow that is filtered, and one that is not and stays.
fn moved_after(datapath: &'static str, direction: Direction, every_ms: u64, port: u16) {
    let plan = Plan::of_defaults("filter", datapath);
    let stage = Stage::running(plan);
    stage.both_up();
    stage.use_path("wifi");
    let flow = Running::start(&stage, Flow::Udp(every_ms, Mode::Ways([true, true])), port);
    let beside = Running::start(&stage, Flow::Udp(20, Mode::Ways([true, true])), port + 1);
    std::thread::sleep(Duration::from_secs(4));
    let path_of = |flow: &Running| stage.flow(flow.port()).unwrap()["path"].clone();
    assert_eq!((path_of(&flow), path_of(&beside)), ("wifi".into(), "wifi".into()));
    let begins = monotonic();
    Match::Port(port).install(&stage, "wifi", direction);
    let is = |event: &serde_json::Value| event["kind"] == "flow_filtered";
    let (at, event) = stage.event("host", begins, is);
    let took = at.since(begins);
    println!(
        "{datapath} {every_ms} ms {direction:?}: {:.2} s, {}",
        took.as_secs_f64(),
        event["text"]
    );
    assert_eq!((&event["path"], &event["to"]), (&"wifi".into(), &"lte".into()));
    assert!(took <= MOST, "{datapath} {every_ms} ms {direction:?}: {took:?}");
    assert_eq!((path_of(&flow), path_of(&beside)), ("lte".into(), "wifi".into()));
    let why = stage.flow(flow.port()).unwrap()["why"].to_string();
    assert!(why.contains("filtered on wifi"), "{why}");
    // It arrives again, in both directions.
    std::thread::sleep(Duration::from_secs(1));
    let now = monotonic();
    let silent = flow.longest(now - Span::from_millis(700), now);
    assert!(silent <= Span::from_millis(400), "{silent:?}");
    Match::remove(&stage);
}

#[test]
fn a_flow_whose_data_a_router_drops_moves_alone() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS.into_iter().zip([9_300, 9_320]), |(datapath, port)| {
        moved_after(datapath, Direction::Up, 10, port);
        moved_after(datapath, Direction::Down, 50, port + 10);
    });
}

/// A filter by length, on the only path.
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
        let is = |event: &serde_json::Value| event["kind"] == "flow_filtered";
        let (at, event) = stage.event("host", begins, is);
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
