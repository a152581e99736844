//! Neighbour discovery messages as values.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::Serialize;

use super::option::{NdOption, Preference, address};
use super::view::{Kind, View, fill_checksum};
use crate::WireError;
use crate::layout::flags;

/// A message. Reserved fields are written as zeros. Reading drops the code and reserved fields, but keeps reserved
/// flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// Type 133 (RFC 4861, 4.1).
    RouterSolicitation {
        /// Options in order.
        options: Vec<NdOption>,
    },
    /// Type 134.
    RouterAdvertisement(RouterAdvertisement),
    /// Type 135 (RFC 4861, 4.3).
    NeighborSolicitation {
        /// The address to resolve.
        target_address: Ipv6Addr,
        /// Options in order.
        options: Vec<NdOption>,
    },
    /// Type 136 (RFC 4861, 4.4).
    NeighborAdvertisement {
        /// Router, solicited and override flags.
        flags: NeighborAdvertisementFlags,
        /// The address that is resolved.
        target_address: Ipv6Addr,
        /// Options in order.
        options: Vec<NdOption>,
    },
    /// Type 137 (RFC 4861, 4.5).
    Redirect {
        /// The better first hop, or the destination itself if it is a neighbour.
        target_address: Ipv6Addr,
        /// The redirected destination.
        destination_address: Ipv6Addr,
        /// Options in order.
        options: Vec<NdOption>,
    },
    /// Type 144 (RFC 6275, 6.5).
    HomeAgentAddressDiscoveryRequest {
        /// Repeated in the reply.
        identifier: u16,
    },
    /// Type 145 (RFC 6275, 6.6).
    HomeAgentAddressDiscoveryReply {
        /// Identifier of the request.
        identifier: u16,
        /// Addresses, the preferred one first.
        home_agent_addresses: Vec<Ipv6Addr>,
    },
    /// Type 146 (RFC 6275, 6.7).
    MobilePrefixSolicitation {
        /// Repeated in the advertisement.
        identifier: u16,
        /// Options in order.
        options: Vec<NdOption>,
    },
    /// Type 147 (RFC 6275, 6.8).
    MobilePrefixAdvertisement {
        /// Identifier of the solicitation, or zero.
        identifier: u16,
        /// [`RouterAdvertisementFlags::MANAGED`] and [`RouterAdvertisementFlags::OTHER`].
        flags: RouterAdvertisementFlags,
        /// Options in order.
        options: Vec<NdOption>,
    },
}

flags! {
    /// Flags of a router advertisement.
    pub struct RouterAdvertisementFlags(u8) {
        /// Managed address configuration: addresses are available by DHCPv6.
        MANAGED = 0x80 "M",
        /// Other configuration is available by DHCPv6.
        OTHER = 0x40 "O",
        /// The router is a home agent of this link.
        HOME_AGENT = 0x20 "H",
        /// The router proxies neighbour discovery.
        PROXY = 0x04 "P",
    }

    /// Flags of a neighbour advertisement.
    pub struct NeighborAdvertisementFlags(u8) {
        /// The sender is a router.
        ROUTER = 0x80 "R",
        /// Sent in response to a solicitation.
        SOLICITED = 0x40 "S",
        /// Overrides a cached entry.
        OVERRIDE = 0x20 "O",
    }
}

/// A router advertisement (RFC 4861, 4.2; RFC 4191, 2.2; RFC 6275, 7.1; RFC 4389).
///
/// ```text
/// +---------------+---------------+-------------------------------+
/// |  Type (134)   |   Code (0)    |           Checksum            |
/// +---------------+-+-+-+---+-+---+-------------------------------+
/// | Cur Hop Limit |M|O|H|Prf|P|Res|        Router Lifetime        |
/// +---------------+-+-+-+---+-+---+-------------------------------+
/// |                        Reachable Time                         |
/// |                         Retrans Timer                         |
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouterAdvertisement {
    /// Hop limit for hosts' packets; 0 if unspecified.
    pub cur_hop_limit: u8,
    /// All flags except the two bits of the preference.
    pub flags: RouterAdvertisementFlags,
    /// Preference as a default router.
    pub prf: Preference,
    /// Lifetime as a default router, in seconds; 0 if it is not one.
    pub router_lifetime: u16,
    /// Milliseconds; 0 if unspecified.
    pub reachable_time: u32,
    /// Milliseconds; 0 if unspecified.
    pub retrans_timer: u32,
    /// Options in order.
    pub options: Vec<NdOption>,
}

impl Message {
    /// Reads an ICMPv6 message from its type on. The other checks that RFC 4861 requires are in
    /// [`check()`](super::check()). An option with invalid content becomes [`NdOption::Malformed`], which receivers
    /// ignore.
    ///
    /// # Errors
    /// Those of [`View::new`]; [`WireError::Field`] if a reply contains a partial address.
    pub fn parse(bytes: &[u8]) -> Result<Message, WireError> {
        View::new(bytes)?;
        Message::parse_lossy(bytes)
    }

    /// Reads a possibly truncated message for display. An option that is truncated or has length zero, for which
    /// receivers discard the message, becomes [`NdOption::Malformed`] and is the last.
    ///
    /// # Errors
    /// [`WireError::Type`]; [`WireError::TooShort`] if the fixed part is incomplete; [`WireError::Field`] if a reply
    /// contains a partial address.
    pub fn parse_lossy(bytes: &[u8]) -> Result<Message, WireError> {
        let view = View::fixed(bytes)?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let cut = view.cut_option().map(|(option, error)| NdOption::malformed(option, error));
        let options = view.options().map(NdOption::read).chain(cut).collect();
        Ok(match view.kind() {
            Kind::RouterSolicitation => Message::RouterSolicitation { options },
            Kind::RouterAdvertisement => Message::RouterAdvertisement(RouterAdvertisement {
                cur_hop_limit: bytes[4],
                flags: RouterAdvertisementFlags(bytes[5] & !Preference::BITS),
                prf: Preference::of(bytes[5]),
                router_lifetime: half(6),
                reachable_time: word(8),
                retrans_timer: word(12),
                options,
            }),
            Kind::NeighborSolicitation => {
                Message::NeighborSolicitation { target_address: address(&bytes[8..]), options }
            }
            Kind::NeighborAdvertisement => Message::NeighborAdvertisement {
                flags: NeighborAdvertisementFlags(bytes[4]),
                target_address: address(&bytes[8..]),
                options,
            },
            Kind::Redirect => Message::Redirect {
                target_address: address(&bytes[8..]),
                destination_address: address(&bytes[24..]),
                options,
            },
            Kind::HomeAgentAddressDiscoveryRequest => {
                Message::HomeAgentAddressDiscoveryRequest { identifier: half(4) }
            }
            Kind::HomeAgentAddressDiscoveryReply => Message::HomeAgentAddressDiscoveryReply {
                identifier: half(4),
                home_agent_addresses: addresses(view.rest())?,
            },
            Kind::MobilePrefixSolicitation => {
                Message::MobilePrefixSolicitation { identifier: half(4), options }
            }
            Kind::MobilePrefixAdvertisement => Message::MobilePrefixAdvertisement {
                identifier: half(4),
                flags: RouterAdvertisementFlags(bytes[6]),
                options,
            },
        })
    }

    /// The message with a checksum of zero, which a raw ICMPv6 socket fills in.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::from([self.kind() as u8, 0, 0, 0]);
        match self {
            Message::RouterSolicitation { .. } => out.extend([0; 4]),
            Message::RouterAdvertisement(advertisement) => advertisement.emit(&mut out),
            Message::NeighborSolicitation { target_address, .. } => {
                out.extend([0; 4]);
                out.extend(target_address.octets());
            }
            Message::NeighborAdvertisement { flags, target_address, .. } => {
                out.extend([flags.0, 0, 0, 0]);
                out.extend(target_address.octets());
            }
            Message::Redirect { target_address, destination_address, .. } => {
                out.extend([0; 4]);
                out.extend(target_address.octets());
                out.extend(destination_address.octets());
            }
            Message::HomeAgentAddressDiscoveryRequest { identifier }
            | Message::MobilePrefixSolicitation { identifier, .. } => {
                out.extend(identifier.to_be_bytes());
                out.extend([0; 2]);
            }
            Message::HomeAgentAddressDiscoveryReply { identifier, home_agent_addresses } => {
                out.extend(identifier.to_be_bytes());
                out.extend([0; 2]);
                out.extend(home_agent_addresses.iter().flat_map(Ipv6Addr::octets));
            }
            Message::MobilePrefixAdvertisement { identifier, flags, .. } => {
                out.extend(identifier.to_be_bytes());
                out.extend([flags.0, 0]);
            }
        }
        self.options().iter().for_each(|option| option.emit(&mut out));
        out
    }

    /// The message with its [`checksum`](super::checksum).
    #[must_use]
    pub fn emit_with_checksum(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut out = self.emit();
        fill_checksum(source, destination, &mut out);
        out
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Message::RouterSolicitation { .. } => Kind::RouterSolicitation,
            Message::RouterAdvertisement(_) => Kind::RouterAdvertisement,
            Message::NeighborSolicitation { .. } => Kind::NeighborSolicitation,
            Message::NeighborAdvertisement { .. } => Kind::NeighborAdvertisement,
            Message::Redirect { .. } => Kind::Redirect,
            Message::HomeAgentAddressDiscoveryRequest { .. } => {
                Kind::HomeAgentAddressDiscoveryRequest
            }
            Message::HomeAgentAddressDiscoveryReply { .. } => Kind::HomeAgentAddressDiscoveryReply,
            Message::MobilePrefixSolicitation { .. } => Kind::MobilePrefixSolicitation,
            Message::MobilePrefixAdvertisement { .. } => Kind::MobilePrefixAdvertisement,
        }
    }

    /// Its options; empty for types without options.
    #[must_use]
    pub fn options(&self) -> &[NdOption] {
        match self {
            Message::RouterSolicitation { options }
            | Message::RouterAdvertisement(RouterAdvertisement { options, .. })
            | Message::NeighborSolicitation { options, .. }
            | Message::NeighborAdvertisement { options, .. }
            | Message::Redirect { options, .. }
            | Message::MobilePrefixSolicitation { options, .. }
            | Message::MobilePrefixAdvertisement { options, .. } => options,
            Message::HomeAgentAddressDiscoveryRequest { .. }
            | Message::HomeAgentAddressDiscoveryReply { .. } => &[],
        }
    }
}

impl RouterAdvertisement {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.cur_hop_limit, self.flags.0 | self.prf.bits()]);
        out.extend(self.router_lifetime.to_be_bytes());
        out.extend(self.reachable_time.to_be_bytes());
        out.extend(self.retrans_timer.to_be_bytes());
    }
}

fn addresses(bytes: &[u8]) -> Result<Vec<Ipv6Addr>, WireError> {
    if !bytes.len().is_multiple_of(16) {
        let got = bytes.len() as u32;
        return Err(WireError::Field { field: "length of the addresses", got });
    }
    Ok(bytes.chunks_exact(16).map(address).collect())
}
