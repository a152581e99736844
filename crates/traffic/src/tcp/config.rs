//! Every parameter of the transport models, and the profiles that set them together.

use segue_clock::Span;

use super::cubic;

/// Which sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Slow start, congestion avoidance, fast retransmit (Jacobson 1988).
    Tahoe,
    /// With fast recovery (RFC 5681).
    Reno,
    /// Stays in fast recovery until all that was outstanding is acknowledged (RFC 6582).
    NewReno,
    /// Selective acknowledgements, counting what is in the pipe (Fall and Floyd 1996, RFC 2018).
    Sack,
    /// Forward acknowledgement (Mathis and Mahdavi 1996).
    Fack,
    /// Holds its queue between two bounds (Brakmo and Peterson 1995).
    Vegas,
    /// A window that grows with the cube of time (RFC 9438), recovery by RFC 6675.
    Cubic,
    /// Loss by time, and probes for a lost tail (RFC 8985).
    Rack,
}

impl Variant {
    /// All of them: those of paper 4 in its order, then the newer ones.
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

    /// Whether it wants selective acknowledgements.
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

/// What a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Whole segments, however full they are.
    Packets,
    /// Bytes.
    Bytes,
}

/// What is halved when a loss is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halving {
    /// The usable window, with its fraction (ns-2 `precision_reduce_`).
    Window,
    /// The usable window, rounded down before and after.
    WholeWindow,
    /// What is outstanding (RFC 5681, equation 4).
    Flight,
}

/// What makes the window of the variants that repair losses by SACK: `sack` with a scoreboard, `cubic` and
/// `rack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// How an acknowledgement opens the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// One segment for each acknowledgement in slow start, 1/cwnd of one above it (RFC 5681, equation 3).
    PerAck,
    /// By what was acknowledged, in slow start at most this many segments at once (RFC 3465).
    PerByte(u32),
}

/// The round-trip estimator and its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Shortest timeout.
    pub min: Span,
    /// Longest timeout.
    pub max: Span,
    /// Timeout before the first sample.
    pub first: Span,
    /// Granularity of the clock.
    pub tick: Span,
    /// Samples and estimates are whole ticks, as in ns-2 and 4.4BSD. Otherwise RFC 6298 in nanoseconds,
    /// where the tick is its G.
    pub whole_ticks: bool,
    /// Apply the lower bound before the backoff doubles it, as RFC 6298 orders it, and not after.
    pub min_before_backoff: bool,
}

/// A transport connection's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Which sender.
    pub variant: Variant,
    /// What its windows count.
    pub counting: Counting,
    /// Bytes of payload in a full segment.
    pub mss: u32,
    /// Bytes of IP and TCP header of a data segment.
    pub header: u32,
    /// Bytes of a packet that only acknowledges.
    pub ack_bytes: u32,
    /// By how many bytes SACK blocks make an acknowledgement longer: once, and for each block (RFC 2018: 2 and
    /// 8, with the padding to whole words 4 and 8).
    pub sack_bytes: (u32, u32),
    /// Most SACK blocks in an acknowledgement.
    pub sack_blocks: u8,
    /// Report a duplicate in the first block (RFC 2883).
    pub dsack: bool,
    /// Maximum window in segments (the receiver's window).
    pub window: u32,
    /// Acknowledge every second segment, or after this long. `None` acknowledges each.
    pub delayed_ack: Option<Span>,
    /// First congestion window in segments.
    pub initial_window: u32,
    /// First slow-start threshold in segments; `None` is the maximum window.
    pub initial_ssthresh: Option<u32>,
    /// The retransmission timer.
    pub rto: Rto,
    /// Timestamps echoed by the receiver give a sample for each acknowledgement (RFC 7323). Otherwise
    /// one segment is timed at a time, and none that was sent twice (Karn).
    pub timestamps: bool,
    /// Duplicate acknowledgements that make a loss.
    pub dupack_threshold: u32,
    /// Send a new segment on each duplicate below the threshold (RFC 3042).
    pub limited_transmit: bool,
    /// What is halved.
    pub halving: Halving,
    /// How the window grows.
    pub growth: Growth,
    /// What makes the window where recovery is not a part of it.
    pub congestion: Congestion,
    /// What may be set of CUBIC.
    pub cubic: cubic::Parameters,
    /// `sack` keeps RFC 6675's scoreboard; otherwise it counts the pipe as ns-2 does.
    pub scoreboard: bool,
    /// The congestion window stops at the maximum window.
    pub clamp: bool,
    /// No second fast retransmit until all that was outstanding at the last one, or at a timeout, is
    /// acknowledged (ns-2 `bugFix_`, RFC 6582 section 3.2).
    pub careful: bool,
    /// Reno and NewReno: duplicates inflate the window in a recovery only (ns-2 `exitFastRetrans_`, of July 2003).
    /// Before, every third and later duplicate did, those too that `careful` lets retransmit nothing.
    pub inflate_in_recovery_only: bool,
    /// NewReno: only the first partial acknowledgement restarts the timer ("impatient", RFC 6582 section 4).
    pub impatient: bool,
    /// NewReno: a partial acknowledgement takes from the inflated window what it acknowledges, less one
    /// segment (RFC 6582, section 3.2); otherwise all of the inflation.
    pub partial_deflation: bool,
    /// NewReno: at most this many segments for each acknowledgement in recovery.
    pub recovery_burst: Option<u32>,
    /// NewReno: the window at the end of recovery is no more than what is outstanding and one segment
    /// (RFC 6582, section 3.2, step 3, option 1).
    pub exit_burst_guard: bool,
    /// Vegas: least and most segments of its own in the queue, and the bound that ends slow start.
    pub vegas: (u32, u32, u32),
    /// Vegas with what ns-2 adds to the paper: a fine-grained timeout that is a sixteenth longer, and longer
    /// still after a fast retransmit, which doubles the retransmission timeout too; half the window, not
    /// three quarters, where the segment had been sent again before; a base round trip that starts afresh
    /// in a round trip with a single segment; after a retransmission no second look once the first
    /// acknowledgement found nothing.
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

    /// ns-2 as it was before May 2001, when paper 4's runs were made.
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

    /// The RFCs of today with a host's usual settings: bytes, an initial window of 10 segments (RFC 6928),
    /// timestamps, delayed acknowledgements, RFC 6298 with a lower bound of 200 ms as Linux has it.
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
