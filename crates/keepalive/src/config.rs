//! Settings of either end.

use alloc::vec;
use alloc::vec::Vec;

use segue_clock::Span;
use segue_wire::{Encapsulation, Mode};

use crate::loss::Pace;
use crate::planner::Plan;

/// Settings of a [`crate::Client`] or a [`crate::Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// K: number of consecutive lost probes after which the path is down; at least 1.
    pub k: u8,
    /// T_KA: time between requests.
    pub t_ka: Span,
    /// N: probes per loss interval, T_L = N·T_KA (section 4.2); at least 1.
    pub n: u32,
    /// Time constants of the averages, at least one; the first is the main one.
    pub taus: Vec<Tau>,
    /// Number of consecutive answered requests that bring a path up from [`crate::State::Down`], so that a flapping
    /// path does not move flows back and forth. From `Starting`, one is sufficient.
    pub up_after: u8,
    /// Which end measures.
    pub mode: Mode,
    /// Probes may ride on data packets (section 5.3): requests are up to 2·T_KA apart, and responses up to T_KA late.
    pub rides: bool,
    /// Where the estimates are made.
    pub measured_by: MeasuredBy,
    /// How the client investigates silence; `None`: only K and T_KA decide.
    pub doubt: Option<Asking>,
    /// At a server: the client's settings follow the use of the path. Always the case for a client with `doubt`.
    pub follows_use: bool,
}

/// The questions that a client in doubt asks ([`crate::Client`], "Doubt").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Number of unanswered questions after which the path is down; at least 1.
    pub k: u8,
    /// Time between two questions.
    pub spacing: Span,
}

/// The component that makes the estimates of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredBy {
    /// The machine, which sees every probe.
    #[default]
    Machine,
    /// The packet path, which also sends probes of its own. The machine learns about them from [`crate::Reading`]s, and
    /// sees only probes that carry news.
    PacketPath,
}

/// Settings of a path's probes for a datapath that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Which end measures.
    pub mode: Mode,
    /// K, for probes that the datapath sends on its own.
    pub k: u8,
    /// T_KA: minimum distance of rides, and the longest wait of a response for a ride.
    pub t_ka: Span,
    /// N: probes per loss interval.
    pub n: u32,
    /// Time constants of the averages; a datapath in the kernel keeps the first two.
    pub taus: [Tau; 2],
    /// Probes may ride on data.
    pub rides: bool,
    /// Detection follows use. A host's datapath calls its driver when data follow a silence ([`crate::SILENCE`]). An
    /// anchor's datapath immediately answers requests that do not ride, and delays other responses for a ride by at
    /// most [`segue_wire::HELD_AT_MOST_MS`].
    pub follows_use: bool,
    /// Form of the packets.
    pub encapsulation: Encapsulation,
    /// Data have a UDP checksum, which a datapath in the kernel omits by default.
    pub checksums: bool,
}

impl Probing {
    /// The rule that ends a loss interval, for this T_KA.
    #[must_use]
    pub fn pace(&self, t_ka: Span) -> Pace {
        Pace { t_ka, n: self.n, follows_use: self.follows_use }
    }
}

impl Default for Probing {
    /// As [`Config::default`], without rides.
    fn default() -> Probing {
        Config::default().probing(Encapsulation::Segue)
    }
}

/// Time constant of an average.
///
/// Equal members give the generalized EWMA of eq. 13. Different members give the asymmetric average of section 6:
/// `rise` applies if the sample is worse (larger) than the average, `fall` if it is better. Zero makes the average
/// follow the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tau {
    /// Used when the sample is larger than the average.
    pub rise: Span,
    /// Used otherwise.
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
    /// K = 3, T_KA = 200 ms, N = 10, τ = 1 s and 30 s, three answers to come back up.
    fn default() -> Config {
        Config {
            k: 3,
            t_ka: Span::from_millis(200),
            n: 10,
            taus: vec![Tau::symmetric(Span::from_secs(1)), Tau::symmetric(Span::from_secs(30))],
            up_after: 3,
            mode: Mode::Both,
            rides: false,
            measured_by: MeasuredBy::Machine,
            doubt: None,
            follows_use: false,
        }
    }
}

impl Config {
    /// Settings with the plan's K and T_KA, the others as in [`Config::default`]. T_KA is rounded down to whole
    /// milliseconds, the unit in which a probe states it, and clamped to 1 ms … 65.535 s. A shorter period only makes
    /// detection faster.
    #[must_use]
    pub fn from_plan(plan: &Plan) -> Config {
        // A period of 60 ms computed as 59.999 999 999 8 must not be rounded down to 59.
        let ms = libm::floor(plan.t_ka * 1e3 + 1e-6).clamp(1.0, f64::from(u16::MAX));
        Config { k: plan.k.max(1), t_ka: Span::from_millis(ms as u64), ..Config::default() }
    }

    /// The settings that a datapath needs.
    #[must_use]
    pub fn probing(&self, encapsulation: Encapsulation) -> Probing {
        let main = self.taus.first().copied().unwrap_or(Tau::symmetric(Span::from_secs(1)));
        Probing {
            mode: self.mode,
            k: self.k,
            t_ka: self.t_ka,
            n: self.n,
            taus: [main, self.taus.get(1).copied().unwrap_or(main)],
            rides: self.rides,
            follows_use: self.follows_use(),
            encapsulation,
            checksums: false,
        }
    }

    /// The rule that ends a loss interval; T_L = N·T_KA if T_KA is fixed.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { t_ka: self.t_ka, n: self.n, follows_use: self.follows_use() }
    }

    fn follows_use(&self) -> bool {
        self.follows_use || self.doubt.is_some()
    }

    /// Time without a response after which a client declares the path down: (K + ½)·T_KA, with rides (K + 2½)·T_KA. See
    /// [`crate::Client`] for the derivation.
    #[must_use]
    pub fn time_out(&self) -> Span {
        self.time_out_at(self.t_ka)
    }

    /// Like [`Config::time_out`], for another period.
    pub(crate) fn time_out_at(&self, t_ka: Span) -> Span {
        let waits = if self.rides { t_ka * 2 } else { Span::ZERO };
        t_ka * u64::from(self.k) + t_ka.half() + waits
    }

    /// T_Rmax: the maximum time to detect a fault. Without rides (K + 1)·T_KA + RTT_max (eq. 1).
    ///
    /// With rides (K + 3½)·T_KA + RTT_max: the last request may pass the point of failure just before the fault. If
    /// only the uplink fails, its response may wait T_KA for a ride, and the time-out starts at its arrival. If both
    /// directions fail it is T_KA less.
    #[must_use]
    pub fn t_r_max(&self, rtt_max: Span) -> Span {
        let whole = self.t_ka * (u64::from(self.k) + 1) + rtt_max;
        if self.rides { whole + self.t_ka * 2 + self.t_ka.half() } else { whole }
    }

    /// T_Ravg: upper bound on the average time to detect a fault. Without rides (K + ½)·T_KA + RTT_avg/2 (eq. 2). With
    /// rides (K + 3)·T_KA + RTT_avg/2, or T_KA less if both directions fail: requests are T_KA apart on average, so at
    /// the time of the fault the last one is on average at least T_KA/2 old.
    #[must_use]
    pub fn t_r_avg(&self, rtt_avg: Span) -> Span {
        let half = self.t_ka.half();
        let whole = self.t_ka * u64::from(self.k) + half + rtt_avg.half();
        if self.rides { whole + self.t_ka * 2 + half } else { whole }
    }

    /// Replaces invalid values with the smallest valid ones.
    pub(crate) fn sane(mut self) -> Config {
        self.k = self.k.max(1);
        self.n = self.n.max(1);
        self.up_after = self.up_after.max(1);
        self.t_ka = self.t_ka.max(Span::from_millis(1));
        if let Some(asking) = &mut self.doubt {
            asking.k = asking.k.max(1);
            asking.spacing = asking.spacing.max(Span::from_millis(1));
        }
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

/// A period as a probe states it: whole milliseconds, rounded up so that the server is never the less patient end; 0
/// (not stated) if it does not fit.
pub(crate) fn stated_ms(t_ka: Span) -> u16 {
    u16::try_from(t_ka.0.div_ceil(1_000_000)).unwrap_or(0)
}
