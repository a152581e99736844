//! The relay's datapath in user space. Packets routed to the TUN device are read there, encapsulated and sent through
//! raw sockets; packet sockets receive copies of tunnel packets from the interfaces, which are decapsulated and written
//! to the device. The relay's one thread does all of this.
//!
//! A table of nftables (`filter.rs`) drops tunnel packets behind the packet sockets, so that the kernel does not answer
//! them as unwanted. It also checks the sources of packets forwarded to the device, since the TUN descriptor does not
//! tell which interface a packet came over. Packets between two hosts behind the same node bypass the kernel's routes;
//! otherwise they would look as if they had arrived over the link again.

mod filter;
mod frames;
pub(super) mod head;
mod ports;
mod raw;
pub(super) mod state;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use segue_ip::{Port, Prefix, Source, Sources, Traffic, Tunnel};
use segue_linux::clock::monotonic;
use segue_linux::route::Hop;
use segue_wire::{DropReason, FlowKey};

use self::filter::{Filter, Known};
pub(super) use self::filter::{remove_leftover, tables};
use self::frames::Frames;
use self::ports::Ports;
use self::raw::Senders;
use self::state::{Opened, State, TURNED};
use super::plane::{Arrivals, Plane, Waits, Way};
use super::words::{Carried, Count, RelaySetup, RelaySink, read_inner};
use crate::DatapathError;
use crate::device::{PACKET_MAX, Tun};
use crate::drops::Drops;
use crate::locals;
use crate::sync::lock;
use crate::user::class::class_of;
use crate::user::segment::{Cut, VnetHeader};

/// Packets read from an interface before the thread turns to its other work.
const BATCH: usize = 64;

/// The sockets and tables of the user-space datapath.
pub(super) struct UserPlane {
    filter: Mutex<Filter>,
    interfaces: Mutex<BTreeMap<u32, Frames>>,
    /// Reports which interfaces have packets.
    arrived: Epoll,
    ports: Mutex<Ports>,
    senders: Mutex<Senders>,
    state: Mutex<State>,
    drops: Drops,
    /// Firewall mark of outer packets.
    mark: u32,
    /// Flows are distinguished by their flow labels, too.
    labels: bool,
    tun: Tun,
}

impl UserPlane {
    pub(super) fn new(setup: &RelaySetup) -> Result<UserPlane, DatapathError> {
        let tun = Tun::create(&setup.device, setup.mtu_bytes)?;
        Ok(UserPlane {
            filter: Mutex::new(Filter::new(&setup.device, tun.ifindex)?),
            interfaces: Mutex::default(),
            arrived: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
                .map_err(|e| failed("wait for packets")(e.into()))?,
            ports: Mutex::new(Ports::new(setup.held.clone())),
            senders: Mutex::new(Senders::new()?),
            state: Mutex::new(State::new(setup)),
            drops: Drops::default(),
            mark: setup.mark,
            labels: setup.labels,
            tun,
        })
    }

    /// Makes all packet sockets listen to the current tunnels' ports.
    fn listen(&self, ports: &Ports) -> Result<(), DatapathError> {
        let ports = ports.all();
        let interfaces = lock(&self.interfaces);
        let listen = |frames: &Frames| frames.listen_to(&ports);
        interfaces.values().try_for_each(listen).map_err(failed("listen to a tunnel's port"))
    }

    /// Stops dropping a tunnel's packets in the packet filter: the kernel may receive them again.
    fn let_go(&self, tunnel: &Tunnel) {
        if let Err(error) = lock(&self.filter).remove(&Known::of(tunnel)) {
            tracing::warn!(%error, "packets of a tunnel that is gone are still dropped");
        }
    }

    /// Sends a packet to the exit of its binding, segmented if needed.
    fn send_one(&self, bytes: &[u8], copy: &mut Vec<u8>) -> Result<(), DropReason> {
        let (vnet, packet) = VnetHeader::split(bytes).ok_or(DropReason::InnerPacket)?;
        let inner = read_inner(packet, self.labels)?;
        let packet = &packet[..inner.len];
        let (v6, class) = (inner.key.dst.is_ipv6(), class_of(packet));
        let cut = Cut::new(&vnet, packet)?;
        copy.clear();
        copy.extend_from_slice(packet);
        let mut cuts = Vec::new();
        cut.apply(copy, |headers, rest| cuts.push((headers.to_vec(), rest)));
        let turned = vnet.flags & TURNED != 0;
        let len = |(headers, rest): &(Vec<u8>, Range<usize>)| headers.len() + rest.len();
        let (leave, heads) = {
            let state = lock(&self.state);
            let leave = state.leave(&inner.key, turned, self.mark)?;
            let head = |cut| match leave.slot {
                None => Ok(Vec::new()),
                Some(slot) => {
                    state.head(slot, v6, class, len(cut)).map(|(head, len)| head[..len].to_vec())
                }
            };
            let heads = cuts.iter().map(head).collect::<Result<Vec<_>, _>>()?;
            (leave, heads)
        };
        let pieces: Vec<_> = heads
            .iter()
            .zip(&cuts)
            .map(|(head, (headers, rest))| {
                [head.as_slice(), headers.as_slice(), &copy[rest.clone()]].map(IoSlice::new)
            })
            .collect();
        let (sent, result) = lock(&self.senders).send(&pieces, &leave.out);
        let bytes: usize = cuts[..sent].iter().map(len).sum();
        lock(&self.state).count_sent(&leave, sent as u64, bytes as u64, monotonic());
        if let Err(error) = result {
            tracing::debug!(%error, "a packet could not be sent");
            self.drops.add(reason_of(&error), (cuts.len() - sent) as u64);
        }
        Ok(())
    }

    /// Decapsulates the packet in range `at` of the buffer, if it belongs to a tunnel. A packet that is bound again
    /// goes to `turn`.
    fn arrive(
        &self,
        vnet: VnetHeader,
        buffer: &mut [u8],
        at: Range<usize>,
        turn: &dyn Fn(&[u8]),
    ) -> Result<(), DropReason> {
        let begin = at.start;
        let opened = lock(&self.state).take_out(vnet, &mut buffer[at])?;
        let Some(Opened { slot, flow, vnet, inner, packets, bytes, turns }) = opened else {
            return Ok(());
        };
        let (start, end) = (begin + inner.start, begin + inner.end);
        // The virtio header is shorter than any outer header, whose space it takes.
        let front = start - VnetHeader::LEN;
        buffer[front..start].copy_from_slice(&vnet.emit());
        match turns {
            true => turn(&buffer[front..end]),
            false => self.tun.write(&buffer[front..end]).map_err(|_| DropReason::Decapsulation)?,
        }
        lock(&self.state).count_received(slot, &flow, packets.into(), bytes as u64);
        Ok(())
    }
}

fn reason_of(error: &io::Error) -> DropReason {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::WouldBlock, _) | (_, Some(libc::ENOBUFS)) => DropReason::QueueFull,
        (_, Some(libc::EMSGSIZE | libc::EINVAL)) => DropReason::Encapsulation,
        _ => DropReason::NoRemote,
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> DatapathError {
    move |source| DatapathError::Kernel { what, source }
}

impl Plane for UserPlane {
    fn tun(&self) -> &Tun {
        &self.tun
    }

    fn attach(&self, ifindex: u32) -> Result<(), DatapathError> {
        let ports = lock(&self.ports).all();
        let mut interfaces = lock(&self.interfaces);
        if interfaces.contains_key(&ifindex) {
            return Ok(());
        }
        let frames = Frames::open(ifindex, &ports).map_err(failed("listen on the interface"))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ifindex.into());
        self.arrived
            .add(&frames, event)
            .map_err(|e| failed("wait for packets of the interface")(e.into()))?;
        interfaces.insert(ifindex, frames);
        // Releases the lock for the thread, which reads packets meanwhile.
        drop(interfaces);
        lock(&self.filter).add(&[Known::Attached(ifindex)]).inspect_err(|_| {
            lock(&self.interfaces).remove(&ifindex);
        })
    }

    fn detach(&self, ifindex: u32) {
        let Some(frames) = lock(&self.interfaces).remove(&ifindex) else { return };
        self.drops.add(DropReason::QueueFull, frames.overflowed());
        if let Err(error) = lock(&self.filter).remove(&[Known::Attached(ifindex)]) {
            tracing::warn!(%error, "packets of tunnels are still dropped on an interface");
        }
    }

    /// After another program has flushed the packet filter, links are unchecked until the next heartbeat.
    fn beat(&self) -> Result<(), DatapathError> {
        if lock(&self.filter).keep()? {
            tracing::warn!(
                "somebody removed the relay's table from the packet filter: it is made anew"
            );
        }
        Ok(())
    }

    fn refresh(&self) -> Result<(), DatapathError> {
        let own = locals::present()?;
        lock(&self.state).set_own(own);
        Ok(())
    }

    fn set_tunnel(
        &self,
        slot: u32,
        tunnel: &Tunnel,
        hop: Option<Hop>,
        old: Option<&Tunnel>,
    ) -> Result<(), DatapathError> {
        if let segue_ip::Form::Optimized { .. } = tunnel.form {
            return Err(DatapathError::HomeAddresses { number: tunnel.number });
        }
        let mut ports = lock(&self.ports);
        ports.add(tunnel).map_err(failed("take the UDP port of a tunnel"))?;
        let known = lock(&self.filter).add(&Known::of(tunnel));
        known.inspect_err(|_| ports.remove(tunnel))?;
        if let Err(error) = self.listen(&ports) {
            ports.remove(tunnel);
            self.let_go(tunnel);
            return Err(error);
        }
        if let Some(old) = old {
            ports.remove(old);
            self.let_go(old);
        }
        lock(&self.state).set_tunnel(slot, tunnel, hop, old);
        Ok(())
    }

    fn remove_tunnel(&self, slot: u32, tunnel: &Tunnel) -> Result<(), DatapathError> {
        lock(&self.state).remove_tunnel(slot, tunnel);
        let mut ports = lock(&self.ports);
        ports.remove(tunnel);
        self.let_go(tunnel);
        self.listen(&ports)
    }

    fn set_hop(&self, slot: u32, hop: Option<Hop>) -> Result<(), DatapathError> {
        lock(&self.state).set_hop(slot, hop);
        Ok(())
    }

    fn tunnel_carried(&self, slot: u32) -> Carried {
        lock(&self.state).tunnel_carried(slot)
    }

    fn allow(&self, source: &Source, _slot: u32) -> Result<(), DatapathError> {
        if let Port::Link(interface) = source.port {
            lock(&self.filter).add(&[Known::Source(interface, source.prefix.network())])?;
        }
        lock(&self.state).allow(source);
        Ok(())
    }

    fn forbid(&self, source: &Source, _slot: u32, _rest: &Sources) {
        lock(&self.state).forbid(source);
        if let Port::Link(interface) = source.port {
            let known = Known::Source(interface, source.prefix.network());
            if let Err(error) = lock(&self.filter).remove(&[known]) {
                tracing::warn!(%error, "a source that a link may not bring any more is let pass");
            }
        }
    }

    fn bind(&self, traffic: &Traffic, way: Way, was: bool) -> Result<(), DatapathError> {
        if let Traffic::To(prefix) = traffic
            && !was
        {
            lock(&self.filter).add(&[Known::Bound(prefix.network())])?;
        }
        lock(&self.state).bind(traffic, way);
        Ok(())
    }

    fn unbind(&self, traffic: &Traffic) {
        lock(&self.state).unbind(traffic);
        if let Traffic::To(prefix) = traffic
            && let Err(error) = lock(&self.filter).remove(&[Known::Bound(prefix.network())])
        {
            tracing::warn!(%error, "sources in a prefix that is not bound any more stay refused");
        }
    }

    fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        lock(&self.state).traffic_carried(traffic)
    }

    fn count(&self, prefix: Prefix) -> Result<(), DatapathError> {
        lock(&self.state).count(prefix);
        Ok(())
    }

    fn count_no_more(&self, prefix: Prefix) {
        lock(&self.state).count_no_more(prefix);
    }

    fn counted(&self, prefix: Prefix) -> Count {
        lock(&self.state).counted(prefix)
    }

    fn waits(&self, key: &FlowKey, bytes: &[u8]) -> Option<Waits> {
        let turned = bytes.first().is_some_and(|flags| flags & TURNED != 0);
        lock(&self.state).waits(key, turned)
    }

    /// Order needs no help here: the thread cannot read while a queue is released.
    fn begin_queue(&self, _queue: u32) -> Result<(), DatapathError> {
        Ok(())
    }

    fn set_returned(&self, _queue: u32, _packets: u32) -> Result<(), DatapathError> {
        Ok(())
    }

    fn send(&self, packets: &[&[u8]]) {
        let mut copy = Vec::new();
        for bytes in packets {
            if let Err(reason) = self.send_one(bytes, &mut copy) {
                self.drops.add(reason, 1);
            }
        }
    }

    fn drops(&self) -> BTreeMap<DropReason, u64> {
        for frames in lock(&self.interfaces).values() {
            self.drops.add(DropReason::QueueFull, frames.overflowed());
        }
        let mut drops = self.drops.counts();
        let refused = lock(&self.filter).refused();
        if refused > 0 {
            *drops.entry(DropReason::InnerSource).or_default() += refused;
        }
        drops
    }

    fn arrivals<'a>(&'a self, _sink: &'a RelaySink) -> Result<Box<dyn Arrivals + 'a>, String> {
        Ok(Box::new(Arrived { plane: self, buffer: vec![0; PACKET_MAX + 14] }))
    }
}

/// Packets that have arrived on the interfaces.
struct Arrived<'a> {
    plane: &'a UserPlane,
    buffer: Vec<u8>,
}

impl Arrivals for Arrived<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plane.arrived.0.as_fd()
    }

    fn take(&mut self, turn: &dyn Fn(&[u8])) -> Result<(), String> {
        let interfaces = lock(&self.plane.interfaces);
        for frames in interfaces.values() {
            for _ in 0..BATCH {
                let Some((vnet, at)) = frames.read(&mut self.buffer) else { break };
                if let Err(reason) = self.plane.arrive(vnet, &mut self.buffer, at, turn) {
                    self.plane.drops.add(reason, 1);
                }
            }
        }
        Ok(())
    }
}
