//! `[[nat]]`.

use segue_grammar::{Address, Duration, EventKeys, Mistake, Name};
use segue_sim::net::{Behaviour, Change, NatConfig};
use serde::Deserialize;
use toml::Spanned;

use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::table::{Kind, Table};

pub(super) const NAT: Kind = Kind::of::<Nat>("nat", &[REBIND]);

/// An address translator.
#[derive(Deserialize)]
struct Nat {
    /// Its node.
    node: Name,
    /// Interfaces, or neighbours, on the inside.
    #[serde(default)]
    inside: Vec<Name>,
    /// Radios in the node's cells are inside, too.
    cells_inside: Option<bool>,
    /// The address seen from outside; by default the node's own.
    outside: Option<Address>,
    /// Part of the remote endpoint on which the outside port depends.
    mapping: Option<BehaviourName>,
    /// Filter for packets from outside.
    filtering: Option<BehaviourName>,
    /// Lifetime of a UDP mapping.
    udp_timeout: Option<Duration>,
    /// Lifetime of a TCP mapping.
    tcp_timeout: Option<Duration>,
    /// Packets from outside refresh a mapping.
    inbound_refresh: Option<bool>,
    /// First and last outside port.
    ports: Option<(u16, u16)>,
}

/// Behaviour of a translator (RFC 4787).
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BehaviourName {
    /// Depends only on the inside endpoint.
    Endpoint,
    /// Depends on the remote address, too.
    Address,
    /// Depends on the remote address and port, too.
    Port,
}

impl BehaviourName {
    fn behaviour(self) -> Behaviour {
        match self {
            BehaviourName::Endpoint => Behaviour::EndpointIndependent,
            BehaviourName::Address => Behaviour::AddressDependent,
            BehaviourName::Port => Behaviour::AddressAndPortDependent,
        }
    }
}

impl Table for Nat {
    fn place(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.node)?;
        let mut inside = Vec::new();
        for name in &self.inside {
            inside.push(builder.way_out(node, name.get_ref()).map_err(Mistake::at(name))?);
        }
        let own = {
            let at = builder.network.node(node);
            let outer = at.interfaces().filter(|interface| !inside.contains(&interface.index));
            let outer = outer.flat_map(|interface| &interface.addresses);
            outer.chain(&at.addresses).next().copied()
        };
        let Some(outside) = self.outside.map(|a| a.0).or(own) else {
            return Err(Mistake::of(&self.node, "it has no address outside"));
        };
        let mut config = NatConfig::new(inside, outside);
        config.cells_inside = self.cells_inside.unwrap_or(config.cells_inside);
        config.mapping = self.mapping.map_or(config.mapping, BehaviourName::behaviour);
        config.filtering = self.filtering.map_or(config.filtering, BehaviourName::behaviour);
        config.udp_timeout = self.udp_timeout.map_or(config.udp_timeout, |d| d.0);
        config.tcp_timeout = self.tcp_timeout.map_or(config.tcp_timeout, |d| d.0);
        config.inbound_refresh = self.inbound_refresh.unwrap_or(config.inbound_refresh);
        config.ports = self.ports.unwrap_or(config.ports);
        builder.network.add_nat(node, config).map_err(Mistake::at(&self.node))
    }
}

const REBIND: EventKind = EventKind {
    keys: EventKeys { name: "rebind", with: &["address"] },
    add: |builder, event, at, name| {
        let node = builder.node(name)?;
        if builder.network.node(node).nat().is_none() {
            return Err(Mistake::of(name, format!("{} has no NAT", name.get_ref())));
        }
        let address: Option<Spanned<Address>> = event.placed("address")?;
        if let Some(address) = &address {
            builder.own(node, address.get_ref().0, address)?;
        }
        let address = address.map(|address| address.into_inner().0);
        builder.network.schedule(at, Change::RebindNat(node, address));
        Ok(())
    },
};
