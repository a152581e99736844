//! A RADIUS client (RFC 2865, 2866, 5080) for the gateways and anchors of Proxy Mobile IPv6 (RFC 6572). It
//! authenticates or authorizes hosts, and sends accounting for their sessions.
//!
//! ```text
//!   gateway ── Access-Request {User-Name, Calling-Station-Id, …} ──► server
//!           ◄── Access-Accept {Mobile-Node-Identifier, anchor, prefixes, Session-Timeout} ──
//!   anchor  ── Access-Request {Authorize-Only, Mobile-Node-Identifier} ──► server
//!   either  ── Accounting-Request {Start, Interim-Update, Stop} ──► server ── Accounting-Response ──►
//! ```
//!
//! [`Aaa`] is the machine; the driver chooses a key for each host's interface. `exchanges.rs` handles requests and
//! replies, `client.rs` the sessions of accepted hosts.
//!
//! `segue-node` combines it with the machine of a gateway or an anchor: a wish to identify or authorize a host goes to
//! the client, and its verdict returns as an input.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod config;
mod exchanges;
mod grant;
mod io;
mod news;
mod request;
mod servers;
mod sessions;

pub use client::Aaa;
pub use config::{AaaConfig, AaaProfile, Server, Side, Signed};
pub use grant::Grant;
pub use io::{AaaInput, AaaOutput, AaaWish, Cause, Subject, Verdict, Volume};
pub use news::{AaaReport, Unfit};
pub use servers::{ServerStatus, Service};
