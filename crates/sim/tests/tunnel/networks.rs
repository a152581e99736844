//! Translators and cells: outer addresses that are translated, or that change.

use segue_clock::{Span, Time};
use segue_keepalive::MeasuredBy;
use segue_sim::net::Change;
use segue_tunnel::Report;

use crate::world::{MS, SECS, Setup, Wifi, World, ip, rtt};

#[test]
fn a_translator_that_forgets_its_mappings_costs_the_downlink_a_few_probes_and_no_path() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let setup = Setup { measured_by, wifi: Wifi::Nat, ..Setup::default() };
        let mut world = World::new(&setup);
        let [up, down] = world.talk(7_000, Time(u64::MAX));
        let at = Time(5_010_000_000);
        let change = Change::RebindNat(world.wifi_router, Some(ip("198.51.100.9")));
        world.network.schedule(at, change);
        world.run(at);
        assert_eq!(world.way_of(up).as_deref(), Some("wifi"));
        world.run(at + SECS(30));
        assert_eq!(world.way_of(up).as_deref(), Some("wifi"));
        // In the uplink, nothing is lost except a packet at the same instant.
        assert!(world.talker(down).gap_since(at) <= MS(21));
        // In the downlink, until a second probe has shown that the host receives at the new address.
        let gap = world.talker(up).gap_since(at);
        assert!(gap > MS(0) && gap <= setup.t_ka * 3 + rtt(10, Span::ZERO), "{gap}");
        let downs = |(_, report): &&(Time, Report)| {
            matches!(report, Report::PathState { silent: Some(_), .. })
        };
        assert_eq!(world.host().reports().iter().filter(downs).count(), 0);
        assert_eq!(world.anchor().reports().iter().filter(downs).count(), 0);
        assert!(world.host().end().machine.registered());
        let results = world.network.results();
        let connections = results.get("alice.connections");
        assert_eq!(connections, Some(&segue_sim::Value::Int(1)), "signalling lives on");
    }
}

#[test]
fn a_host_that_walks_out_of_one_cell_into_another_keeps_its_flows() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let setup = Setup { measured_by, wifi: Wifi::Cells, ..Setup::default() };
        let mut world = World::new(&setup);
        let [up, down] = world.talk_as(8, 7_000, Time(u64::MAX));
        let left = Time(10_000_000_000);
        world.run(left - SECS(1).half());
        assert_eq!(world.way_of(up).as_deref(), Some("wifi"));
        world.run(left + SECS(1));
        assert_eq!(world.way_of(up).as_deref(), Some("lte"));
        assert_eq!(world.host().end().machine.paths().count(), 1);
        world.run(left + SECS(12));
        assert_eq!(world.way_of(up).as_deref(), Some("wifi"), "back, at another address");
        assert_eq!(world.host().end().machine.paths().count(), 2);
        for talker in [up, down].map(|end| world.talker(end)) {
            // The host knows at once; the anchor learns it from the host's next packet.
            let gap = talker.gap_since(left - SECS(1).half());
            assert!(gap <= MS(20 + 20 + 41), "{measured_by:?}: {gap}");
        }
    }
}
