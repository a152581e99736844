//! An anchor on a node: its machine, and the first packets of flows, which wait for a decision.

use alloc::collections::{BTreeMap, VecDeque};

use segue_clock::{Machine, Span, Time};
use segue_ip::{FlowKey, Input, Output, Traffic};
use segue_mih::{Event, Foretold, Leaving, Reporting, What};
use segue_pmip::{LinkLayer, LinkQuality, Lma, LmaInput, LmaRecord, LmaWish, Report};
use segue_wire::DropReason;
use segue_wire::mih::identity::LinkAddress;

use crate::mih::{Ear, Heard};
use crate::net::flow_key;
use crate::role::{Engine, datagram};
use crate::{Io, Packet};

/// Maximum number of waiting flows, and of waiting packets per flow; more are dropped. The daemon's relay has the same
/// limits.
const FLOWS: usize = 4_096;
const PACKETS: usize = 64;
/// Interval of the search for new links.
const LOOK: Span = Span::from_secs(1);

/// The engine of an anchor: the machine, the held packets, and an IEEE 802.21 function if it receives link events.
pub struct Anchor(pub Lma, Asked, Option<Hearing>);

/// The parts that process link events.
struct Hearing {
    ear: Ear,
    leaving: Leaving,
    /// Requests links to report their quality; with the time of the next search for new links.
    reporting: Option<(Reporting, Time)>,
}

/// Packets for which the node has no tunnel yet.
struct Asked {
    /// Held packets by flow, in order of arrival.
    waiting: BTreeMap<FlowKey, VecDeque<Packet>>,
    /// Number of dropped packets.
    refused: u64,
}

impl Anchor {
    /// An engine for a machine that starts.
    #[must_use]
    pub fn new(machine: Lma) -> Anchor {
        Anchor(machine, Asked { waiting: BTreeMap::new(), refused: 0 }, None)
    }

    /// The same with a function that receives link events; if `reports`, it also requests reports of link quality.
    pub(crate) fn hearing(self, now: Time, ear: Ear, reports: bool) -> Anchor {
        let Anchor(machine, asked, _) = self;
        let reporting = reports.then(|| (Reporting::default(), now + LOOK));
        Anchor(machine, asked, Some(Hearing { ear, leaving: Leaving::default(), reporting }))
    }

    /// Processes an event from the function.
    fn told(&mut self, now: Time, event: Event) {
        let Some(Hearing { ear, leaving, .. }) = &mut self.2 else { return };
        if let What::Parameters(reports) = &event.what {
            let mac = event.station.as_ref().and_then(LinkAddress::as_mac).map(LinkLayer::mac);
            let told = mac.zip(LinkQuality::reported(reports));
            if let Some((link_layer, quality)) = told.filter(|_| ear.machine().is_newest(&event)) {
                self.0.handle(now, Input::Own(LmaInput::Link { link_layer, quality }));
            }
            return;
        }
        let (station, within) = match leaving.follow(ear.machine(), event) {
            Some(Foretold::GoingDown { station, within }) => (station, Some(within)),
            Some(Foretold::Stays { station }) => (station, None),
            None => return,
        };
        let Some(link_layer) = station.as_mac().map(LinkLayer::mac) else { return };
        let own = match within {
            Some(within) => LmaInput::GoingDown { link_layer, within },
            None => LmaInput::Stays { link_layer },
        };
        self.0.handle(now, Input::Own(own));
    }

    /// Number of packets that wait for the machine.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.1.waiting.values().map(VecDeque::len).sum()
    }

    /// Number of dropped packets: the machine refused their flows, or there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.1.refused
    }

    /// Carries out the machine's decision about a waiting flow.
    pub(super) fn settle(&mut self, io: &mut Io<'_>, wish: LmaWish) {
        match wish {
            // The flow is bound before this wish, so the node's tunnel takes these packets.
            LmaWish::Release(key) => {
                self.1.waiting.remove(&key).into_iter().flatten().for_each(|p| io.send(p));
            }
            LmaWish::Refuse(key) => {
                for packet in self.1.waiting.remove(&key).into_iter().flatten() {
                    self.1.refuse(io, packet, DropReason::NoBinding);
                }
            }
            // There is no external scheduler; the anchor decides by itself after a timeout.
            LmaWish::Decide(_)
            | LmaWish::Went { .. }
            | LmaWish::Ended(_)
            | LmaWish::Inspect(_)
            | LmaWish::Interface { .. } => {}
            // There is no external authorization.
            LmaWish::Authorize { .. } | LmaWish::Bound { .. } | LmaWish::Unbound { .. } => {}
        }
    }

    /// Reports to the machine when flows last carried a packet.
    pub(super) fn inspect(&mut self, io: &Io<'_>, flows: &[FlowKey]) {
        let last = |key: &FlowKey| io.node.relay()?.last_sent(&Traffic::Flow(*key));
        let last = flows.iter().map(|key| (*key, last(key))).collect();
        self.0.handle(io.now, Input::Own(LmaInput::LastSent(last)));
    }
}

impl Asked {
    fn refuse(&mut self, io: &mut Io<'_>, packet: Packet, why: DropReason) {
        self.refused += 1;
        io.refuse(packet, why);
    }

    /// Holds a packet; returns true if it is the first of its flow.
    fn keep(&mut self, io: &mut Io<'_>, key: FlowKey, packet: Packet) -> bool {
        let flows = self.waiting.len();
        let (room, is_first) = match self.waiting.get(&key) {
            Some(behind) => (behind.len() < PACKETS, false),
            None => (flows < FLOWS, true),
        };
        if !room {
            self.refuse(io, packet, DropReason::HoldFull);
            return false;
        }
        self.waiting.entry(key).or_default().push_back(packet);
        is_first
    }
}

impl Engine for Anchor {
    type Own = LmaInput;
    type Wish = LmaWish;
    type Report = Report;
    type Record = LmaRecord;

    /// Packets held by the previous engine are lost, and count as dropped.
    fn follows(&mut self, before: &Anchor) {
        self.1.refused = before.refused() + before.waiting() as u64;
    }

    fn handle(&mut self, now: Time, input: Input<LmaInput, LmaRecord>) {
        if let (Some(Hearing { ear, .. }), Input::Interfaces(all)) = (&mut self.2, &input) {
            ear.see(now, all);
        }
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        let packet = match &mut self.2 {
            Some(Hearing { ear, .. }) => match ear.receive(io, over, packet) {
                Some(others) => others,
                None => return,
            },
            None => packet,
        };
        if io.node.owns(packet.dst) {
            if let Some(datagram) = datagram(over, packet) {
                self.0.handle(io.now, Input::Datagram(datagram));
            }
            return;
        }
        let (key, dscp) = (flow_key(&packet), packet.dscp);
        if self.1.keep(io, key, packet) {
            self.0.handle(io.now, Input::Own(LmaInput::Flow { key, dscp }));
        }
    }

    fn tick(&mut self, now: Time) {
        self.0.tick(now);
        if let Some(Hearing { ear, reporting, .. }) = &mut self.2 {
            ear.tick(now);
            if let Some((reporting, at)) = reporting.as_mut().filter(|(_, at)| *at <= now) {
                *at = now + LOOK;
                let orders = reporting.turn(now, ear.machine());
                orders.into_iter().for_each(|order| ear.order(now, order));
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let ear = self.2.as_ref().and_then(|hearing| hearing.ear.deadline());
        let reporting = self.2.as_ref().and_then(|hearing| hearing.reporting.as_ref());
        let turn = reporting.map(|(_, at)| *at);
        self.0.deadline().map(|(at, _)| at).into_iter().chain(ear).chain(turn).min()
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<LmaWish, Report, LmaRecord>> {
        while let Some(heard) = self.2.as_mut().and_then(|hearing| hearing.ear.poll(io)) {
            match heard {
                Heard::Send(datagram) => return Some(Output::Send(datagram, None)),
                Heard::Event(event) => self.told(io.now, event),
            }
        }
        self.0.poll()
    }
}
