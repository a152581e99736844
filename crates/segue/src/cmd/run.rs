//! `segue run`: runs a program whose packets leave by one access, outside the tunnel.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Context, bail};
use nix::net::if_::if_nametoindex;
use nix::unistd::{Uid, User};
use segue_clock::Span;
use segue_daemon::packets::MARK;
use segue_datapath::ByAccess;
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_linux::stop_signals::StopSignals;

/// Run a program whose traffic leaves by one access, beside the tunnel.
///
/// For example to open the page of a captive portal. Needs root, and runs the program as the user who called sudo. Processes
/// that the program starts use the access too. A browser that already runs does not.
#[derive(clap::Args)]
#[command(after_help = "Example: sudo segue run --path wifi -- w3m http://192.0.2.1/")]
pub struct Args {
    /// The access: the name of its interface, as segue paths shows it
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Run the program as this user [default: who called sudo, else the present one]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Time between two checks of the program.
const LOOK: Span = Span::from_millis(100);
/// Name prefix of our control groups.
const GROUP: &str = "segue-run-";

/// Runs the verb.
///
/// # Errors
/// No such access, no root, or the kernel refuses the programs.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let ifindex = access(&args.path)?;
    if !Uid::effective().is_root() {
        bail!(
            "segue run needs root to guide the program's packets: sudo segue run …; the program runs as you"
        );
    }
    let user = user(args.user.as_deref())?;
    let group = Group::new()?;
    let _guided = ByAccess::attach(group.directory.as_fd(), ifindex, MARK)
        .context("cannot have a program leave by an access")?;
    let signals = StopSignals::take()?;
    let [program, rest @ ..] = &args.program[..] else { bail!("name a program") };
    let mut command = Command::new(program);
    command.args(rest);
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        command.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    // A child inherits the group, so even its first packet is steered.
    group.enter()?;
    let child = command.spawn().with_context(|| format!("cannot run {program}"));
    group.leave()?;
    let status = wait(child?, &group, &signals)?;
    Ok(status.code().map_or_else(
        || ExitCode::from(128 + status.signal().unwrap_or_default() as u8),
        |code| ExitCode::from(code as u8),
    ))
}

/// The index of an access.
fn access(name: &str) -> anyhow::Result<u32> {
    if_nametoindex(name).or_else(|_| {
        let links = link::links()?;
        let others = links.iter().filter(|link| link.running && link.name != "lo");
        let others: Vec<&str> = others.map(|link| link.name.as_str()).collect();
        bail!("--path: there is no interface {name}; up are {}", others.join(", "))
    })
}

/// The user to run the program as, if not the present one.
fn user(named: Option<&str>) -> anyhow::Result<Option<User>> {
    let name = named.map(str::to_owned).or_else(|| std::env::var("SUDO_USER").ok());
    let Some(name) = name else { return Ok(None) };
    let user = User::from_name(&name).with_context(|| format!("--user {name}"))?;
    Ok(Some(user.with_context(|| format!("--user: there is no user {name}"))?))
}

/// Waits for the program and the processes it leaves behind. A signal ends the program.
fn wait(mut child: Child, group: &Group, signals: &StopSignals) -> anyhow::Result<ExitStatus> {
    let mut status = None;
    loop {
        if status.is_none() {
            status = child.try_wait()?;
        }
        if let Some(status) = status.filter(|_| !group.has_programs()) {
            return Ok(status);
        }
        if signals.wait(std::iter::empty(), Some(monotonic() + LOOK))? {
            if status.is_none() {
                child.kill()?;
                status = Some(child.wait()?);
            }
            return status.context("the program has no status");
        }
    }
}

/// A control group for one program. Dropping it removes the group.
struct Group {
    path: PathBuf,
    directory: File,
    /// The group of this process before it entered ours.
    before: PathBuf,
}

impl Group {
    fn new() -> anyhow::Result<Group> {
        let root = hierarchy()?;
        remove_left(&root);
        let path = root.join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut options = File::options();
        options.read(true).custom_flags(nix::libc::O_DIRECTORY);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        Ok(Group { directory: options.open(&path)?, before: root.join(own), path })
    }

    fn enter(&self) -> anyhow::Result<()> {
        fs::write(self.path.join("cgroup.procs"), "0").context("cannot enter the control group")
    }

    fn leave(&self) -> anyhow::Result<()> {
        fs::write(self.before.join("cgroup.procs"), "0").context("cannot leave the control group")
    }

    fn has_programs(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.procs")).is_ok_and(|all| !all.is_empty())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// Mount point of the control group hierarchy, version 2.
fn hierarchy() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let found = fields.find_map(|mut fields| {
        let at = fields.nth(1)?;
        (fields.next() == Some("cgroup2")).then(|| PathBuf::from(at))
    });
    found.context("this system has no control groups of version 2 (cgroup2)")
}

/// Removes groups that killed processes left behind. The kernel keeps groups that still contain processes.
fn remove_left(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(GROUP) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
