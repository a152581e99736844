//! Inputs and outputs of the two machines.

use segue_clock::{Span, Time};
use segue_wire::Probe;

use crate::{Config, Estimates};

/// A valid probe that arrived. The datapath has verified its authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The fields of the probe.
    pub probe: Probe,
    /// Arrival time on this end's clock.
    pub at: Time,
    /// This end's receive counter (Rc or Rs) of the path at that moment. Includes the probe itself, unless it is a
    /// question or answers one.
    pub received: u32,
    /// The probe is a question or answers one. Neither end counts it.
    pub question: bool,
    /// Response only: actual sending time of its request, if the kernel reported it. Replaces the echoed t_Sc.
    pub sent_at: Option<Time>,
    /// Possible error of this probe's RTT from this end's stamps; zero where the kernel took them next to the wire.
    /// Nearly all samples stay within it; docs/measuring.md lists the exceptions and how frequent they are.
    pub uncertainty: Span,
}

impl Arrival {
    /// A probe with exact stamps, whose request left at the echoed stamp.
    #[must_use]
    pub const fn new(probe: Probe, at: Time, received: u32) -> Arrival {
        Arrival { probe, at, received, question: false, sent_at: None, uncertainty: Span::ZERO }
    }
}

/// State of a path at `at` as a measuring datapath knows it ([`crate::config::MeasuredBy::PacketPath`]). The driver
/// passes one before each tick that is due.
///
/// A datapath that does not measure but lets requests ride on data also gives its client readings. The client uses only
/// their `rode`, `last_sent`, `watched` and `traffic`.
///
/// **Periods of rides.** The last request ordered by the machine is a point of the grid. In each following period of
/// T_KA, a request rides on the first packet that has room for it. The ordered request itself belongs to the previous
/// period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Time of the reading.
    pub at: Time,
    /// Probes of its kind that this end has sent, including rides: requests at a client, responses at a server.
    pub sent: u32,
    /// Number of these that rode on data.
    pub rode: u32,
    /// When the last of them left.
    pub last_sent: Option<Time>,
    /// Probes that arrived and counted: responses at a client, requests at a server.
    pub received: u32,
    /// When the last of them arrived; at a client only those that answer a request.
    pub last_received: Option<Time>,
    /// Client: time of the last arrival of any kind, including unsolicited responses.
    pub last_heard: Option<Time>,
    /// Client with rides: when the datapath calls the driver for another reading, unless another request rides first.
    /// This is the end of the period after the last ride's, or the time-out without a response if that is earlier.
    /// `None` or a past instant: no call.
    pub watched: Option<Time>,
    /// Number of consecutive sequence numbers up to the last one received.
    pub run: u8,
    /// K stated by the last probe; 0 if none.
    pub k: u8,
    /// T_KA stated by the last probe.
    pub t_ka: Option<Span>,
    /// Data on the path, if the datapath reports it.
    pub traffic: Traffic,
    /// Averages and counts. Their `sent`, `received` and `transitions` are unused.
    pub estimates: Estimates,
}

/// Data of a path as seen by one end, including packets that carry a probe but not bare probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// When data last left.
    pub sent_at: Option<Time>,
    /// When data last arrived.
    pub received_at: Option<Time>,
    /// Latest time at which the peer is known to have heard this end: the maximum over its data packets of arrival time
    /// minus stated age ([`segue_wire::age`]). `None` if no packet has stated an age.
    pub heard_back: Option<Time>,
    /// Packets that arrived, modulo 2³².
    pub received: u32,
    /// Bytes of both directions.
    pub bytes: u64,
}

impl Traffic {
    /// No data yet.
    pub const NONE: Traffic =
        Traffic { sent_at: None, received_at: None, heard_back: None, received: 0, bytes: 0 };
}

/// Inputs of a [`crate::Client`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is moved once")]
pub enum ClientInput {
    /// A response to a request.
    Response(Arrival),
    /// A response without a request: the server misses requests.
    Unsolicited(Arrival),
    /// The datapath's own probes and measurements. Pass it before a tick that is due.
    Reading(Reading),
    /// Send a request immediately, not as a ride. The grid of T_KA restarts at it.
    Ask,
    /// Send a question immediately, to obtain the counters in its answer.
    Recount,
    /// New settings. Averages and state are kept.
    Reconfigure(Config),
    /// Switches the keepalive. When off (`false`), the client sends no requests and runs no time-outs once it has
    /// received an answer, and its state is frozen. When on again, it sends requests as after a start.
    Switch(bool),
}

/// Inputs of a [`crate::Server`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is moved once")]
pub enum ServerInput {
    /// A request, already answered by the datapath.
    Request {
        /// The request.
        arrival: Arrival,
        /// K from the header; 0 if not stated.
        k: u8,
        /// The REPORT flag: `ss` and `r` hold a [`segue_wire::ProbeReport`] instead of echoes.
        report: bool,
    },
    /// The datapath's own probes and measurements. Pass it before a tick that is due.
    Reading(Reading),
    /// New settings. K and T_KA stated by requests take precedence.
    Reconfigure(Config),
    /// Switches the keepalive. When off (`false`), there are no time-outs or unsolicited responses, and the state is
    /// frozen.
    Switch(bool),
    /// Whether the client reports that it hears nothing on this path. Until a request reports otherwise, downlink
    /// losses count as an outage and do not enter any average.
    Deaf(bool),
}

/// A probe to send: a request, or an unsolicited response from the server. The datapath fills in stamps and counters of
/// the sending end: `t_sc`, `sc` and `dt = t_sc − held_since` in a request; `t_ss`, `ss`, `r` and
/// `dt = t_ss − held_since` in an unsolicited response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// All fields that the datapath does not fill in, except `heard`, which the caller sets because it knows all paths.
    pub probe: Probe,
    /// Arrival time of the last probe from the peer (t_Rc of the last response, t_Rs of the last request), in
    /// microseconds modulo 2³²; 0 before the first.
    pub held_since: u32,
    /// The request reports the client's averages: `ss` and `r` hold a [`segue_wire::ProbeReport`]. Set the REPORT flag.
    pub report: bool,
    /// The client asks because an expected packet did not arrive. Set the QUESTION flag; neither end counts this
    /// request or its response as a packet. Losses cause questions: if questions counted, intervals with losses would
    /// contain more packets than others, and the averages of their loss ratios would be too low.
    pub question: bool,
}

/// State of a path, or of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No probe has arrived yet.
    Starting,
    /// Probes arrive.
    Up,
    /// Probes ceased, or never arrived.
    Down,
}

impl State {
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Up => "up",
            State::Down => "down",
        }
    }
}

/// Outputs of a [`crate::Client`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientOutput {
    /// Send this request.
    SendRequest(Request),
    /// The state of the round trip changed.
    State(State),
    /// The state of the downlink: `true` if anything, including an unsolicited response, has arrived within the
    /// time-out. `false` before the first arrival.
    Heard(bool),
    /// An expected packet did not arrive (`true`), or an answer arrived afterwards (`false`). Going down also ends
    /// doubt.
    Doubt(bool),
    /// New raw values.
    Sample(Sample),
}

/// Outputs of a [`crate::Server`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerOutput {
    /// Send this unsolicited response.
    SendUnsolicited(Request),
    /// The state of the uplink changed. Up means that requests arrive.
    State(State),
    /// New raw values.
    Sample(Sample),
}

/// The raw values from one probe; `None` for values that it did not give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Arrival of the probe.
    pub at: Time,
    /// The probe's sequence number. In a sample from a reading: the number of probes received.
    pub seq: u32,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// Loss from client to server (the paper's OWLc) over the loss interval that ended, in [0, 1].
    pub owl_up: Option<f64>,
    /// Loss from server to client (OWLs), likewise.
    pub owl_down: Option<f64>,
    /// Loss of the round trip (appendix III), likewise. Only from a client.
    pub rtl: Option<f64>,
    /// Possible error of `rtt`, see [`Arrival::uncertainty`].
    pub uncertainty: Span,
}

impl Sample {
    /// True if it has no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.owl_up.is_none() && self.owl_down.is_none() && self.rtl.is_none()
    }
}
