//! Metrics of the daemons for Prometheus.

use std::collections::BTreeMap;

use segue_probe::metrics::{Label, Metric, Page, names};

use super::{Count, Head, PathStatus, Status, Tunnels, Vocabulary};

/// Most paths with measurements on the page, the same limit as for a listener's clients;
/// `segue_paths` counts all.
const PATHS_MAX: usize = 1_000;
/// The states of a path.
const STATES: [&str; 5] = ["setup", "starting", "up", "down", "unwatched"];

/// The metrics of a daemon.
pub(crate) fn page<V: Vocabulary>(status: &Status<V>) -> String {
    let mut page = Page::default();
    let Head { role, version, uptime_s, drops, event_counts, .. } = &status.head;
    V::metrics(status, &mut page);
    let told = [("role", role), ("version", version), ("datapath", &V::datapath(status))];
    page.add(&names::INFO, &told.map(|(name, value)| (name, value.clone())), &[], 1.0);
    page.one(&names::UPTIME, *uptime_s);
    by_reason(&mut page, &names::DROPS, drops);
    for (kind, causes) in event_counts {
        for (cause, count) in causes {
            let labels = [("kind", kind.clone()), ("cause", cause.clone())];
            page.add(&names::EVENTS, &labels, &[], *count as f64);
        }
    }
    page.text()
}

/// Refused messages by reason.
pub(crate) fn refused(page: &mut Page, refused: &BTreeMap<String, u64>) {
    by_reason(page, &names::REFUSED, refused);
}

fn by_reason(page: &mut Page, metric: &'static Metric, counts: &BTreeMap<String, u64>) {
    for (reason, count) in counts {
        page.add(metric, &[("reason", reason.clone())], &[], *count as f64);
    }
}

/// The metrics of a host or an anchor.
pub(crate) fn of_tunnels(status: &Status<Tunnels>, page: &mut Page) {
    let Status { head, body: status, .. } = status;
    match head.role.as_str() {
        "host" => page.one(&names::REGISTERED, f64::from(u8::from(status.registered))),
        _ => page.one(&names::HOSTS, status.hosts.len() as f64),
    }
    for state in STATES {
        let there = status.paths.iter().filter(|path| path.state == state).count();
        page.add(&names::PATHS, &[("state", state.to_owned())], &[], there as f64);
    }
    page.one(&names::REINJECTED, status.reinjected as f64);
    for (class, path) in &status.classes {
        let labels = [("class", class.clone()), ("path", path.clone())];
        page.add(&names::CLASS_PATH, &labels, &[], 1.0);
    }
    for path in status.paths.iter().take(PATHS_MAX) {
        measured(page, head.role == "anchor", path);
    }
}

fn measured(page: &mut Page, anchor: bool, path: &PathStatus) {
    let mut labels: Vec<Label> = vec![("path", path.name.clone())];
    if anchor {
        labels.insert(0, ("host", path.host.clone()));
    }
    let seconds = |ms: f64| ms / 1e3;
    if let Some(rtt_ms) = path.rtt_last_ms {
        page.add(&names::RTT, &labels, &[], seconds(rtt_ms));
        page.add(&names::RTT_UNCERTAINTY, &labels, &[], seconds(path.uncertainty_ms));
    }
    let tau = |i: usize| ("tau", format!("{}s", path.tau_s.get(i).copied().unwrap_or_default()));
    for (i, average_ms) in path.rtt_ms.iter().enumerate() {
        page.add(&names::RTT_AVERAGE, &labels, &[tau(i)], seconds(*average_ms));
    }
    for (way, losses) in [("up", &path.owl_up), ("down", &path.owl_down), ("both", &path.rtl)] {
        for (i, loss) in losses.iter().enumerate() {
            page.add(&names::LOSS, &labels, &[("direction", way.to_owned()), tau(i)], *loss);
        }
    }
    for (way, Count { sent, lost }) in [("up", path.up), ("down", path.down)] {
        let way = [("direction", way.to_owned())];
        page.add(&names::PACKETS_SENT, &labels, &way, sent as f64);
        page.add(&names::PACKETS_RECEIVED, &labels, &way, sent.saturating_sub(lost) as f64);
    }
    let (up, down) = match anchor {
        true => (path.rx_bytes, path.tx_bytes),
        false => (path.tx_bytes, path.rx_bytes),
    };
    for (way, bytes) in [("up", up), ("down", down)] {
        page.add(&names::BYTES, &labels, &[("direction", way.to_owned())], bytes as f64);
    }
    for (way, mtu) in [("up", path.mtu_up), ("down", path.mtu_down)] {
        let Some(mtu) = mtu else { continue };
        page.add(&names::PATH_MTU, &labels, &[("direction", way.to_owned())], f64::from(mtu));
    }
    for state in STATES {
        let value = f64::from(u8::from(path.state == state));
        page.add(&names::STATE, &labels, &[("state", state.to_owned())], value);
    }
    for (metric, value) in [
        (&names::TRANSITIONS, path.transitions),
        (&names::DOUBTS, path.doubts),
        (&names::PROBES_SENT, path.probes_sent),
        (&names::PROBES_RECEIVED, path.probes_received),
    ] {
        page.add(metric, &labels, &[], value as f64);
    }
}
