//! The IEEE 802.21 function of a role, which reports events of links.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_ip::{Datagram, Input, Interface, LinkEvent, Output};
use segue_mih::{
    Event, Foretold, Leaving, Mihf, MihfConfig, MihfInput, MihfWish, Report, Reporting, Transport,
    What,
};
use segue_pmip::{LinkLayer, LinkQuality, LmaInput, MagInput};
use segue_wire::mih::identity::LinkAddress;

/// How often new links are asked to report their quality.
const ASK: Span = Span::from_secs(1);
/// Time after a link came up in which a reported host counts as attached by that.
const FRESH: Span = Span::from_secs(5);

/// A function with the role's use of its events.
pub(crate) struct Listener<L> {
    pub(crate) mihf: Mihf,
    pub(crate) links: L,
    /// When links are next asked to report; `None` before the first input.
    ask_at: Option<Time>,
}

/// An output of a listener.
pub(crate) enum Heard<I> {
    Send(Datagram),
    Report(Report),
    Own(I),
}

/// What a role does with events of links.
pub trait Links {
    /// The input of the role's machine that follows from an event.
    type Own;

    /// Handles an event; `None` if nothing follows from it.
    fn on_event(&mut self, now: Time, mihf: &Mihf, event: Event) -> Option<Self::Own>;

    /// True if the role needs [`Links::commands`].
    fn asks(&self) -> bool {
        false
    }

    /// Commands that make links report their quality; called once a second.
    fn commands(&mut self, _now: Time, _mihf: &Mihf) -> Vec<MihfInput> {
        Vec::new()
    }

    /// The interfaces of the node.
    fn on_interfaces(&mut self, _all: &[Interface]) {}

    /// A link has changed.
    fn on_link(&mut self, _now: Time, _event: &LinkEvent) {}

    /// Which station is at each interface of a single station.
    fn on_present(&mut self, _present: BTreeMap<u32, LinkLayer>) {}
}

impl<L: Links> Listener<L> {
    pub(crate) fn new(config: MihfConfig, links: L) -> Listener<L> {
        Listener { mihf: Mihf::new(config), links, ask_at: None }
    }

    /// True if a datagram is for the function: it came to its port, or over a stream.
    pub(crate) fn is_for(&self, came: &Datagram) -> bool {
        match Transport::of(came.protocol) {
            Some(Transport::Udp) => came.to.1 == self.mihf.config().port,
            Some(Transport::Tcp) => true,
            None => false,
        }
    }

    pub(crate) fn receive(&mut self, now: Time, came: &Datagram) {
        self.mihf.handle(now, Input::Datagram(came.clone()));
    }

    /// Notes that time has begun.
    pub(crate) fn wake(&mut self, now: Time) {
        self.ask_at.get_or_insert(now + ASK);
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.mihf.tick(now);
        if self.links.asks() && self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now + ASK);
            for command in self.links.commands(now, &self.mihf) {
                self.mihf.handle(now, Input::Own(command));
            }
        }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        let ask = self.ask_at.filter(|_| self.links.asks());
        earlier(self.mihf.deadline(), ask.map(|at| (at, "to ask links for reports")))
    }

    pub(crate) fn leave(&mut self, now: Time) {
        self.mihf.handle(now, Input::Own(MihfInput::Leave));
    }

    pub(crate) fn poll(&mut self, now: Time) -> Option<Heard<L::Own>> {
        loop {
            match self.mihf.poll()? {
                Output::Send(datagram, _) => return Some(Heard::Send(datagram)),
                Output::Own(MihfWish::Event(event)) => {
                    if let Some(own) = self.links.on_event(now, &self.mihf, event) {
                        return Some(Heard::Own(own));
                    }
                }
                Output::Report(
                    report @ (Report::Lost(_) | Report::Silent(_) | Report::RegisteredAt(_)),
                ) => return Some(Heard::Report(report)),
                // A subscriber has no links of its own, and no peers that register.
                _ => {}
            }
        }
    }
}

/// An anchor redirects the traffic of hosts that are about to leave, and rates links by their reports.
#[derive(Debug, Default)]
pub struct AnchorLinks {
    leaving: Leaving,
    reporting: Option<Reporting>,
}

impl AnchorLinks {
    /// With `quality`, links are also asked to report theirs.
    #[must_use]
    pub fn new(quality: bool) -> AnchorLinks {
        AnchorLinks { leaving: Leaving::default(), reporting: quality.then(Reporting::default) }
    }
}

impl Links for AnchorLinks {
    type Own = LmaInput;

    fn on_event(&mut self, _: Time, mihf: &Mihf, event: Event) -> Option<LmaInput> {
        if let What::Parameters(reports) = &event.what {
            let link_layer = event.station.as_ref().and_then(LinkAddress::as_mac);
            let link_layer = link_layer.map(LinkLayer::mac).filter(|_| mihf.is_newest(&event))?;
            return Some(LmaInput::Link { link_layer, quality: LinkQuality::reported(reports)? });
        }
        let link_layer = |station: LinkAddress| station.as_mac().map(LinkLayer::mac);
        Some(match self.leaving.follow(mihf, event)? {
            Foretold::GoingDown { station, within } => {
                LmaInput::GoingDown { link_layer: link_layer(station)?, within }
            }
            Foretold::Stays { station } => LmaInput::Stays { link_layer: link_layer(station)? },
        })
    }

    fn asks(&self) -> bool {
        self.reporting.is_some()
    }

    fn commands(&mut self, now: Time, mihf: &Mihf) -> Vec<MihfInput> {
        self.reporting.as_mut().map_or_else(Vec::new, |reporting| reporting.turn(now, mihf))
    }
}

/// A gateway learns from a function which hosts attach to its accesses, and which leave.
#[derive(Debug, Default)]
pub struct GatewayLinks {
    /// The links of accesses, by the names of their interfaces.
    addresses: BTreeMap<String, LinkAddress>,
    /// Existing interfaces of these accesses.
    known: BTreeMap<u32, String>,
    /// Where each reported station attached.
    placed: BTreeMap<(LinkAddress, LinkLayer), u32>,
    /// Which station is at each interface; `None` if interfaces may have many stations.
    present: Option<BTreeMap<u32, LinkLayer>>,
    /// When interfaces came up.
    ups: BTreeMap<u32, Time>,
    /// How long after that stations were reported, by interface name.
    reported: BTreeMap<(String, LinkLayer), Span>,
}

impl GatewayLinks {
    /// For accesses whose hosts the function reports: names of their interfaces, and addresses of their links.
    #[must_use]
    pub fn new(addresses: BTreeMap<String, LinkAddress>) -> GatewayLinks {
        GatewayLinks { addresses, ..GatewayLinks::default() }
    }

    /// True if the function reports that this station is attached at this interface.
    pub(crate) fn has(&self, mihf: &Mihf, interface: u32, station: &LinkLayer) -> bool {
        let address = self.known.get(&interface).and_then(|name| self.addresses.get(name));
        let station = <[u8; 6]>::try_from(&station.0[..]).ok().map(LinkAddress::mac);
        let Some((address, station)) = address.zip(station) else { return false };
        let mut here = mihf.links().iter().filter(|(id, _)| id.address == *address);
        here.any(|(_, link)| link.stations.contains_key(&station))
    }

    /// How long after its link came up a station was reported, if that was within 5 s.
    pub(crate) fn reported_after(&self, access: &str, station: &LinkLayer) -> Option<Span> {
        self.reported.get(&(access.into(), station.clone())).copied()
    }

    /// The interface of a link at which a station is.
    fn interface_of(&self, link: &LinkAddress, station: &LinkLayer) -> Option<u32> {
        let of_link = |(_, name): &(&u32, &String)| self.addresses.get(*name) == Some(link);
        let mut here = self.known.iter().filter(of_link).map(|(index, _)| *index);
        match &self.present {
            Some(present) => here.find(|index| present.get(index) == Some(station)),
            None => here.next(),
        }
    }

    /// Notes how long after its link came up a station was reported.
    fn note(&mut self, now: Time, interface: u32, station: &LinkLayer, is_up: bool) {
        let Some(name) = self.known.get(&interface) else { return };
        let place = (name.clone(), station.clone());
        let since = self.ups.get(&interface).map(|up| now.since(*up));
        match since.filter(|since| is_up && *since <= FRESH) {
            Some(since) => self.reported.insert(place, since),
            None => self.reported.remove(&place),
        };
    }
}

impl Links for GatewayLinks {
    type Own = MagInput;

    fn on_event(&mut self, now: Time, _: &Mihf, event: Event) -> Option<MagInput> {
        let Event { link, station, what } = event;
        let station = LinkLayer::mac(station?.as_mac()?);
        let place = (link.address, station.clone());
        match what {
            What::Up => {
                // If the station has left in the meantime, the next event says so.
                let interface = self.interface_of(&place.0, &station)?;
                self.note(now, interface, &station, true);
                self.placed.insert(place, interface);
                Some(MagInput::Attached { interface, station, link_local: None })
            }
            What::Down(_) => {
                let before = self.placed.remove(&place);
                let there = || self.interface_of(&place.0, &station);
                let found = || if self.present.is_none() { there() } else { None };
                let interface = before.or_else(found)?;
                self.note(now, interface, &station, false);
                Some(MagInput::Detached { interface, station })
            }
            What::GoingDown { .. } | What::Parameters(_) | What::Detected(_) => None,
        }
    }

    fn on_interfaces(&mut self, all: &[Interface]) {
        let own = all.iter().filter(|interface| self.addresses.contains_key(&interface.name));
        self.known = own.map(|interface| (interface.index, interface.name.clone())).collect();
        // An interface that was made anew has another index.
        let link_of = |index: &u32| self.addresses.get(self.known.get(index)?);
        self.placed.retain(|(link, _), index| link_of(index) == Some(link));
    }

    fn on_link(&mut self, now: Time, event: &LinkEvent) {
        if let LinkEvent::Up { interface, .. } = event {
            self.ups.insert(*interface, now);
            self.ups.retain(|index, _| self.known.contains_key(index));
        }
    }

    fn on_present(&mut self, present: BTreeMap<u32, LinkLayer>) {
        self.present = Some(present);
    }
}
