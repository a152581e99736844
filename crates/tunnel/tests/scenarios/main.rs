//! Host and anchor together, on virtual time.

#![expect(clippy::unwrap_used, reason = "the network of the tests may panic")]

mod adaptive;
mod agreement;
mod hostile_peers;
mod interfaces;
mod lifetimes;
mod one_direction;
mod planned;
mod random_walk;
mod refusals;
mod registration;
mod reinject;
mod returns;
mod rides;
mod silent_outage;
mod sizes;
mod sources;
mod stage;
mod translators;
