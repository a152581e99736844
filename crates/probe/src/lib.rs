//! Measurement without tunnels and without root, as `segue probe` offers it ([`Args`], [`run`]); the STAMP reflector
//! that an anchor runs too ([`stamp`]); and metrics for Prometheus ([`metrics`]).
//!
//! The client (`client`) sends the same keepalive requests as a tunnel's path, and the listener (`listen`) answers
//! them; two peers (`peer`) agree on their roles. The packets are those of `segue_wire::probe`. A tunnel obtains its
//! index and cookie by registration. Here, the client draws both at random for each target and run, and the listener
//! repeats them. They identify the measurement session: a restarted client is a new session, but a client with a new
//! address is not.

#![forbid(unsafe_code)]

mod addresses;
mod args;
mod client;
mod device;
mod dscp;
mod endpoint;
mod guard;
mod icmp;
mod ipdv;
mod listen;
pub mod metrics;
mod opening;
mod peer;
mod refusals;
mod running;
mod samples;
mod screen;
mod secrets;
mod session;
pub mod stamp;
pub mod target;

pub use args::{Args, run};
pub use secrets::{parse_key, read_secret};
