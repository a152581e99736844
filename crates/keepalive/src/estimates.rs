//! One end's estimates of its path.

use alloc::vec::Vec;

use segue_clock::Span;

/// Estimates and counts of one path at one end. The lists have one value for each time constant and are empty before
/// the first sample.
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
    /// Mean difference between consecutive RTTs in seconds, smoothed with gain 1/16 like the interarrival jitter of RFC
    /// 3550, section 6.4.1; zero before the second sample.
    pub rtt_jitter: f64,
    /// Averages of the loss from client to server, in [0, 1].
    pub owl_up: Vec<f64>,
    /// Averages of the loss from server to client.
    pub owl_down: Vec<f64>,
    /// Averages of the round-trip loss. A server knows only the client's reports, because only the client knows how
    /// many requests it sent.
    pub rtl: Vec<f64>,
    /// Packets from client to server.
    pub up: Counted,
    /// Packets from server to client.
    pub down: Counted,
    /// Probes ordered by this machine: a client's requests, a server's unsolicited responses.
    pub sent: u64,
    /// Probes that arrived and counted: responses at a client, requests at a server.
    pub received: u64,
    /// Probes that arrived more than once.
    pub duplicates: u64,
    /// Probes that arrived after a newer one.
    pub reordered: u64,
    /// State changes, except the first change to up.
    pub transitions: u64,
    /// Possible error of `rtt_last`, see [`crate::Arrival::uncertainty`].
    pub uncertainty: Span,
    /// Server: how often it declared the path down although only the client was silent.
    pub client_silent: u64,
}

/// Packets of one direction since the first exchange, data and probes. `sent − received` were lost; the difference is
/// exact between two probes that arrive in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that left.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
}
