//! The host's signalling connection: it is attempted over all interfaces at once, the first success wins, and the
//! connection moves when its interface dies.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use quinn::{Connection, Endpoint};
use segue_clock::{Span, Time};
use segue_ip::Interface;
use segue_linux::clock::monotonic;
use segue_tunnel::HostInput;
use segue_wire::TUNNEL_PORT;
use segue_wire::enrol::{EnrolRefusal, Enrolled, ToEnrol};
use segue_wire::signal::{FromAnchor, FromHost};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::names::{self, NameServer, Named, Translation};
use super::unreached::{Unreached, no_answer, no_path, unreached};
use crate::identity::{ANCHOR_NAME, Credentials};
use crate::packets::MARK;
use crate::signalling::{self, Messages, Unacceptable, Worker};

/// Head start of each address of the anchor over the next.
const STAGGER: Duration = Duration::from_millis(150);
/// Shortest and longest wait before unresolved names are looked up again.
pub(super) const LOOK_AGAIN: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(30));
/// Most source addresses to try per interface.
const SOURCES: usize = 4;
/// Time after which unusable paths count as blocked rather than as an outage: an outage would have ended signalling by
/// then.
const BLOCKED_FOR: Span = Span::from_secs(12);
/// Messages that may be queued for writing.
const OUTBOX: usize = 256;

/// Events of the connection's tasks. `round` numbers the calls of [`Signalling::connect`]; events of an
/// older round are ignored.
pub enum SignallingEvent {
    /// An attempt succeeded.
    Connected { round: u64, established: Established },
    /// An attempt failed; others may still run.
    Failed { round: u64, why: String },
    /// A message arrived.
    Message { round: u64, message: FromAnchor },
    /// The connection, or all attempts, failed.
    Closed { round: u64, why: String },
    /// The anchor's names resolve to these addresses.
    Found { addresses: Vec<SocketAddr> },
    /// The names could not be resolved.
    Unnamed { why: String },
    /// A name server's answer about an access's translator, or the reason for having none.
    Translation { interface: String, found: Result<Translation, String> },
    /// The anchor has enrolled this host and issued this certificate.
    Enrolled { certificate: Vec<u8> },
    /// The anchor refuses the host's credentials.
    Rejected { round: u64, why: Rejected },
}

/// Why an anchor refuses a host's credentials. Another attempt with the same credentials would fail too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It refuses the join line.
    #[error("{0}")]
    Line(EnrolRefusal),
    /// The host's certificate is not valid at the anchor's time.
    #[error("the certificate of this host has expired")]
    Expired,
    /// The host was removed, or another host was enrolled under its name.
    #[error("this host is no longer enrolled")]
    Removed,
}

/// The credentials that a host presents to an anchor.
#[derive(Clone)]
pub(super) enum Shown {
    /// The token of its join line; the host enrols first.
    Line(Arc<Line>),
    /// Its certificate.
    Certificate(quinn::ClientConfig),
}

/// The data needed to enrol a host.
pub(super) struct Line {
    /// The enrolment request.
    pub asked: ToEnrol,
    /// The anchor's authority.
    pub authority: Vec<u8>,
    /// The host's private key.
    pub key: Vec<u8>,
}

/// An established connection.
pub struct Established {
    interface: String,
    pub(super) anchor: SocketAddr,
    endpoint: Endpoint,
    connection: Connection,
    outbox: mpsc::Sender<FromHost>,
}

/// The host's side of signalling.
pub(super) struct Signalling {
    worker: Worker,
    anchors: Vec<SocketAddr>,
    /// The interfaces by name, each with its source addresses, best first.
    interfaces: BTreeMap<String, Interface>,
    names: Vec<Named>,
    /// The pending name lookup, with the servers that it asks.
    looking: Option<(Vec<NameServer>, AbortHandle)>,
    shown: Shown,
    events: mpsc::Sender<SignallingEvent>,
    round: u64,
    tasks: Vec<AbortHandle>,
    /// The targets of this round's pending attempts.
    waiting: Vec<String>,
    current: Option<Established>,
    unreached: Unreached,
    /// The anchor refuses the host's credentials.
    rejected: bool,
    /// Why no interface leads to the anchor, and since when.
    cut_off: Option<(String, Time)>,
    /// Why no path works although the host is registered, and since when.
    blocked: Option<(String, Time)>,
}

impl Signalling {
    /// Starts unconnected.
    pub(super) fn new(
        anchors: Vec<SocketAddr>,
        names: Vec<Named>,
        shown: Shown,
        events: mpsc::Sender<SignallingEvent>,
    ) -> anyhow::Result<Signalling> {
        let worker = Worker::start()?;
        Ok(Signalling {
            worker,
            anchors,
            interfaces: BTreeMap::new(),
            names,
            looking: None,
            shown,
            events,
            round: 0,
            tasks: Vec::new(),
            waiting: Vec::new(),
            current: None,
            unreached: Unreached::default(),
            rejected: false,
            cut_off: None,
            blocked: None,
        })
    }

    /// Sets the credentials for further connections.
    pub(super) fn show(&mut self, shown: Shown) {
        self.shown = shown;
    }

    /// Returns whether the anchor has names, whose addresses may change.
    pub(super) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns whether a connection is up.
    pub(super) fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// Sets the anchor's addresses for the next attempts.
    pub(super) fn set_anchors(&mut self, anchors: Vec<SocketAddr>) {
        self.anchors = anchors;
    }

    /// Sets the interfaces by name, each with its source addresses, best first.
    pub(super) fn set_interfaces(&mut self, interfaces: BTreeMap<String, Interface>) {
        self.interfaces = interfaces;
    }

    /// The channel for events of its tasks.
    pub(super) fn events(&self) -> mpsc::Sender<SignallingEvent> {
        self.events.clone()
    }

    /// Runs a task on the signalling thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.worker.handle().spawn(task).abort_handle()
    }

    /// Notes why the anchor is unreachable; does nothing and returns false while a connection is up.
    pub(super) fn note_unreached(&mut self, why: &str) -> bool {
        let notes = !self.is_up();
        if notes {
            self.note(why.to_owned());
        }
        notes
    }

    /// Notes why no interface leads to the anchor; `None` if one does.
    pub(super) fn set_cut_off(&mut self, why: Option<String>) {
        let is_new = why.as_ref() != self.cut_off.as_ref().map(|(why, _)| why);
        if is_new {
            let now = monotonic();
            why.iter().for_each(|why| self.unreached.note(now, why.clone()));
            self.cut_off = why.map(|why| (why, now));
        }
    }

    /// Notes that no path to this port of the anchor works although the host is registered; `None` if one works.
    pub(super) fn set_blocked(&mut self, port: Option<u16>) {
        let Some(port) = port.filter(|_| self.is_up()) else {
            self.blocked = None;
            return;
        };
        let now = monotonic();
        let (why, since) = self.blocked.get_or_insert_with(|| (no_path(port), now));
        if now.since(*since) >= BLOCKED_FOR {
            self.unreached.log(now, why);
        }
    }

    /// Why no path works, once this has lasted longer than an outage could.
    fn why_blocked(&self) -> Option<&(String, Time)> {
        self.blocked.as_ref().filter(|(_, since)| monotonic().since(*since) >= BLOCKED_FOR)
    }

    /// A refusal by the anchor remains the reason until a registration succeeds: it needs an operator.
    fn note(&mut self, why: String) {
        if !self.rejected {
            self.unreached.note(monotonic(), why);
        }
    }

    /// Notes that the anchor refuses the host's credentials, with advice as the reason why the anchor is unreachable.
    pub(super) fn reject(&mut self, advice: String) {
        self.rejected = true;
        self.unreached.note(monotonic(), advice);
    }

    /// Returns whether the anchor refuses the host's credentials.
    pub(super) fn is_rejected(&self) -> bool {
        self.rejected && self.cut_off.is_none()
    }

    /// Looks up the anchor's names until they resolve; does nothing while a connection is up.
    pub(super) fn look_up(&mut self, servers: Vec<NameServer>) {
        if let Some((by, task)) = &self.looking
            && !task.is_finished()
        {
            if *by == servers {
                return;
            }
            task.abort();
        }
        if self.is_up() {
            return;
        }
        let (names, by, events) = (self.names.clone(), servers.clone(), self.events.clone());
        let task = self.worker.handle().spawn(async move {
            let mut pause = LOOK_AGAIN.0;
            loop {
                let event = match names::find(&names, &by).await {
                    Ok(addresses) => SignallingEvent::Found { addresses },
                    Err(error) => SignallingEvent::Unnamed { why: error.to_string() },
                };
                let found = matches!(event, SignallingEvent::Found { .. });
                if events.send(event).await.is_err() || found {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOOK_AGAIN.1);
            }
        });
        self.looking = Some((servers, task.abort_handle()));
    }

    /// Returns whether `round` is the current one.
    pub(super) fn is_present(&self, round: u64) -> bool {
        round == self.round
    }

    /// Attempts to connect over all of these interfaces at once, so that a dead one delays nothing. Each further
    /// address of the anchor starts a little later.
    pub(super) fn connect(&mut self, interfaces: &[String]) {
        if !self.waiting.is_empty() {
            let ways = std::mem::take(&mut self.waiting).join(", nor ");
            self.note(no_answer(&ways));
        }
        self.abandon();
        let targets: Vec<(Target, usize)> = self.targets(interfaces);
        self.waiting = targets.iter().map(|(target, _)| target.to_string()).collect();
        self.round += 1;
        let round = self.round;
        let attempts: Vec<_> = targets
            .into_iter()
            .map(|(target, nth)| {
                let attempt = attempt(target, self.shown.clone(), STAGGER * nth as u32);
                self.worker.handle().spawn(attempt)
            })
            .collect();
        self.tasks.extend(attempts.iter().map(tokio::task::JoinHandle::abort_handle));
        let events = self.events.clone();
        let race = self.worker.handle().spawn(race(round, attempts, events));
        self.tasks.push(race.abort_handle());
    }

    /// The attempts over these interfaces, each with its place in the stagger: each further address of the anchor, and
    /// each further source, starts a little later.
    fn targets(&self, interfaces: &[String]) -> Vec<(Target, usize)> {
        let mut all = Vec::new();
        for (nth, anchor) in self.anchors.iter().enumerate() {
            for interface in interfaces {
                let known = self.interfaces.get(interface);
                let to = known.map_or(anchor.ip(), |known| known.towards(anchor.ip()));
                let anchor = SocketAddr::new(to, anchor.port());
                let known = known.into_iter().flat_map(|known| &known.addresses);
                let known = known.filter(|own| own.is_ipv4() == anchor.is_ipv4());
                let mut sources: Vec<Option<IpAddr>> = known.map(|own| Some(*own)).collect();
                sources.truncate(SOURCES);
                let several = sources.len() > 1;
                if sources.is_empty() {
                    sources.push(None);
                }
                for (further, source) in sources.into_iter().enumerate() {
                    let interface = interface.clone();
                    all.push((Target { anchor, interface, source, several }, nth + further));
                }
            }
        }
        all
    }

    /// Moves the connection to another interface; QUIC migrates it. If that fails, the connection goes silent and ends,
    /// and the machine connects anew.
    pub(super) fn move_to(&mut self, interface: &str, source: Option<IpAddr>) {
        let Some(current) = &mut self.current else { return };
        let v6 = current.anchor.is_ipv6();
        let known = self.interfaces.get(interface).into_iter();
        let known = known.flat_map(|known| known.addresses.iter().copied());
        let source = source.into_iter().chain(known).find(|own| own.is_ipv6() == v6);
        let _there = self.worker.handle().enter();
        let moved = signalling::socket(v6, interface, source, MARK)
            .and_then(|socket| current.endpoint.rebind(socket).context("QUIC does not move"));
        match moved {
            Ok(()) => interface.clone_into(&mut current.interface),
            Err(error) => debug!("signalling stays on {}: {error:#}", current.interface),
        }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: FromHost) {
        if let Some(current) = &self.current
            && current.outbox.try_send(message).is_err()
        {
            current.connection.close(1u8.into(), b"outbox full");
        }
    }

    /// Turns events of the current round into the machine's input, and discards older ones.
    pub(super) fn filter(&mut self, event: SignallingEvent) -> Option<HostInput> {
        match event {
            SignallingEvent::Connected { round, established } if round == self.round => {
                self.waiting.clear();
                let interface = established.interface.clone();
                let anchor = SocketAddr::new(established.anchor.ip(), TUNNEL_PORT);
                self.current = Some(established);
                Some(HostInput::SignalUp { interface, anchor })
            }
            SignallingEvent::Message { round, message } if round == self.round => {
                Some(HostInput::Signal(message))
            }
            SignallingEvent::Failed { round, why } if round == self.round => {
                let concerns = |way: &str| why.ends_with(way) || why.contains(&format!("{way}:"));
                self.waiting.retain(|way| !concerns(way));
                self.note(why);
                None
            }
            // An unresolved name does not matter while a connection is up.
            SignallingEvent::Unnamed { why } if !self.is_up() => {
                self.note(why);
                None
            }
            SignallingEvent::Closed { round, why } if round == self.round => {
                // Failed attempts and refusals were logged already; log this once per lost connection.
                if self.current.is_some() && !self.rejected {
                    warn!("signalling: {why}; trying again");
                } else {
                    debug!("signalling: {why}");
                }
                self.waiting.clear();
                self.abandon();
                Some(HostInput::SignalDown)
            }
            _ => None,
        }
    }

    /// The registration succeeded.
    pub(super) fn registered(&mut self) {
        self.rejected = false;
        self.unreached.reached();
    }

    /// The last known reason why the anchor is unreachable, and since when. With `noted`, the last noted reason says
    /// more than that no network leads there.
    pub(super) fn why_unreached(&self, noted: bool) -> Option<(&str, Time)> {
        let cut_off = self.cut_off.as_ref().filter(|_| !noted);
        let known = cut_off.or(self.why_blocked());
        known.map(|(why, at)| (why.as_str(), *at)).or(self.unreached.why())
    }

    /// Closes the connection after a moment for pending messages to leave.
    pub(super) async fn close(&mut self) {
        let Some(current) = self.current.take() else { return };
        drop(current.outbox);
        tokio::time::sleep(Duration::from_millis(50)).await;
        current.connection.close(0u8.into(), b"leaving");
        let idle = current.endpoint.wait_idle();
        let _ = tokio::time::timeout(Duration::from_millis(500), idle).await;
    }

    fn abandon(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
        if let Some(current) = self.current.take() {
            current.connection.close(0u8.into(), b"replaced");
        }
    }
}

/// The result of a successful attempt.
struct Connected {
    interface: String,
    anchor: SocketAddr,
    endpoint: Endpoint,
    connection: Connection,
    /// The certificate, if the host was enrolled first.
    certificate: Option<Vec<u8>>,
}

type Attempt = tokio::task::JoinHandle<anyhow::Result<Connected>>;

async fn attempt(target: Target, shown: Shown, delay: Duration) -> anyhow::Result<Connected> {
    tokio::time::sleep(delay).await;
    let way = target.to_string();
    let Target { anchor, interface, source, .. } = target;
    let socket = signalling::socket(anchor.is_ipv6(), &interface, source, MARK)?;
    let endpoint = signalling::client_endpoint(socket)?;
    let failed = |error| unreached(error, &way);
    let (config, certificate) = match shown {
        Shown::Certificate(config) => (config, None),
        Shown::Line(line) => {
            let config = signalling::enrolment_config(&line.authority)?;
            let connecting = endpoint.connect_with(config, anchor, ANCHOR_NAME)?;
            let connection = connecting.await.map_err(failed)?;
            let certificate = enrol(&connection, &line.asked).await?;
            let key = line.key.clone();
            let host = Credentials { certificate: certificate.clone(), key };
            (signalling::client_config(&line.authority, &host)?, Some(certificate))
        }
    };
    let connecting = endpoint.connect_with(config, anchor, ANCHOR_NAME)?;
    let connection = connecting.await.map_err(failed)?;
    Ok(Connected { interface, anchor, endpoint, connection, certificate })
}

/// The target of an attempt; displayed to the operator as a way to the anchor.
struct Target {
    anchor: SocketAddr,
    interface: String,
    source: Option<IpAddr>,
    /// The interface has more than one source address.
    several: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {}", self.anchor, self.interface)?;
        match self.source.filter(|_| self.several) {
            Some(source) => write!(f, " from {source}"),
            None => Ok(()),
        }
    }
}

/// Enrols this host; returns its certificate.
async fn enrol(connection: &Connection, asked: &ToEnrol) -> anyhow::Result<Vec<u8>> {
    match signalling::enrol(connection, asked).await? {
        Enrolled::Certificate { certificate } => Ok(certificate),
        Enrolled::Refused { reason } if reason.is_final() => Err(Rejected::Line(reason).into()),
        Enrolled::Refused { reason } => bail!("{reason}"),
    }
}

/// Waits for the first attempt that succeeds, then reads its messages until it ends.
async fn race(round: u64, attempts: Vec<Attempt>, events: mpsc::Sender<SignallingEvent>) {
    let ended = match first(round, attempts, &events).await {
        Ok(connected) => converse(round, connected, &events).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &ended
        && let Some(why) = error.downcast_ref::<Rejected>().copied()
    {
        let _ = events.send(SignallingEvent::Rejected { round, why }).await;
    }
    let why = ended.map_or_else(
        |error| signalling::in_words(&error),
        |()| "the anchor closed the connection: its log says why".into(),
    );
    let _ = events.send(SignallingEvent::Closed { round, why }).await;
}

async fn first(
    round: u64,
    mut attempts: Vec<Attempt>,
    events: &mpsc::Sender<SignallingEvent>,
) -> anyhow::Result<Connected> {
    let mut last = anyhow::anyhow!("no interface to connect over");
    while !attempts.is_empty() {
        let (result, index) = std::future::poll_fn(|context| {
            for (index, attempt) in attempts.iter_mut().enumerate() {
                if let std::task::Poll::Ready(result) =
                    std::future::Future::poll(std::pin::Pin::new(attempt), context)
                {
                    return std::task::Poll::Ready((result, index));
                }
            }
            std::task::Poll::Pending
        })
        .await;
        drop(attempts.swap_remove(index));
        match result {
            Ok(Ok(winner)) => {
                for loser in attempts {
                    loser.abort();
                }
                return Ok(winner);
            }
            // A final refusal by the anchor would be the same over every interface.
            Ok(Err(error)) if error.is::<Rejected>() => return Err(error),
            Ok(Err(error)) => {
                let why = signalling::in_words(&error);
                let _ = events.send(SignallingEvent::Failed { round, why }).await;
                last = error;
            }
            Err(_) => bail!("abandoned"),
        }
    }
    Err(last)
}

async fn converse(
    round: u64,
    connected: Connected,
    events: &mpsc::Sender<SignallingEvent>,
) -> anyhow::Result<()> {
    let Connected { interface, anchor, endpoint, connection, certificate } = connected;
    if let Some(certificate) = certificate {
        let _ = events.send(SignallingEvent::Enrolled { certificate }).await;
    }
    let (mut write, read) = connection.open_bi().await?;
    let (outbox, mut queued) = mpsc::channel::<FromHost>(OUTBOX);
    let own = connection.clone();
    let established = Established { interface, anchor, endpoint, connection, outbox };
    let _ = events.send(SignallingEvent::Connected { round, established }).await;
    let writer = async {
        while let Some(message) = queued.recv().await {
            signalling::send(&mut write, &message).await?;
        }
        let _ = write.finish();
        std::future::pending::<anyhow::Result<()>>().await
    };
    let reader = async {
        let mut messages = Messages::new(read);
        while let Some(message) = messages.next::<FromAnchor>().await? {
            if events.send(SignallingEvent::Message { round, message }).await.is_err() {
                break;
            }
        }
        anyhow::Ok(())
    };
    let ended = tokio::select! {
        result = writer => result,
        result = reader => result,
    };
    // The host's handshake completes before the anchor has checked the host's certificate.
    match signalling::refused_by_anchor(&own) {
        Some(Unacceptable::Expired) => Err(Rejected::Expired.into()),
        Some(Unacceptable::Removed) => Err(Rejected::Removed.into()),
        None => ended,
    }
}
