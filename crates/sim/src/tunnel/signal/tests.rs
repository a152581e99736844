use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use proptest::prelude::*;
use segue_clock::{Rng, Span, Time};
use segue_tunnel::ConnId;
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION};

use super::*;

const MS: fn(u64) -> Span = Span::from_millis;

#[test]
fn a_connection_stands_after_one_round_trip_and_carries_messages_both_ways() {
    let mut world = World::new(1, Wire::good());
    world.host.connect(world.now, &names(&["wifi", "lte"]));
    world.run(MS(20));
    assert_eq!(world.ups, [(Time(0) + MS(20), String::from("wifi"))], "20 ms there and back");
    assert!(world.heard_by_anchor.is_empty(), "the anchor waits for the first message");
    world.say_from_host(9);
    world.run(MS(10));
    assert_eq!(world.heard_by_anchor, [9]);
    world.say_from_anchor(4);
    world.run(MS(10));
    assert_eq!(world.heard_by_host, [4]);
    // Both ends have dropped the other attempt.
    world.run(MS(1_000));
    assert_eq!(world.anchor.len(), 1);
}

#[test]
fn an_idle_connection_lives_and_a_silent_one_ends_at_both_ends_after_ten_seconds() {
    let mut world = World::connected(2, Wire::good());
    world.run(Span::from_secs(60));
    assert_eq!((world.downs, world.closed.len()), (0, 0));
    world.wires.insert("wifi".into(), Wire::dead());
    world.run(MS(9_900));
    assert_eq!((world.downs, world.closed.len()), (0, 0));
    world.run(MS(1_300));
    assert_eq!((world.downs, world.closed.len()), (1, 1));
    assert!(world.anchor.is_empty());
}

#[test]
fn a_connection_that_moves_takes_what_was_lost_with_it() {
    let mut world = World::connected(3, Wire::good());
    world.wires.insert("wifi".into(), Wire::dead());
    for number in 0..10 {
        world.say_from_host(number);
        world.say_from_anchor(100 + number);
    }
    world.run(MS(700));
    assert!(world.heard_by_anchor.len() == 1 && world.heard_by_host.is_empty());
    world.host.move_to(world.now, "lte");
    world.run(MS(500));
    assert_eq!(world.heard_by_anchor[1..], (0..10).collect::<Vec<u64>>());
    assert_eq!(world.heard_by_host, (100..110).collect::<Vec<u64>>());
    assert_eq!((world.downs, world.closed.len()), (0, 0));
}

#[test]
fn an_anchor_that_begins_again_says_so_and_the_host_can_connect_anew() {
    let mut world = World::connected(4, Wire::good());
    world.anchor = AnchorSignal::new();
    world.say_from_host(5);
    world.run(MS(20));
    assert_eq!(world.downs, 1);
    world.host.connect(world.now, &names(&["lte"]));
    world.run(MS(100));
    world.say_from_host(6);
    world.run(MS(100));
    assert_eq!(world.heard_by_anchor.last(), Some(&6));
}

#[test]
fn what_was_said_before_the_end_arrives_before_it() {
    for wire in [Wire::good(), Wire { loss: 0.2, ..Wire::good() }] {
        let mut world = World::connected(5, wire);
        for number in 0..40 {
            world.say_from_anchor(number);
        }
        let conn = world.conn;
        world.anchor.finish(world.now, conn);
        world.run(MS(950));
        assert_eq!(world.heard_by_host, (0..40).collect::<Vec<u64>>());
        world.run(MS(11_000));
        assert_eq!((world.downs, world.closed.clone()), (1, vec![conn]));
    }
}

#[test]
fn a_host_with_more_than_four_connections_loses_its_oldest() {
    let mut world = World::connected(6, Wire::good());
    for number in 0..5 {
        // The host loses its state, as after a crash.
        world.host = HostSignal::new("alice".into(), vec![ANCHOR.parse().unwrap()], number);
        world.host.connect(world.now, &names(&["wifi"]));
        world.run(MS(30));
        world.say_from_host(number);
        world.run(MS(30));
        let newest = world.conn;
        world.anchor.limit(world.now, newest);
        world.run(MS(1));
    }
    assert_eq!((world.anchor.len(), world.closed.len()), (4, 2));
}

#[test]
fn without_any_way_all_attempts_fail() {
    let mut world = World::new(7, Wire::dead());
    world.host.connect(world.now, &names(&["wifi"]));
    world.run(Span::from_secs(12));
    assert_eq!((world.ups.len(), world.downs), (0, 1));
    assert_eq!(world.host.deadline(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_arrive_once_and_in_order_whatever_the_network_does(
        seed in any::<u64>(),
        loss in 0.0..0.35f64,
        duplicates in 0.0..0.3f64,
        jitter in 0u64..60,
    ) {
        let wire = Wire { loss, duplicates, jitter: MS(jitter), ..Wire::good() };
        let mut world = World::new(seed, wire);
        world.host.connect(world.now, &names(&["wifi", "lte"]));
        for _ in 0..6_000 {
            // The anchor waits five seconds for the first message.
            if !world.ups.is_empty() {
                break;
            }
            if core::mem::take(&mut world.downs) > 0 {
                world.host.connect(world.now, &names(&["wifi", "lte"]));
            }
            world.run(MS(10));
        }
        prop_assert!(!world.ups.is_empty(), "no connection in a minute");
        for number in 0..60 {
            world.say_from_host(number);
            world.say_from_anchor(number);
            world.run(MS(37));
        }
        let reachable = world.conn != ConnId(u64::MAX);
        world.say_from_anchor(60);
        world.run(Span::from_secs(60));
        // Received without a gap; the test never goes 10 s without any packet.
        let all: Vec<u64> = (0..60).collect();
        prop_assert!(all.starts_with(&world.heard_by_anchor));
        prop_assert!((0..=60).collect::<Vec<u64>>().ends_with(&world.heard_by_host));
        // With few losses a connection never loses all its probes for ten seconds.
        prop_assert!(world.downs == 0 || loss > 0.05);
        if world.downs == 0 {
            prop_assert_eq!(&world.heard_by_anchor, &all);
            prop_assert!(!reachable || !world.heard_by_host.is_empty());
        }
        prop_assert!(world.sent < 6_000, "{} datagrams", world.sent);
    }
}

const ANCHOR: &str = "203.0.113.1:5006";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| String::from(*name)).collect()
}

/// Impairments of an interface's network.
#[derive(Clone, Copy)]
struct Wire {
    delay: Span,
    jitter: Span,
    loss: f64,
    duplicates: f64,
}

impl Wire {
    fn good() -> Wire {
        Wire { delay: MS(10), jitter: Span::ZERO, loss: 0.0, duplicates: 0.0 }
    }

    fn dead() -> Wire {
        Wire { loss: 1.0, ..Wire::good() }
    }
}

/// One host and one anchor with a network for each interface.
struct World {
    now: Time,
    host: HostSignal,
    anchor: AnchorSignal,
    wires: BTreeMap<String, Wire>,
    rng: Rng,
    /// Datagrams in flight, to the anchor (true) or to the host.
    flying: BTreeMap<(Time, u64), (bool, String, Datagram)>,
    sent: u64,
    ups: Vec<(Time, String)>,
    downs: u32,
    conn: ConnId,
    closed: Vec<ConnId>,
    heard_by_anchor: Vec<u64>,
    heard_by_host: Vec<u64>,
}

impl World {
    fn new(seed: u64, wire: Wire) -> World {
        let slow = Wire { delay: wire.delay * 3, ..wire };
        World {
            now: Time(0),
            host: HostSignal::new("alice".into(), vec![ANCHOR.parse().unwrap()], seed),
            anchor: AnchorSignal::new(),
            wires: [("wifi".into(), wire), ("lte".into(), slow)].into(),
            rng: Rng::new(seed),
            flying: BTreeMap::new(),
            sent: 0,
            ups: Vec::new(),
            downs: 0,
            conn: ConnId(u64::MAX),
            closed: Vec::new(),
            heard_by_anchor: Vec::new(),
            heard_by_host: Vec::new(),
        }
    }

    /// A world with a connection over Wi-Fi and one message, number 77.
    fn connected(seed: u64, wire: Wire) -> World {
        let mut world = World::new(seed, Wire::good());
        world.host.connect(world.now, &names(&["wifi", "lte"]));
        world.run(MS(25));
        world.say_from_host(77);
        world.run(MS(2_000));
        assert_eq!((world.ups.len(), world.heard_by_anchor.clone()), (1, vec![77]));
        world.wires.insert("wifi".into(), wire);
        world
    }

    fn say_from_host(&mut self, epoch: u64) {
        self.host.send(self.now, &FromHost::Register { version: SIGNAL_VERSION, epoch });
        self.work();
    }

    fn say_from_anchor(&mut self, number: u64) {
        let tunnel_port = number as u16;
        let message = FromAnchor::Registered { inner: vec![], anchor: vec![], tunnel_port };
        self.anchor.send(self.now, self.conn, &message);
        self.work();
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        let mut steps = 0;
        loop {
            self.work();
            let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
            let times = [flying, self.host.deadline(), self.anchor.deadline()];
            let Some(next) = times.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < 1_000, "it never comes to rest");
            self.now = self.now.max(next);
            if self.host.deadline().is_some_and(|at| at <= self.now) {
                self.host.tick(self.now);
            }
            if self.anchor.deadline().is_some_and(|at| at <= self.now) {
                self.anchor.tick(self.now);
            }
            while let Some(first) = self.flying.first_entry().filter(|f| f.key().0 <= self.now) {
                let (up, interface, datagram) = first.remove();
                if up {
                    let from = source_of(&interface);
                    self.anchor.receive(self.now, from, ANCHOR.parse().unwrap(), datagram);
                } else {
                    let to = source_of(&interface);
                    self.host.receive(self.now, ANCHOR.parse().unwrap(), to, datagram);
                }
            }
        }
        self.now = end;
    }

    fn work(&mut self) {
        while let Some(output) = self.host.poll() {
            match output {
                HostSignalOutput::Transmit { interface, to, datagram } => {
                    assert_eq!(to, ANCHOR.parse().unwrap());
                    self.fly(true, interface, datagram);
                }
                HostSignalOutput::Up { interface, .. } => self.ups.push((self.now, interface)),
                HostSignalOutput::Message(FromAnchor::Registered { tunnel_port, .. }) => {
                    self.heard_by_host.push(u64::from(tunnel_port));
                }
                HostSignalOutput::Message(other) => panic!("{other:?} {:?}", Refusal::Protocol),
                HostSignalOutput::Down => self.downs += 1,
            }
        }
        while let Some(output) = self.anchor.poll() {
            match output {
                AnchorSignalOutput::Transmit { to, datagram, .. } => {
                    let interface = if to == source_of("wifi") { "wifi" } else { "lte" };
                    self.fly(false, interface.into(), datagram);
                }
                AnchorSignalOutput::Connected { conn, host } => {
                    assert_eq!(host, "alice");
                    self.conn = conn;
                }
                AnchorSignalOutput::Message {
                    message: FromHost::Register { epoch, .. }, ..
                } => {
                    self.heard_by_anchor.push(epoch);
                }
                AnchorSignalOutput::Message { message, .. } => panic!("{message:?}"),
                AnchorSignalOutput::Closed { conn } => self.closed.push(conn),
            }
        }
    }

    fn fly(&mut self, up: bool, interface: String, datagram: Datagram) {
        let wire = self.wires[&interface];
        let copies = 1 + u32::from(self.rng.chance(wire.duplicates));
        for _ in 0..copies {
            self.sent += 1;
            let lost = self.rng.chance(wire.loss);
            let jitter = Span(self.rng.below(wire.jitter.0 + 1));
            if !lost {
                let at = self.now + wire.delay + jitter;
                self.flying.insert((at, self.sent), (up, interface.clone(), datagram.clone()));
            }
        }
    }
}

fn source_of(interface: &str) -> SocketAddr {
    let address = if interface == "wifi" { [198, 51, 100, 1] } else { [198, 51, 100, 2] };
    SocketAddr::from((address, SIGNAL_PORT))
}
