//! The Mobility Header, IPv6 next header 135: messages of Mobile IPv6 (RFC 6275), Proxy Mobile IPv6 (RFC 5213) and
//! their extensions.
//!
//! ```text
//! | Payload Proto |  Header Len   |    MH Type    |   Reserved    |
//! +-------------------------------+-------------------------------+
//! |           Checksum            |   message data, then options  ~
//! ```
//!
//! A [`MobilityHeader`] is a view over bytes; a [`Message`] is a [`Body`] and a list of [`MobilityOption`]s. Reading
//! ignores reserved fields and skips padding. Emission is canonical (see [`padded`](crate::padded)), so a peer's
//! message may be emitted as other bytes; [`Message::reencodes`] tells whether it is. Checksums depend on the addresses
//! and are separate functions. Authenticators are computed elsewhere, over [`authenticated_range`].

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
