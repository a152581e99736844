//! Section 5.3 of paper 1: probes that ride on data packets save the air time of separate packets.

use std::time::Duration;

use anyhow::Context;
use segue_clock::Span;
use segue_daemon::control::{Status, Tunnels};
use segue_demo::traffic::Traffic;
use segue_keepalive::Config;
use segue_linux::clock::monotonic;
use segue_wire::{Header, Probe};

use super::experiment::{DataTable, Experiment, Line, Needs, Outcome, SALSANO, Stage, header, row};
use super::tracking::{self, Over};
use super::tunnel::Tunnel;

/// The paper's figure for 802.11b at 11 Mbit/s: a packet with 24 bytes of data occupies the air for 800 µs.
const PACKET_US: f64 = 800.0;
const PAPER_BYTES: f64 = 24.0;
const US_PER_BYTE: f64 = 8.0 / 11.0;
const T_KA_MS: u64 = 200;
const RTT_MS: u64 = 40;
/// Time until the flow is bound and probes ride on its packets.
const SETTLE: Span = Span::from_secs(2);
const LENGTH: Span = Span::from_secs(10);

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "salsano-active-pb",
        paper: SALSANO,
        title: "Air time that probes save by riding on data",
        takes: Duration::from_secs(18),
        needs: Needs::Daemons,
        run,
    }]
}

/// Probes in both directions on the flow's path.
#[derive(Clone, Copy, Default)]
struct Probes {
    sent: [u64; 2],
    rode: [u64; 2],
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let config = Config { rides: true, ..tracking::config(Over::Tunnel, T_KA_MS, &[(1.0, 1.0)]) };
    let tunnel = Tunnel::start(stage, "activepb", Over::Tunnel.level(RTT_MS), &config)?;
    let daemons = tunnel.daemons();
    let traffic = Traffic::voice_alone(&daemons.ends()?, monotonic())?;
    let looks = || -> anyhow::Result<[[Status<Tunnels>; 2]; 2]> {
        let look = || {
            let status = |role| daemons.status(role, u64::MAX);
            anyhow::Ok([status("host")?, status("anchor")?])
        };
        wait(stage, SETTLE)?;
        let before = look()?;
        wait(stage, LENGTH)?;
        anyhow::Ok([before, look()?])
    };
    let looks = looks();
    let seen = traffic.stop();
    let [before, after] = looks?;
    let path = busiest(&before[0], &after[0]).context("the flow used no path")?;
    let [old, new] = [&before, &after].map(|statuses| Probes::of(statuses, &path));
    let probes = new.since(old);
    let arrived = [&seen.up, &seen.down].map(|way| way.received.len());
    Ok(outcome(probes, &path, &after[0].body.datapath, arrived))
}

fn wait(stage: &Stage, span: Span) -> anyhow::Result<()> {
    let end = monotonic() + span;
    while monotonic() < end {
        stage.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The path that sent the most packets.
fn busiest(before: &Status<Tunnels>, after: &Status<Tunnels>) -> Option<String> {
    let sent = |status: &Status<Tunnels>, name: &str| {
        status.body.paths.iter().find(|path| path.name == name).map_or(0, |path| path.tx_packets)
    };
    let names = after.body.paths.iter().map(|path| path.name.clone());
    names.max_by_key(|name| sent(after, name).saturating_sub(sent(before, name)))
}

impl Probes {
    fn of(statuses: &[Status<Tunnels>; 2], name: &str) -> Probes {
        let mut probes = Probes::default();
        for (way, status) in statuses.iter().enumerate() {
            if let Some(path) = status.body.paths.iter().find(|path| path.name == name) {
                (probes.sent[way], probes.rode[way]) = (path.probes_sent, path.probes_rode);
            }
        }
        probes
    }

    fn since(self, old: Probes) -> Probes {
        let less = |new: [u64; 2], old: [u64; 2]| [0, 1].map(|i| new[i].saturating_sub(old[i]));
        Probes { sent: less(self.sent, old.sent), rode: less(self.rode, old.rode) }
    }
}

fn outcome(probes: Probes, path: &str, datapath: &str, arrived: [usize; 2]) -> Outcome {
    let (sent, rode) = (probes.sent.iter().sum::<u64>(), probes.rode.iter().sum::<u64>());
    let alone_us = PACKET_US + (Probe::PACKET_LEN as f64 - PAPER_BYTES) * US_PER_BYTE;
    let riding_us = (Probe::PACKET_LEN - Header::LEN) as f64 * US_PER_BYTE;
    let all_us = sent as f64 * alone_us;
    let took_us = rode as f64 * riding_us + sent.saturating_sub(rode) as f64 * alone_us;
    let saving = 100.0 * (1.0 - took_us / all_us);
    let most = 100.0 * (1.0 - riding_us / alone_us);
    let way = |i: usize| format!("{} of {}", probes.rode[i], probes.sent[i]);
    let mut lines = vec![Line::new(
        "probes that rode on a call of 50 packets a second",
        "all that find a packet within T_KA",
        format!("requests: {}, responses: {}", way(0), way(1)),
    )];
    let line = |here| {
        Line::new("air time saved of what probes need", "98 % (17 of 800 µs for 24 bytes)", here)
    };
    lines.push(match sent {
        0 => line("no probe was sent".into()),
        _ => line(format!("{saving:.1} % (all riding: {most:.1} %)")).within(
            saving,
            95.0..=99.0,
            "%",
        ),
    });
    Outcome {
        figures: Vec::new(),
        tables: vec![DataTable {
            caption: "Probes of each direction, and air time of one in 802.11b".into(),
            header: header(&["direction", "sent", "rode", "alone, µs", "riding, µs"]),
            rows: ["requests", "responses"]
                .iter()
                .enumerate()
                .map(|(i, name)| {
                    let [alone, riding] = [alone_us, riding_us].map(|us| format!("{us:.0}"));
                    row([name, &probes.sent[i], &probes.rode[i], &alone, &riding])
                })
                .collect(),
        }],
        lines,
        conditions: format!(
            "Host and anchor daemons (datapath {datapath}), path {path} with a call of 160 bytes every 20 ms in both \
             directions ({} and {} packets arrived), T_KA = {T_KA_MS} ms, RTT {RTT_MS} ms, counted for {} s. {}The \
             air time is computed, as the paper's: {PACKET_US:.0} µs for a packet with {PAPER_BYTES:.0} bytes of \
             data and 8/11 µs for each byte more. A probe of its own has {} bytes of data; one that rides adds \
             {}, where the paper's has 24 bytes and no authenticator.",
            arrived[0],
            arrived[1],
            LENGTH.as_secs_f64(),
            Over::Tunnel.conditions(),
            Probe::PACKET_LEN,
            Probe::PACKET_LEN - Header::LEN,
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let lines =
            |rode| outcome(Probes { sent: [50; 2], rode: [rode; 2] }, "", "", [500; 2]).lines;
        vec![TenTimesOff { id: "salsano-active-pb", right: lines(50), wrong: vec![lines(5)] }]
    }
}
