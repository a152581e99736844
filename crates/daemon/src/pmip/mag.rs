//! The daemon of a mobile access gateway.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use segue_clock::{Machine, Time};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Input, LinkEvent, Prefix};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_linux::raw::RawSocket;
use segue_linux::station::HeardStation;
use segue_mih::{Event, Interest, MihfConfig, What};
use segue_node::{Node, NodeInput, NodeWish};
use segue_pmip::{
    AttachBy, FIXED_LINK_LOCAL, FIXED_MAC, LinkLayer, Mag, MagInput, MagRecord, Report, Why, Wish,
};
use segue_probe::metrics::{Page, names};
use segue_wire::mih::codes::EventList;
use segue_wire::mih::identity::LinkAddress;
use segue_wire::nd::Kind;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::aaa::{self, RadiusStatus, Told};
use super::leading::{lead, tables};
use super::macs::{self, Macs};
use super::{
    About, PORTS, add, day_clock, know, open, over_v4, records, refused, seconds_left, stored,
    today, uplink,
};
use crate::clamp::Clamp;
use crate::control::{self, Response, Status, Vocabulary};
use crate::forwarding::Forwarding;
use crate::kept::Kept;
use crate::lacks;
use crate::ledger::{Entry, Ledger, StoreTable};
use crate::mih::listener::Listener;
use crate::number::Number;
use crate::relayed::{self, Below, OfFlows, Relayed};
use crate::run::{self, Core, Role};
pub use crate::settings::Mag as Settings;
use crate::sockets::Sockets;
use crate::stations::{Turn, Watch};

const HOSTS: StoreTable = StoreTable { name: "hosts", of: "host" };
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The gateway's vocabulary on its control socket.
#[derive(Clone, Debug)]
pub struct Words;

impl Vocabulary for Words {
    type News = Told;
    type Request = Ask;
    type Answer = ();
    type Status = MagStatus;
    type Event = About;

    fn metrics(status: &Status<Words>, page: &mut Page) {
        page.one(&names::ATTACHED, status.body.host_count as f64);
        control::refused(page, &status.body.refused);
    }
}

/// Requests to a gateway; there are none so far.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {}

/// The status of a gateway.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MagStatus {
    /// The default anchor of its hosts.
    pub anchor: String,
    /// Attached interfaces of hosts, at most 1000 of them.
    pub hosts: Vec<HostStatus>,
    /// Total number of attached interfaces.
    #[serde(default)]
    pub host_count: usize,
    /// Status of the RADIUS client, if servers are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radius: Option<RadiusStatus>,
    /// Refused messages, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// A host's interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// The host's identity, once it is known.
    pub mn_id: Option<String>,
    /// The link-layer identifier of its interface.
    pub llid: String,
    /// The interface of the access.
    pub access: String,
    /// Its home network prefixes.
    pub prefixes: Vec<String>,
    /// Prefixes of the host's other interfaces, which are also carried here.
    pub off_link: Vec<String>,
    /// The address at which it is registered (Proxy-CoA).
    pub proxy_coa: String,
    /// `identifying`, `registering`, `active`, `probing` or `leaving`.
    pub state: String,
    /// Remaining lifetime of the registration.
    pub lifetime_s: u64,
    /// Time from attachment to the anchor's answer, in milliseconds.
    pub registered_ms: Option<f64>,
    /// Duration of each step of the attachment.
    pub attach: AttachStatus,
}

/// Durations of the steps of an attachment, in milliseconds; `None` for steps that have not happened.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AttachStatus {
    /// From the link's carrier to the report of the IEEE 802.21 function, if the report arrived within 5 s.
    pub mih_ms: Option<f64>,
    /// From attachment to identification of the host.
    pub aaa_ms: Option<f64>,
    /// From identification to the anchor's answer.
    pub pba_ms: Option<f64>,
    /// From the anchor's answer to the router advertisement with the host's prefixes.
    pub ra_ms: Option<f64>,
}

impl OfFlows for Mag {
    type Own = MagInput;

    fn flow(_: FlowKey, _: u8) -> Option<MagInput> {
        None
    }

    fn size(tunnel: u32, bytes: Option<u32>) -> Option<MagInput> {
        Some(MagInput::TunnelSize { tunnel, bytes })
    }
}

/// The role of a gateway.
pub struct Daemon {
    settings: Settings,
    core: Core<Relayed<Node<Mag>>, Words>,
    /// Reads the traffic of RADIUS sessions.
    counter: Counter,
    /// Accesses that exist, by interface index, with their names.
    links: BTreeMap<u32, String>,
    watch: Watch,
    /// Receives IEEE 802.21 events for the accesses in `mih_links`, which maps their names to the addresses of their
    /// links.
    listener: Option<Listener>,
    mih_links: BTreeMap<String, LinkAddress>,
    /// When each link came up, and how long after that (`told_ms`) a function reported each of its hosts.
    ups: BTreeMap<u32, Instant>,
    told_ms: BTreeMap<(String, LinkLayer), f64>,
    forwarding: Forwarding,
    macs: Macs,
    _clamp: Clamp,
}

/// Most hosts in the status.
const SHOWN: usize = 1_000;
/// Delay before hosts are probed after a host's session has ended.
const AGAIN: Duration = Duration::from_millis(200);
/// Time after a link came up in which a reported host counts as attached by that event.
const NEWS: Duration = Duration::from_secs(5);

/// Work of a gateway that none of the loop's sources brings.
pub enum Chore {
    /// A host was heard, or probes are due.
    Watch(Turn),
    /// An IEEE 802.21 function has reported events.
    Told,
}

/// Milliseconds between two times, if both are known.
fn between(from: Option<Time>, to: Option<Time>) -> Option<f64> {
    Some(to?.since(from?).as_millis_f64())
}

/// Returns whether the daemon itself detects the hosts of an access.
fn listens(settings: &Settings, name: &str) -> bool {
    let accesses = &settings.machine.accesses;
    !settings.mih_links.contains_key(name)
        && accesses.iter().any(|access| access.interface == name && access.by == AttachBy::Driver)
}

impl Daemon {
    /// Returns whether the daemon itself detects the hosts of this interface.
    fn listened(&self, interface: u32) -> bool {
        self.links.get(&interface).is_some_and(|name| listens(&self.settings, name))
    }

    fn take_heard(&mut self, turn: Turn) -> anyhow::Result<()> {
        for HeardStation { interface, mac, source, solicits } in self.watch.turn(turn)? {
            // Another gateway.
            if mac == FIXED_MAC {
                continue;
            }
            let station = LinkLayer::mac(mac);
            let link_local = Some(source).filter(Ipv6Addr::is_unicast_link_local);
            if solicits {
                let station = station.clone();
                self.feed(NodeInput::Own(MagInput::Solicited { interface, station, link_local }))?;
            }
            let mag = self.core.end.sockets.machine.machine();
            let counts = self.listened(interface)
                || self.is_told(interface, mac)
                || mag.awaits(monotonic(), interface, &station);
            if !counts {
                continue;
            }
            self.feed(NodeInput::Own(MagInput::Heard { interface, station, link_local }))?;
        }
        Ok(())
    }

    /// Returns whether an IEEE 802.21 function reports this station at this access. Packets from such a station then
    /// serve to learn its address and to confirm its presence.
    fn is_told(&self, interface: u32, mac: [u8; 6]) -> bool {
        let address = self.links.get(&interface).and_then(|name| self.mih_links.get(name));
        let (Some(address), Some(listener)) = (address, &self.listener) else { return false };
        let station = LinkAddress::mac(mac);
        let links = listener.machine().links().iter();
        let mut here = links.filter(|(id, _)| id.address == *address);
        here.any(|(_, link)| link.stations.contains_key(&station))
    }

    /// Records how long after its link's carrier a host was reported.
    fn note_told(&mut self, interface: u32, station: &LinkLayer, what: &What) {
        let Some(name) = self.links.get(&interface) else { return };
        let place = (name.clone(), station.clone());
        let since = self.ups.get(&interface).map(Instant::elapsed).filter(|since| *since <= NEWS);
        match (what, since) {
            (What::Up, Some(since)) => {
                self.told_ms.insert(place, since.as_secs_f64() * 1e3);
            }
            (What::Up | What::Down(_), _) => {
                self.told_ms.remove(&place);
            }
            _ => {}
        }
    }

    /// Takes the attachments and departures that an IEEE 802.21 function has reported.
    fn take_told(&mut self) -> anyhow::Result<()> {
        let events = self.listener.as_mut().map(Listener::turn).unwrap_or_default();
        for Event { link, station, what } in events {
            let Some(mac) = station.and_then(|station| station.as_mac()) else { continue };
            let of = |(_, name): &(&u32, &String)| {
                self.mih_links.get(*name).is_some_and(|own| *own == link.address)
            };
            let Some(interface) = self.links.iter().find(of).map(|(index, _)| *index) else {
                continue;
            };
            let (station, link_local) = (LinkLayer::mac(mac), None);
            self.note_told(interface, &station, &what);
            let input = match what {
                What::Up => MagInput::Attached { interface, station, link_local },
                What::Down(_) => MagInput::Detached { interface, station },
                What::GoingDown { .. } | What::Parameters(_) | What::Detected(_) => continue,
            };
            self.feed(NodeInput::Own(input))?;
        }
        Ok(())
    }
}

impl Role for Daemon {
    const NAME: &'static str = "pmip-mag";
    const TASK: &'static str = "run a mobile access gateway";
    type Settings = Settings;
    type Engine = Relayed<Node<Mag>>;
    type Words = Words;
    type Signalling = std::convert::Infallible;
    type Chore = Chore;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        mut settings: Settings,
        _: mpsc::Sender<Self::Signalling>,
    ) -> anyhow::Result<(Daemon, Below)> {
        uplink::check(settings.machine.anchors(), &settings.machine.accesses)?;
        let (store, restart_counter) = open(&settings.state, HOSTS.name)?;
        lacks::of_gateway(&settings.machine)?.iter().for_each(|lack| warn!("{lack}"));
        let mih_links = macs::own_links(&settings.mih_links, store.as_ref())?;
        let mut macs = Macs::new(store.clone());
        for access in settings.machine.accesses.iter().filter(|_| settings.fixed_mac) {
            macs.fix(&access.interface)?;
        }
        let config = &mut settings.machine;
        (config.clock, config.restart_counter) = (day_clock(), restart_counter);
        let [_, to_hosts] = tables(Number::of(&settings.relay.device));
        (config.seed, config.table) = (realtime_ns(), to_hosts);
        config.mac = settings.fixed_mac.then_some(FIXED_MAC);
        let mut machine = Mag::new(config.clone());
        for (_, value) in stored(store.as_ref(), HOSTS.name)? {
            if let Some(record) = records::to_mag(&value) {
                machine.handle(monotonic(), Input::Record(record));
            }
        }
        let ledger = Ledger::start(store, HOSTS)?;
        let machine = aaa::node(machine, settings.radius.as_ref())?;
        let ports = aaa::ports(settings.radius.as_ref());
        let (mut sockets, mut arrivals) = Sockets::open(machine, ports)?;
        sockets.ignore_hosts();
        sockets.speak(&mut arrivals, RawSocket::mobility()?, &[])?;
        let discovery = [Kind::RouterSolicitation as u8, Kind::NeighborAdvertisement as u8];
        sockets.speak(&mut arrivals, RawSocket::icmpv6(&discovery)?, &[ALL_ROUTERS])?;
        let own = settings.machine.accesses.iter().map(|access| access.proxy_coa);
        over_v4(&mut sockets, &mut arrivals, own)?;
        // Servers may name further anchors.
        if settings.radius.is_none() {
            know(&mut arrivals, settings.machine.anchors().map(Prefix::host), None);
        }
        let counts = aaa::counts(settings.radius.as_ref(), Counts::AtLinks);
        let (relay, misses) = relayed::open(&settings.relay, &PORTS, counts)?;
        let counter = relay.counter();
        let (mut end, below) = Relayed::new(sockets, (relay, settings.relay.mtu), arrivals, misses);
        let mut kept = Kept::default();
        let accesses = settings.machine.accesses.iter().map(|access| access.interface.as_str());
        end.leads(lead(accesses, (&settings.relay.device, end.device()), &mut kept)?);
        let forwarding = Forwarding::of(&mut kept, &settings.relay.device, [true], &[])?;
        let core = Core::new(end, ledger).keeping(kept);
        for access in &settings.machine.accesses {
            let interface = &access.interface;
            info!("access {interface}: hosts are registered at {}", access.proxy_coa);
        }
        let hears = |config: MihfConfig| {
            // Subscribe to these links only; their addresses are known by this point.
            let events = config.interests.iter().fold(EventList(0), |all, of| all | of.events);
            let of = |link: &LinkAddress| Interest { link: Some(link.clone()), events };
            let interests = mih_links.values().map(of).collect();
            Listener::start(MihfConfig { interests, ..config })
        };
        let listener = settings.mih.take().map(hears).transpose()?;
        let daemon = Daemon {
            _clamp: Clamp::start(&settings.relay.device),
            settings,
            core,
            counter,
            links: BTreeMap::new(),
            watch: Watch::open(FIXED_LINK_LOCAL)?,
            listener,
            mih_links,
            ups: BTreeMap::new(),
            told_ms: BTreeMap::new(),
            forwarding,
            macs,
        };
        Ok((daemon, below))
    }

    fn core(&mut self) -> &mut Core<Relayed<Node<Mag>>, Words> {
        &mut self.core
    }

    fn apply(&mut self, wish: NodeWish<Wish>) -> anyhow::Result<()> {
        let wish = match wish {
            NodeWish::Own(wish) => wish,
            NodeWish::Count { session, prefixes, last } => {
                let volume = aaa::volume(&mut self.counter, &prefixes, last);
                return self.feed(NodeInput::Counted { session, volume });
            }
        };
        match wish {
            Wish::ToStation { mac, datagram } => {
                let sent = self.watch.stations.send(mac, &datagram);
                let sent = sent.context("a host cannot be told of its prefix");
                self.core.trouble.note(monotonic(), sent);
            }
            // A lost probe is followed by another.
            Wish::Ask { interface } => {
                drop(self.watch.stations.ask_all(interface, FIXED_LINK_LOCAL))
            }
            // A host that does not answer will send something later.
            Wish::Show { interface, station } => {
                if let Ok(mac) = <[u8; 6]>::try_from(&station.0[..]) {
                    drop(self.watch.stations.ask(mac, interface, FIXED_LINK_LOCAL));
                }
            }
            // Handled by the RADIUS client.
            Wish::Identify { .. } | Wish::Began { .. } | Wish::Ended { .. } => {}
        }
        Ok(())
    }

    fn entry(&self, record: MagRecord) -> anyhow::Result<Entry> {
        records::of_mag(&record)
    }

    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.forwarding.look_after(monotonic());
        self.listener.iter_mut().for_each(Listener::find_hosts);
        // Routes may have changed: packets of hosts might leave over another host's link.
        let mag = self.core.end.sockets.machine.machine();
        uplink::check(mag.anchors(), &mag.config().accesses)?;
        self.feed(NodeInput::Own(MagInput::TimeOfDay(today())))
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.listener.iter_mut().for_each(Listener::find_hosts);
        let accesses = &self.settings.machine.accesses;
        let is_access =
            |device: &Device| accesses.iter().any(|a| a.interface == device.interface.name);
        // Include links without a carrier, so that the first packets of a newly attached host are not missed.
        let here: Vec<&Device> = all.iter().filter(|device| is_access(device)).collect();
        let is_known = |d: &Device| self.links.get(&d.interface.index) == Some(&d.interface.name);
        let new = here.iter().filter(|d| !is_known(d));
        let new: Vec<(u32, String)> =
            new.map(|d| (d.interface.index, d.interface.name.clone())).collect();
        self.links = here.iter().map(|d| (d.interface.index, d.interface.name.clone())).collect();
        self.macs.keep(&self.links);
        for (index, name) in new {
            if self.settings.fixed_mac {
                self.core.trouble.note(monotonic(), self.macs.fix(&name));
            }
            self.watch.is_up(index);
        }
        let here = here.iter().map(|device| device.interface.clone()).collect();
        let Core { end, trouble, .. } = &mut self.core;
        end.attach(all, &self.settings.common.interfaces, is_access, trouble);
        self.feed(Input::Interfaces(here))
    }

    /// Detects the hosts of a link that comes up, and detaches all hosts of one that goes down.
    fn on_link(&mut self, event: LinkEvent) -> anyhow::Result<()> {
        if let LinkEvent::Up { interface, .. } = event {
            self.ups.insert(interface, Instant::now());
            self.ups.retain(|index, _| self.links.contains_key(index));
        }
        match event {
            LinkEvent::Up { interface, .. } if self.listened(interface) => {
                self.watch.is_up(interface);
            }
            LinkEvent::Down { interface, .. } if self.listened(interface) => {
                let name = &self.links[&interface];
                let stations = self.core.end.sockets.machine.machine().stations();
                let here = stations.filter(|(access, ..)| access.interface == *name);
                let here: Vec<LinkLayer> = here.map(|(_, station, _)| station.clone()).collect();
                for station in here {
                    self.feed(NodeInput::Own(MagInput::Detached { interface, station }))?;
                }
            }
            _ => {}
        }
        self.feed(Input::Link(event))
    }

    fn on_report(&mut self, told: &Told) -> anyhow::Result<()> {
        // A host whose session has ended may start a new one, but need not send anything by itself: probe.
        if let Told::Role(Report::Left { why: Why::Unauthorized, .. }) = told {
            self.links.keys().for_each(|index| self.watch.ask_after(*index, AGAIN));
        }
        Ok(())
    }

    async fn chore(&mut self) -> Chore {
        let Daemon { watch, listener, .. } = self;
        tokio::select! {
            turn = watch.wait() => Chore::Watch(turn),
            () = Listener::wait(listener.as_mut()) => Chore::Told,
        }
    }

    fn on_chore(&mut self, chore: Chore) -> anyhow::Result<()> {
        match chore {
            Chore::Watch(turn) => self.take_heard(turn),
            Chore::Told => self.take_told(),
        }
    }

    fn on_request(&mut self, ask: Ask) -> anyhow::Result<Response<Words>> {
        match ask {}
    }

    async fn stop(self) -> anyhow::Result<()> {
        if let Some(listener) = self.listener {
            listener.leave();
        }
        drop(self.macs);
        Ok(())
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> MagStatus {
        self.listener.iter_mut().for_each(|listener| add(drops, listener.drops()));
        let mag = self.core.end.sockets.machine.machine();
        let hosts = mag.stations().take(SHOWN).map(|(access, station, at)| HostStatus {
            mn_id: at.identity.as_ref().map(|identity| identity.node.to_string()),
            llid: station.to_string(),
            access: access.interface.clone(),
            prefixes: at.prefixes.iter().map(ToString::to_string).collect(),
            off_link: at.off_link.iter().map(ToString::to_string).collect(),
            proxy_coa: access.proxy_coa.to_string(),
            state: at.state.name().to_owned(),
            lifetime_s: seconds_left(at.until),
            registered_ms: between(Some(at.since), at.registered),
            attach: AttachStatus {
                mih_ms: self.told_ms.get(&(access.interface.clone(), station.clone())).copied(),
                aaa_ms: between(Some(at.since), at.identified),
                pba_ms: between(at.identified, at.registered),
                ra_ms: between(at.registered, at.advertised),
            },
        });
        MagStatus {
            anchor: mag.config().anchor.to_string(),
            hosts: hosts.collect(),
            host_count: mag.stations().count(),
            radius: self.core.end.sockets.machine.radius().map(RadiusStatus::of),
            refused: refused(mag.refused()),
        }
    }
}
