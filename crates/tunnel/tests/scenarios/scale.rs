//! One anchor with 100 000 paths. A unit test beside the machine (`anchor/mod.rs`) checks that an event looks at no
//! more paths than with few; this test only prints how long it takes.

use std::time::Instant;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::Arrival;
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, ConnId, Order, Output, Pool, ProbeEvent, ProbeKind,
};
use segue_wire::signal::{FromHost, PathOffer, SIGNAL_VERSION};
use segue_wire::{Encapsulation, MAX_PATHS, Mode, Probe};

use crate::stage::{anchor_config, ms};

const T_KA: Span = Span::from_millis(200);

struct Crowd {
    anchor: Anchor,
    now: Time,
    paths: u32,
    /// Events, and the time that they took.
    events: u64,
    spent: std::time::Duration,
}

impl Crowd {
    /// An anchor with this many paths, sixteen for each host.
    fn new(paths: u32) -> Crowd {
        let config = AnchorConfig {
            pool_v4: Pool::new("10.0.0.0".parse().unwrap(), 8),
            max_paths: paths + 1,
            ..anchor_config()
        };
        let mut crowd = Crowd {
            anchor: Anchor::new(config, [3; 32]),
            now: Time(1_000_000_000),
            paths,
            events: 0,
            spent: std::time::Duration::ZERO,
        };
        for host in 0..paths / MAX_PATHS as u32 {
            let conn = ConnId(u64::from(host));
            crowd.tell(AnchorInput::Connected { conn, host: format!("host{host}") });
            let version = SIGNAL_VERSION;
            crowd.say(conn, FromHost::Register { version, epoch: 1 });
            for path in 0..MAX_PATHS as u8 {
                crowd.say(conn, FromHost::AddPath(offer(path)));
            }
        }
        assert_eq!(crowd.anchor.paths().count(), paths as usize);
        crowd
    }

    fn say(&mut self, conn: ConnId, message: FromHost) {
        self.tell(AnchorInput::Signal { conn, message });
    }

    fn tell(&mut self, input: AnchorInput) -> u64 {
        self.time(|anchor, now| anchor.handle(now, input.into()))
    }

    fn tick(&mut self) -> u64 {
        self.time(Anchor::tick)
    }

    /// The unsolicited responses that follow an event, whose time counts.
    fn time(&mut self, event: impl FnOnce(&mut Anchor, Time)) -> u64 {
        let start = Instant::now();
        event(&mut self.anchor, self.now);
        let mut unsolicited = 0;
        while let Some(output) = self.anchor.poll() {
            unsolicited += u64::from(matches!(output, Output::Order(Order::SendProbe(_))));
        }
        std::hint::black_box((self.anchor.deadline(), self.anchor.due(self.now)));
        self.spent += start.elapsed();
        self.events += 1;
        unsolicited
    }

    /// A request on every path, spread over one period, with the ticks that fall between.
    fn period(&mut self, seq: u32) {
        let start = self.now;
        for slot in 1..=self.paths {
            self.now = start + Span(T_KA.0 / u64::from(self.paths) * u64::from(slot));
            if self.anchor.deadline().is_some_and(|(at, _)| at <= self.now) {
                self.tick();
            }
            self.tell(AnchorInput::Probe(request(slot, seq, self.now)));
        }
    }

    /// Mean time of an event since the last call.
    fn mean(&mut self) -> std::time::Duration {
        let mean = self.spent / self.events.max(1) as u32;
        (self.spent, self.events) = (std::time::Duration::ZERO, 0);
        mean
    }
}

fn offer(path: u8) -> PathOffer {
    PathOffer {
        path,
        name: format!("if{path}"),
        index: u32::from(path),
        cookie: 7,
        k: 3,
        t_ka_ms: 200,
        mode: Mode::Both,
        rides: false,
        encapsulation: Encapsulation::Segue,
        n: 10,
        taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
        follows_use: false,
        largest: 1_456,
    }
}

fn request(slot: u32, seq: u32, now: Time) -> ProbeEvent {
    let us = now.micros32();
    let probe = Probe {
        seq,
        t_sc: us.wrapping_sub(10_000),
        t_ss: if seq > 1 { us.wrapping_sub(190_000) } else { 0 },
        dt: 170_000,
        sc: seq,
        ss: seq - 1,
        r: seq - 1,
        heard: u16::MAX,
        t_ka_ms: 200,
    };
    let arrival = Arrival::new(probe, now, seq);
    ProbeEvent {
        slot,
        kind: ProbeKind::Request,
        k: 3,
        report: false,
        age: 0,
        arrival,
        remote: ([192, 0, 2, 1], 5005).into(),
        kernel_stamp: true,
    }
}

#[test]
fn a_hundred_thousand_paths_come_up_and_are_each_told_of_silence_once() {
    let mut few = Crowd::new(160);
    let mut many = Crowd::new(100_000);
    println!("set up: {:?} an event with 160 paths, {:?} with 100 000", few.mean(), many.mean());
    for seq in 1..=3 {
        few.period(seq);
        many.period(seq);
    }
    assert!(many.anchor.paths().all(|(_, path)| path.is_up()));
    let (with_few, with_many) = (few.mean(), many.mean());
    println!("requests: {with_few:?} an event with 160 paths, {with_many:?} with 100 000");

    // All fall silent: each path is told once that it is down, and gets one response a period.
    let silent_since = many.now;
    let mut unsolicited = 0;
    while many.now < silent_since + ms(900) {
        let (at, _) = many.anchor.deadline().unwrap();
        many.now = at;
        unsolicited += many.tick();
    }
    assert!(many.anchor.paths().all(|(_, path)| !path.is_up()));
    println!("silence: {unsolicited} responses, {:?} for each", many.spent / unsolicited as u32);
    let each = unsolicited / u64::from(many.paths);
    assert!((2..=4).contains(&each), "{each} unsolicited responses on each path");
}
