//! Settings by the operator, validated before a machine sees them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Aims, Config as Keepalive, MeasuredBy};
use segue_wire::Encapsulation;

use crate::Pool;

/// Minimum time between two requests to the peer to send one by one: packets already in flight still arrive
/// unsegmented.
pub(crate) const UNCUT_PAUSE: Span = Span::from_secs(1);

/// Minimum time between two reports of a router's packet size for one path.
pub(crate) const TOO_BIG_PAUSE: Span = Span::from_millis(100);

/// Settings of a mobile host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The anchor's addresses, in order of preference, with the port of the tunnels.
    pub anchor: Vec<SocketAddr>,
    /// Grows with every start of the host. If it did not, the anchor reports the epoch from which to continue.
    pub epoch: u64,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Settings of the paths not listed in `paths`.
    pub path: PathConfig,
    /// Settings of paths by interface name.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows are classified and moved.
    pub steering: Arc<segue_steering::Config>,
    /// The component that measures: the machine or the packet path.
    pub measured_by: MeasuredBy,
    /// The largest packet that the tunnel device takes, in bytes; `None` means no limit.
    pub largest: Option<u16>,
}

impl HostConfig {
    /// The settings of the path over an interface.
    #[must_use]
    pub fn path_of(&self, interface: &str) -> &PathConfig {
        self.paths.get(interface).unwrap_or(&self.path)
    }

    /// Makes [`measured_by`](HostConfig::measured_by) that of all paths. Copies a shared configuration only if this
    /// changes it.
    pub(crate) fn measured_alike(mut self: Arc<HostConfig>) -> Arc<HostConfig> {
        let by = self.measured_by;
        let differs = |path: &PathConfig| path.keepalive.measured_by != by;
        if differs(&self.path) || self.paths.values().any(differs) {
            let config = Arc::make_mut(&mut self);
            config.path.keepalive.measured_by = by;
            config.paths.values_mut().for_each(|path| path.keepalive.measured_by = by);
        }
        self
    }
}

/// Settings of a path.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// K, T_KA and averages.
    pub keepalive: Keepalive,
    /// True if the path is probed. An unprobed path counts as up once an answer has arrived.
    pub enabled: bool,
    /// Goals by which K and T_KA adapt to use; `None` keeps them as configured.
    pub adaptive: Option<Aims>,
    /// Relative price per byte; 0 means free.
    pub price: f64,
    /// Added to the path's score.
    pub preference: f64,
    /// Packet format.
    pub encapsulation: Encapsulation,
    /// Outer source address; `None` chooses among the interface's addresses. If the interface lacks the configured
    /// address, it gets no path of that family.
    pub source: Option<IpAddr>,
}

/// Settings of an anchor.
#[derive(Clone, Debug)]
pub struct AnchorConfig {
    /// Port of the tunnels, reported to hosts.
    pub port: u16,
    /// Inner IPv4 addresses for hosts.
    pub pool_v4: Option<Pool>,
    /// Inner IPv6 addresses for hosts.
    pub pool_v6: Option<Pool>,
    /// Maximum number of paths of all hosts together.
    pub max_paths: u32,
    /// A host is forgotten after this long without a live path and without signalling; its addresses stay reserved for
    /// it.
    pub expiry: Span,
    /// How long the addresses of a removed host are withheld from other hosts: its packets may still be in flight, and
    /// peers may still send to it.
    pub rest: Span,
    /// Addresses withheld since an earlier start, and until when.
    pub resting: Vec<(IpAddr, Time)>,
    /// The component that measures: the machine or the packet path.
    pub measured_by: MeasuredBy,
    /// The largest packet that the tunnel device takes, in bytes, reported to hosts; `None` means no limit.
    pub largest: Option<u16>,
    /// True if hosts may use [`Encapsulation::Upmt`], whose packets no cookie protects; otherwise they get
    /// [`Encapsulation::Segue`].
    pub allow_upmt: bool,
}

/// The record of a host that survives a restart of the anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The host's enrolled name.
    pub name: String,
    /// Its last epoch.
    pub epoch: u64,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
}
