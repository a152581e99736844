//! `segue status`, `events`, `paths`, `flows`, `handover` and `keepalive`: look at and steer a running daemon.

mod events;
mod flows;
mod paths;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use segue_daemon::control::{self, Status, TunnelRequest, Tunnels, tunnels};
use segue_text::terminal::{Colours, Live, Stream};

pub use events::{EventsArgs, events};
pub use flows::{FlowsArgs, flows};
pub use paths::{PathsArgs, path_figures, paths};
pub use status::{StatusArgs, status};

/// Which daemon, and how to print.
#[derive(clap::Args)]
pub struct Which {
    /// Control socket (default: the host's, else the anchor's)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
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

/// Where output goes.
#[derive(Clone, Copy, Debug)]
struct Paper {
    /// Characters in a line.
    room: usize,
    colours: Colours,
}

impl Paper {
    /// Standard output; a file or pipe has room for any line.
    fn output() -> Paper {
        let room = Stream::Output.size().map_or(usize::MAX, |size| size.columns);
        Paper { room, colours: Stream::Output.colours() }
    }

    /// Redrawn lines leave the last column free.
    fn live(live: &Live) -> Paper {
        let room = live.size().columns.saturating_sub(1);
        Paper { room, colours: Stream::Output.colours() }
    }
}

impl Which {
    fn socket(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| {
            let host = control::default_path("host");
            if host.exists() { host } else { control::default_path("anchor") }
        })
    }

    fn status(&self, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
        tunnels::status(&self.socket(), events_from)
    }
}

/// Runs `segue keepalive`.
pub fn keepalive(args: KeepaliveArgs) -> anyhow::Result<ExitCode> {
    let order = TunnelRequest::Keepalive { path: args.path, on: args.switch == Switch::On };
    println!("{}", tunnels::order(&args.which.socket(), order)?);
    Ok(ExitCode::SUCCESS)
}

/// Runs `segue handover`.
pub fn handover(args: HandoverArgs) -> anyhow::Result<ExitCode> {
    let order = TunnelRequest::Handover { flow: args.flow, class: args.class, to: args.to };
    println!("{}", tunnels::order(&args.which.socket(), order)?);
    Ok(ExitCode::SUCCESS)
}
