//! What the two ends have in common: the options that do not depend on the protocol.

use segue_clock::Span;
use segue_keepalive::Config;

use crate::guard::{Guard, Rates};
use crate::running::Running;
use crate::screen::Output;

/// The other options, in STAMP's terms.
pub struct Common<'a> {
    /// Send over this interface, or answer there.
    pub interface: Option<&'a str>,
    /// Text of the key file.
    pub key: Option<String>,
    /// Time between requests.
    pub interval: Span,
    /// Number of successive lost requests after which no answer is awaited.
    pub k: u8,
    /// Requests for each target.
    pub count: Option<u32>,
    /// How long to send.
    pub deadline: Option<Span>,
    /// DSCP of requests.
    pub dscp: Option<u8>,
    /// Bytes of UDP payload; the base packet's length if it is not longer.
    pub size: usize,
    /// Limits which sources get answers, and how many.
    pub guard: Guard,
    /// Answers in a second.
    pub rates: Rates,
    /// Settings of the compact probe's measurements, which the kernel also answers.
    pub config: Config,
    /// Answers have the DSCP of their requests.
    pub echo_dscp: bool,
    /// How to print.
    pub output: Output,
    /// The process around it.
    pub(crate) running: Running,
}
