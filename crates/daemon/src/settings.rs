//! Validated settings of the daemons. The configuration produces them and the daemons take them; neither imports the
//! other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Gid;
use segue_aaa::{AaaProfile, Signed};
use segue_clock::Span;
use segue_datapath::{Reach, Role, Setup};
use segue_ip::Prefix;
use segue_mih::{Forecasting, MihfConfig};
use segue_mobility::Backoff;
use segue_pmip::{LmaConfig, MagConfig};
use segue_tunnel::{PathConfig, Pool};
use segue_wire::mih::codes::LinkType;
use segue_wire::mih::identity::LinkAddress;
use segue_wire::stamp::StampKey;

use crate::identity::Join;
use crate::locator::Locator;
use crate::packets::MARK;

/// Which datapath the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// eBPF where it is available, else user space.
    Auto,
    /// eBPF, or fail.
    Ebpf,
    /// User space.
    User,
}

/// Settings of every daemon, validated.
#[derive(Clone, Debug)]
pub struct Common {
    /// The interfaces to use; if empty, all that fit the role.
    pub interfaces: Vec<String>,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it, in addition to root.
    pub control_group: Option<Gid>,
    /// Where to serve metrics; `None` serves none.
    pub metrics: Option<SocketAddr>,
    /// The event log; `None` writes none.
    pub history: Option<History>,
}

/// The event log of a daemon.
#[derive(Clone, Debug)]
pub struct History {
    /// The newer of its two files.
    pub path: PathBuf,
    /// How long an event is kept at least, unless the log grows too large.
    pub keep: Span,
    /// Largest total size of both files, in bytes.
    pub bytes: u64,
}

impl Common {
    /// The defaults, with this control socket.
    #[must_use]
    pub fn at(control: PathBuf) -> Common {
        Common {
            interfaces: Vec::new(),
            control,
            control_group: None,
            metrics: None,
            history: None,
        }
    }
}

/// Settings of the layer below an end of tunnels.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// Name of the tunnel device.
    pub device: String,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Which datapath to use.
    pub datapath: Choice,
    /// Use real-time scheduling where the system allows it.
    pub realtime: bool,
}

impl Tunnel {
    /// The setup of a role's datapath, with bounds on paths and flows.
    #[must_use]
    pub fn setup(&self, role: Role, mtu: u32, (max_paths, max_flows): (u32, u32)) -> Setup {
        let (tun_name, port) = (self.device.clone(), self.port);
        Setup { tun_name, tun_mtu: mtu, port, role, max_paths, max_flows, mark: MARK }
    }
}

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Name of its device.
    pub device: String,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Which datapath to use.
    pub datapath: Choice,
    /// Most tunnels.
    pub tunnels: u32,
    /// Distinguish flows by their flow labels even if they have ports.
    pub labels: bool,
}

/// RADIUS servers that know hosts, and how to query them.
#[derive(Clone, Debug)]
pub struct Radius {
    /// The servers, in order of preference.
    pub servers: Vec<RadiusServer>,
    /// Which attributes requests carry.
    pub profile: AaaProfile,
    /// A gateway names hosts by the interface identifiers derived from their link-layer addresses (EUI-64).
    pub eui64: bool,
    /// The NAS-Identifier of this daemon.
    pub identifier: Option<String>,
    /// File of the password in a gateway's requests.
    pub password_file: Option<PathBuf>,
    /// Timeout and number of transmissions of a request.
    pub patience: Backoff,
    /// How long a server that did not answer is skipped.
    pub dead_time: Span,
    /// How long no server is asked again about a host that was refused, or had no answer.
    pub hold_off: Span,
    /// Which answers must have a Message-Authenticator.
    pub require_message_authenticator: Signed,
    /// Time between interim updates.
    pub interim: Option<Span>,
}

/// A RADIUS server.
#[derive(Clone, Debug)]
pub struct RadiusServer {
    /// Its address.
    pub address: IpAddr,
    /// File of the secret that it shares with this daemon.
    pub secret_file: PathBuf,
    /// Its authentication port, if it does authentication.
    pub authentication: Option<u16>,
    /// Its accounting port, if it does accounting.
    pub accounting: Option<u16>,
}

/// Settings of a local mobility anchor, validated.
#[derive(Debug)]
pub struct Lma {
    /// Settings of every daemon. If no interface is named, tunnel packets are accepted on every interface that carries
    /// packets.
    pub common: Common,
    /// Its tunnels.
    pub relay: Relay,
    /// File of its bindings.
    pub state: PathBuf,
    /// Socket for a decision entity, which places flows.
    pub decisions: Option<PathBuf>,
    /// IEEE 802.21 functions that announce which hosts are about to leave.
    pub mih: Option<MihfConfig>,
    /// Servers that are asked which hosts may register.
    pub radius: Option<Radius>,
    /// Machine settings, except those set at each start.
    pub machine: LmaConfig,
}

impl Lma {
    /// Returns whether the quality of links is used.
    #[must_use]
    pub fn wants_quality(&self) -> bool {
        self.machine.schedule == segue_pmip::Schedule::Quality || self.decisions.is_some()
    }
}

/// Settings of a mobile access gateway, validated.
#[derive(Debug)]
pub struct Mag {
    /// Settings of every daemon. If no interface is named, tunnel packets are accepted on every interface that is not
    /// an access.
    pub common: Common,
    /// Its tunnels.
    pub relay: Relay,
    /// File of its hosts.
    pub state: PathBuf,
    /// Give accesses the link-layer address of RFC 6543.
    pub fixed_mac: bool,
    /// Accesses whose hosts an IEEE 802.21 function reports, each with the address of its link there; `None` for the
    /// interface's own address.
    pub mih_links: BTreeMap<String, Option<LinkAddress>>,
    /// The connection to that function, if there are such accesses.
    pub mih: Option<MihfConfig>,
    /// Servers that identify hosts.
    pub radius: Option<Radius>,
    /// Machine settings, except those set at each start.
    pub machine: MagConfig,
}

/// Settings of an IEEE 802.21 daemon, validated.
#[derive(Debug)]
pub struct Mih {
    /// Settings of every daemon. The list of interfaces is unused.
    pub common: Common,
    /// The links of a link service access point, each with its source of events.
    pub links: Vec<MihLink>,
    /// Machine settings, except the links and the settings made at each start.
    pub machine: MihfConfig,
}

/// A link of a link service access point.
#[derive(Clone, Debug)]
pub struct MihLink {
    /// Its interface.
    pub interface: String,
    /// Its kind.
    pub link_type: LinkType,
    /// Its address in IEEE 802.21; `None` for the interface's own address.
    pub address: Option<LinkAddress>,
    /// The source of events about its stations.
    pub source: MihSource,
    /// When to predict the end of an attachment.
    pub forecasting: Option<Forecasting>,
    /// Carry out actions that peers request (Link_Actions).
    pub orders: bool,
}

/// The source of events about the stations of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihSource {
    /// The wire: its carrier, and any packet that a station sends.
    Wire,
    /// hostapd, over this control socket.
    Hostapd(PathBuf),
    /// The kernel's Wi-Fi (nl80211).
    Nl80211,
    /// The radios of a test network, over this socket.
    Lab(PathBuf),
}

/// Settings of a host, validated.
#[derive(Debug)]
pub struct Host {
    /// Settings of every daemon. If no interface is named, all that reach the anchor are used.
    pub common: Common,
    /// Its tunnels.
    pub tunnel: Tunnel,
    /// The join line, if one is given. Without one, or with one already used, the stored state identifies the host.
    pub join: Option<Join>,
    /// File of the host's state.
    pub state: PathBuf,
    /// MTU of the tunnel device in bytes; `None` fits it to the outer address families.
    pub mtu: Option<u32>,
    /// Destinations sent through the tunnel; `None` for everything that the anchor can route onwards.
    pub routes: Option<Vec<Prefix>>,
    /// Traffic to `routes` leaves only through the tunnel.
    pub fail_closed: bool,
    /// Priority of the first routing rule; `None` lets the tunnels of other programs go first.
    pub priority: Option<u32>,
    /// Name servers that resolve the anchor's name; the system's if empty.
    pub nameservers: Vec<IpAddr>,
    /// Default settings of paths.
    pub path: PathConfig,
    /// Settings of paths by interface.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows are classified and moved.
    pub steering: segue_steering::Config,
}

/// Settings of an anchor, validated.
#[derive(Debug)]
pub struct Anchor {
    /// Settings of every daemon. If no interface is named, every interface that carries packets is used.
    pub common: Common,
    /// Its tunnels.
    pub tunnel: Tunnel,
    /// MTU of the tunnel device in bytes.
    pub mtu: u32,
    /// UDP port of the signalling.
    pub signal_port: u16,
    /// Addresses that join lines name; if empty, the anchor's own.
    pub addresses: Vec<Locator>,
    /// Inner IPv4 addresses to assign.
    pub pool_v4: Option<Pool>,
    /// Inner IPv6 addresses to assign.
    pub pool_v6: Option<Pool>,
    /// Most paths of all hosts together.
    pub max_paths: u32,
    /// Hosts may have paths with UPMT's packet format.
    pub allow_upmt: bool,
    /// The destinations that hosts may reach.
    pub reach: Reach,
    /// Translate the pools if outside networks have no route to them.
    pub nat: bool,
    /// STAMP reflector settings; `None` disables the reflector.
    pub stamp: Option<Stamp>,
    /// How long a silent host keeps its registration.
    pub expiry: Span,
    /// Lifetime of a host's certificate.
    pub certificate_lifetime: Duration,
    /// File of the store.
    pub state: PathBuf,
}

/// Settings of an anchor's STAMP reflector.
#[derive(Debug)]
pub struct Stamp {
    /// UDP port.
    pub port: u16,
    /// With a key, only authenticated requests are answered.
    pub key: Option<StampKey>,
}
