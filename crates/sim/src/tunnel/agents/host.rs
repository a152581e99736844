//! A mobile host on a node.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Rng, Span, Time};
use segue_ip::Interface;
use segue_tunnel::{Host, HostConfig, HostInput, HostOutput, Report};

use super::super::HostEnd;
use super::super::signal::{HostSignal, HostSignalOutput, SIGNAL_PORT};
use super::engine::{Tunnels, Wish};
use super::line::line;
use crate::role::{Order, Role, RoleAgent, Start};
use crate::{Io, Results};

/// The end of a host's tunnels on its node, with its signalling.
pub type HostAgent = RoleAgent<HostRole>;
/// Its own orders are inputs of its machine: an operator's order, or its end.
pub type HostOrder = Order<Box<HostInput>>;

/// A host as a role.
pub struct HostRole {
    name: String,
    pub(super) config: HostConfig,
    /// The addresses that the anchor has ever given it.
    given: BTreeSet<IpAddr>,
    registered: Option<Time>,
    connections: u64,
    handovers: u64,
    flows_moved: u64,
    path_downs: u64,
    worst_silence: Span,
}

impl HostAgent {
    /// A host with this name at its anchor. `seed` differs from that of any other.
    #[must_use]
    pub fn new(name: impl Into<String>, config: HostConfig, seed: u64) -> HostAgent {
        let role = HostRole {
            name: name.into(),
            config,
            given: BTreeSet::new(),
            registered: None,
            connections: 0,
            handovers: 0,
            flows_moved: 0,
            path_downs: 0,
            worst_silence: Span::ZERO,
        };
        RoleAgent::of(role, seed)
    }

    /// Port of its tunnels.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.role().config.port
    }
}

impl HostRole {
    /// The epoch of its last start.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.config.epoch
    }

    fn set_addresses(&self, io: &mut Io<'_>, inner: Vec<IpAddr>) {
        let given = |old: &&IpAddr| !inner.contains(old) && self.given.contains(old);
        let old: Vec<IpAddr> = io.node.addresses.iter().filter(given).copied().collect();
        for address in old {
            io.set_address(address, false);
        }
        for address in inner {
            io.set_address(address, true);
        }
    }
}

impl Role for HostRole {
    type Engine = Tunnels<Host, HostSignal>;
    type Order = Box<HostInput>;

    fn start(&mut self, start: &Start) -> Self::Engine {
        self.config.epoch += u64::from(start.number > 0);
        let end = HostEnd::new(self.config.clone(), start.random());
        let at = |anchor: &SocketAddr| SocketAddr::new(anchor.ip(), SIGNAL_PORT);
        let anchors = self.config.anchor.iter().map(at).collect();
        let ids = Rng::new(start.seed.rotate_left(32) ^ start.number).next_u64();
        Tunnels::new(start.now, end, HostSignal::new(self.name.clone(), anchors, ids))
    }

    fn crash(&mut self, io: &mut Io<'_>, engine: &Self::Engine) {
        for address in engine.end.machine.inner() {
            io.set_address(*address, false);
        }
    }

    fn order(agent: &mut HostAgent, io: &mut Io<'_>, order: Box<HostInput>) {
        let stops = matches!(*order, HostInput::Stop);
        agent.handle(io, *order);
        if stops {
            agent.engine_mut().signal.finish(io.now);
            agent.work(io);
        }
    }

    fn apply(
        &mut self,
        io: &mut Io<'_>,
        engine: &mut Self::Engine,
        wish: Wish<HostOutput, HostSignalOutput>,
    ) {
        let signal = &mut engine.signal;
        match wish {
            Wish::Signal(output) => self.on_signal(io, engine, output),
            Wish::Machine(HostOutput::Connect { interfaces }) => {
                self.connections += 1;
                signal.connect(io.now, &interfaces);
            }
            Wish::Machine(HostOutput::MoveSignal { interface }) => {
                signal.move_to(io.now, &interface);
            }
            Wish::Machine(HostOutput::Signal(message)) => signal.send(io.now, &message),
            Wish::Machine(HostOutput::Addresses { inner, .. }) => self.set_addresses(io, inner),
            Wish::Machine(HostOutput::SetMtu(_)) => {}
        }
    }

    /// Those that can carry a path.
    fn uses(interface: &Interface) -> bool {
        !interface.addresses.is_empty()
    }

    fn key(record: &Infallible) -> String {
        match *record {}
    }

    fn line(report: &Report) -> String {
        line(report)
    }

    fn count(&mut self, now: Time, report: &Report) {
        match report {
            Report::Registered { inner, .. } => {
                self.registered = self.registered.or(Some(now));
                self.given.extend(inner);
            }
            Report::Handover { flows, .. } if *flows > 0 => {
                self.handovers += 1;
                self.flows_moved += *flows as u64;
            }
            Report::PathState { silent: Some(silent), .. } => {
                self.path_downs += 1;
                self.worst_silence = self.worst_silence.max(*silent);
            }
            _ => {}
        }
    }

    fn results(&self, engine: &Self::Engine, _starts: u64, name: &str, results: &mut Results) {
        for (what, count) in [
            ("registered", u64::from(engine.end.machine.registered())),
            ("connections", self.connections),
            ("handovers", self.handovers),
            ("flows_moved", self.flows_moved),
            ("path_downs", self.path_downs),
            ("probes_sent", engine.traffic.probes_sent),
            ("packets_refused", engine.end.datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
        let since_start = self.registered.map_or(f64::NAN, Time::as_secs_f64);
        results.float(alloc::format!("{name}.registered_after_s"), since_start);
        results.float(alloc::format!("{name}.worst_silence_s"), self.worst_silence.as_secs_f64());
    }
}
