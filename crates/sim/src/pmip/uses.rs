//! The protocols that gateways and anchors use beside their own, and the outputs of their nodes.

use alloc::vec::Vec;

use alloc::string::ToString;
use segue_aaa::{AaaConfig, Volume};
use segue_clock::{DayClock, Machine, Time, UnixTime};
use segue_ip::{Input, Output, Prefix};
use segue_mih::MihfConfig;
use segue_node::{Decided, Node, NodeInput, NodeReport, NodeWish, RADIUS_PORT};

use crate::Io;
use crate::mih::Sources;
use crate::packet::UDP;
use crate::role::Start;

/// The time of day when a run begins.
pub(super) const DAY: UnixTime = UnixTime::from_secs(1_700_000_000);
/// The time of day at a start.
pub(super) fn clock(start: &Start) -> DayClock {
    DayClock::new(start.now, DAY + start.now.since(Time::ZERO))
}

/// The protocols that a role uses beside its own. Each start sets seeds and clocks.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// The IEEE 802.21 function, if it receives events of links.
    pub mih: Option<MihfConfig>,
    /// The RADIUS client, if servers know its hosts.
    pub radius: Option<AaaConfig>,
}

impl Uses {
    /// The ports that the agent receives, with `own` ones of the role.
    pub(super) fn ports(&self, own: &[(u8, u16)]) -> Vec<(u8, u16)> {
        let mih = self.mih.as_ref().map(|config| (UDP, config.port));
        let radius = self.radius.as_ref().map(|_| (UDP, RADIUS_PORT));
        own.iter().copied().chain(mih).chain(radius).collect()
    }

    /// A node around a machine that starts.
    pub(super) fn node<R: Decided>(&self, start: &Start, machine: R) -> Node<R> {
        let radius = self.radius.clone().map(|config| {
            let (seed, clock) = (start.random(), clock(start));
            AaaConfig { side: R::SIDE, seed, clock, ..config }
        });
        Node::new(machine, radius)
    }

    /// The function of a start.
    pub(super) fn function(&self, start: &Start) -> Option<MihfConfig> {
        let seed = start.rng().next_u64();
        self.mih.clone().map(|config| MihfConfig { seed, ..config })
    }

    pub(super) fn sources(&self) -> Sources {
        Sources::of_port(self.mih.as_ref().map(|config| config.port))
    }
}

/// An output of a node without the reports of its other parts.
type OfRole<R> = Output<
    NodeWish<<R as segue_node::Role>::Wish>,
    <R as segue_node::Role>::Report,
    <R as segue_node::Role>::Record,
>;

/// The next output of a node that concerns its role.
pub(super) fn of_role<R: Decided>(
    node: &mut Node<R>,
    sources: &Sources,
    io: &mut Io<'_>,
) -> Option<OfRole<R>> {
    loop {
        return Some(match node.poll()? {
            Output::Send(mut datagram, after) => {
                sources.choose(io, &mut datagram);
                Output::Send(datagram, after)
            }
            Output::Forward(part) => Output::Forward(part),
            Output::Withdraw(part) => Output::Withdraw(part),
            Output::Persist(record) => Output::Persist(record),
            Output::Report(NodeReport::Role(report)) => Output::Report(report),
            Output::Own(NodeWish::Count { session, prefixes, last }) => {
                let volume = volume(io, &prefixes, last);
                node.handle(io.now, Input::Own(NodeInput::Counted { session, volume }));
                continue;
            }
            Output::Own(wish) => Output::Own(wish),
            Output::Report(report) => {
                io.log(|| report.to_string());
                continue;
            }
        });
    }
}

/// Traffic of prefixes since counting began; counting ends if this is the `last` reading.
fn volume(io: &mut Io<'_>, prefixes: &[Prefix], last: bool) -> Volume {
    let mut volume = Volume::default();
    for prefix in prefixes {
        let count = io.node.relay().map(|relay| relay.counted(prefix)).unwrap_or_default();
        volume.input_packets += count.from[0];
        volume.input_octets += count.from[1];
        volume.output_packets += count.to[0];
        volume.output_octets += count.to[1];
        io.count(*prefix, !last);
    }
    volume
}
