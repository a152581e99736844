//! An anchor on a node.

use alloc::collections::BTreeSet;
use alloc::string::String;

use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, Ending, Known, Report,
};

use super::super::AnchorEnd;
use super::super::signal::AnchorSignal;
use super::engine::{Tunnels, Wish};
use crate::role::{Order, Role, RoleAgent, Start, WishOf};
use crate::{Io, Results};

/// The anchor of all tunnels on its node, with its signalling.
pub type AnchorAgent = RoleAgent<AnchorRole>;
/// Orders that a scenario can give to an anchor.
pub type AnchorOrder = Order<Enrolment>;

/// Orders specific to anchors.
#[derive(Clone, Debug)]
pub enum Enrolment {
    /// Enrol a host.
    Begin(String),
    /// End a host's enrolment.
    End(String),
}

/// The anchor role.
pub struct AnchorRole {
    config: AnchorConfig,
    pub(super) enrolled: BTreeSet<String>,
    pub(super) admitted: BTreeSet<ConnId>,
    pub(super) messages: u64,
}

impl AnchorAgent {
    /// An anchor at which these hosts are enrolled. Each end needs a different `seed`.
    #[must_use]
    pub fn new(
        config: AnchorConfig,
        enrolled: impl IntoIterator<Item = String>,
        seed: u64,
    ) -> AnchorAgent {
        let role = AnchorRole {
            config,
            enrolled: enrolled.into_iter().collect(),
            admitted: BTreeSet::new(),
            messages: 0,
        };
        RoleAgent::of(role, seed)
    }

    /// UDP port of its tunnels.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.role().config.port
    }
}

impl Role for AnchorRole {
    type Engine = Tunnels<Anchor, AnchorSignal>;
    type Order = Enrolment;

    fn start(&mut self, start: &Start) -> Self::Engine {
        self.admitted.clear();
        let end = AnchorEnd::new(self.config.clone(), start.random());
        Tunnels::new(start.now, end, AnchorSignal::new())
    }

    fn crash(&mut self, io: &mut Io<'_>) {
        io.log(|| "the anchor crashes".into());
    }

    fn order(agent: &mut AnchorAgent, io: &mut Io<'_>, order: Enrolment) {
        match order {
            Enrolment::Begin(host) => {
                agent.role_mut().enrolled.insert(host);
            }
            Enrolment::End(host) => {
                agent.role_mut().enrolled.remove(&host);
                let until = io.now + agent.role().config.rest;
                let record = agent.forget(&host);
                let rests = record.map(|known| known.inner).unwrap_or_default();
                let resting = &mut agent.role_mut().config.resting;
                resting.retain(|(address, _)| !rests.contains(address));
                resting.extend(rests.into_iter().map(|address| (address, until)));
                agent.handle(io, AnchorInput::End { host, why: Ending::Removed });
            }
        }
    }

    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Self::Engine, wish: WishOf<Self>) {
        match wish {
            Wish::Signal(output) => self.on_signal(io, engine, output),
            Wish::Machine(AnchorOutput::Signal(conn, message)) => {
                engine.signal.send(io.now, conn, &message);
            }
            Wish::Machine(AnchorOutput::Close(conn)) => engine.signal.finish(io.now, conn),
            Wish::Machine(AnchorOutput::SetMtu(address, mtu)) => {
                engine.end.datapath.set_mtu_to(address, mtu);
            }
        }
    }

    fn key(known: &Known) -> String {
        known.name.clone()
    }

    fn results(agent: &AnchorAgent, name: &str, results: &mut Results) {
        let (end, traffic) = (agent.end(), &agent.engine().traffic);
        let count = |kind: fn(&Report) -> bool| {
            agent.reports().iter().filter(|(_, report)| kind(report)).count() as u64
        };
        let went_down =
            |report: &Report| matches!(report, Report::PathState { silent: Some(_), .. });
        for (what, count) in [
            ("hosts", end.machine.hosts().count() as u64),
            ("paths", end.machine.paths().count() as u64),
            ("probes", traffic.probes),
            ("probes_quiet", traffic.quiet),
            ("packets", traffic.data),
            ("messages", agent.role().messages),
            ("path_downs", count(went_down)),
            ("handovers", count(|report| matches!(report, Report::Handover { .. }))),
            ("restarts", agent.starts()),
            ("packets_refused", end.datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
    }
}
