//! The datapath for kernels, containers and unprivileged user namespaces without eBPF: a TUN descriptor and UDP
//! sockets.
//!
//! Two threads own the packets. `egress` reads super-packets from the TUN device, finds their path (`flows`),
//! completes and segments them ([`segment`]) and gives the kernel one buffer to segment (`path`, `socket`).
//! `ingress` takes batches from all sockets, checks them, answers probes (`probes`, or with the next data: `rides`)
//! and merges TCP segments ([`coalesce`]). One lock guards the tables; it is taken once per batch and never held
//! during a system call. Counters have a lock per path and direction, so that a probe reports exactly what left
//! before it.
//!
//! [`PathSetup::gateway`] is not used: the kernel's routes over the path's interface apply.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use segue_clock::Time;
use segue_ip::Prefix;
use segue_keepalive::Reading;
use segue_linux::clock::monotonic;
use segue_wire::{DropReason, FlowKey, Size};
use tun_rs::SyncDevice;

use crate::drops::Drops;
use crate::misses::Misses;
use crate::sync::lock;
use crate::{
    Datapath, DatapathError, EventSink, FlowCount, FlowCursor, FlowPage, Kind, LinuxDatapath,
    MissPacket, PathCounters, PathSetup, ProbeKind, ProbeOrder, Reach, Reinjection, Role, Setup,
    Via,
};
use flows::FlowTable;
use path::{Path, State};
use share::Shares;
use shared::{Core, Shared};
use socket::{Endpoint, Socket};

pub(crate) mod class;
pub mod coalesce;
pub(crate) mod control;
pub mod dry_run;
mod egress;
mod flows;
mod ingress;
pub mod partial;
mod path;
mod probes;
mod rides;
pub mod segment;
mod share;
mod shared;
mod socket;
mod take;
mod traffic;
mod tun;
mod upmt;

/// The user-space datapath. Dropping it ends its threads and removes its device.
pub struct User {
    shared: Arc<Shared>,
    tun: Arc<SyncDevice>,
    tun_ifindex: u32,
    setup: Setup,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    /// Why a thread has ended, if it gave a reason.
    ended: Arc<Mutex<Option<&'static str>>>,
}

impl User {
    /// Creates the TUN device, brings it up with its MTU, and starts to carry packets. Device, sockets and threads,
    /// including those of later calls, belong to the network namespace of the calling thread.
    /// # Errors
    /// [`DatapathError::Kernel`] if the device cannot be created or the anchor's port is in use.
    pub fn new(setup: &Setup, sink: EventSink) -> Result<User, DatapathError> {
        let kernel = |what| move |source| DatapathError::Kernel { what, source };
        let anchor = match setup.role {
            Role::Host => Vec::new(),
            Role::Anchor => anchor_sockets(setup)?,
        };
        let tun = Arc::new(tun::open(setup)?);
        let tun_ifindex = tun.if_index().map_err(kernel("reading the TUN device's index"))?;
        let paths = setup.max_paths as usize;
        let core = Core {
            paths: vec![None; paths],
            vias: vec![None; paths],
            inner: HashMap::new(),
            reach: Reach::EVERYTHING,
            pools: Vec::new(),
            flows: FlowTable::new(setup.max_flows),
            shares: Shares::default(),
            misses: Misses::new(setup.role),
            upmt: upmt::UpmtPaths::default(),
        };
        let wake = || tun::Wake::new().map_err(kernel("making an event descriptor"));
        let shared = Arc::new(Shared {
            role: setup.role,
            tun_mtu: setup.tun_mtu as usize,
            sink,
            core: Mutex::new(core),
            drops: Drops::default(),
            stop: AtomicBool::new(false),
            wake_egress: wake()?,
            wake_ingress: wake()?,
            anchor,
            opened: Mutex::default(),
            waiting: Mutex::default(),
        });
        let (setup, threads, ended) = (setup.clone(), Vec::new(), Arc::default());
        let mut user = User { shared, tun, tun_ifindex, setup, threads, ended };
        user.start("segue-egress", egress::run).map_err(kernel("starting a thread"))?;
        user.start("segue-ingress", ingress::run).map_err(kernel("starting a thread"))?;
        Ok(user)
    }

    fn start(
        &mut self,
        name: &'static str,
        body: fn(&Shared, RawFd) -> Result<(), &'static str>,
    ) -> std::io::Result<()> {
        let (shared, tun, ended) = (self.shared.clone(), self.tun.clone(), self.ended.clone());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            if let Err(why) = body(&shared, tun.as_raw_fd()) {
                *lock(&ended) = Some(why);
            }
        })?;
        self.threads.push((name, thread));
        Ok(())
    }

    fn check(&self, slot: u32) -> Result<(), DatapathError> {
        let max = self.setup.max_paths;
        if slot < max { Ok(()) } else { Err(DatapathError::Slot { slot, max }) }
    }

    /// The sockets of a path: at an anchor the shared ones; at a host one socket, shared by paths with the same
    /// address and interface.
    fn path_sockets(&self, config: &PathSetup) -> Result<Vec<Arc<Socket>>, DatapathError> {
        if self.setup.role == Role::Anchor {
            return Ok(self.shared.anchor.clone());
        }
        let v6 = config.remote.or(config.local).is_some_and(|address| address.is_ipv6());
        let any =
            if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut bound = config.local.unwrap_or(SocketAddr::new(any, 0));
        bound.set_port(self.setup.port);
        let mut opened = lock(&self.shared.opened);
        opened.retain(|socket| socket.strong_count() > 0);
        let mut known = opened.iter().filter_map(Weak::upgrade);
        if let Some(socket) = known.find(|socket| socket.serves(bound, config.ifindex)) {
            return Ok(vec![socket]);
        }
        let socket = Socket::open(bound, config.ifindex, self.setup.mark)
            .map_err(|source| DatapathError::Kernel { what: "opening a path's socket", source })?;
        let socket = Arc::new(socket);
        opened.push(Arc::downgrade(&socket));
        Ok(vec![socket])
    }
}

/// One socket on all addresses for each family that the kernel supports.
fn anchor_sockets(setup: &Setup) -> Result<Vec<Arc<Socket>>, DatapathError> {
    let open = |any: IpAddr| Socket::open(SocketAddr::new(any, setup.port), 0, setup.mark);
    let what = "opening the tunnel port";
    let v4 = open(Ipv4Addr::UNSPECIFIED.into())
        .map_err(|source| DatapathError::Kernel { what, source })?;
    let mut sockets = vec![Arc::new(v4)];
    match open(Ipv6Addr::UNSPECIFIED.into()) {
        Ok(v6) => sockets.push(Arc::new(v6)),
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            tracing::info!("this kernel has no IPv6, the anchor receives over IPv4 only");
        }
        Err(source) => return Err(DatapathError::Kernel { what, source }),
    }
    Ok(sockets)
}

/// The initial destination of a path: at a host as configured; at an anchor as learned, or else as configured.
fn endpoint(role: Role, config: &PathSetup, learned: Endpoint) -> Endpoint {
    if role == Role::Anchor && learned.remote.is_some() {
        return learned;
    }
    // A host's socket is bound to its address.
    let local = config.local.filter(|_| role == Role::Anchor).map(|local| local.ip());
    Endpoint { remote: config.remote, local, ifindex: 0 }
}

impl Datapath for User {
    type Error = DatapathError;
    type Packet = MissPacket;

    /// This datapath ends with its process, so no stale program can swallow packets. The heartbeat only drops
    /// packets that have waited too long for a decision.
    fn heartbeat(&mut self) {
        let given_up = lock(&self.shared.core).misses.purge(monotonic());
        self.shared.drops.add(DropReason::NoRemote, given_up);
    }

    fn set_path(&mut self, slot: u32, config: &PathSetup) -> Result<(), DatapathError> {
        self.check(slot)?;
        let sockets = self.path_sockets(config)?;
        let role = self.setup.role;
        let mut core = lock(&self.shared.core);
        let cookies = |c: &PathSetup| (c.tx_cookie, c.rx_cookie);
        let kept = core.path(slot).filter(|old| cookies(&old.config) == cookies(config));
        let is_kept = kept.is_some();
        let state = kept.map_or_else(Arc::<State>::default, |old| old.state.clone());
        {
            let mut current = lock(&state.endpoint);
            *current = endpoint(role, config, *current);
        }
        core.upmt.set(slot, config, is_kept);
        let path = Path { slot, config: config.clone(), sockets, state };
        core.paths[slot as usize] = Some(Arc::new(path));
        drop(core);
        self.shared.wake_ingress.wake();
        Ok(())
    }

    fn remove_path(&mut self, slot: u32) {
        if self.check(slot).is_err() {
            return;
        }
        let mut core = lock(&self.shared.core);
        core.paths[slot as usize] = None;
        core.vias[slot as usize] = None;
        core.upmt.remove(slot);
        drop(core);
        self.shared.wake_ingress.wake();
    }

    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), DatapathError> {
        self.check(slot)?;
        via.map_or(Ok(()), |via| self.check(via.slot))?;
        lock(&self.shared.core).vias[slot as usize] = via;
        Ok(())
    }

    fn reinject(&mut self, order: Reinjection) -> usize {
        egress::reinject(&self.shared, order)
    }

    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), DatapathError> {
        lock(&self.shared.core).set_inner(address, owner)
    }

    fn remove_inner(&mut self, address: IpAddr) {
        lock(&self.shared.core).remove_inner(address);
    }

    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), DatapathError> {
        self.check(slot)?;
        let mut core = lock(&self.shared.core);
        let path = core.path(slot).ok_or(DatapathError::NoPath { slot })?;
        let (bound, owner) = (path.bound(), path.config.owner);
        if self.setup.role == Role::Anchor && core.inner.get(&key.dst) != Some(&owner) {
            return Err(DatapathError::Owner { address: key.dst, slot });
        }
        core.flows.bind(key, bound, monotonic());
        Ok(())
    }

    fn unbind_flow(&mut self, key: &FlowKey) {
        lock(&self.shared.core).flows.unbind(key);
    }

    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount> {
        lock(&self.shared.core).flows.count(key)
    }

    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), DatapathError> {
        for order in orders {
            self.check(order.slot)?;
        }
        let path = |slot| {
            let core = lock(&self.shared.core);
            let path = core.path(slot).cloned();
            if self.setup.role == Role::Host {
                path.iter().for_each(|path| upmt::address_requests(&core, path));
            }
            path
        };
        for order in orders.iter().filter(|order| order.kind != ProbeKind::Response) {
            match path(order.slot) {
                Some(path) => probes::send_order(&path, order, &self.shared.drops),
                None => self.shared.drops.add(DropReason::NoRemote, 1),
            }
        }
        Ok(())
    }

    fn test_size(&mut self, slot: u32, test: Size, dscp: u8) {
        let path = lock(&self.shared.core).path(slot).cloned();
        path.iter().for_each(|path| probes::send_size(path, test, dscp << 2));
    }

    fn set_heard(&mut self, slots: &[u32], heard: u16) {
        let core = lock(&self.shared.core);
        let paths: Vec<Arc<Path>> = slots.iter().filter_map(|s| core.path(*s).cloned()).collect();
        drop(core);
        for path in paths {
            lock(&path.state.tx).heard = Some(heard);
        }
    }

    fn set_one_by_one(&mut self, slot: u32) {
        if let Some(path) = lock(&self.shared.core).path(slot) {
            path.state.one_by_one.store(true, Ordering::Relaxed);
        }
    }

    /// Counts of the packets sent on a path with rides; without measurements, because the daemon sees every probe.
    fn reading(&mut self, slot: u32) -> Option<Reading> {
        let path = lock(&self.shared.core).path(slot).cloned();
        path?.reading()
    }

    fn sweep(&mut self, now: Time) -> Option<Time> {
        rides::sweep(&self.shared.core, &self.shared.waiting, &self.shared.drops, now)
    }

    fn inject(&mut self, packet: MissPacket) {
        egress::inject(&self.shared, packet);
    }

    fn refuse(&mut self, packet: MissPacket) {
        let refused = lock(&self.shared.core).misses.refuse(&packet.key, monotonic());
        self.shared.drops.add(DropReason::NoRemote, refused);
    }

    fn is_set(&self, slot: u32) -> bool {
        lock(&self.shared.core).path(slot).is_some()
    }

    fn counters(&mut self, slot: u32) -> PathCounters {
        let path = lock(&self.shared.core).path(slot).cloned();
        path.map(|path| path.counters()).unwrap_or_default()
    }
}

impl LinuxDatapath for User {
    fn flow_page(&mut self, from: FlowCursor, owner: Option<u32>) -> FlowPage {
        let core = lock(&self.shared.core);
        core.flows.page(from, |bound| {
            core.path(bound.slot).is_some_and(|path| {
                path.bound() == bound && owner.is_none_or(|owner| owner == path.config.owner)
            })
        })
    }

    fn kind(&self) -> Kind {
        Kind::User
    }

    fn tun_ifindex(&self) -> u32 {
        self.tun_ifindex
    }

    /// Does nothing: sockets receive on every interface that has their addresses.
    fn attach(&mut self, _ifindex: u32) -> Result<(), DatapathError> {
        Ok(())
    }

    fn detach(&mut self, _ifindex: u32) {}

    fn set_reach(&mut self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError> {
        let mut core = lock(&self.shared.core);
        (core.reach, core.pools) = (reach, pools.to_vec());
        Ok(())
    }

    fn drops(&mut self) -> BTreeMap<DropReason, u64> {
        self.shared.drops.counts()
    }

    fn carries(&self) -> Result<(), DatapathError> {
        let over = self.threads.iter().find(|(_, thread)| thread.is_finished());
        over.map_or(Ok(()), |(thread, _)| {
            let why = (*lock(&self.ended)).unwrap_or("it panicked").into();
            Err(DatapathError::Ended { thread, why })
        })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake_egress.wake();
        self.shared.wake_ingress.wake();
        for (_, thread) in self.threads.drain(..) {
            // An event sink may hold the last reference, and a thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
