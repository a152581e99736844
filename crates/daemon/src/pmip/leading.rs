//! How a gateway leads its hosts' packets into the relay, and what comes out of it to hosts alone: two routing tables and
//! rules to them, by the number of its device.

use anyhow::Context;
use segue_ip::{Forward, Forwarding, Prefix, Route, Rule};
use segue_linux::Kernel;
use segue_linux::route::{delete_rule, rules, unreachables};
use tracing::warn;

use crate::kept::Kept;
use crate::number::Number;

/// The first routing table of the first gateway on a machine; each has two, by the number of its device. In the first, what
/// comes over accesses goes into the relay.
const TABLES: u32 = 0x5f00;
/// Priority of the rules that lead there, before those that pass or prohibit what else is forwarded.
const RULES: u32 = 5_190;
/// The metric of routes that refuse what no other route takes, also after a crash.
const LAST: u32 = u32::MAX - 1;

/// The tables of a gateway: from hosts, and to hosts.
pub(super) fn tables(number: Number) -> [u32; 2] {
    let first = TABLES + 2 * number.get();
    [first, first + 1]
}

/// Sets the rules and routes of a gateway with this device and these accesses.
///
/// # Errors
/// The kernel refuses one.
pub(super) fn lead<'a>(
    accesses: impl Iterator<Item = &'a str>,
    (device, index): (&str, u32),
    kept: &mut Kept,
) -> anyhow::Result<()> {
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
    Ok(())
}

fn last(table: u32) -> Route {
    Route::unreachable(Prefix::default_of(true)).table(table).metric(LAST)
}

/// The numbers of gateways that have left rules or routes, running or not.
pub fn numbers() -> Vec<Number> {
    Number::all().filter(|number| of(*number) != Left::default()).collect()
}

/// The number of rules that a gateway has set.
pub fn count_rules(number: Number) -> usize {
    of(number).rules.len()
}

/// Removes what a gateway has left: returns how many rules and routes.
pub fn remove(number: Number) -> (usize, usize) {
    let Left { rules, routes } = of(number);
    let gone = |rule: &&Rule| delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok();
    let opened = |route: &&Route| {
        let taken = Kernel.take_back(&Forward::Route(**route));
        taken.inspect_err(|error| warn!("{error}")).is_ok()
    };
    (rules.iter().filter(gone).count(), routes.iter().filter(opened).count())
}

#[derive(Default, PartialEq)]
struct Left {
    rules: Vec<Rule>,
    routes: Vec<Route>,
}

fn of(number: Number) -> Left {
    let tables = tables(number);
    let (rules, routes) = (rules().unwrap_or_default(), unreachables().unwrap_or_default());
    let ours = |rule: &Rule| rule.priority == RULES && tables.contains(&rule.table);
    let has = |table| routes.iter().any(|one| one.table == table && one.metric == Some(LAST));
    Left {
        rules: rules.into_iter().filter(ours).collect(),
        routes: tables.into_iter().filter(|table| has(*table)).map(last).collect(),
    }
}
