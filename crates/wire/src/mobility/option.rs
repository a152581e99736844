//! Mobility options: their types, names and alignments. The submodules define the formats.

use alloc::vec::Vec;

use serde::Serialize;

use super::profile::Profile;
use crate::WireError;
use crate::layout::{Reader, Wire, hex, text};
use crate::padded::{Alignment, RawOption, RawOptions, push};

mod flow;
mod handover;
mod host;
mod ipv4;
mod proxy;

pub use flow::*;
pub use handover::*;
pub use host::*;
pub use ipv4::*;
pub use proxy::*;

/// Type of the option that [`authenticated_range`](super::authenticated_range) looks for.
pub(super) const BINDING_AUTHORIZATION_DATA: u8 = 5;
const TIMESTAMP: u8 = 27;

/// Defines [`MobilityOption`] by types, names, alignments and formats.
macro_rules! options {
    (@align any) => { Alignment::None };
    (@align last) => { Alignment::Last };
    (@align $n:literal n + $offset:literal) => { Alignment::At { n: $n, offset: $offset } };
    ($($kind:literal $name:literal ($($align:tt)*) $option:ident,)*) => {
        /// A mobility option.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "option", rename_all = "snake_case")]
        pub enum MobilityOption {
            $( #[doc = concat!($name, " (", $kind, ").")] $option($option), )*
            /// An option of unknown type.
            Unknown(Unknown),
            /// An option that cannot be read, produced only by [`Message::parse_lossy`](super::Message::parse_lossy).
            Malformed(Malformed),
        }

        impl MobilityOption {
            /// Its type.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $( MobilityOption::$option(_) => $kind, )*
                    MobilityOption::Unknown(option) => option.kind,
                    MobilityOption::Malformed(option) => option.kind,
                }
            }

            /// The RFC's name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $( MobilityOption::$option(_) => $name, )*
                    MobilityOption::Unknown(_) | MobilityOption::Malformed(_) => "mobility option",
                }
            }

            const fn listed_alignment(&self) -> Alignment {
                match self {
                    $( MobilityOption::$option(_) => options!(@align $($align)*), )*
                    MobilityOption::Unknown(option) => option.alignment(),
                    MobilityOption::Malformed(_) => Alignment::None,
                }
            }

            fn read(kind: u8, data: &[u8]) -> Result<MobilityOption, WireError> {
                match kind {
                    $( $kind => {
                        let mut reader = Reader::new($name, data, 0);
                        let option = MobilityOption::$option(Wire::read(&mut reader)?);
                        reader.end()?;
                        option.check()?;
                        Ok(option)
                    } )*
                    _ => Ok(MobilityOption::Unknown(Unknown { kind, data: data.to_vec() })),
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $( MobilityOption::$option(option) => option.write(out), )*
                    MobilityOption::Unknown(option) => out.extend(&option.data),
                    MobilityOption::Malformed(option) => out.extend(&option.data),
                }
            }
        }
    };
}

options! {
    2 "Binding Refresh Advice" (2 n + 0) BindingRefreshAdvice,
    3 "Alternate Care-of Address" (8 n + 6) AlternateCareOfAddress,
    4 "Nonce Indices" (2 n + 0) NonceIndices,
    5 "Binding Authorization Data" (last) BindingAuthorizationData,
    6 "Mobile Network Prefix" (8 n + 4) MobileNetworkPrefix,
    7 "Mobility Header Link-Layer Address" (any) MobilityHeaderLinkLayerAddress,
    8 "Mobile Node Identifier" (any) MobileNodeIdentifier,
    19 "Vendor Specific" (4 n + 2) VendorSpecific,
    20 "Service Selection" (any) ServiceSelection,
    21 "Binding Authorization Data for FMIPv6" (last) BindingAuthorizationDataForFmipv6,
    22 "Home Network Prefix" (8 n + 4) HomeNetworkPrefix,
    23 "Handoff Indicator" (any) HandoffIndicator,
    24 "Access Technology Type" (any) AccessTechnologyType,
    25 "Mobile Node Link-layer Identifier" (any) MobileNodeLinkLayerIdentifier,
    26 "Link-local Address" (8 n + 6) LinkLocalAddress,
    27 "Timestamp" (8 n + 2) Timestamp,
    28 "Restart Counter" (4 n + 2) RestartCounter,
    29 "IPv4 Home Address" (4 n + 0) Ipv4HomeAddress,
    30 "IPv4 Address Acknowledgement" (4 n + 0) Ipv4AddressAcknowledgement,
    31 "NAT Detection" (4 n + 0) NatDetection,
    32 "IPv4 Care-of Address" (4 n + 0) Ipv4CareOfAddress,
    33 "GRE Key" (4 n + 0) GreKey,
    34 "Mobility Header IPv6 Address/Prefix" (8 n + 4) MobilityHeaderIpv6AddressPrefix,
    35 "Binding Identifier" (2 n + 0) BindingIdentifier,
    36 "IPv4 Home Address Request" (4 n + 0) Ipv4HomeAddressRequest,
    37 "IPv4 Home Address Reply" (4 n + 0) Ipv4HomeAddressReply,
    38 "IPv4 Default-Router Address" (4 n + 0) Ipv4DefaultRouterAddress,
    39 "IPv4 DHCP Support Mode" (any) Ipv4DhcpSupportMode,
    40 "Context Request" (any) ContextRequest,
    41 "Local Mobility Anchor Address" (any) LocalMobilityAnchorAddress,
    42 "Mobile Node Link-local Address Interface Identifier" (any)
        MobileNodeLinkLocalAddressInterfaceIdentifier,
    44 "Flow Summary" (2 n + 0) FlowSummary,
    45 "Flow Identification" (2 n + 0) FlowIdentification,
    46 "Redirect-Capability" (4 n + 0) RedirectCapability,
    47 "Redirect" (4 n + 0) Redirect,
    48 "Load Information" (4 n + 0) LoadInformation,
    49 "Alternate IPv4 Care-of Address" (4 n + 2) AlternateIpv4CareOfAddress,
    50 "Mobile Node Group Identifier" (any) MobileNodeGroupIdentifier,
    51 "MAG IPv6 Address" (8 n + 4) MagIpv6Address,
    63 "MAG Multipath Binding" (any) MagMultipathBinding,
}

/// An unparsed option of unknown type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// The option's data.
    #[serde(serialize_with = "hex")]
    pub data: Vec<u8>,
}

/// An option that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Malformed {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// The option's data.
    #[serde(serialize_with = "hex")]
    pub data: Vec<u8>,
    /// The parse error.
    #[serde(serialize_with = "text")]
    pub error: WireError,
}

impl Unknown {
    /// Alignment of the unparsed types.
    const fn alignment(&self) -> Alignment {
        match self.kind {
            9 => Alignment::At { n: 4, offset: 1 },
            10 | 55 => Alignment::At { n: 8, offset: 2 },
            52 | 53 => Alignment::At { n: 4, offset: 0 },
            _ => Alignment::None,
        }
    }
}

impl MobilityOption {
    /// The required position of the option's type byte in the message.
    #[must_use]
    pub const fn alignment(&self) -> Alignment {
        match self {
            MobilityOption::BindingIdentifier(option) if option.care_of_address.is_some() => {
                Alignment::At { n: 8, offset: 2 }
            }
            option => option.listed_alignment(),
        }
    }

    /// Returns whether it must be the last option.
    pub(super) fn is_last(&self) -> bool {
        self.alignment() == Alignment::Last
    }

    /// Appends the option to a message.
    pub(super) fn emit(&self, profile: &Profile, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.check()?;
        let mut data = Vec::with_capacity(32);
        self.write(&mut data);
        if self.kind() == TIMESTAMP && profile.little_endian_timestamp {
            swap_halves(&mut data);
        }
        push(out, self.name(), self.kind(), self.alignment(), &data)
    }

    /// Checks that all values can be written and read back.
    fn check(&self) -> Result<(), WireError> {
        let at_most = |most: u8, got: u8| match got {
            got if got > most => Err(WireError::Field { field: "Prefix Length", got: got.into() }),
            _ => Ok(()),
        };
        match self {
            MobilityOption::MobileNetworkPrefix(option) => at_most(128, option.prefix_length),
            MobilityOption::HomeNetworkPrefix(option) => at_most(128, option.prefix_length),
            MobilityOption::MobilityHeaderIpv6AddressPrefix(option) => {
                at_most(128, option.prefix_length)
            }
            MobilityOption::Ipv4HomeAddress(option) => at_most(32, option.prefix_length.0),
            MobilityOption::Ipv4AddressAcknowledgement(option) => {
                at_most(32, option.prefix_length.0)
            }
            MobilityOption::Ipv4HomeAddressRequest(option) => at_most(32, option.prefix_length.0),
            MobilityOption::Ipv4HomeAddressReply(option) => at_most(32, option.prefix_length.0),
            MobilityOption::ServiceSelection(option) if option.identifier.is_empty() => {
                Err(WireError::Length { what: self.name(), got: 0 })
            }
            MobilityOption::Timestamp(Timestamp { seconds, .. }) if seconds >> 48 != 0 => {
                Err(WireError::Field { field: "Timestamp", got: (seconds >> 32) as u32 })
            }
            MobilityOption::FlowIdentification(option) => {
                option.sub_options.iter().try_for_each(|option| match option {
                    FlowSubOption::TrafficSelector(selector) => selector.check(),
                    _ => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Reads the options of a message.
pub(super) fn parse_all(bytes: &[u8], profile: &Profile) -> Result<Vec<MobilityOption>, WireError> {
    let mut raw = RawOptions::new("mobility options", bytes);
    let mut options = Vec::new();
    while let Some(option) = raw.next() {
        let RawOption { kind, data, .. } = option?;
        let option = if kind == TIMESTAMP && profile.little_endian_timestamp {
            let mut data = data.to_vec();
            swap_halves(&mut data);
            MobilityOption::read(kind, &data)?
        } else {
            MobilityOption::read(kind, data)?
        };
        if option.is_last() && raw.left() > 0 {
            let field = "octets behind the last option";
            return Err(WireError::Field { field, got: raw.left() as u32 });
        }
        options.push(option);
    }
    Ok(options)
}

/// Reads the options of a message, as far as possible.
pub(super) fn parse_lossy(bytes: &[u8]) -> Vec<MobilityOption> {
    let malformed = |kind, data: &[u8], error| {
        MobilityOption::Malformed(Malformed { kind, data: data.to_vec(), error })
    };
    let mut raw = RawOptions::new("mobility options", bytes);
    let mut options = Vec::new();
    loop {
        let rest = &bytes[bytes.len() - raw.left()..];
        match raw.next() {
            Some(Ok(RawOption { kind, data, .. })) => options.push(
                MobilityOption::read(kind, data)
                    .unwrap_or_else(|error| malformed(kind, data, error)),
            ),
            Some(Err(error)) => {
                // Padding may precede the malformed option.
                let padding = rest.iter().take_while(|octet| **octet == 0).count();
                let (kind, data) = match &rest[padding..] {
                    [kind, _, data @ ..] => (*kind, data),
                    [kind] => (*kind, &[][..]),
                    [] => (0, &[][..]),
                };
                options.push(malformed(kind, data, error));
            }
            None => return options,
        }
    }
}

/// Converts a timestamp between network byte order and that of x86, each half separately.
fn swap_halves(timestamp: &mut [u8]) {
    for half in timestamp.chunks_exact_mut(4) {
        half.reverse();
    }
}
