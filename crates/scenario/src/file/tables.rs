//! The tables of a scenario as written; only their form is checked.

use std::net::IpAddr;

use segue_grammar::link::Way;
use segue_grammar::{Duration, from_text, link_table};
use segue_ip::Prefix;
use serde::{Deserialize, de};
use toml::Spanned;

use super::air::{Cell, Nat, Walk};
use super::tcp::{Ftp, Tcp, Web};
use super::tunnels::{Anchor, Host};
use super::udp::{Conference, Video, Voip};

/// A name with its place.
pub type Name = Spanned<String>;

/// A scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The seed of all randomness.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// When the run ends.
    pub duration: Spanned<Duration>,
    /// The axes of a sweep, which parses them itself; a single run ignores them.
    #[serde(default)]
    pub sweep: Option<de::IgnoredAny>,
    /// Hosts and routers.
    #[serde(default)]
    pub node: Vec<Node>,
    /// Links between them.
    #[serde(default)]
    pub link: Vec<Link>,
    /// Rules that take precedence over the shortest paths.
    #[serde(default)]
    pub route: Vec<Route>,
    /// Events at predefined times.
    #[serde(default)]
    pub event: Vec<Event>,
    /// Cells of access routers.
    #[serde(default)]
    pub cell: Vec<Cell>,
    /// Radios, and where they go.
    #[serde(default)]
    pub walk: Vec<Walk>,
    /// Address translators.
    #[serde(default)]
    pub nat: Vec<Nat>,
    /// Anchors of Segue's tunnels.
    #[serde(default)]
    pub anchor: Vec<Anchor>,
    /// Mobile hosts with Segue's tunnels.
    #[serde(default)]
    pub host: Vec<Host>,
    /// Streams over TCP.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// Files over TCP.
    #[serde(default)]
    pub ftp: Vec<Ftp>,
    /// Pages over TCP.
    #[serde(default)]
    pub web: Vec<Web>,
    /// Telephone calls.
    #[serde(default)]
    pub voip: Vec<Voip>,
    /// Streams of video.
    #[serde(default)]
    pub video: Vec<Video>,
    /// Videoconferences.
    #[serde(default)]
    pub conference: Vec<Conference>,
}

fn first_seed() -> u64 {
    1
}

/// A host or router.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique among nodes.
    pub name: Name,
    /// Reached over any of its interfaces.
    #[serde(default)]
    pub addresses: Vec<Spanned<Address>>,
    /// Carries packets for others.
    #[serde(default)]
    pub transit: bool,
}

link_table! {
    /// A link between two nodes.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Link {
        /// Unique among links.
        pub name: Name,
        /// `node` or `node:interface`; up is from the first to the second.
        pub ends: [Spanned<End>; 2],
        /// Addresses of the first end and of the second, reached only over this link.
        #[serde(default)]
        pub addresses: [Vec<Spanned<Address>>; 2],
        /// Parameters that differ from the first end to the second.
        pub up: Option<Way>,
        /// Parameters that differ from the second end to the first.
        pub down: Option<Way>,
    }
}

impl Link {
    /// The two directions.
    pub fn ways(&self) -> [Way; 2] {
        let both = self.both();
        [&self.up, &self.down].map(|own| own.clone().unwrap_or_default().over(&both))
    }
}

/// Where a node sends some packets, before it considers the shortest paths.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The node.
    pub node: Name,
    /// Sources it is for.
    pub from: Option<Spanned<PrefixText>>,
    /// Destinations it is for.
    pub to: Option<Spanned<PrefixText>>,
    /// Code point it is for.
    pub dscp: Option<Spanned<u8>>,
    /// `"tcp"`, `"udp"` or a number.
    pub protocol: Option<Protocol>,
    /// Destination port it is for.
    pub dport: Option<u16>,
    /// An interface of the node, a neighbour, or `"reject"`.
    pub via: Name,
}

/// Something happens: one of `cut`, `mend`, `attach`, `detach`, `rebind`, `restart`, `handover`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When.
    pub at: Spanned<Duration>,
    /// This link is cut.
    pub cut: Option<Name>,
    /// This link is mended.
    pub mend: Option<Name>,
    /// This radio attaches to `cell`.
    pub attach: Option<Name>,
    /// This radio leaves `cell`.
    pub detach: Option<Name>,
    /// Where to.
    pub cell: Option<Name>,
    /// The translator of this node forgets its mappings.
    pub rebind: Option<Name>,
    /// And has this outside address from then on.
    pub address: Option<Spanned<Address>>,
    /// This anchor or host crashes and restarts.
    pub restart: Option<Name>,
    /// This host is ordered to move all flows to the interface `to`.
    pub handover: Option<Name>,
    /// Which interface; without it an earlier order ends.
    pub to: Option<Name>,
    /// Which direction of the link; by default both.
    pub way: Option<Direction>,
    /// Time until the cut is mended; or how long an anchor is down.
    #[serde(rename = "for")]
    pub lasting: Option<Duration>,
}

/// Which directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the first end to the second.
    Up,
    /// From the second end to the first.
    Down,
    /// Either.
    #[default]
    Both,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr);

/// Addresses with the same first bits, or one address.
#[derive(Clone, Copy, Debug)]
pub struct PrefixText(pub Prefix);

/// A node, optionally with the name of one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: Option<String>,
}

/// A protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

from_text!(Address, |text: &str| {
    let parsed = text.parse().map(Address);
    parsed.map_err(|_| format!("{text:?} is no address"))
});
from_text!(PrefixText, |text: &str| {
    let parsed = Prefix::parse_network(text).map(PrefixText);
    parsed.map_err(|_| format!("{text:?} is no prefix: write ADDRESS/LENGTH, or an address"))
});
from_text!(End, end);
from_text!(Protocol, |text: &str| match text {
    "tcp" => Ok(Protocol(6)),
    "udp" => Ok(Protocol(17)),
    _ => Err(format!("{text:?} is no protocol: write \"tcp\" or \"udp\"")),
});

fn end(text: &str) -> Result<End, String> {
    let (node, interface) = text.split_once(':').map_or((text, None), |(n, i)| (n, Some(i)));
    if node.is_empty() || interface == Some("") {
        return Err(format!("{text:?} is no end of a link: write node or node:interface"));
    }
    Ok(End { node: node.to_owned(), interface: interface.map(str::to_owned) })
}
