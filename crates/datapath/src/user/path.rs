//! One path: its parameters, its counters, and sending on it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use segue_clock::{Span, Time};
use segue_keepalive::seq::{Order, SeqWindow};
use segue_keepalive::{Copies, Reading, Traffic};
use segue_linux::clock::monotonic;
use segue_wire::upmt::{ProbePacket, RIDE_VERSION, Trailer};
use segue_wire::{DropReason, Encapsulation, Header, MAX_PATHS, PacketType, Probe};

use super::flows::Bound;
use super::rides::Rides;
use super::socket::{Endpoint, Socket};
use super::traffic::Data;
use crate::drops::{Drops, reason};
use crate::sync::lock;
use crate::{PathCounters, PathSetup, ProbeKind, Role};

/// Transmit timestamps kept for outstanding responses.
const STAMPS: usize = 256;

/// Bits of a challenge that an attacker cannot know.
const CHALLENGE_BITS: u32 = 30;
/// Number of first requests of a path that are compared with a challenge at any rate.
const CHALLENGE_FREE: u32 = 4;
/// Minimum interval between later comparisons.
const CHALLENGE_GAP: Span = Span::from_millis(4);

/// A path as configured, with the state that outlives a change of configuration. Locks are acquired in the order
/// `tx`, `rx`, `endpoint`; none is held while waiting for another thread's table.
pub(super) struct Path {
    pub slot: u32,
    pub config: PathSetup,
    /// At a host the path's own socket; at an anchor one for each family.
    pub sockets: Vec<Arc<Socket>>,
    pub state: Arc<State>,
}

/// State that changes with every packet.
#[derive(Default)]
pub(super) struct State {
    pub tx: Mutex<Tx>,
    pub rx: Mutex<Rx>,
    pub endpoint: Mutex<Endpoint>,
    pub data: Data,
    /// Copies of the last packets sent, with virtio headers.
    pub copies: Mutex<Copies<Vec<u8>>>,
    /// Generates challenges; its key is random.
    pub secret: RandomState,
    /// Inner addresses of the probes of a path with UPMT packets, once they are known.
    pub ends: Mutex<Option<Ends>>,
    /// Number of the last request. It is written before the request leaves, while `tx` is held: the answer can arrive
    /// before the send call returns.
    pub requests: AtomicU32,
    /// No device segments what leaves here.
    pub one_by_one: AtomicBool,
}

/// Locked while packets are sent, so that a probe counts exactly what left before it.
#[derive(Default)]
pub(super) struct Tx {
    pub packets: u32,
    pub bytes: u64,
    /// The `heard` word of responses and of requests that ride, once the daemon has set one.
    pub heard: Option<u16>,
    pub rides: Rides,
}

/// The receiving side.
#[derive(Default)]
pub(super) struct Rx {
    pub packets: u32,
    pub bytes: u64,
    /// Sequence number of the last valid request (anchor) or unsolicited response (host).
    pub last_seq: Option<u32>,
    /// Number of requests that counted (anchor).
    pub requests: u32,
    /// When the last of these requests arrived.
    pub last_request: Option<Time>,
    /// Numbers of responses to requests, so that each counts once (host).
    pub responses: SeqWindow,
    /// When requests actually left, by sequence number.
    pub stamps: VecDeque<(u32, Time)>,
    /// Duration of the send calls for packets without a transmit timestamp: requests by number (host), responses by
    /// t_Ss (anchor).
    pub calls: VecDeque<(u32, Span)>,
    /// Fields of the last response that the next request echoes.
    pub echo: Option<Echo>,
}

/// Inner addresses of a path's probes.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub host: IpAddr,
    pub anchor: IpAddr,
}

/// Fields of a response that a request echoes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    seq: u32,
    pub t_ss: u32,
    pub ss: u32,
    pub r: u32,
    /// Arrival time in microseconds modulo 2³².
    pub held_since: Option<u32>,
}

impl State {
    /// Sets the number of a request that is about to leave, or restores the previous number if it could not leave.
    pub(super) fn number(&self, seq: u32) {
        self.requests.store(seq, Ordering::Release);
    }

    /// True if no request has had this number yet.
    pub(super) fn never_sent(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.requests.load(Ordering::Acquire)) as i32 > 0
    }
}

impl Rx {
    /// Records a sequence number, which must be newer than the last one: ahead of it by less than half of the number
    /// space (RFC 1982, section 3.2).
    pub(super) fn expect_newer(&mut self, seq: u32) -> Result<(), DropReason> {
        if self.last_seq.is_some_and(|last| seq.wrapping_sub(last) as i32 <= 0) {
            return Err(DropReason::Replay);
        }
        self.last_seq = Some(seq);
        Ok(())
    }

    /// Records a response that arrived at `at`, unless a newer one has arrived.
    pub(super) fn answered(&mut self, probe: &Probe, at: Time) {
        if self.echo.is_some_and(|echo| probe.seq.wrapping_sub(echo.seq) as i32 <= 0) {
            return;
        }
        let held_since = Some(at.micros32());
        let (seq, t_ss, ss) = (probe.seq, probe.t_ss, probe.ss);
        self.echo = Some(Echo { seq, t_ss, ss, r: self.packets, held_since });
    }

    /// Records the number of a response to a request; refuses a duplicate.
    pub(super) fn expect_new(&mut self, seq: u32) -> Result<(), DropReason> {
        match self.responses.observe_once(seq) {
            Order::Duplicate | Order::Stale => Err(DropReason::Replay),
            Order::Newest | Order::Late | Order::Restart => Ok(()),
        }
    }

    /// Records when a request left.
    pub(super) fn stamped(&mut self, seq: u32, at: Time) {
        if self.stamps.len() >= STAMPS {
            self.stamps.pop_front();
        }
        self.stamps.push_back((seq, at));
    }

    /// Records how long the call that sent a probe took.
    pub(super) fn called(&mut self, probe: u32, took: Span) {
        if self.calls.len() >= STAMPS {
            self.calls.pop_front();
        }
        self.calls.push_back((probe, took));
    }

    /// How long the call that sent a probe took; zero if unknown.
    pub(super) fn call(&self, probe: u32) -> Span {
        self.calls.iter().rev().find(|(p, _)| *p == probe).map_or(Span::ZERO, |(_, took)| *took)
    }

    /// When the request `seq` left, if the kernel has reported it.
    pub(super) fn sent_at(&self, seq: u32) -> Option<Time> {
        self.stamps.iter().rev().find(|(s, _)| *s == seq).map(|(_, at)| *at)
    }
}

/// Datagrams of one size (the last may be shorter) that leave together.
pub(super) struct Burst<'a> {
    /// Header and body of each datagram.
    pub pieces: &'a [(&'a [u8], &'a [u8])],
    /// Bytes of each datagram except the last.
    pub size: usize,
    /// Traffic class of all datagrams.
    pub class: u8,
}

impl Rx {
    /// Counts a request.
    pub(super) fn requested(&mut self, at: Time) {
        self.requests = self.requests.saturating_add(1);
        self.last_request = Some(at);
    }

    /// True if a request's echo may be compared with a challenge: rarely enough to prevent guessing.
    fn may_compare(&self, at: Time) -> bool {
        let soon = |last: Time| at.since(last) < CHALLENGE_GAP;
        self.requests < CHALLENGE_FREE || !self.last_request.is_some_and(soon)
    }
}

impl Path {
    /// The binding of flows that take this path.
    pub(super) fn bound(&self) -> Bound {
        Bound { slot: self.slot, cookie: self.config.rx_cookie }
    }

    /// Accepts the source of a request as the path's endpoint, before the request is counted, if it already is the
    /// endpoint or if it echoes its challenge. Otherwise returns the challenge that it must echo first.
    pub(super) fn learn_endpoint(
        &self,
        rx: &Rx,
        from: Endpoint,
        at: Time,
        t_ss: u32,
    ) -> Option<u32> {
        let mut endpoint = lock(&self.state.endpoint);
        if endpoint.remote != from.remote {
            let challenge = self.challenge(&from, at);
            if t_ss != challenge || !rx.may_compare(at) {
                return Some(challenge);
            }
        }
        *endpoint = from;
        None
    }

    /// The value that replaces t_Ss in answers to a source that has not yet proved that it receives them. It lies
    /// ahead of the clock, so that neither end mistakes it for a stamp, and changes after 18 minutes.
    fn challenge(&self, source: &Endpoint, at: Time) -> u32 {
        let epoch = (at.0 / 1_000) >> CHALLENGE_BITS;
        let unknown = self.state.secret.hash_one((source.remote, epoch)) as u32;
        let base = (epoch as u32).wrapping_add(1) << CHALLENGE_BITS;
        // Zero would mean that there is no echo.
        base.wrapping_add(unknown & ((1 << CHALLENGE_BITS) - 1)).max(1)
    }

    /// The header of data on this path.
    pub(super) fn data_header(&self, flags: u8) -> Header {
        Header {
            packet_type: PacketType::Data,
            flags,
            k: 0,
            age: self.state.data.age(monotonic()),
            index: self.config.tx_index,
            cookie: self.config.tx_cookie,
        }
    }

    /// True if the path uses UPMT's own packets.
    pub(super) fn is_upmt(&self) -> bool {
        self.config.probing.encapsulation == Encapsulation::Upmt
    }

    /// Bytes before the inner packet of data.
    pub(super) fn header_len(&self) -> usize {
        if self.is_upmt() { 0 } else { Header::LEN }
    }

    /// The host's number for the path, which is its slot and tunnel index there.
    fn number(&self, role: Role) -> u32 {
        if role == Role::Host { self.slot } else { self.config.tx_index }
    }

    /// A probe on its own; `None` while the host's inner address is unknown.
    pub(super) fn upmt_probe(
        &self,
        kind: ProbeKind,
        flagged: bool,
        probe: Probe,
    ) -> Option<Vec<u8>> {
        let role = if kind == ProbeKind::Request { Role::Host } else { Role::Anchor };
        let Ends { host, anchor } = (*lock(&self.state.ends))?;
        let path = u8::try_from(self.number(role)).ok().filter(|n| usize::from(*n) < MAX_PATHS)?;
        let (response, flagged) = (role == Role::Anchor, flagged || kind == ProbeKind::Unsolicited);
        Some(ProbePacket { host, anchor, path, response, flagged, probe }.emit())
    }

    /// The bytes around an inner packet (in two parts) on which a probe rides: one byte that replaces the packet's
    /// first byte, and the trailer.
    pub(super) fn upmt_ride(
        &self,
        role: Role,
        first: u8,
        probe: Probe,
    ) -> Option<(u8, [u8; Trailer::LEN])> {
        let path = u8::try_from(self.number(role)).ok().filter(|n| usize::from(*n) < MAX_PATHS)?;
        let (version, response) = (first >> 4, role == Role::Anchor);
        let trailer = Trailer { version, response, report: false, path, probe };
        Some((RIDE_VERSION << 4 | first & 15, trailer.emit()))
    }

    /// Handles departing data. Returns whether the driver must check this path.
    pub(super) fn data_left(&self, role: Role, now: Time) -> bool {
        role == Role::Host && self.state.data.left(now) && self.config.probing.follows_use
    }

    /// Handles arriving data. Returns whether the driver must check this path.
    pub(super) fn data_came(&self, role: Role, at: Time, stated: u8) -> bool {
        self.state.data.heard(at);
        role == Role::Host && self.state.data.came(at, stated) && self.config.probing.follows_use
    }

    /// The part of a reading that concerns data.
    fn traffic(&self) -> Traffic {
        let bytes = lock(&self.state.tx).bytes + lock(&self.state.rx).bytes;
        self.state.data.traffic(bytes)
    }

    /// A reading without measurements: the packets sent on a path with rides, and the data of a path whose detection
    /// follows use.
    pub(super) fn reading(&self) -> Option<Reading> {
        let probing = &self.config.probing;
        let reading = || lock(&self.state.tx).rides.reading(monotonic());
        (probing.rides || probing.follows_use)
            .then(|| Reading { traffic: self.traffic(), ..reading() })
    }

    /// The destination, and the socket to send with.
    pub(super) fn route(&self) -> Option<(&Socket, Endpoint)> {
        self.route_to(*lock(&self.state.endpoint))
    }

    /// The socket for sending to an address.
    pub(super) fn route_to(&self, endpoint: Endpoint) -> Option<(&Socket, Endpoint)> {
        let remote: SocketAddr = endpoint.remote?;
        let socket = self.sockets.iter().find(|socket| socket.same_family(remote))?;
        Some((socket, endpoint))
    }

    /// Sends data and counts what left; `drops` counts the rest.
    pub(super) fn send_data(&self, burst: &Burst<'_>, drops: &Drops) {
        let count = burst.pieces.len() as u64;
        let Some((socket, endpoint)) = self.route() else {
            drops.add(DropReason::NoRemote, count);
            return;
        };
        let mut tx = lock(&self.state.tx);
        let mut left = burst.pieces;
        if left.len() > 1 && socket.gso() && !self.state.one_by_one.load(Ordering::Relaxed) {
            let mut iov = vectors(left);
            match socket.send(
                &endpoint,
                &mut iov,
                u16::try_from(burst.size).ok(),
                burst.class,
                false,
            ) {
                Ok(()) => {
                    tx.count(left, self.header_len());
                    left = &[];
                }
                Err(error) if gso_refused(&error) => {
                    // Check whether only the size was refused, or whether there is no segmentation here at all.
                    if send_one(self, socket, &endpoint, left[0], burst.class, &mut tx, drops) {
                        socket.refuse_gso();
                        left = &left[1..];
                    } else {
                        drops.add(DropReason::Encapsulation, count - 1);
                        left = &[];
                    }
                }
                Err(error) => {
                    drops.add(reason(&error), count);
                    left = &[];
                }
            }
        }
        for piece in left {
            send_one(self, socket, &endpoint, *piece, burst.class, &mut tx, drops);
        }
    }

    /// Counters in the format of the trait.
    pub(super) fn counters(&self) -> PathCounters {
        let remote = lock(&self.state.endpoint).remote;
        let (tx_packets, tx_bytes) = {
            let tx = lock(&self.state.tx);
            (tx.packets, tx.bytes)
        };
        let rx = lock(&self.state.rx);
        PathCounters { tx_packets, rx_packets: rx.packets, tx_bytes, rx_bytes: rx.bytes, remote }
    }
}

impl Tx {
    fn count(&mut self, pieces: &[(&[u8], &[u8])], header: usize) {
        self.packets = self.packets.wrapping_add(pieces.len() as u32);
        let bytes: usize = pieces.iter().map(|(h, b)| h.len() + b.len() - header).sum();
        self.bytes += bytes as u64;
    }
}

fn send_one(
    path: &Path,
    socket: &Socket,
    endpoint: &Endpoint,
    piece: (&[u8], &[u8]),
    class: u8,
    tx: &mut Tx,
    drops: &Drops,
) -> bool {
    match socket.send(endpoint, &mut vectors(&[piece]), None, class, false) {
        Ok(()) => tx.count(&[piece], path.header_len()),
        Err(error) => {
            tracing::trace!(%error, "not sent");
            drops.add(reason(&error), 1);
            return false;
        }
    }
    true
}

fn vectors(pieces: &[(&[u8], &[u8])]) -> Vec<libc::iovec> {
    let vector =
        |b: &[u8]| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() };
    pieces.iter().flat_map(|(header, body)| [vector(header), vector(body)]).collect()
}

/// Errors with which kernels refuse to segment: a device without checksum offload (EIO), segments that exceed the MTU
/// or an unknown control message (EINVAL).
fn gso_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    fn path(socket: Socket, remote: SocketAddr) -> Path {
        let config = PathSetup {
            tx_index: 1,
            tx_cookie: 2,
            rx_cookie: 3,
            key: segue_wire::ProbeKey([0; 16]),
            local: None,
            remote: Some(remote),
            ifindex: 0,
            gateway: None,
            owner: 0,
            probing: segue_keepalive::Probing::default(),
        };
        let state = State::default();
        *lock(&state.endpoint) = Endpoint { remote: Some(remote), ..Endpoint::default() };
        Path { slot: 0, config, sockets: vec![Arc::new(socket)], state: Arc::new(state) }
    }

    fn sockets() -> (Socket, UdpSocket) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let receiver = UdpSocket::bind(any).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (Socket::open(any, 0, 0).unwrap(), receiver)
    }

    fn total(drops: &Drops) -> u64 {
        drops.counts().values().sum()
    }

    #[test]
    fn where_the_kernel_refuses_to_segment_each_datagram_is_sent_by_itself() {
        let (socket, receiver) = sockets();
        // The kernel does not segment without checksums.
        let one = 1i32;
        // SAFETY: the value is an int, its size is given.
        let set = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_NO_CHECK);
            libc::setsockopt(socket.fd(), level, name, (&raw const one).cast(), 4)
        };
        assert_eq!(set, 0);
        let path = path(socket, receiver.local_addr().unwrap());
        let drops = Drops::default();
        let bytes = [[1u8; 116], [2; 116], [3; 116]];
        let pieces = [
            (&bytes[0][..16], &bytes[0][16..]),
            (&bytes[1][..16], &bytes[1][16..]),
            (&bytes[2][..16], &bytes[2][16..50]),
        ];
        path.send_data(&Burst { pieces: &pieces, size: 116, class: 0 }, &drops);
        let mut buffer = [0; 2000];
        for (header, body) in pieces {
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..len], [header, body].concat());
        }
        assert!(!path.sockets[0].gso());
        let counters = path.counters();
        assert_eq!((counters.tx_packets, counters.tx_bytes), (3, 234));
        assert_eq!(total(&drops), 0);
    }

    #[test]
    fn a_path_whose_other_end_gets_all_in_one_piece_sends_each_datagram_by_itself() {
        let (socket, receiver) = sockets();
        // This receiver accepts an unsegmented super-packet and would return it as one datagram.
        let one = 1i32;
        // SAFETY: the value is an int, its size is given.
        let set = unsafe {
            let (level, name) = (libc::SOL_UDP, libc::UDP_GRO);
            libc::setsockopt(receiver.as_raw_fd(), level, name, (&raw const one).cast(), 4)
        };
        assert_eq!(set, 0);
        let path = path(socket, receiver.local_addr().unwrap());
        let (drops, bytes, mut buffer) = (Drops::default(), [1u8; 116], [0; 2000]);
        let pieces = [(&bytes[..16], &bytes[16..]); 3];
        let burst = Burst { pieces: &pieces, size: 116, class: 0 };
        path.send_data(&burst, &drops);
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3 * 116);
        path.state.one_by_one.store(true, Ordering::Relaxed);
        path.send_data(&burst, &drops);
        (0..3).for_each(|_| assert_eq!(receiver.recv(&mut buffer).unwrap(), 116));
        assert_eq!((path.counters().tx_packets, total(&drops)), (6, 0));
    }

    #[test]
    fn what_is_longer_than_the_path_allows_is_counted_and_does_not_end_segmentation() {
        let (socket, receiver) = sockets();
        let path = path(socket, receiver.local_addr().unwrap());
        let drops = Drops::default();
        let long = vec![0u8; 65_536];
        let pieces = [(&long[..16], &long[16..]), (&long[..16], &long[16..])];
        path.send_data(&Burst { pieces: &pieces, size: 65_536, class: 0 }, &drops);
        assert_eq!((path.counters().tx_packets, total(&drops)), (0, 2));
        assert!(path.sockets[0].gso());
    }

    #[test]
    fn a_path_without_a_remote_end_counts_what_it_refuses() {
        let (socket, receiver) = sockets();
        let path = path(socket, receiver.local_addr().unwrap());
        *lock(&path.state.endpoint) = Endpoint::default();
        let drops = Drops::default();
        path.send_data(&Burst { pieces: &[(&[0; 16], &[0; 20])], size: 36, class: 0 }, &drops);
        assert_eq!((path.counters().tx_packets, total(&drops)), (0, 1));
    }

    #[test]
    fn transmit_stamps_are_found_by_sequence_and_bounded() {
        let mut rx = Rx::default();
        for n in 0..STAMPS as u32 + 1 {
            rx.stamped(n, Time(u64::from(n)));
        }
        assert_eq!((rx.sent_at(0), rx.sent_at(1)), (None, Some(Time(1))));
        assert_eq!(rx.stamps.len(), STAMPS);
    }
}
