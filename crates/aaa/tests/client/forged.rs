//! Invalid replies: each is counted by reason and changes nothing else.

use segue_aaa::{AaaConfig, AaaReport, Side, Signed, Unfit};
use segue_wire::radius::{Attribute, AttributeType, Code, Packet, Secret};

use crate::world::*;

/// A client with one pending request, and the genuine reply.
fn asked() -> (World, segue_ip::Datagram) {
    let mut world = World::gateway();
    world.keeps = true;
    world.does(1, accepts(&[]));
    world.ask(1);
    let answer = world.kept.pop().unwrap();
    (world, answer)
}

#[test]
fn an_answer_that_is_not_made_with_the_secret_changes_nothing() {
    let (mut world, answer) = asked();
    for bit in 0..answer.bytes.len() * 8 {
        let mut forged = answer.clone();
        forged.bytes[bit / 8] ^= 1 << (bit % 8);
        world.deliver(forged);
    }
    assert_eq!(world.verdicts, []);
    let refused: u64 = world.server(1, 1812).refused.values().sum();
    assert_eq!(refused, answer.bytes.len() as u64 * 8, "each is counted");
    assert!(world.refused(1, Unfit::Authenticator) > 300);
    assert!(world.refused(1, Unfit::NoAnswer) > 0);
    world.deliver(answer);
    assert!(is_granted(&world.verdicts[0].1), "the true one counts still");
}

#[test]
fn a_wrong_secret_is_silence_and_counted() {
    let mut config = config(Side::Gateway);
    config.authentication.truncate(1);
    let mut world = World::with(config);
    world.ask(1);
    for _ in 0..3 {
        let (_, request) = world.sent_to(1, 1812).pop().unwrap();
        let packet = Packet {
            code: Code::ACCESS_ACCEPT,
            id: request.id,
            authenticator: [0; 16],
            attributes: vec![identity()],
        };
        let bytes = packet.seal_reply(&request.authenticator, &Secret::new(b"another"), true);
        world.deliver(from(at(1, 1812), bytes.unwrap()));
    }
    assert_eq!(world.refused(1, Unfit::Authenticator), 3);
    let server = at(1, 1812);
    assert_eq!(world.reports, [AaaReport::Secret { server }], "said once");
    assert_eq!((world.verdicts.len(), world.server(1, 1812).answers), (0, 0));
    world.run(s(8.0));
    assert_eq!(world.verdicts, [(1, segue_aaa::Verdict::Unanswered)]);
}

#[test]
fn an_answer_without_message_authenticator_counts_unless_it_is_required() {
    for signed in [Signed::Never, Signed::Auto, Signed::Always] {
        let mut world = World::with(requiring(signed));
        let required = signed == Signed::Always;
        world.with_message_authenticator = false;
        world.does(1, accepts(&[]));
        world.ask(1);
        assert_eq!(world.verdicts.len(), usize::from(!required));
        assert_eq!(world.refused(1, Unfit::NoMessageAuthenticator), u64::from(required));
    }
}

fn requiring(signed: Signed) -> AaaConfig {
    AaaConfig { require_message_authenticator: signed, ..config(Side::Gateway) }
}

#[test]
fn a_server_that_has_signed_cannot_go_back_to_unsigned_answers() {
    for (signed, counts) in [(Signed::Auto, false), (Signed::Never, true)] {
        for first in [accepts(&[]), Does::Reject, Does::Challenge] {
            let mut world = World::with(requiring(signed));
            world.does(1, first.clone());
            world.ask(1);
            world.with_message_authenticator = false;
            world.does(1, accepts(&[]));
            world.ask(2);
            assert_eq!(world.verdicts.len() == 2, counts, "{first:?}");
            assert_eq!(world.refused(1, Unfit::NoMessageAuthenticator), u64::from(!counts));
            let unsigned = AaaReport::Unsigned { server: at(1, 1812) };
            assert_eq!(world.reports.contains(&unsigned), !counts);
        }
    }
}

#[test]
fn an_unsigned_refusal_counts_until_the_server_has_signed_one() {
    let mut world = World::with(requiring(Signed::Auto));
    let signs = [(true, accepts(&[])), (false, Does::Reject), (true, Does::Reject)];
    for (key, (with, does)) in (1..).zip(signs) {
        world.with_message_authenticator = with;
        world.does(1, does);
        world.ask(key);
    }
    assert_eq!(world.verdicts.len(), 3);
    world.with_message_authenticator = false;
    world.ask(4);
    assert_eq!((world.verdicts.len(), world.refused(1, Unfit::NoMessageAuthenticator)), (3, 1));
}

#[test]
fn an_unsigned_answer_with_a_proxy_state_is_refused() {
    let echoed = Attribute::octets(AttributeType::PROXY_STATE, &[0x5a; 192]);
    for signed in [Signed::Never, Signed::Auto, Signed::Always] {
        let mut world = World::with(requiring(signed));
        world.with_message_authenticator = false;
        world.does(1, accepts(std::slice::from_ref(&echoed)));
        world.ask(1);
        let why = match signed {
            Signed::Always => Unfit::NoMessageAuthenticator,
            Signed::Auto | Signed::Never => Unfit::ProxyState,
        };
        assert_eq!((world.verdicts.len(), world.refused(1, why)), (0, 1), "{signed:?}");
        // A signature proves that the server itself added the Proxy-State.
        world.with_message_authenticator = true;
        world.ask(2);
        assert_eq!(world.verdicts.len(), 1, "{signed:?}");
    }
}

#[test]
fn a_message_authenticator_is_checked_also_where_none_is_required() {
    let (mut world, _) = asked();
    let (_, request) = world.sent_to(1, 1812).pop().unwrap();
    let wrong = Attribute::octets(AttributeType::MESSAGE_AUTHENTICATOR, &[9; 16]);
    for attributes in [vec![wrong.clone(), identity()], vec![wrong.clone(), wrong, identity()]] {
        let packet = Packet {
            code: Code::ACCESS_ACCEPT,
            id: request.id,
            authenticator: [0; 16],
            attributes,
        };
        let bytes = packet.seal_reply(&request.authenticator, &Secret::new(SECRET), false);
        world.deliver(from(at(1, 1812), bytes.unwrap()));
    }
    assert_eq!((world.verdicts.len(), world.refused(1, Unfit::MessageAuthenticator)), (0, 2));
}

#[test]
fn strangers_and_other_ports_are_nobody() {
    let (mut world, answer) = asked();
    for from in [at(9, 1812), at(1, 1_900)] {
        let mut other = answer.clone();
        other.from = (from.ip(), from.port());
        world.deliver(other);
    }
    // The second server shares the secret, but has no pending request.
    let mut other = answer.clone();
    other.from = (at(2, 1812).ip(), 1812);
    world.deliver(other);
    assert_eq!(world.client.strangers()[&Unfit::Stranger], 2);
    assert_eq!((world.verdicts.len(), world.refused(2, Unfit::Unasked)), (0, 1));
}

#[test]
fn an_answer_that_comes_twice_or_late_counts_once() {
    let (mut world, answer) = asked();
    world.deliver(answer.clone());
    world.deliver(answer.clone());
    assert_eq!((world.verdicts.len(), world.refused(1, Unfit::Late)), (1, 1));
    // Recognised as late even while its identifier is in use again, because the authenticators differ.
    world.does(1, Does::Nothing);
    (2..258).for_each(|key| world.ask(key));
    let open = world.sent_to(1, 1812).len();
    assert_eq!(open, 257);
    world.deliver(answer);
    assert_eq!((world.verdicts.len(), world.refused(1, Unfit::Late)), (1, 2));
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let (mut world, answer) = asked();
    for cut in 0..answer.bytes.len() {
        let mut cut_off = answer.clone();
        cut_off.bytes.truncate(cut);
        world.deliver(cut_off);
    }
    assert_eq!(world.refused(1, Unfit::Malformed), answer.bytes.len() as u64);
    assert_eq!(world.verdicts, []);
}
