//! State shared by the threads and the owner of the datapath.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use segue_ip::Prefix;
use segue_wire::FlowKey;

use super::flows::FlowTable;
use super::path::Path;
use super::rides::Waiting;
use super::share::Shares;
use super::socket::Socket;
use super::{tun, upmt};
use crate::drops::Drops;
use crate::misses::Misses;
use crate::sync::lock;
use crate::{DatapathError, EventSink, Reach, Role, Via};

/// Most inner addresses.
const MAX_INNER: usize = 1 << 20;

/// State shared by the threads and the owner.
pub(super) struct Shared {
    pub(super) role: Role,
    /// MTU of the TUN device in bytes.
    pub(super) tun_mtu: usize,
    pub(super) sink: EventSink,
    pub(super) core: Mutex<Core>,
    pub(super) drops: Drops,
    pub(super) stop: AtomicBool,
    pub(super) wake_egress: tun::Wake,
    pub(super) wake_ingress: tun::Wake,
    /// An anchor's sockets; empty at a host, whose sockets belong to its paths.
    pub(super) anchor: Vec<Arc<Socket>>,
    /// Sockets of paths, including those about to be closed, which a new path can take over.
    pub(super) opened: Mutex<Vec<Weak<Socket>>>,
    /// Responses that wait for a ride.
    pub(super) waiting: Waiting,
}

/// The tables.
pub(super) struct Core {
    pub(super) paths: Vec<Option<Arc<Path>>>,
    pub(super) vias: Vec<Option<Via>>,
    pub(super) inner: HashMap<IpAddr, u32>,
    pub(super) reach: Reach,
    pub(super) pools: Vec<Prefix>,
    pub(super) flows: FlowTable,
    pub(super) shares: Shares,
    pub(super) misses: Misses,
    /// Identifies the paths of packets without an index.
    pub(super) upmt: upmt::UpmtPaths,
}

impl Core {
    pub(super) fn path(&self, slot: u32) -> Option<&Arc<Path>> {
        self.paths.get(slot as usize)?.as_ref()
    }

    /// Sets the owner of an address. The address keeps its used flow quota, even if its host changes.
    pub(super) fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), DatapathError> {
        if self.inner.len() >= MAX_INNER && !self.inner.contains_key(&address) {
            return Err(DatapathError::Full { what: "inner address" });
        }
        self.inner.insert(address, owner);
        Ok(())
    }

    pub(super) fn remove_inner(&mut self, address: IpAddr) {
        self.inner.remove(&address);
    }

    /// True if the anchor's settings permit a host to begin a flow. A pool address without a host is treated like
    /// another host's: the flow would still exist once a host gets the address.
    pub(super) fn may_begin(&self, key: &FlowKey) -> bool {
        let owner = self.inner.get(&key.dst).copied();
        let of_pool = self.pools.iter().any(|pool| pool.contains(key.dst));
        self.reach.allows(owner, of_pool, key.protocol)
    }
}

impl Shared {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The sockets to receive on.
    pub(super) fn sockets(&self) -> Vec<Arc<Socket>> {
        let mut sockets = self.anchor.clone();
        let core = lock(&self.core);
        for socket in core.paths.iter().flatten().flat_map(|path| &path.sockets) {
            if !sockets.iter().any(|known| Arc::ptr_eq(known, socket)) {
                sockets.push(socket.clone());
            }
        }
        sockets
    }
}
