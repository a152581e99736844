//! `segue anchor`

use std::path::PathBuf;
use std::process::ExitCode;

use segue_daemon::config::AnchorFile;
use segue_daemon::settings::Choice;

/// Run an anchor: the fixed point that hosts tunnel to.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file (TOML) [default: /etc/segue/anchor.toml, if there is one]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Datapath to use [default: auto]
    #[arg(long, value_enum)]
    datapath: Option<Choice>,
    /// File for the anchor's state [default: /var/lib/segue/anchor.db]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Translate hosts' addresses to the anchor's own on their way to other networks, as `nat = true` does
    #[arg(long)]
    nat: bool,
    /// Control socket [default: /run/segue/anchor.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut file: AnchorFile = super::configuration(args.config, "anchor")?.1;
    file.datapath.datapath = args.datapath.unwrap_or(file.datapath.datapath);
    file.state.state = args.state.or(file.state.state);
    if args.nat {
        file.own.nat = true;
    }
    file.daemon.control = args.control.or(file.daemon.control);
    super::block_on(segue_daemon::run::run::<segue_daemon::anchor::Daemon>(file.validate()?))
}
