//! The daemon of a mobile access gateway.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::Context;
use segue_clock::{Machine, Span, Time};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Input, LinkEvent, Prefix};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_linux::raw::RawSocket;
use segue_linux::station::HeardStation;
use segue_mih::Interest;
use segue_node::{GatewayLinks, Node, NodeInput, NodeWish};
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
    About, PORTS, Uses, day_clock, function, open, records, refused, seconds_left, stored, today,
    uplink,
};
use crate::clamp::Clamp;
use crate::control::{self, Response, Status, Vocabulary};
use crate::forwarding::Forwarding;
use crate::kept::Kept;
use crate::lacks;
use crate::ledger::{Entry, Ledger, StoreTable};
use crate::number::Number;
use crate::relayed::{self, Below, OfFlows, Relayed};
use crate::run::{self, Core, Role};
pub use crate::settings::Mag as Settings;
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
    forwarding: Forwarding,
    macs: Macs,
    _clamp: Clamp,
}

/// Most hosts in the status.
const SHOWN: usize = 1_000;
/// Delay before hosts are probed after a host's session has ended.
const AGAIN: Duration = Duration::from_millis(200);
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
            let node = &self.core.end.sockets.machine;
            let counts = self.listened(interface)
                || node.is_reported(interface, &station)
                || node.machine().awaits(monotonic(), interface, &station);
            if !counts {
                continue;
            }
            self.feed(NodeInput::Own(MagInput::Heard { interface, station, link_local }))?;
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
    type Chore = Turn;

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
        let mut node = aaa::node(machine, settings.radius.as_ref())?;
        if let Some(config) = &mut settings.mih {
            // Subscribe to these links only; their addresses are known by this point.
            let events = config.interests.iter().fold(EventList(0), |all, of| all | of.events);
            let of = |link: &LinkAddress| Interest { link: Some(link.clone()), events };
            config.interests = mih_links.values().map(of).collect();
            node = node.listening(function(config.clone()), GatewayLinks::new(mih_links));
        }
        let uses = Uses { radius: settings.radius.as_ref(), mih: settings.mih.as_ref() };
        let own = settings.machine.accesses.iter().map(|access| access.proxy_coa);
        let (mut sockets, mut arrivals) = uses.open(node, own)?;
        let discovery = [Kind::RouterSolicitation as u8, Kind::NeighborAdvertisement as u8];
        sockets.speak(&mut arrivals, RawSocket::icmpv6(&discovery)?, &[ALL_ROUTERS])?;
        // Servers may name further anchors.
        if settings.radius.is_none() {
            arrivals.know(uses.known(settings.machine.anchors().map(Prefix::host)));
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
        let daemon = Daemon {
            _clamp: Clamp::start(&settings.relay.device),
            settings,
            core,
            counter,
            links: BTreeMap::new(),
            watch: Watch::open(FIXED_LINK_LOCAL)?,
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
            // A gateway decides about no flows.
            NodeWish::Tell { .. } => return Ok(()),
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
        // Routes may have changed: packets of hosts might leave over another host's link.
        let mag = self.core.end.sockets.machine.machine();
        uplink::check(mag.anchors(), &mag.config().accesses)?;
        self.feed(NodeInput::Own(MagInput::TimeOfDay(today())))
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
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

    async fn chore(&mut self) -> Turn {
        self.watch.wait().await
    }

    fn on_chore(&mut self, turn: Turn) -> anyhow::Result<()> {
        self.take_heard(turn)
    }

    fn on_request(&mut self, ask: Ask) -> anyhow::Result<Response<Words>> {
        match ask {}
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.feed(NodeInput::Leave)
    }

    fn status(&mut self, _: &mut BTreeMap<String, u64>) -> MagStatus {
        let node = &self.core.end.sockets.machine;
        let mag = node.machine();
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
                mih_ms: node.reported_after(&access.interface, station).map(Span::as_millis_f64),
                aaa_ms: between(Some(at.since), at.identified),
                pba_ms: between(at.identified, at.registered),
                ra_ms: between(at.registered, at.advertised),
            },
        });
        MagStatus {
            anchor: mag.config().anchor.to_string(),
            hosts: hosts.collect(),
            host_count: mag.stations().count(),
            radius: node.radius().map(RadiusStatus::of),
            refused: refused(mag.refused()),
        }
    }
}
