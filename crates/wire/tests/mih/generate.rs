//! Strategies for frames that can be sent.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use segue_wire::mih::codes::*;
use segue_wire::mih::handover::*;
use segue_wire::mih::identity::*;
use segue_wire::mih::link::*;
use segue_wire::mih::tlv::{Raw, Unknown};
use segue_wire::mih::*;

/// A strategy for an enum, from the strategies for the content of its variants.
macro_rules! variants {
    ($enum:ident { $($variant:ident: $strategy:expr),* $(,)? }) => {
        prop::strategy::Union::new(vec![ $( $strategy.prop_map($enum::$variant).boxed(), )* ])
    };
}

/// A strategy for a struct, from the strategies for its fields.
macro_rules! fields {
    ($name:ident { $($field:ident: $strategy:expr),* $(,)? }) => {
        ($($strategy,)*).prop_map(|($($field,)*)| $name { $($field),* })
    };
}

/// Any value of a struct around a number.
macro_rules! number {
    ($name:ident) => {
        any::<[u8; 8]>().prop_map(|bytes| $name(u64::from_be_bytes(bytes) as _))
    };
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 100..400)]
}

fn string() -> impl Strategy<Value = OctetString> {
    bytes().prop_map(OctetString)
}

/// Usually short, sometimes with a count of several bytes.
fn list<T: Strategy<Value: Clone>>(element: T) -> impl Strategy<Value = Vec<T::Value>> {
    let short = vec(element, 0..4);
    (short, prop_oneof![20 => Just(1_usize), 1 => 100..200_usize])
        .prop_map(|(elements, times)| vec![elements; times].concat())
}

fn link_address() -> impl Strategy<Value = LinkAddress> {
    variants!(LinkAddress {
        Mac: fields!(MacAddress {
            family: prop_oneof![Just(6), any::<u16>()],
            address: prop_oneof![vec(any::<u8>(), 6), bytes()],
        }),
        Cell3g: fields!(Cell3g { plmn_id: any::<[u8; 3]>(), cell_id: any::<u32>() }),
        Cell2g: fields!(Cell2g { plmn_id: any::<[u8; 3]>(), lac: any::<u16>(), ci: any::<u16>() }),
        Address3gpp: string(),
        Address3gpp2: string(),
        Other: string(),
    })
}

fn link_id() -> impl Strategy<Value = LinkId> {
    fields!(LinkId { link_type: number!(LinkType), address: link_address() })
}

fn link_tuple_id() -> impl Strategy<Value = LinkTupleId> {
    fields!(LinkTupleId { link: link_id(), poa: of(link_address()) })
}

fn network_type() -> impl Strategy<Value = NetworkType> {
    fields!(NetworkType {
        link_type: of(number!(LinkType)),
        subtype: of(number!(LinkSubtype)),
        extension: of(string()),
    })
}

fn link_poas() -> impl Strategy<Value = LinkPoas> {
    fields!(LinkPoas { link: link_id(), poas: list(link_address()) })
}

fn parameter_type() -> impl Strategy<Value = ParameterType> {
    variants!(ParameterType {
        Generic: number!(GenericParameter),
        Qos: any::<u8>(),
        GsmGprs: any::<u8>(),
        Edge: any::<u8>(),
        Ethernet: any::<u8>(),
        Ieee80211: number!(Ieee80211Parameter),
        Cdma2000: any::<u8>(),
        Fdd: any::<u8>(),
        Hrpd: any::<u8>(),
        Ieee80216: any::<u8>(),
        Ieee80220: any::<u8>(),
        Ieee80222: any::<u8>(),
    })
}

fn class_values() -> impl Strategy<Value = Vec<ClassValue>> {
    list(fields!(ClassValue { class: any::<u8>(), value: any::<u16>() }))
}

fn parameter() -> impl Strategy<Value = Parameter> {
    let qos = variants!(QosValue {
        ClassesOfService: any::<u8>(),
        MinPacketTransferDelay: class_values(),
        AvgPacketTransferDelay: class_values(),
        MaxPacketTransferDelay: class_values(),
        PacketDelayJitter: class_values(),
        PacketLossRate: class_values(),
    });
    let value = variants!(ParameterValue { Number: any::<u16>(), Qos: qos });
    fields!(Parameter { parameter: parameter_type(), value: value })
}

fn threshold() -> impl Strategy<Value = Threshold> {
    fields!(Threshold { value: any::<u16>(), direction: number!(ThresholdDirection) })
}

fn signal() -> impl Strategy<Value = SignalStrength> {
    variants!(SignalStrength { Dbm: any::<i8>(), Percent: any::<u8>() })
}

fn parameter_configuration() -> impl Strategy<Value = ParameterConfiguration> {
    fields!(ParameterConfiguration {
        parameter: parameter_type(),
        interval_ms: of(any::<u16>()),
        action: number!(ThresholdAction),
        thresholds: list(threshold()),
    })
}

fn event_configuration() -> impl Strategy<Value = EventConfiguration> {
    variants!(EventConfiguration {
        LinkDetected: list(fields!(LinkDetectedConfiguration {
            network_id: of(string()),
            signal: of(signal()),
            data_rate_kbps: of(any::<u32>()),
        })),
        Parameters: list(parameter_configuration()),
    })
}

fn qos_list() -> impl Strategy<Value = QosList> {
    fields!(QosList {
        classes_of_service: any::<u8>(),
        min_packet_transfer_delay: class_values(),
        avg_packet_transfer_delay: class_values(),
        max_packet_transfer_delay: class_values(),
        packet_delay_jitter: class_values(),
        packet_loss_rate: class_values(),
    })
}

fn known<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Known<T>> {
    prop_oneof![
        Just(Known::Nothing),
        any::<bool>().prop_map(Known::Supported),
        value.prop_map(Known::Value)
    ]
}

fn transport() -> impl Strategy<Value = TransportContainer> {
    prop_oneof![
        Just(TransportContainer::Nothing),
        any::<i8>().prop_map(TransportContainer::PredefinedConfigurationId),
        string().prop_map(TransportContainer::Carrier)
    ]
}

fn target() -> impl Strategy<Value = TargetNetwork> {
    variants!(TargetNetwork {
        Network: fields!(NetworkName { network_id: string(), network_aux_id: of(string()) }),
        Poa: link_address(),
    })
}

fn rdf() -> impl Strategy<Value = Vec<RdfData>> {
    list(fields!(RdfData { mime_type: of(string()), data: string() }))
}

fn plain_tlv() -> impl Strategy<Value = Tlv> {
    variants!(Tlv {
        SourceMihfId: string(),
        DestinationMihfId: string(),
        Status: number!(Status),
        LinkType: number!(LinkType),
        EventList: number!(EventList),
        CommandList: number!(CommandList),
        QueryTypeList: number!(QueryTypeList),
        TransportOptionList: number!(TransportList),
        RegisterRequestCode: number!(RegisterRequestCode),
        ValidTimeInterval: any::<u32>(),
        IpRenewalFlag: any::<bool>(),
        MobilityManagementSupport: number!(MobilityManagement),
        IpConfigurationMethods: number!(ConfigurationMethods),
        LinkDownReason: number!(LinkDownReason),
        TimeInterval: any::<u16>(),
        LinkGoingDownReason: number!(LinkGoingDownReason),
        DeviceStatesRequest: number!(DeviceStatesRequest),
        HandoverStatus: number!(HandoverStatus),
        AccessRouterAddress: any::<IpAddr>(),
        DhcpServerAddress: any::<IpAddr>(),
        FaAddress: any::<IpAddr>(),
        HandoverResult: number!(HandoverResult),
        ResourceStatus: any::<bool>(),
        ResourceRetentionStatus: any::<bool>(),
        InfoQueryRdfSchemaUrl: any::<bool>(),
        MaxResponseSize: any::<u16>(),
        MobileNodeMihfId: string(),
        QueryResourceReportFlag: any::<bool>(),
        UnauthenticatedInformationRequest: any::<bool>(),
        Unknown: fields!(Unknown {
            kind: prop_oneof![Just(0), 64..=255u8],
            data: prop_oneof![bytes(), vec(any::<u8>(), 120..140)],
        }),
    })
}

fn link_tlv() -> impl Strategy<Value = Tlv> {
    let device_state = variants!(DeviceState { DeviceInfo: string(), BatteryLevel: any::<u8>() });
    let link_state =
        variants!(LinkState { OperationMode: number!(OperationMode), ChannelId: any::<u16>() });
    let descriptor =
        variants!(LinkDescriptor { ClassesOfService: any::<u8>(), Queues: any::<u8>() });
    variants!(Tlv {
        LinkAddressList: list(fields!(NetworkTypeAddress {
            network_type: network_type(),
            address: link_address(),
        })),
        MbbHandoverSupport: list(fields!(MakeBeforeBreak {
            from: network_type(),
            to: network_type(),
            supported: any::<bool>(),
        })),
        LinkIdentifier: link_tuple_id(),
        NewLinkIdentifier: link_tuple_id(),
        OldAccessRouter: link_address(),
        NewAccessRouter: link_address(),
        LinkParameterReportList: list(fields!(ParameterReport {
            parameter: parameter(),
            threshold: of(threshold()),
        })),
        LinkIdentifierList: list(link_id()),
        DeviceStatesResponseList: list(device_state),
        GetStatusRequestSet: fields!(LinkStatusRequest {
            states: number!(LinkStatesRequest),
            parameters: list(parameter_type()),
            descriptors: number!(LinkDescriptorsRequest),
        }),
        GetStatusResponseList: list(fields!(LinkStatus {
            link: link_id(),
            states: list(link_state),
            parameters: list(parameter()),
            descriptors: list(descriptor),
        })),
        ConfigureRequestList: list(parameter_configuration()),
        ConfigureResponseList: list(fields!(ParameterConfigurationStatus {
            parameter: parameter_type(),
            threshold: threshold(),
            configured: any::<bool>(),
        })),
        ListOfLinkPoaList: list(link_poas()),
        EventConfigurationInfoList: list(event_configuration()),
        MnLinkId: link_id(),
        Poa: link_address(),
        NetworkType: network_type(),
    })
}

fn handover_tlv() -> impl Strategy<Value = Tlv> {
    let scan = fields!(LinkScanResponse {
        address: link_address(),
        network_id: string(),
        signal: signal(),
    });
    variants!(Tlv {
        PreferredLinkList: list(fields!(ResourceResult {
            link: link_poas(),
            qos: qos_list(),
            configuration_methods: known(number!(ConfigurationMethods)),
            dhcp_server: known(any::<IpAddr>()),
            foreign_agent: known(any::<IpAddr>()),
            access_router: known(any::<IpAddr>()),
        })),
        HandoverResourceQueryList: qos_list(),
        LinkActionsList: list(fields!(LinkActionRequest {
            link: link_id(),
            address: of(link_address()),
            action: number!(LinkActionType),
            attributes: number!(LinkActionAttributes),
            execution_time_ms: any::<u16>(),
        })),
        LinkActionsResultList: list(fields!(LinkActionResponse {
            link: link_id(),
            result: number!(LinkActionResult),
            scan: of(list(scan)),
        })),
        InfoQueryBinaryDataList: bytes().prop_map(Raw),
        InfoQueryRdfDataList: rdf(),
        InfoQueryRdfSchemaList: list(string()),
        InfoResponseBinaryDataList: bytes().prop_map(Raw),
        InfoResponseRdfDataList: rdf(),
        InfoResponseRdfSchemaUrlList: list(string()),
        InfoResponseRdfSchemaList: rdf(),
        TargetNetworkInfo: target(),
        ListOfTargetNetworkInfo: list(target()),
        AssignedResourceSet: fields!(AssignedResources { qos: qos_list(), transport: transport() }),
        LinkDetectedInfoList: list(fields!(LinkDetectedInfo {
            link: link_tuple_id(),
            network_id: string(),
            network_aux_id: string(),
            signal: signal(),
            sinr: any::<u16>(),
            data_rate_kbps: any::<u32>(),
            mih_capability: number!(MihCapability),
            network_capabilities: number!(NetworkCapabilities),
        })),
        RequestedResourceSet: fields!(RequestedResources {
            qos: qos_list(),
            transport: transport(),
            cause: number!(HandoverCause),
        }),
    })
}

pub(crate) fn tlv() -> impl Strategy<Value = Tlv> {
    prop_oneof![plain_tlv(), link_tlv(), handover_tlv()]
}

pub(crate) fn profile() -> impl Strategy<Value = Profile> {
    let order = prop_oneof![Just(BitOrder::LeastFirst), Just(BitOrder::MostFirst)];
    fields!(Profile { bit_order: order, keep_unreadable: any::<bool>() })
}

/// Frames that fit the maximum length.
pub(crate) fn frame() -> impl Strategy<Value = Frame> {
    let fragment = (0..=0x7fu8, any::<bool>(), bytes()).prop_map(|(number, more, part)| {
        Payload::Fragment { number, more: more || number == 0, part }
    });
    let payload = prop_oneof![9 => vec(tlv(), 0..6).prop_map(Payload::Tlvs), 1 => fragment];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, number!(MessageId), 0..0x1000u16, payload).prop_filter_map(
        "a payload of at most 65535 octets",
        |((ack_req, ack_rsp, uir), message_id, transaction_id, payload)| {
            let frame = Frame { ack_req, ack_rsp, uir, message_id, transaction_id, payload };
            frame.emit(&Profile::STRICT).is_ok().then_some(frame)
        },
    )
}
