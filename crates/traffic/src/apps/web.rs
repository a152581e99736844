//! Web browsing over TCP: pages, their objects, and the time to read them.
//!
//! ```text
//!  read ──► main object ──► parse ──► embedded objects, several at a time ──► read …
//!           └──────────── page load time ────────────────────────────────┘
//! ```
//!
//! Connections persist from page to page (RFC 9112, section 9.3), with one request at a time on each.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use segue_clock::{Rng, Span, Time};

use super::chance::Dist;
use super::connection::{Connection, earliest};
use super::histogram::Histogram;
use super::stream::Period;
use super::{BadConfig, End, Ends, Pair, report, require};
use crate::tcp::{Config, Endpoint, Sent, Variant};
use segue_sim::agent::{Agent, Io};
use segue_sim::packet::{Packet, TCP};
use segue_sim::results::Results;

/// A browser at the first end, a server at the second.
#[derive(Clone, Debug, PartialEq)]
pub struct WebConfig {
    /// Size of a page's main object, in bytes.
    pub main_bytes: Dist,
    /// Number of objects embedded in a page; rounded.
    pub objects: Dist,
    /// Size of an embedded object, in bytes.
    pub object_bytes: Dist,
    /// Seconds from the arrival of the main object to the requests for the embedded ones.
    pub parsing_s: Dist,
    /// Seconds from the end of a page to the request for the next.
    pub reading_s: Dist,
    /// Size of a request, in bytes.
    pub request_bytes: u32,
    /// Number of parallel connections. The browser uses this many ports starting at its first one, the server
    /// uses one.
    pub connections: u16,
    /// Number of pages after which the browser stops; `None`: unlimited.
    pub pages: Option<u64>,
    /// Start and end of page requests. The first request is sent at the start.
    pub period: Period,
    /// The transport connections.
    pub tcp: Config,
}

impl Default for WebConfig {
    /// 3GPP2's model of HTTP (cdma2000 Evaluation Methodology, C.R1002; also in IEEE 802.16m): lognormal main
    /// objects (mean 10 710 bytes) and embedded objects (mean 7 758 bytes), 5.64 embedded objects on average,
    /// exponential parsing (0.13 s) and reading times (30 s), requests of 350 bytes. Four connections with SACK,
    /// as today's hosts use it.
    fn default() -> WebConfig {
        WebConfig {
            main_bytes: Dist::Lognormal { mu: 8.37, sigma: 1.37, min: 100.0, max: 2e6 },
            objects: Dist::Pareto { shape: 1.1, scale: 2.0, max: 55.0, less: 2.0 },
            object_bytes: Dist::Lognormal { mu: 6.17, sigma: 2.36, min: 50.0, max: 2e6 },
            parsing_s: Dist::Exponential { mean: 0.13 },
            reading_s: Dist::Exponential { mean: 30.0 },
            request_bytes: 350,
            connections: 4,
            pages: None,
            period: Period { start: Span::ZERO, stop: None },
            tcp: Config::modern(Variant::Sack),
        }
    }
}

/// Maximum size of an object in bytes, and maximum number of objects per page: an unbounded distribution must not
/// stop a run.
const MAX_OBJECT_BYTES: f64 = 1e12;
const MAX_OBJECTS: f64 = 10_000.0;

impl WebConfig {
    /// The values of ns-2's test of `PagePool/WebTraf` (the model of Feldmann, Gilbert, Huang and Willinger,
    /// Dynamics of IP traffic, 1999): pages of one object with 10 packets of 1 000 bytes on average (Pareto II
    /// with shape 1.2), one second apart on average.
    #[must_use]
    pub fn ns2() -> WebConfig {
        WebConfig {
            main_bytes: Dist::ParetoII { mean: 10_000.0, shape: 1.2 },
            objects: Dist::Constant(0.0),
            object_bytes: Dist::ParetoII { mean: 10_000.0, shape: 1.2 },
            parsing_s: Dist::Constant(0.0),
            reading_s: Dist::Exponential { mean: 1.0 },
            ..WebConfig::default()
        }
    }

    /// Agents for both ends, the browser first. The first reports.
    ///
    /// # Errors
    /// The key with an invalid value.
    pub fn pair(&self, ends: &Ends, seed: u64) -> Result<Pair, BadConfig> {
        self.check(ends)?;
        let ports: Vec<u16> = (0..self.connections).map(|i| ends.first.1 + i).collect();
        let shared = Rc::new(RefCell::new(Shared {
            asked: ports.iter().map(|_| VecDeque::new()).collect(),
            sent: vec![Sent::default(); ports.len()],
        }));
        let connections = |at_server: bool| {
            let endpoint =
                |port: &u16| Endpoint { local: (ends.first.0, *port), remote: ends.second };
            let turned = |e: Endpoint| if at_server { e.reversed() } else { e };
            ports.iter().map(|port| Connection::new(self.tcp, turned(endpoint(port)))).collect()
        };
        let first_port = ends.first.1;
        let server = Server {
            connections: connections(true),
            first_port,
            request_bytes: u64::from(self.request_bytes),
            answered: vec![0; ports.len()],
            shared: shared.clone(),
        };
        let browser = Browser::new(self, connections(false), first_port, seed, shared);
        let listens = ports.iter().map(|port| (TCP, *port)).collect();
        Ok(Pair {
            first: End { agent: Box::new(browser), ports: listens },
            second: End { agent: Box::new(server), ports: vec![(TCP, ends.second.1)] },
        })
    }

    fn check(&self, ends: &Ends) -> Result<(), BadConfig> {
        for (key, dist) in [
            ("main_bytes", &self.main_bytes),
            ("objects", &self.objects),
            ("object_bytes", &self.object_bytes),
            ("parsing", &self.parsing_s),
            ("reading", &self.reading_s),
        ] {
            dist.check()
                .map_err(|problem| BadConfig { key, problem: format!("is wrong: {problem}") })?;
        }
        require(self.request_bytes > 0, "request_bytes", "must be above 0")?;
        let connections = 1..=64;
        require(
            connections.contains(&self.connections),
            "connections",
            "must lie between 1 and 64",
        )?;
        let room = ends.first.1.checked_add(self.connections - 1).is_some();
        require(room, "port", "must leave room above it for the connections")
    }
}

/// State shared by both ends: on the wire a request carries only its length.
struct Shared {
    /// Sizes of the requested objects in bytes, for each connection.
    asked: Vec<VecDeque<u64>>,
    /// Counters of the server's connections.
    sent: Vec<Sent>,
}

/// The server.
pub struct Server {
    connections: Vec<Connection>,
    first_port: u16,
    request_bytes: u64,
    answered: Vec<u64>,
    shared: Rc<RefCell<Shared>>,
}

impl Server {
    /// Answers requests that have arrived completely.
    fn answer(&mut self, io: &mut Io<'_>, i: usize) {
        while self.connections[i].delivered() >= (self.answered[i] + 1) * self.request_bytes {
            let asked = self.shared.borrow_mut().asked[i].pop_front();
            let Some(bytes) = asked else { break };
            self.answered[i] += 1;
            self.connections[i].offer(io, bytes);
        }
        self.shared.borrow_mut().sent[i] = self.connections[i].sent();
    }
}

/// The index of the connection to which a packet belongs, from the browser's port.
fn connection_of(packet_port: u16, first_port: u16, connections: usize) -> Option<usize> {
    packet_port.checked_sub(first_port).map(usize::from).filter(|i| *i < connections)
}

impl Agent for Server {
    fn start(&mut self, io: &mut Io<'_>) {
        self.connections.iter_mut().for_each(|connection| connection.start(io));
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let (port, _) = packet.ports;
        let Some(i) = connection_of(port, self.first_port, self.connections.len()) else { return };
        self.connections[i].receive(io, packet);
        self.answer(io, i);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        for i in 0..self.connections.len() {
            self.connections[i].wake(io);
            self.shared.borrow_mut().sent[i] = self.connections[i].sent();
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.connections.iter().filter_map(Connection::deadline).min()
    }
}

/// State of the browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The user reads until this time.
    Reading(Time),
    /// Waiting for the main object.
    Main,
    /// Parsing the main object until this time.
    Parsing(Time),
    /// Waiting for embedded objects; this many have not been requested yet.
    Objects(u64),
    /// No more pages.
    Done,
}

/// The browser.
pub struct Browser {
    config: WebConfig,
    connections: Vec<Connection>,
    first_port: u16,
    /// For each connection, the number of bytes received once the current object has arrived.
    expected: Vec<u64>,
    rng: Rng,
    doing: Doing,
    page_began: Time,
    pages_asked: u64,
    objects: u64,
    object_sizes: Histogram,
    embedded: Histogram,
    loads: Histogram,
    mains: Histogram,
    shared: Rc<RefCell<Shared>>,
}

/// Width of the bins of load times.
const BIN: Span = Span::from_millis(1);

impl Browser {
    fn new(
        config: &WebConfig,
        connections: Vec<Connection>,
        first_port: u16,
        seed: u64,
        shared: Rc<RefCell<Shared>>,
    ) -> Browser {
        let begin = config.period.within(config.period.begin());
        Browser {
            expected: vec![0; connections.len()],
            connections,
            first_port,
            rng: Rng::new(seed),
            doing: begin.map_or(Doing::Done, Doing::Reading),
            page_began: Time::ZERO,
            pages_asked: 0,
            objects: 0,
            object_sizes: Histogram::new(Span(1_000)),
            embedded: Histogram::new(Span(1)),
            loads: Histogram::new(BIN),
            mains: Histogram::new(BIN),
            shared,
            config: config.clone(),
        }
    }

    fn whole(&mut self, dist: Dist, most: f64) -> u64 {
        libm::round(dist.draw(&mut self.rng).min(most)) as u64
    }

    fn ask(&mut self, io: &mut Io<'_>, i: usize, dist: Dist) {
        // The arrival of an empty object could not be detected.
        let bytes = self.whole(dist, MAX_OBJECT_BYTES).max(1);
        self.expected[i] += bytes;
        self.objects += 1;
        self.object_sizes.add(bytes as i64);
        self.shared.borrow_mut().asked[i].push_back(bytes);
        self.connections[i].offer(io, u64::from(self.config.request_bytes));
    }

    fn busy(&self, i: usize) -> bool {
        self.connections[i].delivered() < self.expected[i]
    }

    /// Advances as far as possible at this instant.
    fn advance(&mut self, io: &mut Io<'_>) {
        loop {
            let before = self.doing;
            self.doing = self.step(io);
            if self.doing == before {
                return;
            }
        }
    }

    fn step(&mut self, io: &mut Io<'_>) -> Doing {
        match self.doing {
            Doing::Reading(until) if until <= io.now => {
                self.pages_asked += 1;
                self.page_began = io.now;
                self.ask(io, 0, self.config.main_bytes);
                Doing::Main
            }
            Doing::Main if !self.busy(0) => {
                self.mains.add(io.now.since(self.page_began).0 as i64);
                Doing::Parsing(
                    io.now + Span::from_secs_f64(self.config.parsing_s.draw(&mut self.rng)),
                )
            }
            Doing::Parsing(until) if until <= io.now => {
                let objects = self.whole(self.config.objects, MAX_OBJECTS);
                self.embedded.add(objects as i64);
                Doing::Objects(objects)
            }
            Doing::Objects(left) => self.fetch(io, left),
            as_it_was => as_it_was,
        }
    }

    /// Requests embedded objects on idle connections; the page ends when all have arrived.
    fn fetch(&mut self, io: &mut Io<'_>, mut left: u64) -> Doing {
        for i in 0..self.connections.len() {
            if left > 0 && !self.busy(i) {
                self.ask(io, i, self.config.object_bytes);
                left -= 1;
            }
        }
        if left > 0 || (0..self.connections.len()).any(|i| self.busy(i)) {
            return Doing::Objects(left);
        }
        self.loads.add(io.now.since(self.page_began).0 as i64);
        if self.config.pages.is_some_and(|pages| self.pages_asked >= pages) {
            return Doing::Done;
        }
        let next = io.now + Span::from_secs_f64(self.config.reading_s.draw(&mut self.rng));
        self.config.period.within(next).map_or(Doing::Done, Doing::Reading)
    }

    /// Sizes of the requested objects, in bytes.
    #[must_use]
    pub fn object_sizes(&self) -> &Histogram {
        &self.object_sizes
    }

    /// Number of embedded objects of the pages whose main object arrived.
    #[must_use]
    pub fn embedded(&self) -> &Histogram {
        &self.embedded
    }

    /// Page load times, from the first request to the arrival of the last object.
    #[must_use]
    pub fn loads(&self) -> &Histogram {
        &self.loads
    }
}

impl Agent for Browser {
    fn start(&mut self, io: &mut Io<'_>) {
        self.connections.iter_mut().for_each(|connection| connection.start(io));
        self.advance(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let (_, port) = packet.ports;
        let Some(i) = connection_of(port, self.first_port, self.connections.len()) else { return };
        self.connections[i].receive(io, packet);
        self.advance(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.connections.iter_mut().for_each(|connection| connection.wake(io));
        self.advance(io);
    }

    fn deadline(&self) -> Option<Time> {
        let own = match self.doing {
            Doing::Reading(at) | Doing::Parsing(at) => Some(at),
            Doing::Main | Doing::Objects(_) | Doing::Done => None,
        };
        earliest(own, self.connections.iter().filter_map(Connection::deadline).min())
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        let bytes: u64 = self.connections.iter().map(Connection::delivered).sum();
        results.int(format!("{name}.pages_asked"), self.pages_asked);
        results.int(format!("{name}.pages"), self.loads.count());
        results.int(format!("{name}.objects"), self.objects);
        results.int(format!("{name}.delivered_bytes"), bytes);
        report::times(&format!("{name}.page_load_"), &self.loads, results);
        report::times(&format!("{name}.main_object_"), &self.mains, results);
        let sent = self.shared.borrow().sent.iter().fold(Sent::default(), |sum, s| Sent {
            segments: sum.segments + s.segments,
            retransmissions: sum.retransmissions + s.retransmissions,
            timeouts: sum.timeouts + s.timeouts,
            fast_retransmits: sum.fast_retransmits + s.fast_retransmits,
        });
        report::transport(&format!("{name}."), &sent, results);
    }
}
