//! A simulated domain: an anchor, gateways with one access each, and the forwarding state of all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{DayClock, Machine, Span, Time, UnixTime};
use segue_ip::{
    Binding, Datagram, Exit, FlowKey, Forward, Input, Interface, Output, Port, Prefix, Route,
    Source, Traffic, Tunnel,
};
use segue_mobility::Pool;
use segue_pmip::{
    Access, Allowed, AttachBy, LinkLayer, Lma, LmaConfig, LmaInput, LmaRecord, LmaWish, Mag,
    MagConfig, MagInput, MagRecord, NodeId, Report, Wish,
};
use segue_wire::mobility::option::{AccessTechnology, Handoff};
use segue_wire::mobility::{Body, Message, MobilityOption, Profile};
use segue_wire::nd;

/// The anchor's address.
pub(crate) const LMA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// IPv4 addresses of the anchor and of a NAT.
pub(crate) const LMA_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const NAT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// Interface index of each gateway's access.
pub(crate) const LINK: u32 = 2;
/// One-way delay between anchor and gateways.
pub(crate) const DELAY: Span = Span::from_millis(5);
/// Time of day at the start.
pub(crate) const DAY: UnixTime = UnixTime::from_secs(1_700_000_000);

/// The IPv6 address of gateway `n`.
pub(crate) fn mag(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n as u16)
}

/// The IPv4 address of gateway `n`.
pub(crate) fn mag_v4(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 2 + n as u8)
}

/// The link-layer identifier of station `n`.
pub(crate) fn station(n: u8) -> LinkLayer {
    LinkLayer::mac([2, 0, 0, 0, 0, n])
}

/// The host of station `n`, unless a test defines another.
pub(crate) fn node(n: u8) -> NodeId {
    NodeId::nai(&format!("02000000000{n}@segue.invalid"))
}

/// The route that leads a prefix to a station.
pub(crate) fn to_station(prefix: Prefix, n: usize) -> Forward {
    let gateway = Some(format!("fe80::ff:fe00:{n}").parse().unwrap());
    Forward::Route(Route { gateway, ..Route::on(prefix, LINK) })
}

pub(crate) fn s(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// The installed forwarding state of a node.
#[derive(Default)]
pub(crate) struct Given(pub(crate) Vec<Forward>);

impl Given {
    fn put(&mut self, part: Forward) {
        let place = self.0.iter().position(|old| match (old, &part) {
            (Forward::Bind(old), Forward::Bind(new)) => old.traffic == new.traffic,
            (Forward::Tunnel(old), Forward::Tunnel(new)) => old.number == new.number,
            _ => *old == part,
        });
        match place {
            Some(place) => self.0[place] = part,
            None => self.0.push(part),
        }
    }

    fn take(&mut self, part: &Forward) {
        let place = self.0.iter().position(|old| old == part);
        self.0.remove(place.unwrap_or_else(|| panic!("taken back, not given: {part:?}")));
        // Withdrawing a tunnel withdraws its sources.
        if let Forward::Tunnel(Tunnel { number, .. }) = part {
            let of_it = |part: &Forward| matches!(part, Forward::Source(Source { port, .. }) if *port == Port::Tunnel(*number));
            self.0.retain(|part| !of_it(part));
        }
    }

    /// The exit of traffic to or from a prefix.
    pub(crate) fn exit(&self, traffic: Traffic) -> Option<Exit> {
        self.0.iter().find_map(|part| match part {
            Forward::Bind(Binding { traffic: bound, exit }) if *bound == traffic => Some(*exit),
            _ => None,
        })
    }

    pub(crate) fn tunnel(&self, number: u32) -> Option<&Tunnel> {
        self.0.iter().find_map(|part| match part {
            Forward::Tunnel(tunnel) if tunnel.number == number => Some(tunnel),
            _ => None,
        })
    }

    /// Remote addresses of the tunnels that may carry traffic from a prefix.
    pub(crate) fn brings(&self, prefix: Prefix) -> Vec<IpAddr> {
        let tunnels = self.0.iter().filter_map(|part| match part {
            Forward::Source(Source { port: Port::Tunnel(number), prefix: may }) => {
                Some(*number).filter(|_| *may == prefix)
            }
            _ => None,
        });
        let mut all: Vec<IpAddr> = tunnels.map(|n| self.tunnel(n).unwrap().remote).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn has(&self, part: &Forward) -> bool {
        self.0.contains(part)
    }
}

/// The path between the anchor and a gateway.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// One-way delay.
    pub(crate) delay: Span,
    /// Every n-th message to the gateway is lost; with 1, all messages in both directions.
    pub(crate) loses_one_of: Option<u64>,
    /// The gateway does not know our vendor-specific options and sends no restart counter.
    pub(crate) foreign: bool,
    pub(crate) sent: u64,
}

impl Default for Way {
    fn default() -> Way {
        Way { delay: DELAY, loses_one_of: None, foreign: false, sent: 0 }
    }
}

impl Way {
    /// The message as it arrives; `None` if it is lost.
    fn carry(&mut self, datagram: Datagram, down: bool) -> Option<Datagram> {
        self.sent += u64::from(down);
        match self.loses_one_of {
            Some(1) => return None,
            Some(n) if down && self.sent.is_multiple_of(n) => return None,
            _ => {}
        }
        if !self.foreign {
            return Some(datagram);
        }
        let mut message = Message::parse(&datagram.bytes, &Profile::STRICT).ok()?;
        message.options.retain(|option| match option {
            MobilityOption::VendorSpecific(_) => !down,
            MobilityOption::RestartCounter(_) => down,
            _ => true,
        });
        let (IpAddr::V6(from), IpAddr::V6(to)) = (datagram.from.0, datagram.to.0) else {
            return None;
        };
        let bytes = message.emit_with_checksum(from, to, &Profile::STRICT).ok()?;
        Some(Datagram { bytes, ..datagram })
    }
}

pub(crate) struct Domain {
    pub(crate) now: Time,
    pub(crate) lma: Lma,
    pub(crate) mags: Vec<Mag>,
    /// Messages in flight, by arrival time.
    wire: BTreeMap<(Time, u64), Datagram>,
    sent: u64,
    /// A NAT between IPv4 gateways and the anchor: each of its ports, and the endpoint it maps to.
    pub(crate) nat: Option<BTreeMap<u16, (IpAddr, u16)>>,
    /// The last port that the NAT assigned.
    last_port: u16,
    /// Drops every message sent from here on.
    pub(crate) cut: bool,
    /// Paths to gateways that differ from the default.
    pub(crate) ways: BTreeMap<Ipv6Addr, Way>,
    /// All sent messages: time, sender, message.
    pub(crate) log: Vec<(Time, Ipv6Addr, Message)>,
    /// The same messages as datagrams.
    pub(crate) packets: Vec<Datagram>,
    /// Forwarding state of the anchor, then of each gateway.
    pub(crate) given: Vec<Given>,
    pub(crate) reports: Vec<Report>,
    /// Requests of the anchor to its driver.
    pub(crate) wishes: Vec<LmaWish>,
    /// Flows that carry nothing; every other flow always does.
    pub(crate) idle: Vec<FlowKey>,
    /// Requests of gateways to their driver about the identity of hosts.
    pub(crate) asked: Vec<(usize, Wish)>,
    /// Advertisements and solicitations to stations: gateway, station, message.
    pub(crate) frames: Vec<(usize, LinkLayer, nd::Message)>,
    /// Stations that answer when asked to show themselves: gateway, interface, station.
    pub(crate) here: BTreeSet<(usize, u32, LinkLayer)>,
    pub(crate) stored: BTreeMap<String, LmaRecord>,
    pub(crate) stored_at_mags: Vec<BTreeMap<String, MagRecord>>,
}

pub(crate) fn lma_config() -> LmaConfig {
    let pool = Pool::prefixes("2001:db8::/48".parse().unwrap(), 64, 1).unwrap();
    let mut config = LmaConfig::new(LMA, pool, DayClock::new(Time::ZERO, DAY));
    let prefix = "fd00::1:0/112".parse().unwrap();
    config.gateways = vec![Allowed { prefix, profile: Profile::STRICT }];
    config
}

pub(crate) fn mag_config(n: usize) -> MagConfig {
    let access = Access {
        interface: "radio".into(),
        technology: AccessTechnology::WLAN,
        proxy_coa: mag(n).into(),
        handoff: Handoff::NEW_INTERFACE,
        by: AttachBy::Driver,
    };
    MagConfig::new(LMA, vec![access], DayClock::new(Time::ZERO, DAY))
}

/// Returns whether a message is about a host: it then waits for the host's records.
fn is_about_a_host(datagram: &Datagram) -> bool {
    let parsed = [Profile::STRICT, Profile::OAI].map(|of| Message::parse(&datagram.bytes, &of));
    let message = parsed.into_iter().find_map(Result::ok).unwrap();
    message.options.iter().any(|option| match option {
        MobilityOption::MobileNodeIdentifier(id) => id.identifier.iter().any(|byte| *byte != 0),
        _ => false,
    })
}

impl Domain {
    pub(crate) fn new(mags: usize) -> Domain {
        Domain::of(lma_config(), (0..mags).map(mag_config).collect())
    }

    pub(crate) fn of(lma: LmaConfig, mags: Vec<MagConfig>) -> Domain {
        let count = mags.len();
        let mut domain = Domain {
            now: Time::ZERO,
            lma: Lma::new(lma),
            mags: mags.into_iter().map(Mag::new).collect(),
            wire: BTreeMap::new(),
            sent: 0,
            nat: None,
            last_port: 40_000,
            cut: false,
            ways: BTreeMap::new(),
            log: Vec::new(),
            packets: Vec::new(),
            given: (0..=count).map(|_| Given::default()).collect(),
            reports: Vec::new(),
            wishes: Vec::new(),
            idle: Vec::new(),
            asked: Vec::new(),
            frames: Vec::new(),
            here: BTreeSet::new(),
            stored: BTreeMap::new(),
            stored_at_mags: vec![BTreeMap::new(); count],
        };
        domain.at_lma(Input::Interfaces(Vec::new()));
        // No gateway is up yet when the anchor greets them.
        domain.wire.clear();
        (0..count).for_each(|n| domain.has_link(n));
        domain
    }

    pub(crate) fn has_link(&mut self, n: usize) {
        let radio = Interface { name: "radio".into(), index: LINK, ..Interface::default() };
        self.at_mag(n, Input::Interfaces(vec![radio]));
    }

    pub(crate) fn at_lma(&mut self, input: Input<LmaInput, LmaRecord>) {
        self.lma.handle(self.now, input);
        self.drain_lma();
    }

    pub(crate) fn at_mag(&mut self, n: usize, input: Input<MagInput, MagRecord>) {
        self.mags[n].handle(self.now, input);
        self.drain_mag(n);
    }

    pub(crate) fn attach(&mut self, n: usize, station: LinkLayer) {
        self.attach_at(n, LINK, station);
    }

    pub(crate) fn attach_at(&mut self, n: usize, interface: u32, station: LinkLayer) {
        self.here.insert((n, interface, station.clone()));
        let link_local = None;
        self.at_mag(n, Input::Own(MagInput::Attached { interface, station, link_local }));
    }

    pub(crate) fn detach(&mut self, n: usize, station: LinkLayer) {
        self.detach_at(n, LINK, station);
    }

    pub(crate) fn detach_at(&mut self, n: usize, interface: u32, station: LinkLayer) {
        self.here.remove(&(n, interface, station.clone()));
        self.at_mag(n, Input::Own(MagInput::Detached { interface, station }));
    }

    fn drain_lma(&mut self) {
        while let Some(output) = self.lma.poll() {
            match output {
                Output::Send(datagram, after) => {
                    assert_eq!(after.is_some(), is_about_a_host(&datagram), "{datagram:?}");
                    self.send(datagram);
                }
                Output::Forward(part) => self.given[0].put(part),
                Output::Withdraw(part) => self.given[0].take(&part),
                Output::Persist(record) => {
                    let key = match &record {
                        LmaRecord::Session(number, _) => format!("s{number}"),
                        LmaRecord::Lease(prefix, _) => format!("l{prefix}"),
                    };
                    self.stored.insert(key, record);
                }
                Output::Report(report) => self.reports.push(report),
                Output::Own(LmaWish::Inspect(flows)) => {
                    let last = |key| if self.idle.contains(&key) { None } else { Some(self.now) };
                    let last = flows.into_iter().map(|key| (key, last(key))).collect();
                    self.lma.handle(self.now, Input::Own(LmaInput::LastSent(last)));
                }
                Output::Own(wish) => self.wishes.push(wish),
            }
        }
    }

    fn drain_mag(&mut self, n: usize) {
        while let Some(output) = self.mags[n].poll() {
            match output {
                Output::Send(datagram, _) => self.send(datagram),
                Output::Forward(part) => self.given[n + 1].put(part),
                Output::Withdraw(part) => self.given[n + 1].take(&part),
                Output::Persist(record) => {
                    let key = format!("{} {}", record.access, record.station);
                    self.stored_at_mags[n].insert(key, record);
                }
                Output::Report(report) => self.reports.push(report),
                Output::Own(Wish::ToStation { mac, datagram }) => {
                    let message = nd::Message::parse(&datagram.bytes).unwrap();
                    self.frames.push((n, LinkLayer::mac(mac), message));
                }
                Output::Own(Wish::Ask { interface }) => {
                    let asked = |(gateway, at, _): &&(usize, u32, LinkLayer)| {
                        (*gateway, *at) == (n, interface)
                    };
                    let here: Vec<_> = self.here.iter().filter(asked).cloned().collect();
                    for (.., station) in here {
                        let own = MagInput::Attached { interface, station, link_local: None };
                        self.mags[n].handle(self.now, Input::Own(own));
                    }
                }
                // A station that is here answers at once.
                Output::Own(Wish::Show { interface, station }) => {
                    if self.here.contains(&(n, interface, station.clone())) {
                        let own = MagInput::Heard { interface, station, link_local: None };
                        self.mags[n].handle(self.now, Input::Own(own));
                    }
                }
                Output::Own(wish) => self.asked.push((n, wish)),
            }
        }
    }

    pub(crate) fn send(&mut self, datagram: Datagram) {
        let mapped = |address: IpAddr| match address {
            IpAddr::V6(address) => address,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
        };
        let (from, to) = (mapped(datagram.from.0), mapped(datagram.to.0));
        if let Ok(message) = Message::parse(&datagram.bytes, &Profile::STRICT) {
            self.log.push((self.now, from, message));
        }
        self.packets.push(datagram.clone());
        if !self.cut {
            let down = [LMA, LMA_V4.to_ipv6_mapped()].contains(&from);
            let way = self.ways.entry(if down { to } else { from }).or_default();
            let Some(datagram) = way.carry(datagram, down) else { return };
            let at = self.now + way.delay;
            self.sent += 1;
            let datagram = self.translated(datagram);
            self.wire.insert((at, self.sent), datagram);
        }
    }

    /// Applies the NAT, if the datagram passes one.
    fn translated(&mut self, mut datagram: Datagram) -> Datagram {
        let Some(nat) = &mut self.nat else { return datagram };
        if (0..self.mags.len()).any(|n| datagram.from.0 == IpAddr::from(mag_v4(n))) {
            let known = nat.iter().find(|(_, inside)| **inside == datagram.from);
            let port = known.map_or(self.last_port + 1, |(port, _)| *port);
            self.last_port = self.last_port.max(port);
            nat.insert(port, datagram.from);
            datagram.from = (NAT.into(), port);
        }
        datagram
    }

    /// Drops all messages in flight, except acknowledgements of updates.
    pub(crate) fn drop_wire(&mut self) {
        self.wire.retain(|_, datagram| {
            let message = Message::parse(&datagram.bytes, &Profile::STRICT);
            message.is_ok_and(|message| is_acknowledgement(&message.body))
        });
    }

    /// Runs the simulation until this time.
    pub(crate) fn run(&mut self, until: Time) {
        loop {
            let wire = self.wire.first_key_value().map(|((at, _), _)| *at);
            let lma = self.lma.deadline().map(|(at, _)| at);
            let mags = self.mags.iter().filter_map(|mag| mag.deadline().map(|(at, _)| at)).min();
            let Some(next) = wire.into_iter().chain(lma).chain(mags).min() else { break };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            if wire == Some(next) {
                let (_, datagram) = self.wire.pop_first().unwrap();
                self.deliver(datagram);
            } else if lma == Some(next) {
                self.lma.tick(self.now);
                self.drain_lma();
            } else {
                let is_due = |mag: &Mag| mag.deadline().is_some_and(|(at, _)| at <= next);
                let n = self.mags.iter().position(is_due).unwrap();
                self.mags[n].tick(self.now);
                self.drain_mag(n);
            }
        }
        self.now = until;
    }

    fn deliver(&mut self, mut datagram: Datagram) {
        if datagram.to.0 == IpAddr::from(NAT) {
            let Some(nat) = self.nat.as_ref() else { return };
            let Some(inside) = nat.get(&datagram.to.1) else { return };
            datagram.to = *inside;
        }
        if [LMA.into(), LMA_V4.into()].contains(&datagram.to.0) {
            self.at_lma(Input::Datagram(datagram));
            return;
        }
        let has = |mag: &Mag| mag.config().accesses.iter().any(|a| datagram.to.0 == a.proxy_coa);
        if let Some(n) = self.mags.iter().position(has) {
            self.at_mag(n, Input::Datagram(datagram));
        }
    }

    /// The prefixes of a station at gateway `n`.
    pub(crate) fn prefixes(&self, n: usize, station: &LinkLayer) -> Vec<Prefix> {
        let mut all = self.mags[n].stations();
        let found = all.find(|(_, there, at)| *there == station && at.state.is_served());
        found.map_or(Vec::new(), |(_, _, at)| at.prefixes.clone())
    }

    /// The only prefix of a station at gateway `n`.
    pub(crate) fn prefix(&self, n: usize, station: &LinkLayer) -> Prefix {
        let all = self.prefixes(n, station);
        assert_eq!(all.len(), 1, "{:?}", self.log);
        all[0]
    }

    /// The gateway to which the anchor sends traffic, if any.
    pub(crate) fn sends(&self, traffic: Traffic) -> Option<IpAddr> {
        match self.given[0].exit(traffic) {
            Some(Exit::Tunnel(number)) => Some(self.given[0].tunnel(number).unwrap().remote),
            Some(Exit::Drop) | None => None,
            other => panic!("{other:?}"),
        }
    }

    /// The gateway to which the anchor sends traffic to a prefix, unless it places flows individually.
    pub(crate) fn leads(&self, prefix: Prefix) -> Option<IpAddr> {
        self.sends(Traffic::To(prefix))
    }

    /// Returns true if the anchor places each flow to a prefix individually.
    pub(crate) fn asks(&self, prefix: Prefix) -> bool {
        self.given[0].exit(Traffic::To(prefix)) == Some(Exit::Ask)
    }

    /// The messages of one kind that a node has sent.
    pub(crate) fn sent_by(&self, from: Ipv6Addr, is: fn(&Body) -> bool) -> Vec<(Time, &Message)> {
        let own =
            self.log.iter().filter(|(_, sender, message)| *sender == from && is(&message.body));
        own.map(|(at, _, message)| (*at, message)).collect()
    }

    /// How many messages the anchor refused for this reason.
    pub(crate) fn refused(&self, name: &str) -> u64 {
        let all = self.lma.refused().iter().filter(|(why, _)| why.name() == name);
        all.map(|(_, count)| count).sum()
    }
}

pub(crate) fn is_update(body: &Body) -> bool {
    matches!(body, Body::BindingUpdate(_))
}

pub(crate) fn is_acknowledgement(body: &Body) -> bool {
    matches!(body, Body::BindingAcknowledgement(_))
}
