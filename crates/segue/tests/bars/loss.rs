//! One-way loss: compares the counters of both ends with the emulator's drops, packet by packet.

use std::time::{Duration, Instant};

use segue_clock::Span;
use segue_lab::{Direction, Record};
use segue_wire::TUNNEL_PORT;
use serde_json::Value;

use super::stage::{PATIENCE, Plan, Stage, path};
use super::voice::Voice;
use super::{DATAPATHS, alone, together, truth};

const DURATION: Duration = Duration::from_secs(60);
/// Interval of 200 packets per second in each direction, in addition to the probes.
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
    // Choose K so large that no path goes down: this test is about counting.
    let plan = Plan { loss, ..Plan::new(&format!("loss{name}"), datapath, (32, 100)) };
    let stage = Stage::running(plan);
    let names = ["wifi", "lte"];
    let voices = [7_400, 7_401].map(|port| Voice::start(&stage, port, INTERVAL));
    for (voice, name) in voices.iter().zip(names) {
        stage.hand_over(voice.port, name);
    }
    std::thread::sleep(DURATION);
    voices.iter().for_each(Voice::pause);
    // Let the last data through, and then at least one probe in each direction.
    std::thread::sleep(Duration::from_secs(3));
    for name in names {
        stage.access(name).set_silent(Direction::Up, true);
    }
    for (i, name) in names.into_iter().enumerate() {
        let log = judge(&stage, name, &format!("{datapath} loss {}", loss[i]));
        let health = stage.access(name).health();
        let kept = (health.overruns, health.send_failures, health.records_lost);
        assert_eq!(kept, (0, 0, 0), "invalid run: the emulator does not know what was lost");
        let data = data_up(&log);
        assert!(data > 5_000, "the flow was on this path: {data}");
    }
}

/// Data packets that the host sent.
pub(crate) fn data_up(log: &[Record]) -> usize {
    let up = truth::packets(log, Direction::Up, TUNNEL_PORT);
    up.iter().filter(|packet| !truth::is_probe(packet)).count()
}

/// The packets of a direction after one position and up to another: number sent and number lost.
fn between(packets: &[Record], (from, to): (usize, usize)) -> (u64, u64) {
    let part = &packets[from + 1..=to];
    let lost = part.iter().filter(|packet| packet.delay().is_none()).count();
    (part.len() as u64, lost as u64)
}

/// Compares the counts of both ends with the emulator's drops once requests no longer pass. Returns the emulator's
/// record. Packets in flight may still arrive but change no count.
pub(crate) fn judge(stage: &Stage, name: &str, what: &str) -> Vec<Record> {
    let mut log = Vec::new();
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        log.extend(stage.access(name).take_log());
        let statuses = ["host", "anchor"].map(|role| stage.status(role).unwrap());
        let (equal, text) = compare(&statuses, name, &log);
        if equal {
            println!("{what}: {text}");
            return log;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {text}");
    }
}

/// Whether the counts of host and anchor match the emulator, and a text with the counts of each.
fn compare(statuses: &[Value; 2], name: &str, log: &[Record]) -> (bool, String) {
    let [up, down] = Direction::ALL.map(|way| truth::packets(log, way, TUNNEL_PORT));
    let exchanges = truth::exchanges(&up, &down);
    // The host counts from the first answer that it received to the last.
    let answered = || exchanges.iter().filter(|(_, answer)| down[*answer].delay().is_some());
    let (Some(first), Some(last)) = (answered().next(), answered().next_back()) else {
        return (false, "no probe was answered".into());
    };
    let host = [between(&up, (first.0, last.0)), between(&down, (first.1, last.1))];
    // The anchor counts the uplink from the first request that it received to the last, and the downlink between the
    // responses that these requests repeat. A response may arrive while a request is being built, so only the request
    // tells which response the host knew.
    let requests = (exchanges[0].0, exchanges[exchanges.len() - 1].0);
    let mut repeated = exchanges.iter().filter_map(|(request, _)| {
        let t_ss = Some(truth::t_ss(&up[*request])?);
        let response = |packet: &Record| truth::is_probe(packet) && truth::t_ss(packet) == t_ss;
        Some(down.iter().position(response).expect("what is repeated has passed the emulator"))
    });
    let first = repeated.next();
    let Some((first, last)) = first.map(|first| (first, repeated.next_back().unwrap_or(first)))
    else {
        return (false, "no request repeats a response".into());
    };
    let anchor = [between(&up, requests), between(&down, (first, last))];

    let (mut equal, mut text) = (true, String::new());
    for (role, (status, counted)) in
        ["host", "anchor"].iter().zip(statuses.iter().zip([host, anchor]))
    {
        for (way, (sent, lost)) in ["up", "down"].iter().zip(counted) {
            let said = &path(status, name)[*way];
            equal &= said["sent"] == sent && said["lost"] == lost;
            text += &format!(
                "{way}: the emulator dropped {lost} of {sent}, the {role} counts {} of {}; ",
                said["lost"], said["sent"]
            );
        }
    }
    (equal, text)
}

/// How long to sample averages over one second, and at which interval.
const LOOKED: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);
/// K and T_KA in milliseconds, so strict that both paths go down repeatedly.
const HASTY: (u8, u64) = (2, 40);

#[test]
fn averages_of_idle_lossy_paths_are_true_though_they_are_called_down() {
    let Some(_machine) = alone() else { return };
    together(DATAPATHS, |datapath| {
        let loss = [0.2, 0.1];
        let stage = Stage::running(Plan { loss, ..Plan::new("idle", datapath, HASTY) });
        std::thread::sleep(Duration::from_secs(3));
        let start = Instant::now();
        let (mut sums, mut looks) = ([[[0.0; 2]; 2]; 2], 0.0);
        while start.elapsed() < LOOKED {
            std::thread::sleep(LOOK);
            for (sums, role) in sums.iter_mut().zip(["host", "anchor"]) {
                let status = stage.status(role).unwrap();
                for (sums, name) in sums.iter_mut().zip(["wifi", "lte"]) {
                    let said = path(&status, name);
                    let now = ["owl_up", "owl_down"].map(|key| said[key][0].as_f64().unwrap());
                    sums.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
                }
            }
            looks += 1.0;
        }
        let downs = path(&stage.status("host").unwrap(), "wifi")["transitions"].as_u64().unwrap();
        assert!(downs > 10, "{downs}: it is not called down");
        for (sums, role) in sums.iter().zip(["host", "anchor"]) {
            for (way, loss) in sums.iter().zip(loss) {
                let means = way.map(|sum| sum / looks);
                // At least half of the probes arrive while the path is up, and there are fewer responses than requests.
                let probes = LOOKED.as_millis() as f64 / HASTY.1 as f64 / 2.0 * (1.0 - loss);
                let most = 4.0 * (loss * (1.0 - loss) / probes).sqrt();
                println!(
                    "{datapath}, {role}: {means:.3?}, true {loss} ± {most:.3}, {downs} changes"
                );
                assert!(means.iter().all(|mean| (mean - loss).abs() < most), "{means:?}");
            }
        }
    });
}
