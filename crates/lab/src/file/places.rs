//! Checks that tables of a file have in common.

use std::collections::BTreeMap;

use segue_grammar::{Mistake, Node, RouteText, Spanned, check_address, check_name, hint};
use segue_ip::Prefix;
use segue_linux::link;

use crate::topology::EMULATORS;

/// The nodes of a file with their devices and addresses.
pub(super) struct Places<'a> {
    nodes: Vec<&'a str>,
    devices: BTreeMap<String, Vec<String>>,
    /// Addresses by node, with their prefix lengths.
    addresses: BTreeMap<String, Vec<Prefix>>,
}

impl<'a> Places<'a> {
    pub(super) fn of(nodes: &'a [Node]) -> Result<Places<'a>, Mistake> {
        let mut names: Vec<&str> = Vec::new();
        for node in nodes {
            check_name(&node.name)?;
            let name = node.name.get_ref().as_str();
            if name == EMULATORS {
                let message = format!("{name} is the node of the emulators: choose another name");
                return Err(Mistake::of(&node.name, message));
            }
            if names.contains(&name) {
                return Err(Mistake::of(&node.name, format!("there is another node {name}")));
            }
            names.push(name);
        }
        Ok(Places { nodes: names, devices: BTreeMap::new(), addresses: BTreeMap::new() })
    }

    /// Checks that a node with this name exists; `place` is where the file names it.
    pub(super) fn check<T>(&self, node: &str, place: &Spanned<T>) -> Result<(), Mistake> {
        if self.nodes.contains(&node) {
            return Ok(());
        }
        let message = format!("there is no node {node}{}", hint(node, &self.nodes));
        Err(Mistake::of(place, message))
    }

    /// Reserves the name of a device at a node; `place` is where the file names it.
    pub(super) fn take<T>(
        &mut self,
        node: &str,
        device: &str,
        place: &Spanned<T>,
    ) -> Result<(), Mistake> {
        self.check(node, place)?;
        link::check_name(device).map_err(Mistake::at(place))?;
        if RESERVED.contains(&device) {
            let message = format!("{device} means something else to the kernel: choose another");
            return Err(Mistake::of(place, message));
        }
        let taken = self.devices.entry(node.to_owned()).or_default();
        if taken.iter().any(|other| other == device) {
            let message = format!("{node} has another interface {device}");
            return Err(Mistake::of(place, message));
        }
        taken.push(device.to_owned());
        Ok(())
    }

    /// Gives a node an address with its prefix length; `place` is where the file has it.
    pub(super) fn own<T>(
        &mut self,
        node: &str,
        address: Prefix,
        place: &Spanned<T>,
    ) -> Result<(), Mistake> {
        check_address(address.addr, place)?;
        self.addresses.entry(node.to_owned()).or_default().push(address);
        Ok(())
    }

    /// Checks the routes of a node after all addresses are known.
    pub(super) fn check_routes(&self, node: &Node) -> Result<(), Mistake> {
        let name = node.name.get_ref();
        let own = self.addresses.get(name).map_or(&[][..], Vec::as_slice);
        for (number, route) in node.routes.iter().enumerate() {
            let RouteText { destination, gateway, metric } = *route.get_ref();
            check_address(gateway, route)?;
            if destination.addr.is_ipv6() != gateway.is_ipv6() {
                let message = format!("{destination} and {gateway} are of different families");
                return Err(Mistake::of(route, message));
            }
            if !own.iter().any(|a| a.contains(gateway) && a.addr != gateway) {
                let message = format!("no link of {name} has the gateway {gateway}");
                return Err(Mistake::of(route, message));
            }
            let same = |other: &Spanned<RouteText>| {
                let other = other.get_ref();
                other.destination.network() == destination.network() && other.metric == metric
            };
            if node.routes[..number].iter().any(same) {
                let message = format!("{name} has another route to {destination} of this metric");
                return Err(Mistake::of(route, message));
            }
        }
        Ok(())
    }
}

/// Reserved words of `sysctl`, and the device that every namespace has.
const RESERVED: [&str; 3] = ["all", "default", "lo"];

/// Test networks do not support files with recorded losses.
pub(super) fn unread<T>(_: &str) -> Result<T, String> {
    Err("a trace of losses is for segue sim: write a list".to_owned())
}
