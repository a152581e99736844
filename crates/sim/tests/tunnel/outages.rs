//! Paths that fail, ends that restart, and the effect on flows.

use segue_clock::{Rng, Span, Time};
use segue_keepalive::{MeasuredBy, State};
use segue_sim::tunnel::{AnchorOrder, HostOrder};
use segue_tunnel::{HostInput, Report};

use crate::world::{INNER, MS, SECS, Setup, World, ip, rtt};

#[test]
fn a_host_registers_over_its_networks_and_applications_get_to_know_the_address() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let mut world = World::new(&Setup { measured_by, ..Setup::default() });
        let [up, down] = world.talk(7_000, Time(9_000_000_000));
        world.run(Time(10_000_000_000));
        assert_eq!(world.host().end().machine.inner(), [ip(INNER)]);
        assert_eq!(world.talker(up).source, Some(ip(INNER)));
        assert!(world.network.node(world.mobile).owns(ip(INNER)));
        for (name, one_way) in [("wifi", 10), ("lte", 30)] {
            let mut paths = world.host().end().machine.paths();
            let (_, path) = paths.find(|(_, path)| path.name() == name).unwrap();
            assert!(path.is_up());
            let measured = path.client().unwrap().estimates().rtt_last.unwrap();
            let least = MS(2 * (one_way + 2));
            assert!(measured >= least && measured <= rtt(one_way, Span::ZERO), "{measured}");
        }
        let (up, down) = (world.talker(up), world.talker(down));
        assert!(up.sent > 420 && down.sent > 420, "{} {}", up.sent, down.sent);
        // All packets arrive upwards, though the first was sent before there was a path. Downwards, delivery
        // starts when the host has shown that it receives at its address.
        assert_eq!(down.missing(up), []);
        assert!(up.missing(down).iter().all(|seq| *seq < 4), "{:?}", up.missing(down));
    }
}

#[test]
fn a_silent_outage_holds_no_flow_for_longer_than_the_bound() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..25 {
            let jitter = MS(seed % 3);
            let setup = Setup { seed, measured_by, k: 4, t_ka: MS(30), jitter, ..Setup::default() };
            let mut world = World::new(&setup);
            let [up, down] = world.talk(7_000, Time(u64::MAX));
            let fault = Time(4_000_000_000) + Span(Rng::new(seed).below(1_000_000_000));
            world.cut("wifi", fault, None);
            world.run(fault);
            assert_eq!(world.way_of(up).as_deref(), Some("wifi"));
            // Bound of Eq. 1.
            let bound = setup.t_ka * 5 + rtt(10, jitter);
            world.run(fault + bound);
            assert_eq!(world.way_of(up).as_deref(), Some("lte"), "seed {seed}");
            world.run(fault + SECS(3));
            // One more packet interval, and the additional delay of the other path.
            let allowed = bound + MS(20) + MS(20) + jitter * 2;
            for end in [up, down] {
                let talker = world.talker(end);
                let gap = talker.gap_since(fault);
                assert!(gap <= allowed, "{measured_by:?}, seed {seed}: {gap} of {allowed}");
                assert!(talker.got.last().unwrap().0 + MS(60) > fault + SECS(3));
            }
        }
    }
}

#[test]
fn a_path_that_comes_back_has_its_flows_again() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let mut world = World::new(&Setup { measured_by, ..Setup::default() });
        // Bulk data: for a conversation both paths are good enough, so it would stay.
        let [up, _] = world.talk_as(8, 7_000, Time(u64::MAX));
        let fault = Time(4_000_000_000);
        world.cut("wifi", fault, Some(fault + SECS(20)));
        world.run(fault + SECS(19));
        assert_eq!(world.way_of(up).as_deref(), Some("lte"));
        assert!(world.host().end().machine.registered());
        assert_eq!(world.host().end().machine.signal_interface(), Some("lte"));
        world.run(fault + SECS(60));
        assert_eq!(world.way_of(up).as_deref(), Some("wifi"));
        let states = world.host().reports().iter().filter_map(|(_, report)| match report {
            Report::PathState { path, state, .. } if path == "wifi" => Some(*state),
            _ => None,
        });
        assert_eq!(states.collect::<Vec<_>>(), [State::Up, State::Down, State::Up]);
    }
}

#[test]
fn a_planned_handover_loses_nothing() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..10 {
            let to = |name: Option<&str>| {
                let to = name.map(String::from);
                HostOrder::Own(Box::new(HostInput::Handover { flow: None, class: None, to }))
            };
            let at = Time(5_000_000_000) + Span(Rng::new(seed).below(100_000_000));
            let orders = |host: &mut segue_sim::tunnel::HostAgent| {
                host.order(at, to(Some("lte")));
                host.order(at + SECS(2), to(Some("wifi")));
                host.order(at + SECS(4), to(Some("lte")));
            };
            let mut world =
                World::with(&Setup { seed, measured_by, ..Setup::default() }, orders, |_| {});
            let [up, down] = world.talk(7_000, Time(12_000_000_000));
            for (after, over) in [(1, "lte"), (3, "wifi"), (5, "lte")] {
                world.run(at + SECS(after));
                assert_eq!(world.way_of(up).as_deref(), Some(over));
            }
            world.run(Time(13_000_000_000));
            let (up, down) = (world.talker(up), world.talker(down));
            assert_eq!(down.missing(up), [], "seed {seed}");
            assert!(up.missing(down).iter().all(|seq| *seq < 4), "seed {seed}");
            assert_eq!(down.got.len() as u64, up.sent, "none came twice");
            assert!(up.gap_since(at) <= MS(21) && down.gap_since(at) <= MS(21));
        }
    }
}

#[test]
fn an_anchor_that_begins_again_has_its_hosts_back_with_their_addresses() {
    for (measured_by, dead) in [(MeasuredBy::Machine, MS(0)), (MeasuredBy::PacketPath, SECS(3))] {
        let at = Time(5_000_000_000);
        let restart = |anchor: &mut segue_sim::tunnel::AnchorAgent| {
            anchor.order(at, AnchorOrder::Restart(dead));
        };
        let mut world = World::with(&Setup { measured_by, ..Setup::default() }, |_| {}, restart);
        let [up, down] = world.talk(7_000, Time(u64::MAX));
        world.run(at);
        world.run(at + dead + SECS(12));
        assert_eq!(world.host().end().machine.inner(), [ip(INNER)]);
        assert!(world.host().end().machine.registered());
        assert_eq!(world.anchor().end().machine.hosts().count(), 1);
        let before = [up, down].map(|end| world.talker(end).got.len());
        world.run(at + dead + SECS(14));
        for (end, before) in [up, down].into_iter().zip(before) {
            let more = world.talker(end).got.len() - before;
            assert!((99..=101).contains(&more), "{measured_by:?}: {more} in 2 s");
        }
    }
}

#[test]
fn a_host_that_begins_again_has_its_address_back() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let at = Time(5_000_000_000);
        let restart = |host: &mut segue_sim::tunnel::HostAgent| {
            host.order(at, HostOrder::Restart(Span::ZERO))
        };
        let mut world = World::with(&Setup { measured_by, ..Setup::default() }, restart, |_| {});
        let [up, down] = world.talk(7_000, Time(u64::MAX));
        world.run(at + MS(1));
        assert!(!world.network.node(world.mobile).owns(ip(INNER)));
        world.run(at + SECS(1));
        assert_eq!(world.host().end().machine.inner(), [ip(INNER)]);
        let before = [up, down].map(|end| world.talker(end).got.len());
        world.run(at + SECS(3));
        for (end, before) in [up, down].into_iter().zip(before) {
            let more = world.talker(end).got.len() - before;
            assert!((99..=101).contains(&more), "{more} in 2 s");
        }
        assert_eq!(world.anchor().end().machine.paths().count(), 2);
    }
}

#[test]
fn a_host_that_is_not_enrolled_gets_no_address_and_does_not_storm() {
    let mut world = World::new(&Setup { enrolled: false, ..Setup::default() });
    world.run(Time(0) + SECS(120));
    assert!(world.host().end().machine.inner().is_empty());
    assert_eq!(world.anchor().end().machine.hosts().count(), 0);
    let results = world.network.results();
    let connections = results.get("alice.connections").unwrap();
    // The backoff doubles up to 8 s.
    assert!(matches!(connections, segue_sim::Value::Int(10..=25)), "{connections:?}");
}
