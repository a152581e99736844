//! The parameters of the transport models, and profiles that set them together.

use segue_clock::Span;

use super::cubic;

/// Sender variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Slow start, congestion avoidance and fast retransmit (Jacobson 1988).
    Tahoe,
    /// Adds fast recovery (RFC 5681).
    Reno,
    /// Stays in fast recovery until all outstanding data are acknowledged (RFC 6582).
    NewReno,
    /// Selective acknowledgements with an estimate of the data in the pipe (Fall and Floyd 1996, RFC 2018).
    Sack,
    /// Forward acknowledgement (Mathis and Mahdavi 1996).
    Fack,
    /// Keeps its share of the queue between two bounds (Brakmo and Peterson 1995).
    Vegas,
    /// A window that grows with the cube of time (RFC 9438), with recovery by RFC 6675.
    Cubic,
    /// Loss detection by time, and tail loss probes (RFC 8985).
    Rack,
}

impl Variant {
    /// All variants: those of paper 4 in its order, then the newer ones.
    pub const ALL: [Variant; 8] = [
        Variant::Tahoe,
        Variant::Reno,
        Variant::NewReno,
        Variant::Sack,
        Variant::Fack,
        Variant::Vegas,
        Variant::Cubic,
        Variant::Rack,
    ];

    /// Returns true if it uses selective acknowledgements.
    #[must_use]
    pub(crate) fn selective(self) -> bool {
        matches!(self, Variant::Sack | Variant::Fack | Variant::Cubic | Variant::Rack)
    }

    /// Its name in scenarios and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Variant::Tahoe => "tahoe",
            Variant::Reno => "reno",
            Variant::NewReno => "newreno",
            Variant::Sack => "sack",
            Variant::Fack => "fack",
            Variant::Vegas => "vegas",
            Variant::Cubic => "cubic",
            Variant::Rack => "rack",
        }
    }
}

/// Unit of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Segments, regardless of their size.
    Packets,
    /// Bytes.
    Bytes,
}

/// The quantity that is halved after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halving {
    /// The usable window, including its fraction (ns-2 `precision_reduce_`).
    Window,
    /// The usable window, rounded down before and after.
    WholeWindow,
    /// The outstanding data (RFC 5681, equation 4).
    Flight,
}

/// Congestion control for the variants that repair losses by SACK: `sack` with a scoreboard, `cubic` and `rack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// Window growth per acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// One segment per acknowledgement in slow start, 1/cwnd of a segment above it (RFC 5681, equation 3).
    PerAck,
    /// By the acknowledged data; in slow start at most this many segments at once (RFC 3465).
    PerByte(u32),
}

/// The round-trip estimator and its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Minimum timeout.
    pub min: Span,
    /// Maximum timeout.
    pub max: Span,
    /// Timeout before the first sample.
    pub first: Span,
    /// Granularity of the clock.
    pub tick: Span,
    /// Samples and estimates are whole ticks, as in ns-2 and 4.4BSD. Otherwise RFC 6298 in nanoseconds, with the
    /// tick as its G.
    pub whole_ticks: bool,
    /// Apply the lower bound before the backoff doubles the timeout, as in RFC 6298, rather than after.
    pub min_before_backoff: bool,
}

/// A transport connection's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The sender variant.
    pub variant: Variant,
    /// Unit of windows.
    pub counting: Counting,
    /// Payload of a full segment, in bytes.
    pub mss: u32,
    /// IP and TCP header of a data segment, in bytes.
    pub header: u32,
    /// Size of a pure acknowledgement, in bytes.
    pub ack_bytes: u32,
    /// Additional bytes of an acknowledgement with SACK blocks: once, and per block (RFC 2018: 2 and 8; with
    /// padding to whole words 4 and 8).
    pub sack_bytes: (u32, u32),
    /// Maximum number of SACK blocks in an acknowledgement.
    pub sack_blocks: u8,
    /// Report a duplicate in the first block (RFC 2883).
    pub dsack: bool,
    /// Maximum window in segments (the receiver's window).
    pub window: u32,
    /// Acknowledge every second segment, or after this delay. `None` acknowledges each segment.
    pub delayed_ack: Option<Span>,
    /// Initial congestion window in segments.
    pub initial_window: u32,
    /// Initial slow-start threshold in segments; `None`: the maximum window.
    pub initial_ssthresh: Option<u32>,
    /// The retransmission timer.
    pub rto: Rto,
    /// Use timestamps echoed by the receiver for an RTT sample per acknowledgement (RFC 7323). Otherwise one
    /// segment is timed at a time, and never a retransmitted one (Karn).
    pub timestamps: bool,
    /// Number of duplicate acknowledgements that indicate a loss.
    pub dupack_threshold: u32,
    /// Send a new segment on each duplicate below the threshold (RFC 3042).
    pub limited_transmit: bool,
    /// The quantity that is halved after a loss.
    pub halving: Halving,
    /// Window growth.
    pub growth: Growth,
    /// Congestion control of variants whose recovery does not determine the window.
    pub congestion: Congestion,
    /// Parameters of CUBIC.
    pub cubic: cubic::Parameters,
    /// `sack` uses RFC 6675's scoreboard; otherwise it estimates the pipe as ns-2 does.
    pub scoreboard: bool,
    /// Limit the congestion window to the maximum window.
    pub clamp: bool,
    /// No second fast retransmit until all data outstanding at the previous one, or at a timeout, are
    /// acknowledged (ns-2 `bugFix_`, RFC 6582 section 3.2).
    pub careful: bool,
    /// Reno and NewReno: duplicates inflate the window only during recovery (ns-2 `exitFastRetrans_`, July 2003).
    /// Previously every third and later duplicate did, even those on which `careful` forbids a retransmission.
    pub inflate_in_recovery_only: bool,
    /// NewReno: only the first partial acknowledgement restarts the timer ("impatient", RFC 6582 section 4).
    pub impatient: bool,
    /// NewReno: a partial acknowledgement deflates the window by the acknowledged data minus one segment (RFC
    /// 6582, section 3.2); otherwise it removes the whole inflation.
    pub partial_deflation: bool,
    /// NewReno: maximum number of segments per acknowledgement during recovery.
    pub recovery_burst: Option<u32>,
    /// NewReno: limit the window at the end of recovery to the outstanding data plus one segment (RFC 6582,
    /// section 3.2, step 3, option 1).
    pub exit_burst_guard: bool,
    /// Vegas: minimum and maximum number of its segments in the queue, and the bound that ends slow start.
    pub vegas: (u32, u32, u32),
    /// Vegas with ns-2's additions to the paper: a fine-grained timeout that is a sixteenth longer, and longer
    /// still after a fast retransmit, which also doubles the retransmission timeout; half the window instead of
    /// three quarters if the segment had been retransmitted before; a base RTT that restarts in a round trip with
    /// a single segment; after a retransmission no second check once the first acknowledgement found nothing.
    pub vegas_of_ns2: bool,
}

impl Config {
    /// ns-2.35's defaults.
    #[must_use]
    pub fn ns2_35(variant: Variant) -> Config {
        Config {
            variant,
            counting: Counting::Packets,
            mss: 1440,
            header: 40,
            ack_bytes: 40,
            sack_bytes: (0, 0),
            sack_blocks: if variant.selective() { 3 } else { 0 },
            dsack: false,
            window: 20,
            delayed_ack: None,
            initial_window: 2,
            initial_ssthresh: None,
            rto: Rto {
                min: Span::from_millis(200),
                max: Span::from_secs(60),
                first: Span::from_secs(3),
                tick: Span::from_millis(10),
                whole_ticks: true,
                min_before_backoff: true,
            },
            timestamps: variant == Variant::Fack,
            dupack_threshold: 3,
            limited_transmit: true,
            halving: Halving::Window,
            growth: Growth::PerAck,
            congestion: match variant {
                Variant::Cubic | Variant::Rack => Congestion::Cubic,
                _ => Congestion::Reno,
            },
            cubic: cubic::Parameters::default(),
            scoreboard: false,
            clamp: false,
            careful: true,
            inflate_in_recovery_only: true,
            impatient: true,
            partial_deflation: true,
            recovery_burst: Some(2),
            exit_burst_guard: false,
            vegas: (1, 3, 1),
            vegas_of_ns2: true,
        }
    }

    /// ns-2 as of before May 2001, when paper 4's runs were made.
    #[must_use]
    pub fn ns2_2001(variant: Variant) -> Config {
        let now = Config::ns2_35(variant);
        Config {
            initial_window: 1,
            rto: Rto {
                min: Span::ZERO,
                first: Span::from_secs(6),
                tick: Span::from_millis(100),
                min_before_backoff: false,
                ..now.rto
            },
            limited_transmit: false,
            halving: Halving::WholeWindow,
            inflate_in_recovery_only: false,
            impatient: false,
            partial_deflation: false,
            recovery_burst: Some(4),
            ..now
        }
    }

    /// Current RFCs with a host's usual settings: bytes, an initial window of 10 segments (RFC 6928), timestamps,
    /// delayed acknowledgements, and RFC 6298 with Linux's lower bound of 200 ms.
    #[must_use]
    pub fn modern(variant: Variant) -> Config {
        let old = Config::ns2_35(variant);
        Config {
            counting: Counting::Bytes,
            sack_bytes: (4, 8),
            dsack: true,
            delayed_ack: Some(Span::from_millis(40)),
            initial_window: 10,
            rto: Rto {
                first: Span::from_secs(1),
                tick: Span::from_millis(1),
                whole_ticks: false,
                ..old.rto
            },
            timestamps: true,
            halving: Halving::Flight,
            growth: Growth::PerByte(2),
            scoreboard: true,
            clamp: true,
            recovery_burst: None,
            exit_burst_guard: true,
            vegas_of_ns2: false,
            ..old
        }
    }
}
