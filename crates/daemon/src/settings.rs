//! What daemons need to know, validated: configuration makes it, daemons take it, and neither imports the other.

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
    /// The interfaces to use; all that fit the role if empty.
    pub interfaces: Vec<String>,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it, beside root.
    pub control_group: Option<Gid>,
    /// Where to serve metrics; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// The log of its events; `None` for none.
    pub history: Option<History>,
}

/// The log of a daemon's events.
#[derive(Clone, Debug)]
pub struct History {
    /// Its newer file.
    pub path: PathBuf,
    /// How long an event is kept at least, unless the log is too large.
    pub keep: Span,
    /// Largest size of both files.
    pub bytes: u64,
}

impl Common {
    /// All usual, with this control socket.
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

/// Settings of what is below an end of tunnels.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// Name of the tunnel device.
    pub device: String,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Which datapath.
    pub datapath: Choice,
    /// Run before ordinary threads where the system allows it.
    pub realtime: bool,
}

impl Tunnel {
    /// What the datapath of a role needs to know, for at most so many paths and flows.
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
    /// Which datapath.
    pub datapath: Choice,
    /// Most tunnels.
    pub tunnels: u32,
    /// Flows are told apart by their flow labels also where they have ports.
    pub labels: bool,
}

/// Servers that know hosts, and how they are asked.
#[derive(Clone, Debug)]
pub struct Radius {
    /// The servers, the first choice first.
    pub servers: Vec<RadiusServer>,
    /// How requests are worded.
    pub profile: AaaProfile,
    /// A gateway calls hosts by the interface identifiers of their link-layer addresses.
    pub eui64: bool,
    /// What this daemon is called there.
    pub identifier: Option<String>,
    /// File of the password of a gateway's requests.
    pub password_file: Option<PathBuf>,
    /// How long a server has for an answer, and how often it is asked.
    pub patience: Backoff,
    /// How long a server that was silent is passed over.
    pub dead_time: Span,
    /// How long nobody is asked again about a host that was refused, or had no answer.
    pub hold_off: Span,
    /// Which answers must have a Message-Authenticator.
    pub require_message_authenticator: Signed,
    /// Time between interim updates.
    pub interim: Option<Span>,
}

/// A server that knows hosts.
#[derive(Clone, Debug)]
pub struct RadiusServer {
    /// Its address.
    pub address: IpAddr,
    /// File of what it shares with this daemon.
    pub secret_file: PathBuf,
    /// The port where it is asked about hosts.
    pub authentication: Option<u16>,
    /// The port where it is told what they were served.
    pub accounting: Option<u16>,
}

/// Everything that a local mobility anchor's daemon needs to know, validated.
#[derive(Debug)]
pub struct Lma {
    /// Settings of every daemon. If no interface is named, packets of tunnels come over all that carry packets.
    pub common: Common,
    /// Its tunnels.
    pub relay: Relay,
    /// File of its bindings.
    pub state: PathBuf,
    /// How long a flow of which nothing comes is remembered.
    pub flow_idle: Span,
    /// Socket of whoever decides where flows go.
    pub decisions: Option<PathBuf>,
    /// Functions of IEEE 802.21 that tell which hosts are about to leave.
    pub mih: Option<MihfConfig>,
    /// Servers that are asked which hosts may be registered.
    pub radius: Option<Radius>,
    /// Its machine, but for what each start has of its own.
    pub machine: LmaConfig,
}

impl Lma {
    /// Whether anybody looks at how good links are.
    #[must_use]
    pub fn wants_quality(&self) -> bool {
        self.machine.schedule == segue_pmip::Schedule::Quality || self.decisions.is_some()
    }
}

/// Everything that a mobile access gateway's daemon needs to know, validated.
#[derive(Debug)]
pub struct Mag {
    /// Settings of every daemon. If no interface is named, packets of tunnels come over all that are no accesses.
    pub common: Common,
    /// Its tunnels.
    pub relay: Relay,
    /// File of its hosts.
    pub state: PathBuf,
    /// Give accesses the link-layer address of RFC 6543.
    pub fixed_mac: bool,
    /// Accesses whose hosts a function of IEEE 802.21 tells of, and what their links are called there; if that is not said, by
    /// the interfaces' own addresses.
    pub mih_links: BTreeMap<String, Option<LinkAddress>>,
    /// How that function is found, if there are such accesses.
    pub mih: Option<MihfConfig>,
    /// Servers that say who hosts are.
    pub radius: Option<Radius>,
    /// Its machine, but for what each start has of its own.
    pub machine: MagConfig,
}

/// Everything that a daemon of IEEE 802.21 needs to know, validated.
#[derive(Debug)]
pub struct Mih {
    /// Settings of every daemon. Its interfaces do not matter.
    pub common: Common,
    /// Links of a service access point: where each is, and who tells of it.
    pub links: Vec<MihLink>,
    /// Its machine, but for its links and what each start has of its own.
    pub machine: MihfConfig,
}

/// A link of a service access point.
#[derive(Clone, Debug)]
pub struct MihLink {
    /// Its interface.
    pub interface: String,
    /// Its kind.
    pub link_type: LinkType,
    /// What it is called; the interface's own address if that is not said.
    pub address: Option<LinkAddress>,
    /// Who tells of its stations.
    pub source: MihSource,
    /// When the end of an attachment is foretold.
    pub forecasting: Option<Forecasting>,
    /// Whether it does what peers order (Link_Actions).
    pub orders: bool,
}

/// Who tells of the stations of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihSource {
    /// The wire: its carrier, and whatever a station sends.
    Wire,
    /// hostapd, over this control socket.
    Hostapd(PathBuf),
    /// The kernel's Wi-Fi.
    Nl80211,
    /// The radios of a test network, over this socket.
    Lab(PathBuf),
}

/// Everything that a host daemon needs to know, validated.
#[derive(Debug)]
pub struct Host {
    /// Settings of every daemon. If no interface is named, all that reach the anchor are used.
    pub common: Common,
    /// Its tunnels.
    pub tunnel: Tunnel,
    /// The join line, if one is given. Without one, or with a used one, the stored state identifies
    /// the host.
    pub join: Option<Join>,
    /// File of the host's state.
    pub state: PathBuf,
    /// MTU of the tunnel device; if `None`, it is fitted to the outer families.
    pub mtu: Option<u32>,
    /// Destinations sent through the tunnel; `None` for everything that the anchor can route
    /// onwards.
    pub routes: Option<Vec<Prefix>>,
    /// Traffic to `routes` leaves only through the tunnel.
    pub fail_closed: bool,
    /// Priority of the first routing rule; `None` lets other programs' tunnels go first.
    pub priority: Option<u32>,
    /// Name servers that resolve the anchor's name; the system's if empty.
    pub nameservers: Vec<IpAddr>,
    /// Settings of paths.
    pub path: PathConfig,
    /// Settings by interface.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows are classed and moved.
    pub steering: segue_steering::Config,
}

/// Everything that an anchor daemon needs to know, validated.
#[derive(Debug)]
pub struct Anchor {
    /// Settings of every daemon. If no interface is named, all that carry packets are used.
    pub common: Common,
    /// Its tunnels.
    pub tunnel: Tunnel,
    /// MTU of the tunnel device in bytes.
    pub mtu: u32,
    /// UDP port of the signalling.
    pub signal_port: u16,
    /// Addresses that join lines name; the anchor's own if empty.
    pub addresses: Vec<Locator>,
    /// Inner IPv4 addresses to assign.
    pub pool_v4: Option<Pool>,
    /// Inner IPv6 addresses to assign.
    pub pool_v6: Option<Pool>,
    /// Most paths of all hosts.
    pub max_paths: u32,
    /// Whether hosts may have paths that use UPMT's packets.
    pub allow_upmt: bool,
    /// What hosts may reach.
    pub reach: Reach,
    /// Translate the pools if outside networks have no route to them.
    pub nat: bool,
    /// How to answer STAMP; `None` for not at all.
    pub stamp: Option<Stamp>,
    /// How long a silent host keeps its registration.
    pub expiry: Span,
    /// How long a host's certificate is good.
    pub certificate_lifetime: Duration,
    /// File of the store.
    pub state: PathBuf,
}

/// How an anchor answers STAMP.
#[derive(Debug)]
pub struct Stamp {
    /// UDP port.
    pub port: u16,
    /// Answers authenticated requests, and no others.
    pub key: Option<StampKey>,
}
