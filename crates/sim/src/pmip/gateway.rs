//! A gateway on a node: its machine, and the stations at the links of its accesses.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Machine, Time};
use segue_ip::{Forward, Input, Output, Rule, Then};
use segue_pmip::{AttachBy, LinkLayer, Mag, MagInput, MagOutput, MagRecord, Report, Wish};

use crate::role::{Engine, datagram};
use crate::stock::{ICMPV6, link_layer};
use crate::{Io, Packet};

/// Priority of the rules that have what comes over accesses go into tunnels or nowhere, as the daemon's.
const RULES: u32 = 5_190;

/// The engine of a gateway: the machine, and who is at its accesses.
pub struct Gateway(pub Mag, Links);

/// The links of its accesses.
struct Links {
    /// Whether they are looked at; otherwise others say who is there.
    watched: bool,
    /// Those that are there, and whether they say who is.
    known: BTreeMap<u32, bool>,
    here: BTreeMap<u32, LinkLayer>,
    rules: BTreeMap<u32, Rule>,
    /// Something may have changed.
    looks: bool,
    out: VecDeque<MagOutput>,
}

impl Gateway {
    /// A machine that starts. If `watched`, it is told who is at its accesses by their links.
    #[must_use]
    pub fn new(machine: Mag, watched: bool) -> Gateway {
        let (known, here, rules) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let out = VecDeque::new();
        Gateway(machine, Links { watched, known, here, rules, looks: false, out })
    }

    /// Whether its links are looked at.
    pub(super) fn is_watched(&self) -> bool {
        self.1.watched
    }

    /// The station at a link.
    pub(super) fn station(&self, interface: u32) -> Option<&LinkLayer> {
        self.1.here.get(&interface)
    }

    /// Tells the machine who has come to its links and who has left.
    fn look(&mut self, io: &Io<'_>) {
        self.1.rule(io);
        let is_known = |interface: &u32| self.1.known.contains_key(interface);
        let there = |interface: u32| {
            let (node, index) = io.other_end(interface).filter(|_| io.has_carrier(interface))?;
            Some((interface, LinkLayer::mac(link_layer(node, index))))
        };
        let here: BTreeMap<u32, LinkLayer> =
            self.1.known.iter().filter(|(_, says)| **says).filter_map(|(i, _)| there(*i)).collect();
        let before = core::mem::take(&mut self.1.here);
        for (interface, station) in before.iter().filter(|(index, _)| is_known(index)) {
            if here.get(interface) != Some(station) {
                let (interface, station) = (*interface, station.clone());
                let left = MagInput::Detached { interface, station };
                self.0.handle(io.now, Input::Own(left));
            }
        }
        for (interface, station) in &here {
            if before.get(interface) != Some(station) {
                self.heard(io.now, *interface, station.clone(), None);
            }
        }
        self.1.here = here;
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
                Some((interface.index, access.by == AttachBy::Driver))
            });
            self.1.known = known.collect();
        }
        self.1.looks |= self.1.watched && matches!(input, Input::Interfaces(_) | Input::Link(_));
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        if packet.protocol == ICMPV6
            && let Some(interface) = over
            && let Some(station) = self.station(interface).cloned()
        {
            let link_local = match packet.src {
                IpAddr::V6(source) if source.is_unicast_link_local() => Some(source),
                _ => None,
            };
            self.heard(io.now, interface, station, link_local);
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

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<Wish, Report, MagRecord>> {
        if core::mem::take(&mut self.1.looks) {
            self.look(io);
        }
        self.1.out.pop_front().or_else(|| self.0.poll())
    }
}
