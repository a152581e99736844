//! Inputs and outputs of the two machines.

use segue_clock::{Span, Time};
use segue_wire::Probe;

use crate::{Config, Estimates};

/// A valid probe that arrived: the datapath has checked its authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its fields.
    pub probe: Probe,
    /// When it arrived, on this end's clock.
    pub at: Time,
    /// This end's receive counter of the path at that moment, the probe included unless it is a question
    /// or answers one (Rc or Rs).
    pub received: u32,
    /// It is a question or answers one: neither end counts it.
    pub question: bool,
    /// Response only: when its request really left, if the kernel reported it. Replaces the echoed t_Sc.
    pub sent_at: Option<Time>,
    /// How far the RTT of this probe may be off because of how this end took its stamps; zero where the kernel took
    /// them next to the wire. Nearly all samples stay within it: docs/measuring.md says which may not, and how many.
    pub uncertainty: Span,
}

impl Arrival {
    /// A probe whose stamps are exact, and whose request left at the stamp that is echoed.
    #[must_use]
    pub const fn new(probe: Probe, at: Time, received: u32) -> Arrival {
        Arrival { probe, at, received, question: false, sent_at: None, uncertainty: Span::ZERO }
    }
}

/// What a datapath that measures knows about a path, as of `at` ([`crate::config::MeasuredBy::PacketPath`]).
/// The driver gives one before each tick that is due.
///
/// A datapath that does not measure but puts requests onto data gives readings to its client too; of
/// those `rode` and `last_sent` are used.
///
/// **Periods of rides.** The last request that the machine ordered is a point of its grid. A request rides
/// on the first packet that fits in each period of T_KA from there; the ordered one itself belongs to the
/// period before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// When it was taken.
    pub at: Time,
    /// Probes of its own kind that this end has sent, rides included: requests at a client,
    /// responses at a server.
    pub sent: u32,
    /// How many of those rode on data.
    pub rode: u32,
    /// When the last one left.
    pub last_sent: Option<Time>,
    /// Probes that arrived and counted: responses at a client, requests at a server.
    pub received: u32,
    /// When the last one arrived; at a client one that a request asked for.
    pub last_received: Option<Time>,
    /// Client: when anything at all arrived last, unsolicited responses included.
    pub last_heard: Option<Time>,
    /// Client with rides: when the datapath calls the driver by itself for another reading, unless another request
    /// rides first. That is the end of the period after the last ride's, or, if sooner, the time-out without a
    /// response. A past instant, or `None`: it will not call.
    pub watched: Option<Time>,
    /// Length of the run of consecutive sequence numbers that ends with the last one received.
    pub run: u8,
    /// K that the last probe stated; 0 if none.
    pub k: u8,
    /// T_KA that the last probe stated.
    pub t_ka: Option<Span>,
    /// The data that went over the path, if the datapath reports them.
    pub traffic: Traffic,
    /// Averages and counts; `sent`, `received` and `transitions` in it are not used.
    pub estimates: Estimates,
}

/// The data of a path as one end sees them, including packets that carry a probe but not bare probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// When data left last.
    pub sent_at: Option<Time>,
    /// When data arrived last.
    pub received_at: Option<Time>,
    /// Until when the other end heard this one, from its data: the latest value of an arrival less the age that it
    /// stated ([`segue_wire::age`]). `None` if no packet has stated one.
    pub heard_back: Option<Time>,
    /// Packets that arrived, modulo 2³².
    pub received: u32,
    /// Bytes of both directions.
    pub bytes: u64,
}

impl Traffic {
    /// None yet.
    pub const NONE: Traffic =
        Traffic { sent_at: None, received_at: None, heard_back: None, received: 0, bytes: 0 };
}

/// What happens to a [`crate::Client`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is moved once")]
pub enum ClientInput {
    /// The answer to a request.
    Response(Arrival),
    /// A response that no request asked for: the server misses requests.
    Unsolicited(Arrival),
    /// What the datapath did and measured by itself. Give it before a tick that is due.
    Reading(Reading),
    /// Send a request at once, not as a ride; the grid of T_KA begins again with it.
    Ask,
    /// Send a question at once, for the counters that its answer brings.
    Recount,
    /// New settings; averages and state stay.
    Reconfigure(Config),
    /// Keepalive off (`false`): after one answer the client sends no requests and runs no time-outs, and the state
    /// stays as it is. On again: requests go as from a start.
    Switch(bool),
}

/// What happens to a [`crate::Server`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is moved once")]
pub enum ServerInput {
    /// A request, already answered by the datapath.
    Request {
        /// The request.
        arrival: Arrival,
        /// K from its header; 0 if not stated.
        k: u8,
        /// Its flag REPORT: `ss` and `r` hold a [`segue_wire::ProbeReport`] instead of echoes.
        report: bool,
    },
    /// What the datapath did and measured by itself. Give it before a tick that is due.
    Reading(Reading),
    /// New settings. K and T_KA stated by requests take precedence.
    Reconfigure(Config),
    /// Keepalive off (`false`): no time-outs and no unsolicited responses, the state stays as it is.
    Switch(bool),
    /// Whether the client says that it hears nothing on this path. Until a request says that it hears again, losses of
    /// the way down are an outage and enter no average.
    Deaf(bool),
}

/// A probe to send: a request, or from the server an unsolicited response. The datapath fills the
/// stamps and counters of the sending end, `t_sc`, `sc` and `dt = t_sc − held_since` in a request,
/// `t_ss`, `ss`, `r` and `dt = t_ss − held_since` in an unsolicited response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// All fields that the datapath does not fill; `heard` is left to the caller, which knows all paths.
    pub probe: Probe,
    /// Microseconds modulo 2³²: when the last probe from the other end arrived (t_Rc of the last
    /// response, t_Rs of the last request); 0 before the first.
    pub held_since: u32,
    /// The request reports the client's averages: the words `ss` and `r` hold a [`segue_wire::ProbeReport`]; set the flag
    /// REPORT.
    pub report: bool,
    /// The client asks because something was due and did not come. Set the flag QUESTION; neither end counts this
    /// request or its response as a packet. Losses lead to questions, so counting them would give intervals with losses
    /// more packets than others, and make the averages of their shares too low.
    pub question: bool,
}

/// Whether a path works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing has come yet.
    Starting,
    /// Probes come.
    Up,
    /// They ceased, or never came.
    Down,
}

impl State {
    /// The name used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Up => "up",
            State::Down => "down",
        }
    }
}

/// What a [`crate::Client`] orders or reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientOutput {
    /// Send this request.
    SendRequest(Request),
    /// The state of the round trip changed.
    State(State),
    /// The state of the downlink: something, an unsolicited response included, has arrived (`true`) or nothing has
    /// within the time-out (`false`). `false` before the first.
    Heard(bool),
    /// Silence where something was due (`true`), or an answer after it (`false`). Down ends doubt too.
    Doubt(bool),
    /// New raw values.
    Sample(Sample),
}

/// What a [`crate::Server`] orders or reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerOutput {
    /// Send this unsolicited response.
    SendUnsolicited(Request),
    /// The state of the uplink changed: whether requests arrive.
    State(State),
    /// New raw values.
    Sample(Sample),
}

/// The raw values that one probe brought; `None` where it brought none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Arrival of the probe.
    pub at: Time,
    /// Its sequence number. From a reading: how many had been received.
    pub seq: u32,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// Loss from client to server (the paper's OWLc) over the loss interval that ended, in [0, 1].
    pub owl_up: Option<f64>,
    /// Loss from server to client (OWLs), likewise.
    pub owl_down: Option<f64>,
    /// Loss of the round trip (appendix III), likewise. Only from a client.
    pub rtl: Option<f64>,
    /// How far `rtt` may be off, see [`Arrival::uncertainty`].
    pub uncertainty: Span,
}

impl Sample {
    /// Whether it has any value.
    pub(crate) fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.owl_up.is_none() && self.owl_down.is_none() && self.rtl.is_none()
    }
}
