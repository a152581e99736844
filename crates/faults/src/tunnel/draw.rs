//! Drawn scenarios for tunnels, apart from single faults: orders that rarely coincide with their subject, link
//! sizes, and scenes that require a sequence of faults.

use alloc::vec::Vec;

use segue_clock::Rng;
use segue_sim::net::{LinkFault, PacketFilter};

use super::layout::{APP_PORT, POOL_HOSTS, REST, SILENT, shape_of};
use super::shape::{HostSettings, Moved, Order, Settings};
use crate::Schedule;
use crate::fault::{Entry, Fault, Node, PathRef, Way};
use crate::schedule::CALM_MS;

/// MTUs of narrowed links, or reported ones: those of many kinds of tunnels, and one below the IPv6 minimum.
const MTUS: [u16; 8] = [1_280, 1_330, 1_358, 1_400, 1_420, 1_492, 1_500, 1_000];

/// Starts the first flow of each host, and adds scenarios.
pub(super) fn more(schedule: &mut Schedule) {
    let seed = schedule.seed;
    let flows = (0..schedule.hosts.len()).map(|host| Entry::own(1_000, Order::Flow(host, 0, true)));
    schedule.entries.extend(flows);
    pairs(&mut Rng::new(seed ^ 0x7061_6972), schedule);
    sizes(&mut Rng::new(seed ^ 0x7369_7a65), schedule);
    filters(&mut Rng::new(seed ^ 0x6669_6c74), schedule);
    let mut rng = Rng::new(seed ^ 0x7363_656e_6573);
    match rng.below(100) {
        0..14 => paths_die_in_turn(&mut rng, schedule),
        14..20 => addresses_come_round(&mut rng, schedule),
        20..30 => stalls(&mut rng, schedule),
        30..44 => a_flow_is_filtered(&mut rng, schedule),
        _ => {}
    }
}

/// Orders that rarely coincide with their subject: for half of the broken connections a keepalive is switched
/// while there is no connection, and for half of the worn hosts a flow is pinned to an interface that is then
/// renamed.
fn pairs(rng: &mut Rng, schedule: &mut Schedule) {
    let Schedule { hosts, entries, quiet_ms, .. } = schedule;
    let mut pairs = Vec::new();
    for entry in entries.iter() {
        let breaks = matches!(&entry.fault, Fault::Own(order) if order.starts_with("break-signal"));
        let Some(host) = entry.fault.host().filter(|_| breaks && rng.chance(0.5)) else { continue };
        let path = rng.below(hosts[host].paths.len() as u64) as usize;
        let order = Order::Keepalive(PathRef { host, path }, rng.chance(0.5));
        pairs.push(Entry::own((entry.at_ms + rng.below(20)).min(*quiet_ms - 1), order));
    }
    for (host, shape) in hosts.iter().enumerate() {
        if HostSettings::of(shape).worn && rng.chance(0.5) {
            let at = PathRef { host, path: rng.below(shape.paths.len() as u64) as usize };
            let half = (*quiet_ms - 1_000) / 2;
            let at_ms = 1_000 + rng.below(half);
            pairs.push(Entry::own(at_ms, Order::Handover(host, Moved::Flow(0), Some(at.path))));
            let at_ms = at_ms + rng.below(half);
            pairs.push(Entry { at_ms, fault: Fault::Rename(at) });
        }
    }
    entries.extend(pairs);
}

/// In two of five runs, links change their MTU (or routers report a change) one to six times. The first path of a
/// host always lets a QUIC handshake pass.
fn sizes(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.chance(0.4) {
        return;
    }
    for _ in 0..1 + rng.below(6) {
        let (at, way) = (PathRef::draw(rng, &schedule.hosts), Way::draw(rng));
        let sizes = MTUS.len() as u64 - u64::from(at.path == 0);
        let mtu = MTUS[rng.below(sizes) as usize];
        let at_ms = 1_000 + rng.below(schedule.quiet_ms - 1_000);
        schedule.entries.push(match rng.chance(0.8) {
            true => Entry { at_ms, fault: Fault::Link(at, way, LinkFault::Narrow(mtu)) },
            false => Entry::own(at_ms, Order::TooBig(at, way, mtu)),
        });
    }
}

/// A filter for one flow: by its port, or by its code point, which probes do not share.
fn filter(rng: &mut Rng) -> (usize, LinkFault) {
    let flow = rng.below(SILENT as u64) as usize;
    let filter = match rng.chance(0.5) {
        true => PacketFilter::Port(APP_PORT + flow as u16),
        false => PacketFilter::CodePoint(shape_of(flow).1),
    };
    (flow, LinkFault::Filter(filter))
}

/// In one of five runs, one to three links drop the packets of a flow.
fn filters(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.chance(0.2) {
        return;
    }
    for _ in 0..1 + rng.below(3) {
        let (at, way) = (PathRef::draw(rng, &schedule.hosts), Way::draw(rng));
        let at_ms = 1_000 + rng.below(schedule.quiet_ms - 1_000);
        schedule.entries.push(Entry { at_ms, fault: Fault::Link(at, way, filter(rng).1) });
    }
}

/// After a calm period, a path's link drops the packets of a flow in one direction. It is usually the fastest
/// path, which the flow probably uses. Detection follows use, since single flows are not monitored otherwise.
fn a_flow_is_filtered(rng: &mut Rng, schedule: &mut Schedule) {
    let hosts = schedule.hosts.iter().enumerate().filter(|(_, host)| host.paths.len() > 1);
    let hosts: Vec<usize> = hosts.map(|(host, _)| host).collect();
    if hosts.is_empty() {
        return;
    }
    let host = hosts[rng.below(hosts.len() as u64) as usize];
    schedule.settings = Settings { follows_use: true, ..Settings::of(schedule) }.lines();
    let paths = schedule.hosts[host].paths.iter().enumerate();
    let fastest = paths.min_by_key(|(_, path)| path.up_ms + path.down_ms).map(|(path, _)| path);
    let at = match fastest.filter(|_| rng.chance(0.8)) {
        Some(path) => PathRef { host, path },
        None => PathRef { host, path: rng.below(schedule.hosts[host].paths.len() as u64) as usize },
    };
    let at_ms = calm(schedule);
    let (flow, fault) = filter(rng);
    let way = if rng.chance(0.5) { Way::Up } else { Way::Down };
    schedule.entries.push(Entry::own(at_ms, Order::Flow(host, flow, true)));
    let at_ms = at_ms + 2_000 + rng.below(2_000);
    schedule.entries.push(Entry { at_ms, fault: Fault::Link(at, way, fault) });
    schedule.quiet_ms = at_ms + 12_000;
}

/// Stalls a node one to three times.
fn stalls(rng: &mut Rng, schedule: &mut Schedule) {
    for _ in 0..1 + rng.below(3) {
        let host = rng.below(schedule.hosts.len() as u64) as usize;
        let node = if rng.chance(0.6) { Node::Host(host) } else { Node::Fixed(0) };
        let at_ms = 1_000 + rng.below(schedule.quiet_ms - 1_000);
        let fault = Fault::Stall(node, 20 + rng.below(380) as u16);
        schedule.entries.push(Entry { at_ms, fault });
    }
}

/// After a calm period, all but the last path of a host die one after the other, usually from the fastest on and
/// in half of the cases only their downlinks, while one flow runs in both directions and another only downwards.
fn paths_die_in_turn(rng: &mut Rng, schedule: &mut Schedule) {
    let hosts = schedule.hosts.iter().enumerate().filter(|(_, host)| host.paths.len() > 1);
    let hosts: Vec<usize> = hosts.map(|(host, _)| host).collect();
    if hosts.is_empty() {
        return;
    }
    let host = hosts[rng.below(hosts.len() as u64) as usize];
    let paths = schedule.hosts[host].paths.clone();
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|path| paths[*path].up_ms + paths[*path].down_ms);
    if rng.chance(0.2) {
        order.reverse();
    }
    order.pop();
    let mut at_ms = calm(schedule);
    let way = if rng.chance(0.5) { Way::Down } else { Way::draw(rng) };
    let flows = [0, SILENT].map(|flow| Entry::own(at_ms, Order::Flow(host, flow, true)));
    schedule.entries.extend(flows);
    for path in order {
        at_ms += 1_500 + rng.below(4_500);
        let cut = Fault::Link(PathRef { host, path }, way, LinkFault::Cut);
        schedule.entries.push(Entry { at_ms, fault: cut });
    }
    schedule.quiet_ms = at_ms + 6_000;
}

/// After a calm period, hosts are enrolled again in turn until one has an address that first belonged to another;
/// then the anchor restarts, and another host gets an address.
fn addresses_come_round(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at_ms = calm(schedule);
    let hosts = schedule.hosts.len();
    let again = |at_ms: &mut u64, rng: &mut Rng, host| {
        let begins = Entry::own(*at_ms + 1 + rng.below(300), Order::Enrol(host));
        let both = [Entry::own(*at_ms, Order::Unenrol(host)), begins];
        *at_ms += REST.0 / 1_000_000 + 500 + rng.below(1_000);
        both
    };
    let mut last = 0;
    for host in (0..hosts).cycle().take(POOL_HOSTS - hosts + 1) {
        schedule.entries.extend(again(&mut at_ms, rng, host));
        last = host;
    }
    schedule.entries.push(Entry { at_ms, fault: Fault::Restart(Node::Fixed(0)) });
    at_ms += 2_000;
    schedule.entries.extend(again(&mut at_ms, rng, (last + 1) % hosts));
    schedule.quiet_ms = at_ms;
}

/// Mends everything at the end of the drawn faults. Returns the end of the calm period.
fn calm(schedule: &mut Schedule) -> u64 {
    let at_ms = schedule.quiet_ms;
    schedule.entries.push(Entry { at_ms, fault: Fault::MendAll });
    at_ms + CALM_MS
}
