//! What the harness drives.

use alloc::string::String;

use segue_clock::Time;

use crate::{Fault, Record, Violation};

/// Machines on virtual time, with what is between them and what must hold of them.
pub trait World {
    /// Virtual time.
    fn now(&self) -> Time;

    /// Runs the next event that is due up to and at `end`, and checks what must hold after it. Returns whether there was
    /// one; if not, it is `end` afterwards.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn step(&mut self, end: Time, record: &mut Record) -> Result<bool, Violation>;

    /// Injects a fault, and checks what must hold after it. One that makes no sense here does nothing.
    ///
    /// # Errors
    /// As for [`World::step`].
    fn inject(&mut self, fault: &Fault, record: &mut Record) -> Result<(), Violation>;

    /// All has been mended, and the quiet time begins: everything runs that can.
    ///
    /// # Errors
    /// As for [`World::step`].
    fn quiet(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// What must hold [`QUIET_MS`](crate::schedule::QUIET_MS) later.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn finish(&mut self) -> Result<(), Violation>;

    /// The state of the machines, for a person who examines a failure.
    fn describe(&self) -> String;
}
