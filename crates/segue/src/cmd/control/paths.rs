//! `segue paths`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use segue_daemon::control::{PathStatus, TunnelStatus};
use segue_text::terminal::Tone;
use segue_text::terminal::layout::{self, Column, Table};

use super::which::{Paper, Which};

/// Show the paths of a running daemon: state, round-trip time, loss.
#[derive(clap::Args)]
pub struct PathsArgs {
    #[command(flatten)]
    which: Which,
    /// Add how each path is probed and why, and both its ends
    #[arg(long)]
    why: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const COLUMNS: [Column; 6] = [
    Column::left("path", 12),
    Column::left("state", 9),
    Column::right("rtt", 11),
    Column::right("loss up", 9),
    Column::right("loss down", 9),
    Column::left("in use", 0).apart(),
];

/// Runs `segue paths`.
pub fn paths(args: PathsArgs) -> anyhow::Result<ExitCode> {
    let status = args.which.status(u64::MAX)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status.body.paths)?);
    } else {
        let lines = lines(&status.body, args.why, Paper::output());
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Round trip in milliseconds (the first average) and losses in percent, for a table.
pub fn path_figures(path: &PathStatus) -> [String; 3] {
    let percent =
        |loss: &[f64]| loss.first().map_or_else(|| "-".into(), |p| format!("{:.2} %", p * 100.0));
    let rtt = path.rtt_ms.first().map_or_else(|| "-".into(), |ms| format!("{ms:.2} ms"));
    [rtt, percent(&path.owl_up), percent(&path.owl_down)]
}

/// The paths as a table. `why` adds the reason for each path's probing.
pub(super) fn lines(status: &TunnelStatus, why: bool, paper: Paper) -> Vec<String> {
    let (paths, mut table) = (&status.paths, Table::new(&COLUMNS));
    for path in paths {
        table.row(row(path, &status.classes, paper));
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

fn row(path: &PathStatus, classes: &BTreeMap<String, String>, paper: Paper) -> Vec<String> {
    let name = if path.host.is_empty() {
        path.name.clone()
    } else {
        format!("{}/{}", path.host, path.name)
    };
    let [rtt, up, down] = path_figures(path);
    let state = match path.state == "up" && !path.downlink {
        true => paper.colours.paint(Tone::Bad, "one-way"),
        false => paper.colours.state(path.shown_state()),
    };
    vec![name, state, rtt, up, down, use_of(path, classes)]
}

/// The classes of flows that use a path, or the path that carries its packets instead.
fn use_of(path: &PathStatus, classes: &BTreeMap<String, String>) -> String {
    if let Some(via) = &path.via {
        return format!("via {via}");
    }
    let own =
        classes.iter().filter(|(_, used)| **used == path.name).map(|(class, _)| class.as_str());
    let own: Vec<&str> = own.collect();
    match own.len() {
        0 => "-".into(),
        n if n == classes.len() => "all".into(),
        _ => own.join(", "),
    }
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
        "    to {}; downlink {}; K {}, T_KA {:.0} ms, T_Rmax {:.0} ms; probes: {} alone, {} on data",
        path.remote.as_deref().unwrap_or("-"),
        if path.downlink { "works" } else { "dead" },
        path.k,
        path.t_ka_ms,
        path.bound_ms,
        path.probes_alone,
        path.probes_rode
    )];
    said.push(format!(
        "    mode {}, packets {}; last round trip good to {:.3} ms",
        path.mode, path.encapsulation, path.uncertainty_ms
    ));
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
        let classes = [("bulk", "wifi"), ("voice", "lte")];
        let status = TunnelStatus {
            paths: vec![path],
            classes: classes.map(|(class, path)| (class.to_owned(), path.to_owned())).into(),
            ..TunnelStatus::default()
        };
        let lay = |why, room| lines(&status, why, Paper { room, colours: Colours::NONE });
        let table = [
            "path         state             rtt   loss up loss down  in use",
            "wifi         in doubt     22.25 ms    0.53 %    0.63 %  bulk",
        ];
        assert_eq!(lay(false, usize::MAX), table);
        assert_eq!(lay(false, 80), table);
        assert_eq!(
            lay(false, 40),
            [
                "wifi  state in doubt  rtt 22.25 ms",
                "  loss up 0.53 %  loss down 0.63 %",
                "  in use bulk"
            ]
        );
        let explained = lay(true, 80);
        assert!(explained.iter().all(|line| line.len() <= 80), "{explained:#?}");
        let explained = explained.join(" ");
        for part in ["10.61.9.2:5005", "K 4, T_KA 250 ms", "T_Rmax 239 ms", "7 alone, 30 on"] {
            assert!(explained.contains(part), "{part}: {explained}");
        }
    }
}
