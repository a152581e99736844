//! The traffic of flows, as reported to decision entities.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_datapath::relay::Carried;
use segue_ip::FlowKey;

/// Flows with their counts at the last look.
#[derive(Debug, Default)]
pub(super) struct Rates {
    flows: BTreeMap<FlowKey, Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Time,
    packets: u64,
    bytes: u64,
    rate_kbps: Option<f64>,
}

/// Shortest interval from which a rate is computed.
const LEAST: Span = Span::from_millis(100);

impl Rates {
    /// Updates a flow that began at `since`. Returns whether it has carried anything since the last look.
    pub(super) fn look(
        &mut self,
        now: Time,
        key: FlowKey,
        since: Time,
        Carried { sent_packets: packets, sent_bytes: bytes, .. }: &Carried,
    ) -> bool {
        let (packets, bytes) = (*packets, *bytes);
        let before = Look { at: since, packets: 0, bytes: 0, rate_kbps: None };
        let before = self.flows.get(&key).copied().unwrap_or(before);
        // Counters restart with a binding that is new to the packet path.
        let more = |after: u64, before: u64| after.checked_sub(before).unwrap_or(after);
        let elapsed = now.since(before.at);
        if elapsed >= LEAST {
            let kbit = more(bytes, before.bytes) as f64 * 8e-3;
            let rate_kbps = Some(kbit / elapsed.as_secs_f64());
            self.flows.insert(key, Look { at: now, packets, bytes, rate_kbps });
        }
        more(packets, before.packets) > 0
    }

    /// The rate between the last two looks, in kbit/s.
    pub(super) fn of(&self, key: &FlowKey) -> Option<f64> {
        self.flows.get(key)?.rate_kbps
    }

    /// Forgets a flow that has ended.
    pub(super) fn forget(&mut self, key: &FlowKey) {
        self.flows.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_between_two_looks_also_when_counts_begin_anew() {
        let key = FlowKey {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            sport: 1,
            dport: 2,
            protocol: 17,
            label: 0,
        };
        let mut rates = Rates::default();
        let mut look = |at_s: f64, packets, bytes| {
            let carried =
                Carried { sent_packets: packets, sent_bytes: bytes, ..Carried::default() };
            let now = Time::ZERO + Span::from_secs_f64(at_s);
            let carries = rates.look(now, key, Time::ZERO, &carried);
            (carries, rates.of(&key))
        };
        assert_eq!(look(0.01, 1, 100), (true, None), "too early");
        assert_eq!(look(1.0, 10, 125_000), (true, Some(1_000.0)));
        assert_eq!(look(2.0, 10, 125_000), (false, Some(0.0)));
        assert_eq!(look(3.0, 2, 2_500), (true, Some(20.0)), "anew");
        rates.forget(&key);
        assert_eq!(rates.of(&key), None);
    }
}
