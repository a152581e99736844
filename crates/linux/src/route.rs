//! Routes and policy rules of the calling thread's network namespace.

use std::net::IpAddr;

use crate::error::{LinuxError, Result};
use crate::link::{Prefix, address_from, index_of, octets};
use crate::netlink::{self, Message, attrs, u32_at};

/// The number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A unicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; `Prefix::default_of` for a default route.
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
}

impl Route {
    /// A route in the main table by way of `gateway`.
    #[must_use]
    pub fn via(destination: Prefix, gateway: impl Into<IpAddr>) -> Route {
        let gateway = Some(gateway.into());
        Route { destination, gateway, index: 0, table: MAIN_TABLE, metric: None, source: None }
    }

    /// A route in the main table straight out of the device `name`.
    ///
    /// # Errors
    /// No such device.
    pub fn on(destination: Prefix, name: &str) -> Result<Route> {
        let index = index_of(name)?;
        Ok(Route {
            destination,
            gateway: None,
            index,
            table: MAIN_TABLE,
            metric: None,
            source: None,
        })
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

    /// The same route out of the device with this index.
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
    /// Ignores results with a prefix this long or shorter: 0 hides default routes.
    pub suppress_prefix_length: Option<u32>,
}

/// Adds a route. It fails if the same destination with the same metric is there already.
///
/// # Errors
/// The kernel's: gateway unreachable, route exists, no permission.
pub fn add_route(route: &Route) -> Result<()> {
    send(route, libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, "add")
}

/// Adds a route or takes the place of the one with the same destination, table and metric.
///
/// # Errors
/// The kernel's: gateway unreachable, no permission.
pub fn replace_route(route: &Route) -> Result<()> {
    send(route, libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, "replace")
}

/// Deletes a route.
///
/// # Errors
/// No such route, no permission.
pub fn delete_route(route: &Route) -> Result<()> {
    send(route, libc::RTM_DELROUTE, 0, "delete")
}

/// The unicast routes of all tables but the kernel's own local one, in the kernel's order.
///
/// # Errors
/// When netlink is refused.
pub fn routes() -> Result<Vec<Route>> {
    let mut found = Vec::new();
    let message = Message::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP).body(&[0; 12]);
    let each = |kind: u16, body: &[u8]| {
        if kind == libc::RTM_NEWROUTE {
            found.extend(read_route(body));
        }
    };
    netlink::dump(message, each).map_err(|e| LinuxError::refused("list routes", e))?;
    Ok(found)
}

/// Adds a policy rule.
///
/// # Errors
/// The same rule is there already, no permission.
pub fn add_rule(rule: &Rule) -> Result<()> {
    let message = rule_message(rule, libc::RTM_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
    netlink::request(message)
        .map_err(|e| LinuxError::refused(format!("add the routing rule {}", rule.priority), e))
}

/// Deletes a policy rule.
///
/// # Errors
/// No such rule, no permission.
pub fn delete_rule(rule: &Rule) -> Result<()> {
    netlink::request(rule_message(rule, libc::RTM_DELRULE, 0))
        .map_err(|e| LinuxError::refused(format!("delete the routing rule {}", rule.priority), e))
}

/// The policy rules of both families that look a table up, in the kernel's order.
///
/// # Errors
/// When netlink is refused.
pub fn rules() -> Result<Vec<Rule>> {
    let mut found = Vec::new();
    let message = Message::new(libc::RTM_GETRULE, libc::NLM_F_DUMP).body(&[0; 12]);
    let each = |kind: u16, body: &[u8]| {
        if kind == libc::RTM_NEWRULE {
            found.extend(read_rule(body));
        }
    };
    netlink::dump(message, each).map_err(|e| LinuxError::refused("list routing rules", e))?;
    Ok(found)
}

const RT_TABLE_UNSPEC: u8 = 0;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FIB_RULE_INVERT: u32 = 2;
const FR_ACT_TO_TBL: u8 = 1;

fn send(route: &Route, kind: u16, flags: i32, verb: &str) -> Result<()> {
    netlink::request(route_message(route, kind, flags)).map_err(|e| {
        let via = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        LinuxError::refused(format!("{verb} the route to {}{via}", route.destination), e)
    })
}

fn route_message(route: &Route, kind: u16, flags: i32) -> Message {
    let on_link = route.gateway.is_none() && route.destination.addr.is_ipv4();
    let scope = match kind {
        libc::RTM_DELROUTE => libc::RT_SCOPE_NOWHERE,
        _ if on_link => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let protocol = if kind == libc::RTM_DELROUTE { 0 } else { libc::RTPROT_STATIC };
    let unicast = if kind == libc::RTM_DELROUTE { 0 } else { libc::RTN_UNICAST };
    let mut header = [0; 12];
    header[0] = route.destination.family();
    header[1] = route.destination.len;
    header[4..8].copy_from_slice(&[RT_TABLE_UNSPEC, protocol, scope, unicast]);
    let mut message = Message::new(kind, flags).body(&header);
    if route.destination.len > 0 {
        message.attr(libc::RTA_DST, &octets(masked(route.destination)));
    }
    if let Some(gateway) = route.gateway {
        message.attr(libc::RTA_GATEWAY, &octets(gateway));
    }
    if route.index != 0 {
        message.attr_u32(libc::RTA_OIF, route.index);
    }
    message.attr_u32(libc::RTA_TABLE, route.table);
    if let Some(metric) = route.metric {
        message.attr_u32(libc::RTA_PRIORITY, metric);
    }
    if let Some(source) = route.source {
        message.attr(libc::RTA_PREFSRC, &octets(source));
    }
    message
}

/// The prefix's address with its host bits cleared, as the kernel wants a destination.
fn masked(prefix: Prefix) -> IpAddr {
    match prefix.addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len)).unwrap_or(0);
            IpAddr::V4((u32::from(a) & mask).into())
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len)).unwrap_or(0);
            IpAddr::V6((u128::from(a) & mask).into())
        }
    }
}

fn read_route(body: &[u8]) -> Option<Route> {
    let [family, len, _, _, table, _, _, kind, ..] = *body else { return None };
    if kind != libc::RTN_UNICAST || !is_ip(family) {
        return None;
    }
    let mut route = Route {
        destination: Prefix { len, ..Prefix::default_of(i32::from(family) == libc::AF_INET6) },
        gateway: None,
        index: 0,
        table: u32::from(table),
        metric: None,
        source: None,
    };
    for (kind, value) in attrs(body, 12) {
        match kind {
            libc::RTA_DST => route.destination.addr = address_from(value)?,
            libc::RTA_GATEWAY => route.gateway = address_from(value),
            libc::RTA_OIF => route.index = u32_at(value, 0),
            libc::RTA_TABLE => route.table = u32_at(value, 0),
            libc::RTA_PRIORITY => route.metric = Some(u32_at(value, 0)),
            libc::RTA_PREFSRC => route.source = address_from(value),
            _ => (),
        }
    }
    Some(route)
}

fn rule_message(rule: &Rule, kind: u16, flags: i32) -> Message {
    let mut header = [0; 12];
    header[0] = (if rule.v6 { libc::AF_INET6 } else { libc::AF_INET }) as u8;
    header[2] = rule.from.map_or(0, |p| p.len);
    header[7] = FR_ACT_TO_TBL;
    let invert = if rule.invert { FIB_RULE_INVERT } else { 0 };
    header[8..12].copy_from_slice(&invert.to_ne_bytes());
    let mut message = Message::new(kind, flags).body(&header);
    message.attr_u32(FRA_PRIORITY, rule.priority);
    message.attr_u32(FRA_TABLE, rule.table);
    if let Some(mark) = rule.fwmark {
        message.attr_u32(FRA_FWMARK, mark);
    }
    if let Some(from) = rule.from {
        message.attr(FRA_SRC, &octets(masked(from)));
    }
    if let Some(len) = rule.suppress_prefix_length {
        message.attr_u32(FRA_SUPPRESS_PREFIXLEN, len);
    }
    message
}

fn read_rule(body: &[u8]) -> Option<Rule> {
    let [family, _, from_len, _, table, _, _, action, ..] = *body else { return None };
    if action != FR_ACT_TO_TBL || !is_ip(family) {
        return None;
    }
    let mut rule = Rule {
        v6: i32::from(family) == libc::AF_INET6,
        table: u32::from(table),
        invert: u32_at(body, 8) & FIB_RULE_INVERT != 0,
        ..Rule::default()
    };
    for (kind, value) in attrs(body, 12) {
        match kind {
            FRA_SRC => rule.from = address_from(value).map(|a| Prefix { addr: a, len: from_len }),
            FRA_PRIORITY => rule.priority = u32_at(value, 0),
            FRA_FWMARK => rule.fwmark = Some(u32_at(value, 0)),
            FRA_TABLE => rule.table = u32_at(value, 0),
            // The kernel reports "none" as all ones.
            FRA_SUPPRESS_PREFIXLEN => {
                rule.suppress_prefix_length = Some(u32_at(value, 0)).filter(|l| *l != u32::MAX);
            }
            FRA_DST => return None,
            _ => (),
        }
    }
    Some(rule)
}

fn is_ip(family: u8) -> bool {
    [libc::AF_INET, libc::AF_INET6].contains(&i32::from(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cleared_at_every_length() {
        let m = |text: &str| masked(text.parse().unwrap()).to_string();
        assert_eq!(m("10.1.2.3/24"), "10.1.2.0");
        assert_eq!(m("10.1.2.3/32"), "10.1.2.3");
        assert_eq!(m("10.1.2.3/0"), "0.0.0.0");
        assert_eq!(m("fd61:1::5/64"), "fd61:1::");
        assert_eq!(m("fd61:1::5/128"), "fd61:1::5");
        assert_eq!(m("fd61:1::5/0"), "::");
    }
}
