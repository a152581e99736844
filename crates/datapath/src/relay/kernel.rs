//! The relay's datapath in the kernel: programs on the TUN device and on the interfaces that tunnels use.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use segue_clock::Time;
use segue_ip::{Exit, Port, Prefix, Source, Sources, Traffic, Tunnel};
use segue_linux::clock::monotonic;
use segue_linux::route::Hop;
use segue_wire::{DropReason, FlowKey};

use super::plane::{Arrivals, Plane, Waits, Way};
use super::skel::{
    ASK, HOLD, kernel_end, kernel_exit, kernel_hop, kernel_source, kernel_source_of_links,
    kernel_tunnel, order_mark, relay_exit, relay_message, relay_tunnel,
};
use super::tables::{Programs, Tables, load};
use super::words::{Carried, Count, RelayEvent, RelaySetup, RelaySink};
use crate::DatapathError;
use crate::attach::{Attached, Owner, Side, messages_to_log};
use crate::device::{DeviceKind, Injector, Tun, ethertype};
use crate::drops::Drops;
use crate::maps::Shared;
use crate::sync::lock;

/// The programs and their tables. Fields are dropped in order, which is the order of removal from the kernel.
pub(super) struct KernelPlane {
    interfaces: Mutex<BTreeMap<u32, Attached>>,
    _egress: Attached,
    programs: Programs,
    tables: Tables,
    again: Injector,
    drops: Drops,
    tun: Tun,
}

impl KernelPlane {
    pub(super) fn new(setup: &RelaySetup) -> Result<KernelPlane, DatapathError> {
        messages_to_log();
        super::user::remove_leftover(&setup.device);
        let tun = Tun::create(&setup.device, setup.mtu_bytes)?;
        let (programs, tables) = load(setup, tun.ifindex)?;
        tables.set_alive(monotonic())?;
        let again = Injector::open(tun.ifindex, order_mark::MARK_AGAIN.0, true)?;
        let egress =
            Attached::tc(programs.egress.as_fd(), tun.ifindex, Side::Egress, Owner::Relay, true)?;
        Ok(KernelPlane {
            interfaces: Mutex::default(),
            _egress: egress,
            programs,
            tables,
            again,
            drops: Drops::default(),
            tun,
        })
    }
}

impl Plane for KernelPlane {
    fn tun(&self) -> &Tun {
        &self.tun
    }

    fn attach(&self, ifindex: u32) -> Result<(), DatapathError> {
        let mut interfaces = lock(&self.interfaces);
        if interfaces.contains_key(&ifindex) {
            return Ok(());
        }
        let device = DeviceKind::of(ifindex)
            .map_err(|source| DatapathError::Kernel { what: "look at the interface", source })?;
        let program = match device.ethernet {
            true => self.programs.ingress.as_fd(),
            false => self.programs.bare.as_fd(),
        };
        let attached = Attached::tc(program, ifindex, Side::Ingress, Owner::Relay, true)?;
        interfaces.insert(ifindex, attached);
        Ok(())
    }

    fn detach(&self, ifindex: u32) {
        lock(&self.interfaces).remove(&ifindex);
    }

    fn beat(&self) -> Result<(), DatapathError> {
        self.tables.set_alive(monotonic())
    }

    fn refresh(&self) -> Result<(), DatapathError> {
        self.tables.refresh_locals()
    }

    fn set_tunnel(
        &self,
        slot: u32,
        tunnel: &Tunnel,
        hop: Option<Hop>,
        old: Option<&Tunnel>,
    ) -> Result<(), DatapathError> {
        let mut kernel = kernel_tunnel(tunnel, hop);
        if let Some(had) = old.and_then(|_| self.tables.tunnel(slot)) {
            kernel.sent_packets = had.sent_packets;
            kernel.sent_bytes = had.sent_bytes;
            kernel.received_packets = had.received_packets;
            kernel.received_bytes = had.received_bytes;
        }
        let end = kernel_end(tunnel);
        self.tables.set_tunnel(slot, &kernel)?;
        self.tables.set_end(&end, slot)?;
        if let Some(old) = old.map(kernel_end).filter(|old| old.bytes() != end.bytes()) {
            self.tables.remove_end(&old);
        }
        Ok(())
    }

    fn remove_tunnel(&self, slot: u32, tunnel: &Tunnel) -> Result<(), DatapathError> {
        self.tables.remove_end(&kernel_end(tunnel));
        self.tables.set_tunnel(slot, &relay_tunnel::default())
    }

    fn set_hop(&self, slot: u32, hop: Option<Hop>) -> Result<(), DatapathError> {
        let Some(mut tunnel) = self.tables.tunnel(slot) else { return Ok(()) };
        (tunnel.ifindex, tunnel.next, tunnel.next_family) = kernel_hop(hop);
        self.tables.set_tunnel(slot, &tunnel)
    }

    fn tunnel_carried(&self, slot: u32) -> Carried {
        let tunnel = self.tables.tunnel(slot).unwrap_or_default();
        Carried {
            sent_packets: tunnel.sent_packets,
            sent_bytes: tunnel.sent_bytes,
            received_packets: tunnel.received_packets,
            received_bytes: tunnel.received_bytes,
            last_sent: None,
        }
    }

    fn allow(&self, source: &Source, slot: u32) -> Result<(), DatapathError> {
        self.tables.set_source(&kernel_source(source, slot))?;
        let Port::Link(interface) = source.port else { return Ok(()) };
        self.tables.check_link(interface)?;
        self.tables.set_source(&kernel_source_of_links(source))
    }

    fn forbid(&self, source: &Source, slot: u32, rest: &Sources) {
        self.tables.remove_source(&kernel_source(source, slot));
        let Port::Link(interface) = source.port else { return };
        if !rest.is_checked(interface) {
            self.tables.check_link_no_more(interface);
        }
        if !rest.has_at_link(source.prefix) {
            self.tables.remove_source(&kernel_source_of_links(source));
        }
    }

    fn bind(&self, traffic: &Traffic, way: Way, was: bool) -> Result<(), DatapathError> {
        let slot = if let Exit::Tunnel(_) = way.exit { way.slot } else { 0 };
        let to = kernel_exit(way.exit, slot, way.queue);
        let to = match way.releasing {
            true => relay_exit { kind: HOLD, release: to.kind, ..to },
            false => to,
        };
        self.tables.bind(traffic, to, was)
    }

    fn unbind(&self, traffic: &Traffic) {
        self.tables.unbind(traffic);
    }

    fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        let exit = self.tables.exit(traffic).unwrap_or_default();
        Carried {
            sent_packets: exit.packets,
            sent_bytes: exit.bytes,
            received_packets: exit.received_packets,
            received_bytes: exit.received_bytes,
            last_sent: (exit.last_seen_ns > 0).then_some(Time(exit.last_seen_ns)),
        }
    }

    fn count(&self, prefix: Prefix) -> Result<(), DatapathError> {
        self.tables.count(prefix)
    }

    fn count_no_more(&self, prefix: Prefix) {
        self.tables.count_no_more(prefix);
    }

    fn counted(&self, prefix: Prefix) -> Count {
        let count = self.tables.counted(prefix);
        Count {
            from_packets: count.from_packets,
            from_bytes: count.from_bytes,
            to_packets: count.to_packets,
            to_bytes: count.to_bytes,
        }
    }

    /// The packets that the programs pass to the device are those that are held or asked about, and UDP super-packets,
    /// which the programs cannot encapsulate. The latter arrive here segmented, and are sent again; so is a packet
    /// whose traffic was held or asked about until a moment ago.
    fn waits(&self, key: &FlowKey, _bytes: &[u8]) -> Option<Waits> {
        let exit = self.tables.left_to_us(key)?;
        Some(if exit.kind == ASK { Waits::Asked(exit.queue) } else { Waits::Held(exit.queue) })
    }

    fn begin_queue(&self, queue: u32) -> Result<(), DatapathError> {
        self.tables.begin_queue(queue)
    }

    fn set_returned(&self, queue: u32, packets: u32) -> Result<(), DatapathError> {
        self.tables.set_returned(queue, packets)
    }

    fn send(&self, packets: &[&[u8]]) {
        let batch: Vec<(&[u8], u16)> =
            packets.iter().map(|bytes| (*bytes, ethertype(bytes))).collect();
        self.drops.add(DropReason::QueueFull, self.again.send(&batch));
    }

    fn drops(&self) -> BTreeMap<DropReason, u64> {
        let mut drops = self.tables.drops();
        for (reason, counted) in self.drops.counts() {
            *drops.entry(reason).or_default() += counted;
        }
        drops
    }

    fn arrivals<'a>(&'a self, sink: &'a RelaySink) -> Result<Box<dyn Arrivals + 'a>, String> {
        let text = |error: libbpf_rs::Error| format!("{error:#}");
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.tables.messages, |bytes| {
                if let Some(message) = relay_message::from_bytes(bytes) {
                    let len = (message.len as usize).min(message.bytes.len());
                    let bytes = message.bytes[..len].to_vec();
                    sink(RelayEvent::Message { interface: message.ifindex, bytes });
                }
                0
            })
            .map_err(text)?;
        Ok(Box::new(Messages(builder.build().map_err(text)?)))
    }
}

/// Messages of the programs to the daemon.
struct Messages<'a>(RingBuffer<'a>);

impl Arrivals for Messages<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.0.epoll_fd()) }
    }

    fn take(&mut self, _turn: &dyn Fn(&[u8])) -> Result<(), String> {
        self.0.consume().map_err(|error| format!("{error:#}"))
    }
}
