//! The thread that reads the TUN device, for packets that the programs did not handle, and the programs' events.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use libbpf_rs::RingBufferBuilder;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_clock::Time;
use segue_keepalive::Arrival;
use segue_linux::clock::monotonic;
use segue_wire::flow::Inner;
use segue_wire::header::flags::{REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION};
use segue_wire::{DropReason, Probe, Size};

use super::convert::{PATH_CHECKSUMS, kernel_answer, kernel_size};
use super::skel::{event_flag, path_config, probe_data, probe_event, probe_kind, probe_order};
use super::tables::Tables;
use crate::device::{Injector, PACKET_MAX, Tun, VNET_LEN, ethertype, is_local};
use crate::drops::Drops;
use crate::locals::Watch;
use crate::maps::Shared;
use crate::maps::unmapped;
use crate::misses::{Missed, Misses};
use crate::sync::lock;
use crate::user::segment::{VnetHeader, complete};
use crate::{DatapathEvent, EventSink, MissPacket, ProbeEvent, ProbeKind, Role, STAMP_TO_WIRE};

/// Interval between two sweeps for packets that have waited too long for a decision.
const SWEEP_NS: u64 = 1_000_000_000;
/// Events handled before packets, answers and the stop signal get their turn.
const EVENTS: usize = 4_096;
/// Makes the ring buffer stop after the current event.
const ENOUGH: i32 = -libc::ECANCELED;
/// Packets read before the thread checks for events again.
const BATCH: usize = 64;

/// State shared by the thread and the daemon.
pub(super) struct Shore {
    pub(super) tun: Tun,
    pub(super) tables: Tables,
    pub(super) role: Role,
    again: Injector,
    over: Injector,
    pub(super) probes: Injector,
    held: Mutex<Misses>,
    pub(super) drops: Drops,
}

impl Shore {
    pub(super) fn new(
        tun: Tun,
        tables: Tables,
        role: Role,
        [again, over, probes]: [Injector; 3],
    ) -> Shore {
        let drops = Drops::default();
        let held = Mutex::new(Misses::new(role));
        Shore { tun, tables, role, again, over, probes, held, drops }
    }

    /// Passes probe orders to the programs, each with its outer EtherType.
    pub(super) fn send_probes(&self, orders: &[(probe_order, u16)]) {
        let batch: Vec<(&[u8], u16)> = orders.iter().map(|(o, e)| (o.bytes(), *e)).collect();
        let full = self.probes.send(&batch);
        self.drops.add(DropReason::QueueFull, full);
    }

    /// Handles a packet size test: returns the order for the answer at an anchor, an event at a host.
    fn take_size(&self, event: &probe_event) -> Option<Result<(probe_order, u16), DatapathEvent>> {
        let words = read_probe(&event.probe);
        let length = words.t_sc >> 16;
        let size = Size::read(&words, length as usize, self.role == Role::Anchor).ok()?;
        Some(match self.role {
            Role::Anchor => {
                let dscp = event.received as u8 >> 2;
                let answer = kernel_size(event.slot, size.answered(), dscp);
                Ok((answer, outer_ethertype(event.family)))
            }
            Role::Host => Err(DatapathEvent::Size(event.slot, size.token)),
        })
    }

    /// Sends a packet that was reported as a miss, and the packets of its flow that wait behind it.
    pub(super) fn inject(&self, packet: MissPacket) {
        let waiting = self.held().settle(&packet.key);
        let mut packets = vec![packet.bytes];
        packets.extend(waiting);
        let carrier = self.tables.carrier(&packet.key);
        let ready = packets.iter().flat_map(|bytes| self.ready(carrier.as_ref(), bytes));
        self.send_again(&ready.collect::<Vec<_>>());
    }

    /// Drops a packet that was reported as a miss, and the packets of its flow that wait behind it.
    pub(super) fn refuse(&self, packet: &MissPacket) {
        let refused = self.held().refuse(&packet.key, monotonic());
        self.drops.add(DropReason::NoRemote, refused);
    }

    /// Sends copies of earlier packets over the path that the daemon has chosen.
    pub(super) fn reinject(&self, packets: &[Vec<u8>]) {
        self.put(&self.over, packets.iter().map(Vec::as_slice));
    }

    /// Prepares a packet to go back to the programs. If data need checksums, those that the sender left to the device
    /// are completed here, and super-packets are segmented.
    fn ready<'a>(&self, carrier: Option<&path_config>, bytes: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
        if carrier.is_none_or(|path| path.flags & PATH_CHECKSUMS == 0) {
            return vec![Cow::Borrowed(bytes)];
        }
        let Some((vnet, packet)) = VnetHeader::split(bytes) else { return Vec::new() };
        match complete(&vnet, packet) {
            Ok(packets) => packets.into_iter().map(Cow::Owned).collect(),
            Err(reason) => {
                self.drops.add(reason, 1);
                Vec::new()
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Misses> {
        lock(&self.held)
    }

    fn send_again(&self, packets: &[Cow<'_, [u8]>]) {
        self.put(&self.again, packets.iter().map(|packet| &**packet));
    }

    fn put<'a>(&self, injector: &Injector, packets: impl Iterator<Item = &'a [u8]>) {
        let batch: Vec<(&[u8], u16)> = packets.map(|bytes| (bytes, ethertype(bytes))).collect();
        let full = injector.send(&batch);
        self.drops.add(DropReason::QueueFull, full);
    }

    /// Holds a packet without a binding, or returns it to be reported to the daemon.
    fn hold(&self, owner: u32, inner: &Inner, bytes: &[u8], now: Time) -> Option<MissPacket> {
        let mut held = self.held();
        // The flow has been bound in the meantime, and its waiting packets have left: nothing would release this one.
        if let Some(carrier) = self.tables.carrier(&inner.key) {
            drop(held);
            self.send_again(&self.ready(Some(&carrier), bytes));
            return None;
        }
        match held.take(owner, inner.key, inner.dscp, bytes, now) {
            Missed::Report(packet) => return Some(packet),
            Missed::Held => {}
            Missed::Full => self.drops.add(DropReason::QueueFull, 1),
        }
        None
    }

    /// Drops the packets of flows that the daemon never answered.
    fn give_up(&self, now: Time) {
        let given_up = self.held().purge(now);
        self.drops.add(DropReason::NoRemote, given_up);
    }
}

/// The thread's body; returns when the other end of `stop` closes.
pub(super) fn run(
    shore: &Shore,
    sink: &EventSink,
    watch: &Watch,
    stop: &UnixStream,
) -> Result<(), String> {
    let text = |error: libbpf_rs::Error| format!("{error:#}");
    let on_event = Arc::clone(sink);
    let unanswered = RefCell::new(Vec::new());
    let taken = Cell::new(0);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&shore.tables.events, |bytes| {
            let Some(event) = probe_event::from_bytes(bytes) else { return 0 };
            if event.wants & ANSWER != 0 {
                unanswered
                    .borrow_mut()
                    .push((kernel_answer(&event), outer_ethertype(event.family)));
            }
            match event.kind {
                LOOK => on_event(DatapathEvent::Look(event.slot)),
                UNCUT => on_event(DatapathEvent::Uncut(event.slot)),
                SIZE => match shore.take_size(&event) {
                    Some(Ok(answer)) => unanswered.borrow_mut().push(answer),
                    Some(Err(event)) => on_event(event),
                    None => shore.drops.add(DropReason::Field, 1),
                },
                _ if event.wants & QUIET == 0 => on_event(DatapathEvent::Probe(read_event(&event))),
                _ => {}
            }
            // In a flood there are always more events, and answers and packets would wait behind them.
            taken.set(taken.get() + 1);
            if taken.get() < EVENTS { 0 } else { ENOUGH }
        })
        .map_err(text)?;
    let events = builder.build().map_err(text)?;
    // SAFETY: the descriptor belongs to `events`, which lives until this function returns.
    let events_fd = unsafe { BorrowedFd::borrow_raw(events.epoll_fd()) };
    let mut buffers = vec![vec![0; PACKET_MAX]; BATCH];
    let mut swept = monotonic();
    loop {
        let mut fds = [
            PollFd::new(shore.tun.as_fd(), PollFlags::POLLIN),
            PollFd::new(events_fd, PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut fds, PollTimeout::from(1000u16));
        if fds[2].any() == Some(true) {
            return Ok(());
        }
        if fds[0].revents().is_some_and(|is| is.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
        {
            return Err("the tunnel device is gone".into());
        }
        if fds[3].any() == Some(true) {
            watch.drain();
            if let Err(error) = shore.tables.refresh_locals() {
                tracing::warn!(%error, "the addresses of this machine could not be brought up to date");
            }
        }
        taken.set(0);
        match events.consume_raw() {
            code if code >= 0 || code == ENOUGH => {}
            code => return Err(text(libbpf_rs::Error::from_raw_os_error(-code))),
        }
        shore.send_probes(&unanswered.take());
        read_packets(shore, sink, &mut buffers);
        let now = monotonic();
        if now.0.saturating_sub(swept.0) >= SWEEP_NS {
            swept = now;
            shore.give_up(now);
        }
    }
}

fn read_packets(shore: &Shore, sink: &EventSink, buffers: &mut [Vec<u8>]) {
    let now = monotonic();
    let mut again = Vec::new();
    for buffer in buffers {
        let Some(n) = shore.tun.read(buffer) else { break };
        let bytes = &buffer[..n];
        let Some(inner) = inner_of(shore, bytes) else { continue };
        if let Some(carrier) = shore.tables.carrier(&inner.key) {
            // The programs could not encapsulate the packet in its original form.
            again.extend(shore.ready(Some(&carrier), bytes));
            continue;
        }
        let owner = match shore.role {
            Role::Host => Some(0),
            Role::Anchor => shore.tables.owner_of(inner.key.dst),
        };
        match owner {
            None => shore.drops.add(DropReason::NoHost, 1),
            Some(owner) => {
                shore
                    .hold(owner, &inner, bytes, now)
                    .into_iter()
                    .for_each(|m| sink(DatapathEvent::Miss(m)));
            }
        }
    }
    shore.send_again(&again);
}

/// The parsed inner packet, unless it is malformed or link-local.
fn inner_of(shore: &Shore, bytes: &[u8]) -> Option<Inner> {
    let packet = bytes.get(VNET_LEN..)?;
    match Inner::parse(packet) {
        Ok(inner) if is_local(inner.key.src) || is_local(inner.key.dst) => None,
        Ok(inner) => Some(inner),
        Err(reason) => {
            shore.drops.add(reason, 1);
            None
        }
    }
}

/// The EtherType of an outer family, 4 or 6.
pub(super) fn outer_ethertype(family: u8) -> u16 {
    (if family == 6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP }) as u16
}

const ANSWER: u8 = event_flag::EVENT_ANSWER.0 as u8;
const QUIET: u8 = event_flag::EVENT_QUIET.0 as u8;
const REQUEST: u8 = probe_kind::KIND_REQUEST.0 as u8;
const LOOK: u8 = probe_kind::KIND_LOOK.0 as u8;
const UNCUT: u8 = probe_kind::KIND_UNCUT.0 as u8;
const SIZE: u8 = probe_kind::KIND_SIZE.0 as u8;
const RESPONSE: u8 = probe_kind::KIND_RESPONSE.0 as u8;

fn read_event(event: &probe_event) -> ProbeEvent {
    ProbeEvent {
        slot: event.slot,
        kind: match event.kind {
            REQUEST => ProbeKind::Request,
            RESPONSE => ProbeKind::Response,
            _ => ProbeKind::Unsolicited,
        },
        k: event.k,
        report: event.kind == REQUEST && event.flags & REQUEST_REPORT != 0,
        age: event.age,
        arrival: Arrival {
            probe: read_probe(&event.probe),
            at: Time(event.at_ns),
            received: event.received,
            question: event.kind == REQUEST && event.flags & REQUEST_QUESTION != 0
                || event.kind == RESPONSE && event.flags & RESPONSE_QUESTION != 0,
            sent_at: None,
            uncertainty: STAMP_TO_WIRE,
        },
        remote: SocketAddr::new(unmapped(event.remote), u16::from_be(event.remote_port)),
        kernel_stamp: true,
    }
}

fn read_probe(p: &probe_data) -> Probe {
    Probe {
        seq: u32::from_be(p.seq),
        t_sc: u32::from_be(p.t_sc),
        t_ss: u32::from_be(p.t_ss),
        dt: u32::from_be(p.dt),
        sc: u32::from_be(p.sc),
        ss: u32::from_be(p.ss),
        r: u32::from_be(p.r),
        heard: u16::from_be(p.heard),
        t_ka_ms: u16::from_be(p.t_ka_ms),
    }
}
