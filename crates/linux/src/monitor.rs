//! A watch on interfaces that come and go.
//!
//! [`snapshot`] lists the devices of the caller's network namespace with the addresses and routes
//! that matter for paths; a [`Monitor`] waits for the next list that differs. The notifications of rtnetlink only
//! wake it up, and it always reads the state in full, so a lost notification (a full socket buffer) cannot leave a
//! wrong picture behind. Call from a tokio runtime; a current-thread one is enough.

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
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use segue_ip::{Interface, MAIN_TABLE, Prefix, Route};
use tokio::io::unix::AsyncFd;

use crate::link::is_ipv4_link_local;

/// Changes come in groups (a link, its addresses, its routes); they are reported together when
/// nothing has come for this long, …
const QUIET: Duration = Duration::from_millis(50);
/// … but at the latest after this long if changes never stop, and at once when a link went down.
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

/// A network device, as far as paths are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What protocols are told about it. Its addresses are those that a new socket may use (neither tentative nor
    /// deprecated), in ascending order; its gateways are the next hops of the best default routes over it, if they
    /// have one.
    pub interface: Interface,
    /// It carries packets: administratively up, and the link below is up or does not say.
    pub up: bool,
    /// A loopback device.
    pub loopback: bool,
    /// The kind of a virtual device (`tun`, `veth`, `wireguard`…); hardware has none.
    pub kind: Option<String>,
    /// Packets on it begin with an Ethernet header.
    pub ethernet: bool,
    /// Lowest metric of the default routes over it.
    pub metric: Option<u32>,
    /// The main table has a default route over it, of either family.
    pub default_route: bool,
    /// The unicast routes of the main table over it, default routes included, without preferred source and MTU; the
    /// most specific first, then by metric.
    pub routes: Vec<Route>,
}

impl Device {
    /// The route of packets to `destination` that must leave over this device.
    #[must_use]
    pub fn route_to(&self, destination: IpAddr) -> Option<&Route> {
        self.routes.iter().find(|route| route.destination.contains(destination))
    }

    /// It has an address of `anchor`'s family, and a route towards it.
    #[must_use]
    fn reaches(&self, anchor: IpAddr) -> bool {
        self.interface.addresses.iter().any(|a| a.is_ipv4() == anchor.is_ipv4())
            && self.route_to(anchor).is_some()
    }
}

/// The devices over which a path to `anchor` may run. They are up, are neither loopback nor a device of this program
/// (whose names begin with `segue`; test networks' are excepted, being no TUN devices), and have an address of the
/// anchor's family and a route to it.
#[must_use]
pub fn physical_candidates(devices: &[Device], anchor: IpAddr) -> Vec<Device> {
    let named = |d: &Device| d.interface.name.starts_with("segue");
    let ours = |d: &Device| d.kind.as_deref() == Some("tun") && named(d);
    devices
        .iter()
        .filter(|d| d.up && !d.loopback && !ours(d) && d.reaches(anchor))
        .cloned()
        .collect()
}

/// The current devices, by index.
///
/// # Errors
/// If netlink is unavailable (no permission, no such socket family).
pub async fn snapshot() -> Result<Vec<Device>, MonitorError> {
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
    last: Vec<Device>,
}

impl Monitor {
    /// Starts to watch; reports every change from here on.
    ///
    /// # Errors
    /// If netlink is unavailable.
    pub async fn new() -> Result<Monitor, MonitorError> {
        let socket = listen().map_err(fail("watch interfaces"))?;
        let last = snapshot().await?;
        Ok(Monitor { socket, last })
    }

    /// The list last reported.
    #[must_use]
    pub fn current(&self) -> &[Device] {
        &self.last
    }

    /// Waits until the interfaces differ from [`Monitor::current`] and returns them. May be dropped
    /// at any point without losing a change.
    ///
    /// # Errors
    /// If netlink fails.
    pub async fn changed(&mut self) -> Result<Vec<Device>, MonitorError> {
        loop {
            // A change that an earlier, dropped call took from the socket shows up here.
            let devices = snapshot().await?;
            if devices != self.last {
                self.last.clone_from(&devices);
                return Ok(devices);
            }
            self.notified().await.map_err(fail("watch interfaces"))?;
            // No delay once a link is down.
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

    /// Whether the devices last reported as up still are.
    async fn all_up(&self) -> Result<bool, MonitorError> {
        let links = with_netlink(async |handle| read_links(&handle).await).await?;
        let is_up = |old: &Device| links.get(&old.interface.index).is_some_and(|new| new.up);
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

async fn read_links(handle: &Handle) -> Result<BTreeMap<u32, Device>, MonitorError> {
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
            device.interface.addresses.extend(usable_address(&message));
        }
    }
    for question in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let mut routes = handle.route().get(question).execute();
        while let Some(message) = routes.try_next().await.map_err(fail("list routes"))? {
            for route in unicast_routes(&message) {
                if let Some(device) = devices.get_mut(&route.index) {
                    device.routes.push(route);
                }
            }
        }
    }
    Ok(devices.into_values().map(finished).collect())
}

fn link(message: &LinkMessage) -> Device {
    let header = &message.header;
    let mut device = Device {
        interface: Interface { index: header.index, ..Interface::default() },
        up: false,
        loopback: header.flags.contains(LinkFlags::Loopback),
        kind: None,
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        metric: None,
        default_route: false,
        routes: Vec::new(),
    };
    // Drivers without an operational state (TUN, loopback, many mobile modems) say `Unknown`.
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

/// The routes in a message, each over its interface; several for a multipath route.
fn unicast_routes(message: &RouteMessage) -> Vec<Route> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let (mut destination, mut metric, mut oif) = (None, None, None);
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(t) => table = *t,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Priority(p) => metric = Some(*p),
            RouteAttribute::Oif(index) => oif = Some(*index),
            RouteAttribute::MultiPath(list) => {
                let alive = list.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                hops.extend(alive.map(|hop| (hop.interface_index, gateway(&hop.attributes))));
            }
            _ => {}
        }
    }
    if header.kind != RouteType::Unicast || table != MAIN_TABLE {
        return Vec::new();
    }
    if let Some(index) = oif {
        hops.push((index, gateway(&message.attributes)));
    }
    let v6 = header.address_family != rtnetlink::packet_route::AddressFamily::Inet;
    let addr = destination.unwrap_or(Prefix::default_of(v6).addr);
    let destination = Prefix { addr, len: header.destination_prefix_length };
    hops.into_iter()
        .map(|(index, gateway)| Route { gateway, metric, ..Route::on(destination, index) })
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

/// Sorts lists, so that equal states compare equal, and sums the default routes up.
fn finished(mut device: Device) -> Device {
    device.interface.addresses.sort_unstable();
    // The kernel does not mention an IPv4 route's metric of 0.
    let metric = |r: &Route| r.metric.unwrap_or(0);
    let order = |r: &Route| {
        let Prefix { addr, len } = r.destination;
        (std::cmp::Reverse(len), metric(r), addr, r.gateway)
    };
    device.routes.sort_unstable_by_key(order);
    let defaults = || device.routes.iter().filter(|route| route.destination.len == 0);
    // Routes are in order of their metrics, so the first of a family is its best. Its next hop may be of the other.
    let best = |v6: bool| {
        let first = defaults().find(|route| route.destination.addr.is_ipv6() == v6)?;
        first.gateway.filter(|gateway| gateway.is_ipv6() == v6)
    };
    device.interface.gateways = [best(false), best(true)].into_iter().flatten().collect();
    device.metric = defaults().map(metric).min();
    device.default_route = device.metric.is_some();
    device
}

fn fail<E: Display>(what: &'static str) -> impl Fn(E) -> MonitorError {
    move |error| MonitorError { what, source: io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, gateway: Option<&str>, metric: u32) -> Route {
        let gateway = gateway.map(|g| g.parse().unwrap());
        Route { gateway, ..Route::on(destination.parse().unwrap(), 3).metric(metric) }
    }

    fn wlan() -> Device {
        finished(Device {
            interface: Interface {
                index: 3,
                name: "wlan0".into(),
                addresses: vec!["192.0.2.7".parse().unwrap()],
                gateways: Vec::new(),
                mtu_bytes: 1500,
            },
            up: true,
            loopback: false,
            kind: None,
            ethernet: true,
            metric: None,
            default_route: false,
            routes: vec![
                route("0.0.0.0/0", Some("192.0.2.9"), 600),
                Route { metric: None, ..route("192.0.2.0/24", None, 0) },
                route("0.0.0.0/0", Some("192.0.2.1"), 100),
            ],
        })
    }

    #[test]
    fn the_default_route_with_the_lowest_metric_gives_the_gateway() {
        let wlan = wlan();
        assert_eq!(wlan.interface.gateways, [IpAddr::from([192, 0, 2, 1])]);
        assert_eq!((wlan.metric, wlan.default_route), (Some(100), true));
    }

    #[test]
    fn each_family_has_one_gateway_at_most_and_one_of_its_own() {
        let gateways = |routes: &[Route]| {
            let device = finished(Device { routes: routes.to_vec(), ..wlan() });
            device.interface.gateways.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        let v4 = route("0.0.0.0/0", Some("192.0.2.1"), 100);
        let v6 = route("::/0", Some("fe80::1"), 50);
        assert_eq!(gateways(&[v6, v4]), ["192.0.2.1", "fe80::1"]);
        // The best one decides, whatever its next hop (RFC 5549).
        let first = route("0.0.0.0/0", Some("fe80::1"), 50);
        assert_eq!(gateways(&[v4, first, v6]), ["fe80::1"]);
        assert_eq!(gateways(&[v4, Route { metric: None, gateway: None, ..v4 }]), [""; 0]);
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
    fn only_devices_that_can_carry_a_path_are_candidates() {
        let anchor = "198.51.100.1".parse().unwrap();
        let chosen = |change: fn(&mut Device)| {
            let mut device = wlan();
            change(&mut device);
            !physical_candidates(&[device], anchor).is_empty()
        };
        assert!(chosen(|_| {}));
        assert!(chosen(|d| (d.interface.name, d.kind) = ("segue-w".into(), Some("veth".into()))));
        assert!(!chosen(|d| d.up = false));
        assert!(!chosen(|d| d.loopback = true));
        assert!(!chosen(|d| (d.interface.name, d.kind) = ("segue0".into(), Some("tun".into()))));
        assert!(!chosen(|d| d.interface.addresses = vec!["2001:db8::7".parse().unwrap()]));
        assert!(!chosen(|d| d.routes.retain(|r| r.destination.len > 0)));
    }

    #[tokio::test]
    async fn a_snapshot_shows_the_loopback_device() {
        let devices = snapshot().await.unwrap();
        let lo = devices.iter().find(|d| d.loopback).unwrap();
        assert_eq!((lo.interface.name.as_str(), lo.default_route), ("lo", false));
        assert!(lo.interface.mtu_bytes > 0 && lo.up);
    }
}
