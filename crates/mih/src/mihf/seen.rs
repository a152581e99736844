//! Deduplication of received frames.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_clock::{Span, Time};
use segue_wire::mih::{MessageId, Opcode};

use super::state::Endpoint;

/// How long a frame is remembered.
const KNOWN: Span = Span::from_secs(30);
/// Maximum number of remembered frames per sender. Well below the 4096 transaction IDs, so that a wrapped ID is not
/// mistaken for a duplicate.
const OF_ONE: usize = 1_024;
/// Maximum number of senders; beyond it, the one silent for longest is forgotten.
const SENDERS_MAX: usize = 2_048;

/// Recently received frames by sender.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<Endpoint, Sender>);

#[derive(Default)]
struct Sender {
    known: BTreeSet<(MessageId, u16)>,
    order: VecDeque<(Time, (MessageId, u16))>,
}

impl Sender {
    fn newest(&self) -> Option<Time> {
        self.order.back().map(|(at, _)| *at)
    }

    fn drop_oldest(&mut self) {
        if let Some((_, oldest)) = self.order.pop_front() {
            self.known.remove(&oldest);
        }
    }
}

impl Seen {
    /// Records a frame; true if it is a duplicate.
    pub(super) fn is_repeated(
        &mut self,
        now: Time,
        from: Endpoint,
        frame: (MessageId, u16),
    ) -> bool {
        let is_old = |at: Time| now.since(at) > KNOWN;
        if !self.0.contains_key(&from) && self.0.len() >= SENDERS_MAX {
            self.0.retain(|_, sender| !sender.newest().is_none_or(is_old));
            let silent = self.0.iter().min_by_key(|(_, sender)| sender.newest());
            if self.0.len() >= SENDERS_MAX
                && let Some(silent) = silent.map(|(of, _)| *of)
            {
                self.0.remove(&silent);
            }
        }
        let sender = self.0.entry(from).or_default();
        while sender.order.front().is_some_and(|(at, _)| is_old(*at)) {
            sender.drop_oldest();
        }
        if !sender.known.insert(frame) {
            return true;
        }
        sender.order.push_back((now, frame));
        if sender.order.len() > OF_ONE {
            sender.drop_oldest();
        }
        false
    }

    /// A sender restarted, so it may reuse transaction IDs. Keeps registrations, whose retransmissions are still
    /// duplicates.
    pub(super) fn forget(&mut self, from: Endpoint) {
        let Some(sender) = self.0.get_mut(&from) else { return };
        let register = MessageId::REGISTER.with_opcode(Opcode::CONFIRM);
        let stays =
            |(message, _): &(MessageId, u16)| message.with_opcode(Opcode::CONFIRM) == register;
        sender.known.retain(stays);
        sender.order.retain(|(_, frame)| stays(frame));
    }
}
