//! Settings of two ends in a schedule.

use alloc::string::String;
use core::fmt;

use super::super::tunnel::shape::Period;
use crate::Words;
use crate::fault::HostShape;

/// Settings of the ends.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) period: Period,
    /// The client's driver wakes only at multiples of this many milliseconds; 0: always in time.
    pub(super) late_ms: u64,
}

impl Settings {
    /// The settings of a host in a validated schedule.
    pub(super) fn of(shape: &HostShape) -> Settings {
        Settings::read(&mut Words::of(&shape.settings)).unwrap_or_default()
    }

    /// Parses `k 3 t-ka 60ms`, optionally followed by `late 20ms`.
    pub(super) fn read(words: &mut Words<'_>) -> Result<Settings, String> {
        let period = Period::read(words)?;
        let mut settings = Settings { period, late_ms: 0 };
        if words.peek() == Some("late") {
            words.expect("late")?;
            settings.late_ms = words.millis("the lateness", 10_000)?;
        }
        Ok(settings)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.late_ms {
            0 => write!(f, "{}", self.period),
            late => write!(f, "{} late {late}ms", self.period),
        }
    }
}
