//! The status pages of Proxy Mobile IPv6 anchors and gateways.

use segue_daemon::control::{Head, Status};
use segue_daemon::pmip::aaa::RadiusStatus;
use segue_daemon::pmip::lma::{
    self, BindingStatus, FlowStatus, HandoverStatus, LmaStatus, TunnelStatus,
};
use segue_daemon::pmip::mag::{self, AttachStatus, HostStatus, MagStatus};
use segue_node::{LinkStatus, QualityStatus};
use segue_text::terminal::layout::Column;
use segue_text::terminal::{Colours, Tone};
use segue_text::units;

use super::super::which::Paper;
use super::page::{ALL, ROWS, counted, explained, sentences, table};

const BINDINGS: [Column; 9] = [
    Column::left("host", 20),
    Column::left("interface", 17).apart(),
    Column::left("access", 8).apart(),
    Column::left("prefixes", 20).apart(),
    Column::left("gateway", 10).apart(),
    Column::right("bid", 4).apart(),
    Column::left("state", 8).apart(),
    Column::right("ends in", 8).apart(),
    Column::left("link", 0).apart(),
];

const HOSTS: [Column; 8] = [
    Column::left("host", 20),
    Column::left("interface", 17).apart(),
    Column::left("access", 8).apart(),
    Column::left("prefixes", 20).apart(),
    Column::left("registered at", 10).apart(),
    Column::left("state", 11).apart(),
    Column::right("ends in", 8).apart(),
    Column::left("attached in", 0).apart(),
];

const FLOWS: [Column; 8] = [
    Column::left("flow", 48),
    Column::left("host", 20).apart(),
    Column::left("goes to", 20).apart(),
    Column::left("why", 8).apart(),
    Column::right("sent", 7).apart(),
    Column::right("", 9),
    Column::right("received", 8).apart(),
    Column::right("", 9),
];

const TUNNELS: [Column; 7] = [
    Column::left("tunnel to", 20),
    Column::left("in", 3).apart(),
    Column::right("sent", 8).apart(),
    Column::right("", 9),
    Column::right("received", 8).apart(),
    Column::right("", 9),
    Column::left("measured", 0).apart(),
];

/// Maximum number of flows and handovers on the page.
const LATEST: usize = 10;

/// The page of an anchor without its events.
pub(crate) fn anchor(
    Status { head, body: status, .. }: &Status<lma::Words>,
    paper: Paper,
) -> Vec<String> {
    let LmaStatus { bindings, flow_count, handovers, tunnels, .. } = status;
    let said = [
        format!("{}, up {:.0} s", head.role, head.uptime_s),
        format!("address    {}, prefixes of {}", status.address, status.pool),
        match (status.binding_count, *flow_count) {
            (0, _) => "bindings   none".to_owned(),
            (n, 0) => format!("bindings   {n}"),
            (n, flows) => format!("bindings   {n}; flows that were placed: {flows}"),
        },
    ];
    let mut all: Vec<String> = sentences(&said, paper);
    let rows = bindings.iter().map(|at| binding(at, paper.colours)).take(ROWS);
    all.extend(table(&BINDINGS, rows, (bindings.len(), ALL), paper));
    let mut busiest: Vec<&FlowStatus> = status.flows.iter().collect();
    busiest.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
    busiest.truncate(LATEST);
    all.extend(flows(&busiest, status, (status.flow_count, "segue flows"), false, paper));
    let rows = tunnels.iter().map(|of| tunnel(of, paper.colours)).take(ROWS);
    all.extend(table(&TUNNELS, rows, (tunnels.len(), ALL), paper));
    let from = handovers.len().saturating_sub(LATEST);
    let mut said: Vec<String> = handovers[from..].iter().map(|of| handover(head, of)).collect();
    said.extend(radius(status.radius.as_ref(), paper.colours));
    said.extend(counted(&status.refused));
    said.extend(counted(&head.drops));
    all.extend(sentences(&said, paper));
    all
}

/// The page of a gateway without its events.
pub(crate) fn gateway(
    Status { head, body: status, .. }: &Status<mag::Words>,
    paper: Paper,
) -> Vec<String> {
    let MagStatus { hosts, .. } = status;
    let said = [
        format!("{}, up {:.0} s", head.role, head.uptime_s),
        format!("anchor     {}", status.anchor),
        match status.host_count {
            0 => "hosts      none".to_owned(),
            n => format!("hosts      {n}"),
        },
    ];
    let mut all: Vec<String> = sentences(&said, paper);
    let rows = hosts.iter().map(|at| host(at, paper.colours)).take(ROWS);
    all.extend(table(&HOSTS, rows, (hosts.len(), ALL), paper));
    let mut said = radius(status.radius.as_ref(), paper.colours);
    said.extend(counted(&status.refused));
    said.extend(counted(&head.drops));
    all.extend(sentences(&said, paper));
    all
}

/// Flows as a table, each with a sentence if `why` is set; then their total, and where to see the
/// rest.
pub(in crate::cmd::control) fn flows(
    flows: &[&FlowStatus],
    status: &LmaStatus,
    more: (usize, &str),
    why: bool,
    paper: Paper,
) -> Vec<String> {
    let to = |flow: &FlowStatus| {
        let of = |at: &&BindingStatus| at.mn_id == flow.mn_id && at.bid == flow.bid;
        let found = status.bindings.iter().find(of);
        found.map_or_else(
            || format!("binding {}", flow.bid),
            |at| format!("{} (bid {})", at.proxy_coa, at.bid),
        )
    };
    let rows = flows.iter().map(|flow| {
        let bytes = |n| format!("({})", units::bytes(n));
        let row = vec![
            flow.flow.clone(),
            flow.mn_id.clone(),
            to(flow),
            flow.why.clone(),
            flow.packets.to_string(),
            bytes(flow.bytes),
            flow.received_packets.map_or_else(|| "-".into(), |n| n.to_string()),
            flow.received_bytes.map_or_else(String::new, bytes),
        ];
        (row, why.then_some(flow.because.as_str()))
    });
    explained(&FLOWS, rows, more, paper)
}

fn binding(at: &BindingStatus, colours: Colours) -> Vec<String> {
    vec![
        at.mn_id.clone(),
        at.llid.clone(),
        at.att.clone(),
        at.prefixes.join(" "),
        at.proxy_coa.clone(),
        at.bid.to_string(),
        state(&at.state, colours),
        format!("{} s", at.lifetime_s),
        at.link.as_ref().map_or_else(String::new, link),
    ]
}

/// Rate and signal of a link, as far as they are known.
fn link(LinkStatus { rate_kbps, signal_dbm }: &LinkStatus) -> String {
    // The rate field of a report saturates at 65 535 kbit/s.
    let rate = rate_kbps.map(|kbps| match kbps {
        u16::MAX => "over 65 Mbit/s".to_owned(),
        kbps => format!("{} Mbit/s", f64::from(kbps) / 1e3),
    });
    let signal = signal_dbm.map(|dbm| format!("{dbm} dBm"));
    let known: Vec<String> = rate.into_iter().chain(signal).collect();
    known.join(", ")
}

fn host(at: &HostStatus, colours: Colours) -> Vec<String> {
    let carried = match &at.off_link[..] {
        [] => String::new(),
        others => format!(" (and {})", others.join(" ")),
    };
    vec![
        at.mn_id.clone().unwrap_or_else(|| "?".into()),
        at.llid.clone(),
        at.access.clone(),
        format!("{}{carried}", at.prefixes.join(" ")),
        at.proxy_coa.clone(),
        state(&at.state, colours),
        format!("{} s", at.lifetime_s),
        attached(at),
    ]
}

/// How long attaching took, in total and per step.
fn attached(at: &HostStatus) -> String {
    let AttachStatus { mih_ms, aaa_ms, pba_ms, ra_ms } = at.attach;
    let steps = [("identified", aaa_ms), ("anchor", pba_ms), ("host", ra_ms)];
    let steps = steps.iter().filter_map(|(name, ms)| Some(format!("{name} {:.1}", (*ms)?)));
    let steps: Vec<String> = steps.collect();
    let steps = if steps.is_empty() { String::new() } else { format!(" ({})", steps.join(", ")) };
    // The IEEE 802.21 function reported the host before it could attach.
    let told = mih_ms.map_or_else(String::new, |ms| format!(", told after {ms:.1}"));
    at.registered_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms{steps}{told}"))
}

/// A state, coloured by whether packets pass.
fn state(state: &str, colours: Colours) -> String {
    match state {
        "active" | "probing" => colours.paint(Tone::Good, state),
        "leaving" => colours.paint(Tone::Bad, state),
        _ => colours.paint(Tone::Doubtful, state),
    }
}

fn tunnel(of: &TunnelStatus, colours: Colours) -> Vec<String> {
    let [sent, received] = of.packets;
    let bytes = |n| format!("({})", units::bytes(n));
    let [sent_bytes, received_bytes] = of.bytes.map(bytes);
    let measured = of.quality.as_ref().map_or_else(String::new, |quality| way(quality, colours));
    vec![
        of.proxy_coa.clone(),
        of.form.clone(),
        sent.to_string(),
        sent_bytes,
        received.to_string(),
        received_bytes,
        measured,
    ]
}

/// Quality of the path to a gateway: state, round trip, and loss in each direction.
fn way(of: &QualityStatus, colours: Colours) -> String {
    let tone = if of.state == "down" { Tone::Bad } else { Tone::Good };
    let rtt = of.rtt_ms.map(|ms| format!(", {ms:.1} ms"));
    let lost = of.loss_to.zip(of.loss_from);
    let lost = lost.map(|(to, from)| format!(", lost {:.1} % {:.1} %", to * 1e2, from * 1e2));
    let said = rtt.into_iter().chain(lost).collect::<String>();
    format!("{}{said}", colours.paint(tone, &of.state))
}

fn handover(head: &Head, of: &HandoverStatus) -> String {
    let HandoverStatus { at_s, mn_id, cause, from, to, flows, rebinding_ms } = of;
    let ago = head.uptime_s - at_s;
    let cause = cause.replace('_', " ");
    format!(
        "handover   {ago:.1} s ago, {mn_id} {cause}: {from} > {to}, {flows} flows, within {rebinding_ms:.2} ms"
    )
}

fn radius(status: Option<&RadiusStatus>, colours: Colours) -> Vec<String> {
    let Some(status) = status else { return Vec::new() };
    let mut said = Vec::new();
    for server in &status.servers {
        let tone = if server.state == "silent" { Tone::Bad } else { Tone::Good };
        let state = match &*server.state {
            "unknown" => "not asked yet".to_owned(),
            state => colours.paint(tone, state),
        };
        said.push(format!(
            "radius     {} ({}): {state}; requests {}, answers {}, refusals {}, unanswered {}",
            server.address,
            server.service,
            server.requests,
            server.answers,
            server.rejects,
            server.unanswered
        ));
    }
    said.push(format!("sessions   {}, open requests {}", status.sessions, status.open));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(room: usize) -> Paper {
        Paper { room, colours: Colours::NONE }
    }

    fn head(role: &str) -> Head {
        Head { role: role.into(), uptime_s: 61.4, ..Head::default() }
    }

    fn measured_tunnel() -> TunnelStatus {
        TunnelStatus {
            proxy_coa: "fd00:2::2".into(),
            form: "ip".into(),
            packets: [12, 13],
            bytes: [1_200, 1_000_000],
            mtu: None,
            quality: Some(QualityStatus {
                state: "up".into(),
                rtt_ms: Some(12.34),
                jitter_ms: 0.1,
                loss_to: Some(0.0),
                loss_from: Some(0.015),
            }),
        }
    }

    #[test]
    fn an_anchors_page_has_a_row_for_each_binding_and_times_that_a_person_can_read() {
        let binding = BindingStatus {
            mn_id: "alice@example.org".into(),
            llid: "02:5e:67:01:00:00".into(),
            att: "3GPP E-UTRAN".into(),
            prefixes: vec!["2001:db8:0:1::/64".into()],
            proxy_coa: "fd00:2::2".into(),
            bid: 1,
            state: "active".into(),
            lifetime_s: 599,
            link: Some(LinkStatus { rate_kbps: Some(54_000), signal_dbm: Some(-61) }),
        };
        let flow = FlowStatus {
            flow: "udp [fd00:c::2]:5060 > [2001:db8:0:1::5]:5060".into(),
            mn_id: "alice@example.org".into(),
            bid: 1,
            why: "rule".into(),
            because: "schedule = \"static\" has placed it".into(),
            packets: 50,
            bytes: 6_400,
            received_packets: Some(49),
            received_bytes: Some(6_272),
        };
        let handover = HandoverStatus {
            at_s: 60.0,
            mn_id: "alice@example.org".into(),
            cause: "going_down".into(),
            from: "fd00:2::2".into(),
            to: "fd00:3::2".into(),
            flows: 2,
            rebinding_ms: 0.212_345,
        };
        let status = LmaStatus {
            address: "fd00:1::1".into(),
            pool: "2001:db8::/48".into(),
            bindings: vec![binding],
            flows: vec![flow],
            flow_count: 3,
            binding_count: 1,
            handovers: vec![handover],
            tunnels: vec![measured_tunnel()],
            ..LmaStatus::default()
        };
        let why = flows(&[&status.flows[0]], &status, (1, ""), true, paper(80));
        let sent = "bid 1)  why rule  sent 50 (6.40 kB)  received 49 (6.27 kB)";
        assert!(why.iter().any(|line| line.ends_with(sent)), "{why:#?}");
        assert_eq!(why.last().unwrap(), "    schedule = \"static\" has placed it");
        let (head, events) = (head("pmip-lma"), Vec::new());
        let status = Status { head, events, body: status };
        let lines = anchor(&status, paper(200));
        assert_eq!(lines[0], "pmip-lma, up 61 s");
        assert_eq!(lines[2], "bindings   1; flows that were placed: 3");
        let row = &lines[4];
        assert!(row.starts_with("alice@example.org"), "{row}");
        assert!(row.ends_with("599 s  54 Mbit/s, -61 dBm"), "{row}");
        let all = lines.join("\n");
        for part in [
            "fd00:2::2 (bid 1)",
            "and 2 more (segue flows)",
            "(1.20 kB)",
            "up, 12.3 ms, lost 0.0 % 1.5 %",
            "handover   1.4 s ago, alice@example.org going down: fd00:2::2 > fd00:3::2, 2 flows, within 0.21 ms",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let narrow = anchor(&status, paper(79));
        assert!(
            narrow.iter().all(|line| segue_text::terminal::layout::width(line) <= 79),
            "{narrow:#?}"
        );
    }

    #[test]
    fn a_gateways_page_says_how_long_each_step_of_attaching_took() {
        let host = |n: u32| HostStatus {
            mn_id: Some(format!("host{n}@example.org")),
            llid: "02:5e:67:01:00:00".into(),
            access: "wlan1".into(),
            prefixes: vec!["2001:db8:0:1::/64".into()],
            off_link: vec!["2001:db8:0:2::/64".into()],
            proxy_coa: "fd00:2::2".into(),
            state: "active".into(),
            lifetime_s: 599,
            registered_ms: Some(3.081_59),
            attach: AttachStatus {
                mih_ms: Some(4.0),
                pba_ms: Some(1.648),
                ..AttachStatus::default()
            },
        };
        let status = MagStatus {
            anchor: "fd00:1::1".into(),
            hosts: (0..60).map(host).collect(),
            refused: [("stale".to_owned(), 2)].into(),
            ..MagStatus::default()
        };
        let (head, events) = (head("pmip-mag"), Vec::new());
        let lines = gateway(&Status { head, events, body: status }, paper(220));
        assert!(lines[4].ends_with("3.1 ms (anchor 1.6), told after 4.0"), "{}", lines[4]);
        assert!(lines[4].contains("2001:db8:0:1::/64 (and 2001:db8:0:2::/64)"), "{}", lines[4]);
        assert_eq!(lines[4 + 50], "and 10 more (--json has all)");
        assert_eq!(lines.last().unwrap(), "refused    2 stale");
    }
}
