//! Refused datagrams, counted by reason.

use std::collections::BTreeMap;

/// Number of refused datagrams by reason. Names are those of `segue_wire::DropReason` and of the guard.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<&'static str, u64>);

impl Refusals {
    /// Counts a datagram.
    pub fn count(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// The counts by reason.
    pub(crate) fn by_reason(&self) -> &BTreeMap<&'static str, u64> {
        &self.0
    }
}
