//! `segue enroll`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_store::Embedded;
use segue_wire::SIGNAL_PORT;

use crate::config::{address, default_state};
use crate::control::{self, Request, Response};
use crate::daemon::anchor::Enrolment;

/// Make a host's credentials at the anchor; prints the line for `segue host --join`.
#[derive(clap::Args)]
pub struct Args {
    /// The host's name
    name: String,
    /// Where the host finds this anchor, best first (default: the anchor's own addresses)
    #[arg(long = "at", value_name = "ADDRESS[:PORT]")]
    addresses: Vec<String>,
    /// End the host's enrolment
    #[arg(long, conflicts_with = "addresses")]
    remove: bool,
    /// Control socket of the running anchor
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// State file to use where no anchor runs
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let addresses: Vec<_> = args
        .addresses
        .iter()
        .map(|text| address(text, SIGNAL_PORT))
        .collect::<anyhow::Result<_>>()?;
    let control = args.control.clone().unwrap_or_else(|| control::default_path("anchor"));
    let running = std::os::unix::net::UnixStream::connect(&control).is_ok();
    let said = if running {
        let request = if args.remove {
            Request::Unenroll { name: args.name.clone() }
        } else {
            Request::Enroll { name: args.name.clone(), addresses }
        };
        match control::ask(&control, &request)? {
            Response::Done(line) => line,
            _ => bail!("the anchor's answer makes no sense"),
        }
    } else {
        let state = args.state.unwrap_or_else(default_state);
        let store = Embedded::open(&state).context("no anchor runs here, and its state")?;
        let mut enrolment = Enrolment::load(&store)?;
        if args.remove {
            enrolment.remove(&store, &args.name)?;
            format!("{} is no longer enrolled", args.name)
        } else {
            enrolment.add(&store, &args.name, addresses)?.to_string()
        }
    };
    println!("{said}");
    Ok(ExitCode::SUCCESS)
}
