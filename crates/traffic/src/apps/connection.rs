//! A bidirectional TCP connection, for agents that take turns in sending.

use segue_clock::Time;

use crate::tcp::{Config, Endpoint, Segment, Sent, Sink, Source};
use segue_sim::agent::Io;
use segue_sim::packet::Packet;

/// One end of a connection. Data and acknowledgements travel in separate packets, which distinguishes packets for
/// the sending half from those for the receiving half.
pub(super) struct Connection {
    source: Source,
    sink: Sink,
    offered: u64,
}

impl Connection {
    pub(super) fn new(config: Config, endpoint: Endpoint) -> Connection {
        let (source, sink) = (Source::new(config, endpoint), Sink::new(config, endpoint));
        Connection { source, sink, offered: 0 }
    }

    pub(super) fn start(&mut self, io: &mut Io<'_>) {
        self.source.start(io.now);
        self.flush(io);
    }

    pub(super) fn offer(&mut self, io: &mut Io<'_>, bytes: u64) {
        self.offered += bytes;
        self.source.offer(io.now, bytes);
        self.flush(io);
    }

    pub(super) fn receive(&mut self, io: &mut Io<'_>, packet: Packet) {
        match packet.value::<Segment>() {
            Some(segment) if segment.ack.is_some() => {
                self.source.receive(io.now, &packet);
                self.source.reuse(packet);
            }
            _ => {
                self.sink.receive(io.now, &packet);
                self.sink.reuse(packet);
            }
        }
        self.flush(io);
    }

    pub(super) fn wake(&mut self, io: &mut Io<'_>) {
        if self.source.deadline().is_some_and(|at| at <= io.now) {
            self.source.tick(io.now);
        }
        if self.sink.deadline().is_some_and(|at| at <= io.now) {
            self.sink.tick(io.now);
        }
        self.flush(io);
    }

    pub(super) fn window(&self) -> f64 {
        self.source.window()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        earliest(self.source.deadline(), self.sink.deadline())
    }

    fn flush(&mut self, io: &mut Io<'_>) {
        while let Some(packet) = self.source.poll(io.now) {
            io.send(packet);
        }
        if let Some(packet) = self.sink.poll(io.now) {
            io.send(packet);
        }
    }

    /// Number of the peer's bytes received in order.
    pub(super) fn delivered(&self) -> u64 {
        self.sink.delivered()
    }

    /// Returns true if everything offered has been acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.source.acknowledged() >= self.offered
    }

    pub(super) fn sent(&self) -> Sent {
        self.source.sent()
    }
}

pub(super) fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
