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

/// A message of either side. As bytes: type (1), then the fields in their order, numbers in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A client asks for a lease, or for more time.
    Ask {
        /// Who asks, the same at each of its starts.
        owner: u64,
        /// Of the question: the answer repeats it.
        number: u64,
    },
    /// It has one.
    Grant {
        /// Of the question.
        number: u64,
        /// The address, with the prefix of the pool.
        address: Prefix,
        /// For so long, in whole milliseconds.
        lifetime: Span,
    },
    /// It has none.
    Refuse {
        /// Of the question or the echo.
        number: u64,
        /// Why.
        why: Why,
    },
    /// A client with a lease shows itself.
    Echo {
        /// Who.
        owner: u64,
        /// Of the echo.
        number: u64,
    },
    /// The server has seen the echo.
    Answer {
        /// Of the echo.
        number: u64,
    },
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All addresses are leased.
    PoolFull,
    /// The sender of an echo has no lease.
    NoLease,
}

impl Message {
    /// The bytes of the message.
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

    /// The message that these bytes are; `None` if they are none.
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
