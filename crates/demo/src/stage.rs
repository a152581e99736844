//! The network and the daemons of the demonstration.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_clock::{Span, Time};
use segue_daemon::control::{FlowStatus, PathStatus, Status, TunnelRequest, Tunnels, tunnels};
use segue_daemon::locator::Locator;
use segue_daemon::settings::Choice;
use segue_lab::demo::{DemoNet, DemoOptions};
use segue_lab::emulator::{Direction, Handle};
use segue_lab::log::{Fate, Record};
use segue_netem::DropCause;
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT};

use super::interrupt::Interrupts;
use super::traffic::Ends;

/// How long the daemons may take to become ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sampling interval of delays in seconds: packets come in bursts, but the mean must be over time.
pub(crate) const SAMPLED: f64 = 0.02;

/// The running network with an anchor and a host. Dropping it stops the daemons and deletes the network.
pub struct Stage {
    daemons: RefCell<Vec<Daemon>>,
    net: DemoNet,
    directory: PathBuf,
    /// Distinguishes this stage's sockets from those of other stages.
    name: String,
}

/// A daemon of this program as a child process. Dropping it stops the process.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a daemon. Its output goes to the file `log`; `input` goes to its standard input.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        input: Option<&str>,
    ) -> anyhow::Result<Daemon> {
        let out = std::fs::File::create(&log)?;
        command.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out);
        let mut child = command.spawn().with_context(|| format!("cannot start the {name}"))?;
        if let (Some(line), Some(mut stdin)) = (input, child.stdin.take()) {
            std::io::Write::write_all(&mut stdin, line.as_bytes())?;
        }
        Ok(Daemon { name, child, log })
    }

    /// The daemon's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The process ID.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Checks that the daemon is running.
    ///
    /// # Errors
    /// It has ended; the error shows the end of its log.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing");
            bail!("the {} ended ({status}): {last}", self.name);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The emulators' effects on packets. Times are in seconds from the start.
pub struct Truth {
    /// One entry per path.
    pub paths: Vec<PathTruth>,
}

/// The effects of one access's emulator.
pub struct PathTruth {
    /// `wifi` or `lte`.
    pub name: &'static str,
    /// Delay of forwarded packets upwards, one sample every [`SAMPLED`] seconds: (departure, delay in s).
    pub up: Vec<(f64, f64)>,
    /// Delay of forwarded packets downwards.
    pub down: Vec<(f64, f64)>,
    /// Each packet upwards on the tunnel port: (time, dropped by loss or queue, dropped by silence).
    pub up_packets: Vec<(f64, bool, bool)>,
    /// Each packet downwards on the tunnel port.
    pub down_packets: Vec<(f64, bool, bool)>,
}

impl Stage {
    /// Builds the network and starts both daemons.
    pub fn build(
        datapath: Choice,
        responsiveness: Option<Span>,
        nat: bool,
        out: &Path,
    ) -> anyhow::Result<Stage> {
        let net = DemoNet::start(&DemoOptions { nat, ..DemoOptions::default() })
            .context("the demonstration's network cannot be built")?;
        Stage::start(net, out, "demo", datapath, &host_lines(responsiveness))
    }

    /// Starts both daemons in a network, with further lines in the host's configuration file. `name` distinguishes the
    /// sockets from those of other stages in this process.
    pub fn start(
        net: DemoNet,
        out: &Path,
        name: &str,
        datapath: Choice,
        host_lines: &str,
    ) -> anyhow::Result<Stage> {
        let directory = out.canonicalize().context("the report's directory")?;
        let name = name.to_owned();
        let stage = Stage { daemons: RefCell::default(), net, directory, name };
        let anchor = stage.file("anchor.toml");
        std::fs::write(&anchor, stage.anchor_config(datapath))?;
        for state in ["anchor.db", "host.db"] {
            let _ = std::fs::remove_file(stage.file(state));
        }
        stage.spawn("anchor", stage.net.anchor().command(own_program()?), &anchor, None)?;
        let line = stage.enroll()?;
        let host = stage.file("host.toml");
        std::fs::write(&host, stage.host_config(datapath, host_lines))?;
        stage.spawn("host", stage.net.host().command(own_program()?), &host, Some(&line))?;
        Ok(stage)
    }

    /// The network.
    pub fn net(&self) -> &DemoNet {
        &self.net
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path of a control socket, in `/tmp`: the path of a socket may have at most 107 bytes.
    fn socket(&self, role: &str) -> PathBuf {
        PathBuf::from(format!("/tmp/segue-{}-{}-{role}.sock", self.name, std::process::id()))
    }

    fn anchor_config(&self, datapath: Choice) -> String {
        format!(
            "state = {:?}\ncontrol = {:?}\ndatapath = \"{}\"\naddresses = [\"{}\"]\n",
            self.file("anchor.db"),
            self.socket("anchor"),
            choice_name(datapath),
            DemoNet::ANCHOR.0,
        )
    }

    fn host_config(&self, datapath: Choice, lines: &str) -> String {
        format!(
            "state = {:?}\ncontrol = {:?}\ndatapath = \"{}\"\n{lines}",
            self.file("host.db"),
            self.socket("host"),
            choice_name(datapath),
        )
    }

    fn spawn(
        &self,
        name: &'static str,
        mut command: Command,
        config: &Path,
        join: Option<&str>,
    ) -> anyhow::Result<()> {
        let log = self.file(&format!("{name}.log"));
        command.arg(name).arg("--config").arg(config);
        if join.is_some() {
            command.args(["--join", "-"]);
        }
        self.daemons.borrow_mut().push(Daemon::spawn(name, command, log, join)?);
        Ok(())
    }

    fn enroll(&self) -> anyhow::Result<String> {
        let address = SocketAddr::new(DemoNet::ANCHOR.0.into(), SIGNAL_PORT);
        let order = TunnelRequest::Enroll {
            name: "traveller".into(),
            addresses: vec![Locator::Address(address)],
            valid_s: None,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match tunnels::order(&self.socket("anchor"), order.clone()) {
                Ok(line) => return Ok(line),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
            self.check_alive()?;
        }
    }

    /// Fails if a daemon has ended; the error shows the end of its log.
    pub fn check_alive(&self) -> anyhow::Result<()> {
        self.daemons.borrow_mut().iter_mut().try_for_each(Daemon::check_alive)
    }

    /// The status of the host (`host`) or the anchor (`anchor`).
    pub fn status(&self, role: &str, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
        tunnels::status(&self.socket(role), events_from)
    }

    /// The flows of the host (`host`) or the anchor (`anchor`).
    pub fn flows(&self, role: &str) -> anyhow::Result<Vec<FlowStatus>> {
        let mut flows = Vec::new();
        tunnels::flows(&self.socket(role), None, |page| {
            flows.extend(page);
            Ok(())
        })?;
        Ok(flows)
    }

    /// Waits until both paths are up and measured.
    pub fn wait_ready(&self, interrupted: &Interrupts) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = "no answer yet".to_owned();
        while Instant::now() < deadline {
            self.check_alive()?;
            if interrupted.happened() {
                bail!("interrupted; everything has been taken down");
            }
            if let Ok(status) = self.status("host", u64::MAX) {
                let up = |path: &PathStatus| path.state == "up" && path.down.sent > 0;
                if status.body.paths.len() == 2 && status.body.paths.iter().all(up) {
                    return Ok(());
                }
                let states: Vec<String> =
                    status.body.paths.iter().map(|p| format!("{} {}", p.name, p.state)).collect();
                state = states.join(", ");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the host's paths did not come up ({state}); see {}", self.file("host.log").display())
    }

    /// The host's inner IPv4 address.
    pub fn inner(&self) -> anyhow::Result<IpAddr> {
        let inner = self.status("host", u64::MAX)?.body.inner;
        let mut parsed = inner.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        parsed.find(IpAddr::is_ipv4).context("the host has no inner IPv4 address")
    }

    /// The ends of the demonstration's traffic.
    pub fn ends(&self) -> anyhow::Result<Ends<'_>> {
        let (host, cn) = (self.net.host(), self.net.cn());
        Ok(Ends { host, cn, address: DemoNet::CN.0.into(), inner: self.inner()? })
    }

    /// The emulators' effects since `start`.
    pub fn truth(&self, start: Time) -> Truth {
        let path = |name, handle: &Handle| {
            let log = handle.take_log();
            PathTruth {
                name,
                up: delays(&log, Direction::Up, start),
                down: delays(&log, Direction::Down, start),
                up_packets: fates(&log, Direction::Up, start),
                down_packets: fates(&log, Direction::Down, start),
            }
        };
        let wifi = path(DemoNet::WIFI, self.net.wifi());
        let lte = path(DemoNet::LTE, self.net.lte());
        Truth { paths: vec![wifi, lte] }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.daemons.borrow_mut().clear();
        for role in ["host", "anchor"] {
            let _ = std::fs::remove_file(self.socket(role));
        }
        for secret in ["anchor.db", "anchor.toml", "host.toml"] {
            let _ = std::fs::remove_file(self.file(secret));
        }
    }
}

/// The lines of the host's configuration file other than its socket and datapath.
fn host_lines(responsiveness: Option<Span>) -> String {
    let mut text = "\n[keepalive]\ntau = [\"1s\", \"200ms\", \"10s\"]\n".to_owned();
    if let Some(responsiveness) = responsiveness {
        let _ = writeln!(text, "responsiveness = \"{}ms\"", responsiveness.as_millis_f64());
    }
    for (name, rtt_ms, price) in [(DemoNet::WIFI, 20, 0.0), (DemoNet::LTE, 60, 1.0)] {
        let _ = writeln!(text, "\n[path.{name}]\nprice = {price:?}");
        if responsiveness.is_some() {
            let _ = writeln!(text, "keepalive = {{ rtt = \"{rtt_ms}ms\", loss = \"1%\" }}");
        }
    }
    text
}

/// The path of this program's file.
///
/// # Errors
/// The kernel does not report it.
pub fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the program does not know where it is")
}

pub(crate) fn choice_name(choice: Choice) -> &'static str {
    match choice {
        Choice::Auto => "auto",
        Choice::Ebpf => "ebpf",
        Choice::User => "user",
    }
}

fn seconds(at: Time, start: Time) -> f64 {
    at.as_secs_f64() - start.as_secs_f64()
}

fn tunnel_records(
    log: &[Record],
    direction: Direction,
    start: Time,
) -> impl Iterator<Item = &Record> {
    log.iter().filter(move |record| {
        record.direction == direction && record.arrival >= start && record.is_udp(TUNNEL_PORT)
    })
}

fn delays(log: &[Record], direction: Direction, start: Time) -> Vec<(f64, f64)> {
    let mut next = 0.0;
    tunnel_records(log, direction, start)
        .filter_map(|record| match record.fate {
            Fate::Delivered { departure, .. } => {
                Some((seconds(departure, start), record.delay()?.as_secs_f64()))
            }
            _ => None,
        })
        .filter(|(at, _)| {
            let due = *at >= next;
            if due {
                next = (at / SAMPLED).floor() * SAMPLED + SAMPLED;
            }
            due
        })
        .collect()
}

fn fates(log: &[Record], direction: Direction, start: Time) -> Vec<(f64, bool, bool)> {
    let mut fates: Vec<(f64, bool, bool)> = tunnel_records(log, direction, start)
        .map(|record| {
            let silent = matches!(record.fate, Fate::Dropped(DropCause::Silent));
            let dropped = !silent && !matches!(record.fate, Fate::Delivered { .. });
            (seconds(record.arrival, start), dropped, silent)
        })
        .collect();
    fates.sort_by(|a, b| a.0.total_cmp(&b.0));
    fates
}
