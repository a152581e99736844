//! An end of tunnels as the loop drives it: a host's or an anchor's machine over its packet path.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::ops::{Deref, DerefMut};
use std::task::Context;

use segue_clock::Time;
use segue_datapath::{DatapathError, DatapathEvent, LinuxDatapath, Role};
use segue_ip::{Datagram, Input};
use segue_linux::clock::monotonic;
use segue_tunnel::{End, Order, Report, Side, Turn};
use segue_wire::TooBig;
use tokio::sync::mpsc;

use crate::control::TunnelStatus;
use crate::engine::{Engine, Queue, ToLoop};
use crate::packets::{self, Opened, Packets};
use crate::shares::Shares;
use crate::trouble::Trouble;
use crate::{routers, turns};

/// Most packet-too-big messages taken in a turn.
const TOO_BIG: usize = 4;

/// The machine, its packet path, and the parts around them.
pub struct TunnelEnd<M: Side> {
    end: End<M, Box<dyn LinuxDatapath>>,
    shares: Shares,
    shed: packets::Shed,
    /// Keeps other programs off the tunnels' port if the datapath has no socket on it.
    _reserved: Option<UdpSocket>,
}

/// An event of the layer below.
pub enum Below {
    /// An event of the packet path.
    Packet(DatapathEvent),
    /// A router's message that a packet was too big.
    TooBig(TooBig),
}

/// The queue of these events.
pub struct Waiting {
    packets: Packets,
    too_big: mpsc::Receiver<TooBig>,
}

impl<M: Side> TunnelEnd<M> {
    /// Connects a machine to an open packet path, and listens for packet-too-big messages.
    #[must_use]
    pub fn new(machine: M, opened: Opened) -> (TunnelEnd<M>, Waiting) {
        let Opened { datapath, events: packets, shares, shed, reserved } = opened;
        let end = End::new(machine, datapath);
        let end = TunnelEnd { end, shares, shed, _reserved: reserved };
        (end, Waiting { packets, too_big: routers::listen() })
    }

    /// The part of the status that describes the layer below the machine.
    pub fn status(&self, device: &str) -> TunnelStatus {
        TunnelStatus {
            datapath: packets::kind_name(self.datapath.kind()).into(),
            device: device.to_owned(),
            reinjected: self.reinjected(),
            ..TunnelStatus::default()
        }
    }
}

impl<M: Side> Deref for TunnelEnd<M> {
    type Target = End<M, Box<dyn LinuxDatapath>>;

    fn deref(&self) -> &Self::Target {
        &self.end
    }
}

impl<M: Side> DerefMut for TunnelEnd<M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.end
    }
}

impl<M: Side> Engine for TunnelEnd<M> {
    type Own = M::Own;
    type Wish = M::Wish;
    type News = Report;
    type Record = M::Record;
    type Event = Below;
    type Queue = Waiting;
    type Turn = Turn<DatapathError>;

    fn deadline(&self) -> Option<Time> {
        self.end.deadline().map(|(at, _)| at)
    }

    fn handle(&mut self, input: Input<M::Own, M::Record>) -> Self::Turn {
        self.end.handle(monotonic(), input)
    }

    fn on_event(&mut self, event: Below) -> Self::Turn {
        match event {
            Below::Packet(event) => self.end.on_event(monotonic(), event),
            Below::TooBig(said) => self.end.handle(monotonic(), M::too_big(said)),
        }
    }

    fn at_deadline(&mut self, queue: &mut Waiting) -> Self::Turn {
        Turn::at_deadline(queue.packets.waiting())
    }

    fn refresh(&mut self) -> Self::Turn {
        Turn::reading(self.end.machine.slots())
    }

    /// Never used: hosts and anchors signal over the connections of their roles.
    fn send(&mut self, _: Datagram) {}

    fn poll(&mut self, turn: &mut Self::Turn) -> Option<ToLoop<Self>> {
        let TunnelEnd { end, shares, .. } = self;
        end.poll_with(turn, monotonic, |order| match order {
            Order::SetPath(slot, path) if M::ROLE == Role::Anchor => shares.give(*slot, path.owner),
            Order::RemovePath(slot) => shares.take_back(*slot),
            _ => {}
        })
    }

    fn finish(&mut self, turn: Self::Turn, trouble: &mut Trouble) {
        packets::tell(turn.failures, trouble);
    }

    fn heartbeat(&mut self) -> anyhow::Result<()> {
        self.end.datapath.heartbeat();
        Ok(self.end.datapath.carries()?)
    }

    fn drops(&mut self) -> BTreeMap<String, u64> {
        packets::drops(self.end.datapath.as_mut(), &self.shed)
    }
}

impl Queue for Waiting {
    type Event = Below;

    fn take(&mut self, context: &mut Context<'_>, mut into: impl FnMut(Below)) {
        self.packets.take(context, |event| into(Below::Packet(event)));
        turns::take(&mut self.too_big, TOO_BIG, context, |said| into(Below::TooBig(said)));
    }
}
