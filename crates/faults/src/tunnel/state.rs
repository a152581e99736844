//! State of a run of tunnels: the stage, its agents, and the data of reference model and invariants.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{Ipv4Addr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_sim::packet::UDP;
use segue_sim::tunnel::{AnchorAgent, AnchorEnd, AnchorRole, HostAgent, HostEnd, add_anchor};
use segue_sim::{AgentId, Packet};
use segue_tunnel::{AnchorConfig, Pool};
use segue_wire::FlowKey;

use super::apps::Apps;
use super::host::{Host, add_mobile};
use super::layout::{
    APP_PORT, COUNTED, EXPIRY, IN_FLIGHT, MAX_SLOTS, POOL_LEN, POOL_LEN_V6, PORT, REST, SERVER,
    SERVER_PORT, SERVER_V6, SILENT,
};
use super::reference::Reference;
use super::shape::Settings;
use super::streams::Streams;
use super::tap::{Tag, Tap, Tape};
use super::watch::Watch;
use crate::Schedule;
use crate::agenda::Agenda;
use crate::fault::{HostShape, Node, PathRef};
use crate::schedule::QUIET_MS;
use crate::stage::Stage;
use crate::truth::Truth;

/// The scene; see the module documentation.
pub(super) struct Tunnels {
    pub(super) stage: Stage,
    pub(super) tape: Rc<RefCell<Tape>>,
    pub(super) shapes: Vec<HostShape>,
    pub(super) hosts: Vec<Host>,
    pub(super) anchor: AgentId,
    pub(super) server: AgentId,
    /// Sending times of flows: host, flow, and the flow's round.
    pub(super) queue: Agenda<(usize, usize, u32)>,
    /// The packet paths measure.
    pub(super) readings: bool,
    pub(super) reference: Reference,
    pub(super) streams: Streams,
    pub(super) watch: Watch,
    /// Start and end of the time in which flow packets count.
    pub(super) counted: (Time, Time),
    /// Packets that arrived, and packets that were too large for a link.
    pub(super) arrived: BTreeSet<Tag>,
    pub(super) too_large: BTreeSet<Tag>,
}

impl Tunnels {
    /// The network of a schedule at `start`.
    pub(super) fn new(schedule: &Schedule, start: Time) -> Tunnels {
        let settings = Settings::of(schedule);
        let mut stage = Stage::new(schedule, start);
        let (tap, tape) = Tap::new(stage.paths().to_vec(), stage.core);
        stage.network.observe(Box::new(tap));
        let network_v6 = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 0);
        let pools = [
            Prefix::new(Ipv4Addr::new(10, 7, 0, 0), POOL_LEN),
            Prefix::new(network_v6, POOL_LEN_V6),
        ];
        let config = AnchorConfig {
            port: PORT,
            pool_v4: Pool::new(pools[0]),
            pool_v6: Pool::new(pools[1]),
            max_paths: MAX_SLOTS,
            expiry: EXPIRY,
            rest: REST,
            resting: Vec::new(),
            measured_by: settings.measured_by(),
            largest: None,
            allow_upmt: false,
        };
        let names: Vec<String> = (0..stage.hosts.len()).map(|host| format!("host{host}")).collect();
        let agent = AnchorAgent::new(config, names.iter().cloned(), stage.network.seed_of(1, 0));
        let core = stage.core;
        let anchor = add_anchor(&mut stage.network, core, "anchor", agent, &pools, |_| false);
        stage.cast::<AnchorRole>(Node::Fixed(0), anchor);
        stage.network.node_mut(core).addresses.extend([SERVER, SERVER_V6]);
        let server = stage.add_agent(Node::Fixed(1), &[(UDP, SERVER_PORT)], Apps::default());
        let hosts = names.into_iter().zip(&schedule.hosts).enumerate();
        let hosts = hosts.map(|(number, (name, shape))| {
            add_mobile(&mut stage, number, name, shape, settings, &pools)
        });
        let hosts: Vec<Host> = hosts.collect();
        stage.network.start();
        let end = start + Span::from_millis(schedule.end_ms());
        Tunnels {
            watch: Watch::new(&hosts, end - Span::from_millis(QUIET_MS)),
            reference: Reference::new(hosts.len(), start),
            streams: Streams::default(),
            readings: settings.readings,
            stage,
            tape,
            shapes: schedule.hosts.clone(),
            hosts,
            anchor,
            server,
            queue: Agenda::new(),
            counted: (end - COUNTED, end - IN_FLIGHT),
            arrived: BTreeSet::new(),
            too_large: BTreeSet::new(),
        }
    }

    pub(super) fn host_agent(&self, host: usize) -> &HostAgent {
        self.stage.agent(self.hosts[host].agent)
    }

    pub(super) fn host_end(&self, host: usize) -> &HostEnd<Packet> {
        self.host_agent(host).end()
    }

    pub(super) fn anchor_agent(&self) -> &AnchorAgent {
        self.stage.agent(self.anchor)
    }

    pub(super) fn anchor_end(&self) -> &AnchorEnd<Packet> {
        self.anchor_agent().end()
    }

    /// The ground truth of a path of a host's machine, by its number.
    pub(super) fn truth_of(&self, host: usize, slot: u32) -> Option<(PathRef, Truth<'_>)> {
        let (_, path) = self.host_end(host).machine.paths().find(|(n, _)| u32::from(*n) == slot)?;
        let accesses = &self.stage.hosts[host].accesses;
        let path = accesses.iter().position(|access| access.name == path.name())?;
        let at = PathRef { host, path };
        Some((at, self.stage.truth(at)))
    }

    /// A flow's key in the host's packets; `None` before the host has an address.
    pub(super) fn key(&self, host: usize, flow: usize) -> Option<FlowKey> {
        let v6 = flow == SILENT;
        let inner = self.host_end(host).machine.inner();
        let src = *inner.iter().find(|address| address.is_ipv6() == v6)?;
        let dst = if v6 { SERVER_V6 } else { SERVER };
        let (sport, dport) = (APP_PORT + flow as u16, SERVER_PORT);
        Some(FlowKey { src, dst, sport, dport, protocol: UDP, label: 0 })
    }
}
