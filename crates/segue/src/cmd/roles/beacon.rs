//! A throw-away role.

use std::path::PathBuf;
use std::process::ExitCode;

use segue_daemon::beacon::{self, BeaconFile, Settings, Words};
use segue_daemon::control::Status;
use segue_daemon::run;

use super::role::{Checks, Daemon, File, PLAIN, PRIVATE_TMP, Role, read};
use crate::cmd::check::summary::Row;
use crate::cmd::control::status::page::typed;
use crate::cmd::control::which::Paper;

/// A beacon.
pub(super) static BEACON: Role = Role {
    name: <beacon::Daemon as run::Role>::NAME,
    file: Some(File {
        what: "A beacon",
        title: "a beacon's configuration",
        own: "server owner",
        foreign: "",
        read: |source| read::<beacon::Daemon, _>(source, BeaconFile::validate, rows),
    }),
    daemon: Some(Daemon {
        may: &["CapabilityBoundingSet=CAP_NET_ADMIN", PRIVATE_TMP],
        page: Some(|status, paper| typed::<Words>(status, paper, lines)),
        ..PLAIN
    }),
};

impl Checks for Settings {}

fn rows(file: &BeaconFile, settings: &Settings) -> Vec<Row> {
    let row = |key: &str, value: String, default| Row { key: key.into(), value, default };
    vec![
        row("server", settings.server.to_string(), false),
        row("owner", settings.owner.to_string(), file.owner.is_none()),
        row("control", settings.common.control.display().to_string(), file.control.is_none()),
    ]
}

fn lines(Status { head, body, .. }: &Status<Words>, _: Paper) -> Vec<String> {
    let address = body.address.as_deref().unwrap_or("none");
    vec![format!("{}, up {:.0} s", head.role, head.uptime_s), format!("address    {address}")]
}

/// Run a beacon
#[derive(clap::Args)]
#[command(mut_args(|arg| BEACON.help(arg)))]
pub struct Args {
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut file: BeaconFile = crate::cmd::required_configuration(args.config, BEACON.name)?;
    file.control = args.control.or(file.control);
    crate::cmd::block_on(run::run::<beacon::Daemon>(file.validate()?))
}
