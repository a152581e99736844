//! A domain with its reference model and invariants.

mod orders;
mod program;
mod reach;
mod servers;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::{FlowKey, Prefix};
use segue_netem::LinkSpec;
use segue_node::RADIUS_PORT;
use segue_pmip::{
    Access, AttachBy, DECISION, Encapsulation, LinkLayer, Lma, LmaWish, Mag, MagConfig, MagInput,
    NodeId, PeerAddress, SessionState,
};
use segue_sim::net::Hop;
use segue_sim::packet::UDP;
use segue_sim::pmip::{LmaRole, MagRole, no_clock};
use segue_sim::role::Order as At;
use segue_sim::{AgentId, RoleAgent};
use segue_wire::mobility::option::{AccessTechnology, Handoff};

use super::config::{
    HEARD, INTERFACES, LINK, NODES, PORTS, Place, UPLINK, add_server, client, every, gateway_name,
    lma_config, mag_config, node, seen_at, station,
};
use super::picture::Program;
use crate::fault::Node;
use crate::stage::Touched;
use crate::{Record, Scene, Schedule, Stage, Violation};

type Anchor = RoleAgent<LmaRole>;
type Gateway = RoleAgent<MagRole>;

pub(super) struct Domain {
    stage: Stage,
    lma: AgentId,
    mags: Vec<AgentId>,
    addresses: Vec<PeerAddress>,
    /// The gateway at which each interface is.
    truth: BTreeMap<Place, usize>,
    /// The prefixes first assigned to each interface.
    first: BTreeMap<Place, Vec<Prefix>>,
    /// Flows that await a decision, with the time of the request.
    asked: Vec<(FlowKey, Time)>,
    /// Gateways do not know how interfaces come to them (handoff indicator "unknown").
    unknown: bool,
    /// State after the last event: the anchor's bindings by number with gateway, prefixes and end; and the
    /// interfaces that each gateway served, with their ends.
    bound: BTreeMap<u32, (PeerAddress, Vec<Prefix>, Time)>,
    serving: Vec<BTreeMap<LinkLayer, Time>>,
    /// Interfaces that the anchor has at gateways, and when each last left a gateway.
    had: BTreeSet<(LinkLayer, PeerAddress)>,
    taken: BTreeMap<(LinkLayer, PeerAddress), Time>,
    /// State lost in a restart.
    lost: Option<String>,
    /// Time by which gateways hear the interfaces that are present again.
    heard: Time,
    /// The anchor's last start.
    began: Time,
    /// The RADIUS server, if there is one, and when it was last told to refuse or to accept each node.
    radius: Option<AgentId>,
    judged: BTreeMap<u8, Time>,
    program: Program,
    /// An interface that a gateway has served right after its binding was revoked.
    served_again: Option<String>,
}

/// The ports of an agent; `is_asked` adds that of its RADIUS client.
fn ports(is_asked: bool) -> Vec<(u8, u16)> {
    PORTS.into_iter().chain(is_asked.then_some((UDP, RADIUS_PORT))).collect()
}

/// Adds a gateway to a host of the stage, with an access. Returns its address, too.
fn add_gateway(
    stage: &mut Stage,
    gateway: usize,
    has: &impl Fn(&str) -> bool,
    is_asked: bool,
) -> (AgentId, PeerAddress) {
    let at = stage.hosts[gateway].node;
    let interface = stage.network.node(at).adapters[0].interface.clone();
    let proxy_coa = interface.addresses[0];
    let all = Prefix::default_of(proxy_coa.is_ipv6());
    stage.network.node_mut(at).routes.set(all, Hop::Interface(UPLINK));
    let link = stage.network.add_interface(at, "access");
    assert_eq!(link, LINK, "the second interface");
    let air = stage.network.add_node(format!("air{gateway}"));
    let there = stage.network.add_interface(air, "air");
    let ends = ((at, link), (air, there));
    let (spec, back) = (LinkSpec::default(), LinkSpec::default());
    stage.network.connect(ends.0, ends.1, spec, back).expect("a link without rate is one");
    let access = Access {
        interface: "access".into(),
        technology: AccessTechnology::WLAN,
        proxy_coa,
        handoff: if has("handoff unknown") { Handoff::UNKNOWN } else { Handoff::NEW_INTERFACE },
        by: AttachBy::Driver,
    };
    let encapsulation = if has("tunnels gre") { Encapsulation::Gre } else { Encapsulation::Ip };
    let config = MagConfig { encapsulation, ..mag_config(access, no_clock()) };
    let mut agent = MagRole::ordered(config);
    if is_asked {
        let name = gateway_name(gateway);
        agent.config.identities = None;
        agent.uses.radius = Some(client(name, proxy_coa.is_ipv6()));
    }
    let agent = Gateway::of(agent, stage.network.seed_of(2, gateway as u32));
    let agent = stage.add_agent(Node::Host(gateway), &ports(is_asked), agent);
    stage.cast::<MagRole>(Node::Host(gateway), agent);
    (agent, seen_at(gateway, proxy_coa))
}

impl Domain {
    pub(super) fn new(schedule: &Schedule, start: Time) -> Domain {
        let mut stage = Stage::new(schedule, start);
        let has = |setting: &str| schedule.settings.iter().any(|line| line == setting);
        let is_asked = has("radius gateways") || has("radius all");
        let radius = is_asked.then(|| add_server(&mut stage));
        let mut role = LmaRole::new(lma_config(&has, no_clock()));
        role.config.authorize = has("radius all");
        role.uses.radius = role.config.authorize.then(|| client("anchor".into(), true));
        let lma = Anchor::of(role, stage.network.seed_of(1, 0));
        let lma = stage.add_agent(Node::Fixed(0), &ports(is_asked), lma);
        stage.cast::<LmaRole>(Node::Fixed(0), lma);
        let gateways = 0..stage.hosts.len();
        let gateways = gateways.map(|gateway| add_gateway(&mut stage, gateway, &has, is_asked));
        let (mags, addresses) = gateways.collect();
        stage.network.start();
        let (truth, first, asked) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let unknown = has("handoff unknown");
        let heard = start + HEARD;
        let (bound, serving, lost) = (BTreeMap::new(), Vec::new(), None);
        Domain {
            stage,
            lma,
            mags,
            addresses,
            truth,
            first,
            asked,
            unknown,
            bound,
            serving,
            had: BTreeSet::new(),
            taken: BTreeMap::new(),
            lost,
            heard,
            began: start,
            radius,
            judged: BTreeMap::new(),
            program: Program::default(),
            served_again: None,
        }
    }

    fn lma(&self) -> &Lma {
        self.stage.agent::<Anchor>(self.lma).engine().0.machine()
    }

    fn mag(&self, gateway: usize) -> &Mag {
        self.stage.agent::<Gateway>(self.mags[gateway]).engine().0.machine()
    }

    fn at_mag(&mut self, gateway: usize, input: MagInput) {
        self.stage.command(self.mags[gateway], |agent: &mut Gateway, io| {
            agent.obey(io, At::Own(input));
        });
    }

    /// The anchor's bindings.
    fn bindings(&self) -> BTreeMap<u32, (PeerAddress, Vec<Prefix>, Time)> {
        let all = self.lma().sessions();
        let bound =
            all.map(|(number, at, until, session)| (number, (at, session.prefixes.clone(), until)));
        bound.collect()
    }

    /// Interfaces that a gateway serves, and until when.
    fn serves(&self, gateway: usize) -> BTreeMap<LinkLayer, Time> {
        let all = self.mag(gateway).stations().filter(|(.., at)| at.state.is_served());
        all.map(|(_, station, at)| (station.clone(), at.until)).collect()
    }

    /// The prefixes of an interface at a gateway that serves it.
    fn served(&self, gateway: usize, place: Place) -> Option<&Vec<Prefix>> {
        let wanted = station(place);
        let mut all = self.mag(gateway).stations();
        let found = all.find(|(_, there, at)| **there == wanted && at.state.is_served());
        found.map(|(_, _, at)| &at.prefixes)
    }

    fn detach(&mut self, gateway: usize, place: Place) {
        let (interface, station) = (LINK, station(place));
        self.at_mag(gateway, MagInput::Detached { interface, station });
    }
}

impl Scene for Domain {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn next(&self) -> Option<Time> {
        self.program.next().into_iter().chain([self.heard]).min()
    }

    /// Gateways hear the interfaces that are present.
    fn happen(&mut self, now: Time, _record: &mut Record) -> Touched {
        self.decide(now);
        if now < self.heard {
            return Touched::All;
        }
        self.heard = now + HEARD;
        for (place, gateway) in self.truth.clone() {
            if self.radius.is_some() {
                self.hear(now, gateway, place);
                continue;
            }
            let (interface, station) = (LINK, station(place));
            self.at_mag(gateway, MagInput::Attached { interface, station, link_local: None });
        }
        Touched::All
    }

    fn restarted(&mut self, now: Time, node: Node) {
        // The clock has a resolution of microseconds, so ends may differ by that much.
        let same = |a: Time, b: Time| a.since(b).max(b.since(a)) <= Span::from_micros(2);
        let lost = match node {
            Node::Fixed(_) => {
                self.began = now;
                self.program.lose();
                let after = self.bindings();
                let gone = self.bound.iter().find(|(number, (at, prefixes, until))| {
                    let is_same = |(there, own, end): &(PeerAddress, Vec<Prefix>, Time)| {
                        there == at && own == prefixes && same(*end, *until)
                    };
                    *until > now + Span::from_millis(1) && !after.get(number).is_some_and(is_same)
                });
                gone.map(|gone| format!("binding {gone:?} of {after:?}"))
            }
            Node::Host(gateway) => {
                let after = self.serves(gateway);
                let before = self.serving.get(gateway).into_iter().flatten();
                let mut alive = before.filter(|(_, until)| **until > now + Span::from_millis(1));
                let gone = alive.find(|(station, _)| !after.contains_key(station));
                gone.map(|gone| format!("{gone:?} at gateway {gateway}"))
            }
        };
        self.lost = lost;
    }

    fn order(&mut self, now: Time, order: &str) {
        let mut words = order.split(' ');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<u16> = words.filter_map(|word| word.parse().ok()).collect();
        let [gateway, n, last] = numbers[..] else { return };
        let (gateway, place) = (usize::from(gateway), (n as u8, last as u8));
        let known = n < NODES.into() && last < INTERFACES.into() && gateway < self.mags.len();
        match verb {
            "flow" => self.flow(now, n as u8, last),
            "place" => self.place(n as u8, last),
            "refuse" | "accept" => self.instruct(now, verb, n as u8),
            "revoke" => self.revoke(n as u8),
            "connect" => self.connect(),
            "leave" => self.disconnect(),
            "attach" | "roam" if known => {
                let before = self.truth.insert(place, gateway);
                if let Some(before) = before.filter(|before| *before != gateway && verb == "attach")
                {
                    self.detach(before, place);
                }
                let (interface, station) = (LINK, station(place));
                self.at_mag(gateway, MagInput::Attached { interface, station, link_local: None });
            }
            "detach" if known && self.truth.get(&place) == Some(&gateway) => {
                self.truth.remove(&place);
                self.detach(gateway, place);
            }
            _ => {}
        }
    }

    /// The link layers eventually notice interfaces that have left.
    fn mend(&mut self, _now: Time) {
        for gateway in 0..self.mags.len() {
            for place in
                every().filter(|place| self.truth.get(place) != Some(&gateway)).collect::<Vec<_>>()
            {
                self.detach(gateway, place);
            }
        }
    }

    fn check(&mut self, now: Time, _at: Touched, _record: &mut Record) -> Result<(), Violation> {
        let lost = self.lost.take();
        Violation::unless(lost.is_none(), "restored", || lost.unwrap_or_default())?;
        self.bound = self.bindings();
        let all = self.lma().sessions();
        let has = all.map(|(_, at, _, session)| (session.link_layer.clone(), at)).collect();
        let had = core::mem::replace(&mut self.had, has);
        self.taken.extend(had.difference(&self.had).cloned().map(|place| (place, now)));
        self.serving = (0..self.mags.len()).map(|gateway| self.serves(gateway)).collect();
        for (gateway, stations) in self.serving.iter().enumerate() {
            let lapsed = stations.iter().find(|(_, until)| **until < now);
            Violation::unless(lapsed.is_none(), "lapsed", || {
                format!("{lapsed:?} at gateway {gateway}")
            })?;
        }
        let lma = self.lma();
        let mut owners: BTreeMap<Prefix, NodeId> = BTreeMap::new();
        let mut own = |prefix: Prefix, node: &NodeId| {
            let before = owners.entry(prefix).or_insert_with(|| node.clone());
            Violation::unless(before == node, "unique", || {
                format!("{prefix} is {before}'s and {node}'s")
            })
        };
        let tunnels: Vec<PeerAddress> = lma.tunnels().map(|(_, gateway)| gateway).collect();
        for (number, gateway, _, session) in lma.sessions() {
            session.prefixes.iter().try_for_each(|prefix| own(*prefix, &session.node))?;
            Violation::unless(tunnels.contains(&gateway), "tunnel", || {
                format!("binding {number} at {gateway} has none")
            })?;
        }
        for gateway in 0..self.mags.len() {
            for (_, _, at) in self.mag(gateway).stations().filter(|(.., at)| at.state.is_served()) {
                let Some(identity) = &at.identity else { continue };
                at.prefixes.iter().try_for_each(|prefix| own(*prefix, &identity.node))?;
            }
        }
        self.check_former(now)?;
        self.check_reached(now)?;
        self.check_servers(now)?;
        self.check_program(now)?;
        self.check_flows()?;
        for place in every() {
            if let Some(gateway) = self.truth.get(&place)
                && !self.first.contains_key(&place)
                && let Some(prefixes) = self.served(*gateway, place)
            {
                let prefixes = prefixes.clone();
                self.first.insert(place, prefixes);
            }
        }
        let role = self.stage.agent::<Anchor>(self.lma).role();
        let answered = |key: &FlowKey| {
            role.wishes().any(|wish| {
                matches!(wish, LmaWish::Release(done) | LmaWish::Refuse(done) if done == key)
            })
        };
        // A restart forgets pending requests: the packet path asks again.
        let starts = self.stage.agent::<Anchor>(self.lma).starts();
        let late = |(key, since): &(FlowKey, Time)| {
            starts == 0 && now > *since + DECISION && !answered(key)
        };
        let late = self.asked.iter().find(|asked| late(asked));
        Violation::unless(late.is_none(), "answered", || format!("{late:?}"))
    }

    fn finish(&mut self, _now: Time) -> Result<(), Violation> {
        self.finish_servers()?;
        for place in every() {
            let truth = self.truth.get(&place).copied().filter(|_| !self.is_refused(place.0));
            let own = |session: &segue_pmip::Session| {
                session.node == node(place.0) && session.link_layer == station(place)
            };
            let bound = self
                .lma()
                .sessions()
                .filter(|(.., session)| own(session) && session.state == SessionState::Active);
            let bound: Vec<_> = bound.map(|(_, at, _, session)| (at, &session.prefixes)).collect();
            let served = (0..self.mags.len()).filter_map(|n| Some((n, self.served(n, place)?)));
            let served: Vec<_> = served.collect();
            let wanted = truth.map(|gateway| (gateway, self.addresses[gateway]));
            let good = match (wanted, &bound[..], &served[..]) {
                (None, [], []) => true,
                (Some((gateway, coa)), [(at, prefixes)], [(n, own)]) => {
                    (*at, *n) == (coa, gateway) && prefixes == own
                }
                _ => false,
            };
            Violation::unless(good, "agree", || {
                format!("{place:?} is at {wanted:?}; bound {bound:?}; served {served:?}")
            })?;
            // The anchor's information about the gateway is correct.
            let told = self.lma().sessions().find(|(.., session)| own(session));
            let told = told.map_or(&[][..], |(.., session)| session.elsewhere());
            let here = wanted.and_then(|(gateway, _)| {
                let mut all = self.mag(gateway).stations();
                all.find(|(_, there, _)| **there == station(place)).map(|(.., at)| at)
            });
            let known = here.is_none_or(|at| {
                told.iter()
                    .all(|prefix| at.off_link.contains(prefix) || at.prefixes.contains(prefix))
            });
            Violation::unless(known, "agree", || format!("{place:?}: {told:?}, and {here:?}"))?;
            // A gateway that does not know whether an interface is another one may assign the other's prefix to
            // it.
            let first = self.first.get(&place).filter(|_| !self.unknown);
            if let Some((first, (_, now))) = first.zip(served.first()) {
                Violation::unless(first == *now, "agree", || {
                    format!("{place:?} had {first:?} and has {now:?}")
                })?;
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (number, gateway, until, session) in self.lma().sessions() {
            text += &format!("binding {number} at {gateway} until {until:?}: {session:?}\n");
        }
        for gateway in 0..self.mags.len() {
            for (_, station, at) in self.mag(gateway).stations() {
                text += &format!("gateway {gateway}: {station} {at:?}\n");
            }
        }
        text + &format!("where they are: {:?}\n", self.truth)
    }
}
