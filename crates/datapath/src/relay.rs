//! The relay: tunnels to other nodes in the forms that standards have, and traffic bound to them by prefix or by flow. It
//! carries out [`Forward::Tunnel`], [`Forward::Source`] and [`Forward::Bind`] with programs (`src/bpf/relay*`); addresses,
//! routes and rules are the kernel's.
//!
//! Routes lead packets to the relay's TUN device; from there they go where their traffic is bound to. What comes out of a
//! tunnel arrives at that device, and the kernel's routes take it from there. Everything acts in the network namespace of
//! the thread that calls [`Relay::new`].

mod holds;
mod reader;
mod skel;
mod tables;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_ip::{Binding, Exit, Forward, Forwarding, Port, Prefix, Source, Traffic, Tunnel};
use segue_linux::clock::monotonic;
use segue_linux::{Kernel, route};
use segue_wire::DropReason;

use self::reader::Shore;
use self::skel::{
    kernel_end, kernel_exit, kernel_source, kernel_tunnel, order_mark, relay_exit, relay_tunnel,
};
use self::tables::{Programs, load};
pub use self::words::{RelayEvent, RelayRoom, RelaySetup, RelaySink};
use crate::attach::{Attached, Owner, Side, messages_to_log};
use crate::device::{DeviceKind, Injector, Tun};
use crate::locals::Watch;
use crate::maps::Shared;
use crate::worker::Worker;
use crate::{DatapathError, MissPacket};

const THREAD: &str = "segue-relay";

/// What a tunnel, or bound traffic, has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets into a tunnel, or of the traffic, as they were cut for the wire.
    pub sent_packets: u64,
    /// Bytes of these, inner headers included.
    pub sent_bytes: u64,
    /// Packets out of a tunnel.
    pub received_packets: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// When a packet of the traffic was last sent.
    pub last_sent: Option<Time>,
}

/// The relay; everything it put into the kernel goes when it is dropped, in the order of its fields.
pub struct Relay {
    interfaces: BTreeMap<u32, Attached>,
    _egress: Attached,
    worker: Worker,
    programs: Programs,
    slots: Slots,
    tunnels: BTreeMap<u32, Placed>,
    sources: BTreeSet<Source>,
    bindings: BTreeMap<Traffic, Bound>,
    /// What is bound to tunnels, by their numbers.
    led: BTreeMap<u32, BTreeSet<Traffic>>,
    /// The queue given last.
    queue: u32,
    shore: Arc<Shore>,
}

/// A tunnel in its place in the table.
struct Placed {
    tunnel: Tunnel,
    slot: u32,
    /// Index of the interface that it leaves over, 0 while there is none.
    ifindex: u32,
}

struct Bound {
    exit: Exit,
    /// Where user space keeps its packets.
    queue: u32,
}

impl Relay {
    /// Makes the TUN device, loads the programs and starts to relay; nothing is bound yet, and everything that routes lead
    /// here is refused.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn new(setup: &RelaySetup, sink: RelaySink) -> Result<Relay, DatapathError> {
        messages_to_log();
        let tun = Tun::create(&setup.device, setup.mtu_bytes)?;
        let (programs, tables) = load(setup, tun.ifindex)?;
        tables.set_alive(monotonic())?;
        let watch = Watch::open()?;
        tables.refresh_locals()?;
        let again = Injector::open(tun.ifindex, order_mark::MARK_AGAIN.0, true)?;
        let egress =
            Attached::tc(programs.egress.as_fd(), tun.ifindex, Side::Egress, Owner::Relay, true)?;
        let shore = Arc::new(Shore::new(tun, tables, again, sink));
        let worker = Worker::start(THREAD, {
            let shore = Arc::clone(&shore);
            move |stopped| reader::run(&shore, &watch, stopped)
        })?;
        Ok(Relay {
            interfaces: BTreeMap::new(),
            _egress: egress,
            worker,
            programs,
            slots: Slots { next: 0, most: setup.room.tunnels, freed: Vec::new() },
            tunnels: BTreeMap::new(),
            sources: BTreeSet::new(),
            bindings: BTreeMap::new(),
            led: BTreeMap::new(),
            queue: 0,
            shore,
        })
    }

    /// Index of the TUN device: where routes lead what is to be relayed.
    #[must_use]
    pub fn tun_ifindex(&self) -> u32 {
        self.shore.tun.ifindex
    }

    /// Starts to take packets out of tunnels that arrive on an interface; does nothing if it already does.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses the program.
    pub fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        if self.interfaces.contains_key(&ifindex) {
            return Ok(());
        }
        let device = DeviceKind::of(ifindex)
            .map_err(|source| DatapathError::Kernel { what: "look at the interface", source })?;
        let program = match device.ethernet {
            true => self.programs.ingress.as_fd(),
            false => self.programs.bare.as_fd(),
        };
        self.interfaces
            .insert(ifindex, Attached::tc(program, ifindex, Side::Ingress, Owner::Relay, true)?);
        Ok(())
    }

    /// Stops that; does nothing if it is not attached or gone.
    pub fn detach(&mut self, ifindex: u32) {
        self.interfaces.remove(&ifindex);
    }

    /// Says that the driver lives, and looks which way the routes lead; to be called once a second. When it stops, the
    /// programs let packets pass untouched after a while.
    pub fn heartbeat(&mut self) {
        if let Err(error) = self.shore.tables.set_alive(monotonic()) {
            tracing::warn!(%error, "the heartbeat could not be written");
        }
        for placed in self.tunnels.values_mut() {
            let ifindex = way_of(&placed.tunnel);
            // A route to the other end that leads to the relay would send packets round and round.
            if ifindex == placed.ifindex || ifindex == self.shore.tun.ifindex {
                continue;
            }
            placed.ifindex = ifindex;
            if let Some(mut tunnel) = self.shore.tables.tunnel(placed.slot) {
                tunnel.ifindex = ifindex;
                if let Err(error) = self.shore.tables.set_tunnel(placed.slot, &tunnel) {
                    tracing::warn!(%error, "a tunnel's way could not be written");
                }
            }
        }
    }

    /// Sends a packet that was asked about, and those of its flow that wait behind it.
    pub fn inject(&mut self, packet: MissPacket) {
        self.shore.inject(packet);
    }

    /// Drops and counts a packet that was asked about, and those of its flow that wait behind it. For a moment the flow is
    /// not asked about again.
    pub fn refuse(&mut self, packet: &MissPacket) {
        self.shore.refuse(packet);
    }

    /// What a tunnel has carried; zero for an unknown one.
    #[must_use]
    pub fn tunnel_carried(&self, number: u32) -> Carried {
        let slot = self.tunnels.get(&number).map(|placed| placed.slot);
        let Some(tunnel) = slot.and_then(|slot| self.shore.tables.tunnel(slot)) else {
            return Carried::default();
        };
        Carried {
            sent_packets: tunnel.sent_packets,
            sent_bytes: tunnel.sent_bytes,
            received_packets: tunnel.received_packets,
            received_bytes: tunnel.received_bytes,
            last_sent: None,
        }
    }

    /// What bound traffic has carried; zero if it is not bound.
    #[must_use]
    pub fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        let known = self.bindings.contains_key(traffic);
        let Some(exit) = known.then(|| self.shore.tables.exit(traffic)).flatten() else {
            return Carried::default();
        };
        Carried {
            sent_packets: exit.packets,
            sent_bytes: exit.bytes,
            last_sent: (exit.last_seen_ns > 0).then_some(Time(exit.last_seen_ns)),
            ..Carried::default()
        }
    }

    /// Refused packets by reason, those above zero.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<DropReason, u64> {
        let mut drops = self.shore.tables.drops();
        for (reason, counted) in self.shore.drops.counts() {
            *drops.entry(reason).or_default() += counted;
        }
        drops
    }

    /// Whether packets are still carried.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] once the relay's thread has ended: nothing brings it back.
    pub fn carries(&self) -> Result<(), DatapathError> {
        self.worker.runs()
    }

    fn set_tunnel(&mut self, tunnel: Tunnel) -> Result<(), DatapathError> {
        let (end, ifindex) = (kernel_end(&tunnel), way_of(&tunnel));
        let old = self.tunnels.get(&tunnel.number).map(|old| (old.slot, kernel_end(&old.tunnel)));
        let tables = &self.shore.tables;
        match tables.end(&end) {
            Some(slot) if old.is_none_or(|(old, _)| old != slot) => {
                return Err(DatapathError::SameEnds { number: tunnel.number });
            }
            _ => {}
        }
        let slot = match old {
            Some((slot, _)) => slot,
            None => self.slots.take().ok_or(DatapathError::Full { what: "tunnel" })?,
        };
        let mut kernel = kernel_tunnel(&tunnel, ifindex);
        if let Some(had) = old.and_then(|_| tables.tunnel(slot)) {
            kernel.sent_packets = had.sent_packets;
            kernel.sent_bytes = had.sent_bytes;
            kernel.received_packets = had.received_packets;
            kernel.received_bytes = had.received_bytes;
        }
        let put = tables.set_tunnel(slot, &kernel).and_then(|()| tables.set_end(&end, slot));
        match old {
            None if put.is_err() => self.slots.give_back(slot),
            Some((_, old)) if put.is_ok() && old.bytes() != end.bytes() => tables.remove_end(&old),
            _ => {}
        }
        put?;
        self.tunnels.insert(tunnel.number, Placed { tunnel, slot, ifindex });
        if old.is_none() { self.lead_again(tunnel.number) } else { Ok(()) }
    }

    /// Its sources go with it. What is bound to it is refused until there is such a tunnel again.
    fn remove_tunnel(&mut self, number: u32) -> Result<(), DatapathError> {
        let Some(placed) = self.tunnels.remove(&number) else { return Ok(()) };
        self.shore.tables.remove_end(&kernel_end(&placed.tunnel));
        let sources: Vec<Source> = self.sources_at(Port::Tunnel(number)).copied().collect();
        for source in sources {
            self.shore.tables.remove_source(&kernel_source(&source, placed.slot));
            self.sources.remove(&source);
        }
        self.lead_again(number)?;
        self.shore.tables.set_tunnel(placed.slot, &relay_tunnel::default())?;
        self.slots.give_back(placed.slot);
        Ok(())
    }

    /// Has what is bound to a tunnel go where the tunnel is now.
    fn lead_again(&self, number: u32) -> Result<(), DatapathError> {
        let exit = kernel_exit(Exit::Tunnel(number), self.slot_of(number), 0);
        let led = self.led.get(&number).into_iter().flatten();
        led.copied().try_for_each(|traffic| self.shore.tables.bind(&traffic, exit, true))
    }

    /// Beyond the table if there is no such tunnel, so that what goes there is refused.
    fn slot_of(&self, number: u32) -> u32 {
        self.tunnels.get(&number).map_or(u32::MAX, |placed| placed.slot)
    }

    fn allow(&mut self, source: Source) -> Result<(), DatapathError> {
        if self.sources.contains(&source) {
            return Ok(());
        }
        if let Port::Tunnel(number) = source.port
            && !self.tunnels.contains_key(&number)
        {
            return Err(DatapathError::NoTunnel { number });
        }
        let tables = &self.shore.tables;
        tables.set_source(&kernel_source(&source, self.slot_of_port(source.port)))?;
        if let Port::Link(interface) = source.port {
            tables.check_link(interface)?;
        }
        self.sources.insert(source);
        Ok(())
    }

    fn forbid(&mut self, source: &Source) {
        if !self.sources.remove(source) {
            return;
        }
        let tables = &self.shore.tables;
        tables.remove_source(&kernel_source(source, self.slot_of_port(source.port)));
        if let Port::Link(interface) = source.port
            && self.sources_at(source.port).next().is_none()
        {
            tables.check_link_no_more(interface);
        }
    }

    fn slot_of_port(&self, port: Port) -> u32 {
        match port {
            Port::Tunnel(number) => self.slot_of(number),
            Port::Link(_) => 0,
        }
    }

    fn sources_at(&self, port: Port) -> impl Iterator<Item = &Source> {
        // The least prefix there is.
        let first = Source { port, prefix: Prefix::default_of(false) };
        self.sources.range(first..).take_while(move |source| source.port == port)
    }

    fn bind(&mut self, Binding { traffic, exit }: Binding) -> Result<(), DatapathError> {
        let old = self.bindings.get(&traffic).map(|bound| (bound.exit, bound.queue));
        let waits = matches!(exit, Exit::Hold { .. } | Exit::Ask);
        let same = |old: Exit| std::mem::discriminant(&old) == std::mem::discriminant(&exit);
        let queue = match old {
            Some((old, queue)) if same(old) || !waits => queue,
            _ if waits => self.next_queue(),
            _ => 0,
        };
        let slot = match exit {
            Exit::Tunnel(number) => self.slot_of(number),
            _ => 0,
        };
        let to = kernel_exit(exit, slot, queue);
        let shore = &self.shore;
        let bind = |exit| shore.tables.bind(&traffic, exit, old.is_some());
        match (old, exit) {
            (_, Exit::Hold { packets, within_ms }) => {
                let within = Span::from_millis(within_ms.into());
                let surplus = shore.with(|reading| reading.holds.set(queue, packets, within));
                shore.drops.add(DropReason::HoldFull, surplus);
                if !matches!(old, Some((Exit::Hold { .. }, _))) {
                    shore.tables.begin_queue(queue)?;
                }
                bind(to)?;
            }
            (Some((Exit::Hold { .. }, held)), Exit::Ask) => shore.ask(held, || bind(to))?,
            (Some((Exit::Hold { .. }, _)), _) => {
                let releasing = relay_exit { kind: skel::HOLD, release: to.kind, ..to };
                shore.release(queue, || bind(releasing), || bind(to))?;
            }
            _ => bind(to)?,
        }
        if let Some((old, _)) = old {
            self.leads_no_more(old, &traffic);
        }
        if let Exit::Tunnel(number) = exit {
            self.led.entry(number).or_default().insert(traffic);
        }
        self.bindings.insert(traffic, Bound { exit, queue: if waits { queue } else { 0 } });
        Ok(())
    }

    fn unbind(&mut self, traffic: &Traffic) {
        let Some(bound) = self.bindings.remove(traffic) else { return };
        self.shore.tables.unbind(traffic);
        self.leads_no_more(bound.exit, traffic);
        let dropped = self.shore.with(|reading| reading.holds.remove(bound.queue));
        self.shore.drops.add(DropReason::NoBinding, dropped);
    }

    fn leads_no_more(&mut self, exit: Exit, traffic: &Traffic) {
        let Exit::Tunnel(number) = exit else { return };
        if let Some(led) = self.led.get_mut(&number) {
            led.remove(traffic);
            if led.is_empty() {
                self.led.remove(&number);
            }
        }
    }

    /// A queue that nothing uses: numbers come round only after 2³² of them.
    fn next_queue(&mut self) -> u32 {
        self.queue = self.queue.wrapping_add(1).max(1);
        self.queue
    }
}

impl Forwarding for Relay {
    type Error = DatapathError;

    fn put(&mut self, part: &Forward) -> Result<(), DatapathError> {
        match part {
            Forward::Tunnel(tunnel) => self.set_tunnel(*tunnel),
            Forward::Source(source) => self.allow(*source),
            Forward::Bind(binding) => self.bind(*binding),
            Forward::Address { .. }
            | Forward::Route(_)
            | Forward::Rule(_)
            | Forward::Proxy { .. } => Ok(Kernel.put(part)?),
        }
    }

    fn take_back(&mut self, part: &Forward) -> Result<(), DatapathError> {
        match part {
            Forward::Tunnel(tunnel) => self.remove_tunnel(tunnel.number),
            Forward::Source(source) => {
                self.forbid(source);
                Ok(())
            }
            Forward::Bind(binding) => {
                self.unbind(&binding.traffic);
                Ok(())
            }
            Forward::Address { .. }
            | Forward::Route(_)
            | Forward::Rule(_)
            | Forward::Proxy { .. } => Ok(Kernel.take_back(part)?),
        }
    }
}

/// Index of the interface that a tunnel leaves over; 0 while there is none.
fn way_of(tunnel: &Tunnel) -> u32 {
    let chosen = || route::way_to(tunnel.remote).ok().flatten();
    tunnel.interface.or_else(chosen).unwrap_or(0)
}

/// Places in the table of tunnels.
struct Slots {
    /// All places from here on are free.
    next: u32,
    most: u32,
    freed: Vec<u32>,
}

impl Slots {
    fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.freed.pop() {
            return Some(slot);
        }
        let slot = (self.next < self.most).then_some(self.next)?;
        self.next += 1;
        Some(slot)
    }

    fn give_back(&mut self, slot: u32) {
        self.freed.push(slot);
    }
}
