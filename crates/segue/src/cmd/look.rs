//! `segue status`, `paths`, `flows`, `handover` and `keepalive`: look at and steer a running daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;

use crate::control::{self, FlowStatus, PathStatus, Request, Response, Status};
use crate::daemon::events::sentence;

/// Which daemon, and how to print.
#[derive(clap::Args)]
pub struct Which {
    /// Control socket (default: the host's, else the anchor's)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Show how a running daemon stands.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the paths of a running daemon: state, round-trip time, loss.
#[derive(clap::Args)]
pub struct PathsArgs {
    #[command(flatten)]
    which: Which,
    /// Say why each path is probed as it is
    #[arg(long)]
    why: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the flows of a running daemon and the path of each.
#[derive(clap::Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    which: Which,
    /// Say why each flow is where it is
    #[arg(long)]
    why: bool,
    /// Those of one host alone (anchor)
    #[arg(long)]
    host: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Move flows to another path, or leave them to the steering again.
#[derive(clap::Args)]
pub struct HandoverArgs {
    #[command(flatten)]
    which: Which,
    /// One flow, as `segue flows` prints it
    #[arg(long, conflicts_with = "class")]
    flow: Option<String>,
    /// One class: voice, interactive, bulk or default
    #[arg(long)]
    class: Option<String>,
    /// The path to move to
    #[arg(long, required_unless_present = "auto")]
    to: Option<String>,
    /// End an earlier order
    #[arg(long, conflicts_with = "to")]
    auto: bool,
}

/// Switch probes of one of the host's paths on or off. Without probes a path counts as up while its interface is there.
#[derive(clap::Args)]
pub struct KeepaliveArgs {
    #[command(flatten)]
    which: Which,
    /// The path
    path: String,
    /// on or off
    #[arg(value_enum)]
    switch: Switch,
}

/// Whether a path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Probe it.
    On,
    /// Do not.
    Off,
}

impl Which {
    fn socket(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| {
            let host = control::default_path("host");
            if host.exists() { host } else { control::default_path("anchor") }
        })
    }

    fn status(&self, events_from: u64) -> anyhow::Result<Status> {
        match control::ask(&self.socket(), &Request::Status { events_from })? {
            Response::Status(status) => Ok(*status),
            _ => bail!("the daemon's answer makes no sense"),
        }
    }
}

/// Runs `segue status`.
pub fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let status = args.which.status(0)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
        return Ok(ExitCode::SUCCESS);
    }
    let name = if status.name.is_empty() { String::new() } else { format!(" {}", status.name) };
    println!("{}{name}, up {:.0} s, datapath {}", status.role, status.uptime_s, status.datapath);
    println!("device     {} {}", status.device, status.inner.join(" "));
    if status.role == "host" {
        let over = status
            .signalling
            .as_deref()
            .map_or("no signalling".into(), |interface| format!("signalling over {interface}"));
        let anchor = status.anchor.as_deref().unwrap_or("not found yet");
        let registered = if status.registered { "registered" } else { "not registered" };
        let up = status.paths.iter().any(|path| path.state == "up");
        let cut_off = if status.registered && !up { ", but no path is up" } else { "" };
        println!("anchor     {anchor}, {registered}{cut_off}, {over}");
    }
    if let Some(trouble) = &status.trouble {
        println!("trouble    {} ({:.0} s ago)", trouble.why, trouble.ago_s);
    }
    for host in &status.hosts {
        let how = if host.connected { "connected" } else { "no signalling" };
        println!("host       {} {} ({how})", host.name, host.inner.join(" "));
    }
    print_paths(&status.paths, false);
    for (class, path) in &status.classes {
        let order = match status.orders.get(class) {
            Some(wanted) if wanted == path => " (bound by an operator)".into(),
            Some(wanted) => format!(" (an operator wants {wanted}, which is not up)"),
            None => String::new(),
        };
        println!("class      {class:<12} {path}{order}");
    }
    for (reason, n) in &status.drops {
        println!("refused    {n} {reason}");
    }
    if status.reinjected > 0 {
        println!("reinjected {} (sent a second time over another path)", status.reinjected);
    }
    for event in status.events.iter().rev().take(10).rev() {
        let ago = status.now_ns.saturating_sub(event.at_ns) as f64 / 1e9;
        println!("{ago:>8.1} s ago  {}", sentence(event));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `segue paths`.
pub fn paths(args: PathsArgs) -> anyhow::Result<ExitCode> {
    let status = args.which.status(u64::MAX)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status.paths)?);
    } else {
        print_paths(&status.paths, args.why);
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

fn print_paths(paths: &[PathStatus], why: bool) {
    println!(
        "{:<20} {:<9} {:<8} {:>11} {:>9} {:>9} {:>3} {:>7} {:>8} {:>8} {:>8}  to",
        "path",
        "state",
        "downlink",
        "rtt",
        "loss up",
        "loss dn",
        "K",
        "T_KA",
        "T_Rmax",
        "alone",
        "rode"
    );
    for path in paths {
        let name = if path.host.is_empty() {
            path.name.clone()
        } else {
            format!("{}/{}", path.host, path.name)
        };
        let [rtt, up, down] = path_figures(path);
        let heard = if path.downlink { "works" } else { "dead" };
        let via = path.via.as_ref().map(|via| format!(" (via {via})")).unwrap_or_default();
        println!(
            "{name:<20} {:<9} {heard:<8} {rtt:>11} {up:>9} {down:>9} {:>3} {:>4.0} ms {:>5.0} ms {:>8} {:>8}  {}{via}",
            path.state,
            path.k,
            path.t_ka_ms,
            path.bound_ms,
            path.probes_alone,
            path.probes_rode,
            path.remote.as_deref().unwrap_or("-"),
        );
        if why {
            print_why(path);
        }
    }
}

fn print_why(path: &PathStatus) {
    println!(
        "    mode {}, packets {}; last round trip good to {:.3} ms",
        path.mode, path.encapsulation, path.uncertainty_ms
    );
    match &path.why {
        Some(why) => {
            println!("    {:.0} s ago, {}", why.changed_s, why.text);
            let from = if why.active { "the first packet lost" } else { "an outage" };
            println!(
                "    down {:.0} ms after {from} on average; doubts so far: {}",
                why.detection_ms, path.doubts
            );
        }
        None => println!("    K and T_KA are fixed, or the path has not been up yet"),
    }
}

/// Runs `segue flows`.
pub fn flows(args: FlowsArgs) -> anyhow::Result<ExitCode> {
    let mut flows = Vec::new();
    control::flows(&args.which.socket(), args.host.as_deref(), |page| {
        flows.extend(page);
        Ok(())
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&flows)?);
        return Ok(ExitCode::SUCCESS);
    }
    for flow in &flows {
        println!("{}", flow_line(flow, args.why));
    }
    if flows.is_empty() {
        println!("no flows");
    }
    Ok(ExitCode::SUCCESS)
}

fn flow_line(flow: &FlowStatus, why: bool) -> String {
    let class = flow.class.as_deref().unwrap_or("-");
    let via = flow.via.as_ref().map(|via| format!(" via {via}")).unwrap_or_default();
    let pinned = if flow.pinned { " (pinned)" } else { "" };
    let reason = if why { format!("\n    {}", flow.why) } else { String::new() };
    format!(
        "{:<56} {class:<12} {}{via}{pinned}  {} packets, {} bytes, idle {:.1} s{reason}",
        flow.flow,
        flow.path,
        flow.packets,
        flow.bytes,
        flow.idle_ms / 1e3
    )
}

/// Runs `segue keepalive`.
pub fn keepalive(args: KeepaliveArgs) -> anyhow::Result<ExitCode> {
    let request = Request::Keepalive { path: args.path, on: args.switch == Switch::On };
    match control::ask(&args.which.socket(), &request)? {
        Response::Done(done) => println!("{done}"),
        _ => bail!("the daemon's answer makes no sense"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `segue handover`.
pub fn handover(args: HandoverArgs) -> anyhow::Result<ExitCode> {
    let request = Request::Handover { flow: args.flow, class: args.class, to: args.to };
    match control::ask(&args.which.socket(), &request)? {
        Response::Done(done) => println!("{done}"),
        _ => bail!("the daemon's answer makes no sense"),
    }
    Ok(ExitCode::SUCCESS)
}
