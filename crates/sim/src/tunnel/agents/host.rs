//! A mobile host on a node.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Rng, Span, Time};
use segue_ip::{Input, Interface};
use segue_tunnel::{HostConfig, HostInput, HostOutput, Report};

use super::super::signal::{HostSignal, HostSignalOutput, SIGNAL_PORT};
use super::super::{HostEffect, HostEnd, SWEEP};
use super::{ends, inner, line, seed, signalled, tunnelled};
use crate::packet::Body;
use crate::{Agent, Io, Packet, Results};

/// Something that happens to a host at a preset time.
#[derive(Clone, Debug)]
pub enum HostOrder {
    /// An input of its machine: an operator's order, or its end.
    Input(Box<HostInput>),
    /// It crashes and restarts at once, with no memory.
    Restart,
}

/// What a host counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    connections: u64,
    handovers: u64,
    flows_moved: u64,
    path_downs: u64,
    probes: u64,
    worst_silence: Span,
}

/// The end of a host's tunnels on its node, with its signalling.
pub struct HostAgent {
    name: String,
    config: HostConfig,
    seed: u64,
    starts: u64,
    end: HostEnd<Packet>,
    signal: HostSignal,
    interfaces: Vec<Interface>,
    orders: VecDeque<(Time, HostOrder)>,
    sweep_at: Time,
    reports: Vec<(Time, Report)>,
    registered: Option<Time>,
    counts: Counts,
    effects: Vec<HostEffect<Packet>>,
}

impl HostAgent {
    /// A host with this name at its anchor. `seed` differs from that of any other.
    #[must_use]
    pub fn new(name: impl Into<String>, config: HostConfig, seed_of_host: u64) -> HostAgent {
        let name = name.into();
        HostAgent {
            end: HostEnd::new(config.clone(), seed(seed_of_host, 0)),
            signal: signalling(&name, &config, seed_of_host, 0),
            name,
            config,
            seed: seed_of_host,
            starts: 0,
            interfaces: Vec::new(),
            orders: VecDeque::new(),
            sweep_at: Time::ZERO + SWEEP,
            reports: Vec::new(),
            registered: None,
            counts: Counts::default(),
            effects: Vec::new(),
        }
    }

    /// Schedules an event at `at`, after earlier orders for the same time.
    pub fn order(&mut self, at: Time, order: HostOrder) {
        let place = self.orders.partition_point(|(other, _)| *other <= at);
        self.orders.insert(place, (at, order));
    }

    /// Port of its tunnels.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.config.port
    }

    /// Its end of the tunnels.
    #[must_use]
    pub fn end(&self) -> &HostEnd<Packet> {
        &self.end
    }

    /// Its inner addresses, empty before the first registration.
    #[must_use]
    pub fn inner(&self) -> &[IpAddr] {
        self.end.machine.inner()
    }

    /// What it reported, and when.
    #[must_use]
    pub fn reports(&self) -> &[(Time, Report)] {
        &self.reports
    }

    /// Tells the machine which interfaces can carry a path: those that are attached and have an address.
    fn look_at_interfaces(&mut self, io: &mut Io<'_>) {
        let attached = io.node.adapters.iter().filter(|adapter| adapter.out.is_some());
        let there = attached.map(|adapter| &adapter.interface);
        let interfaces: Vec<Interface> =
            there.filter(|interface| !interface.addresses.is_empty()).cloned().collect();
        if interfaces != self.interfaces {
            self.interfaces.clone_from(&interfaces);
            self.handle(io, Input::Interfaces(interfaces));
        }
    }

    fn handle(&mut self, io: &mut Io<'_>, input: impl Into<Input<HostInput, Infallible>>) {
        let input = input.into();
        let stops = matches!(input, Input::Own(HostInput::Stop));
        self.end.handle(io.now, input, &mut self.effects);
        self.work(io);
        if stops {
            self.signal.finish(io.now);
            self.work(io);
        }
    }

    /// Carries out the outputs of machine and signalling until there are none.
    fn work(&mut self, io: &mut Io<'_>) {
        loop {
            let mut effects = core::mem::take(&mut self.effects);
            let rests = effects.is_empty();
            for effect in effects.drain(..) {
                self.on_effect(io, effect);
            }
            if self.effects.is_empty() {
                self.effects = effects;
            }
            let Some(output) = self.signal.poll() else {
                if rests {
                    return;
                }
                continue;
            };
            self.on_signal(io, output);
        }
    }

    fn on_effect(&mut self, io: &mut Io<'_>, effect: HostEffect<Packet>) {
        match effect {
            HostEffect::Transmit(outer, message) => {
                self.counts.probes += u64::from(message.is_probe());
                let packet = tunnelled(io.now, outer.local, outer.remote, message);
                io.send_on(outer.ifindex, packet);
            }
            HostEffect::Deliver(inner, _) => io.arrive(inner.payload),
            HostEffect::Own(HostOutput::Connect { interfaces }) => {
                self.counts.connections += 1;
                self.signal.connect(io.now, &interfaces);
            }
            HostEffect::Own(HostOutput::MoveSignal { interface }) => {
                self.signal.move_to(io.now, &interface)
            }
            HostEffect::Own(HostOutput::Signal(message)) => self.signal.send(io.now, &message),
            HostEffect::Own(HostOutput::Addresses { inner, .. }) => {
                let old = io.node.addresses.iter().filter(|old| !inner.contains(old));
                let old: Vec<IpAddr> = old.filter(|old| self.is_inner(**old)).copied().collect();
                for address in old {
                    io.set_address(address, false);
                }
                for address in inner {
                    io.set_address(address, true);
                }
            }
            HostEffect::Own(HostOutput::SetMtu(_)) | HostEffect::Send(_) => {}
            HostEffect::Report(report) => self.on_report(io, report),
        }
    }

    /// Whether the anchor has ever given the node this address.
    fn is_inner(&self, address: IpAddr) -> bool {
        self.reports.iter().any(|(_, report)| {
            matches!(report, Report::Registered { inner, .. } if inner.contains(&address))
        })
    }

    fn on_report(&mut self, io: &mut Io<'_>, report: Report) {
        let counts = &mut self.counts;
        match &report {
            Report::Registered { .. } => self.registered = self.registered.or(Some(io.now)),
            Report::Handover { flows, .. } if *flows > 0 => {
                counts.handovers += 1;
                counts.flows_moved += *flows as u64;
            }
            Report::PathState { silent: Some(silent), .. } => {
                counts.path_downs += 1;
                counts.worst_silence = counts.worst_silence.max(*silent);
            }
            _ => {}
        }
        io.log(|| line(&report));
        self.reports.push((io.now, report));
    }

    fn on_signal(&mut self, io: &mut Io<'_>, output: HostSignalOutput) {
        match output {
            HostSignalOutput::Transmit { interface, to, datagram } => {
                let mut named = io.node.interfaces().filter(|i| i.name == interface);
                let found = named.find_map(|i| {
                    let own = i.addresses.iter().chain(&io.node.addresses);
                    let from = own.copied().find(|a| a.is_ipv4() == to.is_ipv4())?;
                    Some((i.index, from))
                });
                if let Some((index, from)) = found {
                    io.send_on(index, signalled(io.now, from, to.ip(), datagram));
                }
            }
            HostSignalOutput::Up { interface, anchor } => {
                let anchor = self.config.anchor.iter().find(|known| known.ip() == anchor.ip());
                let Some(anchor) = anchor.copied() else { return };
                self.handle(io, HostInput::SignalUp { interface, anchor });
            }
            HostSignalOutput::Message(message) => self.handle(io, HostInput::Signal(message)),
            HostSignalOutput::Down => self.handle(io, HostInput::SignalDown),
        }
    }

    fn restart(&mut self, io: &mut Io<'_>) {
        let inner: Vec<IpAddr> = self.inner().to_vec();
        for address in inner {
            io.set_address(address, false);
        }
        self.starts += 1;
        self.config.epoch += 1;
        self.end = HostEnd::new(self.config.clone(), seed(self.seed, self.starts));
        self.signal = signalling(&self.name, &self.config, self.seed, self.starts);
        self.effects.clear();
        self.interfaces.clear();
        self.look_at_interfaces(io);
    }
}

fn signalling(name: &str, config: &HostConfig, seed: u64, start: u64) -> HostSignal {
    let anchors = config.anchor.iter().map(|a| SocketAddr::new(a.ip(), SIGNAL_PORT)).collect();
    let ids = Rng::new(seed.rotate_left(32) ^ start).next_u64();
    HostSignal::new(name.into(), anchors, ids)
}

impl Agent for HostAgent {
    fn start(&mut self, io: &mut Io<'_>) {
        self.look_at_interfaces(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, packet: Packet) {
        if !io.node.owns(packet.dst) {
            self.end.send(io.now, inner(packet), &mut self.effects);
            self.work(io);
            return;
        }
        let (from, to) = ends(&packet);
        match packet.body {
            Body::Tunnel(datagram) => {
                self.end.receive(io.now, from, to, datagram.message, &mut self.effects);
            }
            Body::Signal(datagram) => self.signal.receive(io.now, *datagram),
            _ => {}
        }
        self.work(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        while self.orders.front().is_some_and(|(at, _)| *at <= io.now) {
            match self.orders.pop_front() {
                Some((_, HostOrder::Input(input))) => self.handle(io, *input),
                Some((_, HostOrder::Restart)) => self.restart(io),
                None => {}
            }
        }
        if self.end.deadline().is_some_and(|at| at <= io.now) {
            self.end.tick(io.now, &mut self.effects);
        }
        if self.sweep_at <= io.now {
            self.sweep_at = io.now + SWEEP;
            self.end.sweep(io.now, &mut self.effects);
        }
        if self.signal.deadline().is_some_and(|at| at <= io.now) {
            self.signal.tick(io.now);
        }
        self.work(io);
    }

    fn deadline(&self) -> Option<Time> {
        let order = self.orders.front().map(|(at, _)| *at);
        let times = [self.end.deadline(), self.signal.deadline(), order, Some(self.sweep_at)];
        times.into_iter().flatten().min()
    }

    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        self.look_at_interfaces(io);
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        let Counts { connections, handovers, flows_moved, path_downs, probes, worst_silence } =
            self.counts;
        let registered = u64::from(self.end.machine.registered());
        for (what, count) in [
            ("registered", registered),
            ("connections", connections),
            ("handovers", handovers),
            ("flows_moved", flows_moved),
            ("path_downs", path_downs),
            ("probes_sent", probes),
            ("packets_refused", self.end.datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
        let since_start = self.registered.map_or(f64::NAN, Time::as_secs_f64);
        results.float(alloc::format!("{name}.registered_after_s"), since_start);
        results.float(alloc::format!("{name}.worst_silence_s"), worst_silence.as_secs_f64());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
