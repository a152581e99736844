//! A host on the stage, and its state outside of its machine.

use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::Prefix;
use segue_keepalive::Config as Keepalive;
use segue_sim::AgentId;
use segue_sim::packet::UDP;
use segue_sim::tunnel::{HostAgent, HostRole, add_host};
use segue_steering::Class;

use super::apps::{Apps, add_copy};
use super::layout::{APP_PORT, FLOWS};
use super::shape::{HostSettings, Settings, host_config};
use crate::fault::{HostShape, Node};
use crate::stage::Stage;

/// A host, and its state outside of the machine.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) keepalive: Keepalive,
    pub(super) follows_use: bool,
    pub(super) agent: AgentId,
    pub(super) apps: AgentId,
    pub(super) copy: AgentId,
    pub(super) enrolled: bool,
    pub(super) worn: bool,
    /// The operator's orders in force, by flow and by class.
    pub(super) pins: ([Option<usize>; FLOWS], [Option<usize>; Class::ALL.len()]),
    pub(super) flows: [Flow; FLOWS],
    /// The slot that each flow uses upwards, and since when.
    pub(super) routes: [(Option<u32>, Time); FLOWS],
    pub(super) paths: Vec<Path>,
    /// Number of reports already checked.
    pub(super) reports: usize,
    /// When a probe was last lost on a packet that was too large or filtered.
    pub(super) lost_probe: Time,
    /// Time since when the host is undisturbed and signalling is up, and time when everything sent before has
    /// arrived.
    pub(super) settled: Option<(Time, Time)>,
}

/// State of a host's path.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// The operator's keepalive setting, and since when.
    pub(super) keepalive: (bool, Time),
    /// By direction: since when data are lost because of their size without any packet of their flow passing, and
    /// the last loss.
    pub(super) too_large: [Option<(Time, Time)>; 2],
    /// When a too large packet was last lost upwards.
    pub(super) lost_up: Option<Time>,
}

/// The two streams (up and down) of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) runs: bool,
    /// Number of starts.
    pub(super) round: u32,
    /// Packets sent in the last seconds of the quiet time, up and down, and how many of them arrived.
    pub(super) sent: [u32; 2],
    pub(super) received: [u32; 2],
}

/// Adds a host's agents to the stage.
pub(super) fn add_mobile(
    stage: &mut Stage,
    number: usize,
    name: String,
    shape: &HostShape,
    settings: Settings,
    pools: &[Prefix],
) -> Host {
    let own = HostSettings::of(shape);
    let config = host_config(own, settings);
    let keepalive = config.path.keepalive.clone();
    let seed = stage.network.seed_of(2, number as u32);
    let (node, start) = (stage.hosts[number].node, stage.network.now());
    let agent = HostAgent::new(name.clone(), config, seed);
    let agent = add_host(&mut stage.network, node, name.clone(), agent, pools);
    stage.cast::<HostRole>(Node::Host(number), agent);
    let ports = [0, 1, 2].map(|flow| (UDP, APP_PORT + flow));
    let apps = stage.add_agent(Node::Host(number), &ports, Apps::default());
    let copy = add_copy(stage, number, name.clone());
    let path = Path { keepalive: (true, start), too_large: [None; 2], lost_up: None };
    Host {
        name,
        keepalive,
        follows_use: settings.follows_use,
        agent,
        apps,
        copy,
        enrolled: true,
        worn: own.worn,
        pins: Default::default(),
        flows: [Flow::default(); FLOWS],
        routes: [(None, start); FLOWS],
        paths: Vec::from_iter(shape.paths.iter().map(|_| path)),
        reports: 0,
        lost_probe: start,
        settled: None,
    }
}
