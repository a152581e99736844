//! An anchor's configuration file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_datapath::{Reach, Services};
use segue_grammar::{Config, Duration};
use segue_ip::Prefix;
use segue_tunnel::Pool;
use segue_wire::stamp::PORT as STAMP_PORT;
use segue_wire::{SIGNAL_PORT, TUNNEL_PORT};
use serde::Deserialize;

use super::OnPort;
use crate::control;
use crate::locator::Locator;
use crate::settings::{Anchor, Choice, Common, Stamp, Tunnel};

/// The keys of an anchor's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnchorFile {
    /// Name of this daemon, if several of its role run here; it names the control socket and the state file. Default:
    /// no name.
    pub instance: Option<String>,
    /// Tunnel device, `segue0`.
    pub device: Option<String>,
    /// MTU of the tunnel device, 1436: fits outer IPv4 and IPv6 in 1500 bytes.
    pub mtu: Option<u32>,
    /// UDP port of the tunnels, 5005.
    pub port: Option<u16>,
    /// UDP port of the signalling, 5006.
    pub signal_port: Option<u16>,
    /// `auto`, `ebpf` or `user`.
    pub datapath: Option<Choice>,
    /// Interfaces to serve; all.
    pub interfaces: Option<Vec<String>>,
    /// Addresses that join lines name, with or without port; the anchor's own.
    pub addresses: Option<Vec<String>>,
    /// Inner IPv4 addresses, `10.77.0.0/16`; empty for none.
    pub pool_v4: Option<String>,
    /// Inner IPv6 addresses, `fd5e:67e0::/64`; empty for none.
    pub pool_v6: Option<String>,
    /// Most paths of all hosts together, 4096.
    pub max_paths: Option<u32>,
    /// Answer STAMP, or the port to answer it on; false.
    pub stamp: Option<OnPort>,
    /// File with the key of authenticated STAMP; none.
    pub stamp_key: Option<PathBuf>,
    /// How long a host without a sign of life keeps its registration, 60 s.
    pub expiry: Option<Duration>,
    /// How long a host's certificate is valid, 90 days.
    pub certificate_lifetime: Option<Duration>,
    /// File of the anchor's state, `/var/lib/segue/anchor.db`.
    pub state: Option<PathBuf>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
    /// How long events are kept in a log next to the state file, 1 d.
    pub history: Option<Duration>,
    /// Largest size of that log in megabytes, 10; 0 disables the log.
    pub history_mb: Option<u32>,
    /// Use real-time scheduling, true.
    pub realtime: Option<bool>,
    /// Let hosts have paths with UPMT's packet format, false.
    pub allow_upmt: Option<bool>,
    /// Translate the pools to the anchor's own addresses on their way out, false.
    pub nat: Option<bool>,
    /// Let hosts reach each other, false.
    pub reach_hosts: Option<bool>,
    /// The services of the anchor itself that hosts reach: `nothing`, `ping` or `all`; `ping`.
    pub reach_anchor: Option<ServicesKey>,
    /// Let hosts reach destinations that the anchor routes to, true.
    pub reach_routed: Option<bool>,
}

/// The services of the anchor itself that hosts reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServicesKey {
    /// No service.
    Nothing,
    /// ICMP and ICMPv6.
    Ping,
    /// All.
    All,
}

/// Default path of an anchor's state file.
pub fn default_state(instance: Option<&str>) -> PathBuf {
    super::state("anchor", instance)
}

impl Config for AnchorFile {}

impl AnchorFile {
    /// The settings of a daemon.
    pub fn validate(self) -> anyhow::Result<Anchor> {
        let device = super::device(self.device)?;
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        let mtu = self.mtu.unwrap_or(1_436);
        super::check_mtu(mtu)?;
        let expiry = self.expiry.map_or(Span::from_secs(60), |Duration(span)| span);
        if expiry == Span::ZERO {
            bail!("expiry must be above zero");
        }
        let certificate_lifetime = certificate_lifetime(self.certificate_lifetime)?;
        let allow_upmt = self.allow_upmt.unwrap_or(false);
        if allow_upmt && self.datapath != Some(Choice::User) {
            bail!("allow_upmt: UPMT's packets need datapath = \"user\"");
        }
        let signal_port = self.signal_port.unwrap_or(SIGNAL_PORT);
        let addresses = self.addresses.unwrap_or_default();
        let addresses: Vec<Locator> = addresses
            .iter()
            .map(|text| Locator::parse(text, signal_port))
            .collect::<anyhow::Result<_>>()
            .context("addresses")?;
        let pool_v4 = pool("pool_v4", self.pool_v4.as_deref().unwrap_or("10.77.0.0/16"), false)?;
        let pool_v6 = pool("pool_v6", self.pool_v6.as_deref().unwrap_or("fd5e:67e0::/64"), true)?;
        if pool_v4.is_none() && pool_v6.is_none() {
            bail!("an anchor needs pool_v4, pool_v6 or both");
        }
        let max_paths = self.max_paths.unwrap_or(4_096);
        if !(2..=1 << 20).contains(&max_paths) {
            bail!("max_paths must lie between 2 and {}", 1 << 20);
        }
        let port = self.port.unwrap_or(TUNNEL_PORT);
        let stamp = stamp(self.stamp.unwrap_or(OnPort::Off), self.stamp_key)?;
        check_ports(port, signal_port, stamp.as_ref())?;
        let state = self.state.unwrap_or_else(|| default_state(instance));
        Ok(Anchor {
            common: Common {
                interfaces: super::interfaces(self.interfaces)?,
                control: self.control.unwrap_or_else(|| control::default_path("anchor", instance)),
                control_group: super::group(self.control_group)?,
                metrics: super::metrics(self.metrics)?,
                history: super::history(self.history, self.history_mb, &state)?,
            },
            tunnel: Tunnel {
                device,
                port,
                datapath: self.datapath.unwrap_or(Choice::Auto),
                realtime: self.realtime.unwrap_or(true),
            },
            mtu,
            signal_port,
            addresses,
            pool_v4,
            pool_v6,
            max_paths,
            stamp,
            expiry,
            certificate_lifetime,
            allow_upmt,
            nat: self.nat.unwrap_or(false),
            reach: Reach {
                hosts: self.reach_hosts.unwrap_or(false),
                anchor: match self.reach_anchor.unwrap_or(ServicesKey::Ping) {
                    ServicesKey::Nothing => Services::Nothing,
                    ServicesKey::Ping => Services::Ping,
                    ServicesKey::All => Services::All,
                },
                routed: self.reach_routed.unwrap_or(true),
            },
            state,
        })
    }
}

/// Checks that no two services share a port.
fn check_ports(port: u16, signal_port: u16, stamp: Option<&Stamp>) -> anyhow::Result<()> {
    if port == signal_port {
        bail!("signal_port must differ from port, and both are {port}");
    }
    if stamp.is_some_and(|stamp| [port, signal_port].contains(&stamp.port)) {
        bail!("stamp: the port must differ from port and signal_port");
    }
    Ok(())
}

/// Rounded down to whole seconds, the resolution of certificates.
fn certificate_lifetime(key: Option<Duration>) -> anyhow::Result<std::time::Duration> {
    let Duration(span) = key.unwrap_or(Duration(Span::from_secs(90 * 86_400)));
    if !(Span::from_secs(6)..=Span::from_secs(10 * 366 * 86_400)).contains(&span) {
        bail!("certificate_lifetime must lie between 6s and ten years");
    }
    Ok(std::time::Duration::from_secs(span.0 / 1_000_000_000))
}

fn stamp(choice: OnPort, key: Option<PathBuf>) -> anyhow::Result<Option<Stamp>> {
    let key = key.filter(|file| !file.as_os_str().is_empty());
    let port = match choice {
        OnPort::Off if key.is_some() => bail!("stamp_key needs stamp = true, or a port"),
        OnPort::Off => return Ok(None),
        OnPort::Usual => STAMP_PORT,
        OnPort::Port(port) => port,
    };
    let read = |file: PathBuf| {
        let text = segue_probe::read_secret(&file)?;
        segue_probe::stamp::read_key(&text).with_context(|| file.display().to_string())
    };
    let key = key.map(read).transpose().context("stamp_key")?;
    Ok(Some(Stamp { port, key }))
}

fn pool(key: &str, text: &str, v6: bool) -> anyhow::Result<Option<Pool>> {
    if text.is_empty() {
        return Ok(None);
    }
    let prefix: Prefix = text.parse().with_context(|| key.to_owned())?;
    if prefix.addr.is_ipv6() != v6 {
        bail!("{key}: {text} is of the other address family");
    }
    Pool::new(prefix).map(Some).with_context(|| {
        format!("{key}: {text} must be a network without host bits that has room for hosts")
    })
}
