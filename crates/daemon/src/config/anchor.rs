//! An anchor's configuration file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_datapath::{Reach, Services};
use segue_grammar::values::{D, MIN, S};
use segue_grammar::{Config, Duration, Flag, Within, joined};
use segue_ip::Prefix;
use segue_tunnel::Pool;
use segue_wire::SIGNAL_PORT;
use segue_wire::stamp::PORT as STAMP_PORT;
use serde::{Deserialize, Serialize};

use super::groups::{DaemonKeys, DatapathKeys, StateKeys, TunnelKeys};
use super::values::{OnPort, text_key};
use crate::locator::Locator;
use crate::settings::{Anchor, Choice, Common, Stamp};

joined! {
    /// The keys of an anchor's file.
    AnchorFile {
        own: AnchorKeys,
        tunnel: TunnelKeys,
        datapath: DatapathKeys,
        state: StateKeys,
        daemon: DaemonKeys,
    }
}

/// An anchor's own keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnchorKeys {
    /// MTU of the tunnel device and limit for the hosts; the default fits into 1500 bytes
    mtu: Within<1_436, 576, 65_535>,
    /// UDP port of the signalling (QUIC); differs from `port`
    signal_port: Within<{ SIGNAL_PORT as i64 }, 0, 65_535>,
    /// Addresses or [names](operation.md#an-anchor-with-a-name) of the anchor in join lines, with or without `:port`, best
    /// first. Required if a NAT is in front of it
    #[schemars(extend("x-value" = "addresses", "x-unset" = "the anchor's own"))]
    addresses: Vec<String>,
    /// Inner IPv4 addresses; the first is the anchor's own. `""` for none. Plain packets from a pool's addresses are
    /// dropped
    pool_v4: PoolV4,
    /// Inner IPv6 addresses, likewise. At least one pool is required
    pool_v6: PoolV6,
    /// [Translate](operation.md#routes-and-rules) pools of private addresses on their way to other networks, with
    /// nftables; `--nat` sets it, too
    pub nat: bool,
    /// Size of the table of paths of all hosts together, which holds one path fewer; a host has at most 16
    max_paths: Within<4_096, 2, 1_048_576>,
    /// Hosts may use `encapsulation = "upmt"`, which [nothing protects](security.md); requires `datapath = "user"`
    allow_upmt: bool,
    /// Hosts may open flows to addresses of the pools other than the anchor's own
    reach_hosts: bool,
    /// Services at the anchor's own inner addresses to which hosts may open flows
    reach_anchor: ServicesKey,
    /// Hosts may open flows to everything else, including the anchor's other addresses
    reach_routed: Flag<true>,
    /// Answer [STAMP](wire/stamp.md#at-an-anchor) (RFC 8762) on UDP port 862 or another
    #[serde(skip_serializing)]
    stamp: OnPort<false>,
    /// File with 32 to 128 hexadecimal digits, readable only by its owner: answer only authenticated STAMP. Requires
    /// `stamp`
    #[schemars(extend("x-value" = "path"))]
    stamp_key: PathBuf,
    /// Validity of a host's [certificate](operation.md#certificates-and-enrolments)
    certificate_lifetime: Duration<{ 90 * D }, { 6 * S }, { 3_660 * D }>,
    /// How long a silent host keeps its registration; it keeps its addresses
    expiry: Duration<MIN, 1>,
}

text_key!(PoolV4, "prefix", "10.77.0.0/16");
text_key!(PoolV6, "prefix", "fd5e:67e0::/64");

/// Services of the anchor itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ServicesKey {
    /// No service.
    Nothing,
    /// ICMP and ICMPv6.
    #[default]
    Ping,
    /// All.
    All,
}

impl Config for AnchorFile {}

impl AnchorFile {
    /// The settings of a daemon.
    pub fn validate(self) -> anyhow::Result<Anchor> {
        let AnchorFile { own, tunnel, datapath, state, daemon } = self;
        if own.allow_upmt && datapath.datapath != Choice::User {
            bail!("allow_upmt: UPMT's packets need datapath = \"user\"");
        }
        let signal_port = own.signal_port.get();
        let addresses: Vec<Locator> = own
            .addresses
            .iter()
            .map(|text| Locator::parse(text, signal_port))
            .collect::<anyhow::Result<_>>()
            .context("addresses")?;
        let pool_v4 = pool("pool_v4", &own.pool_v4.0, false)?;
        let pool_v6 = pool("pool_v6", &own.pool_v6.0, true)?;
        if pool_v4.is_none() && pool_v6.is_none() {
            bail!("an anchor needs pool_v4, pool_v6 or both");
        }
        let stamp = stamp(own.stamp, own.stamp_key)?;
        check_ports(tunnel.port.get(), signal_port, stamp.as_ref())?;
        let file = state.file("anchor", daemon.instance());
        // Rounded down to whole seconds, the resolution of certificates.
        let certificate_lifetime = own.certificate_lifetime.0.0 / 1_000_000_000;
        Ok(Anchor {
            common: Common {
                interfaces: datapath.interfaces()?,
                history: state.history(&file),
                ..daemon.common("anchor")?
            },
            tunnel: tunnel.tunnel(datapath),
            mtu: own.mtu.get(),
            signal_port,
            addresses,
            pool_v4,
            pool_v6,
            max_paths: own.max_paths.get(),
            stamp,
            expiry: own.expiry.0,
            certificate_lifetime: std::time::Duration::from_secs(certificate_lifetime),
            allow_upmt: own.allow_upmt,
            nat: own.nat,
            reach: Reach {
                hosts: own.reach_hosts,
                anchor: match own.reach_anchor {
                    ServicesKey::Nothing => Services::Nothing,
                    ServicesKey::Ping => Services::Ping,
                    ServicesKey::All => Services::All,
                },
                routed: own.reach_routed.0,
            },
            state: file,
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

fn stamp(choice: OnPort<false>, key: PathBuf) -> anyhow::Result<Option<Stamp>> {
    let key = Some(key).filter(|file| !file.as_os_str().is_empty());
    let Some(port) = choice.port(STAMP_PORT) else {
        if key.is_some() {
            bail!("stamp_key needs stamp = true, or a port");
        }
        return Ok(None);
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
