//! Whether a path's other end is where its requests say.

use core::net::SocketAddr;

use segue_clock::Time;
use segue_keepalive::Arrival;

/// Requests with a fresh echo that show that their source receives the responses.
const ECHOES: u8 = 2;

/// Where a path's requests come from. A source address can be false, but who does not receive at it does
/// not know the stamps t_Ss of the responses that go there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Endpoint {
    remote: Option<SocketAddr>,
    since: Time,
    echoes: u8,
}

impl Endpoint {
    /// Takes the source of a request, and what the request echoes.
    pub(super) fn note(&mut self, remote: SocketAddr, arrival: &Arrival) {
        if self.remote != Some(remote) {
            *self = Endpoint { remote: Some(remote), since: arrival.at, echoes: 0 };
            return;
        }
        let age = |us: u32| arrival.at.micros32().wrapping_sub(us);
        // After half an hour any echo is from after the change: stamps wrap.
        let known = arrival.at.since(self.since).0 / 1_000;
        let fresh = known >= 1 << 31 || age(arrival.probe.t_ss) <= age(self.since.micros32());
        if arrival.probe.t_ss != 0 && fresh {
            self.echoes = self.echoes.saturating_add(1).min(ECHOES);
        }
    }

    /// Whether the source has shown that it receives.
    pub(super) fn receives(&self) -> bool {
        self.echoes >= ECHOES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_clock::Span;
    use segue_wire::Probe;

    fn arrival(at_ms: u64, t_ss_ms: u64) -> Arrival {
        let stamp = |ms: u64| (Time::ZERO + Span::from_millis(ms)).micros32();
        Arrival {
            probe: Probe { t_ss: stamp(t_ss_ms), ..Probe::default() },
            at: Time::ZERO + Span::from_millis(at_ms),
            received: 0,
            sent_at: None,
            uncertainty: Span::ZERO,
        }
    }

    #[test]
    fn two_fresh_echoes_show_that_a_source_receives_and_a_new_source_begins_again() {
        let own = "192.0.2.1:5005".parse().expect("an address");
        let victim = "192.0.2.2:5005".parse().expect("an address");
        let mut endpoint = Endpoint::default();
        // The first echo is of a response that went elsewhere, or to nobody.
        for (at, t_ss, shown) in [(1_000, 0, false), (1_100, 1_001, false), (1_200, 1_101, true)] {
            endpoint.note(own, &arrival(at, t_ss));
            assert_eq!(endpoint.receives(), shown, "at {at} ms");
        }
        // From the victim's address come echoes of what was answered to the own one.
        for at in [1_300, 1_400, 1_500] {
            endpoint.note(victim, &arrival(at, 1_201));
            assert!(!endpoint.receives(), "at {at} ms");
        }
        endpoint.note(victim, &arrival(1_600, 0));
        assert!(!endpoint.receives());
    }
}
