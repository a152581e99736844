//! What an answered probe costs on this machine: Table 2 of paper 1, run side by side.
//!
//! One generator sends the same requests to each way of answering them ([`Responder`]), from a SIP
//! server to XDP, over a virtual wire between two network namespaces, all on one processor.
//! [`probes::run`] makes the table, [`probes::sweep`] the curves of paper 2 (Fig. 7 and 8). `docs/bench.md` says what
//! is measured, and how softirqs are charged.
//!
//! [`passage`] stamps numbered packets where they come into a node and where they leave it.
//!
//! Everything needs root. Namespaces are called `segue-bench…` and are removed when a bench ends.

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
