//! Each request that reaches the anchor is answered, and in time: at once, or where probes ride after the longest wait.

use alloc::collections::BTreeMap;
use alloc::format;

use segue_clock::{Span, Time};
use segue_wire::{HELD_AT_MOST_MS, ProbeKey};

use super::super::{Host, Tunnels};
use crate::Violation;

/// Requests that have arrived, by the key of their path.
#[derive(Debug, Default)]
pub(super) struct Answers {
    newest: BTreeMap<[u8; 16], u32>,
    /// Those that are not answered: when they came, and to which slot.
    open: BTreeMap<([u8; 16], u32), (Time, u32)>,
}

impl Answers {
    /// A request to a slot arrives; whether it is the newest. An old one is not answered; nor need it be unless `waits`.
    pub(super) fn on_request(
        &mut self,
        now: Time,
        slot: u32,
        key: ProbeKey,
        seq: u32,
        waits: bool,
    ) -> bool {
        let newest = self.newest.entry(key.0).or_insert(seq.wrapping_sub(1));
        let newer = seq.wrapping_sub(*newest).cast_signed() > 0;
        if newer {
            *newest = seq;
            if waits {
                self.open.insert((key.0, seq), (now, slot));
            }
        }
        newer
    }

    /// A response leaves.
    pub(super) fn on_response(&mut self, key: ProbeKey, seq: u32) {
        self.open.remove(&(key.0, seq));
    }
}

/// How long the anchor may keep a response to this host.
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
        // With a path its key goes.
        open.retain(|(key, _), (_, slot)| anchor.datapath.key_of(*slot) == Some(ProbeKey(*key)));
        for ((_, seq), (came, slot)) in &open {
            let owner = anchor.machine.path(*slot).map(|path| path.owner);
            let known = anchor.machine.hosts().find(|host| Some(host.owner) == owner);
            let host = known.and_then(|k| self.hosts.iter().find(|host| host.name == k.name));
            let most = host.map_or(Span::ZERO, longest_wait);
            Violation::unless(now <= *came + most, "every request is answered", || {
                let waits = now.since(*came);
                format!("number {seq} in the anchor's slot {slot} waits for {waits}, bound {most}")
            })?;
        }
        self.watch.answers.open = open;
        Ok(())
    }
}
