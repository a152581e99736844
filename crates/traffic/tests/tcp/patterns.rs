//! With any losses, duplicates and delays in both directions, every stream is delivered completely, in order and
//! exactly once, within the bounds of its window and without endless exchanges ([`path`](crate::path) checks each
//! step).

use proptest::prelude::*;
use segue_clock::{Span, Time};
use segue_sim::Packet;
use segue_traffic::tcp::{Config, Variant};

use crate::path::{Direction, Fate, Path, Run, passes};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_stream_gets_through_whatever_becomes_of_its_packets(
        data in prop::collection::vec(fate(), 0..80),
        back in prop::collection::vec(fate(), 0..60),
        offers in prop::collection::vec((0u64..400, 1u64..30_000), 1..5),
        window in 1u32..40,
        delayed in any::<bool>(),
    ) {
        for config in configs() {
            let config = Config {
                window,
                mss: 1_000,
                delayed_ack: delayed.then_some(Span::from_millis(40)),
                ..config
            };
            let run = || carry(config, &offers, &data, &back);
            let done = run();
            let total: u64 = offers.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(done.sink.delivered(), total, "{:?}", config);
            prop_assert!(done.completed.is_some() && done.source.is_idle(), "{:?}", config);
            prop_assert_eq!(done.lines, run().lines, "the same twice: {:?}", config);
        }
    }
}

#[test]
fn random_loss_both_ways_stops_no_variant() {
    for config in configs() {
        for seed in 0..6 {
            let mut rng = segue_clock::Rng::new(seed);
            let path = Path {
                config: Config { window: 40, mss: 1_000, ..config },
                offers: vec![(Time::ZERO, 500_000)],
                delay: Span::from_millis(20),
                spacing: Span::from_micros(800),
                fate: |_, _, _: &Packet| {
                    if rng.next_u64().is_multiple_of(10) { vec![] } else { passes() }
                },
                most_events: 50_000,
            };
            let run = path.run();
            assert!(run.source.is_idle() && run.sink.delivered() == 500_000, "{config:?}, {seed}");
        }
    }
}

pub(crate) fn configs() -> impl Iterator<Item = Config> {
    let profiles = [Config::ns2_35, Config::ns2_2001, Config::modern];
    profiles.into_iter().flat_map(|profile| Variant::ALL.map(profile))
}

fn fate() -> impl Strategy<Value = Fate> {
    let late = (0u64..60).prop_map(Span::from_millis);
    prop_oneof![
        5 => Just(passes()),
        3 => Just(vec![]),
        2 => late.clone().prop_map(|late| vec![late]),
        1 => (late.clone(), late).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn carry(config: Config, offers: &[(u64, u64)], data: &[Fate], back: &[Fate]) -> Run {
    let mut offers: Vec<_> =
        offers.iter().map(|(ms, bytes)| (Time::ZERO + Span::from_millis(*ms), *bytes)).collect();
    offers.sort_unstable();
    let path = Path {
        config,
        offers,
        delay: Span::from_millis(20),
        spacing: Span::from_micros(800),
        fate: |way, number, _: &Packet| {
            let fates = if way == Direction::Data { data } else { back };
            fates.get(number as usize).cloned().unwrap_or_else(passes)
        },
        most_events: 10_000,
    };
    path.run()
}
