//! The generalized average of appendix I of paper 1, applied to the imposed values: the result of a perfect
//! measurement. Also T_tml of section 6.

/// Eq. 13 over samples (time in s, value), with one time constant in s for rising values and another for falling ones
/// (section 6.2; equal for the plain average).
pub(crate) fn eq13(samples: &[(f64, f64)], rise: f64, fall: f64) -> Vec<(f64, f64)> {
    let mut averages: Vec<(f64, f64)> = Vec::with_capacity(samples.len());
    for (at, x) in samples {
        let s = averages.last().map_or(*x, |(before, s)| {
            let tau = if x > s { rise } else { fall };
            let keep = (-(at - before) / tau).exp();
            (1.0 - keep) * x + keep * s
        });
        averages.push((*at, s));
    }
    averages
}

/// The value of a series that keeps each value until the next point.
pub(crate) fn value_at(series: &[(f64, f64)], at: f64) -> Option<f64> {
    series[..series.partition_point(|(t, _)| *t <= at)].last().map(|(_, value)| *value)
}

/// T_tml: the time after a step at `step` until the average is within a tenth of the step of the new value, in the
/// series' unit of time. `None` if it gets there only after `end`.
pub(crate) fn t_tml(series: &[(f64, f64)], step: f64, end: f64, old: f64, new: f64) -> Option<f64> {
    let within = |s: f64| (s - new).abs() <= 0.1 * (new - old).abs();
    let mut after = series.iter().filter(|(at, _)| *at > step && *at < end);
    after.find(|(_, s)| within(*s)).map(|(at, _)| at - step)
}

/// The time constant in s for a smoothing factor and a reference interval in s (eq. 14).
pub(crate) fn tau(t_s: f64, alpha: f64) -> f64 {
    -t_s / (1.0 - alpha).ln()
}

/// Minimum, median and maximum; `None` without values.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, values[values.len() / 2], *values.last()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_smoothing_factors_give_its_time_constants() {
        let ms = [0.8, 0.6, 0.4, 0.2].map(|alpha| (tau(0.2, alpha) * 1e3).round());
        assert_eq!(ms, [124.0, 218.0, 392.0, 896.0]);
    }

    #[test]
    fn an_average_of_many_samples_is_within_a_tenth_of_a_step_after_tau_log_10() {
        let samples: Vec<(f64, f64)> = (0..10_000)
            .map(|i| (f64::from(i) * 1e-3, if i < 5_000 { 100.0 } else { 200.0 }))
            .collect();
        let took = t_tml(&eq13(&samples, 0.5, 0.5), 5.0, 10.0, 100.0, 200.0).unwrap();
        assert!((took - 0.5 * 10f64.ln()).abs() < 5e-3, "{took}");
        assert_eq!(t_tml(&samples[..5_000], 5.0, 10.0, 100.0, 200.0), None);
    }

    #[test]
    fn a_rise_and_a_fall_use_their_own_time_constants() {
        let samples = [(0.0, 100.0), (1.0, 200.0), (2.0, 100.0)];
        let [_, (_, up), (_, down)] = eq13(&samples, 0.01, 1e9)[..] else { unreachable!() };
        assert!((up - 200.0).abs() < 1e-6 && (down - 200.0).abs() < 1e-3);
        assert_eq!(spread([3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(value_at(&samples, 1.5), Some(200.0));
    }
}
