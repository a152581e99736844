//! The generalized exponentially weighted moving average, at several time scales at once.

use alloc::vec::Vec;

use segue_clock::{Span, Time};

use crate::Tau;

/// Averages of one quantity, one for each time constant (appendix I, eq. 13 in its last form):
///
/// S ← (1 − e^(−Δ/τ))·x + e^(−Δ/τ)·S, where Δ is the time since the previous sample and the first
/// sample is taken as it is. Samples may come at any intervals; a missing one only makes Δ longer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ewma {
    values: Vec<f64>,
    last: Option<Time>,
}

impl Ewma {
    /// No samples yet.
    #[must_use]
    pub fn new() -> Ewma {
        Ewma::default()
    }

    /// Takes the sample `x` of the instant `at`. An average whose time constant is new (the list
    /// grew) begins at the main one. A sample out of order has Δ = 0 and therefore no weight; one
    /// that is not a number is ignored.
    pub fn push(&mut self, taus: &[Tau], at: Time, x: f64) {
        push(&mut self.values, &mut self.last, taus, at, x);
    }

    /// The averages in the order of the time constants; empty before the first sample.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// As [`Ewma::push`] for averages that are kept elsewhere.
pub(crate) fn push(values: &mut Vec<f64>, last: &mut Option<Time>, taus: &[Tau], at: Time, x: f64) {
    if !x.is_finite() {
        return;
    }
    push_over(values, taus, last.map_or(Span::ZERO, |last| at.since(last)), x);
    *last = Some(last.map_or(at, |last| last.max(at)));
}

/// Takes the sample `x` of a time of the length `elapsed`, as [`push`] does `elapsed` after the previous
/// one. The first is taken as it is.
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

/// The time constant with which an average has covered 90 % of a step after `timeliness` (T_tml):
/// τ = T_tml/ln 10 (appendix IV).
#[must_use]
pub fn time_constant(timeliness: Span) -> Span {
    Span::from_secs_f64(timeliness.as_secs_f64() / core::f64::consts::LN_10)
}

/// One step of eq. 13 from the average `s` with the sample `x`, `elapsed` after the previous one.
#[must_use]
pub fn step(s: f64, x: f64, elapsed: Span, tau: Tau) -> f64 {
    let tau = if x > s { tau.rise } else { tau.fall };
    if tau == Span::ZERO {
        return x;
    }
    let keep = libm::exp(-(elapsed.as_secs_f64() / tau.as_secs_f64()));
    // Written as a move towards the sample, so that a constant input is reproduced exactly.
    s + (1.0 - keep) * (x - s)
}
