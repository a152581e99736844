//! Neighbour discovery (RFC 4861) and its mobility extensions (RFC 6275): the ICMPv6 messages ([`View`] over bytes,
//! [`Message`] as values), their options ([`NdOption`]; RFC 4861, 4191, 8106, 8781, 6275), and the checks by receivers
//! ([`check()`]).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |     Type      |     Code      |           Checksum            |
//! +---------------+---------------+-------------------------------+
//! ~                     fields of the type                        ~
//! +---------------+---------------+-------------------------------+
//! | Option Type   | Length (by 8) |           ...                 ~
//! +---------------+---------------+-------------------------------+
//! ```

mod check;
mod domain;
mod message;
mod option;
mod view;

pub use check::{Envelope, Refusal, check};
pub use message::{
    Message, NeighborAdvertisementFlags, RouterAdvertisement, RouterAdvertisementFlags,
};
pub use option::{NdOption, Preference, PrefixFlags, PrefixInformation};
pub use view::{
    CHECKSUM_AT, Kind, NEXT_HEADER, OptionView, View, checksum, fill_checksum, verify_checksum,
};

#[cfg(test)]
mod tests;
