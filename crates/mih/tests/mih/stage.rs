//! Functions connected by a simulated network.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_clock::{Machine, Rng, Span, Time};
use segue_ip::{Datagram, Input, Output};
use segue_mih::{
    Event, Interest, LinkConfig, Mihf, MihfConfig, MihfInput, MihfWish, Remote, Report, Transport,
    What,
};
use segue_wire::mih::codes::{EventList, LinkDownReason, LinkType};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::{Frame, Profile};

pub(crate) const FUNCTION: &str = "fd00::1";
pub(crate) const SAP: &str = "fd00::2";
pub(crate) const GATEWAY: &str = "fd00::3";
pub(crate) const ANCHOR: &str = "fd00::4";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The link of access point `number`.
pub(crate) fn link(number: u8) -> LinkId {
    LinkId { link_type: LinkType::IEEE_802_11, address: mac([2, 0, 0, 0, 1, number]) }
}

pub(crate) fn mac(bytes: [u8; 6]) -> LinkAddress {
    LinkAddress::mac(bytes)
}

pub(crate) fn station(number: u8) -> LinkAddress {
    mac([2, 0, 0, 0, 9, number])
}

pub(crate) fn up(of: u8, who: u8) -> Event {
    Event { link: link(of), station: Some(station(who)), what: What::Up }
}

pub(crate) fn down(of: u8, who: u8) -> Event {
    let what = What::Down(LinkDownReason::EXPLICIT_DISCONNECT);
    Event { link: link(of), station: Some(station(who)), what }
}

pub(crate) const ALL: EventList = EventList(0x1f);

/// A function without links.
pub(crate) fn function() -> MihfConfig {
    MihfConfig {
        peers: vec!["fd00::/16".parse().unwrap()],
        seed: 1,
        ..MihfConfig::new("mihf".into())
    }
}

/// A function with these links that registers at [`FUNCTION`].
pub(crate) fn sap(links: &[u8], transport: Transport) -> MihfConfig {
    let links = links.iter().map(|number| {
        let LinkId { link_type, address } = link(*number);
        LinkConfig::new(link_type, address)
    });
    MihfConfig {
        links: links.collect(),
        functions: vec![Remote::new(ip(FUNCTION), transport)],
        seed: 2,
        ..MihfConfig::new("sap".into())
    }
}

/// A user with an interest in one link, or in all links.
pub(crate) fn user(name: &str, of: Option<u8>, transport: Transport) -> MihfConfig {
    MihfConfig {
        functions: vec![Remote::new(ip(FUNCTION), transport)],
        interests: vec![Interest { link: of.map(|of| link(of).address), events: ALL }],
        seed: name.len() as u64,
        ..MihfConfig::new(name.into())
    }
}

/// A frame that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) datagram: Datagram,
}

impl Sent {
    pub(crate) fn frame(&self) -> Frame {
        Frame::parse(&self.datagram.bytes, &Profile::STRICT).unwrap()
    }

    /// Sender, receiver and message, and whether the frame is only an acknowledgement.
    pub(crate) fn line(&self) -> String {
        let who = |address: IpAddr| match address.to_string().as_str() {
            FUNCTION => "MIHF",
            SAP => "LS",
            GATEWAY => "MAG",
            ANCHOR => "LMA",
            _ => "?",
        };
        let (from, to) = (who(self.datagram.from.0), who(self.datagram.to.0));
        let frame = self.frame();
        let name = frame.name().unwrap();
        if frame.ack_rsp && frame.tlvs().len() == 2 {
            return format!("{from} → {to}: ack of {name}");
        }
        format!("{from} → {to}: {name}")
    }
}

/// Functions by address. A frame takes 5 ms, plus jitter.
pub(crate) struct Stage {
    pub(crate) now: Time,
    pub(crate) nodes: BTreeMap<IpAddr, Mihf>,
    pub(crate) on_the_way: Vec<(Time, Datagram)>,
    pub(crate) sent: Vec<Sent>,
    /// The events that each node received through its interests.
    pub(crate) heard: BTreeMap<IpAddr, Vec<(Time, Event)>>,
    pub(crate) wishes: Vec<(IpAddr, MihfWish)>,
    pub(crate) reports: Vec<(IpAddr, Report)>,
    pub(crate) rng: Rng,
    /// Probabilities of loss and of duplication.
    pub(crate) faults: (f64, f64),
    /// Maximum extra delay of a frame.
    pub(crate) jitter: Span,
}

impl Stage {
    pub(crate) fn new(nodes: &[(&str, MihfConfig)]) -> Stage {
        let mut stage = Stage {
            now: Time(1_000_000_000),
            nodes: BTreeMap::new(),
            on_the_way: Vec::new(),
            sent: Vec::new(),
            heard: BTreeMap::new(),
            wishes: Vec::new(),
            reports: Vec::new(),
            rng: Rng::new(5),
            faults: (0.0, 0.0),
            jitter: Span::ZERO,
        };
        for (address, config) in nodes {
            stage.start(address, config.clone());
        }
        stage
    }

    /// Starts a function, replacing a running one.
    pub(crate) fn start(&mut self, address: &str, config: MihfConfig) {
        self.nodes.insert(ip(address), Mihf::new(config));
        self.heard.insert(ip(address), Vec::new());
    }

    pub(crate) fn node(&mut self, address: &str) -> &mut Mihf {
        self.nodes.get_mut(&ip(address)).unwrap()
    }

    pub(crate) fn give(&mut self, address: &str, input: MihfInput) {
        let now = self.now;
        self.node(address).handle(now, Input::Own(input));
        self.drain(ip(address));
    }

    pub(crate) fn happens(&mut self, event: Event) {
        self.give(SAP, MihfInput::Event(event));
    }

    fn drain(&mut self, address: IpAddr) {
        while let Some(output) = self.nodes.get_mut(&address).and_then(Machine::poll) {
            match output {
                Output::Send(mut datagram, _) => {
                    datagram.from.0 = address;
                    self.sent.push(Sent { at: self.now, datagram: datagram.clone() });
                    if self.rng.chance(self.faults.0) {
                        continue;
                    }
                    let copies = 1 + usize::from(self.rng.chance(self.faults.1));
                    for _ in 0..copies {
                        let late = Span(self.rng.below(self.jitter.0 + 1));
                        let at = self.now + Span::from_millis(5) + late;
                        self.on_the_way.push((at, datagram.clone()));
                    }
                }
                Output::Own(MihfWish::Event(event)) => {
                    self.heard.get_mut(&address).unwrap().push((self.now, event));
                }
                Output::Own(wish) => self.wishes.push((address, wish)),
                Output::Report(report) => self.reports.push((address, report)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Advances time.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let arrival = self.on_the_way.iter().map(|(at, _)| *at).min();
            let due =
                self.nodes.values().filter_map(|node| node.deadline()).map(|(at, _)| at).min();
            let next = arrival.into_iter().chain(due).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            let place = self.on_the_way.iter().position(|(at, _)| *at <= self.now);
            if let Some(place) = place {
                let (_, datagram) = self.on_the_way.remove(place);
                let to = datagram.to.0;
                if let Some(node) = self.nodes.get_mut(&to) {
                    node.handle(self.now, Input::Datagram(datagram));
                    self.drain(to);
                }
            }
            let all: Vec<IpAddr> = self.nodes.keys().copied().collect();
            for address in all {
                let now = self.now;
                self.nodes.get_mut(&address).unwrap().tick(now);
                self.drain(address);
            }
        }
        self.now = end;
    }

    /// The events that a node received since the last call.
    pub(crate) fn news(&mut self, address: &str) -> Vec<Event> {
        let heard = std::mem::take(self.heard.get_mut(&ip(address)).unwrap());
        heard.into_iter().map(|(_, event)| event).collect()
    }

    /// The stations attached to a link, as a function knows them.
    pub(crate) fn stations(&mut self, address: &str, of: u8) -> Vec<LinkAddress> {
        let link = self.node(address).links().get(&link(of));
        link.map_or(Vec::new(), |link| link.stations.keys().cloned().collect())
    }
}
