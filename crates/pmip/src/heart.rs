//! Heartbeats: detect that a peer is unreachable or has restarted (RFC 5847).

use alloc::collections::{BTreeMap, BTreeSet};

use segue_clock::{Deadline, Rng, Span, Time};
use segue_ip::Datagram;
use segue_wire::mobility::body::Heartbeat;
use segue_wire::mobility::option::RestartCounter;
use segue_wire::mobility::{Body, HeartbeatFlags, MobilityOption, Profile};

use crate::message::{datagram, ipv4_care_of_address};
use crate::peer::Ends;

/// Time between requests (HEARTBEAT_INTERVAL): the minimum that RFC 5847 recommends. A peer that restarts and cannot
/// announce it is noticed at its next response.
pub(crate) const INTERVAL: Span = Span::from_secs(30);
/// Minimum time between requests when an unsolicited message claims that the peer has restarted.
const PAUSE: Span = Span::from_secs(1);
/// Unanswered requests after which the peer counts as unreachable (MISSING_HEARTBEATS_ALLOWED).
const MISSING_ALLOWED: u32 = 3;

/// Heartbeat state of one peer.
#[derive(Clone, Debug)]
struct Heart {
    sequence: u32,
    next: Time,
    /// Requests since the last response.
    open: u32,
    counter: Option<u32>,
    silent: bool,
    /// An unsolicited message claimed a restart. The next response confirms or refutes it.
    suspected: bool,
    /// When the last request was sent.
    asked: Option<Time>,
}

/// A change of the peer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// The peer has restarted.
    Restarted,
    /// The peer answers again.
    Back,
    /// The peer has stopped answering.
    Silent,
}

impl Heart {
    /// The first request is due at once: without a first counter a restart would go unnoticed. Sequence numbers start
    /// at a random value, so that an off-path attacker cannot guess them.
    fn new(now: Time, seed: u64) -> Heart {
        Heart {
            sequence: Rng::new(seed).next_u64() as u32,
            next: now,
            open: 0,
            counter: None,
            silent: false,
            suspected: false,
            asked: None,
        }
    }

    fn deadline(&self) -> Time {
        self.next
    }

    /// Returns the sequence number of the request to send if one is due, and `Silent` if too many are unanswered.
    fn tick(&mut self, now: Time) -> (Option<u32>, Option<Pulse>) {
        if now < self.next {
            return (None, None);
        }
        let silent = self.open >= MISSING_ALLOWED && !core::mem::replace(&mut self.silent, true);
        (self.next, self.asked) = (now + INTERVAL, Some(now));
        self.open = self.open.saturating_add(1);
        self.sequence = self.sequence.wrapping_add(1);
        (Some(self.sequence), silent.then_some(Pulse::Silent))
    }

    /// Handles a response to the latest request, or an unsolicited one; `None` if it is neither. The source of an
    /// unsolicited response may be forged, so a new counter only brings the next request forward, to at most one a
    /// second.
    fn on_response(
        &mut self,
        now: Time,
        beat: &Heartbeat,
        counter: Option<u32>,
    ) -> Option<Option<Pulse>> {
        if beat.flags.contains(HeartbeatFlags::UNSOLICITED) {
            if counter.is_none() || counter != self.counter {
                self.suspected = true;
                let earliest = self.asked.map_or(now, |asked| asked + PAUSE);
                self.next = self.next.min(earliest.max(now));
            }
            return Some(None);
        }
        if beat.sequence != self.sequence || self.open == 0 {
            return None;
        }
        self.open = 0;
        let before = self.counter;
        self.counter = counter.or(before);
        let restarted = before.is_some_and(|before| counter.is_some_and(|now| now != before));
        let back = core::mem::replace(&mut self.silent, false);
        let suspected = core::mem::replace(&mut self.suspected, false);
        Some(match (restarted || suspected && before.is_none(), back) {
            (true, _) => Some(Pulse::Restarted),
            (false, true) => Some(Pulse::Back),
            (false, false) => None,
        })
    }
}

/// Heartbeat states of all peers, ordered by when each is due.
#[derive(Clone, Debug)]
pub(crate) struct Hearts<P> {
    known: BTreeMap<P, Heart>,
    due: BTreeSet<(Time, P)>,
}

impl<P> Default for Hearts<P> {
    fn default() -> Hearts<P> {
        Hearts { known: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<P: Copy + Ord> Hearts<P> {
    /// Starts monitoring a peer.
    pub(crate) fn listen(&mut self, now: Time, peer: P, seed: u64) {
        self.forget(peer);
        let heart = Heart::new(now, seed);
        self.due.insert((heart.deadline(), peer));
        self.known.insert(peer, heart);
    }

    /// Stops monitoring a peer.
    pub(crate) fn forget(&mut self, peer: P) {
        if let Some(heart) = self.known.remove(&peer) {
            self.due.remove(&(heart.deadline(), peer));
        }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.due.first().map(|(at, _)| (*at, "a heartbeat is due"))
    }

    /// Handles a peer's response; `None` if it matches no request.
    pub(crate) fn on_response(
        &mut self,
        now: Time,
        peer: P,
        beat: &Heartbeat,
        counter: Option<u32>,
    ) -> Option<Option<Pulse>> {
        let heart = self.known.get_mut(&peer)?;
        self.due.remove(&(heart.deadline(), peer));
        let pulse = heart.on_response(now, beat, counter);
        self.due.insert((heart.deadline(), peer));
        pulse
    }

    /// A peer whose request is due: the sequence number to send, and whether the peer has just become silent.
    pub(crate) fn beat(&mut self, now: Time) -> Option<(P, Option<u32>, bool)> {
        let (_, peer) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        let heart = self.known.get_mut(&peer)?;
        let (ask, pulse) = heart.tick(now);
        self.due.insert((heart.deadline(), peer));
        Some((peer, ask, pulse == Some(Pulse::Silent)))
    }
}

/// A heartbeat request, with a probe if given. Over IPv4 a gateway includes its own address, since a NAT may lie
/// between the ends.
pub(crate) fn request(
    sequence: u32,
    probe: Option<MobilityOption>,
    ends: Ends,
    gateway: bool,
) -> Option<Datagram> {
    let body = Body::Heartbeat(Heartbeat { flags: HeartbeatFlags(0), sequence });
    let options = probe.into_iter().chain(who(ends, gateway));
    datagram(body, options.collect(), ends, &Profile::STRICT)
}

/// A heartbeat response with our restart counter and the answer to a probe. Without a request to answer it is
/// unsolicited.
pub(crate) fn response(
    to_request: Option<u32>,
    restart_counter: u32,
    probe: Option<MobilityOption>,
    ends: Ends,
    gateway: bool,
) -> Option<Datagram> {
    let flags = match to_request {
        Some(_) => HeartbeatFlags::RESPONSE,
        None => HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED,
    };
    let body = Body::Heartbeat(Heartbeat { flags, sequence: to_request.unwrap_or(0) });
    let counter = MobilityOption::RestartCounter(RestartCounter { restart_counter });
    let options = [counter].into_iter().chain(probe).chain(who(ends, gateway));
    datagram(body, options.collect(), ends, &Profile::STRICT)
}

fn who(ends: Ends, gateway: bool) -> Option<MobilityOption> {
    ends.own_v4().filter(|_| gateway).map(ipv4_care_of_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sequence: u32) -> Heartbeat {
        Heartbeat { flags: HeartbeatFlags::RESPONSE, sequence }
    }

    #[test]
    fn three_requests_without_an_answer_are_silence_and_another_counter_is_a_restart() {
        let mut heart = Heart::new(Time::ZERO, 1);
        let first = heart.sequence.wrapping_add(1);
        let mut now = Time::ZERO;
        let mut beat = |heart: &mut Heart| {
            let (asked, pulse) = heart.tick(now);
            now += INTERVAL;
            (asked.map(|n| n.wrapping_sub(first)), pulse)
        };
        let response = |heart: &mut Heart, n: u32, counter| {
            heart.on_response(Time::ZERO, &answer(first.wrapping_add(n)), Some(counter))
        };
        assert_eq!(beat(&mut heart), (Some(0), None));
        assert_eq!(response(&mut heart, 1, 7), None, "it was not asked");
        assert_eq!(response(&mut heart, 0, 7), Some(None));
        assert_eq!(response(&mut heart, 0, 7), None, "it has answered");
        for n in 1..4 {
            assert_eq!(beat(&mut heart), (Some(n), None));
        }
        assert_eq!(beat(&mut heart), (Some(4), Some(Pulse::Silent)));
        assert_eq!(beat(&mut heart), (Some(5), None));
        assert_eq!(response(&mut heart, 5, 7), Some(Some(Pulse::Back)));
        assert_eq!(beat(&mut heart), (Some(6), None));
        assert_eq!(response(&mut heart, 6, 8), Some(Some(Pulse::Restarted)));
    }

    #[test]
    fn who_says_unasked_that_it_has_started_anew_is_asked_at_most_once_a_second() {
        let flags = HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED;
        let unasked = Heartbeat { flags, sequence: 0 };
        let mut heart = Heart::new(Time::ZERO, 1);
        let (asked, _) = heart.tick(Time::ZERO);
        assert_eq!(heart.on_response(Time::ZERO, &answer(asked.unwrap()), Some(7)), Some(None));
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        assert_eq!(heart.on_response(at(100), &unasked, Some(7)), Some(None));
        assert_eq!(heart.deadline(), Time::ZERO + INTERVAL, "nothing new");
        assert_eq!(heart.on_response(at(100), &unasked, Some(8)), Some(None));
        assert_eq!(heart.deadline(), at(1_000));
        assert_eq!(heart.on_response(at(5_000), &unasked, Some(9)), Some(None));
        assert_eq!(heart.deadline(), at(1_000), "it is due");
        let (asked, _) = heart.tick(at(5_000));
        let truth = heart.on_response(at(5_000), &answer(asked.unwrap()), Some(7));
        assert_eq!(truth, Some(None), "it has not");
    }
}
