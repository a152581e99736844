//! A path that dies in one direction only.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_linux::clock::monotonic;
use segue_wire::TUNNEL_PORT;

use super::stage::{Plan, Stage, path};
use super::voice::Voice;
use super::{DATAPATHS, late, shared, together, truth};

const INTERVAL: Span = Span::from_millis(5);
/// Number of attempts, in case the machine stalls.
const ATTEMPTS: usize = 5;
/// The daemons are seldom delayed more than the watching thread, so a missed bar counts only if
/// this machine's delay stayed below this.
const STILL: Span = Span::from_millis(20);
/// One-way delay of the other path in milliseconds.
const OTHER: f64 = 30.0;

#[test]
fn flows_of_a_dead_direction_move_within_the_bound_and_the_other_direction_goes_on() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS, |datapath| {
        for (k, t_ka) in [(4, 30), (2, 80)] {
            let name = format!("way{}", if k == 4 { "a" } else { "b" });
            let mut plan = Plan::new(&name, datapath, (k, t_ka));
            plan.steering = "margin = 1000.0";
            let stage = Stage::running(plan);
            let voice = Voice::start(&stage, 7_200, INTERVAL);
            for dead in Direction::ALL {
                late::fairly("a dead direction", STILL, || {
                    let tries = (0..ATTEMPTS).map(|_| dies(&stage, &voice, dead, t_ka, datapath));
                    tries.flatten().next().unwrap_or(Err("paths change by themselves".into()))
                });
            }
        }
    });
}

fn settle(stage: &Stage) {
    stage.both_up();
    stage.use_path("wifi");
    std::thread::sleep(Duration::from_secs(1));
}

fn data(log: &[Record], way: Direction) -> Vec<Time> {
    let packets = truth::packets(log, way, TUNNEL_PORT);
    packets.iter().filter(|p| !truth::is_probe(p)).map(|p| p.arrival).collect()
}

/// Blocks one direction of wifi for three seconds. `None` if the run was not valid: the daemons stood still, or the flow
/// was not on wifi at first.
fn dies(
    stage: &Stage,
    voice: &Voice,
    dead: Direction,
    t_ka: u64,
    datapath: &str,
) -> Option<Result<(), String>> {
    settle(stage);
    let settled = monotonic();
    stage.forget();
    std::thread::sleep(Duration::from_millis(200));
    let bound = path(&stage.status("host").unwrap(), "wifi")["bound_ms"].as_f64().unwrap();
    if stage.stood_still(settled, &["wifi", "lte"]) {
        return None;
    }
    let silent = stage.net.wifi().set_silent(dead, true);
    std::thread::sleep(Duration::from_secs(3));
    let (wifi, lte) = (stage.net.wifi().take_log(), stage.net.lte().take_log());
    let disturbed = stage.stood_still(settled, &["lte"]);
    stage.net.wifi().set_silent(dead, false);
    if disturbed {
        return None;
    }

    let before = |log: &[Record], way| data(log, way).iter().filter(|at| **at < silent).count();
    if Direction::ALL.iter().any(|way| before(&wifi, *way) == 0 || before(&lte, *way) > 0) {
        return None;
    }
    let moved = data(&lte, dead).into_iter().find(|at| *at >= silent).expect("it moves");
    let moved_ms = moved.since(silent).as_millis_f64();
    let scheduling = late::worst(silent - Span::from_millis(t_ka), moved).as_millis_f64();
    let most = bound + t_ka as f64 + OTHER;
    let other = Direction::ALL[1 - dead as usize];
    let lost = voice.lost(silent - Span::from_secs(1), silent + Span::from_secs(2))[other as usize];
    let last_second = |log: &[Record]| {
        data(log, other).iter().filter(|at| at.since(silent) >= Span::from_secs(2)).count()
    };
    let (stays, elsewhere) = (last_second(&wifi), last_second(&lte));
    println!(
        "{datapath} {} dead, T_KA {t_ka} ms: its flow moved after {moved_ms:.1} ms (bound {most:.1}), \
         scheduling delay {scheduling:.1} ms; {}: {lost} lost, later {stays} packets on wifi and \
         {elsewhere} on lte",
        dead.name(),
        other.name(),
    );
    let in_time = moved_ms <= most + INTERVAL.as_millis_f64() + scheduling;
    let goes_on = lost == 0 && (dead == Direction::Down || stays > 0 && elsewhere == 0);
    Some(if in_time && goes_on { Ok(()) } else { Err(stage.story(silent)) })
}
