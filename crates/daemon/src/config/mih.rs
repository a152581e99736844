//! Configuration files of the IEEE 802.21 daemons, and the `[mih]` table of daemons that subscribe to link events.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_grammar::{Config, Duration, TechnologyKey};
use segue_ip::Prefix;
use segue_mih::{Forecasting, Interest, MihfConfig, Remote, Transport};
use segue_wire::mih::codes::EventList;
use segue_wire::mih::identity::LinkAddress;
use serde::Deserialize;

use crate::control;
use crate::mih::source::mac_of;
use crate::settings::{Common, Mih, MihLink, MihSource};

/// The keys of a function's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MihFunctionFile {
    /// Name of this daemon, if several of its role run here; it names the control socket. Default: no name.
    pub instance: Option<String>,
    /// Its MIH function identifier (MIHF ID), which must be unique; `mihf@` and the name of this machine.
    pub name: Option<String>,
    /// Addresses or prefixes that may register, in addition to this machine; none.
    pub peers: Option<Vec<String>>,
    /// Lifetime of a registration, 20 s.
    pub validity: Option<Duration>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
}

/// The keys of a link service access point's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MihLinkSapFile {
    /// Name of this daemon, if several of its role run here; it names the control socket. Default: no name.
    pub instance: Option<String>,
    /// Its MIH function identifier (MIHF ID), which must be unique; `link-sap@` and the name of this machine.
    pub name: Option<String>,
    /// Functions to report to, `["::1"]`.
    pub functions: Option<Vec<IpAddr>>,
    /// Transport to them: `udp` or `tcp`; `udp`.
    pub transport: Option<TransportKey>,
    /// Its links, at least one.
    #[serde(default)]
    pub link: Vec<LinkKeys>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
}

/// The keys of a `[[link]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkKeys {
    /// Its interface.
    pub interface: String,
    /// Its kind, as for a gateway's access; `ethernet`.
    pub technology: Option<TechnologyKey>,
    /// Its address, by which peers know it; the interface's.
    pub address: Option<String>,
    /// The source of events about its stations: `wire`, the carrier and any packet of a station; `hostapd`; `nl80211`,
    /// the kernel's Wi-Fi; or `lab`, a test network. `wire`.
    pub source: Option<SourceKey>,
    /// The socket of hostapd, `/run/hostapd/INTERFACE`, or of the test network.
    pub socket: Option<PathBuf>,
    /// Predict the end of an attachment from its signal, true.
    pub foretell: Option<bool>,
    /// The signal below which it ends, in dBm, -85.
    pub lost_dbm: Option<i16>,
    /// Carry out actions that peers request: send a station away, go down, come up. False.
    pub orders: Option<bool>,
}

/// The keys of a `[mih]` in the file of a gateway or an anchor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MihKeys {
    /// Functions that report links, `["::1"]`.
    pub functions: Option<Vec<IpAddr>>,
    /// Transport to them: `udp` or `tcp`; `udp`.
    pub transport: Option<TransportKey>,
    /// MIH function identifier of this daemon, which must be unique; its role, instance and the name of this machine.
    pub name: Option<String>,
}

/// The transport of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKey {
    /// UDP; each frame is acknowledged.
    Udp,
    /// TCP.
    Tcp,
}

/// The source of events about a link's stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKey {
    /// The wire.
    Wire,
    /// hostapd.
    Hostapd,
    /// The kernel's Wi-Fi.
    Nl80211,
    /// A test network.
    Lab,
}

impl TransportKey {
    fn transport(key: Option<TransportKey>) -> Transport {
        match key {
            None | Some(TransportKey::Udp) => Transport::Udp,
            Some(TransportKey::Tcp) => Transport::Tcp,
        }
    }
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

fn remotes(
    all: Option<Vec<IpAddr>>,
    transport: Option<TransportKey>,
) -> anyhow::Result<Vec<Remote>> {
    let all = all.unwrap_or_else(|| vec![std::net::Ipv6Addr::LOCALHOST.into()]);
    if all.is_empty() {
        bail!("functions: at least one, such as \"::1\"");
    }
    if let Some(bad) = all.iter().find(|address| address.is_unspecified() || address.is_multicast())
    {
        bail!("functions: {bad} is no address of a function");
    }
    let transport = TransportKey::transport(transport);
    Ok(all.into_iter().map(|address| Remote::new(address, transport)).collect())
}

/// Parses a link's configured address.
pub(super) fn link_address(key: &str, text: Option<String>) -> anyhow::Result<Option<LinkAddress>> {
    let read = |text: String| {
        let mac = mac_of(&text).with_context(|| {
            format!("{key}: {text:?} is no link-layer address, such as 02:00:00:00:00:01")
        })?;
        super::one_station(&text, &mac).with_context(|| key.to_owned())?;
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
        let config = named(self.name, role, instance).context("mih")?;
        let functions = remotes(self.functions, self.transport).context("mih")?;
        Ok(MihfConfig { functions, interests, ..config })
    }
}

/// An anchor's subscription: to events of all links.
pub(super) fn of_all_links() -> Vec<Interest> {
    let events = EventList::LINK_UP | EventList::LINK_DOWN | EventList::LINK_GOING_DOWN;
    Vec::from([Interest { link: None, events }])
}

fn common(
    role: &str,
    instance: Option<&str>,
    control: Option<PathBuf>,
    group: Option<String>,
    metrics: Option<String>,
) -> anyhow::Result<Common> {
    let control = control.unwrap_or_else(|| control::default_path(role, instance));
    let (control_group, metrics) = (super::group(group)?, super::metrics(metrics)?);
    Ok(Common { control_group, metrics, ..Common::at(control) })
}

impl MihFunctionFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(self) -> anyhow::Result<Mih> {
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        let common =
            common("mih-function", instance, self.control, self.control_group, self.metrics)?;
        let mut peers = Vec::new();
        for text in ["::1", "127.0.0.0/8"] {
            peers.push(Prefix::parse_network(text).context("peers")?);
        }
        for text in self.peers.unwrap_or_default() {
            let peer = Prefix::parse_network(&text).with_context(|| format!("peers: {text:?}"))?;
            peers.push(peer);
        }
        let validity = self.validity.map_or(Span::from_secs(20), |Duration(span)| span);
        if !(Span::from_secs(4)..=Span::from_secs(86_400)).contains(&validity) {
            bail!("validity must lie between 4s and 24h");
        }
        let config = named(self.name, "mihf", instance)?;
        let machine = MihfConfig { peers, validity, ..config };
        Ok(Mih { common, links: Vec::new(), machine })
    }
}

impl MihLinkSapFile {
    /// The settings of a daemon.
    ///
    /// # Errors
    /// The first invalid or missing key.
    pub fn validate(self) -> anyhow::Result<Mih> {
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        let common =
            common("mih-link-sap", instance, self.control, self.control_group, self.metrics)?;
        if self.link.is_empty() {
            bail!("link is missing: a [[link]] for each link to tell of");
        }
        let mut links: Vec<MihLink> = Vec::new();
        for keys in self.link {
            let link = link(keys)?;
            if links.iter().any(|other| other.interface == link.interface) {
                bail!("link: {} is there twice", link.interface);
            }
            links.push(link);
        }
        let config = named(self.name, "link-sap", instance)?;
        let functions = remotes(self.functions, self.transport)?;
        Ok(Mih { common, links, machine: MihfConfig { functions, ..config } })
    }
}

fn link(keys: LinkKeys) -> anyhow::Result<MihLink> {
    let LinkKeys { interface, technology, address, source, socket, foretell, lost_dbm, orders } =
        keys;
    super::interface(&interface).context("link: interface")?;
    let address = link_address("address", address).with_context(|| format!("link {interface}"))?;
    let source = match (source.unwrap_or(SourceKey::Wire), socket) {
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
    let lost_dbm = lost_dbm.unwrap_or(Forecasting::USUAL.lost_dbm);
    if !(-120..=-20).contains(&lost_dbm) {
        bail!("link {interface}: lost_dbm must lie between -120 and -20");
    }
    let forecasting = Forecasting { lost_dbm, ..Forecasting::USUAL };
    Ok(MihLink {
        interface,
        link_type: technology.unwrap_or(TechnologyKey::Ethernet).link_type(),
        address,
        source,
        forecasting: foretell.unwrap_or(true).then_some(forecasting),
        orders: orders.unwrap_or(false),
    })
}
