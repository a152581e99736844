//! An echo with a lease: the smallest protocol of this project. It has no practical use; it is the template for other
//! protocols, and proves that this much code is enough for one. docs/adding-a-protocol.md explains it file by file.
//!
//! A [`Client`] requests an address from a [`Server`], puts it on its interface, and renews the lease at half its
//! lifetime. While it holds the lease it sends echoes, which the server answers. No two clients ever hold the same
//! address: a client counts the lifetime from its *request*, so that its lease ends before the server's, and a
//! restarted server treats all stored leases as active.
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
mod server;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

pub use client::{Client, ClientConfig, ClientOutput, Order, State};
use segue_clock::Span;
use segue_ip::Prefix;
pub use server::{Lease, Server, ServerConfig, ServerOutput};

/// UDP port of servers and clients.
pub const PORT: u16 = 4_007;

const ASK: u8 = 1;
const GRANT: u8 = 2;
const REFUSE: u8 = 3;
const ECHO: u8 = 4;
const ANSWER: u8 = 5;

/// A message. Encoding: type (1 byte), then the fields in order, numbers in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A client requests or renews a lease.
    Ask {
        /// The client; stays the same when it restarts.
        owner: u64,
        /// Request number, repeated in the answer.
        number: u64,
    },
    /// The server grants a lease.
    Grant {
        /// Number of the request.
        number: u64,
        /// The address, with the prefix length of the pool.
        address: Prefix,
        /// Lifetime; sent as whole milliseconds.
        lifetime: Span,
    },
    /// The server refuses.
    Refuse {
        /// Number of the request or echo.
        number: u64,
        /// The reason.
        why: Why,
    },
    /// A client with a lease reports that it is alive.
    Echo {
        /// The client.
        owner: u64,
        /// Echo number, repeated in the answer.
        number: u64,
    },
    /// The server received an echo.
    Answer {
        /// Number of the echo.
        number: u64,
    },
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All addresses are leased.
    PoolFull,
    /// The sender of an echo has no lease.
    NoLease,
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut head = |kind, number: u64| {
            bytes.push(kind);
            bytes.extend(number.to_be_bytes());
        };
        match *self {
            Message::Ask { owner, number } => {
                head(ASK, number);
                bytes.extend(owner.to_be_bytes());
            }
            Message::Grant { number, address, lifetime } => {
                head(GRANT, number);
                let ms = u32::try_from(lifetime.0 / 1_000_000).unwrap_or(u32::MAX);
                bytes.extend(ms.to_be_bytes());
                let (family, octets) = match address.addr {
                    IpAddr::V4(a) => (4, a.octets().to_vec()),
                    IpAddr::V6(a) => (6, a.octets().to_vec()),
                };
                bytes.extend([family, address.len]);
                bytes.extend(octets);
            }
            Message::Refuse { number, why } => {
                head(REFUSE, number);
                bytes.push(match why {
                    Why::PoolFull => 1,
                    Why::NoLease => 2,
                });
            }
            Message::Echo { owner, number } => {
                head(ECHO, number);
                bytes.extend(owner.to_be_bytes());
            }
            Message::Answer { number } => head(ANSWER, number),
        }
        bytes
    }

    /// Decodes a message; `None` if the bytes are malformed.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let (kind, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        let owner = || Some(u64::from_be_bytes(rest.try_into().ok()?));
        Some(match (*kind, rest) {
            (ASK, _) => Message::Ask { owner: owner()?, number },
            (GRANT, _) => {
                let (ms, rest) = rest.split_first_chunk()?;
                let ([family, len], octets) = rest.split_first_chunk()?;
                let address = prefix(*family, *len, octets)?;
                let lifetime = Span::from_millis(u32::from_be_bytes(*ms).into());
                Message::Grant { number, address, lifetime }
            }
            (REFUSE, [1]) => Message::Refuse { number, why: Why::PoolFull },
            (REFUSE, [2]) => Message::Refuse { number, why: Why::NoLease },
            (ECHO, _) => Message::Echo { owner: owner()?, number },
            (ANSWER, []) => Message::Answer { number },
            _ => return None,
        })
    }
}

fn prefix(family: u8, len: u8, octets: &[u8]) -> Option<Prefix> {
    let (address, width) = match family {
        4 => (IpAddr::from(<[u8; 4]>::try_from(octets).ok()?), 32),
        6 => (IpAddr::from(<[u8; 16]>::try_from(octets).ok()?), 128),
        _ => return None,
    };
    (len <= width).then(|| Prefix::new(address, len))
}

/// A report of a client or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A client obtained a lease.
    Leased {
        /// The client.
        owner: u64,
        /// The address.
        address: Prefix,
    },
    /// A lease ended.
    Ended {
        /// The client.
        owner: u64,
        /// The address.
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
    /// Not a valid message.
    Malformed,
    /// Not from the server, or a message type that only the other side receives.
    Stranger,
    /// Does not answer a pending request.
    Stale,
    /// An echo from a client without a lease.
    NoLease,
    /// All addresses are leased.
    PoolFull,
}

impl Refusal {
    /// Its name in metrics.
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

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let address = prop_oneof![
            any::<u32>().prop_map(|a| Ipv4Addr::from(a).into()),
            any::<u128>().prop_map(|a| IpAddr::from(Ipv6Addr::from(a)))
        ];
        let grant = (any::<u64>(), address, any::<u8>(), any::<u32>()).prop_map(
            |(number, address, len, ms)| {
                let lifetime = Span::from_millis(ms.into());
                Message::Grant { number, address: Prefix::new(address, len), lifetime }
            },
        );
        prop_oneof![
            (any::<u64>(), any::<u64>()).prop_map(|(owner, number)| Message::Ask { owner, number }),
            grant,
            (any::<u64>(), prop_oneof![Just(Why::PoolFull), Just(Why::NoLease)])
                .prop_map(|(number, why)| Message::Refuse { number, why }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(owner, number)| Message::Echo { owner, number }),
            any::<u64>().prop_map(|number| Message::Answer { number }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read_and_nothing_shorter_or_longer(message in message()) {
            let mut bytes = message.emit();
            prop_assert_eq!(Message::parse(&bytes), Some(message));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Message::parse(&bytes[..cut]), None, "cut at {}", cut);
            }
            bytes.push(0);
            prop_assert_eq!(Message::parse(&bytes), None);
        }

        #[test]
        fn any_bytes_are_a_message_that_goes_back_to_them_or_none(bytes: Vec<u8>) {
            if let Some(message) = Message::parse(&bytes) {
                prop_assert_eq!(message.emit(), bytes);
            }
        }
    }
}
