//! Requests and replies: retransmission, fail-over, and validation of replies.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use segue_clock::{Span, Time, Timers};
use segue_ip::Datagram;
use segue_mobility::{Backoff, Retransmission, Secrets, Silence};
use segue_wire::radius::{Attribute, AttributeType, Code, Packet, Unproven, View};

use crate::config::{AaaConfig, Signed};
use crate::news::{AaaReport, Unfit};
use crate::servers::{Peer, ServerStatus, Service, choose};

/// Maximum number of requests that wait for an identifier.
const WAITING_MAX: usize = 1 << 15;
/// Maximum time that a request waits for an identifier.
const WAIT_MAX: Span = Span::from_secs(10);
const UDP: u8 = 17;
const HOPS: u8 = 64;

/// A request to make; `tag` identifies it to the caller.
pub(crate) struct Question<T> {
    pub(crate) service: Service,
    pub(crate) attributes: Vec<Attribute>,
    /// In the clear; hidden with the secret of the chosen server.
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) tag: T,
}

/// The result of a request.
pub(crate) struct Outcome<T> {
    pub(crate) tag: T,
    /// `None`: no server answered.
    pub(crate) answer: Option<Answer>,
}

/// A valid reply.
pub(crate) struct Answer {
    pub(crate) packet: Packet,
    /// Index of the server that sent it.
    pub(crate) peer: usize,
}

struct Exchange<T> {
    question: Question<T>,
    since: Time,
    tried: Vec<usize>,
    /// `None` while it waits for an identifier.
    sent: Option<Sent>,
}

struct Sent {
    peer: usize,
    id: u8,
    authenticator: [u8; 16],
    bytes: Vec<u8>,
    first: Time,
    again: Retransmission,
}

/// All pending requests, and the servers.
pub(crate) struct Exchanges<T> {
    peers: Vec<Peer>,
    open: BTreeMap<u64, Exchange<T>>,
    waiting: VecDeque<u64>,
    timers: Timers<u64>,
    secrets: Secrets,
    number: u64,
    patience: Backoff,
    dead_time: Span,
    signed: Signed,
    /// Datagrams discarded because they came from no configured server.
    strangers: BTreeMap<Unfit, u64>,
    pub(crate) done: VecDeque<Outcome<T>>,
    pub(crate) to_send: VecDeque<Datagram>,
    pub(crate) news: VecDeque<AaaReport>,
}

impl<T> Exchanges<T> {
    pub(crate) fn new(config: &AaaConfig) -> Exchanges<T> {
        let mut secrets = Secrets::new(config.seed);
        let of = |servers: &[_], service| -> Vec<_> {
            servers.iter().cloned().map(|server| (server, service)).collect()
        };
        let mut all = of(&config.authentication, Service::Authentication);
        all.extend(of(&config.accounting, Service::Accounting));
        let peers = all.into_iter().map(|(server, service)| {
            let [first_id] = secrets.key();
            Peer::new(server, service, first_id)
        });
        Exchanges {
            peers: peers.collect(),
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            timers: Timers::new(),
            secrets,
            number: 0,
            patience: config.patience,
            dead_time: config.dead_time,
            signed: config.require_message_authenticator,
            strangers: BTreeMap::new(),
            done: VecDeque::new(),
            to_send: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &ServerStatus> {
        self.peers.iter().map(|peer| &peer.status)
    }

    pub(crate) fn peer(&mut self, number: usize) -> &mut Peer {
        &mut self.peers[number]
    }

    pub(crate) fn strangers(&self) -> &BTreeMap<Unfit, u64> {
        &self.strangers
    }

    /// Pending requests.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// An unpredictable number.
    pub(crate) fn random(&mut self) -> u64 {
        u64::from_be_bytes(self.secrets.key())
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Starts a request and returns its number; `None` if too many requests wait for an identifier. The result appears
    /// in `done`.
    pub(crate) fn start(&mut self, now: Time, question: Question<T>) -> Option<u64> {
        if self.waiting.len() >= WAITING_MAX {
            return None;
        }
        self.number += 1;
        let exchange = Exchange { question, since: now, tried: Vec::new(), sent: None };
        self.open.insert(self.number, exchange);
        self.dispatch(now, self.number);
        Some(self.number)
    }

    /// Abandons a request whose answer is no longer needed.
    pub(crate) fn cancel(&mut self, now: Time, number: u64) {
        self.close(number);
        self.next_waiting(now);
    }

    fn close(&mut self, number: u64) -> Option<Exchange<T>> {
        let exchange = self.open.remove(&number)?;
        self.timers.cancel(&number);
        if let Some(sent) = &exchange.sent {
            self.peers[sent.peer].close(sent.id, sent.authenticator);
        }
        Some(exchange)
    }

    /// Sends to the next server; gives up if no server is left, and queues the request if all identifiers are in use.
    fn dispatch(&mut self, now: Time, number: u64) {
        let Some(exchange) = self.open.get_mut(&number) else { return };
        let service = exchange.question.service;
        let Some(peer) = choose(&self.peers, now, service, &exchange.tried) else {
            self.give_up(number);
            return;
        };
        let to = &mut self.peers[peer];
        let Some(id) = to.take_id(number) else {
            self.waiting.push_back(number);
            return;
        };
        let mut authenticator = self.secrets.key();
        let (code, secret) = match service {
            Service::Authentication => (Code::ACCESS_REQUEST, &to.server.secret),
            Service::Accounting => (Code::ACCOUNTING_REQUEST, &to.server.secret),
        };
        let mut attributes = exchange.question.attributes.clone();
        if let Some(password) = &exchange.question.password {
            let hidden = secret.hide(password, &authenticator);
            attributes.insert(0, Attribute::octets(AttributeType::USER_PASSWORD, &hidden));
        }
        let packet = Packet { code, id, authenticator, attributes };
        // The attributes are bounded, so the packet always fits.
        let bytes = packet.seal_request(secret).unwrap_or_default();
        if let Ok(view) = View::parse(&bytes) {
            authenticator = view.authenticator();
        }
        to.status.requests += 1;
        // Varies the first timeout by ±10 %, so that clients that started together do not retransmit in step (RFC 5080,
        // 2.2.1).
        let initial = self.patience.initial;
        let tenths = u64::from_be_bytes(self.secrets.key()) % 2_001;
        let initial = Span(initial.0 / 10_000 * (9_000 + tenths));
        let again = Retransmission::new(now, Backoff { initial, ..self.patience });
        self.timers.set(number, again.deadline());
        self.to_send.push_back(datagram(to.status.address, &bytes));
        exchange.tried.push(peer);
        exchange.sent = Some(Sent { peer, id, authenticator, bytes, first: now, again });
    }

    fn give_up(&mut self, number: u64) {
        if let Some(exchange) = self.close(number) {
            self.done.push_back(Outcome { tag: exchange.question.tag, answer: None });
        }
    }

    /// Sends waiting requests while identifiers are free, and gives up those that waited too long.
    fn next_waiting(&mut self, now: Time) {
        for _ in 0..self.waiting.len() {
            let Some(number) = self.waiting.pop_front() else { return };
            let Some(exchange) = self.open.get(&number) else { continue };
            if now.since(exchange.since) > WAIT_MAX {
                self.give_up(number);
                continue;
            }
            self.dispatch(now, number);
            // Queued again: no identifier is free, so the rest must wait as well.
            if self.waiting.back() == Some(&number) {
                self.waiting.pop_back();
                self.waiting.push_front(number);
                return;
            }
        }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        while let Some(number) = self.timers.pop_due(now) {
            let Some(sent) = self.open.get_mut(&number).and_then(|open| open.sent.as_mut()) else {
                continue;
            };
            match sent.again.on_silence(now) {
                Silence::Wait => self.timers.set(number, sent.again.deadline()),
                Silence::Again => {
                    let peer = &mut self.peers[sent.peer];
                    peer.status.repeated += 1;
                    self.to_send.push_back(datagram(peer.status.address, &sent.bytes));
                    self.timers.set(number, sent.again.deadline());
                }
                Silence::GiveUp => self.on_silence(now, number),
            }
        }
    }

    /// The server did not answer: tries the next one.
    fn on_silence(&mut self, now: Time, number: u64) {
        let sent = self.open.get_mut(&number).and_then(|open| open.sent.take());
        let Some(sent) = sent else { return };
        let peer = &mut self.peers[sent.peer];
        peer.close(sent.id, sent.authenticator);
        if peer.on_silence(now, sent.first, self.dead_time) {
            self.news.push_back(AaaReport::Silent { server: peer.status.address });
        }
        self.dispatch(now, number);
        self.next_waiting(now);
    }

    /// Handles a received datagram.
    pub(crate) fn take(&mut self, now: Time, came: &Datagram) {
        let from = SocketAddr::new(came.from.0, came.from.1);
        let all = || self.peers.iter().enumerate().filter(|(_, p)| p.status.address == from);
        let view = View::parse(&came.bytes);
        let service = match view {
            Ok(view) if view.code() == Code::ACCOUNTING_RESPONSE => Service::Accounting,
            _ => Service::Authentication,
        };
        let peer = all().find(|(_, p)| p.status.service == service).or_else(|| all().next());
        let Some(peer) = peer.map(|(n, _)| n) else {
            *self.strangers.entry(Unfit::Stranger).or_default() += 1;
            return;
        };
        let fits = view.map_err(|_| Unfit::Malformed).and_then(|view| self.check(peer, &view));
        let (number, packet) = match fits {
            Ok(fits) => fits,
            Err(why) => {
                let from = &mut self.peers[peer];
                let is_unsigned = matches!(why, Unfit::NoMessageAuthenticator | Unfit::ProxyState);
                if is_unsigned && !from.status.refused.contains_key(&why) {
                    self.news.push_back(AaaReport::Unsigned { server: from.status.address });
                }
                let secret = [Unfit::Authenticator, Unfit::MessageAuthenticator];
                if secret.contains(&why)
                    && !secret.iter().any(|why| from.status.refused.contains_key(why))
                {
                    self.news.push_back(AaaReport::Secret { server: from.status.address });
                }
                return from.refuse(why);
            }
        };
        let from = &mut self.peers[peer];
        from.status.answers += 1;
        if packet.first(AttributeType::MESSAGE_AUTHENTICATOR).is_some() {
            from.on_signed(packet.code);
        }
        if from.on_answer(now) {
            self.news.push_back(AaaReport::Answers { server: from.status.address });
        }
        if let Some(exchange) = self.close(number) {
            let answer = Some(Answer { packet, peer });
            self.done.push_back(Outcome { tag: exchange.question.tag, answer });
        }
        self.next_waiting(now);
    }

    /// Validates a reply, and finds the request that it answers.
    fn check(&self, peer: usize, view: &View<'_>) -> Result<(u64, Packet), Unfit> {
        let from = &self.peers[peer];
        let is_answer = match from.status.service {
            Service::Accounting => view.code() == Code::ACCOUNTING_RESPONSE,
            Service::Authentication => {
                let codes = [Code::ACCESS_ACCEPT, Code::ACCESS_REJECT, Code::ACCESS_CHALLENGE];
                codes.contains(&view.code())
            }
        };
        if !is_answer {
            return Err(Unfit::NoAnswer);
        }
        let (secret, id) = (&from.server.secret, view.id());
        let is_required = from.must_sign(view.code(), self.signed);
        let is_late = || {
            let closed = from.closed(id);
            closed.is_some_and(|request| view.check_reply(request, secret, false).is_ok())
        };
        let number = from.asked(id);
        let sent = number.and_then(|number| self.open.get(&number)?.sent.as_ref());
        let (Some(number), Some(sent)) = (number, sent) else {
            return Err(if is_late() { Unfit::Late } else { Unfit::Unasked });
        };
        match view.check_reply(&sent.authenticator, secret, is_required) {
            Ok(()) => Ok((number, Packet::of(view))),
            Err(Unproven::Authenticator) if is_late() => Err(Unfit::Late),
            Err(Unproven::Authenticator) => Err(Unfit::Authenticator),
            Err(Unproven::MessageAuthenticator) => Err(Unfit::MessageAuthenticator),
            Err(Unproven::NoMessageAuthenticator) => Err(Unfit::NoMessageAuthenticator),
            Err(Unproven::ProxyState) => Err(Unfit::ProxyState),
        }
    }
}

/// A datagram to send; the driver fills in the source.
fn datagram(to: SocketAddr, bytes: &[u8]) -> Datagram {
    Datagram {
        waited_ns: 0,
        interface: None,
        from: (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        to: (to.ip(), to.port()),
        protocol: UDP,
        hop_limit: HOPS,
        bytes: bytes.to_vec(),
    }
}
