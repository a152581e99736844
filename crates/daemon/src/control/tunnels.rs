//! The vocabulary of hosts and anchors on their control sockets.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use segue_clock::Span;
use segue_probe::metrics::Page;
use segue_tunnel::{Report, Takes};
use serde::{Deserialize, Serialize};

use super::{Client, NO_SENSE, News, Request, Response, Status, Vocabulary, expecting};
use super::{FilterStatus, PathSample, WifiStatus};
use crate::locator::Locator;

/// The roles with this vocabulary.
pub const ROLES: [&str; 2] = ["host", "anchor"];

/// The vocabulary of hosts and anchors.
#[derive(Clone, Copy, Debug)]
pub enum Tunnels {}

impl Vocabulary for Tunnels {
    type News = Report;
    type Request = TunnelRequest;
    type Answer = TunnelAnswer;
    type Status = TunnelStatus;
    type Event = TunnelEvent;

    fn datapath(status: &Status<Tunnels>) -> String {
        status.body.datapath.clone()
    }

    fn metrics(status: &Status<Tunnels>, page: &mut Page) {
        super::metrics::of_tunnels(status, page);
    }
}

/// A request to a host or an anchor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelRequest {
    /// Some of the flows: a [`FlowsPage`].
    Flows {
        /// Start of the page: 0, or `next` of the previous page.
        #[serde(default)]
        from: u64,
        /// Only flows of this host, by name (anchor).
        #[serde(default)]
        host: Option<String>,
    },
    /// Moves flows (host).
    Handover {
        /// One flow, as `segue flows` prints it.
        flow: Option<String>,
        /// A class by name; all classes if neither is given.
        class: Option<String>,
        /// The path; back to automatic if not given.
        to: Option<String>,
    },
    /// Switches the keepalive of a path on or off (host).
    Keepalive {
        /// The path.
        path: String,
        /// True to switch probing on.
        on: bool,
    },
    /// Makes a join line for a host (anchor).
    Enroll {
        /// The host's name.
        name: String,
        /// Addresses at which the host reaches the anchor; the anchor's own if empty.
        addresses: Vec<Locator>,
        /// How long the join line is valid, in seconds; a day if not given.
        #[serde(default)]
        valid_s: Option<u64>,
    },
    /// Lists the enrolled hosts (anchor).
    Enrolments,
    /// Ends a host's enrolment (anchor).
    Unenroll {
        /// The host's name.
        name: String,
    },
}

/// An answer of a host or an anchor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelAnswer {
    /// To [`TunnelRequest::Flows`].
    Flows(FlowsPage),
    /// To [`TunnelRequest::Enrolments`].
    Enrolments(Vec<EnrolmentStatus>),
}

/// The status of a host or an anchor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// `ebpf`, `ebpf+xdp` or `user`.
    pub datapath: String,
    /// The tunnel device.
    pub device: String,
    /// The host is registered; on an anchor, it listens.
    pub registered: bool,
    /// The anchor in use (host).
    pub anchor: Option<String>,
    /// Own inner addresses.
    pub inner: Vec<String>,
    /// The interface that carries signalling (host).
    pub signalling: Option<String>,
    /// Why the anchor is unreachable (host).
    #[serde(default)]
    pub trouble: Option<TroubleStatus>,
    /// The registered hosts (anchor).
    pub hosts: Vec<HostStatus>,
    /// The paths.
    pub paths: Vec<PathStatus>,
    /// The path that each class of flows uses (host).
    pub classes: BTreeMap<String, String>,
    /// The path to which an operator bound a class of flows (host).
    #[serde(default)]
    pub orders: BTreeMap<String, String>,
    /// Packets sent again over another path while their own path was in doubt.
    pub reinjected: u64,
    /// Flows whose data a path drops while probes pass (host).
    #[serde(default)]
    pub filtered: Vec<FilterStatus>,
    /// IPv6-only accesses, if all addresses of the anchor are IPv4 (host).
    #[serde(default)]
    pub translators: Vec<TranslatorStatus>,
}

/// How an IPv6-only access reaches IPv4 addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TranslatorStatus {
    /// The access.
    pub interface: String,
    /// The prefix of its translator (NAT64), if one is known.
    pub prefix: Option<String>,
    /// How the prefix was learned.
    pub learned: Option<String>,
    /// Why no prefix is known.
    pub why: Option<String>,
}

/// Why the anchor is unreachable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TroubleStatus {
    /// The reason, as a sentence.
    pub why: String,
    /// Seconds since it was last observed.
    pub ago_s: f64,
    /// The anchor refuses this host: nothing changes until an operator acts.
    #[serde(default)]
    pub rejected: bool,
}

/// A registered host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its inner addresses.
    pub inner: Vec<String>,
    /// Its signalling connection is up.
    pub connected: bool,
}

/// An enrolled host, or one with a pending join line. Times are seconds since 1970 on the anchor's
/// clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentStatus {
    /// Its name.
    pub name: String,
    /// `enrolled`; `expired` if its certificate is; `invited` while its join line is pending; `line
    /// expired` if the line was not used in time.
    pub state: String,
    /// Its inner addresses, which it keeps.
    pub inner: Vec<String>,
    /// When it was enrolled, or the line was made.
    pub since_s: u64,
    /// When its certificate, or the line, expires.
    pub expires_s: u64,
    /// Its signalling connection is up.
    pub connected: bool,
    /// When it was last connected. If it has not connected since the anchor started: when it last
    /// registered.
    pub seen_s: Option<u64>,
}

/// A path. Losses and averages are over the time constants in `tau_s`, in that order; empty before the first
/// measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// The host's name (anchor).
    pub host: String,
    /// The path's name: the host's interface.
    pub name: String,
    /// The local address.
    pub local: Option<String>,
    /// Why the local address was chosen (host): `configured`, `preferred` by the routes, or `tried` because preferred
    /// ones got no answer.
    #[serde(default)]
    pub source: String,
    /// The remote address, as last seen.
    pub remote: Option<String>,
    /// `setup`, `starting`, `up` or `down`: requests and answers pass (host), requests arrive
    /// (anchor); `unwatched` if the keepalive is off or, at an anchor, if only the host measures.
    pub state: String,
    /// The measurement mode: `both`, `client`, `reports` or `round-trip-loss`.
    #[serde(default)]
    pub mode: String,
    /// Form of the packets: `segue` or `upmt`.
    #[serde(default)]
    pub encapsulation: String,
    /// Probes may ride on data.
    #[serde(default)]
    pub rides: bool,
    /// Data packets carry a UDP checksum, because a translator is or may be on the path.
    #[serde(default)]
    pub checksums: bool,
    /// Packets towards the host pass, as far as is known.
    pub downlink: bool,
    /// Another path that carries this path's packets.
    pub via: Option<String>,
    /// K.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: f64,
    /// Longest time until an outage is noticed, in milliseconds: T_Rmax (eq. 1) with the largest RTT seen, or the time
    /// of the questions in doubt.
    pub bound_ms: f64,
    /// Time constants of the averages in seconds, for samples worse than the average.
    pub tau_s: Vec<f64>,
    /// The same for samples better than the average; different if averages are asymmetric.
    #[serde(default)]
    pub tau_fall_s: Vec<f64>,
    /// Last round-trip time in milliseconds.
    pub rtt_last_ms: Option<f64>,
    /// Smallest.
    pub rtt_min_ms: Option<f64>,
    /// Largest.
    pub rtt_max_ms: Option<f64>,
    /// Averages.
    pub rtt_ms: Vec<f64>,
    /// One-way loss from host to anchor (OWLc), averages.
    pub owl_up: Vec<f64>,
    /// One-way loss from anchor to host (OWLs), averages.
    pub owl_down: Vec<f64>,
    /// Packets towards the anchor since the first exchange: sent and lost.
    pub up: Count,
    /// Packets towards the host since the first exchange: sent and lost.
    pub down: Count,
    /// Round-trip loss, averages; only if it is evaluated or reported.
    #[serde(default)]
    pub rtl: Vec<f64>,
    /// Largest error of the last round-trip time in milliseconds.
    #[serde(default)]
    pub uncertainty_ms: f64,
    /// Probes that this end has sent, with and without data: requests (host), responses to requests (anchor).
    pub probes_sent: u64,
    /// Probes that rode on data.
    #[serde(default)]
    pub probes_rode: u64,
    /// Probes sent alone.
    #[serde(default)]
    pub probes_alone: u64,
    /// The largest IP packet known to pass upwards, in bytes (host).
    #[serde(default)]
    pub mtu_up: Option<u16>,
    /// The same downwards.
    #[serde(default)]
    pub mtu_down: Option<u16>,
    /// Something expected did not arrive, so questions are being sent (host).
    #[serde(default)]
    pub in_doubt: bool,
    /// Number of times the path was in doubt.
    #[serde(default)]
    pub doubts: u64,
    /// The verdict of the loss test upwards, while it holds (host).
    #[serde(default)]
    pub loses_up: Option<LossStatus>,
    /// The same downwards.
    #[serde(default)]
    pub loses_down: Option<LossStatus>,
    /// Why K and T_KA have their values (host, if they follow the measurements).
    #[serde(default)]
    pub why: Option<WhyStatus>,
    /// Probes received.
    pub probes_received: u64,
    /// Changes between up and down.
    pub transitions: u64,
    /// Packets sent on the path, including probes except questions and their answers, modulo 2³².
    pub tx_packets: u32,
    /// Packets received on the path, likewise.
    pub rx_packets: u32,
    /// Inner bytes sent.
    pub tx_bytes: u64,
    /// Inner bytes received.
    pub rx_bytes: u64,
}

impl PathStatus {
    /// The state to display: a path that is up may be `in doubt` or `lossy`.
    #[must_use]
    pub fn shown_state(&self) -> &str {
        match &*self.state {
            "up" if self.in_doubt => "in doubt",
            "up" if self.loses_up.is_some() || self.loses_down.is_some() => "lossy",
            state => state,
        }
    }
}

/// A direction of a path loses packets.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LossStatus {
    /// Share of the recent packets that was lost.
    pub loss: f64,
    /// Packets counted from the beginning of the loss to the verdict.
    pub sent: u64,
    /// Lost of those.
    pub lost: u64,
    /// Seconds from the beginning of the loss to the verdict.
    pub took_s: f64,
    /// Seconds since the verdict.
    pub ago_s: f64,
}

/// The planner's choice, and the measurements behind it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhyStatus {
    /// K.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: f64,
    /// The path carries data.
    pub active: bool,
    /// Mean round-trip time at that time, in milliseconds.
    pub rtt_ms: f64,
    /// Largest round-trip time at that time, in milliseconds.
    pub rtt_max_ms: f64,
    /// Planned loss towards the anchor.
    pub loss_up: f64,
    /// Planned loss towards the host.
    pub loss_down: f64,
    /// Planned share of probes lost in either direction.
    pub loss: f64,
    /// Mean length of loss bursts in milliseconds; `None` if none was seen.
    pub burst_ms: Option<f64>,
    /// Number of questions in doubt.
    pub questions: u8,
    /// Time from one question to the next, in milliseconds.
    pub spacing_ms: f64,
    /// Time from the beginning of doubt to down (T_D), in milliseconds.
    pub t_d_ms: f64,
    /// Planned mean time between false alarms (T_fp) in seconds; `None` if none is expected.
    pub t_fp_s: Option<f64>,
    /// Planned mean time to notice an outage in milliseconds: from the first lost packet if data flow, else from the
    /// start of the outage.
    pub detection_ms: f64,
    /// The goal that was given up: `nothing` or `false_positives`.
    pub given_up: String,
    /// Seconds since the change.
    pub changed_s: f64,
    /// The whole choice in one sentence.
    pub text: String,
}

/// Packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Sent.
    pub sent: u64,
    /// Lost of those.
    pub lost: u64,
}

/// One page of the flows. A daemon may have a million flows, so a client requests one page after the other, and the
/// daemon serves its paths in between.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowsPage {
    /// The flows.
    pub flows: Vec<FlowStatus>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<u64>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The flow as this end sends it.
    pub flow: String,
    /// Its class (host).
    pub class: Option<String>,
    /// The path it is bound to.
    pub path: String,
    /// The path that carries the flow while its own is dead.
    pub via: Option<String>,
    /// An operator bound it.
    pub pinned: bool,
    /// Packets sent since the flow began, on any path.
    pub packets: u64,
    /// Inner bytes in these packets.
    pub bytes: u64,
    /// Packets received since the flow began, on any path.
    #[serde(default)]
    pub received_packets: u64,
    /// Inner bytes in these packets.
    #[serde(default)]
    pub received_bytes: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: f64,
    /// Why it uses that path.
    pub why: String,
}

/// The content of an event of a host or an anchor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TunnelEvent {
    /// The path, or the one moved from.
    pub path: String,
    /// The path moved to.
    pub to: Option<String>,
    /// `path_state`: the state. `path_mtu`: the sizes. `handover`: the cause.
    pub detail: String,
    /// `path_state`: whether the downlink is heard.
    pub downlink: Option<bool>,
    /// `path_state` down: milliseconds since the last sign that both directions work.
    pub silent_ms: Option<f64>,
    /// `path_state`: the longest time until an outage is noticed, in milliseconds.
    pub bound_ms: Option<f64>,
    /// `handover`: bindings rewritten.
    pub flows: Option<usize>,
    /// `handover`: the class, if only one moved.
    pub class: Option<String>,
    /// `handover`: the scores that led to it, by path (host).
    #[serde(default)]
    pub scores: BTreeMap<String, f64>,
    /// `path_doubt`: duration in milliseconds, once it has ended.
    #[serde(default)]
    pub doubt_ms: Option<f64>,
    /// `sample`: measurements of the path. Only in the event log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<PathSample>,
    /// `sample` and `wifi`: the access point. Only for paths over Wi-Fi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wifi: Option<WifiStatus>,
}

impl From<&PathStatus> for PathSample {
    fn from(path: &PathStatus) -> PathSample {
        let first = |values: &[f64]| values.first().copied();
        PathSample {
            state: path.shown_state().to_owned(),
            rtt_ms: first(&path.rtt_ms),
            loss_up: first(&path.owl_up),
            loss_down: first(&path.owl_down),
        }
    }
}

impl News<TunnelEvent> for Report {
    fn kind(&self) -> &'static str {
        self.kind()
    }

    fn host(&self) -> String {
        self.host().to_owned()
    }

    fn cause(&self) -> &'static str {
        match self {
            Report::Handover { cause, .. } => cause.name(),
            Report::PathState { state, .. } => state.name(),
            Report::PathDoubt { ended, .. } => {
                if ended.is_some() {
                    "ended"
                } else {
                    "began"
                }
            }
            _ => "",
        }
    }

    fn warns(&self) -> bool {
        matches!(self, Report::Refused { .. } | Report::FlowFiltered { .. })
    }

    fn about(&self) -> TunnelEvent {
        let (none, ms) = (TunnelEvent::default(), Span::as_millis_f64);
        match self.clone() {
            Report::Registered { inner, .. } => {
                let inner: Vec<String> = inner.iter().map(ToString::to_string).collect();
                TunnelEvent { detail: inner.join(", "), ..none }
            }
            Report::Refused { reason, .. } => TunnelEvent { detail: reason.to_string(), ..none },
            Report::Gone { .. } => none,
            Report::PathAdded { path, .. } | Report::PathRemoved { path, .. } => {
                TunnelEvent { path, ..none }
            }
            Report::PathState { path, state, heard, silent, bound, .. } => TunnelEvent {
                path,
                detail: state.name().into(),
                downlink: Some(heard),
                silent_ms: silent.map(ms),
                bound_ms: Some(ms(bound)),
                ..none
            },
            Report::PathDoubt { path, ended, .. } => TunnelEvent {
                path,
                detail: if ended.is_some() { "answers" } else { "in doubt" }.into(),
                doubt_ms: ended.map(ms),
                ..none
            },
            Report::PathLoss { path, direction, verdict, .. } => {
                let loss = verdict.map_or(0.0, |verdict| verdict.loss);
                let detail = format!("{} {:.0} %", direction.name(), loss * 100.0);
                TunnelEvent { path, detail, ..none }
            }
            Report::FlowFiltered { flow, path, direction, counted, to, .. } => {
                let detail = format!("{flow} {}: {counted}", direction.name());
                TunnelEvent { path, to, detail, flows: Some(1), ..none }
            }
            Report::PathMtu { path, up, down } => {
                TunnelEvent { path, detail: Takes(up, down).to_string(), ..none }
            }
            Report::Handover { class, from, to, cause, flows, scores, .. } => TunnelEvent {
                path: from,
                to: Some(to),
                detail: cause.name().into(),
                flows: Some(flows),
                class: class.map(|class| class.name().to_owned()),
                scores: scores.into_iter().map(|(path, score)| (path, score.value)).collect(),
                ..none
            },
        }
    }
}

/// Sends a request to a host or an anchor.
pub fn ask(path: &Path, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
    let asked = Client::connect(path)?.ask(&Request::Own(request));
    asked.map_err(|error| of_role(path, error))
}

/// Sends an order to a host or an anchor; returns the daemon's reply.
pub fn order(path: &Path, order: TunnelRequest) -> anyhow::Result<String> {
    match ask(path, order)? {
        Response::Done(said) => Ok(said),
        _ => bail!(NO_SENSE),
    }
}

/// The status of a host or an anchor, with the events from `events_from` on.
pub fn status(path: &Path, events_from: u64) -> anyhow::Result<Status<Tunnels>> {
    super::status(path, events_from).map_err(|error| of_role(path, error))
}

/// Adds the roles that could have answered to an error.
fn of_role(path: &Path, error: anyhow::Error) -> anyhow::Error {
    expecting(path, (&ROLES, "segue host and segue anchor"), error)
}

/// Passes all flows of a daemon, or those of one host (anchor), to `each`, page by page.
pub fn flows(
    path: &Path,
    host: Option<&str>,
    mut each: impl FnMut(Vec<FlowStatus>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(path)?;
    let mut next = Some(0);
    while let Some(from) = next {
        let request = TunnelRequest::Flows { from, host: host.map(str::to_owned) };
        let asked = client.ask::<Tunnels>(&Request::Own(request));
        let whom = "segue host, segue anchor and segue pmip lma";
        let asked = asked.map_err(|error| expecting(path, (&ROLES, whom), error))?;
        let Response::Own(TunnelAnswer::Flows(page)) = asked else {
            bail!(NO_SENSE);
        };
        next = page.next;
        each(page.flows)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{EventRecord, Head};

    /// The keys of an object, sorted.
    fn keys(value: &serde_json::Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn a_status_is_one_flat_object_whose_keys_programs_can_count_on() {
        let events = vec![EventRecord {
            number: 3,
            at_ns: 4,
            unix_s: 5.25,
            kind: "gone".into(),
            host: "bob".into(),
            text: "bob: gone".into(),
            about: TunnelEvent::default(),
        }];
        let (head, body) = (Head::default(), TunnelStatus::default());
        let status: Status<Tunnels> = Status { head, events, body };
        let text = serde_json::to_string(&status).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let wanted = "anchor classes datapath device drops event_counts events filtered history hosts inner name next_event now_ns orders paths \
                      registered reinjected role signalling translators trouble uptime_s version";
        assert_eq!(keys(&value).join(" "), wanted);
        let wanted = "at_ns bound_ms class detail doubt_ms downlink flows host kind number path scores silent_ms text to unix_s";
        assert_eq!(keys(&value["events"][0]).join(" "), wanted);
        let again: Status<Tunnels> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), value);
    }

    #[test]
    fn a_roles_own_requests_stand_beside_the_common_ones() {
        for line in [
            r#"{"status":{"events_from":7}}"#,
            r#"{"flows":{"from":0,"host":null}}"#,
            r#""enrolments""#,
            r#"{"keepalive":{"path":"wifi","on":false}}"#,
        ] {
            let request: Request<Tunnels> = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
        }
        assert!(serde_json::from_str::<Request<Tunnels>>(r#"{"fly":{}}"#).is_err());
    }
}
