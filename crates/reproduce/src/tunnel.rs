//! The courses of [`super::track`] over the tunnel: host and anchor daemons on the demonstration's network, with the
//! same course on both accesses. The result is the host's measurements of its two paths and the emulators' records. The
//! estimators are the datapath's: the eBPF programs if the kernel can load them.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use segue_clock::{Span, Time};
use segue_daemon::control::{Count, PathStatus};
use segue_daemon::settings::Choice;
use segue_demo::stage::Stage as Daemons;
use segue_keepalive::{Config, Counted, Tau};
use segue_lab::{DemoNet, DemoOptions, Direction, Handle, Record};
use segue_linux::clock::monotonic;
use segue_wire::header::flags;
use segue_wire::{Header, PacketType, TUNNEL_PORT};

use super::experiment::Stage;
use super::track::{self, Client, Course, Level, Look, Track};

/// A realistic K, from the paper's example (section 4.3).
pub(crate) const K: u8 = 7;
/// Random loss in each direction if a course does not define loss.
pub(crate) const LOSS: f64 = 0.01;
/// Interval between polls of the host.
const LOOK: Duration = Duration::from_millis(10);
const PATHS: [&str; 2] = [DemoNet::WIFI, DemoNet::LTE];

/// Host and anchor, with both paths up and measured.
pub(crate) struct Tunnel {
    daemons: Daemons,
    _files: tempfile::TempDir,
}

impl Tunnel {
    /// Builds the network and starts both daemons. `tag` is the prefix of the namespaces' names.
    ///
    /// # Errors
    /// Namespaces cannot be created for lack of permission, a daemon does not start, or the user asks to stop.
    pub(crate) fn start(
        stage: &Stage,
        tag: &str,
        level: Level,
        config: &Config,
    ) -> anyhow::Result<Tunnel> {
        let options = DemoOptions {
            tag: tag.to_owned(),
            wifi: level.spec(1),
            lte: level.spec(2),
            nat: false,
        };
        let net = DemoNet::start(&options).context("the network cannot be built")?;
        let files = tempfile::Builder::new().prefix("segue-reproduce").tempdir()?;
        let daemons = Daemons::start(net, files.path(), tag, Choice::Auto, &lines(config))?;
        daemons.wait_ready(&stage.interrupts)?;
        Ok(Tunnel { daemons, _files: files })
    }

    /// The daemons and their network.
    pub(crate) fn daemons(&self) -> &Daemons {
        &self.daemons
    }

    fn accesses(&self) -> [&Handle; 2] {
        [self.daemons.net().wifi(), self.daemons.net().lte()]
    }
}

/// The host's probing settings as lines of its configuration file, without relying on defaults. The first average may
/// be asymmetric.
fn lines(config: &Config) -> String {
    let time = |span: Span| format!("\"{}us\"", span.0 / 1_000);
    let taus: Vec<String> = config.taus.iter().map(|tau| time(tau.fall)).collect();
    let mut text = String::from("\n[keepalive]\n");
    let _ = writeln!(text, "k = {}\nperiod = \"{}ms\"", config.k, config.t_ka.0 / 1_000_000);
    let _ = writeln!(text, "tau = [{}]\nloss_interval = {}", taus.join(", "), config.n);
    if let Some(Tau { rise, fall }) = config.taus.first() {
        let _ = writeln!(text, "tau_rise = {}\ntau_fall = {}", time(*rise), time(*fall));
    }
    let _ = writeln!(text, "rides = {}", config.rides);
    text
}

/// Runs a course. Its clients are the host's two paths.
///
/// # Errors
/// As [`Tunnel::start`].
pub(crate) fn run(stage: &Stage, course: &Course) -> anyhow::Result<Track> {
    let (_, first) = *course.levels.first().context("a course without levels")?;
    let tunnel = Tunnel::start(stage, course.tag, first, &course.config)?;
    let start = monotonic();
    let mut levels = vec![(0.0, first)];
    let mut next_levels = course.levels[1..].iter().peekable();
    let mut looks: [Vec<Look>; 2] = Default::default();
    let datapath = loop {
        stage.check()?;
        tunnel.daemons.check_alive()?;
        let now = monotonic();
        if let Some((_, level)) = next_levels.next_if(|(at, _)| start + *at <= now) {
            let mut at = now;
            for access in tunnel.accesses() {
                at = track::impose(access, *level)?;
            }
            levels.push((at.since(start).as_secs_f64(), *level));
        }
        let status = tunnel.daemons.status("host", u64::MAX)?;
        let at = Time(status.head.now_ns).as_secs_f64() - start.as_secs_f64();
        for (name, looks) in PATHS.iter().zip(&mut looks) {
            let path = status.body.paths.iter().find(|path| path.name == *name);
            look(path.context("the host has lost a path")?, at, looks);
        }
        if now >= start + course.length {
            break status.body.datapath;
        }
        std::thread::sleep(LOOK);
    };
    let mut late_max_ms = 0f64;
    let mut clients = Vec::new();
    for (access, looks) in tunnel.accesses().into_iter().zip(looks) {
        late_max_ms = late_max_ms.max(track::lateness(access)?);
        clients.push(client(&access.take_log(), looks, start));
    }
    let how = format!(
        "What the host daemon says of its two paths (datapath {datapath}, K = {}; seeds 1 and 2), which have the same course,",
        course.config.k
    );
    Ok(Track { levels, clients, late_max_ms, how })
}

/// Records a path's measurement if it has changed.
fn look(path: &PathStatus, at: f64, looks: &mut Vec<Look>) {
    let owl_ewma = [&path.owl_up, &path.owl_down].map(|all| all.first().copied());
    let old = looks.last();
    if old.is_none_or(|old| old.rtt_ms != path.rtt_ms || old.owl_ewma != owl_ewma) {
        let counted = |Count { sent, lost }| Counted { sent, received: sent.saturating_sub(lost) };
        let counted = [path.up, path.down].map(counted);
        looks.push(Look { at, rtt_ms: path.rtt_ms.clone(), owl_up: None, owl_ewma, counted });
    }
}

/// True if the path's counters include this packet. They exclude probes of the packet size, and questions and their
/// answers.
fn is_counted(record: &Record) -> bool {
    let counts = |header: Header| match header.packet_type {
        PacketType::Data | PacketType::Ride => true,
        PacketType::Request => header.flags & flags::REQUEST_QUESTION == 0,
        PacketType::Response => header.flags & flags::RESPONSE_QUESTION == 0,
        PacketType::Size => false,
    };
    record.is_udp(TUNNEL_PORT) && Header::parse(&record.payload).is_ok_and(counts)
}

fn client(log: &[Record], looks: Vec<Look>, start: Time) -> Client {
    let ways = Direction::ALL.map(|way| {
        let mine = log.iter().filter(|record| record.direction == way && is_counted(record));
        let mut mine: Vec<&Record> = mine.collect();
        mine.sort_by_key(|record| record.arrival);
        mine
    });
    Client::new(looks, &ways, start)
}
