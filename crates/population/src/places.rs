//! What a shard consists of: its hosts, anchors, paths and flows, and what can happen to them.

use segue_clock::Time;
use segue_sim::tunnel::{AnchorEnd, HostEnd};
use segue_wire::signal::{FromAnchor, FromHost};

use super::access::{Direction, Outage, SplitMix};
use super::stats::Load;
use super::truth::Truth;

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum ShardEvent {
    /// A host sees its interfaces.
    Start(u32),
    /// A host's deadline.
    Host(u32),
    /// An anchor's deadline.
    Anchor(u32),
    /// A packet comes to an anchor over a path.
    Up { path: u32, packet: u32 },
    /// A packet comes to a host over a path.
    Down { path: u32, packet: u32 },
    /// Something of signalling.
    Signal(u32),
    /// A flow's next packets.
    Flow(u32),
    /// A flow's host is ordered to move it.
    Order(u32),
}

/// A host.
pub(super) struct HostPlace {
    pub(super) end: HostEnd<u32>,
    pub(super) connection: Connection,
    /// For when the next look at its deadline is scheduled.
    pub(super) armed: Option<Time>,
}

/// An anchor.
pub(super) struct AnchorPlace {
    pub(super) end: AnchorEnd<u32>,
    pub(super) armed: Option<Time>,
    pub(super) load: Load,
    /// The second that is counted, with its requests and messages.
    second: (u64, u64, u64),
}

impl AnchorPlace {
    pub(super) fn new(end: AnchorEnd<u32>) -> AnchorPlace {
        AnchorPlace { end, armed: None, load: Load::default(), second: (0, 0, 0) }
    }

    /// Counts requests and messages of signalling.
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

/// A path.
#[derive(Clone, Copy)]
pub(super) struct PathPlace {
    pub(super) up: Direction,
    pub(super) down: Direction,
    pub(super) outage: Outage,
    pub(super) truth: Truth,
}

/// A host's connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    pub(super) stands: bool,
    /// Attempts to connect so far; only the last counts.
    pub(super) attempt: u32,
    /// Which of the host's paths carries it.
    pub(super) carrier: u8,
    /// When the last message arrives, up and down.
    pub(super) last: [Time; 2],
}

/// Something of signalling that is under way.
#[derive(Clone, Debug)]
pub(super) enum SignalInFlight {
    /// A handshake ends.
    Handshake {
        host: u32,
        place: u8,
        attempt: u32,
    },
    ToAnchor(u32, FromHost),
    /// `None`: the connection is closed.
    ToHost(u32, Option<FromAnchor>),
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) host: u32,
    pub(super) orders: SplitMix,
    /// Which of the host's paths it was ordered to last.
    pub(super) ordered: u8,
    /// Up and down: when the last packet came, and over which of the host's paths.
    pub(super) last: [Option<(Time, u32)>; 2],
}
