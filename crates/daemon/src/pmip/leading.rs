//! How a gateway leads its hosts' packets into the relay, and packets out of the relay to hosts only: two routing
//! tables and the rules to them, numbered after its device.

use std::collections::BTreeSet;

use anyhow::Context;
use segue_ip::{Forward, Forwarding, Prefix, Route, Rule};
use segue_linux::route::{rules, unreachables};
use segue_linux::{Kernel, LinuxError};
use tracing::warn;

use crate::kept::Kept;
use crate::number::Number;
use crate::routing::{self, LAST_METRIC};

/// The first routing table of the first gateway on a machine. Each gateway has two tables, numbered after its device;
/// the first leads packets from accesses into the relay.
const TABLES: u32 = 0x5f00;
/// Priority of the rules to these tables, before the rules that pass or prohibit other forwarded packets.
const RULES: u32 = 5_190;

/// The tables of a gateway: from hosts, and to hosts.
pub(super) fn tables(number: Number) -> [u32; 2] {
    let first = TABLES + 2 * number.get();
    [first, first + 1]
}

/// Sets the rules and routes of a gateway with this device and these accesses. Returns the route into the relay.
///
/// # Errors
/// The kernel refuses a rule or a route.
pub(crate) fn lead<'a>(
    accesses: impl Iterator<Item = &'a str>,
    (device, index): (&str, u32),
    kept: &mut Kept,
) -> anyhow::Result<Route> {
    let [from, to] = tables(Number::of(device));
    let on = Route::on(Prefix::default_of(true), index).table(from);
    let routes = [on].into_iter().chain([from, to].map(last));
    let rule = |iif: &str, table| Rule {
        v6: true,
        priority: RULES,
        table,
        iif: Some(iif.to_owned()),
        ..Rule::default()
    };
    let rules = accesses.map(|access| rule(access, from)).chain([rule(device, to)]);
    for part in routes.map(Forward::Route).chain(rules.map(Forward::Rule)) {
        kept.put(part).context("cannot lead hosts' packets into the relay")?;
    }
    Ok(on)
}

fn last(table: u32) -> Route {
    Route::unreachable(Prefix::default_of(true)).table(table).metric(LAST_METRIC)
}

/// The numbers of gateways that have rules or routes here, running or not.
pub fn numbers() -> Vec<Number> {
    let all = Left::all();
    Number::all().filter(|number| all.of(*number) != Left::default()).collect()
}

/// The number of rules that a gateway has set.
pub fn count_rules(number: Number) -> usize {
    Left::all().of(number).rules.len()
}

/// The accesses of a gateway, according to its rules.
pub fn accesses(number: Number) -> Vec<String> {
    Left::all().of(number).rules.into_iter().filter_map(|rule| rule.iif).collect()
}

/// The accesses of all gateways that run here or have left rules, even if the interfaces do not exist.
///
/// # Errors
/// The kernel does not list rules.
pub fn all_accesses() -> Result<BTreeSet<String>, LinuxError> {
    // The other table of each gateway is for packets out of its relay.
    let leads = |rule: &Rule| rule.priority == RULES && rule.table % 2 == TABLES % 2;
    Ok(rules()?.into_iter().filter(leads).filter_map(|rule| rule.iif).collect())
}

/// Removes the rules and routes that a gateway has left; returns the numbers of both.
pub fn remove(number: Number) -> (usize, usize) {
    let Left { rules, routes } = Left::all().of(number);
    let opened = |route: &&Route| {
        let taken = Kernel.take_back(&Forward::Route(**route));
        taken.inspect_err(|error| warn!("{error}")).is_ok()
    };
    (routing::remove(rules.iter()), routes.iter().filter(opened).count())
}

/// Rules and routes of gateways.
#[derive(Default, PartialEq)]
struct Left {
    rules: Vec<Rule>,
    routes: Vec<Route>,
}

impl Left {
    /// All that may belong to a gateway.
    fn all() -> Left {
        let (mut rules, mut routes) =
            (rules().unwrap_or_default(), unreachables().unwrap_or_default());
        rules.retain(|rule| rule.priority == RULES);
        routes.retain(|route| route.metric == Some(LAST_METRIC));
        Left { rules, routes }
    }

    /// The rules and routes of one gateway.
    fn of(&self, number: Number) -> Left {
        let tables = tables(number);
        let ours = self.rules.iter().filter(|rule| tables.contains(&rule.table));
        let has = |table: &u32| self.routes.iter().any(|route| route.table == *table);
        Left {
            rules: ours.cloned().collect(),
            routes: tables.into_iter().filter(has).map(last).collect(),
        }
    }
}
