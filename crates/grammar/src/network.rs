//! `[[node]]` and `[[link]]`, shared by test networks and scenarios. Each of the two refuses the keys that it does not
//! support.

use std::net::IpAddr;

use schemars::JsonSchema;
use segue_ip::Prefix;
use serde::Deserialize;

use crate::link::OverLink;
use crate::names::{check_address, check_name};
use crate::placed::{Name, Spanned};
use crate::source::Mistake;

/// A host or router.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Node {
    /// Unique among nodes
    pub name: Name,
    /// Addresses reached over any of its interfaces; in scenarios only. A node without an address gets one of
    /// 10.255.0.0/16, by its number in the file
    #[serde(default)]
    pub addresses: Vec<Spanned<Address>>,
    /// Forwards packets for others
    #[serde(default, alias = "router")]
    pub transit: bool,
    /// Routes; in test networks only, a scenario has `[[route]]`
    #[serde(default)]
    pub routes: Vec<Spanned<RouteText>>,
}

/// A link between two nodes; up is from the first to the second.
pub type Link = OverLink<Ends>;

/// The keys of a link other than its parameters.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Ends {
    /// Unique among links
    pub name: Name,
    /// *Up* is from the first to the second; an interface without a name has the link's
    #[schemars(extend("x-value" = "`[\"NODE\", \"NODE:INTERFACE\"]`"))]
    pub ends: [Spanned<End>; 2],
    /// Addresses of the interfaces at the first end and at the second, reached over this link alone. A prefix length may
    /// follow, which test networks require (`"10.0.1.2/24"`). Interfaces of a mobile host (`[[host]]`) that have none get
    /// one of 10.254.0.0/16
    #[serde(default)]
    #[schemars(extend("x-value" = "two lists of addresses"))]
    pub addresses: [Vec<Spanned<EndAddress>>; 2],
    /// Both ends detect when it is cut or mended, like the carrier of a wired interface. Hosts and anchors of tunnels probe
    /// the path and ignore the carrier
    #[schemars(extend("x-unset" = "false: an outage is silent"))]
    pub senses: Option<Spanned<bool>>,
    /// Seed of losses and jitter; in test networks only, a scenario has one seed
    pub seed: Option<Spanned<u64>>,
}

impl Ends {
    /// Checks the name, the ends and their addresses.
    ///
    /// # Errors
    /// The name or an address is invalid, or both ends are at the same node.
    pub fn check(&self) -> Result<(), Mistake> {
        check_name(&self.name)?;
        let [first, second] = &self.ends;
        if first.get_ref().node == second.get_ref().node {
            let message = format!("a link from {} to itself", second.get_ref().node);
            return Err(Mistake::of(second, message));
        }
        let mut addresses = self.addresses.iter().flatten();
        addresses.try_for_each(|written| check_address(written.get_ref().address, written))
    }

    /// True if the ends detect when the link is cut or restored.
    #[must_use]
    pub fn senses(&self) -> bool {
        self.senses.as_ref().is_some_and(|senses| *senses.get_ref())
    }
}

/// Directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ways {
    /// From the first end to the second.
    Up,
    /// From the second end to the first.
    Down,
    /// Both directions.
    #[default]
    Both,
}

impl Ways {
    /// Selects from the values of a link's two directions, up before down.
    pub fn of<T: Copy>(self, [up, down]: [T; 2]) -> impl Iterator<Item = T> {
        let ways = [(self != Ways::Down).then_some(up), (self != Ways::Up).then_some(down)];
        ways.into_iter().flatten()
    }
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr);

/// A prefix, or one address.
#[derive(Clone, Copy, Debug)]
pub struct PrefixText(pub Prefix);

/// The address of a link's end; in test networks, with the length of the link's prefix.
#[derive(Clone, Copy, Debug)]
pub struct EndAddress {
    /// The address.
    pub address: IpAddr,
    /// Length in bits of the prefix that both ends share.
    pub length: Option<u8>,
}

/// A node, optionally with the name of one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: Option<String>,
}

/// A route of a node in a test network.
#[derive(Clone, Copy, Debug)]
pub struct RouteText {
    /// The destination.
    pub destination: Prefix,
    /// The next hop.
    pub gateway: IpAddr,
    /// The route with the lowest metric wins.
    pub metric: Option<u32>,
}

from_text!(Address, "address", |text: &str| {
    let parsed = text.parse().map(Address);
    parsed.map_err(|_| format!("{text:?} is no address"))
});
from_text!(PrefixText, "prefix", |text: &str| {
    let parsed = Prefix::parse_network(text).map(PrefixText);
    parsed.map_err(|_| format!("{text:?} is no prefix: write ADDRESS/LENGTH, or an address"))
});
from_text!(EndAddress, "address", |text: &str| match text.parse::<Prefix>() {
    Ok(prefix) => Ok(EndAddress { address: prefix.addr, length: Some(prefix.len) }),
    Err(_) => match text.parse() {
        Ok(address) => Ok(EndAddress { address, length: None }),
        Err(_) => Err(format!("{text:?} is no address")),
    },
});
from_text!(End, "end", end);
from_text!(RouteText, "route", route);

fn end(text: &str) -> Result<End, String> {
    let (node, interface) = text.split_once(':').map_or((text, None), |(n, i)| (n, Some(i)));
    if node.is_empty() || interface == Some("") {
        return Err(format!("{text:?} is no end of a link: write node or node:interface"));
    }
    Ok(End { node: node.to_owned(), interface: interface.map(str::to_owned) })
}

fn route(text: &str) -> Result<RouteText, String> {
    let bad = || format!("{text:?} is no route: write PREFIX|default via GATEWAY [metric N]");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (destination, gateway, metric) = match words[..] {
        [destination, "via", gateway] => (destination, gateway, None),
        [destination, "via", gateway, "metric", n] => {
            (destination, gateway, Some(n.parse().map_err(|_| bad())?))
        }
        _ => return Err(bad()),
    };
    let gateway: IpAddr = gateway.parse().map_err(|_| bad())?;
    let destination = match destination {
        "default" => Prefix::default_of(gateway.is_ipv6()),
        other => other.parse().map_err(|_| bad())?,
    };
    Ok(RouteText { destination, gateway, metric })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_with_and_without_a_metric() {
        let r = route("default via fd00::1 metric 7").unwrap();
        assert_eq!((r.destination, r.metric), (Prefix::default_of(true), Some(7)));
        assert_eq!(route("10.9.0.0/16 via 10.0.0.1").unwrap().destination.len, 16);
        for bad in ["default", "default via x", "1.2.3.4 via 1.2.3.4", "default via ::1 metric x"] {
            assert!(route(bad).is_err(), "{bad}");
        }
    }
}
