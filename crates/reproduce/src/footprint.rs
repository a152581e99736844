//! The second non-functional requirement of paper 1: a minimal memory footprint, i.e. little state for each monitored
//! interface or remote end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use segue_datapath::ebpf::Ebpf;
use segue_datapath::{Role, Setup};
use segue_lab::Lab;
use segue_wire::TUNNEL_PORT;

use super::experiment::{DataTable, Experiment, Line, Needs, Outcome, SALSANO, Stage, header, row};
use super::memory;

/// Numbers of an anchor's paths, starting with two for each of the 11 600 hosts that the paper's kernel module can
/// serve.
const PATHS: [u32; 3] = [23_200, 50_000, 100_000];
/// Maximum memory per path in bytes: 256 for the path itself, and 64 for its share of the inner address table.
const MOST: f64 = 320.0;
/// State per path at the paper's server: Ss, Rs, Ss_last, Rc_last, and one variable per average, of the RTT and of both
/// losses (sections 4.1 and 4.2).
const VARIABLES: u32 = 7;

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "salsano-memory",
        paper: SALSANO,
        title: "Memory of a monitored path in the kernel",
        takes: Duration::from_secs(5),
        needs: Needs::Processor,
        run,
    }]
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "programs in the kernel need root");
    let mut found = Vec::new();
    for paths in PATHS {
        stage.check()?;
        found.push((paths, map_bytes(paths)?));
    }
    Ok(outcome(&found))
}

/// Memory of all maps of an anchor's programs, as the kernel accounts it.
fn map_bytes(max_paths: u32) -> anyhow::Result<u64> {
    let mut lab = Lab::new("memory")?;
    lab.add_node("anchor", false)?;
    lab.node("anchor")?.run(|| {
        let setup = Setup {
            tun_name: "segue0".into(),
            tun_mtu: 1456,
            port: TUNNEL_PORT,
            role: Role::Anchor,
            max_paths,
            // Flows do not belong to the memory of a path.
            max_flows: 1,
            mark: 0x5e6,
        };
        let _programs = Ebpf::new(&setup, Arc::new(|_| ())).context("the eBPF datapath")?;
        let bytes = memory::maps("self")?.values().sum();
        anyhow::ensure!(bytes > 0, "the kernel does not account for its maps");
        Ok(bytes)
    })?
}

fn of_each((paths, bytes): (u32, u64)) -> f64 {
    bytes as f64 / f64::from(paths)
}

fn outcome(found: &[(u32, u64)]) -> Outcome {
    let rows = found.iter().map(|all| {
        let (paths, bytes) = *all;
        row([&paths, &format!("{:.2}", bytes as f64 / 1e6), &format!("{:.1}", of_each(*all))])
    });
    Outcome {
        figures: Vec::new(),
        tables: vec![DataTable {
            caption: "Memory of all maps of an anchor's programs, allocated when they are loaded"
                .into(),
            header: header(&["paths", "MB", "bytes for each path"]),
            rows: rows.collect(),
        }],
        lines: lines(found),
        conditions: format!(
            "The eBPF programs of an anchor with room for {} paths and more, and for one flow, by the kernel's own account \
             (memlock) of every map. The bar is Segue's own: the paper asks for a minimum and states no number. In addition \
             to the paper's variables a path has its key, cookies and addresses, the state of its authenticated probes, two \
             averages of each quantity, the evidence of data, and room for two inner addresses.",
            PATHS[0]
        ),
    }
}

fn lines(found: &[(u32, u64)]) -> Vec<Line> {
    let Some(most) = found.last() else { return Vec::new() };
    let mut lines = vec![
        Line::new(
            format!("memory of each of {} paths", most.0),
            format!(
                "minimal; section 4 names {VARIABLES} variables at a server, {} bytes",
                4 * VARIABLES
            ),
            format!("{:.1} bytes", of_each(*most)),
        )
        .at_most(of_each(*most), MOST, "bytes"),
    ];
    if let Some(hosts) = found.first() {
        let megabytes = hosts.1 as f64 / 1e6;
        lines.push(Line::new(
            "memory for the hosts of Table 2's kernel module (11 600, two paths each)",
            "no number; the PC had 4 GB",
            format!("{megabytes:.1} MB"),
        ));
    }
    lines
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let lines = |bytes: u64| lines(&[(PATHS[0], bytes / 4), (PATHS[2], bytes)]);
        let wrong = vec![lines(297_000_000)];
        vec![TenTimesOff { id: "salsano-memory", right: lines(29_700_000), wrong }]
    }
}
