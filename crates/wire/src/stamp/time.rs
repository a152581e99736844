//! Timestamps of both formats, and the estimate of their error.

/// Seconds from 1900 (NTP's epoch) to 1970.
const NTP_OFFSET_S: u64 = 2_208_988_800;
const NS_PER_S: u64 = 1_000_000_000;

/// The format of the 64 bits of a [`Timestamp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampFormat {
    /// NTP (RFC 5905): seconds since 1900 modulo 2³², fraction of a second in 2⁻³² s.
    #[default]
    Ntp,
    /// PTP, truncated (RFC 8186): seconds modulo 2³², nanoseconds.
    Ptp,
}

/// An instant in one of the formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Converts nanoseconds since 1970 to NTP format. The fraction is rounded up, so that reading it back gives the
    /// same nanosecond.
    #[must_use]
    pub const fn ntp(unix_ns: u64) -> Timestamp {
        let seconds = (unix_ns / NS_PER_S + NTP_OFFSET_S) as u32 as u64;
        let fraction = ((unix_ns % NS_PER_S) << 32).div_ceil(NS_PER_S);
        Timestamp(seconds << 32 | fraction)
    }

    /// Nanoseconds from `earlier` to this instant, both of the same clock and format; negative if `earlier` is later.
    /// Correct for distances below 68 years.
    #[must_use]
    pub const fn since(self, earlier: Timestamp, format: TimestampFormat) -> i64 {
        let seconds = ((self.0 >> 32) as u32).wrapping_sub((earlier.0 >> 32) as u32) as i32 as i64;
        let fraction = self.fraction_ns(format) - earlier.fraction_ns(format);
        seconds * NS_PER_S as i64 + fraction
    }

    const fn fraction_ns(self, format: TimestampFormat) -> i64 {
        let fraction = self.0 & 0xffff_ffff;
        match format {
            TimestampFormat::Ntp => ((fraction * NS_PER_S) >> 32) as i64,
            TimestampFormat::Ptp => fraction as i64,
        }
    }
}

/// Error Estimate (RFC 4656, 4.1.2, with the Z flag of RFC 8186).
///
/// ```text
/// |S|Z|   Scale   |   Multiplier  |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// True if the clock is synchronised to UTC by an external source.
    pub synchronised: bool,
    /// Format of the related timestamps.
    pub format: TimestampFormat,
    /// 0 to 63: the error is `multiplier` · 2^(`scale` − 32) seconds.
    pub scale: u8,
    /// Zero if the sender does not state the error.
    pub multiplier: u8,
}

impl Default for ErrorEstimate {
    /// NTP format, not synchronised, no bound on the error.
    fn default() -> ErrorEstimate {
        ErrorEstimate {
            synchronised: false,
            format: TimestampFormat::Ntp,
            scale: 63,
            multiplier: 255,
        }
    }
}

impl ErrorEstimate {
    /// An estimate for NTP timestamps with an error of at most `error_ns`, rounded up.
    #[must_use]
    pub const fn ntp(error_ns: u64, synchronised: bool) -> ErrorEstimate {
        let mut units = ((error_ns as u128) << 32).div_ceil(NS_PER_S as u128);
        let mut scale = 0;
        while units > 255 && scale < 63 {
            units = units.div_ceil(2);
            scale += 1;
        }
        let multiplier = match units {
            0 => 1,
            1..=255 => units as u8,
            _ => 255,
        };
        ErrorEstimate { synchronised, format: TimestampFormat::Ntp, scale, multiplier }
    }

    /// The bound on the error in seconds; `None` if not stated.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        // 2^(scale − 32) as a quotient of two exact powers.
        let power = (1u64 << self.scale) as f64 / (1u64 << 32) as f64;
        (self.multiplier > 0).then(|| f64::from(self.multiplier) * power)
    }

    /// The bytes of the field.
    #[must_use]
    pub const fn emit(&self) -> [u8; 2] {
        let s = (self.synchronised as u8) << 7;
        let z = (matches!(self.format, TimestampFormat::Ptp) as u8) << 6;
        [s | z | self.scale & 63, self.multiplier]
    }

    /// Reads the field; every value is valid.
    #[must_use]
    pub const fn parse(field: u16) -> ErrorEstimate {
        let [head, multiplier] = field.to_be_bytes();
        ErrorEstimate {
            synchronised: head & 0x80 != 0,
            format: if head & 0x40 != 0 { TimestampFormat::Ptp } else { TimestampFormat::Ntp },
            scale: head & 63,
            multiplier,
        }
    }
}
