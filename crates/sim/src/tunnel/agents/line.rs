//! What ends of tunnels report, as lines of the event log.

use alloc::format;
use alloc::string::{String, ToString};

use segue_tunnel::Report;

/// A line of the event log.
pub(super) fn line(report: &Report) -> String {
    let of = |host: &String| if host.is_empty() { String::new() } else { format!("{host}: ") };
    match report {
        Report::Registered { host, inner } => {
            let inner: alloc::vec::Vec<String> = inner.iter().map(ToString::to_string).collect();
            format!("{}registered with {}", of(host), inner.join(", "))
        }
        Report::Refused { host, reason } => format!("{}refused: {reason}", of(host)),
        Report::Gone { host } => format!("{}gone", of(host)),
        Report::PathAdded { host, path } => format!("{}path {path} added", of(host)),
        Report::PathRemoved { host, path } => format!("{}path {path} removed", of(host)),
        Report::PathState { host, path, state, heard, silent, bound } => {
            let heard = if *heard { "" } else { ", downlink not heard" };
            let silent = silent.map_or_else(String::new, |s| format!(", silent for {s}"));
            format!("{}path {path} {state:?}{heard}{silent}, bound {bound}", of(host))
        }
        Report::PathMtu { path, up, down } => {
            format!("path {path} takes {up} bytes up, {down} down")
        }
        Report::PathDoubt { host, path } => format!("{}path {path} in doubt", of(host)),
        Report::Handover { host, class, from, to, cause, flows } => {
            let class =
                class.map_or_else(String::new, |class| format!(" of class {}", class.name()));
            format!("{}{flows} flows{class} from {from} to {to}: {}", of(host), cause.name())
        }
    }
}
