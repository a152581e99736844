//! The Proxy Mobile IPv6 daemons: a local mobility anchor ([`lma`]) and a mobile access gateway ([`mag`]). Their
//! machines come from `segue-pmip`, and a relay carries their tunnels; this module adds the rest.

pub mod aaa;
pub mod decision;
pub mod leading;
pub mod lma;
pub mod macs;
pub mod mag;
pub(crate) mod records;
mod strays;
pub mod uplink;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use segue_clock::{DayClock, UnixTime};
use segue_ip::Prefix;
use segue_linux::clock::{monotonic, realtime, realtime_ns};
use segue_linux::raw::RawSocket;
use segue_mih::MihfConfig;
use segue_node::{Decided, MIH_PORT, Node, RADIUS_PORT};
use segue_pmip::{DATA_PORT, NodeId, Refused, Report, SIGNALLING_PORT};
use segue_store::{Embedded, Store, StoreExt};
use serde::{Deserialize, Serialize};

use crate::control::News;
use crate::mih::frame_length;
use crate::settings::Radius;
use crate::sockets::{Arrivals, Sockets};

/// Table of restart counters: the last one of each role.
const STARTS: &str = "starts";

/// The subject of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The host's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mn_id: Option<String>,
    /// Its interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llid: Option<String>,
    /// The anchor or the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The former gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl News<About> for Report {
    fn kind(&self) -> &'static str {
        match self {
            Report::Registered { .. } => "registered",
            Report::Moved { .. } => "moved",
            Report::Handover { .. } => "handover",
            Report::Left { .. } => "left",
            Report::Denied { .. } => "refused",
            Report::Stranger { .. } => "stranger",
            Report::Twice { .. } => "twice",
            Report::Restarted { .. } => "restarted",
            Report::Silent { .. } => "silent",
            Report::Answers { .. } => "answers",
        }
    }

    fn host(&self) -> String {
        match self {
            Report::Registered { node, .. }
            | Report::Moved { node, .. }
            | Report::Handover { node, .. }
            | Report::Left { node, .. }
            | Report::Stranger { node, .. }
            | Report::Twice { node, .. }
            | Report::Denied { node: Some(node), .. } => node.to_string(),
            Report::Denied { with: peer, .. }
            | Report::Restarted { peer }
            | Report::Silent { peer }
            | Report::Answers { peer } => peer.to_string(),
        }
    }

    fn warns(&self) -> bool {
        matches!(
            self,
            Report::Denied { .. }
                | Report::Stranger { .. }
                | Report::Twice { .. }
                | Report::Silent { .. }
                | Report::Restarted { .. }
        )
    }

    fn cause(&self) -> &'static str {
        match self {
            Report::Handover { cause, .. } => cause.name(),
            Report::Left { why, .. } => why.name(),
            _ => "",
        }
    }

    fn about(&self) -> About {
        let text = |node: &NodeId| Some(node.to_string());
        match self {
            Report::Registered { node, link_layer, with, prefix } => About {
                mn_id: text(node),
                llid: Some(link_layer.to_string()),
                with: Some(with.to_string()),
                prefix: prefix.map(|prefix: Prefix| prefix.to_string()),
                ..About::default()
            },
            Report::Moved { node, link_layer, from, to } => About {
                mn_id: text(node),
                llid: Some(link_layer.to_string()),
                with: Some(to.to_string()),
                from: Some(from.to_string()),
                ..About::default()
            },
            Report::Handover { node, cause, from, to, .. } => About {
                mn_id: text(node),
                with: Some(to.to_string()),
                from: Some(from.to_string()),
                why: Some(cause.name().to_owned()),
                ..About::default()
            },
            Report::Left { node, link_layer, why } => About {
                mn_id: text(node),
                llid: Some(link_layer.to_string()),
                why: Some(why.name().to_owned()),
                ..About::default()
            },
            Report::Denied { node, status, with, .. } => About {
                mn_id: node.as_ref().and_then(text),
                with: Some(with.to_string()),
                why: Some(status.name().map_or_else(|| status.0.to_string(), str::to_owned)),
                ..About::default()
            },
            Report::Stranger { gateway, node } => {
                About { mn_id: text(node), with: Some(gateway.to_string()), ..About::default() }
            }
            Report::Twice { node, link_layer, gateways: [from, with] } => About {
                mn_id: text(node),
                llid: Some(link_layer.to_string()),
                with: Some(with.to_string()),
                from: Some(from.to_string()),
                ..About::default()
            },
            Report::Restarted { peer } | Report::Silent { peer } | Report::Answers { peer } => {
                About { with: Some(peer.to_string()), ..About::default() }
            }
        }
    }
}

/// UDP ports over IPv4: for messages, and for hosts' packets (RFC 5844).
const PORTS: [u16; 2] = [SIGNALLING_PORT, DATA_PORT];

/// The protocols that a role uses beside its own.
struct Uses<'a> {
    radius: Option<&'a Radius>,
    mih: Option<&'a MihfConfig>,
}

impl Uses<'_> {
    /// Opens the sockets of a role: for the Mobility Header, for its IPv4 addresses, and for these protocols.
    fn open<R: Decided>(
        &self,
        node: Node<R>,
        own: impl Iterator<Item = IpAddr>,
    ) -> anyhow::Result<(Sockets<Node<R>>, Arrivals)> {
        let ports = self.radius.map(|_| RADIUS_PORT).into_iter();
        let ports: Vec<u16> = ports.chain(self.mih.map(|_| MIH_PORT)).collect();
        let (mut sockets, mut arrivals) = Sockets::open(node, &ports)?;
        sockets.ignore_hosts();
        sockets.speak(&mut arrivals, RawSocket::mobility()?, &[])?;
        if self.mih.is_some() {
            sockets.stream(&mut arrivals, None, frame_length, Arc::new(|_| false))?;
        }
        for address in own.filter(IpAddr::is_ipv4) {
            for port in PORTS {
                sockets.bind(&mut arrivals, SocketAddr::new(address, port))?;
            }
        }
        Ok((sockets, arrivals))
    }

    /// The known peers: these addresses, the RADIUS servers and the functions. All other senders share the quota of one
    /// peer.
    fn known(&self, peers: impl Iterator<Item = Prefix>) -> Vec<Prefix> {
        let servers = self.radius.into_iter().flat_map(|radius| &radius.servers);
        let servers = servers.map(|server| Prefix::host(server.address));
        let functions = self.mih.into_iter().flat_map(|config| &config.functions);
        let functions = functions.map(|function| Prefix::host(function.address));
        peers.chain(servers).chain(functions).collect()
    }
}

/// The function of a role, at a port that the system chooses.
fn function(config: MihfConfig) -> MihfConfig {
    MihfConfig { port: MIH_PORT, seed: realtime_ns(), ..config }
}

/// Relates the monotonic clock to the time of day.
fn day_clock() -> DayClock {
    DayClock::new(monotonic(), realtime())
}

/// Opens the state file of a role, whose records are in this table, and advances its restart counter.
fn open(path: &Path, table: &'static str) -> anyhow::Result<(Arc<Embedded>, u32)> {
    let store = Embedded::open(path)?;
    let tables = store.tables()?;
    if let Some(other) = tables.iter().find(|name| ![table, STARTS].contains(&name.as_str())) {
        let path = path.display();
        bail!("{path} is the state of another role (it has {other}): name another with `state`");
    }
    let before: u32 = store.get_as(STARTS, table)?.unwrap_or(0);
    let counter = restart_counter(before, realtime_ns());
    store.put_as(STARTS, table, &counter)?;
    Ok((Arc::new(store), counter))
}

/// The counter of this start (RFC 5847): the time of day in seconds, so that it differs from the previous one even if
/// the state file was lost; one more than the previous counter where the clock has not moved past it.
fn restart_counter(before: u32, realtime_ns: u64) -> u32 {
    let seconds = u32::try_from(realtime_ns / 1_000_000_000).unwrap_or(0);
    seconds.max(before.wrapping_add(1))
}

/// The records of a table.
fn stored(store: &dyn Store, table: &'static str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    Ok(store.list(table)?)
}

/// Refused messages by reason: the standard's names for statuses, and the daemon's names for the rest.
fn refused(all: &Refused) -> BTreeMap<String, u64> {
    all.iter().map(|(why, count)| (why.name().to_owned(), *count)).collect()
}

/// Whole seconds until then; zero if the time has passed.
fn seconds_left(until: segue_clock::Time) -> u64 {
    until.since(monotonic()).as_micros() / 1_000_000
}

/// The time of day that a machine receives once a second.
fn today() -> UnixTime {
    realtime()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_the_state_file_has_another_restart_counter() {
        const SECOND: u64 = 1_000_000_000;
        let first = restart_counter(0, 1_700_000_000 * SECOND);
        assert_ne!(restart_counter(0, 1_700_000_001 * SECOND), first, "the file was lost");
        assert_eq!(restart_counter(first, 1_700_000_000 * SECOND), first + 1, "the same second");
        assert_eq!(restart_counter(first, 0), first + 1, "the clock was set back");
        assert_eq!(restart_counter(u32::MAX, 0), 0);
    }

    #[test]
    fn the_restart_counter_survives_in_the_state_file() {
        let dir = tempfile::tempdir().unwrap();
        let counter = |name: &str| open(&dir.path().join(name), "bindings").unwrap().1;
        let first = counter("one.db");
        assert!(first > 1_000_000, "the time of day, not the number of starts: {first}");
        assert!(counter("one.db") > first);
    }
}
