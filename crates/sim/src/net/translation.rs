//! Address translators on nodes.

use alloc::boxed::Box;
use core::net::IpAddr;

use segue_clock::Span;

use super::{Nat, NatConfig, NatError, Network, NodeId};

impl Network {
    /// Turns a node into a translator.
    ///
    /// # Errors
    /// An invalid configuration.
    pub fn add_nat(&mut self, node: NodeId, config: NatConfig) -> Result<(), NatError> {
        let at = self.node_mut(node);
        if at.nat.is_some() {
            return Err(NatError::Second);
        }
        if config.inside.is_empty() && !config.cells_inside {
            return Err(NatError::NoInside);
        }
        if let Some(index) = config.inside.iter().find(|index| at.adapter(**index).is_none()) {
            return Err(NatError::NoInterface(*index));
        }
        let within = |address| {
            let inside = config.inside.iter().filter_map(|index| at.adapter(*index));
            inside.flat_map(|adapter| &adapter.interface.addresses).any(|known| *known == address)
        };
        if !at.owns(config.outside) || within(config.outside) {
            return Err(NatError::NotOutside(config.outside));
        }
        let (first, last) = config.ports;
        if first == 0 || first > last {
            return Err(NatError::Ports(first, last));
        }
        if config.udp_timeout == Span::ZERO || config.tcp_timeout == Span::ZERO {
            return Err(NatError::ZeroTimeout);
        }
        let mut nat = Nat::new(config);
        for interface in self.air_interfaces(node) {
            nat.add_air(interface);
        }
        self.node_mut(node).nat = Some(Box::new(nat));
        Ok(())
    }

    /// Forgets a translator's mappings and, if the outside address changes, moves the routes from the old address
    /// to the new one. Has no effect on other nodes.
    pub(super) fn rebind(&mut self, node: NodeId, outside: Option<IpAddr>) {
        let at = &mut self.nodes[node.0 as usize];
        let Some(nat) = &mut at.nat else { return };
        let old = nat.config.outside;
        nat.rebind(outside);
        if let Some(new) = outside.filter(|new| *new != old) {
            let adapters = at.adapters.iter_mut();
            let interfaces = adapters.flat_map(|a| &mut a.interface.addresses);
            for address in at.addresses.iter_mut().chain(interfaces) {
                if *address == old {
                    *address = new;
                }
            }
            for node in &mut self.nodes {
                node.routes.rename(old, new);
            }
            self.tell_interfaces(node);
        }
        self.say(node, || match outside {
            Some(address) => alloc::format!("NAT: mappings forgotten, outside address {address}"),
            None => alloc::string::String::from("NAT: mappings forgotten"),
        });
    }
}
