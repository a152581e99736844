//! `segue demo pmip`: network-based mobility of an unmodified host.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::settings::Choice;
use segue_demo::domain::{Domain, LTE1, LTE2, Plan, WLAN1, WLAN2};
use segue_demo::interrupt;
use segue_demo::moves::{self, Outcome};
use segue_text::say;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::{Column, Table, wrap};

/// Show how a network moves the flows of a host that changes nothing (Proxy Mobile IPv6; takes half a minute).
///
/// A stock host with two radios has a call and a download, while its accesses go, come and change. Needs root.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Datapath of anchor and gateways
    #[arg(long, value_enum, default_value = "auto")]
    datapath: Choice,
    /// Directory for the page, the result, and the daemons' files and logs
    #[arg(long, value_name = "DIR", default_value = "segue-demo-pmip")]
    out: PathBuf,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("segue demo pmip needs root: gateways send and receive below UDP");
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot write to {}", args.out.display()))?;
    let files = args.out.canonicalize()?;
    let say = |text: &str| {
        if !args.json {
            eprintln!("{}", wrap(text, Stream::Error.room()));
        }
    };
    say(
        "Building the network: correspondent, anchor, two nodes with two accesses each, a stock host with two radios.",
    );
    let interrupted = interrupt::interrupts()?;
    let check = || match interrupted.happened() {
        true => bail!("interrupted; everything has been taken down"),
        false => Ok(()),
    };
    let accesses = &[WLAN1, LTE1, WLAN2, LTE2];
    let plan = Plan {
        tag: "demo",
        accesses,
        mih: true,
        radius: true,
        paced: true,
        datapath: args.datapath,
    };
    let mut domain = Domain::start(&plan, &files, &check)?;
    say(
        "An anchor, four gateways, two MIH functions and four link SAPs run. The host attaches; a call and a download begin.",
    );
    say(if domain.has_radius() {
        "FreeRADIUS says whose its radios are."
    } else {
        "FreeRADIUS is not installed: gateways know by themselves whose its radios are."
    });
    let (outcome, seen) =
        moves::perform(&mut domain, &check, |at, what| say(&format!("{at:5.1} s  {what}")))?;
    drop(domain);
    let text = serde_json::to_string_pretty(&outcome)?;
    std::fs::write(args.out.join("result.json"), &text)?;
    moves::render(&outcome, &seen).write(&args.out, super::REPORT)?;
    if args.json {
        println!("{text}");
    } else {
        print(&outcome);
        println!("\nThe whole story with plots: {}", args.out.join(super::REPORT).display());
    }
    Ok(if outcome.holds() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Columns of the table of steps.
const STEPS: [Column; 8] = [
    Column::left("", 0),
    Column::left("anchor", 10).apart(),
    Column::right("flows", 0).apart(),
    Column::right("rebound", 0).apart(),
    Column::right("call down", 0).apart(),
    Column::right("call up", 0).apart(),
    Column::right("lost", 0).apart(),
    Column::right("download", 0).apart(),
];

fn print(outcome: &Outcome) {
    let mut table = Table::new(&STEPS);
    say!();
    for row in &outcome.steps {
        table.row(vec![
            format!("{:4.1} s  {}", row.at_s, row.what),
            row.cause.clone(),
            row.flows.to_string(),
            format!("{:.1} ms", row.rebinding_ms),
            format!("{:.0} ms", row.pause_ms[0]),
            format!("{:.0} ms", row.pause_ms[1]),
            format!("{} {}", row.lost[0], row.lost[1]),
            format!("{:.0} ms", row.download_pause_ms),
        ]);
    }
    let laid = table.lay(Stream::Output.room());
    laid.head.iter().chain(laid.rows.iter().flatten()).for_each(|line| say!("{line}"));
    let [[down, lost_down], [up, lost_up]] = outcome.call;
    say!(
        "\nrebound: from when the anchor heard of it until it sent the other way. call, download: the longest pause, of a call \
         whose packets are 20 ms apart. lost: packets of the call to the host, and from it; in all {lost_down} of {down} and {lost_up} of {up}."
    );
    say!(
        "\nThe host's address {} {}; {} connections broke; {:.1} MB were downloaded.",
        outcome.address,
        if outcome.address_kept { "stayed" } else { "was lost" },
        outcome.broken,
        outcome.bytes as f64 / 1e6
    );
    say!("{}", outcome.verdict());
}
