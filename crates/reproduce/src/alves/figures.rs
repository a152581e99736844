//! Samples, and their representation as text and curves.

use crate::experiment::{digits, role};
use segue_report::{Series, Style};

/// Number of points in a distribution curve.
const POINTS: usize = 200;

/// Sorted samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(mut values: Vec<f64>) -> Samples {
        values.sort_by(f64::total_cmp);
        Samples(values)
    }

    pub(crate) fn values(self) -> Vec<f64> {
        self.0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The value that this share of the samples does not exceed; NaN without samples.
    pub(crate) fn share(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.share(0.5)
    }

    /// Median and 90 %, as text.
    pub(crate) fn told(&self, unit: &str) -> String {
        format!(
            "median {} {unit}, 90 % within {} {unit}",
            digits(self.median()),
            digits(self.share(0.9))
        )
    }

    /// The distribution: the share of samples up to each value, in percent.
    pub(crate) fn curve(&self, name: impl Into<String>, place: usize, style: Style) -> Series {
        let at = |i| i as f64 / POINTS as f64;
        let points = (0..=POINTS).map(|i| (self.share(at(i)), 100.0 * at(i))).collect();
        Series::new(name, style, points).role(role::MEASURED[place % role::MEASURED.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_samples_are_values_that_were_measured() {
        let samples = Samples::new((0..=100).rev().map(f64::from).collect());
        assert_eq!(
            [0.0, 0.5, 0.9, 1.0].map(|share| samples.share(share)),
            [0.0, 50.0, 90.0, 100.0]
        );
        assert_eq!(samples.told("ms"), "median 50.00 ms, 90 % within 90.00 ms");
        assert!(Samples::default().median().is_nan());
    }
}
