//! Reads the devices with their addresses and routes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, State,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use segue_ip::{Interface, MAIN_TABLE, Prefix, Route};

use super::device::{Device, finished};
use crate::link::is_ipv4_link_local;

/// A failure to read or watch the interfaces.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MonitorError {
    /// The attempted action.
    what: &'static str,
    /// Why it failed.
    #[source]
    source: io::Error,
}

/// The current devices, by index.
///
/// # Errors
/// Netlink is unavailable (no permission, no such socket family).
pub async fn snapshot() -> Result<Vec<Device>, MonitorError> {
    with_netlink(async |handle| read_with(&handle).await).await
}

pub(super) async fn with_netlink<T>(
    ask: impl AsyncFnOnce(Handle) -> Result<T, MonitorError>,
) -> Result<T, MonitorError> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(fail("open a netlink socket"))?;
    let connection = tokio::spawn(connection);
    let result = ask(handle).await;
    connection.abort();
    result
}

pub(super) async fn read_links(handle: &Handle) -> Result<BTreeMap<u32, Device>, MonitorError> {
    let mut devices = BTreeMap::new();
    let mut links = handle.link().get().execute();
    while let Some(message) = links.try_next().await.map_err(fail("list interfaces"))? {
        devices.insert(message.header.index, link(&message));
    }
    Ok(devices)
}

async fn read_with(handle: &Handle) -> Result<Vec<Device>, MonitorError> {
    let mut devices = read_links(handle).await?;
    let mut addresses = handle.address().get().execute();
    while let Some(message) = addresses.try_next().await.map_err(fail("list addresses"))? {
        if let Some(device) = devices.get_mut(&message.header.index) {
            let Some((address, is_deprecated)) = usable_address(&message) else { continue };
            device.interface.addresses.push(address);
            device.deprecated.extend(Some(address).filter(|_| is_deprecated));
        }
    }
    for question in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let mut routes = handle.route().get(question).execute();
        while let Some(message) = routes.try_next().await.map_err(fail("list routes"))? {
            for route in unicast_routes(&message) {
                let over =
                    |device: &&mut Device| [0, device.interface.index].contains(&route.index);
                for device in devices.values_mut().filter(over) {
                    match (route.table, route.index) {
                        (LOCAL_TABLE, _) => {}
                        (MAIN_TABLE, 1..) => device.routes.push(route),
                        _ if route.destination.len == 0 => device.elsewhere.push(route),
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(devices.into_values().map(finished).collect())
}

/// Number of the table of local addresses.
const LOCAL_TABLE: u32 = 255;

pub(super) fn link(message: &LinkMessage) -> Device {
    let header = &message.header;
    let mut device = Device {
        interface: Interface { index: header.index, ..Interface::default() },
        loopback: header.flags.contains(LinkFlags::Loopback),
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        ..Device::default()
    };
    // Drivers without an operational state (TUN, loopback, many modems) report `Unknown`.
    let mut link_up = header.flags.contains(LinkFlags::LowerUp);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu_bytes) => device.interface.mtu_bytes = *mtu_bytes,
            LinkAttribute::OperState(state) => {
                link_up &= matches!(state, State::Up | State::Unknown);
            }
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::Kind(kind) = info {
                        device.kind = Some(kind.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    device.up = header.flags.contains(LinkFlags::Up) && link_up;
    device
}

/// The address if a socket may use it, and whether it is deprecated.
fn usable_address(message: &AddressMessage) -> Option<(IpAddr, bool)> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut address, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Flags(all) => flags = *all,
            // On a point-to-point device this is the peer's address, and `Local` is ours.
            AddressAttribute::Address(a) => address = Some(*a),
            AddressAttribute::Local(a) => local = Some(*a),
            _ => {}
        }
    }
    // An optimistic address (RFC 4429) is tentative but usable.
    let undecided =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    let unusable = undecided || flags.contains(AddressFlags::Dadfailed);
    let usable = local.or(address).filter(|a| !unusable && !is_ipv4_link_local(*a));
    usable.map(|address| (address, flags.contains(AddressFlags::Deprecated)))
}

/// The routes in a message with their interfaces; several for a multipath route. The index is 0 for a route through a
/// nexthop object whose interface the kernel does not repeat (`net.ipv4.nexthop_compat_mode = 0`).
fn unicast_routes(message: &RouteMessage) -> Vec<Route> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let (mut destination, mut metric, mut oif, mut object) = (None, None, None, false);
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(t) => table = *t,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Priority(p) => metric = Some(*p),
            RouteAttribute::Oif(index) => oif = Some(*index),
            RouteAttribute::NhId(_) => object = true,
            RouteAttribute::MultiPath(list) => {
                let alive = list.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                hops.extend(alive.map(|hop| (hop.interface_index, gateway(&hop.attributes))));
            }
            _ => {}
        }
    }
    if header.kind != RouteType::Unicast {
        return Vec::new();
    }
    if let Some(index) = oif {
        hops.push((index, gateway(&message.attributes)));
    }
    if object && hops.is_empty() {
        hops.push((0, None));
    }
    let v6 = header.address_family != rtnetlink::packet_route::AddressFamily::Inet;
    let addr = destination.unwrap_or(Prefix::default_of(v6).addr);
    let destination = Prefix { addr, len: header.destination_prefix_length };
    hops.into_iter()
        .map(|(index, gateway)| Route { gateway, metric, table, ..Route::on(destination, index) })
        .collect()
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(a)) => Some((*a).into()),
        RouteAttribute::Via(RouteVia::Inet6(a)) => Some((*a).into()),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some((*a).into()),
        RouteAddress::Inet6(a) => Some((*a).into()),
        _ => None,
    }
}

pub(super) fn fail<E: Display>(what: &'static str) -> impl Fn(E) -> MonitorError {
    move |error| MonitorError { what, source: io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_snapshot_shows_the_loopback_device() {
        let devices = snapshot().await.unwrap();
        let lo = devices.iter().find(|d| d.loopback).unwrap();
        assert_eq!((lo.interface.name.as_str(), lo.default_route), ("lo", false));
        assert!(lo.interface.mtu_bytes > 0 && lo.up);
    }
}
