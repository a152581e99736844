//! Who has which address.

use alloc::collections::VecDeque;
use core::convert::Infallible;

use segue_clock::{Deadline, Machine, Span, Time};
use segue_ip::{Datagram, Input, Output, Prefix};
use segue_mobility::{Leases, Pool};

use crate::{Message, Refusal, Refused, Report, Why};

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pool: Pool,
    lifetime: Span,
}

impl ServerConfig {
    /// Leases the addresses of a network, but for the first, for this long. `None`: there is no room for a client.
    #[must_use]
    pub fn new(network: Prefix, lifetime: Span) -> Option<ServerConfig> {
        Some(ServerConfig { pool: Pool::addresses(network.network(), 1)?, lifetime })
    }
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
    /// By owner.
    leases: Leases<u64>,
    refused: Refused,
    out: VecDeque<ServerOutput>,
}

impl Server {
    /// A server without leases.
    #[must_use]
    pub fn new(config: ServerConfig) -> Server {
        // A client's own lease ends before the server's, so that an address can be leased again at once.
        let leases = Leases::lowest_first(config.pool, Span::ZERO);
        Server { config, leases, refused: Refused::new(), out: VecDeque::new() }
    }

    /// Who has which address.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Prefix)> {
        self.leases.iter().map(|(part, owner, _)| (*owner, self.address(part)))
    }

    /// What it refused.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// An address with the prefix of the pool.
    fn address(&self, part: Prefix) -> Prefix {
        Prefix::new(part.addr, self.config.pool.network().len)
    }

    fn lease(&mut self, now: Time, owner: u64, number: u64) -> Message {
        let lifetime = self.config.lifetime;
        let is_new = self.leases.of(&owner).next().is_none();
        let Some(part) = self.leases.lease(now, &owner, Some(now + lifetime)) else {
            *self.refused.entry(Refusal::PoolFull).or_default() += 1;
            return Message::Refuse { number, why: Why::PoolFull };
        };
        let address = self.address(part);
        if is_new && let Some(place) = self.config.pool.number(part) {
            self.out.push_back(Output::Persist(Lease { place, owner }));
            self.out.push_back(Output::Report(Report::Leased { owner, address }));
        }
        Message::Grant { number, address, lifetime }
    }

    fn answer(&mut self, owner: u64, number: u64) -> Message {
        if self.leases.of(&owner).next().is_some() {
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
                let until = Some(now + self.config.lifetime);
                let part = self.config.pool.part(place);
                part.and_then(|part| self.leases.restore(owner, part, until));
            }
            Input::Interfaces(_) | Input::Link(_) => {}
            Input::Own(never) => match never {},
        }
    }

    fn tick(&mut self, now: Time) {
        while let Some((owner, part)) = self.leases.ended(now) {
            let address = self.address(part);
            self.out.push_back(Output::Report(Report::Ended { owner, address }));
        }
    }

    fn poll(&mut self) -> Option<ServerOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        self.leases.next_end().map(|at| (at, "a lease ends"))
    }
}
