//! Input and output formats: numbers with units ([`units`]), errors on one line ([`errors`]), tables, colours and
//! redrawn lines on a terminal ([`terminal`]).

#![forbid(unsafe_code)]

pub mod errors;
pub mod terminal;
pub mod units;
