//! `segue mih`

mod command;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use segue_daemon::config::{MihFunctionFile, MihLinkSapFile};
use segue_daemon::{mih, run};

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
    Function(Daemon),
    /// Run a link service access point: it watches links and tells a function
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
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Function(args) => {
            let file = args.config.as_deref().map(segue_grammar::read::<MihFunctionFile>);
            let mut file = file.transpose()?.unwrap_or_default();
            file.control = args.control.or(file.control);
            let settings = file.validate().with_context(|| of_file(args.config.as_deref()))?;
            super::block_on(run::run::<mih::Daemon<false>>(settings))
        }
        What::LinkSap(args) => {
            let file = args.config.as_deref().map(segue_grammar::read::<MihLinkSapFile>);
            let mut file = file.transpose()?.unwrap_or_default();
            file.control = args.control.or(file.control);
            let settings = file.validate().with_context(|| of_file(args.config.as_deref()))?;
            super::block_on(run::run::<mih::Daemon<true>>(settings))
        }
        What::Get(args) => command::get(args),
        What::Threshold(args) => command::threshold(args),
        What::Act(args) => command::act(args),
    }
}

/// Where a mistake is.
fn of_file(file: Option<&std::path::Path>) -> String {
    file.map_or_else(|| "without -c FILE".to_owned(), |file| file.display().to_string())
}
