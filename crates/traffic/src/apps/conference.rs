//! A videoconference: video and speech in both directions.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use segue_clock::Span;

use super::meter::{Direction, MeterConfig, SharedMeter};
use super::stream::{Endpoint, Kind, Period, Reported, Timetable};
use super::trace::{FrameType, Pattern, Sizes, Trace};
use super::video::{Frames, VideoConfig};
use super::voip::{Voice, VoipConfig};
use super::{BadConfig, End, Ends, Pair, UDP, require};

/// Video like H.263: an I frame followed by P frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureProfile {
    /// Frames per second.
    pub frames_per_s: u32,
    /// Video bits per second, without headers.
    pub rate_bps: u64,
    /// Mean size of an I frame relative to a P frame.
    pub intra_factor: f64,
    /// Standard deviation of the frame sizes of one type, divided by their mean.
    pub variation: f64,
}

/// An I frame and 131 P frames: H.263 requires every block to be coded independently at least once in 132 times
/// (ITU-T H.263, section 4.4).
const GROUP: [FrameType; 132] = {
    let mut group = [FrameType::P; 132];
    group[0] = FrameType::I;
    group
};

impl Default for PictureProfile {
    /// 15 frames per second at 64 kbit/s, the middle one of the target rates of Fitzek and Reisslein's H.263
    /// traces (16, 64 and 256 kbit/s; MPEG-4 and H.263 video traces for network performance evaluation, 2001).
    /// Factor and variation are our choice.
    fn default() -> PictureProfile {
        PictureProfile { frames_per_s: 15, rate_bps: 64_000, intra_factor: 5.0, variation: 0.4 }
    }
}

impl PictureProfile {
    /// A trace of four groups from a seed.
    #[must_use]
    fn trace(&self, seed: u64) -> Trace {
        let frames = GROUP.len() as f64;
        let group_bytes = self.rate_bps as f64 / 8.0 / f64::from(self.frames_per_s) * frames;
        let p_bytes = group_bytes / (frames - 1.0 + self.intra_factor);
        let sizes = |mean_bytes| Sizes { mean_bytes, variation: self.variation };
        let pattern = Pattern {
            group: &GROUP,
            interval: Span(1_000_000_000 / u64::from(self.frames_per_s)),
            sizes: [sizes(self.intra_factor * p_bytes), sizes(p_bytes), sizes(p_bytes)],
        };
        pattern.generate(4, seed)
    }

    fn check(&self) -> Result<(), BadConfig> {
        let rate = 1..=1_000u32;
        require(rate.contains(&self.frames_per_s), "frames_per_s", "must lie between 1 and 1000")?;
        let bits = 1_000..=1_000_000_000u64;
        require(
            bits.contains(&self.rate_bps),
            "rate_bps",
            "must lie between 1 kbit/s and 1 Gbit/s",
        )?;
        let known = |x: f64| (0.0..=100.0).contains(&x);
        let positive = known(self.intra_factor) && self.intra_factor > 0.0;
        require(positive, "intra_factor", "must lie above 0 and at most 100")?;
        require(known(self.variation), "variation", "must lie between 0 and 100")
    }
}

/// A videoconference. Video uses the first port of each end, speech the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct ConferenceConfig {
    /// The video of each end, from a trace with a separate seed; ignored if `trace` is given.
    pub pictures: PictureProfile,
    /// A trace for the video of both ends.
    pub trace: Option<Arc<Trace>>,
    /// Maximum video payload of a datagram, without RTP, UDP and IP headers, in bytes.
    pub max_payload_bytes: u32,
    /// Code point of video packets.
    pub dscp: u8,
    /// Speech. Its period and meter are ignored in favour of the conference's.
    pub voice: VoipConfig,
    /// Start and end of sending, for both ends.
    pub period: Period,
    /// Settings of the measurement.
    pub meter: MeterConfig,
}

impl Default for ConferenceConfig {
    fn default() -> ConferenceConfig {
        let video = VideoConfig::default();
        ConferenceConfig {
            pictures: PictureProfile::default(),
            trace: None,
            max_payload_bytes: video.max_payload_bytes,
            dscp: video.dscp,
            voice: VoipConfig::g729(),
            period: Period::default(),
            meter: MeterConfig::default(),
        }
    }
}

impl ConferenceConfig {
    /// Agents for both ends. The first reports `video_up`, `video_down`, `voice_up` and `voice_down`.
    ///
    /// # Errors
    /// The key with an invalid value.
    pub fn pair(&self, ends: &Ends, seed: u64) -> Result<Pair, BadConfig> {
        self.check(ends)?;
        let video = |seed| Box::new(Frames::new(&self.video(seed)));
        let (period, meter) = (self.period, self.meter.clone());
        let speech = VoipConfig { period, meter, ..self.voice.clone() };
        let voice = |seed| Box::new(Voice::new(&speech, seed));
        let mut first = Endpoint::new(Vec::new());
        let mut second = Endpoint::new(Vec::new());
        let mut reports = Vec::new();
        let mut stream = |name, way, source: Box<dyn Timetable>, port: u16, kind, dscp| {
            let meter = SharedMeter::new(&self.meter, way);
            let one = (ends.first.0, ends.first.1 + port);
            let other = (ends.second.0, ends.second.1 + port);
            if way == Direction::Up {
                first.sends(source, one, other, dscp, &meter);
                second.receives(other.1, &meter);
            } else {
                second.sends(source, other, one, dscp, &meter);
                first.receives(one.1, &meter);
            }
            reports.push(Reported { name, meter, kind });
        };
        // Four independent seeds.
        stream("video_up", Direction::Up, video(seed ^ 1), 0, Kind::Video, self.dscp);
        stream("video_down", Direction::Down, video(seed ^ 2), 0, Kind::Video, self.dscp);
        stream("voice_up", Direction::Up, voice(seed ^ 3), 1, Kind::Voice, self.voice.dscp);
        stream("voice_down", Direction::Down, voice(seed ^ 4), 1, Kind::Voice, self.voice.dscp);
        first.set_reports(reports);
        let ports = |port: u16| vec![(UDP, port), (UDP, port + 1)];
        Ok(Pair {
            first: End { agent: Box::new(first), ports: ports(ends.first.1) },
            second: End { agent: Box::new(second), ports: ports(ends.second.1) },
        })
    }

    fn video(&self, seed: u64) -> VideoConfig {
        VideoConfig {
            trace: self.trace.clone().unwrap_or_else(|| Arc::new(self.pictures.trace(seed))),
            max_payload_bytes: self.max_payload_bytes,
            paced: false,
            period: self.period,
            dscp: self.dscp,
            meter: self.meter.clone(),
        }
    }

    fn check(&self, ends: &Ends) -> Result<(), BadConfig> {
        self.pictures.check()?;
        self.voice.check()?;
        let above = ends.first.1 < u16::MAX && ends.second.1 < u16::MAX;
        require(above, "port", "must leave one above it for speech")?;
        VideoConfig {
            max_payload_bytes: self.max_payload_bytes,
            dscp: self.dscp,
            ..VideoConfig::default()
        }
        .check()
    }
}
