//! `segue mih`

mod command;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use segue_daemon::config::{MihFunctionFile, MihLinkSapFile};
use segue_daemon::{mih, run};

use super::roles;

/// What happens to links, told over one protocol for every kind of access (IEEE 802.21).
///
/// A link service access point watches the links of a node: who attaches, who leaves, who is about to. It tells the function of
/// the node, which tells those who have subscribed: gateways and anchors of Proxy Mobile IPv6, for instance.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a function: it knows links and tells those who subscribe
    #[command(mut_args(|arg| roles::FUNCTION.help(arg)))]
    Function(Daemon),
    /// Run a link service access point: it watches links and tells a function
    #[command(mut_args(|arg| roles::LINK_SAP.help(arg)))]
    LinkSap(Daemon),
    /// Show parameters of a link, such as its signal (MIH_Link_Get_Parameters)
    Get(command::Get),
    /// Have a parameter of a link reported when it crosses a value, or regularly (MIH_Link_Configure_Thresholds)
    Threshold(command::Threshold),
    /// Have a link send a station away, go down or come up (MIH_Link_Actions)
    Act(command::Act),
}

#[derive(clap::Args)]
struct Daemon {
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Function(args) => {
            let (path, mut file): (_, MihFunctionFile) =
                super::configuration(args.config, "mih-function")?;
            file.daemon.control = args.control.or(file.daemon.control);
            let settings = file.validate().with_context(|| of_file(path, "mih-function"))?;
            super::block_on(run::run::<mih::Daemon<false>>(settings))
        }
        What::LinkSap(args) => {
            let (path, mut file): (_, MihLinkSapFile) =
                super::configuration(args.config, "mih-link-sap")?;
            file.daemon.control = args.control.or(file.daemon.control);
            let settings = file.validate().with_context(|| of_file(path, "mih-link-sap"))?;
            super::block_on(run::run::<mih::Daemon<true>>(settings))
        }
        What::Get(args) => command::get(args),
        What::Threshold(args) => command::threshold(args),
        What::Act(args) => command::act(args),
    }
}

/// Names the file that contains a mistake.
fn of_file(file: Option<PathBuf>, role: &str) -> String {
    let none = || format!("without -c FILE and {}", super::default_file(role).display());
    file.map_or_else(none, |file| file.display().to_string())
}
