//! `segue host`

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::config::{self, HostFile};
use crate::daemon::{self, packets::Choice};
use crate::identity::Join;

/// Run a mobile host: keep the sessions of this machine alive across its networks.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The line that `segue enroll` printed, a secret; `-` reads it from standard input, for other
    /// users can see a process's arguments
    #[arg(long, value_name = "LINE", conflicts_with = "join_file")]
    join: Option<String>,
    /// A file with that line
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,
    /// Which datapath
    #[arg(long, value_enum)]
    datapath: Option<Choice>,
    /// Use only these interfaces
    #[arg(short = 'I', long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut file: HostFile = match &args.config {
        Some(path) => config::read(path)?,
        None => HostFile::default(),
    };
    let line = join_line(&args, &file)?;
    let join: Join = line.parse()?;
    file.datapath = args.datapath.or(file.datapath);
    file.control = args.control.or(file.control);
    if !args.interfaces.is_empty() {
        file.interfaces = Some(args.interfaces);
    }
    let settings = file.validate(join)?;
    super::block_on(daemon::host::run(settings))
}

fn join_line(args: &Args, file: &HostFile) -> anyhow::Result<String> {
    if args.join.as_deref() == Some("-") {
        let mut line = String::new();
        std::io::stdin().read_to_string(&mut line).context("no join line on standard input")?;
        return Ok(line);
    }
    if let Some(line) = &args.join {
        return Ok(line.clone());
    }
    match args.join_file.as_ref().or(file.join_file.as_ref()) {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the join line in {}", path.display())),
        None => bail!(
            "a host needs credentials: run `segue enroll NAME` at the anchor and give its line \
             with --join LINE"
        ),
    }
}
