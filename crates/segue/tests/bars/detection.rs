//! A silent outage: the path falls silent in both directions while its link stays up.

use std::time::Duration;

use segue_clock::{Rng, Span, Time};
use segue_lab::Direction;
use segue_linux::clock::monotonic;

use super::stage::{Plan, Stage, patiently};
use super::voice::Voice;
use super::{DATAPATHS, late, shared, together, truth};

/// Number of outages on each datapath.
const RUNS: usize = 10;
const K: u8 = 4;
const T_KA: Span = Span::from_millis(30);
const INTERVAL: Span = Span::from_millis(20);
/// Scheduling delay inside the daemon is only partly visible, so a missed bar counts only if this
/// machine's delay stayed below this.
const STILL: Span = Span::from_millis(20);

/// One outage, in milliseconds. A gap is the flow's silence beyond its packet interval, as the
/// demonstration counts it; it includes the extra delay of the other path.
#[derive(Debug)]
struct Outage {
    detection: f64,
    bound: f64,
    average: f64,
    gaps: [f64; 2],
    scheduling: f64,
}

#[test]
fn a_silent_outage_is_noticed_within_the_bound_and_the_voice_flow_goes_on() {
    let Some(_share) = shared() else { return };
    together(DATAPATHS, |datapath| late::fairly("silent outages", STILL, || ten(datapath)));
}

/// Judges ten outages.
fn ten(datapath: &'static str) -> Result<(), String> {
    let mut plan = Plan::new("silent", datapath, (K, T_KA.0 / 1_000_000));
    plan.steering = "margin = 1000.0";
    let stage = Stage::running(plan);
    let voice = Voice::start(&stage, 7_100, INTERVAL);
    let mut rng = Rng::new(2);
    let tries = (0..3 * RUNS).filter_map(|_| outage(&stage, &voice, &mut rng));
    let outages: Vec<Outage> = tries.take(RUNS).collect();
    if outages.len() < RUNS {
        return Err(format!(
            "paths change their state by themselves:\n{}",
            stage.story(Time::ZERO)
        ));
    }
    for (run, o) in outages.iter().enumerate() {
        println!(
            "{datapath} outage {run}: noticed after {:.1} ms (bound {:.1}), voice gap up {:.1} \
                 down {:.1} ms (bound {:.1}), scheduling delay {:.1} ms",
            o.detection,
            o.bound,
            o.gaps[0],
            o.gaps[1],
            o.bound + INTERVAL.as_millis_f64(),
            o.scheduling
        );
    }
    let mean =
        |of: &dyn Fn(&Outage) -> f64| outages.iter().map(of).sum::<f64>() / outages.len() as f64;
    let (detection, average) = (mean(&|o| o.detection), mean(&|o| o.average));
    let scheduling = mean(&|o| o.scheduling);
    println!(
        "{datapath} outages: mean {detection:.1} ms, eq. 2 gives {average:.1} ms, mean \
             scheduling delay {scheduling:.1} ms"
    );
    let holds = |o: &&Outage| {
        let most = o.bound + INTERVAL.as_millis_f64() + o.scheduling;
        o.detection <= o.bound + o.scheduling && o.gaps.iter().all(|gap| *gap <= most)
    };
    if let Some(missed) = outages.iter().find(|o| !holds(o)) {
        return Err(format!("{missed:?}"));
    }
    if detection > 1.05 * average + scheduling {
        return Err(format!("mean {detection} ms against {average} ms"));
    }
    Ok(())
}

/// Silences the path in use at a random instant. `None` if the other path seemed to fail as well.
fn outage(stage: &Stage, voice: &Voice, rng: &mut Rng) -> Option<Outage> {
    stage.both_up();
    let settled = monotonic();
    std::thread::sleep(Duration::from_micros(500_000 + rng.below(500_000)));
    let used = patiently("the flow has a path", || {
        Some(stage.flow(voice.port)?["path"].as_str()?.to_owned())
    });
    stage.forget();
    let silent = stage.silence(&used, true);
    let (noticed, event) = stage.event("host", silent, |event| {
        event["kind"] == "path_state" && event["path"] == used && event["detail"] == "down"
    });
    std::thread::sleep(Duration::from_millis(300));
    let around = (silent - T_KA, noticed + Span::from_millis(100));
    let own = voice.pace(around.0, around.1);
    let own = own.iter().map(|pace| pace.0.saturating_sub(INTERVAL.0)).max().unwrap_or(0);
    let scheduling =
        late::worst(around.0, around.1).max(requests_late(stage, &used)).max(Span(own));
    let rtt = if used == "wifi" { 20.0 } else { 60.0 };
    let outage = Outage {
        detection: noticed.since(silent).as_millis_f64(),
        bound: event["bound_ms"].as_f64().unwrap(),
        average: (f64::from(K) + 0.5) * T_KA.as_millis_f64() + rtt / 2.0,
        gaps: voice.gaps(around.0, around.1).map(|gap| (gap - INTERVAL).as_millis_f64()),
        scheduling: scheduling.as_millis_f64(),
    };
    let other = if used == "wifi" { "lte" } else { "wifi" };
    let disturbed = stage.stood_still(settled, &[other]);
    stage.silence(&used, false);
    (!disturbed).then_some(outage)
}

/// The largest delay of a host's request beyond T_KA.
fn requests_late(stage: &Stage, name: &str) -> Span {
    let log = stage.access(name).take_log();
    let up = truth::packets(&log, Direction::Up, segue_wire::TUNNEL_PORT);
    let requests: Vec<Time> = up.iter().filter(|p| truth::is_probe(p)).map(|p| p.arrival).collect();
    let gaps = requests.windows(2).map(|pair| pair[1].since(pair[0]).0.saturating_sub(T_KA.0));
    Span(gaps.max().unwrap_or(0))
}
