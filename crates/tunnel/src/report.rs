//! Reports of the machines, for operators, logs and statistics.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use segue_clock::Span;
use segue_keepalive::size::Direction;
use segue_keepalive::{Counted, LossVerdict, State};
use segue_steering::{Class, Score};
use segue_wire::FlowKey;
use segue_wire::signal::Refusal;

/// Why flows moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Neither direction of the old path lives.
    Down,
    /// The old path's uplink is dead.
    UplinkDown,
    /// The old path's downlink is dead.
    DownlinkDown,
    /// Another path is better.
    Better,
    /// The old path loses packets.
    Lossy,
    /// The operator ordered it.
    Requested,
    /// The interface is gone.
    InterfaceGone,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 7] = [
        Cause::Down,
        Cause::UplinkDown,
        Cause::DownlinkDown,
        Cause::Better,
        Cause::Lossy,
        Cause::Requested,
        Cause::InterfaceGone,
    ];

    /// The name used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Down => "down",
            Cause::UplinkDown => "uplink_down",
            Cause::DownlinkDown => "downlink_down",
            Cause::Better => "better",
            Cause::Lossy => "lossy",
            Cause::Requested => "requested",
            Cause::InterfaceGone => "interface_gone",
        }
    }
}

/// An event for operators, logs and statistics.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The host has registered (at the host), or a host has (at the anchor).
    Registered {
        /// The host's name; empty at the host itself.
        host: String,
        /// Its inner addresses.
        inner: Vec<IpAddr>,
    },
    /// The anchor refused a registration or a path.
    Refused {
        /// The host's name; empty at the host itself.
        host: String,
        /// The reason.
        reason: Refusal,
    },
    /// The registration of a host ended (anchor).
    Gone {
        /// Its name.
        host: String,
    },
    /// A path was set up.
    PathAdded {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
    },
    /// A path was removed.
    PathRemoved {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
    },
    /// A path's state changed: of the round trip at the host, of the uplink at the anchor.
    PathState {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
        /// The new state.
        state: State,
        /// At the host: whether the downlink is heard. At the anchor: whether the downlink uses this path, so is not
        /// redirected.
        heard: bool,
        /// Time since the last sign of life, if the path went down.
        silent: Option<Span>,
        /// The path's detection bound; where K and T_KA decide, T_Rmax of eq. 1 with the largest RTT.
        bound: Span,
    },
    /// Something was due on a path and did not arrive, and questions are in flight (host). Not every doubt is reported.
    /// A reported one ends with another report of this kind, or when the path goes down.
    PathDoubt {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
        /// Duration of the doubt, once an answer has ended it.
        ended: Option<Span>,
    },
    /// A test of the packet counts found that a direction of a path loses packets, or no longer does (host).
    PathLoss {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
        /// The direction.
        direction: Direction,
        /// The verdict; `None` when it has ended.
        verdict: Option<LossVerdict>,
        /// Time from the start of the loss, as far as the counts show it, to this report.
        took: Span,
    },
    /// A path filters a flow: it drops the flow's data while probes pass (host).
    FlowFiltered {
        /// The flow, as it leaves the host.
        flow: FlowKey,
        /// The path's name.
        path: String,
        /// The direction of the dropped data.
        direction: Direction,
        /// The counts that showed it.
        counted: Counted,
        /// Time from the first of these packets to the finding.
        took: Span,
        /// The path that the flow now uses; `None` if it stays.
        to: Option<String>,
    },
    /// The packet sizes of a path changed (host): the largest IP packet in each direction, in bytes.
    PathMtu {
        /// The path's name.
        path: String,
        /// Host to anchor.
        up: u16,
        /// Anchor to host.
        down: u16,
    },
    /// Flows moved.
    Handover {
        /// The host's name; empty at the host itself.
        host: String,
        /// The class; `None` for all flows of the path.
        class: Option<Class>,
        /// Name of the old path.
        from: String,
        /// Name of the new path.
        to: String,
        /// The cause.
        cause: Cause,
        /// Number of flows on the path or in the class; 0 at an anchor, which does not know it.
        flows: usize,
        /// The scores behind the decision, by path; those of the default class if all flows moved. Empty at an anchor.
        scores: Vec<(String, Score)>,
    },
}

impl Report {
    /// Name of its kind, as in output.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Report::Registered { .. } => "registered",
            Report::Refused { .. } => "refused",
            Report::Gone { .. } => "gone",
            Report::PathAdded { .. } => "path_added",
            Report::PathRemoved { .. } => "path_removed",
            Report::PathState { .. } => "path_state",
            Report::PathDoubt { .. } => "path_doubt",
            Report::PathLoss { .. } => "path_loss",
            Report::FlowFiltered { .. } => "flow_filtered",
            Report::PathMtu { .. } => "path_mtu",
            Report::Handover { .. } => "handover",
        }
    }

    /// The host's name; empty at the host itself.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Report::Registered { host, .. }
            | Report::Refused { host, .. }
            | Report::Gone { host }
            | Report::PathAdded { host, .. }
            | Report::PathRemoved { host, .. }
            | Report::PathState { host, .. }
            | Report::PathDoubt { host, .. }
            | Report::PathLoss { host, .. }
            | Report::Handover { host, .. } => host,
            Report::FlowFiltered { .. } | Report::PathMtu { .. } => "",
        }
    }
}

/// The largest packets that a path takes, up and down, in bytes. Displayed as in `path_mtu`.
pub struct Takes(pub u16, pub u16);

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Takes(up, down) = self;
        write!(f, "takes packets of {up} bytes at most")?;
        if up == down { Ok(()) } else { write!(f, " up, of {down} down") }
    }
}

/// A sentence without a full stop.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host() {
            "" => {}
            host => write!(f, "{host}: ")?,
        }
        match self {
            Report::Registered { inner, .. } => {
                f.write_str("registered, inner addresses ")?;
                for (n, address) in inner.iter().enumerate() {
                    write!(f, "{}{address}", if n == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Report::Refused { reason, .. } => write!(f, "refused: {reason}"),
            Report::Gone { .. } => f.write_str("gone"),
            Report::PathAdded { path, .. } => write!(f, "path {path} set up"),
            Report::PathRemoved { path, .. } => write!(f, "path {path} removed"),
            Report::PathState { path, state, heard, silent, .. } => {
                write!(f, "path {path} {}", state.name())?;
                if let Some(silent) = silent {
                    write!(f, ", silent for {:.0} ms", silent.as_millis_f64())?;
                }
                let half = *state == State::Down && *heard;
                f.write_str(if half { ", downlink still heard" } else { "" })
            }
            Report::PathDoubt { path, ended: None, .. } => write!(f, "path {path} in doubt"),
            Report::PathDoubt { path, ended: Some(ended), .. } => {
                write!(f, "path {path} answers, after {:.0} ms of doubt", ended.as_millis_f64())
            }
            Report::PathLoss { path, direction, verdict, took, .. } => match verdict {
                Some(verdict) => {
                    write!(f, "path {path} loses packets {}: ", direction.name())?;
                    write!(f, "{} in {:.1} s", verdict.counted, took.as_secs_f64())
                }
                None => write!(f, "path {path} has stopped losing packets {}", direction.name()),
            },
            Report::FlowFiltered { flow, path, direction, counted, took, to } => {
                write!(f, "path {path} drops the data of {flow} {}: ", direction.name())?;
                write!(f, "{counted} in {:.1} s, while probes pass; ", took.as_secs_f64())?;
                match to {
                    Some(to) => write!(f, "the flow moved to {to}"),
                    None => f.write_str(
                        "the flow stays: there is no other path, or an operator bound it",
                    ),
                }
            }
            Report::PathMtu { path, up, down } => write!(f, "path {path} {}", Takes(*up, *down)),
            Report::Handover { class, from, to, cause, flows, .. } => {
                let noun = if *flows == 1 { "flow" } else { "flows" };
                match class {
                    Some(class) => write!(f, "{flows} {} {noun}", class.name())?,
                    None if *flows > 0 => write!(f, "{flows} {noun}")?,
                    None => f.write_str("all traffic")?,
                }
                write!(f, " moved from {from} to {to} ({})", cause.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn one_flow_is_told_from_several_and_from_all_traffic() {
        for (flows, class, what) in [
            (1, None, "1 flow"),
            (2, None, "2 flows"),
            (0, None, "all traffic"),
            (0, Some(Class::Voice), "0 voice flows"),
            (1, Some(Class::Voice), "1 voice flow"),
        ] {
            let (from, to, cause) = ("wifi".into(), "lte".into(), Cause::Down);
            let (host, scores) = (String::new(), Vec::new());
            let report = Report::Handover { host, class, from, to, cause, flows, scores };
            assert_eq!(report.to_string(), format!("{what} moved from wifi to lte (down)"));
        }
    }

    #[test]
    fn a_path_that_is_down_says_for_how_long_and_whether_it_still_hears() {
        let report = |state, heard, silent| {
            let (host, path, bound) = ("bob".into(), "wifi".into(), Span::ZERO);
            Report::PathState { host, path, state, heard, silent, bound }.to_string()
        };
        let silent = Some(Span::from_micros(180_600));
        assert_eq!(report(State::Up, true, None), "bob: path wifi up");
        assert_eq!(report(State::Down, false, silent), "bob: path wifi down, silent for 181 ms");
        let half = "bob: path wifi down, silent for 181 ms, downlink still heard";
        assert_eq!(report(State::Down, true, silent), half);
    }

    #[test]
    fn a_doubt_that_an_answer_has_ended_says_how_long_it_took() {
        let doubt = |ended| Report::PathDoubt { host: String::new(), path: "wifi".into(), ended };
        assert_eq!(doubt(None).to_string(), "path wifi in doubt");
        let ended = doubt(Some(Span::from_micros(43_200)));
        assert_eq!(ended.to_string(), "path wifi answers, after 43 ms of doubt");
    }

    #[test]
    fn the_sizes_of_both_directions_are_told_apart_where_they_differ() {
        let takes = |up, down| Report::PathMtu { path: "lte".into(), up, down }.to_string();
        assert_eq!(takes(1_400, 1_400), "path lte takes packets of 1400 bytes at most");
        let apart = "path lte takes packets of 1400 bytes at most up, of 1280 down";
        assert_eq!(takes(1_400, 1_280), apart);
    }
}
