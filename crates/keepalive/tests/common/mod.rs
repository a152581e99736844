//! Two ends in virtual time, with a link between them.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod datapath;

use std::collections::BTreeMap;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Sample, Server, ServerInput, ServerOutput,
    State, Tau,
};
use segue_wire::Probe;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Up,
    Down,
}

/// Returns the one-way delay of a packet that leaves at the given time; `None` if it is lost.
pub(crate) type Link = Box<dyn FnMut(Dir, Time) -> Option<Span>>;

#[derive(Clone, Copy, Debug)]
enum Packet {
    /// Probe, K, whether it is a report, whether it is a question.
    Request(Probe, u8, bool, bool),
    /// Probe, and whether it answers a question, which does not count.
    Response(Probe, bool),
    Unsolicited(Probe),
    Data(Dir),
}

/// Events of the log, except samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Log {
    Client(State),
    Heard(bool),
    Doubt(bool),
    Server(State),
    Request(u32),
    RequestArrived(u32),
    Unsolicited(u32),
}

pub(crate) struct World {
    pub now: Time,
    pub client: Client,
    pub server: Server,
    pub link: Link,
    /// Packets lost by the link, up and down.
    pub lost: [u64; 2],
    /// Sc, Rs, Ss, Rc.
    pub sc: u32,
    pub rs: u32,
    pub ss: u32,
    pub rc: u32,
    /// How far the server's clock is ahead of the client's.
    pub offset: Span,
    /// Time for which the server holds a request before it answers.
    pub hold: Span,
    pub log: Vec<(Time, Log)>,
    pub client_samples: Vec<Sample>,
    pub server_samples: Vec<Sample>,
    pub keep_samples: bool,
    pub keep_log: bool,
    /// Number of requests that left, including questions.
    pub requests: u64,
    queue: BTreeMap<(Time, u64), Packet>,
    count: u64,
}

impl World {
    pub(crate) fn new(config: Config, start: Time, offset: Span, link: Link) -> World {
        World {
            now: start,
            client: Client::new(config.clone(), start, 1),
            server: Server::new(config, start + offset, true),
            link,
            lost: [0, 0],
            sc: 0,
            rs: 0,
            ss: 0,
            rc: 0,
            offset,
            hold: Span::ZERO,
            log: Vec::new(),
            client_samples: Vec::new(),
            server_samples: Vec::new(),
            keep_samples: true,
            keep_log: true,
            requests: 0,
            queue: BTreeMap::new(),
            count: 0,
        }
    }

    /// Runs everything up to and including `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            let packet = self.queue.keys().next().map(|(at, _)| *at);
            let client = self.client.deadline().map(|(at, _)| at);
            let server = self.server.deadline().map(|(at, _)| at - self.offset);
            let Some(next) = [packet, client, server].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            if packet == Some(next) {
                if let Some((_, packet)) = self.queue.pop_first() {
                    self.arrive(packet);
                }
            } else if client == Some(next) {
                self.client.tick(self.now);
                self.drain_client();
            } else {
                self.server.tick(self.now + self.offset);
                self.drain_server();
            }
        }
        self.now = end;
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Sends one data packet.
    pub(crate) fn data(&mut self, dir: Dir) {
        match dir {
            Dir::Up => self.sc = self.sc.wrapping_add(1),
            Dir::Down => self.ss = self.ss.wrapping_add(1),
        }
        self.carry(dir, Packet::Data(dir), self.now);
    }

    pub(crate) fn reconfigure_client(&mut self, config: Config) {
        self.client.handle(self.now, ClientInput::Reconfigure(config));
        self.drain_client();
    }

    pub(crate) fn switch_client(&mut self, on: bool) {
        self.client.handle(self.now, ClientInput::Switch(on));
        self.drain_client();
    }

    pub(crate) fn switch_server(&mut self, on: bool) {
        self.server.handle(self.now + self.offset, ServerInput::Switch(on));
        self.drain_server();
    }

    /// When `wanted` was first logged at or after `from`.
    pub(crate) fn first_after(&self, from: Time, wanted: Log) -> Option<Time> {
        self.log.iter().find(|(at, log)| *at >= from && *log == wanted).map(|(at, _)| *at)
    }

    pub(crate) fn count_of(&self, wanted: Log) -> usize {
        self.log.iter().filter(|(_, log)| *log == wanted).count()
    }

    fn carry(&mut self, dir: Dir, packet: Packet, at: Time) {
        match (self.link)(dir, at) {
            Some(delay) => {
                self.count += 1;
                self.queue.insert((at + delay, self.count), packet);
            }
            None => self.lost[dir as usize] += 1,
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Data(Dir::Up) => self.rs = self.rs.wrapping_add(1),
            Packet::Data(Dir::Down) => self.rc = self.rc.wrapping_add(1),
            Packet::Request(probe, k, report, question) => {
                self.arrive_request(probe, k, report, question);
            }
            Packet::Response(probe, _) | Packet::Unsolicited(probe) => {
                let counts = !matches!(packet, Packet::Response(_, true));
                self.rc = self.rc.wrapping_add(counts.into());
                let arrival = Arrival::new(probe, self.now, self.rc);
                let input = if matches!(packet, Packet::Response(..)) {
                    ClientInput::Response(arrival)
                } else {
                    ClientInput::Unsolicited(arrival)
                };
                self.client.handle(self.now, input);
                self.drain_client();
            }
        }
    }

    fn arrive_request(&mut self, probe: Probe, k: u8, report: bool, question: bool) {
        self.rs = self.rs.wrapping_add((!question).into());
        self.ss = self.ss.wrapping_add((!question).into());
        self.note(Log::RequestArrived(probe.seq));
        let here = self.now + self.offset;
        let response = Probe {
            t_ss: (here + self.hold).micros32(),
            dt: (self.hold.0 / 1_000) as u32,
            ss: self.ss,
            r: self.rs,
            ..probe
        };
        self.carry(Dir::Down, Packet::Response(response, question), self.now + self.hold);
        let arrival = Arrival::new(probe, here, self.rs);
        self.server.handle(here, ServerInput::Request { arrival, k, report });
        self.drain_server();
    }

    fn note(&mut self, log: Log) {
        if self.keep_log {
            self.log.push((self.now, log));
        }
    }

    fn drain_client(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.sc = self.sc.wrapping_add((!request.question).into());
                    let t_sc = self.now.micros32();
                    let dt = t_sc.wrapping_sub(request.held_since);
                    let probe = Probe { t_sc, sc: self.sc, dt, ..request.probe };
                    self.requests += 1;
                    self.note(Log::Request(probe.seq));
                    let k = self.client.config().k;
                    let packet = Packet::Request(probe, k, request.report, request.question);
                    self.carry(Dir::Up, packet, self.now);
                }
                ClientOutput::State(state) => self.note(Log::Client(state)),
                ClientOutput::Heard(heard) => self.note(Log::Heard(heard)),
                ClientOutput::Doubt(doubt) => self.note(Log::Doubt(doubt)),
                ClientOutput::Sample(sample) if self.keep_samples => {
                    self.client_samples.push(sample);
                }
                ClientOutput::Sample(_) => {}
            }
        }
    }

    fn drain_server(&mut self) {
        while let Some(output) = self.server.poll() {
            match output {
                ServerOutput::SendUnsolicited(request) => {
                    self.ss = self.ss.wrapping_add(1);
                    let t_ss = (self.now + self.offset).micros32();
                    let dt = t_ss.wrapping_sub(request.held_since);
                    let probe = Probe { t_ss, ss: self.ss, r: self.rs, dt, ..request.probe };
                    self.note(Log::Unsolicited(probe.seq));
                    self.carry(Dir::Down, Packet::Unsolicited(probe), self.now);
                }
                ServerOutput::State(state) => self.note(Log::Server(state)),
                ServerOutput::Sample(sample) if self.keep_samples => {
                    self.server_samples.push(sample);
                }
                ServerOutput::Sample(_) => {}
            }
        }
    }
}

/// A link with a constant delay in each direction and no loss.
pub(crate) fn steady(one_way: Span) -> Link {
    Box::new(move |_, _| Some(one_way))
}

pub(crate) fn config(k: u8, t_ka: Span) -> Config {
    Config {
        k,
        t_ka,
        n: 10,
        taus: vec![Tau::symmetric(Span::from_secs(1)), Tau::symmetric(Span::from_secs(30))],
        up_after: 3,
        ..Config::default()
    }
}

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

pub(crate) fn at_ms(ms: u64) -> Time {
    Time(ms * 1_000_000)
}
