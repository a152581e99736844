//! `segue flows`.

use std::cmp::Reverse;
use std::process::ExitCode;

use anyhow::bail;
use segue_daemon::control::{self, Any, FlowStatus, Status, tunnels};
use segue_daemon::pmip::lma;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::{self, Column, Table};
use segue_text::units;

use super::status::pmip;
use super::which::{Paper, Which};

/// Show the flows of a running daemon, and the path of each.
#[derive(clap::Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    which: Which,
    /// Explain why each flow is on its path
    #[arg(long)]
    why: bool,
    /// Only the flows of this host, at an anchor by its name, at a local mobility anchor by its identity (MN-ID)
    #[arg(long)]
    host: Option<String>,
    /// Order of the flows
    #[arg(long, value_enum, default_value = "busy")]
    sort: Sort,
    /// Show at most N flows [default: what fits on the terminal, elsewhere all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Print JSON: all flows, unordered
    #[arg(long, conflicts_with_all = ["sort", "limit"])]
    json: bool,
}

/// An order of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// Those used in the last ten seconds, most bytes first; then the others, last used first
    Busy,
    /// Last used first
    Used,
    /// Most bytes first
    Bytes,
}

/// A flow without packets for longer than this is not busy.
const BUSY_MS: f64 = 10_000.0;

const COLUMNS: [Column; 8] = [
    Column::left("flow", 48),
    Column::left("class", 11).apart(),
    Column::left("path", 6).apart(),
    Column::right("sent", 7).apart(),
    Column::right("", 9),
    Column::right("received", 8).apart(),
    Column::right("", 9),
    Column::right("idle", 7).apart(),
];

/// How a role shows flows that its status holds.
pub(crate) type Shows = fn(&FlowsArgs, Status<Any>) -> anyhow::Result<ExitCode>;

/// Runs `segue flows`. `shows` finds how a role shows flows that only its status holds.
pub(super) fn flows(args: FlowsArgs, shows: fn(&str) -> Option<Shows>) -> anyhow::Result<ExitCode> {
    let (socket, mut flows) = (args.which.socket()?, Vec::new());
    let asked = tunnels::flows(&socket, args.host.as_deref(), |page| {
        flows.extend(page);
        Ok(())
    });
    if let Err(error) = asked {
        let Ok(status) = control::status::<Any>(&socket, u64::MAX) else { return Err(error) };
        let Some(show) = shows(&status.head.role) else { return Err(error) };
        return show(&args, status);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&flows)?);
        return Ok(ExitCode::SUCCESS);
    }
    sort(&mut flows, args.sort);
    let limit = Limit::of(args.limit);
    lines(&flows, limit, args.why, Paper::output()).iter().for_each(|line| println!("{line}"));
    Ok(ExitCode::SUCCESS)
}

/// Prints the flows that a local mobility anchor sends to gateways, those with most packets first.
pub(crate) fn to_gateways(args: &FlowsArgs, status: Status<Any>) -> anyhow::Result<ExitCode> {
    let status: lma::LmaStatus = serde_json::from_value(status.body.into())?;
    if args.sort != Sort::Busy {
        bail!(
            "--sort is for hosts and anchors of tunnels; here those with most packets come first"
        );
    }
    let is_wanted =
        |flow: &&lma::FlowStatus| args.host.as_ref().is_none_or(|host| *host == flow.mn_id);
    let mut flows: Vec<&lma::FlowStatus> = status.flows.iter().filter(is_wanted).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&flows)?);
        return Ok(ExitCode::SUCCESS);
    }
    if flows.is_empty() {
        println!("no flows");
        return Ok(ExitCode::SUCCESS);
    }
    flows.sort_by_key(|flow| Reverse(flow.packets));
    // Flows that do not fit into the status may belong to any host.
    let all = flows.len() + status.flow_count.saturating_sub(status.flows.len());
    let (Limit::Flows(most) | Limit::Lines(most)) = Limit::of(args.limit);
    flows.truncate(most.max(1));
    let paper = Paper::output();
    let lines = pmip::flows(&flows, &status, (all, "--limit N"), args.why, paper);
    lines.iter().for_each(|line| println!("{line}"));
    Ok(ExitCode::SUCCESS)
}

fn sort(flows: &mut [FlowStatus], by: Sort) {
    // Milliseconds are exact enough for sorting.
    let idle = |flow: &FlowStatus| flow.idle_ms as u64;
    match by {
        Sort::Busy => flows.sort_by_key(|flow| match flow.idle_ms < BUSY_MS {
            true => (0, Reverse(flow.bytes)),
            false => (idle(flow), Reverse(0)),
        }),
        Sort::Used => flows.sort_by_key(idle),
        Sort::Bytes => flows.sort_by_key(|flow| Reverse(flow.bytes)),
    }
}

/// How many flows are shown.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Flows(usize),
    /// As many flows as fit into this many lines, but at least one.
    Lines(usize),
}

impl Limit {
    /// The limit that the operator asked for, else as many as fit on the screen.
    fn of(wanted: Option<u32>) -> Limit {
        match (wanted, Stream::Output.size()) {
            (Some(limit), _) => Limit::Flows(limit as usize),
            // The heading, the last line and the following prompt take a line each.
            (None, Some(size)) => Limit::Lines(size.rows.saturating_sub(3)),
            (None, None) => Limit::Flows(usize::MAX),
        }
    }
}

/// The first flows as a table, and how many are left out. `why` adds the reason for each flow's path.
fn lines(flows: &[FlowStatus], limit: Limit, why: bool, paper: Paper) -> Vec<String> {
    if flows.is_empty() {
        return vec!["no flows".into()];
    }
    let (Limit::Flows(most) | Limit::Lines(most)) = limit;
    let candidates = &flows[..most.clamp(1, flows.len())];
    let mut table = Table::new(&COLUMNS);
    candidates.iter().for_each(|flow| table.row(row(flow)));
    let laid = table.lay(paper.room);
    let mut lines: Vec<String> = laid.head.into_iter().collect();
    let (mut shown, mut used) = (0, 0);
    for (flow, mut told) in candidates.iter().zip(laid.rows) {
        if why {
            told.extend(layout::sentence(&format!("    {}", flow.why), paper.room));
        }
        used += told.len();
        if matches!(limit, Limit::Lines(room) if used > room && shown > 0) {
            break;
        }
        lines.extend(told);
        shown += 1;
    }
    let out = flows.len() - shown;
    if out > 0 {
        lines.push(format!("and {out} more (--limit N)"));
    }
    lines
}

fn row(flow: &FlowStatus) -> Vec<String> {
    let via = flow.via.as_ref().map(|via| format!(" via {via}")).unwrap_or_default();
    let pinned = if flow.pinned { " (pinned)" } else { "" };
    vec![
        flow.flow.clone(),
        flow.class.as_deref().unwrap_or("-").to_owned(),
        format!("{}{via}{pinned}", flow.path),
        flow.packets.to_string(),
        format!("({})", units::bytes(flow.bytes)),
        flow.received_packets.to_string(),
        format!("({})", units::bytes(flow.received_bytes)),
        format!("{:.1} s", flow.idle_ms / 1e3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_text::terminal::Colours;

    fn flow(port: u16, bytes: u64, idle_ms: f64) -> FlowStatus {
        FlowStatus {
            flow: format!("udp 10.77.0.2:{port} > 10.61.10.2:5060"),
            class: Some("voice".into()),
            path: "wifi".into(),
            via: None,
            pinned: false,
            packets: 246,
            bytes,
            received_packets: 1_204,
            received_bytes: 1_500_000,
            idle_ms,
            why: "the best path at the start".into(),
        }
    }

    fn ports(flows: &[FlowStatus]) -> Vec<u16> {
        let port = |flow: &FlowStatus| flow.flow[14..].split(' ').next()?.parse().ok();
        flows.iter().filter_map(port).collect()
    }

    #[test]
    fn busy_flows_come_before_large_ones_of_long_ago() {
        let mut flows = vec![
            flow(1, 9_000, 60_000.0),
            flow(2, 10, 0.0),
            flow(3, 500, 9_999.0),
            flow(4, 1_000_000, 10_000.0),
        ];
        for (by, wanted) in
            [(Sort::Busy, [3, 2, 4, 1]), (Sort::Used, [2, 3, 4, 1]), (Sort::Bytes, [4, 1, 3, 2])]
        {
            sort(&mut flows, by);
            assert_eq!(ports(&flows), wanted, "{by:?}");
        }
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let flows: Vec<FlowStatus> = (0..50).map(|n| flow(1_000 + n, 55_892, 0.0)).collect();
        let lay = |limit, room| lines(&flows, limit, false, Paper { room, colours: Colours::NONE });
        let wide = lay(Limit::Flows(2), 200);
        assert_eq!(
            wide,
            [
                "flow                                              class        path       sent            received               idle",
                "udp 10.77.0.2:1000 > 10.61.10.2:5060              voice        wifi        246 (55.9 kB)      1204 (1.50 MB)    0.0 s",
                "udp 10.77.0.2:1001 > 10.61.10.2:5060              voice        wifi        246 (55.9 kB)      1204 (1.50 MB)    0.0 s",
                "and 48 more (--limit N)",
            ]
        );
        let narrow = lay(Limit::Lines(5), 79);
        assert_eq!(
            narrow,
            [
                "udp 10.77.0.2:1000 > 10.61.10.2:5060  class voice  path wifi",
                "  sent 246 (55.9 kB)  received 1204 (1.50 MB)  idle 0.0 s",
                "udp 10.77.0.2:1001 > 10.61.10.2:5060  class voice  path wifi",
                "  sent 246 (55.9 kB)  received 1204 (1.50 MB)  idle 0.0 s",
                "and 48 more (--limit N)",
            ]
        );
        assert_eq!(lay(Limit::Flows(usize::MAX), 200).len(), 51);
        assert_eq!(lay(Limit::Lines(0), 200).len(), 3, "one at least");
        assert_eq!(
            lines(&[], Limit::Lines(5), true, Paper { room: 79, colours: Colours::NONE }),
            ["no flows"]
        );
    }
}
