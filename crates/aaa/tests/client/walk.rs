//! Random walks: hosts come and go while servers behave arbitrarily.

use std::collections::BTreeMap;

use proptest::prelude::*;
use segue_aaa::{AaaInput, Cause, Side};
use segue_clock::Span;
use segue_wire::radius::{Attribute, AttributeType, Packet};

use crate::world::*;

#[derive(Clone, Debug)]
enum Step {
    Ask(u32),
    Began(u32),
    Ended(u32),
    /// Changes what an authentication server does.
    Server(u8, Does),
    Accounting(u8, Does),
    /// `true`: hold replies back. `false`: deliver the held replies, last one first and each twice.
    Keep(bool),
    Wait(u64),
}

fn does() -> impl Strategy<Value = Does> {
    let timeout = |s| Attribute::integer(AttributeType::SESSION_TIMEOUT, s);
    prop_oneof![
        3 => (1u32..60).prop_map(move |s| accepts(&[timeout(s)])),
        1 => Just(accepts(&[Attribute::integer(AttributeType::TERMINATION_ACTION, 1), timeout(5)])),
        2 => Just(accepts(&[])),
        1 => Just(Does::Reject),
        1 => Just(Does::Challenge),
        3 => Just(Does::Nothing),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let taken = prop_oneof![Just(Does::Accept(Vec::new())), Just(Does::Nothing)];
    prop_oneof![
        4 => (0u32..6).prop_map(Step::Ask),
        4 => (0u32..6).prop_map(Step::Began),
        3 => (0u32..6).prop_map(Step::Ended),
        3 => (1u8..3, does()).prop_map(|(n, does)| Step::Server(n, does)),
        1 => (1u8..3, taken).prop_map(|(n, does)| Step::Accounting(n, does)),
        1 => any::<bool>().prop_map(Step::Keep),
        5 => (0u64..20_000).prop_map(Step::Wait),
    ]
}

fn walk(steps: &[Step], side: Side) -> World {
    let mut world = World::with(config(side));
    for step in steps {
        match step.clone() {
            Step::Ask(key) => world.ask(key),
            Step::Began(key) => world.began(key),
            Step::Ended(key) => world.handle(AaaInput::Ended { key, cause: Cause::LostCarrier }),
            Step::Server(n, does) => world.does(n, does),
            Step::Accounting(n, does) => drop(world.servers.insert(at(n, 1813), does)),
            Step::Keep(keeps) => {
                world.keeps = keeps;
                let kept = std::mem::take(&mut world.kept);
                for datagram in kept.into_iter().rev().filter(|_| !keeps) {
                    world.deliver(datagram.clone());
                    world.deliver(datagram);
                }
            }
            Step::Wait(ms) => world.run(world.now + Span::from_millis(ms)),
        }
    }
    world
}

proptest! {
    #[test]
    fn whatever_servers_do_all_comes_to_an_end_in_order(
        steps in proptest::collection::vec(step(), 1..120),
        at_gateway in any::<bool>(),
    ) {
        let side = if at_gateway { Side::Gateway } else { Side::Anchor };
        let mut world = walk(&steps, side);
        // Deterministic: the same steps give the same result.
        let again = walk(&steps, side);
        prop_assert_eq!(&world.sent, &again.sent);
        prop_assert_eq!(&world.verdicts, &again.verdicts);
        // After all hosts have left and the records are acknowledged or given up, nothing is left.
        world.keeps = false;
        (0..6).for_each(|key| world.ended(key));
        world.run(world.now + Span::from_secs(600));
        prop_assert_eq!((world.client.open(), world.client.sessions()), (0, 0));
        // Each session's start comes first and its stop last, regardless of retransmissions and fail-over.
        let mut told: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for (_, to, bytes) in &world.sent {
            if to.port() != 1813 {
                continue;
            }
            let packet = Packet::parse(bytes).unwrap();
            let number = packet.first(AttributeType::ACCT_STATUS_TYPE).unwrap().to_integer();
            let session = packet.first(AttributeType::ACCT_SESSION_ID).unwrap().value.clone();
            told.entry(session).or_default().push(number.unwrap());
        }
        for (session, mut told) in told {
            told.dedup();
            let is_order = matches!(told[..], [7] | [1, 2] | [1, 3, 2]);
            prop_assert!(is_order, "{:?}: {:?}", session, told);
        }
    }
}
