//! From the network to the TUN device: one thread for all sockets.

use std::borrow::Cow;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_wire::header::flags::{DATA_ONE_WAY, RIDE_ONE_WAY, RIDE_RESPONSE};
use segue_wire::{DropReason, Header, PacketType, Probe, Size};

use super::class::without_congestion;
use super::coalesce::Coalescer;
use super::egress::poll_in;
use super::path::Path;
use super::segment::VnetHeader;
use super::shared::Shared;
use super::socket::{Batch, Endpoint, Socket};
use super::take::{Arrival, Head, Intake, Take, UNDISTURBED};
use super::{probes, tun, upmt};
use crate::sync::lock;
use crate::{DatapathEvent, Role};

/// Upper bound of the error of the conversion between clocks.
const SKEW: Span = Span::from_millis(1);
/// Most readings of both clocks for one conversion; the fastest is used.
const READINGS: usize = 4;
/// Most bytes of lower-layer headers in front of our datagram when it is looped back with its transmit timestamp.
const LOWER_LAYERS: usize = 128;
/// Longest plausible wait of a datagram in a socket.
const QUEUED: Span = Span::from_secs(10);

/// Carries packets until the datapath ends.
pub(super) fn run(shared: &Shared, tun_fd: RawFd) -> Result<(), &'static str> {
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
                    // The timestamp of a request may have come just before its response.
                    take_stamps(shared, socket);
                }
                batch.carry_congestion();
                handle(shared, tun_fd, &batch, looked);
            }
        }
    }
    Ok(())
}

/// Real-time clock minus monotonic clock, which converts kernel timestamps, and its possible error. A thread that
/// is preempted between the readings would be off by half of the pause, so the readings are repeated.
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

/// Records when requests left.
fn take_stamps(shared: &Shared, socket: &Socket) {
    let (offset, _) = clock_offset_ns();
    socket.drain_errors(|looped, stamp_ns| {
        // The datagram comes back with the headers of lower layers in front.
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

/// `looked` is the time at which this thread began to wait for packets.
fn handle(shared: &Shared, tun_fd: RawFd, batch: &Batch, looked: Time) {
    let (now, (offset, converted)) = (monotonic(), clock_offset_ns());
    let mut core = lock(&shared.core);
    let mut intake = Intake::new(shared, &mut core);
    for datagram in &batch.datagrams {
        let stamp = datagram.received.stamp_ns.map(|ns| Time(ns.wrapping_sub(offset)));
        // The time of day may have been set between the timestamp and its conversion.
        let stamp = stamp.filter(|at| *at <= now + SKEW && now.since(*at) <= QUEUED);
        let from = datagram.from;
        let local = datagram.received.local;
        let link_local = matches!(local, Some(IpAddr::V6(a)) if a.is_unicast_link_local());
        let ifindex = if link_local { datagram.received.ifindex } else { 0 };
        let endpoint = Endpoint { remote: Some(from), local, ifindex };
        let at = stamp.unwrap_or(now);
        let class = datagram.received.class;
        let (kernel_stamp, ifindex) = (stamp.is_some(), datagram.received.ifindex);
        let error = if kernel_stamp { converted } else { now.since(looked) };
        let arrival = Arrival { from, endpoint, at, kernel_stamp, error, class, ifindex };
        let bytes = batch.bytes(datagram);
        let size = datagram.received.gro_size;
        take_datagram(&mut intake, &arrival, bytes, size);
    }
    let mut work = intake.work;
    drop(core);
    for answer in work.answers.drain(..) {
        probes::send_answer(answer, &shared.drops, &shared.waiting);
    }
    for (path, size, class) in work.sizes.drain(..) {
        probes::send_size(&path, size, class);
    }
    deliver(shared, tun_fd, &work.packets);
    work.events.into_iter().for_each(|event| (shared.sink)(event));
}

/// Processes one datagram from the kernel: packets of `size` bytes each, the last one possibly shorter.
pub(super) fn take_datagram<'a>(
    intake: &mut Intake<'_, 'a>,
    arrival: &Arrival,
    bytes: &'a [u8],
    size: Option<usize>,
) {
    if bytes.is_empty() {
        intake.shared.drops.add(DropReason::Truncated, 1);
    }
    for packet in bytes.chunks(size.unwrap_or(bytes.len()).max(1)) {
        if let Err(reason) = take_packet(intake, arrival, packet) {
            intake.shared.drops.add(reason, 1);
        }
    }
}

/// Checks one tunnel packet and processes it.
fn take_packet<'a>(
    intake: &mut Intake<'_, 'a>,
    arrival: &Arrival,
    packet: &'a [u8],
) -> Result<(), DropReason> {
    if upmt::concerns(intake.core, packet) {
        return upmt::take(intake, arrival, packet);
    }
    let known = match (&intake.last.header, packet.first_chunk::<{ Header::LEN }>()) {
        (Some((bytes, path)), Some(head)) if bytes == head => Some(path.clone()),
        _ => None,
    };
    let header = Header::parse(packet)?;
    let path = match known {
        Some(path) => path,
        None => {
            let path = intake.core.path(header.index).ok_or(DropReason::UnknownIndex)?.clone();
            if path.config.rx_cookie != header.cookie {
                return Err(DropReason::Cookie);
            }
            if path.is_upmt() {
                return Err(DropReason::Version);
            }
            intake.last.header = Some((header.emit(), path.clone()));
            path
        }
    };
    match (header.packet_type, intake.shared.role) {
        (PacketType::Data, _) => {
            let body = Cow::Borrowed(&packet[Header::LEN..]);
            let one_way = header.flags & DATA_ONE_WAY != 0;
            let head = Head { age: header.age, one_way };
            intake.data(&path, arrival, body, head)
        }
        (PacketType::Request, Role::Anchor) | (PacketType::Response, Role::Host) => {
            let probe = Probe::open(packet, &path.config.key)?;
            let take = Take { path: &path, arrival, header: &header, probe, alone: true };
            take.probe(intake.shared.role, &mut intake.work)
        }
        (PacketType::Ride, role) => {
            let response = header.flags & RIDE_RESPONSE != 0;
            if !path.config.probing.rides || response != (role == Role::Host) {
                return Err(DropReason::Type);
            }
            let (probe, body) = Probe::open_ride(packet, &path.config.key)?;
            let one_way = header.flags & RIDE_ONE_WAY != 0;
            let body = Cow::Borrowed(body);
            // Counts the packet, once for both parts.
            let head = Head { age: header.age, one_way };
            let data = intake.data(&path, arrival, body, head);
            let take = Take { path: &path, arrival, header: &header, probe, alone: false };
            if let Err(reason) = take.probe(role, &mut intake.work) {
                intake.shared.drops.add(reason, 1);
            }
            data
        }
        (PacketType::Size, role) => {
            let size = Size::open(packet, &path.config.key, role == Role::Anchor)?;
            match role {
                Role::Anchor => {
                    let class = without_congestion(arrival.class);
                    intake.work.sizes.push((path.clone(), size.answered(), class));
                }
                Role::Host => intake.work.events.push(DatapathEvent::Size(path.slot, size.token)),
            }
            Ok(())
        }
        _ => Err(DropReason::Type),
    }
}

/// Writes inner packets to the TUN device, merging the segments of a flow.
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
