//! The interface between a protocol and the harness.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::panic::RefUnwindSafe;

use segue_clock::{Rng, Time};

use crate::fault::{HostShape, PathRef};
use crate::{Schedule, Words, World};

/// A protocol whose machines are run under faults.
///
/// A schedule has one or more hosts with one or more paths each. Everything else is specific to the protocol, and
/// the harness treats it as text: `settings` of the run, settings of each host, and orders among the faults.
pub trait Protocol: Sync + RefUnwindSafe {
    /// Its name in schedules and on the command line.
    fn name(&self) -> &'static str;

    /// Names of the nodes, apart from hosts, that can restart.
    fn fixed(&self) -> &'static [&'static str];

    /// Returns true if its hosts have interfaces and addresses that change.
    fn moves(&self) -> bool {
        true
    }

    /// Draws the settings of a run (one per line) and its hosts.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>);

    /// Draws an order for this path or its host; `None` for a protocol without orders. The word after the verb is
    /// the host or the path.
    fn draw_order(&self, _rng: &mut Rng, _at: PathRef) -> Option<String> {
        None
    }

    /// Extends a drawn schedule. Entries may precede the quiet time, or follow it if they also postpone it.
    fn draw_more(&self, _schedule: &mut Schedule) {}

    /// Checks a line of settings.
    ///
    /// # Errors
    /// The error, and the expected text.
    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        Err(format!("\"{}\" is none of host, at, quiet", words.next("the setting")?))
    }

    /// Checks the settings of a host, up to the word `paths`.
    ///
    /// # Errors
    /// As for [`Protocol::check_setting`].
    fn check_host(&self, _words: &mut Words<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Checks an order of the protocol.
    ///
    /// # Errors
    /// As for [`Protocol::check_setting`].
    fn check_order(&self, words: &mut Words<'_>, _hosts: &[HostShape]) -> Result<(), String> {
        let verb = words.next("the fault")?;
        Err(format!("\"{verb}\" is no fault; docs/simulator/faults.md has the list"))
    }

    /// Checks a whole schedule.
    ///
    /// # Errors
    /// As for [`Protocol::check_setting`].
    fn check(&self, _schedule: &Schedule) -> Result<(), String> {
        Ok(())
    }

    /// Variants of this schedule with simpler settings, for shrinking.
    fn simpler(&self, _schedule: &Schedule) -> Vec<Schedule> {
        Vec::new()
    }

    /// Creates the machines of a schedule at `start`.
    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World>;
}

/// A registered protocol.
#[derive(Clone, Copy)]
pub struct Machines(pub(crate) &'static dyn Protocol);

impl Deref for Machines {
    type Target = dyn Protocol;

    fn deref(&self) -> &(dyn Protocol + 'static) {
        self.0
    }
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Machines {
    fn eq(&self, other: &Machines) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Machines {}
