//! Host and anchor together on virtual time.

#[path = "../net/mod.rs"]
mod net;

mod registration;
mod silent_outage;
