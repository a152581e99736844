//! Values with units.

use std::fmt;

use segue_clock::Span;
use segue_text::units;
use serde::Deserialize;
use serde::de::{Error, Visitor};

/// A duration with a unit, as in `"200ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub Span);

/// A share, as in `"5%"` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub f64);

struct Text<T>(fn(&str) -> Result<T, String>, &'static str);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.1)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.0)(&number.to_string()).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = Text(units::duration, "a duration with its unit, like \"200ms\"");
        deserializer.deserialize_any(visitor).map(Duration)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = Text(units::ratio, "a share, like \"5%\" or 0.05");
        deserializer.deserialize_any(visitor).map(Ratio)
    }
}
