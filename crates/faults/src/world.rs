//! The system that the harness drives.

use alloc::string::String;

use segue_clock::Time;

use crate::{Fault, Record, Violation};

/// Machines on virtual time, the network between them, and their invariants.
pub trait World {
    /// Current virtual time.
    fn now(&self) -> Time;

    /// Runs the next event that is due up to and including `end`, and checks the invariants afterwards. Returns
    /// true if there was an event; if not, advances the clock to `end`.
    ///
    /// # Errors
    /// The violated invariant.
    fn step(&mut self, end: Time, record: &mut Record) -> Result<bool, Violation>;

    /// Injects a fault, and checks the invariants afterwards. A fault that does not apply has no effect.
    ///
    /// # Errors
    /// The violated invariant.
    fn inject(&mut self, fault: &Fault, record: &mut Record) -> Result<(), Violation>;

    /// Starts the quiet time: everything has been mended, and everything that can run does.
    ///
    /// # Errors
    /// The violated invariant.
    fn quiet(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// Checks the invariants of the end, [`QUIET_MS`](crate::schedule::QUIET_MS) later.
    ///
    /// # Errors
    /// The violated invariant.
    fn finish(&mut self) -> Result<(), Violation>;

    /// The state of the machines as text, for the analysis of a failure.
    fn describe(&self) -> String;
}
