//! The common part of all applications: two ends, ports, a time.

use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_grammar::Duration;
use segue_sim::{NodeId, Packet};
use segue_traffic::apps::{BadConfig, Ends, Period};
use toml::Spanned;

use super::network::Builder;
use super::tables::{End, Name};
use super::{Mistake, reach};

pub use segue_sim::packet::TCP;
/// UDP's protocol number.
pub const UDP: u8 = 17;

/// First ports assigned if the file names none, at the asking end and at the other.
const FIRST_PORTS: [u16; 2] = [49_152, 40_000];

/// Names of results that applications may not use.
const RESERVED: [&str; 2] = ["link", "nodes"];

/// The keys that every application has.
#[derive(Clone, Copy)]
pub struct Common<'a> {
    /// In front of its results.
    pub name: &'a Name,
    /// The end that asks or sends.
    pub from: &'a Spanned<End>,
    /// The other end.
    pub to: &'a Spanned<End>,
    /// The other end's port.
    pub port: Option<&'a Spanned<u16>>,
    /// From when.
    pub start: Option<&'a Spanned<Duration>>,
    /// Until when.
    pub stop: Option<&'a Spanned<Duration>>,
}

/// Defines an application's table: the given keys, followed by those of [`Common`].
macro_rules! app_table {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($keys:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            /// In front of its results.
            pub name: $crate::file::tables::Name,
            /// The end that asks or sends.
            pub from: toml::Spanned<$crate::file::tables::End>,
            /// The other end.
            pub to: toml::Spanned<$crate::file::tables::End>,
            /// The other end's port.
            pub port: Option<toml::Spanned<u16>>,
            /// From when.
            pub start: Option<toml::Spanned<segue_grammar::Duration>>,
            /// Until when.
            pub stop: Option<toml::Spanned<segue_grammar::Duration>>,
            $($keys)*
        }

        impl $name {
            /// The keys that every application has.
            fn common(&self) -> $crate::file::common::Common<'_> {
                let Self { name, from, to, port, start, stop, .. } = self;
                let (port, start, stop) = (port.as_ref(), start.as_ref(), stop.as_ref());
                $crate::file::common::Common { name, from, to, port, start, stop }
            }
        }
    };
}

pub(super) use app_table;

/// The two ends of an application, found.
#[derive(Clone, Copy)]
pub struct Placed {
    /// Their nodes.
    pub nodes: (NodeId, NodeId),
    /// Their addresses and first ports.
    pub ends: Ends,
}

impl Placed {
    /// A packet from the first end to the second, or back, to look up its route.
    #[must_use]
    pub fn probe(&self, protocol: u8, dscp: u8, back: bool) -> (NodeId, Packet) {
        let Placed { nodes, ends } = self;
        let (node, from, to) = match back {
            false => (nodes.0, ends.first, ends.second),
            true => (nodes.1, ends.second, ends.first),
        };
        (node, reach::probe(from, to, protocol, dscp))
    }
}

impl Builder<'_> {
    /// Finds the ends of an application, assigns them ports of a protocol, and checks that they
    /// reach each other.
    pub fn place(
        &mut self,
        common: Common<'_>,
        protocol: u8,
        (own, other): (u16, u16),
        dscp: u8,
    ) -> Result<Placed, Mistake> {
        self.take_name(common.name)?;
        let first = self.end_node(common.from)?;
        let second = self.end_node(common.to)?;
        if first == second {
            let message = format!("{} with itself", common.to.get_ref().node);
            return Err(Mistake::of(common.to, message));
        }
        let addresses = self.addresses(common.from, first)?;
        let others = self.addresses(common.to, second)?;
        let same = |(a, b): &(IpAddr, IpAddr)| a.is_ipv4() == b.is_ipv4();
        let pairs = addresses.iter().flat_map(|a| others.iter().map(move |b| (*a, *b)));
        let Some((from, to)) = { pairs }.find(same) else {
            let (from, to) = (&common.from.get_ref().node, &common.to.get_ref().node);
            let message = format!("{from} and {to} have no addresses of one family");
            return Err(Mistake::of(common.to, message));
        };
        let owner = common.name.get_ref();
        let own = self.free_ports(first, protocol, FIRST_PORTS[0], own, owner);
        let other = match common.port {
            Some(port) => self.take_ports(second, protocol, port, other, owner)?,
            None => self.free_ports(second, protocol, FIRST_PORTS[1], other, owner),
        };
        let ends = Ends { first: (from, own), second: (to, other) };
        let placed = Placed { nodes: (first, second), ends };
        for back in [false, true] {
            let (node, probe) = placed.probe(protocol, dscp, back);
            let translated = reach::follow(&self.network, node, &probe)
                .map_err(|message| Mistake::of(common.to, message))?;
            if translated {
                break;
            }
        }
        Ok(placed)
    }

    /// When an application starts and stops.
    pub fn period(&self, common: Common<'_>) -> Result<Period, Mistake> {
        let start = common.start.map_or(Ok(Time::ZERO), |start| self.within(start))?;
        let stop = common.stop.map(|stop| self.within(stop)).transpose()?;
        if let Some(written) = common.stop.filter(|stop| stop.get_ref().0.0 <= start.0) {
            return Err(Mistake::of(written, "it stops before it starts"));
        }
        Ok(Period { start: Span(start.0), stop: stop.map(|at| Span(at.0)) })
    }

    /// Reserves the name of an application, which must be unique.
    pub fn take_name(&mut self, name: &Name) -> Result<(), Mistake> {
        super::network::check_name(name)?;
        let text = name.get_ref();
        if RESERVED.contains(&text.as_str()) {
            return Err(Mistake::of(name, format!("{text} is the name of other results")));
        }
        if !self.names.insert(text.clone()) {
            return Err(Mistake::of(name, format!("something else has the name {text}")));
        }
        Ok(())
    }

    /// The node of an end.
    pub fn end_node(&self, end: &Spanned<End>) -> Result<NodeId, Mistake> {
        self.node_named(&end.get_ref().node).map_err(|message| Mistake::of(end, message))
    }

    /// The addresses of an end: those of its interface if it names one; else the inner ones of a
    /// tunnel, then the node's, then those of its interfaces.
    pub fn addresses(&self, end: &Spanned<End>, id: NodeId) -> Result<Vec<IpAddr>, Mistake> {
        let node = self.network.node(id);
        let of_interfaces = node.interfaces().flat_map(|i| i.addresses.iter().copied());
        let Some(name) = &end.get_ref().interface else {
            let inner = self.inner.get(&id).into_iter().flatten();
            let own = inner.chain(&node.addresses).copied();
            return Ok(own.chain(of_interfaces).collect());
        };
        let Some(interface) = node.interfaces().find(|i| i.name == *name) else {
            let known: Vec<&str> = node.interfaces().map(|i| i.name.as_str()).collect();
            let hint = super::hint(name, &known);
            let message = format!("{} has no interface {name}{hint}", node.name);
            return Err(Mistake::of(end, message));
        };
        if interface.addresses.is_empty() {
            let message = format!("{}:{name} has no address of its own", node.name);
            return Err(Mistake::of(end, message));
        }
        Ok(interface.addresses.clone())
    }

    /// Takes ports for `owner`; fails if another application has one of them.
    pub fn take_ports(
        &mut self,
        node: NodeId,
        protocol: u8,
        port: &Spanned<u16>,
        count: u16,
        owner: &str,
    ) -> Result<u16, Mistake> {
        let first = *port.get_ref();
        if first == 0 || first.checked_add(count - 1).is_none() {
            return Err(Mistake::of(port, "a port lies between 1 and 65535"));
        }
        for number in first..=first + (count - 1) {
            if let Some(other) = self.ports.get(&(node, protocol, number)) {
                let node = &self.network.node(node).name;
                let message = format!("port {number} of {node} is used by {other}");
                return Err(Mistake::of(port, message));
            }
        }
        self.mark_ports(node, protocol, first, count, owner);
        Ok(first)
    }

    /// The first free run of this many ports.
    fn free_ports(
        &mut self,
        node: NodeId,
        protocol: u8,
        from: u16,
        count: u16,
        owner: &str,
    ) -> u16 {
        let free = |first: &u16| {
            (*first..first + count).all(|n| !self.ports.contains_key(&(node, protocol, n)))
        };
        let range = (from..u16::MAX - count).step_by(usize::from(count));
        let first = { range }.find(free).unwrap_or(from);
        self.mark_ports(node, protocol, first, count, owner);
        first
    }

    fn mark_ports(&mut self, node: NodeId, protocol: u8, first: u16, count: u16, owner: &str) {
        for number in first..first + count {
            self.ports.insert((node, protocol, number), owner.to_owned());
        }
    }
}

/// A model's error about its configuration, placed at the key of the table with this name.
#[must_use]
pub fn refused(name: &Name, error: &BadConfig) -> Mistake {
    Mistake::beside(name, error.key, error.problem.clone())
}
