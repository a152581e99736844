//! Probability distributions, drawn from a seeded generator.

use segue_clock::Rng;

/// A distribution of non-negative numbers, in the unit of the parameter that uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dist {
    /// Always this value.
    Constant(f64),
    /// Exponential with this mean.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// exp(N(mu, sigma²)); values outside `min` to `max` are drawn again.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
    },
    /// Pareto from `scale` upwards; values above `max` become `max`, and `less` is subtracted from the result.
    /// This is 3GPP2's truncated Pareto (C.R1002), whose minimum can be 0.
    Pareto {
        /// Shape: the exponent of the tail.
        shape: f64,
        /// Minimum before `less` is subtracted.
        scale: f64,
        /// Maximum before `less` is subtracted.
        max: f64,
        /// Subtracted from the result.
        less: f64,
    },
    /// Pareto of the second kind (Lomax), from 0, like ns-2's `RandomVariable/ParetoII`.
    ParetoII {
        /// Mean.
        mean: f64,
        /// Shape: the exponent of the tail; above 1.
        shape: f64,
    },
}

/// Number of draws of a lognormal before the value is clamped to its bounds: bounds that contain almost none of
/// the distribution must not stop a run.
const DRAWS: u32 = 64;

impl Dist {
    /// Draws a value.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        match *self {
            Dist::Constant(value) => value,
            Dist::Exponential { mean } => exponential(rng, mean),
            Dist::Lognormal { mu, sigma, min, max } => {
                for _ in 0..DRAWS {
                    let drawn = libm::exp(mu + sigma * normal(rng));
                    if (min..=max).contains(&drawn) {
                        return drawn;
                    }
                }
                libm::exp(mu).clamp(min, max)
            }
            Dist::Pareto { shape, scale, max, less } => {
                let drawn = scale * libm::pow(1.0 - rng.unit(), -1.0 / shape);
                drawn.min(max) - less
            }
            Dist::ParetoII { mean, shape } => {
                let scale = mean * (shape - 1.0);
                scale * (libm::pow(1.0 - rng.unit(), -1.0 / shape) - 1.0)
            }
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Why the distribution is invalid.
    pub fn check(&self) -> Result<(), &'static str> {
        let known = |x: f64| x.is_finite() && x >= 0.0;
        let (fine, problem) = match *self {
            Dist::Constant(value) => (known(value), "a constant must be 0 or more"),
            Dist::Exponential { mean } => (known(mean), "a mean must be 0 or more"),
            Dist::Lognormal { mu, sigma, min, max } => (
                mu.is_finite() && known(sigma) && known(min) && max.is_finite() && min <= max,
                "a lognormal needs a finite mu, sigma from 0 and 0 ≤ min ≤ max",
            ),
            Dist::Pareto { shape, scale, max, less } => (
                known(shape) && shape > 0.0 && known(less) && less <= scale && scale <= max,
                "a Pareto needs a shape above 0 and 0 ≤ less ≤ scale ≤ max",
            ),
            Dist::ParetoII { mean, shape } => (
                known(mean) && shape.is_finite() && shape > 1.0,
                "a Pareto II needs a shape above 1",
            ),
        };
        if fine { Ok(()) } else { Err(problem) }
    }
}

/// An exponentially distributed value with this mean.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    // 1 - unit lies in (0, 1].
    -mean * libm::log(1.0 - rng.unit())
}

/// A standard normal value (Box and Muller 1958; the second of the pair is discarded, so that the sequence
/// depends only on the number of draws).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit()));
    radius * libm::cos(core::f64::consts::TAU * rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_deviation(dist: Dist, draws: u32) -> (f64, f64) {
        let mut rng = Rng::new(1);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..draws {
            let x = dist.draw(&mut rng);
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(draws);
        (mean, libm::sqrt(squares / f64::from(draws) - mean * mean))
    }

    #[test]
    fn an_exponential_has_its_mean_and_the_same_deviation() {
        let (mean, deviation) = mean_and_deviation(Dist::Exponential { mean: 3.0 }, 100_000);
        assert!((mean - 3.0).abs() < 0.05 && (deviation - 3.0).abs() < 0.1, "{mean} {deviation}");
    }

    #[test]
    fn a_lognormal_has_the_mean_of_its_logarithm_and_keeps_its_bounds() {
        // exp(mu + sigma²/2) = exp(1 + 0.125) = 3.08.
        let wide = Dist::Lognormal { mu: 1.0, sigma: 0.5, min: 0.0, max: 1e9 };
        let (mean, _) = mean_and_deviation(wide, 100_000);
        assert!((mean - 3.0802).abs() < 0.03, "{mean}");
        let narrow = Dist::Lognormal { mu: 1.0, sigma: 2.0, min: 2.0, max: 3.0 };
        let mut rng = Rng::new(5);
        assert!((0..1_000).all(|_| (2.0..=3.0).contains(&narrow.draw(&mut rng))));
        let nowhere = Dist::Lognormal { mu: 1.0, sigma: 0.0, min: 100.0, max: 200.0 };
        assert_eq!(nowhere.draw(&mut rng), 100.0);
    }

    #[test]
    fn the_truncated_pareto_of_3gpp2_has_its_published_mean_and_bounds() {
        let objects = Dist::Pareto { shape: 1.1, scale: 2.0, max: 55.0, less: 2.0 };
        let (mean, _) = mean_and_deviation(objects, 200_000);
        assert!((mean - 5.64).abs() < 0.1, "{mean}");
        let mut rng = Rng::new(2);
        assert!((0..10_000).all(|_| (0.0..=53.0).contains(&objects.draw(&mut rng))));
    }

    #[test]
    fn pareto_ii_has_its_mean_and_median() {
        // Shape 3 has a finite variance, so that the sample mean is meaningful.
        let (mean, _) = mean_and_deviation(Dist::ParetoII { mean: 10.0, shape: 3.0 }, 200_000);
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        let heavy = Dist::ParetoII { mean: 10.0, shape: 1.2 };
        let mut rng = Rng::new(3);
        // Median: scale·(2^(1/shape) - 1) = 2·0.7818.
        let below = (0..100_000).filter(|_| heavy.draw(&mut rng) < 1.5636).count();
        assert!((49_300..50_700).contains(&below), "{below}");
    }

    #[test]
    fn what_cannot_be_drawn_from_is_refused() {
        assert!(Dist::Exponential { mean: -1.0 }.check().is_err());
        assert!(Dist::ParetoII { mean: 1.0, shape: 1.0 }.check().is_err());
        assert!(Dist::Lognormal { mu: 0.0, sigma: 1.0, min: 2.0, max: 1.0 }.check().is_err());
        assert!(Dist::Constant(f64::NAN).check().is_err());
        assert_eq!(Dist::Constant(0.0).check(), Ok(()));
    }
}
