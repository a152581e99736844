//! One end of a connection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};

use super::{Ack, CHUNK, Datagram, Frame, IDLE, KEEP_ALIVE};

/// RTT before the first sample (RFC 9002, section 6.2.2), as the daemons set it.
const INITIAL_RTT: Span = Span::from_millis(100);
/// Lower bound of the variation term in a timeout (RFC 9002, section 6.1.2).
const GRANULARITY: Span = Span::from_millis(1);
/// Maximum delay of the peer's acknowledgements (RFC 9000, section 18.2).
const MAX_ACK_DELAY: Span = Span::from_millis(25);
/// Maximum number of doublings of a timeout; the connection becomes idle long before.
const MAX_BACKOFF: u32 = 10;
/// Number of packets whose sending times are kept for RTT samples.
const MAX_IN_FLIGHT: usize = 32;
/// Number of stream parts kept beyond a gap.
const MAX_AHEAD: usize = 64;
/// Maximum unacknowledged bytes; more close the connection, as a full outbox does.
const MAX_OUTGOING: usize = 1 << 16;
/// How long a closing connection waits for the acknowledgement of sent data.
const LINGER: Span = Span::from_secs(1);
/// How long the anchor waits for a host's first message.
const PATIENCE: Span = Span::from_secs(5);

/// A state change of a connection, caused by a datagram or a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The handshake is complete: at the anchor, the host's first message has begun to arrive.
    Opened,
    /// The connection was closed.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The host has sent its name.
    Greeting,
    /// The anchor has answered.
    Greeted {
        until: Time,
    },
    Open,
    /// Closes when everything is acknowledged, or at this instant.
    Finishing {
        until: Time,
    },
    /// The peer has yet to be notified.
    Closing,
    Ended,
}

/// One end of a connection. After each [`Conn::receive`], [`Conn::tick`] and [`Conn::write`], send what
/// [`Conn::poll`] returns until it returns `None`.
#[derive(Clone, Debug)]
pub struct Conn {
    id: u64,
    /// The host's name; empty at the anchor.
    name: String,
    phase: Phase,
    next: u64,
    /// Stream data from `acked` on.
    outgoing: VecDeque<u8>,
    acked: u64,
    /// End of the stream data sent so far.
    sent_to: u64,
    /// Number and sending time of the newest packet with stream data.
    last_stream: Option<(u64, Time)>,
    in_flight: VecDeque<(u64, Time)>,
    last_eliciting: Time,
    rtt: Option<(Span, Span)>,
    backoff: u32,
    hello_due: bool,
    accept_due: bool,
    ping_due: bool,
    ack_due: bool,
    largest: Option<u64>,
    received: u64,
    ahead: BTreeMap<u64, Vec<u8>>,
    incoming: Vec<u8>,
    /// Start of the idle timeout.
    idle_since: Time,
    /// True if an ack-eliciting packet was sent since the last arrival.
    asked: bool,
    last_heard: Time,
}

impl Conn {
    /// The host's end of a new connection.
    #[must_use]
    pub fn client(now: Time, id: u64, name: String) -> Conn {
        Conn { hello_due: true, name, ..Conn::new(now, id, Phase::Greeting) }
    }

    /// The anchor's end, for a received Hello.
    #[must_use]
    pub fn server(now: Time, id: u64) -> Conn {
        Conn::new(now, id, Phase::Greeted { until: now + PATIENCE })
    }

    fn new(now: Time, id: u64, phase: Phase) -> Conn {
        Conn {
            id,
            name: String::new(),
            phase,
            next: 0,
            outgoing: VecDeque::new(),
            acked: 0,
            sent_to: 0,
            last_stream: None,
            in_flight: VecDeque::new(),
            last_eliciting: now,
            rtt: None,
            backoff: 0,
            hello_due: false,
            accept_due: false,
            ping_due: false,
            ack_due: false,
            largest: None,
            received: 0,
            ahead: BTreeMap::new(),
            incoming: Vec::new(),
            idle_since: now,
            asked: false,
            last_heard: now,
        }
    }

    /// Its connection ID.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if the handshake is complete and the connection has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Finishing { .. })
    }

    /// Returns true if the connection has ended and has nothing left to send.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns true if all written data has been acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Time of the last packet from the peer.
    #[must_use]
    pub fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// Number of the newest packet received.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Smoothed RTT, after the first sample.
    #[must_use]
    pub fn rtt(&self) -> Option<Span> {
        self.rtt.map(|(smoothed, _)| smoothed)
    }

    /// Writes bytes to the stream.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.outgoing.len() + bytes.len() > MAX_OUTGOING {
            self.close();
            return;
        }
        self.outgoing.extend(bytes);
    }

    /// Received stream data; the caller removes messages from the front.
    pub fn incoming(&mut self) -> &mut Vec<u8> {
        &mut self.incoming
    }

    /// Sends a keep-alive at once, for example from another address.
    pub fn ping(&mut self) {
        self.ping_due |= self.is_open();
    }

    /// Closes the connection after everything written has been acknowledged.
    pub fn finish(&mut self, now: Time) {
        match self.phase {
            Phase::Open => self.phase = Phase::Finishing { until: now + LINGER },
            Phase::Greeting | Phase::Greeted { .. } => self.close(),
            Phase::Finishing { .. } | Phase::Closing | Phase::Ended => {}
        }
    }

    /// Closes the connection at once, and notifies the peer.
    pub fn close(&mut self) {
        if self.phase != Phase::Ended {
            self.phase = Phase::Closing;
        }
    }

    /// Handles a datagram of this connection.
    pub fn receive(&mut self, now: Time, datagram: Datagram) -> Option<Transition> {
        if matches!(self.phase, Phase::Ended | Phase::Closing) {
            return None;
        }
        if matches!(datagram.frame, Frame::Close | Frame::Reset) {
            self.phase = Phase::Ended;
            return Some(Transition::Closed);
        }
        self.largest = self.largest.max(Some(datagram.number));
        (self.last_heard, self.idle_since, self.asked) = (now, now, false);
        self.ack_due |= datagram.frame.elicits();
        if let Some(ack) = datagram.ack {
            self.on_ack(now, ack);
        }
        match datagram.frame {
            Frame::Hello { .. } if matches!(self.phase, Phase::Greeted { .. }) => {
                (self.accept_due, self.ack_due) = (true, false);
                None
            }
            Frame::Accept if self.phase == Phase::Greeting => {
                self.phase = Phase::Open;
                Some(Transition::Opened)
            }
            Frame::Stream { offset, bytes } => self.on_stream(offset, bytes),
            _ => None,
        }
    }

    fn on_stream(&mut self, offset: u64, bytes: Vec<u8>) -> Option<Transition> {
        if offset > self.received {
            if self.ahead.len() < MAX_AHEAD {
                self.ahead.insert(offset, bytes);
            }
            return None;
        }
        self.append(offset, &bytes);
        while let Some((offset, bytes)) = self.ahead.pop_first() {
            if offset > self.received {
                self.ahead.insert(offset, bytes);
                break;
            }
            self.append(offset, &bytes);
        }
        let opens = matches!(self.phase, Phase::Greeted { .. });
        if opens {
            self.phase = Phase::Open;
        }
        opens.then_some(Transition::Opened)
    }

    /// Appends the new bytes of a stream part that leaves no gap.
    fn append(&mut self, offset: u64, bytes: &[u8]) {
        let known = (self.received - offset) as usize;
        if let Some(new) = bytes.get(known..) {
            self.incoming.extend_from_slice(new);
            self.received += new.len() as u64;
        }
    }

    fn on_ack(&mut self, now: Time, ack: Ack) {
        let sample = self.in_flight.iter().find(|(number, _)| *number == ack.largest);
        if let Some((_, at)) = sample {
            self.on_rtt(now.since(*at));
            self.backoff = 0;
        }
        self.in_flight.retain(|(number, _)| *number > ack.largest);
        let new = ack.stream.saturating_sub(self.acked).min(self.outgoing.len() as u64);
        if new > 0 {
            self.outgoing.drain(..new as usize);
            self.acked += new;
            self.sent_to = self.sent_to.max(self.acked);
            self.backoff = 0;
        }
        // RFC 9002, section 6.1.2: time threshold.
        let rtt = self.rtt.map_or(INITIAL_RTT, |(smoothed, _)| smoothed);
        let late = |at: Time| now.since(at) >= rtt + Span(rtt.0 / 8);
        let overtaken = |(number, at): (u64, Time)| number < ack.largest && late(at);
        if self.acked < self.sent_to && self.last_stream.is_some_and(overtaken) {
            self.sent_to = self.acked;
        }
    }

    /// RTT estimator (RFC 9002, section 5.3).
    fn on_rtt(&mut self, sample: Span) {
        self.rtt = Some(match self.rtt {
            None => (sample, sample.half()),
            Some((smoothed, variation)) => {
                let off = Span(smoothed.0.abs_diff(sample.0));
                let variation = Span(variation.0 / 4 * 3 + off.0 / 4);
                (Span(smoothed.0 / 8 * 7 + sample.0 / 8), variation)
            }
        });
    }

    /// Probe timeout (RFC 9002, section 6.2.1).
    fn pto(&self) -> Span {
        let (smoothed, variation) = self.rtt.unwrap_or((INITIAL_RTT, INITIAL_RTT.half()));
        let delay = if self.is_open() { MAX_ACK_DELAY } else { Span::ZERO };
        smoothed + (variation * 4).max(GRANULARITY) + delay
    }

    fn probe_at(&self) -> Option<Time> {
        let waits = self.phase == Phase::Greeting
            || self.is_open() && (self.acked < self.sent_to || !self.in_flight.is_empty());
        waits.then(|| self.last_eliciting + self.pto() * (1 << self.backoff.min(MAX_BACKOFF)))
    }

    fn idle_at(&self) -> Time {
        self.idle_since + IDLE.max(self.pto() * 3)
    }

    fn keep_alive_at(&self) -> Option<Time> {
        self.is_open().then(|| self.last_heard.max(self.last_eliciting) + KEEP_ALIVE)
    }

    /// When to call [`Conn::tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Ended | Phase::Closing => return None,
            Phase::Greeted { until } | Phase::Finishing { until } => Some(until),
            Phase::Greeting | Phase::Open => None,
        };
        let times = [phase, self.probe_at(), self.keep_alive_at(), Some(self.idle_at())];
        times.into_iter().flatten().min()
    }

    /// Handles timers that have expired.
    pub fn tick(&mut self, now: Time) -> Option<Transition> {
        match self.phase {
            Phase::Ended | Phase::Closing => return None,
            Phase::Greeted { until } if until <= now => {
                self.close();
                return Some(Transition::Closed);
            }
            Phase::Finishing { until } if until <= now => self.close(),
            _ => {}
        }
        if self.idle_at() <= now {
            // RFC 9000, section 10.1: silent close.
            self.phase = Phase::Ended;
            return Some(Transition::Closed);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.backoff += 1;
            self.hello_due = self.phase == Phase::Greeting;
            self.ping_due = self.is_open() && self.acked == self.sent_to;
            self.sent_to = self.acked;
        }
        self.ping_due |= self.keep_alive_at().is_some_and(|at| at <= now);
        None
    }

    /// The next datagram to send.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        let all_acked = self.outgoing.is_empty();
        if matches!(self.phase, Phase::Finishing { .. }) && all_acked {
            self.phase = Phase::Closing;
        }
        let frame = match self.phase {
            Phase::Ended => return None,
            Phase::Closing => {
                self.phase = Phase::Ended;
                Frame::Close
            }
            _ => self.frame()?,
        };
        let number = self.next;
        self.next += 1;
        if frame.elicits() {
            if !self.asked {
                (self.asked, self.idle_since) = (true, now);
            }
            self.last_eliciting = now;
            if self.in_flight.len() == MAX_IN_FLIGHT {
                self.in_flight.pop_front();
            }
            self.in_flight.push_back((number, now));
        }
        if matches!(frame, Frame::Stream { .. }) {
            self.last_stream = Some((number, now));
        }
        self.ack_due = false;
        let ack = self.largest.map(|largest| Ack { largest, stream: self.received });
        Some(Datagram { conn: self.id, number, ack, frame })
    }

    fn frame(&mut self) -> Option<Frame> {
        if core::mem::take(&mut self.hello_due) {
            return Some(Frame::Hello { name: self.name.clone() });
        }
        if core::mem::take(&mut self.accept_due) {
            return Some(Frame::Accept);
        }
        let from = (self.sent_to - self.acked) as usize;
        if self.is_open() && from < self.outgoing.len() {
            let bytes: Vec<u8> = self.outgoing.iter().skip(from).take(CHUNK).copied().collect();
            let offset = self.sent_to;
            self.sent_to += bytes.len() as u64;
            self.ping_due = false;
            return Some(Frame::Stream { offset, bytes });
        }
        if core::mem::take(&mut self.ping_due) {
            return Some(Frame::Ping);
        }
        self.ack_due.then_some(Frame::Ack)
    }
}
