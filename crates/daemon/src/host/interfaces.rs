//! The host's interfaces: which of them are used, and how each of them reaches the anchor.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use segue_ip::{Input, Interface};
use segue_linux::monitor::{Device, physical};
use segue_linux::{link, neighbour};
use segue_tunnel::HostInput;
use tracing::{debug, info, warn};

use super::start::tunnel_of;
use super::{Daemon, Settings, names};
use crate::rivals::{conflicts, rivals};
use crate::run::Role;
use crate::ways::{Way, missing_source, unfound, ways, why_unused};

/// Most remembered log lines about routing; each remembered line is logged once.
const NOTED: usize = 256;

impl Daemon {
    pub(super) fn use_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        all.clone_into(&mut self.seen);
        self.look_up();
        self.find_translators(all);
        let usable = self.usable(all);
        self.make_way(all)?;
        self.note_unused(&usable);
        // If a name does not resolve, that is reported instead.
        let none =
            (usable.is_empty() && !self.anchors.is_empty()).then(|| self.why_none_is_usable());
        self.signalling.set_cut_off(none);
        let present: BTreeSet<u32> = usable.iter().map(|(used, _)| used.interface.index).collect();
        for Interface { index, name, .. } in usable.iter().map(|(used, _)| &used.interface) {
            if self.attached.contains_key(index) {
                continue;
            }
            loosen_reverse_path_filter(name);
            match self.core.end.datapath.attach(*index) {
                Ok(()) => {
                    self.attached.insert(*index, Vec::new());
                }
                Err(error) => warn!("{name} cannot be used: {error}"),
            }
        }
        let mut interfaces = Vec::new();
        for (device, ways) in &usable {
            if let Some(known) = self.attached.get_mut(&device.interface.index) {
                *known = ways.iter().map(|(anchor, way)| way.gateway.unwrap_or(*anchor)).collect();
                known.sort_unstable();
                known.dedup();
                interfaces.push(as_input(device, ways));
            }
        }
        let signalling = interfaces.iter().map(|interface| {
            let addresses = self.sources(interface);
            (interface.name.clone(), Interface { addresses, ..interface.clone() })
        });
        let signalling = signalling.collect();
        self.signalling.set_interfaces(signalling);
        self.feed(Input::Interfaces(interfaces))?;
        // Everything that belonged to removed paths has moved to others.
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

    /// Evaluates the present interfaces again, because the known ways to the anchor have changed.
    pub(super) fn use_seen(&mut self) -> anyhow::Result<()> {
        let seen = std::mem::take(&mut self.seen);
        self.use_interfaces(&seen)
    }

    /// Lets other programs' tunnels go first, and logs new conflicts with them.
    fn make_way(&mut self, all: &[Device]) -> anyhow::Result<()> {
        let rivals = match rivals(all) {
            Ok(rivals) => rivals,
            Err(error) => {
                warn!("{error}");
                return Ok(());
            }
        };
        let place = self.routing.make_way(&mut self.core.kept, &rivals)?;
        for conflict in conflicts(&rivals, place, self.settings.fail_closed) {
            if !self.is_noted(&conflict.text) {
                match conflict.is_serious {
                    true => warn!("{}", conflict.text),
                    false => info!("{}", conflict.text),
                }
            }
        }
        Ok(())
    }

    /// Why no interface leads to the anchor.
    fn why_none_is_usable(&self) -> String {
        let wanted = &self.settings.common.interfaces;
        let named = self.seen.iter().filter(|device| !device.loopback);
        let mut idle = Vec::new();
        for device in named.filter(|d| d.interface.name != self.settings.tunnel.device) {
            let Interface { name, addresses, .. } = &device.interface;
            let lack = match device {
                _ if !wanted.is_empty() && !wanted.contains(name) => "is not listed in interfaces",
                Device { up: false, .. } => "is down",
                _ if addresses.is_empty() => "has no address",
                _ => "has no route to the anchor",
            };
            idle.push(format!("{name} {lack}"));
        }
        let idle = if idle.is_empty() { "there is no interface".into() } else { idle.join(", ") };
        format!("no network leads to the anchor: {idle}")
    }

    /// Logs why interfaces with a default route are not used.
    fn note_unused(&mut self, usable: &[(Device, Vec<(IpAddr, Way)>)]) {
        let wanted = &self.settings.common.interfaces;
        let mut lines = Vec::new();
        for device in physical(&self.seen) {
            let Interface { index, name, .. } = &device.interface;
            let is_used = usable.iter().any(|(used, _)| used.interface.index == *index);
            if !is_used && (wanted.is_empty() || wanted.contains(name)) {
                let families = self.anchors.iter().map(SocketAddr::is_ipv6);
                lines.extend(families.filter_map(|v6| why_unused(device, v6)));
            }
        }
        for (device, ways) in usable {
            let name = &device.interface.name;
            let source = self.settings.paths.get(name).and_then(|path| path.source);
            let missing = source.filter(|own| ways.iter().all(|(_, way)| way.source != *own));
            lines.extend(missing.map(|own| missing_source(name, own)));
            let all: Vec<Way> = ways.iter().map(|(_, way)| *way).collect();
            lines.extend(unfound(device, &all));
        }
        for line in lines {
            if !self.is_noted(&line) {
                warn!("{line}");
            }
        }
    }

    /// Returns whether a line was logged before; remembers it. When too many lines are remembered, all are forgotten.
    pub(super) fn is_noted(&mut self, line: &str) -> bool {
        if self.noted.len() >= NOTED {
            self.noted.clear();
        }
        !self.noted.insert(line.to_owned())
    }

    /// The source addresses that signalling over an interface tries: the configured source of its path, or else all.
    fn sources(&self, interface: &Interface) -> Vec<IpAddr> {
        let path = self.settings.paths.get(&interface.name);
        let configured = path.and_then(|path| path.source);
        let same = |a: &IpAddr, b: IpAddr| a.is_ipv4() == b.is_ipv4();
        let may = |a: &&IpAddr| configured.is_none_or(|own| own == **a || !same(a, own));
        interface.addresses.iter().filter(may).copied().collect()
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

    /// The anchor's names resolve to these addresses. Addresses at which it was reached stay first, so that false
    /// answers cannot cut the host off.
    pub(super) fn on_found(&mut self, found: &[SocketAddr]) -> anyhow::Result<()> {
        let unknown = |address: &&SocketAddr| !self.anchors.contains(address);
        let new: Vec<SocketAddr> = found.iter().filter(unknown).copied().collect();
        if self.signalling.is_up() || new.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = new.iter().map(SocketAddr::to_string).collect();
        info!("the anchor's name leads to {}", listed.join(", "));
        let reached = self.core.end.machine.anchor().map(|anchor| self.untranslated(anchor.ip()));
        let given = self.member.join().addresses();
        self.anchors.retain(|address| {
            given.contains(address) || found.contains(address) || Some(address.ip()) == reached
        });
        self.anchors.extend(new);
        self.keep_anchors();
        self.feed(HostInput::Anchor(self.anchors.iter().map(tunnel_of).collect()))?;
        self.use_seen()
    }

    /// A connection to the anchor at this address is up.
    pub(super) fn on_reached(&mut self, anchor: SocketAddr) {
        let own = SocketAddr::new(self.untranslated(anchor.ip()), anchor.port());
        if self.signalling.has_names()
            && let Some(at) = self.anchors.iter().position(|address| *address == own)
        {
            self.anchors[..=at].rotate_right(1);
            self.keep_anchors();
        }
    }

    /// The anchor's own address, if this one is a translator's for it.
    fn untranslated(&self, address: IpAddr) -> IpAddr {
        let prefixes = self.translators.accesses.values().filter_map(|access| access.used.as_ref());
        let own = match address {
            IpAddr::V6(v6) => prefixes.filter_map(|(prefix, _)| prefix.extract(v6)).next(),
            IpAddr::V4(_) => None,
        };
        own.map_or(address, IpAddr::V4)
    }

    fn keep_anchors(&mut self) {
        self.signalling.set_anchors(self.anchors.clone());
        let given = self.member.join().addresses();
        let found = self.anchors.iter().filter(|address| !given.contains(address));
        self.member.keep_found(&found.copied().collect::<Vec<_>>());
    }

    /// The interfaces that reach the anchor and that the operator allows, best first. Each comes with the ways to the
    /// anchor's first address of each family, or to a translator's address for it.
    fn usable(&self, all: &[Device]) -> Vec<(Device, Vec<(IpAddr, Way)>)> {
        let wanted = &self.settings.common.interfaces;
        let first = |v6: bool| {
            self.anchors.iter().map(SocketAddr::ip).find(move |anchor| anchor.is_ipv6() == v6)
        };
        let anchors: Vec<IpAddr> = [false, true].into_iter().filter_map(first).collect();
        let mut usable = Vec::new();
        for device in physical(all) {
            let is_named = wanted.contains(&device.interface.name);
            if !wanted.is_empty() && !is_named {
                continue;
            }
            let mut device = device.clone();
            device.interface.pref64 = self.translators.prefix(&device.interface.name);
            let to = |anchor: &IpAddr| {
                let anchor = device.interface.towards(*anchor);
                ways(&device, anchor, is_named).into_iter().map(move |way| (anchor, way))
            };
            let ways: Vec<(IpAddr, Way)> = anchors.iter().flat_map(to).collect();
            if !ways.is_empty() {
                usable.push((device, ways));
            }
        }
        usable.sort_by_key(|(device, _)| device.metric.unwrap_or(u32::MAX));
        usable
    }
}

/// The interface with the sources and next hops of these ways.
fn as_input(device: &Device, ways: &[(IpAddr, Way)]) -> Interface {
    let first = |v6: bool| ways.iter().map(|(_, way)| way).find(|way| way.source.is_ipv6() == v6);
    let gateways = [false, true].into_iter().filter_map(|v6| first(v6)?.gateway).collect();
    let differs = |way: &Way| way.gateway != first(way.source.is_ipv6()).and_then(|w| w.gateway);
    let others = ways.iter().map(|(_, way)| way).filter(|way| differs(way));
    let addresses: Vec<IpAddr> = ways.iter().map(|(_, way)| way.source).collect();
    let own = device.interface.addresses.iter();
    Interface {
        unusable: own.filter(|own| !addresses.contains(own)).copied().collect(),
        gateways,
        by_source: others.filter_map(|way| Some((way.source, way.gateway?))).collect(),
        addresses,
        ..device.interface.clone()
    }
}

/// Drops the packets that wait for a neighbour on a link that is down; their senders would count them as unsent.
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
