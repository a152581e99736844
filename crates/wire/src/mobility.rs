//! The Mobility Header, IPv6 next header 135: messages of Mobile IPv6 (RFC 6275), Proxy Mobile IPv6 (RFC 5213) and what
//! extends them.
//!
//! ```text
//! | Payload Proto |  Header Len   |    MH Type    |   Reserved    |
//! +-------------------------------+-------------------------------+
//! |           Checksum            |   message data, then options  ~
//! ```
//!
//! A [`MobilityHeader`] is a view over bytes, a [`Message`] is a [`Body`] and a list of [`MobilityOption`]s. Reading
//! ignores reserved fields and skips padding; emission is canonical ([`padded`](crate::padded) says how), so that what
//! a peer sent need not come out as the same bytes: [`Message::reencodes`] tells whether it does. Checksums take the
//! addresses and are functions of their own, authenticators are computed elsewhere over
//! [`authenticated_range`].

pub mod body;
mod codes;
mod header;
mod message;
pub mod option;
mod profile;
mod selector;

pub use body::Body;
pub use codes::*;
pub use header::{
    CHECKSUM_AT, MobilityHeader, NEXT_HEADER, authenticated_range, checksum, fill_checksum,
    verify_checksum,
};
pub use message::Message;
pub use option::MobilityOption;
pub use profile::Profile;
pub use selector::{Family, Span, TrafficSelector};
