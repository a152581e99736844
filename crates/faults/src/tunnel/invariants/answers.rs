//! Each request that reaches the anchor is answered, and in time: at once, or where probes ride after the longest wait.

use alloc::collections::BTreeMap;
use alloc::format;

use segue_clock::{Span, Time};
use segue_wire::{HELD_AT_MOST_MS, ProbeKey};

use super::super::access::Node;
use super::super::{Tag, Tunnels};
use crate::Violation;
use segue_sim::tunnel::{AnchorEnd, Message};

/// Requests that have arrived, by the key of their path.
#[derive(Debug, Default)]
pub(super) struct Answers {
    newest: BTreeMap<[u8; 16], u32>,
    /// Those that are not answered: when they came, and to which slot.
    open: BTreeMap<([u8; 16], u32), (Time, u32)>,
}

impl Answers {
    /// A request arrives. An old one is not answered, nor one of a path that is gone, nor with the eBPF programs one that
    /// rode before it was shown where the host receives.
    pub fn on_request(
        &mut self,
        now: Time,
        end: &AnchorEnd<Tag>,
        message: &Message<Tag>,
        key: &ProbeKey,
        seq: u32,
    ) {
        if !end.datapath.is_path(message.index, message.cookie, key) {
            return;
        }
        let newest = self.newest.entry(key.0).or_insert(seq.wrapping_sub(1));
        if seq.wrapping_sub(*newest).cast_signed() > 0 {
            *newest = seq;
            if message.inner().is_some() && !end.datapath.is_shown(message.index) {
                return;
            }
            self.open.insert((key.0, seq), (now, message.index));
        }
    }

    /// A response leaves.
    pub fn on_response(&mut self, key: &ProbeKey, seq: u32) {
        self.open.remove(&(key.0, seq));
    }
}

/// How long the anchor may keep a response to this host.
fn longest_wait(node: &Node) -> Span {
    let path = &node.config.path;
    match (path.keepalive.rides, path.adaptive.is_some()) {
        (false, _) => Span::ZERO,
        (true, false) => path.keepalive.t_ka,
        (true, true) => Span::from_millis(HELD_AT_MOST_MS),
    }
}

impl Tunnels {
    pub(in super::super) fn expect_answers(&mut self, now: Time) -> Result<(), Violation> {
        let (anchor, hosts) = (&self.anchor, &self.hosts);
        // With a path its key goes.
        let stands = |key: [u8; 16], slot: u32| anchor.datapath.key_of(slot) == Some(ProbeKey(key));
        self.watch.answers.open.retain(|(key, _), (_, slot)| stands(*key, *slot));
        for ((_, seq), (came, slot)) in &self.watch.answers.open {
            let owner = anchor.machine.path(*slot).map(|path| path.owner);
            let known = anchor.machine.hosts().find(|host| Some(host.owner) == owner);
            let node = known.and_then(|known| hosts.iter().find(|node| node.name == known.name));
            let most = node.map_or(Span::ZERO, longest_wait);
            Violation::unless(now <= *came + most, "every request is answered", || {
                let waits = now.since(*came);
                format!("number {seq} in the anchor's slot {slot} waits for {waits}, bound {most}")
            })?;
        }
        Ok(())
    }
}
