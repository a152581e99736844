//! `segue host`

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::config::{HostFile, InterfaceName};
use segue_daemon::identity::Join;
use segue_daemon::settings::Choice;

/// Run a mobile host: keep the sessions of this machine alive across its networks.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file (TOML) [default: /etc/segue/host.toml, if there is one]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The line that `segue enroll` printed; `-` reads it from standard input, since other users can see a process's
    /// arguments. It is needed once, and secret until then: afterwards the host has its own key and certificate
    #[arg(long, value_name = "LINE", conflicts_with = "join_file")]
    join: Option<String>,
    /// A file with that line, readable only by its owner; no longer needed after enrolment
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,
    /// File for the host's state: its key and certificate [default: /var/lib/segue/host.db]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Datapath to use [default: auto]
    #[arg(long, value_enum)]
    datapath: Option<Choice>,
    /// Use only these interfaces [default: all that reach the anchor]
    #[arg(short = 'I', long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Control socket [default: /run/segue/host.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut file: HostFile = super::configuration(args.config.clone(), "host")?.1;
    file.state.state = args.state.clone().or(file.state.state);
    let join = join_line(&args, &file);
    file.datapath.datapath = args.datapath.unwrap_or(file.datapath.datapath);
    file.daemon.control = args.control.or(file.daemon.control);
    if !args.interfaces.is_empty() {
        let named = args.interfaces.iter().map(|name| InterfaceName::of(name));
        file.datapath.interfaces = Some(named.collect::<Result<_, _>>().context("interfaces")?);
    }
    // Report a mistake in the file first, even if there are no credentials yet.
    let mut settings = file.validate()?;
    settings.join = join?.map(|line| line.parse::<Join>()).transpose()?;
    super::block_on(segue_daemon::run::run::<segue_daemon::host::Daemon>(settings))
}

/// Maximum number of bytes read from a join line and its file.
const MAX_FILE: u64 = 64 * 1024;

/// The join line, if one is given and exists. A missing file is no mistake: the host may be enrolled already, which the
/// daemon checks.
fn join_line(args: &Args, file: &HostFile) -> anyhow::Result<Option<String>> {
    if args.join.as_deref() == Some("-") {
        let mut line = String::new();
        let mut input = std::io::stdin().take(MAX_FILE);
        input.read_to_string(&mut line).context("no join line on standard input")?;
        return Ok(Some(line));
    }
    if let Some(line) = &args.join {
        return Ok(Some(line.clone()));
    }
    let Some(path) = args.join_file.as_ref().or(file.own.join_file.as_ref()) else {
        return Ok(None);
    };
    let name = path.display();
    let cannot = || format!("cannot read the join line in {name}");
    let mut opened = match File::open(path) {
        Ok(opened) => opened.take(MAX_FILE),
        Err(error) if error.kind() == ErrorKind::NotFound && has_state(file) => return Ok(None),
        Err(error) => return Err(error).with_context(cannot),
    };
    let mode = opened.get_ref().metadata().with_context(cannot)?.permissions().mode();
    check_private(path, mode)?;
    let mut line = String::new();
    opened.read_to_string(&mut line).with_context(cannot)?;
    Ok(Some(line))
}

/// Refuses a join line that others can read.
pub fn check_private(path: &Path, mode: u32) -> anyhow::Result<()> {
    if mode & 0o077 != 0 {
        let name = path.display();
        bail!("join_file: the join line in {name} can be read by others; run: chmod 600 {name}");
    }
    Ok(())
}

fn has_state(file: &HostFile) -> bool {
    file.state.file("host", file.daemon.instance()).exists()
}
