//! A gateway on a node: its machine, and the stations at the links of its accesses.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Machine, Time};
use segue_ip::{Forward, Input, Output, Rule, Then};
use segue_node::{Node, NodeInput, NodeWish};
use segue_pmip::{AttachBy, LinkLayer, Mag, MagInput, MagRecord, Report, Wish};

use super::uses::of_role;
use crate::mih::Sources;
use crate::present::{At, Present};
use crate::role::{Engine, datagram};
use crate::stock::ICMPV6;
use crate::{Io, Packet};

/// Priority of the rules that keep packets from accesses in tunnels, as in the daemon.
const RULES: u32 = 5_190;

/// The engine of a gateway: its node, the state of its accesses, and source addresses.
pub struct Gateway(pub Node<Mag>, Links, Sources);

/// The source that reports hosts at an access.
#[derive(Clone, Debug)]
enum By {
    /// The link itself.
    Link,
    /// A function.
    Function,
    /// The host, by its packets.
    Host,
}

/// The state of the accesses' links.
struct Links {
    /// True if links are observed; otherwise orders report the hosts.
    watched: bool,
    /// Accesses whose events come from a function.
    told: BTreeSet<String>,
    /// Existing access interfaces, and the source that reports their hosts.
    known: BTreeMap<u32, By>,
    here: Present,
    rules: BTreeMap<u32, Rule>,
    /// The state of a link may have changed.
    looks: bool,
    out: VecDeque<Output<NodeWish<Wish>, Report, MagRecord>>,
}

impl Gateway {
    /// An engine for a node that starts. If `watched`, links report the hosts at its accesses, except at those that are
    /// `told`: there the function does.
    pub(super) fn new(
        node: Node<Mag>,
        watched: bool,
        told: BTreeSet<String>,
        sources: Sources,
    ) -> Gateway {
        let links = Links {
            watched,
            told,
            known: BTreeMap::new(),
            here: Present::default(),
            rules: BTreeMap::new(),
            looks: false,
            out: VecDeque::new(),
        };
        Gateway(node, links, sources)
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
        let present = here.all().map(|(interface, mac)| (interface, LinkLayer::mac(mac))).collect();
        let says = |(index, _): &At| matches!(known.get(index), Some(By::Link));
        let left = left.into_iter().filter(says).map(|(interface, mac)| {
            let station = LinkLayer::mac(mac);
            MagInput::Detached { interface, station }
        });
        let came = came.into_iter().filter(says).map(|(interface, mac)| {
            let station = LinkLayer::mac(mac);
            MagInput::Attached { interface, station, link_local: None }
        });
        let changes: Vec<MagInput> = left.chain(came).collect();
        self.0.handle(io.now, Input::Own(NodeInput::Present(present)));
        changes.into_iter().for_each(|change| self.own(io.now, change));
    }

    /// Processes a packet from a station. If a function reports the hosts of this access, packets from hosts that it
    /// has not reported yet are ignored.
    fn shows(&mut self, now: Time, interface: u32, packet: &Packet) {
        let Some(mac) = self.station(interface) else { return };
        let station = LinkLayer::mac(mac);
        let is_told = matches!(self.1.known.get(&interface), Some(By::Function));
        if is_told && !self.0.machine().served_at(interface).any(|served| *served == station) {
            return;
        }
        let link_local = match packet.src {
            IpAddr::V6(source) if source.is_unicast_link_local() => Some(source),
            _ => None,
        };
        self.own(now, MagInput::Attached { interface, station, link_local });
    }

    fn own(&mut self, now: Time, own: MagInput) {
        self.0.handle(now, Input::Own(NodeInput::Own(own)));
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
    type Own = NodeInput<MagInput>;
    type Wish = NodeWish<Wish>;
    type Report = Report;
    type Record = MagRecord;

    fn handle(&mut self, now: Time, input: Input<NodeInput<MagInput>, MagRecord>) {
        if let Input::Interfaces(all) = &input {
            let accesses = &self.0.machine().config().accesses;
            let known = all.iter().filter_map(|interface| {
                let access = accesses.iter().find(|access| access.interface == interface.name)?;
                let by = match access.by {
                    _ if self.1.told.contains(&access.interface) => By::Function,
                    AttachBy::Driver => By::Link,
                    _ => By::Host,
                };
                Some((interface.index, by))
            });
            self.1.known = known.collect();
            self.2.see(all);
        }
        self.1.looks |= self.1.watched && matches!(input, Input::Interfaces(_) | Input::Link(_));
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
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
    }

    fn deadline(&self) -> Option<Time> {
        self.0.deadline().map(|(at, _)| at)
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<NodeWish<Wish>, Report, MagRecord>> {
        if core::mem::take(&mut self.1.looks) {
            self.look(io);
        }
        self.1.out.pop_front().or_else(|| of_role(&mut self.0, &self.2, io))
    }
}
