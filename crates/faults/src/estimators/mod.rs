//! The two ends of one path's measurement, [`Client`] and [`Server`], with only links between them.
//!
//! The server's clock is ahead of the client's by hours. Data passes in both directions while a flow runs. A restarted
//! host numbers from 1 again and keeps talking to the same server. A restarted anchor has other keys, so both ends
//! begin again and packets under way do not count.

mod invariants;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Server, ServerInput, ServerOutput,
};
use segue_wire::Probe;

use self::invariants::Watch;
use super::agenda::Agenda;
use super::link::Link;
use super::schedule::{FLOWS, Fault, Schedule};
use super::{Record, Violation, World};

/// A machine that asks for more ticks than this at one instant never comes to rest.
const MAX_TICKS: u32 = 8;
/// Most outputs of one input or tick of a client and of a server, by their own documentation.
const MAX_CLIENT_OUTPUTS: usize = 8;
const MAX_SERVER_OUTPUTS: usize = 4;
/// Bytes of any packet: none is too large for a link.
const BYTES: u32 = 100;

#[derive(Clone, Copy, Debug)]
enum Packet {
    /// K, whether it is a report, and whether a question.
    Request(Probe, u8, bool, bool),
    /// Whether it answers a question: neither counts.
    Response(Probe, bool),
    Unsolicited(Probe),
    Data,
}

impl Packet {
    /// What it adds to the counters.
    fn counted(self) -> u32 {
        match self {
            Packet::Request(.., question) | Packet::Response(_, question) => (!question).into(),
            Packet::Unsolicited(_) | Packet::Data => 1,
        }
    }
}

enum Event {
    AtServer(u32, Packet),
    AtClient(u32, Packet),
    /// The server hears over signalling that the keepalive is on or off.
    Switch(u32, bool),
    Flow(usize, u32),
}

/// The world. See the module's text.
pub struct Estimators {
    config: Config,
    client: Client,
    server: Server,
    /// How far the server's clock is ahead.
    offset: Span,
    up: Link,
    down: Link,
    /// Packets sent and received, as either end counts them: Sc, Rs, Ss, Rc.
    sc: u32,
    rs: u32,
    ss: u32,
    rc: u32,
    /// Whether each flow runs, and how often it began.
    flows: [(bool, u32); FLOWS],
    /// The start whose keys are in use: packets of others are refused.
    keys: u32,
    queue: Agenda<Event>,
    rng: Rng,
    ticks: (Time, u32),
    watch: Watch,
}

/// Distance of a flow's packets, which tells flows apart.
fn pace(flow: usize) -> Span {
    Span::from_millis([20, 35, 90][flow])
}

impl Estimators {
    /// Both ends at `start`, of the schedule's first host and path.
    #[must_use]
    pub fn new(schedule: &Schedule, start: Time) -> Estimators {
        let shape = &schedule.hosts[0];
        let path = shape.paths[0];
        let t_ka = Span::from_millis(u64::from(shape.t_ka_ms));
        let config = Config { k: shape.k, t_ka, ..Config::default() };
        let mut rng = Rng::new(schedule.seed);
        let offset = Span::from_millis(rng.below(10_000_000));
        let (up_seed, down_seed) = (rng.next_u64(), rng.next_u64());
        Estimators {
            client: Client::new(config.clone(), start, rng.next_u64()),
            server: Server::new(config.clone(), start + offset, true),
            watch: Watch::new(&config, start),
            config,
            offset,
            up: Link::new(path.up_ms, up_seed, start),
            down: Link::new(path.down_ms, down_seed, start),
            sc: 0,
            rs: 0,
            ss: 0,
            rc: 0,
            flows: [(false, 0); FLOWS],
            keys: 0,
            queue: Agenda::new(),
            rng,
            ticks: (start, 0),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.queue.schedule(at, event);
    }

    fn tell_client(&mut self, now: Time, input: ClientInput) -> Result<(), Violation> {
        self.client.handle(now, input);
        self.drain_client(now)
    }

    fn drain_client(&mut self, now: Time) -> Result<(), Violation> {
        let outputs: Vec<_> = core::iter::from_fn(|| self.client.poll()).take(99).collect();
        Violation::unless(outputs.len() <= MAX_CLIENT_OUTPUTS, "storm", || {
            format!("the client says {} things at once", outputs.len())
        })?;
        for output in outputs {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.watch.on_request(now, request.probe.seq)?;
                    self.sc = self.sc.wrapping_add(u32::from(!request.question));
                    let mut probe = request.probe;
                    (probe.t_sc, probe.sc) = (now.micros32(), self.sc);
                    probe.dt = now.micros32().wrapping_sub(request.held_since);
                    let (k, report) = (self.config.k, request.report);
                    self.send_up(now, Packet::Request(probe, k, report, request.question));
                }
                ClientOutput::Sample(sample) => {
                    let (up, down) = (self.up.delays(), self.down.delays());
                    self.watch.on_sample("client", &sample, up, down)?;
                }
                ClientOutput::State(_) | ClientOutput::Heard(_) | ClientOutput::Doubt(_) => {}
            }
        }
        Ok(())
    }

    fn tell_server(&mut self, now: Time, input: ServerInput) -> Result<(), Violation> {
        self.server.handle(now + self.offset, input);
        self.drain_server(now)
    }

    fn drain_server(&mut self, now: Time) -> Result<(), Violation> {
        let outputs: Vec<_> = core::iter::from_fn(|| self.server.poll()).take(99).collect();
        Violation::unless(outputs.len() <= MAX_SERVER_OUTPUTS, "storm", || {
            format!("the server says {} things at once", outputs.len())
        })?;
        for output in outputs {
            match output {
                ServerOutput::SendUnsolicited(request) => {
                    self.watch.on_unsolicited(now, request.probe.seq)?;
                    self.ss = self.ss.wrapping_add(1);
                    let us = (now + self.offset).micros32();
                    let dt = us.wrapping_sub(request.held_since);
                    let probe = Probe { t_ss: us, ss: self.ss, r: self.rs, dt, ..request.probe };
                    self.send_down(now, Packet::Unsolicited(probe));
                }
                ServerOutput::Sample(sample) => {
                    let (up, down) = (self.up.delays(), self.down.delays());
                    self.watch.on_sample("server", &sample, up, down)?;
                }
                ServerOutput::State(_) => {}
            }
        }
        Ok(())
    }

    fn send_up(&mut self, now: Time, packet: Packet) {
        for at in self.up.send(now, BYTES).into_iter().flatten() {
            self.schedule(at, Event::AtServer(self.keys, packet));
        }
    }

    fn send_down(&mut self, now: Time, packet: Packet) {
        for at in self.down.send(now, BYTES).into_iter().flatten() {
            self.schedule(at, Event::AtClient(self.keys, packet));
        }
    }

    fn at_server(&mut self, now: Time, packet: Packet) -> Result<(), Violation> {
        self.rs = self.rs.wrapping_add(packet.counted());
        let Packet::Request(probe, k, report, question) = packet else { return Ok(()) };
        let local = now + self.offset;
        self.ss = self.ss.wrapping_add(packet.counted());
        let answer = Probe { t_ss: local.micros32(), dt: 0, ss: self.ss, r: self.rs, ..probe };
        let arrival = arrival(local, probe, self.rs);
        self.send_down(now, Packet::Response(answer, question));
        self.tell_server(now, ServerInput::Request { arrival, k, report })
    }

    fn at_client(&mut self, now: Time, packet: Packet) -> Result<(), Violation> {
        self.rc = self.rc.wrapping_add(packet.counted());
        match packet {
            Packet::Response(probe, _) => {
                self.tell_client(now, ClientInput::Response(arrival(now, probe, self.rc)))
            }
            Packet::Unsolicited(probe) => {
                self.tell_client(now, ClientInput::Unsolicited(arrival(now, probe, self.rc)))
            }
            Packet::Request(..) | Packet::Data => Ok(()),
        }
    }

    fn happen(&mut self, now: Time, event: Event) -> Result<(), Violation> {
        match event {
            Event::AtServer(keys, packet) if keys == self.keys => self.at_server(now, packet),
            Event::AtClient(keys, packet) if keys == self.keys => self.at_client(now, packet),
            Event::AtServer(..) | Event::AtClient(..) => Ok(()),
            Event::Switch(keys, on) if keys == self.keys => {
                self.watch.server_switched(now, on);
                self.tell_server(now, ServerInput::Switch(on))
            }
            Event::Switch(..) => Ok(()),
            Event::Flow(flow, round) => {
                if self.flows[flow] == (true, round) {
                    (self.sc, self.ss) = (self.sc.wrapping_add(1), self.ss.wrapping_add(1));
                    self.send_up(now, Packet::Data);
                    self.send_down(now, Packet::Data);
                    self.schedule(now + pace(flow), Event::Flow(flow, round));
                }
                Ok(())
            }
        }
    }

    /// The earlier of both ends' deadlines, and whether it is the client's.
    fn deadline(&self) -> Option<(Time, bool)> {
        let client = self.client.deadline().map(|(at, _)| (at, true));
        let server = self.server.deadline().map(|(at, _)| (at - self.offset, false));
        client.into_iter().chain(server).min_by_key(|(at, _)| *at)
    }

    fn restart_client(&mut self, now: Time) {
        self.client = Client::new(self.config.clone(), now, self.rng.next_u64());
        (self.sc, self.rc) = (0, 0);
        self.watch.client_began(now);
        let at = now + self.up.delays().1;
        self.schedule(at, Event::Switch(self.keys, true));
    }

    fn restart_server(&mut self, now: Time) {
        self.keys += 1;
        self.server = Server::new(self.config.clone(), now + self.offset, true);
        (self.ss, self.rs) = (0, 0);
        self.watch.server_began(now);
    }

    fn switch(&mut self, now: Time, on: bool) -> Result<(), Violation> {
        self.watch.client_switched(now, on);
        let at = now + self.up.delays().1;
        self.schedule(at, Event::Switch(self.keys, on));
        self.tell_client(now, ClientInput::Switch(on))
    }
}

impl World for Estimators {
    fn next(&self) -> Option<Time> {
        let event = self.queue.next_at();
        self.deadline().map(|(at, _)| at.max(self.ticks.0)).into_iter().chain(event).min()
    }

    fn step(&mut self, now: Time, record: &mut Record) -> Result<(), Violation> {
        // Arrivals go before a tick that is due.
        if let Some((_, event)) = self.queue.pop_until(now) {
            let kind = match event {
                Event::AtServer(..) => 1,
                Event::AtClient(..) => 2,
                Event::Switch(..) => 3,
                Event::Flow(..) => 4,
            };
            record.note(now, &[kind], || describe(&event));
            return self.happen(now, event);
        }
        let Some((_, is_client)) = self.deadline() else { return Ok(()) };
        self.ticks = (now, if self.ticks.0 == now { self.ticks.1 + 1 } else { 0 });
        let never = self.ticks.1 > MAX_TICKS;
        Violation::unless(!never, "storm", || "an estimator never comes to rest".into())?;
        record.note(now, &[5, is_client.into()], || {
            let who = if is_client { "client" } else { "server" };
            format!("tick of the {who}")
        });
        if is_client {
            self.client.tick(now);
            self.drain_client(now)
        } else {
            self.server.tick(now + self.offset);
            self.drain_server(now)
        }
    }

    fn inject(&mut self, now: Time, fault: &Fault, _: &mut Record) -> Result<(), Violation> {
        match fault {
            Fault::Loss(_, way, _)
            | Fault::Burst(_, way, _)
            | Fault::Duplicate(_, way, _)
            | Fault::Reorder(_, way, ..)
            | Fault::Delay(_, way, _)
            | Fault::Cut(_, way)
            | Fault::Mend(_, way) => {
                if way.up() {
                    self.up.inject(now, fault);
                }
                if way.down() {
                    self.down.inject(now, fault);
                }
            }
            Fault::CutAll(_) | Fault::MendAll => {
                self.up.inject(now, fault);
                self.down.inject(now, fault);
                if *fault == Fault::MendAll {
                    self.switch(now, true)?;
                }
            }
            Fault::RestartHost(_) => self.restart_client(now),
            Fault::RestartAnchor => {
                self.restart_server(now);
                self.restart_client(now);
            }
            Fault::Keepalive(_, on) => self.switch(now, *on)?,
            Fault::Flow(_, flow, on) => {
                let (runs, round) = self.flows[*flow];
                let begins = *on && !runs;
                let round = round + u32::from(begins);
                self.flows[*flow] = (*on, round);
                if begins {
                    self.schedule(now, Event::Flow(*flow, round));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self, now: Time) -> Result<(), Violation> {
        self.watch.check(now, &self.client, &self.server, &self.up, &self.down)
    }

    fn finish(&mut self, _: Time) -> Result<(), Violation> {
        self.watch.finish(&self.client, &self.server)
    }

    fn describe(&self) -> String {
        let (client, server) = (&self.client, &self.server);
        format!(
            "client {:?}, heard {}, last response {:?}, {:?}\nserver {:?}, {:?}\nup {:?}\ndown {:?}",
            client.state(),
            client.heard(),
            client.last_response(),
            client.estimates(),
            server.state(),
            server.estimates(),
            self.up,
            self.down
        )
    }
}

fn arrival(at: Time, probe: Probe, received: u32) -> Arrival {
    Arrival { probe, at, received, sent_at: None, uncertainty: Span::ZERO }
}

fn describe(event: &Event) -> String {
    let packet = |packet: &Packet| match packet {
        Packet::Request(probe, ..) => format!("request {}", probe.seq),
        Packet::Response(probe, _) => format!("response {}", probe.seq),
        Packet::Unsolicited(probe) => format!("unsolicited response {}", probe.seq),
        Packet::Data => "data".into(),
    };
    match event {
        Event::AtServer(_, what) => format!("{} arrives at the server", packet(what)),
        Event::AtClient(_, what) => format!("{} arrives at the client", packet(what)),
        Event::Switch(_, on) => format!("the server hears: keepalive {on}"),
        Event::Flow(flow, _) => format!("flow {flow} sends"),
    }
}
