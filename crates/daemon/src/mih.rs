//! The IEEE 802.21 daemons: the function of a node, and the link service access point. Both run the machine of
//! `segue-mih`; a link service access point also has links, and sources of events about them ([`source`]).

pub mod command;
pub mod source;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_clock::Machine;
use segue_ip::{Input, LinkEvent};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::link;
use segue_linux::monitor::Device;
use segue_linux::station::HeardStation;
use segue_mih::{
    Action, Event, LinkConfig, Mihf, MihfInput, MihfWish, Owner, Report, Transport, What,
};
use segue_probe::metrics::{Page, names};
use segue_wire::WireError;
use segue_wire::mih::codes::{CommandList, GenericParameter, LinkActionResult, LinkDownReason};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::ParameterType;
use segue_wire::mih::{PORT, View};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::control::{self, News, Response, Status, Vocabulary};
use crate::lacks;
use crate::ledger::{Entry, Ledger};
use crate::run::{self, Core, Role};
pub use crate::settings::Mih as Settings;
use crate::settings::{MihLink, MihSource};
use crate::sockets::{Arrivals, Sockets};
use crate::stations::{Turn, Watch};
use command::{Answer, Ask, Asked};
use source::{Orders, Told};

/// Source address of the probes to stations of a wire: the address that all gateways share (RFC 6543).
use segue_pmip::{FIXED_LINK_LOCAL, FIXED_MAC};

/// The signal, in dBm, as links report it.
const SIGNAL: ParameterType = ParameterType::Generic(GenericParameter::SIGNAL_STRENGTH);

/// Length in bytes of the next frame of a stream; `None` if more bytes are needed to know it.
pub(crate) fn frame_length(bytes: &[u8]) -> Result<Option<usize>, ()> {
    match View::split(bytes) {
        Ok((view, _)) => Ok(Some(view.bytes().len())),
        Err(WireError::TooShort { .. }) => Ok(None),
        Err(_) => Err(()),
    }
}

/// The daemons' vocabulary on their control sockets.
#[derive(Clone, Debug)]
pub struct Words;

impl Vocabulary for Words {
    type News = Report;
    type Request = Ask;
    type Answer = Answer;
    type Status = MihStatus;
    type Event = About;

    fn metrics(status: &Status<Words>, page: &mut Page) {
        page.one(&names::MIH_PEERS, status.body.registered.len() as f64);
        control::refused(page, &status.body.refused);
    }
}

/// The subject of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The station.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub station: Option<String>,
    /// Time in ms within which it happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u16>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An address as text.
fn text(address: &LinkAddress) -> String {
    match address.as_mac() {
        Some(mac) => link::mac_text(mac),
        None => format!("{address:?}"),
    }
}

fn name_of(name: &segue_mih::Name) -> String {
    name.0.escape_ascii().to_string()
}

impl News<About> for Report {
    fn kind(&self) -> &'static str {
        Report::kind(self)
    }

    fn host(&self) -> String {
        match self {
            Report::Link(event) => event.station.as_ref().map_or_else(String::new, text),
            Report::Registered(name)
            | Report::Gone(name)
            | Report::RegisteredAt(name)
            | Report::Lost(name) => name_of(name),
            Report::Silent(address) => address.to_string(),
        }
    }

    fn warns(&self) -> bool {
        matches!(self, Report::Lost(_) | Report::Silent(_))
    }

    fn about(&self) -> About {
        match self {
            Report::Registered(name)
            | Report::Gone(name)
            | Report::RegisteredAt(name)
            | Report::Lost(name) => About { peer: Some(name_of(name)), ..About::default() },
            Report::Silent(address) => {
                About { peer: Some(address.to_string()), ..About::default() }
            }
            Report::Link(Event { link, station, what }) => {
                let (within_ms, why) = match what {
                    What::GoingDown { within_ms, reason } => (Some(*within_ms), reason.name()),
                    What::Down(reason) => (None, reason.name()),
                    _ => (None, None),
                };
                let (link, station) = (Some(text(&link.address)), station.as_ref().map(text));
                About { peer: None, link, station, within_ms, why: why.map(str::to_owned) }
            }
        }
    }
}

/// The status of a function.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MihStatus {
    /// Its MIH function identifier.
    pub mihf_id: String,
    /// Links known to it.
    pub links: Vec<LinkStatus>,
    /// Peers registered here.
    pub registered: Vec<PeerStatus>,
    /// Functions that it registers with.
    pub functions: Vec<FunctionStatus>,
    /// Refused frames, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The last address that was refused because it is not among `peers`.
    pub stranger: Option<String>,
}

/// A link.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its address.
    pub link: String,
    /// Its kind.
    pub kind: String,
    /// `own`, or the peer that reports the link; empty if that peer is gone.
    pub owner: String,
    /// The attached stations.
    pub stations: Vec<StationStatus>,
    /// The subscribers, and the events that each subscribed to.
    pub subscribed: BTreeMap<String, Vec<String>>,
}

/// A station.
#[derive(Debug, Serialize, Deserialize)]
pub struct StationStatus {
    /// Its address.
    pub station: String,
    /// Its signal in dBm, if measured.
    pub signal_dbm: Option<i16>,
    /// It is about to leave.
    pub going_down: bool,
}

/// A registered peer.
#[derive(Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its MIH function identifier.
    pub mihf_id: String,
    /// Where it is.
    pub address: String,
    /// `udp` or `tcp`.
    pub transport: String,
}

/// A function that this one registers with.
#[derive(Debug, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// Its address.
    pub address: String,
    /// Its MIH function identifier, once it has answered.
    pub mihf_id: Option<String>,
    /// This function is registered there.
    pub registered: bool,
}

fn transport(of: Transport) -> &'static str {
    match of {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    }
}

/// The peer that reports a link; empty if that peer is gone.
fn owner_of(mihf: &Mihf, link: &segue_mih::Link) -> String {
    match &link.owner {
        Some(Owner::Own) => "own".to_owned(),
        Some(Owner::Client(name)) => name_of(name),
        Some(Owner::Function(number)) => {
            let name = mihf.functions().nth(*number).and_then(|(_, name, _)| name);
            name.map_or_else(String::new, name_of)
        }
        None => String::new(),
    }
}

/// The status of a machine.
#[must_use]
pub fn status_of(mihf: &Mihf) -> MihStatus {
    let station = |(address, station): (&LinkAddress, &segue_mih::Station)| StationStatus {
        station: text(address),
        signal_dbm: station.value(&SIGNAL).map(u16::cast_signed),
        going_down: station.going_down,
    };
    let links = mihf.links().iter().map(|(id, link)| LinkStatus {
        link: text(&id.address),
        kind: id.link_type.name().unwrap_or("unknown").to_owned(),
        owner: owner_of(mihf, link),
        stations: link.stations.iter().map(station).collect(),
        subscribed: mihf
            .subscribed(link)
            .into_iter()
            .map(|(name, events)| {
                (name_of(&name), events.letters().map(|name| name.into_owned()).collect())
            })
            .collect(),
    });
    let registered = mihf.registered().map(|of| PeerStatus {
        mihf_id: name_of(&of.name),
        address: std::net::SocketAddr::new(of.address, of.port).to_string(),
        transport: transport(of.transport).to_owned(),
    });
    let functions = mihf.functions().map(|(remote, name, registered)| FunctionStatus {
        address: std::net::SocketAddr::new(remote.address, remote.port).to_string(),
        mihf_id: name.map(name_of),
        registered,
    });
    MihStatus {
        mihf_id: name_of(&mihf.config().name),
        links: links.collect(),
        registered: registered.collect(),
        functions: functions.collect(),
        refused: mihf.refused().iter().map(|(why, n)| (why.name().to_owned(), *n)).collect(),
        stranger: mihf.stranger().map(|address| address.to_string()),
    }
}

/// A link, and the source of its events.
struct Own {
    config: MihLink,
    id: LinkId,
    /// The interface's index while it is there.
    index: Option<u32>,
    orders: Orders,
}

/// The role of a function, or of a service access point.
pub struct Daemon<const SAP: bool> {
    core: Core<Sockets<Mihf>, Words>,
    links: Vec<Own>,
    told: mpsc::Receiver<(usize, Told)>,
    /// Pending commands of the operator, by number.
    asked: BTreeMap<u64, Asked>,
    commands: u64,
    /// Present if any link is a wire.
    watch: Option<Watch>,
}

/// Work that none of the loop's sources brings.
pub enum Chore {
    /// An event of a source.
    Told(usize, Told),
    /// A station of a wire was heard, or probes are due.
    Watch(Turn),
}

/// A link's address: the configured one, or the interface's.
fn address_of(config: &MihLink) -> anyhow::Result<LinkAddress> {
    let links = link::links()?;
    let own = links.iter().find(|link| link.name == config.interface).map(|link| link.mac);
    if own == Some(FIXED_MAC) && config.address.is_none() {
        bail!(
            "link {}: its interface has the address of all gateways: set address",
            config.interface
        );
    }
    if let Some(lack) = lacks::interface("link", &config.interface, &links)
        && config.address.is_some()
    {
        warn!("{lack}");
    }
    let address = config.address.clone().or(own.map(LinkAddress::mac));
    address.with_context(|| {
        format!("link {}: there is no such interface, and no address is set", config.interface)
    })
}

impl<const SAP: bool> Daemon<SAP> {
    fn event(&mut self, place: usize, station: [u8; 6], what: What) -> anyhow::Result<()> {
        let (link, station) = (self.links[place].id.clone(), Some(LinkAddress::mac(station)));
        self.feed(Input::Own(MihfInput::Event(Event { link, station, what })))
    }

    /// Reports all stations of a link as gone.
    fn all_leave(&mut self, place: usize, why: LinkDownReason) -> anyhow::Result<()> {
        let known = self.core.end.machine.links().get(&self.links[place].id);
        let stations = known.into_iter().flat_map(|link| link.stations.keys());
        let stations: Vec<[u8; 6]> = stations.filter_map(LinkAddress::as_mac).collect();
        stations.into_iter().try_for_each(|mac| self.event(place, mac, What::Down(why)))
    }

    fn take(&mut self, place: usize, told: Told) -> anyhow::Result<()> {
        match told {
            Told::Event(station, what) => self.event(place, station, what),
            Told::Measured(station, values) => {
                let link = self.links[place].id.clone();
                let station = Some(LinkAddress::mac(station));
                self.feed(Input::Own(MihfInput::Measured { link, station, values }))
            }
            Told::Found(found) => {
                let link = self.links[place].id.clone();
                let what = What::Detected(source::detected(&link, found));
                let event = Event { link, station: None, what };
                self.feed(Input::Own(MihfInput::Event(event)))
            }
            Told::Gone => self.all_leave(place, LinkDownReason::NO_RESOURCE),
            Told::Acted(number, result) => {
                self.feed(Input::Own(MihfInput::Acted { number, result }))
            }
        }
    }

    /// The wire link on this interface.
    fn wire(&self, interface: u32) -> Option<usize> {
        self.links
            .iter()
            .position(|own| own.index == Some(interface) && own.config.source == MihSource::Wire)
    }

    fn act(&mut self, number: u64, action: &Action) -> anyhow::Result<()> {
        let own = self.links.iter().find(|own| own.id == action.link);
        let result = match own {
            Some(own) => own.orders.give(number, action),
            None => Some(LinkActionResult::FAILURE),
        };
        match result {
            Some(result) => self.feed(Input::Own(MihfInput::Acted { number, result })),
            None => Ok(()),
        }
    }
}

impl<const SAP: bool> Role for Daemon<SAP> {
    const NAME: &'static str = if SAP { "mih-link-sap" } else { "mih-function" };
    const TASK: &'static str = "tell of links";
    type Settings = Settings;
    type Engine = Sockets<Mihf>;
    type Words = Words;
    type Signalling = Infallible;
    type Chore = Chore;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        settings: Settings,
        _: mpsc::Sender<Infallible>,
    ) -> anyhow::Result<(Daemon<SAP>, Arrivals)> {
        let Settings { links, mut machine, .. } = settings;
        machine.seed = realtime_ns();
        machine.port = if SAP { 0 } else { PORT };
        let (tell, told) = mpsc::channel(256);
        let mut own = Vec::new();
        for (place, config) in links.into_iter().enumerate() {
            let id = LinkId { link_type: config.link_type, address: address_of(&config)? };
            info!("link {} is called {}", config.interface, text(&id.address));
            let orders = source::start(&config, place, &tell)?;
            let link = LinkConfig {
                commands: CommandList::LINK_GET_PARAMETERS
                    | CommandList::LINK_CONFIGURE_THRESHOLDS
                    | if config.orders { CommandList::LINK_ACTIONS } else { CommandList(0) },
                forecasting: config.forecasting,
                id: id.clone(),
            };
            machine.links.push(link);
            own.push(Own { config, id, index: None, orders });
        }
        let wired = own.iter().any(|own| own.config.source == MihSource::Wire);
        let watch = wired.then(|| Watch::open(FIXED_LINK_LOCAL)).transpose()?;
        let (port, listen) = (machine.port, (!SAP).then_some(machine.port));
        let peers = machine.peers.clone();
        let allowed = Arc::new(move |from| peers.iter().any(|peer| peer.contains(from)));
        let (mut end, mut arrivals) = Sockets::open(Mihf::new(machine), &[port])?;
        end.ignore_hosts();
        end.stream(&mut arrivals, listen, frame_length, allowed)
            .with_context(|| format!("TCP port {port}"))?;
        let core = Core::new(end, Ledger::without_store());
        let asked = BTreeMap::new();
        Ok((Daemon { core, links: own, told, asked, commands: 0, watch }, arrivals))
    }

    fn core(&mut self) -> &mut Core<Sockets<Mihf>, Words> {
        &mut self.core
    }

    fn apply(&mut self, wish: MihfWish) -> anyhow::Result<()> {
        match wish {
            MihfWish::Act { number, action } => self.act(number, &action),
            MihfWish::Answered { number, answer } => {
                if let Some(asked) = self.asked.remove(&number) {
                    asked.answer(answer);
                }
                Ok(())
            }
            MihfWish::Event(_) => Ok(()),
        }
    }

    fn entry(&self, record: Infallible) -> anyhow::Result<Entry> {
        match record {}
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.core.end.find_hosts();
        for own in &mut self.links {
            let there = all.iter().find(|device| device.interface.name == own.config.interface);
            let index = there.map(|device| device.interface.index);
            let is_new = index != own.index && own.config.source == MihSource::Wire;
            own.index = index;
            if let (true, Some(index), Some(watch)) = (is_new, index, &mut self.watch) {
                watch.is_up(index);
            }
        }
        let gone = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, own)| own.index.is_none() && own.config.source == MihSource::Wire);
        let gone: Vec<usize> = gone.map(|(place, _)| place).collect();
        gone.into_iter().try_for_each(|place| self.all_leave(place, LinkDownReason::NO_RESOURCE))
    }

    fn on_link(&mut self, event: LinkEvent) -> anyhow::Result<()> {
        match event {
            LinkEvent::Up { interface, .. } if self.wire(interface).is_some() => {
                if let Some(watch) = &mut self.watch {
                    watch.is_up(interface);
                }
                Ok(())
            }
            LinkEvent::Down { interface, .. } => match self.wire(interface) {
                Some(place) => self.all_leave(place, LinkDownReason::EXPLICIT_DISCONNECT),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    async fn chore(&mut self) -> Chore {
        let Daemon { told, watch, .. } = self;
        let watched = async {
            match watch {
                Some(watch) => watch.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((place, told)) = told.recv() => Chore::Told(place, told),
            turn = watched => Chore::Watch(turn),
        }
    }

    fn on_chore(&mut self, chore: Chore) -> anyhow::Result<()> {
        match chore {
            Chore::Told(place, told) => self.take(place, told),
            Chore::Watch(turn) => {
                let heard = self.watch.as_mut().map_or(Ok(Vec::new()), |watch| watch.turn(turn))?;
                for HeardStation { interface, mac, .. } in heard {
                    if let Some(place) = self.wire(interface).filter(|_| mac != FIXED_MAC) {
                        self.event(place, mac, What::Up)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn on_asked(
        &mut self,
        ask: Ask,
        answer: oneshot::Sender<Response<Words>>,
    ) -> anyhow::Result<()> {
        let known = &self.core.end.machine;
        let command = match command::read(known, &ask) {
            Ok(_) if self.asked.len() >= command::COMMANDS_MAX => {
                Err("too many commands are under way: try again".to_owned())
            }
            other => other,
        };
        match command {
            Ok((command, of)) => {
                self.commands += 1;
                let number = self.commands;
                self.asked.insert(number, Asked { ask, of, to: answer });
                self.feed(Input::Own(MihfInput::Command { number, command }))
            }
            Err(why) => {
                let _ = answer.send(Response::Error(why));
                Ok(())
            }
        }
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        // Deregister, so that no peer waits for reports of this function.
        let end = &mut self.core.end;
        end.machine.handle(monotonic(), Input::Own(MihfInput::Leave));
        while let Some(output) = end.machine.poll() {
            if let segue_ip::Output::Send(datagram, _) = output {
                crate::engine::Engine::send(end, datagram);
            }
        }
        Ok(())
    }

    fn status(&mut self, _: &mut BTreeMap<String, u64>) -> MihStatus {
        status_of(&self.core.end.machine)
    }
}
