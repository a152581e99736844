//! The status page of a host or an anchor.

use segue_daemon::control::{Status, Tunnels};
use segue_text::terminal::Tone;
use segue_text::terminal::layout;

use super::super::paths;
use super::super::which::Paper;
use super::page::counted;
use super::sentence;

/// The lines of the page without its events.
pub(crate) fn lines(status: &Status<Tunnels>, paper: Paper) -> Vec<String> {
    let colours = paper.colours;
    let name =
        if status.head.name.is_empty() { String::new() } else { format!(" {}", status.head.name) };
    let (sentence, well) = sentence::of(status);
    let mut said = vec![
        if well { sentence } else { colours.paint(Tone::Bad, &sentence) },
        format!(
            "{}{name}, up {:.0} s, datapath {}",
            status.head.role, status.head.uptime_s, status.body.datapath
        ),
        format!("device     {} {}", status.body.device, status.body.inner.join(" ")),
    ];
    if status.head.role == "host" {
        let over = status
            .body
            .signalling
            .as_deref()
            .map_or("no signalling".into(), |interface| format!("signalling over {interface}"));
        let anchor = status.body.anchor.as_deref().unwrap_or("not found yet");
        let registered = match status.body.registered {
            true => "registered".to_owned(),
            false => colours.paint(Tone::Bad, "not registered"),
        };
        let no_way = !status.body.paths.is_empty()
            && status.body.paths.iter().all(|path| path.state != "up");
        let way = if no_way { colours.paint(Tone::Bad, "no path is up, ") } else { String::new() };
        said.push(format!("anchor     {anchor}, {registered}, {way}{over}"));
    }
    if let Some(trouble) = &status.body.trouble {
        let why = colours.paint(Tone::Bad, &trouble.why);
        said.push(format!("trouble    {why} ({:.0} s ago)", trouble.ago_s));
    }
    for filter in &status.body.filtered {
        said.push(format!("filter     {}", colours.paint(Tone::Bad, &filter.to_string())));
    }
    for path in status.body.paths.iter().filter(|path| path.source != "preferred") {
        let line = paths::source(path).map(|line| format!("source     {} {line}", path.name));
        said.extend(line);
    }
    for host in &status.body.hosts {
        let how = if host.connected {
            "connected".to_owned()
        } else {
            colours.paint(Tone::Doubtful, "no signalling")
        };
        said.push(format!("host       {} {} ({how})", host.name, host.inner.join(" ")));
    }
    let mut all: Vec<String> =
        said.iter().flat_map(|line| layout::sentence(line, paper.room)).collect();
    all.extend(paths::lines(&status.body, false, paper));
    all.extend(figures(status).iter().flat_map(|line| layout::sentence(line, paper.room)));
    all
}

/// Lines about classes and counters.
fn figures(status: &Status<Tunnels>) -> Vec<String> {
    let mut said = Vec::new();
    for (class, path) in &status.body.classes {
        let order = match status.body.orders.get(class) {
            Some(wanted) if wanted == path => " (bound by an operator)".into(),
            Some(wanted) => format!(" (an operator wants {wanted}, which is not up)"),
            None => String::new(),
        };
        said.push(format!("class      {class:<12} {path}{order}"));
    }
    said.extend(counted(&status.head.drops));
    if status.body.reinjected > 0 {
        let n = status.body.reinjected;
        said.push(format!("reinjected {n} (sent a second time over another path)"));
    }
    said
}
