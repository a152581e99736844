//! Orders and questions that many scenarios share.

use segue_steering::Class;
use segue_tunnel::{Cause, HostInput, Report};
use segue_wire::FlowKey;
use segue_wire::signal::FromAnchor;

use segue_sim::tunnel::Inner;

use super::{BYTES, Data, NO_APP, Net};

pub(crate) fn is_registered(message: &FromAnchor) -> bool {
    matches!(message, FromAnchor::Registered { .. })
}

impl Net {
    pub(crate) fn handover(
        &mut self,
        host: usize,
        flow: Option<FlowKey>,
        class: Option<Class>,
        to: Option<&str>,
    ) {
        let to = to.map(String::from);
        self.tell_host(host, HostInput::Handover { flow, class, to });
    }

    /// A packet of a flow that no application has.
    pub(crate) fn miss_at_host(&mut self, host: usize, key: FlowKey, dscp: u8) {
        self.send_from_host(
            host,
            Inner { key, dscp, bytes: BYTES, payload: Data { app: NO_APP, round: 0 } },
        );
    }

    pub(crate) fn miss_at_anchor(&mut self, key: FlowKey) {
        let payload = Data { app: NO_APP, round: 0 };
        self.send_from_anchor(Inner { key, dscp: 0, bytes: BYTES, payload });
    }

    /// No path of either end sends its packets over another one.
    pub(crate) fn expect_no_redirections(&self) {
        for host in &self.hosts {
            for (number, path) in host.end.machine.paths() {
                assert_eq!(path.via(), None, "host {}, path {number}", host.name);
            }
        }
        for (slot, path) in self.anchor.machine.paths() {
            assert_eq!(path.via(), None, "anchor, path {slot}");
        }
    }

    /// Why the flows of a host moved, each time.
    pub(crate) fn causes(&self, host: usize) -> Vec<Cause> {
        let reports = self.hosts[host].reports.iter();
        let cause = |report: &Report| match report {
            Report::Handover { cause, flows, .. } if *flows > 0 => Some(*cause),
            _ => None,
        };
        reports.filter_map(|(_, report)| cause(report)).collect()
    }
}
