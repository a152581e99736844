//! TLVs: their types, names and values (IEEE 802.21-2008, annex L).

use alloc::vec::Vec;
use core::net::IpAddr;

use serde::Serialize;

use super::codes::*;
use super::handover::*;
use super::identity::*;
use super::link::*;
use super::profile::{BitOrder, Profile};
use super::value::{OctetString, Value, read_length, write_length};
use crate::WireError;
use crate::layout::{Reader, Wire, hex};

/// Defines [`Tlv`] by types, names and values.
macro_rules! tlvs {
    ($($kind:literal $name:literal $tlv:ident($value:ty),)*) => {
        /// A TLV.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "tlv", content = "value", rename_all = "snake_case")]
        pub enum Tlv {
            $( #[doc = concat!($name, " (", $kind, ").")] $tlv($value), )*
            /// A TLV of an unknown type; with [`Profile::keep_unreadable`] also one whose value does not match its
            /// type.
            Unknown(Unknown),
        }

        impl Tlv {
            /// Its type.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $( Tlv::$tlv(_) => $kind, )*
                    Tlv::Unknown(tlv) => tlv.kind,
                }
            }

            /// The standard's name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $( Tlv::$tlv(_) => $name, )*
                    Tlv::Unknown(_) => "MIH TLV",
                }
            }

            fn read(kind: u8, data: &[u8], order: BitOrder) -> Result<Tlv, WireError> {
                match kind {
                    $( $kind => {
                        let mut reader = Reader::new($name, data, 0);
                        let value = Value::decode(&mut reader, order)?;
                        reader.end()?;
                        Ok(Tlv::$tlv(value))
                    } )*
                    _ => Ok(Tlv::unknown(kind, data)),
                }
            }

            fn write(&self, order: BitOrder, out: &mut Vec<u8>) {
                match self {
                    $( Tlv::$tlv(value) => value.encode(order, out), )*
                    Tlv::Unknown(tlv) => out.extend(&tlv.data),
                }
            }
        }
    };
}

tlvs! {
    1 "Source MIHF ID" SourceMihfId(OctetString),
    2 "Destination MIHF ID" DestinationMihfId(OctetString),
    3 "Status" Status(Status),
    4 "Link type" LinkType(LinkType),
    5 "MIH event list" EventList(EventList),
    6 "MIH command list" CommandList(CommandList),
    7 "MIIS query type list" QueryTypeList(QueryTypeList),
    8 "Transport option list" TransportOptionList(TransportList),
    9 "Link address list" LinkAddressList(Vec<NetworkTypeAddress>),
    10 "MBB handover support" MbbHandoverSupport(Vec<MakeBeforeBreak>),
    11 "Register request code" RegisterRequestCode(RegisterRequestCode),
    12 "Valid time interval" ValidTimeInterval(u32),
    13 "Link identifier" LinkIdentifier(LinkTupleId),
    14 "New link identifier" NewLinkIdentifier(LinkTupleId),
    15 "Old access router" OldAccessRouter(LinkAddress),
    16 "New access router" NewAccessRouter(LinkAddress),
    17 "IP renewal flag" IpRenewalFlag(bool),
    18 "Mobility management support" MobilityManagementSupport(MobilityManagement),
    19 "IP address configuration methods" IpConfigurationMethods(ConfigurationMethods),
    20 "Link down reason code" LinkDownReason(LinkDownReason),
    21 "Time interval" TimeInterval(u16),
    22 "Link going down reason" LinkGoingDownReason(LinkGoingDownReason),
    23 "Link parameter report list" LinkParameterReportList(Vec<ParameterReport>),
    24 "Device states request" DeviceStatesRequest(DeviceStatesRequest),
    25 "Link identifier list" LinkIdentifierList(Vec<LinkId>),
    26 "Device states response list" DeviceStatesResponseList(Vec<DeviceState>),
    27 "Get status request set" GetStatusRequestSet(LinkStatusRequest),
    28 "Get status response list" GetStatusResponseList(Vec<LinkStatus>),
    29 "Configure request list" ConfigureRequestList(Vec<ParameterConfiguration>),
    30 "Configure response list" ConfigureResponseList(Vec<ParameterConfigurationStatus>),
    31 "List of link PoA list" ListOfLinkPoaList(Vec<LinkPoas>),
    32 "Preferred link list" PreferredLinkList(Vec<ResourceResult>),
    33 "Handover resource query list" HandoverResourceQueryList(QosList),
    34 "Handover status" HandoverStatus(HandoverStatus),
    35 "Access router address" AccessRouterAddress(IpAddr),
    36 "DHCP server address" DhcpServerAddress(IpAddr),
    37 "FA address" FaAddress(IpAddr),
    38 "Link actions list" LinkActionsList(Vec<LinkActionRequest>),
    39 "Link actions result list" LinkActionsResultList(Vec<LinkActionResponse>),
    40 "Handover result" HandoverResult(HandoverResult),
    41 "Resource status" ResourceStatus(bool),
    42 "Resource retention status" ResourceRetentionStatus(bool),
    43 "Info query binary data list" InfoQueryBinaryDataList(Raw),
    44 "Info query RDF data list" InfoQueryRdfDataList(Vec<RdfData>),
    45 "Info query RDF schema URL" InfoQueryRdfSchemaUrl(bool),
    46 "Info query RDF schema list" InfoQueryRdfSchemaList(Vec<OctetString>),
    47 "Max response size" MaxResponseSize(u16),
    48 "Info response binary data list" InfoResponseBinaryDataList(Raw),
    49 "Info response RDF data list" InfoResponseRdfDataList(Vec<RdfData>),
    50 "Info response RDF schema URL list" InfoResponseRdfSchemaUrlList(Vec<OctetString>),
    51 "Info response RDF schema list" InfoResponseRdfSchemaList(Vec<RdfData>),
    52 "Mobile node MIHF ID" MobileNodeMihfId(OctetString),
    53 "Query resource report flag" QueryResourceReportFlag(bool),
    54 "Event configuration info list" EventConfigurationInfoList(Vec<EventConfiguration>),
    55 "Target network info" TargetNetworkInfo(TargetNetwork),
    56 "List of target network info" ListOfTargetNetworkInfo(Vec<TargetNetwork>),
    57 "Assigned resource set" AssignedResourceSet(AssignedResources),
    58 "Link detected info list" LinkDetectedInfoList(Vec<LinkDetectedInfo>),
    59 "MN link ID" MnLinkId(LinkId),
    60 "PoA" Poa(LinkAddress),
    61 "Unauthenticated information request" UnauthenticatedInformationRequest(bool),
    62 "Network type" NetworkType(NetworkType),
    63 "Requested resource set" RequestedResourceSet(RequestedResources),
}

/// A value whose inner format is not parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        hex(&self.0, serializer)
    }
}

impl Value for Raw {
    fn decode(reader: &mut Reader<'_>, _: BitOrder) -> Result<Self, WireError> {
        Wire::read(reader).map(Raw)
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        out.extend(&self.0);
    }
}

/// An unparsed TLV.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Its type: 100 is for vendors, 101 to 255 are for experiments.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Its value.
    #[serde(serialize_with = "hex")]
    pub data: Vec<u8>,
}

impl Tlv {
    fn unknown(kind: u8, data: &[u8]) -> Tlv {
        Tlv::Unknown(Unknown { kind, data: data.to_vec() })
    }

    /// Appends the TLV to a payload.
    pub(super) fn emit(&self, profile: &Profile, out: &mut Vec<u8>) {
        let mut value = Vec::with_capacity(32);
        self.write(profile.bit_order, &mut value);
        out.push(self.kind());
        write_length(value.len(), out);
        out.extend(value);
    }
}

/// Reads the TLVs of a payload.
pub(super) fn parse_all(payload: &[u8], profile: &Profile) -> Result<Vec<Tlv>, WireError> {
    let mut reader = Reader::new("MIH frame's TLVs", payload, 0);
    let mut tlvs = Vec::new();
    while reader.left() > 0 {
        let kind = u8::read(&mut reader)?;
        let length = read_length(&mut reader)?;
        let data = reader.take(length)?;
        tlvs.push(match Tlv::read(kind, data, profile.bit_order) {
            Err(_) if profile.keep_unreadable => Tlv::unknown(kind, data),
            read => read?,
        });
    }
    Ok(tlvs)
}
