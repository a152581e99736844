//! Frames that nobody should believe.

use segue_clock::{Machine, Span};
use segue_ip::{Datagram, Input};
use segue_mih::{Refusal, Transport};
use segue_wire::mih::codes::{EventList, LinkDownReason, LinkType, RegisterRequestCode};
use segue_wire::mih::identity::{LinkId, LinkTupleId};
use segue_wire::mih::{Frame, MessageId, Payload, Profile, Tlv};

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

/// Gives a function a frame from somebody, and says what it refused.
fn forge(stage: &mut Stage, from: (&str, u16), mut bytes: Vec<u8>) -> Vec<(Refusal, u64)> {
    // Each has a number of its own.
    if let Some(number) = bytes.get_mut(4..6) {
        let n = ((stage.now.0 / 1_000_000) & 0xfff) as u16;
        number.copy_from_slice(&n.to_be_bytes());
    }
    let before = stage.node(FUNCTION).refused().clone();
    let now = stage.now;
    let datagram = Datagram {
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
    // The gateway's node may register; it has no such link.
    let down = frame(MessageId::LINK_DOWN, "mag", "mihf", left());
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), down), [(Refusal::Link, 1)]);
    // Under the name of the other, from its own address.
    let down = frame(MessageId::LINK_DOWN, "sap", "mihf", left());
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), down), [(Refusal::NotRegistered, 1)]);
    let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
    let links = Tlv::LinkIdentifierList(vec![link(1)]);
    let takes = frame(MessageId::REGISTER, "sap", "", vec![links.clone(), code.clone()]);
    assert_eq!(forge(&mut stage, (GATEWAY, 4551), takes), [(Refusal::NameTaken, 1)]);
    // Its links neither.
    let takes = frame(MessageId::REGISTER, "other", "", vec![links, code]);
    assert_eq!(forge(&mut stage, (ANCHOR, 4551), takes), [(Refusal::Link, 1)]);
    // Nor under another kind: users know a link by its address.
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
            interface: None,
            from: (ip(ANCHOR), n),
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
    // Who was there before is served.
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [down(1, 1)]);
}

#[test]
fn answers_that_nobody_acknowledges_leave_room_for_events() {
    let mut stage = all();
    for n in 0..4_000_u16 {
        let mut bytes = frame(MessageId::CAPABILITY_DISCOVER, "nobody", "", Vec::new());
        bytes[4..6].copy_from_slice(&(n & 0xfff).to_be_bytes());
        let from = (ip(&format!("fd00::5:{}", n % 100)), n);
        let (to, now) = ((ip(FUNCTION), 4551), stage.now);
        let datagram = Datagram { interface: None, from, to, protocol: 17, hop_limit: 64, bytes };
        stage.node(FUNCTION).handle(now, Input::Datagram(datagram));
    }
    stage.happens(down(1, 1));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [down(1, 1)]);
}
