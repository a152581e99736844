//! Who has which address.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::convert::Infallible;

use segue_clock::{Deadline, Machine, Span, Time};
use segue_ip::{Datagram, Input, Output, Prefix};

use crate::{Message, Refusal, Refused, Report, Why};

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The addresses to lease, but for the first of the network.
    pub pool: Prefix,
    /// For how long.
    pub lifetime: Span,
}

/// What a server stores: who has an address. A later record of the same address takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which address, counted from the network's first.
    pub place: u32,
    /// Whose.
    pub owner: u64,
}

/// What a server asks of its driver; there is nothing of its own.
pub type ServerOutput = Output<Infallible, Report, Lease>;

/// The machine of a server.
pub struct Server {
    config: ServerConfig,
    /// By place: whose it is, and until when.
    leases: BTreeMap<u32, (u64, Time)>,
    refused: Refused,
    out: VecDeque<ServerOutput>,
}

impl Server {
    /// A server without leases.
    #[must_use]
    pub fn new(config: ServerConfig) -> Server {
        Server { config, leases: BTreeMap::new(), refused: Refused::new(), out: VecDeque::new() }
    }

    /// Who has which address.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Prefix)> {
        let all = self.leases.iter();
        all.filter_map(|(place, (owner, _))| Some((*owner, self.address(*place)?)))
    }

    /// What it refused.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    fn address(&self, place: u32) -> Option<Prefix> {
        Some(Prefix::new(self.config.pool.nth(place)?, self.config.pool.len))
    }

    fn place_of(&self, owner: u64) -> Option<u32> {
        self.leases.iter().find(|(_, (known, _))| *known == owner).map(|(place, _)| *place)
    }

    fn free(&self) -> Option<u32> {
        let mut places = 1..=u32::MAX;
        let place = places.find(|place| !self.leases.contains_key(place))?;
        self.address(place).map(|_| place)
    }

    fn lease(&mut self, now: Time, owner: u64, number: u64) -> Message {
        let place = self.place_of(owner).or_else(|| self.free());
        let Some((place, address)) = place.and_then(|place| Some((place, self.address(place)?)))
        else {
            *self.refused.entry(Refusal::PoolFull).or_default() += 1;
            return Message::Refuse { number, why: Why::PoolFull };
        };
        let lifetime = self.config.lifetime;
        if self.leases.insert(place, (owner, now + lifetime)).is_none() {
            self.out.push_back(Output::Persist(Lease { place, owner }));
            self.out.push_back(Output::Report(Report::Leased { owner, address }));
        }
        Message::Grant { number, address, lifetime }
    }

    fn answer(&mut self, owner: u64, number: u64) -> Message {
        if self.place_of(owner).is_some() {
            return Message::Answer { number };
        }
        *self.refused.entry(Refusal::NoLease).or_default() += 1;
        Message::Refuse { number, why: Why::NoLease }
    }

    fn take(&mut self, now: Time, came: Datagram) {
        let answer = match Message::parse(&came.bytes) {
            Some(Message::Ask { owner, number }) => self.lease(now, owner, number),
            Some(Message::Echo { owner, number }) => self.answer(owner, number),
            other => {
                let why = if other.is_some() { Refusal::Stranger } else { Refusal::Malformed };
                *self.refused.entry(why).or_default() += 1;
                return;
            }
        };
        let (from, to) = (came.to, came.from);
        self.out.push_back(Output::Send(Datagram { from, to, bytes: answer.emit(), ..came }));
    }
}

impl Machine for Server {
    type Input = Input<Infallible, Lease>;
    type Output = ServerOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        // What is due comes first: an address that is free by now can be leased again.
        self.tick(now);
        match input {
            Input::Datagram(came) => self.take(now, came),
            // Its client may have asked a moment before the last end.
            Input::Record(Lease { place, owner }) => {
                self.leases.insert(place, (owner, now + self.config.lifetime));
            }
            Input::Interfaces(_) | Input::Link(_) => {}
            Input::Own(never) => match never {},
        }
    }

    fn tick(&mut self, now: Time) {
        let over = self.leases.iter().filter(|(_, (_, until))| *until <= now);
        for place in over.map(|(place, _)| *place).collect::<Vec<u32>>() {
            if let (Some((owner, _)), Some(address)) =
                (self.leases.remove(&place), self.address(place))
            {
                self.out.push_back(Output::Report(Report::Ended { owner, address }));
            }
        }
    }

    fn poll(&mut self) -> Option<ServerOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let first = self.leases.values().map(|(_, until)| *until).min();
        first.map(|at| (at, "a lease ends"))
    }
}
