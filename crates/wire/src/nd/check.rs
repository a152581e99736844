//! Checks that a receiver must apply before it acts on a message (RFC 4861, 6.1, 7.1 and 8.1; RFC 6275, 6.5 to 6.8).

use core::fmt;
use core::net::Ipv6Addr;

use super::message::{Message, NeighborAdvertisementFlags};
use super::option::NdOption;
use super::view::{View, verify_checksum};
use crate::WireError;

/// The fields of the IPv6 header that the checks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Source. With a Home Address option, the home address.
    pub source: Ipv6Addr,
    /// Destination. With a type 2 routing header, the home address.
    pub destination: Ipv6Addr,
    /// Hop limit on arrival.
    pub hop_limit: u8,
}

/// Why a message is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not parse.
    Malformed(WireError),
    /// The hop limit shows that it may come from another link.
    HopLimit {
        /// Hop limit on arrival; must be 255.
        got: u8,
    },
    /// The checksum is wrong.
    Checksum {
        /// The value in the message.
        got: u16,
    },
    /// The code is not zero.
    Code {
        /// The value in the message.
        got: u8,
    },
    /// An address field has an invalid value.
    Address {
        /// Name of the field.
        field: &'static str,
        /// The value in the message.
        got: Ipv6Addr,
    },
    /// A source link-layer address option from an unspecified source address.
    SourceLinkLayerAddress,
    /// The solicited flag (S) in a message to a multicast address.
    Solicited,
}

/// Reads a message that a receiver may act on.
///
/// # Errors
/// The first [`Refusal`] that applies.
pub fn check(bytes: &[u8], envelope: &Envelope) -> Result<Message, Refusal> {
    let Envelope { source, destination, hop_limit } = *envelope;
    let view = View::new(bytes).map_err(Refusal::Malformed)?;
    if view.kind().is_of_the_link() && hop_limit != 255 {
        return Err(Refusal::HopLimit { got: hop_limit });
    }
    if !verify_checksum(source, destination, bytes) {
        return Err(Refusal::Checksum { got: view.checksum() });
    }
    if view.code() != 0 {
        return Err(Refusal::Code { got: view.code() });
    }
    let message = Message::parse(bytes).map_err(Refusal::Malformed)?;
    check_addresses(&message, source, destination)?;
    Ok(message)
}

fn check_addresses(
    message: &Message,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Result<(), Refusal> {
    let wrong = |field, got| Err(Refusal::Address { field, got });
    let is_link_local = |address: &Ipv6Addr| address.is_unicast_link_local();
    let told_by_nobody = source.is_unspecified()
        && message
            .options()
            .iter()
            .any(|option| matches!(option, NdOption::SourceLinkLayerAddress { .. }));
    match message {
        Message::RouterSolicitation { .. } if told_by_nobody => {
            Err(Refusal::SourceLinkLayerAddress)
        }
        Message::RouterAdvertisement(_) | Message::Redirect { .. } if !is_link_local(&source) => {
            wrong("source", source)
        }
        Message::NeighborSolicitation { target_address, .. }
        | Message::NeighborAdvertisement { target_address, .. }
            if target_address.is_multicast() =>
        {
            wrong("target_address", *target_address)
        }
        Message::NeighborSolicitation { .. }
            if source.is_unspecified() && !is_solicited_node(destination) =>
        {
            wrong("destination", destination)
        }
        Message::NeighborSolicitation { .. } if told_by_nobody => {
            Err(Refusal::SourceLinkLayerAddress)
        }
        Message::NeighborAdvertisement { flags, .. }
            if flags.contains(NeighborAdvertisementFlags::SOLICITED)
                && destination.is_multicast() =>
        {
            Err(Refusal::Solicited)
        }
        Message::Redirect { destination_address, .. } if destination_address.is_multicast() => {
            wrong("destination_address", *destination_address)
        }
        Message::Redirect { target_address, destination_address, .. }
            if !is_link_local(target_address) && target_address != destination_address =>
        {
            wrong("target_address", *target_address)
        }
        _ => Ok(()),
    }
}

/// Returns whether the address is in ff02::1:ff00:0/104.
fn is_solicited_node(address: Ipv6Addr) -> bool {
    address.octets()[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(error) => error.fmt(f),
            Refusal::HopLimit { got } => write!(f, "hop limit {got}, must be 255"),
            Refusal::Checksum { got } => write!(f, "checksum {got:#06x} is wrong"),
            Refusal::Code { got } => write!(f, "code {got}, must be 0"),
            Refusal::Address { field, got } => write!(f, "field {field} holds {got}"),
            Refusal::SourceLinkLayerAddress => {
                write!(f, "source link-layer address from the unspecified address")
            }
            Refusal::Solicited => write!(f, "solicited flag to a multicast address"),
        }
    }
}

impl core::error::Error for Refusal {}
