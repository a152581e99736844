//! The Session-Reflector: one socket, any number of senders.
//!
//! A session is the sender's address and port, the address it asked, and its SSID (RFC 8972, section 3).
//! Nothing is provisioned: the first request of a session begins it, and it ends after a silence. An
//! answer is as long as its request; how many leave in a second is bounded, and so are the sessions.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use segue_clock::{Span, Time, Timers};
use segue_datapath::StampAnswers;
use segue_linux::clock;
use segue_linux::udp::{Datagram, TimestampedSocket, UdpError};
use segue_wire::stamp::tlv::FollowUp;
use segue_wire::stamp::{ErrorEstimate, Facts, Request, StampKey};
use segue_wire::{DropReason, WireError};
use serde::Serialize;

use super::{error_estimate, stamp};
use crate::cmd::probe::guard::{Guard, NOT_ALLOWED, RATE_LIMIT, Rates};
use crate::cmd::probe::listen::bind;
use crate::cmd::probe::refusals::Refusals;
use crate::cmd::probe::screen::{Output, print, print_json};
use crate::cmd::probe::shown;
use crate::cmd::probe::signals::Signals;

/// Sessions at a time; one more takes the place of the one silent for longest.
const SESSIONS_MAX: usize = 10_000;
/// A session that is silent for this long is over (TWAMP's REFWAIT, RFC 5357, 4.2).
const IDLE: Span = Span::from_secs(900);
/// Answers in a second, unless told otherwise.
pub const RATE_MAX: u32 = 20_000;
/// DSCPs that answers may have: all but those of network control, CS6 and above.
const DSCPS: u64 = (1 << 48) - 1;
/// Answers whose transmit stamps are waited for.
const PENDING_MAX: usize = 4_096;
/// Datagrams taken before timers and signals get their turn.
const BATCH_MAX: usize = 1_000;
/// Bytes of receive buffer asked for.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Time between two looks at the clock's quality, and two refreshments of the kernel's answers.
const REFRESH: Span = Span::from_secs(1);
/// The TTL that TWAMP asks for.
const TTL: u8 = 255;
/// Refused: it comes from the port of a reflector.
const LOOP: &str = "loop";

/// Sender, address asked, SSID.
type Key = (SocketAddr, Option<IpAddr>, u16);

/// How to answer.
pub struct Settings {
    /// Authenticated mode: requests without the right HMAC are refused.
    pub key: Option<StampKey>,
    /// Number the answers of each session.
    pub stateful: bool,
    /// Bit *n*: answers may have DSCP *n*.
    pub dscps: u64,
    /// Answers have the DSCP of their requests, if they ask for no other.
    pub echo_dscp: bool,
    /// Who gets an answer, and how many.
    pub guard: Guard,
    /// Sessions at a time.
    pub sessions_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            key: None,
            stateful: true,
            dscps: DSCPS,
            echo_dscp: true,
            guard: Guard::new(Vec::new(), Rates { source: None, total: Some(RATE_MAX) }),
            sessions_max: SESSIONS_MAX,
        }
    }
}

/// A reflector.
pub struct Reflector {
    socket: TimestampedSocket,
    port: u16,
    settings: Settings,
    sessions: BTreeMap<Key, Session>,
    idle: Timers<Key>,
    /// Answers without a transmit stamp yet: the socket's number, session, the answer's number.
    pending: VecDeque<(u32, Key, u32)>,
    estimate: ErrorEstimate,
    refreshed: Time,
    drops: Refusals,
}

#[derive(Default)]
struct Session {
    received: u32,
    sent: u32,
    follow_up: Option<FollowUp>,
}

#[derive(Serialize)]
struct Listening {
    r#type: &'static str,
    protocol: &'static str,
    address: String,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    protocol: &'static str,
    sessions: Vec<SessionReport>,
    /// Answers of the kernel, which appear in no session.
    kernel_answers: u64,
    drops: &'a BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct SessionReport {
    client: String,
    ssid: u16,
    received: u32,
    sent: u32,
}

/// Answers until interrupted.
///
/// # Errors
/// If the system refuses signals, sockets or output.
pub fn run(
    mut reflector: Reflector,
    mut kernel: Option<StampAnswers>,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::take()?;
    let address = reflector.local_addr()?.to_string();
    if let Some(kernel) = &mut kernel {
        refresh(kernel)?;
    }
    if output.json {
        print_json(&Listening { r#type: "listening", protocol: "stamp", address })?;
    } else if !output.quiet {
        print(&format!("reflecting STAMP on {address}"))?;
    }
    let mut due = clock::monotonic() + REFRESH;
    loop {
        reflector.serve()?;
        let now = clock::monotonic();
        if due <= now {
            if let Some(kernel) = &mut kernel {
                refresh(kernel)?;
            }
            due = now + REFRESH;
        }
        if signals.wait([reflector.as_fd()].into_iter(), Some(due))? {
            break;
        }
    }
    // What came before the signal counts.
    reflector.serve()?;
    let answers = kernel.as_ref().map_or(0, StampAnswers::answered);
    reflector.summary(answers, output)?;
    Ok(ExitCode::SUCCESS)
}

fn refresh(kernel: &mut StampAnswers) -> anyhow::Result<()> {
    kernel.refresh().context("cannot set the kernel's clock")
}

impl Reflector {
    /// Opens the reflector's socket.
    ///
    /// # Errors
    /// One line that says why, and what to do.
    pub fn bind(
        address: SocketAddr,
        interface: Option<&str>,
        settings: Settings,
    ) -> anyhow::Result<Reflector> {
        let socket = bind(address, interface).map_err(|error| match &error {
            UdpError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                anyhow!(
                    "port {port} is for root (or CAP_NET_BIND_SERVICE); \
                     choose another, for example --listen :{free}",
                    port = address.port(),
                    free = 8_000 + u32::from(address.port())
                )
            }
            _ => error.into(),
        })?;
        socket.set_receive_buffer(RECEIVE_BUFFER_BYTES);
        socket.set_ttl(TTL).context("cannot set the TTL")?;
        socket.receive_ttl().context("cannot ask for the TTL of requests")?;
        socket.receive_traffic_class().context("cannot ask for the DSCP of requests")?;
        let port = socket.local_addr().context("the socket has no address")?.port();
        Ok(Reflector {
            socket,
            port,
            settings,
            sessions: BTreeMap::new(),
            idle: Timers::new(),
            pending: VecDeque::new(),
            estimate: error_estimate(Span::ZERO),
            refreshed: clock::monotonic(),
            drops: Refusals::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's, which has no reason to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers what has arrived, and forgets the silent.
    ///
    /// # Errors
    /// If the socket is broken.
    pub fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 65_536];
        let mut out = vec![0; 65_536];
        for _ in 0..BATCH_MAX {
            self.collect_stamps()?;
            let Some(datagram) = self.socket.recv(&mut buffer)? else { break };
            if let Err(reason) = self.on_datagram(&datagram, &buffer[..datagram.len], &mut out) {
                self.drops.count(reason);
            }
        }
        let now = clock::monotonic();
        if self.refreshed + REFRESH <= now {
            self.estimate = error_estimate(Span::ZERO);
            self.refreshed = now;
        }
        while let Some(key) = self.idle.pop_due(now) {
            self.sessions.remove(&key);
        }
        Ok(())
    }

    fn on_datagram(
        &mut self,
        datagram: &Datagram,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let now = clock::monotonic();
        let key = self.settings.key.clone();
        let source = datagram.source.ip();
        if !self.settings.guard.allows(source) {
            return Err(NOT_ALLOWED);
        }
        // Two reflectors that answer each other would never end.
        if datagram.source.port() == self.port {
            return Err(LOOP);
        }
        let refused = |error: WireError| DropReason::from(error).name();
        let request = Request::open(bytes, key.as_ref()).map_err(refused)?;
        if !self.settings.guard.admits(source, now) {
            return Err(RATE_LIMIT);
        }
        let name = (datagram.source, datagram.local, request.packet.ssid);
        let mut facts = Facts {
            receive: stamp(datagram.at),
            ttl: datagram.ttl.unwrap_or(0),
            tos: datagram.class.unwrap_or(0),
            error: self.estimate,
            dscps: self.settings.dscps,
            ..Facts::default()
        };
        if self.settings.stateful {
            let session = self.session(name, now);
            session.received = session.received.wrapping_add(1);
            facts.seq = Some(session.sent);
            facts.received = session.received;
            facts.sent = session.sent.wrapping_add(1);
            facts.follow_up = session.follow_up;
        }
        let transmit = || stamp(clock::monotonic());
        let answer = request.answer(&facts, transmit, out).ok_or(DropReason::Truncated.name())?;
        let asked = answer.dscp != facts.tos >> 2;
        let class = Some(if self.settings.echo_dscp || asked { answer.dscp << 2 } else { 0 });
        let sent =
            self.socket.send_marked(&out[..answer.len], datagram.source, datagram.local, class);
        // An answer that cannot be sent is lost, and not counted as sent.
        if let (Ok(id), Some(seq)) = (sent, facts.seq) {
            if let Some(session) = self.sessions.get_mut(&name) {
                session.sent = session.sent.wrapping_add(1);
            }
            if self.pending.len() == PENDING_MAX {
                self.pending.pop_front();
            }
            self.pending.push_back((id, name, seq));
        }
        Ok(())
    }

    fn session(&mut self, name: Key, now: Time) -> &mut Session {
        if !self.sessions.contains_key(&name)
            && self.sessions.len() >= self.settings.sessions_max
            && let Some((_, silent)) = self.idle.next()
        {
            let silent = *silent;
            self.idle.cancel(&silent);
            self.sessions.remove(&silent);
        }
        self.idle.set(name, now + IDLE);
        self.sessions.entry(name).or_default()
    }

    /// Takes note of when answers really left, for Follow-Up Telemetry.
    fn collect_stamps(&mut self) -> io::Result<()> {
        while let Some(left) = self.socket.tx_stamp()? {
            let Some(place) = self.pending.iter().position(|(id, ..)| *id == left.id) else {
                continue;
            };
            let Some((_, name, seq)) = self.pending.remove(place) else { continue };
            if let Some(session) = self.sessions.get_mut(&name) {
                let (timestamp, method) = (stamp(left.at), FollowUp::SOFTWARE);
                session.follow_up = Some(FollowUp { seq, timestamp, method });
            }
        }
        Ok(())
    }

    /// Refused datagrams by reason.
    pub fn drops(&self) -> &BTreeMap<&'static str, u64> {
        self.drops.by_reason()
    }

    fn summary(&self, kernel_answers: u64, output: Output) -> io::Result<()> {
        let report = |(name, session): (&Key, &Session)| SessionReport {
            client: shown(name.0),
            ssid: name.2,
            received: session.received,
            sent: session.sent,
        };
        let summary = Summary {
            r#type: "summary",
            protocol: "stamp",
            sessions: self.sessions.iter().map(report).collect(),
            kernel_answers,
            drops: self.drops.by_reason(),
        };
        if output.json { print_json(&summary) } else { summary.print() }
    }
}

impl AsFd for Reflector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Summary<'_> {
    fn print(&self) -> io::Result<()> {
        print(&format!("\n--- {} sessions ---", self.sessions.len()))?;
        for s in &self.sessions {
            print(&format!(
                "{} ssid {}: {} received, {} sent",
                s.client, s.ssid, s.received, s.sent
            ))?;
        }
        if self.kernel_answers > 0 {
            print(&format!("{} answered in the kernel", self.kernel_answers))?;
        }
        for (reason, count) in self.drops {
            print(&format!("{count} datagrams refused: {reason}"))?;
        }
        Ok(())
    }
}
