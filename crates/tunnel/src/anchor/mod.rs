//! The anchor: registers hosts, gives them addresses and paths, and keeps each downlink on a path
//! that lives.
//!
//! Which path a flow's downlink uses is learned by the datapath from the host's packets. The anchor
//! itself acts only when a direction dies: a path whose downlink is dead is redirected to the
//! host's best other path. The downlink of a path counts as dead when
//!
//! - the host said last, over whatever path, that it does not hear this one, or
//! - no request has come for K + ½ periods, and the host has not said *since then* that it hears the
//!   path. In doubt the downlink moves: both paths deliver, so a needless move costs nothing, and it
//!   goes back when the host says that it hears.

mod downlink;
mod hosts;
mod paths;
mod probes;
mod reinject;
mod scales;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Deadline, Machine, Time};
use segue_keepalive::ServerInput;
use segue_wire::FlowKey;

pub use hosts::RegisteredHost;
pub use paths::AnchorPath;

use crate::secrets::Secrets;
use crate::table::Table;
use crate::{AnchorConfig, AnchorInput, AnchorOutput, ConnId, Known, Ticket};

/// The anchor's machine. See the module's text.
pub struct Anchor {
    config: AnchorConfig,
    secrets: Secrets,
    known: BTreeMap<String, Known>,
    /// Addresses that are some host's, or rest.
    taken: BTreeSet<IpAddr>,
    /// Until when which address rests; each is in a pool, which bounds them.
    resting: BTreeSet<(Time, IpAddr)>,
    /// By number. Boxes, since a look at one passes several nodes of the map.
    hosts: BTreeMap<u32, Box<RegisteredHost>>,
    owner_of: BTreeMap<String, u32>,
    owner_of_address: BTreeMap<IpAddr, u32>,
    conns: BTreeMap<ConnId, String>,
    slots: Table<AnchorPath>,
    /// What is due when, as the paths and hosts have it too: each event changes the timer of one path, so that
    /// it costs the same however many paths there are.
    timers: BTreeSet<(Time, Timer)>,
    next_owner: u32,
    /// Slots below this have been in use.
    fresh_slot: u32,
    /// Slots that were given up, the longest unused first: late packets of their former paths shall
    /// find nobody.
    free_slots: VecDeque<u32>,
    scales: scales::Scales,
    /// Where the search for a free address begins, in each pool.
    free_from: [u128; 2],
    out: VecDeque<AnchorOutput>,
}

/// What can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The server of the path in this slot.
    Path(u32),
    /// This host's registration ends.
    Expiry(u32),
    /// What left for this host since it was told of silence follows.
    Reinjection(u32),
}

impl Anchor {
    /// An anchor that knows what `config.known` says. `seed` is secret and unique to this start.
    #[must_use]
    pub fn new(config: AnchorConfig, seed: [u8; 32]) -> Anchor {
        let known: BTreeMap<String, Known> =
            config.known.iter().map(|known| (known.name.clone(), known.clone())).collect();
        let given: BTreeSet<IpAddr> =
            known.values().flat_map(|known| known.inner.iter().copied()).collect();
        // One that rested before and was given away since is its new owner's, and the last rest counts.
        let mut rests: BTreeMap<IpAddr, Time> = BTreeMap::new();
        for (address, until) in
            config.resting.iter().filter(|(address, _)| !given.contains(address))
        {
            let latest = rests.entry(*address).or_insert(*until);
            *latest = (*latest).max(*until);
        }
        let resting = rests.iter().map(|(address, until)| (*until, *address)).collect();
        let taken = given.into_iter().chain(rests.into_keys()).collect();
        Anchor {
            config,
            secrets: Secrets::new(seed),
            known,
            taken,
            resting,
            hosts: BTreeMap::new(),
            owner_of: BTreeMap::new(),
            owner_of_address: BTreeMap::new(),
            conns: BTreeMap::new(),
            slots: Table::new(),
            timers: BTreeSet::new(),
            next_owner: 1,
            fresh_slot: 1,
            free_slots: VecDeque::new(),
            scales: scales::Scales::default(),
            free_from: [0; 2],
            out: VecDeque::new(),
        }
    }

    /// The hosts that are registered.
    pub fn hosts(&self) -> impl Iterator<Item = &RegisteredHost> {
        self.hosts.values().map(Box::as_ref)
    }

    /// The paths by slot.
    pub fn paths(&self) -> impl Iterator<Item = (u32, &AnchorPath)> {
        self.slots.iter()
    }

    /// The paths on which something is due at `now`, of which a reading should be given first.
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

    /// A registered host's number in tables of the datapath.
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
            self.out.push_back(AnchorOutput::Discard(ticket));
            return;
        };
        self.out.push_back(AnchorOutput::Bind(key, slot));
        self.out.push_back(AnchorOutput::Inject(ticket));
    }

    fn on_tick(&mut self, now: Time) {
        let due: Vec<_> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, timer)| *timer).collect();
        for timer in due {
            match timer {
                Timer::Path(slot) => {
                    self.disarm(slot);
                    self.feed(now, slot, ServerInput::Tick);
                }
                Timer::Expiry(owner) => self.expire(now, owner),
                Timer::Reinjection(owner) => self.reinject_again(owner),
            }
        }
    }
}

impl Machine for Anchor {
    type Input = AnchorInput;
    type Output = AnchorOutput;

    fn handle(&mut self, now: Time, input: AnchorInput) {
        match input {
            AnchorInput::Tick => self.on_tick(now),
            AnchorInput::Connected { conn, host } => {
                self.conns.insert(conn, host);
            }
            AnchorInput::Signal { conn, message } => self.on_message(now, conn, message),
            AnchorInput::Disconnected { conn } => self.on_disconnected(now, conn),
            AnchorInput::End { host, why } => self.on_end(now, &host, why),
            AnchorInput::Probe(probe) => self.on_probe(now, &probe),
            AnchorInput::Reading(slot, reading) => self.on_reading(now, slot, reading),
            AnchorInput::Miss { key, ticket } => self.on_miss(key, ticket),
        }
    }

    fn poll(&mut self) -> Option<AnchorOutput> {
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
