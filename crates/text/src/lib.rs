//! What people type and read: numbers with their units ([`units`]), errors in one line
//! ([`errors`]), tables, colours and redrawn lines on a terminal ([`terminal`]).

#![forbid(unsafe_code)]

pub mod errors;
pub mod terminal;
pub mod units;
