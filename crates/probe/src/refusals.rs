//! Datagrams that are refused, counted by reason.

use std::collections::BTreeMap;

/// How often each reason occurred. Names are those of `segue_wire::DropReason` and of the guard.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<&'static str, u64>);

impl Refusals {
    /// One more.
    pub fn count(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// The reasons that occurred.
    pub(crate) fn by_reason(&self) -> &BTreeMap<&'static str, u64> {
        &self.0
    }
}
