//! What is said of an invariant that does not hold.

use alloc::string::String;

use segue_keepalive::Estimates;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as in docs/simulator/faults.md.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}

impl Violation {
    /// The violation of `invariant`, with what was found.
    #[must_use]
    pub fn new(invariant: &'static str, detail: String) -> Violation {
        Violation { invariant, detail }
    }

    /// Nothing if `holds`.
    ///
    /// # Errors
    /// The violation if it does not hold.
    pub fn unless(
        holds: bool,
        invariant: &'static str,
        detail: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(invariant, detail())) }
    }
}

/// What estimates count, which never goes back.
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
