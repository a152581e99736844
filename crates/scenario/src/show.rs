//! Results as text and as JSON.

use std::fmt::Write;

use segue_sim::{Results, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Results as one JSON object, in their order.
pub(crate) struct Json<'a>(pub &'a Results);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            match value {
                Value::Int(n) => map.serialize_entry(name, n)?,
                Value::Float(x) => map.serialize_entry(name, x)?,
                Value::Text(text) => map.serialize_entry(name, text)?,
                Value::Rows(rows) => {
                    map.serialize_entry(name, &rows.iter().map(Json).collect::<Vec<_>>())?;
                }
            }
        }
        map.end()
    }
}

/// Results as a table: a heading for each part of the scenario, with its results below. Distributions (shares above a
/// bound, shares of handovers by lost packets) and lists appear only in JSON.
#[must_use]
pub(crate) fn table(results: &Results) -> String {
    let short = |name: &str| name.split_once('.').map_or(0, |(_, rest)| rest.chars().count());
    let shown = |(name, value): &(&str, &Value)| {
        let bound = name.contains("_above_") || name.contains("handover_lost_");
        !(bound && name.ends_with("_ratio") || matches!(value, Value::Rows(_)))
    };
    let width = results.iter().filter(shown).map(|(name, _)| short(name)).max().unwrap_or(0);
    let (mut text, mut above) = (String::new(), "");
    for (name, value) in results.iter().filter(shown) {
        let (part, rest) = name.split_once('.').unwrap_or(("", name));
        if part != above {
            let _ = writeln!(text, "{part}");
            above = part;
        }
        let value = match value {
            Value::Int(n) => n.to_string(),
            Value::Float(x) => number(*x),
            Value::Text(text) => text.clone(),
            Value::Rows(_) => continue,
        };
        let _ = writeln!(text, "  {rest:<width$}  {value:>14}");
    }
    text
}

/// Formats a number with six significant digits.
#[must_use]
pub(crate) fn number(x: f64) -> String {
    if x == 0.0 {
        return "0".into();
    }
    // Does not use log10, whose last bit depends on the machine.
    let scientific = format!("{x:.5e}");
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    let digits = 5 - exponent.unwrap_or(0_i32);
    match usize::try_from(digits) {
        Ok(digits) if digits <= 12 => {
            let text = format!("{x:.digits$}");
            let text = if text.contains('.') { text.trim_end_matches('0') } else { &text };
            text.trim_end_matches('.').to_owned()
        }
        Ok(_) => scientific,
        Err(_) => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_heading_for_each_part_and_json_keeps_the_order() {
        let mut results = Results::new();
        results.float("f1.goodput_bps", 8_912_345.6);
        results.int("f1.timeouts", 2);
        results.text("call.codec", "g711");
        results.float("call.loss", 0.001_234_567_8);
        results.float("call.jitter_above_500us_ratio", 0.0);
        let row = |n| {
            let mut row = Results::new();
            row.int("flows", n);
            row
        };
        results.rows("call.handovers", [1, 2].map(row));
        let lines = [
            "f1",
            "  goodput_bps         8912346",
            "  timeouts                  2",
            "call",
            "  codec                  g711",
            "  loss             0.00123457",
        ];
        assert_eq!(table(&results).lines().collect::<Vec<_>>(), lines);
        let json = serde_json::to_string(&Json(&results)).unwrap();
        let expected = r#"{"f1.goodput_bps":8912345.6,"f1.timeouts":2,"call.codec":"g711","call.loss":0.0012345678,"call.jitter_above_500us_ratio":0.0,"call.handovers":[{"flows":1},{"flows":2}]}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn numbers_show_six_digits_that_count() {
        for (x, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (100.0, "100"),
            (123_456_789.0, "123456789"),
            (0.1 + 0.2, "0.3"),
            (-2.5, "-2.5"),
            (1.5e-9, "1.50000e-9"),
        ] {
            assert_eq!(number(x), text);
        }
    }
}
