//! Flows whose data a path drops.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path drops the data of a flow while probes pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilterStatus {
    /// The flow, as it leaves the host.
    pub flow: String,
    /// The path.
    pub path: String,
    /// `up` or `down`.
    pub direction: String,
    /// Packets of the flow that were counted.
    pub sent: u64,
    /// Lost packets among them.
    pub lost: u64,
    /// Seconds since this was detected.
    pub ago_s: f64,
    /// The path that the flow uses; the same path if there is no other.
    pub uses: Option<String>,
}

/// One sentence, without a full stop.
impl fmt::Display for FilterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilterStatus { flow, path, direction, sent, lost, ago_s, uses } = self;
        write!(
            f,
            "{path} drops {flow} {direction}: lost {lost} of {sent} packets {ago_s:.0} s ago"
        )?;
        write!(f, " while probes passed")?;
        match uses {
            Some(uses) if uses == path => {
                write!(f, "; the flow stays: there is no other path, or an operator bound it")
            }
            Some(uses) => write!(f, "; the flow uses {uses}"),
            None => Ok(()),
        }
    }
}
