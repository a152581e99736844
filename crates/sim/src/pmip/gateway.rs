//! A gateway on a node: its machine, and the stations at the links of its accesses.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Machine, Time};
use segue_ip::{Forward, Input, Output, Rule, Then};
use segue_mih::{Event, What};
use segue_pmip::{AttachBy, LinkLayer, Mag, MagInput, MagOutput, MagRecord, Report, Wish};
use segue_wire::mih::identity::LinkAddress;

use crate::mih::{Ear, Heard};
use crate::present::{At, Present};
use crate::role::{Engine, datagram};
use crate::stock::ICMPV6;
use crate::{Io, Packet};

/// Priority of the rules that have what comes over accesses go into tunnels or nowhere, as the daemon's.
const RULES: u32 = 5_190;

/// The engine of a gateway: the machine, who is at its accesses, and a function of IEEE 802.21 if that tells of some of them.
pub struct Gateway(pub Mag, Links, Option<Ear>);

/// Who says that a host is at an access.
#[derive(Clone, Debug)]
enum By {
    /// The link.
    Link,
    /// A function, which calls the link so.
    Told(LinkAddress),
    /// The host.
    Host,
}

/// The links of its accesses.
struct Links {
    /// Whether they are looked at; otherwise others say who is there.
    watched: bool,
    /// Accesses of which a function tells, by their names, each with the name of its link.
    told: BTreeMap<String, LinkAddress>,
    /// Those that are there, and who says who is.
    known: BTreeMap<u32, By>,
    here: Present,
    /// Where those are of whom a function has told.
    placed: BTreeMap<(LinkAddress, [u8; 6]), u32>,
    rules: BTreeMap<u32, Rule>,
    /// Something may have changed.
    looks: bool,
    out: VecDeque<MagOutput>,
}

impl Gateway {
    /// A machine that starts. If `watched`, it is told who is at its accesses by their links.
    #[must_use]
    pub fn new(machine: Mag, watched: bool) -> Gateway {
        let links = Links {
            watched,
            told: BTreeMap::new(),
            known: BTreeMap::new(),
            here: Present::default(),
            placed: BTreeMap::new(),
            rules: BTreeMap::new(),
            looks: false,
            out: VecDeque::new(),
        };
        Gateway(machine, links, None)
    }

    /// The same, told of these accesses by functions, which call their links so.
    pub(crate) fn hearing(self, ear: Ear, told: BTreeMap<String, LinkAddress>) -> Gateway {
        let Gateway(machine, links, _) = self;
        Gateway(machine, Links { told, ..links }, Some(ear))
    }

    /// Whether its links are looked at.
    pub(super) fn is_watched(&self) -> bool {
        self.1.watched
    }

    /// The station at a link.
    pub(super) fn station(&self, interface: u32) -> Option<[u8; 6]> {
        self.1.here.at(interface)
    }

    /// Tells the machine who has come to its links and who has left.
    fn look(&mut self, io: &Io<'_>) {
        self.1.rule(io);
        let Links { known, here, .. } = &mut self.1;
        let looked = known.iter().filter(|(_, by)| !matches!(by, By::Host));
        let (left, came) = here.look(io, looked.map(|(index, _)| *index));
        let says = |(index, _): &At| matches!(known.get(index), Some(By::Link));
        let (left, came) = (left.into_iter().filter(says), came.into_iter().filter(says));
        for (interface, mac) in left {
            let left = MagInput::Detached { interface, station: LinkLayer::mac(mac) };
            self.0.handle(io.now, Input::Own(left));
        }
        for (interface, mac) in came {
            let link_local = None;
            let came = MagInput::Attached { interface, station: LinkLayer::mac(mac), link_local };
            self.0.handle(io.now, Input::Own(came));
        }
    }

    /// A function has told of a link.
    fn told(&mut self, now: Time, Event { link, station, what }: Event) {
        let Some(mac) = station.and_then(|station| station.as_mac()) else { return };
        let Links { known, here, placed, .. } = &mut self.1;
        let place = (link.address, mac);
        let there = |(index, by): &(&u32, &By)| {
            matches!(by, By::Told(name) if *name == place.0) && here.at(**index) == Some(mac)
        };
        let station = LinkLayer::mac(mac);
        let input = match what {
            What::Up => {
                // Who has left meanwhile is told of next.
                let Some((interface, _)) = known.iter().find(there) else { return };
                let (interface, link_local) = (*interface, None);
                placed.insert(place, interface);
                MagInput::Attached { interface, station, link_local }
            }
            What::Down(_) => {
                let Some(interface) = placed.remove(&place) else { return };
                MagInput::Detached { interface, station }
            }
            What::GoingDown { .. } | What::Parameters(_) | What::Detected(_) => return,
        };
        self.0.handle(now, Input::Own(input));
    }

    /// Something has come from a station. One of whom a function is to tell first is not there before it has.
    fn shows(&mut self, now: Time, interface: u32, packet: &Packet) {
        let Some(mac) = self.station(interface) else { return };
        let station = LinkLayer::mac(mac);
        let is_told = matches!(self.1.known.get(&interface), Some(By::Told(_)));
        if is_told && !self.0.served_at(interface).any(|served| *served == station) {
            return;
        }
        let link_local = match packet.src {
            IpAddr::V6(source) if source.is_unicast_link_local() => Some(source),
            _ => None,
        };
        self.heard(now, interface, station, link_local);
    }

    fn heard(
        &mut self,
        now: Time,
        interface: u32,
        station: LinkLayer,
        link_local: Option<Ipv6Addr>,
    ) {
        let heard = MagInput::Attached { interface, station, link_local };
        self.0.handle(now, Input::Own(heard));
    }
}

impl Links {
    /// What comes over an access and is bound to nothing goes nowhere else.
    fn rule(&mut self, io: &Io<'_>) {
        for (interface, rule) in core::mem::take(&mut self.rules) {
            if self.known.contains_key(&interface) {
                self.rules.insert(interface, rule);
            } else {
                self.out.push_back(Output::Withdraw(Forward::Rule(rule)));
            }
        }
        for interface in self.known.keys() {
            let Some(adapter) = io.node.adapter(*interface) else { continue };
            self.rules.entry(*interface).or_insert_with(|| {
                let iif = Some(adapter.interface.name.clone());
                let (v6, priority, then) = (true, RULES, Then::Unreachable);
                let rule = Rule { v6, priority, iif, then, ..Rule::default() };
                self.out.push_back(Output::Forward(Forward::Rule(rule.clone())));
                rule
            });
        }
    }
}

impl Engine for Gateway {
    type Own = MagInput;
    type Wish = Wish;
    type Report = Report;
    type Record = MagRecord;

    fn handle(&mut self, now: Time, input: Input<MagInput, MagRecord>) {
        if let Input::Interfaces(all) = &input {
            let accesses = &self.0.config().accesses;
            let known = all.iter().filter_map(|interface| {
                let access = accesses.iter().find(|access| access.interface == interface.name)?;
                let by = match self.1.told.get(&access.interface) {
                    Some(link) => By::Told(link.clone()),
                    None if access.by == AttachBy::Driver => By::Link,
                    None => By::Host,
                };
                Some((interface.index, by))
            });
            self.1.known = known.collect();
            if let Some(ear) = &mut self.2 {
                ear.see(now, all);
            }
        }
        self.1.looks |= self.1.watched && matches!(input, Input::Interfaces(_) | Input::Link(_));
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        let packet = match &mut self.2 {
            Some(ear) => match ear.receive(io, over, packet) {
                Some(others) => others,
                None => return,
            },
            None => packet,
        };
        if packet.protocol == ICMPV6
            && let Some(interface) = over
        {
            self.shows(io.now, interface, &packet);
        }
        if let Some(datagram) = datagram(over, packet) {
            self.0.handle(io.now, Input::Datagram(datagram));
        }
    }

    fn tick(&mut self, now: Time) {
        self.0.tick(now);
        if let Some(ear) = &mut self.2 {
            ear.tick(now);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let ear = self.2.as_ref().and_then(Ear::deadline);
        self.0.deadline().map(|(at, _)| at).into_iter().chain(ear).min()
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<Wish, Report, MagRecord>> {
        if core::mem::take(&mut self.1.looks) {
            self.look(io);
        }
        while let Some(heard) = self.2.as_mut().and_then(|ear| ear.poll(io)) {
            match heard {
                Heard::Send(datagram) => return Some(Output::Send(datagram)),
                Heard::Event(event) => self.told(io.now, event),
            }
        }
        self.1.out.pop_front().or_else(|| self.0.poll())
    }
}
