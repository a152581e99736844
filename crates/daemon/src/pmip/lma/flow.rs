//! A flow in the status.

use segue_datapath::relay::Carried;
use segue_ip::FlowKey;
use segue_pmip::{Flow, Lma, Placed, Schedule};
use serde::{Deserialize, Serialize};

/// A flow.
#[derive(Debug, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Its addresses, ports and protocol.
    pub flow: String,
    /// The host's identity.
    pub mn_id: String,
    /// The binding that it uses.
    pub bid: u16,
    /// The reason: `rule`, `decision` or `moved`.
    pub why: String,
    /// The reason in a sentence.
    #[serde(default)]
    pub because: String,
    /// Packets towards the host.
    pub packets: u64,
    /// Inner bytes in these packets.
    #[serde(default)]
    pub bytes: u64,
    /// Packets from the host. Missing for a flow that is identified by its flow label in addition to its ports: the
    /// other direction has another label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_packets: Option<u64>,
    /// Inner bytes in these packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
}

impl FlowStatus {
    /// The status of a flow with this traffic; `None` if its binding is gone.
    pub(super) fn of(
        lma: &Lma,
        key: &FlowKey,
        flow: &Flow,
        carried: Carried,
    ) -> Option<FlowStatus> {
        let both_ways = key.label == 0;
        Some(FlowStatus {
            flow: key.to_string(),
            mn_id: flow.node.to_string(),
            bid: lma.session(flow.session)?.bid,
            why: flow.why.name().to_owned(),
            because: because(flow, lma.config().schedule),
            packets: carried.sent_packets,
            bytes: carried.sent_bytes,
            received_packets: both_ways.then_some(carried.received_packets),
            received_bytes: both_ways.then_some(carried.received_bytes),
        })
    }
}

/// Why a flow uses its binding, in a sentence.
fn because(flow: &Flow, schedule: Schedule) -> String {
    let rule = schedule.name();
    match (flow.why, flow.ordered()) {
        (Placed::Decision, _) => "a program has ordered so".into(),
        (Placed::Moved, Some(ordered)) => format!(
            "a program has ordered it to {ordered}, which is away; meanwhile it goes as schedule = \"{rule}\" says"
        ),
        (Placed::Moved, None) => {
            format!("its own interface is away; schedule = \"{rule}\" has placed it")
        }
        (Placed::Rule, _) => format!("schedule = \"{rule}\" has placed it"),
    }
}
