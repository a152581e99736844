//! A model of a datapath that rides and measures: two machines with readings, or with probes, on a link.

use std::collections::BTreeMap;

use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Estimates, MeasuredBy, Reading, SILENCE,
    Sample, Server, ServerInput, ServerOutput, State,
};
use segue_wire::Probe;

use super::{Dir, Link};

/// Delay from the machine's order until the datapath sends it and starts its own grid.
const LATER: Span = Span(1_000);

/// Returns when the next data packet after the given time leaves, in the given direction.
pub(crate) type Traffic = Box<dyn FnMut(Dir, Time) -> Option<Time>>;

#[derive(Clone, Copy, Debug)]
enum Happening {
    Request(Probe),
    Response(Probe, bool),
    Data(Dir),
    /// A held response has found no ride.
    Sweep(u32),
    /// The host's datapath calls its driver, unless a later watch has replaced this one.
    Watch(Time),
    /// Data arrive, with the time at which the anchor reports to have heard the host.
    Arrives(Dir, Option<Time>),
}

/// Counters of one end's datapath.
#[derive(Clone, Debug, Default)]
struct Counts {
    sent: u32,
    rode: u32,
    last_sent: Option<Time>,
    received: u32,
    last_received: Option<Time>,
    last_heard: Option<Time>,
    watched: Option<Time>,
    run: u8,
    last_seq: u32,
    t_ka: Option<Span>,
    k: u8,
    /// The last RTT.
    rtt: Option<Span>,
}

impl Counts {
    fn on_probe(&mut self, at: Time, seq: u32) {
        self.received += 1;
        self.last_received = Some(at);
        let follows = self.run > 0 && seq == self.last_seq.wrapping_add(1);
        self.run = if follows { self.run.saturating_add(1) } else { 1 };
        self.last_seq = seq;
    }

    fn reading(&self, at: Time) -> Reading {
        Reading {
            at,
            sent: self.sent,
            rode: self.rode,
            last_sent: self.last_sent,
            received: self.received,
            last_received: self.last_received,
            last_heard: self.last_heard,
            watched: self.watched,
            run: self.run,
            k: self.k,
            t_ka: self.t_ka,
            traffic: segue_keepalive::Traffic::default(),
            estimates: self.rtt.map_or_else(Estimates::default, |rtt| Estimates {
                rtt_last: Some(rtt),
                rtt_min: Some(rtt),
                rtt_max: Some(rtt),
                rtt_ewma: vec![rtt.as_secs_f64()],
                ..Estimates::default()
            }),
        }
    }
}

/// Two ends, their datapaths and the link between them.
pub(crate) struct Plane {
    pub now: Time,
    pub client: Client,
    pub server: Server,
    pub config: Config,
    pub traffic: Traffic,
    pub states: Vec<(Time, State)>,
    pub server_states: Vec<(Time, State)>,
    pub heard: Vec<(Time, bool)>,
    pub doubts: Vec<(Time, bool)>,
    pub samples: Vec<Sample>,
    /// When requests left, and whether they rode.
    pub requests: Vec<(Time, bool)>,
    pub unsolicited: Vec<Time>,
    /// When the client's driver woke, by its deadline or by the datapath.
    pub wakes: Vec<Time>,
    /// One in this many calls of the datapath is lost on the way to the driver.
    pub lost_calls: Option<u64>,
    /// When data arrived, by direction.
    pub arrived: [Vec<Time>; 2],
    /// Data as the host's datapath sees them, and when the anchor last heard anything.
    data: segue_keepalive::Traffic,
    used: Option<Time>,
    anchor_heard: Option<Time>,
    link: Link,
    host: Counts,
    anchor: Counts,
    quiet: [bool; 2],
    /// Start of the grid of rides, and when the last one left.
    origin: Option<Time>,
    ridden: Option<Time>,
    seq: u32,
    /// The response that waits: the fields and the arrival of its request.
    held: Option<(Probe, Time)>,
    last_down_data: Option<Time>,
    unsolicited_seq: u32,
    queue: BTreeMap<(Time, u64), Happening>,
    count: u64,
}

impl Plane {
    pub(crate) fn new(config: Config, link: Link, mut traffic: Traffic) -> Plane {
        let start = Time(0);
        let mut queue = BTreeMap::new();
        for (n, dir) in [Dir::Up, Dir::Down].into_iter().enumerate() {
            if let Some(at) = traffic(dir, start) {
                queue.insert((at, n as u64), Happening::Data(dir));
            }
        }
        Plane {
            now: start,
            client: Client::new(config.clone(), start, 1),
            server: Server::new(config.clone(), start, true),
            config,
            traffic,
            states: Vec::new(),
            server_states: Vec::new(),
            heard: Vec::new(),
            doubts: Vec::new(),
            samples: Vec::new(),
            requests: Vec::new(),
            unsolicited: Vec::new(),
            wakes: Vec::new(),
            lost_calls: None,
            arrived: [Vec::new(), Vec::new()],
            data: segue_keepalive::Traffic::default(),
            used: None,
            anchor_heard: None,
            link,
            host: Counts::default(),
            anchor: Counts::default(),
            quiet: [false; 2],
            origin: None,
            ridden: None,
            seq: 0,
            held: None,
            last_down_data: None,
            unsolicited_seq: 0,
            queue,
            count: 2,
        }
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            let happening = self.queue.keys().next().map(|(at, _)| *at);
            let client = self.client.deadline().map(|(at, _)| at);
            let server = self.server.deadline().map(|(at, _)| at);
            let Some(next) = [happening, client, server].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            if happening == Some(next) {
                if let Some((_, happening)) = self.queue.pop_first() {
                    self.happen(happening);
                }
            } else if client == Some(next) {
                self.tick_client();
            } else {
                self.tick_server();
            }
        }
        self.now = end;
    }

    /// Applies new settings at both ends.
    pub(crate) fn reconfigure(&mut self, config: Config) {
        self.config = config.clone();
        self.client.handle(self.now, ClientInput::Reconfigure(config.clone()));
        self.drain_client();
        self.server.handle(self.now, ServerInput::Reconfigure(config));
        self.drain_server();
    }

    /// Applies new K and T_KA, which the datapath adopts immediately.
    pub(crate) fn set_pace(&mut self, k: u8, t_ka: Span) {
        self.config = Config { k, t_ka, ..self.config.clone() };
        self.client.handle(self.now, ClientInput::Reconfigure(self.config.clone()));
        self.drain_client();
    }

    /// Acts as a driver: passes a reading if the datapath has any, then the tick.
    fn tick_client(&mut self) {
        self.wakes.push(self.now);
        if self.config.rides
            || self.config.measured_by == MeasuredBy::PacketPath
            || self.config.doubt.is_some()
        {
            self.client.handle(self.now, ClientInput::Reading(self.reading()));
            self.drain_client();
        }
        self.client.tick(self.now);
        self.drain_client();
    }

    fn tick_server(&mut self) {
        if self.config.measured_by == MeasuredBy::PacketPath {
            self.server.handle(self.now, ServerInput::Reading(self.anchor.reading(self.now)));
            self.drain_server();
        }
        self.server.tick(self.now);
        self.drain_server();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request(probe) => self.on_request(probe),
            Happening::Response(probe, unsolicited) => self.on_response(probe, unsolicited),
            Happening::Data(dir) => self.on_data(dir),
            Happening::Watch(at) => self.on_watch(at),
            Happening::Arrives(dir, heard) => self.arrives(dir, heard),
            Happening::Sweep(seq) => {
                if let Some((probe, at)) = self.held.take_if(|(probe, _)| probe.seq == seq) {
                    self.respond(probe, at);
                }
            }
        }
    }

    fn on_data(&mut self, dir: Dir) {
        if let Some(at) = (self.traffic)(dir, self.now) {
            self.schedule(at, Happening::Data(dir));
        }
        if self.config.doubt.is_some() {
            self.leaves(dir);
        }
        if dir == Dir::Down {
            self.last_down_data = Some(self.now);
            if let Some((probe, at)) = self.held.take() {
                self.respond(probe, at);
            }
        } else if let Some(origin) = self.origin.filter(|_| self.config.rides) {
            let period = self.now.since(origin).0 / self.config.t_ka.0;
            let into = self.now.since(origin).0 % self.config.t_ka.0;
            if self.ridden.is_none_or(|at| at < self.now - Span(into)) {
                self.ridden = Some(self.now);
                self.request(true);
                self.watch(origin + self.config.t_ka * (period + 2));
            }
        }
    }

    /// Sends data across the link. The anchor's data state when it last heard the host.
    fn leaves(&mut self, dir: Dir) {
        if let Some(delay) = (self.link)(dir, self.now) {
            self.schedule(self.now + delay, Happening::Arrives(dir, self.anchor_heard));
        }
        if dir == Dir::Up {
            self.data.sent_at = Some(self.now);
            self.uses();
        }
    }

    fn arrives(&mut self, dir: Dir, heard: Option<Time>) {
        self.arrived[dir as usize].push(self.now);
        if dir == Dir::Up {
            self.anchor_heard = Some(self.now);
            return;
        }
        self.host.last_heard = Some(self.now);
        self.data.received_at = Some(self.now);
        self.data.received += 1;
        let delay = self.host.rtt.unwrap_or_default().half();
        // The time that it states is older by the one-way delay.
        self.data.heard_back = self.data.heard_back.max(heard.map(|at| at + delay));
        self.uses();
    }

    fn uses(&mut self) {
        self.data.bytes += 200;
        let silent = self.used.is_none_or(|at| self.now.since(at) > SILENCE);
        self.used = Some(self.now);
        if silent {
            self.wakes.push(self.now);
            self.client.handle(self.now, ClientInput::Reading(self.reading()));
            self.drain_client();
        }
    }

    fn reading(&self) -> Reading {
        Reading { traffic: self.data, ..self.host.reading(self.now) }
    }

    /// Watches, as a measuring datapath does, that another request rides and that responses arrive.
    fn watch(&mut self, until: Time) {
        if self.config.measured_by == MeasuredBy::PacketPath {
            let silent = self.host.last_received.map(|at| at + self.config.time_out());
            let until = silent.filter(|at| *at > self.now).map_or(until, |at| at.min(until));
            self.host.watched = Some(until);
            self.schedule(until, Happening::Watch(until));
        }
    }

    fn on_watch(&mut self, at: Time) {
        if self.host.watched != Some(at)
            || self.lost_calls.is_some_and(|one_in| at.0.is_multiple_of(one_in))
        {
            return;
        }
        self.wakes.push(self.now);
        self.client.handle(self.now, ClientInput::Reading(self.reading()));
        self.drain_client();
    }

    fn request(&mut self, rides: bool) {
        self.seq += 1;
        self.host.sent += 1;
        self.host.rode += u32::from(rides);
        self.host.last_sent = Some(self.now);
        self.requests.push((self.now, rides));
        let t_ka_ms = (self.config.t_ka.0 / 1_000_000) as u16;
        let probe = Probe {
            seq: self.seq,
            t_sc: self.now.micros32(),
            sc: self.seq,
            t_ka_ms,
            ..Probe::default()
        };
        if let Some(delay) = (self.link)(Dir::Up, self.now) {
            self.schedule(self.now + delay, Happening::Request(probe));
        }
    }

    fn on_request(&mut self, probe: Probe) {
        self.anchor_heard = Some(self.now);
        self.anchor.on_probe(self.now, probe.seq);
        self.anchor.k = self.config.k;
        self.anchor.t_ka = Some(self.config.t_ka);
        let t_ka = self.config.t_ka.min(Span::from_millis(segue_wire::HELD_AT_MOST_MS));
        if let Some((older, at)) = self.held.take() {
            self.respond(older, at);
        }
        let waits =
            self.config.rides && self.last_down_data.is_some_and(|at| self.now.since(at) <= t_ka);
        if waits {
            self.held = Some((probe, self.now));
            self.schedule(self.now + t_ka, Happening::Sweep(probe.seq));
        } else {
            self.respond(probe, self.now);
        }
        if self.config.measured_by == MeasuredBy::Machine || !self.quiet[1] {
            let arrival = Arrival::new(probe, self.now, self.anchor.received);
            let k = self.config.k;
            self.server.handle(self.now, ServerInput::Request { arrival, k, report: false });
            self.drain_server();
        }
    }

    fn respond(&mut self, request: Probe, came: Time) {
        self.anchor.sent += 1;
        let response = Probe {
            t_ss: self.now.micros32(),
            dt: (self.now.since(came).0 / 1_000) as u32,
            ss: self.anchor.sent,
            r: self.anchor.received,
            ..request
        };
        if let Some(delay) = (self.link)(Dir::Down, self.now) {
            self.schedule(self.now + delay, Happening::Response(response, false));
        }
    }

    fn on_response(&mut self, probe: Probe, unsolicited: bool) {
        self.host.last_heard = Some(self.now);
        if !unsolicited {
            self.host.on_probe(self.now, probe.seq);
            let us = self.now.micros32().wrapping_sub(probe.t_sc).wrapping_sub(probe.dt);
            self.host.rtt = Some(Span::from_micros(us.into()));
        }
        if self.config.measured_by == MeasuredBy::PacketPath && self.quiet[0] {
            return;
        }
        let arrival = Arrival::new(probe, self.now, self.host.received);
        let input = if unsolicited {
            ClientInput::Unsolicited(arrival)
        } else {
            ClientInput::Response(arrival)
        };
        self.client.handle(self.now, input);
        self.drain_client();
    }

    fn drain_client(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                ClientOutput::SendRequest(_) => {
                    self.request(false);
                    (self.origin, self.ridden) = (Some(self.now + LATER), None);
                    self.host.watched = None;
                }
                ClientOutput::State(state) => self.states.push((self.now, state)),
                ClientOutput::Heard(heard) => self.heard.push((self.now, heard)),
                ClientOutput::Doubt(doubt) => self.doubts.push((self.now, doubt)),
                ClientOutput::Sample(sample) => self.samples.push(sample),
            }
        }
        self.quiet[0] = self.client.state() == State::Up;
    }

    fn drain_server(&mut self) {
        while let Some(output) = self.server.poll() {
            match output {
                ServerOutput::SendUnsolicited(request) => {
                    self.unsolicited_seq += 1;
                    self.unsolicited.push(self.now);
                    let probe = Probe { seq: self.unsolicited_seq, ..request.probe };
                    if let Some(delay) = (self.link)(Dir::Down, self.now) {
                        self.schedule(self.now + delay, Happening::Response(probe, true));
                    }
                }
                ServerOutput::State(state) => self.server_states.push((self.now, state)),
                ServerOutput::Sample(_) => {}
            }
        }
        self.quiet[1] = self.server.state() == State::Up;
    }

    fn schedule(&mut self, at: Time, happening: Happening) {
        self.count += 1;
        self.queue.insert((at, self.count), happening);
    }
}

/// No data.
pub(crate) fn idle() -> Traffic {
    Box::new(|_, _| None)
}

/// One packet per `every` in both directions, from `phase` on.
pub(crate) fn flow(every: Span, phase: Span) -> Traffic {
    Box::new(move |dir, now| {
        let first = if dir == Dir::Up { phase } else { phase.half() };
        let n = now.since(Time(0) + first).0 / every.0 + 1;
        Some(if now < Time(0) + first { Time(0) + first } else { Time(0) + first + every * n })
    })
}

/// Bursts of packets 3 ms apart, with random silences of up to `silence` between them.
pub(crate) fn bursts(seed: u64, silence: Span) -> Traffic {
    let mut rng = Rng::new(seed);
    Box::new(move |_, now| {
        let pause = if rng.chance(0.1) { Span(rng.below(silence.0)) } else { Span::ZERO };
        Some(now + Span::from_millis(3) + pause)
    })
}
