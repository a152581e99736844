//! Connects the machines of senders and receivers to the packets of a network.
//!
//! [`Source`] and [`Sink`] are building blocks for any agent that uses TCP; [`SourceAgent`] and [`SinkAgent`] are
//! agents that do nothing else.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Machine, Time};

use super::config::Config;
use super::receiver::{Acknowledgement, Receiver};
use super::recovery::{Ack, Sent, Transmit};
use super::segment::{Sack, Segment};
use super::sender::{Input, Sender};
use super::stream::Stream;
use segue_sim::agent::{Agent, Io};
use segue_sim::packet::{Packet, Payload, TCP};
use segue_sim::results::Results;

/// Suffix of a sender's name for its congestion window in time series.
pub const WINDOW: &str = "window_packets";

/// Length of an endless stream, in bytes.
pub const GREEDY: u64 = u64::MAX / 4;

/// One end of a connection: local and remote address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Local address and port.
    pub local: (IpAddr, u16),
    /// Remote address and port.
    pub remote: (IpAddr, u16),
}

impl Endpoint {
    /// The endpoint as seen by the peer.
    #[must_use]
    pub fn reversed(self) -> Endpoint {
        Endpoint { local: self.remote, remote: self.local }
    }

    /// A packet with this segment, in the memory of an earlier one if there is any.
    fn packet(&self, now: Time, bytes: u32, segment: Segment, spare: &mut Spare) -> Packet {
        let mut packet = match spare.take() {
            Some(payload) => Packet::boxed(TCP, self.local, self.remote, bytes, payload),
            None => Packet::new(TCP, self.local, self.remote, bytes, Segment::default()),
        };
        match packet.value_mut() {
            Some(place) => *place = segment,
            None => packet.payload = Box::new(segment),
        }
        packet.sent = now;
        packet
    }
}

/// Memory of a segment that has been handled, for the next one.
type Spare = Option<Box<dyn Payload>>;

/// A transmitted segment, for a trace of the window. Window, threshold and number are in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracePoint {
    /// Sending time.
    pub at: Time,
    /// Congestion window.
    pub cwnd: f64,
    /// Slow-start threshold.
    pub ssthresh: f64,
    /// Number of the segment.
    pub seq: u64,
}

/// The sending end: converts bytes into packets. There is no handshake.
pub struct Source {
    sender: Sender,
    stream: Stream,
    endpoint: Endpoint,
    config: Config,
    closed: bool,
    trace: Option<Vec<TracePoint>>,
    spare: Spare,
}

impl Source {
    /// A sender with nothing to send.
    #[must_use]
    pub fn new(config: Config, endpoint: Endpoint) -> Source {
        let (sender, stream) = (Sender::new(config), Stream::new(&config));
        Source { sender, stream, endpoint, config, closed: false, trace: None, spare: None }
    }

    /// Records a trace point for every segment from here on.
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// The recorded trace.
    #[must_use]
    pub fn traced(&self) -> &[TracePoint] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Opens the connection: offered data may be sent.
    pub fn start(&mut self, now: Time) {
        self.sender.handle(now, Input::Start);
    }

    /// Offers bytes to send ([`GREEDY`] for an endless stream).
    pub fn offer(&mut self, now: Time, bytes: u64) {
        let units = self.stream.offer(bytes);
        self.sender.handle(now, Input::Offer(units));
    }

    /// No more data will be offered: the last segment ends the stream.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Handles a packet from the peer.
    pub fn receive(&mut self, now: Time, packet: &Packet) {
        let Some(segment) = packet.value::<Segment>() else { return };
        let Some(byte) = segment.ack else { return };
        // An acknowledgement of data that were never sent is invalid (RFC 9293, section 3.10.7.4).
        if byte > self.stream.byte(self.sender.core().max) {
            return;
        }
        let mut sack = Sack::default();
        for (start, end) in segment.sack.blocks() {
            // Only whole units count as held.
            let first = self.stream.unit(*start);
            let partly = self.stream.byte(first) < *start;
            sack.push(first + u64::from(partly), self.stream.unit(*end));
        }
        let echo = segment.timestamps.filter(|_| self.config.timestamps).map(|t| Time(t.1));
        self.sender.handle(now, Input::Ack(Ack { next: self.stream.unit(byte), sack, echo }));
        self.stream.forget_before(byte);
    }

    /// Keeps the memory of a packet that has been handled for the next one to send.
    pub fn reuse(&mut self, packet: Packet) {
        self.spare = Some(packet.payload);
    }

    /// Handles an expired deadline.
    pub fn tick(&mut self, now: Time) {
        self.sender.tick(now);
    }

    /// When to call [`tick`](Self::tick).
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.sender.deadline().map(|(at, _)| at)
    }

    /// The next packet to send; call it until `None` after every call that takes the time.
    pub fn poll(&mut self, now: Time) -> Option<Packet> {
        let segment = self.sender.poll()?;
        self.remember(now, segment);
        let (start, end) = (self.stream.byte(segment.start), self.stream.byte(segment.end));
        let len = (end - start) as u32;
        let bytes = self.config.header + len;
        let segment = Segment {
            seq: start,
            len,
            fin: self.closed && end == self.stream.offered(),
            timestamps: Some((now.0, 0)),
            retransmission: segment.retransmission,
            ..Segment::default()
        };
        Some(self.endpoint.packet(now, bytes, segment, &mut self.spare))
    }

    fn remember(&mut self, at: Time, segment: Transmit) {
        let core = self.sender.core();
        if let Some(trace) = &mut self.trace {
            let smss = core.smss_f64();
            let (cwnd, ssthresh) = (core.cwnd / smss, core.ssthresh / smss);
            trace.push(TracePoint { at, cwnd, ssthresh, seq: segment.start / core.smss });
        }
    }

    /// Number of bytes acknowledged by the peer.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.stream.byte(self.sender.core().una)
    }

    /// Returns true if everything offered has been acknowledged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Its congestion window in segments.
    #[must_use]
    pub fn window(&self) -> f64 {
        let core = self.sender.core();
        core.cwnd / core.smss_f64()
    }

    /// Its counters.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sender.core().sent
    }

    /// The machine, for inspection.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }
}

/// The receiving end: converts packets into acknowledgements.
pub struct Sink {
    receiver: Receiver,
    endpoint: Endpoint,
    config: Config,
    owed: Option<Acknowledgement>,
    spare: Spare,
}

impl Sink {
    /// A receiver of data from `endpoint.remote`.
    #[must_use]
    pub fn new(config: Config, endpoint: Endpoint) -> Sink {
        Sink { receiver: Receiver::new(&config), endpoint, config, owed: None, spare: None }
    }

    /// Handles a packet from the peer.
    pub fn receive(&mut self, now: Time, packet: &Packet) {
        if let Some(segment) = packet.value() {
            self.owed = self.receiver.on_segment(now, segment);
        }
    }

    /// Keeps the memory of a packet that has been handled for the next one to send.
    pub fn reuse(&mut self, packet: Packet) {
        self.spare = Some(packet.payload);
    }

    /// Handles an expired deadline.
    pub fn tick(&mut self, now: Time) {
        self.owed = self.receiver.on_deadline(now);
    }

    /// When to call [`tick`](Self::tick).
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.receiver.deadline()
    }

    /// The acknowledgement to send, if any; call it after every call that takes the time.
    pub fn poll(&mut self, now: Time) -> Option<Packet> {
        let Acknowledgement { next, sack, echo } = self.owed.take()?;
        let blocks = sack.blocks().len() as u32;
        let (once, each) = self.config.sack_bytes;
        let option = if blocks > 0 { once + each * blocks } else { 0 };
        let bytes = self.config.ack_bytes + option;
        let timestamps = Some((now.0, echo));
        let segment = Segment { ack: Some(next), sack, timestamps, ..Segment::default() };
        Some(self.endpoint.packet(now, bytes, segment, &mut self.spare))
    }

    /// Number of bytes delivered in order.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.receiver.delivered()
    }

    /// The machine, for inspection.
    #[must_use]
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}

/// An agent that sends a number of bytes (or an endless stream) from the start of the run.
pub struct SourceAgent {
    /// The connection.
    pub source: Source,
    bytes: u64,
}

impl SourceAgent {
    /// Sends `bytes` bytes ([`GREEDY`] for an endless stream).
    #[must_use]
    pub fn new(source: Source, bytes: u64) -> SourceAgent {
        SourceAgent { source, bytes }
    }

    fn flush(&mut self, io: &mut Io<'_>) {
        while let Some(packet) = self.source.poll(io.now) {
            io.send(packet);
        }
    }
}

impl Agent for SourceAgent {
    fn start(&mut self, io: &mut Io<'_>) {
        self.source.offer(io.now, self.bytes);
        self.source.close();
        self.source.start(io.now);
        self.flush(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.source.receive(io.now, &packet);
        self.source.reuse(packet);
        self.flush(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.source.tick(io.now);
        self.flush(io);
    }

    fn deadline(&self) -> Option<Time> {
        self.source.deadline()
    }

    fn gauges(&self, name: &str, gauges: &mut Results) {
        gauges.float(alloc::format!("{name}.{WINDOW}"), self.source.window());
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        let sent = self.source.sent();
        results.int(alloc::format!("{name}.sent"), sent.segments);
        results.int(alloc::format!("{name}.retransmissions"), sent.retransmissions);
        results.int(alloc::format!("{name}.timeouts"), sent.timeouts);
    }
}

/// An agent that acknowledges received data.
pub struct SinkAgent {
    /// The connection.
    pub sink: Sink,
}

impl SinkAgent {
    fn flush(&mut self, io: &mut Io<'_>) {
        if let Some(packet) = self.sink.poll(io.now) {
            io.send(packet);
        }
    }
}

impl Agent for SinkAgent {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.sink.receive(io.now, &packet);
        self.sink.reuse(packet);
        self.flush(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.sink.tick(io.now);
        self.flush(io);
    }

    fn deadline(&self) -> Option<Time> {
        self.sink.deadline()
    }

    fn report(&self, name: &str, now: Time, results: &mut Results) {
        let bytes = self.sink.delivered();
        results.int(alloc::format!("{name}.delivered_bytes"), bytes);
        results.float(alloc::format!("{name}.goodput_bps"), bytes as f64 * 8.0 / now.as_secs_f64());
    }
}
