//! Forged and excessive frames.

use segue_clock::{Machine, Span};
use segue_ip::{Datagram, Input, Output};
use segue_mih::{Refusal, Transport};
use segue_wire::mih::codes::{EventList, LinkDownReason, LinkType, RegisterRequestCode, Status};
use segue_wire::mih::identity::{LinkId, LinkTupleId};
use segue_wire::mih::{Frame, MessageId, Opcode, Payload, Profile, Tlv};

use crate::stage::*;

fn all() -> Stage {
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, sap(&[1], Transport::Udp)),
        (GATEWAY, user("mag", Some(1), Transport::Udp)),
    ]);
    stage.run(Span::from_secs(2));
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    stage.news(GATEWAY);
    stage
}

/// Delivers a frame to the function, and returns the refusals that it caused.
fn forge(stage: &mut Stage, from: (&str, u16), mut bytes: Vec<u8>) -> Vec<(Refusal, u64)> {
    // A fresh transaction ID, so that the frame is not a duplicate.
    if let Some(number) = bytes.get_mut(4..6) {
        let n = ((stage.now.0 / 1_000_000) & 0xfff) as u16;
        number.copy_from_slice(&n.to_be_bytes());
    }
    let before = stage.node(FUNCTION).refused().clone();
    let now = stage.now;
    let datagram = Datagram {
        waited_ns: 0,
        interface: None,
        from: (ip(from.0), from.1),
        to: (ip(FUNCTION), 4551),
        protocol: 17,
        hop_limit: 64,
        bytes,
    };
    stage.node(FUNCTION).handle(now, Input::Datagram(datagram));
    stage.run(Span::from_millis(500));
    let after = stage.node(FUNCTION).refused().clone();
    let more = |(why, count): (&Refusal, &u64)| (*why, count - before.get(why).unwrap_or(&0));
    after.iter().map(more).filter(|(_, count)| *count > 0).collect()
}

fn frame(message: MessageId, name: &str, to: &str, tlvs: Vec<Tlv>) -> Vec<u8> {
    let names = [Tlv::SourceMihfId(name.into()), Tlv::DestinationMihfId(to.into())];
    let mut frame = Frame::new(message, 99, names.into_iter().chain(tlvs).collect());
    frame.ack_req = true;
    frame.emit(&Profile::STRICT).unwrap()
}

fn left() -> Vec<Tlv> {
    Vec::from([
        Tlv::LinkIdentifier(LinkTupleId { link: link(1), poa: None }),
        Tlv::OldAccessRouter(station(1)),
        Tlv::LinkDownReason(LinkDownReason::EXPLICIT_DISCONNECT),
    ])
}

#[test]
fn a_strangers_frames_are_counted_and_not_even_acknowledged() {
    let mut stage = all();
    let sent = stage.sent.len();
    let down = frame(MessageId::LINK_DOWN, "sap", "mihf", left());
    assert_eq!(forge(&mut stage, ("2001:db8::1", 4551), down), [(Refusal::Stranger, 1)]);
    assert_eq!(stage.sent.len(), sent);
    assert_eq!(stage.news(GATEWAY), []);
}

#[test]
fn one_peer_cannot_speak_for_another() {
    let mut stage = all();
    // The gateway's node may register, but does not own the link.
    let down = frame(MessageId::LINK_DOWN, "mag", "mihf", left());
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), down), [(Refusal::Link, 1)]);
    // With the owner's name, but from another address.
    let down = frame(MessageId::LINK_DOWN, "sap", "mihf", left());
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), down), [(Refusal::NotRegistered, 1)]);
    let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
    let links = Tlv::LinkIdentifierList(vec![link(1)]);
    let takes = frame(MessageId::REGISTER, "sap", "", vec![links.clone(), code.clone()]);
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), takes), [(Refusal::NameTaken, 1)]);
    // Another peer cannot claim the owner's link.
    let takes = frame(MessageId::REGISTER, "other", "", vec![links, code]);
    assert_eq!(forge(&mut stage, (ANCHOR, 4551), takes), [(Refusal::Link, 1)]);
    // The link type makes no difference: users identify a link by its address.
    let LinkId { address, .. } = link(1);
    let links = Tlv::LinkIdentifierList(vec![LinkId { link_type: LinkType::ETHERNET, address }]);
    let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
    let takes = frame(MessageId::REGISTER, "other", "", vec![links, code]);
    assert_eq!(forge(&mut stage, (ANCHOR, 4551), takes), [(Refusal::Link, 1)]);
    assert_eq!(stage.news(GATEWAY), []);
    assert_eq!(stage.stations(FUNCTION, 1), [station(1)]);
}

#[test]
fn what_is_no_frame_or_for_nobody_here_is_counted() {
    let mut stage = all();
    assert_eq!(forge(&mut stage, (SAP, 4551), vec![1, 2, 3]), [(Refusal::Malformed, 1)]);
    let other = frame(MessageId::LINK_DOWN, "sap", "elsewhere", left());
    assert_eq!(forge(&mut stage, (SAP, 4551), other), [(Refusal::Destination, 1)]);
    let nameless = Frame::new(MessageId::LINK_DOWN, 7, left()).emit(&Profile::STRICT).unwrap();
    assert_eq!(forge(&mut stage, (SAP, 4551), nameless), [(Refusal::Malformed, 1)]);
    let part = Payload::Fragment { number: 0, more: true, part: vec![0; 4] };
    let mut fragment = Frame::new(MessageId::LINK_DOWN, 8, Vec::new());
    fragment.payload = part;
    let fragment = fragment.emit(&Profile::STRICT).unwrap();
    assert_eq!(forge(&mut stage, (SAP, 4551), fragment), [(Refusal::Fragment, 1)]);
    let handover = frame(MessageId::NET_HO_COMMIT, "sap", "mihf", Vec::new());
    assert_eq!(forge(&mut stage, (SAP, 4551), handover), [(Refusal::NotServed, 1)]);
    let answer = MessageId::REGISTER.with_opcode(segue_wire::mih::Opcode::RESPONSE);
    let answer = frame(answer, "sap", "mihf", Vec::new());
    assert_eq!(forge(&mut stage, (SAP, 4551), answer), [(Refusal::Stale, 1)]);
}

#[test]
fn subscriptions_of_who_is_not_registered_or_to_no_link_are_refused() {
    let mut stage = all();
    let about = |of| {
        let tuple = LinkTupleId { link: link(of), poa: None };
        vec![Tlv::LinkIdentifier(tuple), Tlv::EventList(EventList::LINK_UP)]
    };
    let asks = frame(MessageId::EVENT_SUBSCRIBE, "nobody", "mihf", about(1));
    assert_eq!(forge(&mut stage, (ANCHOR, 4551), asks), [(Refusal::NotRegistered, 1)]);
    let asks = frame(MessageId::EVENT_SUBSCRIBE, "mag", "mihf", about(200));
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), asks), [(Refusal::Link, 1)]);
}

#[test]
fn a_flood_of_names_and_stations_has_an_end() {
    let mut stage = all();
    let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
    let mut full = 0;
    for n in 0..1_100_u16 {
        let name = format!("n{n}");
        let frame = frame(MessageId::REGISTER, &name, "", vec![code.clone()]);
        let now = stage.now;
        let datagram = Datagram {
            waited_ns: 0,
            interface: None,
            from: (ip(&format!("fd00::5:{}", n / 60)), n),
            to: (ip(FUNCTION), 4551),
            protocol: 17,
            hop_limit: 64,
            bytes: frame,
        };
        stage.node(FUNCTION).handle(now, Input::Datagram(datagram));
        full = stage.node(FUNCTION).refused().get(&Refusal::Full).copied().unwrap_or(0);
    }
    assert_eq!(stage.node(FUNCTION).registered().count(), 1_024);
    assert_eq!(full, 1_100 + 2 - 1_024);
    // Peers that registered earlier are still served.
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [down(1, 1)]);
}

fn registers(name: &str, links: Vec<LinkId>) -> Vec<u8> {
    let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
    frame(MessageId::REGISTER, name, "", vec![Tlv::LinkIdentifierList(links), code])
}

/// Delivers a frame to the function.
fn give(stage: &mut Stage, from: (&str, u16), bytes: Vec<u8>) {
    let (to, now) = ((ip(FUNCTION), 4551), stage.now);
    let from = (ip(from.0), from.1);
    let datagram =
        Datagram { waited_ns: 0, interface: None, from, to, protocol: 17, hop_limit: 64, bytes };
    stage.node(FUNCTION).handle(now, Input::Datagram(datagram));
}

#[test]
fn one_node_has_no_more_than_its_share_of_names_links_and_stations() {
    let mut stage = all();
    let refused = |stage: &mut Stage| *stage.node(FUNCTION).refused().get(&Refusal::Full).unwrap();
    let of = |a: u16, b: u16| {
        let [high, low] = b.to_be_bytes();
        mac([2, 7, 0, a as u8, high, low])
    };
    // Ten names with 60 links each, and 54 names without links.
    for n in 0..70_u16 {
        let links = (0..if n < 10 { 60 } else { 0 })
            .map(|link| LinkId { link_type: LinkType::IEEE_802_11, address: of(n, link) });
        give(&mut stage, (ANCHOR, n), registers(&format!("n{n}"), links.collect()));
    }
    assert_eq!(stage.node(FUNCTION).registered().count(), 2 + 64);
    assert_eq!(stage.node(FUNCTION).links().len(), 1 + 512);
    assert_eq!(refused(&mut stage), 6 + 600 - 512);
    // Links without an owner but with subscribers from that node count as well.
    let about = |n, link| {
        let id = LinkId { link_type: LinkType::IEEE_802_11, address: of(n, link) };
        let tuple = Tlv::LinkIdentifier(LinkTupleId { link: id, poa: None });
        vec![tuple, Tlv::EventList(EventList::LINK_UP)]
    };
    for link in 0..60 {
        let mut asks = frame(MessageId::EVENT_SUBSCRIBE, "n9", "mihf", about(0, link));
        asks[4..6].copy_from_slice(&(100 + link).to_be_bytes());
        give(&mut stage, (ANCHOR, 9), asks);
    }
    let mut asked = Vec::new();
    while let Some(output) = stage.node(FUNCTION).poll() {
        let Output::Send(Datagram { bytes, to: (_, 0), .. }, _) = output else { continue };
        let question = Frame::parse(&bytes, &Profile::STRICT).unwrap();
        let is_one = question.message_id == MessageId::EVENT_SUBSCRIBE;
        asked.extend(is_one.then_some(question.transaction_id));
    }
    assert_eq!(asked.len(), 60);
    for number in asked {
        let answer = MessageId::EVENT_SUBSCRIBE.with_opcode(Opcode::RESPONSE);
        let mut answer = frame(answer, "n0", "mihf", vec![Tlv::Status(Status::SUCCESS)]);
        answer[4..6].copy_from_slice(&number.to_be_bytes());
        give(&mut stage, (ANCHOR, 0), answer);
    }
    give(&mut stage, (ANCHOR, 0), frame(MessageId::DEREGISTER, "n0", "mihf", Vec::new()));
    assert_eq!(stage.node(FUNCTION).links().len(), 1 + 512);
    give(&mut stage, (ANCHOR, 90), registers("n69", vec![link(8)]));
    assert!(!stage.node(FUNCTION).links().contains_key(&link(8)));
    // Five links with 2000 stations each.
    for link in 0..5_u16 {
        for station in 0..2_000_u16 {
            let tuple = about(1, link).remove(0);
            let there = Tlv::NewAccessRouter(of(200 + link, station));
            let mut up = frame(MessageId::LINK_UP, "n1", "mihf", vec![tuple, there]);
            up[4..6].copy_from_slice(&((link * 2_000 + station) & 0xfff).to_be_bytes());
            give(&mut stage, (ANCHOR, 1), up);
        }
    }
    let stations: usize = stage.node(FUNCTION).links().values().map(|l| l.stations.len()).sum();
    assert_eq!(stations, 1 + 8_192);
    // Other nodes still have room.
    give(&mut stage, ("fd00::9", 1), registers("other", vec![link(9)]));
    assert!(stage.node(FUNCTION).links().contains_key(&link(9)));
}

#[test]
fn a_link_belongs_to_who_is_nearer_and_among_equals_to_the_first() {
    let peers = vec!["fd00::/16".parse().unwrap(), "::1/128".parse().unwrap()];
    let mut stage = Stage::new(&[
        (FUNCTION, segue_mih::MihfConfig { peers, ..function() }),
        (GATEWAY, user("mag", Some(1), Transport::Udp)),
        (SAP, sap(&[1], Transport::Udp)),
    ]);
    stage.run(Span::from_secs(2));
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [up(1, 1)]);
    assert_eq!(
        forge(&mut stage, (ANCHOR, 1), registers("far", vec![link(1)])),
        [(Refusal::Link, 1)]
    );
    // An access point on the same node takes precedence; events from the previous owner are refused.
    assert_eq!(forge(&mut stage, ("::1", 9), registers("near", vec![link(1)])), []);
    let owner = stage.node(FUNCTION).links()[&link(1)].owner.clone();
    assert_eq!(owner, Some(segue_mih::Owner::Client("near".into())));
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.node(FUNCTION).refused()[&Refusal::Link], 2);
    assert_eq!(stage.stations(FUNCTION, 1), [station(1)]);
    // The same holds for another link type.
    let LinkId { address, .. } = link(1);
    let wire = LinkId { link_type: LinkType::ETHERNET, address };
    assert_eq!(forge(&mut stage, ("::1", 8), registers("late", vec![wire])), [(Refusal::Link, 1)]);
    let LinkId { address, .. } = link(5);
    let wire = LinkId { link_type: LinkType::ETHERNET, address };
    assert_eq!(forge(&mut stage, (ANCHOR, 1), registers("far", vec![link(5)])), []);
    assert_eq!(forge(&mut stage, ("::1", 9), registers("near", vec![wire.clone()])), []);
    let known = stage.node(FUNCTION).links();
    assert!(known.contains_key(&wire) && !known.contains_key(&link(5)));
}

#[test]
fn answers_that_nobody_acknowledges_leave_room_for_events() {
    let mut stage = all();
    for n in 0..4_000_u16 {
        let mut bytes = frame(MessageId::CAPABILITY_DISCOVER, "nobody", "", Vec::new());
        bytes[4..6].copy_from_slice(&(n & 0xfff).to_be_bytes());
        let from = (ip(&format!("fd00::5:{}", n % 100)), n);
        let (to, now) = ((ip(FUNCTION), 4551), stage.now);
        let datagram = Datagram {
            waited_ns: 0,
            interface: None,
            from,
            to,
            protocol: 17,
            hop_limit: 64,
            bytes,
        };
        stage.node(FUNCTION).handle(now, Input::Datagram(datagram));
    }
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [down(1, 1)]);
}
