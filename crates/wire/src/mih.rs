//! Frames of Media Independent Handover services (IEEE 802.21-2008, 8.4): link events, commands and information between
//! the MIH functions (MIHF) of hosts and networks, over UDP and TCP port [`PORT`] (RFC 5677) or in Ethernet frames.
//!
//! ```text
//! |  Ver  |A|R|U|M|  Fragment   |0|  SID  |Op |        AID        |
//! +-------------------------------+-------------------------------+
//! |   0   |    Transaction ID     |        Payload Length         |
//! +-------------------------------+-------------------------------+
//! |      Type     |    Length     ~    value, then further TLVs   ~
//! ```
//!
//! A [`View`] is a header over bytes; a [`Frame`] holds the content of one, with its payload as [`Tlv`]s. Reading
//! ignores reserved bits and accepts lengths in any form. Emission is canonical, so [`Frame::reencodes`] tells whether
//! a frame was canonical. The standard permits two readings of a BITMAP; the [`Profile`] selects the bit order.
//!
//! The standard's text is not public. Value formats are those of ODTONE, an independent implementation
//! (`inc/odtone/mih/types`), with the type names of ODTONE and of the standard's annex F.

pub mod codes;
mod frame;
pub mod handover;
pub mod identity;
pub mod link;
mod message_id;
mod profile;
pub mod tlv;
mod value;

pub use frame::{Frame, Payload, View};
pub use message_id::{MessageId, Opcode, Service};
pub use profile::{BitOrder, Profile};
pub use tlv::Tlv;
pub use value::OctetString;

/// UDP and TCP port, "ieee-mih" (RFC 5677).
pub const PORT: u16 = 4551;
/// Ethertype of frames on a link (IEEE 802.21-2008).
pub const ETHERTYPE: u16 = 0x8917;
/// Version of the protocol.
pub const VERSION: u8 = 1;
