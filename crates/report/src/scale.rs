//! Axis ranges and ticks.

/// A linear map from data to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Pixel of `low` and of `high`.
    pub(crate) pixels: (f64, f64),
    /// The data are decimal logarithms: ticks are at powers of ten, and labels show these powers.
    pub(crate) log: bool,
}

/// Values of larger magnitude are omitted, so that no difference overflows.
const LARGEST: f64 = 1e300;

/// True if a value can be drawn.
pub(crate) fn is_drawable(x: f64) -> bool {
    x.abs() <= LARGEST
}

/// Minimum and maximum of the drawable values.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|x| is_drawable(*x)).fold(None, |range, x| {
        let (low, high) = range.unwrap_or((x, x));
        Some((low.min(x), high.max(x)))
    })
}

/// A non-empty range for any input.
pub(crate) fn widened(range: Option<(f64, f64)>) -> (f64, f64) {
    let Some((low, high)) = range else { return (0.0, 1.0) };
    let least = (low.abs().max(high.abs()) * 1e-9).max(1e-12);
    if high - low > least {
        (low, high)
    } else {
        (low - 0.5 * least.max(1.0), low + 0.5 * least.max(1.0))
    }
}

impl Scale {
    /// The pixel of a value; values outside the range are drawn at the border.
    pub(crate) fn pixel(&self, value: f64) -> i32 {
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        (self.pixels.0 + share * (self.pixels.1 - self.pixels.0)).round() as i32
    }

    /// Round values, about `count` of them, with their labels.
    pub(crate) fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        if self.log {
            return self.decades(count);
        }
        let raw = (self.high - self.low) / count;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= raw)
            .unwrap_or(raw);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (self.low / step - 1e-6).ceil();
        (0..40)
            .map(|i| (first + f64::from(i)) * step)
            .take_while(|x| *x <= self.high + 1e-6 * step)
            .map(|x| (x, label(x, decimals)))
            .collect()
    }

    /// Powers of ten, about `count` of them. A range with fewer than two also gets 2 and 5 times each power.
    fn decades(&self, count: f64) -> Vec<(f64, String)> {
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        let every = (f64::from(last - first) / (2.0 * count)).ceil().max(1.0) as i32;
        let factors: &[f64] = if self.high - self.low < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last)
            .filter(|power| power.rem_euclid(every) == 0)
            .flat_map(|power| factors.iter().map(move |factor| (power, *factor)))
            .map(|(power, factor)| (f64::from(power) + factor.log10(), power_label(power, factor)))
            .filter(|(x, _)| *x >= self.low - 1e-9 && *x <= self.high + 1e-9)
            .take(40)
            .collect()
    }
}

/// A power of ten as text.
fn power_label(power: i32, factor: f64) -> String {
    if (0..4).contains(&power) {
        return format!("{:.0}", factor * 10f64.powi(power));
    }
    if (-3..0).contains(&power) {
        return format!("{:.*}", power.unsigned_abs() as usize, factor * 10f64.powi(power));
    }
    let digit = |c: char| match c.to_digit(10) {
        Some(1) => '¹',
        Some(2) => '²',
        Some(3) => '³',
        Some(n) => char::from_u32(0x2070 + n).unwrap_or(c),
        None => '⁻',
    };
    let exponent: String = power.to_string().chars().map(digit).collect();
    if factor > 1.0 { format!("{factor:.0}·10{exponent}") } else { format!("10{exponent}") }
}

/// A value with three significant digits.
pub(crate) fn short(x: f64) -> String {
    let magnitude = if x == 0.0 { 0.0 } else { x.abs().log10().floor() };
    let text = label(x, (2.0 - magnitude).clamp(0.0, 9.0) as usize);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn label(x: f64, decimals: usize) -> String {
    if x.abs() >= 1e6 {
        return format!("{x:.2e}");
    }
    let text = format!("{x:.decimals$}");
    // Negative zero.
    if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') {
        return text.trim_start_matches('-').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        let scale = Scale { low, high, pixels: (0.0, 100.0), log: false };
        scale.ticks(5.0).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(labels(0.0, 30.0), ["0", "10", "20", "30"]);
        assert_eq!(labels(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-0.013, 0.029), ["-0.01", "0.00", "0.01", "0.02"]);
    }

    #[test]
    fn any_range_has_a_width_and_few_ticks() {
        for range in [None, Some((5.0, 5.0)), Some((1e18, 1e18)), Some((-1e300, 1e300))] {
            let (low, high) = widened(range);
            assert!(low < high, "{range:?}");
            assert!(labels(low, high).len() <= 40, "{range:?}");
        }
        assert_eq!(extent([f64::NAN, f64::INFINITY].into_iter()), None);
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten() {
        let labels = |low: f64, high: f64| -> Vec<String> {
            let scale = Scale { low, high, pixels: (0.0, 100.0), log: true };
            scale.ticks(5.0).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(2.0, 6.0), ["100", "1000", "10⁴", "10⁵", "10⁶"]);
        assert_eq!(labels(-0.1, 1.0), ["1", "2", "5", "10"]);
        assert_eq!(labels(-4.0, -2.0), ["10⁻⁴", "0.001", "0.01"]);
        assert!(labels(-300.0, 300.0).len() <= 12);
    }

    #[test]
    fn a_value_in_words_has_three_digits_that_count() {
        let values = [0.0, 5.0, 34.16, 0.012_34, -2.5, 1_234.5, 2e7, -1e-12];
        let said = ["0", "5", "34.2", "0.0123", "-2.5", "1234", "2.00e7", "0"];
        assert_eq!(values.map(short), said);
    }

    #[test]
    fn values_outside_are_drawn_at_the_border() {
        let scale = Scale { low: 0.0, high: 10.0, pixels: (100.0, 0.0), log: false };
        assert_eq!([-5.0, 0.0, 5.0, 20.0].map(|x| scale.pixel(x)), [100, 100, 50, 0]);
    }
}
