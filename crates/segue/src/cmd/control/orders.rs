//! `segue handover` and `segue keepalive`.

use std::process::ExitCode;

use anyhow::bail;
use segue_daemon::control::{TunnelRequest, tunnels};
use segue_text::say;

use super::which::Which;

/// Move flows to another path, or return them to automatic steering.
#[derive(clap::Args)]
pub struct HandoverArgs {
    #[command(flatten)]
    which: Which,
    /// Only this flow, as `segue flows` prints it
    #[arg(long, conflicts_with = "class")]
    flow: Option<String>,
    /// Only this class: voice, interactive, bulk or default
    #[arg(long)]
    class: Option<String>,
    /// The path to move to
    #[arg(long)]
    to: Option<String>,
    /// Return to automatic steering
    #[arg(long, conflicts_with = "to")]
    auto: bool,
}

/// Turn probing of a host's path on or off. A path without probes counts as up while its interface is present.
#[derive(clap::Args)]
pub struct KeepaliveArgs {
    #[command(flatten)]
    which: Which,
    /// Name of the path
    path: String,
    /// on or off
    #[arg(value_enum)]
    switch: Switch,
}

/// Whether a path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Switch {
    /// Probe the path
    On,
    /// Do not probe the path
    Off,
}

/// Runs `segue keepalive`.
pub fn keepalive(args: KeepaliveArgs) -> anyhow::Result<ExitCode> {
    let order = TunnelRequest::Keepalive { path: args.path, on: args.switch == Switch::On };
    say!("{}", tunnels::order(&args.which.socket()?, order)?);
    Ok(ExitCode::SUCCESS)
}

/// Runs `segue handover`.
pub fn handover(args: HandoverArgs) -> anyhow::Result<ExitCode> {
    if args.to.is_none() && !args.auto {
        bail!(
            "name the path with --to PATH (segue paths lists them), or return to automatic steering with --auto; \
             --class voice, interactive, bulk or default, or --flow FLOW, concerns those flows alone"
        );
    }
    let order = TunnelRequest::Handover { flow: args.flow, class: args.class, to: args.to };
    say!("{}", tunnels::order(&args.which.socket()?, order)?);
    Ok(ExitCode::SUCCESS)
}
