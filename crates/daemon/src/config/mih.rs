//! Configuration files of the IEEE 802.21 daemons, and the `[mih]` table of daemons that subscribe to link events.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_grammar::values::{H, S};
use segue_grammar::{Config, Duration, Flag, PrefixText, TechnologyKey, Within, joined};
use segue_ip::Prefix;
use segue_mih::{Forecasting, Interest, MihfConfig, Remote, Transport};
use segue_wire::mih::codes::EventList;
use segue_wire::mih::identity::LinkAddress;
use serde::{Deserialize, Serialize};

use super::groups::{DaemonKeys, InterfaceName};
use crate::mih::source::mac_of;
use crate::settings::{Mih, MihLink, MihSource};

joined! {
    /// The keys of a function's file.
    MihFunctionFile {
        own: FunctionKeys,
        daemon: DaemonKeys,
    }
}

joined! {
    /// The keys of a link service access point's file.
    MihLinkSapFile {
        mih: MihKeys,
        own: LinkSapKeys,
        daemon: DaemonKeys,
    }
}

/// A function's own keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionKeys {
    /// Its MIH function identifier
    #[schemars(extend("x-rfc" = "MIHF ID", "x-unset" = "`mihf@` and this machine's name"))]
    name: Option<String>,
    /// Peers that may register, by address or prefix, in addition to this machine
    #[serde(skip_serializing)]
    peers: Vec<PrefixText>,
    /// Validity of a registration; it is renewed after half of that
    validity: Duration<{ 20 * S }, { 4 * S }, { 24 * H }>,
}

/// The links of a link service access point.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSapKeys {
    /// The links to report, at least one
    #[serde(skip_serializing)]
    link: Vec<LinkKeys>,
}

/// The keys of a `[[link]]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkKeys {
    /// Its interface
    interface: InterfaceName,
    /// Access technology
    #[serde(default)]
    technology: TechnologyKey,
    /// [Source of events](mih.md#sources) about its stations
    #[serde(default)]
    source: SourceKey,
    /// Socket of hostapd, or of the test network
    #[schemars(extend("x-value" = "path", "x-unset" = "`/run/hostapd/` and the interface"))]
    socket: Option<PathBuf>,
    /// The address by which others identify it, such as `"02:00:00:00:00:01"`
    #[schemars(extend("x-unset" = "the interface's"))]
    address: Option<String>,
    /// Report when an attachment is [about to end](mih.md#going-down), judged by its signal
    #[serde(default)]
    foretell: Flag<true>,
    /// Signal below which the attachment ends, in dBm
    #[serde(default)]
    lost_dbm: Within<{ Forecasting::USUAL.lost_dbm as i64 }, -120, -20>,
    /// Execute commands of the function's peers: send a station away, go down, come up
    #[serde(default)]
    orders: bool,
}

/// The connection to functions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MihKeys {
    /// Functions that report links; at a link SAP, those that it reports to
    functions: Functions,
    /// Transport of frames
    transport: TransportKey,
    /// MIH function identifier of this daemon, which must be unique
    #[schemars(extend("x-rfc" = "MIHF ID", "x-unset" = "the role, its instance and this machine's name"))]
    name: Option<String>,
}

/// Addresses of functions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct Functions(Vec<IpAddr>);

impl Default for Functions {
    fn default() -> Functions {
        Functions(vec![Ipv6Addr::LOCALHOST.into()])
    }
}

/// The transport of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum TransportKey {
    /// UDP; each frame is acknowledged.
    #[default]
    Udp,
    /// TCP.
    Tcp,
}

/// The source of events about a link's stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum SourceKey {
    /// The carrier, and any packet of a station.
    #[default]
    Wire,
    /// Hostapd.
    Hostapd,
    /// The kernel's Wi-Fi.
    Nl80211,
    /// A test network.
    Lab,
}

impl Config for MihFunctionFile {}
impl Config for MihLinkSapFile {}

/// A unique default name: the role, its instance, and the machine.
fn usual_name(role: &str, instance: Option<&str>) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let dash = instance.map(|name| format!("-{name}")).unwrap_or_default();
    format!("{role}{dash}@{}", host.trim())
}

fn named(name: Option<String>, role: &str, instance: Option<&str>) -> anyhow::Result<MihfConfig> {
    let name = name.unwrap_or_else(|| usual_name(role, instance));
    if name.is_empty() || name.len() > 253 {
        bail!("name: a MIH function identifier has 1 to 253 characters, not {}", name.len());
    }
    Ok(MihfConfig::new(name.as_str().into()))
}

impl MihKeys {
    /// The functions to connect to.
    fn remotes(&self) -> anyhow::Result<Vec<Remote>> {
        let Functions(all) = &self.functions;
        if all.is_empty() {
            bail!("functions: at least one, such as \"::1\"");
        }
        let unusable = |address: &&IpAddr| address.is_unspecified() || address.is_multicast();
        if let Some(bad) = all.iter().find(unusable) {
            bail!("functions: {bad} is no address of a function");
        }
        let transport = match self.transport {
            TransportKey::Udp => Transport::Udp,
            TransportKey::Tcp => Transport::Tcp,
        };
        Ok(all.iter().map(|address| Remote::new(*address, transport)).collect())
    }
}

/// Parses a link's configured address.
pub(super) fn link_address(key: &str, text: Option<String>) -> anyhow::Result<Option<LinkAddress>> {
    let read = |text: String| {
        let mac = mac_of(&text).with_context(|| {
            format!("{key}: {text:?} is no link-layer address, such as 02:00:00:00:00:01")
        })?;
        super::values::one_station(&text, &mac).with_context(|| key.to_owned())?;
        Ok(LinkAddress::mac(mac))
    };
    text.map(read).transpose()
}

impl MihKeys {
    /// A function that subscribes to these events.
    pub(super) fn listens(
        self,
        (role, instance): (&str, Option<&str>),
        interests: Vec<Interest>,
    ) -> anyhow::Result<MihfConfig> {
        let functions = self.remotes();
        let config = named(self.name, role, instance).context("mih")?;
        let functions = functions.context("mih")?;
        Ok(MihfConfig { functions, interests, ..config })
    }
}

/// An anchor's subscription: to events of all links.
pub(super) fn of_all_links() -> Vec<Interest> {
    let events = EventList::LINK_UP | EventList::LINK_DOWN | EventList::LINK_GOING_DOWN;
    Vec::from([Interest { link: None, events }])
}

impl MihFunctionFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(self) -> anyhow::Result<Mih> {
        let MihFunctionFile { own, daemon } = self;
        let config = named(own.name, "mihf", daemon.instance())?;
        let here = ["::1", "127.0.0.0/8"].map(Prefix::parse_network);
        let mut peers = here.into_iter().collect::<Result<Vec<_>, _>>().context("peers")?;
        peers.extend(own.peers.iter().map(|PrefixText(peer)| *peer));
        let machine = MihfConfig { peers, validity: own.validity.0, ..config };
        Ok(Mih { common: daemon.common("mih-function")?, links: Vec::new(), machine })
    }
}

impl MihLinkSapFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid or missing key.
    pub fn validate(self) -> anyhow::Result<Mih> {
        let MihLinkSapFile { mih, own, daemon } = self;
        if own.link.is_empty() {
            bail!("link is missing: a [[link]] for each link to tell of");
        }
        let mut links: Vec<MihLink> = Vec::new();
        for keys in own.link {
            let link = link(keys)?;
            if links.iter().any(|other| other.interface == link.interface) {
                bail!("link: {} is there twice", link.interface);
            }
            links.push(link);
        }
        let functions = mih.remotes()?;
        let config = named(mih.name, "link-sap", daemon.instance())?;
        let machine = MihfConfig { functions, ..config };
        Ok(Mih { common: daemon.common("mih-link-sap")?, links, machine })
    }
}

fn link(keys: LinkKeys) -> anyhow::Result<MihLink> {
    let LinkKeys { interface, technology, address, source, socket, foretell, lost_dbm, orders } =
        keys;
    let interface = interface.0;
    let address = link_address("address", address).with_context(|| format!("link {interface}"))?;
    let source = match (source, socket) {
        (SourceKey::Wire, None) => MihSource::Wire,
        (SourceKey::Wire, Some(_)) => bail!("link {interface}: a wire has no socket"),
        (SourceKey::Nl80211, None) => MihSource::Nl80211,
        (SourceKey::Nl80211, Some(_)) => {
            bail!("link {interface}: the kernel's Wi-Fi (nl80211) has no socket")
        }
        (SourceKey::Hostapd, socket) => MihSource::Hostapd(
            socket.unwrap_or_else(|| PathBuf::from("/run/hostapd").join(&interface)),
        ),
        (SourceKey::Lab, Some(socket)) => MihSource::Lab(socket),
        (SourceKey::Lab, None) => bail!(
            "link {interface}: socket is missing: that of the test network, which `segue lab list` shows"
        ),
    };
    let forecasting = Forecasting { lost_dbm: lost_dbm.get(), ..Forecasting::USUAL };
    Ok(MihLink {
        interface,
        link_type: technology.link_type(),
        address,
        source,
        forecasting: foretell.0.then_some(forecasting),
        orders,
    })
}
