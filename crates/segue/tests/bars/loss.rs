//! One-way loss: the counters of both ends against the emulator's drops, packet by packet.

use std::time::Duration;

use segue_clock::{Span, Time};
use segue_lab::{Direction, Record};
use segue_wire::TUNNEL_PORT;
use serde_json::Value;

use super::stage::{Plan, Stage, path};
use super::voice::Voice;
use super::{DATAPATHS, alone, together, truth};

const DURATION: Duration = Duration::from_secs(60);
/// 200 packets a second and direction beside the probes.
const INTERVAL: Span = Span::from_millis(5);
/// Loss of wifi and lte in each network.
const LOSSES: [[f64; 2]; 3] = [[0.001, 0.01], [0.05, 0.1], [0.2, 0.001]];

#[test]
fn loss_counters_equal_the_emulators_drops_at_every_rate() {
    let Some(_machine) = alone() else { return };
    let cases = DATAPATHS.into_iter().flat_map(|datapath| {
        LOSSES.into_iter().zip(["a", "b", "c"]).map(move |(loss, name)| (datapath, loss, name))
    });
    together(cases, |(datapath, loss, name)| run(datapath, loss, name));
}

fn run(datapath: &'static str, loss: [f64; 2], name: &str) {
    // A K that no loss reaches: what is tested is counting, without paths that come and go.
    let plan = Plan { loss, ..Plan::new(&format!("loss{name}"), datapath, (32, 100)) };
    let stage = Stage::running(plan);
    let names = ["wifi", "lte"];
    let voices = [7_400, 7_401].map(|port| Voice::start(&stage, port, INTERVAL));
    for (voice, name) in voices.iter().zip(names) {
        stage.hand_over(voice.port, name);
    }
    std::thread::sleep(DURATION);
    voices.iter().for_each(Voice::pause);
    // The last data is through, and then at least one probe of each direction.
    std::thread::sleep(Duration::from_secs(3));
    for name in names {
        stage.access(name).set_silent(Direction::Up, true);
    }
    std::thread::sleep(Duration::from_millis(500));
    let statuses = ["host", "anchor"].map(|role| stage.status(role).unwrap());
    for (i, name) in names.into_iter().enumerate() {
        let log = stage.access(name).take_log();
        let health = stage.access(name).health();
        let kept = (health.overruns, health.send_failures, health.records_lost);
        assert_eq!(kept, (0, 0, 0), "invalid run: the emulator does not know what was lost");
        let data = judge(&statuses, name, &log, &format!("{datapath} loss {}", loss[i]));
        assert!(data > 5_000, "the flow was on this path: {data}");
    }
}

/// Packets of a direction after one place and up to another: sent and lost.
fn between(packets: &[Record], (from, to): (usize, usize)) -> (u64, u64) {
    let part = &packets[from + 1..=to];
    let lost = part.iter().filter(|packet| packet.delay().is_none()).count();
    (part.len() as u64, lost as u64)
}

/// The longest that a request may take from the repeating of an answer to the emulator.
const MAKING: Span = Span::from_millis(5);

/// Compares what both ends count with what the emulator dropped; returns the uplink's data packets.
pub fn judge(statuses: &[Value; 2], name: &str, log: &[Record], what: &str) -> usize {
    let [up, down] = Direction::ALL.map(|way| truth::packets(log, way, TUNNEL_PORT));
    let exchanges = truth::exchanges(&up, &down);
    let arrived = |packet: &Record| truth::departure(packet);
    // The host counts from the first answer that reached it to the last one.
    let answered: Vec<_> =
        exchanges.iter().filter(|(_, answer)| arrived(&down[*answer]).is_some()).collect();
    let (first, last) = (answered[0], answered[answered.len() - 1]);
    let host = [between(&up, (first.0, last.0)), between(&down, (first.1, last.1))];
    // The anchor counts the uplink from the first request that reached it to the last one, and the
    // downlink between the answers that these and those between them repeat.
    let requests = (exchanges[0].0, exchanges[exchanges.len() - 1].0);
    // An answer that comes while the request is made may be repeated by it or not yet.
    let repeats = |request: usize| {
        let sent: Time = up[request].arrival;
        let last_by = |by: Time| {
            let before =
                |pair: &&&(usize, usize)| arrived(&down[pair.1]).is_some_and(|at| at <= by);
            answered.iter().rev().find(|pair| before(pair)).map(|pair| pair.1)
        };
        [last_by(sent), last_by(sent - MAKING)]
    };
    let first =
        exchanges.iter().map(|(request, _)| repeats(*request)).find(|pair| pair[0].is_some());
    let (first, last) = (first.unwrap(), repeats(requests.1));
    let host = host.map(|counted| vec![counted]);
    let downlink = |from: Option<usize>, to: Option<usize>| Some(between(&down, (from?, to?)));
    let both = first.iter().flat_map(|from| last.iter().filter_map(|to| downlink(*from, *to)));
    let anchor = [vec![between(&up, requests)], both.collect()];

    for (role, (status, counted)) in
        ["host", "anchor"].iter().zip(statuses.iter().zip([host, anchor]))
    {
        for (way, counted) in ["up", "down"].iter().zip(counted) {
            let said = &path(status, name)[*way];
            let (sent, lost) = counted[0];
            println!(
                "{what} {way}: the emulator dropped {lost} of {sent}, the {role} counts {} of {}",
                said["lost"], said["sent"]
            );
            let same = |(sent, lost): &(u64, u64)| said["sent"] == *sent && said["lost"] == *lost;
            assert!(counted.iter().any(same), "{what} {role}: {said}, dropped {counted:?}");
        }
    }
    up.iter().filter(|packet| !truth::is_probe(packet)).count()
}
