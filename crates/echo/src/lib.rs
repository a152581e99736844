//! An echo with a lease: the smallest protocol of this project. It serves nobody; it is the pattern for others, and the
//! test that a protocol needs no more than this (docs/adding-a-protocol.md goes through it file by file).
//!
//! A [`Client`] asks a [`Server`] for an address, puts it on its interface, and renews the lease at half its time. While
//! it has the lease it sends echoes, which the server answers. No two clients ever have the same address: a client
//! counts its lease from when it *asked*, so that it ends before the server's, and a server that starts anew takes what
//! it has stored for leased.
//!
//! ```text
//!   client ── Ask {owner, number} ──► server          at once, then every second; at half the lease's time
//!          ◄── Grant {number, address, lifetime} ──   the record is on disk before this leaves
//!          ◄── Refuse {number, why} ──                the pool is full, or there is no lease
//!          ── Echo {owner, number} ──►                every period, while it has a lease
//!          ◄── Answer {number} ──
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod message;
mod server;

use alloc::collections::BTreeMap;
use core::fmt;

pub use client::{Client, ClientConfig, ClientOutput, Order, State};
pub use message::{Message, Why};
use segue_ip::Prefix;
pub use server::{Lease, Server, ServerConfig, ServerOutput};

/// UDP port of servers and clients.
pub const PORT: u16 = 4_007;

/// News of a client or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A client has this address; at a server, this owner has it.
    Leased {
        /// Who.
        owner: u64,
        /// What.
        address: Prefix,
    },
    /// It does not have it any more.
    Ended {
        /// Who.
        owner: u64,
        /// What.
        address: Prefix,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Leased { owner, address } => write!(f, "{address} is leased to {owner}"),
            Report::Ended { owner, address } => write!(f, "{owner}'s lease of {address} has ended"),
        }
    }
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is no message.
    Malformed,
    /// It is not from the server, or a message that only the other side takes.
    Stranger,
    /// It answers no question that is open.
    Stale,
    /// An echo of a client without a lease.
    NoLease,
    /// All addresses are leased.
    PoolFull,
}

impl Refusal {
    /// Its name in counts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Stranger => "stranger",
            Refusal::Stale => "stale",
            Refusal::NoLease => "no_lease",
            Refusal::PoolFull => "pool_full",
        }
    }
}

/// Refused datagrams by reason.
pub type Refused = BTreeMap<Refusal, u64>;
