//! Entries of routing tables, and the rules that choose among the tables.

use alloc::string::String;
use core::net::IpAddr;

use crate::Prefix;

/// The number of Linux's main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A route: a way to a destination, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; [`Prefix::default_of`] for a default route.
    pub destination: Prefix,
    /// Next hop; `None` for a destination on the link.
    pub gateway: Option<IpAddr>,
    /// Interface index of the way out; 0 leaves it to the kernel (by the gateway).
    pub index: u32,
    /// Table number; [`MAIN_TABLE`] where no other was chosen.
    pub table: u32,
    /// Metric, smaller wins; `None` takes the kernel's default (0, or 1024 for IPv6).
    pub metric: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// The largest packet that takes this route, in bytes; `None` leaves it to the interface.
    pub mtu_bytes: Option<u32>,
    /// There is no way: packets that take this route are refused.
    pub unreachable: bool,
}

impl Route {
    /// A route in the main table by way of `gateway`.
    #[must_use]
    pub fn via(destination: Prefix, gateway: impl Into<IpAddr>) -> Route {
        Route { gateway: Some(gateway.into()), ..Route::on(destination, 0) }
    }

    /// A route in the main table straight out of the interface with this index.
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

    /// In the main table: the destination is unreachable, unless there is a better route to it.
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

    /// The same route out of the interface with this index.
    #[must_use]
    pub fn index(self, index: u32) -> Route {
        Route { index, ..self }
    }
}

/// A policy rule (`ip rule`): which table packets are looked up in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// For IPv6 if true, for IPv4 if false.
    pub v6: bool,
    /// Order among rules, smaller first; it also names the rule when it is deleted.
    pub priority: u32,
    /// Table to look up.
    pub table: u32,
    /// Only packets with this firewall mark.
    pub fwmark: Option<u32>,
    /// Turns the selector round: `not fwmark …`.
    pub invert: bool,
    /// Only packets from this prefix.
    pub from: Option<Prefix>,
    /// Only packets to this prefix.
    pub to: Option<Prefix>,
    /// Only packets that came by this interface; what this machine sends comes by `lo`.
    pub iif: Option<String>,
    /// Only packets whose sender is bound to this interface; what is forwarded never is.
    pub oif: Option<String>,
    /// Only some of them, by what has no field here: protocol, ports, user, type of service.
    pub narrower: bool,
    /// What becomes of the packets.
    pub then: Then,
    /// Ignores results with a prefix this long or shorter: 0 hides default routes.
    pub suppress_prefix_length: Option<u32>,
    /// Who added the rule (the kernel's `proto`); 0 if that is not recorded.
    pub protocol: u8,
}

/// What a rule does with packets that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Looks the table up.
    #[default]
    Lookup,
    /// Goes on with the rule of this priority, a greater one.
    Goto(u32),
    /// Nothing: goes on with the next rule.
    Nothing,
    /// Refuses them: there is no way.
    Unreachable,
    /// Refuses them: there is no permission.
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
