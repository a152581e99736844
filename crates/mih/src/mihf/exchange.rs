//! Transactions: acknowledgement, retransmission and deduplication (RFC 5677, 4; IEEE 802.21-2008, 8.2).

use segue_mobility::{Backoff, Silence};

use super::state::Purpose;
use super::*;

/// First retransmission timeout without a measured round trip (RFC 5677, 4.1.2: 3 s), and its upper limit otherwise.
const FIRST: Span = Span::from_secs(3);
/// Upper limit of the backoff.
const LONGEST: Span = Span::from_secs(30);
/// Lower limit of the first retransmission timeout.
const SHORTEST: Span = Span::from_millis(100);
/// Maximum number of transmissions of a frame.
const TRIES: u32 = 3;
/// How long to wait for an answer.
const PATIENCE: Span = Span::from_secs(15);
/// Room for pending requests and events, among 4096 transaction IDs.
const OPEN_MAX: usize = 2_048;
/// Maximum number of our answers that wait for an acknowledgement, in total and per peer. Excess answers are not
/// retransmitted, so peers that never acknowledge cannot use up the room for requests.
const ANSWERS_MAX: usize = OPEN_MAX / 2;
const ANSWERS_OF_ONE: usize = 64;
/// The lower bound of all endpoints, for range queries.
const FIRST_ENDPOINT: Endpoint = Endpoint {
    address: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
    port: 0,
    transport: Transport::Udp,
};
/// Maximum length of a frame over UDP, in octets.
const UDP_MAX: usize = 1_400;
const HOPS: u8 = 64;

impl Mihf {
    fn next_transaction(&mut self, to: Endpoint) -> Option<u16> {
        if self.open.len() >= OPEN_MAX + ANSWERS_MAX {
            return None;
        }
        let mut number = *self.transactions.get(&to).unwrap_or(&self.transaction);
        loop {
            number = (number + 1) & 0xfff;
            if !self.open.contains_key(&(Side::Ours, to, number)) {
                break;
            }
        }
        self.transaction = number;
        self.transactions.insert(to, number);
        Some(number)
    }

    fn send(&mut self, to: &Path, frame: &Frame) {
        let Ok(bytes) = frame.emit(&self.config.profile) else {
            self.refuse(Refusal::TooLong);
            return;
        };
        let Endpoint { address, port, transport } = to.remote;
        if transport == Transport::Udp && bytes.len() > UDP_MAX {
            self.refuse(Refusal::TooLong);
            return;
        }
        let datagram = Datagram {
            waited_ns: 0,
            interface: None,
            from: (to.local, self.config.port),
            to: (address, port),
            protocol: transport.protocol(),
            hop_limit: HOPS,
            bytes,
        };
        self.out.push_back(Output::Send(datagram, None));
    }

    fn named(&self, to: &Name, tlvs: Vec<Tlv>) -> Vec<Tlv> {
        let names =
            [Tlv::SourceMihfId(self.config.name.clone()), Tlv::DestinationMihfId(to.clone())];
        names.into_iter().chain(tlvs).collect()
    }

    /// Sends a request or an indication. Returns false if too many frames are pending.
    pub(super) fn ask(
        &mut self,
        now: Time,
        (path, name): (Path, Name),
        message: MessageId,
        tlvs: Vec<Tlv>,
        purpose: Purpose,
    ) -> bool {
        let Some(transaction) = self.next_transaction(path.remote) else {
            self.refuse(Refusal::Full);
            return false;
        };
        let mut frame = Frame::new(message, transaction, self.named(&name, tlvs));
        frame.ack_req = path.remote.transport == Transport::Udp;
        // An event over TCP has neither an acknowledgement nor an answer.
        if frame.ack_req || !matches!(purpose, Purpose::Event(_)) {
            let key = (Side::Ours, path.remote, transaction);
            self.await_answer(now, path, &frame, key, purpose);
        }
        self.send(&path, &frame);
        true
    }

    fn await_answer(&mut self, now: Time, to: Path, frame: &Frame, key: Key, purpose: Purpose) {
        let initial = self.round_trips.get(&to.remote).map_or(FIRST, |round_trip| *round_trip * 4);
        let initial = initial.max(SHORTEST).min(FIRST);
        let again =
            Retransmission::new(now, Backoff { initial, longest: LONGEST, tries: Some(TRIES) });
        let (frame, ends) = (frame.clone(), now + PATIENCE);
        let at = if frame.ack_req { again.deadline() } else { ends };
        self.timers.set(Task::Again(key), at);
        if let Purpose::Event(line) = &purpose {
            self.lines.insert(line.clone(), key);
        }
        let (sent_at, acknowledged, next) = (now, !frame.ack_req, Vec::new());
        let open = Open { to, frame, sent_at, again, acknowledged, ends, purpose, next };
        self.open.insert(key, open);
    }

    /// Answers a request. Over UDP the answer also acknowledges the request, unless that was done already, and must
    /// itself be acknowledged.
    pub(super) fn answer(&mut self, now: Time, request: &Request, tlvs: Vec<Tlv>) {
        let message = request.message.with_opcode(Opcode::RESPONSE);
        let tlvs = self.named(&request.name, tlvs);
        let mut frame = Frame::new(message, request.transaction, tlvs);
        frame.ack_rsp = !request.acknowledged;
        frame.ack_req = request.path.remote.transport == Transport::Udp;
        let (side, remote) = (Side::Theirs, request.path.remote);
        let of_it = (side, remote, 0)..=(side, remote, u16::MAX);
        let room = self.open.range(of_it).count() < ANSWERS_OF_ONE
            && self.open.range((side, FIRST_ENDPOINT, 0)..).count() < ANSWERS_MAX;
        if frame.ack_req && room {
            let key = (side, remote, request.transaction);
            self.await_answer(now, request.path, &frame, key, Purpose::Answer);
        }
        self.send(&request.path, &frame);
    }

    /// Acknowledges a frame.
    pub(super) fn acknowledge(&mut self, to: &Path, name: &Name, came: &Frame) {
        let tlvs = self.named(name, Vec::new());
        let mut frame = Frame::new(came.message_id, came.transaction_id, tlvs);
        frame.ack_rsp = true;
        self.send(to, &frame);
    }

    /// A peer acknowledged a frame.
    pub(super) fn on_acknowledgement(&mut self, now: Time, from: &Path, key: Key) {
        let Some(open) = self.open.get_mut(&key) else { return };
        if open.acknowledged {
            return;
        }
        open.acknowledged = true;
        if open.again.sent() == 1 {
            let took = now.since(open.sent_at);
            let smooth = |before: Span| Span(before.0 - before.0 / 8 + took.0 / 8);
            // Entries are removed with their peer; this bounds the others.
            if self.round_trips.len() >= 2 * CLIENTS_MAX {
                self.round_trips.clear();
            }
            let known = self.round_trips.get(&from.remote).copied();
            self.round_trips.insert(from.remote, known.map_or(took, smooth));
        }
        let ends = open.ends;
        if matches!(open.purpose, Purpose::Event(_) | Purpose::Answer) {
            self.done(now, key);
        } else {
            self.timers.set(Task::Again(key), ends);
        }
    }

    /// Completes a transaction, and sends the next event of its line.
    pub(super) fn done(&mut self, now: Time, key: Key) -> Option<Open> {
        self.timers.cancel(&Task::Again(key));
        let mut open = self.open.remove(&key)?;
        if let Purpose::Event(line) = &open.purpose {
            self.lines.remove(line);
            for event in core::mem::take(&mut open.next) {
                self.tell(now, &line.party.clone(), &event);
            }
        }
        Some(open)
    }

    /// Handles the timeout of a frame.
    pub(super) fn again(&mut self, now: Time, key: Key) {
        let Some(open) = self.open.get_mut(&key) else { return };
        if open.acknowledged {
            self.fail(now, key);
            return;
        }
        match open.again.on_silence(now) {
            Silence::Wait => {}
            Silence::GiveUp => self.fail(now, key),
            Silence::Again => {
                // A newer event is queued; a retransmission would arrive too late.
                if open.is_superseded() {
                    self.done(now, key);
                    return;
                }
                self.timers.set(Task::Again(key), open.again.deadline());
                let (to, frame, purpose) = (open.to, open.frame.clone(), open.purpose.clone());
                self.send(&to, &frame);
                if let Purpose::Event(line) = purpose
                    && let Party::Function(number) = line.party
                {
                    self.doubt(now, number);
                }
            }
        }
    }

    /// Gives up a frame.
    fn fail(&mut self, now: Time, key: Key) {
        let Some(open) = self.done(now, key) else { return };
        if !open.acknowledged {
            // The path may have changed.
            self.round_trips.remove(&open.to.remote);
        }
        match open.purpose {
            Purpose::Register(number) => self.not_registered(now, number),
            Purpose::Discover(number) => {
                self.timers.set(Task::Discover(number), now + register::RETRY);
            }
            Purpose::Subscribe(link, _) => self.not_subscribed(now, &link),
            Purpose::Command(asker) => self.unanswered(now, &asker),
            Purpose::Event(Line { party: Party::Client(name), .. }) => {
                // A client that does not acknowledge its events has gone; if not, it registers again. The client may
                // already have registered from another endpoint.
                if self.clients.get(&name).is_some_and(|client| client.at == open.to) {
                    self.forget(now, &Party::Client(name));
                }
            }
            // The function receives the missed event when it subscribes again.
            Purpose::Event(Line { party: Party::Function(number), .. }) => {
                self.not_registered(now, number);
            }
            Purpose::Unsubscribe(link) => self.unsubscribed_at(now, &link),
            Purpose::Deregister | Purpose::Answer => {}
        }
    }

    /// Handles an answer.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        from: &Path,
        name: &OctetString,
        frame: &Frame,
        tlvs: &[Tlv],
    ) -> Result<(), Refusal> {
        let key = (Side::Ours, from.remote, frame.transaction_id);
        let open = self
            .open
            .get(&key)
            .filter(|open| open.frame.message_id.with_opcode(Opcode::RESPONSE) == frame.message_id);
        if open.is_none() {
            return Err(Refusal::Stale);
        }
        self.on_acknowledgement(now, from, key);
        let open = self.done(now, key).ok_or(Refusal::Stale)?;
        let status = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::Status(status) => Some(*status),
            _ => None,
        });
        let status = status.unwrap_or(Status::SUCCESS);
        match open.purpose {
            Purpose::Register(number) => self.registered_at(now, number, name, status, tlvs),
            Purpose::Discover(number) => self.discovered(now, number, tlvs),
            Purpose::Subscribe(link, events) => self.subscribed_at(now, &link, events, status),
            Purpose::Unsubscribe(link) => self.unsubscribed_at(now, &link),
            Purpose::Command(asker) => self.command_answered(now, &asker, status, tlvs),
            _ => {}
        }
        Ok(())
    }
}
