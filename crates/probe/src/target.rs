//! One target of the client: its name, its socket and its measurement.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use segue_clock::{Machine, Span, Time};
use segue_datapath::STAMP_TO_WIRE;
use segue_keepalive::{Arrival, Client, ClientInput, ClientOutput, Config, Request, Sample, State};
use segue_linux::clock;
use segue_linux::udp::{Datagram, IcmpError, TimestampedSocket, path_mtu};
use segue_wire::{DropReason, Header, PacketType, ProbeKey};

use super::device::Device;
use super::endpoint::{Endpoint, Envelope, LENGTH_MAX, far_delay};
use super::icmp::{Icmp, Quote, Said};
use super::ipdv::{self, Ipdv};
use super::refusals::Refusals;
use super::samples::{Samples, Stamps};
use super::secrets::random;
use crate::metrics::View;

/// Number of requests in memory; answers to older ones are refused.
const REMEMBERED_MAX: usize = 65_536;

/// Maximum number of datagrams read before timers and signals are processed.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Number of RTT samples for percentiles.
const SAMPLES_MAX: usize = 100_000;

/// News about a target.
pub enum News {
    /// A probe produced new values.
    Sample {
        /// The values.
        sample: Sample,
        /// The origin of its timestamps.
        stamps: Stamps,
        /// The moving averages of the round-trip time after this sample, in seconds: several answers may be processed
        /// before any of them is reported.
        rtt_ewma: Vec<f64>,
    },
    /// The path's state changed.
    State(State),
    /// Requests cannot be sent, for this reason.
    Unsendable(String),
    /// An ICMP error about requests was received.
    Icmp(Said),
}

/// Format of requests; by default as short as possible, without a DSCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// DSCP; `None` leaves it to the system.
    pub dscp: Option<u8>,
    /// Bytes of UDP payload; at least those of a probe.
    pub length: usize,
}

/// One target.
pub struct Target {
    /// The target as the user wrote it.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// RTTs.
    pub samples: Samples,
    /// The variation of the delay.
    pub ipdv: Ipdv,
    /// Number of samples with kernel timestamps in both directions.
    pub kernel_stamps: u64,
    /// Number of requests, including those that the kernel refused.
    pub sent: u32,
    /// Number of answers, without duplicates.
    pub received: u32,
    /// Datagrams that are not valid answers.
    pub drops: Refusals,
    /// ICMP errors about requests.
    pub icmp: Icmp,
    /// The last error on sending; cleared when a request is sent again.
    pub error: Option<io::Error>,
    /// Its socket with the key.
    pub end: Endpoint,
    /// The interface for requests, if the user named one.
    device: Option<Device>,
    dscp: Option<u8>,
    header: Header,
    /// Bytes of a request.
    length: usize,
    buffer: Vec<u8>,
    machine: Client,
    requests: VecDeque<Sent>,
    last_sent: Time,
    k: u8,
    /// Set while no requests are sent.
    ended: bool,
    news: Vec<News>,
}

/// A request that was sent.
struct Sent {
    seq: u32,
    /// The socket's ID of the packet; `None` if the kernel refused it.
    id: Option<u32>,
    at: Time,
    /// Upper bound of the time from `at` until the kernel had it.
    within: Span,
    /// Its departure and the error bound, once the kernel has reported it.
    left: Option<(Time, Span)>,
    answered: bool,
}

impl Target {
    /// Opens the target's socket and draws its session.
    ///
    /// # Errors
    /// The interface does not exist, or no socket is available.
    pub fn new(
        name: &str,
        address: SocketAddr,
        interface: Option<&str>,
        key: ProbeKey,
        config: &Config,
        marks: Marks,
    ) -> anyhow::Result<Target> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = TimestampedSocket::bind(SocketAddr::new(any, 0), interface)?;
        let target = Target::over(socket, name, address, key, config, marks)?;
        Ok(Target { device: interface.map(Device::new), ..target })
    }

    /// Like [`Target::new`], over an existing socket.
    ///
    /// # Errors
    /// The system lacks a socket option.
    pub fn over(
        socket: TimestampedSocket,
        name: &str,
        address: SocketAddr,
        key: ProbeKey,
        config: &Config,
        marks: Marks,
    ) -> anyhow::Result<Target> {
        let [a, b, c, d, cookie @ .., _, _, _, _] = random().context("/dev/urandom")?;
        let index = u32::from_be_bytes([a, b, c, d]).max(1);
        let cookie = u64::from_be_bytes(cookie).max(1);
        let mut end = Endpoint::new(socket, key).context("cannot forbid fragments")?;
        set_options(&mut end, marks.dscp)?;
        let header = Header::new(PacketType::Request, config.k, index, cookie);
        Ok(Target {
            name: name.into(),
            address,
            samples: Samples::new(SAMPLES_MAX, cookie),
            ipdv: Ipdv::new(cookie),
            kernel_stamps: 0,
            sent: 0,
            received: 0,
            drops: Refusals::default(),
            icmp: Icmp::default(),
            error: None,
            end,
            device: None,
            dscp: marks.dscp,
            header,
            length: marks.length,
            buffer: vec![0; LENGTH_MAX],
            machine: Client::new(config.clone(), clock::monotonic(), cookie),
            requests: VecDeque::new(),
            last_sent: Time::ZERO,
            k: config.k,
            ended: false,
            news: Vec::new(),
        })
    }

    /// The values for metrics.
    pub fn view<'a>(&'a self, config: &'a Config) -> View<'a> {
        View {
            labels: vec![("target", self.name.clone())],
            estimates: self.machine.estimates(),
            taus: &config.taus,
            state: self.machine.state(),
            sent: self.sent.into(),
            received: self.received.into(),
            uncertainty: self.samples.last_error(),
        }
    }

    /// The index and cookie that identify its session.
    pub fn key(&self) -> (u32, u64) {
        (self.header.index, self.header.cookie)
    }

    /// The measuring machine.
    pub fn machine(&self) -> &Client {
        &self.machine
    }

    /// Bytes of UDP payload in a request.
    pub fn length(&self) -> usize {
        self.length
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

    /// Stops sending requests; from here on, only answers are processed. The machine runs due timers on any input, so
    /// an answer could otherwise trigger a due request, and a measurement whose round-trip time equals its period would
    /// never end.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Sends requests again, after [`Target::end`].
    pub(crate) fn resume(&mut self) {
        self.ended = false;
    }

    /// When to call [`Target::tick`].
    pub fn deadline(&self) -> Option<Time> {
        self.machine.deadline().map(|(at, _)| at)
    }

    /// Runs due timers.
    pub fn tick(&mut self, now: Time) -> Vec<News> {
        self.machine.tick(now);
        self.drain(true);
        std::mem::take(&mut self.news)
    }

    /// Determines the final state. No more requests are sent, so the time since the last answer is meaningless; but if
    /// none of the last K requests was answered within `grace`, the path is down.
    pub fn settle(&mut self, now: Time, grace: Span) -> Vec<News> {
        let mut last = self.requests.iter().rev().take(self.k.into());
        if self.sent > 0 && last.all(|sent| !sent.answered && sent.at + grace <= now) {
            // The machine got no ticks since the last request, which it would excuse as a busy host. Ticks at their due
            // times produce its verdict for a path without answers.
            let mut at = now;
            while self.machine.state() != State::Down && at <= now + grace * 4 {
                self.machine.tick(at);
                self.drain(false);
                at = self.deadline().map_or(now + grace * 5, |next| next.max(at));
            }
        }
        std::mem::take(&mut self.news)
    }

    /// Processes received datagrams, at most one batch.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn receive(&mut self) -> io::Result<Vec<News>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..BATCH_MAX {
            let Some(datagram) = self.take(&mut buffer)? else { break };
            let news = self.on_datagram(&datagram, &buffer[..datagram.len]);
            if let Err(reason) = news {
                self.drops.count(reason.name());
            }
        }
        self.buffer = buffer;
        Ok(std::mem::take(&mut self.news))
    }

    /// Takes the next datagram, and the available transmit timestamps.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let datagram = self.end.take(buffer)?;
        // The kernel queues a request's timestamp before the answer can arrive, so for this answer it is available if
        // it exists at all. An answer may trigger the next request, so read timestamps after each one.
        while let Some(stamp) = self.end.left()? {
            let find = |sent: &&mut Sent| sent.id == Some(stamp.id);
            if let Some(sent) = self.requests.iter_mut().rev().find(find) {
                // The first one belongs to the request. If an eBPF program on this machine reflects it (veth), the
                // kernel reports the response's timestamp under the same ID.
                sent.left.get_or_insert((stamp.at, stamp.error));
            }
        }
        while let Some(error) = self.end.icmp_error() {
            self.on_icmp(&error);
        }
        Ok(datagram)
    }

    fn on_icmp(&mut self, error: &IcmpError) {
        let quote = match Header::parse(&error.quote) {
            Ok(quoted) if quoted.packet_type == PacketType::Response => return,
            Ok(quoted) if (quoted.index, quoted.cookie) == self.key() => Quote::Ours,
            _ if error.quote.len() < Header::LEN && error.to == self.address => Quote::Short,
            _ => Quote::Foreign,
        };
        if quote == Quote::Foreign {
            self.drops.count("icmp");
        } else if let Some(said) = self.icmp.note(error, quote) {
            self.news.push(News::Icmp(said));
        }
    }

    /// Takes the news since the last call.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Processes an answer.
    ///
    /// # Errors
    /// The reason why it is not a valid answer.
    pub fn on_datagram(&mut self, datagram: &Datagram, bytes: &[u8]) -> Result<(), DropReason> {
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
        let (_, probe) = self.end.open(bytes)?;
        // Here, responses are never unsolicited, and there are no questions.
        if header.flags != 0 {
            return Err(DropReason::Type);
        }
        let first = self.requests.front().ok_or(DropReason::Replay)?.seq;
        let place = probe.seq.wrapping_sub(first) as usize;
        let sent = self.requests.get_mut(place).ok_or(DropReason::Replay)?;
        // The machine counts duplicates; they must not hide a loss in the packet counter.
        let first = !std::mem::replace(&mut sent.answered, true);
        let left = sent.left.filter(|(at, _)| *at <= datagram.at);
        if first {
            self.received = self.received.wrapping_add(1);
            self.icmp.answered();
            self.ipdv.take(ipdv::Exchange {
                seq: probe.seq,
                left: left.map_or(sent.at, |(at, _)| at),
                arrived: datagram.at,
                far_arrived_us: probe.t_ss.wrapping_sub(probe.dt),
                far_left_us: probe.t_ss,
            });
        }
        let far = far_delay(probe.heard);
        let stamps = Stamps {
            tx: left.is_some(),
            rx: datagram.kernel_stamp,
            far: far.is_some(),
            wakeup: datagram.seen.since(datagram.at),
        };
        let own = left.map_or(sent.within, |(_, error)| error);
        let arrival = Arrival {
            sent_at: left.map(|(at, _)| at),
            uncertainty: own + datagram.error + far.unwrap_or(Span::ZERO) + STAMP_TO_WIRE,
            ..Arrival::new(probe, datagram.at, self.received)
        };
        self.machine.handle(clock::monotonic(), ClientInput::Response(arrival));
        let before = self.news.len();
        self.drain(true);
        for news in &mut self.news[before..] {
            if let News::Sample { sample, stamps: taken, .. } = news {
                *taken = stamps;
                self.kernel_stamps += u64::from(stamps.kernel());
                self.samples.take(sample, stamps);
            }
        }
        Ok(())
    }

    fn drain(&mut self, send: bool) {
        while let Some(output) = self.machine.poll() {
            match output {
                ClientOutput::SendRequest(request) if send && !self.ended => self.send(&request),
                ClientOutput::SendRequest(_) | ClientOutput::Heard(_) | ClientOutput::Doubt(_) => {}
                ClientOutput::State(state) => self.news.push(News::State(state)),
                // An interval without an answer only updates the averages: samples are reported for answers only.
                ClientOutput::Sample(Sample {
                    rtt: None, owl_up: None, owl_down: None, ..
                }) => {}
                ClientOutput::Sample(sample) => {
                    let (stamps, rtt_ewma) =
                        (Stamps::default(), self.machine.estimates().rtt_ewma.clone());
                    self.news.push(News::Sample { sample, stamps, rtt_ewma });
                }
            }
        }
    }

    fn send(&mut self, request: &Request) {
        self.follow_device();
        self.sent = self.sent.wrapping_add(1);
        let mut probe = request.probe;
        probe.heard = self.end.heard(self.machine.heard());
        probe.sc = self.sent;
        let envelope = Envelope { to: self.address, from: None, class: None, length: self.length };
        let now = clock::monotonic();
        probe.t_sc = now.micros32();
        // Before the first response, nothing was held.
        probe.dt = match probe.t_ss {
            0 => 0,
            _ => probe.t_sc.wrapping_sub(request.held_since),
        };
        let unbound = self.device.as_ref().is_some_and(Device::is_unbound);
        let sent = match unbound {
            true => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            false => self.end.send(&self.header, &probe, now, envelope),
        };
        let given = match sent {
            Ok(given) => {
                self.error = None;
                Some(given)
            }
            Err(error) => {
                self.on_send_error(error);
                None
            }
        };
        if self.requests.len() == REMEMBERED_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(Sent {
            seq: probe.seq,
            id: given.map(|given| given.id),
            at: now,
            within: given.map_or(Span::ZERO, |given| given.within),
            left: None,
            answered: false,
        });
        self.last_sent = now;
    }

    /// Opens a new socket if requests could not be sent and the interface was created again.
    fn follow_device(&mut self) {
        let Some(device) = &mut self.device else { return };
        if self.error.is_none() || !device.came_anew() {
            return;
        }
        let opened = self.end.reopen(device);
        // After a failure, the next request tries again.
        let _ = opened.and_then(|()| set_options(&mut self.end, self.dscp));
        // The new socket counts packets from zero.
        self.requests.iter_mut().for_each(|sent| sent.id = None);
    }

    /// Counts a request that cannot be sent as lost; reports the reason once.
    fn on_send_error(&mut self, error: io::Error) {
        let code = error.raw_os_error();
        let known = self.error.as_ref().is_some_and(|last| last.raw_os_error() == code);
        if !known && error.kind() != ErrorKind::WouldBlock {
            self.news.push(News::Unsendable(self.reason(&error)));
        }
        self.error = Some(error);
    }

    /// An error on sending, as text.
    pub fn reason(&self, error: &io::Error) -> String {
        let headers = if self.address.is_ipv4() { 28 } else { 48 };
        match (error.raw_os_error(), path_mtu(self.address)) {
            (Some(libc::EMSGSIZE), Ok(mtu)) => format!(
                "a request of {} bytes is too long for the path, which takes {} (MTU {mtu})",
                self.length,
                mtu.saturating_sub(headers)
            ),
            _ => error.kind().to_string(),
        }
    }
}

fn set_options(end: &mut Endpoint, dscp: Option<u8>) -> anyhow::Result<()> {
    if let Some(dscp) = dscp {
        end.set_traffic_class(dscp << 2).context("cannot set the DSCP")?;
    }
    end.receive_icmp().context("cannot ask for ICMP errors")
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.socket().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_keepalive::ewma;
    use segue_wire::Probe;

    /// Each sample is reported with the averages right after it, even if several answers are processed at once.
    #[test]
    fn answers_that_are_taken_together_are_told_each_with_its_own_averages() {
        const KEY: ProbeKey = ProbeKey([7; 16]);
        let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let config = Config { t_ka: Span::from_millis(20), ..Config::default() };
        let (address, marks) = (far.local_addr().unwrap(), Marks::default());
        let mut target = Target::new("far", address, None, KEY, &config, marks).unwrap();
        let mut bytes = [0; 100];
        let mut answers = Vec::new();
        for _ in 0..4 {
            target.tick(target.deadline().unwrap());
            let (n, from) = far.recv_from(&mut bytes).unwrap();
            let header = Header::parse(&bytes[..n]).unwrap();
            let probe = Probe::open(&bytes[..n], &KEY).unwrap();
            let header = Header { packet_type: PacketType::Response, flags: 0, ..header };
            answers.push((Probe { ss: probe.sc, r: probe.sc, ..probe }.seal(&header, &KEY), from));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for (answer, from) in &answers {
            far.send_to(answer, from).unwrap();
        }
        // On a busy machine, they may not all arrive at once.
        let (mut told, mut together, begun) = (Vec::new(), 0, std::time::Instant::now());
        while told.len() < answers.len() && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let before = told.len();
            for news in target.receive().unwrap() {
                if let News::Sample { sample, rtt_ewma, .. } = news {
                    told.push((sample.at, sample.rtt.unwrap().as_secs_f64(), rtt_ewma[0]));
                }
            }
            together = together.max(told.len() - before);
        }
        assert_eq!(told.len(), answers.len());
        assert!(together > 1, "none were taken together");
        assert_eq!(told[0].1, told[0].2, "the first is taken as it is");
        for pair in told.windows(2) {
            let elapsed = pair[1].0.since(pair[0].0);
            assert_eq!(pair[1].2, ewma::step(pair[0].2, pair[1].1, elapsed, config.taus[0]));
        }
    }
}
