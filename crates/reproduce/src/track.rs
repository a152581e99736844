//! Probes over an emulated path whose round-trip time and loss follow a course: two namespaces with the link emulator
//! between them, clients of `segue probe` in one and `segue probe --listen` in the other. The result is each client's
//! measurements and the emulator's record of each packet.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_keepalive::{Config, Counted};
use segue_lab::topology::End;
use segue_lab::{Direction, EmulatorSpec, Handle, Lab, Record};
use segue_linux::clock::monotonic;
use segue_netem::{LinkSpec, Loss};
use segue_probe::target::{Marks, News, Target};
use segue_wire::ProbeKey;

use super::experiment::Stage;

const HOST: [u8; 4] = [10, 62, 0, 1];
const ANCHOR: [u8; 4] = [10, 62, 0, 2];
const PORT: u16 = 5_007;
/// How long the listener may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum interval between checks of the clock and of the user's request to stop.
const LOOK: Span = Span::from_millis(50);

/// The imposed course, and the measurement settings.
pub(crate) struct Course {
    /// Prefix of the namespaces' names: lower-case letters, unique among experiments.
    pub tag: &'static str,
    /// The clients' settings.
    pub config: Config,
    /// Number of concurrent clients, spread over one T_KA, so that they see the path with different phases.
    pub clients: u32,
    /// The imposed levels and when each begins; the first one applies from the start.
    pub levels: Vec<(Span, Level)>,
    /// Total length.
    pub length: Span,
}

/// Conditions imposed on the path: half of the round-trip time in each direction, and the full loss in each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    /// Round-trip time in milliseconds.
    pub rtt_ms: u64,
    /// Exactly one packet in this many is lost, in each direction; `None` for random loss.
    pub one_lost_of: Option<u64>,
    /// Independent loss probability of each packet, if `one_lost_of` is `None`.
    pub random_loss: f64,
}

/// The measured and the imposed values. Times are in seconds from the start.
pub(crate) struct Track {
    /// When each level took effect.
    pub levels: Vec<(f64, Level)>,
    /// The clients, in the order of their phases.
    pub clients: Vec<Client>,
    /// Maximum delay of a packet in the emulator beyond its due time, in milliseconds.
    pub late_max_ms: f64,
    /// The measuring programs and their settings.
    pub how: String,
}

/// One client's measurements, and the conditions imposed on its probes.
#[derive(Default)]
pub(crate) struct Client {
    /// The client's state after each probe.
    pub looks: Vec<Look>,
    /// Imposed round-trip times in ms, by the time at which the emulator forwarded the answer.
    pub imposed: Vec<(f64, f64)>,
    /// Requests in order of arrival at the emulator; true if it dropped the request.
    pub requests: Vec<(f64, bool)>,
    /// Answers, likewise.
    pub answers: Vec<(f64, bool)>,
}

/// A client's state after a probe.
pub(crate) struct Look {
    /// When the probe's answer arrived.
    pub at: f64,
    /// Averages of the round-trip time in ms, one for each time constant.
    pub rtt_ms: Vec<f64>,
    /// Loss from client to server over the interval that ended with this probe, if one did.
    pub owl_up: Option<f64>,
    /// Averages of the loss, `[up, down]`, with the main time constant.
    pub owl_ewma: [Option<f64>; 2],
    /// Packets that the measurement has counted, `[up, down]`.
    pub counted: [Counted; 2],
}

impl Level {
    /// A round-trip time without loss.
    pub(crate) fn of(rtt_ms: u64) -> Level {
        Level { rtt_ms, one_lost_of: None, random_loss: 0.0 }
    }

    /// The emulator's settings for the access, equal in both directions.
    pub(crate) fn spec(self, seed: u64) -> EmulatorSpec {
        EmulatorSpec { up: self.way(), down: self.way(), seed, log: true }
    }

    fn way(self) -> LinkSpec {
        // A number of packets that no experiment of a few minutes reaches.
        const MANY: u64 = 100_000;
        let loss = match self.one_lost_of {
            Some(n) => Loss::Exact((0..MANY / n).map(|i| i * n + n / 2).collect()),
            None if self.random_loss > 0.0 => Loss::Bernoulli(self.random_loss),
            None => Loss::None,
        };
        LinkSpec { delay: Span::from_micros(self.rtt_ms * 500), loss, ..LinkSpec::default() }
    }
}

/// Runs a course.
///
/// # Errors
/// Namespaces cannot be created for lack of permission, the listener does not start, or the user asks to stop.
pub(crate) fn run(stage: &Stage, course: &Course) -> anyhow::Result<Track> {
    let (_, first) = *course.levels.first().context("a course without levels")?;
    let lab = network(course.tag, first)?;
    let path = lab.emulator("path")?;
    let _listener = Listener::start(&lab)?;
    let start = monotonic();
    let mut clients: Vec<Running> = (0..course.clients)
        .map(|i| Running {
            target: None,
            starts: start + Span(course.config.t_ka.0 / u64::from(course.clients) * u64::from(i)),
            looks: Vec::new(),
        })
        .collect();
    let mut levels = vec![(0.0, first)];
    let mut next_levels = course.levels[1..].iter().peekable();
    let end = start + course.length;
    loop {
        stage.check()?;
        let now = monotonic();
        if now >= end {
            break;
        }
        if let Some((_, level)) = next_levels.next_if(|(at, _)| start + *at <= now) {
            let at = impose(path, *level)?;
            levels.push((at.since(start).as_secs_f64(), *level));
        }
        let mut wake = end.min(now + LOOK);
        wake = next_levels.peek().map_or(wake, |(at, _)| wake.min(start + *at));
        for client in &mut clients {
            wake = wake.min(client.step(now, start, &lab, &course.config)?);
        }
        wait(&clients, wake)?;
    }
    let late_max_ms = lateness(path)?;
    let clients = truths(&path.take_log(), start, clients);
    let how =
        "Probes of segue probe (user space, kernel timestamps; seed 1) between two namespaces"
            .into();
    Ok(Track { levels, clients, late_max_ms, how })
}

/// Maximum delay of a packet in an emulator beyond its due time, in milliseconds.
///
/// # Errors
/// The emulator failed, or did anything other than what its settings say.
pub(crate) fn lateness(path: &Handle) -> anyhow::Result<f64> {
    if let Some(why) = path.failure() {
        anyhow::bail!("the link emulator gave up: {why}");
    }
    let health = path.health();
    ensure!(
        (health.overruns, health.send_failures) == (0, 0),
        "the emulator lost packets of its own: the machine is too busy for a valid run"
    );
    Ok(health.late_max.as_millis_f64())
}

fn network(tag: &str, level: Level) -> anyhow::Result<Lab> {
    let mut lab = Lab::new(tag)?;
    lab.add_node("host", false)?;
    lab.add_node("anchor", false)?;
    let [near, far] = [HOST, ANCHOR].map(|ip| [Prefix::new(std::net::Ipv4Addr::from(ip), 24)]);
    let spec = level.spec(1);
    lab.emulate(
        "path",
        End { node: "host", device: "access", addresses: &near },
        End { node: "anchor", device: "access", addresses: &far },
        &spec,
    )?;
    Ok(lab)
}

/// Imposes a level from this moment on; returns the time.
pub(crate) fn impose(path: &Handle, level: Level) -> anyhow::Result<Time> {
    let mut at = Time::ZERO;
    for direction in Direction::ALL {
        at = path.set_model(direction, level.way())?;
    }
    Ok(at)
}

/// A running client.
struct Running {
    target: Option<Target>,
    starts: Time,
    looks: Vec<Look>,
}

impl Running {
    /// Sends due probes and receives answers; returns when to call it again.
    fn step(&mut self, now: Time, start: Time, lab: &Lab, config: &Config) -> anyhow::Result<Time> {
        if self.target.is_none() && now >= self.starts {
            let address = (ANCHOR, PORT).into();
            let key = ProbeKey::default();
            let open = || Target::new("anchor", address, None, key, config, Marks::default());
            self.target = Some(lab.node("host")?.run(open)??);
        }
        let Some(target) = &mut self.target else { return Ok(self.starts) };
        let mut news = target.receive()?;
        if target.deadline().is_some_and(|at| at <= now) {
            news.extend(target.tick(now));
        }
        let samples = news.into_iter().filter_map(|news| match news {
            News::Sample { sample, .. } => Some(sample),
            _ => None,
        });
        // The averages reflect the last sample; earlier samples of the same call get none.
        let samples: Vec<_> = samples.collect();
        for (i, sample) in samples.iter().enumerate() {
            let estimates = target.machine().estimates();
            let rtt_ms = match i + 1 == samples.len() {
                true => estimates.rtt_ewma.iter().map(|s| s * 1e3).collect(),
                false => Vec::new(),
            };
            self.looks.push(Look {
                at: sample.at.as_secs_f64() - start.as_secs_f64(),
                rtt_ms,
                owl_up: sample.owl_up,
                owl_ewma: [&estimates.owl_up, &estimates.owl_down].map(|e| e.first().copied()),
                counted: [estimates.up, estimates.down],
            });
        }
        Ok(target.deadline().unwrap_or(now + LOOK))
    }
}

/// Waits for packets until `until`.
fn wait(clients: &[Running], until: Time) -> anyhow::Result<()> {
    let sockets = clients.iter().filter_map(|client| client.target.as_ref());
    let mut fds: Vec<_> = sockets.map(|t| PollFd::new(t.as_fd(), PollFlags::POLLIN)).collect();
    let ms = until.since(monotonic()).0.div_ceil(1_000_000).min(1_000) as u16;
    match poll(&mut fds, PollTimeout::from(ms)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e).context("wait for packets"),
    }
}

/// Assigns to each client the emulator's record of its probes. A port identifies a client; the ports appear in the
/// order in which the clients began.
fn truths(log: &[Record], start: Time, clients: Vec<Running>) -> Vec<Client> {
    let mut log: Vec<&Record> = log.iter().filter(|record| record.is_udp(PORT)).collect();
    log.sort_by_key(|record| record.arrival);
    let port = |record: &Record| {
        record
            .ports
            .map(|p| if record.direction == Direction::Up { p.source } else { p.destination })
    };
    let mut ports = Vec::new();
    for record in &log {
        if !ports.contains(&port(record)) {
            ports.push(port(record));
        }
    }
    let each = clients.into_iter().zip(ports);
    each.map(|(client, mine)| {
        let ways = Direction::ALL.map(|way| {
            let of = |r: &&&Record| r.direction == way && port(r) == mine;
            log.iter().filter(of).copied().collect::<Vec<_>>()
        });
        Client::new(client.looks, &ways, start)
    })
    .collect()
}

impl Client {
    /// Combines measurements with the emulator's records of the packets up and down, in order of arrival.
    pub(crate) fn new(looks: Vec<Look>, [up, down]: &[Vec<&Record>; 2], start: Time) -> Client {
        let seconds = |at: Time| at.as_secs_f64() - start.as_secs_f64();
        let fates = |packets: &[&Record]| {
            packets.iter().map(|r| (seconds(r.arrival), r.delay().is_none())).collect()
        };
        Client {
            looks,
            imposed: round_trips(up, down)
                .map(|(at, rtt)| (seconds(at), rtt.as_millis_f64()))
                .collect(),
            requests: fates(up),
            answers: fates(down),
        }
    }
}

/// The round-trip time imposed on each answered probe. The far end answers at once, so an answer is the next packet in
/// the other direction.
fn round_trips(up: &[&Record], down: &[&Record]) -> impl Iterator<Item = (Time, Span)> {
    up.iter().filter_map(|request| {
        let there = request.delay()?;
        let answer =
            down[down.partition_point(|a| a.arrival < request.arrival + there)..].first()?;
        let back = answer.delay()?;
        Some((answer.arrival + back, there + back))
    })
}

/// `segue probe --listen` at the far end. Dropping it stops the process.
struct Listener(Child);

impl Listener {
    fn start(lab: &Lab) -> anyhow::Result<Listener> {
        let program = std::env::current_exe().context("the program does not know where it is")?;
        let address = std::net::SocketAddr::from((ANCHOR, PORT)).to_string();
        let mut command = lab.node("anchor")?.command(program);
        command.args(["probe", "--json", "--listen", &address]).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).spawn().context("cannot start the listener")?;
        let mut listener = Listener(child);
        let output = listener.0.stdout.take().context("the listener has no output")?;
        let (sink, ready) = std::sync::mpsc::channel();
        // Reads to the end: a full pipe would block the listener.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sink.send(line);
            }
        });
        let line = ready.recv_timeout(PATIENCE).context("the listener says nothing")?;
        ensure!(line.contains("listening"), "the listener says {line}");
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
