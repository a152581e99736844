//! Violations of invariants.

use alloc::string::String;

use segue_keepalive::Estimates;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as in docs/simulator/faults.md.
    pub invariant: &'static str,
    /// Details of the violation.
    pub detail: String,
}

impl Violation {
    /// The violation of `invariant`, with details.
    #[must_use]
    pub fn new(invariant: &'static str, detail: String) -> Violation {
        Violation { invariant, detail }
    }

    /// Returns an error unless `holds`.
    ///
    /// # Errors
    /// The violation.
    pub fn unless(
        holds: bool,
        invariant: &'static str,
        detail: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(invariant, detail())) }
    }
}

/// The counters of estimates, which never decrease.
pub(crate) fn counters_of(e: &Estimates) -> [u64; 9] {
    [
        e.sent,
        e.received,
        e.duplicates,
        e.reordered,
        e.transitions,
        e.up.sent,
        e.up.received,
        e.down.sent,
        e.down.received,
    ]
}
