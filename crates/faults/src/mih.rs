//! IEEE 802.21 under faults: a link service access point at the first host, users at the other hosts, the
//! function in the core.
//!
//! Invariants: the events that a user has received match its table (`heard`). At the end the function and all
//! users know exactly the stations that are present (`agree`).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Rng, Span, Time};
use segue_mih::{
    Event, Interest, LinkConfig, Mihf, MihfConfig, MihfInput, Remote, Transport, What,
};
use segue_sim::mih::MihfRole;
use segue_sim::packet::UDP;
use segue_sim::role::Order as At;
use segue_sim::{AgentId, RoleAgent};
use segue_wire::mih::PORT;
use segue_wire::mih::codes::{EventList, LinkDownReason, LinkGoingDownReason, LinkType};
use segue_wire::mih::identity::{LinkAddress, LinkId};

use crate::fault::{Entry, Fault, HostShape, Node, PathRef, PathShape};
use crate::stage::{CORE, Touched};
use crate::{Protocol, Record, Scene, Schedule, Stage, Staged, Violation, Words, World};

/// Validity of a registration: short, so that many end within a run.
const VALIDITY: Span = Span::from_secs(8);
/// Number of stations that come and go.
const STATIONS: u64 = 3;
/// The quiet time is longer than for other protocols: without a known round trip time a peer gives up after 21 s,
/// and stations that are not reported again are removed 10 s after a subscription.
const LONGER_MS: u64 = 30_000;

/// The machines of IEEE 802.21 as a protocol. Its orders are `comes N`, `goes N` and `fades N`, for the events of
/// a station.
pub struct Mih;

impl Protocol for Mih {
    fn name(&self) -> &'static str {
        "mih"
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["function"]
    }

    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let host = |rng: &mut Rng| HostShape {
            settings: String::new(),
            paths: Vec::from([PathShape::draw(rng)]),
        };
        (Vec::new(), (0..2 + rng.below(2)).map(|_| host(rng)).collect())
    }

    fn draw_order(&self, rng: &mut Rng, _at: PathRef) -> Option<String> {
        let what = ["comes", "goes", "comes", "goes", "fades"][rng.below(5) as usize];
        Some(format!("{what} {}", rng.below(STATIONS)))
    }

    fn draw_more(&self, schedule: &mut Schedule) {
        let mut rng = Rng::new(schedule.seed ^ 0x6d69_6866);
        for _ in 0..4 + rng.below(12) {
            let at_ms = rng.below(schedule.quiet_ms);
            let order = self.draw_order(&mut rng, PathRef { host: 0, path: 0 });
            schedule.entries.extend(order.map(|order| Entry::own(at_ms, order)));
        }
        let at_ms = schedule.quiet_ms;
        schedule.entries.push(Entry { at_ms, fault: Fault::MendAll });
        schedule.entries.sort_by_key(|entry| entry.at_ms);
        schedule.quiet_ms = at_ms + LONGER_MS;
    }

    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        words.one_of("the setting", &[])
    }

    fn check_order(&self, words: &mut Words<'_>, _hosts: &[HostShape]) -> Result<(), String> {
        words.one_of("the order", &[("comes", ()), ("goes", ()), ("fades", ())])?;
        words.number("the station", 0, STATIONS - 1).map(drop)
    }

    fn check(&self, schedule: &Schedule) -> Result<(), String> {
        match schedule.hosts.iter().any(|host| host.paths.iter().any(|path| path.v6)) {
            true => Err("the function has an address of IPv4 alone".into()),
            false => Ok(()),
        }
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        Box::new(Staged(Links::new(schedule, start)))
    }
}

type Agent = RoleAgent<MihfRole>;

struct Links {
    stage: Stage,
    function: AgentId,
    /// The service access point first, then the users.
    hosts: Vec<AgentId>,
    /// Stations that are present.
    there: BTreeSet<u8>,
    /// Number of starts of the service access point: after each, its driver reports again which stations are
    /// present.
    starts: u64,
}

fn link() -> LinkId {
    LinkId { link_type: LinkType::IEEE_802_11, address: LinkAddress::mac([2, 0, 0, 0, 1, 1]) }
}

fn station(number: u8) -> LinkAddress {
    LinkAddress::mac([2, 0, 0, 0, 9, number])
}

impl Links {
    fn new(schedule: &Schedule, start: Time) -> Links {
        let mut stage = Stage::new(schedule, start);
        let ports = [(UDP, PORT)];
        let all = "0.0.0.0/0".parse().expect("it is a prefix");
        let peers = Vec::from([all]);
        let config = MihfConfig { peers, validity: VALIDITY, ..MihfConfig::new("function".into()) };
        let seed = stage.network.seed_of(1, 0);
        let function = Agent::of(MihfRole::new(config), seed);
        let function = stage.add_agent(Node::Fixed(0), &ports, function);
        stage.cast::<MihfRole>(Node::Fixed(0), function);
        let hosts = (0..stage.hosts.len()).map(|host| {
            let name = format!("host{host}");
            let functions = Vec::from([Remote::new(CORE, Transport::Udp)]);
            let mut config = MihfConfig {
                functions,
                validity: VALIDITY,
                ..MihfConfig::new(name.as_str().into())
            };
            let LinkId { link_type, address } = link();
            if host == 0 {
                config.links.push(LinkConfig::new(link_type, address));
            } else {
                let events = EventList(0x1f);
                config.interests.push(Interest { link: Some(address), events });
            }
            let seed = stage.network.seed_of(2, host as u32);
            let agent = Agent::of(MihfRole::new(config), seed);
            let agent = stage.add_agent(Node::Host(host), &ports, agent);
            stage.cast::<MihfRole>(Node::Host(host), agent);
            agent
        });
        let hosts = hosts.collect();
        stage.network.start();
        Links { stage, function, hosts, there: BTreeSet::new(), starts: 0 }
    }

    fn mihf(&self, agent: AgentId) -> &Mihf {
        self.stage.agent::<Agent>(agent).engine().machine()
    }

    fn happens(&mut self, who: u8, what: What) {
        let event = Event { link: link(), station: Some(station(who)), what };
        self.stage.command(self.hosts[0], |agent: &mut Agent, io| {
            agent.obey(io, At::Own(MihfInput::Event(event)));
        });
    }

    /// Stations that a function considers attached.
    fn known(&self, agent: AgentId) -> BTreeSet<LinkAddress> {
        let link = self.mihf(agent).links().get(&link());
        link.into_iter().flat_map(|link| link.stations.keys().cloned()).collect()
    }

    /// Stations reported to a user as attached.
    fn heard(&self, agent: AgentId) -> BTreeSet<LinkAddress> {
        let mut there = BTreeMap::new();
        for event in &self.stage.agent::<Agent>(agent).role().heard {
            let Some(station) = event.station.clone() else { continue };
            match event.what {
                What::Up => drop(there.insert(station, ())),
                What::Down(_) => drop(there.remove(&station)),
                _ => {}
            }
        }
        there.into_keys().collect()
    }
}

impl Scene for Links {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn order(&mut self, _now: Time, order: &str) {
        let Some((what, number)) = order.split_once(' ') else { return };
        let Ok(number) = number.parse::<u8>() else { return };
        match what {
            "comes" if self.there.insert(number) => self.happens(number, What::Up),
            "goes" if self.there.remove(&number) => {
                self.happens(number, What::Down(LinkDownReason::EXPLICIT_DISCONNECT));
            }
            "fades" if self.there.contains(&number) => {
                let reason = LinkGoingDownReason::LINK_PARAMETER_DEGRADING;
                self.happens(number, What::GoingDown { within_ms: 300, reason });
            }
            _ => {}
        }
    }

    fn check(&mut self, _now: Time, _at: Touched, _record: &mut Record) -> Result<(), Violation> {
        let starts = self.stage.agent::<Agent>(self.hosts[0]).starts();
        if starts != self.starts {
            self.starts = starts;
            for number in self.there.clone() {
                self.happens(number, What::Up);
            }
        }
        for user in self.hosts.iter().skip(1) {
            let (known, heard) = (self.known(*user), self.heard(*user));
            Violation::unless(known == heard, "heard", || {
                format!("it has heard of {heard:?} and knows {known:?}")
            })?;
        }
        Ok(())
    }

    fn finish(&mut self, _now: Time) -> Result<(), Violation> {
        let there: BTreeSet<LinkAddress> = self.there.iter().map(|who| station(*who)).collect();
        for agent in self.hosts.iter().skip(1).chain([&self.function]) {
            let known = self.known(*agent);
            Violation::unless(known == there, "agree", || {
                let name = self.mihf(*agent).config().name.0.escape_ascii();
                format!("{name} knows {known:?}, not {there:?}")
            })?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let mut text = format!("there: {:?}\n", self.there);
        for agent in self.hosts.iter().chain([&self.function]) {
            let mihf = self.mihf(*agent);
            let functions: Vec<_> = mihf.functions().map(|(.., registered)| registered).collect();
            text += &format!(
                "{}: {:?}, registered {functions:?}, refused {:?}\n",
                mihf.config().name.0.escape_ascii(),
                self.known(*agent),
                mihf.refused()
            );
        }
        text
    }
}
