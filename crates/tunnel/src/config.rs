//! What the operator sets, validated before a machine sees it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Aims, Config as Keepalive, MeasuredBy};
use segue_wire::Encapsulation;

use crate::Pool;

/// Minimum time between two messages that ask the other end to send one by one: packets already under way are not cut
/// yet.
pub(crate) const UNCUT_PAUSE: Span = Span::from_secs(1);

/// Minimum time between two messages that tell a host what routers say of one of its paths.
pub(crate) const TOO_BIG_PAUSE: Span = Span::from_millis(100);

/// Settings of a mobile host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Where the anchor answers, in order of preference; the port is that of the tunnels.
    pub anchor: Vec<SocketAddr>,
    /// Grows with every start of the host. If it has not, the anchor tells the host the epoch to continue from.
    pub epoch: u64,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Settings of paths without settings of their own.
    pub path: PathConfig,
    /// Settings by interface name.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows are classed and moved.
    pub steering: segue_steering::Config,
    /// Whether the packet path measures by itself.
    pub measured_by: MeasuredBy,
    /// The largest packet that its tunnel device takes, in bytes; `None` without a limit.
    pub largest: Option<u16>,
}

/// Settings of a path.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// K, T_KA, averages.
    pub keepalive: Keepalive,
    /// Whether the path is probed. An unprobed path counts as up once an answer has come.
    pub enabled: bool,
    /// What K and T_KA follow while it is in use; `None` leaves them as configured.
    pub adaptive: Option<Aims>,
    /// Relative price per byte, 0 for free.
    pub price: f64,
    /// Added to the path's score.
    pub preference: f64,
    /// Form of the path's packets.
    pub encapsulation: Encapsulation,
    /// Outer source address; `None` chooses among the interface's own. Where the interface lacks it there is no path of
    /// its family.
    pub source: Option<IpAddr>,
}

/// Settings of an anchor.
#[derive(Clone, Debug)]
pub struct AnchorConfig {
    /// Port of the tunnels, told to hosts.
    pub port: u16,
    /// Inner IPv4 addresses to give away.
    pub pool_v4: Option<Pool>,
    /// Inner IPv6 addresses to give away.
    pub pool_v6: Option<Pool>,
    /// Most paths of all hosts together.
    pub max_paths: u32,
    /// A host without a live path and without signalling for this long is forgotten; its addresses
    /// stay its own.
    pub expiry: Span,
    /// How long the addresses of a removed host are withheld from other hosts: its packets may still be on their way,
    /// and others may still send to it.
    pub rest: Span,
    /// Addresses that rest from before, and until when.
    pub resting: Vec<(IpAddr, Time)>,
    /// Whether the packet path measures by itself.
    pub measured_by: MeasuredBy,
    /// The largest packet that its tunnel device takes, in bytes, reported to hosts; `None` without a limit.
    pub largest: Option<u16>,
    /// Whether a host may have paths with the packets of [`Encapsulation::Upmt`], which no cookie
    /// protects; it gets [`Encapsulation::Segue`] otherwise.
    pub allow_upmt: bool,
}

/// What outlives a restart of the anchor, per host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The host's enrolled name.
    pub name: String,
    /// Its last epoch.
    pub epoch: u64,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
}
