//! The programs that are connected to a role, and the rates of flows that they learn.

use alloc::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_ip::FlowKey;

/// How often programs learn the quality of paths.
const QUALITY: Span = Span::from_secs(1);
/// A flow that is older than this at the first look, which a program's connection begins, has no rate yet.
const FIRST: Span = Span::from_secs(2);
/// Shortest interval from which a rate is computed.
const LEAST: Span = Span::from_millis(100);

/// What a driver reports about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramInput {
    /// It has connected.
    Connected,
    /// It has sent an order.
    Ordered(crate::Order),
    /// It has disconnected.
    Gone,
}

/// The traffic of a flow towards its host, as the layer below counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Bytes in these packets.
    pub bytes: u64,
    /// When the last packet was sent.
    pub last_sent: Option<Time>,
}

/// The connected programs.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By number: whether it decides, or only observes.
    connected: BTreeMap<u64, bool>,
    flows: BTreeMap<FlowKey, Look>,
    /// When qualities are next reported.
    quality_at: Option<Time>,
}

/// A flow at the last look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Time,
    packets: u64,
    bytes: u64,
    rate_kbps: Option<f64>,
}

impl Programs {
    /// True if any program is connected.
    pub(crate) fn any(&self) -> bool {
        !self.connected.is_empty()
    }

    /// True if any program decides.
    pub(crate) fn decide(&self) -> bool {
        self.connected.values().any(|decides| *decides)
    }

    /// True if this program is connected.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.connected.contains_key(&number)
    }

    /// Adds a program, or changes whether it decides.
    pub(crate) fn set(&mut self, now: Time, number: u64, decides: bool) {
        self.connected.insert(number, decides);
        self.quality_at.get_or_insert(now + QUALITY);
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.connected.remove(&number);
        if self.connected.is_empty() {
            self.quality_at = None;
            self.flows.clear();
        }
    }

    /// When [`Programs::is_due`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.quality_at
    }

    /// True once a second: qualities are to be reported.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.quality_at.is_some_and(|at| at <= now);
        if due {
            self.quality_at = Some(now + QUALITY);
        }
        due
    }

    /// Updates a flow that began at `since`. Returns whether it has carried anything since the last look.
    pub(crate) fn look(&mut self, now: Time, key: FlowKey, since: Time, carried: &Carried) -> bool {
        let Carried { packets, bytes, .. } = *carried;
        let before = match self.flows.get(&key) {
            Some(before) => *before,
            None if now.since(since) <= FIRST => {
                Look { at: since, packets: 0, bytes: 0, rate_kbps: None }
            }
            None => {
                self.flows.insert(key, Look { at: now, packets, bytes, rate_kbps: None });
                return false;
            }
        };
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
    pub(crate) fn rate(&self, key: &FlowKey) -> Option<f64> {
        self.flows.get(key)?.rate_kbps
    }

    /// Forgets a flow that has ended.
    pub(crate) fn forget(&mut self, key: &FlowKey) {
        self.flows.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_between_two_looks_also_when_counts_begin_anew() {
        let key = FlowKey {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            sport: 1,
            dport: 2,
            protocol: 17,
            label: 0,
        };
        let mut programs = Programs::default();
        let mut look = |at_s: f64, packets, bytes| {
            let carried = Carried { packets, bytes, last_sent: None };
            let now = Time::ZERO + Span::from_secs_f64(at_s);
            let carries = programs.look(now, key, Time::ZERO, &carried);
            (carries, programs.rate(&key))
        };
        assert_eq!(look(0.01, 1, 100), (true, None), "too early");
        assert_eq!(look(1.0, 10, 125_000), (true, Some(1_000.0)));
        assert_eq!(look(2.0, 10, 125_000), (false, Some(0.0)));
        assert_eq!(look(3.0, 2, 2_500), (true, Some(20.0)), "anew");
        programs.forget(&key);
        let carried = Carried { packets: 9, bytes: 900, last_sent: None };
        let late = Time::ZERO + Span::from_secs(9);
        assert!(!programs.look(late, key, Time::ZERO, &carried), "its past is no news");
        programs.forget(&key);
        assert_eq!(programs.rate(&key), None);
    }
}
