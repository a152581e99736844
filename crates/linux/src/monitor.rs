//! A watch on interfaces that come and go.
//!
//! [`snapshot`] lists the interfaces of the caller's network namespace with the addresses and routes
//! that matter for paths; a [`Monitor`] waits for the next list that differs. The notifications of
//! rtnetlink serve as a wake-up call only and what is reported is always read in full, so that a lost
//! notification (a full socket buffer) cannot leave a wrong picture behind. Call from a tokio runtime;
//! a current-thread one is enough.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use futures_util::TryStreamExt;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, State,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use tokio::io::unix::AsyncFd;

use crate::link::is_ipv4_link_local;

/// Changes come in groups (a link, its addresses, its routes); they are reported together when
/// nothing has come for this long, …
const QUIET: Duration = Duration::from_millis(50);
/// … but at the latest after this long, should changes never stop, and at once when a link went down.
const PATIENCE: Duration = Duration::from_millis(500);

/// The kernel refused to tell about interfaces.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MonitorError {
    /// What was tried.
    what: &'static str,
    /// Why it failed.
    #[source]
    source: io::Error,
}

/// One network interface, as far as paths are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// It carries packets: administratively up, and the link below is up or does not say.
    pub up: bool,
    /// A loopback device.
    pub loopback: bool,
    /// The kind of a virtual device (`tun`, `veth`, `wireguard`…); hardware has none.
    pub kind: Option<String>,
    /// Packets on it begin with an Ethernet header.
    pub ethernet: bool,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Addresses that a new socket may use (neither tentative nor deprecated) and that reach beyond the
    /// link, in ascending order.
    pub addresses: Vec<IpAddr>,
    /// Next hop of the best IPv4 default route over it, if that has one.
    pub gateway_v4: Option<Ipv4Addr>,
    /// Next hop of the best IPv6 default route over it, if that has one.
    pub gateway_v6: Option<Ipv6Addr>,
    /// Lowest metric of the default routes over it.
    pub metric: Option<u32>,
    /// The main table has a default route over it, of either family.
    pub default_route: bool,
    /// The unicast routes of the main table over it, default routes included; the most specific
    /// first, then by metric.
    pub routes: Vec<Route>,
}

/// One route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub prefix: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
    /// Next hop; `None` where destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Priority; the lowest is used first.
    pub metric: u32,
}

impl Route {
    /// Whether `address` lies in the destination prefix.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (prefix, address, width) = match (self.prefix, address) {
            (IpAddr::V4(p), IpAddr::V4(a)) => (p.to_bits().into(), a.to_bits().into(), 32),
            (IpAddr::V6(p), IpAddr::V6(a)) => (p.to_bits(), a.to_bits(), 128),
            _ => return false,
        };
        let host_bits = width - u32::from(self.prefix_len).min(width);
        (prefix ^ address).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

impl Interface {
    /// The route that packets to `destination` take if they must leave over this interface.
    #[must_use]
    pub fn route_to(&self, destination: IpAddr) -> Option<&Route> {
        self.routes.iter().find(|route| route.contains(destination))
    }

    /// An address of `anchor`'s family is here, and a route towards it.
    #[must_use]
    pub fn reaches(&self, anchor: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.is_ipv4() == anchor.is_ipv4())
            && self.route_to(anchor).is_some()
    }
}

/// Those of `interfaces` over which a path to `anchor` may run: up, neither loopback nor a device of
/// this program (their names begin with `segue`, those of test networks excepted, which are no TUN
/// devices), with an address of the anchor's family and a route to it.
#[must_use]
pub fn physical_candidates(interfaces: &[Interface], anchor: IpAddr) -> Vec<Interface> {
    let ours = |i: &Interface| i.kind.as_deref() == Some("tun") && i.name.starts_with("segue");
    interfaces
        .iter()
        .filter(|i| i.up && !i.loopback && !ours(i) && i.reaches(anchor))
        .cloned()
        .collect()
}

/// The interfaces as they are, by index.
///
/// # Errors
/// If netlink is unavailable (no permission, no such socket family).
pub async fn snapshot() -> Result<Vec<Interface>, MonitorError> {
    with_netlink(async |handle| read_with(&handle).await).await
}

async fn with_netlink<T>(
    ask: impl AsyncFnOnce(Handle) -> Result<T, MonitorError>,
) -> Result<T, MonitorError> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(fail("open a netlink socket"))?;
    let connection = tokio::spawn(connection);
    let result = ask(handle).await;
    connection.abort();
    result
}

/// Waits for changes of the interfaces in the network namespace in which it was made.
pub struct Monitor {
    socket: AsyncFd<OwnedFd>,
    last: Vec<Interface>,
}

impl Monitor {
    /// Starts to watch; what changes from here on is reported.
    ///
    /// # Errors
    /// If netlink is unavailable.
    pub async fn new() -> Result<Monitor, MonitorError> {
        let socket = listen().map_err(fail("watch interfaces"))?;
        let last = snapshot().await?;
        Ok(Monitor { socket, last })
    }

    /// The list that was reported last.
    #[must_use]
    pub fn current(&self) -> &[Interface] {
        &self.last
    }

    /// Waits until the interfaces differ from [`Monitor::current`] and returns them. May be dropped
    /// at any point without losing a change.
    ///
    /// # Errors
    /// If netlink fails.
    pub async fn changed(&mut self) -> Result<Vec<Interface>, MonitorError> {
        loop {
            // A change that was taken from the socket by an earlier, dropped call shows up here.
            let interfaces = snapshot().await?;
            if interfaces != self.last {
                self.last.clone_from(&interfaces);
                return Ok(interfaces);
            }
            self.notified().await.map_err(fail("watch interfaces"))?;
            // Not at all once a link is down.
            let settled = async {
                while self.all_up().await? {
                    match tokio::time::timeout(QUIET, self.notified()).await {
                        Ok(result) => result.map_err(fail("watch interfaces"))?,
                        Err(_) => break,
                    }
                }
                Ok(())
            };
            if let Ok(result) = tokio::time::timeout(PATIENCE, settled).await {
                result?;
            }
        }
    }

    /// Whether those that were up when they were reported last still are.
    async fn all_up(&self) -> Result<bool, MonitorError> {
        let links = with_netlink(async |handle| read_links(&handle).await).await?;
        let is_up = |old: &Interface| links.get(&old.index).is_some_and(|new| new.up);
        Ok(self.last.iter().filter(|old| old.up).all(is_up))
    }

    /// Waits for notifications and takes all that are there. A full buffer counts as one.
    async fn notified(&self) -> io::Result<()> {
        loop {
            let mut guard = self.socket.readable().await?;
            let mut any = false;
            let mut buffer = [0; 4096];
            let end = loop {
                match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                    Ok(_) | Err(Errno::ENOBUFS) => any = true,
                    Err(Errno::EINTR) => {}
                    Err(error) => break error,
                }
            };
            if end != Errno::EAGAIN {
                return Err(end.into());
            }
            guard.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}

fn listen() -> io::Result<AsyncFd<OwnedFd>> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let mask = groups.iter().fold(0, |mask, group| mask | 1 << (*group as u32 - 1));
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask))?;
    // SAFETY: an `OwnedFd` is open, and stays the same descriptor as long as it is owned.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

async fn read_links(handle: &Handle) -> Result<BTreeMap<u32, Interface>, MonitorError> {
    let mut interfaces = BTreeMap::new();
    let mut links = handle.link().get().execute();
    while let Some(message) = links.try_next().await.map_err(fail("list interfaces"))? {
        let interface = link(&message);
        interfaces.insert(interface.index, interface);
    }
    Ok(interfaces)
}

async fn read_with(handle: &Handle) -> Result<Vec<Interface>, MonitorError> {
    let mut interfaces = read_links(handle).await?;
    let mut addresses = handle.address().get().execute();
    while let Some(message) = addresses.try_next().await.map_err(fail("list addresses"))? {
        if let Some(interface) = interfaces.get_mut(&message.header.index) {
            interface.addresses.extend(usable_address(&message));
        }
    }
    for question in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let mut routes = handle.route().get(question).execute();
        while let Some(message) = routes.try_next().await.map_err(fail("list routes"))? {
            for (index, route) in unicast_routes(&message) {
                if let Some(interface) = interfaces.get_mut(&index) {
                    interface.routes.push(route);
                }
            }
        }
    }
    Ok(interfaces.into_values().map(finished).collect())
}

fn link(message: &LinkMessage) -> Interface {
    let header = &message.header;
    let mut interface = Interface {
        index: header.index,
        name: String::new(),
        up: false,
        loopback: header.flags.contains(LinkFlags::Loopback),
        kind: None,
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        mtu: 0,
        addresses: Vec::new(),
        gateway_v4: None,
        gateway_v6: None,
        metric: None,
        default_route: false,
        routes: Vec::new(),
    };
    // Drivers without an operational state (TUN, loopback, many mobile modems) say `Unknown`.
    let mut link_up = header.flags.contains(LinkFlags::LowerUp);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::OperState(state) => {
                link_up &= matches!(state, State::Up | State::Unknown);
            }
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::Kind(kind) = info {
                        interface.kind = Some(kind.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    interface.up = header.flags.contains(LinkFlags::Up) && link_up;
    interface
}

fn usable_address(message: &AddressMessage) -> Option<IpAddr> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut address, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Flags(all) => flags = *all,
            // On a point-to-point device this is the other end's and `Local` is ours.
            AddressAttribute::Address(a) => address = Some(*a),
            AddressAttribute::Local(a) => local = Some(*a),
            _ => {}
        }
    }
    // An optimistic address (RFC 4429) is tentative but usable.
    let undecided =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    let unusable = undecided
        || flags.contains(AddressFlags::Deprecated)
        || flags.contains(AddressFlags::Dadfailed);
    local.or(address).filter(|a| !unusable && !is_ipv4_link_local(*a))
}

/// The routes in a message with their interfaces; several for a multipath route.
fn unicast_routes(message: &RouteMessage) -> Vec<(u32, Route)> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let (mut prefix, mut metric, mut oif) = (None, 0, None);
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(t) => table = *t,
            RouteAttribute::Destination(address) => prefix = ip(address),
            RouteAttribute::Priority(p) => metric = *p,
            RouteAttribute::Oif(index) => oif = Some(*index),
            RouteAttribute::MultiPath(list) => {
                let alive = list.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                hops.extend(alive.map(|hop| (hop.interface_index, gateway(&hop.attributes))));
            }
            _ => {}
        }
    }
    if header.kind != RouteType::Unicast || table != u32::from(RouteHeader::RT_TABLE_MAIN) {
        return Vec::new();
    }
    if let Some(index) = oif {
        hops.push((index, gateway(&message.attributes)));
    }
    let prefix = prefix.unwrap_or(match header.address_family {
        rtnetlink::packet_route::AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    });
    let prefix_len = header.destination_prefix_length;
    hops.into_iter()
        .map(|(index, gateway)| (index, Route { prefix, prefix_len, gateway, metric }))
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

/// Puts lists in order, so that equal states compare equal, and sums the default routes up.
fn finished(mut interface: Interface) -> Interface {
    interface.addresses.sort_unstable();
    let order = |r: &Route| (std::cmp::Reverse(r.prefix_len), r.metric, r.prefix, r.gateway);
    interface.routes.sort_unstable_by_key(order);
    let defaults = || interface.routes.iter().filter(|route| route.prefix_len == 0);
    // Routes stand in order of their metrics, so the first of a family is its best.
    let best = |v4: bool| defaults().find(|r| r.prefix.is_ipv4() == v4).and_then(|r| r.gateway);
    interface.gateway_v4 =
        best(true).and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None });
    interface.gateway_v6 =
        best(false).and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None });
    interface.metric = defaults().map(|route| route.metric).min();
    interface.default_route = interface.metric.is_some();
    interface
}

fn fail<E: Display>(what: &'static str) -> impl Fn(E) -> MonitorError {
    move |error| MonitorError { what, source: io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, prefix_len: u8, gateway: Option<&str>, metric: u32) -> Route {
        let gateway = gateway.map(|g| g.parse().unwrap());
        Route { prefix: prefix.parse().unwrap(), prefix_len, gateway, metric }
    }

    fn wlan() -> Interface {
        finished(Interface {
            index: 3,
            name: "wlan0".into(),
            up: true,
            loopback: false,
            kind: None,
            ethernet: true,
            mtu: 1500,
            addresses: vec!["192.0.2.7".parse().unwrap()],
            gateway_v4: None,
            gateway_v6: None,
            metric: None,
            default_route: false,
            routes: vec![
                route("0.0.0.0", 0, Some("192.0.2.9"), 600),
                route("192.0.2.0", 24, None, 0),
                route("0.0.0.0", 0, Some("192.0.2.1"), 100),
            ],
        })
    }

    #[test]
    fn the_default_route_with_the_lowest_metric_gives_the_gateway() {
        let wlan = wlan();
        assert_eq!(wlan.gateway_v4, Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!((wlan.gateway_v6, wlan.metric, wlan.default_route), (None, Some(100), true));
    }

    #[test]
    fn the_most_specific_route_leads_to_a_destination() {
        let wlan = wlan();
        let via = |a: &str| wlan.route_to(a.parse().unwrap()).map(|r| r.gateway);
        assert_eq!(via("192.0.2.200"), Some(None));
        assert_eq!(via("198.51.100.1"), Some(Some("192.0.2.1".parse().unwrap())));
        assert_eq!(via("2001:db8::1"), None);
    }

    #[test]
    fn prefixes_of_every_length_contain_what_they_should() {
        assert!(route("2001:db8::", 32, None, 0).contains("2001:db8:1::1".parse().unwrap()));
        assert!(!route("2001:db8::", 32, None, 0).contains("2001:db9::1".parse().unwrap()));
        assert!(route("::", 0, None, 0).contains("ff02::1".parse().unwrap()));
        assert!(!route("::", 0, None, 0).contains("10.0.0.1".parse().unwrap()));
        assert!(route("10.0.0.1", 32, None, 0).contains("10.0.0.1".parse().unwrap()));
        assert!(!route("10.0.0.1", 32, None, 0).contains("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn only_interfaces_that_can_carry_a_path_are_candidates() {
        let anchor = "198.51.100.1".parse().unwrap();
        let chosen = |change: fn(&mut Interface)| {
            let mut interface = wlan();
            change(&mut interface);
            !physical_candidates(&[interface], anchor).is_empty()
        };
        assert!(chosen(|_| {}));
        assert!(chosen(|i| (i.name, i.kind) = ("segue-w".into(), Some("veth".into()))));
        assert!(!chosen(|i| i.up = false));
        assert!(!chosen(|i| i.loopback = true));
        assert!(!chosen(|i| (i.name, i.kind) = ("segue0".into(), Some("tun".into()))));
        assert!(!chosen(|i| i.addresses = vec!["2001:db8::7".parse().unwrap()]));
        assert!(!chosen(|i| i.routes.retain(|r| r.prefix_len > 0)));
    }

    #[tokio::test]
    async fn a_snapshot_shows_the_loopback_device() {
        let interfaces = snapshot().await.unwrap();
        let lo = interfaces.iter().find(|i| i.loopback).unwrap();
        assert_eq!((lo.name.as_str(), lo.default_route), ("lo", false));
        assert!(lo.mtu > 0 && lo.up);
    }
}
