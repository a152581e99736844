//! The two ends of one path's measurement, [`Client`] and [`Server`], connected by links only.
//!
//! The server's clock is up to hours ahead of the client's. Data pass in both directions while a flow runs. A
//! restarted host numbers from 1 again and keeps talking to the same server. A restarted anchor has other keys,
//! so both ends start again and packets in flight do not count.

mod draw;
mod event;
mod invariants;
mod settings;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Server, ServerInput, ServerOutput,
};
use segue_sim::net::{FaultyLink, LinkFault, Looks};
use segue_wire::Probe;

use self::event::{Event, Packet, describe};
use self::invariants::Watch;
use self::settings::Settings;
use super::agenda::Agenda;
use super::fault::{Fault, HostShape, Node, PathRef, PathShape};
use super::protocol::Protocol;
use super::schedule::Schedule;
use super::tunnel::shape::Period;
use super::{Record, Violation, Words, World};

/// A machine that asks for more ticks than this at one instant is considered to be in an endless loop.
const MAX_TICKS: u32 = 8;
/// Maximum number of outputs per input or tick of a client and a server, as documented there.
const MAX_CLIENT_OUTPUTS: usize = 8;
const MAX_SERVER_OUTPUTS: usize = 4;
/// Time from when an end resumes and checks its timeouts until it reads waiting packets. Less than the quarter of
/// T_KA for which a client waits for them.
const READS: Span = Span::from_millis(1);
/// Any packet, as seen by the links; no packet is too large for them.
const PROBE: Looks = Looks { bytes: 100, dscp: 0, ports: None };

/// Number of flows between the ends.
const FLOWS: usize = 3;

const AT: PathRef = PathRef { host: 0, path: 0 };

/// The two ends as a protocol. Its orders are `keepalive 0.0 on|off`, `flow 0 N start|stop` and
/// `period 0.0 k 3 t-ka 60ms`.
pub struct Keepalive;

/// An order of this protocol.
enum Order {
    Keepalive(bool),
    Flow(usize, bool),
    Period(Period),
}

impl Order {
    fn read(words: &mut Words<'_>, hosts: &[HostShape]) -> Result<Order, String> {
        let verb = words.next("the fault")?;
        match verb {
            "keepalive" => {
                words.path(hosts)?;
                Ok(Order::Keepalive(words.switch("the keepalive")?))
            }
            "flow" => {
                words.host(hosts)?;
                let flow = words.number("the flow", 0, FLOWS - 1)?;
                let runs = words.one_of("it", &[("start", true), ("stop", false)])?;
                Ok(Order::Flow(flow, runs))
            }
            "period" => {
                words.path(hosts)?;
                Ok(Order::Period(Period::read(words)?))
            }
            _ => Err(format!("\"{verb}\" is no fault; docs/simulator/faults.md has the list")),
        }
    }
}

impl Protocol for Keepalive {
    fn name(&self) -> &'static str {
        "keepalive"
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["server"]
    }

    fn moves(&self) -> bool {
        false
    }

    /// In one run of five the client's driver is late all the time.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let period = Period::draw(rng);
        let late_ms =
            if rng.chance(0.2) { 1 + rng.below(2 * u64::from(period.t_ka_ms)) } else { 0 };
        let settings = Settings { period, late_ms }.to_string();
        let host = HostShape { settings, paths: Vec::from([PathShape::draw(rng)]) };
        (Vec::new(), Vec::from([host]))
    }

    fn draw_order(&self, rng: &mut Rng, at: PathRef) -> Option<String> {
        let on = rng.chance(0.6);
        Some(if rng.chance(0.6) {
            format!("keepalive {at} {}", if on { "on" } else { "off" })
        } else {
            let flow = rng.below(FLOWS as u64);
            format!("flow {} {flow} {}", at.host, if on { "start" } else { "stop" })
        })
    }

    fn draw_more(&self, schedule: &mut Schedule) {
        draw::more(schedule);
    }

    fn check_host(&self, words: &mut Words<'_>) -> Result<(), String> {
        Settings::read(words).map(drop)
    }

    fn check_order(&self, words: &mut Words<'_>, hosts: &[HostShape]) -> Result<(), String> {
        Order::read(words, hosts).map(drop)
    }

    fn check(&self, schedule: &Schedule) -> Result<(), String> {
        match (schedule.hosts.len(), schedule.hosts[0].paths.len()) {
            (1, 1) => Ok(()),
            _ => Err("the estimators have one host with one path".to_string()),
        }
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        Box::new(Estimators::new(schedule, start))
    }
}

/// The world; see the module documentation.
struct Estimators {
    hosts: Vec<HostShape>,
    now: Time,
    config: Config,
    client: Client,
    server: Server,
    /// How far the server's clock is ahead.
    offset: Span,
    up: FaultyLink,
    down: FaultyLink,
    /// Packets sent and received as each end counts them: Sc, Rs, Ss, Rc.
    sc: u32,
    rs: u32,
    ss: u32,
    rc: u32,
    /// For each flow: true while it runs, and the number of its starts.
    flows: [(bool, u32); FLOWS],
    /// The start whose keys are in use; packets with other keys are refused.
    keys: u32,
    /// Number of client restarts.
    starts: u32,
    queue: Agenda<Event>,
    rng: Rng,
    ticks: (Time, u32),
    /// End of each end's stall.
    stalled: Stalls,
    /// The client's driver wakes only at multiples of this.
    late: Span,
    watch: Watch,
}

/// End of the stalls of client and server.
#[derive(Default)]
struct Stalls {
    client: Time,
    server: Time,
    /// Delay of the client's orders after a stall: zero, before it checks its timeouts, or [`READS`], when it has
    /// read waiting packets.
    orders: Span,
}

/// Packet interval of a flow, which also distinguishes the flows.
fn pace(flow: usize) -> Span {
    Span::from_millis([20, 35, 90][flow])
}

impl Estimators {
    /// Both ends at `start`, for the schedule's first host and path.
    fn new(schedule: &Schedule, start: Time) -> Estimators {
        let shape = &schedule.hosts[0];
        let path = shape.paths[0];
        let settings = Settings::of(shape);
        let (period, late) = (settings.period, Span::from_millis(settings.late_ms));
        let config = Config { k: period.k, t_ka: period.t_ka(), ..Config::default() };
        let link = |ms: u16, seed| FaultyLink::new(Span::from_millis(ms.into()), seed, start);
        let mut rng = Rng::new(schedule.seed);
        let offset = Span::from_millis(rng.below(10_000_000));
        let (up_seed, down_seed) = (rng.next_u64(), rng.next_u64());
        Estimators {
            client: Client::new(config.clone(), start, rng.next_u64()),
            server: Server::new(config.clone(), start + offset, true),
            watch: Watch::new(&config, late, start),
            late,
            config,
            offset,
            up: link(path.up_ms, up_seed),
            down: link(path.down_ms, down_seed),
            hosts: schedule.hosts.clone(),
            now: start,
            sc: 0,
            rs: 0,
            ss: 0,
            rc: 0,
            flows: [(false, 0); FLOWS],
            keys: 0,
            starts: 0,
            queue: Agenda::new(),
            rng,
            ticks: (start, 0),
            stalled: Stalls::default(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.queue.schedule(at, event);
    }

    fn tell_client(&mut self, now: Time, input: ClientInput) -> Result<(), Violation> {
        if let ClientInput::Response(arrival) = &input {
            self.watch.client_reads(arrival, self.up.delays().1 + self.down.delays().1);
        }
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
                    self.send_up(
                        now,
                        Packet::Request(probe, k, report, request.question, self.starts),
                    );
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
        let (at, copy) = self.up.send(now, &PROBE);
        for at in at.into_iter().chain(copy) {
            self.schedule(at, Event::AtServer(self.keys, packet));
        }
    }

    fn send_down(&mut self, now: Time, packet: Packet) {
        let (at, copy) = self.down.send(now, &PROBE);
        for at in at.into_iter().chain(copy) {
            self.schedule(at, Event::AtClient(self.keys, packet));
        }
    }

    fn at_server(&mut self, now: Time, packet: Packet) -> Result<(), Violation> {
        self.rs = self.rs.wrapping_add(packet.counted());
        let Packet::Request(probe, k, report, question, start) = packet else { return Ok(()) };
        self.watch.on_arrival(now, start, &probe, k);
        let local = now + self.offset;
        self.ss = self.ss.wrapping_add(packet.counted());
        let answer = Probe { t_ss: local.micros32(), dt: 0, ss: self.ss, r: self.rs, ..probe };
        let arrival = Arrival { question, ..Arrival::new(probe, local, self.rs) };
        self.send_down(now, Packet::Response(answer, question));
        let input = ServerInput::Request { arrival, k, report };
        if now <= self.stalled.server + READS {
            self.schedule(self.stalled.server + READS, Event::ServerReads(self.keys, input));
            return Ok(());
        }
        self.tell_server(now, input)
    }

    fn at_client(&mut self, now: Time, packet: Packet) -> Result<(), Violation> {
        self.rc = self.rc.wrapping_add(packet.counted());
        let input = match packet {
            Packet::Response(probe, question) => {
                let arrival = Arrival { question, ..Arrival::new(probe, now, self.rc) };
                ClientInput::Response(arrival)
            }
            Packet::Unsolicited(probe) => {
                ClientInput::Unsolicited(Arrival::new(probe, now, self.rc))
            }
            Packet::Request(..) | Packet::Data => return Ok(()),
        };
        if now <= self.stalled.client + READS {
            if let ClientInput::Response(arrival) = &input {
                self.watch.waits_for_client(now, &arrival.probe);
            }
            self.schedule(self.stalled.client + READS, Event::ClientReads(self.starts, input));
            return Ok(());
        }
        self.tell_client(now, input)
    }

    fn happen(&mut self, now: Time, event: Event) -> Result<(), Violation> {
        match event {
            Event::AtServer(keys, packet) if keys == self.keys => self.at_server(now, packet),
            Event::AtClient(keys, packet) if keys == self.keys => self.at_client(now, packet),
            Event::ClientReads(start, input) if start == self.starts => {
                self.tell_client(now, input)
            }
            Event::ServerReads(keys, input) if keys == self.keys => self.tell_server(now, input),
            Event::Order(start, order) if start == self.starts => self.on_order(now, &order),
            Event::AtServer(..)
            | Event::AtClient(..)
            | Event::ClientReads(..)
            | Event::ServerReads(..)
            | Event::Order(..) => Ok(()),
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

    /// The earlier of both ends' deadlines; true if it is the client's.
    fn deadline(&self) -> Option<(Time, bool)> {
        let grid = |at: Time| match self.late.0 {
            0 => at,
            late => Time(at.0.div_ceil(late) * late),
        };
        let client = self.client.deadline();
        let client = client.map(|(at, _)| (grid(at).max(self.stalled.client), true));
        let server = self.server.deadline();
        let server = server.map(|(at, _)| ((at - self.offset).max(self.stalled.server), false));
        client.into_iter().chain(server).min_by_key(|(at, _)| *at)
    }

    fn restart_client(&mut self, now: Time) {
        self.client = Client::new(self.config.clone(), now, self.rng.next_u64());
        (self.sc, self.rc) = (0, 0);
        self.starts += 1;
        self.stalled.client = Time::ZERO;
        self.watch.client_began(now, &self.config);
        let at = now + self.up.delays().1;
        self.schedule(at, Event::Switch(self.keys, true));
    }

    fn restart_server(&mut self, now: Time) {
        self.keys += 1;
        self.server = Server::new(self.config.clone(), now + self.offset, true);
        (self.ss, self.rs) = (0, 0);
        self.stalled.server = Time::ZERO;
        self.watch.server_began(now, &self.config);
    }

    /// Stalls an end unless it is stalled already.
    fn stall(&mut self, now: Time, node: Node, lasts: Span) {
        let until = now + lasts;
        match node {
            Node::Host(_) if self.stalled.client <= now => {
                self.stalled.client = until;
                self.stalled.orders = if self.rng.chance(0.5) { READS } else { Span::ZERO };
                let times = (now, until + READS);
                self.watch.client_stalls(times, &self.client, &self.up, &self.down);
            }
            Node::Fixed(_) if self.stalled.server <= now => {
                self.stalled.server = until;
                self.watch.server_stalls(until + READS);
            }
            _ => {}
        }
    }

    fn switch(&mut self, now: Time, on: bool) -> Result<(), Violation> {
        self.watch.client_switched(now, on);
        let at = now + self.up.delays().1;
        self.schedule(at, Event::Switch(self.keys, on));
        self.tell_client(now, ClientInput::Switch(on))
    }
}

impl Estimators {
    fn next(&self) -> Option<Time> {
        let event = self.queue.next_at();
        self.deadline().map(|(at, _)| at.max(self.ticks.0)).into_iter().chain(event).min()
    }

    fn run(&mut self, now: Time, record: &mut Record) -> Result<(), Violation> {
        // Arrivals precede a tick that is due at the same time.
        if let Some((_, event)) = self.queue.pop_until(now) {
            let kind = match event {
                Event::AtServer(..) => 1,
                Event::AtClient(..) => 2,
                Event::Switch(..) => 3,
                Event::Flow(..) => 4,
                Event::ClientReads(..) | Event::ServerReads(..) | Event::Order(..) => 6,
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

    fn on_order(&mut self, now: Time, order: &str) -> Result<(), Violation> {
        let read = Order::read(&mut Words::of(order), &self.hosts);
        if now < self.stalled.client && !matches!(read, Ok(Order::Flow(..))) {
            let waits = Event::Order(self.starts, order.to_string());
            self.schedule(self.stalled.client + self.stalled.orders, waits);
            return Ok(());
        }
        match read {
            Ok(Order::Keepalive(on)) => self.switch(now, on)?,
            Ok(Order::Flow(flow, on)) => self.run_flow(now, flow, on),
            Ok(Order::Period(period)) => {
                (self.config.k, self.config.t_ka) = (period.k, period.t_ka());
                self.watch.client_configured(now, &self.config);
                self.tell_client(now, ClientInput::Reconfigure(self.config.clone()))?;
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn run_flow(&mut self, now: Time, flow: usize, on: bool) {
        let (runs, round) = self.flows[flow];
        let begins = on && !runs;
        let round = round + u32::from(begins);
        self.flows[flow] = (on, round);
        if begins {
            self.schedule(now, Event::Flow(flow, round));
        }
    }

    fn check(&mut self, now: Time) -> Result<(), Violation> {
        self.watch.check(now, &self.client, &self.server, &self.up, &self.down)
    }
}

impl World for Estimators {
    fn now(&self) -> Time {
        self.now
    }

    fn step(&mut self, end: Time, record: &mut Record) -> Result<bool, Violation> {
        let Some(now) = self.next().filter(|now| *now <= end) else {
            self.now = end;
            return Ok(false);
        };
        self.now = now;
        self.run(now, record)?;
        self.check(now)?;
        Ok(true)
    }

    fn inject(&mut self, fault: &Fault, _: &mut Record) -> Result<(), Violation> {
        let now = self.now;
        match fault {
            Fault::Link(_, way, fault) => {
                if way.up() {
                    self.up.inject(now, *fault);
                }
                if way.down() {
                    self.down.inject(now, *fault);
                }
            }
            Fault::CutAll(_) | Fault::MendAll => {
                let mend = *fault == Fault::MendAll;
                let fault = if mend { LinkFault::Mend } else { LinkFault::Cut };
                self.up.inject(now, fault);
                self.down.inject(now, fault);
                if mend {
                    self.on_order(now, &format!("keepalive {AT} on"))?;
                }
            }
            Fault::Restart(Node::Host(_)) => self.restart_client(now),
            Fault::Restart(Node::Fixed(_)) => {
                self.restart_server(now);
                self.restart_client(now);
            }
            Fault::Stall(node, ms) => self.stall(now, *node, Span::from_millis((*ms).into())),
            Fault::Own(order) => self.on_order(now, order)?,
            _ => {}
        }
        self.check(now)
    }

    fn quiet(&mut self) -> Result<(), Violation> {
        for flow in 0..FLOWS {
            self.run_flow(self.now, flow, true);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Violation> {
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
