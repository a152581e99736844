//! `segue paths`.

use std::process::ExitCode;

use segue_daemon::control::PathStatus;
use segue_text::terminal::Tone;
use segue_text::terminal::layout::{self, Column, Table};

use super::which::{Paper, Which};

/// Show the paths of a running daemon: state, round-trip time, loss.
#[derive(clap::Args)]
pub struct PathsArgs {
    #[command(flatten)]
    which: Which,
    /// Explain how each path is probed
    #[arg(long)]
    why: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const COLUMNS: [Column; 12] = [
    Column::left("path", 20),
    Column::left("state", 9),
    Column::left("downlink", 8),
    Column::right("rtt", 11),
    Column::right("loss up", 9),
    Column::right("loss dn", 9),
    Column::right("K", 3),
    Column::right("T_KA", 7),
    Column::right("T_Rmax", 8),
    Column::right("alone", 8),
    Column::right("rode", 8),
    Column::left("to", 0).apart(),
];

/// Runs `segue paths`.
pub fn paths(args: PathsArgs) -> anyhow::Result<ExitCode> {
    let status = args.which.status(u64::MAX)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status.body.paths)?);
    } else {
        let lines = lines(&status.body.paths, args.why, Paper::output());
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Milliseconds of the first average, and losses as percent, for a table.
pub fn path_figures(path: &PathStatus) -> [String; 3] {
    let percent =
        |loss: &[f64]| loss.first().map_or_else(|| "-".into(), |p| format!("{:.2} %", p * 100.0));
    let rtt = path.rtt_ms.first().map_or_else(|| "-".into(), |ms| format!("{ms:.2} ms"));
    [rtt, percent(&path.owl_up), percent(&path.owl_down)]
}

/// The paths as a table; `why` adds why each is probed as it is.
pub(super) fn lines(paths: &[PathStatus], why: bool, paper: Paper) -> Vec<String> {
    let mut table = Table::new(&COLUMNS);
    for path in paths {
        table.row(row(path, paper));
    }
    let laid = table.lay(paper.room);
    let mut lines: Vec<String> = laid.head.into_iter().collect();
    for (path, row) in paths.iter().zip(laid.rows) {
        lines.extend(row);
        if why {
            lines.extend(reasons(path).iter().flat_map(|line| layout::sentence(line, paper.room)));
        }
    }
    lines
}

fn row(path: &PathStatus, paper: Paper) -> Vec<String> {
    let name = if path.host.is_empty() {
        path.name.clone()
    } else {
        format!("{}/{}", path.host, path.name)
    };
    let [rtt, up, down] = path_figures(path);
    let heard =
        if path.downlink { "works".to_owned() } else { paper.colours.paint(Tone::Bad, "dead") };
    let via = path.via.as_ref().map(|via| format!(" (via {via})")).unwrap_or_default();
    vec![
        name,
        paper.colours.state(path.shown_state()),
        heard,
        rtt,
        up,
        down,
        path.k.to_string(),
        format!("{:.0} ms", path.t_ka_ms),
        format!("{:.0} ms", path.bound_ms),
        path.probes_alone.to_string(),
        path.probes_rode.to_string(),
        format!("{}{via}", path.remote.as_deref().unwrap_or("-")),
    ]
}

/// Which address a host's path sends from, and why.
pub(super) fn source(path: &PathStatus) -> Option<String> {
    let local = path.local.as_ref()?;
    let why = match path.source.as_str() {
        "configured" => "as configured",
        "preferred" => "which the routes prefer",
        "tried" => "since preferred addresses were not answered",
        _ => return None,
    };
    Some(format!("sends from {local}, {why}"))
}

fn reasons(path: &PathStatus) -> Vec<String> {
    let mut said = vec![format!(
        "    mode {}, packets {}; last round trip good to {:.3} ms",
        path.mode, path.encapsulation, path.uncertainty_ms
    )];
    said.extend(source(path).map(|line| format!("    {line}")));
    if path.checksums {
        said.push(
            "    data have UDP checksums: a translator (NAT64, 464XLAT) is on the way, or may be"
                .into(),
        );
    }
    match &path.why {
        Some(why) => {
            said.push(format!("    {:.0} s ago, {}", why.changed_s, why.text));
            let from = if why.active { "the first packet lost" } else { "an outage" };
            said.push(format!(
                "    down {:.0} ms after {from} on average; doubts so far: {}",
                why.detection_ms, path.doubts
            ));
        }
        None => said.push("    K and T_KA are fixed, or the path has not been up yet".into()),
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_text::terminal::Colours;

    #[test]
    fn a_path_has_one_line_where_there_is_room_and_loses_nothing_where_there_is_none() {
        let path = PathStatus {
            name: "wifi".into(),
            state: "up".into(),
            in_doubt: true,
            downlink: true,
            k: 4,
            t_ka_ms: 250.0,
            bound_ms: 239.0,
            rtt_ms: vec![22.25],
            owl_up: vec![0.0053],
            owl_down: vec![0.0063],
            probes_alone: 7,
            probes_rode: 30,
            remote: Some("10.61.9.2:5005".into()),
            ..PathStatus::default()
        };
        let lay = |room| {
            lines(std::slice::from_ref(&path), false, Paper { room, colours: Colours::NONE })
        };
        assert_eq!(
            lay(usize::MAX),
            [
                "path                 state     downlink         rtt   loss up   loss dn   K    T_KA   T_Rmax    alone     rode  to",
                "wifi                 in doubt  works       22.25 ms    0.53 %    0.63 %   4  250 ms   239 ms        7       30  10.61.9.2:5005",
            ]
        );
        assert_eq!(
            lay(79),
            [
                "wifi  state in doubt  downlink works  rtt 22.25 ms  loss up 0.53 %",
                "  loss dn 0.63 %  K 4  T_KA 250 ms  T_Rmax 239 ms  alone 7  rode 30",
                "  to 10.61.9.2:5005",
            ]
        );
    }
}
