//! Parsing and formatting of numbers with units: durations, ratios, rates.

use segue_clock::Span;

/// Units of a duration, with their length in seconds.
const TIME: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];

/// Units of a rate in bits per second.
const RATE: [(&str, f64); 5] =
    [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12)];

/// A duration such as `100ms`, `1.5s`, `1e5s`, `2m` or `1h`.
///
/// # Errors
/// A message for the user. A number without a unit is refused, because it could mean seconds or milliseconds.
pub fn duration(s: &str) -> Result<Span, String> {
    let (number, unit) = split(s);
    if unit.is_empty() {
        return Err(format!("{s:?} has no unit: write for example 100ms or 1.5s"));
    }
    let Some((_, seconds)) = TIME.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{s:?}: {unit:?} is no unit of time (ns, us, ms, s, m, h, d)"));
    };
    let ns = positive(s, number)? * seconds * 1e9;
    if ns >= u64::MAX as f64 {
        return Err(format!("{s:?} is too long"));
    }
    Ok(Span(ns.round() as u64))
}

/// Formats a duration for people, such as `45 ms`, `3.2 s`, `10 min`, `1.5 h` or `2 d`.
#[must_use]
pub fn span(span: Span) -> String {
    let s = span.as_secs_f64();
    let (value, unit) = match s {
        s if s < 0.9995 => return format!("{:.0} ms", span.as_millis_f64()),
        s if s < 119.95 => (s, "s"),
        s if s < 7_197.0 => (s / 60.0, "min"),
        s if s < 172_620.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.trim_end_matches(".0"))
}

/// Formats a date with the time of day in UTC, from seconds since 1970.
#[must_use]
pub fn date(s: u64) -> String {
    let at = i64::try_from(s).ok().and_then(|s| time::OffsetDateTime::from_unix_timestamp(s).ok());
    at.map_or_else(
        || "never".into(),
        |at| {
            let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
            format!(
                "{year}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
                at.hour(),
                at.minute(),
                at.second()
            )
        },
    )
}

/// Formats only the date, from seconds since 1970.
#[must_use]
pub fn day(s: u64) -> String {
    date(s).split(' ').next().unwrap_or_default().to_owned()
}

/// A ratio between 0 and 1, such as `5%` or `0.05`.
///
/// # Errors
/// A message for the user.
pub fn ratio(s: &str) -> Result<f64, String> {
    let value = match s.strip_suffix('%') {
        Some(percent) => positive(s, percent.trim_end())? / 100.0,
        None => positive(s, s)?,
    };
    if value > 1.0 {
        return Err(format!("{s:?} is more than 100 %"));
    }
    Ok(value)
}

/// A rate in bits per second, such as `50mbit`, `10kbit` or `1gbit`, with an optional `/s`.
///
/// # Errors
/// A message for the user.
pub fn rate(s: &str) -> Result<u64, String> {
    let lower = s.to_ascii_lowercase();
    let (number, unit) = split(lower.strip_suffix("/s").unwrap_or(&lower));
    if unit.is_empty() {
        return Err(format!("{s:?} has no unit: write for example 500kbit or 10mbit"));
    }
    let Some((_, bits)) = RATE.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{s:?}: {unit:?} is no unit of a rate (bit, kbit, mbit, gbit, tbit)"));
    };
    let rate = positive(s, number)? * bits;
    if rate >= u64::MAX as f64 {
        return Err(format!("{s:?} is too much"));
    }
    Ok(rate.round() as u64)
}

/// Formats a number of bytes, such as `812 B`, `55.9 kB` or `2.05 MB`. A kilobyte is 1000 bytes.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut units = ["kB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    // A value that rounds to 1000 takes the next unit.
    while let Some(next) = units.next().filter(|_| value >= 999.5) {
        (value, unit) = (value / 1e3, next);
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Splits a number from its trailing letters.
fn split(s: &str) -> (&str, &str) {
    let number = s.trim_end_matches(char::is_alphabetic);
    (number.trim_end(), &s[number.len()..])
}

fn positive(whole: &str, number: &str) -> Result<f64, String> {
    let first = number.chars().next();
    match number.parse::<f64>() {
        Ok(_) if first == Some('-') => Err(format!("{whole:?} is negative")),
        // `parse` also accepts "inf" and "nan".
        Ok(value) if value.is_finite() && first.is_some_and(|c| !c.is_alphabetic()) => Ok(value),
        _ => Err(format!("{whole:?} is not a number with a unit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, ns) in [
            ("100ms", 100_000_000),
            ("1.5s", 1_500_000_000),
            ("1e5s", 100_000_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1d", 86_400_000_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("7 ns", 7),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Span(ns)), "{text}");
        }
    }

    #[test]
    fn durations_without_a_unit_or_a_sense_are_refused() {
        for (text, why) in [
            ("100", "no unit"),
            ("1e5", "no unit"),
            ("", "no unit"),
            ("s", "not a number"),
            ("-1s", "negative"),
            ("-0s", "negative"),
            ("nan s", "not a number"),
            ("infs", "no unit of time"),
            ("1e400s", "not a number"),
            ("1e15d", "too long"),
            ("1 fortnight", "no unit of time"),
            ("1..2s", "not a number"),
            ("0x10s", "not a number"),
        ] {
            let error = duration(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn ratios_are_percentages_or_fractions() {
        assert_eq!(ratio("5%"), Ok(0.05));
        assert_eq!(ratio("0.05"), Ok(0.05));
        assert_eq!(ratio("0.5 %"), Ok(0.005));
        assert_eq!(ratio("100%"), Ok(1.0));
        for text in ["5", "101%", "-1%", "nan", "inf", "", "%", "five"] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_bits_per_second() {
        assert_eq!(rate("50mbit"), Ok(50_000_000));
        assert_eq!(rate("10kbit"), Ok(10_000));
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(rate("1.5Mbit/s"), Ok(1_500_000));
        for text in ["50", "50mb", "-1mbit", "mbit", "1e30tbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_has_the_unit_in_which_it_is_short() {
        for (ms, text) in [
            (0, "0 ms"),
            (45, "45 ms"),
            (3_200, "3.2 s"),
            (600_000, "10 min"),
            (3_600_000, "60 min"),
            (9_000_000, "2.5 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(span(Span::from_millis(ms)), text);
        }
    }

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (55_892, "55.9 kB"),
            (99_960, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (2_047_561, "2.05 MB"),
            (9_996_000, "10.0 MB"),
            (3_000_000_000_000, "3.00 TB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(s in any::<String>()) {
            let _ = (duration(&s), ratio(&s), rate(&s));
        }

        #[test]
        fn whole_milliseconds_are_exact(ms in 0u64..1_000_000_000) {
            prop_assert_eq!(duration(&format!("{ms}ms")), Ok(Span::from_millis(ms)));
        }
    }
}
