//! Transport models: machines for the two ends of a connection, and one file for each sender variant.
//!
//! ```text
//!   application ── offer ──► Source ── Sender (Core + Recovery of the variant) ──► packets
//!   application ◄─ delivered ─ Sink ── Receiver ──► acknowledgements
//! ```
//!
//! A sender counts windows and numbers in units: whole segments or bytes ([`Counting`]). Segments on the wire
//! always count bytes.

mod agent;
mod config;
mod conservative;
mod control;
pub mod cubic;
mod fack;
mod min_rtt;
mod newreno;
pub mod prr;
pub mod rack;
mod racktlp;
mod receiver;
mod recovery;
mod reno;
pub mod rfc6675;
mod rto;
mod sack;
mod scoreboard;
mod segment;
mod sender;
mod stream;
mod tahoe;
pub mod tlp;
mod vegas;

pub use agent::{Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, TracePoint, WINDOW};
pub use config::{Config, Congestion, Counting, Growth, Halving, Rto, Variant};
pub use receiver::{Acknowledgement, Receiver};
pub use recovery::{Ack, Core, Recovery, Sent, Transmit};
pub use rto::Estimator;
pub use scoreboard::Scoreboard;
pub use segment::{Sack, Segment};
pub use sender::{Input, Sender};
