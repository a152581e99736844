//! The eBPF datapath. The programs (`src/bpf`) encapsulate, decapsulate, count, stamp and answer probes.
//! This half loads and attaches them, fills their tables, and carries the packets that the kernel cannot
//! encapsulate: the first packets of a flow, and offloads other than TCP segmentation.
//!
//! Everything acts in the network namespace of the thread that calls [`Ebpf::new`]; `attach` and `detach`
//! must be called in the same namespace. A dedicated thread reads the TUN device and the events.
//!
//! **A packet's way, at a host.** A routing rule leads it to `segue0`. `segue_egress` reads its flow key, finds the
//! slot of its path, follows one redirection (`via`), counts, adds IP, UDP and the 16-byte header, and redirects it to
//! the access interface. Without a binding it goes to the TUN descriptor: the thread reports `DatapathEvent::Miss` and
//! keeps the flow's later packets until the machine has bound the flow; then they go onto `segue0` again with
//! MARK_AGAIN.
//!
//! **At an anchor**, `segue_ingress` finds the path by index, checks the cookie and the inner source, binds the return
//! direction of the flow, removes the headers (ECN by RFC 6040) and redirects into `segue0`. Replies never miss. Where
//! the driver has native XDP and is not veth, `segue_xdp` removes the headers earlier, so that GRO merges inner
//! segments; on veth that would stop super-packets. Devices without a frame header have an ingress program of their
//! own.
//!
//! **A probe's way.** The daemon gives orders to `Datapath::send_probes`; they go onto `segue0` with MARK_PROBE.
//! `segue_egress` completes them, and `segue_leave` at the access interface sets times and authenticator anew, so that
//! they exclude the wait for route and neighbour. Of 32 or more orders over one next hop, all but the first leave as
//! XDP frames (`segue_send`). `segue_xdp` answers requests in their frame; requests of paths with rides, and refused
//! ones, go on to TC. A new outer source (NAT) is accepted if it echoes what it was sent.
//!
//! The programs measure by themselves and report only news while a path is quiet. The daemon reports to them when a
//! path was declared down (`set_down`) or deaf (`set_deaf`), since losses meanwhile belong in no average.
//!
//! | map | key → value | written by |
//! | --- | --- | --- |
//! | `segue_paths` | slot → `path_config` | daemon |
//! | `segue_state` | slot → `path_state`: counters, endpoint, estimates; mapped by the daemon | programs |
//! | `segue_host`, `segue_routes` | slot → a host's window of responses; its endpoint and next hop | programs; daemon |
//! | `segue_flows` | `flow_key` → slot and generation of a path, LRU | both |
//! | `segue_inner`, `segue_locals` | inner addresses; this machine's addresses | daemon |
//! | `segue_addresses`, `segue_devices` | addresses and kinds of interfaces | daemon |
//! | `segue_drops` | reason → count per CPU, numbered as `wire::DropReason` | programs |
//! | `segue_alive` | heartbeat; after 3 s without it programs pass everything | daemon |
//! | `segue_events` | ring buffer of `probe_event` | programs |
//! | `segue_held`, `segue_watches` | responses that wait for a ride; timers that watch a host's rides | programs |
//! | `segue_orders`, `segue_batch` | requests sent in a batch | daemon |
//! | `segue_reflectors`, `stamp_*`, `probe_sessions` | STAMP and compact probes | both |

mod batch;
mod convert;
mod copies;
mod features;
#[cfg(test)]
mod forged;
#[cfg(test)]
mod leave;
mod load;
#[cfg(test)]
mod many;
mod neighbour;
mod options;
mod outage;
#[cfg(test)]
mod packets;
mod pages;
mod paths;
#[cfg(test)]
mod reach;
mod reader;
mod reading;
#[cfg(test)]
mod reflect;
mod send;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod size;
mod skel;
mod stamp;
mod states;
mod tables;
#[cfg(test)]
mod trace;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::SockFlag;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_keepalive::{Reading, Tau};
use segue_linux::clock::monotonic;
use segue_wire::{DropReason, Encapsulation, FlowKey, Size};

use self::batch::{Batch, Exit, Exits, Hop};
use self::convert::{
    PATH_DEAF, PATH_FOLLOWS_USE, PATH_ONE_WAY, PATH_QUIET, PATH_RIDES, PATH_VIA, both_ends, family,
    generation, kernel_endpoint, kernel_path, kernel_route, kernel_size, kernel_sweep,
};
use self::load::{Programs, load};
pub use self::options::{EbpfOptions, Xdp};
use self::outage::Outage;
use self::paths::{Path, same_cookies};
use self::reader::Shore;
use self::reading::Totals;
use self::skel::{endpoint, heartbeat, order_mark, path_config, path_state};
pub use self::stamp::{StampAnswers, StampCounts, StampOptions};
use self::waiting::Waiting;
pub use crate::attach::remove_stale_filters;
use crate::attach::{Attached, Owner, Side, messages_to_log};
use crate::device::{DeviceKind, Injector, Tun};
use crate::locals::Watch;
use crate::worker::Worker;
use crate::{
    Datapath, DatapathError, EventSink, FlowCount, FlowCursor, FlowPage, Kind, LinuxDatapath,
    MissPacket, PathCounters, PathSetup, ProbeOrder, Reach, Reinjection, Role, Setup, Via,
};

const THREAD: &str = "segue-ebpf";
const MARK_PROBE: u32 = order_mark::MARK_PROBE.0;
const MARK_AGAIN: u32 = order_mark::MARK_AGAIN.0;
const MARK_OVER: u32 = order_mark::MARK_OVER.0;
const _: () = assert!(heartbeat::HEARTBEAT_TIMEOUT_S.0 as u64 == crate::HEARTBEAT_TIMEOUT_S);

/// The programs of one access interface. They are removed in field order: XDP passes stripped packets to TC,
/// so it must go first.
struct Interface {
    xdp: Option<Attached>,
    _tc: Attached,
    _leave: Attached,
}

/// The eBPF datapath. Dropping it removes everything it installed in the kernel, in field order.
pub struct Ebpf {
    interfaces: BTreeMap<u32, Interface>,
    _egress: Attached,
    worker: Worker,
    /// While this socket is open the kernel timestamps each packet on arrival, before the packet waits for a
    /// processor.
    _stamps: OwnedFd,
    programs: Programs,
    paths: BTreeMap<u32, Path>,
    /// The sets of time constants in the programs' table.
    scales: Vec<[Tau; 2]>,
    max_paths: u32,
    options: EbpfOptions,
    batch: Batch,
    /// Number of paths with rides for each T_KA in microseconds.
    riding: BTreeMap<u32, u32>,
    exits: Exits,
    /// Responses that the programs hold, by deadline.
    held: Waiting,
    shore: Arc<Shore>,
}

impl Ebpf {
    /// Creates the TUN device, loads the programs and starts to receive from applications.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn new(setup: &Setup, sink: EventSink) -> Result<Ebpf, DatapathError> {
        Ebpf::with_options(setup, sink, EbpfOptions::default())
    }

    /// Like [`Ebpf::new`], with explicit options.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn with_options(
        setup: &Setup,
        sink: EventSink,
        options: EbpfOptions,
    ) -> Result<Ebpf, DatapathError> {
        messages_to_log();
        let tun = Tun::create(&setup.tun_name, setup.tun_mtu)?;
        let (programs, tables, batch) = load(setup, tun.ifindex, options.stamp)?;
        tables.set_alive(monotonic())?;
        programs.stamp.set_clock()?;
        let watch = Watch::addresses()?;
        let stamps = stamp_arrivals().map_err(|source| DatapathError::Kernel {
            what: "have arriving packets stamped",
            source,
        })?;
        tables.refresh_locals()?;
        let probes = Injector::open(tun.ifindex, MARK_PROBE, false)?;
        let again = Injector::open(tun.ifindex, MARK_AGAIN, true)?;
        let over = Injector::open(tun.ifindex, MARK_OVER, true)?;
        let egress = Attached::tc(
            programs.egress.as_fd(),
            tun.ifindex,
            Side::Egress,
            Owner::Paths,
            options.tcx,
        )?;
        let shore = Arc::new(Shore::new(tun, tables, setup.role, [again, over, probes]));
        let worker = Worker::start(THREAD, {
            let shore = Arc::clone(&shore);
            move |stopped| reader::run(&shore, &sink, &watch, stopped)
        })?;
        Ok(Ebpf {
            interfaces: BTreeMap::new(),
            _egress: egress,
            worker,
            _stamps: stamps,
            programs,
            paths: BTreeMap::new(),
            scales: Vec::new(),
            max_paths: setup.max_paths,
            options,
            batch,
            riding: BTreeMap::new(),
            exits: Exits::default(),
            held: Waiting::default(),
            shore,
        })
    }

    fn check_slot(&self, slot: u32) -> Result<(), DatapathError> {
        if slot < self.max_paths {
            Ok(())
        } else {
            Err(DatapathError::Slot { slot, max: self.max_paths })
        }
    }
}

/// A socket that requests receive timestamps: while one is open, the kernel timestamps every packet.
fn stamp_arrivals() -> io::Result<OwnedFd> {
    let family = nix::sys::socket::AddressFamily::Inet;
    let kind = nix::sys::socket::SockType::Datagram;
    let socket = nix::sys::socket::socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    nix::sys::socket::setsockopt(&socket, ReceiveTimestampns, &true)?;
    Ok(socket)
}

impl Datapath for Ebpf {
    type Error = DatapathError;
    type Packet = MissPacket;

    fn heartbeat(&mut self) {
        if let Err(error) = self.shore.tables.set_alive(monotonic()) {
            tracing::warn!(%error, "the heartbeat could not be written");
        }
        if self.options.stamp.is_some()
            && let Err(error) = self.programs.stamp.set_clock()
        {
            tracing::warn!(%error, "the time of day could not be written");
        }
    }

    fn set_path(&mut self, slot: u32, config: &PathSetup) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        if config.probing.encapsulation == Encapsulation::Upmt {
            return Err(DatapathError::Upmt);
        }
        let taus = config.probing.taus;
        let mut path = kernel_path(config, self.scale(taus)?);
        let ends = both_ends(config);
        let endpoint = match ends {
            Some((local, remote)) => {
                // The daemon may learn of a new address before this half does.
                let number = self.shore.tables.add_local(local.ip())?;
                kernel_endpoint(remote, config.ifindex, number)
            }
            None => endpoint::default(),
        };
        let (mut totals, mut outage, mut reinjected) = (Totals::default(), Outage::default(), 0);
        match self.paths.get(&slot) {
            Some(old) if same_cookies(&old.config, &path) => {
                path.flags |= old.config.flags & (PATH_VIA | PATH_ONE_WAY | PATH_QUIET | PATH_DEAF);
                path.via_slot = old.config.via_slot;
                path.heard = old.config.heard;
                path.silence = old.config.silence;
                (totals, outage) = (old.totals, old.outage);
                // Copies that start again also restart their numbering.
                let kept = old.config.flags & path.flags & PATH_FOLLOWS_USE != 0;
                reinjected = if kept { old.reinjected } else { 0 };
            }
            // From here on the programs own an anchor's endpoint.
            _ if self.shore.role == Role::Anchor => {
                self.clear(slot, &path_state { endpoint, ..path_state::default() })?;
            }
            _ => self.clear(slot, &path_state::default())?,
        }
        if self.shore.role == Role::Host {
            self.shore.tables.set_route(slot, &kernel_route(endpoint, config.gateway))?;
        }
        self.copy(slot, path.flags);
        self.shore.tables.set_path(slot, &path)?;
        let (remote, mode) = (ends.map(|(_, remote)| remote), config.probing.mode);
        let hop = remote.map(|remote| Hop {
            ifindex: config.ifindex,
            next: config.gateway.unwrap_or(remote.ip()),
            v6: family(remote.ip()) == 6,
        });
        let rides = path.flags & PATH_RIDES != 0;
        self.exits.set(slot, hop.map(|hop| Exit { hop, rides }));
        let path = Path { config: path, remote, taus, mode, totals, outage, reinjected };
        let (new, old) = (path.config, self.paths.insert(slot, path));
        self.count_riding(old.map(|path| path.config).as_ref(), Some(&new));
        Ok(())
    }

    fn remove_path(&mut self, slot: u32) {
        self.exits.set(slot, None);
        if let Some(path) = self.paths.remove(&slot) {
            self.count_riding(Some(&path.config), None);
            self.shore.tables.drop_copies(slot);
            let cleared = self.shore.tables.set_path(slot, &path_config::default());
            if let Err(error) = cleared {
                tracing::warn!(slot, %error, "a path could not be taken down");
            }
        }
    }

    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        let Some(path) = self.paths.get_mut(&slot) else { return Ok(()) };
        path.config.flags &= !(PATH_VIA | PATH_ONE_WAY);
        path.config.via_slot = 0;
        if let Some(via) = via {
            if via.slot >= self.max_paths {
                return Err(DatapathError::Slot { slot: via.slot, max: self.max_paths });
            }
            path.config.flags |= PATH_VIA | if via.one_way { PATH_ONE_WAY } else { 0 };
            path.config.via_slot = via.slot;
        }
        self.shore.tables.set_path(slot, &path.config)
    }

    fn reinject(&mut self, order: Reinjection) -> usize {
        self.send_copies(order).unwrap_or_else(|error| {
            tracing::debug!(%error, "nothing sent a second time");
            0
        })
    }

    fn test_size(&mut self, slot: u32, test: Size, dscp: u8) {
        if self.paths.contains_key(&slot) {
            self.shore.send_probes(&[(kernel_size(slot, test, dscp), self.ethertype(slot))]);
        }
    }

    fn set_heard(&mut self, slots: &[u32], heard: u16) {
        for slot in slots {
            let Some(path) = self.paths.get_mut(slot) else { continue };
            if path.config.heard == heard {
                continue;
            }
            path.config.heard = heard;
            if let Err(error) = self.shore.tables.set_path(*slot, &path.config) {
                tracing::warn!(slot, %error, "a path's heard paths could not be written");
            }
        }
    }

    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        let Some(path) = self.paths.get_mut(&slot) else { return };
        let flags = path.config.flags & !PATH_QUIET | if quiet { PATH_QUIET } else { 0 };
        if path.config.flags == flags {
            return;
        }
        path.config.flags = flags;
        if let Err(error) = self.shore.tables.set_path(slot, &path.config) {
            tracing::warn!(slot, %error, "a path could not be made quiet, or loud");
        }
    }

    fn set_down(&mut self, slot: u32, silence: Option<Span>) {
        let Some(path) = self.paths.get_mut(&slot) else { return };
        path.outage.set_down(&mut path.config, silence);
        if let Err(error) = self.shore.tables.set_path(slot, &path.config) {
            tracing::warn!(slot, %error, "a path could not be called down, or up");
        }
    }

    fn set_deaf(&mut self, slot: u32, deaf: bool) {
        let state = self.shore.tables.state(slot);
        let Some(path) = self.paths.get_mut(&slot) else { return };
        path.outage.set_deaf(&mut path.config, &state, deaf);
        if let Err(error) = self.shore.tables.set_path(slot, &path.config) {
            tracing::warn!(slot, %error, "a path's way down could not be called dead, or alive");
        }
    }

    fn reading(&mut self, slot: u32) -> Option<Reading> {
        let path = self.paths.get_mut(&slot)?;
        let state = self.shore.tables.state(slot);
        let host = match self.shore.role {
            Role::Host => Some(self.shore.tables.host(slot)?),
            Role::Anchor => None,
        };
        Some(reading::read(&state, host.as_ref(), path.mode, &mut path.totals, monotonic()))
    }

    fn measures(&self) -> bool {
        true
    }

    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), DatapathError> {
        self.shore.tables.set_inner(address, owner)
    }

    fn remove_inner(&mut self, address: IpAddr) {
        self.shore.tables.remove_inner(address);
    }

    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        let Some(path) = self.paths.get(&slot) else { return Err(DatapathError::NoPath { slot }) };
        let tables = &self.shore.tables;
        // Checked here, because the programs only see the binding.
        if self.shore.role == Role::Anchor && tables.owner_of(key.dst) != Some(path.config.owner) {
            return Err(DatapathError::Owner { address: key.dst, slot });
        }
        tables.bind(&key, slot, generation(&path.config), monotonic())
    }

    fn unbind_flow(&mut self, key: &FlowKey) {
        self.shore.tables.unbind(key);
    }

    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount> {
        let (generation_of_flow, count) = self.shore.tables.count_flow(key)?;
        let path = self.paths.get(&count.slot)?;
        (generation(&path.config) == generation_of_flow).then_some(count)
    }

    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), DatapathError> {
        orders.iter().try_for_each(|order| self.check_slot(order.slot))?;
        self.send(orders);
        Ok(())
    }

    fn sweep(&mut self, now: Time) -> Option<Time> {
        if self.shore.role == Role::Host {
            return None;
        }
        // Bounded by the number of paths, because new entries may keep arriving.
        for _ in 0..self.max_paths {
            let Some(held) = self.shore.tables.pop_held() else { break };
            // The programs' times are modulo 2³² µs.
            let left = held.until_us.wrapping_sub(now.micros32()) as i32;
            let until = Time(now.0.saturating_add_signed(i64::from(left) * 1000));
            self.held.note(held.slot, until);
        }
        let due: Vec<u32> = std::iter::from_fn(|| self.held.pop_due(now)).collect();
        let orders: Vec<_> =
            due.iter().map(|slot| (kernel_sweep(*slot), self.ethertype(*slot))).collect();
        self.shore.send_probes(&orders);
        // A response held from now on waits for at least the shortest period.
        let next = self.held.next();
        let shortest = self.riding.first_key_value();
        let soonest = shortest.map(|(us, _)| now + Span::from_micros(u64::from(*us)));
        next.into_iter().chain(soonest).min()
    }

    fn inject(&mut self, packet: MissPacket) {
        self.shore.inject(packet);
    }

    fn refuse(&mut self, packet: MissPacket) {
        self.shore.refuse(&packet);
    }

    fn is_set(&self, slot: u32) -> bool {
        self.paths.contains_key(&slot)
    }

    fn counters(&mut self, slot: u32) -> PathCounters {
        if !self.is_set(slot) {
            return PathCounters::default();
        }
        let state = self.shore.tables.state(slot);
        let remote = self.remote(slot, &state);
        PathCounters {
            tx_packets: state.tx_packets,
            rx_packets: state.rx_packets,
            tx_bytes: state.tx_bytes,
            rx_bytes: state.rx_bytes,
            remote,
        }
    }
}

impl LinuxDatapath for Ebpf {
    fn flow_page(&mut self, from: FlowCursor, owner: Option<u32>) -> FlowPage {
        self.shore.tables.flow_page(from, |slot, of| {
            self.paths.get(&slot).is_some_and(|path| {
                let wanted = owner.is_none_or(|owner| owner == path.config.owner);
                generation(&path.config) == of && wanted
            })
        })
    }

    fn kind(&self) -> Kind {
        Kind::Ebpf { xdp: self.interfaces.values().any(|interface| interface.xdp.is_some()) }
    }

    fn tun_ifindex(&self) -> u32 {
        self.shore.tun.ifindex
    }

    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        if let Some(interface) = self.interfaces.get(&ifindex) {
            // Its hardware address may have changed.
            if interface.xdp.is_some()
                && let Ok(device) = DeviceKind::of(ifindex)
            {
                self.shore.tables.set_device(ifindex, device.address)?;
            }
            return Ok(());
        }
        if ifindex == self.shore.tun.ifindex {
            return Err(DatapathError::Kernel {
                what: "receive tunnel packets from the TUN device that they go to",
                source: io::ErrorKind::InvalidInput.into(),
            });
        }
        // Its addresses may be so new that the watching thread has not been notified.
        self.shore.tables.refresh_locals()?;
        let device = DeviceKind::of(ifindex).map_err(|source| DatapathError::Kernel {
            what: "look at the access interface",
            source,
        })?;
        let program = match device.ethernet {
            true => self.programs.ingress.as_fd(),
            false => self.programs.bare.as_fd(),
        };
        let tc = Attached::tc(program, ifindex, Side::Ingress, Owner::Paths, self.options.tcx)?
            .outlive()
            .map_err(|source| DatapathError::Kernel { what: "keep a link", source })?;
        let leave = self.programs.leave.as_fd();
        let leave = Attached::tc(leave, ifindex, Side::Egress, Owner::Paths, self.options.tcx)?;
        let wanted = match self.options.xdp {
            Xdp::Auto => device.ethernet && !device.veth,
            Xdp::On => device.ethernet,
            Xdp::Off => false,
        };
        let xdp = if wanted && self.shore.tables.set_device(ifindex, device.address)? {
            Attached::xdp(self.programs.xdp.as_fd(), ifindex)
                .inspect_err(|error| tracing::debug!(ifindex, %error, "no XDP here"))
                .ok()
        } else {
            None
        };
        self.interfaces.insert(ifindex, Interface { xdp, _tc: tc, _leave: leave });
        Ok(())
    }

    fn detach(&mut self, ifindex: u32) {
        self.interfaces.remove(&ifindex);
        self.shore.tables.remove_device(ifindex);
    }

    fn set_reach(&mut self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError> {
        self.shore.tables.set_reach(reach, pools)?;
        self.shore.tables.set_alive(monotonic())
    }

    fn drops(&mut self) -> BTreeMap<DropReason, u64> {
        let mut drops = self.shore.tables.drops();
        for (reason, counted) in self.shore.drops.counts() {
            *drops.entry(reason).or_default() += counted;
        }
        drops
    }

    fn stamp_limited(&self) -> u64 {
        self.programs.stamp.count().limited
    }

    fn carries(&self) -> Result<(), DatapathError> {
        self.worker.runs()
    }
}
