//! The Session-Reflector: one socket, any number of senders.
//!
//! The sender's address and port, the address that it sends to, and its SSID identify a session (RFC 8972, section 3).
//! Sessions are not provisioned: the first request starts a session, which ends after a period of silence. An answer is
//! as long as its request. The numbers of sessions and of answers per second are limited.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, anyhow};
use segue_clock::{Span, Time, Timers};
use segue_linux::clock;
use segue_linux::udp::{Datagram, Leave, TimestampedSocket, UdpError};
use segue_wire::stamp::tlv::FollowUp;
use segue_wire::stamp::{ErrorEstimate, Facts, Request, StampKey};
use segue_wire::{DropReason, WireError};
use serde::Serialize;

use super::stamps::{error_estimate, stamp};
use crate::addresses::{bind, shown};
use crate::guard::{Guard, NOT_ALLOWED, RATE_LIMIT, Rates};
use crate::metrics::{Label, Page, names};
use crate::refusals::Refusals;

/// Maximum number of sessions; a further one replaces the session that has been silent for longest.
const SESSIONS_MAX: usize = 10_000;
/// A session ends after this time without a request (TWAMP's REFWAIT, RFC 5357, 4.2).
const IDLE: Span = Span::from_secs(900);
/// Default limit of answers per second, to all sources together.
pub const RATE_MAX: u32 = 20_000;
/// Default limit of answers per second to one source: an IPv4 address or an IPv6 /64.
pub const SOURCE_RATE_MAX: u32 = 2_000;
const RATES: Rates = Rates { source: Some(SOURCE_RATE_MAX), total: Some(RATE_MAX) };
/// Lowest port of senders. Lower ports belong to other reflectors and to services that answer everything (echo,
/// chargen).
const SENDER_PORTS: u16 = 1_024;
/// Maximum number of sessions with separate metrics, so that a page remains within a few megabytes.
const METRICS_MAX: usize = 1_000;
/// DSCPs that answers may have: all but those of network control, CS6 and above.
const DSCPS: u64 = (1 << 48) - 1;
/// Maximum number of answers with a pending transmit timestamp.
const PENDING_MAX: usize = 4_096;
/// Maximum number of datagrams read before timers and signals are processed.
const BATCH_MAX: usize = 1_000;
/// Requested receive buffer in bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Interval at which the quality of the clock is checked.
const REFRESH: Span = Span::from_secs(1);
/// The TTL that TWAMP requires.
const TTL: u8 = 255;
/// Refused: the source port may belong to a service that would answer our answer.
const LOOP: &str = "loop";

/// Sender, local address, SSID.
type Key = (SocketAddr, Option<IpAddr>, u16);

/// Settings of the reflector.
pub struct Settings {
    /// Authenticated mode: requests without a valid HMAC are refused.
    pub key: Option<StampKey>,
    /// Number the answers of each session.
    pub stateful: bool,
    /// Bit *n* is set if answers may have DSCP *n*.
    pub dscps: u64,
    /// Answers have the DSCP of their requests, unless these request another.
    pub echo_dscp: bool,
    /// Restricts the sources that are answered, and the rate of answers.
    pub guard: Guard,
    /// Maximum number of sessions.
    pub sessions_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            key: None,
            stateful: true,
            dscps: DSCPS,
            echo_dscp: true,
            guard: Guard::new(Vec::new(), RATES),
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
    /// Answers with a pending transmit timestamp: the socket's ID, the session, the answer's number.
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

/// The report on a session.
#[derive(Serialize)]
pub struct SessionReport {
    /// Source of its requests.
    pub client: String,
    /// Its identifier (SSID); zero for none.
    pub ssid: u16,
    /// Number of accepted requests.
    pub received: u32,
    /// Number of answers sent.
    pub sent: u32,
}

impl Reflector {
    /// Opens the reflector's socket.
    ///
    /// # Errors
    /// One line with the reason and a remedy.
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

    /// The address of its socket.
    ///
    /// # Errors
    /// The kernel does not report it, which should not happen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers requests that have arrived, and forgets silent sessions.
    ///
    /// # Errors
    /// The socket is broken.
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
        // Two reflectors that answer each other would never stop.
        let port = datagram.source.port();
        if port < SENDER_PORTS || port == self.port {
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
        let sent = self.socket.send(
            &out[..answer.len],
            datagram.source,
            Leave { from: datagram.local, class, ..Leave::default() },
        );
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

    /// Records the true departure of answers, for Follow-Up Telemetry.
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

    /// Reports on all sessions.
    pub fn reports(&self) -> Vec<SessionReport> {
        let report = |(name, session): (&Key, &Session)| SessionReport {
            client: shown(name.0),
            ssid: name.2,
            received: session.received,
            sent: session.sent,
        };
        self.sessions.iter().map(report).collect()
    }

    /// Adds the answers of each session to the metrics; `labels` apply to the number of sessions.
    pub fn measured(&self, page: &mut Page, labels: &[Label]) {
        for ((remote, local, ssid), session) in self.sessions.iter().take(METRICS_MAX) {
            let local = local.map_or(String::new(), |local| local.to_string());
            let name =
                [("target", shown(*remote)), ("local", local), ("session", ssid.to_string())];
            page.add(&names::PROBES_RECEIVED, &name, &[], session.received.into());
            page.add(&names::PROBES_SENT, &name, &[], session.sent.into());
        }
        page.add(&names::SESSIONS, labels, &[], self.sessions.len() as f64);
    }
}

impl AsFd for Reflector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
