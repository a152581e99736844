//! The anchor: registers hosts, gives them addresses and paths, and keeps each downlink on a live path.
//!
//! The datapath learns from the host's packets which path a flow's downlink uses. The anchor acts only when a direction
//! dies: it redirects a path whose downlink is dead to the host's best other path. The downlink of a path is considered
//! dead if
//!
//! - the host's latest report, on any path, says that it does not hear this one, or
//! - no request has arrived for K + ½ periods, and the host has not reported *since then* that it hears the path. In
//!   doubt the downlink moves: both paths deliver, so an unnecessary move costs nothing, and it moves back once the
//!   host reports the path as heard.

mod counts;
mod downlink;
mod host;
mod hosts;
mod path;
mod paths;
mod probes;
mod reinject;
mod scales;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Deadline, Machine, Time};
use segue_ip::{Input, Prefix};
use segue_mobility::{Leases, Secrets};
use segue_wire::FlowKey;
use segue_wire::signal::WaysOut;

pub use host::RegisteredHost;
pub use path::AnchorPath;

use crate::maps::DenseMap;
use crate::{AnchorConfig, AnchorInput, AnchorOutput, ConnId, Known, Order, Output, Ticket};
use segue_clock::planted::fault;

/// The anchor's machine. The module documentation states when a downlink counts as dead.
pub struct Anchor {
    config: AnchorConfig,
    secrets: Secrets,
    known: BTreeMap<String, Known>,
    /// Leased and withheld addresses of each pool, IPv4 first.
    leases: Vec<Leases<String>>,
    /// By owner number. Boxed, because a look-up passes several nodes of the map.
    hosts: BTreeMap<u32, Box<RegisteredHost>>,
    owner_of: BTreeMap<String, u32>,
    owner_of_address: BTreeMap<IpAddr, u32>,
    conns: BTreeMap<ConnId, String>,
    slots: DenseMap<AnchorPath>,
    /// Timers, each also stored with its path or host. An event changes only the timer of one path, so its cost does
    /// not depend on the number of paths.
    timers: BTreeSet<(Time, Timer)>,
    next_owner: u32,
    /// Slots below this one have been used.
    fresh_slot: u32,
    /// Released slots, the longest unused first, so that late packets for a slot's former path do not reach a new one.
    free_slots: VecDeque<u32>,
    scales: scales::Scales,
    /// The anchor's default routes, once known.
    ways_out: Option<WaysOut>,
    out: VecDeque<Output<AnchorOutput, Known>>,
}

/// Kinds of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The keepalive server of the path in this slot is due.
    Path(u32),
    /// The registration of this host expires.
    Expiry(u32),
    /// Packets that left for this host after it reported silence are sent again.
    Reinjection(u32),
}

impl Anchor {
    /// Creates an anchor without hosts. `seed` must be secret and unique to this start.
    #[must_use]
    pub fn new(config: AnchorConfig, seed: [u8; 32]) -> Anchor {
        let pools = [&config.pool_v4, &config.pool_v6].into_iter().flatten();
        let mut leases: Vec<Leases<String>> = pools.map(crate::Pool::leases).collect();
        for (address, until) in &config.resting {
            leases.iter_mut().for_each(|pool| pool.withhold(Prefix::host(*address), *until));
        }
        Anchor {
            config,
            secrets: Secrets::new(seed),
            known: BTreeMap::new(),
            leases,
            hosts: BTreeMap::new(),
            owner_of: BTreeMap::new(),
            owner_of_address: BTreeMap::new(),
            conns: BTreeMap::new(),
            slots: DenseMap::new(),
            timers: BTreeSet::new(),
            next_owner: 1,
            fresh_slot: 1,
            free_slots: VecDeque::new(),
            scales: scales::Scales::default(),
            ways_out: None,
            out: VecDeque::new(),
        }
    }

    /// The registered hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &RegisteredHost> {
        self.hosts.values().map(Box::as_ref)
    }

    /// The paths by slot.
    pub fn paths(&self) -> impl Iterator<Item = (u32, &AnchorPath)> {
        self.slots.iter()
    }

    /// The paths with a timer due at `now`. The driver should supply a reading of each before the tick.
    #[must_use]
    pub fn due(&self, now: Time) -> Vec<u32> {
        let path = |(_, timer): &(Time, Timer)| match timer {
            Timer::Path(slot) => Some(*slot),
            Timer::Expiry(_) | Timer::Reinjection(_) => None,
        };
        self.timers.iter().take_while(|(at, _)| *at <= now).filter_map(path).collect()
    }

    /// The path in a slot.
    #[must_use]
    pub fn path(&self, slot: u32) -> Option<&AnchorPath> {
        self.slots.get(&slot)
    }

    /// The name of the host that owns `owner`'s paths.
    #[must_use]
    pub fn host_name(&self, owner: u32) -> Option<&str> {
        self.hosts.get(&owner).map(|host| host.name.as_str())
    }

    /// A registered host's number in the datapath's tables.
    #[must_use]
    pub fn owner(&self, name: &str) -> Option<u32> {
        self.owner_of.get(name).copied()
    }

    fn on_miss(&mut self, key: FlowKey, ticket: Ticket) {
        let slot = self
            .owner_of_address
            .get(&key.dst)
            .and_then(|owner| self.hosts.get(owner))
            .and_then(|host| self.slot_for_new(host));
        let Some(slot) = slot else {
            self.out.push_back(Output::Order(Order::Discard(ticket)));
            return;
        };
        self.out.push_back(Output::Order(Order::Bind(key, slot)));
        self.out.push_back(Output::Order(Order::Inject(ticket)));
    }

    fn on_record(&mut self, known: Known) {
        for pool in &mut self.leases {
            for part in known.inner.iter().copied().map(Prefix::host) {
                // An address that was withheld may have been assigned to another host since: then the new owner keeps
                // it.
                if !fault(33) || pool.take(Time(0), &known.name, part, None).is_ok() {
                    pool.restore(known.name.clone(), part, None);
                }
            }
        }
        self.known.insert(known.name.clone(), known);
    }

    fn on_own(&mut self, now: Time, input: AnchorInput) {
        match input {
            AnchorInput::Connected { conn, host } => {
                self.conns.insert(conn, host);
            }
            AnchorInput::Signal { conn, message } => self.on_message(now, conn, message),
            AnchorInput::Disconnected { conn } => self.on_disconnected(now, conn),
            AnchorInput::End { host, why } => self.on_end(now, &host, why),
            AnchorInput::Probe(probe) => self.on_probe(now, &probe),
            AnchorInput::Reading(slot, reading) => self.on_reading(now, slot, *reading),
            AnchorInput::Counted(owner, counts) => self.on_counted(owner, &counts),
            AnchorInput::Uncut(slot) => self.on_uncut(now, slot),
            AnchorInput::TooBig(said) => self.on_too_big(now, said),
            AnchorInput::Miss { key, ticket } => self.on_miss(key, ticket),
            AnchorInput::WaysOut(ways_out) => self.on_ways_out(ways_out),
        }
    }
}

impl Machine for Anchor {
    type Input = Input<AnchorInput, Known>;
    type Output = Output<AnchorOutput, Known>;

    fn handle(&mut self, now: Time, input: Input<AnchorInput, Known>) {
        match input {
            Input::Record(known) => self.on_record(known),
            Input::Own(own) => self.on_own(now, own),
            // An anchor has no interfaces of its own to follow, and its driver owns the connections.
            Input::Interfaces(_) | Input::Link(_) | Input::Datagram(_) => {}
        }
    }

    fn tick(&mut self, now: Time) {
        let due: Vec<_> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, timer)| *timer).collect();
        for timer in due {
            match timer {
                Timer::Path(slot) => {
                    self.disarm(slot);
                    self.tick_path(now, slot);
                }
                Timer::Expiry(owner) => self.expire(now, owner),
                Timer::Reinjection(owner) => self.reinject_again(owner),
            }
        }
    }

    fn poll(&mut self) -> Option<Output<AnchorOutput, Known>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        self.timers.first().map(|(at, timer)| match timer {
            Timer::Path(_) => (*at, "a path's server is due"),
            Timer::Expiry(_) => (*at, "a host expires"),
            Timer::Reinjection(_) => (*at, "what left for a silent host follows"),
        })
    }
}
