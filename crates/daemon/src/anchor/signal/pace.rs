//! Rate limits of a host's messages and registrations, counted per host and not per connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_wire::signal::FromHost;
use tokio::time::Instant;

/// Burst of messages per host: twice what sixteen paths need at startup.
pub(super) const BURST: u32 = 64;
/// Interval of messages beyond the burst.
pub(super) const PACE: Duration = Duration::from_millis(50);
/// Burst of registrations per host. Each start and each new connection of a host causes one.
pub(super) const REGISTRATIONS: u32 = 8;
/// Interval of registrations beyond the burst.
pub(super) const REGISTRATION_PACE: Duration = Duration::from_secs(1);

/// The longest wait, so that a host that asked too often by mistake is not shut out for long.
const LONGEST: Duration = Duration::from_secs(10);

/// Allows a burst, and then one event per interval.
#[derive(Clone, Copy, Default)]
pub(super) struct Pace {
    /// The time at which the events so far would be over, at one per interval.
    settled: Option<Instant>,
}

impl Pace {
    /// How long the next event must wait, if `burst` events may come at once and then one per `pace`.
    pub(super) fn wait(&self, pace: Duration, burst: u32, now: Instant) -> Duration {
        let ahead = self.settled.unwrap_or(now).saturating_duration_since(now);
        ahead.saturating_sub(pace * (burst - 1))
    }

    /// Counts an event.
    pub(super) fn spend(&mut self, pace: Duration, burst: u32, now: Instant) {
        let settled = self.settled.unwrap_or(now).max(now) + pace;
        self.settled = Some(settled.min(now + pace * burst + LONGEST));
    }

    /// Returns whether the full burst is available again.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        self.settled.is_none_or(|settled| settled <= now)
    }
}

/// The allowances of all hosts, by name. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Allowances(Arc<Mutex<BTreeMap<String, Allowance>>>);

#[derive(Default)]
struct Allowance {
    messages: Pace,
    registrations: Pace,
}

impl Allowances {
    /// Counts a message of a host; returns how long the host has to wait. QUIC's flow control makes the sender wait
    /// meanwhile. If there are more than `hosts`, the number enrolled, hosts with full allowances are forgotten.
    pub(super) fn take(
        &self,
        host: &str,
        message: &FromHost,
        hosts: usize,
        now: Instant,
    ) -> Duration {
        let mut all = self.lock();
        if all.len() > hosts {
            all.retain(|_, own| {
                !own.messages.is_settled(now) || !own.registrations.is_settled(now)
            });
        }
        let own = all.entry(host.to_owned()).or_default();
        let mut wait = own.messages.wait(PACE, BURST, now);
        own.messages.spend(PACE, BURST, now);
        if matches!(message, FromHost::Register { .. }) {
            wait = wait.max(own.registrations.wait(REGISTRATION_PACE, REGISTRATIONS, now));
            own.registrations.spend(REGISTRATION_PACE, REGISTRATIONS, now);
        }
        wait
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Allowance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_host_spends_another_does_not_miss_and_nobody_is_remembered_for_ever() {
        let (allowances, start) = (Allowances::default(), Instant::now());
        let leave = FromHost::Leave;
        let waits = |host: &str| allowances.take(host, &leave, 2, start);
        let at_once = (0..1_000).take_while(|_| waits("mallory").is_zero()).count();
        assert_eq!(at_once, BURST as usize);
        assert!(waits("alice").is_zero());
        let later = start + Duration::from_secs(3_600);
        for n in 0..10 {
            allowances.take(&format!("host{n}"), &leave, 2, later + Duration::from_secs(n));
        }
        assert!(allowances.lock().len() <= 3);
    }
}
