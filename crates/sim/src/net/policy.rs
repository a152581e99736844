//! Additional routing tables and the rules that select among them, as in a kernel (`ip rule`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use segue_ip::{MAIN_TABLE, Rule, Then};

use super::routes::{Hop, Routes};
use crate::packet::Packet;

/// Priority of the kernel's rule for the main table. Later rules apply only if the main table has no route.
const MAIN: u32 = 32_766;

/// Rules and additional tables of a node.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Ordered by priority; rules of equal priority keep their order of insertion.
    rules: Vec<Rule>,
    tables: BTreeMap<u32, Routes>,
}

impl Policy {
    /// Adds a rule unless it exists.
    pub fn add(&mut self, rule: &Rule) {
        if !self.rules.contains(rule) {
            let place = self.rules.partition_point(|known| known.priority <= rule.priority);
            self.rules.insert(place, rule.clone());
        }
    }

    /// Removes a rule.
    pub fn remove(&mut self, rule: &Rule) {
        self.rules.retain(|known| known != rule);
    }

    /// A table; created empty if it does not exist.
    pub fn table(&mut self, number: u32) -> &mut Routes {
        self.tables.entry(number).or_default()
    }

    /// Routing decision for a packet that came over the interface with this name: `lo` for packets from the node
    /// itself, `None` for packets out of a tunnel.
    #[must_use]
    #[inline]
    pub fn look_up(&self, main: &Routes, by: Option<&str>, packet: &Packet) -> Option<Hop> {
        if self.rules.is_empty() { main.look_up(packet) } else { self.apply(main, by, packet) }
    }

    fn apply(&self, main: &Routes, by: Option<&str>, packet: &Packet) -> Option<Hop> {
        let mut from = 0;
        let mut is_main_due = true;
        for rule in &self.rules {
            if is_main_due && rule.priority >= MAIN {
                is_main_due = false;
                if let Some(hop) = main.look_up(packet).filter(|_| from <= MAIN) {
                    return Some(hop);
                }
            }
            if rule.priority < from || !fits(rule, by, packet) {
                continue;
            }
            let table = match rule.then {
                Then::Lookup if rule.table == MAIN_TABLE => Some(main),
                Then::Lookup => self.tables.get(&rule.table),
                Then::Goto(priority) => {
                    from = priority;
                    None
                }
                Then::Nothing => None,
                Then::Unreachable | Then::Prohibit => return Some(Hop::Reject),
            };
            if let Some(hop) = table.and_then(|table| table.look_up(packet)) {
                return Some(hop);
            }
        }
        main.look_up(packet).filter(|_| is_main_due && from <= MAIN)
    }
}

/// Returns true if a rule matches a packet. Packets carry no mark, and senders are not bound to interfaces.
fn fits(rule: &Rule, by: Option<&str>, packet: &Packet) -> bool {
    let selected = rule.fwmark.is_none()
        && rule.oif.is_none()
        && rule.from.is_none_or(|prefix| prefix.contains(packet.src))
        && rule.to.is_none_or(|prefix| prefix.contains(packet.dst))
        && rule.iif.as_deref().is_none_or(|name| by == Some(name));
    rule.v6 == packet.dst.is_ipv6() && selected != rule.invert
}
