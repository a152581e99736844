//! IPv6 extension headers (RFC 8200, section 4) as needed for mobility: a walk through a packet's headers, the Home
//! Address option and the type 2 routing header (RFC 6275, 6.3 and 6.4).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire, hex};
use crate::padded::{Alignment, RawOption, RawOptions, pad_to, push};

/// Next header: Hop-by-Hop Options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: Routing.
pub const ROUTING: u8 = 43;
/// Next header: Fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: Authentication Header.
pub const AUTHENTICATION: u8 = 51;
/// Next header: Destination Options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Length of the IPv6 header in bytes.
pub const IPV6_LEN: usize = 40;
/// Maximum number of headers in a packet; packets with more are refused.
pub const MAX_HEADERS: usize = 16;

const HOME_ADDRESS: u8 = 201;
const TUNNEL_ENCAPSULATION_LIMIT: u8 = 4;

/// The result of a walk through a packet's extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Source of the IPv6 header.
    pub source: Ipv6Addr,
    /// Destination of the IPv6 header.
    pub destination: Ipv6Addr,
    /// Address in the Home Address option.
    pub home_address: Option<Ipv6Addr>,
    /// Address in the type 2 routing header.
    pub routing_home_address: Option<Ipv6Addr>,
    /// True if the packet has an atomic fragment's header. The packet is whole, but receivers must ignore neighbour
    /// discovery messages in it (RFC 6946; RFC 6980, 5).
    pub is_atomic_fragment: bool,
    /// Type of the content at `payload`: a protocol, or the header at which the walk stopped ([`FRAGMENT`], ESP).
    pub next_header: u8,
    /// Offset of the payload.
    pub payload_at: usize,
    /// End of the payload. Later bytes do not belong to the packet.
    pub payload_end: usize,
}

impl Chain {
    /// Walks through the headers of a packet that starts with its IPv6 header.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if the packet is shorter than it states; [`WireError::Version`]; [`WireError::Length`]
    /// and [`WireError::Field`] for errors in headers that mobility uses, for a second such header, and for more than
    /// [`MAX_HEADERS`] headers.
    pub fn parse(packet: &[u8]) -> Result<Chain, WireError> {
        let headers = Headers::new(packet)?;
        let mut chain = headers.chain;
        for header in headers {
            let (at, header) = header?;
            let bytes = &packet[at..];
            match header {
                Header::Destination(options) => {
                    for option in options {
                        let DestinationOption::HomeAddress { home_address } =
                            DestinationOption::read(&option?)?
                        else {
                            continue;
                        };
                        once("Home Address options", &mut chain.home_address, home_address)?;
                    }
                }
                Header::Routing { routing_type: Type2RoutingHeader::ROUTING_TYPE, .. } => {
                    let header = Type2RoutingHeader::parse(bytes)?;
                    let home_address = header.home_address;
                    let field = &mut chain.routing_home_address;
                    once("type 2 routing headers", field, home_address)?;
                }
                Header::AtomicFragment => chain.is_atomic_fragment = true,
                Header::HopByHop(_) | Header::Routing { .. } | Header::Authentication => {}
                Header::Payload { next_header } => {
                    (chain.next_header, chain.payload_at) = (next_header, at);
                }
            }
        }
        Ok(chain)
    }

    /// The payload of `packet`, which must be the packet that was walked.
    #[must_use]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet.get(self.payload_at..self.payload_end).unwrap_or_default()
    }

    /// The source address for upper-layer checksums: the home address, if there is one.
    #[must_use]
    pub fn checksum_source(&self) -> Ipv6Addr {
        self.home_address.unwrap_or(self.source)
    }

    /// The destination address for upper-layer checksums.
    #[must_use]
    pub fn checksum_destination(&self) -> Ipv6Addr {
        self.routing_home_address.unwrap_or(self.destination)
    }
}

fn once(
    field: &'static str,
    slot: &mut Option<Ipv6Addr>,
    address: Ipv6Addr,
) -> Result<(), WireError> {
    match slot.replace(address) {
        None => Ok(()),
        Some(_) => Err(WireError::Field { field, got: 2 }),
    }
}

/// A header of a packet.
#[derive(Clone, Debug)]
pub enum Header<'a> {
    /// Hop-by-Hop Options.
    HopByHop(RawOptions<'a>),
    /// Destination Options.
    Destination(RawOptions<'a>),
    /// Routing.
    Routing {
        /// Routing Type, 2 for Mobile IPv6.
        routing_type: u8,
        /// Segments Left.
        segments_left: u8,
    },
    /// Fragment, of a packet that is whole (RFC 6946).
    AtomicFragment,
    /// Authentication Header (RFC 4302).
    Authentication,
    /// The end of the walk: the upper layer, or a header that is not parsed.
    Payload {
        /// Its type.
        next_header: u8,
    },
}

/// An iterator over the headers behind an IPv6 header, with the offset of each in the packet. The last item is
/// [`Header::Payload`], unless there was an error.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    packet: &'a [u8],
    chain: Chain,
    left: usize,
}

impl<'a> Headers<'a> {
    /// Starts at the IPv6 header.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Version`].
    pub fn new(packet: &'a [u8]) -> Result<Headers<'a>, WireError> {
        let mut reader = Reader::new("IPv6 packet", packet, 0);
        let [first, ..] = <[u8; 4]>::read(&mut reader)?;
        if first >> 4 != 6 {
            return Err(WireError::Version { got: first >> 4 });
        }
        let payload_len = u16::read(&mut reader)?;
        let [next_header, _] = <[u8; 2]>::read(&mut reader)?;
        let source = Ipv6Addr::read(&mut reader)?;
        let destination = Ipv6Addr::read(&mut reader)?;
        reader.take(payload_len.into())?;
        let payload_end = IPV6_LEN + usize::from(payload_len);
        let chain = Chain {
            source,
            destination,
            home_address: None,
            routing_home_address: None,
            is_atomic_fragment: false,
            next_header,
            payload_at: IPV6_LEN,
            payload_end,
        };
        Ok(Headers { packet: &packet[..payload_end], chain, left: MAX_HEADERS + 1 })
    }

    fn header(&mut self) -> Result<(usize, Header<'a>), WireError> {
        let at = self.chain.payload_at;
        let next_header = self.chain.next_header;
        let is_part = next_header == FRAGMENT && !is_atomic(&self.packet[at..]);
        let what = if is_part { "" } else { name(next_header) };
        if what.is_empty() {
            self.left = 0;
            return Ok((at, Header::Payload { next_header }));
        }
        if self.left == 0 {
            return Err(WireError::Field {
                field: "extension headers",
                got: MAX_HEADERS as u32 + 1,
            });
        }
        let mut reader = Reader::new(what, &self.packet[at..], 0);
        let [next, length] = <[u8; 2]>::read(&mut reader)?;
        let data = reader.take(match next_header {
            FRAGMENT => 6,
            AUTHENTICATION => usize::from(length) * 4 + 6,
            _ => usize::from(length) * 8 + 6,
        })?;
        self.chain.next_header = next;
        self.chain.payload_at = at + reader.at();
        Ok((
            at,
            match next_header {
                HOP_BY_HOP => Header::HopByHop(RawOptions::new(what, data)),
                DESTINATION_OPTIONS => Header::Destination(RawOptions::new(what, data)),
                FRAGMENT => Header::AtomicFragment,
                AUTHENTICATION => Header::Authentication,
                _ => Header::Routing { routing_type: data[0], segments_left: data[1] },
            },
        ))
    }
}

/// The name of a header that the walk passes; empty for any other.
fn name(next_header: u8) -> &'static str {
    match next_header {
        HOP_BY_HOP => "Hop-by-Hop Options",
        ROUTING => "Routing Header",
        DESTINATION_OPTIONS => "Destination Options",
        FRAGMENT => "Fragment Header",
        AUTHENTICATION => "Authentication Header",
        _ => "",
    }
}

/// Returns whether a Fragment header belongs to a whole packet: offset and M flag are zero.
fn is_atomic(header: &[u8]) -> bool {
    matches!(header, [_, _, 0, low, ..] if low & !0b110 == 0)
}

impl<'a> Iterator for Headers<'a> {
    type Item = Result<(usize, Header<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let header = self.header();
        if header.is_err() {
            self.left = 0;
        }
        Some(header)
    }
}

/// An option in a Destination Options header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "option", rename_all = "snake_case")]
pub enum DestinationOption {
    /// Home Address (201; RFC 6275, 6.3).
    HomeAddress {
        /// The mobile node's home address.
        home_address: Ipv6Addr,
    },
    /// Tunnel Encapsulation Limit (4; RFC 2473, 4.1.1), added by the kernel's tunnels.
    TunnelEncapsulationLimit {
        /// Number of tunnels that may be nested in this one.
        limit: u8,
    },
    /// Any other option.
    Unknown {
        /// Its type.
        #[serde(rename = "type")]
        kind: u8,
        /// The option's data.
        #[serde(serialize_with = "hex")]
        data: Vec<u8>,
    },
}

impl DestinationOption {
    /// Reads an option.
    ///
    /// # Errors
    /// [`WireError::TooShort`] and [`WireError::Length`], with the option's name.
    pub fn read(raw: &RawOption<'_>) -> Result<DestinationOption, WireError> {
        let (what, _) = DestinationOption::format(raw.kind);
        let mut reader = Reader::new(what, raw.data, 0);
        let option = match raw.kind {
            HOME_ADDRESS => {
                DestinationOption::HomeAddress { home_address: Wire::read(&mut reader)? }
            }
            TUNNEL_ENCAPSULATION_LIMIT => {
                DestinationOption::TunnelEncapsulationLimit { limit: Wire::read(&mut reader)? }
            }
            kind => DestinationOption::Unknown { kind, data: Wire::read(&mut reader)? },
        };
        reader.end()?;
        Ok(option)
    }

    /// The name and alignment of an option type.
    fn format(kind: u8) -> (&'static str, Alignment) {
        match kind {
            HOME_ADDRESS => ("Home Address", Alignment::At { n: 8, offset: 6 }),
            TUNNEL_ENCAPSULATION_LIMIT => ("Tunnel Encapsulation Limit", Alignment::None),
            _ => ("Destination Option", Alignment::None),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut data = Vec::with_capacity(16);
        let kind = match self {
            DestinationOption::HomeAddress { home_address } => {
                home_address.write(&mut data);
                HOME_ADDRESS
            }
            DestinationOption::TunnelEncapsulationLimit { limit } => {
                limit.write(&mut data);
                TUNNEL_ENCAPSULATION_LIMIT
            }
            DestinationOption::Unknown { kind, data: raw } => {
                raw.write(&mut data);
                *kind
            }
        };
        let (what, align) = DestinationOption::format(kind);
        push(out, what, kind, align, &data)
    }
}

/// A Destination Options header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestinationOptions {
    /// Type of the following header.
    pub next_header: u8,
    /// The options without padding.
    pub options: Vec<DestinationOption>,
}

impl DestinationOptions {
    /// The header of a packet that a mobile node sends away from home.
    #[must_use]
    pub fn home_address(next_header: u8, home_address: Ipv6Addr) -> DestinationOptions {
        let option = DestinationOption::HomeAddress { home_address };
        DestinationOptions { next_header, options: Vec::from([option]) }
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`WireError::TooShort`] and [`WireError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<DestinationOptions, WireError> {
        let what = name(DESTINATION_OPTIONS);
        let mut reader = Reader::new(what, bytes, 0);
        let [next_header, length] = Wire::read(&mut reader)?;
        let data = reader.take(usize::from(length) * 8 + 6)?;
        let options = RawOptions::new(what, data);
        let options =
            options.map(|raw| DestinationOption::read(&raw?)).collect::<Result<_, _>>()?;
        Ok(DestinationOptions { next_header, options })
    }

    /// The header's bytes.
    ///
    /// # Errors
    /// [`WireError::Length`] if an option or the header exceeds its length field.
    pub fn emit(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::from([self.next_header, 0]);
        for option in &self.options {
            option.emit(&mut out)?;
        }
        pad_to(&mut out, 8);
        let too_long = WireError::Length { what: name(DESTINATION_OPTIONS), got: out.len() };
        out[1] = u8::try_from(out.len() / 8 - 1).map_err(|_| too_long)?;
        Ok(out)
    }
}

/// The type 2 routing header (RFC 6275, 6.4).
///
/// ```text
/// |  Next Header  | Hdr Ext Len=2 | Routing Type=2|Segments Left=1|
/// |                            Reserved                           |
/// ~                         Home Address                          ~
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Type2RoutingHeader {
    /// Type of the following header.
    pub next_header: u8,
    /// Final destination of the packet.
    pub home_address: Ipv6Addr,
}

impl Type2RoutingHeader {
    /// Length in bytes.
    pub const LEN: usize = 24;
    const ROUTING_TYPE: u8 = 2;

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`WireError::TooShort`]; [`WireError::Field`] for a length other than 2, another type, or Segments Left other
    /// than 1.
    pub fn parse(bytes: &[u8]) -> Result<Type2RoutingHeader, WireError> {
        let mut reader = Reader::new("type 2 routing header", bytes, 0);
        let [next_header, length, routing_type, segments_left] = Wire::read(&mut reader)?;
        let fields = [
            ("Hdr Ext Len", length, 2),
            ("Routing Type", routing_type, Type2RoutingHeader::ROUTING_TYPE),
            ("Segments Left", segments_left, 1),
        ];
        for (field, got, right) in fields {
            if got != right {
                return Err(WireError::Field { field, got: got.into() });
            }
        }
        reader.take(4)?;
        Ok(Type2RoutingHeader { next_header, home_address: Wire::read(&mut reader)? })
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Type2RoutingHeader::LEN] {
        let mut bytes = [0; Type2RoutingHeader::LEN];
        bytes[..4].copy_from_slice(&[self.next_header, 2, Type2RoutingHeader::ROUTING_TYPE, 1]);
        bytes[8..].copy_from_slice(&self.home_address.octets());
        bytes
    }
}
