//! What can be set on either end.

use alloc::vec;
use alloc::vec::Vec;

use segue_clock::Span;
use segue_wire::{Encapsulation, Mode};

use crate::loss::Pace;
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
    /// Which end measures.
    pub mode: Mode,
    /// Probes may ride on data packets (section 5.3): requests are up to 2·T_KA apart, and responses
    /// up to T_KA late.
    pub rides: bool,
    /// What makes the estimates.
    pub measured_by: MeasuredBy,
    /// How the client looks into silence; `None`: only K and T_KA decide.
    pub doubt: Option<Asking>,
    /// At a server: the client's settings follow the use of the path. A client with `doubt` has such settings.
    pub follows_use: bool,
}

/// The questions that a client in doubt asks ([`crate::Client`], "Doubt").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// How many unanswered ones make the path down; at least 1.
    pub k: u8,
    /// Time from one to the next.
    pub spacing: Span,
}

/// What makes the estimates of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredBy {
    /// The machine, which sees every probe.
    #[default]
    Machine,
    /// The packet path, which sends probes of its own, too; the machine learns of both from [`crate::Reading`]s, and sees
    /// only probes that say something new.
    PacketPath,
}

/// What a datapath that measures must know about the probes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Which end measures.
    pub mode: Mode,
    /// K, for probes that the datapath sends on its own.
    pub k: u8,
    /// T_KA: at most one ride in a period, and how long a response may wait for one.
    pub t_ka: Span,
    /// N: probes per loss interval.
    pub n: u32,
    /// Time constants of the averages; a datapath in the kernel keeps the first two.
    pub taus: [Tau; 2],
    /// Probes may ride on data.
    pub rides: bool,
    /// Detection follows use. The datapath of a host calls its driver when data follow a silence ([`crate::SILENCE`]).
    /// That of an anchor answers at once requests that do not ride, and lets other responses wait for a ride no longer
    /// than [`segue_wire::HELD_AT_MOST_MS`].
    pub follows_use: bool,
    /// Form of the packets.
    pub encapsulation: Encapsulation,
    /// Data have a UDP checksum, as a datapath in the kernel leaves out otherwise.
    pub checksums: bool,
}

impl Probing {
    /// What ends a loss interval while T_KA is this.
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
            mode: Mode::Both,
            rides: false,
            measured_by: MeasuredBy::Machine,
            doubt: None,
            follows_use: false,
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

    /// What a datapath must know of these settings.
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

    /// What ends a loss interval; T_L = N·T_KA where T_KA is fixed.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { t_ka: self.t_ka, n: self.n, follows_use: self.follows_use() }
    }

    fn follows_use(&self) -> bool {
        self.follows_use || self.doubt.is_some()
    }

    /// How long a client waits for a response before it calls the path down: (K + ½)·T_KA, with rides
    /// (K + 2½)·T_KA. [`crate::Client`] derives both.
    #[must_use]
    pub fn time_out(&self) -> Span {
        self.time_out_at(self.t_ka)
    }

    /// The same for another period.
    pub(crate) fn time_out_at(&self, t_ka: Span) -> Span {
        let waits = if self.rides { t_ka * 2 } else { Span::ZERO };
        t_ka * u64::from(self.k) + t_ka.half() + waits
    }

    /// T_Rmax: the longest time to detect a fault. Without rides (K + 1)·T_KA + RTT_max (eq. 1).
    ///
    /// With rides (K + 3½)·T_KA + RTT_max: the last request may pass the place of the fault just before it, and its
    /// response, if only the uplink fails, may wait T_KA for a ride; the time-out runs from its arrival. If both
    /// directions fail it is T_KA less.
    #[must_use]
    pub fn t_r_max(&self, rtt_max: Span) -> Span {
        let whole = self.t_ka * (u64::from(self.k) + 1) + rtt_max;
        if self.rides { whole + self.t_ka * 2 + self.t_ka.half() } else { whole }
    }

    /// T_Ravg: the upper bound on the average time to detect a fault. Without rides (K + ½)·T_KA + RTT_avg/2 (eq. 2).
    /// With rides (K + 3)·T_KA + RTT_avg/2, or T_KA less if both directions fail: requests are T_KA apart on average,
    /// so the last is at least T_KA/2 old on average when the fault comes.
    #[must_use]
    pub fn t_r_avg(&self, rtt_avg: Span) -> Span {
        let half = self.t_ka.half();
        let whole = self.t_ka * u64::from(self.k) + half + rtt_avg.half();
        if self.rides { whole + self.t_ka * 2 + half } else { whole }
    }

    /// Replaces invalid values by the smallest valid ones.
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

/// A period as a probe states it: whole milliseconds, rounded up so that the server is never the more
/// impatient end, and 0 (not stated) if it does not fit.
pub(crate) fn stated_ms(t_ka: Span) -> u16 {
    u16::try_from(t_ka.0.div_ceil(1_000_000)).unwrap_or(0)
}
