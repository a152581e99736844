//! The template of a protocol, `segue-echo`, under faults: clients on the hosts, a server in the core.
//!
//! Invariants: no two clients have the same address (`unique`). The server has leased each client's address to it
//! (`leased`). At the end as many clients as there are addresses have one, also at their nodes, and their echoes
//! are answered (`served`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Rng, Span, Time};
use segue_echo::{ClientConfig, Order, PORT, ServerConfig};
use segue_ip::Prefix;
use segue_sim::echo::{EchoClient, EchoServer};
use segue_sim::net::LinkFault;
use segue_sim::packet::UDP;
use segue_sim::role::Order as At;
use segue_sim::{AgentId, RoleAgent};

use crate::fault::{Entry, Fault, HostShape, Node, PathRef, PathShape, Way};
use crate::stage::{CORE, Touched};
use crate::{Protocol, Record, Scene, Schedule, Stage, Staged, Violation, Words, World};

/// Leases are short, so that many end within a run.
const LIFETIME: Span = Span::from_secs(4);
/// Interval of a client's echoes.
const PERIOD: Span = Span::from_millis(700);
/// Minimum number of answers that a client with a lease gets in the quiet time.
const ANSWERS: u64 = 10;
/// Prefix lengths of the pools, with their number of addresses.
const POOLS: [(u8, usize); 2] = [(29, 6), (30, 2)];

/// Clients and a server as a protocol. Its setting is `pool LENGTH`, its order is `release HOST`.
pub struct Echo;

impl Protocol for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["server"]
    }

    /// Two to four clients with one or two paths each; in half of the runs there may be fewer addresses than
    /// clients.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let host = |rng: &mut Rng| HostShape {
            settings: String::new(),
            paths: (0..1 + rng.below(2)).map(|_| PathShape::draw(rng)).collect(),
        };
        let (pool, _) = POOLS[usize::from(rng.chance(0.5))];
        (Vec::from([format!("pool {pool}")]), (0..2 + rng.below(3)).map(|_| host(rng)).collect())
    }

    fn draw_order(&self, _rng: &mut Rng, at: PathRef) -> Option<String> {
        Some(format!("release {}", at.host))
    }

    /// In one run of five a host releases its address repeatedly while answers to it are delayed for long and
    /// some of its requests are lost.
    fn draw_more(&self, schedule: &mut Schedule) {
        let mut rng = Rng::new(schedule.seed ^ 0x6f_6c64_6572);
        if !rng.chance(0.2) {
            return;
        }
        let at = PathRef::draw(&mut rng, &schedule.hosts);
        let mut at_ms = schedule.quiet_ms;
        schedule.entries.push(Entry { at_ms, fault: Fault::MendAll });
        let held_up = Fault::Link(at, Way::Down, LinkFault::Reorder(500, 2_000));
        let lost = Fault::Link(at, Way::Up, LinkFault::Loss(400));
        for fault in [held_up, lost] {
            schedule.entries.push(Entry { at_ms: at_ms + 1_000, fault });
        }
        for _ in 0..12 {
            at_ms += 1_000 + rng.below(1_500);
            schedule.entries.push(Entry::own(at_ms, format!("release {}", at.host)));
        }
        schedule.quiet_ms = at_ms + 500;
    }

    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        words.expect("pool")?;
        words.one_of("the pool", &[("29", ()), ("30", ())])
    }

    fn check_order(&self, words: &mut Words<'_>, hosts: &[HostShape]) -> Result<(), String> {
        words.expect("release")?;
        words.host(hosts).map(drop)
    }

    fn check(&self, schedule: &Schedule) -> Result<(), String> {
        match schedule.hosts.iter().any(|host| host.paths.iter().any(|path| path.v6)) {
            true => Err("the server has an address of IPv4 alone".into()),
            false => Ok(()),
        }
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        Box::new(Staged(Echoes::new(schedule, start)))
    }
}

type Client = RoleAgent<EchoClient>;
type Server = RoleAgent<EchoServer>;

struct Echoes {
    stage: Stage,
    server: AgentId,
    clients: Vec<AgentId>,
    /// Number of addresses in the pool.
    addresses: usize,
    /// Number of each client's answers at the start of the quiet time.
    answered: Vec<u64>,
}

impl Echoes {
    fn new(schedule: &Schedule, start: Time) -> Echoes {
        let mut stage = Stage::new(schedule, start);
        let is = |(length, _): &&(u8, usize)| schedule.settings.contains(&format!("pool {length}"));
        let (length, addresses) = *POOLS.iter().find(is).unwrap_or(&POOLS[0]);
        let pool = Prefix::new([10, 9, 0, 0], length);
        let ports = [(UDP, PORT)];
        let config = ServerConfig::new(pool, LIFETIME).expect("each of the pools has room");
        let server = Server::of(EchoServer(config), stage.network.seed_of(1, 0));
        let server = stage.add_agent(Node::Fixed(0), &ports, server);
        stage.cast::<EchoServer>(Node::Fixed(0), server);
        let clients = (0..stage.hosts.len()).map(|host| {
            let server = (CORE, PORT).into();
            let config = ClientConfig { owner: host as u64, server, period: PERIOD, seed: 0 };
            let seed = stage.network.seed_of(2, host as u32);
            let agent = Client::of(EchoClient(config), seed);
            let agent = stage.add_agent(Node::Host(host), &ports, agent);
            stage.cast::<EchoClient>(Node::Host(host), agent);
            agent
        });
        let clients: Vec<AgentId> = clients.collect();
        stage.network.start();
        let answered = Vec::from_iter(clients.iter().map(|_| 0));
        Echoes { stage, server, clients, addresses, answered }
    }

    fn client(&self, host: usize) -> &segue_echo::Client {
        &self.stage.agent::<Client>(self.clients[host]).engine().0
    }
}

impl Scene for Echoes {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn order(&mut self, _now: Time, order: &str) {
        let host = order.split(' ').nth(1).and_then(|host| host.parse::<usize>().ok());
        if let Some(agent) = host.and_then(|host| self.clients.get(host)) {
            self.stage.command(*agent, |agent: &mut Client, io| {
                agent.obey(io, At::Own(Order::Release));
            });
        }
    }

    fn quiet(&mut self, _now: Time) {
        self.answered = (0..self.clients.len()).map(|host| self.client(host).answers()).collect();
    }

    fn check(&mut self, now: Time, _at: Touched, _record: &mut Record) -> Result<(), Violation> {
        let server = &self.stage.agent::<Server>(self.server).engine().0;
        // After a restart an owner may temporarily have two leases: its current address and an earlier one.
        let leased: Vec<(u64, Prefix)> = server.leases().collect();
        let mut seen = BTreeMap::new();
        for host in 0..self.clients.len() {
            // A lease that ends at this instant may already have ended at the server.
            let held = self.client(host).lease().filter(|(_, until)| *until > now);
            let Some((address, _)) = held else { continue };
            if let Some(other) = seen.insert(address, host) {
                let detail = format!("{address} at host {other} and host {host}");
                return Err(Violation::new("unique", detail));
            }
            Violation::unless(leased.contains(&(host as u64, address)), "leased", || {
                format!("host {host} has {address}, of the server's {leased:?}")
            })?;
        }
        Ok(())
    }

    fn finish(&mut self, _now: Time) -> Result<(), Violation> {
        let all = 0..self.clients.len();
        let served = |host: &usize| {
            let Some((address, _)) = self.client(*host).lease() else { return false };
            let node = self.stage.network.node(self.stage.hosts[*host].node);
            node.owns(address.addr)
                && self.client(*host).answers() >= self.answered[*host] + ANSWERS
        };
        let (served, wanted) = (all.filter(served).count(), self.addresses.min(self.clients.len()));
        Violation::unless(served == wanted, "served", || format!("{served} clients, not {wanted}"))
    }

    fn describe(&self) -> String {
        let server = &self.stage.agent::<Server>(self.server).engine().0;
        let mut text = format!("server: {:?}\n", server.leases().collect::<Vec<_>>());
        for host in 0..self.clients.len() {
            let client = self.client(host);
            text += &format!("host {host}: {:?} {:?}\n", client.state(), client.lease());
        }
        text
    }
}
