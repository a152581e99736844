//! A mobile host on a node.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Rng, Span};
use segue_ip::Interface;
use segue_tunnel::{Host, HostConfig, HostInput, HostOutput, Report};

use super::super::HostEnd;
use super::super::signal::{HostSignal, SIGNAL_PORT};
use super::engine::{Tunnels, Wish};
use crate::net::Adapter;
use crate::role::{Order, Role, RoleAgent, Start, WishOf};
use crate::{Io, Results};

/// A host's tunnel end on its node, with its signalling.
pub type HostAgent = RoleAgent<HostRole>;
/// Orders specific to hosts are inputs of the machine: an operator's order, or shutdown.
pub type HostOrder = Order<Box<HostInput>>;

/// The host role.
pub struct HostRole {
    name: String,
    pub(super) config: HostConfig,
    /// Inner addresses that the anchor has assigned to its node.
    given: Vec<IpAddr>,
    connections: u64,
}

impl HostAgent {
    /// A host with this name at its anchor. Each host needs a different `seed`.
    #[must_use]
    pub fn new(name: impl Into<String>, config: HostConfig, seed: u64) -> HostAgent {
        let (given, connections) = (Vec::new(), 0);
        RoleAgent::of(HostRole { name: name.into(), config, given, connections }, seed)
    }

    /// UDP port of its tunnels.
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

    fn set_addresses(&mut self, io: &mut Io<'_>, inner: Vec<IpAddr>) {
        for old in self.given.iter().filter(|old| !inner.contains(old)) {
            io.set_address(*old, false);
        }
        for address in &inner {
            io.set_address(*address, true);
        }
        self.given = inner;
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

    fn crash(&mut self, io: &mut Io<'_>) {
        self.set_addresses(io, Vec::new());
    }

    fn order(agent: &mut HostAgent, io: &mut Io<'_>, order: Box<HostInput>) {
        let stops = matches!(*order, HostInput::Stop);
        agent.handle(io, *order);
        if stops {
            agent.engine_mut().signal.finish(io.now);
            agent.work(io);
        }
    }

    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Self::Engine, wish: WishOf<Self>) {
        match wish {
            Wish::Signal(output) => self.on_signal(io, engine, output),
            Wish::Machine(HostOutput::Connect { interfaces }) => {
                self.connections += 1;
                engine.signal.connect(io.now, &interfaces);
            }
            Wish::Machine(HostOutput::MoveSignal { interface }) => {
                engine.signal.move_to(io.now, &interface);
            }
            Wish::Machine(HostOutput::Signal(message)) => engine.signal.send(io.now, &message),
            Wish::Machine(HostOutput::Addresses { inner, .. }) => self.set_addresses(io, inner),
            Wish::Machine(HostOutput::SetMtu(mtu)) => engine.end.datapath.set_mtu(mtu),
        }
    }

    /// Interfaces that can carry a path, i.e. have an address.
    fn sees(&self, adapter: &Adapter) -> Option<Interface> {
        Some(&adapter.interface).filter(|i| !i.addresses.is_empty()).cloned()
    }

    fn key(record: &Infallible) -> String {
        match *record {}
    }

    fn moves_flows(report: &Report) -> bool {
        matches!(report, Report::Handover { flows, .. } if *flows > 0)
    }

    fn results(agent: &HostAgent, name: &str, results: &mut Results) {
        let (mut handovers, mut flows_moved, mut path_downs) = (0, 0, 0);
        let (mut registered_after, mut worst_silence) = (f64::NAN, Span::ZERO);
        for (at, report) in agent.reports() {
            match report {
                Report::Registered { .. } if registered_after.is_nan() => {
                    registered_after = at.as_secs_f64();
                }
                Report::Handover { flows, .. } if *flows > 0 => {
                    handovers += 1;
                    flows_moved += *flows as u64;
                }
                Report::PathState { silent: Some(silent), .. } => {
                    path_downs += 1;
                    worst_silence = worst_silence.max(*silent);
                }
                _ => {}
            }
        }
        for (what, count) in [
            ("registered", u64::from(agent.end().machine.registered())),
            ("connections", agent.role().connections),
            ("handovers", handovers),
            ("flows_moved", flows_moved),
            ("path_downs", path_downs),
            ("probes_sent", agent.engine().traffic.probes_sent),
            ("packets_refused", agent.end().datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
        results.float(alloc::format!("{name}.registered_after_s"), registered_after);
        results.float(alloc::format!("{name}.worst_silence_s"), worst_silence.as_secs_f64());
    }
}
