//! From the network to the TUN device: one thread for all sockets.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_wire::flow::Inner;
use segue_wire::header::flags::{
    DATA_ONE_WAY, REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION, RESPONSE_UNSOLICITED,
    RIDE_ONE_WAY, RIDE_REPORT, RIDE_RESPONSE,
};
use segue_wire::{DropReason, FlowKey, Header, PacketType, Probe, Size};

use super::class::{capable, class_of, congested};
use super::coalesce::{self, Coalescer};
use super::egress::poll_in;
use super::flows::Bound;
use super::path::{Path, Rx, lock};
use super::probes::{self, Answer, Pending};
use super::segment::VnetHeader;
use super::socket::{Batch, Endpoint, Socket};
use super::{Core, Shared, tun, upmt};
use crate::{Event, ProbeEvent, ProbeKind, Role, STAMP_TO_WIRE};

/// Error of the conversion between clocks, generously.
const SKEW: Span = Span::from_millis(1);
/// Most time that reading both clocks takes without an interruption.
const UNDISTURBED: Span = Span::from_micros(10);
/// Most readings of both clocks for one conversion; the quickest counts.
const READINGS: usize = 4;
/// Most bytes in front of a datagram of ours that comes back with its transmit stamp.
const LOWER_LAYERS: usize = 128;
/// Longest time that a datagram is believed to have waited in a socket.
const QUEUED: Span = Span::from_secs(10);

/// What one batch asks for once the tables are unlocked.
#[derive(Default)]
pub struct Work<'a> {
    pub packets: Vec<Cow<'a, [u8]>>,
    pub answers: Vec<Answer>,
    /// Answers to tests of the packet size.
    pub sizes: Vec<(Arc<Path>, Size)>,
    pub events: Vec<Event>,
}

/// A datagram's circumstances.
#[derive(Clone, Copy)]
pub struct Arrival {
    pub from: SocketAddr,
    pub endpoint: Endpoint,
    pub at: Time,
    pub kernel_stamp: bool,
    /// How far `at` may be off: by the conversion between clocks of a kernel stamp, or by all the time since
    /// this thread last had nothing to do.
    pub error: Span,
    /// The outer header says that there was congestion.
    pub congested: bool,
    /// Interface that it came by, 0 if not known.
    pub ifindex: u32,
}

/// The path and the binding that the previous packet of the batch used; most packets repeat them.
#[derive(Default)]
pub struct Last {
    header: Option<([u8; Header::LEN], Arc<Path>)>,
    learned: Option<(FlowKey, Bound)>,
    /// An inner address already checked on a path.
    admitted: Option<(IpAddr, u32)>,
}

/// Carries packets until the datapath ends.
pub fn run(shared: &Shared, tun_fd: RawFd) -> Result<(), &'static str> {
    let mut batch = Batch::new();
    let mut sockets = shared.sockets();
    while !shared.stopped() {
        let looked = monotonic();
        let mut fds: Vec<libc::pollfd> = sockets.iter().map(|s| poll_in(s.fd())).collect();
        fds.push(poll_in(shared.wake_ingress.fd()));
        // SAFETY: a valid array of pollfds with its length.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        if fds.last().is_some_and(|wake| wake.revents != 0) {
            shared.wake_ingress.clear();
            sockets = shared.sockets();
            continue;
        }
        for (socket, fd) in sockets.iter().zip(&fds) {
            if fd.revents & libc::POLLERR != 0 {
                take_stamps(shared, socket);
                socket.clear_error();
            }
            if fd.revents & libc::POLLIN != 0 && batch.receive(socket).is_ok() {
                if shared.role == Role::Host {
                    // The stamp of a request may have come just before its response.
                    take_stamps(shared, socket);
                }
                batch.carry_congestion();
                handle(shared, tun_fd, &batch, looked);
            }
        }
    }
    Ok(())
}

/// Real-time minus monotonic clock, which converts kernel stamps, and its possible error. A thread that loses its
/// processor between the readings would be wrong by half of the pause, so they are taken again.
fn clock_offset_ns() -> (u64, Span) {
    let mut best = (Span(u64::MAX), 0);
    for _ in 0..READINGS {
        let (before, real, after) = (monotonic(), realtime_ns(), monotonic());
        let took = after.since(before);
        if took < best.0 {
            best = (took, real.wrapping_sub(before.0 + took.0 / 2));
        }
        if took <= UNDISTURBED {
            break;
        }
    }
    (best.1, best.0.half())
}

/// Notes when requests left.
fn take_stamps(shared: &Shared, socket: &Socket) {
    let (offset, _) = clock_offset_ns();
    socket.drain_errors(|looped, stamp_ns| {
        // The datagram comes back with the headers of the lower layers in front.
        let most = looped.len().saturating_sub(upmt::SHORTEST).min(LOWER_LAYERS);
        let paths: Vec<Arc<Path>> = lock(&shared.core).paths.iter().flatten().cloned().collect();
        for packet in (0..=most).map(|at| &looped[at..]) {
            if let Some((number, probe)) = upmt::request_of(packet)
                && let Some(path) = paths.iter().find(|path| path.slot == number && path.is_upmt())
            {
                lock(&path.state.rx).stamped(probe.seq, Time(stamp_ns.wrapping_sub(offset)));
                return;
            }
            let Ok(header) = Header::parse(packet) else { continue };
            for path in &paths {
                let config = &path.config;
                if (config.tx_index, config.tx_cookie) == (header.index, header.cookie)
                    && let Ok((probe, _)) = Probe::open_ride(packet, &config.key)
                {
                    lock(&path.state.rx).stamped(probe.seq, Time(stamp_ns.wrapping_sub(offset)));
                    return;
                }
            }
        }
    });
}

/// `looked`: when this thread began to wait for packets.
fn handle(shared: &Shared, tun_fd: RawFd, batch: &Batch, looked: Time) {
    let (now, (offset, converted)) = (monotonic(), clock_offset_ns());
    let mut work = Work::default();
    let mut last = Last::default();
    let mut core = lock(&shared.core);
    for datagram in &batch.datagrams {
        let stamp = datagram.received.stamp_ns.map(|ns| Time(ns.wrapping_sub(offset)));
        // The time of day may have been set between the stamp and its conversion.
        let stamp = stamp.filter(|at| *at <= now + SKEW && now.since(*at) <= QUEUED);
        let from = datagram.from;
        let local = datagram.received.local;
        let link_local = matches!(local, Some(IpAddr::V6(a)) if a.is_unicast_link_local());
        let ifindex = if link_local { datagram.received.ifindex } else { 0 };
        let endpoint = Endpoint { remote: Some(from), local, ifindex };
        let at = stamp.unwrap_or(now);
        let congested = congested(datagram.received.class);
        let (kernel_stamp, ifindex) = (stamp.is_some(), datagram.received.ifindex);
        let error = if kernel_stamp { converted } else { now.since(looked) };
        let arrival = Arrival { from, endpoint, at, kernel_stamp, error, congested, ifindex };
        let bytes = batch.bytes(datagram);
        let size = datagram.received.gro_size;
        take_datagram(shared, &mut core, &arrival, bytes, size, &mut last, &mut work);
    }
    drop(core);
    for answer in work.answers.drain(..) {
        probes::send_answer(answer, &shared.drops, &shared.waiting);
    }
    for (path, size) in work.sizes.drain(..) {
        probes::send_size(&path, size);
    }
    deliver(shared, tun_fd, &work.packets);
    work.events.into_iter().for_each(|event| (shared.sink)(event));
}

/// Takes in one datagram from the kernel: packets of `size` bytes each, the last maybe shorter.
pub fn take_datagram<'a>(
    shared: &Shared,
    core: &mut Core,
    arrival: &Arrival,
    bytes: &'a [u8],
    size: Option<usize>,
    last: &mut Last,
    work: &mut Work<'a>,
) {
    if bytes.is_empty() {
        shared.drops.add(DropReason::Truncated, 1);
    }
    for packet in bytes.chunks(size.unwrap_or(bytes.len()).max(1)) {
        if let Err(reason) = take_packet(shared, core, arrival, packet, last, work) {
            shared.drops.add(reason, 1);
        }
    }
}

/// Checks one packet of the tunnel and takes it in.
fn take_packet<'a>(
    shared: &Shared,
    core: &mut Core,
    arrival: &Arrival,
    packet: &'a [u8],
    last: &mut Last,
    work: &mut Work<'a>,
) -> Result<(), DropReason> {
    if upmt::concerns(core, packet) {
        return upmt::take(shared, core, arrival, packet, last, work);
    }
    let known = match (&last.header, packet.first_chunk::<{ Header::LEN }>()) {
        (Some((bytes, path)), Some(head)) if bytes == head => Some(path.clone()),
        _ => None,
    };
    let header = Header::parse(packet)?;
    let path = match known {
        Some(path) => path,
        None => {
            let path = core.path(header.index).ok_or(DropReason::UnknownIndex)?.clone();
            if path.config.rx_cookie != header.cookie {
                return Err(DropReason::Cookie);
            }
            if path.is_upmt() {
                return Err(DropReason::Version);
            }
            last.header = Some((header.emit(), path.clone()));
            path
        }
    };
    match (header.packet_type, shared.role) {
        (PacketType::Data, _) => {
            let body = Cow::Borrowed(&packet[Header::LEN..]);
            let one_way = header.flags & DATA_ONE_WAY != 0;
            let head = Head { age: header.age, one_way };
            take_data(shared, core, &path, arrival, body, head, last, work)
        }
        (PacketType::Request, Role::Anchor) | (PacketType::Response, Role::Host) => {
            let probe = Probe::open(packet, &path.config.key)?;
            let take = Take { path: &path, arrival, header: &header, probe, alone: true };
            take.probe(shared.role, work)
        }
        (PacketType::Ride, role) => {
            let response = header.flags & RIDE_RESPONSE != 0;
            if !path.config.probing.rides || response != (role == Role::Host) {
                return Err(DropReason::Type);
            }
            let (probe, body) = Probe::open_ride(packet, &path.config.key)?;
            let one_way = header.flags & RIDE_ONE_WAY != 0;
            let body = Cow::Borrowed(body);
            // It counts the packet, once for both parts.
            let head = Head { age: header.age, one_way };
            let data = take_data(shared, core, &path, arrival, body, head, last, work);
            let take = Take { path: &path, arrival, header: &header, probe, alone: false };
            if let Err(reason) = take.probe(role, work) {
                shared.drops.add(reason, 1);
            }
            data
        }
        (PacketType::Size, role) => {
            let size = Size::open(packet, &path.config.key, role == Role::Anchor)?;
            match role {
                Role::Anchor => work.sizes.push((path.clone(), size.answered())),
                Role::Host => work.events.push(Event::Size(path.slot, size.token)),
            }
            Ok(())
        }
        _ => Err(DropReason::Type),
    }
}

/// What the header of data says of them.
#[derive(Clone, Copy)]
pub struct Head {
    /// How long ago their sender heard this end ([`segue_wire::age`]).
    pub age: u8,
    /// Only this direction of the flow has moved.
    pub one_way: bool,
}

#[expect(clippy::too_many_arguments, reason = "the parts of one packet, used once")]
pub fn take_data<'a>(
    shared: &Shared,
    core: &mut Core,
    path: &Path,
    arrival: &Arrival,
    body: Cow<'a, [u8]>,
    head: Head,
    last: &mut Last,
    work: &mut Work<'a>,
) -> Result<(), DropReason> {
    let inner = Inner::parse(&body);
    {
        // Counted even if refused below: it was not lost.
        let mut rx = lock(&path.state.rx);
        rx.packets = rx.packets.wrapping_add(coalesce::packets_in(&body, shared.tun_mtu));
        rx.bytes += inner.map_or(0, |inner| inner.len) as u64;
    }
    if path.data_came(shared.role, arrival.at, head.age) {
        work.events.push(Event::Look(path.slot));
    }
    let inner = inner?;
    let host = shared.role == Role::Host;
    let address = if host { inner.key.dst } else { inner.key.src };
    if last.admitted != Some((address, path.slot)) {
        match core.inner.get(&address) {
            Some(owner) if host || *owner == path.config.owner => {}
            _ if host => return Err(DropReason::InnerDestination),
            _ => return Err(DropReason::InnerSource),
        }
        last.admitted = Some((address, path.slot));
    }
    let back = (inner.key.reversed(), path.bound());
    if !host && last.learned != Some(back) {
        // A packet that goes on, or answers, has a binding.
        let begins = core.flows.bound(&back.0).is_none();
        if begins && !core.may_begin(&inner.key) {
            return Err(DropReason::NotAllowed);
        }
        if !head.one_way {
            if begins && !core.shares.take(address, arrival.at) {
                return Err(DropReason::TooManyFlows);
            }
            core.flows.bind(back.0, back.1, arrival.at);
            last.learned = Some(back);
        }
    }
    if arrival.congested && !capable(class_of(&body)) {
        return Err(DropReason::Decapsulation);
    }
    work.packets.push(match body {
        Cow::Borrowed(body) => Cow::Borrowed(&body[..inner.len]),
        Cow::Owned(mut body) => {
            body.truncate(inner.len);
            Cow::Owned(body)
        }
    });
    Ok(())
}

/// A probe with a valid form.
pub struct Take<'a> {
    pub path: &'a Arc<Path>,
    pub arrival: &'a Arrival,
    /// Of a path with UPMT's packets: one that says the same.
    pub header: &'a Header,
    pub probe: Probe,
    /// It came by itself: the packet has not been counted yet.
    pub alone: bool,
}

impl Take<'_> {
    pub fn probe(&self, role: Role, work: &mut Work<'_>) -> Result<(), DropReason> {
        match role {
            Role::Anchor => self.request(work),
            Role::Host => self.response(work),
        }
    }

    fn request(&self, work: &mut Work<'_>) -> Result<(), DropReason> {
        let Take { path, arrival, probe, .. } = *self;
        let mut rx = lock(&path.state.rx);
        rx.expect_newer(probe.seq)?;
        self.count(&mut rx);
        path.state.data.heard(arrival.at);
        let challenge = path.learn_endpoint(&rx, arrival.endpoint, arrival.at, probe.t_ss);
        rx.requested(arrival.at);
        let probe = Probe { r: rx.packets, ..probe };
        let elsewhere = challenge.map(|challenge| (arrival.endpoint, challenge));
        let response = Pending {
            k: self.header.k,
            probe,
            received_at: arrival.at,
            rode: !self.alone,
            question: self.is_question(),
            elsewhere,
        };
        work.answers.push(Answer { path: path.clone(), response });
        let mut event = self.event(ProbeKind::Request, &rx);
        event.arrival.uncertainty = event.arrival.uncertainty + rx.call(probe.t_ss);
        work.events.push(Event::Probe(event));
        Ok(())
    }

    fn response(&self, work: &mut Work<'_>) -> Result<(), DropReason> {
        let Take { path, arrival, probe, .. } = *self;
        let unsolicited = self.alone && self.header.flags & RESPONSE_UNSOLICITED != 0;
        let kind = if unsolicited { ProbeKind::Unsolicited } else { ProbeKind::Response };
        let mut rx = lock(&path.state.rx);
        if unsolicited {
            rx.expect_newer(probe.seq)?;
        } else if path.config.probing.rides && path.state.never_sent(probe.seq) {
            return Err(DropReason::Replay);
        } else {
            rx.expect_new(probe.seq)?;
        }
        self.count(&mut rx);
        let mut event = self.event(kind, &rx);
        if !unsolicited {
            rx.answered(&probe, arrival.at);
            let taken = &mut event.arrival;
            taken.sent_at = rx.sent_at(probe.seq);
            let own = taken.sent_at.map_or_else(|| rx.call(probe.seq), |_| UNDISTURBED);
            taken.uncertainty = taken.uncertainty + own;
        }
        work.events.push(Event::Probe(event));
        Ok(())
    }

    fn count(&self, rx: &mut Rx) {
        rx.packets = rx.packets.wrapping_add(u32::from(self.alone && !self.is_question()));
    }

    /// It is a question, or the answer to one; neither counts.
    fn is_question(&self) -> bool {
        match self.header.packet_type {
            PacketType::Request => self.header.flags & REQUEST_QUESTION != 0,
            PacketType::Response => self.header.flags & RESPONSE_QUESTION != 0,
            PacketType::Data | PacketType::Ride | PacketType::Size => false,
        }
    }

    fn event(&self, kind: ProbeKind, rx: &Rx) -> ProbeEvent {
        let report = if self.alone { REQUEST_REPORT } else { RIDE_REPORT };
        ProbeEvent {
            slot: self.path.slot,
            kind,
            k: self.header.k,
            report: kind == ProbeKind::Request && self.header.flags & report != 0,
            age: if kind == ProbeKind::Request && self.alone { self.header.age } else { 0 },
            arrival: segue_keepalive::Arrival {
                probe: self.probe,
                at: self.arrival.at,
                received: rx.packets,
                sent_at: None,
                uncertainty: self.arrival.error + STAMP_TO_WIRE,
            },
            remote: self.arrival.from,
            kernel_stamp: self.arrival.kernel_stamp,
        }
    }
}

/// Writes inner packets to the TUN device, segments of a flow together.
fn deliver(shared: &Shared, tun_fd: RawFd, packets: &[Cow<'_, [u8]>]) {
    if packets.is_empty() {
        return;
    }
    let mut iov: Vec<libc::iovec> = Vec::with_capacity(super::coalesce::MAX_SEGMENTS + 2);
    let vector =
        |b: &[u8]| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() };
    let mtu = shared.tun_mtu;
    let mut coalescer =
        Coalescer::new(mtu, |vnet: &VnetHeader, headers: &[u8], payloads: &[&[u8]]| {
            let vnet = vnet.emit();
            iov.clear();
            iov.push(vector(&vnet));
            iov.push(vector(headers));
            iov.extend(payloads.iter().map(|payload| vector(payload)));
            if let Err(error) = tun::write(tun_fd, &iov) {
                tracing::trace!(%error, "not written to the TUN device");
                shared.drops.add(DropReason::Decapsulation, payloads.len() as u64);
            }
        });
    packets.iter().for_each(|packet| coalescer.push(packet));
    coalescer.flush();
}
