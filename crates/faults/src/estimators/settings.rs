//! What a schedule says of two ends.

use alloc::string::String;
use core::fmt;

use super::super::tunnel::shape::Period;
use crate::Words;
use crate::fault::HostShape;

/// Settings of the ends.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) period: Period,
    /// The client's driver wakes at multiples of so many milliseconds alone; 0: in time.
    pub(super) late_ms: u64,
}

impl Settings {
    /// Of a host in a schedule that was checked.
    pub(super) fn of(shape: &HostShape) -> Settings {
        Settings::read(&mut Words::of(&shape.settings)).unwrap_or_default()
    }

    /// Reads `k 3 t-ka 60ms`, and perhaps `late 20ms`.
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
