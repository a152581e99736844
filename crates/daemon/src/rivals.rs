//! Rules and routes of other programs' tunnels that compete for a host's packets: a VPN's rule for all packets, or the
//! two half-Internet routes that OpenVPN adds to the main table.
//!
//! A host's rules come after them by default, so that packets for such a tunnel enter it, and the tunnel's own packets
//! use Segue if the other program lets them. The operator may choose another priority (`priority`); a host that fails
//! closed comes first.

use std::fmt;

use segue_ip::{MAIN_TABLE, Prefix, Route, Rule, Then};
use segue_linux::monitor::Device;
use segue_linux::route::{routes, rules};

use crate::number::Number;
use crate::ways::is_tunnel;

/// Marks a host's rules in the kernel (rule protocol); no other program is known to use this number.
pub(crate) const PROTOCOL: u8 = 0x5e;
/// The kernel's local and default tables.
const LOCAL_TABLE: u32 = 255;
const DEFAULT_TABLE: u32 = 253;
/// Tables of Segue's roles.
const OWN_TABLES: std::ops::RangeInclusive<u32> = 0x5e60..=0x5fff;
/// The last priority before the main table's rule.
const LAST: u32 = 32_765;
/// Most destinations of a table to name in messages.
const NAMED: usize = 3;

/// Priorities of a host's two rules: for the main table and for the tunnel's table. If two rules have the same
/// priority, the one added first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) main: u32,
    pub(crate) tunnel: u32,
}

impl Place {
    /// The position of a host's rules: the priority that the operator `chose`; before all other rules if the host fails
    /// closed; otherwise the default, or behind the last rival that selects all packets.
    #[must_use]
    pub fn of(number: Number, chosen: Option<u32>, closed: bool, rivals: &[Rival]) -> Place {
        let main = match (chosen, closed) {
            (Some(chosen), _) => chosen,
            (None, true) => number.closed_priority(),
            (None, false) => {
                let whole = rivals.iter().filter(|rival| rival.selects.is_none());
                let last = whole.filter_map(|rival| rival.priority).max();
                let behind = last.map_or(0, |last| last + 1);
                number.priority().max(behind).min(LAST)
            }
        };
        Place { main, tunnel: (main + 1).min(LAST) }
    }
}

/// A rule, or routes, of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// It concerns IPv6; otherwise IPv4.
    pub v6: bool,
    /// The priority of its rule; `None` for routes in the main table.
    pub priority: Option<u32>,
    /// The rule's table.
    table: u32,
    /// The packets that it is limited to; `None` for all packets.
    selects: Option<String>,
    /// It has a default route, or a route for each half.
    pub is_everything: bool,
    /// Destinations, and the device that each leads to.
    leads: String,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.priority {
            None => write!(f, "{} in the main table", self.leads),
            Some(priority) => {
                let selects =
                    self.selects.iter().map(|selects| format!("{selects}, ")).collect::<String>();
                write!(f, "routing rule {priority} ({selects}table {}: {})", self.table, self.leads)
            }
        }
    }
}

/// Packets that may take another way than the operator expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The conflict and its remedy, as a sentence.
    pub text: String,
    /// The operator has to decide.
    pub is_serious: bool,
}

/// The tunnels of other programs that compete for packets of this machine, and rules for selected packets.
///
/// # Errors
/// Netlink fails.
pub fn rivals(devices: &[Device]) -> segue_linux::error::Result<Vec<Rival>> {
    Ok(among(devices, &rules()?, &routes()?))
}

fn among(devices: &[Device], rules: &[Rule], routes: &[Route]) -> Vec<Rival> {
    let device = |route: &Route| devices.iter().find(|d| d.interface.index == route.index);
    let foreign = |route: &Route, tunnel: bool| {
        let is = |d: &Device| !d.interface.name.starts_with("segue") && (!tunnel || is_tunnel(d));
        device(route).is_some_and(is)
    };
    let mut all = Vec::new();
    // Rules behind the main table's only take packets that no route matches.
    for rule in rules.iter().filter(|rule| is_foreign_lookup(rule) && rule.priority <= LAST) {
        let selects = selects(rule);
        // A rule for selected packets bypasses Segue over any device, not only over a tunnel.
        let of_table = |route: &&Route| {
            route.table == rule.table
                && route.destination.addr.is_ipv6() == rule.v6
                && foreign(route, selects.is_none())
        };
        let led: Vec<&Route> = routes.iter().filter(of_table).collect();
        if led.is_empty() {
            continue;
        }
        all.push(Rival {
            v6: rule.v6,
            priority: Some(rule.priority),
            table: rule.table,
            selects,
            is_everything: is_everything(&led, rule.v6),
            leads: leads(&led, devices),
        });
    }
    for v6 in [false, true] {
        let half = |route: &&Route| {
            let own = device(route).is_some_and(|d| d.interface.name.starts_with("segue"));
            route.table == MAIN_TABLE && is_half(route.destination, v6) && !own
        };
        let halves: Vec<&Route> = routes.iter().filter(half).collect();
        if !halves.is_empty() {
            all.push(Rival {
                v6,
                priority: None,
                table: MAIN_TABLE,
                selects: None,
                is_everything: is_everything(&halves, v6),
                leads: leads(&halves, devices),
            });
        }
    }
    all
}

/// Returns whether a rule of another program looks up a table of that program for unmarked packets.
fn is_foreign_lookup(rule: &Rule) -> bool {
    let marked = rule.fwmark.is_some_and(|mark| mark != 0);
    // `not` inverts the whole selector.
    let unmarked = if rule.invert { marked || selects(rule).is_some() } else { !marked };
    let kernels = [0, MAIN_TABLE, LOCAL_TABLE, DEFAULT_TABLE].contains(&rule.table);
    let own = rule.protocol == PROTOCOL || OWN_TABLES.contains(&rule.table);
    rule.then == Then::Lookup && unmarked && !kernels && !own
}

/// The packets that a rule selects; `None` for all.
fn selects(rule: &Rule) -> Option<String> {
    let prefix = |word, prefix: Option<Prefix>| {
        prefix.filter(|prefix| prefix.len > 0).map(|prefix| format!("{word} {prefix}"))
    };
    let device = |word, name: &Option<String>| name.as_ref().map(|name| format!("{word} {name}"));
    let words = [
        prefix("from", rule.from),
        prefix("to", rule.to),
        device("iif", &rule.iif),
        device("oif", &rule.oif),
    ];
    let others = rule.narrower.then(|| "some ports, protocols or users".to_owned());
    let words: Vec<String> = words.into_iter().chain([others]).flatten().collect();
    let not = if rule.invert { "not " } else { "" };
    (!words.is_empty()).then(|| format!("{not}{}", words.join(" ")))
}

/// Returns whether a destination is half of all addresses, half of the global IPv6 addresses (2000::/3), or 2000::/3
/// itself.
fn is_half(destination: Prefix, v6: bool) -> bool {
    let Prefix { addr, len } = destination;
    let global = Prefix::new(std::net::Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    addr.is_ipv6() == v6 && (len == 1 || v6 && [3, 4].contains(&len) && global.contains(addr))
}

fn is_everything(routes: &[&Route], v6: bool) -> bool {
    let halves = routes.iter().filter(|route| is_half(route.destination, v6)).count();
    let whole = |route: &&Route| [0, 3].contains(&route.destination.len);
    routes.iter().any(whole) || halves >= 2
}

fn leads(routes: &[&Route], devices: &[Device]) -> String {
    let name = |route: &Route| {
        let device = devices.iter().find(|d| d.interface.index == route.index);
        device.map_or("?", |device| device.interface.name.as_str())
    };
    let mut sorted = routes.to_vec();
    sorted.sort_by_key(|route| (route.destination.len, route.destination.addr));
    let one = |route: &&Route| format!("{} over {}", route.destination, name(route));
    let mut all: Vec<String> = sorted.iter().map(one).collect();
    all.dedup();
    if all.len() > NAMED {
        let more = all.len() - NAMED;
        all.truncate(NAMED);
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

/// The conflicts between a host with rules at `place` and its rivals.
#[must_use]
pub fn conflicts(rivals: &[Rival], place: Place, closed: bool) -> Vec<Conflict> {
    // A host that fails open may lose selected packets to other programs.
    let counts = |rival: &&Rival| {
        let first = rival.priority.is_some_and(|priority| priority <= place.tunnel);
        rival.selects.is_none() || closed && first
    };
    let judge = |rival: &Rival| {
        let first = match (rival.priority, closed) {
            (Some(priority), _) => priority <= place.tunnel,
            (None, closed) => !closed,
        };
        let serious = |text: String| Conflict { text, is_serious: true };
        match (first, closed) {
            (true, true) => serious(format!(
                "{rival} of another program comes before fail_closed: what it takes does not go through Segue; stop that \
                 program, or set priority below {}",
                rival.priority.unwrap_or(place.main)
            )),
            (false, true) => serious(format!(
                "{rival} of another program gets nothing, since fail_closed comes first: stop that program, or set \
                 fail_closed = false"
            )),
            (true, false) if !rival.is_everything => Conflict {
                text: format!("{rival} of another program comes first"),
                is_serious: false,
            },
            (true, false) => serious(match rival.priority {
                Some(priority) => format!(
                    "{rival} of another program comes first, so that what it takes does not go through Segue; stop that \
                     program, or set priority below {priority} to put Segue first"
                ),
                None => format!(
                    "{rival}, set by another program, goes past Segue; stop that program, or let it set no such route \
                     (OpenVPN: pull-filter ignore redirect-gateway)"
                ),
            }),
            (false, false) => serious(format!(
                "{rival} of another program gets nothing, since priority puts Segue first; leave priority out to let that \
                 program go first"
            )),
        }
    };
    rivals.iter().filter(counts).map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use segue_ip::Interface;

    const VPN: u32 = 7;

    fn devices() -> Vec<Device> {
        let device = |index, name: &str, kind: Option<&str>| Device {
            interface: Interface { index, name: name.into(), ..Interface::default() },
            up: true,
            kind: kind.map(Into::into),
            ..Device::default()
        };
        vec![
            device(2, "eth0", None),
            device(VPN, "wg0", Some("wireguard")),
            device(9, "segue0", Some("tun")),
        ]
    }

    fn rule(priority: u32, table: u32) -> Rule {
        Rule { priority, table, ..Rule::default() }
    }

    fn route(to: &str, index: u32, table: u32) -> Route {
        Route::on(to.parse().unwrap(), index).table(table)
    }

    fn of(rules: &[Rule], routes: &[Route]) -> Vec<Rival> {
        among(&devices(), rules, routes)
    }

    #[test]
    fn a_rival_is_a_rule_for_all_unmarked_packets_whose_table_leads_into_another_tunnel() {
        let full = [route("0.0.0.0/0", VPN, 51_820)];
        let wg = Rule { fwmark: Some(51_820), invert: true, ..rule(32_765, 51_820) };
        assert_eq!(of(std::slice::from_ref(&wg), &full).len(), 1);
        assert_eq!(of(&[rule(5_270, 51_820)], &full).len(), 1);
        for other in [
            Rule { invert: false, ..wg.clone() },
            Rule { v6: true, ..wg.clone() },
            Rule { then: Then::Unreachable, ..wg.clone() },
            Rule { protocol: PROTOCOL, ..wg.clone() },
            Rule { table: MAIN_TABLE, ..wg.clone() },
            Rule { table: 0x5e60, ..wg },
        ] {
            assert_eq!(of(std::slice::from_ref(&other), &full), [], "{other:?}");
        }
        // An ordinary uplink in a separate table, and one of our tunnels.
        for index in [2, 9] {
            assert_eq!(of(&[rule(5_270, 51_820)], &[route("0.0.0.0/0", index, 51_820)]), []);
        }
    }

    #[test]
    fn a_rule_for_some_packets_concerns_a_host_that_fails_closed_behind_it() {
        let ordinary = [route("0.0.0.0/0", 2, 100)];
        let some = Some("10.0.0.1/32".parse().unwrap());
        let place = Place { main: 5_210, tunnel: 5_211 };
        for (selective, shown) in [
            (
                Rule { from: some, ..rule(100, 100) },
                "routing rule 100 (from 10.0.0.1/32, table 100: ",
            ),
            (Rule { to: some, ..rule(100, 100) }, "to 10.0.0.1/32"),
            (Rule { oif: Some("eth0".into()), ..rule(100, 100) }, "oif eth0"),
            (Rule { iif: Some("br0".into()), ..rule(100, 100) }, "iif br0"),
            (Rule { from: some, invert: true, ..rule(100, 100) }, "(not from 10.0.0.1/32, "),
            (Rule { narrower: true, ..rule(100, 100) }, "some ports, protocols or users"),
        ] {
            let rivals = of(std::slice::from_ref(&selective), &ordinary);
            assert_eq!(Place::of(Number::of("segue0"), None, false, &rivals).main, 5_280);
            assert_eq!(conflicts(&rivals, place, false), []);
            let closed = conflicts(&rivals, place, true);
            assert!(closed.len() == 1 && closed[0].is_serious, "{closed:?}");
            assert!(closed[0].text.contains(shown), "{closed:?}");
            let behind = Rule { priority: 20_000, ..selective };
            assert_eq!(conflicts(&of(&[behind], &ordinary), place, true), []);
        }
    }

    #[test]
    fn halves_are_everything_and_single_networks_are_not() {
        for (routes, everything) in [
            (&["0.0.0.0/0"][..], true),
            (&["0.0.0.0/1", "128.0.0.0/1"], true),
            (&["128.0.0.0/1"], false),
            (&["100.64.0.0/10", "10.0.0.0/8"], false),
        ] {
            let routes: Vec<Route> = routes.iter().map(|to| route(to, VPN, 52)).collect();
            assert_eq!(of(&[rule(5_270, 52)], &routes)[0].is_everything, everything);
        }
        let main = |to: &[&str]| {
            let routes: Vec<Route> = to.iter().map(|to| route(to, VPN, MAIN_TABLE)).collect();
            of(&[], &routes).iter().map(|rival| rival.is_everything).collect::<Vec<_>>()
        };
        assert_eq!(main(&["0.0.0.0/1", "128.0.0.0/1"]), [true]);
        assert_eq!(main(&["::/1", "8000::/1"]), [true]);
        assert_eq!(main(&["2000::/3"]), [true]);
        assert_eq!(main(&["2000::/4", "3000::/4"]), [true]);
        assert_eq!(main(&["0.0.0.0/0", "10.0.0.0/8", "2001:db8::/32"]), [false; 0]);
    }

    #[test]
    fn rules_come_behind_rivals_unless_the_operator_says_where_or_the_host_fails_closed() {
        let number = Number::of("segue0");
        let full = [route("0.0.0.0/0", VPN, 51_820)];
        let behind = |priority| {
            let place = Place::of(number, None, false, &of(&[rule(priority, 51_820)], &full));
            (place.main, place.tunnel)
        };
        assert_eq!(behind(5_270), (5_280, 5_281));
        assert_eq!(behind(30_000), (30_001, 30_002));
        assert_eq!(behind(32_764), (32_765, 32_765));
        assert_eq!(behind(32_765), (32_765, 32_765));
        let rivals = of(&[rule(30_000, 51_820)], &full);
        assert_eq!(Place::of(number, Some(100), false, &rivals).main, 100);
        assert_eq!(Place::of(number, None, true, &rivals).main, 5_210);
        // The text of each conflict.
        let serious = |place: u32, closed: bool| {
            let place = Place { main: place, tunnel: place + 1 };
            conflicts(&rivals, place, closed).iter().map(|c| c.text.clone()).collect::<String>()
        };
        assert!(serious(30_001, false).contains("comes first, so that what it takes"));
        assert!(serious(100, false).contains("priority puts Segue first"));
        assert!(serious(5_210, true).contains("fail_closed comes first"));
        assert!(serious(30_001, true).contains("comes before fail_closed"));
    }
}
