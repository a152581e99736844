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
mod conservative;
mod control;
pub mod cubic;
mod fack;
mod newreno;
pub mod prr;
pub mod rack;
mod racktlp;
mod receiver;
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

use alloc::boxed::Box;

pub use agent::{Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, TracePoint};
pub use config::{Config, Congestion, Counting, Growth, Halving, Rto, Variant};
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
        Variant::Sack if config.scoreboard => Box::new(conservative::Conservative::new(config)),
        Variant::Sack => Box::new(sack::SackReno::default()),
        Variant::Fack => Box::new(fack::Fack::default()),
        Variant::Vegas => Box::new(vegas::Vegas::default()),
        Variant::Cubic => Box::new(conservative::Conservative::new(config)),
        Variant::Rack => Box::new(racktlp::RackTlp::new(config)),
    }
}
