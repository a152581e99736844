//! The first line of a host's or an anchor's status: whether it works, and if not, why and what to do.

use std::collections::BTreeSet;

use segue_daemon::control::{PathStatus, Status, TunnelStatus, Tunnels};

/// The state in one sentence without a full stop, and whether it is good.
pub(super) fn of(status: &Status<Tunnels>) -> (String, bool) {
    if status.head.role == "host" { host(status) } else { anchor(&status.body) }
}

fn host(status: &Status<Tunnels>) -> (String, bool) {
    let body = &status.body;
    let trouble = body.trouble.as_ref().map(|trouble| trouble.why.as_str());
    if let Some(trouble) = body.trouble.as_ref().filter(|trouble| trouble.rejected) {
        return (trouble.why.clone(), false);
    }
    let up: BTreeSet<&str> = body.paths.iter().filter(|p| works(p)).map(|p| &*p.name).collect();
    if up.is_empty() {
        let said = match trouble {
            Some(why) if body.registered => why.to_owned(),
            Some(why) => format!("not registered: {why}"),
            None if body.paths.is_empty() => "no network leads to the anchor".into(),
            None if body.registered => {
                let lost: Vec<String> = body.paths.iter().map(|path| lost(status, path)).collect();
                format!("no path works: {}", lost.join("; "))
            }
            None => "not registered yet".into(),
        };
        return (said, false);
    }
    let used: BTreeSet<&str> = body.classes.values().map(String::as_str).collect();
    let used: Vec<&str> =
        if used.is_empty() { up.into_iter().collect() } else { used.into_iter().collect() };
    let mut said = vec![format!("on {}", used.join(" and "))];
    let others = body.paths.iter().filter(|path| !works(path));
    said.extend(others.map(|path| lost(status, path)));
    if !body.registered {
        said.push(format!(
            "not registered: {}",
            trouble.unwrap_or("the anchor has not answered yet")
        ));
    }
    (said.join("; "), said.len() == 1)
}

fn works(path: &PathStatus) -> bool {
    path.state == "up" || path.state == "unwatched"
}

/// Why a path was lost.
fn lost(status: &Status<Tunnels>, path: &PathStatus) -> String {
    let name = &path.name;
    let is_end = |event: &&segue_daemon::control::EventRecord<Tunnels>| {
        event.kind == "path_state" && event.about.path == *name && event.about.detail == "down"
    };
    match status.events.iter().rev().find(is_end).filter(|_| path.state == "down") {
        Some(end) => {
            let ago_s = status.head.now_ns.saturating_sub(end.at_ns) / 1_000_000_000;
            let silent = if end.about.silent_ms.is_some() { ", silent" } else { "" };
            format!("{name} lost {ago_s} s ago{silent}")
        }
        None => format!("{name} {}", path.state),
    }
}

fn anchor(body: &TunnelStatus) -> (String, bool) {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if body.hosts.is_empty() {
        return ("no host is registered".into(), true);
    }
    let up = body.paths.iter().filter(|path| works(path)).count();
    let mut said = format!(
        "{}, {up} of {} up",
        count(body.hosts.len(), "host"),
        count(body.paths.len(), "path")
    );
    let silent = body.hosts.iter().filter(|host| !host.connected).count();
    if silent > 0 {
        said += &format!("; {silent} without signalling");
    }
    (said, silent == 0)
}

#[cfg(test)]
mod tests {
    use segue_daemon::control::{EventRecord, Head, TroubleStatus, TunnelEvent};

    use super::*;

    fn path(name: &str, state: &str) -> PathStatus {
        PathStatus { name: name.into(), state: state.into(), ..PathStatus::default() }
    }

    fn host_with(body: TunnelStatus) -> Status<Tunnels> {
        let head = Head { role: "host".into(), now_ns: 10_000_000_000, ..Head::default() };
        Status { head, events: Vec::new(), body }
    }

    #[test]
    fn a_lost_path_is_named_with_when_and_how() {
        let mut status = host_with(TunnelStatus {
            registered: true,
            paths: vec![path("lte", "up"), path("wifi", "down")],
            classes: [("voice".to_owned(), "lte".to_owned())].into(),
            ..TunnelStatus::default()
        });
        let about = TunnelEvent {
            path: "wifi".into(),
            detail: "down".into(),
            silent_ms: Some(200.0),
            ..TunnelEvent::default()
        };
        let (kind, host, text) = ("path_state".into(), String::new(), String::new());
        status.events.push(EventRecord {
            number: 0,
            at_ns: 7_000_000_000,
            unix_s: 0.0,
            kind,
            host,
            text,
            about,
        });
        assert_eq!(of(&status), ("on lte; wifi lost 3 s ago, silent".into(), false));
        status.body.paths[1].state = "up".into();
        assert_eq!(of(&status), ("on lte".into(), true));
    }

    #[test]
    fn what_keeps_a_host_out_comes_first() {
        let trouble =
            |why: &str, rejected| Some(TroubleStatus { why: why.into(), ago_s: 1.0, rejected });
        let mut body = TunnelStatus {
            registered: true,
            anchor: Some("192.0.2.1:5105".into()),
            paths: vec![path("wifi", "setup")],
            ..TunnelStatus::default()
        };
        assert_eq!(of(&host_with(body.clone())).0, "no path works: wifi setup");
        body.trouble = trouble("let UDP 5105 through", false);
        assert_eq!(of(&host_with(body.clone())).0, "let UDP 5105 through");
        body.registered = false;
        body.trouble = trouble("no answer", false);
        assert_eq!(of(&host_with(body.clone())).0, "not registered: no answer");
        body.paths[0].state = "up".into();
        assert_eq!(of(&host_with(body.clone())).0, "on wifi; not registered: no answer");
        body.trouble = trouble("this host is no longer enrolled", true);
        assert_eq!(of(&host_with(body)).0, "this host is no longer enrolled");
    }
}
