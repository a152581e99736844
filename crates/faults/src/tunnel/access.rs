//! A host's node: its end, its interfaces with the networks behind them, and its flows.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::{Span, Time};
use segue_ip::Interface;
use segue_keepalive::{Aims, Config as Keepalive, Source};
use segue_tunnel::{ConnId, HostConfig, PathConfig};
use segue_wire::FlowKey;

use super::super::link::Link;
use super::super::schedule::{FLOWS, HostShape, MTU};
use super::{ANCHOR, PORT, Tag};
use segue_sim::tunnel::HostEnd;

/// An interface of a host and the access network behind it.
pub(super) struct Access {
    pub name: String,
    pub ifindex: u32,
    /// The interface's address.
    pub inside: IpAddr,
    /// What the anchor sees as the source, behind the network's NAT.
    pub outside: SocketAddr,
    /// Since when the interface has been gone.
    pub absent_since: Option<Time>,
    pub up: Link,
    pub down: Link,
    /// Since when the operator's setting stands.
    pub keepalive: (bool, Time),
    /// When the interface came, went, or changed its address or the NAT's.
    pub changed: Time,
    /// By direction, since when data have been lost for their size and none of their flow has passed, and when last.
    pub too_large: [Option<(Time, Time)>; 2],
    /// When one was last lost on its way up.
    pub lost_up: Option<Time>,
}

impl Access {
    /// Signalling gets through.
    pub fn works(&self) -> bool {
        self.absent_since.is_none()
            && self.up.dead_since().is_none()
            && self.down.dead_since().is_none()
    }

    /// Since when nothing that the host sends arrives.
    pub fn uplink_dead_since(&self) -> Option<Time> {
        self.absent_since.into_iter().chain(self.up.dead_since()).min()
    }

    /// Since when nothing arrives at the host.
    pub fn downlink_dead_since(&self) -> Option<Time> {
        self.absent_since.into_iter().chain(self.down.dead_since()).min()
    }

    /// Since when the path has been unchanged and without any fault; `None` while it has one.
    pub fn clean_since(&self) -> Option<Time> {
        if self.absent_since.is_some() {
            return None;
        }
        Some(self.up.clean_since()?.max(self.down.clean_since()?).max(self.changed))
    }

    /// The largest RTT that its links can have caused.
    pub fn rtt_max(&self) -> Span {
        self.up.delays().1 + self.down.delays().1
    }

    /// A packet of this many bytes leaves; `is_large` if it belongs to the flow with large ones. Returns when it and
    /// its copy arrive, and whether it is lost for its size.
    pub fn carry(&mut self, now: Time, up: bool, bytes: u32, is_large: bool) -> Carriage {
        let link = if up { &mut self.up } else { &mut self.down };
        let arrivals = link.send(now, bytes);
        let too_large = bytes > u32::from(link.takes());
        if is_large {
            let lost = &mut self.too_large[usize::from(!up)];
            let since = lost.filter(|(_, last)| now.since(*last) < PAUSE).map_or(now, |(at, _)| at);
            *lost = too_large.then_some((since, now));
            if too_large && up {
                self.lost_up = Some(now);
            }
        }
        Carriage { arrivals, too_large }
    }

    pub fn interface(&self) -> Interface {
        Interface {
            name: self.name.clone(),
            index: self.ifindex,
            addresses: Vec::from([self.inside]),
            gateways: Vec::new(),
            mtu_bytes: MTU.into(),
        }
    }
}

/// The fate of a packet on a link.
pub(super) struct Carriage {
    pub arrivals: [Option<Time>; 2],
    pub too_large: bool,
}

/// A flow that sends nothing large over a path for this long has left it.
const PAUSE: Span = Span::from_millis(500);

/// A host.
pub(super) struct Node {
    pub name: String,
    pub config: HostConfig,
    pub end: HostEnd<Tag>,
    pub accesses: Vec<Access>,
    pub conn: Option<ConnId>,
    /// Number of the last round of connection attempts.
    pub attempt: u64,
    pub enrolled: bool,
    pub flows: [Flow; FLOWS],
    /// Over which slot each flow goes up, and since when.
    pub routes: [(Option<u32>, Time); FLOWS],
    /// When it began.
    pub began: Time,
    /// Time of the last fault that concerns only this host.
    pub disturbed: Time,
}

/// Two streams, up and down, of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub runs: bool,
    /// How often it began.
    pub round: u32,
    pub up: Count,
    pub down: Count,
}

/// Packets sent in the last seconds of the quiet time, and how many of those arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub sent: u32,
    pub received: u32,
}

/// The flow whose packets are as large as the tunnel takes.
pub(super) const LARGE: usize = 1;
/// The flow that only comes down: the anchor learns nothing from it.
pub(super) const SILENT: usize = 2;

/// What a flow is like: distance of its packets and code point.
pub(super) fn shape_of(flow: usize) -> (Span, u8) {
    // Voice (EF), bulk (CS1) and default.
    let (ms, dscp) = [(40, 46), (70, 8), (110, 0)][flow];
    (Span::from_millis(ms), dscp)
}

/// K and T_KA that find an outage as late as when detection follows use: after at most one idle period, before data
/// show it.
const FOLLOWS_USE: (u8, Span) = (3, Span::from_millis(1_500));

pub(super) fn host_config(
    shape: &HostShape,
    epoch: u64,
    source: Source,
    follows_use: bool,
) -> HostConfig {
    let fixed = (shape.k, Span::from_millis(u64::from(shape.t_ka_ms)));
    let (k, t_ka) = if follows_use { FOLLOWS_USE } else { fixed };
    HostConfig {
        anchor: Vec::from([ANCHOR]),
        epoch,
        port: PORT,
        path: PathConfig {
            keepalive: Keepalive { k, t_ka, rides: shape.rides, ..Keepalive::default() },
            enabled: true,
            adaptive: follows_use.then(Aims::default),
            price: 0.0,
            preference: 0.0,
            encapsulation: segue_wire::Encapsulation::Segue,
        },
        paths: Default::default(),
        steering: segue_steering::Config::default(),
        source,
    }
}

impl Node {
    pub fn new(
        index: usize,
        shape: &HostShape,
        config: HostConfig,
        seeds: [[u8; 32]; 2],
        now: Time,
    ) -> Node {
        let access = |(number, path): (usize, &super::super::schedule::PathShape)| {
            let link_seed = |way: u8| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&seeds[1][..8]);
                u64::from_le_bytes(bytes) ^ u64::from(way) << 8 ^ number as u64
            };
            Access {
                name: format!("if{number}"),
                ifindex: number as u32 + 1,
                inside: Ipv4Addr::new(198, 18, index as u8, number as u8 + 1).into(),
                outside: outside(index, number, 0),
                absent_since: None,
                up: Link::new(path.up_ms, link_seed(1), now),
                down: Link::new(path.down_ms, link_seed(2), now),
                keepalive: (true, now),
                changed: now,
                too_large: [None; 2],
                lost_up: None,
            }
        };
        Node {
            name: format!("host{index}"),
            end: HostEnd::new(config.clone(), seeds[0]),
            config,
            accesses: shape.paths.iter().enumerate().map(|(n, p)| access((n, p))).collect(),
            conn: None,
            attempt: 0,
            enrolled: true,
            flows: [Flow::default(); FLOWS],
            routes: [(None, now); FLOWS],
            began: now,
            disturbed: now,
        }
    }

    pub fn interfaces(&self) -> Vec<Interface> {
        let present = self.accesses.iter().filter(|access| access.absent_since.is_none());
        present.map(Access::interface).collect()
    }

    /// The access of a path of the machine, by its number.
    pub fn access_of(&self, slot: u32) -> Option<&Access> {
        let (_, path) = self.end.machine.paths().find(|(n, _)| u32::from(*n) == slot)?;
        self.accesses.iter().find(|access| access.name == path.name())
    }

    /// A flow as the host's packets carry it; `None` before the host has an address.
    pub fn key(&self, flow: usize) -> Option<FlowKey> {
        let src = *self.end.machine.inner().first()?;
        Some(FlowKey {
            src,
            dst: Ipv4Addr::new(192, 0, 2, 99).into(),
            sport: 40_000 + flow as u16,
            dport: 7_000,
            protocol: 17,
            label: 0,
        })
    }

    /// The largest RTT of any of its paths.
    pub fn rtt_max(&self) -> Span {
        self.accesses.iter().map(Access::rtt_max).max().unwrap_or_default()
    }
}

/// The source that the anchor sees after a NAT's `nth` choice.
pub(super) fn outside(host: usize, path: usize, nth: u16) -> SocketAddr {
    let [high, low] = nth.to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(100, 64 + (host * 8 + path) as u8, high, low).into(), PORT)
}
