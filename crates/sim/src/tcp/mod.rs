//! Transport models: machines for the two ends of a connection, and a file for each variant of the sender.
//!
//! ```text
//!   application ── offer ──► Source ── Sender (Core + Recovery of the variant) ──► packets
//!   application ◄─ delivered ─ Sink ── Receiver ──► acknowledgements
//! ```
//!
//! A sender counts windows and numbers in units: whole segments or bytes ([`Counting`]). Segments on the
//! wire always count bytes.

mod agent;
mod config;
mod fack;
mod newreno;
mod receiver;
mod reno;
mod rto;
mod sack;
mod scoreboard;
mod segment;
mod sender;
mod stream;
mod tahoe;
mod vegas;

use alloc::boxed::Box;

pub use agent::{Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, TracePoint};
pub use config::{Config, Counting, Growth, Halving, Rto, Variant};
pub use receiver::{Acknowledgement, Receiver};
pub use rto::Estimator;
pub use scoreboard::Scoreboard;
pub use segment::{Sack, Segment};
pub use sender::{Ack, Core, Input, Recovery, Sender, Sent, Transmit};

fn recovery(config: &Config) -> Box<dyn Recovery> {
    match config.variant {
        Variant::Tahoe => Box::new(tahoe::Tahoe),
        Variant::Reno => Box::new(reno::Reno::default()),
        Variant::NewReno => Box::new(newreno::NewReno::default()),
        Variant::Sack => Box::new(sack::SackReno::default()),
        Variant::Fack => Box::new(fack::Fack::default()),
        Variant::Vegas => Box::new(vegas::Vegas::default()),
    }
}
