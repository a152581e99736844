//! What left on a path of which nothing shows that it arrived goes a second time, over another.

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Arrival, Asking};
use segue_tunnel::{
    Anchor, AnchorInput, ConnId, HostInput, Order, Output, ProbeEvent, ProbeKind, Reinjection,
    Report,
};
use segue_wire::signal::{FromHost, PathOffer, SIGNAL_VERSION, Timescale};
use segue_wire::{Encapsulation, Mode, Probe, age};

use crate::stage::{Stage, Way, anchor_config, host_config, ms, secs};

/// An anchor with three paths of one host. The packets of the last are not followed.
struct Asked(Anchor);

impl Asked {
    fn new() -> Asked {
        let mut asked = Asked(Anchor::new(anchor_config(), [1; 32]));
        let (conn, at) = (ConnId(1), Time(1_000_000_000));
        asked.tell(at, AnchorInput::Connected { conn, host: "alice".into() });
        let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
        asked.tell(at, AnchorInput::Signal { conn, message });
        for path in 0..3 {
            let offer = PathOffer {
                path,
                name: format!("if{path}"),
                index: 1 + u32::from(path),
                cookie: 7,
                k: 3,
                t_ka_ms: 60,
                mode: Mode::Both,
                rides: false,
                encapsulation: Encapsulation::Segue,
                n: 10,
                taus: [Timescale::symmetric(1_000); 2],
                follows_use: path < 2,
                largest: 1_456,
            };
            asked.tell(at, AnchorInput::Signal { conn, message: FromHost::AddPath(offer) });
        }
        asked
    }

    /// What is sent again because of this.
    fn tell(&mut self, at: Time, input: AnchorInput) -> Vec<Reinjection> {
        self.0.handle(at, input.into());
        self.again()
    }

    /// What is sent again because it is due.
    fn tick(&mut self, at: Time) -> Vec<Reinjection> {
        self.0.tick(at);
        self.again()
    }

    fn again(&mut self) -> Vec<Reinjection> {
        let outputs = std::iter::from_fn(|| self.0.poll());
        outputs
            .filter_map(|output| match output {
                Output::Order(Order::Reinject(reinjection)) => Some(reinjection),
                _ => None,
            })
            .collect()
    }

    fn slot(&self, path: u8) -> u32 {
        self.0.paths().find(|(_, known)| known.number == path).unwrap().0
    }

    /// A request over the second path, from a host that hears these.
    fn request(&mut self, at: Time, heard: u16, age: u8) -> Vec<Reinjection> {
        let seq = at.micros32();
        let probe = Probe { seq, t_sc: seq, sc: seq, heard, t_ka_ms: 60, ..Probe::default() };
        let arrival = Arrival::new(probe, at, 1);
        let (slot, kind) = (self.slot(1), ProbeKind::Request);
        let probe = ProbeEvent {
            slot,
            kind,
            k: 3,
            report: false,
            age,
            arrival,
            remote: ([192, 0, 2, 1], 5005).into(),
            kernel_stamp: true,
        };
        self.tell(at, AnchorInput::Probe(probe))
    }
}

#[test]
fn what_a_host_says_it_did_not_hear_goes_over_the_path_that_says_so_at_once_and_once_more() {
    let mut asked = Asked::new();
    let at = |ms: u64| Time(2_000_000_000 + ms * 1_000_000);
    let silent = age::encode(50_000_000);
    let told = Span(age::decode(silent).unwrap());
    assert_eq!(asked.request(at(0), 0, silent), [], "the host has not heard this path yet");
    assert_eq!(asked.request(at(60), 0b111, 0), [], "nothing is in doubt");
    let again =
        |asked: &Asked, since| Reinjection { slot: asked.slot(0), over: asked.slot(1), since };
    asked.tick(at(119));
    let first = again(&asked, at(120) - told);
    assert_eq!(asked.request(at(120), 0b111, silent), [first]);
    // The same told anew within 5 ms is the same; what left meanwhile follows 15 ms after the first.
    assert_eq!(asked.request(at(124), 0b111, silent), []);
    assert!(asked.0.deadline().is_some_and(|(due, _)| due == at(135)), "{:?}", asked.0.deadline());
    assert_eq!(asked.tick(at(134)), []);
    assert_eq!(asked.tick(at(135)), [first]);
    assert_eq!(asked.tick(at(160)), [], "once");
    // Another one later puts that off, and one too long ago to be told is ten seconds.
    assert_eq!(asked.request(at(180), 0b111, silent), [again(&asked, at(180) - told)]);
    let longest = again(&asked, at(185) - secs(10));
    assert_eq!(asked.request(at(185), 0b111, 255), [longest]);
    assert_eq!(asked.tick(at(195)), []);
    assert_eq!(asked.tick(at(200)), [longest]);
}

/// A host whose voice flow takes Wi-Fi, which falls silent in both directions at the time that is told.
fn silenced() -> (Stage, usize, Time) {
    let mut config = host_config(3, 1_000);
    config.path.keepalive.doubt = Some(Asking { k: 5, spacing: ms(20) });
    let (mut stage, host) = Stage::two_paths(1, config);
    let voice = stage.add_voice(host);
    stage.run_for(secs(5));
    assert!(stage.flows_use(voice, "wifi"));
    stage.set_alive(host, "wifi", Way::Both, false);
    let fault = stage.now();
    (stage, host, fault)
}

#[test]
fn a_host_in_doubt_sends_what_left_again_and_tells_the_anchor_since_when_it_hears_nothing() {
    let (mut stage, host, fault) = silenced();
    let doubts = |stage: &Stage| {
        let reports = &stage.host(host).reports();
        let doubt = |report: &Report| matches!(report, Report::PathDoubt { .. });
        reports.iter().find(|(at, report)| *at > fault && doubt(report)).map(|(at, _)| *at)
    };
    assert!(stage.run_while_not(secs(1), |stage| doubts(stage).is_some()));
    let doubted = doubts(&stage).unwrap();
    assert!(doubted.since(fault) < ms(100), "{}", doubted.since(fault));

    // The same once more, up to that moment.
    let (mut stage, host, _) = silenced();
    stage.run_until(doubted - Span(1));
    let number = |stage: &Stage, name| stage.host(host).end().machine.path_named(name).unwrap();
    let (wifi, lte) = (number(&stage, "wifi"), number(&stage, "lte"));
    stage.run_until(doubted - Span(1));
    // As its datapath would: what data did is read before the tick.
    let outputs: Vec<_> = stage.at_host_end(host, |end, _, _| {
        if let Some(reading) = end.datapath.reading_at(doubted, wifi.into()) {
            end.machine.handle(doubted, HostInput::Reading(wifi.into(), reading).into());
        }
        end.machine.tick(doubted);
        std::iter::from_fn(|| end.machine.poll()).collect()
    });
    let again = outputs.iter().find_map(|output| match output {
        Output::Order(Order::Reinject(again)) => Some(*again),
        _ => None,
    });
    let again = again.unwrap_or_else(|| panic!("{outputs:?}"));
    assert_eq!((again.slot, again.over), (u32::from(wifi), u32::from(lte)));
    let early = fault.since(again.since);
    assert!(again.since <= fault && early < ms(60), "{early} before the fault");

    // Over LTE it says how long it will not have heard Wi-Fi when that arrives: by half the round trips of both.
    let ages = outputs.iter().filter_map(|output| match output {
        Output::Order(Order::SendProbe(probe)) => Some((probe.slot, probe.age)),
        _ => None,
    });
    let ages: Vec<(u32, u8)> = ages.collect();
    let machine = &stage.host(host).end().machine;
    let (_, path) = machine.paths().find(|(_, path)| path.name() == "wifi").unwrap();
    let silence = doubted.since(path.client().unwrap().heard_at()) + ms(40);
    assert!(ages.contains(&(u32::from(lte), age::encode(silence.0))), "{silence}: {ages:?}");
}
