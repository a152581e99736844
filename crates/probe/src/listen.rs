//! The listener: one socket, any number of clients.
//!
//! The index and cookie that a client has drawn identify it, regardless of its address. Every valid request is answered
//! to its source, with a packet of the same length, so the listener does not amplify traffic. Other packets are only
//! counted, by reason.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use anyhow::Context;
use segue_clock::{Span, Time, Timers};
use segue_keepalive::Config;
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_linux::udp::Datagram;
use segue_wire::{Header, PacketType, Probe, ProbeKey};
use serde::Serialize;

use super::addresses::{bind, shown};
use super::endpoint::{Endpoint, LENGTH_MAX};
use super::guard::{Guard, NOT_ALLOWED, RATE_LIMIT};
use super::refusals::Refusals;
use super::running::Running;
use super::screen::{self, Output, print, print_drops, print_json};
use super::session::{ClientReport, Key, Session};
use super::target::News;
use crate::metrics::{Label, Page, Server as Metrics, names};

/// Maximum number of clients; a further one replaces the client that has been silent for longest. Thus a flood of
/// forged clients, each heard once, does not displace active ones.
const CLIENTS_MAX: usize = 100_000;
/// A client is forgotten after this time without a request.
const IDLE: Span = Span::from_secs(60);
/// Interval of reports on each client.
const REPORT: Span = Span::from_secs(10);
/// Number of RTT samples per client for percentiles.
const SAMPLES_MAX: usize = 256;
/// Maximum number of clients with separate metrics, so that a page remains within a few megabytes.
const METRICS_MAX: usize = 1_000;
/// Maximum number of datagrams read before timers and signals are processed.
const BATCH_MAX: usize = 1_000;
/// Requested receive buffer in bytes, large enough for a burst from many clients.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Options of the listener.
pub(crate) struct ListenOptions {
    /// Settings of each measurement.
    pub config: Config,
    /// Output format.
    pub output: Output,
    /// Decides which requests are answered.
    pub guard: Guard,
    /// Answers have the DSCP of their requests.
    pub echo_dscp: bool,
    /// Metrics and scheduling of the process.
    pub running: Running,
}

/// The listener.
pub(crate) struct Listener {
    end: Endpoint,
    config: Config,
    output: Output,
    guard: Guard,
    echo_dscp: bool,
    clients: BTreeMap<Key, Session>,
    clients_max: usize,
    ticks: Timers<Key>,
    idle: Timers<Key>,
    /// Value of `received` of each client at the last report.
    reported: BTreeMap<Key, u32>,
    /// When the next report is due.
    report_at: Time,
    drops: Refusals,
    buffer: Vec<u8>,
}

#[derive(Serialize)]
struct Listening {
    r#type: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

#[derive(Serialize)]
struct ClientLine {
    r#type: &'static str,
    event: &'static str,
    #[serde(flatten)]
    client: ClientReport,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    scheduling: &'static str,
    clients: Vec<ClientReport>,
    drops: &'a BTreeMap<&'static str, u64>,
}

/// Answers requests until interrupted.
///
/// # Errors
/// The address is unavailable, or signals, sockets or output fail.
pub(crate) fn run(
    address: SocketAddr,
    interface: Option<&str>,
    key: ProbeKey,
    options: ListenOptions,
) -> anyhow::Result<ExitCode> {
    let (running, output) = (options.running, options.output);
    let mut listener = Listener::open(address, interface, key, options)?;
    let signals = StopSignals::take()?;
    let metrics = running.metrics()?;
    let scheduling = running.scheduling();
    let address = listener.local_addr()?.to_string();
    if output.json {
        let metrics = metrics.as_ref().map(|metrics| metrics.address().to_string());
        print_json(&Listening { r#type: "listening", address, metrics })?;
    } else if !output.quiet {
        print(&format!("listening on {address}"))?;
        if let Some(metrics) = &metrics {
            screen::metrics(output, metrics.address())?;
        }
    }
    listener.answer(&signals, metrics.as_ref())?;
    listener.summary(scheduling)?;
    Ok(ExitCode::SUCCESS)
}

impl Listener {
    /// Opens the listener's socket.
    ///
    /// # Errors
    /// The address is unavailable, or the system lacks a socket option.
    pub(crate) fn open(
        address: SocketAddr,
        interface: Option<&str>,
        key: ProbeKey,
        options: ListenOptions,
    ) -> anyhow::Result<Listener> {
        let socket = bind(address, interface)?;
        socket.set_receive_buffer(RECEIVE_BUFFER_BYTES);
        if options.echo_dscp {
            socket.receive_traffic_class().context("cannot learn the DSCP of requests")?;
        }
        Ok(Listener::new(Endpoint::new(socket, key)?, options, CLIENTS_MAX))
    }

    fn new(end: Endpoint, options: ListenOptions, clients_max: usize) -> Listener {
        Listener {
            end,
            config: options.config,
            output: options.output,
            guard: options.guard,
            echo_dscp: options.echo_dscp,
            clients: BTreeMap::new(),
            clients_max,
            ticks: Timers::new(),
            idle: Timers::new(),
            reported: BTreeMap::new(),
            report_at: clock::monotonic() + REPORT,
            drops: Refusals::default(),
            buffer: vec![0; LENGTH_MAX],
        }
    }

    /// The address of its socket.
    ///
    /// # Errors
    /// The kernel does not report it, which should not happen.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.end.socket().local_addr()
    }

    fn answer(&mut self, signals: &StopSignals, metrics: Option<&Metrics>) -> io::Result<()> {
        loop {
            let wake = self.turn()?;
            if let Some(metrics) = metrics {
                metrics.answer(|| self.page());
            }
            let sockets = [self.as_fd()].into_iter();
            if signals.wait(sockets.chain(metrics.map(AsFd::as_fd)), Some(wake))? {
                break;
            }
        }
        // Requests that arrived before the signal are still answered.
        self.receive_batch()?;
        Ok(())
    }

    /// Answers requests that have arrived, and runs due timers. Returns when to call it again if nothing arrives
    /// before.
    ///
    /// # Errors
    /// The socket is broken, or the output is closed.
    pub(crate) fn turn(&mut self) -> io::Result<Time> {
        let until = self.receive_batch()?;
        self.expire_after(until)?;
        let now = clock::monotonic();
        if self.report_at <= now {
            self.report()?;
            self.report_at = now + REPORT;
        }
        let timers = [self.ticks.next(), self.idle.next()];
        let timers = timers.into_iter().flatten().map(|(at, _)| at);
        Ok(timers.fold(self.report_at, Time::min))
    }

    /// Reads a batch. Returns the time up to which all arrivals have been read: later timers must wait, because a
    /// request in the queue has already arrived.
    fn receive_batch(&mut self) -> io::Result<Time> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut until = None;
        for _ in 0..BATCH_MAX {
            let now = clock::monotonic();
            let Some(datagram) = self.end.take(&mut buffer)? else {
                until = Some(now);
                break;
            };
            if let Err(reason) = self.on_datagram(&datagram, &buffer[..datagram.len])? {
                self.drops.count(reason);
            }
            until = Some(datagram.at);
        }
        self.buffer = buffer;
        Ok(until.unwrap_or(Time::ZERO))
    }

    fn on_datagram(
        &mut self,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> io::Result<Result<(), &'static str>> {
        let source = datagram.source.ip();
        if !self.guard.allows(source) {
            return Ok(Err(NOT_ALLOWED));
        }
        let (header, probe) = match check(bytes, &self.end) {
            Ok(request) => request,
            Err(reason) => return Ok(Err(reason)),
        };
        let now = clock::monotonic();
        if !self.guard.admits(source, now) {
            return Ok(Err(RATE_LIMIT));
        }
        let key = (header.index, header.cookie);
        if !self.clients.contains_key(&key) {
            if self.clients.len() >= self.clients_max {
                self.forget_silent()?;
            }
            let (remote, seed) = (datagram.source, header.cookie);
            let session = Session::new(remote, &self.config, datagram.at, seed, SAMPLES_MAX);
            self.clients.insert(key, session);
        }
        self.idle.set(key, now + IDLE);
        let Some(session) = self.clients.get_mut(&key) else { return Ok(Ok(())) };
        let new = session.is_new(&probe);
        let news = if new {
            session.on_request(&mut self.end, datagram, (&header, &probe), self.echo_dscp)?
        } else {
            session.on_repeated(datagram, &header, &probe)
        };
        self.after(key, &news)?;
        Ok(if new { Ok(()) } else { Err("replay") })
    }

    /// Ticks clients that were due at `until`, and forgets silent ones.
    fn expire_after(&mut self, until: Time) -> io::Result<()> {
        while let Some(key) = self.ticks.pop_due(until) {
            if let Some(session) = self.clients.get_mut(&key) {
                let news = session.tick(until);
                self.after(key, &news)?;
            }
        }
        while let Some(key) = self.idle.pop_due(until) {
            self.forget(key)?;
        }
        Ok(())
    }

    /// Makes room for a client: forgets the one that has been silent for longest.
    fn forget_silent(&mut self) -> io::Result<()> {
        let Some((_, key)) = self.idle.next() else { return Ok(()) };
        let key = *key;
        self.idle.cancel(&key);
        self.forget(key)
    }

    fn forget(&mut self, key: Key) -> io::Result<()> {
        self.ticks.cancel(&key);
        self.reported.remove(&key);
        match self.clients.remove(&key) {
            Some(session) => self.tell("gone", key, &session),
            None => Ok(()),
        }
    }

    fn after(&mut self, key: Key, news: &[News]) -> io::Result<()> {
        let Some(session) = self.clients.get(&key) else { return Ok(()) };
        match session.deadline() {
            Some(at) => self.ticks.set(key, at),
            None => self.ticks.cancel(&key),
        }
        if news.iter().any(|news| matches!(news, News::State(_))) {
            self.tell("state", key, session)?;
        }
        Ok(())
    }

    fn report(&mut self) -> io::Result<()> {
        for (key, session) in &self.clients {
            if self.reported.get(key) != Some(&session.received) {
                self.tell("report", *key, session)?;
            }
        }
        let counts = self.clients.iter().map(|(key, session)| (*key, session.received));
        self.reported = counts.collect();
        Ok(())
    }

    fn tell(&self, event: &'static str, key: Key, session: &Session) -> io::Result<()> {
        let client = session.report(key);
        match self.output {
            Output { json: true, .. } => {
                print_json(&ClientLine { r#type: "client", event, client })
            }
            Output { quiet: true, .. } => Ok(()),
            _ if event == "gone" => print(&format!("{} gone", client.text())),
            _ => print(&client.text()),
        }
    }

    /// Reports on all clients.
    pub(crate) fn reports(&self) -> Vec<ClientReport> {
        self.clients.iter().map(|(key, session)| session.report(*key)).collect()
    }

    /// Refused datagrams by reason.
    pub(crate) fn drops(&self) -> &BTreeMap<&'static str, u64> {
        self.drops.by_reason()
    }

    fn summary(&self, scheduling: &'static str) -> io::Result<()> {
        let (clients, drops) = (self.reports(), self.drops());
        if self.output.json {
            return print_json(&Summary { r#type: "summary", scheduling, clients, drops });
        }
        print_clients(&clients, drops)
    }

    fn page(&self) -> String {
        let mut page = Page::default();
        self.measured(&mut page, &[]);
        page.drops(&[], self.drops());
        page.text()
    }

    /// Adds its measurements to the metrics; `labels` apply to the number of clients.
    pub(crate) fn measured(&self, page: &mut Page, labels: &[Label]) {
        let clients = self.clients.iter().take(METRICS_MAX);
        let views: Vec<_> = clients
            .map(|((index, _), session)| {
                let target = shown(session.remote);
                session.view(
                    vec![("target", target), ("session", format!("{index:08x}"))],
                    &self.config,
                )
            })
            .collect();
        page.paths(&views);
        page.add(&names::SESSIONS, labels, &[], self.clients.len() as f64);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.socket().as_fd()
    }
}

/// Prints a line per client and per reason.
///
/// # Errors
/// The output is closed.
pub(crate) fn print_clients(
    clients: &[ClientReport],
    drops: &BTreeMap<&'static str, u64>,
) -> io::Result<()> {
    print(&format!("\n--- {} clients ---", clients.len()))?;
    for client in clients {
        print(&client.text())?;
    }
    print_drops(drops)
}

/// Parses and authenticates the request in a datagram.
pub(crate) fn check(bytes: &[u8], end: &Endpoint) -> Result<(Header, Probe), &'static str> {
    let header =
        Header::parse(bytes).map_err(|error| segue_wire::DropReason::from(error).name())?;
    if header.packet_type != PacketType::Request {
        return Err(segue_wire::DropReason::Type.name());
    }
    end.open(bytes).map_err(segue_wire::DropReason::name)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use segue_linux::udp::TimestampedSocket;

    use super::super::guard::Rates;
    use super::*;

    fn listener(clients_max: usize, guard: Guard) -> Listener {
        let socket = TimestampedSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let options = ListenOptions {
            config: Config::default(),
            output: Output { json: false, quiet: true },
            guard,
            echo_dscp: true,
            running: Running { metrics: None, realtime: false },
        };
        let end = Endpoint::new(socket, ProbeKey::default()).unwrap();
        Listener::new(end, options, clients_max)
    }

    fn request(listener: &mut Listener, index: u32, seq: u32) -> Result<(), &'static str> {
        let header = Header::new(PacketType::Request, 3, index, 1);
        let probe = Probe { seq, t_sc: seq, ..Probe::default() };
        let packet = probe.seal(&header, &ProbeKey::default());
        let at = clock::monotonic();
        let datagram = Datagram {
            interface: None,
            len: packet.len(),
            truncated: false,
            source: (Ipv4Addr::LOCALHOST, 9).into(),
            local: None,
            at,
            kernel_stamp: false,
            error: Span::ZERO,
            seen: at,
            class: None,
            ttl: None,
        };
        listener.on_datagram(&datagram, &packet).unwrap()
    }

    fn open() -> Guard {
        Guard::new(Vec::new(), Rates::default())
    }

    #[test]
    fn forged_clients_do_not_keep_out_those_that_go_on() {
        let mut listener = listener(8, open());
        for round in 1..=100 {
            assert_eq!(request(&mut listener, 1, round), Ok(()), "round {round}");
            for forged in 0..5 {
                assert_eq!(request(&mut listener, 1_000 + round * 10 + forged, 1), Ok(()));
            }
        }
        assert_eq!(listener.clients.len(), 8);
        assert_eq!(listener.clients[&(1, 1)].received, 100);
        assert_eq!(request(&mut listener, 2, 1), Ok(()), "a new one gets in");
    }

    #[test]
    fn above_the_rate_nothing_is_answered_and_no_session_begins() {
        let mut listener =
            listener(8, Guard::new(Vec::new(), Rates { source: Some(2), total: None }));
        assert_eq!((request(&mut listener, 1, 1), request(&mut listener, 1, 2)), (Ok(()), Ok(())));
        assert_eq!(request(&mut listener, 2, 1), Err(RATE_LIMIT));
        assert_eq!((listener.clients.len(), listener.clients[&(1, 1)].sent), (1, 2));
    }

    #[test]
    fn requests_that_waited_in_the_queue_of_a_busy_process_came_in_time() {
        let mut listener = listener(8, open());
        let start = clock::monotonic();
        let header = Header::new(PacketType::Request, 3, 1, 1);
        // One request every 20 ms for a second; this process reads them all after that second.
        for n in 0..50 {
            let probe = Probe { seq: n + 1, t_sc: n + 1, t_ka_ms: 20, ..Probe::default() };
            let packet = probe.seal(&header, &ProbeKey::default());
            let datagram = Datagram {
                interface: None,
                len: packet.len(),
                truncated: false,
                source: (Ipv4Addr::LOCALHOST, 9).into(),
                local: None,
                at: start + Span::from_millis(20) * u64::from(n),
                kernel_stamp: true,
                error: Span::ZERO,
                seen: start + Span::from_secs(1),
                class: None,
                ttl: None,
            };
            assert_eq!(listener.on_datagram(&datagram, &packet).unwrap(), Ok(()));
        }
        listener.expire_after(start + Span::from_secs(1)).unwrap();
        let session = &listener.clients[&(1, 1)];
        assert_eq!(session.state(), segue_keepalive::State::Up);
        assert_eq!(session.view(Vec::new(), &listener.config).estimates.transitions, 0);
        listener.expire_after(start + Span::from_secs(2)).unwrap();
        assert_eq!(listener.clients[&(1, 1)].state(), segue_keepalive::State::Down);
    }
}
