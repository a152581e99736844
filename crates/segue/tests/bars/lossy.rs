//! How soon a flow leaves a path that begins to lose packets at random, with default settings.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use segue_lab::Direction;
use segue_netem::{LinkSpec, Loss};

use super::flow::{Flow, Running};
use super::stage::{Plan, Stage};
use super::voice::Mode;
use super::{DATAPATHS, shared, together};

/// Milliseconds between packets in each direction, share of packets lost, and the time in seconds by which 95 of 100
/// flows must have moved.
const CELLS: [(u64, f64, f64); 4] =
    [(10, 0.40, 1.4), (10, 0.15, 2.5), (20, 0.15, 4.0), (50, 0.15, 7.0)];

/// Runs a cell once and returns the seconds until the flow's class has moved.
fn moved_after(stage: &Stage, (every, loss): (u64, f64), direction: Direction, port: u16) -> f64 {
    stage.both_up();
    let flow = Running::start(stage, Flow::Udp(every, Mode::Ways([true, true])), port);
    stage.use_path("wifi");
    std::thread::sleep(Duration::from_secs(60));
    let access = stage.access("wifi");
    let clean = access.spec(direction);
    let lossy = LinkSpec { loss: Loss::Bernoulli(loss), ..clean.clone() };
    let begins = access.set_model(direction, lossy).unwrap();
    // At 40 % loss the path may also go down.
    let (at, event) =
        stage.event("host", begins, |event| event["kind"] == "handover" && event["path"] == "wifi");
    access.set_model(direction, clean).unwrap();
    drop(flow);
    let took = at.since(begins).as_secs_f64();
    println!(
        "{} {every} ms {loss} {direction:?}: {took:.2} s, {}",
        stage.datapath(),
        event["text"]
    );
    took
}

#[test]
#[ignore = "a quarter of an hour"]
fn soak_a_flow_leaves_a_path_that_loses_its_packets() {
    let Some(_share) = shared() else { return };
    let ports = AtomicU16::new(9_100);
    together(DATAPATHS, |datapath| {
        for (every, loss, most) in CELLS {
            for direction in Direction::ALL {
                // A path that lost packets is used again only after a minute, so each cell starts fresh daemons.
                let plan = Plan { rtt_ms: [20, 20], ..Plan::of_defaults("lossy", datapath) };
                let stage = Stage::running(plan);
                let port = ports.fetch_add(1, Ordering::Relaxed);
                let took = moved_after(&stage, (every, loss), direction, port);
                assert!(took <= most, "{datapath} {every} ms {loss} {direction:?}: {took} s");
            }
        }
    });
}
