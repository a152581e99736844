//! Our own messages for tshark to read: every type and every option that both sides know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use segue_wire::mobility::body::*;
use segue_wire::mobility::option::*;
use segue_wire::mobility::*;
use segue_wire::nd::{self, NdOption, Preference, PrefixFlags, PrefixInformation};

const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6);
const IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// Writes the messages as a capture of raw IP packets.
pub(crate) fn write(path: &Path) {
    let mut file = Vec::new();
    // Magic number, version 2.4, time zone, accuracy, longest packet, link type.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    let discovery = discovery()
        .into_iter()
        .map(|message| (nd::NEXT_HEADER, message.emit_with_checksum(SOURCE, DESTINATION)));
    let mobility = mobility().into_iter().map(|message| {
        let bytes = message.emit_with_checksum(SOURCE, DESTINATION, &Profile::STRICT).unwrap();
        (NEXT_HEADER, bytes)
    });
    for (protocol, message) in discovery.chain(mobility) {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((message.len() as u16).to_be_bytes());
        packet.extend([protocol, 255]);
        packet.extend(SOURCE.octets());
        packet.extend(DESTINATION.octets());
        packet.extend(message);
        let length = packet.len() as u32;
        [0, 0, length, length].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    std::fs::write(path, file).unwrap();
}

/// Number of messages written, Mobility Headers first.
pub(crate) fn counts() -> [usize; 2] {
    [mobility().len(), discovery().len()]
}

fn discovery() -> Vec<nd::Message> {
    let source = NdOption::SourceLinkLayerAddress { link_layer_address: vec![2, 0, 0, 0, 0, 1] };
    let target = NdOption::TargetLinkLayerAddress { link_layer_address: vec![2, 0, 0, 0, 0, 2] };
    let mut messages = vec![
        nd::Message::RouterSolicitation { options: vec![source.clone()] },
        nd::Message::NeighborSolicitation { target_address: ADDRESS, options: vec![source] },
        nd::Message::NeighborAdvertisement {
            flags: nd::NeighborAdvertisementFlags(0xa0),
            target_address: ADDRESS,
            options: vec![target.clone()],
        },
        nd::Message::Redirect {
            target_address: SOURCE,
            destination_address: ADDRESS,
            options: vec![target],
        },
        nd::Message::HomeAgentAddressDiscoveryRequest { identifier: 77 },
        nd::Message::HomeAgentAddressDiscoveryReply {
            identifier: 77,
            home_agent_addresses: vec![ADDRESS, DESTINATION],
        },
        nd::Message::MobilePrefixSolicitation { identifier: 78, options: vec![] },
        nd::Message::MobilePrefixAdvertisement {
            identifier: 78,
            flags: nd::RouterAdvertisementFlags(0xc0),
            options: vec![prefix(0xe0, 64)],
        },
    ];
    messages.extend(advertisements());
    messages
}

fn advertisements() -> Vec<nd::Message> {
    let source = NdOption::SourceLinkLayerAddress { link_layer_address: vec![2, 0, 0, 0, 0, 1] };
    let route = |length, prefix_length, prf, prefix| NdOption::RouteInformation {
        length,
        prefix_length,
        prf,
        route_lifetime: 900,
        prefix,
    };
    let advertisement = |flags, prf, options| {
        nd::Message::RouterAdvertisement(nd::RouterAdvertisement {
            cur_hop_limit: 63,
            flags: nd::RouterAdvertisementFlags(flags),
            prf,
            router_lifetime: 1_800,
            reachable_time: 30_000,
            retrans_timer: 1_000,
            options,
        })
    };
    vec![
        advertisement(
            0xe4,
            Preference::High,
            vec![
                source,
                prefix(0xe0, 64),
                prefix(0x40, 128),
                NdOption::Mtu { mtu: 1_452 },
                NdOption::AdvertisementInterval { advertisement_interval: 70 },
                NdOption::HomeAgentInformation {
                    home_agent_preference: 9,
                    home_agent_lifetime: 600,
                },
            ],
        ),
        advertisement(
            0x40,
            Preference::Low,
            vec![
                route(3, 128, Preference::High, ADDRESS),
                route(2, 48, Preference::Low, Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, 0)),
                NdOption::RecursiveDnsServer { lifetime: 120, addresses: vec![ADDRESS, SOURCE] },
                NdOption::DnsSearchList {
                    lifetime: 120,
                    domain_names: vec!["example.com".into(), "corp.example".into()],
                },
            ],
        ),
    ]
}

fn prefix(flags: u8, prefix_length: u8) -> NdOption {
    NdOption::PrefixInformation(PrefixInformation {
        prefix_length,
        flags: PrefixFlags(flags),
        valid_lifetime: 86_400,
        preferred_lifetime: 14_400,
        prefix: ADDRESS,
    })
}

fn mobility() -> Vec<Message> {
    [tests(), bindings(), handovers()].concat()
}

fn message(body: Body, options: Vec<MobilityOption>) -> Message {
    Message { body, options }
}

fn tests() -> Vec<Message> {
    vec![
        message(Body::BindingRefreshRequest(BindingRefreshRequest {}), vec![]),
        message(Body::HomeTestInit(HomeTestInit { home_init_cookie: [1; 8] }), vec![]),
        message(Body::CareOfTestInit(CareOfTestInit { care_of_init_cookie: [2; 8] }), vec![]),
        message(
            Body::HomeTest(HomeTest {
                home_nonce_index: 3,
                home_init_cookie: [1; 8],
                home_keygen_token: [4; 8],
            }),
            vec![],
        ),
        message(
            Body::CareOfTest(CareOfTest {
                care_of_nonce_index: 5,
                care_of_init_cookie: [2; 8],
                care_of_keygen_token: [6; 8],
            }),
            vec![],
        ),
    ]
}

fn bindings() -> Vec<Message> {
    let update = |flags| {
        Body::BindingUpdate(BindingUpdate {
            sequence: 4_711,
            flags: BindingUpdateFlags(flags),
            lifetime_4s: 105,
        })
    };
    let acknowledgement = |status, flags| {
        Body::BindingAcknowledgement(BindingAcknowledgement {
            status: Status(status),
            flags: BindingAcknowledgementFlags(flags),
            sequence: 4_711,
            lifetime_4s: 105,
        })
    };
    vec![
        message(update(0xfd80), host_options()),
        message(update(0x8200), proxy_options()),
        message(update(0x8240), ipv4_options()),
        message(
            acknowledgement(0, 0x80),
            vec![MobilityOption::BindingRefreshAdvice(BindingRefreshAdvice {
                refresh_interval_4s: 9,
            })],
        ),
        message(acknowledgement(155, 0x78), reply_options()),
        message(
            Body::BindingError(BindingError {
                status: BindingErrorStatus(2),
                home_address: ADDRESS,
            }),
            vec![],
        ),
    ]
}

fn handovers() -> Vec<Message> {
    vec![
        message(
            Body::FastBindingUpdate(FastBindingUpdate {
                sequence: 12,
                flags: BindingUpdateFlags(0xf000),
                lifetime_s: 30,
            }),
            vec![MobilityOption::MobilityHeaderIpv6AddressPrefix(
                MobilityHeaderIpv6AddressPrefix {
                    option_code: AddressCode(2),
                    prefix_length: 64,
                    ipv6_address: ADDRESS,
                },
            )],
        ),
        message(
            Body::FastBindingAcknowledgment(FastBindingAcknowledgment {
                status: FastStatus(1),
                flags: BindingAcknowledgementFlags(0x80),
                sequence: 12,
                lifetime_s: 30,
            }),
            vec![],
        ),
        message(
            Body::Heartbeat(Heartbeat { flags: HeartbeatFlags(3), sequence: 99 }),
            vec![MobilityOption::RestartCounter(RestartCounter { restart_counter: 17 })],
        ),
        message(
            Body::HandoverInitiate(HandoverInitiate {
                sequence: 13,
                flags: HandoverInitiateFlags(0xc0),
                code: HandoverInitiateCode(1),
            }),
            context_options(),
        ),
        message(
            Body::BindingRevocation(BindingRevocation::Indication(BindingRevocationIndication {
                revocation_trigger: RevocationTrigger(1),
                sequence: 14,
                flags: RevocationFlags(0xe000),
            })),
            vec![],
        ),
    ]
}

fn host_options() -> Vec<MobilityOption> {
    vec![
        MobilityOption::AlternateCareOfAddress(AlternateCareOfAddress {
            alternate_care_of_address: ADDRESS,
        }),
        MobilityOption::NonceIndices(NonceIndices { home_nonce_index: 3, care_of_nonce_index: 5 }),
        MobilityOption::MobileNetworkPrefix(MobileNetworkPrefix {
            prefix_length: 56,
            mobile_network_prefix: Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 0),
        }),
        MobilityOption::ServiceSelection(ServiceSelection { identifier: b"ims".to_vec() }),
        MobilityOption::BindingIdentifier(BindingIdentifier {
            bid: 21,
            status: 0,
            flags: BindingIdentifierFlags(0x80),
            care_of_address: Some(IpAddr::V6(ADDRESS)),
        }),
        MobilityOption::BindingIdentifier(BindingIdentifier {
            bid: 22,
            status: 0,
            flags: BindingIdentifierFlags(0),
            care_of_address: Some(IpAddr::V4(IPV4)),
        }),
        MobilityOption::BindingAuthorizationData(BindingAuthorizationData {
            authenticator: [8; 12],
        }),
    ]
}

fn proxy_options() -> Vec<MobilityOption> {
    vec![
        MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai("mn1@example.org")),
        MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix {
            flags: HomeNetworkPrefixFlags(0),
            prefix_length: 64,
            home_network_prefix: Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 0),
        }),
        MobilityOption::HandoffIndicator(HandoffIndicator { handoff_indicator: Handoff(3) }),
        MobilityOption::AccessTechnologyType(AccessTechnologyType {
            access_technology_type: AccessTechnology(4),
        }),
        MobilityOption::MobileNodeLinkLayerIdentifier(MobileNodeLinkLayerIdentifier {
            link_layer_identifier: vec![2, 0, 0, 0, 0, 3],
        }),
        MobilityOption::LinkLocalAddress(LinkLocalAddress { link_local_address: SOURCE }),
        MobilityOption::Timestamp(Timestamp { seconds: 1_795_236_688, fraction_65536ths: 0x8000 }),
        MobilityOption::RedirectCapability(RedirectCapability {}),
        MobilityOption::AlternateIpv4CareOfAddress(AlternateIpv4CareOfAddress {
            alternate_ipv4_care_of_address: IPV4,
        }),
        MobilityOption::MobileNodeGroupIdentifier(MobileNodeGroupIdentifier {
            sub_type: 1,
            mobile_node_group_identifier: 123,
        }),
        MobilityOption::MagIpv6Address(MagIpv6Address {
            address_length: 128,
            mag_ipv6_address: ADDRESS,
        }),
    ]
}

fn ipv4_options() -> Vec<MobilityOption> {
    vec![
        MobilityOption::Ipv4HomeAddress(Ipv4HomeAddress {
            prefix_length: Ipv4PrefixLength(24),
            prefix_requested: true,
            ipv4_home_address: IPV4,
        }),
        MobilityOption::Ipv4CareOfAddress(Ipv4CareOfAddress { ipv4_care_of_address: IPV4 }),
        MobilityOption::Ipv4HomeAddressRequest(Ipv4HomeAddressRequest {
            prefix_length: Ipv4PrefixLength(32),
            ipv4_home_address: Ipv4Addr::UNSPECIFIED,
        }),
        MobilityOption::GreKey(GreKey { gre_key_identifier: Some(0x0102_0304) }),
    ]
}

fn reply_options() -> Vec<MobilityOption> {
    vec![
        MobilityOption::Ipv4AddressAcknowledgement(Ipv4AddressAcknowledgement {
            status: Ipv4Status(0),
            prefix_length: Ipv4PrefixLength(24),
            ipv4_home_address: IPV4,
        }),
        MobilityOption::NatDetection(NatDetection {
            flags: NatDetectionFlags(0x8000),
            refresh_time_s: 110,
        }),
        MobilityOption::Ipv4HomeAddressReply(Ipv4HomeAddressReply {
            status: Ipv4Status(0),
            prefix_length: Ipv4PrefixLength(24),
            ipv4_home_address: IPV4,
        }),
        MobilityOption::Ipv4DefaultRouterAddress(Ipv4DefaultRouterAddress {
            ipv4_default_router_address: IPV4,
        }),
        MobilityOption::Ipv4DhcpSupportMode(Ipv4DhcpSupportMode { flags: DhcpSupportModeFlags(1) }),
        MobilityOption::Redirect(Redirect {
            ipv6_r2lma_address: Some(ADDRESS),
            ipv4_r2lma_address: None,
        }),
        MobilityOption::LoadInformation(LoadInformation {
            priority: 1,
            sessions_in_use: 2,
            maximum_sessions: 3,
            used_capacity_kbps: 4,
            maximum_capacity_kbps: 5,
        }),
    ]
}

fn context_options() -> Vec<MobilityOption> {
    vec![
        MobilityOption::MobilityHeaderLinkLayerAddress(MobilityHeaderLinkLayerAddress {
            option_code: 2,
            link_layer_address: vec![2, 0, 0, 0, 0, 4],
        }),
        MobilityOption::LocalMobilityAnchorAddress(LocalMobilityAnchorAddress {
            local_mobility_anchor_address: IpAddr::V6(ADDRESS),
        }),
        MobilityOption::VendorSpecific(VendorSpecific {
            vendor_id: 32_473,
            sub_type: 1,
            data: vec![1, 2, 3],
        }),
    ]
}
