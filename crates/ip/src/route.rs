//! Routes, and the rules that select routing tables.

use alloc::string::String;
use core::net::IpAddr;

use crate::Prefix;

/// The number of Linux's main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A route to a destination, or a statement that it is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; [`Prefix::default_of`] for a default route.
    pub destination: Prefix,
    /// Next hop; `None` for a destination on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the outgoing interface; 0: the kernel derives it from the gateway.
    pub index: u32,
    /// Table number; [`MAIN_TABLE`] by default.
    pub table: u32,
    /// Metric; the smallest wins. `None`: the kernel's default (0, or 1024 for IPv6).
    pub metric: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Largest packet for this route, in bytes; `None`: the interface's MTU.
    pub mtu_bytes: Option<u32>,
    /// Packets that match this route are rejected as unreachable.
    pub unreachable: bool,
}

impl Route {
    /// A route via `gateway` in the main table.
    #[must_use]
    pub fn via(destination: Prefix, gateway: impl Into<IpAddr>) -> Route {
        Route { gateway: Some(gateway.into()), ..Route::on(destination, 0) }
    }

    /// A route in the main table directly out of interface `index`.
    #[must_use]
    pub fn on(destination: Prefix, index: u32) -> Route {
        Route {
            destination,
            gateway: None,
            index,
            table: MAIN_TABLE,
            metric: None,
            source: None,
            mtu_bytes: None,
            unreachable: false,
        }
    }

    /// A route in the main table that makes the destination unreachable, unless a better route exists.
    #[must_use]
    pub fn unreachable(destination: Prefix) -> Route {
        Route { unreachable: true, ..Route::on(destination, 0) }
    }

    /// The same route in `table`.
    #[must_use]
    pub fn table(self, table: u32) -> Route {
        Route { table, ..self }
    }

    /// The same route with `metric`.
    #[must_use]
    pub fn metric(self, metric: u32) -> Route {
        Route { metric: Some(metric), ..self }
    }

    /// The same route out of interface `index`.
    #[must_use]
    pub fn index(self, index: u32) -> Route {
        Route { index, ..self }
    }
}

/// A policy rule (`ip rule`): selects the table for a lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Order among rules, smallest first. Also identifies the rule for deletion.
    pub priority: u32,
    /// Table to look up.
    pub table: u32,
    /// Only packets with this firewall mark.
    pub fwmark: Option<u32>,
    /// Inverts the selector: `not fwmark …`.
    pub invert: bool,
    /// Only packets from this prefix.
    pub from: Option<Prefix>,
    /// Only packets to this prefix.
    pub to: Option<Prefix>,
    /// Only packets that arrived by this interface; locally generated packets arrive by `lo`.
    pub iif: Option<String>,
    /// Only packets whose socket is bound to this interface; never matches forwarded packets.
    pub oif: Option<String>,
    /// The rule has further selectors that are not modelled here: protocol, ports, user, type of service.
    pub narrower: bool,
    /// The action for matching packets.
    pub then: Then,
    /// Ignores results with a prefix of this length or shorter; 0 hides default routes.
    pub suppress_prefix_length: Option<u32>,
    /// Origin of the rule (the kernel's `proto`); 0 if not recorded.
    pub protocol: u8,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Look up the table.
    #[default]
    Lookup,
    /// Continue at the rule with this priority, which must be greater.
    Goto(u32),
    /// Continue with the next rule.
    Nothing,
    /// Reject as unreachable.
    Unreachable,
    /// Reject as prohibited.
    Prohibit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_in_the_main_table_until_another_is_chosen() {
        let default = Prefix::default_of(false);
        let gateway = IpAddr::from([192, 0, 2, 1]);
        let plain = Route::via(default, gateway);
        assert_eq!((plain.gateway, plain.index, plain.table), (Some(gateway), 0, MAIN_TABLE));
        assert_eq!(Route::on(default, 7), Route { gateway: None, index: 7, ..plain });
        let chosen = Route { index: 7, table: 99, metric: Some(50), ..plain };
        assert_eq!(plain.index(7).table(99).metric(50), chosen);
    }
}
