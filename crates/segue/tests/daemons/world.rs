//! The demonstration's network with daemons in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_clock::Span;
use segue_lab::{DemoNet, DemoOptions, EmulatorSpec};
use segue_linux::netns::Netns;
use segue_netem::LinkSpec;
use serde_json::Value;

pub(crate) const SEGUE: &str = env!("CARGO_BIN_EXE_segue");
/// Time limit for any step on a busy machine; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Probing in these tests: K, and T_KA in milliseconds.
pub(crate) const K: u64 = 6;
pub(crate) const PERIOD_MS: u64 = 50;

pub(crate) const HOST_FILE: &str = "[keepalive]\nk = 6\nperiod = \"50ms\"\n";

/// Returns false and prints a note if the tests cannot run.
pub(crate) fn possible() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Loads a script into a node's nftables.
pub(crate) fn nft(node: &Netns, script: &str) {
    let output = node.command("nft").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Network, directory and datapath of one test.
pub(crate) struct World {
    pub net: DemoNet,
    pub dir: tempfile::TempDir,
    pub datapath: &'static str,
    /// The command with arguments that wraps daemons; if empty, they start directly.
    pub under: &'static [&'static str],
}

impl World {
    /// A world with accesses of 10 and 60 ms round-trip time and no loss.
    pub(crate) fn new(datapath: &'static str) -> Option<World> {
        World::with(datapath, false)
    }

    pub(crate) fn with(datapath: &'static str, nat: bool) -> Option<World> {
        if !possible() {
            return None;
        }
        let _building = crate::building();
        let access = |delay_ms, seed| {
            let way = LinkSpec { delay: Span::from_millis(delay_ms), ..LinkSpec::default() };
            EmulatorSpec { up: way.clone(), down: way, seed, log: false }
        };
        let options = DemoOptions { tag: tag(), wifi: access(5, 1), lte: access(30, 2), nat };
        let net = match DemoNet::start(&options) {
            Ok(net) => net,
            Err(error) if nat => {
                println!("skipped: {error:#}");
                return None;
            }
            Err(error) => panic!("{error:#}"),
        };
        Some(World { net, dir: tempfile::tempdir().unwrap(), datapath, under: &[] })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the test's directory; returns its path.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Starts an anchor; returns once it answers.
    pub(crate) fn anchor(&self) -> Daemon {
        self.anchor_with(&[])
    }

    /// Like [`anchor`](World::anchor), with further arguments.
    pub(crate) fn anchor_with(&self, more: &[&str]) -> Daemon {
        let state = self.path("anchor.db");
        let mut args = vec!["anchor", "--datapath", self.datapath, "--state"];
        args.push(state.to_str().unwrap());
        args.extend(more);
        let daemon = self.daemon(self.net.anchor(), "anchor", &args);
        daemon.wait("the anchor answers", |_| true);
        daemon
    }

    /// Starts a host; returns once it answers, which may be before it is registered.
    pub(crate) fn host(&self, join: &str) -> Daemon {
        self.host_in(self.net.host(), "host", join, HOST_FILE)
    }

    pub(crate) fn host_in(&self, node: &Netns, name: &str, join: &str, config: &str) -> Daemon {
        let join = self.file(&format!("{name}.join"), join);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&join, mode).unwrap();
        self.host_with(node, name, config, &["--join-file", &join])
    }

    /// Like [`host_in`](World::host_in), with other arguments than a join line.
    pub(crate) fn host_with(
        &self,
        node: &Netns,
        name: &str,
        config: &str,
        more: &[&str],
    ) -> Daemon {
        let config = self.file(&format!("{name}.toml"), config);
        let state = self.path(&format!("{name}.db"));
        let args = ["host", "--datapath", self.datapath, "-c", &config, "--state"];
        let args = [&args[..], &[state.to_str().unwrap()], more].concat();
        let daemon = self.daemon(node, name, &args);
        daemon.wait("the host answers", |_| true);
        daemon
    }

    fn daemon(&self, node: &Netns, name: &str, args: &[&str]) -> Daemon {
        Daemon::start_under(node, self.under, self.path(name), args)
    }

    /// Enrols a host at the running anchor.
    pub(crate) fn enroll(&self, anchor: &Daemon, name: &str) -> String {
        let at = DemoNet::ANCHOR.0.to_string();
        let done = anchor.cli(&["enroll", name, "--at", &at]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout).trim().to_owned()
    }

    /// Starts an anchor and a host; returns once the host is registered with both paths up.
    pub(crate) fn running(&self) -> (Daemon, Daemon) {
        let anchor = self.anchor();
        let host = self.host(&self.enroll(&anchor, "laptop"));
        host.wait("two paths up", |status| registered(status) && paths_up(status) == 2);
        anchor.wait("two paths up", |status| paths_up(status) == 2);
        (anchor, host)
    }
}

pub(crate) fn registered(status: &Value) -> bool {
    status["registered"] == true
}

pub(crate) fn paths_up(status: &Value) -> usize {
    status["paths"].as_array().unwrap().iter().filter(|path| path["state"] == "up").count()
}

pub(crate) fn path<'a>(status: &'a Value, name: &str) -> &'a Value {
    let found = status["paths"].as_array().unwrap().iter().find(|path| path["name"] == name);
    found.unwrap_or(&Value::Null)
}

/// The host's inner addresses of each family.
pub(crate) fn inner(status: &Value) -> (Ipv4Addr, Ipv6Addr) {
    let texts: Vec<&str> =
        status["inner"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let v4 = texts.iter().find_map(|text| text.parse().ok());
    let v6 = texts.iter().find_map(|text| text.parse().ok());
    (v4.unwrap(), v6.unwrap())
}

pub(crate) fn drops(status: &Value, reason: &str) -> u64 {
    status["drops"][reason].as_u64().unwrap_or(0)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A part of a namespace's name that is unique in this process.
pub(crate) fn tag() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut n = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut tag = String::from("e");
    for _ in 0..2 {
        tag.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    tag
}

/// Waits until `holds` returns true; returns the time taken.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

/// A daemon as a child process. Dropping it kills the process, and shows its log if the test fails.
pub(crate) struct Daemon {
    child: Child,
    base: PathBuf,
}

impl Daemon {
    /// Starts `segue ARGS` with a control socket and a log next to `base`.
    pub(crate) fn start(node: &Netns, base: PathBuf, args: &[&str]) -> Daemon {
        Daemon::start_under(node, &[], base, args)
    }

    /// Like [`start`](Daemon::start), wrapped in another command.
    pub(crate) fn start_under(
        node: &Netns,
        under: &[&str],
        base: PathBuf,
        args: &[&str],
    ) -> Daemon {
        let log = File::options().create(true).append(true).open(base.with_extension("log"));
        let command = [under, &[SEGUE], args].concat();
        let child = node
            .command(command[0])
            .args(&command[1..])
            .arg("--control")
            .arg(base.with_extension("sock"))
            .env("SEGUE_LOG", "debug,quinn=info,quinn_proto=info,rustls=info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        Daemon { child, base }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.base.with_extension("sock")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.base.with_extension("log")).unwrap_or_default()
    }

    /// Runs a verb against this daemon.
    pub(crate) fn cli(&self, args: &[&str]) -> Output {
        let mut command = Command::new(SEGUE);
        command.env("COLUMNS", "1000");
        command.args(args).arg("--control").arg(self.socket()).output().unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Option<Value> {
        let output = self.cli(args);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["status", "--json"]).expect("the daemon answers")
    }

    pub(crate) fn flows(&self) -> Vec<Value> {
        let flows = self.json(&["flows", "--why", "--json"]).expect("the daemon answers");
        flows.as_array().unwrap().clone()
    }

    /// The flow whose text contains all of `parts`.
    pub(crate) fn flow(&self, parts: &[&str]) -> Option<Value> {
        self.flows().into_iter().find(|flow| {
            let text = flow["flow"].as_str().unwrap();
            parts.iter().all(|part| text.contains(part))
        })
    }

    /// Polls the status until it satisfies `wanted`.
    pub(crate) fn wait(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.json(&["status", "--json"]) {
                if wanted(&status) {
                    return status;
                }
                last = status;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        panic!("not within {PATIENCE:?}: {what}; {last:#}");
    }

    /// The events of a kind about a path, from `number` on.
    pub(crate) fn events(&self, kind: &str, path: &str, number: u64) -> Vec<Value> {
        let status = self.status();
        let events = status["events"].as_array().unwrap().iter();
        let fits = |event: &&Value| {
            event["kind"] == kind
                && event["path"] == path
                && event["number"].as_u64().unwrap() >= number
        };
        events.filter(fits).cloned().collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Sends a signal and waits until the process exits.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.ended()
    }

    /// Waits until the process exits.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The scheduling policy of each thread, by the kernel's numbers (proc(5), field 41 of `stat`).
    pub(crate) fn policies(&self) -> BTreeMap<String, String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let policy = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            let (head, tail) = stat.rsplit_once(')')?;
            let name = head.split_once('(')?.1.to_owned();
            Some((name, tail.split_whitespace().nth(38)?.to_owned()))
        };
        tasks.filter_map(policy).collect()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The ID of the thread with this name.
    pub(crate) fn thread(&self, name: &str) -> u32 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let named = |task: std::io::Result<std::fs::DirEntry>| {
            let task = task.ok()?;
            let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
            (comm.trim() == name).then(|| task.file_name().to_str()?.parse().ok())?
        };
        tasks.filter_map(named).next().expect("a thread of this name")
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(60);
            let _ = writeln!(
                std::io::stderr(),
                "--- end of the log of {}\n{}",
                self.base.display(),
                lines[from..].join("\n")
            );
        }
    }
}

/// Everything in a namespace that a daemon might leave behind, as the system's tools print it.
pub(crate) fn inventory(node: &Netns) -> Vec<String> {
    const ASKED: [&[&str]; 9] = [
        &["ip", "-d", "link"],
        &["ip", "-o", "addr"],
        &["ip", "-4", "rule"],
        &["ip", "-6", "rule"],
        &["ip", "-4", "route", "show", "table", "all"],
        &["ip", "-6", "route", "show", "table", "all"],
        &["tc", "qdisc", "show"],
        &["bpftool", "net"],
        &["nft", "list", "tables"],
    ];
    let mut all = Vec::new();
    for words in ASKED {
        let output = node.command(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let mut lines: Vec<String> = text(&output.stdout)
            .lines()
            // The kernel takes a second to report a working device as up.
            .map(|line| line.trim_end().replace("state UNKNOWN", "state UP"))
            .map(|line| format!("{}: {line}", words.join(" ")))
            .collect();
        lines.sort();
        all.extend(lines);
    }
    all
}

/// The inventory once it has stopped changing.
pub(crate) fn settled(node: &Netns) -> Vec<String> {
    let mut last = inventory(node);
    wait_for("a quiet network", || {
        std::thread::sleep(Duration::from_millis(300));
        let next = inventory(node);
        let quiet = next == last;
        last = next;
        quiet
    });
    last
}
