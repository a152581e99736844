//! The host's interfaces: a new one gets a path, and the path of a removed one goes.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::Time;
use segue_ip::Interface;
use segue_keepalive::Adaptive;
use segue_wire::MAX_PATHS;
use segue_wire::signal::FromHost;

use super::following::Following;
use super::path::Trial;
use super::questions::Questions;
use super::source::Sources;
use super::{Host, Path, Signalling};
use crate::{Cause, HostOutput, Order, Output, Report};
use segue_clock::planted::fault;

impl Host {
    pub(super) fn on_interfaces(&mut self, now: Time, interfaces: Vec<Interface>) {
        if self.signal == Signalling::Stopped {
            return;
        }
        let gone: Vec<u8> = self
            .paths
            .iter()
            .filter(|(_, path)| !interfaces.iter().any(|i| i.name == path.name))
            .map(|(number, _)| *number)
            .collect();
        let known = |new: &Interface| {
            let same = |old: &Interface| {
                (&old.name, old.index) == (&new.name, new.index) && self.ends(old) == self.ends(new)
            };
            self.ends(new).is_none() || self.interfaces.iter().any(same)
        };
        let new: Vec<String> =
            interfaces.iter().filter(|i| !known(i)).map(|i| i.name.clone()).collect();
        self.interfaces = interfaces;
        for number in gone {
            self.remove_path(now, number);
        }
        for interface in self.interfaces.clone() {
            match self.path_named(&interface.name) {
                Some(number) => self.refresh_path(now, number, &interface),
                None => self.add_path(&interface),
            }
        }
        // Only a new interface or address justifies an early attempt to connect.
        if !new.is_empty() && matches!(self.signal, Signalling::Idle(_) | Signalling::Connecting(_))
        {
            self.connect(now);
        }
        self.renew_signal(&new);
        self.rescue_signal(now);
    }

    /// The anchor's addresses have changed: handles each interface like a new one and tries it at once.
    pub(super) fn on_anchor(&mut self, now: Time, addresses: Vec<SocketAddr>) {
        if self.anchors != addresses {
            self.anchors = addresses;
            let interfaces = core::mem::take(&mut self.interfaces);
            self.on_interfaces(now, interfaces);
        }
    }

    /// The anchor was reached at this address: paths without answers switch to it from the anchor's other addresses of
    /// the same family.
    pub(super) fn prefer(&mut self, now: Time, reached: IpAddr) {
        let anchor = &self.anchors;
        let is_reached = |own: &SocketAddr| {
            own.ip() == reached || self.interfaces.iter().any(|i| i.towards(own.ip()) == reached)
        };
        let Some(at) = anchor.iter().position(is_reached) else { return };
        let of_family = |own: &SocketAddr| own.is_ipv4() == anchor[at].is_ipv4();
        let Some(first) = anchor.iter().position(of_family) else { return };
        let goes_there = |path: &Path| {
            let over = self.interfaces.iter().filter(|i| i.name == path.name);
            over.map(|i| i.towards(anchor[first].ip())).any(|to| to == path.remote.ip())
        };
        if first == at || self.paths.values().any(|path| path.is_up() && goes_there(path)) {
            return;
        }
        self.anchors.swap(first, at);
        for interface in self.interfaces.clone() {
            if let Some(number) = self.path_named(&interface.name) {
                self.refresh_path(now, number, &interface);
            }
        }
    }

    /// The path's ends over an interface (source, destination, next hop): the first of the anchor's addresses for which
    /// the interface has a source, else the first that it reaches through a translator.
    pub(super) fn ends(
        &self,
        interface: &Interface,
    ) -> Option<(IpAddr, SocketAddr, Option<IpAddr>)> {
        let ends = |remote: SocketAddr| {
            let local = self.source(interface, remote.is_ipv4())?;
            Some((local, remote, interface.gateway(local)))
        };
        let anchor = || self.anchors.iter().copied();
        let translated = |own: SocketAddr| ends((interface.towards(own.ip()), own.port()).into());
        anchor().find_map(ends).or_else(|| anchor().find_map(translated))
    }

    fn add_path(&mut self, interface: &Interface) {
        let Some((local, remote, gateway)) = self.ends(interface) else { return };
        let Some(number) = self.number_for(&interface.name) else { return };
        let config = self.config.path_of(&interface.name);
        let following = config.adaptive.map(|aims| Following::new(Adaptive::new(aims)));
        let following = following.map(Box::new);
        let ordered = self.switched.get(&interface.name).copied();
        let enabled = ordered.unwrap_or(config.enabled);
        let path = Path {
            name: interface.name.clone(),
            ifindex: interface.index,
            local,
            remote,
            gateway,
            sources: Sources::of(interface, local),
            mtu: interface.mtu_bytes,
            sizes: None,
            config: self.config.clone(),
            rx_cookie: self.secrets.cookie(),
            grant: None,
            client: None,
            quiet: false,
            following,
            enabled,
            off: false,
            unshown: None,
            usable_since: Time::ZERO,
            offer_at: None,
            losses: None,
            watch: None,
            questions: Questions::default(),
            translated: self.is_translated(local, remote.ip()),
            checksums_tried: Trial::Never,
            loss_told: [false; 2],
            recounted: None,
            via: None,
            told_to: None,
            doubt_told: None,
            told_doubt_since: None,
            uncut_told: None,
            largest_told: 0,
            helped: None,
            down_at: None,
        };
        self.paths.insert(number, path);
        self.offer(number);
    }

    /// The number for an interface: the one it had before, else one never used, else that of a removed interface;
    /// `None` if all are in use.
    fn number_for(&mut self, name: &str) -> Option<u8> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let all = || 0..MAX_PATHS as u8;
        let number = all()
            .find(|number| !self.numbers.values().any(|known| known == number))
            .or_else(|| all().find(|number| !self.paths.contains_key(number)))?;
        if self.numbers.values().any(|known| *known == number) {
            self.numbers.retain(|_, known| *known != number);
            self.forget_orders(number);
        }
        self.numbers.insert(name.to_string(), number);
        Some(number)
    }

    /// Follows a new address, gateway or index of the path's interface. Cookies and counters stay, so to the anchor
    /// this looks like a NAT rebinding.
    fn refresh_path(&mut self, now: Time, number: u8, interface: &Interface) {
        let Some((local, remote, gateway)) = self.ends(interface) else { return };
        let translated = self.is_translated(local, remote.ip());
        let Some(path) = self.paths.get_mut(&number) else { return };
        path.sources.first = Sources::of(interface, local).first;
        let is_waiting = path.sources.next_at.is_some();
        let local = if fault(30) { path.local } else { local };
        let new = (interface.index, local, remote.ip(), gateway);
        if new != (path.ifindex, path.local, path.remote.ip(), path.gateway) {
            let moved = (path.ifindex, path.gateway) != (interface.index, gateway);
            let offered = (path.remote.is_ipv6(), path.wants_checksums());
            (path.ifindex, path.local, path.remote, path.gateway) =
                (interface.index, local, remote, gateway);
            path.translated = translated;
            if moved {
                // Another network filters differently.
                path.checksums_tried = Trial::Never;
                self.forget_filters(number);
            }
            self.configure(number);
            let path = self.paths.get(&number);
            if path.is_some_and(|p| offered != (p.remote.is_ipv6(), p.wants_checksums())) {
                self.offer(number);
            }
            self.show_endpoint(now, number);
            self.await_answer(now, number);
        } else {
            let same = path.mtu == interface.mtu_bytes;
            if !is_waiting {
                self.await_answer(now, number);
            }
            if same {
                return;
            }
        }
        if let Some(path) = self.paths.get_mut(&number) {
            path.mtu = interface.mtu_bytes;
        }
        self.renew_sizes(now, number);
    }

    fn remove_path(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.remove(&number) else { return };
        self.forget_filters(number);
        if path.is_set() {
            self.leave(number);
            self.move_off(now, number, &path.name, Cause::InterfaceGone);
            self.redirect_dead_paths(now);
            self.unbind_from(if fault(10) { u8::MAX } else { number });
            self.out.push_back(Output::Order(Order::RemovePath(u32::from(number))));
            if !fault(31) {
                self.tell_riders();
            }
        }
        if self.registered() {
            self.out
                .push_back(Output::own(HostOutput::Signal(FromHost::RemovePath { path: number })));
        }
        self.fit();
        let report = Report::PathRemoved { host: String::new(), path: path.name };
        self.out.push_back(Output::report(report));
    }
}
