//! Values with units, ranges and defaults. Each refuses what lies outside its range, and has range and default in its
//! schema. There is no default if the parameter is zero or outside of the range.

use std::fmt;

use schemars::{Schema, json_schema};
use segue_clock::Span;
use segue_text::units;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Milliseconds of a second, for the parameters of [`Duration`].
pub const S: u64 = 1_000;
/// Milliseconds of a minute.
pub const MIN: u64 = 60 * S;
/// Milliseconds of an hour.
pub const H: u64 = 60 * MIN;
/// Milliseconds of a day.
pub const D: u64 = 24 * H;
/// No upper limit of a duration.
pub const FOREVER: u64 = u64::MAX;

/// A duration with a unit, as in `"200ms"`. The parameters are the default and the limits, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration<const DEFAULT: u64 = 0, const LEAST: u64 = 0, const MOST: u64 = FOREVER>(
    pub Span,
);

/// A share, as in `"5%"` or `0.05`. The parameter is the default in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio<const DEFAULT: u8 = 0>(pub f64);

/// A whole number. The parameters are the default and the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Within<const DEFAULT: i64, const LEAST: i64, const MOST: i64>(i64);

/// A number. The parameters are the default and the limits, in tenths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tenths<const DEFAULT: i64, const LEAST: i64 = 0, const MOST: i64 = { i64::MAX }>(
    pub f64,
);

/// True or false. The parameter is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flag<const DEFAULT: bool>(pub bool);

/// Implements `Default` for a type with these parameters.
macro_rules! default {
    ([$($params:tt)*] $type:ty = $default:expr) => {
        impl<$($params)*> Default for $type {
            fn default() -> Self {
                $default
            }
        }
    };
}

default!([const DEFAULT: u64, const LEAST: u64, const MOST: u64] Duration<DEFAULT, LEAST, MOST> =
    Duration(Span::from_millis(DEFAULT)));
default!([const DEFAULT: u8] Ratio<DEFAULT> = Ratio(f64::from(DEFAULT) / 100.0));
default!([const DEFAULT: i64, const LEAST: i64, const MOST: i64] Within<DEFAULT, LEAST, MOST> =
    Within(DEFAULT));
default!([const DEFAULT: i64, const LEAST: i64, const MOST: i64] Tenths<DEFAULT, LEAST, MOST> =
    Tenths(DEFAULT as f64 / 10.0));
default!([const DEFAULT: bool] Flag<DEFAULT> = Flag(DEFAULT));

impl<const DEFAULT: i64, const LEAST: i64, const MOST: i64> Within<DEFAULT, LEAST, MOST> {
    /// The number as a type that has room for the range.
    #[must_use]
    pub fn get<T: TryFrom<i64>>(self) -> T {
        T::try_from(self.0).ok().expect("the type has room for the range")
    }
}

/// The error about a value outside of a range; `None` is an open end, at which values are `more`.
fn outside<E: Error>(least: Option<String>, most: Option<String>, more: &str) -> E {
    E::custom(match (least, most) {
        (Some(least), Some(most)) => format!("must lie between {least} and {most}"),
        (Some(least), None) => format!("must be {least} or {more}"),
        (None, most) => format!("must be at most {}", most.unwrap_or_default()),
    })
}

/// Milliseconds in the language of files, such as `500ms`, `1.5s` or `1h`.
fn written(ms: u64) -> String {
    let fits = |unit: u64| ms.is_multiple_of(unit) && ms / unit < 1_000;
    match ms {
        0 => "0s".into(),
        _ if ms.is_multiple_of(D) => format!("{}d", ms / D),
        _ if fits(H) => format!("{}h", ms / H),
        _ if fits(MIN) => format!("{}min", ms / MIN),
        _ if ms >= S => format!("{}s", ms as f64 / S as f64),
        _ => format!("{ms}ms"),
    }
}

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

impl<'de, const DEFAULT: u64, const LEAST: u64, const MOST: u64> Deserialize<'de>
    for Duration<DEFAULT, LEAST, MOST>
{
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        let visitor = Text(units::duration, "a duration with its unit, like \"200ms\"");
        let span = deserializer.deserialize_any(visitor)?;
        let (least, most) = (Span(LEAST.saturating_mul(1_000_000)), MOST.saturating_mul(1_000_000));
        if LEAST == 1 && span == Span::ZERO {
            return Err(T::Error::custom("must be above zero"));
        }
        if LEAST > 1 && span < least || span > Span(most) {
            let least = (LEAST > 1).then(|| written(LEAST));
            let most = (MOST != FOREVER).then(|| written(MOST));
            return Err(outside(least, most, "longer"));
        }
        Ok(Duration(span))
    }
}

impl<const DEFAULT: u64, const LEAST: u64, const MOST: u64> Serialize
    for Duration<DEFAULT, LEAST, MOST>
{
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        match self.0.0 {
            ns if ns.is_multiple_of(1_000_000) => {
                serializer.serialize_str(&written(ns / 1_000_000))
            }
            ns => serializer.serialize_str(&format!("{ns}ns")),
        }
    }
}

impl<'de, const DEFAULT: u8> Deserialize<'de> for Ratio<DEFAULT> {
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        let visitor = Text(units::ratio, "a share, like \"5%\" or 0.05");
        deserializer.deserialize_any(visitor).map(Ratio)
    }
}

impl<'de, const DEFAULT: i64, const LEAST: i64, const MOST: i64> Deserialize<'de>
    for Within<DEFAULT, LEAST, MOST>
{
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        struct Whole(i64, i64);
        impl Visitor<'_> for Whole {
            type Value = i64;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a whole number from {} to {}", self.0, self.1)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
                Ok(number)
            }
        }
        let number = deserializer.deserialize_any(Whole(LEAST, MOST))?;
        if (LEAST..=MOST).contains(&number) {
            return Ok(Within(number));
        }
        let most = (MOST != i64::MAX).then(|| MOST.to_string());
        Err(outside(Some(LEAST.to_string()), most, "more"))
    }
}

impl<'de, const DEFAULT: i64, const LEAST: i64, const MOST: i64> Deserialize<'de>
    for Tenths<DEFAULT, LEAST, MOST>
{
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        let number = f64::deserialize(deserializer)?;
        let (least, most) = (LEAST as f64 / 10.0, MOST as f64 / 10.0);
        match number {
            _ if number >= least && number <= most && number.is_finite() => Ok(Tenths(number)),
            _ => {
                let most = (MOST != i64::MAX).then(|| most.to_string());
                Err(outside(Some(least.to_string()), most, "more"))
            }
        }
    }
}

/// Adds a member to a schema if there is one.
fn with(mut schema: Schema, name: &str, member: Option<Value>) -> Schema {
    if let Some(member) = member {
        schema.insert(name.into(), member);
    }
    schema
}

described!(@[const DEFAULT: u64, const LEAST: u64, const MOST: u64] Duration<DEFAULT, LEAST, MOST> = {
    let pattern = r"^[0-9.]+([eE][0-9]+)? ?(ns|us|µs|ms|s|m|min|h|d)$";
    let schema = json_schema!({ "type": "string", "pattern": pattern, "x-value": "time" });
    let least = (LEAST > 0).then(|| if LEAST == 1 { "0s".into() } else { written(LEAST).into() });
    let schema = with(schema, "x-minimum", least);
    let schema = with(schema, "x-maximum", (MOST != FOREVER).then(|| written(MOST).into()));
    with(schema, "x-default", (DEFAULT > 0).then(|| written(DEFAULT).into()))
});
described!(@[const DEFAULT: u8] Ratio<DEFAULT> = {
    let schema = json_schema!({ "type": ["string", "number"], "x-value": "share" });
    with(schema, "x-default", (DEFAULT > 0).then(|| format!("{DEFAULT}%").into()))
});
described!(@[const DEFAULT: i64, const LEAST: i64, const MOST: i64] Within<DEFAULT, LEAST, MOST> = {
    let schema = json_schema!({ "type": "integer", "minimum": LEAST, "maximum": MOST });
    with(schema, "x-default", (LEAST..=MOST).contains(&DEFAULT).then(|| DEFAULT.into()))
});
described!(@[const DEFAULT: i64, const LEAST: i64, const MOST: i64] Tenths<DEFAULT, LEAST, MOST> = {
    let [default, least, most] = [DEFAULT, LEAST, MOST].map(|tenths| tenths as f64 / 10.0);
    let schema = json_schema!({ "type": "number", "minimum": least, "x-default": default });
    with(schema, "maximum", (MOST != i64::MAX).then(|| most.into()))
});
described!(@[const DEFAULT: bool] Flag<DEFAULT>, { "type": "boolean", "x-default": DEFAULT });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_as_people_write_it() {
        let all = [1_500, 110 * S, 8 * S, MIN, 30 * MIN, H, 262_140 * S, D, 90 * D, 100_000 * S];
        let all = all.map(written).join(" ");
        assert_eq!(all, "1.5s 110s 8s 1min 30min 1h 262140s 1d 90d 100000s");
    }
}
