//! A host and an anchor on the demonstration's network, queried over their control sockets.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_clock::{Span, Time};
use segue_daemon::control::tunnels;
use segue_lab::{DemoNet, DemoOptions, Direction, EmulatorSpec, Handle};
use segue_linux::clock::monotonic;
use segue_linux::netns::Netns;
use segue_netem::{LinkSpec, Loss};
use serde_json::{Value, json};

/// Time limit for steps that are not measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of a stage.
pub(crate) struct Plan {
    /// Prefix of namespace names, unique for each stage of this program.
    pub tag: String,
    /// `ebpf` or `user`.
    pub datapath: &'static str,
    /// Round-trip times of `wifi` and `lte` in milliseconds.
    pub rtt_ms: [u64; 2],
    /// Loss of `wifi` and `lte`, applied in both directions.
    pub loss: [f64; 2],
    /// K and T_KA in milliseconds; `None` leaves the keepalive at its defaults.
    pub keepalive: Option<(u8, u64)>,
    /// Further lines for the host's `[steering]`.
    pub steering: &'static str,
    /// Tunnels run over IPv6.
    pub v6: bool,
    /// Probes ride on data packets.
    pub rides: bool,
}

impl Plan {
    /// Like [`new`](Plan::new), with default keepalive settings.
    pub(crate) fn of_defaults(name: &str, datapath: &'static str) -> Plan {
        Plan { keepalive: None, ..Plan::new(name, datapath, (0, 0)) }
    }

    /// A plan with round trips of 20 and 60 ms, without loss, over IPv4.
    pub(crate) fn new(name: &str, datapath: &'static str, keepalive: (u8, u64)) -> Plan {
        Plan {
            tag: format!("bar{name}{datapath}"),
            datapath,
            rtt_ms: [20, 60],
            loss: [0.0; 2],
            keepalive: Some(keepalive),
            steering: "",
            v6: false,
            rides: false,
        }
    }
}

/// A process. Dropping it kills the process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The network with its anchor and, once started, its host.
pub(crate) struct Stage {
    host: Option<Running>,
    _anchor: Running,
    join: String,
    plan: Plan,
    pub net: DemoNet,
    files: tempfile::TempDir,
}

impl Stage {
    /// Builds the network, starts the anchor and enrols the host.
    pub(crate) fn new(plan: Plan) -> Stage {
        super::late::watch();
        let access = |which: usize, seed| {
            let way = LinkSpec {
                delay: Span::from_micros(plan.rtt_ms[which] * 500),
                loss: Loss::Bernoulli(plan.loss[which]),
                ..LinkSpec::default()
            };
            EmulatorSpec { up: way.clone(), down: way, seed, log: true }
        };
        let options = DemoOptions {
            tag: plan.tag.clone(),
            wifi: access(0, 11),
            lte: access(1, 12),
            nat: false,
        };
        let net = DemoNet::start(&options).unwrap();
        let files = tempfile::Builder::new().prefix("segue-bars").tempdir().unwrap();
        let text = format!(
            "state = {:?}\ncontrol = {:?}\ndatapath = \"{}\"\n",
            files.path().join("anchor.db"),
            files.path().join("anchor"),
            plan.datapath,
        );
        let anchor = spawn(net.anchor(), "anchor", &files, &text, None);
        let address: IpAddr =
            if plan.v6 { DemoNet::ANCHOR.1.into() } else { DemoNet::ANCHOR.0.into() };
        let enroll = json!({"enroll": {"name": "laptop", "addresses": [
            std::net::SocketAddr::new(address, segue_wire::SIGNAL_PORT)]}});
        let socket = files.path().join("anchor");
        let enrolled = patiently("the anchor answers", || ask(&socket, &enroll));
        let join = enrolled["done"].as_str().unwrap().to_owned();
        Stage { host: None, _anchor: anchor, join, plan, net, files }
    }

    /// Starts the host with further lines in its file; returns the time of the start.
    pub(crate) fn start_host(&mut self, lines: &str) -> Time {
        self.host = None;
        let mut text = format!(
            "{lines}\ncontrol = {:?}\ndatapath = \"{}\"\n[steering]\n{}\n",
            self.files.path().join("host"),
            self.plan.datapath,
            self.plan.steering,
        );
        if let Some((k, period)) = self.plan.keepalive {
            let _ = writeln!(text, "[keepalive]\nk = {k}\nperiod = \"{period}ms\"");
            let _ = writeln!(text, "tau = [\"1s\", \"10s\"]\nrides = {}", self.plan.rides);
        }
        let start = monotonic();
        let host = spawn(self.net.host(), "host", &self.files, &text, Some(&self.join));
        self.host = Some(host);
        start
    }

    /// Like [`new`](Stage::new), with the host running and both paths up at both ends.
    pub(crate) fn running(plan: Plan) -> Stage {
        let mut stage = Stage::new(plan);
        stage.start_host("");
        stage.both_up();
        stage
    }

    /// Waits until both paths are up at both ends.
    pub(crate) fn both_up(&self) {
        for role in ["host", "anchor"] {
            patiently("both paths are up", || {
                let status = self.status(role)?;
                let up = |name| path(&status, name)["state"] == "up";
                (up("wifi") && up("lte")).then_some(())
            });
        }
    }

    /// The datapath of both daemons.
    pub(crate) fn datapath(&self) -> &'static str {
        self.plan.datapath
    }

    /// A daemon's status; `None` if it does not answer.
    pub(crate) fn status(&self, role: &str) -> Option<Value> {
        let request = json!({"status": {"events_from": 0}});
        Some(ask(&self.files.path().join(role), &request)?["status"].take())
    }

    /// The host's binding of the flow with this local port.
    pub(crate) fn flow(&self, port: u16) -> Option<Value> {
        let (mark, mut found) = (format!(":{port}"), None);
        tunnels::flows(&self.files.path().join("host"), None, |page| {
            found = page.into_iter().find(|flow| flow.flow.contains(&mark)).or(found.take());
            Ok(())
        })
        .ok()?;
        serde_json::to_value(found?).ok()
    }

    /// Binds the flow with this local port to a path.
    pub(crate) fn hand_over(&self, port: u16, to: &str) {
        let flow = patiently("the flow is known", || self.flow(port));
        let request = json!({"handover": {"flow": flow["flow"], "class": null, "to": to}});
        let answer = ask(&self.files.path().join("host"), &request).unwrap();
        assert!(answer["done"].is_string(), "{answer}");
    }

    /// Moves all flows to a path, then returns control to the steering.
    pub(crate) fn use_path(&self, name: &str) {
        for to in [json!(name), Value::Null] {
            let request = json!({"handover": {"flow": null, "class": null, "to": to}});
            let answer = ask(&self.files.path().join("host"), &request).unwrap();
            assert!(answer["done"].is_string(), "{answer}");
        }
    }

    /// Waits for the first matching event of a daemon since an instant.
    pub(crate) fn event(
        &self,
        role: &str,
        from: Time,
        wanted: impl Fn(&Value) -> bool,
    ) -> (Time, Value) {
        patiently_told(
            || format!("an event of the {role} other than\n{}", self.story(from)),
            || self.seen(role, from, &wanted),
        )
    }

    /// The first matching event of a daemon since an instant, if there is one yet.
    pub(crate) fn seen(
        &self,
        role: &str,
        from: Time,
        wanted: impl Fn(&Value) -> bool,
    ) -> Option<(Time, Value)> {
        let status = self.status(role)?;
        let events = status["events"].as_array()?.iter();
        let mut later = events.filter(|event| instant(event) >= from);
        later.find(|event| wanted(event)).map(|event| (instant(event), event.clone()))
    }

    /// Whether a daemon changed the state of a path since an instant: a stalled machine looks like
    /// a stalled network. The caller repeats such a measurement.
    pub(crate) fn stood_still(&self, from: Time, paths: &[&str]) -> bool {
        let changed = |role: &str| {
            let status = self.status(role).unwrap();
            let mut events = status["events"].as_array().unwrap().iter();
            events.any(|event| {
                event["kind"] == "path_state"
                    && instant(event) >= from
                    && paths.iter().any(|path| event["path"] == *path)
            })
        };
        let changed = changed("host") || changed("anchor");
        if changed {
            println!("again: the machine stood still for a moment");
        }
        changed
    }

    /// The events of both daemons since an instant, for failure messages.
    pub(crate) fn story(&self, from: Time) -> String {
        let mut lines = Vec::new();
        for role in ["host", "anchor"] {
            let status = self.status(role).unwrap_or_default();
            for event in status["events"].as_array().into_iter().flatten() {
                let [kind, path, to, detail] = ["kind", "path", "to", "detail"].map(|k| &event[k]);
                let at = instant(event);
                if at >= from {
                    let line = format!(
                        "{:8.1} ms {role} {kind} {path} {to} {detail} downlink {}",
                        at.since(from).as_millis_f64(),
                        event["downlink"]
                    );
                    lines.push((at, line));
                }
            }
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// An emulated access by its name.
    pub(crate) fn access(&self, name: &str) -> &Handle {
        if name == "wifi" { self.net.wifi() } else { self.net.lte() }
    }

    /// Starts or ends the silence of an access in both directions. Returns the instant from which
    /// it applies.
    pub(crate) fn silence(&self, name: &str, silent: bool) -> Time {
        Direction::ALL.map(|way| self.access(name).set_silent(way, silent))[1]
    }

    /// Clears the records of the accesses.
    pub(crate) fn forget(&self) {
        for name in ["wifi", "lte"] {
            drop(self.access(name).take_log());
        }
    }
}

/// The instant of an event.
pub(crate) fn instant(event: &Value) -> Time {
    Time(event["at_ns"].as_u64().unwrap())
}

/// A path of a status by its name.
pub(crate) fn path<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut paths = status["paths"].as_array().unwrap().iter();
    paths.find(|path| path["name"] == name).unwrap_or(&Value::Null)
}

/// Polls until there is a result.
pub(crate) fn patiently<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    patiently_told(|| what.to_owned(), ask)
}

/// Like [`patiently`], with a message that is built only on failure.
fn patiently_told<T>(what: impl Fn() -> String, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(socket: &PathBuf, request: &Value) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    writeln!(stream, "{request}").ok()?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}

fn spawn(
    node: &Netns,
    role: &str,
    files: &tempfile::TempDir,
    config: &str,
    join: Option<&str>,
) -> Running {
    let file = files.path().join(format!("{role}.toml"));
    std::fs::write(&file, config).unwrap();
    let log = File::create(files.path().join(format!("{role}.log"))).unwrap();
    let mut command = node.command(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.arg(role).arg("--config").arg(file);
    if let Some(line) = join {
        command.args(["--join", line, "--state"]).arg(files.path().join("host.db"));
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().unwrap())
}

/// Runs nftables in a node.
pub(crate) fn nft(node: &Netns, script: &str) {
    let output = node.command("nft").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
