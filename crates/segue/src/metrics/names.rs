//! Every metric, once.

use super::{Kind, Metric};

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter }
}

/// See its help, as with all that follow.
pub static RTT: Metric = gauge("segue_rtt_seconds", "Last round-trip time.");
/// How far off.
pub static RTT_UNCERTAINTY: Metric = gauge(
    "segue_rtt_uncertainty_seconds",
    "How far the last round-trip time may be off because of how stamps were taken.",
);
/// By direction.
pub static JITTER: Metric = gauge(
    "segue_jitter_seconds",
    "Mean difference between one delay and the next, smoothed as by RFC 3550, by direction.",
);
/// By time constant.
pub static RTT_AVERAGE: Metric = gauge(
    "segue_rtt_average_seconds",
    "Exponentially weighted average of the round-trip time, by time constant.",
);
/// By direction and time constant.
pub static LOSS: Metric = gauge(
    "segue_loss_ratio",
    "Exponentially weighted average of the loss, by direction (up: from client to server) and time constant.",
);
/// By direction.
pub static PACKETS_SENT: Metric = counter(
    "segue_packets_sent_total",
    "Packets that left, by direction, as of the last exchange.",
);
/// By direction.
pub static PACKETS_RECEIVED: Metric = counter(
    "segue_packets_received_total",
    "Packets that arrived, by direction, as of the last exchange.",
);
/// One value for each state.
pub static STATE: Metric =
    gauge("segue_path_state", "1 for the state that the path is in, 0 for the others.");
/// Ups and downs.
pub static TRANSITIONS: Metric =
    counter("segue_transitions_total", "Changes of state but for the first coming up.");
/// Twice.
pub static DUPLICATES: Metric =
    counter("segue_duplicates_total", "Probes that arrived more than once.");
/// Overtaken.
pub static REORDERED: Metric =
    counter("segue_reordered_total", "Probes that a newer one had overtaken.");
/// Requests or answers.
pub static PROBES_SENT: Metric = counter("segue_probes_sent_total", "Probes sent by this end.");
/// Answers or requests.
pub static PROBES_RECEIVED: Metric =
    counter("segue_probes_received_total", "Probes that arrived at this end and counted.");
/// By reason.
pub static DROPS: Metric = counter("segue_drops_total", "Packets refused, by reason.");
/// By protocol.
pub static KERNEL_ANSWERS: Metric = counter(
    "segue_kernel_answers_total",
    "Requests answered by the program in the kernel, which no session counts, by protocol.",
);
/// Of a listener.
pub static SESSIONS: Metric = gauge("segue_sessions", "Clients of this listener.");
