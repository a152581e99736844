//! Reinjection: sends packets again that left for a host and may be lost, over the path on which the host reports this.

use segue_clock::{Span, Time};

use super::host::Reinjected;
use super::{Anchor, Timer};
use crate::{Order, Output, ProbeEvent, Reinjection};

/// Minimum time between two reinjections for one host. Questions in doubt are further apart. When a path goes down, the
/// host reports this over several others at once, and the first report is enough.
const PACE: Span = Span::from_millis(5);
/// Delay of a second reinjection, for packets that left in the meantime: answers to packets that the host itself
/// reinjected along with its request.
const AGAIN: Span = Span::from_millis(15);
/// Maximum age of reinjected packets. An outage of an idle path is detected after about half this time.
const REINJECTED_FOR: Span = Span::from_secs(10);

impl Reinjected {
    /// The timer of the second reinjection.
    pub(super) fn timer(&self, owner: u32) -> (Time, Timer) {
        (self.at + AGAIN, Timer::Reinjection(owner))
    }
}

impl Anchor {
    /// Reinjects if a request reports another path as unheard.
    pub(super) fn reinject(&mut self, now: Time, owner: u32, probe: &ProbeEvent) {
        // Until the host has heard this path, the anchor may not know its endpoint.
        let heard = self.slots.get(&probe.slot).is_some_and(|path| path.heard_once);
        if probe.age == 0 || !heard {
            return;
        }
        let age = segue_wire::age::decode(probe.age).map_or(REINJECTED_FOR, Span);
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        if host.reinjected.is_some_and(|last| now.since(last.at) < PACE) {
            return;
        }
        let reinjected = Reinjected { at: now, over: probe.slot, since: now - age };
        if let Some(last) = host.reinjected.replace(reinjected) {
            self.timers.remove(&last.timer(owner));
        }
        self.timers.insert(reinjected.timer(owner));
        self.send_again(owner, reinjected);
    }

    /// Repeats the last reinjection, for packets that left since.
    pub(super) fn reinject_again(&mut self, owner: u32) {
        let Some(last) = self.hosts.get(&owner).and_then(|host| host.reinjected) else { return };
        self.timers.remove(&last.timer(owner));
        self.send_again(owner, last);
    }

    fn send_again(&mut self, owner: u32, Reinjected { over, since, .. }: Reinjected) {
        let Some(host) = self.hosts.get(&owner) else { return };
        if !host.paths.values().any(|slot| *slot == over) {
            return;
        }
        let follows = |slot: &&u32| {
            let path = self.slots.get(slot);
            path.is_some_and(|path| path.setup.probing.follows_use) && **slot != over
        };
        for slot in host.paths.values().filter(follows) {
            let reinjection = Reinjection { slot: *slot, over, since };
            self.out.push_back(Output::Order(Order::Reinject(reinjection)));
        }
    }
}
