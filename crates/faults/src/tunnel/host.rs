//! A host on the stage, and what is known of it beside its machine.

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

/// A host, and what is known of it beside the machine.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) keepalive: Keepalive,
    pub(super) follows_use: bool,
    pub(super) agent: AgentId,
    pub(super) apps: AgentId,
    pub(super) copy: AgentId,
    pub(super) enrolled: bool,
    pub(super) worn: bool,
    /// What the operator has ordered and not ended, by flow and by class.
    pub(super) pins: ([Option<usize>; FLOWS], [Option<usize>; Class::ALL.len()]),
    pub(super) flows: [Flow; FLOWS],
    /// Over which slot each flow goes up, and since when.
    pub(super) routes: [(Option<u32>, Time); FLOWS],
    pub(super) paths: Vec<Path>,
    /// How many of its reports have been looked at.
    pub(super) reports: usize,
    /// When a probe was last lost on a packet that was too large, or filtered.
    pub(super) lost_probe: Time,
    /// Since when nothing has happened to it and signalling stands, and from when on what was under way then has arrived.
    pub(super) settled: Option<(Time, Time)>,
}

/// What is known of a path of a host.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Since when the operator's setting stands.
    pub(super) keepalive: (bool, Time),
    /// By direction, since when data have been lost for their size and none of their flow has passed, and when last.
    pub(super) too_large: [Option<(Time, Time)>; 2],
    /// When one was last lost on its way up.
    pub(super) lost_up: Option<Time>,
}

/// Two streams, up and down, of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) runs: bool,
    /// How often it began.
    pub(super) round: u32,
    /// Packets sent in the last seconds of the quiet time, up and down, and how many of those arrived.
    pub(super) sent: [u32; 2],
    pub(super) received: [u32; 2],
}

/// Puts a host's agents on the stage.
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
