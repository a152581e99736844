//! Encodes the machines' records for the store.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::UnixTime;
use segue_ip::{Prefix, Subject};
use segue_pmip::{
    Identity, LinkLayer, LmaRecord, MagRecord, NodeId, PeerAddress, StoredLease, StoredSession,
    StoredStation,
};
use segue_wire::mobility::option::AccessTechnology;
use serde::{Deserialize, Serialize};

use crate::ledger::Entry;

/// A host's identity.
#[derive(Serialize, Deserialize)]
struct Node(u8, Vec<u8>);

impl Node {
    fn of(node: &NodeId) -> Node {
        let (subtype, bytes) = node.parts();
        Node(subtype, bytes.to_vec())
    }

    fn id(&self) -> NodeId {
        NodeId::from_parts(self.0, &self.1)
    }
}

#[derive(Serialize, Deserialize)]
struct Session {
    node: Node,
    link_layer: Vec<u8>,
    access: u8,
    prefixes: Vec<String>,
    bid: u16,
    leaving: bool,
    gateway: (IpAddr, Option<Ipv4Addr>),
    port: u16,
    in_udp: bool,
    gre: Option<u32>,
    link_local: Option<Ipv6Addr>,
    until_us: u64,
    timestamp_us: Option<u64>,
    sequence: Option<u16>,
}

#[derive(Serialize, Deserialize)]
struct Lease {
    node: Node,
    link_layer: Vec<u8>,
    rests_until_us: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Station {
    access: String,
    station: Vec<u8>,
    node: Node,
    anchor: Option<IpAddr>,
    asked: Vec<String>,
    prefixes: Vec<String>,
    off_link: Vec<String>,
    link_local: Option<Ipv6Addr>,
    gre: Option<[u32; 2]>,
    until_us: u64,
}

fn texts(prefixes: &[Prefix]) -> Vec<String> {
    prefixes.iter().map(Prefix::to_string).collect()
}

fn prefixes(texts: &[String]) -> Option<Vec<Prefix>> {
    texts.iter().map(|text| text.parse().ok()).collect()
}

/// The stored form of an anchor's record.
pub(crate) fn of_lma(record: &LmaRecord) -> anyhow::Result<Entry> {
    Ok(match record {
        LmaRecord::Session(number, stored) => Entry {
            subject: record.subject(),
            key: format!("session {number}"),
            value: stored
                .as_ref()
                .map(|stored| {
                    postcard::to_allocvec(&Session {
                        node: Node::of(&stored.node),
                        link_layer: stored.link_layer.0.clone(),
                        access: stored.access.0,
                        prefixes: texts(&stored.prefixes),
                        bid: stored.bid,
                        leaving: stored.leaving,
                        gateway: (stored.gateway.address, stored.gateway.behind),
                        port: stored.port,
                        in_udp: stored.in_udp,
                        gre: stored.gre,
                        link_local: stored.link_local,
                        until_us: stored.until.0,
                        timestamp_us: stored.timestamp.map(|at| at.0),
                        sequence: stored.sequence,
                    })
                })
                .transpose()?,
        },
        LmaRecord::Lease(prefix, stored) => Entry {
            subject: record.subject(),
            key: format!("lease {prefix}"),
            value: stored
                .as_ref()
                .map(|stored| {
                    let StoredLease { node, link_layer, rests } = stored;
                    let (node, link_layer) = (Node::of(node), link_layer.0.clone());
                    let rests_until_us = rests.map(|until| until.0);
                    postcard::to_allocvec(&Lease { node, link_layer, rests_until_us })
                })
                .transpose()?,
        },
    })
}

/// Decodes the result of [`of_lma`]; `None` if it is malformed or of an unknown kind.
pub(super) fn to_lma(key: &str, value: &[u8]) -> Option<LmaRecord> {
    match key.split_once(' ')? {
        ("session", number) => {
            let stored: Session = postcard::from_bytes(value).ok()?;
            let session = StoredSession {
                node: stored.node.id(),
                link_layer: LinkLayer(stored.link_layer),
                access: AccessTechnology(stored.access),
                prefixes: prefixes(&stored.prefixes)?,
                bid: stored.bid,
                leaving: stored.leaving,
                gateway: PeerAddress { address: stored.gateway.0, behind: stored.gateway.1 },
                port: stored.port,
                in_udp: stored.in_udp,
                gre: stored.gre,
                link_local: stored.link_local,
                until: UnixTime(stored.until_us),
                timestamp: stored.timestamp_us.map(UnixTime),
                sequence: stored.sequence,
            };
            Some(LmaRecord::Session(number.parse().ok()?, Some(session)))
        }
        ("lease", prefix) => {
            let stored: Lease = postcard::from_bytes(value).ok()?;
            let (node, link_layer) = (stored.node.id(), LinkLayer(stored.link_layer));
            let rests = stored.rests_until_us.map(UnixTime);
            let lease = StoredLease { node, link_layer, rests };
            Some(LmaRecord::Lease(prefix.parse().ok()?, Some(lease)))
        }
        _ => None,
    }
}

/// The stored form of a gateway's record.
pub(super) fn of_mag(record: &MagRecord) -> anyhow::Result<Entry> {
    let MagRecord { access, station, stored } = record;
    let value = stored.as_ref().map(|stored| {
        postcard::to_allocvec(&Station {
            access: access.clone(),
            station: station.0.clone(),
            node: Node::of(&stored.identity.node),
            anchor: stored.identity.anchor,
            asked: texts(&stored.identity.prefixes),
            prefixes: texts(&stored.prefixes),
            off_link: texts(&stored.off_link),
            link_local: stored.link_local,
            gre: stored.gre,
            until_us: stored.until.0,
        })
    });
    Ok(Entry {
        subject: Subject::default(),
        key: format!("{access} {station}"),
        value: value.transpose()?,
    })
}

/// Decodes the result of [`of_mag`]; `None` if it is malformed.
pub(super) fn to_mag(value: &[u8]) -> Option<MagRecord> {
    let stored: Station = postcard::from_bytes(value).ok()?;
    let identity = Identity {
        node: stored.node.id(),
        anchor: stored.anchor,
        prefixes: prefixes(&stored.asked)?,
    };
    let off_link = prefixes(&stored.off_link)?;
    let prefixes = prefixes(&stored.prefixes)?;
    let (link_local, until) = (stored.link_local, UnixTime(stored.until_us));
    let gre = stored.gre;
    let stored_station = StoredStation { identity, prefixes, off_link, link_local, gre, until };
    let (access, station) = (stored.access, LinkLayer(stored.station));
    Some(MagRecord { access, station, stored: Some(stored_station) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let prefix: Prefix = "2001:db8:0:7::/64".parse().unwrap();
        let node = NodeId::nai("a@b");
        let link_layer = LinkLayer::mac([2, 0, 0, 0, 0, 1]);
        let session = StoredSession {
            node: node.clone(),
            link_layer: link_layer.clone(),
            access: AccessTechnology::WLAN,
            prefixes: vec![prefix],
            bid: 3,
            leaving: true,
            gateway: PeerAddress {
                address: "192.0.2.7".parse().unwrap(),
                behind: Some("10.0.0.7".parse().unwrap()),
            },
            port: 4_000,
            in_udp: true,
            gre: Some(7),
            link_local: Some("fe80::7".parse().unwrap()),
            until: UnixTime(1 << 60),
            timestamp: Some(UnixTime(5)),
            sequence: None,
        };
        let lease = StoredLease {
            node: node.clone(),
            link_layer: link_layer.clone(),
            rests: Some(UnixTime(7)),
        };
        for record in [LmaRecord::Session(9, Some(session)), LmaRecord::Lease(prefix, Some(lease))]
        {
            let Entry { subject, key, value } = of_lma(&record).unwrap();
            assert_eq!(subject, NodeId::nai("a@b").subject());
            assert_eq!(to_lma(&key, &value.unwrap()), Some(record));
        }
        assert_eq!(of_lma(&LmaRecord::Session(9, None)).unwrap().value, None);
        assert_eq!(to_lma("session 9", b"rubbish"), None);
        let identity = Identity { node, anchor: None, prefixes: vec![prefix] };
        let link_local = Some("fe80::1".parse().unwrap());
        let (prefixes, off_link, until) = (vec![prefix], vec![prefix], UnixTime(8));
        let gre = Some([8, 9]);
        let stored = StoredStation { identity, prefixes, off_link, link_local, gre, until };
        let record =
            MagRecord { access: "wlan0".into(), station: link_layer, stored: Some(stored) };
        assert_eq!(to_mag(&of_mag(&record).unwrap().value.unwrap()), Some(record));
    }
}
