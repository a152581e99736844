//! What can be set on either end.

use alloc::vec;
use alloc::vec::Vec;

use segue_clock::Span;

use crate::planner::Plan;

/// Settings of a [`crate::Client`] or a [`crate::Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// K: probes lost in a row that declare the path down; at least 1.
    pub k: u8,
    /// T_KA: time between requests.
    pub t_ka: Span,
    /// N: probes per loss interval, T_L = N·T_KA (section 4.2); at least 1.
    pub n: u32,
    /// Time constants of the averages, at least one; the first is the main one.
    pub taus: Vec<Tau>,
    /// Answers to consecutive requests that bring a path back up from [`crate::State::Down`], so
    /// that a flapping path does not drag flows back and forth. From `Starting` one suffices.
    pub up_after: u8,
}

/// Time constant of an average.
///
/// Equal members give the generalized EWMA of eq. 13. Different ones give the asymmetric average of
/// section 6: `rise` is used when the sample is worse (larger) than the average, `fall` when it is
/// better. Zero means that the average follows the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tau {
    /// Used when the sample is larger than the average.
    pub rise: Span,
    /// Used when it is not.
    pub fall: Span,
}

impl Tau {
    /// The same time constant in both directions.
    #[must_use]
    pub const fn symmetric(tau: Span) -> Tau {
        Tau { rise: tau, fall: tau }
    }
}

impl Default for Config {
    /// K = 3, T_KA = 200 ms, N = 10, τ = 1 s and 30 s, three answers to come back.
    fn default() -> Config {
        Config {
            k: 3,
            t_ka: Span::from_millis(200),
            n: 10,
            taus: vec![Tau::symmetric(Span::from_secs(1)), Tau::symmetric(Span::from_secs(30))],
            up_after: 3,
        }
    }
}

impl Config {
    /// The plan's K and T_KA, the rest as in [`Config::default`]. T_KA is rounded down to whole
    /// milliseconds, the unit in which a probe states it, and kept between 1 ms and 65.535 s: a
    /// shorter period only makes detection faster.
    #[must_use]
    pub fn from_plan(plan: &Plan) -> Config {
        // A period of 60 ms computed as 59.999 999 999 8 must not become 59.
        let ms = libm::floor(plan.t_ka * 1e3 + 1e-6).clamp(1.0, f64::from(u16::MAX));
        Config { k: plan.k.max(1), t_ka: Span::from_millis(ms as u64), ..Config::default() }
    }

    /// T_L = N·T_KA, the loss interval.
    #[must_use]
    pub fn t_l(&self) -> Span {
        self.t_ka * u64::from(self.n)
    }

    /// T_Rmax = (K + 1)·T_KA + RTT_max (eq. 1): the longest that detection of a fault can take.
    #[must_use]
    pub fn t_r_max(&self, rtt_max: Span) -> Span {
        self.t_ka * (u64::from(self.k) + 1) + rtt_max
    }

    /// Replaces values that make no sense by the smallest that do.
    pub(crate) fn sane(mut self) -> Config {
        self.k = self.k.max(1);
        self.n = self.n.max(1);
        self.up_after = self.up_after.max(1);
        self.t_ka = self.t_ka.max(Span::from_millis(1));
        if self.taus.is_empty() {
            self.taus = Config::default().taus;
        }
        self
    }
}

impl From<&Plan> for Config {
    fn from(plan: &Plan) -> Config {
        Config::from_plan(plan)
    }
}

/// A period as a probe states it: whole milliseconds, rounded up so that the server is never the more
/// impatient end, and 0 (not stated) if it does not fit.
pub(crate) fn stated_ms(t_ka: Span) -> u16 {
    u16::try_from(t_ka.0.div_ceil(1_000_000)).unwrap_or(0)
}
