//! Mistakes made on purpose, one line each, for the fault harness to find: see
//! [`segue_keepalive::planted`], which has the switch.

#[cfg(segue_planted)]
pub use segue_keepalive::planted::choose;
pub(crate) use segue_keepalive::planted::fault;
