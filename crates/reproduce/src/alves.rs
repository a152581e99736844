//! Section IV of paper 3: what it costs to find a packet's way by its flow, and how long a flow is away when its access
//! goes (Fig. 7 to 12, Table 4).
//!
//! Packets carry a number, and programs on the devices on both sides of a node stamp them ([`segue_bench::passage`]): the
//! time in the node is measured from outside, whatever forwards them. Fig. 7 and 8 compare ways to find the flow in a node
//! built for that ([`node`], [`classifier`]); Fig. 9 to 12 run the daemons of a domain of Proxy Mobile IPv6 ([`domain`]).

mod classifier;
mod domain;
mod fig10;
mod fig11;
mod fig7;
mod fig8;
mod fig9;
mod figures;
mod node;
mod packets;
mod relay;
mod steady;

use std::time::Duration;

use super::experiment::{ALVES, Experiment, Needs, Outcome, Stage};

/// Fig. 7 to 12, then Table 4, which sums them up.
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
        of("alves-fig7", "Time in the node against number of rules", 150, fig7),
        of("alves-fig8", "Time to add a rule against number of rules", 120, fig8),
        of("alves-fig9", "Time in the anchor of the first packets of flows", 50, fig9),
        of("alves-fig10", "Time in anchor and gateway", 100, fig10),
        of("alves-fig11", "Time in anchor and gateway with and without flow mobility", 100, fig11),
    ]
}

/// Keeps what an experiment found, for the table that sums all up.
fn kept(id: &'static str, stage: &Stage, run: fn(&Stage) -> anyhow::Result<Outcome>) -> anyhow::Result<Outcome> {
    let outcome = run(stage)?;
    if let Ok(mut found) = stage.found.lock() {
        found.insert(id, outcome.lines.clone());
    }
    Ok(outcome)
}

fn fig7(stage: &Stage) -> anyhow::Result<Outcome> {
    kept("alves-fig7", stage, fig7::run)
}

fn fig8(stage: &Stage) -> anyhow::Result<Outcome> {
    kept("alves-fig8", stage, fig8::run)
}

fn fig9(stage: &Stage) -> anyhow::Result<Outcome> {
    kept("alves-fig9", stage, fig9::run)
}

fn fig10(stage: &Stage) -> anyhow::Result<Outcome> {
    kept("alves-fig10", stage, fig10::run)
}

fn fig11(stage: &Stage) -> anyhow::Result<Outcome> {
    kept("alves-fig11", stage, fig11::run)
}
