//! One anchor with 100 000 paths.

use alloc::format;
use std::time::{Duration, Instant};

use segue_clock::{Machine, Span, Time};
use segue_wire::signal::{FromHost, SIGNAL_VERSION};
use segue_wire::{MAX_PATHS, Probe};

use super::super::Anchor;
use super::{config, offer, request, std};
use crate::{AnchorInput, ConnId, Order, Output};

const T_KA: Span = Span::from_millis(200);

/// An anchor and hosts with sixteen paths each.
struct Crowd {
    anchor: Anchor,
    now: Time,
    paths: u32,
    /// The greatest number of path look-ups for one event.
    most: u64,
    /// Number of events, and the time spent on them.
    events: u64,
    spent: Duration,
}

impl Crowd {
    fn new(paths: u32) -> Crowd {
        let anchor = Anchor::new(config(paths + 1), [3; 32]);
        let (now, spent) = (Time(1_000_000_000), Duration::ZERO);
        let mut crowd = Crowd { anchor, now, paths, most: 0, events: 0, spent };
        for host in 0..paths / MAX_PATHS as u32 {
            let conn = ConnId(u64::from(host));
            crowd.tell(AnchorInput::Connected { conn, host: format!("host{host}") });
            let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
            crowd.tell(AnchorInput::Signal { conn, message: register });
            for path in 0..MAX_PATHS as u8 {
                let message = FromHost::AddPath(offer(path));
                crowd.tell(AnchorInput::Signal { conn, message });
            }
        }
        assert_eq!(crowd.anchor.paths().count(), paths as usize);
        crowd
    }

    fn tell(&mut self, input: AnchorInput) -> u64 {
        self.count(|anchor, now| anchor.handle(now, input.into()))
    }

    fn tick(&mut self) -> u64 {
        self.count(Anchor::tick)
    }

    /// Runs an event and measures its time and look-ups. Returns the number of unsolicited responses.
    fn count(&mut self, event: impl FnOnce(&mut Anchor, Time)) -> u64 {
        let (before, start) = (self.anchor.slots.looks.get(), Instant::now());
        event(&mut self.anchor, self.now);
        let mut unsolicited = 0;
        while let Some(output) = self.anchor.poll() {
            unsolicited += u64::from(matches!(output, Output::Order(Order::SendProbe(_))));
        }
        core::hint::black_box((self.anchor.deadline(), self.anchor.due(self.now)));
        self.spent += start.elapsed();
        self.events += 1;
        self.most = self.most.max(self.anchor.slots.looks.get() - before);
        unsolicited
    }

    /// A request on every path, spread over one period, with the ticks due in between.
    fn period(&mut self, seq: u32) {
        let start = self.now;
        for slot in 1..=self.paths {
            self.now = start + Span(T_KA.0 / u64::from(self.paths) * u64::from(slot));
            while self.anchor.deadline().is_some_and(|(at, _)| at <= self.now) {
                self.tick();
            }
            let us = self.now.micros32();
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
            self.tell(AnchorInput::Probe(request(slot, self.now, seq, probe)));
        }
    }

    /// Mean time of an event since the last call.
    fn mean(&mut self) -> Duration {
        let mean = self.spent / self.events.max(1) as u32;
        (self.spent, self.events) = (Duration::ZERO, 0);
        mean
    }
}

#[test]
fn an_event_looks_at_as_many_paths_with_thousands_of_them_as_with_few() {
    let most = [32, 8_192].map(|paths| {
        let mut crowd = Crowd::new(paths);
        let to_set_up = core::mem::take(&mut crowd.most);
        for seq in 1..=3 {
            crowd.period(seq);
        }
        assert!(crowd.anchor.paths().all(|(_, path)| path.is_up()));
        let to_come_up = core::mem::take(&mut crowd.most);
        crowd.period(4);
        // If the host repeats its last report, its other paths are not looked at.
        assert!(crowd.most < MAX_PATHS as u64, "{}", crowd.most);
        (to_set_up, to_come_up)
    });
    assert_eq!(most[0], most[1]);
    // Each path of the host is looked at only a few times.
    let few = 12 * MAX_PATHS as u64;
    assert!((1..few).contains(&most[1].0) && (1..few).contains(&most[1].1), "{most:?}");
}

/// The time per event is printed but not checked.
#[test]
fn a_hundred_thousand_paths_come_up_and_are_each_told_of_silence_once() {
    let mut few = Crowd::new(160);
    let mut many = Crowd::new(100_000);
    std::println!("set up: {:?} with 160 paths, {:?} with 100 000", few.mean(), many.mean());
    for seq in 1..=3 {
        few.period(seq);
        many.period(seq);
    }
    assert!(many.anchor.paths().all(|(_, path)| path.is_up()));
    std::println!("requests: {:?} with 160 paths, {:?} with 100 000", few.mean(), many.mean());

    // All paths fall silent: each goes down once and gets one response per period.
    let silent_since = many.now;
    let mut unsolicited = 0;
    while many.now < silent_since + Span::from_millis(900) {
        let (at, _) = many.anchor.deadline().unwrap();
        many.now = at;
        unsolicited += many.tick();
    }
    assert!(many.anchor.paths().all(|(_, path)| !path.is_up()));
    std::println!(
        "silence: {unsolicited} responses, {:?} for each",
        many.spent / unsolicited as u32
    );
    let each = unsolicited / u64::from(many.paths);
    assert!((2..=4).contains(&each), "{each} unsolicited responses on each path");
}
