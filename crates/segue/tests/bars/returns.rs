//! A path that comes back, and one that was dead when the host started.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT};

use super::stage::{Plan, Stage, instant, patiently};
use super::voice::Voice;
use super::{DATAPATHS, late, shared, together, truth};

const INTERVAL: Span = Span::from_millis(5);
/// Head start of signalling over the first interface, which a dead one costs.
const HEAD_START: f64 = 150.0;
/// A handshake over the slower access takes this much longer: three round trips, 40 ms each.
const SLOWER: f64 = 120.0;

#[test]
fn a_path_that_comes_back_or_was_dead_at_the_start_is_in_use_within_ten_periods() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS, |datapath| {
        for (k, t_ka) in [(4, 30), (3, 100)] {
            let name = format!("back{}", if k == 4 { "a" } else { "b" });
            let mut stage = Stage::new(Plan::new(&name, datapath, (k, t_ka)));
            let alive = start(&mut stage);
            let voice = Voice::start(&stage, 7_300, INTERVAL);
            wait_for_wifi(&stage, &voice);
            std::thread::sleep(Duration::from_secs(1));
            let down = stage.silence("wifi", true);
            stage.event("host", down, |event| event["kind"] == "handover");
            std::thread::sleep(Duration::from_secs(1));
            back(&stage, &voice, t_ka, datapath, "a path that comes back");
            drop(voice);

            stage.silence("wifi", true);
            let dead = start(&mut stage);
            let voice = Voice::start(&stage, 7_301, INTERVAL);
            std::thread::sleep(Duration::from_secs(1));
            println!(
                "{datapath} start, T_KA {t_ka} ms: {:.0} ms with both accesses alive, {:.0} ms with \
                 the first one dead (head start {HEAD_START:.0} ms, slower access {SLOWER:.0} ms)",
                alive.0, dead.0
            );
            assert!(dead.0 <= alive.0 + HEAD_START + SLOWER + dead.1);
            back(&stage, &voice, t_ka, datapath, "a path that was dead at the start");
        }
    });
}

/// Starts the host: from its first packet of signalling to its first path, and the scheduling delay
/// meanwhile, both in milliseconds.
fn start(stage: &mut Stage) -> (f64, f64) {
    let begun = stage.start_host();
    stage.forget();
    patiently("the daemon answers", || stage.status("host"));
    let (up, _) = stage
        .event("host", begun, |event| event["kind"] == "path_state" && event["detail"] == "up");
    let log = [stage.net.wifi().take_log(), stage.net.lte().take_log()].concat();
    let spoken = truth::packets(&log, Direction::Up, SIGNAL_PORT);
    let first = spoken.iter().map(|packet| packet.arrival).find(|at| *at >= begun).unwrap();
    (up.since(first).as_millis_f64(), late::worst(first, up).as_millis_f64() * 4.0)
}

fn wait_for_wifi(stage: &Stage, voice: &Voice) {
    patiently("the flow is on wifi", || {
        let flow = stage.flow(voice.port)?;
        (flow["path"] == "wifi" && flow["via"].is_null()).then_some(())
    });
}

/// Ends the silence of wifi; flows must be there soon.
fn back(stage: &Stage, voice: &Voice, t_ka: u64, datapath: &str, what: &str) {
    stage.forget();
    let alive = stage.silence("wifi", false);
    wait_for_wifi(stage, voice);
    std::thread::sleep(Duration::from_millis(300));
    let log = stage.net.wifi().take_log();
    let used = Direction::ALL.map(|way| {
        let packets = truth::packets(&log, way, TUNNEL_PORT);
        let data = |packet: &&Record| !truth::is_probe(packet) && packet.arrival >= alive;
        packets.iter().find(data).expect("it carries the flow").arrival
    });
    let in_use = used[0].max(used[1]);
    let periods = |at: Time| at.since(alive).as_millis_f64() / t_ka as f64;
    let status = stage.status("host").unwrap();
    let events = status["events"].as_array().unwrap().iter();
    let up = events
        .filter(|event| event["kind"] == "path_state" && event["detail"] == "up")
        .map(instant)
        .find(|at| *at >= alive);
    let scheduling = late::worst(alive, in_use).as_millis_f64() / t_ka as f64;
    println!(
        "{datapath} {what}, T_KA {t_ka} ms: up after {:.1} periods, in use up after {:.1}, down after \
         {:.1} (bar 10), scheduling delay {scheduling:.1} periods",
        up.map_or(f64::NAN, periods),
        periods(used[0]),
        periods(used[1])
    );
    assert!(periods(in_use) <= 10.0 + scheduling);
}
