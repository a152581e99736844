//! Section IV of paper 3: the cost of forwarding a packet by its flow, and the time that a flow is interrupted when its
//! access goes down (Table 2, Fig. 7 to 12, Table 4).
//!
//! Packets carry a number, and programs on the devices on both sides of a node timestamp them
//! ([`segue_bench::passage`]). This measures the time in the node from outside, regardless of how the node forwards
//! packets. Fig. 7 and 8 compare ways to find a packet's flow, in a node built for this purpose ([`node`],
//! [`classifier`]); Fig. 9 to 12 run the daemons of a Proxy Mobile IPv6 domain ([`domain`]).

mod attach;
mod classifier;
mod domain;
mod fig10;
mod fig11;
mod fig12;
mod fig7;
mod fig8;
mod fig9;
mod figures;
mod frames;
mod moved;
mod node;
mod packets;
mod relay;
mod steady;
mod table2;
mod table4;

use std::time::Duration;

use super::experiment::{ALVES, Experiment, Found, Needs, Outcome, Stage};

/// Runs an experiment.
type Run = fn(&Stage) -> anyhow::Result<Outcome>;

/// The experiments of the figures.
const FIGURES: [(&str, Run); 6] = [
    ("alves-fig7", fig7::run),
    ("alves-fig8", fig8::run),
    ("alves-fig9", fig9::run),
    ("alves-fig10", fig10::run),
    ("alves-fig11", fig11::run),
    ("alves-fig12", fig12::run),
];

/// Table 2, Fig. 7 to 12, and Table 4, which sums up the figures.
pub(crate) fn experiments() -> Vec<Experiment> {
    let of = |id, title, seconds, run| Experiment {
        id,
        paper: ALVES,
        title,
        takes: Duration::from_secs(seconds),
        needs: Needs::Processor,
        run,
    };
    vec![
        of("alves-table2", "The testbed, and whether the daemons fit its routers", 8, table2::run),
        of("alves-fig7", "Time in the node against number of rules", 150, |s| figure(s, 0)),
        of("alves-fig8", "Time to add a rule against number of rules", 90, |s| figure(s, 1)),
        of("alves-fig9", "Time in the LMA of a flow's first packets", 60, |s| figure(s, 2)),
        of("alves-fig10", "Time in LMA and MAG", 100, |s| figure(s, 3)),
        of("alves-fig11", "Time in LMA and MAG with and without flow mobility", 120, |s| {
            figure(s, 4)
        }),
        of("alves-fig12", "Handover delay of a flow, and attaching step by step", 130, |s| {
            figure(s, 5)
        }),
        of("alves-table4", "Main results of Fig. 7 to 12", 5, table4),
    ]
}

/// Runs a figure's experiment, and keeps its lines for the table that sums up all figures.
fn figure(stage: &Stage, place: usize) -> anyhow::Result<Outcome> {
    run_figure(stage, place, true)
}

fn run_figure(stage: &Stage, place: usize, on_page: bool) -> anyhow::Result<Outcome> {
    let (id, run) = FIGURES[place];
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "programs that stamp packets need root");
    let outcome = run(stage)?;
    if let Ok(mut found) = stage.found.lock() {
        found.insert(id, Found { lines: outcome.lines.clone(), on_page });
    }
    Ok(outcome)
}

fn table4(stage: &Stage) -> anyhow::Result<Outcome> {
    for (place, (id, _)) in FIGURES.iter().enumerate() {
        let known = stage.found.lock().is_ok_and(|found| found.contains_key(id));
        if !known {
            run_figure(stage, place, false)?;
        }
    }
    let found = stage.found.lock().map(|found| found.clone()).unwrap_or_default();
    Ok(table4::outcome(&found))
}

#[cfg(test)]
pub(crate) fn ten_times_off() -> Vec<super::experiment::TenTimesOff> {
    vec![
        table2::tests::ten_times_off(),
        fig7::tests::ten_times_off(),
        fig8::tests::ten_times_off(),
        fig9::tests::ten_times_off(),
        fig10::tests::ten_times_off(),
        fig11::tests::ten_times_off(),
        fig12::tests::ten_times_off(),
        table4::tests::ten_times_off(),
    ]
}
