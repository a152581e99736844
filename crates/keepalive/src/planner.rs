//! K and T_KA from detection targets (section 4.3, eq. 1–8).
//!
//! A probe is lost with probability q: its request or its response. If the directions lose independently,
//! q = 1 − (1 − p_up)(1 − p_down). The path is wrongly declared down when K consecutive probes are lost.
//!
//! * Independent losses: p_fp = q^K (eq. 3, with a separate loss for each direction).
//! * Bursts: probes see a two-state Markov chain (simple Gilbert: everything is lost in the bad state, nothing in the
//!   good one) that takes one step per probe, which is one per T_KA. The stationary probability of the bad state is q,
//!   and the mean length of a burst is b *probes*, so a loss follows a loss with probability 1 − 1/b. Then
//!   p_fp = q·(1 − 1/b)^(K−1). With b = 1/(1 − q) this is eq. 3. The length is in probes of the resulting period: a
//!   burst known in seconds has b = seconds/T_KA.
//!
//! Both assume RTT_max < T_KA, like eq. 3; a plan warns if this does not hold.
//!
//! **Rides** (section 5.3): requests are up to 2·T_KA apart and responses wait up to T_KA, so the time-out is 2·T_KA
//! longer. Then T_Rmax = (K + 3½)·T_KA + RTT_max, and T_Ravg ≤ (K + 3)·T_KA + RTT_avg/2: the bounds of
//! [`Config::t_r_max`](crate::Config::t_r_max) and [`t_r_avg`](crate::Config::t_r_avg). At least K losses are still
//! necessary, and up to K + 3 unless traffic changes at an unfavourable moment, so T_fp is a lower bound.

use alloc::vec::Vec;
use core::fmt;

use segue_wire::Probe;

/// Usual minimum period in [`Targets`], in seconds.
pub const T_KA_MIN: f64 = 0.010;
/// Usual maximum K in [`Targets`]: the largest that a probe header can state.
pub const K_MAX: u8 = u8::MAX;
/// Bits on the wire for one request and its response over IPv4: twice IP (20 bytes), UDP (8) and the probe packet. Over
/// IPv6 it is 320 bits more.
pub const BITS_PER_EXCHANGE: f64 = (2 * 8 * (20 + 8 + Probe::PACKET_LEN)) as f64;

/// Relative difference below which both sides of an inequality count as equal.
const TOLERANCE: f64 = 1e-9;

/// Targets and path properties. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// RTT_avg.
    pub rtt_avg: f64,
    /// RTT_max; `None` means RTT_avg.
    pub rtt_max: Option<f64>,
    /// Probability that a packet from client to server is lost.
    pub loss_up: f64,
    /// Probability that a packet from server to client is lost.
    pub loss_down: f64,
    /// q; `None` computes it from independent losses of the directions.
    pub loss: Option<f64>,
    /// Mean length of a loss burst in probes, at least 1; `None` for independent losses.
    pub burst: Option<f64>,
    /// Probes may ride on data.
    pub rides: bool,
    /// Required detection time.
    pub responsiveness: Responsiveness,
    /// T_fp^min: lower bound of the mean time between two false positives.
    pub fp_interval: f64,
    /// Minimum period.
    pub t_ka_min: f64,
    /// Maximum K.
    pub k_max: u8,
}

/// Required detection time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Responsiveness {
    /// Average: T_Ravg, eq. 2.
    Avg(f64),
    /// Worst case: T_Rmax, eq. 1.
    Max(f64),
}

impl Targets {
    /// RTT_max, which is RTT_avg if it is not known.
    #[must_use]
    pub fn rtt_max(&self) -> f64 {
        rtt_max(self)
    }

    /// q: the probability that a probe gets no answer because the probe or its response is lost.
    #[must_use]
    pub fn probe_loss(&self) -> f64 {
        probe_loss(self)
    }

    /// Checks that every value is meaningful; [`plan`] does this first.
    ///
    /// # Errors
    /// [`Infeasible::BadValue`] names the first value that is not.
    pub fn check(&self) -> Result<(), Infeasible> {
        let bad = |what, value| Err(Infeasible::BadValue { what, value });
        let (Responsiveness::Avg(responsiveness) | Responsiveness::Max(responsiveness)) =
            self.responsiveness;
        for (what, value) in [
            ("responsiveness", responsiveness),
            ("false positive interval", self.fp_interval),
            ("minimum period", self.t_ka_min),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return bad(what, value);
            }
        }
        if !(self.rtt_avg.is_finite() && self.rtt_avg >= 0.0) {
            return bad("RTT", self.rtt_avg);
        }
        if !(rtt_max(self).is_finite() && rtt_max(self) >= self.rtt_avg) {
            return bad("largest RTT", rtt_max(self));
        }
        let loss = self.loss.unwrap_or(0.0);
        for (what, value) in
            [("loss up", self.loss_up), ("loss down", self.loss_down), ("round-trip loss", loss)]
        {
            if !(0.0..1.0).contains(&value) {
                return bad(what, value);
            }
        }
        if self.k_max == 0 {
            return bad("largest K", 0.0);
        }
        let q = probe_loss(self);
        match self.burst {
            // A chain that leaves its bad state after `burst` probes on average is in it with probability q only if it
            // can enter it often enough.
            Some(b) if !(b.is_finite() && b >= 1.0 && b >= q / (1.0 - q)) => bad("burst length", b),
            _ => Ok(()),
        }
    }
}

/// A choice of K and T_KA with its properties. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// K: consecutive losses after which the path is down.
    pub k: u8,
    /// T_KA: period of probes.
    pub t_ka: f64,
    /// T_TO = K·T_KA, with rides (K + 2)·T_KA.
    pub t_to: f64,
    /// T_Rmax, eq. 1, or its form for rides.
    pub t_r_max: f64,
    /// T_Ravg, eq. 2, or its form for rides.
    pub t_r_avg: f64,
    /// T_fp, eq. 4: mean time between false positives; infinite without loss.
    pub t_fp: f64,
    /// Requests per second, including rides.
    pub probes_per_s: f64,
    /// Bits per second, requests and responses together ([`BITS_PER_EXCHANGE`]), if none ride.
    pub bits_per_s: f64,
    /// Violated assumptions.
    pub warnings: Vec<Warning>,
}

/// A violated assumption of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warning {
    /// RTT_max ≥ T_KA, in seconds: eq. 3 counts a probe as lost after T_KA, but the response may still be in flight.
    RttNotBelowPeriod {
        /// RTT_max.
        rtt_max: f64,
        /// T_KA.
        t_ka: f64,
    },
}

/// An unsatisfiable constraint. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Infeasible {
    /// A meaningless value.
    BadValue {
        /// The field of [`Targets`].
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// The RTT leaves no time for a period: T_Ravg ≤ RTT_avg/2 or T_Rmax ≤ RTT_max.
    ResponsivenessBelowRtt {
        /// The required detection time.
        responsiveness: f64,
        /// The share of the RTT.
        rtt_share: f64,
    },
    /// The smallest K with sufficiently rare false positives requires a period below the minimum.
    PeriodBelowMinimum {
        /// The smallest such K.
        k: u8,
        /// The required period.
        t_ka: f64,
        /// The minimum period.
        t_ka_min: f64,
    },
    /// No permitted K makes false positives rare enough.
    FalsePositives {
        /// The largest K tried.
        k_max: u8,
        /// The longest T_fp found.
        t_fp: f64,
        /// The required T_fp.
        fp_interval: f64,
    },
}

/// K*, the smallest K that satisfies eq. 8, and T_KA*, the longest period that eq. 6 permits for it.
///
/// # Errors
/// [`Infeasible`] names the constraint that cannot be satisfied.
pub fn plan(targets: &Targets) -> Result<Plan, Infeasible> {
    targets.check()?;
    let share = match targets.responsiveness {
        Responsiveness::Avg(_) => targets.rtt_avg / 2.0,
        Responsiveness::Max(_) => rtt_max(targets),
    };
    let (Responsiveness::Avg(responsiveness) | Responsiveness::Max(responsiveness)) =
        targets.responsiveness;
    if responsiveness <= share {
        return Err(Infeasible::ResponsivenessBelowRtt { responsiveness, rtt_share: share });
    }
    let mut longest_t_fp = 0.0_f64;
    for k in 1..=targets.k_max {
        let t_ka = longest_period(k, targets);
        if shortest_period(k, targets) < t_ka * (1.0 - TOLERANCE) {
            if t_ka < targets.t_ka_min * (1.0 - TOLERANCE) {
                let t_ka_min = targets.t_ka_min;
                return Err(Infeasible::PeriodBelowMinimum { k, t_ka, t_ka_min });
            }
            return Ok(evaluate(k, t_ka, targets));
        }
        longest_t_fp = longest_t_fp.max(evaluate(k, t_ka, targets).t_fp);
    }
    Err(Infeasible::FalsePositives {
        k_max: targets.k_max,
        t_fp: longest_t_fp,
        fp_interval: targets.fp_interval,
    })
}

/// The properties of `k` and the period `t_ka` (seconds), even if they miss the targets.
#[must_use]
pub fn evaluate(k: u8, t_ka: f64, targets: &Targets) -> Plan {
    let (periods, rtt_max) = (f64::from(k), rtt_max(targets));
    let beyond = Beyond::of(targets);
    let mut warnings = Vec::new();
    if rtt_max >= t_ka {
        warnings.push(Warning::RttNotBelowPeriod { rtt_max, t_ka });
    }
    Plan {
        k,
        t_ka,
        t_to: (periods + beyond.time_out) * t_ka,
        t_r_max: (periods + beyond.max) * t_ka + rtt_max,
        t_r_avg: (periods + beyond.avg) * t_ka + targets.rtt_avg / 2.0,
        t_fp: t_ka / false_positive(k, targets),
        probes_per_s: 1.0 / t_ka,
        bits_per_s: BITS_PER_EXCHANGE / t_ka,
        warnings,
    }
}

/// The longest T_KA in seconds at which `k` meets the required detection time: the curve "Resp." of Fig. 8, eq. 6. Not
/// positive if no period is short enough.
#[must_use]
pub fn longest_period(k: u8, targets: &Targets) -> f64 {
    let (periods, beyond) = (f64::from(k), Beyond::of(targets));
    match targets.responsiveness {
        Responsiveness::Avg(t) => (t - targets.rtt_avg / 2.0) / (periods + beyond.avg),
        Responsiveness::Max(t) => (t - rtt_max(targets)) / (periods + beyond.max),
    }
}

/// Periods in addition to K.
struct Beyond {
    /// For the time-out.
    time_out: f64,
    /// For detection in the worst case.
    max: f64,
    /// For detection on average.
    avg: f64,
}

impl Beyond {
    fn of(targets: &Targets) -> Beyond {
        if targets.rides {
            return Beyond { time_out: 2.0, max: 3.5, avg: 3.0 };
        }
        Beyond { time_out: 0.0, max: 1.0, avg: 0.5 }
    }
}

/// Lower bound of T_KA in seconds for sufficiently rare false positives: the curve "FPev." of Fig. 8, eq. 7.
#[must_use]
pub fn shortest_period(k: u8, targets: &Targets) -> f64 {
    targets.fp_interval * false_positive(k, targets)
}

/// p_fp, eq. 3 or its form for bursts (see the module's documentation).
#[must_use]
pub fn false_positive(k: u8, targets: &Targets) -> f64 {
    let q = probe_loss(targets);
    let again = targets.burst.map_or(q, |burst| 1.0 - 1.0 / burst);
    q * libm::pow(again, f64::from(k.max(1)) - 1.0)
}

/// q: the probability that a request or its response is lost.
fn probe_loss(targets: &Targets) -> f64 {
    targets.loss.unwrap_or(1.0 - (1.0 - targets.loss_up) * (1.0 - targets.loss_down))
}

fn rtt_max(targets: &Targets) -> f64 {
    targets.rtt_max.unwrap_or(targets.rtt_avg)
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Warning::RttNotBelowPeriod { rtt_max, t_ka } => write!(
                f,
                "the largest RTT ({}) is not below T_KA ({}): the false positive interval assumes \
                 that it is",
                Seconds(rtt_max),
                Seconds(t_ka)
            ),
        }
    }
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Infeasible::BadValue { what, value } => write!(f, "{what}: {value} is out of range"),
            Infeasible::ResponsivenessBelowRtt { responsiveness, rtt_share } => write!(
                f,
                "responsiveness: {} cannot be met, the round trip alone takes {}",
                Seconds(responsiveness),
                Seconds(rtt_share)
            ),
            Infeasible::PeriodBelowMinimum { k, t_ka, t_ka_min } => write!(
                f,
                "minimum period: responsiveness and false positive interval together need K = {k} \
                 with T_KA = {}, below the minimum of {}",
                Seconds(t_ka),
                Seconds(t_ka_min)
            ),
            Infeasible::FalsePositives { k_max, t_fp, fp_interval } => write!(
                f,
                "false positive interval: {} cannot be met, no K up to {k_max} gives more than {}",
                Seconds(fp_interval),
                Seconds(t_fp)
            ),
        }
    }
}

impl core::error::Error for Infeasible {}

/// Seconds in readable form: milliseconds below one second.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.abs() < 1.0 {
            write!(f, "{:.3} ms", self.0 * 1e3)
        } else {
            write!(f, "{:.3} s", self.0)
        }
    }
}
