//! A RADIUS client (RFC 2865, 2866, 5080) of a gateway or an anchor of Proxy Mobile IPv6 (RFC 6572): it asks who a host is and
//! whether it may be served, and accounts for what it was served.
//!
//! ```text
//!   gateway ── Access-Request {User-Name, Calling-Station-Id, …} ──► server
//!           ◄── Access-Accept {Mobile-Node-Identifier, anchor, prefixes, Session-Timeout} ──
//!   anchor  ── Access-Request {Authorize-Only, Mobile-Node-Identifier} ──► server
//!   either  ── Accounting-Request {Start, Interim-Update, Stop} ──► server ── Accounting-Response ──►
//! ```
//!
//! An [`Aaa`] is a machine. Who is asked about is named by a key of its driver's. What is sent to servers and comes from them is
//! `exchanges.rs`'s matter; what an accepted host has from then on is `client.rs`'s.

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
