//! A network device, and whether a path may use it.

use std::net::IpAddr;

use segue_ip::{Interface, Prefix, Route};

/// A network device with the properties that matter for paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The interface as the protocols see it. Its addresses are those that a socket may use (not tentative), in
    /// ascending order, deprecated ones last. Its gateways are the next hops of the best default route of each family,
    /// if any.
    pub interface: Interface,
    /// Carries packets: administratively up, and the link below is up or reports no state.
    pub up: bool,
    /// A loopback device.
    pub loopback: bool,
    /// The kind of a virtual device (`tun`, `veth`, `wireguard`…); `None` for hardware.
    pub kind: Option<String>,
    /// Packets on it begin with an Ethernet header.
    pub ethernet: bool,
    /// Lowest metric of the default routes over it.
    pub metric: Option<u32>,
    /// The main table has a default route over it, of either family.
    pub default_route: bool,
    /// The unicast routes of the main table over it, including default routes, without preferred source and MTU. The
    /// most specific come first, then those with the lowest metric.
    pub routes: Vec<Route>,
    /// Its deprecated addresses (RFC 4862, section 5.5.4).
    pub deprecated: Vec<IpAddr>,
    /// Default routes over it in tables other than the main one, and default routes through nexthop objects whose
    /// interface the kernel does not list (index 0). Policy rules decide whether they are used.
    pub elsewhere: Vec<Route>,
}

impl Device {
    /// The route to `destination` for packets that must leave over this device.
    #[must_use]
    pub fn route_to(&self, destination: IpAddr) -> Option<&Route> {
        self.routes.iter().find(|route| route.destination.contains(destination))
    }

    /// Whether it has an address of `anchor`'s family and a route to it.
    #[must_use]
    fn reaches(&self, anchor: IpAddr) -> bool {
        self.interface.addresses.iter().any(|a| a.is_ipv4() == anchor.is_ipv4())
            && self.route_to(anchor).is_some()
    }
}

/// The devices that paths may use: up, neither loopback nor our own tunnel devices. Our own are TUN devices with a name
/// that begins with `segue`; devices of test networks share the prefix but are not TUN devices.
pub fn physical(devices: &[Device]) -> impl Iterator<Item = &Device> {
    let named = |d: &Device| d.interface.name.starts_with("segue");
    let ours = move |d: &Device| d.kind.as_deref() == Some("tun") && named(d);
    devices.iter().filter(move |d| d.up && !d.loopback && !ours(d))
}

/// The devices that a path to `anchor` may use: those of [`physical`] with an address of the anchor's family and a
/// route of the main table to it.
#[must_use]
pub fn physical_candidates(devices: &[Device], anchor: IpAddr) -> Vec<Device> {
    physical(devices).filter(|d| d.reaches(anchor)).cloned().collect()
}

/// Sorts the lists, so that equal states compare equal, and summarises the default routes.
pub(super) fn finished(mut device: Device) -> Device {
    device.deprecated.sort_unstable();
    let deprecated = &device.deprecated;
    device.interface.addresses.sort_unstable_by_key(|a| (deprecated.contains(a), *a));
    device.elsewhere.sort_unstable_by_key(|r| (r.table, r.metric, r.destination.addr, r.gateway));
    // The kernel omits the metric of an IPv4 route if it is 0.
    let metric = |r: &Route| r.metric.unwrap_or(0);
    let order = |r: &Route| {
        let Prefix { addr, len } = r.destination;
        (std::cmp::Reverse(len), metric(r), addr, r.gateway)
    };
    device.routes.sort_unstable_by_key(order);
    let defaults = || device.routes.iter().filter(|route| route.destination.len == 0);
    // Routes are sorted by metric, so the first of a family is the best. Its next hop may be of the other family.
    let best = |v6: bool| {
        let first = defaults().find(|route| route.destination.addr.is_ipv6() == v6)?;
        first.gateway.filter(|gateway| gateway.is_ipv6() == v6)
    };
    device.interface.gateways = [best(false), best(true)].into_iter().flatten().collect();
    device.metric = defaults().map(metric).min();
    device.default_route = device.metric.is_some();
    device
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
                mtu_bytes: 1500,
                ..Interface::default()
            },
            up: true,
            ethernet: true,
            routes: vec![
                route("0.0.0.0/0", Some("192.0.2.9"), 600),
                Route { metric: None, ..route("192.0.2.0/24", None, 0) },
                route("0.0.0.0/0", Some("192.0.2.1"), 100),
            ],
            ..Device::default()
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
        // The best default route decides, even if its next hop is of the other family (RFC 5549).
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
}
