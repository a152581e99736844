//! The server: which client leases which address.

use alloc::collections::VecDeque;
use core::convert::Infallible;

use segue_clock::{Deadline, Machine, Span, Time};
use segue_ip::{Datagram, Input, Output, Prefix, Subject};
use segue_mobility::{Leases, Pool};

use crate::{Message, Refusal, Refused, Report, Why};

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pool: Pool,
    lifetime: Span,
}

impl ServerConfig {
    /// Leases the addresses of `network` for `lifetime`, except the first one and the IPv4 broadcast address. `None` if
    /// no address is left for clients.
    #[must_use]
    pub fn new(network: Prefix, lifetime: Span) -> Option<ServerConfig> {
        Some(ServerConfig { pool: Pool::addresses(network.network(), 1)?, lifetime })
    }
}

/// The record of a lease. A later record of the same address replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address, as an offset from the start of the network.
    pub place: u32,
    /// The client.
    pub owner: u64,
}

impl Lease {
    /// The client that it is about.
    #[must_use]
    pub fn subject(&self) -> Subject {
        subject(self.owner)
    }
}

fn subject(owner: u64) -> Subject {
    Subject(owner.to_be_bytes().into())
}

/// Outputs of a server. It has no outputs of its role.
pub type ServerOutput = Output<Infallible, Report, Lease>;

/// The server's machine.
pub struct Server {
    config: ServerConfig,
    /// Active leases, by client.
    leases: Leases<u64>,
    refused: Refused,
    out: VecDeque<ServerOutput>,
}

impl Server {
    /// A server without leases.
    #[must_use]
    pub fn new(config: ServerConfig) -> Server {
        // No quarantine: a client's lease ends before the server's, so the address can be leased again at once.
        let leases = Leases::lowest_first(config.pool, Span::ZERO);
        Server { config, leases, refused: Refused::new(), out: VecDeque::new() }
    }

    /// The active leases: client and address.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Prefix)> {
        self.leases.iter().map(|(part, owner, _)| (*owner, self.address(part)))
    }

    /// Refused datagrams, by reason.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The address with the prefix length of the pool.
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
        let (owner, answer) = match Message::parse(&came.bytes) {
            Some(Message::Ask { owner, number }) => (owner, self.lease(now, owner, number)),
            Some(Message::Echo { owner, number }) => (owner, self.answer(owner, number)),
            other => {
                let why = if other.is_some() { Refusal::Stranger } else { Refusal::Malformed };
                *self.refused.entry(why).or_default() += 1;
                return;
            }
        };
        let (from, to) = (came.to, came.from);
        let datagram = Datagram { from, to, bytes: answer.emit(), ..came };
        self.out.push_back(Output::Send(datagram, Some(subject(owner))));
    }
}

impl Machine for Server {
    type Input = Input<Infallible, Lease>;
    type Output = ServerOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        // Expire leases first, so that their addresses are available.
        self.tick(now);
        match input {
            Input::Datagram(came) => self.take(now, came),
            // The client may have renewed just before the restart, so the lease gets a full lifetime.
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
