//! Probes that ride on data (paper 1, 5.3: active-pb): how many find a ride, and whether both ends
//! measure what the emulator did to them.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::Direction;
use segue_wire::TUNNEL_PORT;
use serde_json::Value;

use super::stage::{Plan, Stage, path};
use super::voice::Voice;
use super::{DATAPATHS, alone, loss, round_trip, together, truth};

/// 50 packets a second in each direction.
const INTERVAL: Span = Span::from_millis(20);
/// A K that the loss does not reach, and T_KA.
const KEEPALIVE: (u8, u64) = (9, 200);
const RTT_MS: [u64; 2] = [20, 60];
const LOSS: f64 = 0.03;
const LOOKS: usize = 40;
const LOOK: Duration = Duration::from_millis(250);
const NAME: &str = "wifi";

#[test]
fn probes_ride_on_a_voice_flow_and_measure_what_the_emulator_imposed() {
    let Some(_machine) = alone() else { return };
    let cases = DATAPATHS.into_iter().flat_map(|datapath| [(datapath, false), (datapath, true)]);
    together(cases, |(datapath, v6)| run(datapath, v6));
}

fn run(datapath: &'static str, v6: bool) {
    let name = if v6 { "ridesix" } else { "ridefour" };
    let what = format!("{datapath} over IPv{}, riding", if v6 { 6 } else { 4 });
    let plan = Plan::new(name, datapath, KEEPALIVE);
    let stage = Stage::running(Plan { rtt_ms: RTT_MS, loss: [LOSS, 0.0], v6, rides: true, ..plan });
    let voice = Voice::start(&stage, 7_600, INTERVAL);
    stage.hand_over(voice.port, NAME);
    std::thread::sleep(Duration::from_secs(4));
    let before = probes(&stage.status("host").unwrap());
    let mut said: Vec<(Time, f64)> = Vec::new();
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK);
        let status = stage.status("host").unwrap();
        let now = Time(status["now_ns"].as_u64().unwrap());
        said.push((now, path(&status, NAME)["rtt_ms"][0].as_f64().unwrap()));
    }
    let after = probes(&stage.status("host").unwrap());
    let (sent, rode) = (after[0] - before[0], after[1] - before[1]);
    println!("{what}: {rode} of {sent} probes rode");
    // The last data is through, and then at least one probe of each direction.
    voice.pause();
    std::thread::sleep(Duration::from_secs(3));
    stage.access(NAME).set_silent(Direction::Up, true);
    std::thread::sleep(Duration::from_millis(700));
    let statuses = ["host", "anchor"].map(|role| stage.status(role).unwrap());
    let log = stage.access(NAME).take_log();

    assert!(100 * rode >= 95 * sent && sent >= 40, "{what}: {rode} of {sent}");
    let imposed = truth::round_trips(&log, TUNNEL_PORT);
    let truth = |at| truth::average(&imposed, round_trip::TAU, at).unwrap();
    round_trip::judge(&what, RTT_MS[0], said.iter().map(|(at, s)| (*s, truth(*at))).collect());
    let data = loss::judge(&statuses, NAME, &log, &what);
    assert!(data > 300, "the flow was on this path: {data}");
}

/// Requests sent, and those of them that rode.
fn probes(status: &Value) -> [u64; 2] {
    ["probes_sent", "probes_rode"].map(|field| path(status, NAME)[field].as_u64().unwrap())
}
