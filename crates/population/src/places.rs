//! The parts of a shard (hosts, anchors, paths and flows) and its events.

use segue_clock::Time;
use segue_sim::tunnel::{AnchorEnd, HostEnd};
use segue_wire::signal::{FromAnchor, FromHost};

use super::access::{Direction, Outage, SplitMix};
use super::stats::Load;
use super::truth::Truth;

/// An event of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) enum ShardEvent {
    /// A host detects its interfaces.
    Start(u32),
    /// A host's deadline.
    Host(u32),
    /// An anchor's deadline.
    Anchor(u32),
    /// A packet arrives at an anchor over a path.
    Up { path: u32, packet: u32 },
    /// A packet arrives at a host over a path.
    Down { path: u32, packet: u32 },
    /// A signalling message arrives, or a handshake ends.
    Signal(u32),
    /// A flow sends its next packets.
    Flow(u32),
    /// A host is ordered to move its flow.
    Order(u32),
}

/// A host.
pub(super) struct HostPlace {
    pub(super) end: HostEnd<u32>,
    pub(super) connection: Connection,
    /// Time of the scheduled [`ShardEvent::Host`].
    pub(super) armed: Option<Time>,
}

/// An anchor.
pub(super) struct AnchorPlace {
    pub(super) end: AnchorEnd<u32>,
    pub(super) armed: Option<Time>,
    pub(super) load: Load,
    /// The second being counted, with its requests and signalling messages.
    second: (u64, u64, u64),
}

impl AnchorPlace {
    pub(super) fn new(end: AnchorEnd<u32>) -> AnchorPlace {
        AnchorPlace { end, armed: None, load: Load::default(), second: (0, 0, 0) }
    }

    /// Counts requests and signalling messages.
    pub(super) fn count(&mut self, now: Time, from: Time, (requests, signals): (u64, u64)) {
        let second = now.0 / 1_000_000_000;
        if second != self.second.0 {
            self.second = (second, 0, 0);
        }
        let requests = if now >= from { requests } else { 0 };
        self.second.1 += requests;
        self.second.2 += signals;
        self.load.requests += requests;
        self.load.signals += signals;
        self.load.most_requests = self.load.most_requests.max(self.second.1);
        self.load.most_signals = self.load.most_signals.max(self.second.2);
    }
}

#[derive(Clone, Copy)]
pub(super) struct PathPlace {
    pub(super) up: Direction,
    pub(super) down: Direction,
    pub(super) outage: Outage,
    pub(super) truth: Truth,
}

/// The signalling connection of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    pub(super) stands: bool,
    /// Number of connection attempts. Handshakes of earlier attempts are ignored.
    pub(super) attempt: u32,
    /// Index of the host's path that carries the connection.
    pub(super) carrier: u8,
    /// Arrival time of the last message, up and down.
    pub(super) last: [Time; 2],
}

/// A signalling event in flight.
#[derive(Clone, Debug)]
pub(super) enum SignalInFlight {
    /// A handshake completes.
    Handshake {
        host: u32,
        place: u8,
        attempt: u32,
    },
    ToAnchor(u32, FromHost),
    /// `None`: the connection is closed.
    ToHost(u32, Option<FromAnchor>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) host: u32,
    pub(super) orders: SplitMix,
    /// Index of the host's path that was ordered last.
    pub(super) ordered: u8,
    /// Up and down: arrival time of the last packet, and index of the host's path that carried it.
    pub(super) last: [Option<(Time, u32)>; 2],
}
