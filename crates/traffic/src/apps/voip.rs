//! Telephony: speech in both directions, at a constant rate or in talk spurts.

use alloc::boxed::Box;

use segue_clock::{Rng, Span, Time};

use super::chance::exponential;
use super::meter::MeterConfig;
use super::stream::{Kind, Period, Shot, Timetable};
use super::{BadConfig, Ends, Pair, duplex, require};

/// A telephone call.
#[derive(Clone, Debug, PartialEq)]
pub struct VoipConfig {
    /// Interval of speech packets.
    pub packet_interval: Span,
    /// Speech per packet, without RTP, UDP and IP headers, in bytes.
    pub payload_bytes: u32,
    /// Talk spurts and pauses; `None`: continuous packets.
    pub spurts: Option<Spurts>,
    /// Start and end of sending, for both ends.
    pub period: Period,
    /// Code point of the packets.
    pub dscp: u8,
    /// Settings of the measurement.
    pub meter: MeterConfig,
}

/// Exponentially distributed talk spurts and pauses, independent at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spurts {
    /// Mean length of a talk spurt in seconds.
    pub talk_s: f64,
    /// Mean length of a pause in seconds.
    pub pause_s: f64,
}

impl Spurts {
    /// ITU-T P.59 (1993), Table 1: talk spurts of 1.004 s, pauses of 1.587 s.
    pub const P59: Spurts = Spurts { talk_s: 1.004, pause_s: 1.587 };
    /// Goodman and Wei (Efficiency of packet reservation multiple access, 1991): 1.00 s and 1.35 s.
    pub const GOODMAN_WEI: Spurts = Spurts { talk_s: 1.0, pause_s: 1.35 };
}

/// Expedited forwarding (RFC 3246).
pub(crate) const DSCP_EF: u8 = 46;

impl VoipConfig {
    /// G.711 in packets of 20 ms: 160 bytes, 200 with IPv4 headers.
    #[must_use]
    pub fn g711() -> VoipConfig {
        VoipConfig {
            packet_interval: Span::from_millis(20),
            payload_bytes: 160,
            spurts: None,
            period: Period::default(),
            dscp: DSCP_EF,
            meter: MeterConfig::default(),
        }
    }

    /// G.729 in packets of 20 ms: two frames of 10 bytes.
    #[must_use]
    pub fn g729() -> VoipConfig {
        VoipConfig { payload_bytes: 20, ..VoipConfig::g711() }
    }

    /// Agents for both ends, the caller first. The first reports `up` (from the caller) and `down`.
    ///
    /// # Errors
    /// The key with an invalid value.
    pub fn pair(&self, ends: &Ends, seed: u64) -> Result<Pair, BadConfig> {
        self.check()?;
        let up = Box::new(Voice::new(self, seed));
        let down = Box::new(Voice::new(self, !seed));
        let names = ["up", "down"];
        Ok(duplex(ends, names, Kind::Voice, self.dscp, &self.meter, (up, down)))
    }

    pub(super) fn check(&self) -> Result<(), BadConfig> {
        require(self.packet_interval > Span::ZERO, "packet_interval", "must be above 0")?;
        require(self.payload_bytes <= 65_000, "payload_bytes", "must be at most 65000")?;
        require(self.dscp < 64, "dscp", "must be below 64")?;
        let positive = |s: f64| s.is_finite() && s > 0.0;
        let Some(spurts) = self.spurts else { return Ok(()) };
        require(positive(spurts.talk_s), "talk", "must be above 0")?;
        require(positive(spurts.pause_s), "pause", "must be above 0")
    }
}

impl Default for VoipConfig {
    fn default() -> VoipConfig {
        VoipConfig::g711()
    }
}

/// A speaker. The first packet leaves at a random instant of the first interval, so that calls starting together
/// are not synchronised; each packet contains the speech of the preceding interval.
pub(super) struct Voice {
    interval: Span,
    payload_bytes: u32,
    spurts: Option<Spurts>,
    period: Period,
    rng: Rng,
    next: Option<Time>,
    /// End of the talk spurt.
    until: Time,
}

impl Voice {
    pub(super) fn new(config: &VoipConfig, seed: u64) -> Voice {
        let mut rng = Rng::new(seed);
        let mut at = config.period.begin() + Span(rng.below(config.packet_interval.0));
        let mut until = Time(u64::MAX);
        if let Some(spurts) = config.spurts {
            // Exponential times are memoryless: the remainder at the start has the same distribution.
            if !rng.chance(spurts.talk_s / (spurts.talk_s + spurts.pause_s)) {
                at += Span::from_secs_f64(exponential(&mut rng, spurts.pause_s));
            }
            until = at + Span::from_secs_f64(exponential(&mut rng, spurts.talk_s));
        }
        Voice {
            interval: config.packet_interval,
            payload_bytes: config.payload_bytes,
            spurts: config.spurts,
            period: config.period,
            rng,
            next: config.period.within(at),
            until,
        }
    }

    /// Time of the packet after the one at `at`: an interval later, or at the start of the next talk spurt.
    fn after(&mut self, at: Time) -> Time {
        let next = at + self.interval;
        let Some(spurts) = self.spurts.filter(|_| next >= self.until) else { return next };
        let pause = Span::from_secs_f64(exponential(&mut self.rng, spurts.pause_s));
        // Speech is divided into intervals: the last packet of a spurt completes its interval.
        let next = next.max(self.until + pause);
        self.until = next + Span::from_secs_f64(exponential(&mut self.rng, spurts.talk_s));
        next
    }
}

impl Timetable for Voice {
    fn next(&self) -> Option<Time> {
        self.next
    }

    fn take(&mut self) -> Option<Shot> {
        let at = self.next?;
        let next = self.after(at);
        self.next = self.period.within(next);
        Some(Shot { payload_bytes: self.payload_bytes, tag: 0 })
    }
}
