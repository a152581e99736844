//! A host's configuration file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_grammar::{Config, KeepaliveKeys, PathKeys, Paths, SteeringKeys, Within, joined};
use segue_ip::Prefix;
use serde::{Deserialize, Serialize};

use super::groups::{DaemonKeys, DatapathKeys, InterfaceName, StateKeys, TunnelKeys};
use crate::settings::{Choice, Common, Host};

joined! {
    /// The keys of a host's file.
    HostFile {
        own: HostKeys,
        tunnel: TunnelKeys,
        datapath: DatapathKeys,
        state: StateKeys,
        daemon: DaemonKeys,
    }
}

/// A host's own keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostKeys {
    /// File with the line of `segue enroll`, readable only by its owner; or `--join LINE`, `--join -` (standard input),
    /// `--join-file`. Required until the host is enrolled
    #[schemars(extend("x-value" = "path"))]
    pub join_file: Option<PathBuf>,
    /// Upper limit of the tunnel device's MTU; [paths](operation.md#mtu) may require less. The default fits into 1500
    /// bytes
    #[schemars(extend("x-unset" = "1456, or 1436 if an address of the anchor is IPv6"))]
    mtu: Option<Within<0, 576, 65_535>>,
    /// [Destinations](operation.md#routes-and-rules) that go through the tunnel
    #[schemars(extend("x-value" = "prefixes", "x-unset" = "everything that the anchor has a route to"))]
    routes: Option<Vec<String>>,
    /// Traffic to `routes` leaves [only through the tunnel](operation.md#failing-closed)
    fail_closed: bool,
    /// Priority of the host's first routing rule; a number below a VPN's puts Segue
    /// [before it](operation.md#other-vpns)
    #[schemars(extend("x-unset" = "5280, behind the rules of other programs' tunnels"))]
    priority: Option<Within<0, 1, LAST_PRIORITY>>,
    /// Servers to query for [the anchor's name](operation.md#an-anchor-with-a-name), and for
    /// [translators' prefixes](operation.md#an-anchors-ipv4-address-over-ipv6-alone)
    #[schemars(extend("x-unset" = "those of `/etc/resolv.conf`"))]
    nameservers: Vec<IpAddr>,
    /// Probing of all paths
    #[serde(skip_serializing)]
    keepalive: KeepaliveKeys,
    /// Settings of a path, by its interface
    #[serde(skip_serializing)]
    path: BTreeMap<String, PathKeys>,
    /// How flows move
    #[serde(skip_serializing)]
    steering: SteeringKeys,
}

/// The last priority of a host's first rule: its five rules come before the main table's.
const LAST_PRIORITY: i64 = 32_760;

impl Config for HostFile {
    const PATHS: bool = true;
}

impl HostFile {
    /// The settings of a daemon, without a join line.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(self) -> anyhow::Result<Host> {
        let HostFile { own, tunnel, datapath, state, daemon } = self;
        let prefix = |text: &String| {
            let prefix: Prefix = text.parse().with_context(|| format!("routes: {text:?}"))?;
            match prefix.network() {
                network if network == prefix => Ok(prefix),
                network => bail!("routes: {text:?} has host bits (did you mean {network}?)"),
            }
        };
        let routes = own.routes.map(|all| all.iter().map(prefix).collect::<anyhow::Result<_>>());
        own.path.keys().try_for_each(|name| {
            InterfaceName::of(name).map(drop).with_context(|| format!("\"path.{name}\""))
        })?;
        let user = datapath.datapath == Choice::User;
        let Paths { path, paths, steering } =
            Paths::validate(&own.keepalive, &own.path, &own.steering, user)?;
        let file = state.file("host", daemon.instance());
        Ok(Host {
            common: Common {
                interfaces: datapath.interfaces()?,
                history: state.history(&file),
                ..daemon.common("host")?
            },
            tunnel: tunnel.tunnel(datapath),
            join: None,
            state: file,
            mtu: own.mtu.map(Within::get),
            routes: routes.transpose()?,
            fail_closed: own.fail_closed,
            priority: own.priority.map(Within::get),
            nameservers: own.nameservers,
            path,
            paths,
            steering,
        })
    }
}
