//! Servers: which one is asked, and what each has said.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Span, Time};
use segue_wire::radius::Code;

use crate::config::{Server, Signed};
use crate::news::Unfit;

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// It says who hosts are.
    Authentication,
    /// It is told what hosts were served.
    Accounting,
}

impl Service {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Service::Authentication => "authentication",
            Service::Accounting => "accounting",
        }
    }
}

/// What has become of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its address.
    pub address: SocketAddr,
    /// What it is for.
    pub service: Service,
    /// It has not answered when it was asked last.
    pub silent: bool,
    /// Requests to it, repetitions not counted.
    pub requests: u64,
    /// Repetitions.
    pub repeated: u64,
    /// Answers that counted.
    pub answers: u64,
    /// Those of them that refuse a host.
    pub rejects: u64,
    /// Requests that it did not answer.
    pub unanswered: u64,
    /// What came from it and was passed over.
    pub refused: BTreeMap<Unfit, u64>,
}

/// A server that is asked.
pub(crate) struct Peer {
    pub(crate) server: Server,
    pub(crate) status: ServerStatus,
    /// It was silent, and is passed over until then.
    dead_until: Option<Time>,
    answered: Option<Time>,
    /// Requests without an answer, by identifier.
    open: BTreeMap<u8, u64>,
    next_id: u8,
    /// The authenticator of the last request with each identifier that is closed.
    closed: BTreeMap<u8, [u8; 16]>,
    /// An answer of it had a Message-Authenticator.
    has_signed: bool,
    /// One that refused a host had.
    has_signed_refusal: bool,
}

impl Peer {
    pub(crate) fn new(server: Server, service: Service, first_id: u8) -> Peer {
        let status = ServerStatus {
            address: SocketAddr::new(server.address, server.port),
            service,
            silent: false,
            requests: 0,
            repeated: 0,
            answers: 0,
            rejects: 0,
            unanswered: 0,
            refused: BTreeMap::new(),
        };
        Peer {
            server,
            status,
            dead_until: None,
            answered: None,
            open: BTreeMap::new(),
            next_id: first_id,
            closed: BTreeMap::new(),
            has_signed: false,
            has_signed_refusal: false,
        }
    }

    /// Whether others are to be asked first. When its time is over, one request shows whether it answers again.
    fn is_passed_over(&self, now: Time) -> bool {
        self.dead_until.is_some_and(|until| now < until || !self.open.is_empty())
    }

    /// An identifier that is not in use, the one that was used longest ago; `None` if all are.
    pub(crate) fn take_id(&mut self, number: u64) -> Option<u8> {
        let free = |n: &u8| !self.open.contains_key(n);
        let id = (0..=u8::MAX).map(|n| self.next_id.wrapping_add(n)).find(free)?;
        self.next_id = id.wrapping_add(1);
        self.open.insert(id, number);
        Some(id)
    }

    /// The request with this identifier.
    pub(crate) fn asked(&self, id: u8) -> Option<u64> {
        self.open.get(&id).copied()
    }

    /// The authenticator of the last request with this identifier that is closed.
    pub(crate) fn closed(&self, id: u8) -> Option<&[u8; 16]> {
        self.closed.get(&id)
    }

    /// A request is closed.
    pub(crate) fn close(&mut self, id: u8, authenticator: [u8; 16]) {
        self.open.remove(&id);
        self.closed.insert(id, authenticator);
    }

    /// An answer that counts had a Message-Authenticator.
    pub(crate) fn on_signed(&mut self, code: Code) {
        self.has_signed = true;
        self.has_signed_refusal |= code != Code::ACCESS_ACCEPT;
    }

    /// Whether an answer of this code must have a Message-Authenticator.
    ///
    /// With [`Signed::Auto`] an acceptance must, once the server has signed anything. A refusal must once it has signed a
    /// refusal: some servers sign by the entry of a host, so that they refuse unknown hosts unsigned, and an unsigned refusal
    /// admits nobody.
    pub(crate) fn must_sign(&self, code: Code, signed: Signed) -> bool {
        // Accounting responses have none (RFC 5997 apart).
        self.status.service == Service::Authentication
            && match signed {
                Signed::Always => true,
                Signed::Auto if code == Code::ACCESS_ACCEPT => self.has_signed,
                Signed::Auto => self.has_signed_refusal,
                Signed::Never => false,
            }
    }

    /// It has answered; whether it did not before.
    pub(crate) fn on_answer(&mut self, now: Time) -> bool {
        self.answered = Some(now);
        self.status.silent = false;
        self.dead_until.take().is_some()
    }

    /// It has not answered what it was asked first at `since`; whether that is news.
    pub(crate) fn on_silence(&mut self, now: Time, since: Time, dead_time: Span) -> bool {
        self.status.unanswered += 1;
        if self.answered.is_some_and(|at| at >= since) {
            return false;
        }
        self.status.silent = true;
        self.dead_until.replace(now + dead_time).is_none()
    }

    pub(crate) fn refuse(&mut self, why: Unfit) {
        *self.status.refused.entry(why).or_default() += 1;
    }
}

/// The server to ask next, of those for a service that were not tried; if all are silent, the one that was for the longest, and
/// no further one.
pub(crate) fn choose(
    peers: &[Peer],
    now: Time,
    service: Service,
    tried: &[usize],
) -> Option<usize> {
    let left = peers.iter().enumerate();
    let left = left.filter(|(n, peer)| peer.status.service == service && !tried.contains(n));
    let left: Vec<(usize, &Peer)> = left.collect();
    let answers = left.iter().find(|(_, peer)| !peer.is_passed_over(now));
    let silent = left.iter().filter(|_| tried.is_empty()).min_by_key(|(_, peer)| peer.dead_until);
    answers.or(silent).map(|(n, _)| *n)
}
