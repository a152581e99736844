//! Proxy Mobile IPv6 on simulated nodes.
//!
//! ```text
//!   stock host ══ link of an access ══ Gateway (MagRole) ══ tunnel ══ Anchor (LmaRole) ── correspondent
//!              attached hosts: link events                    flows without a tunnel entry
//! ```

mod anchor;
mod gateway;
mod uses;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;

use segue_clock::{DayClock, Time, UnixTime};
use segue_ip::{Input, Interface, Prefix};
use segue_mih::Reporting;
use segue_node::{AnchorLinks, Event, GatewayLinks, NodeInput, NodeWish};
use segue_pmip::{
    Cause, FIXED_LINK_LOCAL, LinkLayer, Lma, LmaConfig, LmaInput, LmaRecord, LmaWish, MOBILITY,
    Mag, MagConfig, MagInput, MagRecord, Refused, Report, Schedule, SessionState, StoredLease,
    Wish,
};
use segue_wire::mih::identity::LinkAddress;
use segue_wire::nd::Message;

use crate::mih::seen_as;
use crate::net::{Adapter, CellId, Hop, Rule};
use crate::role::{Engine, Role, RoleAgent, Start, packet_of};
use crate::stock::{self, ICMPV6};
use crate::{AgentId, Io, Network, NodeId, Results};
pub use anchor::Anchor;
pub use gateway::Gateway;
pub use uses::Uses;
use uses::{DAY, clock};

/// Number of recent wishes that an anchor's role remembers.
const WISHES: usize = 4_096;

/// An arbitrary clock; each start sets the real one.
#[must_use]
pub fn no_clock() -> DayClock {
    DayClock::new(Time::ZERO, DAY)
}

/// A lease from before the run: an anchor assigns the same prefix to this host again.
#[must_use]
pub fn known_lease(prefix: Prefix, node: segue_pmip::NodeId, mac: [u8; 6]) -> LmaRecord {
    let rests = Some(UnixTime::from_secs(u32::MAX.into()));
    LmaRecord::Lease(prefix, Some(StoredLease { node, link_layer: LinkLayer::mac(mac), rests }))
}

/// Adds an anchor to a node, and routes its prefixes there from everywhere.
pub fn add_lma(
    network: &mut Network,
    node: NodeId,
    name: impl Into<String>,
    agent: RoleAgent<LmaRole>,
    transit: impl Fn(NodeId) -> bool,
) -> AgentId {
    let pool = agent.engine().0.machine().config().pool.network();
    let ports = agent.role().uses.ports(&[(MOBILITY, 0)]);
    let id = network.add_agent(node, name, &ports, Box::new(agent));
    network.route_prefix(pool, node, &transit);
    // Packets for the prefixes that no tunnel takes go to the agent.
    let rule = Rule { to: Some(pool), ..Rule::all(Hop::Agent(id)) };
    network.node_mut(node).routes.add_rule(rule);
    id
}

/// Adds a gateway to a node.
pub fn add_mag(
    network: &mut Network,
    node: NodeId,
    name: impl Into<String>,
    agent: RoleAgent<MagRole>,
) -> AgentId {
    let ports = agent.role().uses.ports(&[(MOBILITY, 0), (ICMPV6, 0)]);
    network.add_agent(node, name, &ports, Box::new(agent))
}

/// The role of an anchor. Each start sets the clock, the restart counter and the seed.
pub struct LmaRole {
    /// Machine settings, except those set at each start.
    pub config: LmaConfig,
    /// The protocols that it uses.
    pub uses: Uses,
    /// The anchor's recent wishes, oldest first, at most [`WISHES`].
    wishes: VecDeque<LmaWish>,
    /// What programs that decide about flows have been told, until they take it.
    told: Vec<(Option<u64>, Event)>,
}

impl LmaRole {
    /// An anchor that uses no other protocols.
    #[must_use]
    pub fn new(config: LmaConfig) -> LmaRole {
        LmaRole { config, uses: Uses::default(), wishes: VecDeque::new(), told: Vec::new() }
    }

    /// What programs have been told since the last call: to one, or to all.
    pub fn take_told(&mut self) -> Vec<(Option<u64>, Event)> {
        core::mem::take(&mut self.told)
    }

    /// The anchor's recent wishes since its last start, oldest first.
    pub fn wishes(&self) -> impl Iterator<Item = &LmaWish> {
        self.wishes.iter()
    }
}

impl Role for LmaRole {
    type Engine = Anchor;
    type Order = LmaInput;

    fn start(&mut self, start: &Start) -> Anchor {
        self.wishes.clear();
        self.told.clear();
        let machine = Lma::new(LmaConfig {
            clock: clock(start),
            restart_counter: start.number as u32 + 1,
            seed: start.rng().next_u64(),
            ..self.config.clone()
        });
        let mut node = self.uses.node(start, machine);
        if let Some(mut config) = self.uses.function(start) {
            let quality = self.config.schedule == Schedule::Quality;
            config.interests.extend(quality.then(Reporting::interest));
            node = node.listening(config, AnchorLinks::new(quality));
        }
        Anchor::new(node, self.uses.sources())
    }

    fn order(agent: &mut RoleAgent<LmaRole>, io: &mut Io<'_>, order: LmaInput) {
        agent.handle(io, Input::Own(NodeInput::Own(order)));
    }

    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Anchor, wish: NodeWish<LmaWish>) {
        let wish = match wish {
            NodeWish::Own(wish) => wish,
            NodeWish::Tell { to, event } => return self.told.push((to, event)),
            NodeWish::Count { .. } => return,
        };
        if let LmaWish::Inspect(flows) = wish {
            engine.inspect(io, &flows);
            return;
        }
        engine.settle(io, wish.clone());
        if self.wishes.len() >= WISHES {
            self.wishes.pop_front();
        }
        self.wishes.push_back(wish);
    }

    fn key(record: &LmaRecord) -> String {
        match record {
            LmaRecord::Session(number, _) => format!("session {number}"),
            LmaRecord::Lease(prefix, _) => format!("lease {prefix}"),
        }
    }

    fn results(agent: &RoleAgent<LmaRole>, name: &str, results: &mut Results) {
        let lma = agent.engine().0.machine();
        results.int(format!("{name}.bindings"), lma.sessions().count() as u64);
        results.int(format!("{name}.flows"), lma.flows().count() as u64);
        results.int(format!("{name}.flows_nowhere"), agent.engine().refused());
        for cause in Cause::ALL {
            let is_so = |report: &&Report| matches!(report, Report::Handover { cause: c, .. } if *c == cause);
            let all = agent.reports().iter().map(|(_, report)| report).filter(is_so);
            results.int(format!("{name}.handovers_{}", cause.name()), all.count() as u64);
        }
        refused(lma.refused(), name, results);
        results.int(format!("{name}.starts"), agent.starts());
        let handovers = agent.reports().iter().filter_map(|(at, report)| handover(*at, report));
        results.rows(format!("{name}.handovers"), handovers);
        results.rows(
            format!("{name}.bindings_at_end"),
            lma.sessions().map(|(_, gateway, _, own)| {
                let mut row = Results::new();
                row.text("mn_id", own.node.to_string());
                row.text("llid", own.link_layer.to_string());
                row.text("att", own.access.name().unwrap_or("unknown"));
                row.text("prefixes", words(&own.prefixes));
                row.text("proxy_coa", gateway.to_string());
                row.int("bid", own.bid.into());
                let is_active = own.state == SessionState::Active;
                row.text("state", if is_active { "active" } else { "leaving" });
                row
            }),
        );
    }
}

/// A handover, as in the status of an anchor.
fn handover(at: Time, report: &Report) -> Option<Results> {
    let Report::Handover { node, cause, from, to, flows, at: begun } = report else { return None };
    let mut row = Results::new();
    row.float("at_s", begun.as_secs_f64());
    row.text("mn_id", node.to_string());
    row.text("cause", cause.name());
    row.text("from", from.to_string());
    row.text("to", to.to_string());
    row.int("flows", *flows as u64);
    row.float("rebinding_ms", at.since(*begun).as_millis_f64());
    Some(row)
}

/// Refused messages, in total and by reason.
fn refused(all: &Refused, name: &str, results: &mut Results) {
    results.int(format!("{name}.refused"), all.values().sum());
    results.rows(
        format!("{name}.refused_by_reason"),
        all.iter().map(|(why, count)| {
            let mut row = Results::new();
            row.text("reason", why.name());
            row.int("messages", *count);
            row
        }),
    );
}

fn words<T: Display>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(" ")
}

/// The role of a gateway. Each start sets the clock, the restart counter and the seed.
pub struct MagRole {
    /// Machine settings, except those set at each start.
    pub config: MagConfig,
    /// Cells that are accesses, with the names of their interfaces.
    pub cells: BTreeMap<CellId, String>,
    /// If true, links report the hosts at accesses that the driver observes; otherwise orders do.
    pub watched: bool,
    /// The protocols that it uses.
    pub uses: Uses,
    /// Accesses whose link events come from an IEEE 802.21 function, with the names of their links there.
    pub told: BTreeMap<String, LinkAddress>,
}

impl MagRole {
    /// A gateway that learns of hosts through orders.
    #[must_use]
    pub fn ordered(config: MagConfig) -> MagRole {
        let (cells, told) = (BTreeMap::new(), BTreeMap::new());
        MagRole { config, cells, watched: false, uses: Uses::default(), told }
    }
}

impl Role for MagRole {
    type Engine = Gateway;
    type Order = MagInput;

    fn start(&mut self, start: &Start) -> Gateway {
        let machine = Mag::new(MagConfig {
            clock: clock(start),
            restart_counter: start.number as u32 + 1,
            seed: start.rng().next_u64(),
            ..self.config.clone()
        });
        let mut node = self.uses.node(start, machine);
        if let Some(config) = self.uses.function(start) {
            node = node.listening(config, GatewayLinks::new(self.told.clone()));
        }
        let told = self.told.keys().cloned().collect();
        Gateway::new(node, self.watched, told, self.uses.sources())
    }

    fn order(agent: &mut RoleAgent<MagRole>, io: &mut Io<'_>, order: MagInput) {
        agent.handle(io, Input::Own(NodeInput::Own(order)));
    }

    fn apply(&mut self, io: &mut Io<'_>, engine: &mut Gateway, wish: NodeWish<Wish>) {
        let NodeWish::Own(wish) = wish else { return };
        match wish {
            Wish::ToStation { datagram, .. } => {
                if let (Some(index), packet) = packet_of(io.now, datagram) {
                    io.send_alone(index, packet);
                }
            }
            Wish::Ask { interface } if engine.is_watched() => {
                let Some(mac) = engine.station(interface) else { return };
                let target_address = stock::link_local(mac);
                let options = Vec::new();
                let message = Message::NeighborSolicitation { target_address, options };
                stock::send(io, interface, FIXED_LINK_LOCAL, target_address, &message);
            }
            // Hosts that orders reported answer a solicitation at once.
            Wish::Ask { interface } => {
                let here: Vec<LinkLayer> =
                    engine.0.machine().served_at(interface).cloned().collect();
                for station in here {
                    let own = MagInput::Attached { interface, station, link_local: None };
                    engine.handle(io.now, Input::Own(NodeInput::Own(own)));
                }
            }
            Wish::Show { interface, station } => {
                let own = MagInput::Heard { interface, station, link_local: None };
                engine.handle(io.now, Input::Own(NodeInput::Own(own)));
            }
            Wish::Began { .. } | Wish::Ended { .. } => {}
            // The simulator has no other source of identities.
            Wish::Identify { interface, station } => {
                let identity = None;
                let own = MagInput::Identified { interface, station, identity };
                engine.handle(io.now, Input::Own(NodeInput::Own(own)));
            }
        }
    }

    /// A cell has one interface per radio; all of them belong to the cell's access.
    fn sees(&self, adapter: &Adapter) -> Option<Interface> {
        match adapter.of_cell {
            None => Some(adapter.interface.clone()),
            Some(_) => seen_as(&self.cells, adapter),
        }
    }

    fn key(record: &MagRecord) -> String {
        format!("{} {}", record.access, record.station)
    }

    fn results(agent: &RoleAgent<MagRole>, name: &str, results: &mut Results) {
        let mag = agent.engine().0.machine();
        let served = mag.stations().filter(|(.., at)| at.state.is_served());
        results.int(format!("{name}.hosts"), served.count() as u64);
        let is_new = |report: &&Report| matches!(report, Report::Registered { .. });
        let new = agent.reports().iter().map(|(_, report)| report).filter(is_new);
        results.int(format!("{name}.registrations"), new.count() as u64);
        refused(mag.refused(), name, results);
        results.int(format!("{name}.starts"), agent.starts());
        results.rows(
            format!("{name}.hosts_at_end"),
            mag.stations().map(|(access, llid, at)| {
                let mut row = Results::new();
                let mn_id = at.identity.as_ref().map(|identity| identity.node.to_string());
                row.text("mn_id", mn_id.unwrap_or_default());
                row.text("llid", llid.to_string());
                row.text("access", access.interface.as_str());
                row.text("prefixes", words(&at.prefixes));
                row.text("off_link", words(&at.off_link));
                row.text("proxy_coa", access.proxy_coa.to_string());
                row.text("state", at.state.name());
                if let Some(registered) = at.registered {
                    row.float("registered_ms", registered.since(at.since).as_millis_f64());
                }
                row
            }),
        );
    }
}
