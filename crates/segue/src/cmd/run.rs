//! `segue run`: runs a program whose packets leave by one access, outside the tunnel.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Context, bail};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::kill;
use nix::unistd::{Pid, Uid, User, getpgid, getpgrp};
use segue_clock::Span;
use segue_daemon::packets::MARK;
use segue_datapath::ByAccess;
use segue_linux::clock::monotonic;
use segue_linux::link::{self, Link};
use segue_linux::process::{run_as, unblock_signals};
use segue_linux::stop_signals::{Received, StopSignals};

use super::clean::is_tunnel;

/// Run a program whose traffic leaves by one access, beside the tunnel.
///
/// For example to open the page of a captive portal. Needs root, and runs the program as the user who called sudo.
/// Processes that the program starts use the access too. A browser that already runs does not. Ctrl-C and SIGTERM reach
/// the program; the second one kills it and everything it started.
#[derive(clap::Args)]
#[command(
    override_usage = "segue run --path <PATH> [--user <NAME>] -- <PROGRAM> [ARGUMENT]...",
    after_help = "Example: sudo segue run --path wifi -- w3m http://192.0.2.1/"
)]
pub struct Args {
    /// The access: the name of its interface, as segue paths shows it
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Run the program as this user [default: who called sudo, else the present one]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
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
    unblock_signals(&mut command);
    if let Some(user) = user {
        run_as(&mut command, &user)
            .with_context(|| format!("cannot read the groups of {}", user.name))?;
        command.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    // A child inherits the group, so even its first packet is steered.
    group.enter()?;
    let child = command.spawn().with_context(|| format!("cannot run {}", program.display()));
    group.leave()?;
    let status = wait(child?, &group, &signals)?;
    Ok(status.code().map_or_else(
        || ExitCode::from(128 + status.signal().unwrap_or_default() as u8),
        |code| ExitCode::from(code as u8),
    ))
}

/// The index of an access.
fn access(name: &str) -> anyhow::Result<u32> {
    let links = link::links()?;
    let index = if_nametoindex(name).ok();
    let wrong = match links.iter().find(|link| Some(link.index) == index) {
        Some(link) if link.loopback => format!("{name} is the loopback device, not an access"),
        Some(link) if is_tunnel(link) => format!("{name} is a tunnel, not an access"),
        Some(link) => return Ok(link.index),
        None => format!("there is no interface {name}"),
    };
    let up = |link: &&Link| link.running && !link.loopback && !is_tunnel(link);
    let up: Vec<&str> = links.iter().filter(up).map(|link| link.name.as_str()).collect();
    bail!("--path: {wrong}; up are {}", up.join(", "))
}

/// The user to run the program as, if not the present one.
fn user(named: Option<&str>) -> anyhow::Result<Option<User>> {
    let name = named.map(str::to_owned).or_else(|| std::env::var("SUDO_USER").ok());
    let Some(name) = name else { return Ok(None) };
    let user = User::from_name(&name).with_context(|| format!("--user {name}"))?;
    Ok(Some(user.with_context(|| format!("--user: there is no user {name}"))?))
}

/// Waits for the program and the processes it leaves behind. The first signal is passed on; the second kills them all.
fn wait(mut child: Child, group: &Group, signals: &StopSignals) -> anyhow::Result<ExitStatus> {
    let mut status = None;
    let mut passed_on = false;
    loop {
        if status.is_none() {
            status = child.try_wait()?;
        }
        if let Some(status) = status.filter(|_| !has_programs(&group.path)) {
            return Ok(status);
        }
        signals.wait(std::iter::empty(), Some(monotonic() + LOOK))?;
        let Some(received) = signals.read()? else { continue };
        if passed_on {
            group.kill()?;
        } else if status.is_none() {
            pass_on(received, child.id() as i32);
        } else {
            group.programs().into_iter().for_each(|pid| pass_on(received, pid));
        }
        passed_on = true;
    }
}

/// Sends a process the signal that we received, unless the terminal has sent it to the process too.
fn pass_on(received: Received, pid: i32) {
    let pid = Pid::from_raw(pid);
    let has_it = received.from_terminal && getpgid(Some(pid)) == Ok(getpgrp());
    if !has_it {
        // Fails only if the process has ended.
        let _ = kill(pid, received.signal);
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
        for group in abandoned(&root) {
            let _ = fs::remove_dir(group);
        }
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

    fn programs(&self) -> Vec<i32> {
        let all = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        // The kernel shows processes of other PID namespaces as 0.
        all.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 0).collect()
    }

    /// Kills all processes of the group.
    fn kill(&self) -> anyhow::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1").context("cannot kill the program")
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
    found.context("control groups of version 2 (cgroup2) are not mounted here")
}

fn has_programs(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|all| !all.is_empty())
}

/// Control groups that killed processes of `segue run` left behind and that contain no process.
pub(super) fn abandoned_groups() -> Vec<PathBuf> {
    hierarchy().map(|root| abandoned(&root)).unwrap_or_default()
}

fn abandoned(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let is_abandoned = |group: &PathBuf| {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        let pid = name.strip_prefix(GROUP).and_then(|pid| pid.parse::<u32>().ok());
        // A running `segue run` may not have started its program yet. This process has no group yet.
        let runs =
            |pid: u32| pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists();
        pid.is_some_and(|pid| !runs(pid)) && !has_programs(group)
    };
    entries.map(|entry| entry.path()).filter(is_abandoned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_abandoned_without_its_process_and_without_programs() {
        let root = std::env::temp_dir().join(format!("segue-groups{}", std::process::id()));
        // Process IDs end at 4 194 304.
        for (name, programs) in [
            ("segue-run-4999999", ""),
            ("segue-run-4999998", "17\n"),
            ("segue-run-1", ""),
            ("segue-run-", ""),
            ("user.slice", ""),
        ] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("cgroup.procs"), programs).unwrap();
        }
        let found = abandoned(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [root.join("segue-run-4999999")]);
    }

    #[test]
    fn the_loopback_device_is_no_access() {
        let said = access("lo").unwrap_err().to_string();
        assert!(said.starts_with("--path: lo is the loopback device, not an access"), "{said}");
    }
}
