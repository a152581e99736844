//! `[[nat]]`.

use schemars::JsonSchema;
use segue_grammar::values::S;
use segue_grammar::{Address, Duration, EventKeys, Flag, Mistake, Name, Spanned};
use segue_sim::net::{Behaviour, Change, NatConfig};
use serde::{Deserialize, Serialize};

use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::table::{Kind, Table};

pub(super) const NAT: Kind = Kind::of::<Nat>("nat", &[REBIND]);

/// An address translator.
#[derive(Deserialize, JsonSchema)]
struct Nat {
    /// Where it is
    node: Name,
    /// Interfaces or neighbours inside; the others are outside
    #[serde(default)]
    inside: Vec<Name>,
    /// Radios in the node's cells are inside
    #[serde(default)]
    cells_inside: Flag<true>,
    /// The external address, one of the node's outside addresses
    #[schemars(extend("x-unset" = "its first"))]
    outside: Option<Address>,
    /// An outside port depends on (RFC 4787): the inside endpoint alone, the remote address, or the remote port, too
    #[serde(default)]
    mapping: BehaviourName,
    /// Which packets may enter, likewise
    #[serde(default = "BehaviourName::of_filters")]
    filtering: BehaviourName,
    /// Lifetime of an idle UDP mapping
    #[serde(default)]
    udp_timeout: Duration<{ 120 * S }>,
    /// Lifetime of an idle TCP mapping
    #[serde(default)]
    tcp_timeout: Duration<{ 7_440 * S }>,
    /// Packets from outside keep a mapping alive
    #[serde(default)]
    inbound_refresh: bool,
    /// First and last outside port
    #[schemars(extend("x-value" = "`[first, last]`", "x-unset" = "`[1024, 65535]`"))]
    ports: Option<(u16, u16)>,
}

/// Behaviour of a translator (RFC 4787).
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-plain" = true))]
enum BehaviourName {
    /// The inside endpoint alone.
    #[default]
    Endpoint,
    /// The remote address, too.
    Address,
    /// The remote address and port, too.
    Port,
}

impl BehaviourName {
    fn of_filters() -> BehaviourName {
        BehaviourName::Port
    }

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
        config.cells_inside = self.cells_inside.0;
        config.mapping = self.mapping.behaviour();
        config.filtering = self.filtering.behaviour();
        config.udp_timeout = self.udp_timeout.0;
        config.tcp_timeout = self.tcp_timeout.0;
        config.inbound_refresh = self.inbound_refresh;
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
