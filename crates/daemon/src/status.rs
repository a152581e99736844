//! Converts the state of machines and datapaths into the status types.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_datapath::{FlowCursor, FlowEntry, FlowPage, LinuxDatapath};
use segue_keepalive::size::Direction;
use segue_keepalive::{Counted, Estimates, LossVerdict, Tau, Why};
use segue_steering::Class;
use segue_tunnel::host::Path;
use segue_tunnel::{Anchor, End, Filter, Host, SourceChoice};
use segue_wire::{Encapsulation, FlowKey, Mode};

use crate::control::{
    Count, FilterStatus, FlowStatus, FlowsPage, HostStatus, LossStatus, PathStatus, TunnelStatus,
    WhyStatus,
};

/// State of a path without a keepalive.
const UNWATCHED: &str = "unwatched";

fn ms(span: Span) -> f64 {
    span.as_millis_f64()
}

fn count(counted: Counted) -> Count {
    Count { sent: counted.sent, lost: counted.sent.saturating_sub(counted.received) }
}

/// An end of tunnels with this machine.
type Over<M> = End<M, Box<dyn LinuxDatapath>>;

/// The status of an anchor; `common` is the part that both sides share.
pub(crate) fn of_anchor(end: &mut Over<Anchor>, common: TunnelStatus) -> TunnelStatus {
    let End { machine: anchor, datapath, .. } = end;
    let paths = anchor_paths(anchor, datapath.as_mut());
    TunnelStatus { hosts: hosts(anchor), paths, ..common }
}

/// The status of a host.
pub(crate) fn of_host(end: &mut Over<Host>, common: TunnelStatus, now: Time) -> TunnelStatus {
    let End { machine: host, datapath, .. } = end;
    let classes = Class::ALL.into_iter().filter_map(|class| {
        let current = host.steering().current(class)?;
        let path = host.paths().find(|(number, _)| *number == current.0)?.1;
        Some((class.name().to_owned(), path.name().to_owned()))
    });
    let orders = host.orders().map(|(class, path)| (class.name().to_owned(), path.to_owned()));
    TunnelStatus {
        registered: host.registered(),
        anchor: host.anchor().map(|anchor| anchor.to_string()),
        inner: host.inner().iter().map(ToString::to_string).collect(),
        signalling: host.signal_interface().map(str::to_owned),
        paths: host_paths(host, datapath.as_mut(), now),
        classes: classes.collect(),
        orders: orders.collect(),
        filtered: filters(host, now),
        ..common
    }
}

/// Duplicate answers. Only the measuring side recognises them; a datapath that measures counts them itself.
pub(crate) fn repeated(end: &Over<Host>) -> u64 {
    let clients = end.machine.paths().filter_map(|(_, path)| path.client());
    let repeated = clients.map(|client| client.estimates().duplicates).sum();
    if end.datapath.measures() { 0 } else { repeated }
}

/// Fills in measurements.
fn measured(status: &mut PathStatus, e: &Estimates) {
    status.rtt_last_ms = e.rtt_last.map(ms);
    status.rtt_min_ms = e.rtt_min.map(ms);
    status.rtt_max_ms = e.rtt_max.map(ms);
    status.rtt_ms = e.rtt_ewma.iter().map(|s| s * 1e3).collect();
    status.owl_up.clone_from(&e.owl_up);
    status.owl_down.clone_from(&e.owl_down);
    status.up = count(e.up);
    status.down = count(e.down);
    status.rtl.clone_from(&e.rtl);
    status.uncertainty_ms = ms(e.uncertainty);
    status.probes_sent = e.sent;
    status.probes_received = e.received;
    status.transitions = e.transitions;
}

/// Fills in negotiated settings.
fn agreed(
    status: &mut PathStatus,
    mode: Mode,
    [rides, checksums]: [bool; 2],
    encapsulation: Encapsulation,
) {
    status.mode = match mode {
        Mode::Both => "both",
        Mode::Client => "client",
        Mode::Reports => "reports",
        Mode::RoundTripLoss => "round-trip-loss",
    }
    .into();
    (status.rides, status.checksums) = (rides, checksums);
    status.encapsulation = match encapsulation {
        Encapsulation::Segue => "segue",
        Encapsulation::Upmt => "upmt",
    }
    .into();
}

fn filters(host: &Host, now: Time) -> Vec<FilterStatus> {
    let path = |number: u8| host.paths().find(|(n, _)| *n == number).map(|(_, path)| path.name());
    let status = |(flow, path_name, filter): (&FlowKey, &str, &Filter)| {
        let Count { sent, lost } = count(filter.counted);
        FilterStatus {
            flow: flow.to_string(),
            path: path_name.to_owned(),
            direction: filter.direction.name().to_owned(),
            sent,
            lost,
            ago_s: now.since(filter.at).as_secs_f64(),
            uses: host.flow(flow).and_then(|flow| path(flow.path)).map(str::to_owned),
        }
    };
    host.filters().map(status).collect()
}

fn loss_status(now: Time, verdict: &LossVerdict) -> LossStatus {
    let Count { sent, lost } = count(verdict.counted);
    LossStatus {
        loss: verdict.loss,
        sent,
        lost,
        took_s: verdict.at.since(verdict.since).as_secs_f64(),
        ago_s: now.since(verdict.at).as_secs_f64(),
    }
}

/// The planner's choice, made at `changed`.
fn why_status(now: Time, why: &Why, changed: Time) -> WhyStatus {
    let known = &why.known;
    WhyStatus {
        k: why.k,
        t_ka_ms: why.t_ka * 1e3,
        active: known.used,
        rtt_ms: known.rtt_avg * 1e3,
        rtt_max_ms: known.rtt_max * 1e3,
        loss_up: known.loss_up,
        loss_down: known.loss_down,
        loss: known.loss,
        burst_ms: known.burst.map(|burst| burst * 1e3),
        questions: why.questions.k,
        spacing_ms: why.questions.spacing * 1e3,
        t_d_ms: why.questions.t_d * 1e3,
        t_fp_s: Some(why.questions.t_fp).filter(|t_fp| t_fp.is_finite()),
        detection_ms: why.detection * 1e3,
        given_up: if why.is_given_up() { "false_positives" } else { "nothing" }.into(),
        changed_s: now.since(changed).as_secs_f64(),
        text: why.to_string(),
    }
}

/// Fills in the datapath's counts. If the datapath does not count probes, an anchor (`answers`) has sent one for each
/// received probe.
fn counted(status: &mut PathStatus, slot: u32, datapath: &mut dyn LinuxDatapath, answers: bool) {
    let counters = datapath.counters(slot);
    status.tx_packets = counters.tx_packets;
    status.rx_packets = counters.rx_packets;
    let reading = datapath.reading(slot);
    status.probes_sent = match &reading {
        Some(reading) => reading.sent.into(),
        None if answers => status.probes_received,
        None => status.probes_sent,
    };
    status.probes_rode = reading.map_or(0, |reading| reading.rode.into());
    status.probes_alone = status.probes_sent.saturating_sub(status.probes_rode);
    status.tx_bytes = counters.tx_bytes;
    status.rx_bytes = counters.rx_bytes;
    if let Some(remote) = counters.remote {
        status.remote = Some(remote.to_string());
    }
}

/// The host's paths.
pub fn host_paths(host: &Host, datapath: &mut dyn LinuxDatapath, now: Time) -> Vec<PathStatus> {
    let names: BTreeMap<u32, String> =
        host.paths().map(|(n, path)| (u32::from(n), path.name().to_owned())).collect();
    host.paths()
        .map(|(number, path)| {
            let mut status = PathStatus {
                name: path.name().to_owned(),
                local: Some(path.local().to_string()),
                source: match path.source_choice() {
                    SourceChoice::Configured => "configured",
                    SourceChoice::Preferred => "preferred",
                    SourceChoice::Tried => "tried",
                }
                .into(),
                remote: Some(path.remote().to_string()),
                state: "setup".into(),
                via: path.via().and_then(|via| names.get(&via.slot).cloned()),
                bound_ms: ms(path.detection_bound()),
                mtu_up: Some(path.mtu(Direction::Up)),
                mtu_down: Some(path.mtu(Direction::Down)),
                ..PathStatus::default()
            };
            agreed(
                &mut status,
                path.keepalive().mode,
                [path.keepalive().rides, path.checksums()],
                path.encapsulation(),
            );
            status.why = path.why().map(|(why, changed)| why_status(now, why, changed));
            if let Some(client) = path.client() {
                let state = if path.is_unwatched() { UNWATCHED } else { client.state().name() };
                state.clone_into(&mut status.state);
                status.downlink = client.heard();
                status.in_doubt = client.in_doubt();
                status.doubts = client.lapses(now).doubts;
                status.loses_up = path.loss_verdict(Direction::Up).map(|v| loss_status(now, v));
                status.loses_down = path.loss_verdict(Direction::Down).map(|v| loss_status(now, v));
                status.k = client.config().k;
                status.t_ka_ms = ms(client.config().t_ka);
                (status.tau_s, status.tau_fall_s) = constants(&client.config().taus);
                measured(&mut status, client.estimates());
            }
            counted(&mut status, u32::from(number), datapath, false);
            status
        })
        .collect()
}

/// Time constants in seconds: for samples worse than the average, and for better ones.
fn constants(taus: &[Tau]) -> (Vec<f64>, Vec<f64>) {
    taus.iter().map(|tau| (tau.rise.as_secs_f64(), tau.fall.as_secs_f64())).unzip()
}

/// The anchor's paths.
pub fn anchor_paths(anchor: &Anchor, datapath: &mut dyn LinuxDatapath) -> Vec<PathStatus> {
    anchor
        .paths()
        .map(|(slot, path)| {
            let (k, t_ka) = path.keepalive();
            let server = path.server();
            let (tau_s, tau_fall_s) = constants(&server.config().taus);
            let mut status = PathStatus {
                host: anchor.host_name(path.owner).unwrap_or_default().to_owned(),
                name: path.name.clone(),
                state: if path.is_watched() { server.state().name() } else { UNWATCHED }.into(),
                downlink: path.via().is_none(),
                via: path.via().and_then(|v| anchor.path(v.slot)).map(|path| path.name.clone()),
                k,
                t_ka_ms: ms(t_ka),
                bound_ms: ms(path.detection_bound()),
                tau_s,
                tau_fall_s,
                ..PathStatus::default()
            };
            agreed(
                &mut status,
                path.mode(),
                [path.rides(), path.checksums()],
                path.encapsulation(),
            );
            measured(&mut status, server.estimates());
            counted(&mut status, slot, datapath, true);
            status
        })
        .collect()
}

/// The anchor's hosts.
pub fn hosts(anchor: &Anchor) -> Vec<HostStatus> {
    anchor
        .hosts()
        .map(|host| HostStatus {
            name: host.name.clone(),
            inner: host.inner.iter().map(ToString::to_string).collect(),
            connected: host.conn.is_some(),
        })
        .collect()
}

fn flow_status(entry: &FlowEntry, now: Time, path: &str, via: Option<&str>) -> FlowStatus {
    FlowStatus {
        flow: entry.key.to_string(),
        class: None,
        path: path.to_owned(),
        via: via.map(str::to_owned),
        pinned: false,
        packets: entry.packets,
        bytes: entry.bytes,
        received_packets: entry.received_packets,
        received_bytes: entry.received_bytes,
        idle_ms: ms(now.since(entry.last_seen)),
        why: String::new(),
    }
}

/// A page of the host's flows, with the reason for each one's path.
pub fn host_flows(
    host: &Host,
    datapath: &mut dyn LinuxDatapath,
    now: Time,
    from: FlowCursor,
) -> FlowsPage {
    let paths: BTreeMap<u32, &Path> = host.paths().map(|(n, p)| (u32::from(n), p)).collect();
    let whys: BTreeMap<Class, String> =
        Class::ALL.into_iter().map(|class| (class, host.why(now, class))).collect();
    page(datapath.flow_page(from, None), |entry| {
        let path = paths.get(&entry.slot);
        let via = path.and_then(|p| p.via()).and_then(|via| paths.get(&via.slot));
        let name = path.map_or("?", |p| p.name());
        let mut status = flow_status(entry, now, name, via.map(|p| p.name()));
        if let Some(flow) = host.flow(&entry.key) {
            status.class = Some(flow.class.name().to_owned());
            status.pinned = flow.pinned.is_some();
            status.why = if flow.pinned.is_some() {
                "bound here by an operator".into()
            } else if via.is_some() {
                "its path is dead".into()
            } else if let Some(why) = host.why_flow(now, &entry.key) {
                why
            } else {
                whys.get(&flow.class).cloned().unwrap_or_default()
            };
        }
        status
    })
}

/// A page of the anchor's flows, learned from the hosts' packets; `owner` limits it to one host.
pub fn anchor_flows(
    anchor: &Anchor,
    datapath: &mut dyn LinuxDatapath,
    now: Time,
    from: FlowCursor,
    owner: Option<u32>,
) -> FlowsPage {
    page(datapath.flow_page(from, owner), |entry| {
        let path = anchor.path(entry.slot);
        let via = path.and_then(|p| p.via()).and_then(|via| anchor.path(via.slot));
        let name = path.map_or("?", |p| p.name.as_str());
        flow_status(entry, now, name, via.map(|p| p.name.as_str()))
    })
}

fn page(page: FlowPage, row: impl Fn(&FlowEntry) -> FlowStatus) -> FlowsPage {
    FlowsPage { flows: page.flows.iter().map(row).collect(), next: page.next.map(|next| next.0) }
}
