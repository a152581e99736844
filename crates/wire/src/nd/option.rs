//! Neighbour discovery options as values.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_ip::{Pref64, Prefix};
use serde::{Serialize, Serializer};

use super::domain;
use super::view::OptionView;
use crate::WireError;
use crate::layout::{flags, hex, text};

/// The longest data of an option in bytes: 255 · 8 less type and length.
const DATA_MAX: usize = 2038;
/// Maximum number of addresses in an option.
const ADDRESSES_MAX: usize = 127;
/// The length of a NAT64 prefix by its code (RFC 8781, 4).
const PREFIX_LENGTH_CODES: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// The bits of a NAT64 prefix option that state its lifetime in units of 8 seconds. With the other bits cleared, the
/// value is in seconds.
const SCALED_LIFETIME: u16 = !7;

/// An option. Emission drops data beyond the maximum of 2040 bytes, and pads with zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "option", rename_all = "snake_case")]
pub enum NdOption {
    /// Type 1 (RFC 4861, 4.6.1).
    SourceLinkLayerAddress {
        /// 6 bytes for Ethernet; other lengths are 6 + 8n and may include padding of the link layer.
        #[serde(serialize_with = "link_layer")]
        link_layer_address: Vec<u8>,
    },
    /// Type 2 (RFC 4861, 4.6.1).
    TargetLinkLayerAddress {
        /// Like that of the source.
        #[serde(serialize_with = "link_layer")]
        link_layer_address: Vec<u8>,
    },
    /// Type 3.
    PrefixInformation(PrefixInformation),
    /// Type 4 (RFC 4861, 4.6.3).
    RedirectedHeader {
        /// The beginning of the packet; a multiple of 8 bytes.
        #[serde(serialize_with = "hex")]
        packet: Vec<u8>,
    },
    /// Type 5 (RFC 4861, 4.6.4).
    Mtu {
        /// The recommended MTU of the link in bytes.
        mtu: u32,
    },
    /// Type 7 (RFC 6275, 7.3).
    AdvertisementInterval {
        /// The longest time between two advertisements, in milliseconds.
        advertisement_interval: u32,
    },
    /// Type 8 (RFC 6275, 7.4).
    HomeAgentInformation {
        /// Higher values are preferred; 0 if unspecified.
        home_agent_preference: u16,
        /// Seconds, never 0.
        home_agent_lifetime: u16,
    },
    /// Type 24 (RFC 4191, 2.3).
    RouteInformation {
        /// Length of the option in units of 8 bytes, 1 to 3. It determines how much of the prefix is sent.
        length: u8,
        /// 0 to 128.
        prefix_length: u8,
        /// Preference of this router for the prefix.
        prf: Preference,
        /// Seconds; all ones means infinity.
        route_lifetime: u32,
        /// Zero beyond the bytes that `length` leaves for it.
        prefix: Ipv6Addr,
    },
    /// Type 25 (RFC 8106, 5.1).
    RecursiveDnsServer {
        /// Seconds; all ones means infinity.
        lifetime: u32,
        /// At least one.
        addresses: Vec<Ipv6Addr>,
    },
    /// Type 31 (RFC 8106, 5.2).
    DnsSearchList {
        /// Seconds; all ones means infinity.
        lifetime: u32,
        /// Without a final dot; bytes that are not valid in host names as `\DDD`. A name that cannot be encoded is
        /// dropped.
        domain_names: Vec<String>,
    },
    /// Type 38 (RFC 8781, 4). An option with a length other than 16 bytes, a reserved code or an invalid NAT64 prefix
    /// becomes `Unknown`, because receivers ignore it.
    Pref64 {
        /// Seconds, a multiple of 8; 0 withdraws the prefix.
        lifetime: u16,
        /// The NAT64 prefix.
        #[serde(serialize_with = "text")]
        prefix: Pref64,
    },
    /// An option of a known type with invalid content. Receivers ignore it and continue (RFC 4862, 5.5.3; RFC 8106,
    /// 5.3.1).
    Malformed {
        /// Its type.
        #[serde(rename = "type")]
        kind: u8,
        /// The bytes behind type and length.
        #[serde(serialize_with = "hex")]
        data: Vec<u8>,
        /// The parse error.
        #[serde(serialize_with = "text")]
        error: WireError,
    },
    /// Any other type; receivers skip it.
    Unknown {
        /// Its type.
        #[serde(rename = "type")]
        kind: u8,
        /// The bytes behind type and length.
        #[serde(serialize_with = "hex")]
        data: Vec<u8>,
    },
}

flags! {
    /// Flags of a prefix (RFC 4861, 4.6.2; RFC 6275, 7.2).
    pub struct PrefixFlags(u8) {
        /// The prefix is on the link.
        ON_LINK = 0x80 "L",
        /// Hosts may form addresses from the prefix.
        AUTONOMOUS = 0x40 "A",
        /// The prefix field holds the router's full address.
        ROUTER_ADDRESS = 0x20 "R",
    }
}

/// The Prefix Information option (RFC 4861, 4.6.2; RFC 6275, 7.2).
///
/// ```text
/// +---------------+---------------+---------------+-+-+-+---------+
/// |   Type (3)    |  Length (4)   | Prefix Length |L|A|R|Reserved1|
/// +---------------+---------------+---------------+-+-+-+---------+
/// |                        Valid Lifetime                         |
/// |                      Preferred Lifetime                       |
/// |                           Reserved2                           |
/// |                       Prefix, 16 bytes                        |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PrefixInformation {
    /// 0 to 128.
    pub prefix_length: u8,
    /// The uses of the prefix.
    pub flags: PrefixFlags,
    /// Seconds; all ones means infinity.
    pub valid_lifetime: u32,
    /// Seconds; all ones means infinity.
    pub preferred_lifetime: u32,
    /// The prefix, or an address within it.
    pub prefix: Ipv6Addr,
}

/// Preference of a router (RFC 4191, 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// Preferred over medium.
    High,
    /// The default.
    #[default]
    Medium,
    /// Used after medium.
    Low,
    /// Binary 10, never sent. Receivers treat it as medium in an advertisement, and ignore a route option that has it.
    Reserved,
}

impl Preference {
    /// Its bits in a byte of flags.
    pub(super) const BITS: u8 = 0x18;

    /// Reads the preference from these bits.
    pub(super) fn of(flags: u8) -> Preference {
        match flags >> 3 & 3 {
            0b01 => Preference::High,
            0b00 => Preference::Medium,
            0b11 => Preference::Low,
            _ => Preference::Reserved,
        }
    }

    /// The preference as these bits.
    pub(super) fn bits(self) -> u8 {
        let bits = match self {
            Preference::High => 0b01,
            Preference::Medium => 0b00,
            Preference::Low => 0b11,
            Preference::Reserved => 0b10,
        };
        bits << 3
    }
}

impl NdOption {
    /// Reads an option.
    ///
    /// # Errors
    /// [`WireError::Field`] for a known type with an invalid length, a prefix longer than 128 bits or an invalid domain
    /// name; [`WireError::TooShort`] for a truncated domain name.
    pub fn parse(option: OptionView<'_>) -> Result<NdOption, WireError> {
        let data = option.data;
        let length = (data.len() + 2) / 8;
        let of_length = |wanted: &[usize]| {
            let field = "option length";
            let wrong = WireError::Field { field, got: length as u32 };
            wanted.contains(&length).then_some(()).ok_or(wrong)
        };
        let word =
            |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        Ok(match option.kind {
            1 => NdOption::SourceLinkLayerAddress { link_layer_address: data.to_vec() },
            2 => NdOption::TargetLinkLayerAddress { link_layer_address: data.to_vec() },
            3 => {
                of_length(&[4])?;
                NdOption::PrefixInformation(PrefixInformation {
                    prefix_length: prefix_length(data[0])?,
                    flags: PrefixFlags(data[1]),
                    valid_lifetime: word(2),
                    preferred_lifetime: word(6),
                    prefix: address(&data[14..]),
                })
            }
            4 => NdOption::RedirectedHeader { packet: data[6..].to_vec() },
            5 => {
                of_length(&[1])?;
                NdOption::Mtu { mtu: word(2) }
            }
            7 => {
                of_length(&[1])?;
                NdOption::AdvertisementInterval { advertisement_interval: word(2) }
            }
            8 => {
                of_length(&[1])?;
                NdOption::HomeAgentInformation {
                    home_agent_preference: half(2),
                    home_agent_lifetime: half(4),
                }
            }
            24 => {
                of_length(&[1, 2, 3])?;
                let prefix_length = prefix_length(data[0])?;
                if length < 1 + usize::from(prefix_length).div_ceil(64) {
                    of_length(&[])?;
                }
                NdOption::RouteInformation {
                    length: length as u8,
                    prefix_length,
                    prf: Preference::of(data[1]),
                    route_lifetime: word(2),
                    prefix: address(&data[6..]),
                }
            }
            25 => {
                if length < 3 || length.is_multiple_of(2) {
                    of_length(&[])?;
                }
                let addresses = data[6..].chunks_exact(16).map(address).collect();
                NdOption::RecursiveDnsServer { lifetime: word(2), addresses }
            }
            31 => {
                let domain_names = domain::read(&data[6..])?;
                NdOption::DnsSearchList { lifetime: word(2), domain_names }
            }
            kind => {
                let known = (kind == 38).then(|| NdOption::parse_pref64(data)).flatten();
                known.unwrap_or_else(|| NdOption::Unknown { kind, data: data.to_vec() })
            }
        })
    }

    /// Reads an option; an invalid one becomes [`NdOption::Malformed`].
    #[must_use]
    pub fn read(option: OptionView<'_>) -> NdOption {
        NdOption::parse(option).unwrap_or_else(|error| NdOption::malformed(option, error))
    }

    pub(super) fn malformed(option: OptionView<'_>, error: WireError) -> NdOption {
        NdOption::Malformed { kind: option.kind, data: option.data.to_vec(), error }
    }

    fn parse_pref64(data: &[u8]) -> Option<NdOption> {
        let [high, low, prefix @ ..] = data else { return None };
        let prefix: [u8; 12] = prefix.try_into().ok()?;
        let word = u16::from_be_bytes([*high, *low]);
        let len = *PREFIX_LENGTH_CODES.get(usize::from(word & !SCALED_LIFETIME))?;
        let prefix = Pref64::new(Prefix::new(address(&prefix), len)).ok()?;
        Some(NdOption::Pref64 { lifetime: word & SCALED_LIFETIME, prefix })
    }

    /// Appends the option.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([self.kind(), 0]);
        match self {
            NdOption::SourceLinkLayerAddress { link_layer_address: data }
            | NdOption::TargetLinkLayerAddress { link_layer_address: data }
            | NdOption::Malformed { data, .. }
            | NdOption::Unknown { data, .. } => out.extend(data.iter().take(DATA_MAX)),
            NdOption::PrefixInformation(prefix) => prefix.emit(out),
            NdOption::RedirectedHeader { packet } => {
                out.extend([0; 6]);
                out.extend(packet.iter().take(DATA_MAX - 6));
            }
            NdOption::Mtu { mtu: word }
            | NdOption::AdvertisementInterval { advertisement_interval: word } => {
                out.extend([0; 2]);
                out.extend(word.to_be_bytes());
            }
            NdOption::HomeAgentInformation { home_agent_preference, home_agent_lifetime } => {
                for half in [0, *home_agent_preference, *home_agent_lifetime] {
                    out.extend(half.to_be_bytes());
                }
            }
            NdOption::RouteInformation { length, prefix_length, prf, route_lifetime, prefix } => {
                out.extend([*prefix_length, prf.bits()]);
                out.extend(route_lifetime.to_be_bytes());
                let sent = 8 * usize::from(length.saturating_sub(1));
                out.extend(prefix.octets().iter().take(sent));
            }
            NdOption::RecursiveDnsServer { lifetime, addresses } => {
                out.extend([0; 2]);
                out.extend(lifetime.to_be_bytes());
                out.extend(addresses.iter().take(ADDRESSES_MAX).flat_map(Ipv6Addr::octets));
            }
            NdOption::DnsSearchList { lifetime, domain_names } => {
                out.extend([0; 2]);
                out.extend(lifetime.to_be_bytes());
                for name in domain_names.iter().filter_map(|name| domain::write(name)) {
                    if out.len() - start + name.len() <= DATA_MAX + 2 {
                        out.extend(name);
                    }
                }
            }
            NdOption::Pref64 { lifetime, prefix } => {
                let Prefix { addr, len } = prefix.prefix();
                let code = PREFIX_LENGTH_CODES.iter().position(|known| *known == len).unwrap_or(0);
                out.extend((lifetime & SCALED_LIFETIME | code as u16).to_be_bytes());
                if let IpAddr::V6(network) = addr {
                    out.extend(&network.octets()[..12]);
                }
            }
        }
        let length = (out.len() - start).div_ceil(8);
        out.resize(start + 8 * length, 0);
        out[start + 1] = length as u8;
    }

    /// Its type on the wire.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            NdOption::SourceLinkLayerAddress { .. } => 1,
            NdOption::TargetLinkLayerAddress { .. } => 2,
            NdOption::PrefixInformation(_) => 3,
            NdOption::RedirectedHeader { .. } => 4,
            NdOption::Mtu { .. } => 5,
            NdOption::AdvertisementInterval { .. } => 7,
            NdOption::HomeAgentInformation { .. } => 8,
            NdOption::RouteInformation { .. } => 24,
            NdOption::RecursiveDnsServer { .. } => 25,
            NdOption::DnsSearchList { .. } => 31,
            NdOption::Pref64 { .. } => 38,
            NdOption::Malformed { kind, .. } | NdOption::Unknown { kind, .. } => *kind,
        }
    }
}

impl PrefixInformation {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.prefix_length, self.flags.0]);
        for word in [self.valid_lifetime, self.preferred_lifetime, 0] {
            out.extend(word.to_be_bytes());
        }
        out.extend(self.prefix.octets());
    }
}

fn prefix_length(got: u8) -> Result<u8, WireError> {
    let refused = WireError::Field { field: "prefix length", got: got.into() };
    (got <= 128).then_some(got).ok_or(refused)
}

/// An address whose last bytes may be missing.
pub(super) fn address(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    octets.into()
}

/// Serialises bytes as hexadecimal digits with colons between them.
fn link_layer<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    serializer.serialize_str(&digits.join(":"))
}
