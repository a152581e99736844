//! Sessions: their length, and their accounting records.

use segue_aaa::{AaaInput, Cause, Side, Verdict, Volume};
use segue_clock::Span;
use segue_wire::radius::{Attribute, AttributeType};

use crate::world::*;

const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM: u32 = 3;
const ON: u32 = 7;

fn timeout(seconds: u32) -> Attribute {
    Attribute::integer(AttributeType::SESSION_TIMEOUT, seconds)
}

#[test]
fn a_session_that_is_over_ends() {
    let mut world = World::gateway();
    world.does(1, accepts(&[timeout(30)]));
    world.ask(1);
    world.began(1);
    world.run(s(29.9));
    assert_eq!(world.verdicts.len(), 1);
    world.run(s(30.1));
    assert_eq!(world.verdicts[1], (1, Verdict::Refused));
    assert_eq!(world.sent_to(1, 1812).len(), 1, "nobody is asked again");
    world.ended(1);
    // A new attempt is allowed at once.
    world.ask(1);
    assert!(is_granted(&world.verdicts[2].1));
}

#[test]
fn servers_are_asked_again_if_they_say_so_with_what_they_want_to_see_again() {
    let mut world = World::gateway();
    let again = Attribute::integer(AttributeType::TERMINATION_ACTION, 1);
    let state = Attribute::octets(AttributeType::STATE, b"where we were");
    world.does(1, accepts(&[timeout(30), again, state.clone()]));
    world.ask(1);
    world.began(1);
    world.run(s(95.0));
    let sent = world.sent_to(1, 1812);
    let times: Vec<f64> = sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 30.0, 60.0, 90.0]);
    assert_eq!(sent[1].1.first(AttributeType::STATE), Some(&state));
    assert!(world.verdicts.iter().all(|(_, verdict)| is_granted(verdict)));
    world.does(1, Does::Reject);
    world.run(s(125.0));
    assert_eq!(world.verdicts.last().unwrap(), &(1, Verdict::Refused));
    assert_eq!(world.told(), [ON, START], "one session all along");
}

#[test]
fn silence_ends_no_session_and_is_asked_into_again() {
    let mut world = World::with(config(Side::Anchor));
    world.does(1, Does::Accept(vec![timeout(30)]));
    world.ask(1);
    world.began(1);
    world.does(1, Does::Nothing);
    world.run(s(100.0));
    assert_eq!(world.verdicts.len(), 1, "{:?}", world.verdicts);
    world.does(1, Does::Reject);
    world.run(s(200.0));
    assert_eq!(world.verdicts[1], (1, Verdict::Refused));
}

#[test]
fn who_is_served_without_a_question_is_asked_about() {
    let mut world = World::gateway();
    world.does(1, accepts(&[]));
    world.began(1);
    assert!(is_granted(&world.verdicts[0].1));
    assert_eq!(world.told(), [ON, START]);
    world.does(1, Does::Reject);
    world.began(2);
    assert_eq!(world.verdicts[1], (2, Verdict::Refused));
    world.ended(2);
    assert_eq!(world.told(), [ON, START], "nobody is told of who was not let in");
}

#[test]
fn records_wait_until_the_accounting_on_is_acknowledged_or_given_up() {
    let mut world = World::gateway();
    world.does(1, accepts(&[]));
    world.servers.insert(at(1, 1813), Does::Nothing);
    world.began(1);
    world.run(s(2.0));
    assert_eq!(world.told(), [ON, ON], "a late one would end the session at the server");
    world.servers.insert(at(1, 1813), Does::Accept(Vec::new()));
    world.run(s(4.0));
    assert_eq!(world.told(), [ON, ON, ON, START]);

    let mut world = World::new(config(Side::Gateway));
    world.does(1, accepts(&[]));
    world.began(1);
    world.run(s(30.0));
    assert_eq!(world.told()[..7], [ON, ON, ON, ON, ON, ON, START], "both servers are silent");
}

#[test]
fn a_start_comes_first_and_a_stop_last_whatever_is_lost() {
    let mut world = World::gateway();
    world.does(1, accepts(&[Attribute::octets(AttributeType::CLASS, b"gold")]));
    world.servers.insert(at(1, 1813), Does::Nothing);
    world.servers.insert(at(2, 1813), Does::Nothing);
    world.ask(1);
    world.began(1);
    world.run(s(2.0));
    world.ended(1);
    world.run(s(5.0));
    assert!(!world.told().contains(&STOP), "the start has no answer: {:?}", world.told());
    world.servers.insert(at(2, 1813), Does::Accept(Vec::new()));
    world.run(s(60.0));
    let told = world.told();
    let last_start = told.iter().rposition(|status| *status == START).unwrap();
    let first_stop = told.iter().position(|status| *status == STOP).unwrap();
    assert!(last_start < first_stop, "{told:?}");
    let all = world.sent_to(2, 1813);
    let of = |status: u32| {
        let is = |packet: &segue_wire::radius::Packet| {
            packet.first(AttributeType::ACCT_STATUS_TYPE).unwrap().to_integer() == Some(status)
        };
        all.iter().map(|(_, packet)| packet).find(|packet| is(packet)).unwrap().clone()
    };
    let (start, stop) = (of(START), of(STOP));
    let session = |packet: &segue_wire::radius::Packet| {
        packet.first(AttributeType::ACCT_SESSION_ID).unwrap().value.clone()
    };
    assert_eq!(session(&start), session(&stop));
    assert_eq!(stop.first(AttributeType::ACCT_SESSION_TIME).unwrap().to_integer(), Some(2));
    assert_eq!(stop.first(AttributeType::ACCT_TERMINATE_CAUSE).unwrap().to_integer(), Some(1));
    assert_eq!(stop.first(AttributeType::CLASS).unwrap().value, b"gold");
    let at = stop.first(AttributeType::EVENT_TIMESTAMP).unwrap().to_integer();
    assert_eq!(at, Some(DAY.as_secs() as u32 + 2), "when it was, not when it was told");
    assert_eq!(world.client.passed_over()[2], 0);
}

#[test]
fn interim_updates_come_as_the_server_or_the_operator_says() {
    let mut config = config(Side::Gateway);
    config.interim = Some(Span::from_secs(100));
    for (says, expected) in [(None, 3), (Some(60), 5), (Some(1), 5)] {
        let mut world = World::with(config.clone());
        let more = says.map(|s| Attribute::integer(AttributeType::ACCT_INTERIM_INTERVAL, s));
        world.does(1, accepts(more.as_slice()));
        world.ask(1);
        world.began(1);
        world.run(s(301.0));
        let count = world.told().iter().filter(|status| **status == INTERIM).count();
        assert_eq!(count, expected, "{says:?}");
        world.ended(1);
        world.run(s(1_000.0));
        assert_eq!(world.told().last(), Some(&STOP));
    }
}

#[test]
fn without_accounting_servers_nothing_is_told_or_kept() {
    let mut config = config(Side::Gateway);
    config.accounting.clear();
    let mut world = World::with(config);
    world.does(1, accepts(&[]));
    world.ask(1);
    world.began(1);
    assert_eq!(world.client.sessions(), 1);
    world.handle(AaaInput::Ended { key: 1, cause: Cause::LostCarrier });
    assert_eq!((world.told(), world.client.sessions()), (vec![], 0));
}

#[test]
fn ends_that_nobody_is_told_of_are_bounded_and_counted() {
    let mut world = World::gateway();
    world.does(1, accepts(&[]));
    for n in [1, 2] {
        world.servers.insert(at(n, 1813), Does::Nothing);
    }
    for key in 0..6_000 {
        world.ask(key);
        world.began(key);
        world.ended(key);
    }
    let [_, _, untold] = world.client.passed_over();
    assert!(untold >= 6_000 - 4_096, "{untold}");
    world.run(s(3_600.0));
    assert_eq!(world.client.passed_over()[2], 6_000);
    assert_eq!((world.client.open(), world.client.sessions()), (0, 0));
}

#[test]
fn what_a_session_has_carried_is_told_as_of_its_end_with_all_64_bits() {
    let mut config = config(Side::Gateway);
    (config.counts, config.interim) = (true, Some(Span::from_secs(10)));
    let mut world = World::with(config);
    world.does(1, accepts(&[]));
    world.ask(1);
    world.began(1);
    // Reported again, as when a host moves; the session stays the same.
    world.began(1);
    world.volume = Volume {
        input_octets: 5 << 32 | 7,
        output_octets: 3,
        input_packets: 1 << 32 | 2,
        output_packets: 1,
    };
    world.run(s(10.5));
    world.servers.insert(at(1, 1813), Does::Nothing);
    world.servers.insert(at(2, 1813), Does::Nothing);
    world.run(s(20.5));
    world.volume.output_octets = 4;
    world.ended(1);
    // Traffic of a later session with the same prefixes does not count.
    world.volume.output_octets = 1_000;
    world.servers.insert(at(2, 1813), Does::Accept(Vec::new()));
    world.run(s(90.0));
    assert_eq!(world.counted, [(1, false), (1, false), (1, false), (1, true)]);
    let all = world.sent.iter().filter(|(_, to, _)| to.port() == 1813);
    let all = all.map(|(.., bytes)| segue_wire::radius::Packet::parse(bytes).unwrap());
    let (mut starts, mut stops) = (0, 0);
    for packet in all {
        let value = |kind| packet.first(kind).map(|attribute| attribute.to_integer().unwrap());
        let both = [AttributeType::ACCT_INPUT_OCTETS, AttributeType::ACCT_INPUT_GIGAWORDS];
        let [low, high] = both.map(value);
        match value(AttributeType::ACCT_STATUS_TYPE) {
            Some(START | ON) => {
                assert_eq!((low, high), (None, None));
                starts += 1;
            }
            Some(status) => {
                assert_eq!((low, high), (Some(7), Some(5)), "{packet:?}");
                assert_eq!(value(AttributeType::ACCT_INPUT_PACKETS), Some(2));
                assert_eq!(value(AttributeType::ACCT_OUTPUT_GIGAWORDS), Some(0));
                let to = value(AttributeType::ACCT_OUTPUT_OCTETS);
                assert_eq!(to, Some(if status == STOP { 4 } else { 3 }));
                stops += u32::from(status == STOP);
            }
            None => panic!("{packet:?}"),
        }
    }
    assert!(starts >= 2 && stops >= 1, "{starts} {stops}");
    assert_eq!(world.client.sessions(), 0);
}
