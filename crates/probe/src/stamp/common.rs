//! Options of both ends that do not depend on the protocol.

use segue_clock::Span;
use segue_keepalive::Config;

use crate::guard::{Guard, Rates};
use crate::running::Running;
use crate::screen::Output;

/// The general options, in STAMP's terms.
pub struct Common<'a> {
    /// The interface to send over, or to answer on.
    pub interface: Option<&'a str>,
    /// Text of the key file.
    pub key: Option<String>,
    /// Time between requests.
    pub interval: Span,
    /// Number of consecutive lost requests that determines how long to wait for answers.
    pub k: u8,
    /// Number of requests per target.
    pub count: Option<u32>,
    /// How long to send requests.
    pub deadline: Option<Span>,
    /// DSCP of requests.
    pub dscp: Option<u8>,
    /// Bytes of UDP payload; the length of the base packet if that is longer.
    pub size: usize,
    /// Restricts the sources that are answered, and the rate of answers.
    pub guard: Guard,
    /// The limits in answers per second.
    pub rates: Rates,
    /// Measurement settings of the compact probe, which the kernel also answers.
    pub config: Config,
    /// Answers have the DSCP of their requests.
    pub echo_dscp: bool,
    /// Output format.
    pub output: Output,
    /// Metrics and scheduling of the process.
    pub(crate) running: Running,
}
