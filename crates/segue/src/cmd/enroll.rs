//! `segue enroll`

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_daemon::anchor::{Enrolment, LINE_LIFETIME};
use segue_daemon::config::{default_state, instance_name};
use segue_daemon::control::{
    self, EnrolmentStatus, Response, TunnelAnswer, TunnelRequest, tunnels,
};
use segue_daemon::locator::Locator;
use segue_linux::clock::realtime_s;
use segue_store::Embedded;
use segue_text::say;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::{Column, Table};
use segue_text::units::{self, date};
use segue_wire::SIGNAL_PORT;

/// Create the line with which a host joins this anchor: `segue host --join`.
///
/// The line works once, and is secret until then. With it the host obtains a certificate for a key of its own, which it
/// renews by itself.
#[derive(clap::Args)]
pub struct Args {
    /// The host's name
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Where the host reaches this anchor, best first (default: the anchor's own addresses)
    #[arg(long = "at", value_name = "ADDRESS|NAME[:PORT]")]
    addresses: Vec<String>,
    /// How long the line is valid [default: 1d]
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    valid: Option<u64>,
    /// Write the line to a file that only its owner can read
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "out")]
    force: bool,
    /// End the host's enrolment
    #[arg(long, conflicts_with_all = ["addresses", "valid", "out", "list"])]
    remove: bool,
    /// List the enrolled hosts
    #[arg(long, conflicts_with_all = ["name", "addresses", "valid", "out"])]
    list: bool,
    /// Print JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// Control socket of the running anchor [default: /run/segue/anchor.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Name of the anchor, if several run here (`instance` in its configuration)
    #[arg(long, value_name = "NAME", conflicts_with = "control", value_parser = instance_name)]
    instance: Option<String>,
    /// State file to use if no anchor is running; created if missing [default: /var/lib/segue/anchor.db, which must exist]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    let seconds = units::duration(text)?.0 / 1_000_000_000;
    if seconds == 0 { Err(format!("{text:?} is less than a second")) } else { Ok(seconds) }
}

impl Args {
    /// The anchor's control socket and its state directory.
    fn places(&self) -> (PathBuf, PathBuf) {
        let instance = self.instance.as_deref();
        let control = || control::default_path("anchor", instance);
        let state = || default_state("anchor", instance);
        (self.control.clone().unwrap_or_else(control), self.state.clone().unwrap_or_else(state))
    }
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let addresses: Vec<Locator> = args
        .addresses
        .iter()
        .map(|text| Locator::parse(text, SIGNAL_PORT))
        .collect::<anyhow::Result<_>>()?;
    let anchor = Anchor::find(&args)?;
    let name = args.name.unwrap_or_default();
    if args.list {
        let all = anchor.list()?;
        if args.json {
            println!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            print(&all);
        }
    } else if args.remove {
        say!("{}", anchor.remove(name)?);
    } else if let Some(path) = &args.out {
        // Create the file first: an existing file or an unwritable directory must not use up an enrolment.
        let out = Out::create(path, args.force)?;
        out.write(&anchor.enroll(name, addresses, args.valid)?)?;
        say!("wrote the join line to {}", path.display());
    } else {
        say!("{}", anchor.enroll(name, addresses, args.valid)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// A new private file. Dropping it removes the file unless the line was written.
struct Out<'a> {
    path: &'a Path,
    file: File,
    /// The temporary name under which the line is written if it replaces another file.
    aside: Option<PathBuf>,
    written: Cell<bool>,
}

impl Out<'_> {
    fn create(path: &Path, force: bool) -> anyhow::Result<Out<'_>> {
        let cannot = || format!("cannot write {}", path.display());
        let aside = force.then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            PathBuf::from(name)
        });
        if let Some(aside) = &aside {
            let _ = std::fs::remove_file(aside);
        }
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        match options.open(aside.as_deref().unwrap_or(path)) {
            Ok(file) => Ok(Out { path, file, aside, written: Cell::new(false) }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{} is there already; replace it with --force, or name another file",
                path.display()
            ),
            Err(error) => Err(error).with_context(cannot),
        }
    }

    fn write(&self, line: &str) -> anyhow::Result<()> {
        let cannot = || format!("the line cannot be written to {}", self.path.display());
        writeln!(&self.file, "{line}").with_context(cannot)?;
        if let Some(aside) = &self.aside {
            std::fs::rename(aside, self.path).with_context(cannot)?;
        }
        self.written.set(true);
        Ok(())
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if !self.written.get() {
            let _ = std::fs::remove_file(self.aside.as_deref().unwrap_or(self.path));
        }
    }
}

/// The anchor running on this machine, or the stored state of an anchor that is stopped.
enum Anchor {
    Running(PathBuf),
    Stored(Embedded),
}

impl Anchor {
    fn find(args: &Args) -> anyhow::Result<Anchor> {
        let (control, file) = args.places();
        if std::os::unix::net::UnixStream::connect(&control).is_ok() {
            return Ok(Anchor::Running(control));
        }
        if args.state.is_none() && !file.exists() {
            bail!(
                "no anchor runs here, and none ever did: start segue anchor first, or name a state file \
                 for the anchor to come with --state"
            );
        }
        Ok(Anchor::Stored(Embedded::open(&file).context("no anchor runs here, and its state")?))
    }

    fn enroll(
        &self,
        name: String,
        addresses: Vec<Locator>,
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        match self {
            Anchor::Running(control) => {
                tunnels::order(control, TunnelRequest::Enroll { name, addresses, valid_s })
            }
            Anchor::Stored(store) => {
                let lifetime = valid_s.map_or(LINE_LIFETIME, std::time::Duration::from_secs);
                let mut enrolment = Enrolment::load(store)?;
                let join = enrolment.invite(store, &name, addresses, (realtime_s(), lifetime))?;
                Ok(join.to_string())
            }
        }
    }

    fn remove(&self, name: String) -> anyhow::Result<String> {
        match self {
            Anchor::Running(control) => tunnels::order(control, TunnelRequest::Unenroll { name }),
            Anchor::Stored(store) => {
                Enrolment::load(store)?.remove(store, &name, realtime_s())?;
                Ok(format!("{name} is no longer enrolled"))
            }
        }
    }

    fn list(&self) -> anyhow::Result<Vec<EnrolmentStatus>> {
        match self {
            Anchor::Running(control) => match tunnels::ask(control, TunnelRequest::Enrolments)? {
                Response::Own(TunnelAnswer::Enrolments(all)) => Ok(all),
                _ => bail!("the anchor's answer makes no sense"),
            },
            Anchor::Stored(store) => Enrolment::load(store)?.list(store, realtime_s()),
        }
    }
}

const COLUMNS: [Column; 6] = [
    Column::left("name", 20),
    Column::left("state", 12),
    Column::left("since", 20),
    Column::left("expires", 20),
    Column::left("last seen", 20),
    Column::left("addresses", 0),
];

fn print(all: &[EnrolmentStatus]) {
    if all.is_empty() {
        say!("nobody is enrolled");
        return;
    }
    let mut table = Table::new(&COLUMNS);
    for host in all {
        let seen = match (host.connected, host.seen_s) {
            (true, _) => "connected".into(),
            (false, seen) => seen.map_or_else(|| "never".into(), date),
        };
        let [since, expires] = [host.since_s, host.expires_s].map(date);
        let addresses = host.inner.join(" ");
        table.row(vec![host.name.clone(), host.state.clone(), since, expires, seen, addresses]);
    }
    let laid = table.lay(Stream::Output.room());
    laid.head.iter().chain(laid.rows.iter().flatten()).for_each(|line| say!("{line}"));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn an_instance_has_a_socket_and_a_state_of_its_own() {
        let places = |words: &[&str]| {
            let words = ["enroll", "laptop"].iter().chain(words);
            let (control, state) = Cli::parse_from(words).args.places();
            [control, state].map(|path| path.display().to_string())
        };
        let [usual, own] = ["", "-east"].map(|dash| {
            [format!("/run/segue/anchor{dash}.sock"), format!("/var/lib/segue/anchor{dash}.db")]
        });
        assert_eq!(places(&[]), usual);
        assert_eq!(places(&["--instance", "east"]), own);
        let [control, _] = own;
        assert_eq!(places(&["--instance", "east", "--state", "x"]), [control, "x".into()]);
        for none in ["", "../x"] {
            assert!(Cli::try_parse_from(["enroll", "laptop", "--instance", none]).is_err());
        }
    }
}
