//! The relay: standard tunnels to other nodes, and traffic bound to them by prefix or by flow. It carries out
//! [`Forward::Tunnel`], [`Forward::Source`] and [`Forward::Bind`]; addresses, routes and rules are left to the kernel.
//! Programs in the kernel (`src/bpf/relay*`) carry the packets, or user space does where eBPF is not available.
//!
//! Routes lead packets to the relay's TUN device; from there each packet goes where its traffic is bound. A packet that
//! comes out of a tunnel arrives at that device, and the kernel's routes take over. A relay belongs to the network
//! namespace of the thread that creates it: every thread that attaches it to interfaces, changes it or calls its
//! heartbeat must be in that namespace.
//!
//! A `Tunnel` has a `Form`: IP in IP, GRE, UDP, or a home address in an extension header (`Optimized`). A `Binding`
//! leads traffic (a flow, or a prefix of destinations or sources) to an `Exit`: a tunnel, a link, a hold, a drop, or a
//! question to the daemon. The exit is found by the flow, else by the longest prefix: of sources for what came over a
//! checked link, of destinations for the rest. A `Source` allows inner sources at a tunnel or a checked link.
//!
//! Held packets wait in user space (`relay/reader.rs`) until their traffic is bound anew. While they are released, the
//! programs send new packets directly only if none is queued before them (`held_exit`). A tunnel is identified by both
//! addresses, form, and key or ports; a Tunnel Encapsulation Limit option (RFC 2473), which Linux adds, is skipped.
//! Messages with a Home Address option reach the daemon whole (`RelayEvent::Message`) before the kernel refuses them.

mod counter;
pub mod dry_run;
mod end;
mod holds;
mod kernel;
mod plane;
mod reader;
mod size;
mod skel;
mod tables;
mod user;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_clock::Span;
use segue_ip::{
    Binding, Bindings, Exit, Forward, Forwarding, Port, Source, Sources, Traffic, Tunnel,
};
use segue_linux::Kernel;
use segue_linux::clock::monotonic;
use segue_linux::route::{self, Hop};
use segue_wire::{DropReason, OuterTooBig};

pub use self::counter::Counter;
use self::end::{End, Front};
use self::kernel::KernelPlane;
use self::plane::{Plane, Way};
use self::reader::Shore;
use self::size::Said;
use self::user::UserPlane;
pub use self::words::{Carried, Count, Counts, RelayEvent, RelayRoom, RelaySetup, RelaySink};
use crate::locals::Watch;
use crate::worker::Worker;
use crate::{DatapathError, MissPacket};

const THREAD: &str = "segue-relay";

/// Heartbeats between two checks of the kernel's path MTUs: the kernel sends no notification when one expires.
const LOOK: u32 = 64;

/// Names of the nftables tables of user-space relays, running or left behind; empty if `nft` fails.
#[must_use]
pub fn tables() -> Vec<String> {
    user::tables()
}

/// The relay. Dropping it removes everything it installed in the kernel.
pub struct Relay {
    worker: Worker,
    room: RelayRoom,
    slots: Slots,
    tunnels: BTreeMap<u32, Placed>,
    /// The tunnel number of each pair of ends: identifies the tunnel of an arriving packet.
    ends: BTreeMap<End, u32>,
    sources: Sources,
    bindings: Bindings<Bound>,
    /// The traffic bound to each tunnel, by tunnel number.
    led: BTreeMap<u32, BTreeSet<Traffic>>,
    /// The number of the most recent queue.
    queue: u32,
    /// Reports route changes.
    ways: Watch,
    /// The last route lookup failed: repeat it at the next heartbeat.
    look_again: bool,
    /// Packet sizes that routers have reported.
    said: Said,
    /// Tunnels whose size has changed since the last [`Relay::resized`].
    resized: BTreeSet<u32>,
    beats: u32,
    shore: Arc<Shore>,
}

/// A tunnel and its slot in the table.
struct Placed {
    tunnel: Tunnel,
    slot: u32,
    /// The first hop to the remote end; `None` while there is no route.
    hop: Option<Hop>,
    /// The largest outer packet in bytes, if the kernel knows it.
    way: Option<u32>,
    /// The largest inner packet in bytes.
    size: Option<u32>,
}

struct Bound {
    exit: Exit,
    /// The queue in which user space holds its packets.
    queue: u32,
}

impl Relay {
    /// Creates the TUN device, loads the programs and starts to relay. Nothing is bound at first: every packet that is
    /// routed here is refused.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn new(setup: &RelaySetup, sink: RelaySink) -> Result<Relay, DatapathError> {
        Relay::over(Box::new(KernelPlane::new(setup)?), setup, sink)
    }

    /// A relay without programs, for kernels and containers without eBPF: packets pass through this process. Tunnels
    /// with home addresses in extension headers ([`segue_ip::Form::Optimized`]) are refused.
    ///
    /// # Errors
    /// When the kernel refuses the device or a socket, or `nft` is missing: the packet filter checks the sources of
    /// packets from hosts.
    pub fn in_user_space(setup: &RelaySetup, sink: RelaySink) -> Result<Relay, DatapathError> {
        Relay::over(Box::new(UserPlane::new(setup)?), setup, sink)
    }

    fn over(
        plane: Box<dyn Plane>,
        setup: &RelaySetup,
        sink: RelaySink,
    ) -> Result<Relay, DatapathError> {
        let (watch, ways) = (Watch::addresses()?, Watch::ways()?);
        plane.refresh()?;
        let shore = Arc::new(Shore::new(plane, sink, setup.labels));
        let worker = Worker::start(THREAD, {
            let shore = Arc::clone(&shore);
            move |stopped| reader::run(&shore, &watch, stopped)
        })?;
        Ok(Relay {
            worker,
            room: setup.room,
            slots: Slots { next: 0, most: setup.room.tunnels, freed: Vec::new() },
            tunnels: BTreeMap::new(),
            ends: BTreeMap::new(),
            sources: Sources::default(),
            bindings: Bindings::default(),
            led: BTreeMap::new(),
            queue: 0,
            ways,
            look_again: false,
            said: Said::default(),
            resized: BTreeSet::new(),
            beats: 0,
            shore,
        })
    }

    /// Index of the TUN device: the target of routes for traffic to be relayed.
    #[must_use]
    pub fn tun_ifindex(&self) -> u32 {
        self.shore.plane.tun().ifindex
    }

    /// Starts to decapsulate the tunnel packets that arrive on an interface. Does nothing if the interface is attached
    /// already.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses the program or the socket.
    pub fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        self.shore.plane.attach(ifindex)
    }

    /// Stops decapsulating on an interface. Does nothing if it is not attached or has disappeared.
    pub fn detach(&mut self, ifindex: u32) {
        self.shore.plane.detach(ifindex);
    }

    /// Signals that the driver is alive, and looks up the tunnels' hops again if routes have changed. Call it once a
    /// second: without heartbeats the programs soon let all packets pass untouched.
    pub fn heartbeat(&mut self) {
        if let Err(error) = self.shore.plane.beat() {
            tracing::warn!(%error, "the heartbeat could not be written");
        }
        let changed = self.ways.drain() || self.look_again;
        if changed {
            self.look_for_hops();
        }
        self.beats = self.beats.wrapping_add(1);
        let due = changed || self.beats.is_multiple_of(LOOK);
        if due {
            self.tunnels.values_mut().for_each(|placed| placed.way = size::way(&placed.tunnel));
        }
        if self.said.expire(monotonic()) || due {
            self.tunnels
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|n| self.review(n));
        }
    }

    fn look_for_hops(&mut self) {
        self.look_again = false;
        for placed in self.tunnels.values_mut() {
            let found = hop_of(&placed.tunnel, self.shore.plane.tun().ifindex).and_then(|hop| {
                if hop != placed.hop {
                    self.shore.plane.set_hop(placed.slot, hop)?;
                    placed.hop = hop;
                }
                Ok(())
            });
            if let Err(error) = found {
                tracing::warn!(%error, "the way of a tunnel could not be looked up");
                self.look_again = true;
            }
        }
    }

    fn review(&mut self, number: u32) {
        let Some(placed) = self.tunnels.get_mut(&number) else { return };
        let size = self.said.inner(&placed.tunnel, placed.way);
        if size != placed.size {
            placed.size = size;
            self.resized.insert(number);
        }
    }

    /// Handles a Packet Too Big error from a router. Ignored unless it quotes a packet of a tunnel.
    pub fn on_too_big(&mut self, said: &OuterTooBig) {
        let ends = (said.local, said.remote);
        let first = End { local: said.local, remote: said.remote, front: Front::Ip };
        let same = self.ends.range(first..).take_while(|(end, _)| (end.local, end.remote) == ends);
        let numbers: Vec<u32> = same.map(|(_, number)| *number).collect();
        let quoted = |n: &u32| self.tunnels.get(n).is_some_and(|at| size::is_of(said, &at.tunnel));
        if numbers.iter().any(quoted) {
            self.shore.drops.add(DropReason::TooBig, 1);
            self.said.note(monotonic(), said);
            numbers.into_iter().for_each(|number| self.review(number));
        }
    }

    /// The tunnels whose size has changed since the last call, each with its largest inner packet in bytes; `None`
    /// while there is no route to the remote end.
    pub fn resized(&mut self) -> Vec<(Tunnel, Option<u32>)> {
        let numbers = std::mem::take(&mut self.resized);
        let placed = numbers.iter().filter_map(|number| self.tunnels.get(number));
        placed.map(|placed| (placed.tunnel, placed.size)).collect()
    }

    /// The largest inner packet in bytes that fits a tunnel, if known.
    #[must_use]
    pub fn tunnel_size(&self, number: u32) -> Option<u32> {
        self.tunnels.get(&number)?.size
    }

    /// Sends a packet that was reported as a miss, and the packets of its flow that wait behind it.
    pub fn inject(&mut self, packet: MissPacket) {
        self.shore.inject(packet);
    }

    /// Drops and counts a packet that was reported as a miss, and the packets of its flow that wait behind it. For a
    /// moment the flow is not reported again.
    pub fn refuse(&mut self, packet: &MissPacket) {
        self.shore.refuse(packet);
    }

    /// The counters of a tunnel; zero if it does not exist.
    #[must_use]
    pub fn tunnel_carried(&self, number: u32) -> Carried {
        let placed = self.tunnels.get(&number);
        placed.map_or_else(Carried::default, |at| self.shore.plane.tunnel_carried(at.slot))
    }

    /// The counters of bound traffic; zero if it is not bound.
    #[must_use]
    pub fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        match self.bindings.get(traffic) {
            Some(_) => self.shore.plane.traffic_carried(traffic),
            None => Carried::default(),
        }
    }

    /// Creates a counter of host prefixes.
    #[must_use]
    pub fn counter(&self) -> Counter {
        Counter::new(&self.shore)
    }

    /// Refused packets by reason; reasons with a count of zero are left out.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<DropReason, u64> {
        let mut drops = self.shore.plane.drops();
        for (reason, counted) in self.shore.drops.counts() {
            *drops.entry(reason).or_default() += counted;
        }
        let overflowed = self.shore.plane.tun().overflowed();
        if overflowed > 0 {
            *drops.entry(DropReason::QueueFull).or_default() += overflowed;
        }
        drops
    }

    /// Checks that the relay still carries packets.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] once the relay's thread has ended; it is not restarted.
    pub fn carries(&self) -> Result<(), DatapathError> {
        self.worker.runs()
    }

    fn set_tunnel(&mut self, tunnel: Tunnel) -> Result<(), DatapathError> {
        let hop = hop_of(&tunnel, self.shore.plane.tun().ifindex)?;
        let number = tunnel.number;
        let end = End::of(&tunnel);
        if self.ends.get(&end).is_some_and(|other| *other != number) {
            return Err(DatapathError::SameEnds { number });
        }
        let old = self.tunnels.get(&number).map(|old| (old.slot, old.tunnel));
        let slot = match old {
            Some((slot, _)) => slot,
            None => self.slots.take().ok_or(DatapathError::Full { what: "tunnel" })?,
        };
        let old = old.map(|(_, tunnel)| tunnel);
        let put = self.shore.plane.set_tunnel(slot, &tunnel, hop, old.as_ref());
        if put.is_err() && old.is_none() {
            self.slots.give_back(slot);
        }
        put?;
        if let Some(old) = &old {
            self.ends.remove(&End::of(old));
        }
        self.ends.insert(end, number);
        let way = size::way(&tunnel);
        let size = self.said.inner(&tunnel, way);
        self.tunnels.insert(number, Placed { tunnel, slot, hop, way, size });
        self.resized.insert(number);
        if old.is_none() { self.lead_again(number) } else { Ok(()) }
    }

    /// Also removes the tunnel's sources. Traffic bound to the tunnel is refused until a tunnel with this number exists
    /// again.
    fn remove_tunnel(&mut self, number: u32) -> Result<(), DatapathError> {
        let Some(placed) = self.tunnels.remove(&number) else { return Ok(()) };
        self.ends.remove(&End::of(&placed.tunnel));
        let sources: Vec<Source> = self.sources.at(Port::Tunnel(number)).copied().collect();
        self.lead_again(number)?;
        self.shore.plane.remove_tunnel(placed.slot, &placed.tunnel)?;
        for source in sources {
            self.sources.forbid(&source);
            self.shore.plane.forbid(&source, placed.slot, &self.sources);
        }
        self.slots.give_back(placed.slot);
        Ok(())
    }

    /// Redirects the traffic bound to a tunnel to the tunnel's current slot.
    fn lead_again(&self, number: u32) -> Result<(), DatapathError> {
        let (exit, slot) = (Exit::Tunnel(number), self.slot_of(number));
        let way = Way { exit, slot, queue: 0, releasing: false };
        let led = self.led.get(&number).into_iter().flatten();
        led.copied().try_for_each(|traffic| self.shore.plane.bind(&traffic, way, true))
    }

    /// A slot outside the table if the tunnel does not exist: traffic that is sent there is refused.
    fn slot_of(&self, number: u32) -> u32 {
        self.tunnels.get(&number).map_or(u32::MAX, |placed| placed.slot)
    }

    fn allow(&mut self, source: Source) -> Result<(), DatapathError> {
        if let Port::Tunnel(number) = source.port
            && !self.tunnels.contains_key(&number)
        {
            return Err(DatapathError::NoTunnel { number });
        }
        if self.sources.count() >= self.room.sources as usize {
            return Err(DatapathError::Full { what: "source" });
        }
        let slot = self.slot_of_port(source.port);
        if self.sources.allow(source)
            && let Err(error) = self.shore.plane.allow(&source, slot)
        {
            self.sources.forbid(&source);
            return Err(error);
        }
        Ok(())
    }

    fn forbid(&mut self, source: &Source) {
        if self.sources.forbid(source) {
            self.shore.plane.forbid(source, self.slot_of_port(source.port), &self.sources);
        }
    }

    fn slot_of_port(&self, port: Port) -> u32 {
        match port {
            Port::Tunnel(number) => self.slot_of(number),
            Port::Link(_) => 0,
        }
    }

    fn bind(&mut self, Binding { traffic, exit }: Binding) -> Result<(), DatapathError> {
        let traffic = traffic.network();
        let old = self.bindings.get(&traffic).map(|bound| (bound.exit, bound.queue));
        let [flows, prefixes] = self.bindings.count();
        let (bound, room, what) = match traffic {
            Traffic::Flow(_) => (flows, self.room.flows, "flow"),
            Traffic::To(_) | Traffic::From(_) => (prefixes, self.room.prefixes, "prefix"),
        };
        if old.is_none() && bound >= room as usize {
            return Err(DatapathError::Full { what });
        }
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
        let to = Way { exit, slot, queue, releasing: false };
        let shore = &self.shore;
        let bind = |way| shore.plane.bind(&traffic, way, old.is_some());
        match (old, exit) {
            (_, Exit::Hold { packets, within_ms }) => {
                let within = Span::from_millis(within_ms.into());
                let surplus = shore.with(|reading| reading.holds.set(queue, packets, within));
                shore.drops.add(DropReason::HoldFull, surplus);
                if !matches!(old, Some((Exit::Hold { .. }, _))) {
                    shore.plane.begin_queue(queue)?;
                }
                bind(to)?;
            }
            (Some((Exit::Hold { .. }, held)), Exit::Ask) => shore.ask(held, || bind(to))?,
            (Some((Exit::Hold { .. }, _)), _) => {
                let releasing = Way { releasing: true, ..to };
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
        let traffic = &traffic.network();
        let Some(bound) = self.bindings.remove(traffic) else { return };
        self.shore.plane.unbind(traffic);
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

    /// An unused queue: a number repeats only after 2³² queues.
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
            | Forward::Proxy { .. }
            | Forward::Neighbour { .. } => Ok(Kernel.put(part)?),
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
            | Forward::Proxy { .. }
            | Forward::Neighbour { .. } => Ok(Kernel.take_back(part)?),
        }
    }
}

/// The first hop to a tunnel's remote end; `None` if the route leads to the relay's own device, which would loop. If
/// the tunnel names an interface and there is no route over it, the remote end is assumed to be on that link.
fn hop_of(tunnel: &Tunnel, relay: u32) -> Result<Option<Hop>, DatapathError> {
    let routed = route::way_to(tunnel.remote, tunnel.interface)?;
    let on_link = |interface| Hop { interface, next: tunnel.remote };
    let hop = routed.or_else(|| tunnel.interface.map(on_link));
    Ok(hop.filter(|hop| hop.interface != relay))
}

/// Slots in the table of tunnels.
struct Slots {
    /// This slot and all later ones have never been used.
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
