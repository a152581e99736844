//! One target of the client: its name, its socket and its measurement.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, anyhow};
use nix::net::if_::if_nametoindex;
use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Arrival, Client, ClientInput, ClientOutput, Config, Request, Sample, State};
use segue_linux::clock;
use segue_linux::udp::{Datagram, TimestampedSocket};
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey, TUNNEL_PORT, header};

use super::random;
use super::samples::Samples;

/// Requests that are remembered; an answer to an older one is not believed.
const REMEMBERED_MAX: usize = 65_536;

/// RTT samples that are kept for percentiles.
const SAMPLES_MAX: usize = 100_000;

/// IPv4 or IPv6 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a target has to tell.
pub enum News {
    /// An answer, and whether both of its stamps on this end are the kernel's.
    Sample(Sample, bool),
    /// The path's state changed.
    State(State),
    /// Requests cannot be sent.
    Unsendable(io::Error),
}

/// One target.
pub struct Target {
    /// As the user wrote it.
    pub name: String,
    /// What that means.
    pub address: SocketAddr,
    /// RTTs.
    pub samples: Samples,
    /// Samples with kernel stamps on both ways.
    pub kernel_stamps: u64,
    /// Requests sent, those included that the kernel refused.
    pub sent: u32,
    /// Answers, each counted once.
    pub received: u32,
    /// Datagrams that are no answers.
    pub drops: [u64; DropReason::ALL.len()],
    /// The last error of sending, until a request leaves again.
    pub error: Option<io::Error>,
    socket: TimestampedSocket,
    header: Header,
    key: ProbeKey,
    machine: Client,
    requests: VecDeque<Sent>,
    last_sent: Time,
    k: u8,
    /// No request leaves any more.
    ended: bool,
    news: Vec<News>,
}

/// A request that was sent.
struct Sent {
    seq: u32,
    /// The socket's number of it; `None` if the kernel refused it.
    id: Option<u32>,
    at: Time,
    /// When it really left, once the kernel has told.
    left: Option<Time>,
    answered: bool,
}

impl Target {
    /// Opens the target's socket and draws its session.
    ///
    /// # Errors
    /// If there is no such interface, or no socket to be had.
    pub fn new(
        name: &str,
        address: SocketAddr,
        interface: Option<&str>,
        key: ProbeKey,
        config: &Config,
    ) -> anyhow::Result<Target> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = TimestampedSocket::bind(SocketAddr::new(any, 0), interface)?;
        let [a, b, c, d, cookie @ .., _, _, _, _] = random().context("/dev/urandom")?;
        let index = u32::from_be_bytes([a, b, c, d]).max(1);
        let cookie = u64::from_be_bytes(cookie).max(1);
        let header =
            Header { packet_type: PacketType::Request, flags: 0, k: config.k, index, cookie };
        Ok(Target {
            name: name.into(),
            address,
            samples: Samples::new(SAMPLES_MAX, cookie),
            kernel_stamps: 0,
            sent: 0,
            received: 0,
            drops: [0; DropReason::ALL.len()],
            error: None,
            socket,
            header,
            key,
            machine: Client::new(config.clone(), clock::monotonic(), cookie),
            requests: VecDeque::new(),
            last_sent: Time::ZERO,
            k: config.k,
            ended: false,
            news: Vec::new(),
        })
    }

    /// The measurement.
    pub fn machine(&self) -> &Client {
        &self.machine
    }

    /// When the last request was sent.
    pub fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// Requests sent after `since` that have no answer.
    pub fn outstanding(&self, since: Time) -> u32 {
        let young = self.requests.iter().rev().take_while(|sent| sent.at > since);
        young.filter(|sent| !sent.answered).count() as u32
    }

    /// From here on only answers are taken. The machine does what is due with any input, so one that
    /// comes when a request is due would otherwise send it, and never let a measurement end whose
    /// round-trip time is its period.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// When to call [`Target::tick`].
    pub fn deadline(&self) -> Option<Time> {
        self.machine.deadline().map(|(at, _)| at)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) -> Vec<News> {
        self.machine.handle(now, ClientInput::Tick);
        self.drain(true);
        std::mem::take(&mut self.news)
    }

    /// Settles the state at the end: requests have ceased, so the time since the last answer says
    /// nothing; but if the last K requests have all been out for `grace`, the path is down.
    pub fn settle(&mut self, now: Time, grace: Span) -> Vec<News> {
        let mut last = self.requests.iter().rev().take(self.k.into());
        if self.sent > 0 && last.all(|sent| !sent.answered && sent.at + grace <= now) {
            self.machine.handle(now, ClientInput::Tick);
            self.drain(false);
        }
        std::mem::take(&mut self.news)
    }

    /// Takes everything that has arrived.
    ///
    /// # Errors
    /// If the socket is broken.
    pub fn receive(&mut self) -> io::Result<Vec<News>> {
        let mut buffer = [0; 2048];
        loop {
            let datagram = self.socket.recv(&mut buffer)?;
            // A request's stamp is queued before its answer can be: for this answer it is here, if it
            // comes at all. An answer may have set off the next request, so each one asks again.
            while let Some(stamp) = self.socket.tx_stamp()? {
                let find = |sent: &&mut Sent| sent.id == Some(stamp.id);
                if let Some(sent) = self.requests.iter_mut().rev().find(find) {
                    sent.left = Some(stamp.at);
                }
            }
            let Some(datagram) = datagram else { break };
            if let Err(reason) = self.on_datagram(&datagram, &buffer[..datagram.len]) {
                self.drops[reason as usize] += 1;
            }
        }
        Ok(std::mem::take(&mut self.news))
    }

    fn on_datagram(&mut self, datagram: &Datagram, bytes: &[u8]) -> Result<(), DropReason> {
        let header = Header::parse(bytes)?;
        if header.packet_type != PacketType::Response {
            return Err(DropReason::Type);
        }
        if header.index != self.header.index {
            return Err(DropReason::UnknownIndex);
        }
        if header.cookie != self.header.cookie {
            return Err(DropReason::Cookie);
        }
        let probe = Probe::open(bytes, &self.key)?;
        if header.flags & header::flags::RESPONSE_UNSOLICITED != 0 {
            return Err(DropReason::Type);
        }
        let first = self.requests.front().ok_or(DropReason::Replay)?.seq;
        let place = probe.seq.wrapping_sub(first) as usize;
        let sent = self.requests.get_mut(place).ok_or(DropReason::Replay)?;
        // The machine counts duplicates; they must not hide a loss in the packet counter.
        if !sent.answered {
            self.received = self.received.wrapping_add(1);
        }
        sent.answered = true;
        let sent_at = sent.left.filter(|left| *left <= datagram.at);
        let arrival = Arrival { probe, at: datagram.at, received: self.received, sent_at };
        let kernel = datagram.kernel_stamp && sent_at.is_some();
        self.machine.handle(clock::monotonic(), ClientInput::Response(arrival));
        let before = self.news.len();
        self.drain(true);
        for news in &mut self.news[before..] {
            if let News::Sample(sample, stamp) = news {
                *stamp = kernel;
                self.kernel_stamps += u64::from(kernel);
                if let Some(rtt) = sample.rtt {
                    self.samples.push(rtt);
                }
            }
        }
        Ok(())
    }

    fn drain(&mut self, send: bool) {
        while let Some(output) = self.machine.poll() {
            match output {
                ClientOutput::SendRequest(request) if send && !self.ended => self.send(&request),
                ClientOutput::SendRequest(_) | ClientOutput::Heard(_) => {}
                ClientOutput::State(state) => self.news.push(News::State(state)),
                ClientOutput::Sample(sample) => self.news.push(News::Sample(sample, false)),
            }
        }
    }

    fn send(&mut self, request: &Request) {
        self.sent = self.sent.wrapping_add(1);
        let now = clock::monotonic();
        let mut probe = request.probe;
        probe.heard = u16::from(self.machine.heard());
        probe.sc = self.sent;
        probe.t_sc = now.micros32();
        // Before the first response there is nothing that was held.
        probe.dt = match probe.t_ss {
            0 => 0,
            _ => probe.t_sc.wrapping_sub(request.held_since),
        };
        let result = self.socket.send(&probe.seal(&self.header, &self.key), self.address, None);
        let id = match result {
            Ok(id) => {
                self.error = None;
                Some(id)
            }
            Err(error) => {
                self.on_send_error(error);
                None
            }
        };
        if self.requests.len() == REMEMBERED_MAX {
            self.requests.pop_front();
        }
        let sent = Sent { seq: probe.seq, id, at: now, left: None, answered: false };
        self.requests.push_back(sent);
        self.last_sent = now;
    }

    /// What does not leave is lost like what is lost later; the reason is told once.
    fn on_send_error(&mut self, error: io::Error) {
        let known = self.error.as_ref().is_some_and(|e| e.kind() == error.kind());
        if !known && error.kind() != ErrorKind::WouldBlock {
            self.news.push(News::Unsendable(io::Error::from(error.kind())));
        }
        self.error = Some(error);
    }
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address of `HOST[:PORT]`, where an IPv6 address has brackets if it has a port.
///
/// # Errors
/// One line that names the host.
pub fn resolve(
    text: &str,
    family: Option<Family>,
    interface: Option<&str>,
) -> anyhow::Result<SocketAddr> {
    let (host, port) = split(text)?;
    let wanted = |address: &SocketAddr| match family {
        Some(Family::V4) => address.is_ipv4(),
        Some(Family::V6) => address.is_ipv6(),
        None => true,
    };
    let mut found = (host, port).to_socket_addrs().map_err(|error| {
        // The resolver's text, without the standard library's prefix.
        let text = error.to_string();
        let reason = text.strip_prefix("failed to lookup address information: ");
        anyhow!("cannot resolve {host}: {}", reason.unwrap_or(&text))
    })?;
    let mut address = found.find(wanted).with_context(|| match family {
        Some(Family::V4) => format!("{host} has no IPv4 address"),
        _ => format!("{host} has no IPv6 address"),
    })?;
    if let (SocketAddr::V6(v6), Some(name)) = (&mut address, interface)
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        let index = if_nametoindex(name).with_context(|| format!("there is no interface {name}"));
        v6.set_scope_id(index?);
    }
    Ok(address)
}

/// The address of a listener: `ADDR`, `ADDR:PORT`, or `:PORT` for all addresses.
///
/// # Errors
/// One line that shows what an address looks like.
pub fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let (host, port) = split(text)?;
    let host = if host.is_empty() { "::" } else { host };
    let ip: IpAddr = host.parse().map_err(|_| {
        anyhow!("{text} is no address to listen on; examples: [::]:5005, 192.0.2.1")
    })?;
    Ok(SocketAddr::new(ip, port))
}

fn split(text: &str) -> anyhow::Result<(&str, u16)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) =
            rest.split_once(']').with_context(|| format!("{text}: the bracket does not close"))?;
        (host, rest.strip_prefix(':').or((rest.is_empty()).then_some("")))
    } else {
        match text.split_once(':') {
            // A second colon: an IPv6 address without brackets has no room for a port.
            Some((_, rest)) if rest.contains(':') => (text, Some("")),
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (text, Some("")),
        }
    };
    let port = match port {
        Some("") => Some(TUNNEL_PORT),
        Some(digits) => digits.parse().ok(),
        None => None,
    };
    Ok((host, port.with_context(|| format!("{text}: the port must be a number up to 65535"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, host, port) in [
            ("anchor.example", "anchor.example", 5005),
            ("anchor.example:7", "anchor.example", 7),
            ("192.0.2.1:65535", "192.0.2.1", 65535),
            ("2001:db8::1", "2001:db8::1", 5005),
            ("::1", "::1", 5005),
            ("[2001:db8::1]", "2001:db8::1", 5005),
            ("[2001:db8::1]:7", "2001:db8::1", 7),
        ] {
            assert_eq!(split(text).unwrap(), (host, port), "{text}");
        }
        for text in ["[::1", "host:", "host:x", "host:65536", "[::1]x", "[::1]:-1"] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_listener_may_leave_out_the_address_or_the_port() {
        assert_eq!(listen_address(":7").unwrap(), "[::]:7".parse().unwrap());
        assert_eq!(listen_address("192.0.2.1").unwrap(), "192.0.2.1:5005".parse().unwrap());
        assert!(listen_address("anchor.example:7").is_err());
    }

    #[test]
    fn a_host_of_the_other_family_is_refused_by_name() {
        let error = resolve("127.0.0.1", Some(Family::V6), None).unwrap_err();
        assert_eq!(error.to_string(), "127.0.0.1 has no IPv6 address");
    }
}
