//! The ways that packets of paths leave: for each interface, its source addresses and their next hops, according to the
//! kernel's routes and rules.

use std::net::IpAddr;

use segue_ip::{MAIN_TABLE, Route, order_sources};
use segue_linux::monitor::Device;
use segue_linux::route::way_over;
use tracing::debug;

use crate::packets::MARK;

/// Most addresses of a family considered per interface; further ones are not used.
const MOST: usize = 8;
/// Kinds of devices that lead into tunnels of other programs. A rule may send everything into such a tunnel, and its
/// outer packets through Segue, so a path over it would be a loop.
const TUNNELS: [&str; 10] =
    ["wireguard", "tun", "xfrm", "vti", "vti6", "ipip", "sit", "gre", "ip6tnl", "ip6gre"];

/// A way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Source address.
    pub source: IpAddr,
    /// Next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The table that the route is in.
    pub table: u32,
    /// The kernel finds the route for sockets bound to the interface. For IPv4 it does not find a route behind
    /// a nexthop object that is not the best one. A packet path that names interface and next hop needs no route.
    pub is_found: bool,
}

/// The ways to `destination` over a device, one for each source address with a route, best first: the source that the
/// kernel prefers, then the others by RFC 6724. With `is_named`, the operator has listed this device.
#[must_use]
pub fn ways(device: &Device, destination: IpAddr, is_named: bool) -> Vec<Way> {
    let v6 = destination.is_ipv6();
    let own = device.interface.addresses.iter().copied().filter(|a| a.is_ipv6() == v6);
    let mut sources: Vec<IpAddr> = own.take(MOST).collect();
    let ask = |source| {
        way_over(destination, source, device.interface.index, MARK).unwrap_or_else(|error| {
            debug!("{error}");
            None
        })
    };
    let general = ask(None);
    order_sources(destination, &mut sources, |a| device.deprecated.contains(a));
    // For an interface without an address, the kernel may pick one of another interface.
    let is_own = |source: &IpAddr| sources.contains(source);
    let preferred = general.and_then(|way| way.source.filter(|own| way.is_named || is_own(own)));
    if let Some(preferred) = preferred {
        sources.retain(|source| *source != preferred);
        sources.insert(0, preferred);
    }
    let is_tunnel = is_tunnel(device);
    let way = |source| {
        if let Some(way) = ask(Some(source)).or(general) {
            return Some(Way { source, gateway: way.gateway, table: way.table, is_found: true });
        }
        let route = device.route_to(destination)?;
        Some(Way { source, gateway: route.gateway, table: MAIN_TABLE, is_found: false })
    };
    let may = |way: &Way| is_named || !is_tunnel || way.table == MAIN_TABLE;
    sources.into_iter().filter_map(way).filter(may).collect()
}

/// Returns whether a device leads into a tunnel.
pub(crate) fn is_tunnel(device: &Device) -> bool {
    device.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind))
}

/// Why a device with an address of a family has no way to the anchor although it has a default route, with a remedy;
/// `None` if it has no default route.
#[must_use]
pub fn why_unused(device: &Device, v6: bool) -> Option<String> {
    let name = &device.interface.name;
    let own = device.interface.addresses.iter().find(|a| a.is_ipv6() == v6)?;
    let over = |route: &&Route| {
        route.index == device.interface.index && route.destination.addr.is_ipv6() == v6
    };
    let Some(route) = device.elsewhere.iter().find(over) else {
        let hidden = |r: &Route| r.index == 0 && r.destination.addr.is_ipv6() == v6;
        return device.elsewhere.iter().any(hidden).then(|| {
            format!(
                "{name} is not used: there are default routes behind nexthop objects, but the kernel does not show over \
                 which interface (net.ipv4.nexthop_compat_mode = 0); set that to 1, or replace them with plain routes"
            )
        });
    };
    let table = route.table;
    if is_tunnel(device) {
        return Some(format!(
            "{name} is not used, since it leads into another program's tunnel: list it in interfaces if it should be"
        ));
    }
    Some(format!(
        "{name} is not used: its default route is in table {table}, and no rule leads packets from {own} there; add \
         one (ip rule add from {own} lookup {table}), or a default route in the main table"
    ))
}

/// The warning for a configured source that an interface does not have.
#[must_use]
pub fn missing_source(interface: &str, source: IpAddr) -> String {
    format!(
        "path.{interface}.source: {interface} has no address {source} that leads to the anchor, so that there is no path of \
         its family; correct it, or leave it out"
    )
}

/// The warning for an interface whose route the kernel does not find for bound sockets; `None` if it finds all.
#[must_use]
pub fn unfound(device: &Device, ways: &[Way]) -> Option<String> {
    let name = &device.interface.name;
    let gateway = ways.iter().find(|way| !way.is_found)?.gateway?;
    Some(format!(
        "{name}: Linux does not find the route by {gateway} for sockets bound to the interface, as it is behind a nexthop \
         object and another one is better, or a rule refuses them: the eBPF datapath sends there all the same, user space \
         and signalling cannot; replace it with a plain route"
    ))
}
