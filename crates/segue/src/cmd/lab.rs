//! `segue lab`: test networks in namespaces.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use segue_clock::Span;
use segue_daemon::settings::Choice;
use segue_demo::domain::{Domain, LTE1, LTE2, Plan as DomainPlan, WLAN1, WLAN2};
use segue_lab::file;
use segue_lab::topology::{self, alive};
use segue_lab::verify::{self, Spread, Verdict, Verification};
use segue_lab::vm;
use segue_lab::{DemoNet, DemoOptions, Direction, Lab};
use segue_linux::clock::monotonic;
use segue_linux::netns::{self, Netns};
use segue_text::errors::Told;
use segue_text::say;
use segue_text::units;
use serde_json::json;
use std::os::fd::AsFd;

/// Test networks in namespaces, with emulated links.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Bring a network up and keep it until Ctrl-C: the one of a file, or the demonstration's.
    Up {
        /// Network description in TOML (docs/lab.md), or `pmip`: a domain of Proxy Mobile IPv6 with its daemons
        file: Option<PathBuf>,
        /// Translate addresses in the demonstration's access router.
        #[arg(long, conflicts_with = "file")]
        nat: bool,
    },
    /// List the networks that are up, and what dead processes left.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a shell (or a command) in a node of a network that is up.
    Shell {
        /// The node, `host`, or the namespace's full name.
        node: String,
        /// The command [default: $SHELL]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Stop a network that `segue lab up` keeps, and remove what dead processes left.
    Down {
        /// The network, as `segue lab up` named it; may be omitted if there is only one
        #[arg(conflicts_with = "all")]
        network: Option<String>,
        /// Stop all networks, including those of other users
        #[arg(long)]
        all: bool,
    },
    /// Measure the emulator itself: delay error, achieved loss, achieved rate.
    Verify {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Seed of the losses.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run a script as root in a virtual machine with a distribution's kernel, for what this kernel lacks.
    ///
    /// It sees this machine's files, and what it writes vanishes. It starts in the current directory, with this segue
    /// first in its path. Its exit status is that of the command; 2 also stands for a virtual machine that could not run
    /// it. The processor is emulated: for behaviour, not for speed.
    Vm {
        /// The most time that it may take, with the five seconds of the start
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = units::duration)]
        limit: Span,
        /// Directory with boot/vmlinuz-* and lib/modules/* [default: the one that scripts/deps.sh vm fetched, else /]
        #[arg(long, value_name = "DIR")]
        kernel: Option<PathBuf>,
        /// A program, or a script for sh
        script: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// The tag of the networks that `segue lab up` makes.
const TAG: &str = "lab";

/// Runs the verb.
///
/// # Errors
/// Bad input or no permission, in one line.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.verb {
        Verb::Up { file, nat } => up(file, nat),
        Verb::List { json } => Ok(list(json)),
        Verb::Shell { node, command } => shell(&node, &command),
        Verb::Down { network, all } => down(network.as_deref(), all),
        Verb::Vm { limit, kernel, script, arguments } => {
            let pieces = vm::Pieces::find(kernel.as_deref())?;
            let script = vm::Script { file: &script, arguments: &arguments, limit };
            vm::run(&pieces, script).map(ExitCode::from)
        }
        Verb::Verify { json, seed } => {
            own_namespace_without_root()?;
            let report = verify::run(seed)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                show(&report);
            }
            Ok(ExitCode::from(u8::from(report.verdicts.iter().any(|verdict| !verdict.holds))))
        }
    }
}

/// Creates a user namespace of this process if it does not run as root; no other process sees the network then.
fn own_namespace_without_root() -> Result<bool> {
    if nix::unistd::geteuid().is_root() {
        return Ok(false);
    }
    netns::unshare_user()?;
    Ok(true)
}

fn up(path: Option<PathBuf>, nat: bool) -> Result<ExitCode> {
    let domain = path.as_deref().is_some_and(|path| path == Path::new(DOMAIN) && !path.exists());
    let plan = path.as_deref().filter(|_| !domain).map(file::read).transpose()?;
    // Block the signals before any thread starts, so that every thread inherits the mask and the descriptor below
    // receives them.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().context("block signals")?;
    let private = own_namespace_without_root()?;
    super::start_log()?;
    if domain {
        return keep_domain(&signals, private);
    }
    match plan {
        Some(plan) => keep(&plan.build(TAG)?, &signals, private),
        None => {
            let options = DemoOptions { tag: TAG.to_owned(), nat, ..DemoOptions::default() };
            keep(DemoNet::start(&options)?.lab(), &signals, private)
        }
    }
}

/// The network of this name is a Proxy Mobile IPv6 domain.
const DOMAIN: &str = "pmip";

/// Runs a domain and its daemons until a signal arrives.
fn keep_domain(signals: &SigSet, private: bool) -> Result<ExitCode> {
    if private {
        bail!("segue lab up {DOMAIN} needs root: gateways send and receive below UDP");
    }
    let files = std::env::temp_dir().join(format!("segue-domain-{}", std::process::id()));
    std::fs::create_dir_all(&files).with_context(|| format!("create {}", files.display()))?;
    let accesses = &[WLAN1, LTE1, WLAN2, LTE2];
    let plan = DomainPlan {
        tag: TAG,
        accesses,
        mih: true,
        radius: true,
        paced: true,
        datapath: Choice::Auto,
    };
    let kept = Domain::start(&plan, &files, &|| Ok(())).and_then(|domain| {
        say!("an anchor, four gateways, two MIH functions and four link SAPs run");
        let knows = if domain.has_radius() {
            "FreeRADIUS says"
        } else {
            "without FreeRADIUS, gateways know"
        };
        say!("{knows} who hosts are");
        say!("files and logs of the daemons: {}", files.display());
        say!("the anchor: segue status --control {}", domain.socket("lma").display());
        say!("a host comes to an access: attach host:wlan wlan1, attach host:wwan lte2");
        keep(domain.lab(), signals, private)
    });
    let removed = std::fs::remove_dir_all(&files);
    let done = kept?;
    removed.with_context(|| format!("remove {}", files.display()))?;
    Ok(done)
}

const COMMANDS: &str = "silent LINK up|down|both on|off; stall LINK up|down|both TIME; \
                        cut LINK [up|down|both]; mend LINK [up|down|both]; attach RADIO CELL; \
                        detach RADIO [CELL]; counters; end (or Ctrl-C)";

/// Runs the network until a signal arrives, and executes commands from standard input.
fn keep(lab: &Lab, signals: &SigSet, private: bool) -> Result<ExitCode> {
    say!("{} is up with nodes {}", lab.prefix(), lab.node_names().collect::<Vec<_>>().join(", "));
    if private {
        let pid = std::process::id();
        say!(
            "without root it is this process's own: nsenter -U -m --preserve-credentials -t {pid}"
        );
    } else if let Some(node) = lab.node_names().next() {
        say!(
            "enter a node: segue lab shell {node}, or: ip netns exec {}-{node} bash",
            lab.prefix()
        );
    }
    if let Some(path) = lab.announcements() {
        say!("announcements of radios: {}", path.display());
    }
    say!("commands: {COMMANDS}");
    let signal = SignalFd::new(signals).context("wait for signals")?;
    let stdin = std::io::stdin();
    let (mut listening, mut input) = (true, Input::default());
    loop {
        let mut fds = vec![PollFd::new(signal.as_fd(), PollFlags::POLLIN)];
        if listening {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            other => other.context("wait for a signal or a command")?,
        };
        if fds[0].any() == Some(true) {
            return Ok(ExitCode::SUCCESS);
        }
        if fds.get(1).and_then(PollFd::any) == Some(true) {
            // The end of input does not end the lab: under a service manager, standard input is /dev/null.
            listening = input.take(&stdin)?;
            while let Some(line) = input.line() {
                if line.trim() == "end" {
                    return Ok(ExitCode::SUCCESS);
                }
                obey(lab, &line);
            }
        }
    }
}

/// Maximum length of a command line in bytes.
const LONGEST_LINE: usize = 4_096;

/// Bytes of standard input that do not yet make a line. The standard library's buffer would hide complete lines from
/// `poll`.
#[derive(Default)]
struct Input(Vec<u8>);

impl Input {
    /// Reads the available bytes; false at the end of the input.
    fn take(&mut self, from: &impl AsFd) -> Result<bool> {
        let mut chunk = [0; 1_024];
        let len = nix::unistd::read(from, &mut chunk).context("read commands")?;
        self.0.extend_from_slice(&chunk[..len]);
        // Commands are short, so the end of an overlong line is no valid command.
        if self.0.len() > LONGEST_LINE && !self.0.contains(&b'\n') {
            self.0.drain(..self.0.len() - LONGEST_LINE);
        }
        // The last line may lack a line feed.
        if len == 0 && !self.0.is_empty() {
            self.0.push(b'\n');
        }
        Ok(len > 0)
    }

    fn line(&mut self) -> Option<String> {
        let end = self.0.iter().position(|b| *b == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

fn obey(lab: &Lab, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words == ["counters"] {
        print_counters(lab);
    } else if !words.is_empty() {
        let answer = carry_out(lab, &words).unwrap_or_else(|error| Told(&error).to_string());
        say!("{answer}");
    }
}

/// Executes a command and returns what it did.
fn carry_out(lab: &Lab, words: &[&str]) -> Result<String> {
    Ok(match *words {
        ["silent", link, way, state] => {
            silence(lab, link, way, state)?;
            format!("{link} {way}: silent {state}")
        }
        ["stall", link, way, time] => {
            stall(lab, link, way, time)?;
            format!("{link} {way}: stalls for {time}")
        }
        ["cut" | "mend", link] => carry_out(lab, &[words[0], link, "both"])?,
        ["cut", link, way] => {
            lab.cut(link, ways(way)?)?;
            format!("{link} {way}: cut")
        }
        ["mend", link, way] => {
            lab.mend(link, ways(way)?)?;
            format!("{link} {way}: mended")
        }
        ["attach", radio, cell] => {
            lab.attach(radio, cell)?;
            format!("{radio}: attached to {cell}")
        }
        ["detach", radio] => {
            lab.detach(radio, None)?;
            format!("{radio}: detached")
        }
        ["detach", radio, cell] => {
            lab.detach(radio, Some(cell))?;
            format!("{radio}: detached from {cell}")
        }
        _ => format!("commands: {COMMANDS}"),
    })
}

fn silence(lab: &Lab, link: &str, way: &str, state: &str) -> Result<()> {
    let emulator = lab.emulator(link)?;
    let silent = match state {
        "on" => true,
        "off" => false,
        _ => bail!("silence is on or off, not {state}"),
    };
    for way in ways(way)? {
        emulator.set_silent(*way, silent);
    }
    Ok(())
}

fn stall(lab: &Lab, link: &str, way: &str, time: &str) -> Result<()> {
    let emulator = lab.emulator(link)?;
    let lasting = units::duration(time).map_err(anyhow::Error::msg)?;
    let now = monotonic();
    for way in ways(way)? {
        emulator.stall(*way, now, now + lasting);
    }
    Ok(())
}

fn ways(way: &str) -> Result<&'static [Direction]> {
    Ok(match way {
        "up" => &[Direction::Up],
        "down" => &[Direction::Down],
        "both" => &Direction::ALL,
        _ => bail!("a direction is up, down or both, not {way}"),
    })
}

fn print_counters(lab: &Lab) {
    let links = lab.emulators();
    let links = links
        .map(|(name, handle)| (name.to_owned(), Direction::ALL.map(|way| handle.counters(way))));
    for (name, counters) in links.chain(lab.air_counters()) {
        for (way, c) in Direction::ALL.into_iter().zip(counters) {
            say!(
                "{name} {:4}  offered {}  delivered {}  lost {}  queue full {}  silenced {}",
                way.name(),
                c.offered,
                c.delivered,
                c.lost,
                c.queue_full,
                c.silenced
            );
        }
    }
    for (name, troubles) in lab.troubles() {
        for trouble in troubles {
            say!("{name}: {trouble}");
        }
    }
}

fn list(as_json: bool) -> ExitCode {
    let all = topology::list();
    if as_json {
        let rows: Vec<_> = all
            .iter()
            .map(|(name, pid)| json!({ "namespace": name, "pid": pid, "alive": alive(*pid) }))
            .collect();
        println!("{}", json!(rows));
    } else if all.is_empty() {
        say!("no network is up");
    } else {
        for (name, pid) in all {
            let state = if alive(pid) { "" } else { "  (left by a dead process: segue lab down)" };
            say!("{name}  pid {pid}{state}");
        }
    }
    ExitCode::SUCCESS
}

fn shell(node: &str, command: &[String]) -> Result<ExitCode> {
    let suffix = format!("-{node}");
    let mut names: Vec<String> = topology::list()
        .into_iter()
        .filter(|(name, pid)| alive(*pid) && (name == node || name.ends_with(&suffix)))
        .map(|(name, _)| name)
        .collect();
    let name = match names.len() {
        0 => bail!("no network that is up has a node {node} (see: segue lab list)"),
        1 => names.remove(0),
        _ => bail!("several networks have a node {node}: name one of {}", names.join(", ")),
    };
    let default = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let (program, arguments) = command.split_first().unwrap_or((&default, &[]));
    // Replace this process, so that signals reach the command itself.
    let error = Netns::open(&name)?.command(program).args(arguments).exec();
    Err(error).with_context(|| format!("run {program}"))
}

fn down(network: Option<&str>, all: bool) -> Result<ExitCode> {
    let ours = format!("segue-{TAG}");
    let mut up: Vec<(String, i32)> = topology::list()
        .into_iter()
        .filter(|(name, pid)| name == &format!("{ours}{pid}-emu") && is_segue(*pid))
        .map(|(_, pid)| (format!("{ours}{pid}"), pid))
        .collect();
    up.dedup();
    let names = |up: &[(String, i32)]| {
        up.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match network {
        Some(wanted) => {
            let known = names(&up);
            up.retain(|(name, _)| name == wanted);
            if up.is_empty() {
                let known = if known.is_empty() { "none" } else { &known };
                bail!("no network {wanted} is up, but {known}");
            }
        }
        None if up.len() > 1 && !all => {
            bail!("several networks are up: name one of {}, or end all with --all", names(&up));
        }
        None => {}
    }
    for (name, pid) in up {
        kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("end {name}"))?;
        say!("ended {name}");
    }
    for name in topology::clean() {
        say!("removed {name}");
    }
    Ok(ExitCode::SUCCESS)
}

/// True if this is a segue process: a PID may have been reused.
fn is_segue(pid: i32) -> bool {
    let own = std::fs::read_to_string("/proc/self/comm").ok();
    own.is_some() && std::fs::read_to_string(format!("/proc/{pid}/comm")).ok() == own
}

fn show(r: &Verification) {
    let spread = |name: &str, s: &Spread| {
        say!(
            "  {name:<28} mean {:7.1}  p50 {:7.1}  p99 {:7.1}  max {:7.1} µs",
            s.mean_us,
            s.p50_us,
            s.p99_us,
            s.max_us
        );
    };
    say!("delay error, {} packets, {} ms imposed", r.delay.packets, r.delay.imposed_ms);
    spread("arrival to departure", &r.delay.stamped);
    spread("end to end", &r.delay.end_to_end);
    match &r.netem {
        Some(s) => spread("end to end, kernel's netem", s),
        None => say!("  this kernel has no netem to compare with"),
    }
    let l = &r.loss;
    say!("loss, {} packets, {:.1} % imposed", l.sent, l.imposed * 100.0);
    say!(
        "  dropped {}, missing {}: {:.2} %, 99.9 % interval {:.2} to {:.2} %",
        l.dropped,
        l.missing,
        l.achieved * 100.0,
        l.interval[0] * 100.0,
        l.interval[1] * 100.0
    );
    let mbit = |bps: u64| bps as f64 / 1e6;
    let rate = &r.rate;
    say!(
        "rate, {:.1} Mbit/s imposed, {:.1} offered",
        mbit(rate.imposed_bps),
        mbit(rate.offered_bps)
    );
    say!(
        "  achieved {:.2} Mbit/s, {} dropped at the queue, {:.1} % of a processor",
        mbit(rate.achieved_bps),
        rate.queue_drops,
        rate.cpu_percent
    );
    say!("the emulator's thread is scheduled as {}", r.scheduling);
    say!("verdicts");
    r.verdicts.iter().for_each(|verdict| say!("  {}", shown(verdict)));
}

/// A verdict and the bounds that it was judged by.
fn shown(Verdict { what, found, bar: [least, most], holds }: &Verdict) -> String {
    let word = if *holds { "ok" } else { "FAILED" };
    format!("{word:<8} {what}: {found:.4}; bar: {least:.4} to {most:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_stands_beside_its_bar() {
        let verdict = Verdict { what: "share lost", found: 0.07, bar: [0.04, 0.06], holds: false };
        assert_eq!(shown(&verdict), "FAILED   share lost: 0.0700; bar: 0.0400 to 0.0600");
    }
}
