//! Restricts an anchor's machine to forwarding packets that leave or enter the tunnel.
//!
//! Linux forwards for everyone or for no one, so switching it on for the hosts of a tunnel would make the machine a
//! router for anyone on an access link. If the machine forwarded nothing before, rules ahead of all others pass
//! forwarded packets to a pool or from the tunnel device, and prohibit the rest. Packets that the machine itself sends
//! are unaffected. If any interface already forwards when the anchor starts, that is taken as the operator's wish, and
//! nothing is restricted.
//!
//! The rules are added before forwarding is switched on and removed after it is switched off. A crash leaves both; the
//! next start recognises by the rules that the forwarding is ours.

use anyhow::Context;
use segue_clock::Time;
use segue_ip::{Forward, Prefix, Route, Rule, Then};
use segue_linux::link;
use segue_linux::route::{delete_rule, rules};
use segue_text::errors::Told;
use tracing::{info, warn};

use crate::kept::Kept;
use crate::seldom::Seldom;

/// Routing table for packets into the tunnel.
const TABLE: u32 = 0x5e61;
/// The kernel's table of the machine's own addresses.
const LOCAL_TABLE: u32 = 255;
/// Priority of the rule for packets to this machine, the first of five priorities.
const LOCAL: u32 = 5_200;
/// Priority of the rule for packets into the tunnel.
const INTO: u32 = 5_201;
/// Priority of the rules for packets out of the tunnel, one for each tunnel device.
const OUT_OF: u32 = 5_202;
/// Priority of the rule for all other forwarded packets.
const OTHERS: u32 = 5_203;
/// Priority of a no-op rule: the lookup of packets out of the tunnel continues here.
const ON: u32 = 5_204;

/// Forwarding that the anchor switched on. Dropping this switches it off.
pub(crate) struct Forwarding {
    device: String,
    /// The families, by whether they are IPv6.
    families: Vec<bool>,
    /// Rate-limits the log lines about forwarding that others have switched off.
    told: Seldom,
}

impl Forwarding {
    /// Allows forwarding to these pools and from the device, for the pools' address families. Another anchor may share
    /// rules and routes, so they last until the last anchor ends.
    pub(crate) fn start(
        kept: &mut Kept,
        device: &str,
        pools: &[Prefix],
    ) -> anyhow::Result<Forwarding> {
        let families = [false, true].into_iter();
        let families = families.filter(|v6| pools.iter().any(|pool| pool.addr.is_ipv6() == *v6));
        Forwarding::of(kept, device, families, pools)
    }

    /// The same for these families (`true` is IPv6), even without a pool.
    pub(crate) fn of(
        kept: &mut Kept,
        device: &str,
        families: impl IntoIterator<Item = bool>,
        pools: &[Prefix],
    ) -> anyhow::Result<Forwarding> {
        let (index, device) = (link::index_of(device)?, device.to_owned());
        let mut forwarding = Forwarding { device, families: Vec::new(), told: Seldom::default() };
        for v6 in families {
            let pools = pools.iter().filter(|pool| pool.addr.is_ipv6() == v6);
            let present = rules().context("the routing rules cannot be read")?;
            if !present.contains(&others(v6)) && is_on(v6) {
                let family = if v6 { "IPv6" } else { "IPv4" };
                info!(
                    "this machine forwarded {family} before this start: whom it forwards for stays as it was"
                );
            } else {
                forwarding.families.push(v6);
                for pool in pools {
                    let route = Forward::Route(Route::on(*pool, index).table(TABLE));
                    let put = kept.put_lasting(route);
                    put.with_context(|| format!("cannot route {pool} into the tunnel"))?;
                }
                // The rules that pass packets come before the one that prohibits them.
                let device = &forwarding.device;
                for rule in [local(v6), into(v6), on(v6), out_of(device, v6), others(v6)] {
                    let put = kept.put_lasting(Forward::Rule(rule));
                    put.context("cannot restrict forwarding to the tunnel")?;
                }
            }
            switch(v6, true).context("cannot switch forwarding on")?;
        }
        Ok(forwarding)
    }

    /// The table that forwarded packets of a family use on their way into the tunnel; `None` if they use the tables of
    /// this machine's own packets.
    pub(crate) fn table(&self, v6: bool) -> Option<u32> {
        self.families.contains(&v6).then_some(TABLE)
    }

    /// Switches forwarding on again if others have switched it off, and logs it.
    pub(crate) fn look_after(&mut self, now: Time) {
        for v6 in self.families.iter().copied().filter(|v6| is_off(*v6)) {
            let line = match switch(v6, true).context("cannot switch forwarding on") {
                Ok(()) => {
                    let family = if v6 { "IPv6" } else { "IPv4" };
                    format!("somebody switched forwarding of {family} off: switched on again")
                }
                Err(error) => Told(&error).to_string(),
            };
            if self.told.is_due(now, &line) {
                warn!("{line}");
            }
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for v6 in &self.families {
            remove(&out_of(&self.device, *v6));
            let left = rules().unwrap_or_default();
            // Shared with another anchor.
            if !left.iter().any(|rule| rule.v6 == *v6 && is_out_of(rule)) {
                end(*v6, &left);
            }
        }
    }
}

/// Removes the rules of anchors that are gone and switches off the forwarding that they had switched on; returns the
/// number of rules.
pub fn clean() -> usize {
    let all = rules().unwrap_or_default();
    [false, true].into_iter().map(|v6| end(v6, &all)).sum()
}

/// Switches forwarding off, if it is ours, and then removes the rules.
fn end(v6: bool, all: &[Rule]) -> usize {
    if all.contains(&others(v6))
        && let Err(error) = switch(v6, false)
    {
        warn!("{error}; others may forward packets through this machine");
    }
    all.iter().filter(|rule| is_ours(rule, v6)).filter(|rule| remove(rule)).count()
}

/// Returns whether a rule of this family is one that anchors set.
fn is_ours(rule: &Rule, v6: bool) -> bool {
    let fixed = [local(v6), into(v6), others(v6), on(v6)];
    rule.v6 == v6 && (fixed.contains(rule) || is_out_of(rule))
}

/// The number of rules set by anchors.
pub fn count_rules() -> usize {
    let all = rules().unwrap_or_default();
    all.iter().filter(|rule| is_ours(rule, rule.v6)).count()
}

fn remove(rule: &Rule) -> bool {
    delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok()
}

/// Returns whether packets of a family are forwarded from any interface.
fn is_on(v6: bool) -> bool {
    let family = if v6 { "ipv6" } else { "ipv4" };
    let interfaces = std::fs::read_dir(format!("/proc/sys/net/{family}/conf"));
    interfaces.into_iter().flatten().flatten().any(|interface| {
        let state = std::fs::read_to_string(interface.path().join("forwarding"));
        state.is_ok_and(|state| state.trim() != "0")
    })
}

/// The sysctl key for all interfaces of a family.
fn key(v6: bool) -> &'static str {
    if v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" }
}

fn switch(v6: bool, on: bool) -> segue_linux::error::Result<()> {
    link::sysctl(key(v6), if on { "1" } else { "0" })
}

/// Returns whether forwarding is switched off for all interfaces.
fn is_off(v6: bool) -> bool {
    let path = format!("/proc/sys/{}", key(v6).replace('.', "/"));
    std::fs::read_to_string(path).is_ok_and(|state| state.trim() == "0")
}

/// Packets to this machine come first: its administrator may have moved the kernel's own rule for such packets behind
/// ours.
fn local(v6: bool) -> Rule {
    forwarded(v6, LOCAL, Then::Lookup, LOCAL_TABLE)
}

/// Forwarded packets to a pool go into the tunnel.
fn into(v6: bool) -> Rule {
    forwarded(v6, INTO, Then::Lookup, TABLE)
}

/// Packets out of the tunnel continue their lookup.
fn out_of(device: &str, v6: bool) -> Rule {
    let (iif, then) = (Some(device.to_owned()), Then::Goto(ON));
    Rule { v6, priority: OUT_OF, iif, then, ..Rule::default() }
}

fn is_out_of(rule: &Rule) -> bool {
    rule.priority == OUT_OF && rule.then == Then::Goto(ON)
}

/// Prohibits all other forwarded packets.
fn others(v6: bool) -> Rule {
    forwarded(v6, OTHERS, Then::Prohibit, 0)
}

fn on(v6: bool) -> Rule {
    Rule { v6, priority: ON, then: Then::Nothing, ..Rule::default() }
}

/// A rule for packets that this machine did not send itself.
fn forwarded(v6: bool, priority: u32, then: Then, table: u32) -> Rule {
    let iif = Some("lo".to_owned());
    Rule { v6, priority, table, then, iif, invert: true, ..Rule::default() }
}
