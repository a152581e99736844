//! Every request that reaches the anchor is answered in time: at once or, if probes ride, after the longest wait.

use alloc::format;

use segue_clock::{Span, Time};
use segue_wire::{HELD_AT_MOST_MS, ProbeKey};

use super::super::host::Host;
use super::super::state::Tunnels;
use crate::Violation;

/// Maximum time that the anchor may hold a response to this host.
fn longest_wait(host: &Host) -> Span {
    match (host.keepalive.rides, host.follows_use) {
        (false, _) => Span::ZERO,
        (true, false) => host.keepalive.t_ka,
        (true, true) => Span::from_millis(HELD_AT_MOST_MS),
    }
}

impl Tunnels {
    pub(in super::super) fn expect_answers(&mut self, now: Time) -> Result<(), Violation> {
        if self.watch.answers.open.is_empty() {
            return Ok(());
        }
        let mut open = core::mem::take(&mut self.watch.answers.open);
        let anchor = self.anchor_end();
        // The key of a path is removed with the path.
        open.retain(|(key, _), (_, slot)| anchor.datapath.key_of(*slot) == Some(ProbeKey(*key)));
        for ((_, seq), (came, slot)) in &open {
            let owner = anchor.machine.path(*slot).map(|path| path.owner);
            let known = anchor.machine.hosts().find(|host| Some(host.owner) == owner);
            let host = known.and_then(|k| self.hosts.iter().find(|host| host.name == k.name));
            let most = host.map_or(Span::ZERO, longest_wait);
            Violation::unless(
                now <= (*came + most).max(self.stage.still.until),
                "every request is answered",
                || {
                    let waits = now.since(*came);
                    format!(
                        "number {seq} in the anchor's slot {slot} waits for {waits}, bound {most}"
                    )
                },
            )?;
        }
        self.watch.answers.open = open;
        Ok(())
    }
}
