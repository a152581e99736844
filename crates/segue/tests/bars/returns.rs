//! A path that comes back, and one that was dead when the host started.

use std::cell::RefCell;
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_linux::clock::monotonic;
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT};

use super::stage::{Plan, Stage, instant, patiently};
use super::voice::Voice;
use super::{DATAPATHS, late, shared, together, truth};

const INTERVAL: Span = Span::from_millis(5);
/// Allowed difference between two starts in milliseconds: two round trips of the slower access.
const SPREAD: f64 = 120.0;
/// A daemon may be delayed more than the watching thread, so a missed bar counts only if this
/// machine's delay stayed below this.
const STILL: Span = Span::from_millis(20);
/// Number of attempts, in case the machine stalls.
const ATTEMPTS: usize = 5;

#[test]
fn a_path_that_comes_back_or_was_dead_at_the_start_is_in_use_within_ten_periods() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS, |datapath| {
        for (k, t_ka) in [(4, 30), (3, 100)] {
            let name = format!("back{}", if k == 4 { "a" } else { "b" });
            let stage = RefCell::new(Stage::new(Plan::new(&name, datapath, (k, t_ka))));
            for way in [comes_back, was_dead] {
                late::fairly("a path that comes back", STILL, || {
                    let tries = (0..ATTEMPTS).map(|_| way(&mut stage.borrow_mut(), t_ka, datapath));
                    tries.flatten().next().unwrap_or(Err("paths change by themselves".into()))
                });
            }
        }
    });
}

/// Silences and restores wifi. `None` if the run was not valid: a path that fails twice must wait
/// longer.
fn comes_back(stage: &mut Stage, t_ka: u64, datapath: &str) -> Option<Result<(), String>> {
    stage.silence("wifi", false);
    stage.start_host("");
    stage.both_up();
    let up = monotonic();
    let voice = Voice::start(stage, 7_300, INTERVAL);
    wait_for_wifi(stage, &voice);
    std::thread::sleep(Duration::from_secs(1));
    if stage.stood_still(up, &["wifi", "lte"]) {
        return None;
    }
    let down = stage.silence("wifi", true);
    stage.event("host", down, |event| event["kind"] == "handover");
    std::thread::sleep(Duration::from_secs(1));
    let (taken, story) = back(stage, &voice, t_ka, datapath, "a path that comes back");
    if stage.stood_still(up, &["lte"]) {
        return None;
    }
    Some(if taken { Ok(()) } else { Err(story) })
}

/// Starts the host while wifi is dead, then restores it. `None` if the run was not valid.
fn was_dead(stage: &mut Stage, t_ka: u64, datapath: &str) -> Option<Result<(), String>> {
    stage.silence("wifi", false);
    let both = start(stage, "");
    stage.silence("wifi", true);
    let only = start(stage, "interfaces = [\"lte\"]");
    let dead = start(stage, "");
    let up = monotonic();
    let voice = Voice::start(stage, 7_301, INTERVAL);
    std::thread::sleep(Duration::from_secs(1));
    println!(
        "{datapath} start, T_KA {t_ka} ms: first path up {:.0} ms after the first packet with both \
         accesses alive, {:.0} ms with lte alone, {:.0} ms with wifi dead (bar: the second and \
         {:.0} ms)",
        both.0, only.0, dead.0, SPREAD
    );
    let in_time = dead.0 <= only.0 + SPREAD + dead.1;
    let (taken, story) = back(stage, &voice, t_ka, datapath, "a path that was dead at the start");
    if stage.stood_still(up, &["lte"]) {
        return None;
    }
    Some(if taken && in_time { Ok(()) } else { Err(story) })
}

/// Starts the host. Returns the time from its first signalling packet to its first path, and the
/// scheduling delay during that time, both in milliseconds.
fn start(stage: &mut Stage, lines: &str) -> (f64, f64) {
    let begun = stage.start_host(lines);
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

/// Ends the silence of wifi. Returns whether flows move back soon, and a description of the run.
fn back(stage: &Stage, voice: &Voice, t_ka: u64, datapath: &str, what: &str) -> (bool, String) {
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
    (periods(in_use) <= 10.0 + scheduling, stage.story(alive))
}
