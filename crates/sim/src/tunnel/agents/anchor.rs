//! An anchor on a node.

use alloc::collections::BTreeSet;
use alloc::string::String;

use segue_clock::Time;
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, Ending, Known, Report,
};

use super::super::AnchorEnd;
use super::super::signal::{AnchorSignal, AnchorSignalOutput};
use super::engine::{Tunnels, Wish};
use super::line::line;
use crate::role::{Order, Role, RoleAgent, Start};
use crate::{Io, Results};

/// The anchor's end of all tunnels on its node, with its signalling.
pub type AnchorAgent = RoleAgent<AnchorRole>;
/// What can be ordered of it.
pub type AnchorOrder = Order<Enrolment>;

/// An anchor's own orders.
#[derive(Clone, Debug)]
pub enum Enrolment {
    /// A host is enrolled.
    Begin(String),
    /// A host's enrolment ends.
    End(String),
}

/// An anchor as a role.
pub struct AnchorRole {
    config: AnchorConfig,
    pub(super) enrolled: BTreeSet<String>,
    pub(super) admitted: BTreeSet<ConnId>,
    pub(super) messages: u64,
    path_downs: u64,
    handovers: u64,
}

impl AnchorAgent {
    /// An anchor at which these hosts are enrolled. `seed` differs from that of any other end.
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
            path_downs: 0,
            handovers: 0,
        };
        RoleAgent::of(role, seed)
    }

    /// Port of its tunnels.
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

    fn crash(&mut self, io: &mut Io<'_>, _engine: &Self::Engine) {
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

    fn apply(
        &mut self,
        io: &mut Io<'_>,
        engine: &mut Self::Engine,
        wish: Wish<AnchorOutput, AnchorSignalOutput>,
    ) {
        match wish {
            Wish::Signal(output) => self.on_signal(io, engine, output),
            Wish::Machine(AnchorOutput::Signal(conn, message)) => {
                engine.signal.send(io.now, conn, &message);
            }
            Wish::Machine(AnchorOutput::Close(conn)) => engine.signal.finish(io.now, conn),
            Wish::Machine(AnchorOutput::SetMtu(..)) => {}
        }
    }

    fn key(known: &Known) -> String {
        known.name.clone()
    }

    fn line(report: &Report) -> String {
        line(report)
    }

    fn count(&mut self, _now: Time, report: &Report) {
        match report {
            Report::PathState { silent: Some(_), .. } => self.path_downs += 1,
            Report::Handover { .. } => self.handovers += 1,
            _ => {}
        }
    }

    fn results(&self, engine: &Self::Engine, starts: u64, name: &str, results: &mut Results) {
        let traffic = &engine.traffic;
        for (what, count) in [
            ("hosts", engine.end.machine.hosts().count() as u64),
            ("paths", engine.end.machine.paths().count() as u64),
            ("probes", traffic.probes),
            ("probes_quiet", traffic.quiet),
            ("packets", traffic.data),
            ("messages", self.messages),
            ("path_downs", self.path_downs),
            ("handovers", self.handovers),
            ("restarts", starts),
            ("packets_refused", engine.end.datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
    }
}
