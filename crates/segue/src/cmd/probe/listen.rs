//! The listener: one socket, any number of clients.
//!
//! A client is known by the index and cookie that it drew, wherever its packets come from. Every valid
//! request is answered to where it came from, with a packet of its own length, so that the listener
//! amplifies nothing; everything else is counted by reason and leaves no trace.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::ExitCode;

use segue_clock::{Machine, Span, Time, Timers};
use segue_keepalive::seq::{Order, SeqWindow};
use segue_keepalive::{Arrival, Config, Server, ServerInput, ServerOutput};
use segue_linux::clock;
use segue_linux::udp::{Datagram, TimestampedSocket, UdpError};
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};
use serde::Serialize;

use super::samples::{RttMs, Samples};
use super::screen::{Output, drops, loss, percent, print, print_json, state_name};
use super::shown;
use super::signals::Signals;

/// Clients at a time; one more takes the place of the one silent for longest. So a flood of forged
/// ones, which are heard once, does not keep out those that go on.
const CLIENTS_MAX: usize = 100_000;
/// A client that is silent for this long is forgotten.
const IDLE: Span = Span::from_secs(60);
/// Time between two reports on each client.
const REPORT: Span = Span::from_secs(10);
/// RTT samples kept for each client's percentiles.
const SAMPLES_MAX: usize = 256;
/// Datagrams taken before timers and signals get their turn.
const BATCH_MAX: usize = 1_000;
/// Bytes of receive buffer asked for: room for a burst of many clients.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Index and cookie.
type Key = (u32, u64);

struct Listener {
    socket: TimestampedSocket,
    key: ProbeKey,
    config: Config,
    output: Output,
    clients: BTreeMap<Key, Session>,
    clients_max: usize,
    ticks: Timers<Key>,
    idle: Timers<Key>,
    drops: [u64; DropReason::ALL.len()],
}

struct Session {
    remote: SocketAddr,
    machine: Server,
    window: SeqWindow,
    samples: Samples,
    sent: u32,
    received: u32,
    kernel_stamps: u32,
    /// `received` at the last report.
    reported: u32,
}

#[derive(Serialize)]
struct Listening {
    r#type: &'static str,
    address: String,
}

#[derive(Serialize)]
struct ClientLine {
    r#type: &'static str,
    event: &'static str,
    #[serde(flatten)]
    client: ClientReport,
}

#[derive(Serialize)]
struct ClientReport {
    client: String,
    session: String,
    state: &'static str,
    received: u32,
    sent: u32,
    rtt_ms: RttMs,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    transitions: u64,
    duplicates: u64,
    reordered: u64,
    stamp: &'static str,
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    clients: Vec<ClientReport>,
    drops: BTreeMap<&'static str, u64>,
}

/// Answers until interrupted.
///
/// # Errors
/// If the address cannot be had, or the system refuses signals, sockets or output.
pub fn run(
    address: SocketAddr,
    interface: Option<&str>,
    key: ProbeKey,
    config: Config,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let mut socket = bind(address, interface)?;
    socket.receive_stamps_only();
    socket.set_receive_buffer(RECEIVE_BUFFER_BYTES);
    let signals = Signals::take()?;
    let address = socket.local_addr()?.to_string();
    if output.json {
        print_json(&Listening { r#type: "listening", address })?;
    } else if !output.quiet {
        print(&format!("listening on {address}"))?;
    }
    let mut listener = Listener {
        socket,
        key,
        config,
        output,
        clients: BTreeMap::new(),
        clients_max: CLIENTS_MAX,
        ticks: Timers::new(),
        idle: Timers::new(),
        drops: [0; DropReason::ALL.len()],
    };
    let mut report = clock::monotonic() + REPORT;
    loop {
        listener.receive()?;
        let now = clock::monotonic();
        listener.expire(now)?;
        if report <= now {
            listener.report()?;
            report = now + REPORT;
        }
        let timers = [listener.ticks.next(), listener.idle.next()];
        let wake = timers.into_iter().flatten().map(|(at, _)| at).chain([report]).min();
        if signals.wait([listener.socket.as_fd()].into_iter(), wake)? {
            break;
        }
    }
    // What came before the signal counts.
    listener.receive()?;
    listener.summary()?;
    Ok(ExitCode::SUCCESS)
}

/// Without IPv6 in the kernel, all addresses means all IPv4 addresses.
fn bind(address: SocketAddr, interface: Option<&str>) -> Result<TimestampedSocket, UdpError> {
    match TimestampedSocket::bind(address, interface) {
        Err(UdpError::Io { source, .. })
            if address.ip().is_unspecified()
                && source.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
        {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            TimestampedSocket::bind(any, interface)
        }
        result => result,
    }
}

impl Listener {
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        for _ in 0..BATCH_MAX {
            let Some(datagram) = self.socket.recv(&mut buffer)? else { break };
            match self.on_datagram(&datagram, &buffer[..datagram.len])? {
                Ok(()) => {}
                Err(reason) => self.drops[reason as usize] += 1,
            }
        }
        Ok(())
    }

    fn on_datagram(
        &mut self,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> io::Result<Result<(), DropReason>> {
        let (header, probe) = match check(bytes, &self.key) {
            Ok(request) => request,
            Err(reason) => return Ok(Err(reason)),
        };
        let key = (header.index, header.cookie);
        let now = clock::monotonic();
        if !self.clients.contains_key(&key) {
            if self.clients.len() >= self.clients_max {
                self.forget_silent()?;
            }
            let session = Session::new(datagram, &self.config, now, header.cookie);
            self.clients.insert(key, session);
        }
        self.idle.set(key, now + IDLE);
        let Some(session) = self.clients.get_mut(&key) else { return Ok(Ok(())) };
        // A packet that comes twice would hide a loss in the counters, and needs one answer.
        let order = session.window.observe(probe.seq, Some(probe.t_sc));
        let repeated = matches!(order, Order::Duplicate | Order::Stale);
        if !repeated {
            session.remote = datagram.source;
            session.received = session.received.wrapping_add(1);
            session.kernel_stamps += u32::from(datagram.kernel_stamp);
            let packet = session.answer(&header, &probe, datagram, &self.key);
            // An answer that cannot be sent is lost like one that is lost later.
            let _ = self.socket.send(&packet, datagram.source, datagram.local);
        }
        let arrival = Arrival { probe, at: datagram.at, received: session.received, sent_at: None };
        session.machine.handle(now, ServerInput::Request { arrival, k: header.k });
        self.drain(key)?;
        Ok(if repeated { Err(DropReason::Replay) } else { Ok(()) })
    }

    /// Ticks what is due and forgets the silent.
    fn expire(&mut self, now: Time) -> io::Result<()> {
        while let Some(key) = self.ticks.pop_due(now) {
            if let Some(session) = self.clients.get_mut(&key) {
                session.machine.handle(now, ServerInput::Tick);
                self.drain(key)?;
            }
        }
        while let Some(key) = self.idle.pop_due(now) {
            self.forget(key)?;
        }
        Ok(())
    }

    /// Makes room: forgets the client that has been silent for longest.
    fn forget_silent(&mut self) -> io::Result<()> {
        let Some((_, key)) = self.idle.next() else { return Ok(()) };
        let key = *key;
        self.idle.cancel(&key);
        self.forget(key)
    }

    fn forget(&mut self, key: Key) -> io::Result<()> {
        self.ticks.cancel(&key);
        match self.clients.remove(&key) {
            Some(session) => self.tell("gone", key, &session),
            None => Ok(()),
        }
    }

    fn drain(&mut self, key: Key) -> io::Result<()> {
        let Some(session) = self.clients.get_mut(&key) else { return Ok(()) };
        let mut changed = false;
        while let Some(output) = session.machine.poll() {
            match output {
                ServerOutput::State(_) => changed = true,
                ServerOutput::Sample(sample) => {
                    if let Some(rtt) = sample.rtt {
                        session.samples.push(rtt);
                    }
                }
                // Asked for none.
                ServerOutput::SendUnsolicited(_) => {}
            }
        }
        match session.machine.deadline() {
            Some((at, _)) => self.ticks.set(key, at),
            None => self.ticks.cancel(&key),
        }
        if changed {
            let session = &self.clients[&key];
            self.tell("state", key, session)?;
        }
        Ok(())
    }

    fn report(&mut self) -> io::Result<()> {
        for (key, session) in &self.clients {
            if session.received != session.reported {
                self.tell("report", *key, session)?;
            }
        }
        for session in self.clients.values_mut() {
            session.reported = session.received;
        }
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

    fn summary(&self) -> io::Result<()> {
        let clients = self.clients.iter().map(|(key, session)| session.report(*key));
        let drops = drops(&self.drops);
        if self.output.json {
            return print_json(&Summary { r#type: "summary", clients: clients.collect(), drops });
        }
        print(&format!("\n--- {} clients ---", self.clients.len()))?;
        for client in clients {
            print(&client.text())?;
        }
        for (reason, count) in drops {
            print(&format!("{count} datagrams refused: {reason}"))?;
        }
        Ok(())
    }
}

/// The request in a datagram.
fn check(bytes: &[u8], key: &ProbeKey) -> Result<(Header, Probe), DropReason> {
    let header = Header::parse(bytes)?;
    if header.packet_type != PacketType::Request {
        return Err(DropReason::Type);
    }
    Ok((header, Probe::open(bytes, key)?))
}

impl Session {
    fn new(datagram: &Datagram, config: &Config, now: Time, seed: u64) -> Session {
        Session {
            remote: datagram.source,
            machine: Server::new(config.clone(), now, false),
            window: SeqWindow::new(),
            samples: Samples::new(SAMPLES_MAX, seed),
            sent: 0,
            received: 0,
            kernel_stamps: 0,
            reported: 0,
        }
    }

    fn answer(
        &mut self,
        header: &Header,
        request: &Probe,
        datagram: &Datagram,
        key: &ProbeKey,
    ) -> [u8; Probe::PACKET_LEN] {
        self.sent = self.sent.wrapping_add(1);
        // Last, so that what is stamped is as close to the sending as can be.
        let t_ss = clock::monotonic().micros32();
        let response = Probe {
            t_ss,
            dt: t_ss.wrapping_sub(datagram.at.micros32()),
            ss: self.sent,
            r: self.received,
            heard: 1,
            ..*request
        };
        response.seal(&Header { packet_type: PacketType::Response, ..*header }, key)
    }

    fn report(&self, (index, _): Key) -> ClientReport {
        let estimates = self.machine.estimates();
        ClientReport {
            client: shown(self.remote),
            session: format!("{index:08x}"),
            state: state_name(self.machine.state()),
            received: self.received,
            sent: self.sent,
            rtt_ms: self.samples.summary(estimates),
            owl_up: loss(estimates.up),
            owl_down: loss(estimates.down),
            transitions: estimates.transitions,
            duplicates: estimates.duplicates,
            reordered: estimates.reordered,
            stamp: match self.kernel_stamps {
                0 => "user",
                n if n == self.received => "kernel",
                _ => "mixed",
            },
        }
    }
}

impl ClientReport {
    fn text(&self) -> String {
        let rtt = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.3}"));
        format!(
            "{} [{}] {}  rtt {} ms (min {}, max {})  loss up {} down {}  {} requests, {} timestamps",
            self.client,
            self.session,
            self.state,
            rtt(self.rtt_ms.ewma),
            rtt(self.rtt_ms.min),
            rtt(self.rtt_ms.max),
            percent(self.owl_up),
            percent(self.owl_down),
            self.received,
            self.stamp
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(clients_max: usize) -> Listener {
        let socket = TimestampedSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        Listener {
            socket,
            key: ProbeKey::default(),
            config: Config::default(),
            output: Output { json: false, quiet: true },
            clients: BTreeMap::new(),
            clients_max,
            ticks: Timers::new(),
            idle: Timers::new(),
            drops: [0; DropReason::ALL.len()],
        }
    }

    fn request(listener: &mut Listener, index: u32, seq: u32) -> Result<(), DropReason> {
        let header = Header { packet_type: PacketType::Request, flags: 0, k: 3, index, cookie: 1 };
        let probe = Probe { seq, t_sc: seq, ..Probe::default() };
        let packet = probe.seal(&header, &listener.key);
        let datagram = Datagram {
            len: packet.len(),
            truncated: false,
            source: (Ipv4Addr::LOCALHOST, 9).into(),
            local: None,
            at: clock::monotonic(),
            kernel_stamp: false,
        };
        listener.on_datagram(&datagram, &packet).unwrap()
    }

    #[test]
    fn forged_clients_do_not_keep_out_those_that_go_on() {
        let mut listener = listener(8);
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
}
