//! What an end knows about its path.

use alloc::vec::Vec;

use segue_clock::Span;

/// Estimates and counts of one path at one end. The lists have one value for each time constant,
/// and are empty before the first sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// The last RTT sample.
    pub rtt_last: Option<Span>,
    /// The smallest.
    pub rtt_min: Option<Span>,
    /// The largest.
    pub rtt_max: Option<Span>,
    /// Averages of the RTT in seconds.
    pub rtt_ewma: Vec<f64>,
    /// Mean difference between one RTT and the next in seconds, smoothed with gain 1/16 as the
    /// interarrival jitter of RFC 3550, section 6.4.1; zero before the second sample.
    pub rtt_jitter: f64,
    /// Averages of the loss from client to server, in [0, 1].
    pub owl_up: Vec<f64>,
    /// Averages of the loss from server to client.
    pub owl_down: Vec<f64>,
    /// Averages of the round-trip loss. A server has only what the client reports, since only the client knows how many
    /// requests were sent.
    pub rtl: Vec<f64>,
    /// Packets from client to server.
    pub up: Counted,
    /// Packets from server to client.
    pub down: Counted,
    /// Probes that this machine ordered: a client's requests, a server's unsolicited responses.
    pub sent: u64,
    /// Probes that arrived and counted: responses at a client, requests at a server.
    pub received: u64,
    /// Probes that arrived more than once.
    pub duplicates: u64,
    /// Probes that a newer one had overtaken.
    pub reordered: u64,
    /// Changes of state, but for the first coming up.
    pub transitions: u64,
    /// How far `rtt_last` may be off, see [`crate::Arrival::uncertainty`].
    pub uncertainty: Span,
    /// Server: how often the path was called down although only the client had been silent.
    pub client_silent: u64,
}

/// Packets of one direction, data and probes, since the first exchange. What was lost is
/// `sent − received`; it is exact between two probes that arrive in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that left.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
}
