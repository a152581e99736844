//! Results of a run: named values in a defined order.

use alloc::string::String;
use alloc::vec::Vec;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count, or a whole number in the unit that the name ends in.
    Int(u64),
    /// A measured number in the unit that the name ends in; never NaN or infinite.
    Float(f64),
    /// A word.
    Text(String),
    /// A list of any length, for example of handovers; every entry has the same names. Only JSON output includes
    /// it.
    Rows(Vec<Results>),
}

/// Values by name, in insertion order. Names are dotted (`ftp1.goodput_bps`), end in their unit, and are the same
/// for every run of a scenario, so that the runs of a sweep form the rows of one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results(Vec<(String, Value)>);

impl Results {
    /// No values.
    #[must_use]
    pub fn new() -> Results {
        Results::default()
    }

    /// Adds a whole number.
    pub fn int(&mut self, name: impl Into<String>, value: u64) {
        self.0.push((name.into(), Value::Int(value)));
    }

    /// Adds a number. Omits it if it is not finite, since output formats disagree on NaN and infinity.
    pub fn float(&mut self, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.0.push((name.into(), Value::Float(value)));
        }
    }

    /// Adds a word.
    pub fn text(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), Value::Text(value.into())));
    }

    /// Adds a list.
    pub fn rows(&mut self, name: impl Into<String>, rows: impl IntoIterator<Item = Results>) {
        self.0.push((name.into(), Value::Rows(rows.into_iter().collect())));
    }

    /// Names and values in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
