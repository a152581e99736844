//! Table 2: the hardware of the paper's testbed, our counterpart, and whether our software would fit.

use std::collections::BTreeMap;

use anyhow::Context;

use super::domain::{Domain, FIRST, SECOND};
use crate::experiment::{DataTable, Line, Outcome, Stage, digits, header, row};
use crate::memory;

/// A node of the testbed: its row in the table, and our daemons that run on it.
struct Node {
    function: &'static str,
    paper: &'static str,
    memory: &'static str,
    /// Its memory in MB, as a bar, if memory is scarce.
    fits_mb: Option<f64>,
    daemons: &'static [&'static str],
}

/// Nodes that run daemons of Segue. A router in the paper has two gateways, one IEEE 802.21 function and two service
/// access points.
const NODES: [Node; 2] = [
    Node {
        function: "MAG",
        paper: "TP-Link WDR4300, Atheros AR9344 of 560 MHz, OpenWrt 12.09",
        memory: "128 MB",
        fits_mb: Some(128.0),
        daemons: &["wlan1", "lte1", "function-left", "sap-wlan1", "sap-lte1"],
    },
    Node {
        function: "LMA",
        paper: "two Intel E5335 of 2 GHz, CentOS 7",
        memory: "4 GB",
        fits_mb: None,
        daemons: &["lma"],
    },
];
/// Nodes without daemons of Segue.
const STOCK: [[&str; 3]; 2] = [
    ["CN", "Intel P4 of 2.4 GHz, CentOS 6.5", "942 MB"],
    ["Client/MN", "Intel 3537, LMDE, two Wi-Fi dongles", "4 GB"],
];

/// Memory that a node's daemons use, in MB.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Sum of the memory that each daemon uses alone.
    own: f64,
    /// The program's code and other files, counted once.
    text: f64,
    /// BPF maps in the kernel.
    maps: f64,
}

impl Taken {
    fn all(self) -> f64 {
        self.own + self.text + self.maps
    }
}

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let mut domain = Domain::of_two_nodes(stage)?;
    for access in [&FIRST, &SECOND] {
        domain.attach(stage, access)?;
    }
    let taken =
        NODES.iter().map(|node| taken(&domain, node)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(outcome(&taken))
}

fn taken(domain: &Domain, node: &Node) -> anyhow::Result<Taken> {
    let (mut own, mut shared, mut maps) = (0, 0, BTreeMap::new());
    for name in node.daemons {
        let process = domain.processes().find(|(daemon, _)| daemon == name);
        let (_, process) = process.with_context(|| format!("no daemon {name} runs"))?;
        let resident = memory::resident(process)?;
        own += resident.own;
        shared = resident.shared.max(shared);
        maps.extend(memory::maps(&process.to_string())?);
    }
    let [own, text, maps] = [own, shared, maps.values().sum()].map(|bytes: u64| bytes as f64 / 1e6);
    Ok(Taken { own, text, maps })
}

fn outcome(taken: &[Taken]) -> Outcome {
    let own = NODES.iter().zip(taken).map(|(node, taken)| {
        let count = node.daemons.len();
        let daemons = if count == 1 { "a daemon".to_owned() } else { format!("{count} daemons") };
        let here = format!("a namespace with {daemons}");
        row([
            &node.function,
            &node.paper,
            &node.memory,
            &here,
            &digits(taken.own),
            &digits(taken.text),
            &digits(taken.maps),
        ])
    });
    let stock = STOCK.iter().map(|[function, paper, memory]| {
        row([function, paper, memory, &"a namespace without a daemon", &"–", &"–", &"–"])
    });
    Outcome {
        figures: Vec::new(),
        tables: vec![DataTable {
            caption: "The testbed, and what stands for it here".into(),
            header: header(&[
                "function",
                "paper's hardware",
                "its RAM",
                "here",
                "own memory, MB",
                "text, MB",
                "maps, MB",
            ]),
            rows: own.chain(stock).collect(),
        }],
        lines: lines(taken),
        conditions: "All nodes are namespaces on this machine, which is described at the top of the page; accesses are \
                     emulated, where the paper has Wi-Fi of 2.4 and 5 GHz. The text of the program counts once a node, since \
                     its processes share it; a build with debug information has several times as much. Maps are those of the \
                     relay's programs in the kernel."
            .into(),
    }
}

fn lines(taken: &[Taken]) -> Vec<Line> {
    let each = NODES.iter().zip(taken).map(|(node, taken)| {
        let line = Line::new(
            format!("memory of the daemons at the {}'s node", node.function),
            format!("{} of RAM", node.memory),
            format!("{} MB", digits(taken.all())),
        );
        match node.fits_mb {
            Some(most) => line.at_most(taken.all(), most, "MB"),
            None => line,
        }
    });
    each.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |own: f64| lines(&[Taken { own, text: 20.0, maps: 14.0 }; NODES.len()]);
        TenTimesOff { id: "alves-table2", right: lines(20.0), wrong: vec![lines(200.0)] }
    }
}
