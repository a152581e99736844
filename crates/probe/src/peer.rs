//! Two equal ends with one socket each: both send requests, then one becomes the client and the other the server.
//!
//! Each end draws a session (index and cookie) and sends requests. The end with the lower cookie (then index) is the
//! client: it keeps sending requests, and does not answer the other's. The other end answers requests from a lower
//! session, and stops sending requests once it receives one that repeats the timestamp of an answer; until then, the
//! requests may be forged or replayed. A server whose client falls silent sends requests again, so either end may start
//! first, or restart. Both ends send first, so both open the path through a NAT. If a NAT has changed the port of the
//! peer, an end also tries the port that requests come from, and keeps the one that answers come from.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;

use segue_clock::{Span, Time};
use segue_keepalive::{Config, State};
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_linux::udp::{Datagram, TimestampedSocket};
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};
use serde::Serialize;

use super::client::grace;
use super::endpoint::LENGTH_MAX;
use super::listen::check;
use super::running::Running;
use super::screen::{Output, Screen, TargetSummary, print, print_json, summary};
use super::session::{ClientReport, Key, Session};
use super::target::{BATCH_MAX, Marks, News, Target};
use crate::metrics::{Page, Server as Metrics};

/// Maximum number of sessions that have not repeated one of our timestamps yet; a further one replaces the session that
/// has been silent for longest.
const CANDIDATES_MAX: usize = 64;
/// Number of recent answers whose timestamps such a session may repeat: enough for a round-trip time of this many
/// periods.
const STAMPS_MAX: usize = 256;
/// Number of RTT samples for percentiles.
const SAMPLES_MAX: usize = 100_000;

/// Options of a measurement with a peer.
pub(crate) struct PeerOptions {
    /// Settings of the measurement.
    pub config: Config,
    /// Length and DSCP of requests.
    pub marks: Marks,
    /// Answers have the DSCP of their requests.
    pub echo_dscp: bool,
    /// Probes are authenticated with the operator's key.
    pub keyed: bool,
    /// How long to measure.
    pub deadline: Option<Span>,
    /// Output format.
    pub output: Output,
    /// Metrics and scheduling of the process.
    pub running: Running,
}

/// The role of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It sends requests; no peer has answered or sent a request yet.
    Asking,
    /// It sends requests and receives answers.
    Client,
    /// It answers requests.
    Server,
}

/// A session that may be forged: its requests are answered, but it is not accepted yet.
struct Candidate {
    key: Key,
    session: Session,
    /// t_Ss of recent answers.
    stamps: VecDeque<u32>,
}

struct Peer {
    target: Target,
    session: Option<(Key, Session)>,
    /// Ordered by the time when each was last heard.
    candidates: VecDeque<Candidate>,
    /// The given address, or a later one at which the peer has proved that it receives.
    proven: SocketAddr,
    /// Source of a request that may be forged; requests are sent alternately there and to `proven`.
    hint: Option<SocketAddr>,
    role: Role,
    config: Config,
    keyed: bool,
    echo_dscp: bool,
}

#[derive(Serialize)]
struct RoleLine<'a> {
    r#type: &'static str,
    target: &'a str,
    role: &'static str,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    scheduling: &'static str,
    role: &'static str,
    /// Measurements of this end as a client, and below as a server.
    targets: Vec<TargetSummary<'a>>,
    clients: Vec<ClientReport>,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Asking => "asking",
            Role::Client => "client",
            Role::Server => "server",
        }
    }
}

/// Measures until interrupted, or until the time is over.
///
/// # Errors
/// Signals, sockets or output fail.
pub(crate) fn run(
    socket: TimestampedSocket,
    name: &str,
    address: SocketAddr,
    key: ProbeKey,
    options: PeerOptions,
) -> anyhow::Result<ExitCode> {
    if options.echo_dscp {
        socket.receive_traffic_class()?;
    }
    let signals = StopSignals::take()?;
    let metrics = options.running.told_metrics(options.output)?;
    let scheduling = options.running.scheduling();
    let start = clock::monotonic();
    let end = options.deadline.map(|length| start + length);
    let mut peer = Peer {
        target: Target::over(socket, name, address, key, &options.config, options.marks)?,
        session: None,
        candidates: VecDeque::new(),
        proven: address,
        hint: None,
        role: Role::Asking,
        config: options.config,
        keyed: options.keyed,
        echo_dscp: options.echo_dscp,
    };
    let screen = Screen::lines(options.output, start);
    let mut told = None;
    loop {
        let news = peer.turn()?;
        let now = clock::monotonic();
        if told.replace(peer.role) != Some(peer.role) {
            peer.tell_role(options.output)?;
        }
        for news in &news {
            screen.tell(now, name, news)?;
        }
        if let Some(metrics) = &metrics {
            metrics.answer(|| peer.page());
        }
        let wake = peer.deadline().into_iter().chain(end).min();
        let sockets = [peer.target.as_fd()].into_iter();
        let interrupted =
            signals.wait(sockets.chain(metrics.as_ref().map(Metrics::as_fd)), wake)?;
        if interrupted || end.is_some_and(|end| end <= clock::monotonic()) {
            break;
        }
    }
    peer.summary(options.output, scheduling)?;
    Ok(if peer.heard() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Peer {
    /// Processes received datagrams, then due timers.
    fn turn(&mut self) -> io::Result<Vec<News>> {
        let mut news = Vec::new();
        let mut buffer = vec![0; LENGTH_MAX];
        for _ in 0..BATCH_MAX {
            let Some(datagram) = self.target.take(&mut buffer)? else { break };
            match self.on_datagram(&datagram, &buffer[..datagram.len])? {
                Ok(more) => news.extend(more),
                Err(reason) => self.target.drops.count(reason),
            }
        }
        let now = clock::monotonic();
        match &mut self.session {
            Some((_, session)) if self.role == Role::Server => {
                if session.deadline().is_some_and(|at| at <= now) {
                    news.extend(session.tick(now));
                }
                if session.state() == State::Down {
                    self.role = Role::Asking;
                    self.target.resume();
                }
            }
            _ if self.target.deadline().is_some_and(|at| at <= now) => {
                let sent = self.target.sent;
                news.extend(self.target.tick(now));
                if let Some(hint) = self.hint.filter(|_| self.target.sent != sent) {
                    let turn = self.target.address == self.proven;
                    self.target.address = if turn { hint } else { self.proven };
                }
            }
            _ => {}
        }
        Ok(news)
    }

    fn on_datagram(
        &mut self,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> io::Result<Result<Vec<News>, &'static str>> {
        let is_request = Header::parse(bytes).is_ok_and(|h| h.packet_type == PacketType::Request);
        if is_request {
            return self.on_request(datagram, bytes);
        }
        let taken = self.target.on_datagram(datagram, bytes).map_err(DropReason::name);
        // The sender knows the cookie, so it must have received the request.
        if taken.is_ok() && self.role == Role::Asking {
            self.role = Role::Client;
            self.prove(datagram.source);
        }
        Ok(taken.map(|()| self.target.news()))
    }

    fn on_request(
        &mut self,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> io::Result<Result<Vec<News>, &'static str>> {
        let (header, probe) = match check(bytes, &self.target.end) {
            Ok(request) => request,
            Err(reason) => return Ok(Err(reason)),
        };
        let key = (header.index, header.cookie);
        if key == self.target.key() {
            // This end's own packet, reflected back.
            return Ok(Err(DropReason::Replay.name()));
        }
        // Without a key, anyone could send a valid request.
        if !self.keyed && datagram.source.ip() != self.proven.ip() {
            return Ok(Err(super::guard::NOT_ALLOWED));
        }
        let known = self.session.as_ref().is_some_and(|(served, _)| *served == key);
        if !known {
            // Do not abandon a working session for a possible replay. A restarted peer is accepted once its previous
            // session is silent.
            if self.works() {
                return Ok(Err(DropReason::UnknownIndex.name()));
            }
            if order(self.target.key()) < order(key) {
                if self.role == Role::Asking && datagram.source != self.proven {
                    self.hint = Some(datagram.source);
                }
                return Ok(Ok(Vec::new()));
            }
            return self.on_candidate(key, datagram, (&header, &probe));
        }
        let Some((_, session)) = &mut self.session else { return Ok(Ok(Vec::new())) };
        if !session.is_new(&probe) {
            session.on_repeated(datagram, &header, &probe);
            return Ok(Err(DropReason::Replay.name()));
        }
        let request = (&header, &probe);
        let answered =
            session.on_request(&mut self.target.end, datagram, request, self.echo_dscp)?;
        self.role = Role::Server;
        self.target.end();
        self.prove(datagram.source);
        Ok(Ok(answered))
    }

    /// Handles a request of a session that may become the client's. The session is accepted once it repeats the
    /// timestamp of one of our answers, which only their receiver knows.
    fn on_candidate(
        &mut self,
        key: Key,
        datagram: &Datagram,
        (header, probe): (&Header, &Probe),
    ) -> io::Result<Result<Vec<News>, &'static str>> {
        let known = self.candidates.iter().position(|candidate| candidate.key == key);
        let known = known.and_then(|place| self.candidates.remove(place));
        let mut candidate = known.unwrap_or_else(|| Candidate {
            key,
            session: Session::new(datagram.source, &self.config, datagram.at, key.1, SAMPLES_MAX),
            stamps: VecDeque::new(),
        });
        let new = candidate.session.is_new(probe);
        let echoes = new && probe.t_ss != 0 && candidate.stamps.contains(&probe.t_ss);
        let mut news = Vec::new();
        if new {
            let (end, request) = (&mut self.target.end, (header, probe));
            let before = candidate.session.state();
            news = candidate.session.on_request(end, datagram, request, self.echo_dscp)?;
            if echoes && before != State::Starting {
                news.insert(0, News::State(before));
            }
        }
        if echoes {
            self.role = Role::Server;
            self.target.end();
            self.prove(datagram.source);
            self.session = Some((key, candidate.session));
            self.candidates.clear();
            return Ok(Ok(news));
        }
        if candidate.stamps.len() == STAMPS_MAX {
            candidate.stamps.pop_front();
        }
        candidate.stamps.extend(candidate.session.stamped().filter(|_| new));
        if self.candidates.len() == CANDIDATES_MAX {
            self.candidates.pop_front();
        }
        self.candidates.push_back(candidate);
        Ok(if new { Ok(Vec::new()) } else { Err(DropReason::Replay.name()) })
    }

    /// Accepts an address at which the peer has proved that it receives.
    fn prove(&mut self, address: SocketAddr) {
        self.proven = address;
        self.target.address = address;
        self.hint = None;
    }

    /// True if probes arrive in the current roles.
    fn works(&self) -> bool {
        match (&self.session, self.role) {
            (Some((_, session)), Role::Server) => session.state() == State::Up,
            (_, Role::Client) => self.target.machine().state() == State::Up,
            _ => false,
        }
    }

    /// True if anything was ever received.
    fn heard(&self) -> bool {
        self.target.received > 0 || self.session.is_some()
    }

    fn deadline(&self) -> Option<Time> {
        match &self.session {
            Some((_, session)) if self.role == Role::Server => session.deadline(),
            _ => self.target.deadline(),
        }
    }

    fn tell_role(&self, output: Output) -> io::Result<()> {
        let (target, role) = (self.target.name.as_str(), self.role.name());
        match output {
            Output { json: true, .. } => print_json(&RoleLine { r#type: "role", target, role }),
            Output { quiet: true, .. } => Ok(()),
            _ => print(&format!("{target}: this end is {role}")),
        }
    }

    fn page(&self) -> String {
        let mut page = Page::default();
        let name = vec![("target", self.target.name.clone())];
        match &self.session {
            Some((_, session)) if self.role == Role::Server => {
                page.paths(&[session.view(name.clone(), &self.config)]);
            }
            _ => page.paths(&[self.target.view(&self.config)]),
        }
        page.drops(&name, self.target.drops.by_reason());
        page.text()
    }

    fn summary(&self, output: Output, scheduling: &'static str) -> io::Result<()> {
        let since = clock::monotonic() - grace(&self.config);
        let asked = (self.target.received > 0 || self.session.is_none())
            .then(|| summary(&self.target, since));
        let served = self.session.as_ref().map(|(key, session)| session.report(*key));
        if output.json {
            return print_json(&Summary {
                r#type: "summary",
                scheduling,
                role: self.role.name(),
                targets: asked.into_iter().collect(),
                clients: served.into_iter().collect(),
            });
        }
        if let Some(target) = asked {
            print(&target.text())?;
        }
        if let Some(client) = served {
            print(&format!("\n--- {} as its server ---\n{}", self.target.name, client.text()))?;
        }
        Ok(())
    }
}

/// Sort key: the session with the lower one belongs to the client.
fn order((index, cookie): Key) -> (u64, u32) {
    (cookie, index)
}
