//! Applications that send packets at a fixed pace in both directions and record arrivals.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_sim::packet::UDP;
use segue_sim::{Agent, AgentId, ChannelId, Io, Packet, Payload};
use segue_wire::FlowKey;

use super::tap::Tape;
use super::{PEER, PEER_PORT, Stage, ms};

/// Number of the application for packets without one.
pub(super) const NO_APP: usize = usize::MAX;
/// Length of an application's packets, in bytes.
pub(super) const BYTES: u32 = 1_000;

/// The payload of an application's packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    /// The application's number.
    pub app: usize,
    /// Number of resets of its counts before the packet was sent.
    pub round: u32,
}

impl Payload for Data {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(*self)
    }

    fn write(&self, _packet: &Packet, _image: &mut Vec<u8>) {}
}

/// Keeps arrived packets, with the channel on which each came, until they are collected.
pub(super) struct Sink {
    got: Vec<(Time, Option<ChannelId>, Data)>,
    tape: Tape,
}

impl Sink {
    pub(super) fn new(tape: &Tape) -> Box<Sink> {
        Box::new(Sink { got: Vec::new(), tape: tape.clone() })
    }
}

impl Agent for Sink {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let data = *packet.value().expect("the packet of an application");
        self.got.push((io.now, self.tape.borrow().last, data));
    }
}

/// One flow of an application: a stream up and a stream down.
pub(crate) struct App {
    host: usize,
    /// The flow as in packets from the host.
    pub key: FlowKey,
    dscp: u8,
    pub interval: Span,
    pub running: bool,
    /// When it next sends.
    pub(super) next: Time,
    round: u32,
    sink: AgentId,
    pub up: Stream,
    pub down: Stream,
}

/// Statistics of one direction since the last [`Stream::reset`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub silent: bool,
    pub sent: u64,
    pub received: u64,
    /// Largest time between two arrivals.
    pub worst: Span,
    pub last_arrival: Option<Time>,
    /// Number of packets by the name of their path.
    pub over: BTreeMap<String, u64>,
}

impl Stream {
    fn reset(&mut self) {
        let (silent, last_arrival) = (self.silent, self.last_arrival);
        *self = Stream { silent, last_arrival, ..Stream::default() };
    }

    fn arrived(&mut self, now: Time, path: &str, counts: bool) {
        if let Some(last) = self.last_arrival.replace(now) {
            self.worst = self.worst.max(now.since(last));
        }
        if counts {
            self.received += 1;
            *self.over.entry(path.into()).or_default() += 1;
        }
    }

    /// The gap that a listener notices: the largest time between arrivals beyond the sending interval.
    pub(crate) fn gap(&self, interval: Span) -> Span {
        Span(self.worst.0.saturating_sub(interval.0))
    }

    pub(crate) fn count_over(&self, path: &str) -> u64 {
        self.over.get(path).copied().unwrap_or(0)
    }

    /// Number of packets that came over any other path.
    pub(crate) fn count_not_over(&self, path: &str) -> u64 {
        self.received - self.count_over(path)
    }
}

impl Stage {
    /// Starts a flow that sends every `interval` in both directions.
    pub(crate) fn add_app(&mut self, host: usize, sport: u16, dscp: u8, interval: Span) -> usize {
        let src = self.host(host).end().machine.inner()[0];
        let (dst, dport) = (PEER, PEER_PORT);
        let key = FlowKey { src, dst, sport, dport, protocol: UDP, label: 0 };
        let (node, app) = (self.hosts[host].node, self.apps.len());
        let sink = Sink::new(&self.tape);
        let sink = self.network.add_agent(node, format!("app{app}"), &[(UDP, sport)], sink);
        let (up, down, next) = (Stream::default(), Stream::default(), self.now());
        let (running, round) = (true, 0);
        let new = App { host, key, dscp, interval, running, next, round, sink, up, down };
        self.apps.push(new);
        app
    }

    /// 50 packets a second both ways, marked EF.
    pub(crate) fn add_voice(&mut self, host: usize) -> usize {
        let sport = 40_000 + self.apps.len() as u16;
        self.add_app(host, sport, 46, ms(20))
    }

    /// 200 packets a second both ways, marked CS1.
    pub(crate) fn add_bulk(&mut self, host: usize) -> usize {
        let sport = 40_000 + self.apps.len() as u16;
        self.add_app(host, sport, 8, ms(5))
    }

    /// Stops the applications and lets packets in flight arrive.
    pub(crate) fn stop_apps(&mut self) {
        for app in &mut self.apps {
            app.running = false;
        }
        self.run_for(ms(500));
    }

    pub(crate) fn reset_streams(&mut self) {
        for app in &mut self.apps {
            app.round += 1;
            app.up.reset();
            app.down.reset();
        }
    }

    /// The interfaces of a flow's uplink and downlink, by the two flow tables.
    pub(crate) fn routes(&self, app: usize) -> (Option<String>, Option<String>) {
        let App { host, key, .. } = &self.apps[app];
        let (host, anchor) = (self.host(*host).end(), self.anchor().end());
        let up = host.datapath.route(key).and_then(|slot| {
            host.machine.paths().find(|(n, _)| u32::from(*n) == slot).map(|(_, p)| p.name().into())
        });
        let down = anchor.datapath.route(&key.reversed());
        (up, down.and_then(|slot| anchor.machine.path(slot)).map(|path| path.name.clone()))
    }

    /// Returns whether both directions of the flow use this interface.
    pub(crate) fn flows_use(&self, app: usize, interface: &str) -> bool {
        self.routes(app) == (Some(interface.into()), Some(interface.into()))
    }

    pub(super) fn run_app(&mut self, number: usize) {
        let (now, peer) = (self.now(), self.peer);
        let App { key, dscp, interval, next, round, sink, up, down, .. } = &mut self.apps[number];
        *next = now + *interval;
        let (dscp, data) = (*dscp, Data { app: number, round: *round });
        let both = [(*key, *sink, up), (key.reversed(), peer, down)];
        let said = both.map(|(key, from, stream)| {
            stream.sent += u64::from(!stream.silent);
            (!stream.silent).then_some((key, from))
        });
        for (key, from) in said.into_iter().flatten() {
            self.network.command(from, |_: &mut Sink, io| {
                io.send(packet(io.now, key, dscp, data));
            });
        }
    }

    /// Records what has arrived at applications.
    pub(super) fn collect(&mut self) {
        let sinks = self.apps.iter().map(|app| app.sink).chain([self.peer]);
        for sink in sinks.collect::<Vec<_>>() {
            let got = std::mem::take(&mut self.network.agent_mut::<Sink>(sink).unwrap().got);
            for (at, channel, data) in got {
                let Some(app) = self.apps.get_mut(data.app) else { continue };
                let links = &self.hosts[app.host].links;
                let over =
                    links.iter().find(|link| [link.up, link.down].map(Some).contains(&channel));
                let stream = if sink == self.peer { &mut app.up } else { &mut app.down };
                stream.arrived(at, &over.unwrap().name, data.round == app.round);
            }
        }
    }
}

pub(super) fn packet(now: Time, key: FlowKey, dscp: u8, data: Data) -> Packet {
    let packet = Packet::new(UDP, (key.src, key.sport), (key.dst, key.dport), BYTES, data);
    Packet { dscp, sent: now, ..packet }
}
