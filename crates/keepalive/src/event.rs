//! Inputs and outputs of the two machines.

use segue_clock::{Span, Time};
use segue_wire::Probe;

use crate::Config;

/// A valid probe that arrived: the datapath has checked its authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its fields.
    pub probe: Probe,
    /// When it arrived, on this end's clock.
    pub at: Time,
    /// This end's receive counter of the path at that moment, the probe included (Rc or Rs).
    pub received: u32,
    /// Response only: when its request really left, if the kernel told. Takes the place of the
    /// echoed t_Sc.
    pub sent_at: Option<Time>,
}

/// What happens to a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientInput {
    /// The deadline has come (or any other instant: a tick does only what is due).
    Tick,
    /// The answer to a request.
    Response(Arrival),
    /// A response that no request asked for: the server misses requests.
    Unsolicited(Arrival),
    /// New settings; averages and state stay.
    Reconfigure(Config),
}

/// What happens to a [`crate::Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerInput {
    /// The deadline has come.
    Tick,
    /// A request, already answered by the datapath.
    Request {
        /// The request.
        arrival: Arrival,
        /// K from its header; 0 if not stated.
        k: u8,
    },
    /// New settings. K and T_KA that requests state go before them.
    Reconfigure(Config),
}

/// A probe to send: a request, or from the server an unsolicited response. The datapath fills the
/// stamps and counters of the sending end, `t_sc`, `sc` and `dt = t_sc − held_since` in a request,
/// `t_ss`, `ss`, `r` and `dt = t_ss − held_since` in an unsolicited response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The fields that are not the datapath's; `heard` is left to the caller, who knows all paths.
    pub probe: Probe,
    /// Microseconds modulo 2³²: when the last probe from the other end arrived (t_Rc of the last
    /// response, t_Rs of the last request); 0 before the first.
    pub held_since: u32,
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

/// What a [`crate::Client`] wants done or known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientOutput {
    /// Send this request.
    SendRequest(Request),
    /// The state of the round trip changed.
    State(State),
    /// The downlink alone: something, an unsolicited response included, has arrived (`true`) or
    /// nothing has within the time-out (`false`). `false` before the first.
    Heard(bool),
    /// New raw values.
    Sample(Sample),
}

/// What a [`crate::Server`] wants done or known.
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
    /// Its sequence number.
    pub seq: u32,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// Loss from client to server (the paper's OWLc) over the loss interval that ended, in [0, 1].
    pub owl_up: Option<f64>,
    /// Loss from server to client (OWLs), likewise.
    pub owl_down: Option<f64>,
    /// Loss of the round trip (appendix III), likewise. The client's alone.
    pub rtl: Option<f64>,
}

impl Sample {
    /// Whether it says anything at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.owl_up.is_none() && self.owl_down.is_none() && self.rtl.is_none()
    }
}
