//! The eBPF datapath. The programs (`src/bpf`) encapsulate, decapsulate, count, stamp and answer
//! probes; this half loads and attaches them, fills their tables, and carries the packets that the
//! kernel does not encapsulate: a flow's first ones, and those of other offloads than TCP's.
//!
//! Everything acts in the network namespace of the thread that calls [`Ebpf::new`]; `attach` and
//! `detach` must be called in the same one. One thread of its own reads the TUN device and the events.

mod attach;
mod convert;
mod device;
mod locals;
#[cfg(test)]
mod packets;
mod reader;
mod skel;
mod tables;

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_wire::{DropReason, FlowKey};

pub use self::attach::remove_stale_filters;
use self::attach::{Attached, Side};
use self::convert::{PATH_USED, kernel_order, kernel_path};
use self::device::{DeviceKind, Injector, Tun};
use self::locals::Watch;
use self::reader::Shore;
use self::skel::{SegueSkelBuilder, Shared, endpoint, path_config, path_state};
use self::tables::{Tables, kernel, unmapped};
use crate::{
    Datapath, DatapathError, EventSink, FlowEntry, InnerEntry, Kind, MissPacket, PathConfig,
    PathCounters, ProbeOrder, Role, Setup, Via,
};

const MARK_PROBE: u32 = 0x5e60_e001;
const MARK_AGAIN: u32 = 0x5e60_e002;
const PATH_VIA: u32 = 2;
const PATH_VIA_ONE_WAY: u32 = 4;

/// Where XDP decapsulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xdp {
    /// On drivers that have it natively, but not on virtual Ethernet pairs: those carry super-packets
    /// whole, which an XDP program at the receiving end stops.
    #[default]
    Auto,
    /// On every driver that has it natively.
    On,
    /// Nowhere.
    Off,
}

/// Choices that seldom need to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EbpfOptions {
    /// Where XDP decapsulates.
    pub xdp: Xdp,
    /// Attach through tcx where the kernel has it (6.6 and later). Without, filters of the clsact
    /// queueing discipline are used.
    pub tcx: bool,
}

impl Default for EbpfOptions {
    fn default() -> EbpfOptions {
        EbpfOptions { xdp: Xdp::Auto, tcx: true }
    }
}

/// The programs of one access interface. The fields' order is the order of removal: XDP hands
/// stripped packets to TC, so it must go first.
struct Interface {
    xdp: Option<Attached>,
    _tc: Attached,
}

struct Programs {
    egress: OwnedFd,
    ingress: OwnedFd,
    xdp: OwnedFd,
}

/// The eBPF datapath; everything it put into the kernel goes when it is dropped.
pub struct Ebpf {
    interfaces: BTreeMap<u32, Interface>,
    egress: Option<Attached>,
    programs: Programs,
    paths: BTreeMap<u32, path_config>,
    max_paths: u32,
    options: EbpfOptions,
    probes: Injector,
    shore: Arc<Shore>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Ebpf {
    /// Makes the TUN device, loads the programs and starts to receive from applications.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn new(setup: &Setup, sink: EventSink) -> Result<Ebpf, DatapathError> {
        Ebpf::with_options(setup, sink, EbpfOptions::default())
    }

    /// As [`Ebpf::new`], with other than the default choices.
    ///
    /// # Errors
    /// When the kernel refuses the device or the programs.
    pub fn with_options(
        setup: &Setup,
        sink: EventSink,
        options: EbpfOptions,
    ) -> Result<Ebpf, DatapathError> {
        attach::messages_to_log();
        let tun = Tun::create(setup)?;
        let (programs, tables) = load(setup, tun.ifindex)?;
        tables.set_alive(monotonic())?;
        let watch = Watch::open()?;
        locals::refresh(&tables)?;
        let probes = Injector::open(tun.ifindex, MARK_PROBE, false)?;
        let again = Injector::open(tun.ifindex, MARK_AGAIN, true)?;
        let egress = Attached::tc(programs.egress.as_fd(), tun.ifindex, Side::Egress, options.tcx)?;
        let shore = Arc::new(Shore::new(tun, tables, setup.role, again));
        let failed = |what| move |source: io::Error| DatapathError::Kernel { what, source };
        let (stop, stopped) =
            UnixStream::pair().map_err(failed("make the packet path's stop signal"))?;
        let thread = std::thread::Builder::new()
            .name("segue-ebpf".into())
            .spawn({
                let shore = Arc::clone(&shore);
                move || {
                    if let Err(error) = reader::run(&shore, &sink, &watch, &stopped) {
                        tracing::error!(%error, "the thread of the packet path ends");
                    }
                }
            })
            .map_err(failed("start the packet path's thread"))?;
        Ok(Ebpf {
            interfaces: BTreeMap::new(),
            egress: Some(egress),
            programs,
            paths: BTreeMap::new(),
            max_paths: setup.max_paths,
            options,
            probes,
            shore,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn check_slot(&self, slot: u32) -> Result<(), DatapathError> {
        if slot < self.max_paths {
            Ok(())
        } else {
            Err(DatapathError::Slot { slot, max: self.max_paths })
        }
    }

    /// Where the programs send packets of a path at this moment.
    fn endpoint(&self, slot: u32, state: &path_state) -> Option<endpoint> {
        let learned = state.learned[(state.current & 1) as usize];
        let path = self.paths.get(&slot)?;
        let used = if learned.family == 0 { path.endpoint } else { learned };
        (used.family != 0).then_some(used)
    }
}

fn load(setup: &Setup, tun_ifindex: u32) -> Result<(Programs, Tables), DatapathError> {
    let mut storage = MaybeUninit::uninit();
    let mut open = SegueSkelBuilder::default()
        .open(&mut storage)
        .map_err(|e| kernel("open the eBPF programs", &e))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.port = setup.port.to_be();
        rodata.is_anchor = u8::from(setup.role == Role::Anchor);
        rodata.mark = setup.mark;
        rodata.tun_ifindex = tun_ifindex;
        // Only has to differ from what other programs leave in the metadata, and be non-zero.
        rodata.meta_magic = (realtime_ns() as u32 ^ std::process::id().rotate_left(16)) | 1;
    }
    let sized = |result: Result<(), libbpf_rs::Error>| {
        result.map_err(|e| kernel("size the eBPF tables", &e))
    };
    sized(open.maps.segue_paths.set_max_entries(setup.max_paths.max(1)))?;
    sized(open.maps.segue_state.set_max_entries(setup.max_paths.max(1)))?;
    sized(open.maps.segue_flows.set_max_entries(setup.max_flows.max(1)))?;
    let skel = open.load().map_err(|e| kernel("load the eBPF programs", &e))?;
    let fd = |program: &dyn AsFd| {
        program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| DatapathError::Kernel { what: "keep an eBPF program", source })
    };
    let programs = Programs {
        egress: fd(&skel.progs.segue_egress)?,
        ingress: fd(&skel.progs.segue_ingress)?,
        xdp: fd(&skel.progs.segue_xdp)?,
    };
    let maps = &skel.maps;
    let all = [
        MapHandle::try_from(&maps.segue_paths),
        MapHandle::try_from(&maps.segue_state),
        MapHandle::try_from(&maps.segue_flows),
        MapHandle::try_from(&maps.segue_inner),
        MapHandle::try_from(&maps.segue_locals),
        MapHandle::try_from(&maps.segue_drops),
        MapHandle::try_from(&maps.segue_alive),
        MapHandle::try_from(&maps.segue_events),
    ]
    .map(|map| map.map_err(|e| kernel("keep an eBPF table", &e)));
    let [paths, state, flows, inner, locals, drops, alive, events] = all;
    let tables = Tables {
        paths: paths?,
        state: state?,
        flows: flows?,
        inner: inner?,
        locals: locals?,
        drops: drops?,
        alive: alive?,
        events: events?,
    };
    Ok((programs, tables))
}

impl Datapath for Ebpf {
    fn kind(&self) -> Kind {
        Kind::Ebpf { xdp: self.interfaces.values().any(|interface| interface.xdp.is_some()) }
    }

    fn tun_ifindex(&self) -> u32 {
        self.shore.tun.ifindex
    }

    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        if self.interfaces.contains_key(&ifindex) {
            return Ok(());
        }
        let device = DeviceKind::of(ifindex).map_err(|source| DatapathError::Kernel {
            what: "look at the access interface",
            source,
        })?;
        if !device.ethernet {
            return Err(DatapathError::Kernel {
                what: "receive from an interface without Ethernet frames",
                source: io::ErrorKind::Unsupported.into(),
            });
        }
        let program = self.programs.ingress.as_fd();
        let tc = Attached::tc(program, ifindex, Side::Ingress, self.options.tcx)?
            .outlive()
            .map_err(|source| DatapathError::Kernel { what: "keep a link", source })?;
        let wanted = match self.options.xdp {
            Xdp::Auto => !device.veth,
            Xdp::On => true,
            Xdp::Off => false,
        };
        let xdp = if wanted {
            Attached::xdp(self.programs.xdp.as_fd(), ifindex)
                .inspect_err(|error| tracing::debug!(ifindex, %error, "no XDP here"))
                .ok()
        } else {
            None
        };
        self.interfaces.insert(ifindex, Interface { xdp, _tc: tc });
        Ok(())
    }

    fn detach(&mut self, ifindex: u32) {
        self.interfaces.remove(&ifindex);
    }

    fn set_path(&mut self, slot: u32, config: &PathConfig) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        let mut path = kernel_path(config);
        if let Some(local) = config.local {
            // The daemon may know of a new address before this half has heard of it.
            self.shore.tables.add_local(local.ip())?;
        }
        match self.paths.get(&slot) {
            Some(old) if (old.tx_cookie, old.rx_cookie) == (path.tx_cookie, path.rx_cookie) => {
                path.flags = old.flags;
                path.via_slot = old.via_slot;
                path.heard = old.heard;
            }
            _ => {
                // Off first, so that nothing counts while the counters are cleared.
                self.shore.tables.set_path(slot, &path_config::default())?;
                self.shore.tables.set_state(slot, &path_state::default())?;
            }
        }
        self.shore.tables.set_path(slot, &path)?;
        self.paths.insert(slot, path);
        Ok(())
    }

    fn remove_path(&mut self, slot: u32) {
        if self.paths.remove(&slot).is_some() {
            let cleared = self.shore.tables.set_path(slot, &path_config::default());
            if let Err(error) = cleared {
                tracing::warn!(slot, %error, "a path could not be taken down");
            }
        }
    }

    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        let Some(path) = self.paths.get_mut(&slot) else { return Ok(()) };
        path.flags = PATH_USED;
        path.via_slot = 0;
        if let Some(via) = via {
            if via.slot >= self.max_paths {
                return Err(DatapathError::Slot { slot: via.slot, max: self.max_paths });
            }
            path.flags |= PATH_VIA | if via.one_way { PATH_VIA_ONE_WAY } else { 0 };
            path.via_slot = via.slot;
        }
        self.shore.tables.set_path(slot, path)
    }

    fn set_heard(&mut self, slots: &[u32], heard: u16) {
        for slot in slots {
            let Some(path) = self.paths.get_mut(slot) else { continue };
            if path.heard == heard {
                continue;
            }
            path.heard = heard;
            if let Err(error) = self.shore.tables.set_path(*slot, path) {
                tracing::warn!(slot, %error, "a path's heard paths could not be written");
            }
        }
    }

    fn set_inner(&mut self, address: IpAddr, entry: InnerEntry) -> Result<(), DatapathError> {
        self.shore.tables.set_inner(address, entry.owner)
    }

    fn remove_inner(&mut self, address: IpAddr) {
        self.shore.tables.remove_inner(address);
    }

    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), DatapathError> {
        self.check_slot(slot)?;
        self.shore.tables.bind(&key, slot, monotonic())
    }

    fn unbind_flow(&mut self, key: &FlowKey) {
        self.shore.tables.unbind(key);
    }

    fn flows(&mut self) -> Vec<FlowEntry> {
        self.shore.tables.flows()
    }

    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), DatapathError> {
        let mut packets = Vec::with_capacity(orders.len());
        for order in orders {
            self.check_slot(order.slot)?;
            let Some(path) = self.paths.get(&order.slot) else {
                self.shore.count(DropReason::NoRemote, 1);
                continue;
            };
            // The packet must already be of the outer family; only a path without an address of its
            // own has to be asked for.
            let family = match path.endpoint.family {
                0 => self
                    .endpoint(order.slot, &self.shore.tables.state(order.slot))
                    .map(|e| e.family),
                family => Some(family),
            };
            let ethertype = match family {
                Some(6) => libc::ETH_P_IPV6,
                _ => libc::ETH_P_IP,
            };
            packets.push((kernel_order(order), ethertype as u16));
        }
        let batch: Vec<(&[u8], u16)> = packets.iter().map(|(o, e)| (o.bytes(), *e)).collect();
        let full = self.probes.send(&batch);
        self.shore.count(DropReason::QueueFull, full);
        Ok(())
    }

    fn inject(&mut self, packet: MissPacket) {
        self.shore.inject(packet);
    }

    fn counters(&mut self, slot: u32) -> PathCounters {
        if !self.paths.contains_key(&slot) {
            return PathCounters::default();
        }
        let state = self.shore.tables.state(slot);
        let remote = self
            .endpoint(slot, &state)
            .map(|e| SocketAddr::new(unmapped(e.remote), u16::from_be(e.remote_port)));
        PathCounters {
            tx_packets: state.tx_packets,
            rx_packets: state.rx_packets,
            tx_bytes: state.tx_bytes,
            rx_bytes: state.rx_bytes,
            remote,
        }
    }

    fn drops(&mut self) -> BTreeMap<DropReason, u64> {
        let mut drops = self.shore.tables.drops();
        for reason in DropReason::ALL {
            let counted = self.shore.counted(reason);
            if counted > 0 {
                *drops.entry(reason).or_default() += counted;
            }
        }
        drops
    }

    fn heartbeat(&mut self) {
        if let Err(error) = self.shore.tables.set_alive(monotonic()) {
            tracing::warn!(%error, "the heartbeat could not be written");
        }
    }
}

impl Drop for Ebpf {
    fn drop(&mut self) {
        self.interfaces.clear();
        self.egress = None;
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
