//! The host's interfaces: which of them are used, and how each reaches the anchor.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use segue_ip::{Input, Interface, Route};
use segue_linux::monitor::{Device, physical_candidates};
use segue_linux::{link, neighbour};
use segue_tunnel::HostInput;
use tracing::{debug, info, warn};

use super::start::tunnel_of;
use super::{Daemon, Settings, names};
use crate::run::Role;

impl Daemon {
    pub(super) fn use_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        all.clone_into(&mut self.seen);
        self.look_up();
        let usable = self.usable(all);
        let present: BTreeSet<u32> = usable.iter().map(|device| device.interface.index).collect();
        for Device { interface, .. } in &usable {
            if self.attached.contains_key(&interface.index) {
                continue;
            }
            loosen_reverse_path_filter(&interface.name);
            match self.core.end.datapath.attach(interface.index) {
                Ok(()) => {
                    self.attached.insert(interface.index, Vec::new());
                }
                Err(error) => warn!("{} cannot be used: {error}", interface.name),
            }
        }
        let mut interfaces = Vec::new();
        for device in &usable {
            let next_hops = self.next_hops(device);
            if let Some(known) = self.attached.get_mut(&device.interface.index) {
                *known = next_hops;
                interfaces.push(self.as_input(device));
            }
        }
        self.feed(Input::Interfaces(interfaces))?;
        // Whatever belonged to removed paths has moved to others.
        let (datapath, present) = (&mut self.core.end.datapath, &present);
        self.attached.retain(|index, next_hops| {
            let stays = present.contains(index);
            if !stays {
                forget(*index, next_hops);
                datapath.detach(*index);
            }
            stays
        });
        Ok(())
    }

    /// Resolves the anchor's names over the present interfaces, unless a connection is up.
    pub(super) fn look_up(&mut self) {
        if self.signalling.has_names() {
            let Settings { nameservers, common, .. } = &self.settings;
            self.signalling.look_up(names::name_servers(
                nameservers,
                &self.seen,
                &common.interfaces,
            ));
        }
    }

    /// The anchor's names now resolve to these addresses. Addresses at which it was reached stay
    /// first, so that false answers cannot keep the host from it.
    pub(super) fn on_found(&mut self, found: &[SocketAddr]) -> anyhow::Result<()> {
        let unknown = |address: &&SocketAddr| !self.anchors.contains(address);
        let new: Vec<SocketAddr> = found.iter().filter(unknown).copied().collect();
        if self.signalling.is_up() || new.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = new.iter().map(SocketAddr::to_string).collect();
        info!("the anchor's name leads to {}", listed.join(", "));
        let reached = self.core.end.machine.anchor().map(|anchor| anchor.ip());
        let given = self.member.join().addresses();
        self.anchors.retain(|address| {
            given.contains(address) || found.contains(address) || Some(address.ip()) == reached
        });
        self.anchors.extend(new);
        self.keep_anchors();
        self.feed(HostInput::Anchor(self.anchors.iter().map(tunnel_of).collect()))?;
        let seen = std::mem::take(&mut self.seen);
        self.use_interfaces(&seen)
    }

    /// A connection to the anchor at this address is up.
    pub(super) fn on_reached(&mut self, anchor: SocketAddr) {
        if self.signalling.has_names()
            && let Some(at) = self.anchors.iter().position(|address| *address == anchor)
        {
            self.anchors[..=at].rotate_right(1);
            self.keep_anchors();
        }
    }

    fn keep_anchors(&mut self) {
        self.signalling.set_anchors(self.anchors.clone());
        let given = self.member.join().addresses();
        let found = self.anchors.iter().filter(|address| !given.contains(address));
        self.member.keep_found(&found.copied().collect::<Vec<_>>());
    }

    /// The interfaces that reach the anchor and that the operator allows, best first.
    fn usable(&self, all: &[Device]) -> Vec<Device> {
        let mut usable: Vec<Device> = Vec::new();
        for anchor in &self.anchors {
            for candidate in physical_candidates(all, anchor.ip()) {
                let Interface { name, index, .. } = &candidate.interface;
                let wanted = &self.settings.common.interfaces;
                let listed = wanted.is_empty() || wanted.contains(name);
                let known = usable.iter().any(|other| other.interface.index == *index);
                if listed && !known {
                    usable.push(candidate);
                }
            }
        }
        usable.sort_by_key(|device| device.metric.unwrap_or(u32::MAX));
        usable
    }

    /// The interface, with its gateways towards the anchor rather than those of the default routes.
    fn as_input(&self, device: &Device) -> Interface {
        let routes = self.routes_to_anchor(device);
        let gateways = routes.filter_map(|(_, route)| route.gateway).collect();
        Interface { gateways, ..device.interface.clone() }
    }

    /// The next hops of packets to the anchor.
    fn next_hops(&self, device: &Device) -> Vec<IpAddr> {
        let routes = self.routes_to_anchor(device);
        routes.map(|(anchor, route)| route.gateway.unwrap_or(anchor)).collect()
    }

    /// The anchor's first address of each family, and the device's route to it.
    fn routes_to_anchor(&self, device: &Device) -> impl Iterator<Item = (IpAddr, Route)> {
        [false, true].into_iter().filter_map(|v6| {
            let mut anchors = self.anchors.iter().map(SocketAddr::ip);
            let anchor = anchors.find(|anchor| anchor.is_ipv6() == v6)?;
            Some((anchor, *device.route_to(anchor)?))
        })
    }
}

/// Drops the packets that wait for a neighbour on a link that is down. Their senders would count on
/// them.
fn forget(index: u32, next_hops: &[IpAddr]) {
    for address in next_hops {
        if let Err(error) = neighbour::forget(index, *address) {
            debug!("{error}");
        }
    }
}

/// A host with several networks receives from one source over any of them, which strict reverse path
/// filtering forbids. Loose filtering still refuses sources that no route leads to.
fn loosen_reverse_path_filter(interface: &str) {
    for scope in ["all", interface] {
        let key = format!("net.ipv4.conf.{scope}.rp_filter");
        let path = format!("/proc/sys/net/ipv4/conf/{scope}/rp_filter");
        let strict = std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "1");
        if strict && let Err(error) = link::sysctl(&key, "2") {
            warn!("{error}; packets over {interface} may be refused");
        }
    }
}
