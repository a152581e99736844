//! The generalized exponentially weighted moving average, at several time scales at once.

use alloc::vec::Vec;

use segue_clock::{Span, Time};

use crate::Tau;

/// Averages of one quantity, one for each time constant (appendix I, eq. 13 in its last form):
///
/// S ← (1 − e^(−Δ/τ))·x + e^(−Δ/τ)·S
///
/// Δ is the time since the previous sample. The first sample initialises the average. Samples may arrive at any
/// intervals; a missing sample only makes Δ longer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ewma {
    values: Vec<f64>,
    last: Option<Time>,
}

impl Ewma {
    /// An average without samples.
    #[must_use]
    pub fn new() -> Ewma {
        Ewma::default()
    }

    /// Adds the sample `x` taken at `at`. If the list of time constants has grown, the new averages start at the value
    /// of the main one. A sample out of order has Δ = 0 and therefore no weight. Ignores values that are not finite.
    pub fn push(&mut self, taus: &[Tau], at: Time, x: f64) {
        push(&mut self.values, &mut self.last, taus, at, x);
    }

    /// The averages in the order of the time constants; empty before the first sample.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// Like [`Ewma::push`], for averages stored elsewhere.
pub(crate) fn push(values: &mut Vec<f64>, last: &mut Option<Time>, taus: &[Tau], at: Time, x: f64) {
    if !x.is_finite() {
        return;
    }
    push_over(values, taus, last.map_or(Span::ZERO, |last| at.since(last)), x);
    *last = Some(last.map_or(at, |last| last.max(at)));
}

/// Adds the sample `x` with Δ = `elapsed`. The first sample initialises the average.
pub(crate) fn push_over(values: &mut Vec<f64>, taus: &[Tau], elapsed: Span, x: f64) {
    if values.len() != taus.len() {
        let start = values.first().copied().unwrap_or(x);
        values.reserve_exact(taus.len().saturating_sub(values.len()));
        values.resize(taus.len(), start);
    }
    for (value, tau) in values.iter_mut().zip(taus) {
        *value = step(*value, x, elapsed, *tau);
    }
}

/// The time constant τ = T_tml/ln 10 with which an average covers 90 % of a step within `timeliness`, T_tml (appendix
/// IV).
#[must_use]
pub fn time_constant(timeliness: Span) -> Span {
    Span::from_secs_f64(timeliness.as_secs_f64() / core::f64::consts::LN_10)
}

/// One step of eq. 13: the average `s` after the sample `x`, `elapsed` after the previous sample.
#[must_use]
pub fn step(s: f64, x: f64, elapsed: Span, tau: Tau) -> f64 {
    let tau = if x > s { tau.rise } else { tau.fall };
    if tau == Span::ZERO {
        return x;
    }
    let keep = libm::exp(-(elapsed.as_secs_f64() / tau.as_secs_f64()));
    // A step towards the sample reproduces a constant input exactly.
    s + (1.0 - keep) * (x - s)
}
