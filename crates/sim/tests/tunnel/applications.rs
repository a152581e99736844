//! Transport connections over the tunnel, and determinism of a run.

use std::cell::RefCell;
use std::rc::Rc;

use segue_clock::Time;
use segue_keepalive::MeasuredBy;
use segue_sim::net::Lost;
use segue_sim::{ChannelId, NodeId, Observer, Packet, Value};
use segue_traffic::apps::{Ends, FtpConfig};
use segue_tunnel::Known;

use crate::world::{INNER, MS, SECS, SERVER, Setup, World, ip};

/// The host had this address before, so applications can use it from the start.
fn known() -> Vec<Known> {
    vec![Known { name: "alice".into(), epoch: 0, inner: vec![ip(INNER)] }]
}

#[test]
fn a_download_goes_on_over_the_other_path() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let mut world = World::new(&Setup { measured_by, known: known(), ..Setup::default() });
        let ends = Ends { first: (ip(INNER), 4_000), second: (ip(SERVER), 80) };
        let ftp =
            FtpConfig { file_bytes: Some(20_000_000), files: Some(1), ..FtpConfig::default() };
        let nodes = (world.mobile, world.server);
        ftp.pair(&ends).unwrap().add(&mut world.network, nodes, "ftp");
        world.cut("wifi", Time(4_000_000_000), None);
        world.run(Time(4_000_000_000));
        let half = delivered(&world);
        world.run(Time(60_000_000_000));
        assert!(half > 1_000_000 && half < 15_000_000, "{half} bytes before the outage");
        assert_eq!(delivered(&world), 20_000_000, "{:?}", world.network.results());
    }
}

fn delivered(world: &World) -> u64 {
    let results = world.network.results();
    match results.iter().find(|(name, _)| *name == "ftp.delivered_bytes") {
        Some((_, Value::Int(bytes))) => *bytes,
        other => panic!("{other:?} in {results:?}"),
    }
}

#[test]
fn the_same_seed_gives_the_same_record() {
    let record = |seed| {
        let jitter = MS(3);
        let setup = Setup { seed, measured_by: MeasuredBy::PacketPath, jitter, ..Setup::default() };
        let mut world = World::new(&setup);
        let lines = Rc::new(RefCell::new(String::new()));
        world.network.observe(Box::new(Record(lines.clone())));
        world.talk(7_000, Time(u64::MAX));
        world.cut("wifi", Time(3_000_000_000), Some(Time(6_000_000_000)));
        world.run(Time(0) + SECS(10));
        let results = format!("{:?}", world.network.results());
        (lines.take(), results)
    };
    let first = record(5);
    assert!(first.0.lines().count() > 4_000 && first.0.contains("path wifi down"));
    assert!(first == record(5));
    assert!(first.0 != record(6).0);
}

/// Records every packet and every log line.
struct Record(Rc<RefCell<String>>);

impl Record {
    fn note(&self, line: &str) {
        let mut lines = self.0.borrow_mut();
        lines.push_str(line);
        lines.push('\n');
    }
}

impl Observer for Record {
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>) {
        self.note(&format!("{now:?} {channel:?} {packet:?} {at:?}"));
    }

    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        self.note(&format!("{now:?} {channel:?} {}", packet.bytes));
    }

    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost) {
        self.note(&format!("{now:?} {node:?} {packet:?} {why:?}"));
    }

    fn said(&mut self, now: Time, node: NodeId, line: &str) {
        self.note(&format!("{now:?} {node:?} {line}"));
    }
}
