//! Definitions of all metrics.

use super::{Kind, Metric};

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter }
}

/// Seconds. The help text of each metric states its meaning.
pub static RTT: Metric = gauge("segue_rtt_seconds", "Last round-trip time.");
/// Seconds.
pub static RTT_UNCERTAINTY: Metric = gauge(
    "segue_rtt_uncertainty_seconds",
    "How far the last round-trip time may be off because of how stamps were taken.",
);
/// Seconds; label `direction`.
pub(crate) static JITTER: Metric = gauge(
    "segue_jitter_seconds",
    "Mean difference between one delay and the next, smoothed as by RFC 3550, by direction.",
);
/// Seconds; label `tau`.
pub static RTT_AVERAGE: Metric = gauge(
    "segue_rtt_average_seconds",
    "Exponentially weighted average of the round-trip time, by time constant.",
);
/// Shares of 1; labels `direction` and `tau`.
pub static LOSS: Metric = gauge(
    "segue_loss_ratio",
    "Exponentially weighted average of the loss, by direction (up: from client to server; both: round trip) and time constant.",
);
/// Label `direction`.
pub static PACKETS_SENT: Metric = counter(
    "segue_packets_sent_total",
    "Packets that left, by direction, as of the last exchange.",
);
/// Label `direction`.
pub static PACKETS_RECEIVED: Metric = counter(
    "segue_packets_received_total",
    "Packets that arrived, by direction, as of the last exchange.",
);
/// Label `state`, with one value per state.
pub static STATE: Metric =
    gauge("segue_path_state", "1 for the state that the path is in, 0 for the others.");
/// A count, like all metrics that end in `_total`.
pub static TRANSITIONS: Metric =
    counter("segue_transitions_total", "Changes of state but for the first coming up.");
/// A count.
pub(crate) static DUPLICATES: Metric =
    counter("segue_duplicates_total", "Probes that arrived more than once.");
/// A count.
pub(crate) static REORDERED: Metric =
    counter("segue_reordered_total", "Probes that a newer one had overtaken.");
/// A count: requests at a client, answers at a listener.
pub static PROBES_SENT: Metric = counter("segue_probes_sent_total", "Probes sent by this end.");
/// A count: answers at a client, requests at a listener.
pub static PROBES_RECEIVED: Metric =
    counter("segue_probes_received_total", "Probes that arrived at this end and counted.");
/// Label `reason`: a name of `segue_wire::DropReason`, or one of a few specific to this end.
pub static DROPS: Metric = counter("segue_drops_total", "Packets refused, by reason.");
/// A count; label `protocol`.
pub(crate) static KERNEL_ANSWERS: Metric = counter(
    "segue_kernel_answers_total",
    "Requests answered by the program in the kernel, which no session counts, by protocol.",
);
/// 1 or 0; only at a host.
pub static REGISTERED: Metric =
    gauge("segue_registered", "1 while the host is registered at its anchor, else 0.");
/// Registered hosts; only at an anchor.
pub static HOSTS: Metric = gauge("segue_hosts", "Hosts that are registered at this anchor.");
/// Label `state`.
pub static PATHS: Metric = gauge("segue_paths", "Paths of this daemon, by state.");
/// Bytes; label `direction`.
pub static BYTES: Metric = counter(
    "segue_inner_bytes_total",
    "Bytes of inner packets on the path as counted by this end, by direction (up: towards the anchor).",
);
/// A count.
pub static REINJECTED: Metric = counter(
    "segue_reinjected_total",
    "Packets sent a second time over another path, while their own was in doubt.",
);
/// Labels `kind` and `cause`, as in events; no `cause` if the event has none.
pub static EVENTS: Metric =
    counter("segue_events_total", "What happened, by kind of event and, where it has one, cause.");
/// A count.
pub static DOUBTS: Metric = counter(
    "segue_doubts_total",
    "How often something that was due on the path did not come, so that questions were asked.",
);
/// Always 1; labels `class` and `path`.
pub static CLASS_PATH: Metric =
    gauge("segue_class_path", "1 for the path that flows of the class use, by class.");
/// Bytes; label `direction`.
pub static PATH_MTU: Metric = gauge(
    "segue_path_mtu_bytes",
    "The largest IP packet that was found to pass over the path, by direction.",
);
/// Interfaces of hosts, each with a binding.
pub static BINDINGS: Metric =
    gauge("segue_bindings", "Interfaces of hosts that have a binding at this anchor.");
/// Flows.
pub static FLOWS: Metric = gauge("segue_flows", "Flows that this anchor places by themselves.");
/// Interfaces of hosts.
pub static ATTACHED: Metric =
    gauge("segue_attached", "Interfaces of hosts that are at this gateway.");
/// Functions.
pub static MIH_PEERS: Metric =
    gauge("segue_mih_registered", "Functions of IEEE 802.21 that are registered here.");
/// Label `reason`.
pub static REFUSED: Metric =
    counter("segue_refused_messages_total", "Messages of signalling that were refused, by reason.");
/// Seconds.
pub static UPTIME: Metric = gauge("segue_uptime_seconds", "Time since the daemon started.");
/// Always 1; the labels carry the information.
pub static INFO: Metric = gauge("segue_info", "Role, version and datapath of this daemon.");
/// Clients that a listener knows.
pub(crate) static SESSIONS: Metric = gauge("segue_sessions", "Clients of this listener.");
