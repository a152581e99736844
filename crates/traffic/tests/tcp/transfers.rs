//! Streams are delivered completely and exactly once despite losses.

use std::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_sim::{Packet, Value};
use segue_traffic::dumbbell::Dumbbell;
use segue_traffic::tcp::{Config, Endpoint, Segment, Sink, Source, Variant};

#[test]
fn without_loss_every_variant_fills_the_link_that_its_window_covers() {
    for variant in Variant::ALL {
        for config in [Config::ns2_35(variant), Config::ns2_2001(variant), Config::modern(variant)]
        {
            let outcome = dumbbell(Config { window: 30, ..config }, &[]);
            let goodput = outcome("goodput_bps");
            assert!(goodput > 9.4e6 && goodput <= 10e6, "{variant:?}: {goodput}");
            assert_eq!(
                (outcome("retransmissions"), outcome("timeouts")),
                (0.0, 0.0),
                "{variant:?}"
            );
        }
    }
}

#[test]
fn offers_of_any_size_arrive_whole_and_once_in_both_ways_of_counting() {
    for variant in Variant::ALL {
        for profile in [Config::ns2_35, Config::ns2_2001, Config::modern] {
            for losses in 0..6 {
                let mut pair = Pair::new(profile(variant));
                pair.lose_every = [0, 3, 5, 7, 11, 13][losses];
                for offer in [1, 1440, 1441, 100_000, 7, 30_000] {
                    pair.source.offer(pair.now, offer);
                    pair.run_until_idle();
                    assert_eq!(pair.sink.delivered(), pair.source.acknowledged(), "{variant:?}");
                }
                assert_eq!(pair.sink.delivered(), 132_889, "{variant:?}, {losses}");
            }
        }
    }
}

/// Two ends with a one-way delay of 5 ms; the first transmission of every nth segment is lost.
struct Pair {
    source: Source,
    sink: Sink,
    now: Time,
    wire: Vec<(Time, bool, Packet)>,
    lose_every: u64,
    first: u64,
}

impl Pair {
    fn new(config: Config) -> Pair {
        let [a, b] = [1, 2].map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n)));
        let endpoint = Endpoint { local: (a, 1), remote: (b, 2) };
        let mut source = Source::new(config, endpoint);
        source.start(Time::ZERO);
        let sink = Sink::new(config, endpoint.reversed());
        Pair { source, sink, now: Time::ZERO, wire: Vec::new(), lose_every: 0, first: 0 }
    }

    fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            self.flush();
            if self.source.is_idle() && self.wire.is_empty() && self.sink.deadline().is_none() {
                return;
            }
            let ends = [self.source.deadline(), self.sink.deadline()];
            let arrival = self.wire.first().map(|packet| packet.0);
            let next = ends.into_iter().chain([arrival]).flatten().min();
            self.now = next.expect("something is to come").max(self.now);
            while self.wire.first().is_some_and(|packet| packet.0 <= self.now) {
                let (_, forward, packet) = self.wire.remove(0);
                if forward {
                    self.sink.receive(self.now, &packet);
                } else {
                    self.source.receive(self.now, &packet);
                }
                self.flush();
            }
            if ends[0].is_some_and(|at| at <= self.now) {
                self.source.tick(self.now);
            }
            if ends[1].is_some_and(|at| at <= self.now) {
                self.sink.tick(self.now);
            }
        }
        panic!("it does not end: {} of {}", self.sink.delivered(), self.source.acknowledged());
    }

    fn flush(&mut self) {
        let at = self.now + Span::from_millis(5);
        while let Some(packet) = self.source.poll(self.now) {
            let Some(segment) = packet.value::<Segment>() else { panic!("{packet:?}") };
            self.first += u64::from(!segment.retransmission);
            let lost = self.lose_every > 0
                && !segment.retransmission
                && self.first.is_multiple_of(self.lose_every);
            if !lost {
                self.wire.push((at, true, packet));
            }
        }
        if let Some(packet) = self.sink.poll(self.now) {
            self.wire.push((at, false, packet));
        }
    }
}

fn dumbbell(tcp: Config, drop_at: &[(Span, u32)]) -> impl Fn(&str) -> f64 {
    let dumbbell = Dumbbell {
        tcp,
        rate_bps: 10_000_000,
        delay: Span::from_millis(16),
        queue: 50,
        drop_at: drop_at.to_vec(),
        duration: Span::from_secs(10),
        trace: false,
    };
    let results = dumbbell.run().expect("a link").results;
    move |name| match results.get(name) {
        Some(Value::Int(n)) => *n as f64,
        Some(Value::Float(x)) => *x,
        other => panic!("{name}: {other:?}"),
    }
}
