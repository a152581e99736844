//! Servers: selection, state and counters.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Span, Time};
use segue_wire::radius::Code;

use crate::config::{Server, Signed};
use crate::news::Unfit;

/// The service that a server provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Authenticates and authorizes hosts.
    Authentication,
    /// Records sessions.
    Accounting,
}

impl Service {
    /// Its name in status output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Service::Authentication => "authentication",
            Service::Accounting => "accounting",
        }
    }
}

/// State and counters of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its address.
    pub address: SocketAddr,
    /// The service it provides.
    pub service: Service,
    /// A request timed out, and no valid reply has arrived since.
    pub silent: bool,
    /// Requests sent, without retransmissions.
    pub requests: u64,
    /// Retransmissions.
    pub repeated: u64,
    /// Valid replies.
    pub answers: u64,
    /// Valid replies that refuse a host.
    pub rejects: u64,
    /// Requests that were given up without a reply.
    pub unanswered: u64,
    /// Discarded datagrams from its address, by reason.
    pub refused: BTreeMap<Unfit, u64>,
}

/// A server and the requests that are pending there.
pub(crate) struct Peer {
    pub(crate) server: Server,
    pub(crate) status: ServerStatus,
    /// Skipped until then because it did not answer.
    dead_until: Option<Time>,
    answered: Option<Time>,
    /// Pending requests: RADIUS identifier to request number.
    open: BTreeMap<u8, u64>,
    next_id: u8,
    /// Authenticator of the last closed request with each identifier, by which late replies are recognised.
    closed: BTreeMap<u8, [u8; 16]>,
    /// It has sent a valid reply with a Message-Authenticator.
    has_signed: bool,
    /// It has sent a valid refusal with a Message-Authenticator.
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

    /// Whether other servers take precedence. After the dead time, a single request probes whether the server is back.
    fn is_passed_over(&self, now: Time) -> bool {
        self.dead_until.is_some_and(|until| now < until || !self.open.is_empty())
    }

    /// Allocates the least recently used free identifier; `None` if all 256 are in use.
    pub(crate) fn take_id(&mut self, number: u64) -> Option<u8> {
        let free = |n: &u8| !self.open.contains_key(n);
        let id = (0..=u8::MAX).map(|n| self.next_id.wrapping_add(n)).find(free)?;
        self.next_id = id.wrapping_add(1);
        self.open.insert(id, number);
        Some(id)
    }

    /// The pending request with this identifier.
    pub(crate) fn asked(&self, id: u8) -> Option<u64> {
        self.open.get(&id).copied()
    }

    /// The authenticator of the last closed request with this identifier.
    pub(crate) fn closed(&self, id: u8) -> Option<&[u8; 16]> {
        self.closed.get(&id)
    }

    /// Frees the identifier of a request that was answered or given up.
    pub(crate) fn close(&mut self, id: u8, authenticator: [u8; 16]) {
        self.open.remove(&id);
        self.closed.insert(id, authenticator);
    }

    /// Records that a valid reply carried a Message-Authenticator.
    pub(crate) fn on_signed(&mut self, code: Code) {
        self.has_signed = true;
        self.has_signed_refusal |= code != Code::ACCESS_ACCEPT;
    }

    /// Whether a reply with this code must carry a Message-Authenticator.
    ///
    /// With [`Signed::Auto`], an Access-Accept must once the server has signed any reply; a refusal must once the
    /// server has signed a refusal. Some servers sign only for hosts that they know, so they refuse unknown hosts
    /// unsigned, and an unsigned refusal cannot admit a host.
    pub(crate) fn must_sign(&self, code: Code, signed: Signed) -> bool {
        // Accounting-Responses carry none (except in RFC 5997).
        self.status.service == Service::Authentication
            && match signed {
                Signed::Always => true,
                Signed::Auto if code == Code::ACCESS_ACCEPT => self.has_signed,
                Signed::Auto => self.has_signed_refusal,
                Signed::Never => false,
            }
    }

    /// Records a valid reply; true if the server was marked dead.
    pub(crate) fn on_answer(&mut self, now: Time) -> bool {
        self.answered = Some(now);
        self.status.silent = false;
        self.dead_until.take().is_some()
    }

    /// Records that a request first sent at `since` was not answered; true if the server is newly marked dead.
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

/// The next server to ask for a service, not counting those in `tried`. If all servers are marked dead, the one whose
/// dead time ends first, but no second one.
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
