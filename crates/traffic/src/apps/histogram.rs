//! Distributions of measured values in bounded memory.

use alloc::collections::BTreeMap;

use segue_clock::Span;

/// Maximum number of bins per histogram; a value that would need another bin is added to the nearest existing
/// one.
pub(crate) const MAX_BINS: usize = 1 << 18;

/// A histogram of signed nanoseconds with bins of equal width: bin k counts the values in ((k - 1)·width,
/// k·width], relative to an anchor. Count, sum, minimum and maximum are exact, and so is the share above any
/// whole number of bins from the anchor. A quantile is the upper edge of its bin, or the maximum if that is less.
/// Only bins in use take memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    width_ns: i64,
    /// Upper edge of bin 0: given, or the first value.
    anchor: Option<i64>,
    bins: BTreeMap<i64, u64>,
    count: u64,
    sum: i128,
    squares: f64,
    range: Option<(i64, i64)>,
}

impl Histogram {
    /// An empty histogram with bins counted from 0.
    #[must_use]
    pub fn new(width: Span) -> Histogram {
        Histogram { anchor: Some(0), ..Histogram::anchored_at_first(width) }
    }

    /// An empty histogram with bins counted from the first value added.
    #[must_use]
    pub(crate) fn anchored_at_first(width: Span) -> Histogram {
        let width_ns = i64::try_from(width.0).unwrap_or(i64::MAX).max(1);
        let (anchor, bins, range) = (None, BTreeMap::new(), None);
        Histogram { width_ns, anchor, bins, count: 0, sum: 0, squares: 0.0, range }
    }

    /// Adds a value.
    pub fn add(&mut self, ns: i64) {
        let bin = self.bin(ns);
        let bin = if self.bins.len() < MAX_BINS || self.bins.contains_key(&bin) {
            bin
        } else {
            self.nearest(bin)
        };
        *self.bins.entry(bin).or_insert(0) += 1;
        self.count += 1;
        self.sum += i128::from(ns);
        self.squares += ns as f64 * ns as f64;
        self.range = Some(self.range.map_or((ns, ns), |(low, high)| (low.min(ns), high.max(ns))));
    }

    fn bin(&mut self, ns: i64) -> i64 {
        let from = ns.saturating_sub(*self.anchor.get_or_insert(ns));
        // Rounds up, also for negative numbers.
        from.div_euclid(self.width_ns) + i64::from(from.rem_euclid(self.width_ns) != 0)
    }

    fn nearest(&self, bin: i64) -> i64 {
        let below = self.bins.range(..bin).next_back();
        let above = self.bins.range(bin..).next();
        match (below, above) {
            (Some((b, _)), Some((a, _))) if bin - b <= a - bin => *b,
            (_, Some((a, _))) => *a,
            (Some((b, _)), None) => *b,
            (None, None) => bin,
        }
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Minimum in nanoseconds.
    #[must_use]
    pub(crate) fn min_ns(&self) -> Option<i64> {
        self.range.map(|(low, _)| low)
    }

    /// Maximum in nanoseconds.
    #[must_use]
    pub(crate) fn max_ns(&self) -> Option<i64> {
        self.range.map(|(_, high)| high)
    }

    /// Mean in nanoseconds.
    #[must_use]
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Standard deviation in nanoseconds.
    #[must_use]
    pub(crate) fn deviation_ns(&self) -> Option<f64> {
        let mean = self.mean_ns()?;
        Some(libm::sqrt((self.squares / self.count as f64 - mean * mean).max(0.0)))
    }

    /// The smallest value that this share of all values does not exceed, to the width of a bin.
    #[must_use]
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<i64> {
        let (low, high) = self.range?;
        let wanted = libm::ceil(share.clamp(0.0, 1.0) * self.count as f64).max(1.0) as u64;
        let mut seen = 0;
        for (edge, count) in self.bins_ns() {
            seen += count;
            if seen >= wanted {
                return Some(edge.clamp(low, high));
            }
        }
        Some(high)
    }

    /// The share of values above `ns`: exact for whole numbers of bins from the anchor, otherwise that of the
    /// next whole number above.
    #[must_use]
    pub(crate) fn share_above_ns(&self, ns: i64) -> Option<f64> {
        // A bin counts if it lies entirely above.
        let whole = |edge: i64| edge.saturating_sub(self.width_ns) >= ns;
        let above: u64 = self.bins_ns().filter(|(edge, _)| whole(*edge)).map(|(_, n)| n).sum();
        (self.count > 0).then(|| above as f64 / self.count as f64)
    }

    /// Upper edges of the bins in use, in nanoseconds, with their number of values; ascending.
    pub(crate) fn bins_ns(&self) -> impl Iterator<Item = (i64, u64)> {
        let anchor = self.anchor.unwrap_or(0);
        self.bins.iter().map(move |(bin, count)| {
            (anchor.saturating_add(bin.saturating_mul(self.width_ns)), *count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_above_whole_bins_are_exact_on_both_sides_of_zero() {
        let mut histogram = Histogram::new(Span(10));
        for ns in [-25, -10, -1, 0, 1, 10, 11, 20] {
            histogram.add(ns);
        }
        for (x, above) in [(-30, 8), (-20, 7), (-10, 6), (0, 4), (10, 2), (20, 0)] {
            assert_eq!(histogram.share_above_ns(x), Some(f64::from(above) / 8.0), "{x}");
        }
        assert_eq!((histogram.min_ns(), histogram.max_ns()), (Some(-25), Some(20)));
        assert_eq!(histogram.mean_ns(), Some(0.75));
    }

    #[test]
    fn quantiles_are_upper_edges_within_the_range_of_the_values() {
        let mut histogram = Histogram::anchored_at_first(Span(10));
        (0..100).for_each(|i| histogram.add(7 + i));
        assert_eq!(histogram.quantile_ns(0.0), Some(7));
        assert_eq!(histogram.quantile_ns(0.5), Some(57));
        assert_eq!(histogram.quantile_ns(1.0), Some(106));
        let deviation = histogram.deviation_ns().unwrap();
        assert!((deviation - 28.866).abs() < 1e-3, "{deviation}");
    }

    #[test]
    fn an_empty_histogram_has_no_numbers() {
        let empty = Histogram::new(Span(1));
        assert_eq!(
            (empty.mean_ns(), empty.quantile_ns(0.5), empty.share_above_ns(0)),
            (None, None, None)
        );
    }

    #[test]
    fn a_histogram_never_keeps_more_than_its_bound() {
        let mut histogram = Histogram::new(Span(1));
        for ns in 0..MAX_BINS as i64 + 1_000 {
            histogram.add(2 * ns);
        }
        assert_eq!(histogram.bins_ns().count(), MAX_BINS);
        assert_eq!(histogram.count(), MAX_BINS as u64 + 1_000);
    }
}
