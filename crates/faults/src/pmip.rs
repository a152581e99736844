//! Proxy Mobile IPv6 under faults: gateways on the hosts of the stage, an anchor in the core. Mobile nodes are
//! not simulated as nodes: orders set the gateway at which each of their interfaces is.
//!
//! Invariants: no prefix belongs to two nodes, at the anchor or at gateways (`unique`). Each binding has a tunnel
//! to its gateway (`tunnel`). No flow goes to a binding that cannot carry it (`flow`), and the first packet of
//! each flow is forwarded or dropped in time (`answered`). A flow that was ordered to an interface goes there
//! whenever the interface can carry it (`ordered`). If flows are placed by quality, none stays at an unreachable
//! gateway while its host has another one (`reached`). No gateway serves an interface whose registration has
//! ended (`lapsed`) or that the anchor has moved elsewhere, and a former gateway cannot end the new binding
//! (`former`). A restart restores everything that existed before (`restored`). At the end, anchor and gateways
//! agree on where each interface is, and on its prefixes, which are the ones it had before (`agree`).

mod config;
mod domain;
mod picture;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Rng, Time};

use self::config::{INTERFACES, NODES};
use self::domain::Domain;
use crate::fault::{Entry, HostShape, PathRef, PathShape};
use crate::{Protocol, Schedule, Staged, Words, World};

/// An anchor and its gateways as a protocol, without (`pmip`) or with RADIUS servers (`aaa`). Its orders are: `attach GATEWAY NODE INTERFACE`, where the former
/// gateway notices the departure; `roam …`, where it does not; `detach GATEWAY NODE INTERFACE`;
/// `flow GATEWAY NODE PORT`, a flow to the node; and `place GATEWAY NODE PORT`, which orders the flow to the
/// node's first (even port) or second binding (odd port). With servers also `refuse`, `accept` and `revoke GATEWAY NODE
/// 0`, and `connect 0 0 0` and `leave 0 0 0` of a program that decides about flows.
pub struct Pmip {
    /// RADIUS servers identify and authorize the hosts.
    pub servers: bool,
}

fn order(rng: &mut Rng, gateway: usize) -> String {
    let (node, interface) = (rng.below(NODES.into()), rng.below(INTERFACES.into()));
    match rng.below(11) {
        0..4 => format!("attach {gateway} {node} {interface}"),
        4..6 => format!("roam {gateway} {node} {interface}"),
        6..8 => format!("detach {gateway} {node} {interface}"),
        8..10 => format!("flow {gateway} {node} {}", 1 + rng.below(6)),
        _ => format!("place {gateway} {node} {}", 1 + rng.below(6)),
    }
}

/// An order to servers, or of an operator to the anchor.
fn order_about(rng: &mut Rng) -> String {
    let all = ["refuse", "accept", "accept", "revoke", "revoke", "connect", "connect", "leave"];
    let verb = all[rng.below(all.len() as u64) as usize];
    format!("{verb} 0 {} 0", rng.below(NODES.into()))
}

impl Protocol for Pmip {
    fn name(&self) -> &'static str {
        if self.servers { "aaa" } else { "pmip" }
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["lma"]
    }

    fn moves(&self) -> bool {
        false
    }

    /// Two to four gateways, some over IPv4 behind NATs. In one run of five flow mobility is off; in the others
    /// flows are placed statically (two of five), randomly or by quality. In half of the runs tunnels use GRE.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let gateway = |rng: &mut Rng| HostShape {
            settings: String::new(),
            paths: Vec::from([PathShape::draw(rng)]),
        };
        let flows = ["static", "static", "random", "off", "quality"][rng.below(5) as usize];
        let handoff = ["new", "new", "unknown"][rng.below(3) as usize];
        let tunnels = ["ip", "gre"][usize::from(rng.clone().chance(0.5))];
        let settings = [("flows", flows), ("handoff", handoff), ("tunnels", tunnels)];
        let mut settings = settings.map(|(name, value)| format!("{name} {value}")).to_vec();
        if self.servers {
            let at = ["gateways", "all"][usize::from(rng.clone().chance(0.6))];
            settings.push(format!("radius {at}"));
        }
        (settings, (0..2 + rng.below(3)).map(|_| gateway(rng)).collect())
    }

    fn draw_order(&self, rng: &mut Rng, at: PathRef) -> Option<String> {
        Some(order(rng, at.host))
    }

    /// Interfaces come, move and go all the time; in one run of five there is a storm of these events.
    fn draw_more(&self, schedule: &mut Schedule) {
        let mut rng = Rng::new(schedule.seed ^ 0x726f_616d);
        let (storm, gateways) = (rng.chance(0.2), schedule.hosts.len() as u64);
        let count = if storm { 150 } else { 15 + rng.below(40) };
        for _ in 0..count {
            let at_ms = rng.below(schedule.quiet_ms);
            let gateway = rng.below(gateways) as usize;
            schedule.entries.push(Entry::own(at_ms, order(&mut rng, gateway)));
        }
        for _ in 0..if self.servers { 4 + rng.below(8) } else { 0 } {
            let at_ms = rng.below(schedule.quiet_ms);
            schedule.entries.push(Entry::own(at_ms, order_about(&mut rng)));
        }
    }

    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        match words.next("the setting")? {
            "flows" => {
                let all = ["static", "random", "off", "quality"].map(|word| (word, ()));
                words.one_of("flows", &all)
            }
            "handoff" => words.one_of("the handoff", &[("new", ()), ("unknown", ())]),
            "tunnels" => words.one_of("the tunnels", &[("ip", ()), ("gre", ())]),
            "radius" => words.one_of("the clients", &[("gateways", ()), ("all", ())]),
            other => {
                let known = "flows, handoff, tunnels, radius, host, at, quiet";
                Err(format!("\"{other}\" is none of {known}"))
            }
        }
    }

    fn check_order(&self, words: &mut Words<'_>, hosts: &[HostShape]) -> Result<(), String> {
        let verb = words.next("the order")?;
        const KNOWN: [&str; 10] = [
            "attach", "roam", "detach", "flow", "place", "refuse", "accept", "revoke", "connect",
            "leave",
        ];
        if !KNOWN.contains(&verb) {
            return Err(format!("\"{verb}\" is none of {}", KNOWN.join(", ")));
        }
        words.host(hosts)?;
        for what in ["the node", "the interface"] {
            let text = words.next(what)?;
            text.parse::<u8>().map_err(|_| format!("{what}: \"{text}\" is no number"))?;
        }
        Ok(())
    }

    fn check(&self, schedule: &Schedule) -> Result<(), String> {
        match schedule.hosts.iter().all(|host| host.paths.len() == 1) {
            true => Ok(()),
            false => Err("a gateway has one path".into()),
        }
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        Box::new(Staged(Domain::new(schedule, start)))
    }
}
