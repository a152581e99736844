//! Whether the other end lives, and whether it has started anew (RFC 5847).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{Span, Time};
use segue_ip::Datagram;
use segue_wire::mobility::body::Heartbeat;
use segue_wire::mobility::option::RestartCounter;
use segue_wire::mobility::{Body, HeartbeatFlags, MobilityOption, Profile};

use crate::message::datagram;

/// Time between requests (HEARTBEAT_INTERVAL).
pub(crate) const INTERVAL: Span = Span::from_secs(60);
/// Requests without an answer until the other end counts as gone (MISSING_HEARTBEATS_ALLOWED).
const MISSING_ALLOWED: u32 = 3;

/// What one end knows of the other's life.
#[derive(Clone, Debug)]
pub(crate) struct Heart {
    sequence: u32,
    next: Time,
    /// Requests since the last response.
    open: u32,
    counter: Option<u32>,
    silent: bool,
}

/// What a beat or its absence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// It has started anew.
    Restarted,
    /// It answers again.
    Back,
    /// It does not answer any more.
    Silent,
}

impl Heart {
    /// Asks at once: who knows no counter sees no restart.
    pub(crate) fn new(now: Time) -> Heart {
        Heart { sequence: 0, next: now, open: 0, counter: None, silent: false }
    }

    pub(crate) fn deadline(&self) -> Time {
        self.next
    }

    /// Asks if it is time; also says if too much was not answered.
    pub(crate) fn tick(&mut self, now: Time) -> (Option<u32>, Option<Pulse>) {
        if now < self.next {
            return (None, None);
        }
        let silent = self.open >= MISSING_ALLOWED && !core::mem::replace(&mut self.silent, true);
        self.next = now + INTERVAL;
        self.open = self.open.saturating_add(1);
        self.sequence = self.sequence.wrapping_add(1);
        (Some(self.sequence), silent.then_some(Pulse::Silent))
    }

    /// A response to the request with this number, or one that nobody asked for; `None`: it is neither.
    pub(crate) fn on_response(
        &mut self,
        beat: &Heartbeat,
        counter: Option<u32>,
    ) -> Option<Option<Pulse>> {
        let unsolicited = beat.flags.contains(HeartbeatFlags::UNSOLICITED);
        if !unsolicited && (beat.sequence != self.sequence || self.open == 0) {
            return None;
        }
        self.open = 0;
        let before = self.counter;
        self.counter = counter.or(before);
        let restarted = before.is_some_and(|before| counter.is_some_and(|now| now != before));
        let back = core::mem::replace(&mut self.silent, false);
        Some(match (restarted || unsolicited && before.is_none(), back) {
            (true, _) => Some(Pulse::Restarted),
            (false, true) => Some(Pulse::Back),
            (false, false) => None,
        })
    }
}

/// A request.
pub(crate) fn request(sequence: u32, from: Ipv6Addr, to: Ipv6Addr) -> Option<Datagram> {
    let body = Body::Heartbeat(Heartbeat { flags: HeartbeatFlags(0), sequence });
    datagram(body, Vec::new(), from, to, &Profile::STRICT)
}

/// A response, with how often this end has started; `None` for a request: nobody has asked for it.
pub(crate) fn response(
    to_request: Option<u32>,
    restart_counter: u32,
    from: Ipv6Addr,
    to: Ipv6Addr,
) -> Option<Datagram> {
    let flags = match to_request {
        Some(_) => HeartbeatFlags::RESPONSE,
        None => HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED,
    };
    let body = Body::Heartbeat(Heartbeat { flags, sequence: to_request.unwrap_or(0) });
    let counter = MobilityOption::RestartCounter(RestartCounter { restart_counter });
    datagram(body, Vec::from([counter]), from, to, &Profile::STRICT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sequence: u32) -> Heartbeat {
        Heartbeat { flags: HeartbeatFlags::RESPONSE, sequence }
    }

    #[test]
    fn three_requests_without_an_answer_are_silence_and_another_counter_is_a_restart() {
        let mut heart = Heart::new(Time::ZERO);
        let mut now = Time::ZERO;
        let mut beat = |heart: &mut Heart| {
            let beat = heart.tick(now);
            now = now + INTERVAL;
            beat
        };
        assert_eq!(beat(&mut heart), (Some(1), None));
        assert_eq!(heart.on_response(&answer(2), Some(7)), None, "it was not asked");
        assert_eq!(heart.on_response(&answer(1), Some(7)), Some(None));
        assert_eq!(heart.on_response(&answer(1), Some(7)), None, "it has answered");
        for sequence in 2..5 {
            assert_eq!(beat(&mut heart), (Some(sequence), None));
        }
        assert_eq!(beat(&mut heart), (Some(5), Some(Pulse::Silent)));
        assert_eq!(beat(&mut heart), (Some(6), None));
        assert_eq!(heart.on_response(&answer(6), Some(7)), Some(Some(Pulse::Back)));
        let flags = HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED;
        let unasked = Heartbeat { flags, sequence: 0 };
        assert_eq!(heart.on_response(&unasked, Some(8)), Some(Some(Pulse::Restarted)));
        assert_eq!(heart.on_response(&unasked, Some(8)), Some(None));
    }
}
