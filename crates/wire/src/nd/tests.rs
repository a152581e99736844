use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::net::Ipv6Addr;

use proptest::collection::vec as list;
use proptest::prelude::*;
use segue_ip::{Pref64, Prefix};

use super::*;
use crate::WireError;

/// Messages of Linux 6.1 and UMIP 1.0, with the addresses for their checksums.
const CAPTURED: [(&str, &str, &str); 6] = [
    ("::", "ff02::1:ff00:56d1", "87004b2a00000000fe8000000000000044c363fffe0056d10e01a646c7146132"),
    (
        "fe80::44c3:63ff:fe00:56d1",
        "ff02::1",
        "860036894000000300000000000000000304 40e000015180000038400000000020010db8000100000000000000000000\
         010146c3630056d107010000000003e8",
    ),
    (
        "2001:db8:ff::2",
        "fe80::406b:68ff:fe0a:ee15",
        "880030e4e000000020010db800ff000000000000000000020201eefa2db15692",
    ),
    (
        "fe80::ecfa:2dff:feb1:5692",
        "ff02::1:ff00:1",
        "870068e70000000020010db800ff000000000000000000010101eefa2db15692",
    ),
    ("2001:db8:100::1234", "2001:db8:100::1", "9200b45549c00000"),
    (
        "2001:db8:100::1",
        "2001:db8:100::1234",
        "9300b6d749c00000030440e00001517f0000383f0000000020010db8010000000000000000000001",
    ),
];

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.chars().filter(|c| !c.is_whitespace()).collect();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn captured() -> impl Iterator<Item = (Envelope, Vec<u8>)> {
    CAPTURED.iter().map(|(source, destination, hex)| {
        let (source, destination) = (address(source), address(destination));
        (Envelope { source, destination, hop_limit: 255 }, bytes(hex))
    })
}

/// An advertisement with every option that has fields.
fn full() -> Message {
    Message::RouterAdvertisement(RouterAdvertisement {
        cur_hop_limit: 64,
        flags: RouterAdvertisementFlags::MANAGED | RouterAdvertisementFlags::HOME_AGENT,
        prf: Preference::Low,
        router_lifetime: 1_800,
        reachable_time: 30_000,
        retrans_timer: 1_000,
        options: vec![
            NdOption::SourceLinkLayerAddress { link_layer_address: vec![2, 0, 0, 0, 0, 1] },
            NdOption::TargetLinkLayerAddress { link_layer_address: vec![2, 0, 0, 0, 0, 2] },
            NdOption::PrefixInformation(PrefixInformation {
                prefix_length: 64,
                flags: PrefixFlags::ON_LINK | PrefixFlags::ROUTER_ADDRESS,
                valid_lifetime: u32::MAX,
                preferred_lifetime: 3_600,
                prefix: address("2001:db8::1"),
            }),
            NdOption::RedirectedHeader { packet: vec![0x60; 48] },
            NdOption::Mtu { mtu: 1_452 },
            NdOption::AdvertisementInterval { advertisement_interval: 70 },
            NdOption::HomeAgentInformation { home_agent_preference: 9, home_agent_lifetime: 600 },
            NdOption::RouteInformation {
                length: 2,
                prefix_length: 48,
                prf: Preference::High,
                route_lifetime: 900,
                prefix: address("2001:db8:5::"),
            },
            NdOption::RecursiveDnsServer {
                lifetime: 120,
                addresses: vec![address("2001:db8::53"), address("fe80::53")],
            },
            NdOption::DnsSearchList {
                lifetime: 120,
                domain_names: vec!["example.com".into(), "corp\\000\\046.example".into()],
            },
            NdOption::Pref64 { lifetime: 1_800, prefix: translators("2001:db8:122:300::/56") },
            NdOption::Unknown { kind: 14, data: vec![1, 2, 3, 4, 5, 6] },
        ],
    })
}

fn translators(prefix: &str) -> Pref64 {
    Pref64::new(prefix.parse().unwrap()).unwrap()
}

#[test]
fn captured_messages_are_accepted_and_come_back_byte_for_byte() {
    for (envelope, bytes) in captured() {
        let message = check(&bytes, &envelope).unwrap();
        assert_eq!(message.emit_with_checksum(envelope.source, envelope.destination), bytes);
    }
}

#[test]
fn the_fields_of_a_captured_advertisement_are_those_that_another_implementation_reads() {
    let (_, bytes) = captured().nth(1).unwrap();
    let expected = RouterAdvertisement {
        cur_hop_limit: 64,
        flags: RouterAdvertisementFlags::default(),
        prf: Preference::Medium,
        router_lifetime: 3,
        reachable_time: 0,
        retrans_timer: 0,
        options: vec![
            NdOption::PrefixInformation(PrefixInformation {
                prefix_length: 64,
                flags: PrefixFlags(0xe0),
                valid_lifetime: 86_400,
                preferred_lifetime: 14_400,
                prefix: address("2001:db8:1::"),
            }),
            NdOption::SourceLinkLayerAddress {
                link_layer_address: vec![0x46, 0xc3, 0x63, 0, 0x56, 0xd1],
            },
            NdOption::AdvertisementInterval { advertisement_interval: 1_000 },
        ],
    };
    assert_eq!(Message::parse(&bytes), Ok(Message::RouterAdvertisement(expected)));
}

#[test]
fn every_option_lies_where_its_rfc_has_it() {
    let expected = "86000000 40b80708 00007530 000003e8
        0101 020000000001  0201 020000000002
        0304 40a0 ffffffff 00000e10 00000000 20010db8000000000000000000000001
        0407 000000000000 606060606060606060606060606060606060606060606060606060606060606060606060606060606060606060606060
        0501 0000 000005ac  0701 0000 00000046  0801 0000 0009 0258
        1802 3008 00000384 20010db800050000
        1905 0000 00000078 20010db8000000000000000000000053 fe800000000000000000000000000053
        1f05 0000 00000078 07 6578616d706c65 03 636f6d 00  06 636f7270002e 07 6578616d706c65 00 000000
        2602 070a 20010db80122030000000000
        0e01 010203040506";
    let expected = bytes(expected);
    assert_eq!(full().emit(), expected);
    assert_eq!(Message::parse(&expected), Ok(full()));
}

#[test]
fn a_message_cut_anywhere_is_refused_or_is_a_shorter_message() {
    let messages = captured().map(|(_, bytes)| bytes).chain([full().emit()]);
    for whole in messages {
        for n in 0..whole.len() {
            match Message::parse(&whole[..n]) {
                Ok(message) => {
                    let mut emitted = message.emit();
                    emitted[2..4].copy_from_slice(&whole[2..4]);
                    assert_eq!(emitted, whole[..n]);
                    assert!(n.is_multiple_of(8), "{n}");
                }
                Err(WireError::TooShort { got, min, .. }) => assert!(got < min && got <= n),
                Err(error) => panic!("{n} bytes: {error}"),
            }
        }
    }
}

#[test]
fn options_without_an_end_and_addresses_that_are_cut_void_a_message() {
    let solicitation = |option: &str| Message::parse(&bytes(&format!("8500000000000000{option}")));
    let field = |field, got| Err(WireError::Field { field, got });
    assert_eq!(solicitation("0100020000000001"), field("option length", 0));
    assert_eq!(Message::parse(&[128, 0, 0, 0, 0, 0, 0, 0]), Err(WireError::Type { got: 128 }));
    assert_eq!(
        Message::parse(&bytes("9100000000010000 20010db8")),
        field("length of the addresses", 4)
    );
}

#[test]
fn an_option_whose_content_is_wrong_is_named_and_does_not_void_its_message() {
    let field = |field, got| WireError::Field { field, got };
    let zeros = "0000000000000000";
    let short = WireError::TooShort { what: "domain name", got: 8, min: 9 };
    for (option, error) in [
        (format!("0303400000000000 {zeros} {zeros}"), field("option length", 3)),
        (format!("0304810000000000 {zeros} {zeros} {zeros}"), field("prefix length", 129)),
        (format!("0502000000000000 {zeros}"), field("option length", 2)),
        (format!("0702000000000000 {zeros}"), field("option length", 2)),
        (format!("0802000000000000 {zeros}"), field("option length", 2)),
        ("1801 0100 00000384".into(), field("option length", 1)),
        (format!("1802 4100 00000384 {zeros}"), field("option length", 2)),
        ("1901 0000 00000078".into(), field("option length", 1)),
        (format!("1902 0000 00000078 {zeros}"), field("option length", 2)),
        ("1f02 0000 00000078 c000000000000000".into(), field("label length", 0xc0)),
        ("1f02 0000 00000078 0861616161616161".into(), short),
    ] {
        let raw = bytes(&option);
        let whole = bytes(&format!("8500000000000000 {option} 0501 0000 000005dc"));
        let message = Message::parse(&whole).unwrap();
        let malformed = NdOption::Malformed { kind: raw[0], data: raw[2..].to_vec(), error };
        assert_eq!(message.options(), [malformed, NdOption::Mtu { mtu: 1_500 }]);
        assert_eq!(message.emit(), whole);
    }
}

#[test]
fn what_can_be_read_of_a_message_with_an_option_that_is_cut_is_shown() {
    let text = "8500000000000000 0501 0000 000005dc";
    for (rest, data, error) in [
        ("0100 0102", vec![1, 2], WireError::Field { field: "option length", got: 0 }),
        ("0101 0102", vec![1, 2], WireError::TooShort { what: "option", got: 4, min: 8 }),
        ("01", vec![], WireError::TooShort { what: "option", got: 1, min: 8 }),
    ] {
        let whole = bytes(&format!("{text} {rest}"));
        assert_eq!(Message::parse(&whole), Err(error));
        let message = Message::parse_lossy(&whole).unwrap();
        let last = NdOption::Malformed { kind: 1, data, error };
        assert_eq!(message.options(), [NdOption::Mtu { mtu: 1_500 }, last]);
    }
    let cut = Message::parse_lossy(&bytes("85000000"));
    assert!(matches!(cut, Err(WireError::TooShort { .. })));
}

#[test]
fn what_does_not_fit_into_an_option_is_left_out() {
    let emitted = |option: NdOption| {
        let mut out = Vec::new();
        option.emit(&mut out);
        assert_eq!(out.len(), usize::from(out[1]) * 8);
        let message = [&[133, 0, 0, 0, 0, 0, 0, 0][..], &out].concat();
        Message::parse(&message).unwrap().options().to_vec().remove(0)
    };
    let data = vec![7; 3_000];
    let other = emitted(NdOption::Unknown { kind: 99, data: data.clone() });
    assert_eq!(other, NdOption::Unknown { kind: 99, data: vec![7; 2_038] });
    let redirected = emitted(NdOption::RedirectedHeader { packet: data });
    assert_eq!(redirected, NdOption::RedirectedHeader { packet: vec![7; 2_032] });
    let addresses = vec![address("::1"); 200];
    let servers = emitted(NdOption::RecursiveDnsServer { lifetime: 1, addresses });
    assert!(
        matches!(servers, NdOption::RecursiveDnsServer { addresses, .. } if addresses.len() == 127)
    );
    let name = |c: char| [c.to_string().repeat(63), c.to_string().repeat(63), "x".into()].join(".");
    let domain_names = ('a'..='t').map(name).chain(["..".into(), "\\300".into(), "\\0".into()]);
    let list =
        emitted(NdOption::DnsSearchList { lifetime: 1, domain_names: domain_names.collect() });
    assert!(
        matches!(list, NdOption::DnsSearchList { domain_names, .. } if domain_names.len() == 15)
    );
}

/// Reads an option of type 38 with this word of lifetime and code, and this prefix.
fn pref64(word: u16, prefix: &str) -> NdOption {
    let data = [&word.to_be_bytes()[..], &address(prefix).octets()[..12]].concat();
    NdOption::parse(OptionView { kind: 38, data: &data }).unwrap()
}

#[test]
fn a_translators_prefix_has_six_lengths_and_a_scaled_lifetime() {
    let lengths = [96, 64, 56, 48, 40, 32];
    for (code, len) in lengths.into_iter().enumerate() {
        let read = pref64(0xfff8 | code as u16, "2001:db8:122:344::");
        let prefix = Prefix::new(address("2001:db8:122:344::"), len);
        let prefix = Pref64::new(prefix).unwrap();
        assert_eq!(read, NdOption::Pref64 { lifetime: 65_528, prefix });
    }
    let withdrawn = NdOption::Pref64 { lifetime: 0, prefix: translators("64:ff9b::/96") };
    assert_eq!(pref64(0, "64:ff9b::"), withdrawn);
}

#[test]
fn a_translators_prefix_that_receivers_ignore_is_unknown() {
    let is_unknown = |option: &NdOption| matches!(option, NdOption::Unknown { kind: 38, .. });
    for (word, prefix) in [(0x0706, "64:ff9b::"), (0x0707, "64:ff9b::"), (0x0708, "fe80::")] {
        assert!(is_unknown(&pref64(word, prefix)), "{word:#x} {prefix}");
    }
    assert!(is_unknown(&pref64(0x0708, "2001:db8:0:0:700::")), "octet u");
    for length in [6, 22] {
        let data = vec![0; length];
        assert!(is_unknown(&NdOption::parse(OptionView { kind: 38, data: &data }).unwrap()));
    }
}

/// The result of [`check`] for a message between two addresses.
fn judged(
    source: &str,
    destination: &str,
    hop_limit: u8,
    message: &Message,
) -> Result<(), Refusal> {
    let (source, destination) = (address(source), address(destination));
    let bytes = message.emit_with_checksum(source, destination);
    check(&bytes, &Envelope { source, destination, hop_limit }).map(|_| ())
}

#[test]
fn a_receiver_discards_what_its_rfc_has_it_discard() {
    let source_address = NdOption::SourceLinkLayerAddress { link_layer_address: vec![2; 6] };
    let wrong = |field, got| Err(Refusal::Address { field, got: address(got) });
    let (link, global, all) = ("fe80::1", "2001:db8::1", "ff02::1");

    let solicitation = |options| Message::RouterSolicitation { options };
    assert_eq!(judged("::", "ff02::2", 255, &solicitation(vec![])), Ok(()));
    assert_eq!(
        judged("::", "ff02::2", 254, &solicitation(vec![])),
        Err(Refusal::HopLimit { got: 254 })
    );
    let told = solicitation(vec![source_address.clone()]);
    assert_eq!(judged("::", "ff02::2", 255, &told), Err(Refusal::SourceLinkLayerAddress));
    assert_eq!(judged(link, "ff02::2", 255, &told), Ok(()));

    assert_eq!(judged(link, all, 255, &full()), Ok(()));
    assert_eq!(judged(global, all, 255, &full()), wrong("source", global));

    let asked = |target: &str, options| Message::NeighborSolicitation {
        target_address: address(target),
        options,
    };
    assert_eq!(judged("::", "ff02::1:ff00:1", 255, &asked(global, vec![])), Ok(()));
    assert_eq!(judged("::", all, 255, &asked(global, vec![])), wrong("destination", all));
    assert_eq!(judged(link, global, 255, &asked(all, vec![])), wrong("target_address", all));
    let told = asked(global, vec![source_address]);
    assert_eq!(judged("::", "ff02::1:ff00:1", 255, &told), Err(Refusal::SourceLinkLayerAddress));

    let answer = |s, target: &str| Message::NeighborAdvertisement {
        flags: NeighborAdvertisementFlags(if s { 0xe0 } else { 0xa0 }),
        target_address: address(target),
        options: vec![],
    };
    assert_eq!(judged(link, all, 255, &answer(false, global)), Ok(()));
    assert_eq!(judged(link, all, 255, &answer(true, global)), Err(Refusal::Solicited));
    assert_eq!(judged(link, global, 255, &answer(true, all)), wrong("target_address", all));

    let redirect = |target: &str, destination: &str| Message::Redirect {
        target_address: address(target),
        destination_address: address(destination),
        options: vec![],
    };
    assert_eq!(judged(link, global, 255, &redirect("fe80::2", "2001:db8::9")), Ok(()));
    assert_eq!(judged(link, global, 255, &redirect("2001:db8::9", "2001:db8::9")), Ok(()));
    assert_eq!(
        judged(global, link, 255, &redirect("fe80::2", "2001:db8::9")),
        wrong("source", global)
    );
    assert_eq!(
        judged(link, global, 255, &redirect("2001:db8::8", "2001:db8::9")),
        wrong("target_address", "2001:db8::8")
    );
    assert_eq!(
        judged(link, global, 255, &redirect("ff02::5", "ff02::5")),
        wrong("destination_address", "ff02::5")
    );

    // These messages may cross routers.
    let request = Message::HomeAgentAddressDiscoveryRequest { identifier: 1 };
    assert_eq!(judged(global, "2001:db8::fdff:ffff:ffff:fffe", 60, &request), Ok(()));
}

#[test]
fn wrong_checksums_codes_and_lengths_are_named() {
    let (envelope, good) = captured().nth(1).unwrap();
    let spoilt = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for at in 0..good.len() {
        let refused = check(&spoilt(at), &envelope).unwrap_err();
        let expected = match at {
            0 => {
                matches!(refused, Refusal::Malformed(_))
                    || matches!(refused, Refusal::Checksum { .. })
            }
            49 | 57 => matches!(refused, Refusal::Malformed(_)),
            _ => matches!(refused, Refusal::Checksum { .. }),
        };
        assert!(expected, "byte {at}: {refused}");
    }
    let mut code = spoilt(1);
    fill_checksum(envelope.source, envelope.destination, &mut code);
    assert_eq!(check(&code, &envelope), Err(Refusal::Code { got: 1 }));
    assert_eq!(Refusal::Code { got: 1 }.to_string(), "code 1, must be 0");
}

fn any_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Ipv6Addr::from)
}

fn any_preference() -> impl Strategy<Value = Preference> {
    (0..4u8).prop_map(|bits| Preference::of(bits << 3))
}

/// Data of an option behind `front` bytes, up to the maximum length of an option.
fn any_data(front: usize) -> impl Strategy<Value = Vec<u8>> {
    (1..=255usize).prop_flat_map(move |length| list(any::<u8>(), 8 * length - 2 - front))
}

fn any_name() -> impl Strategy<Value = String> {
    let label = list(any::<u8>(), 1..8).prop_map(|bytes| {
        let mut wire = vec![bytes.len() as u8];
        wire.extend(&bytes);
        wire.push(0);
        domain::read(&wire).unwrap().remove(0)
    });
    list(label, 1..4).prop_map(|labels| labels.join("."))
}

fn any_option() -> impl Strategy<Value = NdOption> {
    let prefix = (0..=128u8, any::<u8>(), any::<[u32; 2]>(), any_address());
    let prefix = prefix.prop_map(|(prefix_length, flags, lifetimes, prefix)| {
        let [valid_lifetime, preferred_lifetime] = lifetimes;
        NdOption::PrefixInformation(PrefixInformation {
            prefix_length,
            flags: PrefixFlags(flags),
            valid_lifetime,
            preferred_lifetime,
            prefix,
        })
    });
    let route = (0..=128u8, 0..3u8, any_preference(), any::<u32>(), any_address());
    let route = route.prop_map(|(prefix_length, more, prf, route_lifetime, prefix)| {
        let length = (1 + prefix_length.div_ceil(64) + more).min(3);
        let sent = 8 * usize::from(length - 1);
        let prefix = option::address(&prefix.octets()[..sent]);
        NdOption::RouteInformation { length, prefix_length, prf, route_lifetime, prefix }
    });
    let known = [1, 2, 3, 4, 5, 7, 8, 24, 25, 31, 38];
    let other = (any::<u8>().prop_filter("known", move |kind| !known.contains(kind)), any_data(0));
    prop_oneof![
        any_data(0).prop_map(|data| NdOption::SourceLinkLayerAddress { link_layer_address: data }),
        any_data(0).prop_map(|data| NdOption::TargetLinkLayerAddress { link_layer_address: data }),
        prefix,
        any_data(6).prop_map(|packet| NdOption::RedirectedHeader { packet }),
        any::<u32>().prop_map(|mtu| NdOption::Mtu { mtu }),
        any::<u32>().prop_map(|interval| NdOption::AdvertisementInterval {
            advertisement_interval: interval
        }),
        any::<[u16; 2]>().prop_map(|[preference, lifetime]| NdOption::HomeAgentInformation {
            home_agent_preference: preference,
            home_agent_lifetime: lifetime,
        }),
        route,
        (any::<u32>(), list(any_address(), 1..9))
            .prop_map(|(lifetime, addresses)| NdOption::RecursiveDnsServer { lifetime, addresses }),
        (any::<u32>(), list(any_name(), 0..4)).prop_map(|(lifetime, domain_names)| {
            NdOption::DnsSearchList { lifetime, domain_names }
        }),
        (any::<u16>(), 0..6usize, any::<u64>()).prop_map(|(lifetime, code, high)| {
            let len = [96, 64, 56, 48, 40, 32][code];
            // A global unicast address.
            let high = high >> 3 | 1 << 61;
            let network = Ipv6Addr::from_bits(u128::from(high) << 64);
            let prefix = Pref64::new(Prefix::new(network, len)).unwrap();
            NdOption::Pref64 { lifetime: lifetime & !7, prefix }
        }),
        other.prop_map(|(kind, data)| NdOption::Unknown { kind, data }),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let parts = (
        0..9usize,
        any::<u8>(),
        any_preference(),
        any::<(u8, u16, u32, u32)>(),
        (any_address(), any_address()),
        list(any_option(), 0..5),
    );
    parts.prop_map(|(which, flags, prf, numbers, addresses, options)| {
        let (cur_hop_limit, identifier, reachable_time, retrans_timer) = numbers;
        let (target_address, destination_address) = addresses;
        match which {
            0 => Message::RouterSolicitation { options },
            1 => Message::RouterAdvertisement(RouterAdvertisement {
                cur_hop_limit,
                flags: RouterAdvertisementFlags(flags & !0x18),
                prf,
                router_lifetime: identifier,
                reachable_time,
                retrans_timer,
                options,
            }),
            2 => Message::NeighborSolicitation { target_address, options },
            3 => Message::NeighborAdvertisement {
                flags: NeighborAdvertisementFlags(flags),
                target_address,
                options,
            },
            4 => Message::Redirect { target_address, destination_address, options },
            5 => Message::HomeAgentAddressDiscoveryRequest { identifier },
            6 => Message::HomeAgentAddressDiscoveryReply {
                identifier,
                home_agent_addresses: vec![target_address, destination_address],
            },
            7 => Message::MobilePrefixSolicitation { identifier, options },
            _ => Message::MobilePrefixAdvertisement {
                identifier,
                flags: RouterAdvertisementFlags(flags),
                options,
            },
        }
    })
}

proptest! {
    #[test]
    fn what_is_emitted_parses_as_what_it_was(message in any_message()) {
        prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
    }

    #[test]
    fn no_bytes_panic_and_what_parses_has_one_reading(
        kind in prop_oneof![133..=137u8, 144..=147u8],
        rest in list(any::<u8>(), 0..80),
    ) {
        let bytes = [&[kind][..], &rest].concat();
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(message.kind() as u8, kind);
            let emitted = message.emit();
            prop_assert_eq!(Message::parse(&emitted), Ok(message));
        }
    }
}
