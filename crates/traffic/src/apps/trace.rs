//! Video traces: display time, type and size of frames.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use segue_clock::{Rng, Span};

use super::chance::normal;

/// Maximum number of frames in a trace: eleven hours at 25 frames per second.
pub(crate) const MAX_FRAMES: usize = 1_000_000;

/// Maximum size of a frame, in bytes.
pub const MAX_FRAME_BYTES: u32 = 1 << 24;

/// Latest time of a frame, in milliseconds: no trace lasts longer than 10⁶ s.
const MAX_TIME_MS: f64 = 1e9;

/// Minimum mean time between frames: a loop without duration would never end.
const MIN_INTERVAL: Span = Span::from_micros(10);

/// Coding type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameType {
    /// Coded independently (letters I, IDR; H for a header).
    I,
    /// Predicted from an earlier frame.
    P,
    /// Predicted from an earlier and a later frame.
    B,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Sending time, relative to the first frame.
    pub at: Span,
    /// Coding type.
    pub kind: FrameType,
    /// Size in bytes.
    pub bytes: u32,
}

/// Units in the columns of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceUnits {
    /// Times are in seconds instead of milliseconds.
    pub seconds: bool,
    /// Sizes are in bits instead of bytes; they are rounded up.
    pub bits: bool,
}

impl TraceUnits {
    /// Milliseconds and bytes, as in the verbose traces of TU Berlin.
    pub const MS_BYTES: TraceUnits = TraceUnits { seconds: false, bits: false };
}

/// A line that is not a frame, or a file that is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, counted from 1.
    pub line: usize,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.problem)
    }
}

impl core::error::Error for TraceError {}

/// At least two frames in sending order, with ascending times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    frames: Vec<Frame>,
    /// Time after which the trace repeats.
    period: Span,
}

impl Trace {
    /// Parses a trace in one of the common formats of the libraries of TU Berlin and Arizona State University
    /// (Fitzek and Reisslein, MPEG-4 and H.263 video traces for network performance evaluation, 2001): one frame
    /// per line, columns separated by white space; empty lines, and text after a `#`, are ignored. The position
    /// of the type determines the format:
    ///
    /// ```text
    /// number type time size …     Verbose_Jurassic.dat as ns-3 reads it
    /// number time type size …     verbose traces with quality behind the size
    /// time type size              the short form
    /// ```
    ///
    /// Lines are in coding order, times are display times: a P frame precedes the B frames that depend on it and
    /// are shown earlier. Frames are sent in the order of the lines, at the times in ascending order, which keeps
    /// the frame rate even. A line of words before the first frame is a heading.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str, units: TraceUnits) -> Result<Trace, TraceError> {
        let mut times: Vec<Span> = Vec::new();
        let mut frames: Vec<(FrameType, u32)> = Vec::new();
        let mut form = None;
        let mut last_line = 1;
        for (line, content) in text.lines().enumerate() {
            let (line, content) = (line + 1, content.split('#').next().unwrap_or_default().trim());
            last_line = line;
            if content.is_empty() {
                continue;
            }
            let error = |problem: String| TraceError { line, problem };
            let words: Vec<&str> = content.split_whitespace().take(MAX_COLUMNS).collect();
            if form.is_none()
                && !words.iter().any(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            {
                continue;
            }
            let form = match form {
                Some(form) => form,
                None => *form.insert(Form::of(&words).ok_or_else(|| {
                    error("no column is a frame type (I, P or B) where one is expected".into())
                })?),
            };
            if frames.len() == MAX_FRAMES {
                return Err(error(alloc::format!("more than {MAX_FRAMES} frames")));
            }
            let (at, kind, bytes) = form.read(&words, units).map_err(error)?;
            times.push(at);
            frames.push((kind, bytes));
        }
        times.sort_unstable();
        let frames =
            times.iter().zip(frames).map(|(at, (kind, bytes))| Frame { at: *at, kind, bytes });
        Trace::new(frames.collect())
            .map_err(|problem| TraceError { line: last_line, problem: problem.into() })
    }

    /// A trace of these frames, whose times must be ascending.
    ///
    /// # Errors
    /// Why the frames do not form a trace.
    pub fn new(mut frames: Vec<Frame>) -> Result<Trace, &'static str> {
        if frames.len() < 2 {
            return Err("a trace needs at least two frames");
        }
        let first = frames[0].at;
        frames.iter_mut().for_each(|frame| frame.at = frame.at - first);
        if frames.windows(2).any(|pair| pair[0].at > pair[1].at) {
            return Err("the times of the frames must rise");
        }
        let last = frames[frames.len() - 1].at;
        // The last frame lasts as long as the others on average.
        let period = last + Span(last.0 / (frames.len() as u64 - 1));
        if period.0 / (frames.len() as u64) < MIN_INTERVAL.0 {
            return Err("there are more than 100000 frames a second");
        }
        if frames.iter().all(|frame| frame.bytes == 0) {
            return Err("all frames are empty");
        }
        Ok(Trace { frames, period })
    }

    /// The frames in sending order.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Time after which the trace repeats.
    #[must_use]
    pub fn period(&self) -> Span {
        self.period
    }

    /// Total size of all frames, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| u64::from(frame.bytes)).sum()
    }
}

/// Number of columns that are read.
const MAX_COLUMNS: usize = 16;

/// Positions of the columns.
#[derive(Clone, Copy)]
struct Form {
    time: usize,
    kind: usize,
    size: usize,
}

impl Form {
    /// Determines the format of a trace from its first frame.
    fn of(words: &[&str]) -> Option<Form> {
        match words.iter().position(|word| frame_type(word).is_some())? {
            1 if words.len() == 3 => Some(Form { time: 0, kind: 1, size: 2 }),
            1 => Some(Form { time: 2, kind: 1, size: 3 }),
            2 => Some(Form { time: 1, kind: 2, size: 3 }),
            _ => None,
        }
    }

    fn read(self, words: &[&str], units: TraceUnits) -> Result<(Span, FrameType, u32), String> {
        let column = |place: usize, what: &str| {
            let missing = || alloc::format!("column {} ({what}) is missing", place + 1);
            words.get(place).copied().ok_or_else(missing)
        };
        let wrong = |what: &str, word: &str, wanted: &str| {
            let word: String = word.chars().take(20).flat_map(char::escape_default).collect();
            alloc::format!("{what} \"{word}\" is not {wanted}")
        };
        let word = column(self.time, "time")?;
        let time: f64 = word.parse().map_err(|_| wrong("time", word, "a number"))?;
        let ms = if units.seconds { time * 1e3 } else { time };
        if !(0.0..=MAX_TIME_MS).contains(&ms) {
            return Err(wrong("time", word, "between 0 and 10⁶ s"));
        }
        let word = column(self.kind, "frame type")?;
        let kind = frame_type(word).ok_or_else(|| wrong("frame type", word, "I, P or B"))?;
        let word = column(self.size, "size")?;
        let size: u64 = word.parse().map_err(|_| wrong("size", word, "a whole number"))?;
        let bytes = if units.bits { size.div_ceil(8) } else { size };
        match u32::try_from(bytes) {
            Ok(bytes) if bytes <= MAX_FRAME_BYTES => {
                Ok((Span(libm::round(ms * 1e6) as u64), kind, bytes))
            }
            _ => Err(wrong("size", word, "at most 16 MiB")),
        }
    }
}

fn frame_type(word: &str) -> Option<FrameType> {
    match word {
        "I" | "IDR" | "H" => Some(FrameType::I),
        "P" => Some(FrameType::P),
        "B" => Some(FrameType::B),
        _ => None,
    }
}

impl fmt::Display for Trace {
    /// Writes the format `number type time size` in milliseconds and bytes, which [`Trace::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# number type time_ms size_bytes, in the order of sending")?;
        for (number, frame) in self.frames.iter().enumerate() {
            let Frame { at, kind, bytes } = frame;
            let (ms, ns) = (at.0 / 1_000_000, at.0 % 1_000_000);
            writeln!(f, "{number} {kind:?} {ms}.{ns:06} {bytes}")?;
        }
        Ok(())
    }
}

/// Size distribution of the frames of one type: lognormal, as found by Krunz, Sass and Hughes (Statistical
/// characteristics and multiplexing of MPEG streams, 1995).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Mean in bytes.
    pub mean_bytes: f64,
    /// Coefficient of variation: standard deviation divided by the mean.
    pub variation: f64,
}

impl Sizes {
    fn draw(&self, rng: &mut Rng) -> u32 {
        let sigma2 = libm::log(1.0 + self.variation * self.variation);
        let mu = libm::log(self.mean_bytes) - sigma2 / 2.0;
        let drawn = libm::exp(mu + libm::sqrt(sigma2) * normal(rng));
        libm::round(drawn.clamp(1.0, f64::from(MAX_FRAME_BYTES))) as u32
    }
}

/// Parameters of a generated trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// Frame types of a group of pictures in display order; the group repeats.
    pub group: &'static [FrameType],
    /// Time between frames.
    pub interval: Span,
    /// Sizes of I, P and B frames.
    pub sizes: [Sizes; 3],
}

/// IBBPBBPBBPBB.
const MPEG_GROUP: [FrameType; 12] = {
    use FrameType::{B, I, P};
    [I, B, B, P, B, B, P, B, B, P, B, B]
};

impl Pattern {
    /// MPEG-1 video of a film at 25 frames per second, in groups IBBPBBPBBPBB. The sizes are our choice: the mean
    /// of all frames is 1 635 bytes (327 kbit/s) and their standard deviation 1.13 times the mean, as Rose found
    /// in Jurassic Park (Statistical properties of MPEG video traffic and their impact on traffic modeling in ATM
    /// systems, 1995, "dino").
    pub(crate) const MPEG: Pattern = Pattern {
        group: &MPEG_GROUP,
        interval: Span::from_millis(40),
        sizes: [
            Sizes { mean_bytes: 6_875.0, variation: 0.3 },
            Sizes { mean_bytes: 1_750.0, variation: 0.6 },
            Sizes { mean_bytes: 938.0, variation: 0.5 },
        ],
    };

    /// Generates a trace with this many groups from a seed.
    #[must_use]
    pub fn generate(&self, groups: u32, seed: u64) -> Trace {
        let mut rng = Rng::new(seed);
        let mut shown = 0;
        let mut frames = Vec::new();
        for _ in 0..groups {
            for kind in self.group {
                let bytes = self.sizes[*kind as usize].draw(&mut rng);
                frames.push(Frame { at: self.interval * shown, kind: *kind, bytes });
                shown += 1;
            }
        }
        Trace::new(frames).expect("a pattern of two frames or more at rising times")
    }
}

impl Trace {
    /// Our default trace: 60 groups of [`Pattern::MPEG`], 28.8 s, always identical.
    #[must_use]
    pub(crate) fn mpeg() -> Trace {
        Pattern::MPEG.generate(60, 0x6d70_6567)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    /// The start of a film in the verbose format: B frames follow the P frame on which they depend.
    const LONG: &str = "\
# A comment.
Frame No. Frametype Time[ms] Length[byte]
1 I 0 534
2\tP\t120\t1542   # shown later

3 B 40 134
4 B 80 390
5 P 240 765
";

    #[test]
    fn frames_leave_in_coding_order_at_the_times_of_display_in_order() {
        let trace = Trace::parse(LONG, TraceUnits::MS_BYTES).unwrap();
        let frames: Vec<_> =
            trace.frames().iter().map(|f| (f.at.0 / 1_000_000, f.kind, f.bytes)).collect();
        use FrameType::{B, I, P};
        assert_eq!(
            frames,
            [(0, I, 534), (40, P, 1542), (80, B, 134), (120, B, 390), (240, P, 765)]
        );
        assert_eq!((trace.bytes(), trace.period()), (3_365, Span::from_millis(300)));
    }

    #[test]
    fn the_usual_forms_are_told_apart_by_the_place_of_the_type() {
        let long = Trace::parse(LONG, TraceUnits::MS_BYTES).unwrap();
        let quality =
            "1 0.0 I 534 38.1\n2 120.0 P 1542 37\n3 40 B 134 0\n4 80 B 390 0\n5 240 P 765 1\n";
        assert_eq!(Trace::parse(quality, TraceUnits::MS_BYTES).unwrap(), long);
        let short = "0 I 534\n120 P 1542\n40 B 134\n80 B 390\n240 P 765";
        assert_eq!(Trace::parse(short, TraceUnits::MS_BYTES).unwrap(), long);
        let units = TraceUnits { seconds: true, bits: true };
        let other = "1 I 0 4272\n2 P 0.120 12336\n3 B 0.04 1072\r\n4 B 0.08 3113\n5 P 0.24 6120\n";
        assert_eq!(Trace::parse(other, units).unwrap(), long, "3113 bits are 390 bytes and a bit");
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let error = |text: &str| Trace::parse(text, TraceUnits::MS_BYTES).unwrap_err().to_string();
        assert_eq!(error(""), "1: a trace needs at least two frames");
        assert_eq!(error("# one\n1 I 0 5\n"), "2: a trace needs at least two frames");
        assert_eq!(error("1 I 0 5\n2 P 40"), "2: column 4 (size) is missing");
        assert_eq!(error("1 I 0 5\n2 X 40 5"), "2: frame type \"X\" is not I, P or B");
        assert_eq!(error("1 I 0 5\n\n2 P soon 5"), "3: time \"soon\" is not a number");
        assert_eq!(error("1 I 0 5\n2 P -1 5"), "2: time \"-1\" is not between 0 and 10⁶ s");
        assert_eq!(error("1 I NaN 5\n"), "1: time \"NaN\" is not between 0 and 10⁶ s");
        assert_eq!(error("1 I 0 5\n2 P 40 -5"), "2: size \"-5\" is not a whole number");
        assert_eq!(error("1 I 0 5\n2 P 40 16777217"), "2: size \"16777217\" is not at most 16 MiB");
        assert_eq!(error("1 I 0 5\n2 P 0 5"), "2: there are more than 100000 frames a second");
        assert_eq!(error("1 I 0 0\n2 P 40 0"), "2: all frames are empty");
        let no_type = "1: no column is a frame type (I, P or B) where one is expected";
        assert_eq!(error("0 40 534"), no_type);
        assert_eq!(error("1 2 3 4 I"), no_type);
        assert_eq!(
            error("1 I 0 5\n2 P \u{7}\u{1b}[2J 5"),
            "2: time \"\\u{7}\\u{1b}[2J\" is not a number"
        );
    }

    #[test]
    fn a_trace_reads_back_from_its_own_text() {
        let trace = Trace::mpeg();
        assert_eq!(Trace::parse(&trace.to_string(), TraceUnits::MS_BYTES), Ok(trace));
    }

    #[test]
    fn our_film_has_the_mean_and_the_variation_of_jurassic_park() {
        let trace = Pattern::MPEG.generate(4_000, 1);
        let sizes: Vec<f64> = trace.frames().iter().map(|f| f64::from(f.bytes)).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let square =
            sizes.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / sizes.len() as f64;
        assert!((1_600.0..1_670.0).contains(&mean), "{mean}");
        let variation = libm::sqrt(square) / mean;
        assert!((1.10..1.16).contains(&variation), "{variation}");
    }

    #[test]
    fn our_trace_never_changes() {
        let trace = Trace::mpeg();
        let first: Vec<_> = trace.frames()[..4].iter().map(|f| (f.kind, f.bytes)).collect();
        use FrameType::{B, I, P};
        assert_eq!(first, [(I, 10_720), (B, 1_309), (B, 1_215), (P, 1_919)]);
        assert_eq!((trace.frames().len(), trace.bytes()), (720, 1_194_271));
    }

    #[test]
    fn frames_at_falling_times_make_no_trace() {
        let frame = |ms| Frame { at: Span::from_millis(ms), kind: FrameType::I, bytes: 1 };
        assert!(Trace::new(vec![frame(40), frame(0)]).is_err());
        assert_eq!(Trace::new(vec![frame(40), frame(80)]).unwrap().frames()[0].at, Span::ZERO);
    }
}
