//! Measures the cost of an answered probe on this machine: Table 2 of paper 1, side by side.
//!
//! One generator sends the same requests to each implementation of an answer ([`Responder`]), from a SIP server to XDP.
//! They cross a virtual wire between two network namespaces, all on one processor. [`probes::run`] makes the table,
//! [`probes::sweep`] the curves of paper 2 (Fig. 7 and 8). `docs/measured.md` describes the measurements and the
//! accounting of softirqs.
//!
//! [`passage`] stamps numbered packets where they enter and leave a node.
//!
//! Everything requires root. Namespaces are called `segue-bench…` and are removed when a bench ends.

mod account;
mod error;
mod generator;
pub mod passage;
pub mod probes;
mod protocol;
mod raw;
mod responder;
mod rows;
mod sending;
mod skel;
mod world;

pub use error::BenchError;
pub use responder::Responder;
pub use rows::{Bar, BenchReport, Quantity, RawRow, Row, Sending, Side, Skipped};
