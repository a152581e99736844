//! Streaming video driven by a trace of frames.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use segue_clock::{Span, Time};

use super::meter::{Direction, MeterConfig, SharedMeter};
use super::stream::{Endpoint, Kind, Period, Reported, Shot, Timetable};
use super::trace::Trace;
use super::{BadConfig, End, Ends, Pair, UDP, require};

/// A video stream from the second end to the first.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoConfig {
    /// The frames. The trace repeats.
    pub trace: Arc<Trace>,
    /// Maximum payload of a datagram, without RTP, UDP and IP headers, in bytes. Larger frames are split.
    pub max_payload_bytes: u32,
    /// Spread the datagrams of a frame over the time to the next frame; otherwise they leave at once.
    pub paced: bool,
    /// Start and end of the stream.
    pub period: Period,
    /// Code point of the packets.
    pub dscp: u8,
    /// Settings of the measurement.
    pub meter: MeterConfig,
}

/// Assured forwarding 41, for interactive and streaming video (RFC 4594).
const DSCP_AF41: u8 = 34;

impl Default for VideoConfig {
    /// [`Trace::mpeg`] in packets of at most 1 480 bytes (paper 4's packet size, with IPv4 headers).
    fn default() -> VideoConfig {
        VideoConfig {
            trace: Arc::new(Trace::mpeg()),
            max_payload_bytes: 1_440,
            paced: false,
            period: Period::default(),
            dscp: DSCP_AF41,
            meter: MeterConfig::default(),
        }
    }
}

impl VideoConfig {
    /// Agents for both ends, the viewer first. The first reports `down`.
    ///
    /// # Errors
    /// The key with an invalid value.
    pub fn pair(&self, ends: &Ends) -> Result<Pair, BadConfig> {
        self.check()?;
        let meter = SharedMeter::new(&self.meter, Direction::Down);
        let direction = Reported { name: "down", meter: meter.clone(), kind: Kind::Video };
        let mut viewer = Endpoint::new(vec![direction]);
        let mut server = Endpoint::new(Vec::new());
        viewer.receives(ends.first.1, &meter);
        let source = Box::new(Frames::new(self));
        server.sends(source, ends.second, ends.first, self.dscp, &meter);
        Ok(Pair {
            first: End { agent: Box::new(viewer), ports: vec![(UDP, ends.first.1)] },
            second: End { agent: Box::new(server), ports: vec![(UDP, ends.second.1)] },
        })
    }

    pub(super) fn check(&self) -> Result<(), BadConfig> {
        let size = 1..=65_000;
        require(
            size.contains(&self.max_payload_bytes),
            "max_payload_bytes",
            "must lie between 1 and 65000",
        )?;
        require(self.dscp < 64, "dscp", "must be below 64")
    }
}

/// The repeated frames of a trace, split into datagrams. A datagram's tag is the number of its frame.
pub(super) struct Frames {
    trace: Arc<Trace>,
    max_payload_bytes: u32,
    paced: bool,
    period: Period,
    /// Start of the current repetition of the trace, frame within it, and bytes of this frame already sent.
    round: Time,
    frame: usize,
    sent_bytes: u32,
    number: u32,
    next: Option<Time>,
}

impl Frames {
    pub(super) fn new(config: &VideoConfig) -> Frames {
        let mut frames = Frames {
            trace: config.trace.clone(),
            max_payload_bytes: config.max_payload_bytes,
            paced: config.paced,
            period: config.period,
            round: config.period.begin(),
            frame: 0,
            sent_bytes: 0,
            number: 0,
            next: None,
        };
        frames.skip_empty();
        frames.next = frames.period.within(frames.due());
        frames
    }

    fn bytes(&self) -> u32 {
        self.trace.frames()[self.frame].bytes
    }

    /// Time of the frame's next datagram.
    fn due(&self) -> Time {
        let frames = self.trace.frames();
        let at = self.round + frames[self.frame].at;
        if !self.paced {
            return at;
        }
        let end = frames.get(self.frame + 1).map_or(self.trace.period(), |next| next.at);
        let gap = end - frames[self.frame].at;
        let datagrams = u64::from(self.bytes().div_ceil(self.max_payload_bytes)).max(1);
        let place = u64::from(self.sent_bytes / self.max_payload_bytes);
        at + Span((u128::from(gap.0) * u128::from(place) / u128::from(datagrams)) as u64)
    }

    fn next_frame(&mut self) {
        self.sent_bytes = 0;
        self.number = self.number.wrapping_add(1);
        self.frame += 1;
        if self.frame == self.trace.frames().len() {
            self.frame = 0;
            self.round += self.trace.period();
        }
    }

    /// Skips frames without bytes, which the coder left out. A trace has at least one frame with bytes.
    fn skip_empty(&mut self) {
        while self.bytes() == 0 {
            self.next_frame();
        }
    }
}

impl Timetable for Frames {
    fn next(&self) -> Option<Time> {
        self.next
    }

    fn take(&mut self) -> Option<Shot> {
        self.next?;
        let payload_bytes = (self.bytes() - self.sent_bytes).min(self.max_payload_bytes);
        let tag = self.number;
        self.sent_bytes += payload_bytes;
        if self.sent_bytes == self.bytes() {
            self.next_frame();
            self.skip_empty();
        }
        self.next = self.period.within(self.due());
        Some(Shot { payload_bytes, tag })
    }
}
