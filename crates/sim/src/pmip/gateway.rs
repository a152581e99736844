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

/// Priority of the rules that keep packets from accesses in tunnels, as in the daemon.
const RULES: u32 = 5_190;

/// The engine of a gateway: the machine, the state of its accesses, and an IEEE 802.21 function if it receives link
/// events.
pub struct Gateway(pub Mag, Links, Option<Ear>);

/// The source that reports hosts at an access.
#[derive(Clone, Debug)]
enum By {
    /// The link itself.
    Link,
    /// A function, which identifies the link by this address.
    Told(LinkAddress),
    /// The host, by its packets.
    Host,
}

/// The state of the accesses' links.
struct Links {
    /// True if links are observed; otherwise orders report the hosts.
    watched: bool,
    /// Accesses whose events come from a function: interface name, and the link's address there.
    told: BTreeMap<String, LinkAddress>,
    /// Existing access interfaces, and the source that reports their hosts.
    known: BTreeMap<u32, By>,
    here: Present,
    /// Interfaces of the stations that a function has reported.
    placed: BTreeMap<(LinkAddress, [u8; 6]), u32>,
    rules: BTreeMap<u32, Rule>,
    /// The state of a link may have changed.
    looks: bool,
    out: VecDeque<MagOutput>,
}

impl Gateway {
    /// An engine for a machine that starts. If `watched`, links report the hosts at its accesses.
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

    /// The same with a function that reports the hosts at these accesses: interface name, and the link's address there.
    pub(crate) fn hearing(self, ear: Ear, told: BTreeMap<String, LinkAddress>) -> Gateway {
        let Gateway(machine, links, _) = self;
        Gateway(machine, Links { told, ..links }, Some(ear))
    }

    /// True if links are observed.
    pub(super) fn is_watched(&self) -> bool {
        self.1.watched
    }

    /// The station at an interface.
    pub(super) fn station(&self, interface: u32) -> Option<[u8; 6]> {
        self.1.here.at(interface)
    }

    /// Reports stations that have arrived at observed links or left them to the machine.
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

    /// Processes an event from the function.
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
                // If the station has left in the meantime, the next event says so.
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

    /// Processes a packet from a station. If a function reports the hosts of this access, packets from hosts that it
    /// has not reported yet are ignored.
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
    /// Adds a rule per access: packets that match no binding must not leave any other way.
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
                Heard::Send(datagram) => return Some(Output::Send(datagram, None)),
                Heard::Event(event) => self.told(io.now, event),
            }
        }
        self.1.out.pop_front().or_else(|| self.0.poll())
    }
}
