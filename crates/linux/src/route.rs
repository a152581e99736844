//! Routes and policy rules of the calling thread's network namespace.

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType, RouteVia,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use segue_ip::{Prefix, Route, Rule, Then};

use crate::error::{LinuxError, Result};
use crate::link::family;
use crate::netlink;

/// Adds a route. Fails if the same destination with the same metric exists.
///
/// # Errors
/// The kernel's: gateway unreachable, route exists, no permission.
pub fn add_route(route: &Route) -> Result<()> {
    put(route, NLM_F_CREATE | NLM_F_EXCL, "add")
}

/// Adds a route unless the same destination with the same metric exists. Returns whether it is new.
///
/// # Errors
/// The kernel's: gateway unreachable, no permission.
pub fn add_missing_route(route: &Route) -> Result<bool> {
    let message = RouteNetlinkMessage::NewRoute(route_message(route));
    netlink::request(message, NLM_F_CREATE | NLM_F_EXCL)
        .map_or_else(if_new, |()| Ok(true))
        .map_err(|e| route_error("add", route, e))
}

fn if_new(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(false) } else { Err(error) }
}

/// Adds a route, or replaces the one with the same destination, table and metric.
///
/// # Errors
/// The kernel's: gateway unreachable, no permission.
pub fn replace_route(route: &Route) -> Result<()> {
    put(route, NLM_F_CREATE | NLM_F_REPLACE, "replace")
}

/// Deletes a route.
///
/// # Errors
/// No such route, no permission.
pub fn delete_route(route: &Route) -> Result<()> {
    let mut message = route_message(route);
    // Leave scope and protocol open: the other fields identify the route.
    message.header.scope = RouteScope::NoWhere;
    message.header.protocol = RouteProtocol::Unspec;
    if !route.unreachable {
        message.header.kind = RouteType::Unspec;
    }
    netlink::request(RouteNetlinkMessage::DelRoute(message), 0)
        .map_err(|e| route_error("delete", route, e))
}

/// The unicast routes of all tables except the kernel's local table, in the kernel's order.
///
/// # Errors
/// The netlink request failed.
pub fn routes() -> Result<Vec<Route>> {
    let all = all_routes()?;
    Ok(all.into_iter().filter(|route| !route.unreachable).collect())
}

/// The unreachable routes of all tables. (Reading a single table would cost as much.)
///
/// # Errors
/// The netlink request failed.
pub fn unreachables() -> Result<Vec<Route>> {
    let all = all_routes()?;
    Ok(all.into_iter().filter(|route| route.unreachable).collect())
}

fn all_routes() -> Result<Vec<Route>> {
    let all = netlink::dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))
        .map_err(|e| LinuxError::refused("list routes", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewRoute(route) => read_route(&route),
        _ => None,
    };
    Ok(all.into_iter().filter_map(read).collect())
}

/// The first hop of packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the outgoing interface.
    pub interface: u32,
    /// The next hop: a router, or the destination itself.
    pub next: IpAddr,
}

/// Looks up the first hop to a destination, over a given interface if `over` names one. `None` if no route leads there.
///
/// # Errors
/// The netlink request failed.
pub fn way_to(destination: IpAddr, over: Option<u32>) -> Result<Option<Hop>> {
    let mut question = question(destination);
    question.attributes.extend(over.map(RouteAttribute::Oif));
    hop(question, destination)
}

/// Looks up the first hop of packets from a source to a destination. Ignores a source that is not an address of this
/// machine.
///
/// # Errors
/// The netlink request failed.
pub fn way_from(source: IpAddr, destination: IpAddr) -> Result<Option<Hop>> {
    let mut of_source = question(destination);
    of_source.header.source_prefix_length = Prefix::host(source).len;
    of_source.attributes.push(RouteAttribute::Source(source.into()));
    match hop(of_source, destination) {
        Ok(Some(hop)) => Ok(Some(hop)),
        _ => way_to(destination, None),
    }
}

fn question(destination: IpAddr) -> RouteMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family(destination.is_ipv6());
    question.header.destination_prefix_length = Prefix::host(destination).len;
    question.attributes.push(RouteAttribute::Destination(destination.into()));
    question
}

fn hop(question: RouteMessage, destination: IpAddr) -> Result<Option<Hop>> {
    let answer = match netlink::ask(RouteNetlinkMessage::GetRoute(question)) {
        Ok(answer) => answer,
        Err(e) if no_way(&e) => return Ok(None),
        Err(e) => return Err(LinuxError::refused(format!("find the way to {destination}"), e)),
    };
    let way = |message| match message {
        RouteNetlinkMessage::NewRoute(route) => {
            let (mut interface, mut next) = (None, destination);
            for attribute in route.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => interface = Some(index),
                    RouteAttribute::Gateway(router) => next = ip(&router).unwrap_or(next),
                    // A gateway of the other family.
                    RouteAttribute::Via(RouteVia::Inet(router)) => next = router.into(),
                    RouteAttribute::Via(RouteVia::Inet6(router)) => next = router.into(),
                    _ => {}
                }
            }
            interface.map(|interface| Hop { interface, next })
        }
        _ => None,
    };
    Ok(answer.into_iter().find_map(way))
}

/// The kernel's routing decision for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The requested source, otherwise the route's preferred source, otherwise the RFC 6724 selection.
    pub source: Option<IpAddr>,
    /// The route has a preferred source.
    pub is_named: bool,
    /// Number of the route's table.
    pub table: u32,
}

/// Looks up the route of packets with firewall mark `mark` to a destination over interface `over`. `source` is the
/// packets' source, for rules and routes that depend on it. `None` if no route leads there.
///
/// # Errors
/// The netlink request failed.
pub fn way_over(
    destination: IpAddr,
    source: Option<IpAddr>,
    over: u32,
    mark: u32,
) -> Result<Option<Way>> {
    let mut question = question(destination);
    let attributes = &mut question.attributes;
    if let Some(source) = source {
        question.header.source_prefix_length = Prefix::host(source).len;
        attributes.push(RouteAttribute::Source(source.into()));
    }
    attributes.extend([RouteAttribute::Oif(over), RouteAttribute::Mark(mark)]);
    // If no route leads to the destination, IPv4 treats it as a neighbour on the interface. Only the lookup of the
    // table entry fails.
    let mut entry = question.clone();
    // IPv4 reports the table only on request.
    entry.header.flags |= RouteFlags::FibMatch | RouteFlags::LookupTable;
    let ask = |question| match netlink::ask(RouteNetlinkMessage::GetRoute(question)) {
        Ok(answer) => Ok(answer.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        })),
        Err(e) if no_way(&e) => Ok(None),
        Err(e) => Err(LinuxError::refused(format!("find the way to {destination}"), e)),
    };
    let Some(entry) = ask(entry)? else { return Ok(None) };
    let Some(answer) = ask(question)? else { return Ok(None) };
    let table = u32::from(entry.header.table);
    let (mut interface, mut way) = (None, Way { gateway: None, source, is_named: false, table });
    for attribute in &entry.attributes {
        match attribute {
            RouteAttribute::Table(number) => way.table = *number,
            RouteAttribute::PrefSource(_) => way.is_named = true,
            _ => {}
        }
    }
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(router) => way.gateway = ip(router),
            RouteAttribute::Via(RouteVia::Inet(router)) => way.gateway = Some((*router).into()),
            RouteAttribute::Via(RouteVia::Inet6(router)) => way.gateway = Some((*router).into()),
            RouteAttribute::PrefSource(address) if source.is_none() => way.source = ip(address),
            _ => {}
        }
    }
    // With a source, IPv6 may return a better route over another interface.
    Ok(Some(way).filter(|_| interface == Some(over)))
}

fn no_way(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES))
}

/// Adds a policy rule.
///
/// # Errors
/// The same rule exists, no permission.
pub fn add_rule(rule: &Rule) -> Result<()> {
    let message = RouteNetlinkMessage::NewRule(rule_message(rule));
    netlink::request(message, NLM_F_CREATE | NLM_F_EXCL)
        .map_err(|e| LinuxError::refused(format!("add the routing rule {}", rule.priority), e))
}

/// Adds a policy rule unless it exists. Returns whether it is new.
///
/// # Errors
/// No permission, or the kernel takes a different rule for this one because it does not compare every field.
pub fn add_missing_rule(rule: &Rule) -> Result<bool> {
    match add_rule(rule) {
        Err(error) if error.errno() == Some(Errno::EEXIST) => match rules()?.contains(rule) {
            true => Ok(false),
            false => Err(error),
        },
        added => added.map(|()| true),
    }
}

/// Deletes a policy rule.
///
/// # Errors
/// No such rule, no permission.
pub fn delete_rule(rule: &Rule) -> Result<()> {
    netlink::request(RouteNetlinkMessage::DelRule(rule_message(rule)), 0)
        .map_err(|e| LinuxError::refused(format!("delete the routing rule {}", rule.priority), e))
}

/// The policy rules of both families in the kernel's order, except rules with an action that [`Then`] does not know.
///
/// # Errors
/// The netlink request failed.
pub fn rules() -> Result<Vec<Rule>> {
    let all = netlink::dump(RouteNetlinkMessage::GetRule(RuleMessage::default()))
        .map_err(|e| LinuxError::refused("list routing rules", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewRule(rule) => read_rule(&rule),
        _ => None,
    };
    Ok(all.into_iter().filter_map(read).collect())
}

fn put(route: &Route, flags: u16, verb: &str) -> Result<()> {
    netlink::request(RouteNetlinkMessage::NewRoute(route_message(route)), flags)
        .map_err(|e| route_error(verb, route, e))
}

fn route_error(verb: &str, route: &Route, e: io::Error) -> LinuxError {
    let via = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
    let what = format!("{verb} the route to {}{via}", route.destination);
    LinuxError::refused_at(what, route.destination.addr, e)
}

fn route_message(route: &Route) -> RouteMessage {
    let on_link = route.gateway.is_none() && route.destination.addr.is_ipv4() && !route.unreachable;
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(route.destination.addr.is_ipv6());
    header.destination_prefix_length = route.destination.len;
    header.scope = if on_link { RouteScope::Link } else { RouteScope::Universe };
    header.protocol = RouteProtocol::Static;
    header.kind = if route.unreachable { RouteType::Unreachable } else { RouteType::Unicast };
    let attributes = &mut message.attributes;
    if route.destination.len > 0 {
        attributes.push(RouteAttribute::Destination(route.destination.network().addr.into()));
    }
    attributes.extend(route.gateway.map(|g| RouteAttribute::Gateway(g.into())));
    if route.index != 0 {
        attributes.push(RouteAttribute::Oif(route.index));
    }
    attributes.push(RouteAttribute::Table(route.table));
    attributes.extend(route.metric.map(RouteAttribute::Priority));
    attributes.extend(route.source.map(|s| RouteAttribute::PrefSource(s.into())));
    let mtu = |mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]);
    attributes.extend(route.mtu_bytes.map(mtu));
    message
}

fn read_route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let v6 = is_v6(header.address_family)?;
    let unreachable = match header.kind {
        RouteType::Unicast => false,
        RouteType::Unreachable => true,
        _ => return None,
    };
    let destination = Prefix { len: header.destination_prefix_length, ..Prefix::default_of(v6) };
    let mut route = Route { unreachable, ..Route::on(destination, 0).table(header.table.into()) };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => route.destination.addr = ip(addr)?,
            RouteAttribute::Gateway(addr) => route.gateway = ip(addr),
            RouteAttribute::Oif(index) => route.index = *index,
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            RouteAttribute::PrefSource(addr) => route.source = ip(addr),
            RouteAttribute::Metrics(metrics) => {
                route.mtu_bytes = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => (),
        }
    }
    Some(route)
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.v6);
    message.header.src_len = rule.from.map_or(0, |p| p.len);
    message.header.dst_len = rule.to.map_or(0, |p| p.len);
    message.header.action = match rule.then {
        Then::Lookup => RuleAction::ToTable,
        Then::Goto(_) => RuleAction::Goto,
        Then::Nothing => RuleAction::Nop,
        Then::Unreachable => RuleAction::Unreachable,
        Then::Prohibit => RuleAction::Prohibit,
    };
    message.header.flags.set(RuleFlags::Invert, rule.invert);
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    match rule.then {
        Then::Lookup => attributes.push(RuleAttribute::Table(rule.table)),
        Then::Goto(priority) => attributes.push(RuleAttribute::Goto(priority)),
        Then::Nothing | Then::Unreachable | Then::Prohibit => {}
    }
    attributes.extend(rule.fwmark.map(RuleAttribute::FwMark));
    attributes.extend(rule.from.map(|p| RuleAttribute::Source(p.network().addr)));
    attributes.extend(rule.to.map(|p| RuleAttribute::Destination(p.network().addr)));
    attributes.extend(rule.iif.clone().map(RuleAttribute::Iifname));
    attributes.extend(rule.oif.clone().map(RuleAttribute::Oifname));
    attributes.extend(rule.suppress_prefix_length.map(RuleAttribute::SuppressPrefixLen));
    if rule.protocol != 0 {
        attributes.push(RuleAttribute::Protocol(rule.protocol.into()));
    }
    message
}

fn read_rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let v6 = is_v6(header.family)?;
    let then = match header.action {
        RuleAction::ToTable => Then::Lookup,
        RuleAction::Goto => Then::Goto(0),
        RuleAction::Nop => Then::Nothing,
        RuleAction::Unreachable => Then::Unreachable,
        RuleAction::Prohibit => Then::Prohibit,
        _ => return None,
    };
    let invert = header.flags.contains(RuleFlags::Invert);
    let table = u32::from(header.table);
    let mut rule = Rule { v6, table, invert, narrower: header.tos != 0, then, ..Rule::default() };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(addr) => {
                rule.from = Some(Prefix { addr: *addr, len: header.src_len });
            }
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::FwMark(mark) => rule.fwmark = Some(*mark),
            RuleAttribute::Table(table) => rule.table = *table,
            // The kernel encodes "none" as all ones.
            RuleAttribute::SuppressPrefixLen(len) => {
                rule.suppress_prefix_length = Some(*len).filter(|l| *l != u32::MAX);
            }
            RuleAttribute::Destination(addr) => {
                rule.to = Some(Prefix { addr: *addr, len: header.dst_len });
            }
            RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.oif = Some(name.clone()),
            RuleAttribute::Goto(priority) => rule.then = Then::Goto(*priority),
            RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
            RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_)
            | RuleAttribute::UidRange(_) => rule.narrower = true,
            _ => (),
        }
    }
    Some(rule)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    }
}

fn is_v6(family: AddressFamily) -> Option<bool> {
    match family {
        AddressFamily::Inet => Some(false),
        AddressFamily::Inet6 => Some(true),
        _ => None,
    }
}
