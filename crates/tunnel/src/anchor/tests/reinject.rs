//! Packets that a host reports as unheard are sent again over another path.

use alloc::vec::Vec;

use segue_clock::{Machine, Span, Time};
use segue_wire::signal::{FromHost, PathOffer, SIGNAL_VERSION};
use segue_wire::{Probe, age};

use super::super::Anchor;
use super::{config, offer, request};
use crate::{AnchorInput, ConnId, Order, Output, ProbeEvent, Reinjection};

/// An anchor with three paths of one host. The third path does not follow its use.
struct Asked(Anchor);

impl Asked {
    fn new() -> Asked {
        let mut asked = Asked(Anchor::new(config(64), [1; 32]));
        let (conn, at) = (ConnId(1), Time(1_000_000_000));
        asked.tell(at, AnchorInput::Connected { conn, host: "alice".into() });
        let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
        asked.tell(at, AnchorInput::Signal { conn, message });
        for path in 0..3 {
            let (index, follows_use) = (1 + u32::from(path), path < 2);
            let offer = PathOffer { t_ka_ms: 60, index, follows_use, ..offer(path) };
            asked.tell(at, AnchorInput::Signal { conn, message: FromHost::AddPath(offer) });
        }
        asked
    }

    /// Handles an input; returns the reinjections that it caused.
    fn tell(&mut self, at: Time, input: AnchorInput) -> Vec<Reinjection> {
        self.0.handle(at, input.into());
        self.again()
    }

    /// Ticks; returns the reinjections that were due.
    fn tick(&mut self, at: Time) -> Vec<Reinjection> {
        self.0.tick(at);
        self.again()
    }

    fn again(&mut self) -> Vec<Reinjection> {
        let outputs = core::iter::from_fn(|| self.0.poll());
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

    /// Handles a request over the second path, from a host that hears the paths in `heard`.
    fn request(&mut self, at: Time, heard: u16, age: u8) -> Vec<Reinjection> {
        let seq = at.micros32();
        let probe = Probe { seq, t_sc: seq, sc: seq, heard, t_ka_ms: 60, ..Probe::default() };
        let probe = ProbeEvent { age, ..request(self.slot(1), at, 1, probe) };
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
    // A repeated report within 5 ms is ignored; packets that left meanwhile follow 15 ms after the first.
    assert_eq!(asked.request(at(124), 0b111, silent), []);
    assert!(asked.0.deadline().is_some_and(|(due, _)| due == at(135)), "{:?}", asked.0.deadline());
    assert_eq!(asked.tick(at(134)), []);
    assert_eq!(asked.tick(at(135)), [first]);
    assert_eq!(asked.tick(at(160)), [], "once");
    // A later report restarts that timer, and an age too large to encode means ten seconds.
    assert_eq!(asked.request(at(180), 0b111, silent), [again(&asked, at(180) - told)]);
    let longest = again(&asked, at(185) - Span::from_secs(10));
    assert_eq!(asked.request(at(185), 0b111, 255), [longest]);
    assert_eq!(asked.tick(at(195)), []);
    assert_eq!(asked.tick(at(200)), [longest]);
}
