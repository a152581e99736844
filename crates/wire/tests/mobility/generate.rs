//! Strategies for messages that can be sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use segue_wire::mobility::body::*;
use segue_wire::mobility::option::*;
use segue_wire::mobility::*;

/// A strategy for an enum, from the strategies for the content of its variants.
macro_rules! variants {
    ($enum:ident { $($variant:ident: $strategy:expr,)* }) => {
        prop::strategy::Union::new(vec![ $( $strategy.prop_map($enum::$variant).boxed(), )* ])
    };
}

/// A strategy for a struct, from the strategies for its fields.
macro_rules! fields {
    ($name:ident { $($field:ident: $strategy:expr),* $(,)? }) => {
        ($($strategy,)*).prop_map(|($($field,)*)| $name { $($field),* })
    };
}

fn bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), least..40)
}

fn span<T: Arbitrary + Copy + Ord>(
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Option<Span<T>>> {
    of((value.clone(), of(value)).prop_map(|(start, end)| Span { start, end }))
}

pub(crate) fn selector() -> impl Strategy<Value = TrafficSelector> {
    let all = (
        any::<[Option<([u8; 16], Option<[u8; 16]>)>; 2]>(),
        any::<bool>(),
        span(any::<u32>()),
        span(0..1u32 << 20),
        span(any::<u16>()),
        span(any::<u16>()),
        span(0..64u8),
        span(any::<u8>()),
    );
    all.prop_map(|(ends, v6, ipsec_spi, label, source_port, destination_port, dscp, protocol)| {
        let address = |octets: [u8; 16]| match octets {
            octets if v6 => IpAddr::from(octets),
            [a, b, c, d, ..] => Ipv4Addr::new(a, b, c, d).into(),
        };
        let ends = ends.map(|end| {
            end.map(|(start, end)| Span { start: address(start), end: end.map(address) })
        });
        TrafficSelector {
            family: if v6 { Family::Ipv6 } else { Family::Ipv4 },
            source_address: ends[0],
            destination_address: ends[1],
            ipsec_spi,
            flow_label: label.filter(|_| v6),
            source_port,
            destination_port,
            dscp,
            protocol,
        }
    })
}

fn sub_option() -> impl Strategy<Value = FlowSubOption> {
    variants!(FlowSubOption {
        BindingReference: fields!(BindingReference { bids: vec(any::<u16>(), 0..5) }),
        TrafficSelector: selector(),
        OtherTrafficSelector: fields!(OtherTrafficSelector {
            ts_format: 3..=255u8,
            traffic_selector: bytes(0),
        }),
        Unknown: fields!(Unknown { kind: 4..=255u8, data: bytes(0) }),
    })
}

/// Options of types without a format.
fn unknown() -> impl Strategy<Value = Unknown> {
    let kind = prop_oneof![9..19u8, Just(43u8), 52..63u8, 64..=255u8];
    fields!(Unknown { kind: kind, data: bytes(0) })
}

fn host_option() -> impl Strategy<Value = MobilityOption> {
    variants!(MobilityOption {
        BindingRefreshAdvice: fields!(BindingRefreshAdvice { refresh_interval_4s: any::<u16>() }),
        AlternateCareOfAddress: fields!(AlternateCareOfAddress {
            alternate_care_of_address: any::<Ipv6Addr>(),
        }),
        NonceIndices: fields!(NonceIndices {
            home_nonce_index: any::<u16>(),
            care_of_nonce_index: any::<u16>(),
        }),
        MobileNetworkPrefix: fields!(MobileNetworkPrefix {
            prefix_length: 0..=128u8,
            mobile_network_prefix: any::<Ipv6Addr>(),
        }),
        MobileNodeIdentifier: fields!(MobileNodeIdentifier {
            subtype: any::<u8>(),
            identifier: bytes(0),
        }),
        VendorSpecific: fields!(VendorSpecific {
            vendor_id: any::<u32>(),
            sub_type: any::<u8>(),
            data: bytes(0),
        }),
        ServiceSelection: fields!(ServiceSelection { identifier: bytes(1) }),
        BindingIdentifier: fields!(BindingIdentifier {
            bid: any::<u16>(),
            status: any::<u8>(),
            flags: any::<u8>().prop_map(BindingIdentifierFlags),
            care_of_address: any::<Option<IpAddr>>(),
        }),
        FlowSummary: fields!(FlowSummary { fids: vec(any::<u16>(), 0..9) }),
        FlowIdentification: fields!(FlowIdentification {
            fid: any::<u16>(),
            fid_pri: any::<u16>(),
            status: any::<u8>().prop_map(FlowStatus),
            sub_options: vec(sub_option(), 0..3),
        }),
        Unknown: unknown(),
    })
}

fn proxy_option() -> impl Strategy<Value = MobilityOption> {
    variants!(MobilityOption {
        HomeNetworkPrefix: fields!(HomeNetworkPrefix {
            flags: any::<u8>().prop_map(HomeNetworkPrefixFlags),
            prefix_length: 0..=128u8,
            home_network_prefix: any::<Ipv6Addr>(),
        }),
        HandoffIndicator: fields!(HandoffIndicator {
            handoff_indicator: any::<u8>().prop_map(Handoff),
        }),
        AccessTechnologyType: fields!(AccessTechnologyType {
            access_technology_type: any::<u8>().prop_map(AccessTechnology),
        }),
        MobileNodeLinkLayerIdentifier: fields!(MobileNodeLinkLayerIdentifier {
            link_layer_identifier: bytes(0),
        }),
        LinkLocalAddress: fields!(LinkLocalAddress { link_local_address: any::<Ipv6Addr>() }),
        Timestamp: fields!(Timestamp { seconds: 0..1u64 << 48, fraction_65536ths: any::<u16>() }),
        RestartCounter: fields!(RestartCounter { restart_counter: any::<u32>() }),
        GreKey: fields!(GreKey { gre_key_identifier: any::<Option<u32>>() }),
        MobileNodeGroupIdentifier: fields!(MobileNodeGroupIdentifier {
            sub_type: any::<u8>(),
            mobile_node_group_identifier: any::<u32>(),
        }),
        RedirectCapability: Just(RedirectCapability {}),
        Redirect: fields!(Redirect {
            ipv6_r2lma_address: any::<Option<Ipv6Addr>>(),
            ipv4_r2lma_address: any::<Option<Ipv4Addr>>(),
        }),
        LoadInformation: fields!(LoadInformation {
            priority: any::<u16>(),
            sessions_in_use: any::<u32>(),
            maximum_sessions: any::<u32>(),
            used_capacity_kbps: any::<u32>(),
            maximum_capacity_kbps: any::<u32>(),
        }),
        AlternateIpv4CareOfAddress: fields!(AlternateIpv4CareOfAddress {
            alternate_ipv4_care_of_address: any::<Ipv4Addr>(),
        }),
        MagIpv6Address: fields!(MagIpv6Address {
            address_length: any::<u8>(),
            mag_ipv6_address: any::<Ipv6Addr>(),
        }),
        MagMultipathBinding: fields!(MagMultipathBinding {
            if_att: any::<u8>().prop_map(AccessTechnology),
            if_label: any::<u8>(),
            bid: any::<u8>(),
            flags: any::<u8>().prop_map(MultipathFlags),
        }),
    })
}

fn ipv4_option() -> impl Strategy<Value = MobilityOption> {
    let length = || (0..=32u8).prop_map(Ipv4PrefixLength);
    let status = || any::<u8>().prop_map(Ipv4Status);
    variants!(MobilityOption {
        Ipv4HomeAddress: fields!(Ipv4HomeAddress {
            prefix_length: length(),
            prefix_requested: any::<bool>(),
            ipv4_home_address: any::<Ipv4Addr>(),
        }),
        Ipv4AddressAcknowledgement: fields!(Ipv4AddressAcknowledgement {
            status: status(),
            prefix_length: length(),
            ipv4_home_address: any::<Ipv4Addr>(),
        }),
        NatDetection: fields!(NatDetection {
            flags: any::<u16>().prop_map(NatDetectionFlags),
            refresh_time_s: any::<u32>(),
        }),
        Ipv4CareOfAddress: fields!(Ipv4CareOfAddress { ipv4_care_of_address: any::<Ipv4Addr>() }),
        Ipv4HomeAddressRequest: fields!(Ipv4HomeAddressRequest {
            prefix_length: length(),
            ipv4_home_address: any::<Ipv4Addr>(),
        }),
        Ipv4HomeAddressReply: fields!(Ipv4HomeAddressReply {
            status: status(),
            prefix_length: length(),
            ipv4_home_address: any::<Ipv4Addr>(),
        }),
        Ipv4DefaultRouterAddress: fields!(Ipv4DefaultRouterAddress {
            ipv4_default_router_address: any::<Ipv4Addr>(),
        }),
        Ipv4DhcpSupportMode: fields!(Ipv4DhcpSupportMode {
            flags: any::<u16>().prop_map(DhcpSupportModeFlags),
        }),
    })
}

fn handover_option() -> impl Strategy<Value = MobilityOption> {
    let request = fields!(Request { req_type: any::<u8>(), req_option: bytes(0) });
    variants!(MobilityOption {
        MobilityHeaderLinkLayerAddress: fields!(MobilityHeaderLinkLayerAddress {
            option_code: any::<u8>(),
            link_layer_address: bytes(0),
        }),
        MobilityHeaderIpv6AddressPrefix: fields!(MobilityHeaderIpv6AddressPrefix {
            option_code: any::<u8>().prop_map(AddressCode),
            prefix_length: 0..=128u8,
            ipv6_address: any::<Ipv6Addr>(),
        }),
        MobileNodeLinkLocalAddressInterfaceIdentifier: fields!(
            MobileNodeLinkLocalAddressInterfaceIdentifier {
                interface_identifier: any::<[u8; 8]>(),
            }
        ),
        ContextRequest: fields!(ContextRequest { requests: vec(request, 0..4) }),
        LocalMobilityAnchorAddress: fields!(LocalMobilityAnchorAddress {
            local_mobility_anchor_address: any::<IpAddr>(),
        }),
    })
}

fn last_option() -> impl Strategy<Value = MobilityOption> {
    variants!(MobilityOption {
        BindingAuthorizationData: fields!(BindingAuthorizationData {
            authenticator: any::<[u8; 12]>(),
        }),
        BindingAuthorizationDataForFmipv6: fields!(BindingAuthorizationDataForFmipv6 {
            spi: any::<u32>(),
            authenticator: bytes(0),
        }),
    })
}

/// Up to six options, and perhaps one that must be the last.
pub(crate) fn options() -> impl Strategy<Value = Vec<MobilityOption>> {
    let option = prop_oneof![host_option(), proxy_option(), ipv4_option(), handover_option()];
    (vec(option, 0..7), of(last_option())).prop_map(|(mut options, last)| {
        options.extend(last);
        options
    })
}

fn test_body() -> impl Strategy<Value = Body> {
    let token = any::<[u8; 8]>;
    variants!(Body {
        BindingRefreshRequest: Just(BindingRefreshRequest {}),
        HomeTestInit: fields!(HomeTestInit { home_init_cookie: token() }),
        CareOfTestInit: fields!(CareOfTestInit { care_of_init_cookie: token() }),
        HomeTest: fields!(HomeTest {
            home_nonce_index: any::<u16>(),
            home_init_cookie: token(),
            home_keygen_token: token(),
        }),
        CareOfTest: fields!(CareOfTest {
            care_of_nonce_index: any::<u16>(),
            care_of_init_cookie: token(),
            care_of_keygen_token: token(),
        }),
        BindingError: fields!(BindingError {
            status: any::<u8>().prop_map(BindingErrorStatus),
            home_address: any::<Ipv6Addr>(),
        }),
    })
}

fn binding_body() -> impl Strategy<Value = Body> {
    let word = any::<u16>;
    let flags = || any::<u16>().prop_map(BindingUpdateFlags);
    let ack_flags = || any::<u8>().prop_map(BindingAcknowledgementFlags);
    variants!(Body {
        BindingUpdate: fields!(BindingUpdate {
            sequence: word(),
            flags: flags(),
            lifetime_4s: word(),
        }),
        BindingAcknowledgement: fields!(BindingAcknowledgement {
            status: any::<u8>().prop_map(Status),
            flags: ack_flags(),
            sequence: word(),
            lifetime_4s: word(),
        }),
        FastBindingUpdate: fields!(FastBindingUpdate {
            sequence: word(),
            flags: flags(),
            lifetime_s: word(),
        }),
        FastBindingAcknowledgment: fields!(FastBindingAcknowledgment {
            status: any::<u8>().prop_map(FastStatus),
            flags: ack_flags(),
            sequence: word(),
            lifetime_s: word(),
        }),
    })
}

fn gateway_body() -> impl Strategy<Value = Body> {
    let word = any::<u16>;
    let revocation_flags = || any::<u16>().prop_map(RevocationFlags);
    let revocation = variants!(BindingRevocation {
        Indication: fields!(BindingRevocationIndication {
            revocation_trigger: any::<u8>().prop_map(RevocationTrigger),
            sequence: word(),
            flags: revocation_flags(),
        }),
        Acknowledgement: fields!(BindingRevocationAcknowledgement {
            status: any::<u8>().prop_map(RevocationStatus),
            sequence: word(),
            flags: revocation_flags(),
        }),
    });
    variants!(Body {
        BindingRevocation: revocation,
        Heartbeat: fields!(Heartbeat {
            flags: any::<u16>().prop_map(HeartbeatFlags),
            sequence: any::<u32>(),
        }),
        HandoverInitiate: fields!(HandoverInitiate {
            sequence: word(),
            flags: any::<u8>().prop_map(HandoverInitiateFlags),
            code: any::<u8>().prop_map(HandoverInitiateCode),
        }),
        HandoverAcknowledge: fields!(HandoverAcknowledge {
            sequence: word(),
            flags: any::<u8>().prop_map(HandoverAcknowledgeFlags),
            code: any::<u8>().prop_map(HandoverAcknowledgeCode),
        }),
        LocalizedRoutingInitiation: fields!(LocalizedRoutingInitiation {
            sequence: word(),
            lifetime_s: word(),
        }),
        LocalizedRoutingAcknowledgment: fields!(LocalizedRoutingAcknowledgment {
            sequence: word(),
            flags: any::<u8>().prop_map(LocalizedRoutingFlags),
            status: any::<u8>().prop_map(LocalizedRoutingStatus),
            lifetime_s: word(),
        }),
        UpdateNotification: fields!(UpdateNotification {
            sequence: word(),
            notification_reason: word().prop_map(NotificationReason),
            flags: word().prop_map(UpdateNotificationFlags),
        }),
        UpdateNotificationAcknowledgement: fields!(UpdateNotificationAcknowledgement {
            sequence: word(),
            status: any::<u8>().prop_map(NotificationStatus),
        }),
    })
}

/// Any message.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let body = prop_oneof![test_body(), binding_body(), gateway_body()];
    (body, options()).prop_map(|(body, options)| Message { body, options })
}

/// The strict profile or that of OAI.
pub(crate) fn profile() -> impl Strategy<Value = Profile> {
    any::<bool>().prop_map(|strict| if strict { Profile::STRICT } else { Profile::OAI })
}
