//! Steady states with a known formula: exactly one packet in every 1/p is lost, no queue builds up, and the
//! window determines the rate.
//!
//! Mathis, Semke, Mahdavi and Ott (1997), equation 3: BW = MSS/RTT * sqrt(3/2) / sqrt(p); sqrt(3/4) with a window
//! that grows by half a segment per round trip. RFC 9438, equation 5: the same for CUBIC. Both assume instant
//! recovery, which really takes about one of the sqrt(2/(3p)) round trips of a cycle.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::{LinkSpec, Loss};
use segue_sim::net::{Hop, Lost};
use segue_sim::{AgentId, ChannelId, Network, NodeId, Observer, Packet};
use segue_traffic::tcp::cubic::{BETA, C, Parameters, average_window};
use segue_traffic::tcp::{
    Config, Congestion, Endpoint, GREEDY, Growth, Segment, Sink, SinkAgent, Source, SourceAgent,
    Variant,
};

/// Variants that recover without a timeout, as the model assumes.
const WITHOUT_TIMEOUT: [Variant; 4] =
    [Variant::Reno, Variant::NewReno, Variant::Sack, Variant::Fack];

#[test]
fn reno_and_its_kin_run_at_the_rate_of_mathis() {
    for variant in WITHOUT_TIMEOUT {
        for profile in [Config::ns2_35 as fn(Variant) -> Config, Config::modern] {
            for (every, rtt_ms) in [(500, 50), (1_000, 200), (3_000, 20), (10_000, 100)] {
                let config = profile(variant);
                expect_mathis(config, 1.5, every, rtt_ms);
            }
        }
    }
}

#[test]
fn rack_with_the_window_of_reno_runs_at_it_too() {
    for (every, rtt_ms) in [(500, 50), (1_000, 200), (3_000, 20), (10_000, 100)] {
        let config = Config { congestion: Congestion::Reno, ..Config::modern(Variant::Rack) };
        expect_mathis(config, 1.5, every, rtt_ms);
    }
}

/// With a loss in each small window it matters whether data that the receiver holds beyond the hole are halved
/// too.
#[test]
fn forward_acknowledgement_is_no_more_aggressive_than_selective_acknowledgement() {
    let rate = |variant| segments_per_s(Config::modern(variant), 100, 100, 34);
    let (fack, sack) = (rate(Variant::Fack), rate(Variant::Sack));
    println!("Fack {fack:.0}, Sack {sack:.0} segments/s");
    assert!((fack / sack - 1.0).abs() < 0.05, "Fack {fack:.0}, Sack {sack:.0} segments/s");
}

#[test]
fn with_delayed_acknowledgements_that_each_count_once_the_window_grows_half_as_fast() {
    for variant in WITHOUT_TIMEOUT {
        let config = Config {
            delayed_ack: Some(Span::from_millis(200)),
            growth: Growth::PerAck,
            ..Config::modern(variant)
        };
        for (every, rtt_ms) in [(500, 50), (3_000, 100)] {
            expect_mathis(config, 0.75, every, rtt_ms);
        }
    }
}

#[test]
fn cubic_has_the_average_window_of_its_rfc() {
    for variant in [Variant::Cubic, Variant::Rack] {
        for (every, rtt_ms) in [(3_000, 400), (10_000, 100), (20_000, 200), (50_000, 50)] {
            let rtt_s = f64::from(rtt_ms) / 1e3;
            let window = average_window(C, BETA, rtt_s, 1.0 / f64::from(every));
            let reno = (1.5 * f64::from(every)).sqrt();
            assert!(window > 1.2 * reno, "it must not be the window of Reno: {window}");
            // The formula has no fast convergence: it assumes that every loss occurs at the same window. The
            // first loss occurs in slow start at that window, for which each earlier segment has added one.
            let config = Config {
                cubic: Parameters { fast_convergence: false, ..Parameters::default() },
                initial_ssthresh: Some(100_000),
                ..Config::modern(variant)
            };
            let at_loss = window * 4.0 / (3.0 + BETA);
            let first = at_loss as u32 - config.initial_window;
            let found = segments_per_s(config, first, every, rtt_ms);
            expect_near(found, window / rtt_s, &format!("{variant:?}, 1/{every}, {rtt_ms} ms"));
        }
    }
}

#[test]
fn vegas_holds_its_queue_between_alpha_and_beta() {
    for profile in [Config::ns2_35 as fn(Variant) -> Config, Config::ns2_2001, Config::modern] {
        for (mbit, delay_ms) in [(10, 16), (2, 50), (50, 5)] {
            let config = Config { window: 200, delayed_ack: None, ..profile(Variant::Vegas) };
            let (alpha, beta, _) = config.vegas;
            let link = LinkSpec {
                rate_bps: Some(mbit * 1_000_000),
                delay: Span::from_millis(delay_ms),
                ..LinkSpec::default()
            };
            let spacing = Span(u64::from(config.mss + config.header) * 8_000 / mbit);
            let (mut network, source, _) = network(config, link.clone(), Loss::None);
            let waits = Rc::new(RefCell::new(Vec::new()));
            let quiet = link.delay + spacing;
            network.observe(Box::new(Waits { quiet, spacing, waits: Rc::clone(&waits) }));
            network.run_until(Time::ZERO + Span::from_secs(30));
            waits.borrow_mut().clear();
            network.run_until(Time::ZERO + Span::from_secs(60));
            let agent = network.agent::<SourceAgent>(source).expect("it was added");
            assert_eq!(agent.source.sent().retransmissions, 0);
            let waits = waits.borrow();
            let mean = waits.iter().sum::<f64>() / waits.len() as f64;
            println!("vegas, {mbit} Mbit/s, {delay_ms} ms: {mean:.2} packets wait");
            // Vegas compares whole packets, rounded to the nearest number.
            let range = f64::from(alpha)..=f64::from(beta);
            let what = format!("{mbit} Mbit/s, {delay_ms} ms, {:?}", config.counting);
            assert!(range.contains(&mean.round()), "{what}: {mean} packets wait");
        }
    }
}

/// Queueing time of each data packet, in packet times.
struct Waits {
    quiet: Span,
    spacing: Span,
    waits: Rc<RefCell<Vec<f64>>>,
}

impl Observer for Waits {
    fn sent(&mut self, _: Time, _: ChannelId, _: &Packet, _: Result<Time, Lost>) {}

    fn arrived(&mut self, now: Time, _: ChannelId, packet: &Packet) {
        if packet.value::<Segment>().is_some_and(|segment| segment.len > 0) {
            let waited = now.since(packet.sent).0 as f64 - self.quiet.0 as f64;
            self.waits.borrow_mut().push(waited / self.spacing.0 as f64);
        }
    }

    fn dropped(&mut self, _: Time, _: NodeId, _: &Packet, _: Lost) {}

    fn said(&mut self, _: Time, _: NodeId, _: &str) {}
}

fn expect_mathis(config: Config, c2: f64, every: u32, rtt_ms: u32) {
    let window = (c2 * f64::from(every)).sqrt();
    let expected = window / (f64::from(rtt_ms) / 1e3);
    // Slow start ends at the average window, so the steady state is close from the beginning.
    let config = Config { initial_ssthresh: Some(window as u32), ..config };
    let found = segments_per_s(config, every, every, rtt_ms);
    let what = format!("{:?} {:?}, 1/{every}, {rtt_ms} ms", config.variant, config.counting);
    expect_near(found, expected, &what);
}

fn expect_near(found: f64, expected: f64, what: &str) {
    println!("{what}: {:.4} of the formula", found / expected);
    assert!(
        (found / expected - 1.0).abs() < 0.1,
        "{what}: {found:.1} segments/s, not {expected:.1}"
    );
}

/// Segments delivered per second from the fourth to the end of the fifteenth cycle. Packet `first` is lost, and
/// every `every`th packet after it.
fn segments_per_s(config: Config, first: u32, every: u32, rtt_ms: u32) -> f64 {
    let config = Config { window: 100_000, ..config };
    let losses = (0..20).map(|n| u64::from(first) + n * u64::from(every)).collect();
    let link = LinkSpec { delay: Span(u64::from(rtt_ms) * 500_000), ..LinkSpec::default() };
    let (mut network, source, sink) = network(config, link, Loss::Exact(losses));
    let sent = |network: &Network| {
        network.agent::<SourceAgent>(source).expect("it was added").source.sent()
    };
    let mut marks = Vec::new();
    for cycles in [3, 15] {
        while sent(&network).segments < cycles * u64::from(every) {
            network.run_until(network.now() + Span(u64::from(rtt_ms) * 1_000_000));
        }
        let agent = network.agent::<SinkAgent>(sink).expect("it was added");
        marks.push((network.now().as_secs_f64(), agent.sink.delivered()));
    }
    assert_eq!(sent(&network).timeouts, 0, "the model knows none: {config:?}");
    let segments = (marks[1].1 - marks[0].1) as f64 / f64::from(config.mss);
    segments / (marks[1].0 - marks[0].0)
}

fn network(config: Config, link: LinkSpec, loss: Loss) -> (Network, AgentId, AgentId) {
    let mut network = Network::new(1);
    let ends = [1, 2].map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n)));
    let nodes = ["sender", "receiver"].map(|name| network.add_node(name));
    let ports = [0, 1].map(|i| {
        let index = network.add_interface(nodes[i], "link");
        let node = network.node_mut(nodes[i]);
        node.addresses.push(ends[i]);
        node.routes.set(Prefix::host(ends[1 - i]), Hop::Interface(index));
        (nodes[i], index)
    });
    let there = LinkSpec { loss, ..link.clone() };
    network.connect(ports[0], ports[1], there, link).expect("a link");
    let endpoint = Endpoint { local: (ends[0], 1), remote: (ends[1], 1) };
    let source = SourceAgent::new(Source::new(config, endpoint), GREEDY);
    let sink = SinkAgent { sink: Sink::new(config, endpoint.reversed()) };
    let source = network.add_agent(nodes[0], "source", &[(6, 1)], Box::new(source));
    let sink = network.add_agent(nodes[1], "sink", &[(6, 1)], Box::new(sink));
    (network, source, sink)
}
