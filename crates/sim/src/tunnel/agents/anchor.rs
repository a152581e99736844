//! An anchor on a node.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

use segue_clock::{Span, Time};
use segue_tunnel::{AnchorConfig, AnchorInput, AnchorOutput, ConnId, Ending, Known, Report};

use super::super::signal::{AnchorSignal, AnchorSignalOutput};
use super::super::{AnchorEffect, AnchorEnd, Arrived};
use super::{ends, inner, line, seed, signalled, tunnelled};
use crate::packet::Body;
use crate::{Agent, Io, Packet, Results};

/// Something that happens to an anchor at a preset time.
#[derive(Clone, Debug)]
pub enum AnchorOrder {
    /// It crashes, and restarts after this time with what it has stored.
    Restart(Span),
    /// A host is enrolled.
    Enroll(String),
    /// A host's enrolment ends.
    Unenroll(String),
}

/// What an anchor counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    probes: u64,
    quiet: u64,
    data: u64,
    messages: u64,
    path_downs: u64,
    handovers: u64,
    restarts: u64,
}

/// The anchor's end of all tunnels on its node, with its signalling.
pub struct AnchorAgent {
    config: AnchorConfig,
    seed: u64,
    end: AnchorEnd<Packet>,
    signal: AnchorSignal,
    enrolled: BTreeSet<String>,
    admitted: BTreeSet<ConnId>,
    /// What it has stored.
    known: BTreeMap<String, Known>,
    orders: VecDeque<(Time, AnchorOrder)>,
    /// It has crashed and restarts then.
    dead_until: Option<Time>,
    reports: Vec<(Time, Report)>,
    counts: Counts,
    effects: Vec<AnchorEffect<Packet>>,
}

impl AnchorAgent {
    /// An anchor at which these hosts are enrolled. `seed` differs from that of any other end.
    #[must_use]
    pub fn new(
        config: AnchorConfig,
        enrolled: impl IntoIterator<Item = String>,
        seed_of_anchor: u64,
    ) -> AnchorAgent {
        AnchorAgent {
            end: AnchorEnd::new(config.clone(), seed(seed_of_anchor, 0)),
            signal: AnchorSignal::new(),
            enrolled: enrolled.into_iter().collect(),
            admitted: BTreeSet::new(),
            known: BTreeMap::new(),
            config,
            seed: seed_of_anchor,
            orders: VecDeque::new(),
            dead_until: None,
            reports: Vec::new(),
            counts: Counts::default(),
            effects: Vec::new(),
        }
    }

    /// Schedules an event at `at`, after earlier orders for the same time.
    pub fn order(&mut self, at: Time, order: AnchorOrder) {
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
    pub fn end(&self) -> &AnchorEnd<Packet> {
        &self.end
    }

    /// What it reported, and when.
    #[must_use]
    pub fn reports(&self) -> &[(Time, Report)] {
        &self.reports
    }

    /// Has it know what an earlier start stored.
    pub fn recall(&mut self, known: Vec<Known>) {
        self.end.recall(Time::ZERO, known.iter().cloned());
        self.known.extend(known.into_iter().map(|known| (known.name.clone(), known)));
    }

    /// What it has stored about the hosts.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    fn handle(&mut self, io: &mut Io<'_>, input: AnchorInput) {
        self.end.handle(io.now, input, &mut self.effects);
        self.work(io);
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

    fn on_effect(&mut self, io: &mut Io<'_>, effect: AnchorEffect<Packet>) {
        match effect {
            AnchorEffect::Transmit(outer, message) => {
                io.send(tunnelled(io.now, outer.local, outer.remote, message));
            }
            AnchorEffect::Deliver(inner, _) => {
                self.counts.data += 1;
                io.arrive(inner.payload);
            }
            AnchorEffect::Own(AnchorOutput::Signal(conn, message)) => {
                self.signal.send(io.now, conn, &message)
            }
            AnchorEffect::Own(AnchorOutput::Close(conn)) => self.signal.finish(io.now, conn),
            AnchorEffect::Persist(known) => {
                self.known.insert(known.name.clone(), known);
            }
            AnchorEffect::Own(AnchorOutput::SetMtu(..)) | AnchorEffect::Send(_) => {}
            AnchorEffect::Report(report) => {
                match &report {
                    Report::PathState { silent: Some(_), .. } => self.counts.path_downs += 1,
                    Report::Handover { .. } => self.counts.handovers += 1,
                    _ => {}
                }
                io.log(|| line(&report));
                self.reports.push((io.now, report));
            }
        }
    }

    fn on_signal(&mut self, io: &mut Io<'_>, output: AnchorSignalOutput) {
        match output {
            AnchorSignalOutput::Transmit { from, to, datagram } => {
                io.send(signalled(io.now, from.ip(), to.ip(), datagram));
            }
            AnchorSignalOutput::Connected { conn, host } => {
                if !self.enrolled.contains(&host) {
                    self.signal.close(io.now, conn);
                    return;
                }
                self.signal.limit(io.now, conn);
                self.admitted.insert(conn);
                self.handle(io, AnchorInput::Connected { conn, host });
            }
            AnchorSignalOutput::Message { conn, message } => {
                self.counts.messages += 1;
                if self.admitted.contains(&conn) {
                    self.handle(io, AnchorInput::Signal { conn, message });
                }
            }
            AnchorSignalOutput::Closed { conn } => {
                if self.admitted.remove(&conn) {
                    self.handle(io, AnchorInput::Disconnected { conn });
                }
            }
        }
    }

    fn on_order(&mut self, io: &mut Io<'_>, order: AnchorOrder) {
        match order {
            AnchorOrder::Restart(after) => {
                self.counts.restarts += 1;
                self.dead_until = Some(io.now + after);
                let start = self.counts.restarts;
                self.end = AnchorEnd::new(self.config.clone(), seed(self.seed, start));
                self.end.recall(io.now, self.known.values().cloned());
                self.signal = AnchorSignal::new();
                self.admitted.clear();
                self.effects.clear();
                io.log(|| "the anchor crashes".into());
            }
            AnchorOrder::Enroll(host) => {
                self.enrolled.insert(host);
            }
            AnchorOrder::Unenroll(host) => {
                self.enrolled.remove(&host);
                self.known.remove(&host);
                self.handle(io, AnchorInput::End { host, why: Ending::Removed });
            }
        }
    }
}

impl Agent for AnchorAgent {
    fn start(&mut self, io: &mut Io<'_>) {
        self.work(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, packet: Packet) {
        if self.dead_until.is_some() {
            return;
        }
        if !io.node.owns(packet.dst) {
            self.end.send(io.now, inner(packet), &mut self.effects);
            self.work(io);
            return;
        }
        let (from, to) = ends(&packet);
        match packet.body {
            Body::Tunnel(datagram) => {
                let message = datagram.message;
                let arrived = self.end.receive(io.now, from, to, message, &mut self.effects);
                let probe = matches!(arrived, Arrived::Probe | Arrived::Quiet);
                self.counts.probes += u64::from(probe);
                self.counts.quiet += u64::from(arrived == Arrived::Quiet);
            }
            Body::Signal(datagram) => self.signal.receive(io.now, from, to, *datagram),
            _ => {}
        }
        self.work(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.dead_until.take_if(|until| *until <= io.now);
        while self.orders.front().is_some_and(|(at, _)| *at <= io.now) {
            if let Some((_, order)) = self.orders.pop_front() {
                self.on_order(io, order);
            }
        }
        if self.end.deadline().is_some_and(|at| at <= io.now) {
            self.end.tick(io.now, &mut self.effects);
        }
        if self.signal.deadline().is_some_and(|at| at <= io.now) {
            self.signal.tick(io.now);
        }
        self.work(io);
    }

    fn deadline(&self) -> Option<Time> {
        let order = self.orders.front().map(|(at, _)| *at);
        let times = [self.end.deadline(), self.signal.deadline(), order, self.dead_until];
        times.into_iter().flatten().min()
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        let Counts { probes, quiet, data, messages, path_downs, handovers, restarts } = self.counts;
        for (what, count) in [
            ("hosts", self.end.machine.hosts().count() as u64),
            ("paths", self.end.machine.paths().count() as u64),
            ("probes", probes),
            ("probes_quiet", quiet),
            ("packets", data),
            ("messages", messages),
            ("path_downs", path_downs),
            ("handovers", handovers),
            ("restarts", restarts),
            ("packets_refused", self.end.datapath.refused()),
        ] {
            results.int(alloc::format!("{name}.{what}"), count);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
