//! A Session-Sender: its socket, its requests and its results.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use segue_clock::{Span, Time};
use segue_linux::clock;
use segue_linux::udp::{Datagram, IcmpError, Leave, TimestampedSocket};
use segue_wire::DropReason;
use segue_wire::stamp::tlv::{ClassOfService, DirectMeasurement, FollowUp, Writer, kind};
use segue_wire::stamp::{ErrorEstimate, Reply, SenderPacket, StampKey, base_len, min_len};

use super::super::device::Device;
use super::super::icmp::{Icmp, Quote, Said};
use super::super::refusals::Refusals;
use super::super::secrets::random;
use super::stamps::{error_estimate, stamp};
use super::stats::{Exchange, Sample, Stats};

/// Number of requests in memory; answers to older ones are refused.
const REMEMBERED_MAX: usize = 65_536;
/// Maximum length of a packet in bytes.
const PACKET_MAX: usize = 65_507;
/// Bytes that identify a request in an ICMP error: they include its number and timestamp in either mode.
const HEAD: usize = 24;
/// The TTL that TWAMP requires, so that the other end can determine the number of hops.
const TTL: u8 = 255;

/// Format of the requests.
#[derive(Clone)]
pub(super) struct Wishes {
    /// Authenticated mode.
    pub key: Option<StampKey>,
    /// Session identifier (SSID); zero for none.
    pub ssid: u16,
    /// Request counters (Direct Measurement).
    pub direct: bool,
    /// Request the departure of the previous answer (Follow-Up Telemetry).
    pub follow_up: bool,
    /// Request answers with this DSCP.
    pub reply_dscp: Option<u8>,
    /// DSCP of requests.
    pub dscp: Option<u8>,
    /// Bytes of UDP payload, if the fields need fewer.
    pub size: usize,
}

/// News about a session.
pub(super) enum News {
    /// An answer.
    Sample(Sample),
    /// Requests cannot be sent.
    Unsendable(io::Error),
    /// An ICMP error about requests was received.
    Icmp(Said),
}

/// A session with one reflector.
pub(super) struct Session {
    /// The target as the user wrote it.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Number of requests, including those that the kernel refused.
    pub sent: u32,
    /// Results from the answers.
    pub stats: Stats,
    /// Datagrams that are not valid answers.
    pub drops: Refusals,
    /// Those among `drops` that are too short for an answer.
    pub short: Option<Short>,
    /// ICMP errors about requests.
    pub icmp: Icmp,
    /// The last error on sending; cleared when a request is sent again.
    pub error: Option<io::Error>,
    wishes: Wishes,
    socket: TimestampedSocket,
    /// The interface for requests, if the user named one.
    device: Option<Device>,
    estimate: ErrorEstimate,
    requests: VecDeque<Sent>,
    last_sent: Time,
    news: Vec<News>,
}

/// Answers that were too short.
#[derive(Clone, Copy)]
pub(super) struct Short {
    pub count: u64,
    /// Octets of the last one, and below those that an answer needs.
    pub got: usize,
    pub needed: usize,
}

/// A request that was sent.
struct Sent {
    seq: u32,
    /// The socket's ID of the packet; `None` if the kernel refused it.
    id: Option<u32>,
    at: Time,
    /// Its departure, once the kernel has reported it.
    left: Option<Time>,
    /// Its first bytes: number, timestamp and more.
    head: [u8; HEAD],
    answered: bool,
}

impl Session {
    /// Opens the session's socket.
    ///
    /// # Errors
    /// The interface does not exist, or no socket is available.
    pub(super) fn new(
        name: String,
        address: SocketAddr,
        interface: Option<&str>,
        wishes: Wishes,
    ) -> anyhow::Result<Session> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = TimestampedSocket::bind(SocketAddr::new(any, 0), interface)?;
        set_options(&mut socket, wishes.dscp)?;
        let [seed @ .., _, _, _, _, _, _, _, _] = random().context("/dev/urandom")?;
        Ok(Session {
            name,
            address,
            sent: 0,
            stats: Stats::new(u64::from_be_bytes(seed)),
            drops: Refusals::default(),
            short: None,
            icmp: Icmp::default(),
            error: None,
            wishes,
            socket,
            device: interface.map(Device::new),
            estimate: error_estimate(Span::ZERO),
            requests: VecDeque::new(),
            last_sent: Time::ZERO,
            news: Vec::new(),
        })
    }

    /// Bytes of UDP payload in a request, as far as known before the first one.
    pub(super) fn length(&self) -> usize {
        self.wishes.size.max(base_len(self.wishes.key.as_ref()))
    }

    /// When the last request was sent.
    pub(super) fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// Requests sent after `since` that have no answer.
    pub(super) fn outstanding(&self, since: Time) -> u32 {
        let young = self.requests.iter().rev().take_while(|sent| sent.at > since);
        young.filter(|sent| !sent.answered).count() as u32
    }

    /// Takes the news since the last call.
    pub(super) fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Sends a request.
    pub(super) fn send(&mut self) {
        self.follow_device();
        let seq = self.sent;
        self.sent = self.sent.wrapping_add(1);
        let mut buffer = vec![0; PACKET_MAX];
        let at = clock::monotonic();
        let len = self.request(seq, at, &mut buffer).unwrap_or(0);
        let unbound = self.device.as_ref().is_some_and(Device::is_unbound);
        let sent = match unbound {
            true => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            false => self.socket.send(&buffer[..len], self.address, Leave::default()),
        };
        let id = match sent {
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
        let head = std::array::from_fn(|i| buffer[i]);
        self.requests.push_back(Sent { seq, id, at, left: None, head, answered: false });
        self.last_sent = at;
    }

    fn request(&mut self, seq: u32, at: Time, out: &mut [u8]) -> Option<usize> {
        // The quality of the clock changes slowly, and reading it costs a system call.
        if seq.is_multiple_of(64) {
            self.estimate = error_estimate(Span::ZERO);
        }
        let wishes = &self.wishes;
        let key = wishes.key.as_ref();
        let mut writer = Writer::new(out.get_mut(base_len(key)..)?);
        if let Some(dscp1) = wishes.reply_dscp {
            let wish = ClassOfService { dscp1, ..ClassOfService::default() };
            writer.push(kind::CLASS_OF_SERVICE, &wish.emit())?;
        }
        if wishes.direct {
            let count = DirectMeasurement { sender_tx: self.sent, ..Default::default() };
            writer.push(kind::DIRECT_MEASUREMENT, &count.emit())?;
        }
        if wishes.follow_up {
            writer.push(kind::FOLLOW_UP, &FollowUp::default().emit())?;
        }
        if let Some(key) = key.filter(|_| !writer.is_empty()) {
            writer.seal(key, seq)?;
        }
        let missing = wishes.size.saturating_sub(base_len(key) + writer.len());
        if missing > 0 {
            writer.pad(missing.max(segue_wire::stamp::tlv::HEADER_LEN))?;
        }
        let extensions = writer.len();
        let packet =
            SenderPacket { seq, timestamp: stamp(at), error: self.estimate, ssid: wishes.ssid };
        Some(packet.emit(key, out)? + extensions)
    }

    /// Opens a new socket if requests could not be sent and the interface was created again.
    fn follow_device(&mut self) {
        let Some(device) = &mut self.device else { return };
        if self.error.is_none() || !device.came_anew() {
            return;
        }
        let opened = device.reopen(&mut self.socket).map_err(anyhow::Error::from);
        // After a failure, the next request tries again.
        let _ = opened.and_then(|()| set_options(&mut self.socket, self.wishes.dscp));
        // The new socket counts packets from zero.
        self.requests.iter_mut().for_each(|sent| sent.id = None);
    }

    /// Counts a request that cannot be sent as lost; reports the reason once.
    fn on_send_error(&mut self, error: io::Error) {
        let known = self.error.as_ref().is_some_and(|e| e.kind() == error.kind());
        if !known && error.kind() != ErrorKind::WouldBlock {
            self.news.push(News::Unsendable(io::Error::from(error.kind())));
        }
        self.error = Some(error);
    }

    /// Processes all received datagrams.
    ///
    /// # Errors
    /// The socket is broken.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let datagram = self.socket.recv(&mut buffer)?;
            // The kernel queues a request's timestamp before its answer can arrive.
            while let Some(stamp) = self.socket.tx_stamp()? {
                let find = |sent: &&mut Sent| sent.id == Some(stamp.id);
                if let Some(sent) = self.requests.iter_mut().rev().find(find) {
                    // The first one belongs to the request. If an eBPF program on this machine reflects it (veth), the
                    // kernel reports the answer's timestamp under the same ID.
                    sent.left.get_or_insert(stamp.at);
                }
            }
            while let Some(error) = self.socket.icmp_error() {
                self.on_icmp(&error);
            }
            let Some(datagram) = datagram else { return Ok(()) };
            if let Err(reason) = self.on_datagram(&datagram, &buffer[..datagram.len]) {
                self.drops.count(reason.name());
                if reason == DropReason::Truncated {
                    self.on_short(datagram.len);
                }
            }
        }
    }

    fn on_short(&mut self, got: usize) {
        let needed = min_len(self.wishes.key.as_ref());
        let count = self.short.map_or(0, |short| short.count) + 1;
        self.short = Some(Short { count, got, needed });
    }

    fn on_icmp(&mut self, error: &IcmpError) {
        let known = |sent: &Sent| error.quote.starts_with(&sent.head);
        let quote = match error.quote.len() < HEAD {
            true => Quote::Short,
            false if self.requests.iter().rev().any(known) => Quote::Ours,
            false => Quote::Foreign,
        };
        if quote == Quote::Foreign {
            self.drops.count("icmp");
        } else if let Some(said) = self.icmp.note(error, quote) {
            self.news.push(News::Icmp(said));
        }
    }

    fn on_datagram(&mut self, datagram: &Datagram, bytes: &[u8]) -> Result<(), DropReason> {
        if datagram.source.port() != self.address.port() {
            return Err(DropReason::UnknownIndex);
        }
        let reply = Reply::open(bytes, self.wishes.key.as_ref())?;
        let ssid = reply.packet.ssid;
        // Zero: the reflector does not support RFC 8972.
        if ssid != self.wishes.ssid && ssid != 0 {
            return Err(DropReason::UnknownIndex);
        }
        let first = self.requests.front().ok_or(DropReason::Replay)?.seq;
        let place = reply.packet.sender_seq.wrapping_sub(first) as usize;
        let sent = self.requests.get_mut(place).ok_or(DropReason::Replay)?;
        if sent.answered {
            self.stats.duplicates += 1;
            return Ok(());
        }
        sent.answered = true;
        self.icmp.answered();
        let left = sent.left.filter(|left| *left <= datagram.at);
        let exchange = Exchange {
            reply,
            left: left.unwrap_or(sent.at),
            arrived: datagram.at,
            kernel: datagram.kernel_stamp && left.is_some(),
            class: datagram.class,
        };
        self.news.push(News::Sample(self.stats.take(&exchange)));
        Ok(())
    }
}

fn set_options(socket: &mut TimestampedSocket, dscp: Option<u8>) -> anyhow::Result<()> {
    socket.receive_icmp().context("cannot ask for ICMP errors")?;
    socket.set_ttl(TTL).context("cannot set the TTL")?;
    socket.receive_traffic_class().context("cannot ask for the DSCP of answers")?;
    socket.never_fragment().context("cannot forbid fragments")?;
    if let Some(dscp) = dscp {
        socket.set_traffic_class(dscp << 2).context("cannot set the DSCP")?;
    }
    Ok(())
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
