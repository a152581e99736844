//! From the TUN device to the network: one thread.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_wire::flow::Inner;
use segue_wire::header::flags::DATA_ONE_WAY;
use segue_wire::{DropReason, FlowKey, Header};

use super::class::class_of;
use super::path::{Burst, Path};
use super::segment::{Cut, VnetHeader};
use super::shared::{Core, Shared};
use super::tun;
use crate::misses::Missed;
use crate::sync::lock;
use crate::{DatapathEvent, MissPacket, Reinjection, Role, copies};

/// Bytes read before they are sent: enough for many small packets, and few enough for the cache.
const BATCH_BYTES: usize = 65_536;
/// Packets read before they are sent.
const BATCH_PACKETS: usize = 64;
/// Most datagrams that the kernel cuts from one buffer (`UDP_MAX_SEGMENTS`).
const BURST_SEGMENTS: usize = 64;
/// Longest payload of a UDP datagram over IPv4; IPv6 permits slightly more.
const BURST_BYTES: usize = 65_507;

/// A packet and its path.
struct Job {
    path: Arc<Path>,
    flags: u8,
    /// Traffic class, which is copied to the outer header.
    class: u8,
    /// Range of the virtio header and the packet.
    at: Range<usize>,
    cut: Cut,
}

/// Carries packets until the datapath ends or the device is gone.
pub(super) fn run(shared: &Shared, tun_fd: RawFd) -> Result<(), &'static str> {
    let mut arena = vec![0u8; BATCH_BYTES + tun::MAX_READ + 8];
    let mut spans = Vec::with_capacity(BATCH_PACKETS);
    let mut sender = Sender::default();
    while !shared.stopped() {
        spans.clear();
        let drained = read_batch(tun_fd, &mut arena, &mut spans);
        if !spans.is_empty() {
            let (jobs, events) = classify(shared, &arena, &spans, monotonic());
            sender.send(shared, &mut arena, &jobs);
            events.into_iter().for_each(|event| (shared.sink)(event));
        }
        if drained {
            let mut fds = [poll_in(tun_fd), poll_in(shared.wake_egress.fd())];
            // SAFETY: two valid pollfds.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
            if fds[0].revents & libc::POLLERR != 0 {
                return Err("the tunnel device is gone");
            }
        }
    }
    Ok(())
}

/// A descriptor to poll for input.
pub(super) fn poll_in(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Reads until a limit is reached; true if the device had no more packets.
fn read_batch(tun_fd: RawFd, arena: &mut [u8], spans: &mut Vec<Range<usize>>) -> bool {
    let mut used = 0;
    while used < BATCH_BYTES && spans.len() < BATCH_PACKETS {
        match tun::read(tun_fd, &mut arena[used..used + tun::MAX_READ]) {
            Ok(n) => {
                spans.push(used..used + n);
                used = (used + n).next_multiple_of(8);
            }
            Err(_) => return true,
        }
    }
    false
}

/// Finds the path of each packet; a packet without a path is held or becomes an event.
fn classify(
    shared: &Shared,
    arena: &[u8],
    spans: &[Range<usize>],
    now: Time,
) -> (Vec<Job>, Vec<DatapathEvent>) {
    let mut jobs = Vec::with_capacity(spans.len());
    let mut events = Vec::new();
    let mut core = lock(&shared.core);
    for span in spans {
        let (inner, cut) = match read_packet(&arena[span.clone()]) {
            Ok(packet) => packet,
            Err(reason) => {
                shared.drops.add(reason, 1);
                continue;
            }
        };
        if let Some((path, flags)) = core.lookup(&inner.key) {
            let (slot, count) = (path.slot, u64::from(cut.count));
            core.flows.sent(&inner.key, slot, count, cut.bytes as u64, now);
            let at = span.start..span.start + VnetHeader::LEN + inner.len;
            let class = class_of(&arena[span.start + VnetHeader::LEN..]);
            jobs.push(Job { path, flags, class, at, cut });
            continue;
        }
        if is_local(inner.key.src) || is_local(inner.key.dst) {
            continue;
        }
        let owner = match shared.role {
            Role::Host => Some(0),
            Role::Anchor => core.inner.get(&inner.key.dst).copied(),
        };
        let Some(owner) = owner else {
            shared.drops.add(DropReason::NoHost, u64::from(cut.count));
            continue;
        };
        match core.misses.take(owner, inner.key, inner.dscp, &arena[span.clone()], now) {
            Missed::Report(packet) => events.push(DatapathEvent::Miss(packet)),
            Missed::Held => {}
            Missed::Full => shared.drops.add(DropReason::QueueFull, u64::from(cut.count)),
        }
    }
    (jobs, events)
}

/// True if packets to an address stay on the device: multicast groups and link-local addresses.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_link_local() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local() || a.is_unspecified(),
    }
}

/// Parses a packet with its virtio header.
fn read_packet(bytes: &[u8]) -> Result<(Inner, Cut), DropReason> {
    let (vnet, packet) = VnetHeader::split(bytes).ok_or(DropReason::InnerPacket)?;
    let inner = Inner::parse(packet)?;
    Ok((inner, Cut::new(&vnet, &packet[..inner.len])?))
}

impl Core {
    /// The path for packets of a flow, after following one detour, and the flags of their header;
    /// `None` if there is no such path or it is gone.
    fn lookup(&self, key: &FlowKey) -> Option<(Arc<Path>, u8)> {
        let flow = self.flows.bound(key)?;
        // A later path in the slot is not the bound one, and no packet takes another host's path.
        let bound = self.path(flow.slot).filter(|path| path.bound() == flow)?;
        let Some(via) = self.vias.get(flow.slot as usize).copied().flatten() else {
            return Some((bound.clone(), 0));
        };
        let path = self.path(via.slot).filter(|via| via.config.owner == bound.config.owner)?;
        Some((path.clone(), if via.one_way { DATA_ONE_WAY } else { 0 }))
    }
}

/// Sends a packet that was reported as a miss, and the packets that were held behind it.
pub(super) fn inject(shared: &Shared, first: MissPacket) {
    let mut outgoing = Outgoing::default();
    let mut core = lock(&shared.core);
    let held = core.misses.settle(&first.key);
    let target = core.lookup(&first.key);
    let now = monotonic();
    for bytes in std::iter::once(first.bytes).chain(held) {
        let Ok(packet) = read_packet(&bytes) else { continue };
        match target.clone() {
            Some(way) => outgoing.push(&mut core, &bytes, packet, way, now),
            None => shared.drops.add(DropReason::NoRemote, u64::from(packet.1.count)),
        }
    }
    drop(core);
    outgoing.send(shared);
}

/// Sends copies of a path's data over another path.
pub(super) fn reinject(shared: &Shared, order: Reinjection) -> usize {
    let mut core = lock(&shared.core);
    let paths = core.path(order.slot).zip(core.path(order.over));
    let own = paths.filter(|(path, over)| path.config.owner == over.config.owner);
    let Some((path, over)) = own.map(|(path, over)| (path.clone(), over.clone())) else { return 0 };
    let key = |bytes: &[u8]| Some(read_packet(bytes).ok()?.0.key);
    let last_seen = |bytes: &Vec<u8>| core.flows.last_seen(&key(bytes)?);
    let copies = lock(&path.state.copies).take_since(order.since, last_seen);
    let (mut outgoing, now) = (Outgoing::default(), monotonic());
    for bytes in copies {
        let Ok(packet) = read_packet(&bytes) else { continue };
        outgoing.push(&mut core, &bytes, packet, (over.clone(), DATA_ONE_WAY), now);
    }
    drop(core);
    outgoing.send(shared)
}

/// Departing packets that do not come from the device.
#[derive(Default)]
struct Outgoing {
    arena: Vec<u8>,
    jobs: Vec<Job>,
}

impl Outgoing {
    /// Adds a packet with its virtio header, and the path and flags with which it leaves.
    fn push(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        (inner, cut): (Inner, Cut),
        (path, flags): (Arc<Path>, u8),
        now: Time,
    ) {
        let (slot, count) = (path.slot, u64::from(cut.count));
        core.flows.sent(&inner.key, slot, count, cut.bytes as u64, now);
        let at = self.arena.len()..self.arena.len() + VnetHeader::LEN + inner.len;
        let class = class_of(&bytes[VnetHeader::LEN..]);
        self.jobs.push(Job { path, flags, class, at, cut });
        self.arena.extend(bytes);
    }

    /// Sends all packets; returns how many.
    fn send(mut self, shared: &Shared) -> usize {
        Sender::default().send(shared, &mut self.arena, &self.jobs);
        self.jobs.len()
    }
}

/// Keeps copies of the packets of one path, in case they do not arrive.
fn keep(arena: &[u8], group: &[Job]) {
    let Some(path) = group.first().map(|job| &job.path) else { return };
    if !path.config.probing.follows_use {
        return;
    }
    let (mut copies, now) = (lock(&path.state.copies), monotonic());
    for job in group {
        let bytes = &arena[job.at.clone()];
        let Some((vnet, packet)) = VnetHeader::split(bytes) else { continue };
        // Of a super-packet only the first segment: it reveals as much as all of them.
        let gso_size = if job.cut.count > 1 { vnet.gso_size } else { 0 };
        copies.keep(now, || copies::again(packet, gso_size).unwrap_or_default());
    }
}

/// Groups packets of one path and size, so that they leave in one call.
#[derive(Default)]
struct Sender {
    /// Tunnel and inner headers of the packets in `pieces`.
    headers: Vec<u8>,
    /// Header (in `headers`) and body (in the arena) of each packet, in order.
    pieces: Vec<(Range<usize>, Range<usize>)>,
}

impl Sender {
    fn send(&mut self, shared: &Shared, arena: &mut [u8], jobs: &[Job]) {
        let mut rest = jobs;
        while let Some(first) = rest.first() {
            let same = |job: &&Job| {
                Arc::ptr_eq(&job.path, &first.path)
                    && (job.flags, job.class) == (first.flags, first.class)
            };
            let n = rest.iter().take_while(same).count();
            let (group, after) = rest.split_at(n);
            self.send_group(shared, arena, group);
            rest = after;
        }
    }

    /// Sends the packets of one path in order; one of them may carry a probe.
    fn send_group(&mut self, shared: &Shared, arena: &mut [u8], group: &[Job]) {
        let Some(first) = group.first() else { return };
        if first.path.data_left(shared.role, monotonic()) {
            (shared.sink)(DatapathEvent::Look(first.path.slot));
        }
        keep(arena, group);
        let rides = first.path.config.probing.rides;
        let alone = |job: &Job| (job.cut.count == 1).then_some(job.cut.bytes);
        let lengths = group.iter().map(alone);
        let Some(at) = rides.then(|| first.path.carrier(shared.role, lengths)).flatten() else {
            self.cut(arena, group);
            self.send_pieces(shared, arena, first);
            return;
        };
        self.cut(arena, &group[..at]);
        self.send_pieces(shared, arena, first);
        self.cut(arena, &group[at..=at]);
        let (header, body) = &self.pieces[0];
        let inner = (
            &self.headers[header.start + first.path.header_len()..header.end],
            &arena[body.clone()],
        );
        let one_way = first.flags & DATA_ONE_WAY != 0;
        if !first.path.send_ride(shared.role, inner, one_way, first.class, &shared.waiting) {
            self.send_pieces(shared, arena, first);
        }
        self.cut(arena, &group[at + 1..]);
        self.send_pieces(shared, arena, first);
    }

    /// Segments the packets of one path.
    fn cut(&mut self, arena: &mut [u8], group: &[Job]) {
        self.headers.clear();
        self.pieces.clear();
        for job in group {
            let tunnel = job.path.data_header(job.flags).emit();
            let tunnel = &tunnel[..job.path.header_len()];
            let start = job.at.start + VnetHeader::LEN;
            job.cut.apply(&mut arena[start..job.at.end], |inner, body| {
                let from = self.headers.len();
                self.headers.extend_from_slice(tunnel);
                self.headers.extend_from_slice(inner);
                let body = start + body.start..start + body.end;
                self.pieces.push((from..self.headers.len(), body));
            });
        }
    }

    /// Sends runs of datagrams with equal size; the last one of a run may be shorter.
    fn send_pieces(&self, shared: &Shared, arena: &[u8], first: &Job) {
        let piece = |(header, body): &(Range<usize>, Range<usize>)| {
            (&self.headers[header.clone()], &arena[body.clone()])
        };
        let pieces: Vec<(&[u8], &[u8])> = self.pieces.iter().map(piece).collect();
        let mut rest = &pieces[..];
        while let Some(n) = run_length(rest) {
            let (run, after) = rest.split_at(n);
            let size = run[0].0.len() + run[0].1.len();
            let burst = Burst { pieces: run, size, class: first.class };
            first.path.send_data(&burst, &shared.drops);
            rest = after;
        }
    }
}

/// How many of the first pieces can leave as one burst; `None` if there are none.
fn run_length(pieces: &[(&[u8], &[u8])]) -> Option<usize> {
    let len = |(header, body): &(&[u8], &[u8])| header.len() + body.len();
    let size = len(pieces.first()?);
    let most = (BURST_BYTES / size.max(Header::LEN)).clamp(1, BURST_SEGMENTS);
    let equal = pieces.iter().take(most).take_while(|piece| len(piece) == size).count();
    let shorter_follows = equal < most && pieces.get(equal).is_some_and(|next| len(next) < size);
    Some(equal + usize::from(shorter_follows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_after_a_shorter_piece_before_a_longer_one_and_at_the_kernels_bounds() {
        let data = [0u8; 2000];
        let piece = |n: usize| (&data[..16], &data[..n - 16]);
        let run = |sizes: &[usize]| {
            let pieces: Vec<_> = sizes.iter().map(|n| piece(*n)).collect();
            run_length(&pieces)
        };
        assert_eq!(run(&[]), None);
        assert_eq!(run(&[100, 100, 60, 100]), Some(3));
        assert_eq!(run(&[100, 101]), Some(1));
        assert_eq!(run(&[100; 70]), Some(64));
        assert_eq!(run(&[1500; 70]), Some(43));
    }
}
