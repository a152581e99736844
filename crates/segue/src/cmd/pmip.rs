//! `segue pmip`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use segue_daemon::config::{LmaFile, MagFile};
use segue_daemon::control::{self, Request, Response};
use segue_daemon::pmip::{lma, mag};
use segue_daemon::run;
use segue_daemon::settings::Choice;
use segue_text::say;

use super::roles;

/// Network-based mobility: Proxy Mobile IPv6.
///
/// Hosts change nothing. A gateway at each access registers the hosts that it finds there with an anchor, which gives them
/// their prefixes and leads their traffic to where they are.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a local mobility anchor: it gives hosts their prefixes
    #[command(mut_args(|arg| roles::LMA.help(arg)))]
    Lma(Daemon),
    /// Run a mobile access gateway: it serves hosts at its accesses
    #[command(mut_args(|arg| roles::MAG.help(arg)))]
    Mag(Daemon),
    /// End a host's bindings at the anchor that runs here
    Revoke(Revoke),
}

#[derive(clap::Args)]
struct Daemon {
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Datapath to use [default: auto]
    #[arg(long, value_enum)]
    datapath: Option<Choice>,
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Revoke {
    /// The host's identity (MN-ID), as `segue status` shows it
    #[arg(value_name = "MN-ID")]
    mn_id: String,
    /// The anchor's control socket [default: /run/segue/pmip-lma.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Lma(args) => {
            let mut file: LmaFile = super::required_configuration(args.config, "pmip-lma")?;
            file.datapath.datapath = args.datapath.unwrap_or(file.datapath.datapath);
            file.state.state = args.state.or(file.state.state);
            file.daemon.control = args.control.or(file.daemon.control);
            super::block_on(run::run::<lma::Daemon>(file.validate()?))
        }
        What::Mag(args) => {
            let mut file: MagFile = super::required_configuration(args.config, "pmip-mag")?;
            file.datapath.datapath = args.datapath.unwrap_or(file.datapath.datapath);
            file.state.state = args.state.or(file.state.state);
            file.daemon.control = args.control.or(file.daemon.control);
            super::block_on(run::run::<mag::Daemon>(file.validate()?))
        }
        What::Revoke(Revoke { mn_id, control }) => {
            let path = control.unwrap_or_else(|| control::default_path("pmip-lma", None));
            let request = Request::<lma::Words>::Own(lma::Ask::Revoke { mn_id });
            let asked = control::ask(&path, &request).map_err(|error| {
                control::expecting(&path, (&["pmip-lma"], "segue pmip lma"), error)
            });
            if let Response::Done(done) = asked? {
                say!("{done}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
