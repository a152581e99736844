//! Access-Requests: retransmission, fail-over, hold-off, limits.

use segue_aaa::{AaaProfile, AaaReport, Side, Verdict};
use segue_clock::Span;
use segue_wire::radius::{Attribute, AttributeType, Code, PMIP6_SUPPORTED};

use crate::world::*;

#[test]
fn a_host_is_granted_what_the_server_says() {
    let mut world = World::gateway();
    let home = "2001:db8:1::/64".parse().unwrap();
    world.does(
        1,
        accepts(&[
            Attribute::address(
                AttributeType::PMIP6_HOME_LMA_IPV6_ADDRESS,
                "2001:db8::1".parse().unwrap(),
            ),
            Attribute::prefix(AttributeType::PMIP6_HOME_HN_PREFIX, home),
            // The unspecified prefix: any prefix that the anchor chooses.
            Attribute::octets(
                AttributeType::PMIP6_HOME_HN_PREFIX,
                &[[0, 128].as_slice(), &[0; 16]].concat(),
            ),
            Attribute::integer(AttributeType::SESSION_TIMEOUT, 3_600),
        ]),
    );
    world.ask(1);
    let [(1, Verdict::Granted(grant))] = &world.verdicts[..] else {
        panic!("{:?}", world.verdicts)
    };
    assert_eq!(grant.node.as_deref(), Some(&b"alice@example.org"[..]));
    assert_eq!(grant.anchor, Some("2001:db8::1".parse().unwrap()));
    assert_eq!(grant.prefixes, [home]);
    assert_eq!(grant.session, Some(Span::from_secs(3_600)));
    let (_, request) = &world.sent_to(1, 1812)[0];
    assert_eq!(request.code, Code::ACCESS_REQUEST);
    // Must come first: otherwise an attacker could choose the bytes before it with knowledge of those after it.
    assert_eq!(request.attributes[0].kind, AttributeType::MESSAGE_AUTHENTICATOR);
    let text = |kind| String::from_utf8(request.first(kind).unwrap().value.clone()).unwrap();
    assert_eq!(text(AttributeType::USER_NAME), "02-00-00-00-00-01");
    assert_eq!(text(AttributeType::CALLING_STATION_ID), "02-00-00-00-00-01");
    let number = |kind| request.first(kind).unwrap().to_integer().unwrap();
    assert_eq!(number(AttributeType::SERVICE_TYPE), 1);
    let features = request.first(AttributeType::MIP6_FEATURE_VECTOR).unwrap();
    assert_eq!(features.to_integer64(), Some(PMIP6_SUPPORTED));
    let nas = request.first(AttributeType::NAS_IPV6_ADDRESS).unwrap();
    assert_eq!(nas.to_address(), Some("fd00::2".parse().unwrap()));
}

#[test]
fn an_anchor_asks_for_authorization_only_and_without_a_password() {
    let mut world = World::with(config(Side::Anchor));
    world.does(1, Does::Accept(Vec::new()));
    let mut subject = subject(1);
    subject.node = Some(b"alice@example.org".to_vec());
    world.handle(segue_aaa::AaaInput::Ask { key: 1, subject });
    assert!(is_granted(&world.verdicts[0].1), "the identity is known already");
    let (_, request) = &world.sent_to(1, 1812)[0];
    assert_eq!(request.first(AttributeType::SERVICE_TYPE).unwrap().to_integer(), Some(17));
    assert_eq!(request.first(AttributeType::USER_PASSWORD), None);
    for kind in [AttributeType::USER_NAME, AttributeType::MOBILE_NODE_IDENTIFIER] {
        assert_eq!(request.first(kind).unwrap().value, b"alice@example.org");
    }
}

#[test]
fn papers_gateway_asks_as_it_does_and_reads_the_framed_prefix() {
    let mut config = config(Side::Gateway);
    config.profile = AaaProfile::Paper;
    let mut world = World::with(config);
    let home = "2001:db8:1::/64".parse().unwrap();
    world.does(1, accepts(&[Attribute::prefix(AttributeType::FRAMED_IPV6_PREFIX, home)]));
    world.ask(0x1a);
    let [(_, Verdict::Granted(grant))] = &world.verdicts[..] else { panic!() };
    assert_eq!(grant.prefixes, [home]);
    let (_, request) = &world.sent_to(1, 1812)[0];
    assert_eq!(request.first(AttributeType::USER_NAME).unwrap().value, b"000002000000001a");
    assert_eq!(request.first(AttributeType::SERVICE_TYPE).unwrap().to_integer(), Some(8));
    assert_eq!(request.first(AttributeType::MIP6_FEATURE_VECTOR), None);
}

#[test]
fn a_host_may_be_asked_about_by_its_interface_identifier_and_be_named_by_it() {
    let mut config = config(Side::Gateway);
    (config.profile, config.eui64) = (AaaProfile::Paper, true);
    let mut world = World::with(config);
    let id = |octets: &[u8]| Attribute::octets(AttributeType::FRAMED_INTERFACE_ID, octets);
    let named = [0x02, 0, 0, 0xff, 0xfe, 0, 0, 0x1a];
    world.does(1, Does::Accept(vec![id(&named)]));
    world.ask(0x1a);
    let (_, request) = &world.sent_to(1, 1812)[0];
    assert_eq!(request.first(AttributeType::USER_NAME).unwrap().value, b"000000fffe00001a");
    let [(_, Verdict::Granted(grant))] = &world.verdicts[..] else { panic!() };
    assert_eq!(grant.node.as_deref(), Some(&b"020000fffe00001a"[..]));
    // Mobile-Node-Identifier takes precedence; an all-zero Framed-Interface-Id, or one of another length, is invalid.
    world.does(1, accepts(&[id(&named)]));
    world.ask(2);
    let (_, Verdict::Granted(grant)) = &world.verdicts[1] else { panic!() };
    assert_eq!(grant.node.as_deref(), Some(&b"alice@example.org"[..]));
    for (key, octets) in [(3, &named[..7]), (4, &[0; 8])] {
        world.does(1, Does::Accept(vec![id(octets)]));
        world.ask(key);
        assert_eq!(world.verdicts.last(), Some(&(key, Verdict::Refused)));
    }
    // The RFC 6572 profile ignores Framed-Interface-Id.
    let mut world = World::gateway();
    world.does(1, Does::Accept(vec![id(&named)]));
    world.ask(1);
    assert_eq!(world.verdicts, [(1, Verdict::Refused)]);
}

#[test]
fn who_is_refused_is_not_asked_about_again_for_a_while() {
    let mut world = World::gateway();
    world.does(1, Does::Reject);
    world.ask(1);
    assert_eq!(world.verdicts, [(1, Verdict::Refused)]);
    assert!(matches!(world.reports[..], [AaaReport::Refused { .. }]), "{:?}", world.reports);
    for n in 1..100 {
        world.run(s(f64::from(n) * 0.09));
        world.ask(1);
    }
    assert_eq!(world.sent_to(1, 1812).len(), 1, "a storm at the gateway is none at the server");
    assert_eq!(world.client.passed_over()[0], 99);
    assert!(world.verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Refused));
    world.does(1, accepts(&[]));
    world.run(s(10.1));
    world.ask(1);
    assert!(is_granted(&world.verdicts.last().unwrap().1));
}

#[test]
fn a_challenge_and_an_acceptance_of_nobody_are_refusals() {
    for does in [Does::Challenge, Does::Accept(Vec::new())] {
        let mut world = World::gateway();
        let is_challenge = matches!(does, Does::Challenge);
        world.does(1, does);
        world.ask(1);
        assert_eq!(world.verdicts, [(1, Verdict::Refused)]);
        assert_eq!(world.server(1, 1812).rejects, u64::from(is_challenge));
        let said = world.reports[0].to_string();
        let expected = if is_challenge { "may not be served" } else { "but named no host" };
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_silent_server_is_asked_again_ever_more_slowly_and_then_the_next_one() {
    let mut world = World::gateway();
    world.does(2, accepts(&[]));
    world.ask(1);
    world.run(s(20.0));
    let first = world.sent_to(1, 1812);
    let times: Vec<f64> = first.iter().map(|(at, _)| *at).collect();
    let [0.0, one, three] = times[..] else { panic!("{times:?}") };
    assert!((0.9..=1.1).contains(&one) && (2.7..=3.3).contains(&three), "{times:?}");
    assert!(first.iter().all(|(_, packet)| *packet == first[0].1), "a repetition is the same");
    let (at, second) = &world.sent_to(2, 1812)[0];
    assert!((6.3..=7.7).contains(at), "{at}");
    assert_ne!(second.authenticator, first[0].1.authenticator, "another secret, another pad");
    assert!(is_granted(&world.verdicts[0].1));
    assert_eq!(world.server(1, 1812).unanswered, 1);
    assert!(world.reports.contains(&AaaReport::Silent { server: crate::world::at(1, 1812) }));
    // Skipped while it is marked dead.
    world.ask(2);
    assert!(is_granted(&world.verdicts[1].1), "at once");
    assert_eq!(world.sent_to(1, 1812).len(), 3);
    // After the dead time one request probes the server; the others do not wait for it.
    world.run(s(70.0));
    (3..6).for_each(|key| world.ask(key));
    assert_eq!(world.verdicts.len(), 4, "two of three had no need to wait");
    world.does(1, accepts(&[]));
    world.run(s(72.0));
    assert_eq!(world.verdicts.len(), 5);
    assert!(world.reports.contains(&AaaReport::Answers { server: crate::world::at(1, 1812) }));
}

#[test]
fn silence_of_all_is_told_and_the_host_may_be_asked_about_later() {
    let mut world = World::gateway();
    world.ask(1);
    world.run(s(16.0));
    assert_eq!(world.verdicts, [(1, Verdict::Unanswered)]);
    assert_eq!((world.sent_to(1, 1812).len(), world.sent_to(2, 1812).len()), (3, 3));
    world.ask(1);
    assert_eq!(world.verdicts[1], (1, Verdict::Unanswered), "at once, without a word to servers");
    assert_eq!(world.sent.iter().filter(|(_, to, _)| to.port() == 1812).count(), 6);
    world.does(1, accepts(&[]));
    world.run(s(30.0));
    world.ask(1);
    assert!(is_granted(&world.verdicts[2].1), "all are silent: one is tried");
}

#[test]
fn requests_wait_for_an_identifier_when_all_are_in_use() {
    let mut world = World::gateway();
    world.keeps = true;
    world.does(1, accepts(&[]));
    (0..600).for_each(|key| world.ask(key));
    let sent = world.sent_to(1, 1812);
    assert_eq!(sent.len(), 256);
    let ids: std::collections::BTreeSet<u8> = sent.iter().map(|(_, packet)| packet.id).collect();
    assert_eq!(ids.len(), 256, "no two are open with one identifier");
    assert!(world.sent_to(2, 1812).is_empty(), "being busy is not being silent");
    world.keeps = false;
    let kept = std::mem::take(&mut world.kept);
    kept.into_iter().for_each(|datagram| world.deliver(datagram));
    assert_eq!(world.verdicts.len(), 600);
    assert!(world.verdicts.iter().all(|(_, verdict)| is_granted(verdict)));
    assert_eq!(world.client.open(), 0);
}

#[test]
fn what_waited_for_too_long_is_given_up_and_all_have_an_answer() {
    let mut world = World::gateway();
    (0..2_000).for_each(|key| world.ask(key));
    // Both servers time out once, not once per 256 requests.
    world.run(s(30.0));
    let mut keys: Vec<u32> = world.verdicts.iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..2_000).collect::<Vec<u32>>(), "each has one answer");
    assert_eq!(world.client.open(), 0);
    // The machine keeps nothing but the hold-off.
    assert_eq!(world.client.sessions(), 0);
}

#[test]
fn a_host_that_leaves_while_it_is_asked_about_has_no_verdict() {
    let mut world = World::gateway();
    world.keeps = true;
    world.does(1, accepts(&[]));
    world.ask(1);
    world.ended(1);
    let late = std::mem::take(&mut world.kept);
    late.into_iter().for_each(|datagram| world.deliver(datagram));
    assert_eq!(world.verdicts, []);
    assert_eq!(world.refused(1, segue_aaa::Unfit::Late), 1);
    assert_eq!((world.client.open(), world.client.sessions()), (0, 0));
}

#[test]
fn a_question_that_is_repeated_is_asked_once() {
    let mut world = World::gateway();
    world.keeps = true;
    world.does(1, accepts(&[]));
    (0..5).for_each(|_| world.ask(1));
    assert_eq!(world.sent_to(1, 1812).len(), 1);
}
