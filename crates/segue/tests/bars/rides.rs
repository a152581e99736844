//! Probes that ride on data (paper 1, section 5.3: active-pb): how many find a data packet to ride
//! on, and whether both ends measure what the emulator did to these packets.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::Direction;
use segue_linux::clock::monotonic;
use segue_wire::TUNNEL_PORT;
use serde_json::Value;

use super::stage::{Plan, Stage, path};
use super::voice::Voice;
use super::{DATAPATHS, alone, late, loss, round_trip, together, truth};

/// Interval of 50 packets per second in each direction.
const INTERVAL: Span = Span::from_millis(20);
/// Large enough that the loss never takes the path down.
const K: u8 = 9;
const T_KA: Span = Span::from_millis(200);
const RTT_MS: [u64; 2] = [20, 60];
const LOSS: f64 = 0.03;
const LOOKS: usize = 40;
const LOOK: Duration = Duration::from_millis(250);
const NAME: &str = "wifi";

#[test]
fn probes_ride_on_a_voice_flow_and_measure_what_the_emulator_imposed() {
    let Some(_machine) = alone() else { return };
    let cases = DATAPATHS.into_iter().flat_map(|datapath| [(datapath, false), (datapath, true)]);
    together(cases, |(datapath, v6)| {
        late::fairly("rides", round_trip::STILL, || run(datapath, v6));
    });
}

fn run(datapath: &'static str, v6: bool) -> Result<(), String> {
    let name = if v6 { "ridesix" } else { "ridefour" };
    let what = format!("{datapath} over IPv{}, riding", if v6 { 6 } else { 4 });
    let plan = Plan::new(name, datapath, (K, T_KA.0 / 1_000_000));
    let stage = Stage::running(Plan { rtt_ms: RTT_MS, loss: [LOSS, 0.0], v6, rides: true, ..plan });
    let voice = Voice::start(&stage, 7_600, INTERVAL);
    stage.hand_over(voice.port, NAME);
    std::thread::sleep(Duration::from_secs(4));
    let (before, from) = (probes(&stage.status("host").unwrap()), monotonic());
    let mut said: Vec<(Time, f64)> = Vec::new();
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK);
        let status = stage.status("host").unwrap();
        let now = Time(status["now_ns"].as_u64().unwrap());
        said.push((now, path(&status, NAME)["rtt_ms"][0].as_f64().unwrap()));
    }
    let (after, to) = (probes(&stage.status("host").unwrap()), monotonic());
    let (sent, rode) = (after[0] - before[0], after[1] - before[1]);
    // Let the last data through, and then at least one probe in each direction.
    voice.pause();
    std::thread::sleep(Duration::from_secs(3));
    stage.access(NAME).set_silent(Direction::Up, true);
    let log = loss::judge(&stage, NAME, &what);

    // While the flow itself stalled, there was no data to ride on.
    let up = truth::packets(&log, Direction::Up, TUNNEL_PORT);
    let looked: Vec<Time> =
        up.iter().map(|p| p.arrival).filter(|at| from <= *at && *at <= to).collect();
    let pauses = looked.windows(2).filter(|pair| pair[1].since(pair[0]) >= T_KA.half()).count();
    println!("{what}: {rode} of {sent} probes rode, {pauses} pauses of the flow");
    let missed = (sent - rode).saturating_sub(pauses as u64);
    assert!(20 * missed <= sent && sent >= 40, "{what}");
    let imposed = truth::round_trips(&log, TUNNEL_PORT);
    let truth = |at| truth::average(&imposed, round_trip::TAU, at).unwrap();
    let data = loss::data_up(&log);
    assert!(data > 300, "the flow was on this path: {data}");
    round_trip::judge(&what, RTT_MS[0], said.iter().map(|(at, s)| (*s, truth(*at))).collect())
}

/// Requests sent, and how many of them rode on data.
fn probes(status: &Value) -> [u64; 2] {
    ["probes_sent", "probes_rode"].map(|field| path(status, NAME)[field].as_u64().unwrap())
}
