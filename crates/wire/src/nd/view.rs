//! A view over a message, with its lengths checked once.

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::WireError;
use crate::checksum::Ipv6Checksum;

/// Next header value of ICMPv6.
pub const NEXT_HEADER: u8 = 58;
/// Position of the checksum.
pub const CHECKSUM_AT: Range<usize> = 2..4;
const CHECKSUM: Ipv6Checksum = Ipv6Checksum { next_header: NEXT_HEADER, at: CHECKSUM_AT };

/// Types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// RFC 4861, 4.1.
    RouterSolicitation = 133,
    /// RFC 4861, 4.2.
    RouterAdvertisement = 134,
    /// RFC 4861, 4.3.
    NeighborSolicitation = 135,
    /// RFC 4861, 4.4.
    NeighborAdvertisement = 136,
    /// RFC 4861, 4.5.
    Redirect = 137,
    /// RFC 6275, 6.5.
    HomeAgentAddressDiscoveryRequest = 144,
    /// RFC 6275, 6.6.
    HomeAgentAddressDiscoveryReply = 145,
    /// RFC 6275, 6.7.
    MobilePrefixSolicitation = 146,
    /// RFC 6275, 6.8.
    MobilePrefixAdvertisement = 147,
}

impl Kind {
    /// The kind of an ICMPv6 type, if it is one of these.
    #[must_use]
    pub fn of(icmp_type: u8) -> Option<Kind> {
        Some(match icmp_type {
            133 => Kind::RouterSolicitation,
            134 => Kind::RouterAdvertisement,
            135 => Kind::NeighborSolicitation,
            136 => Kind::NeighborAdvertisement,
            137 => Kind::Redirect,
            144 => Kind::HomeAgentAddressDiscoveryRequest,
            145 => Kind::HomeAgentAddressDiscoveryReply,
            146 => Kind::MobilePrefixSolicitation,
            147 => Kind::MobilePrefixAdvertisement,
            _ => return None,
        })
    }

    /// The RFC's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::RouterSolicitation => "Router Solicitation",
            Kind::RouterAdvertisement => "Router Advertisement",
            Kind::NeighborSolicitation => "Neighbor Solicitation",
            Kind::NeighborAdvertisement => "Neighbor Advertisement",
            Kind::Redirect => "Redirect",
            Kind::HomeAgentAddressDiscoveryRequest => "Home Agent Address Discovery Request",
            Kind::HomeAgentAddressDiscoveryReply => "Home Agent Address Discovery Reply",
            Kind::MobilePrefixSolicitation => "Mobile Prefix Solicitation",
            Kind::MobilePrefixAdvertisement => "Mobile Prefix Advertisement",
        }
    }

    /// Returns whether it belongs to neighbour discovery, whose messages never leave their link.
    #[must_use]
    pub fn is_of_the_link(self) -> bool {
        (self as u8) < 144
    }

    /// Length in bytes of the part before the options, or before the addresses of a reply.
    pub(super) fn fixed_len(self) -> usize {
        match self {
            Kind::RouterAdvertisement => 16,
            Kind::NeighborSolicitation | Kind::NeighborAdvertisement => 24,
            Kind::Redirect => 40,
            _ => 8,
        }
    }

    pub(super) fn has_options(self) -> bool {
        let discovery =
            [Kind::HomeAgentAddressDiscoveryRequest, Kind::HomeAgentAddressDiscoveryReply];
        !discovery.contains(&self)
    }
}

/// A message of a known type with a complete fixed part, and options that fill the rest exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses an ICMPv6 message from its type on.
    ///
    /// # Errors
    /// [`WireError::Type`] for another type; [`WireError::TooShort`] for a truncated message or option;
    /// [`WireError::Field`] for an option of length zero.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let view = View::fixed(bytes)?;
        match view.cut_option() {
            Some((_, error)) => Err(error),
            None => Ok(view),
        }
    }

    /// Parses only the fixed part.
    ///
    /// # Errors
    /// [`WireError::Type`] and [`WireError::TooShort`], like [`View::new`].
    pub(super) fn fixed(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let Some(icmp_type) = bytes.first() else {
            return Err(WireError::TooShort { what: "ICMPv6", got: 0, min: 4 });
        };
        let kind = Kind::of(*icmp_type).ok_or(WireError::Type { got: *icmp_type })?;
        let (got, min) = (bytes.len(), kind.fixed_len());
        if got < min {
            return Err(WireError::TooShort { what: kind.name(), got, min });
        }
        Ok(View { kind, bytes })
    }

    /// The first option that is truncated or has length zero, and the error. Options end there.
    pub(super) fn cut_option(&self) -> Option<(OptionView<'a>, WireError)> {
        let mut rest = if self.kind.has_options() { self.rest() } else { &[] };
        while let [kind, data @ ..] = rest {
            match OptionView::split(rest) {
                Ok((_, behind)) => rest = behind,
                Err(error) => {
                    let data = data.get(1..).unwrap_or_default();
                    return Some((OptionView { kind: *kind, data }, error));
                }
            }
        }
        None
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its code, zero in valid messages of these types.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.bytes[1]
    }

    /// The checksum as received; see [`verify_checksum`].
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    /// Its options in order; empty for types without options.
    pub fn options(&self) -> impl Iterator<Item = OptionView<'a>> + use<'a> {
        let rest = if self.kind.has_options() { self.rest() } else { &[] };
        OptionView::all(rest)
    }

    /// The bytes behind the fixed part.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.kind.fixed_len()..]
    }
}

/// A complete option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionView<'a> {
    /// Its type.
    pub kind: u8,
    /// The bytes behind type and length; their number is 6 + 8n.
    pub data: &'a [u8],
}

impl<'a> OptionView<'a> {
    /// The options in `bytes`, up to the first that is truncated or has length zero.
    pub fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = OptionView<'a>> + use<'a> {
        core::iter::from_fn(move || {
            let (option, behind) = OptionView::split(bytes).ok()?;
            bytes = behind;
            Some(option)
        })
    }

    /// Splits off the first option. Refuses a length of zero, which would cause an endless loop.
    fn split(bytes: &'a [u8]) -> Result<(OptionView<'a>, &'a [u8]), WireError> {
        let short = |min| WireError::TooShort { what: "option", got: bytes.len(), min };
        let [kind, length, ..] = *bytes else { return Err(short(8)) };
        let end = usize::from(length) * 8;
        if end == 0 {
            return Err(WireError::Field { field: "option length", got: 0 });
        }
        let (option, rest) = bytes.split_at_checked(end).ok_or(short(end))?;
        Ok((OptionView { kind, data: &option[2..] }, rest))
    }
}

/// The checksum of a message, regardless of the present content of its field. `source` is the address in a Home Address
/// option if the packet has one, `destination` the address in a type 2 routing header if it has one.
#[must_use]
pub fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    CHECKSUM.of(source, destination, message)
}

/// Returns whether a message has the right [`checksum`].
#[must_use]
pub fn verify_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> bool {
    CHECKSUM.is_right(source, destination, message)
}

/// Writes the [`checksum`] into a message.
pub fn fill_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    CHECKSUM.fill(source, destination, message);
}
