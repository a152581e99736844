//! Forged acknowledgements: of data never sent, of data acknowledged long ago, or with invalid blocks. The sender
//! ignores impossible ones, and survives plausible ones.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use segue_clock::{Span, Time};
use segue_sim::Packet;
use segue_sim::packet::TCP;
use segue_traffic::tcp::{Config, Counting, Endpoint, Sack, Segment, Source, Variant};

use crate::path::{Path, passes};
use crate::patterns::configs;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn acknowledgements_of_what_was_never_sent_and_old_ones_are_ignored(
        forged in prop::collection::vec(
            (any::<bool>(), 1u64..20_000, blocks(), timestamps()),
            1..30,
        ),
        lost in prop::collection::btree_set(0u64..100, 0..8),
    ) {
        // ns-2's Sack1 reduces its pipe for every acknowledgement during recovery, even for old ones.
        let counts_old = |c: &Config| c.variant == Variant::Sack && !c.scoreboard;
        for config in configs().filter(|config| !counts_old(config)) {
            let config = Config { mss: 1_000, window: 20, ..config };
            let carry = |forged: &[(bool, u64, Blocks, Timestamps)]| {
                let mut left = forged.iter();
                let path = Path {
                    config,
                    offers: vec![(Time::ZERO, 60_000)],
                    delay: Span::from_millis(20),
                    spacing: Span::from_millis(1),
                    fate: |_, number, _: &Packet| {
                        if lost.contains(&number) { vec![] } else { passes() }
                    },
                    most_events: 5_000,
                };
                path.run_with(|now, source| {
                    let Some((future, by, blocks, timestamps)) = left.next() else { return vec![] };
                    let core = source.sender().core();
                    let unit = if config.counting == Counting::Bytes { 1 } else { 1_000 };
                    let (first, end) = (core.una * unit, core.max * unit);
                    let ack = if *future { end.saturating_add(*by) } else { first.saturating_sub(*by) };
                    // Before the first acknowledgement there are no old ones.
                    if ack == first { vec![] } else { vec![packet(now, ack, blocks, *timestamps)] }
                })
            };
            let (quiet, disturbed) = (carry(&[]), carry(&forged));
            prop_assert_eq!(quiet.lines, disturbed.lines, "{:?}", config);
        }
    }

    #[test]
    fn whatever_is_acknowledged_the_sender_keeps_its_bounds(
        inputs in prop::collection::vec(
            (0u64..300, -3_000i64..30_000, blocks(), timestamps()),
            1..120,
        ),
    ) {
        for config in configs() {
            let config = Config { mss: 1_000, window: 20, ..config };
            expect_bounds(config, &inputs);
        }
    }
}

#[test]
fn an_acknowledgement_within_what_was_reported_starts_no_recovery_of_nothing() {
    let inputs = [
        (90, 2_114, vec![], None),
        (0, 46, vec![(0, 11_000)], Some((53_671, 424_890_839_681_794_883))),
        (
            275,
            1_840,
            vec![(52_000, 20_248), (18_455, 26_000)],
            Some((11_671_512_125_717_220_547, 17_599_180_604_165_984_457)),
        ),
        (
            113,
            4_691,
            vec![(23_419, 31_399), (15_000, 23_653)],
            Some((14_560_302_396_381_449_355, 2_531_812_871_841_230_822)),
        ),
    ];
    for config in configs() {
        expect_bounds(Config { mss: 1_000, window: 20, ..config }, &inputs);
    }
}

type Blocks = Vec<(u64, u64)>;
type Timestamps = Option<(u64, u64)>;

fn expect_bounds(config: Config, inputs: &[(u64, i64, Blocks, Timestamps)]) {
    let mut source = Source::new(config, endpoint());
    let mut now = Time::ZERO;
    source.offer(now, 50_500);
    source.start(now);
    for (later_ms, by, blocks, timestamps) in inputs {
        let next = now + Span::from_millis(*later_ms);
        let mut ticks = 0;
        while let Some(at) = source.deadline().filter(|at| *at <= next) {
            now = now.max(at);
            source.tick(now);
            while source.poll(now).is_some() {}
            ticks += 1;
            assert!(ticks < 200, "{config:?}: does not come to rest");
        }
        now = next;
        let ack = source.acknowledged().saturating_add_signed(*by);
        source.receive(now, &packet(now, ack, blocks, *timestamps));
        let mut packets = 0;
        while source.poll(now).is_some() {
            packets += 1;
        }
        let core = source.sender().core();
        assert!(
            packets <= 2 * config.window,
            "{packets} packets for an acknowledgement: {config:?}"
        );
        assert!(core.una <= core.max && core.max <= core.limit, "{core:?}");
        assert!(core.max - core.una <= core.max_window(), "{core:?}");
        assert!(core.cwnd >= core.smss as f64 && core.cwnd.is_finite(), "{core:?}");
        let pending = core.max > core.una;
        assert!(!pending || source.deadline().is_some(), "it waits for nothing: {core:?}");
    }
}

fn timestamps() -> impl Strategy<Value = Timestamps> {
    prop::option::of((any::<u64>(), any::<u64>()))
}

fn blocks() -> impl Strategy<Value = Blocks> {
    let number =
        prop_oneof![4 => 0u64..60_000, 2 => (0u64..60).prop_map(|n| n * 1_000), 1 => any::<u64>()];
    prop::collection::vec((number.clone(), number), 0..4)
}

fn packet(now: Time, ack: u64, blocks: &[(u64, u64)], timestamps: Timestamps) -> Packet {
    let endpoint = endpoint();
    let mut sack = Sack::default();
    blocks.iter().for_each(|(start, end)| sack.push(*start, *end));
    let segment = Segment { ack: Some(ack), sack, timestamps, ..Segment::default() };
    let packet = Packet::new(TCP, endpoint.remote, endpoint.local, 40, segment);
    Packet { sent: now, ..packet }
}

fn endpoint() -> Endpoint {
    let [a, b] = [1, 2].map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n)));
    Endpoint { local: (a, 1), remote: (b, 1) }
}
