//! The daemon of a local mobility anchor.

mod deciding;
mod flow;
mod rates;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use segue_clock::{Machine, Time};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Form, Forward, Input, Route, Traffic};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_linux::raw::RawSocket;
use segue_mih::{Foretold, Leaving, Reporting, What};
use segue_node::{Node, NodeInput, NodeWish};
use segue_pmip::{
    LinkLayer, LinkQuality, Lma, LmaInput, LmaRecord, LmaWish, PeerAddress, Refusal, Report,
    SessionState,
};
use segue_probe::metrics::{Page, names};
use segue_wire::mih::identity::LinkAddress;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::warn;

pub use self::flow::FlowStatus;
use self::rates::Rates;
use super::aaa::{self, RadiusStatus, Told as News};
use super::decision::{Decisions, Happened, Told};
use super::quality::{LinkStatus, QualityStatus};
use super::strays::Strays;
use super::{
    About, PORTS, add, day_clock, know, open, over_v4, records, refused, seconds_left, stored,
    today,
};
use crate::clamp::Clamp;
use crate::control::{self, Response, Status, Vocabulary};
use crate::engine::Engine;
use crate::forwarding::Forwarding;
use crate::kept::Kept;
use crate::lacks;
use crate::ledger::{Entry, Ledger, StoreTable};
use crate::mih::listener::Listener;
use crate::relayed::{self, Below, Came, OfFlows, Relayed};
use crate::routing::LAST_METRIC;
use crate::run::{self, Core, Role};
pub use crate::settings::Lma as Settings;
use crate::sockets::Sockets;

const BINDINGS: StoreTable = StoreTable { name: "bindings", of: "binding" };

/// The anchor's vocabulary on its control socket.
#[derive(Clone, Debug)]
pub struct Words;

impl Vocabulary for Words {
    type News = News;
    type Request = Ask;
    type Answer = ();
    type Status = LmaStatus;
    type Event = About;

    fn metrics(status: &Status<Words>, page: &mut Page) {
        page.one(&names::BINDINGS, status.body.binding_count as f64);
        page.one(&names::FLOWS, status.body.flow_count as f64);
        control::refused(page, &status.body.refused);
    }
}

/// Requests to an anchor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Ends the bindings of a host (RFC 5846).
    Revoke {
        /// Its identity.
        mn_id: String,
    },
}

/// The status of an anchor.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LmaStatus {
    /// Its address.
    pub address: String,
    /// The network from which it assigns prefixes.
    pub pool: String,
    /// Interfaces of hosts, sorted by host, at most 1000 of them.
    pub bindings: Vec<BindingStatus>,
    /// Total number of bindings.
    #[serde(default)]
    pub binding_count: usize,
    /// Individually placed flows, at most 1000 of them.
    pub flows: Vec<FlowStatus>,
    /// Total number of flows.
    pub flow_count: usize,
    /// The last 100 handovers.
    pub handovers: Vec<HandoverStatus>,
    /// Tunnels to gateways, at most 1000 of them.
    pub tunnels: Vec<TunnelStatus>,
    /// Status of the RADIUS client, if servers are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radius: Option<RadiusStatus>,
    /// Refused messages, by status and reason.
    pub refused: BTreeMap<String, u64>,
}

/// A binding.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindingStatus {
    /// The host's identity.
    pub mn_id: String,
    /// The link-layer identifier of its interface.
    pub llid: String,
    /// Access Technology Type.
    pub att: String,
    /// Its home network prefixes.
    pub prefixes: Vec<String>,
    /// The gateway where it is attached.
    pub proxy_coa: String,
    /// Its binding identifier (BID), unique per host.
    pub bid: u16,
    /// `active` or `leaving`.
    pub state: String,
    /// Remaining lifetime of the binding.
    pub lifetime_s: u64,
    /// The state of its link, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkStatus>,
}

/// A handover: traffic to a host moved to another gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandoverStatus {
    /// When, in seconds since the daemon's start.
    pub at_s: f64,
    /// The host's identity.
    pub mn_id: String,
    /// The cause: `moved`, `left`, `going_down`, `unreachable`, `better` or `back`.
    pub cause: String,
    /// The previous gateway.
    pub from: String,
    /// The new gateway.
    pub to: String,
    /// Individually placed flows that moved along.
    pub flows: usize,
    /// From reading the gateway's message to forwarding over the new gateway, in milliseconds.
    pub rebinding_ms: f64,
}

/// A tunnel to a gateway.
#[derive(Debug, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// The gateway.
    pub proxy_coa: String,
    /// The encapsulation: `ip`, `gre` with the keys for sending and receiving, or `udp` with the gateway's port.
    pub form: String,
    /// Packets sent and received.
    pub packets: [u64; 2],
    /// Bytes sent and received.
    pub bytes: [u64; 2],
    /// The largest inner packet that it carries, in bytes, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The quality of the path to the gateway, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityStatus>,
}

impl OfFlows for Lma {
    type Own = LmaInput;

    fn flow(key: FlowKey, dscp: u8) -> Option<LmaInput> {
        Some(LmaInput::Flow { key, dscp })
    }
}

/// The role of an anchor.
pub struct Daemon {
    settings: Settings,
    core: Core<Relayed<Node<Lma>>, Words>,
    /// Reads the traffic of RADIUS sessions.
    counter: Counter,
    strays: Strays,
    forwarding: Forwarding,
    decisions: Option<Decisions>,
    /// Receives the IEEE 802.21 events of hosts that are about to leave.
    listener: Option<Listener>,
    /// Subscribes to link reports, if the quality of links is used.
    reporting: Option<Reporting>,
    /// The links that hosts are about to leave.
    leaving: Leaving,
    /// Rates of flows, for decision entities.
    rates: Rates,
    began: Time,
    handovers: VecDeque<HandoverStatus>,
    _clamp: Clamp,
}

/// IEEE 802.21 functions have reported events, or a timer of the listener is due.
pub struct LinksTold;

/// Most bindings, tunnels and flows in the status.
const SHOWN: usize = 1_000;
/// Most handovers in the status.
const HANDOVERS: usize = 100;

impl Daemon {
    /// Reads when flows last carried a packet, and reports the rates of active ones.
    fn inspect(&mut self, flows: &[FlowKey]) -> anyhow::Result<()> {
        let now = monotonic();
        let (mut last_sent, mut active) = (Vec::new(), Vec::new());
        let lma = self.core.end.sockets.machine.machine();
        for (key, flow) in flows.iter().filter_map(|key| Some((key, lma.flow(key)?))) {
            let carried = self.core.end.traffic_carried(&Traffic::Flow(*key));
            if self.decisions.is_some() && self.rates.look(now, *key, flow.since, &carried) {
                active.push(*key);
            }
            last_sent.push((*key, carried.last_sent));
        }
        active.iter().for_each(|key| self.tell_of_rate(key));
        self.feed(NodeInput::Own(LmaInput::LastSent(last_sent)))
    }

    /// How often the machine has refused something for this reason.
    fn refused(&self, why: Refusal) -> u64 {
        self.core.end.sockets.machine.machine().refused().get(&why).copied().unwrap_or(0)
    }
}

/// The encapsulation of a tunnel as text.
fn form(form: Form) -> String {
    match form {
        Form::Gre { send: Some(send), receive: Some(receive) } => format!("gre {send} {receive}"),
        Form::Gre { .. } => "gre".into(),
        Form::Udp { remote, .. } => format!("udp {remote}"),
        Form::Ip | Form::Optimized { .. } => "ip".into(),
    }
}

/// Access Technology Type as text.
fn att(session: &segue_pmip::Session) -> String {
    session.access.name().unwrap_or("unknown").to_owned()
}

impl Role for Daemon {
    const NAME: &'static str = "pmip-lma";
    const TASK: &'static str = "run a local mobility anchor";
    type Settings = Settings;
    type Engine = Relayed<Node<Lma>>;
    type Words = Words;
    type Signalling = Happened;
    type Chore = LinksTold;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        mut settings: Settings,
        happens: mpsc::Sender<Happened>,
    ) -> anyhow::Result<(Daemon, Below)> {
        let (store, restart_counter) = open(&settings.state, BINDINGS.name)?;
        lacks::of_anchor(&settings.machine)?.iter().for_each(|lack| warn!("{lack}"));
        let config = &mut settings.machine;
        (config.clock, config.restart_counter) = (day_clock(), restart_counter);
        config.seed = realtime_ns();
        let mut machine = Lma::new(config.clone());
        for (key, value) in stored(store.as_ref(), BINDINGS.name)? {
            if let Some(record) = records::to_lma(&key, &value) {
                machine.handle(monotonic(), Input::Record(record));
            }
        }
        let ledger = Ledger::start(store, BINDINGS)?;
        let machine = aaa::node(machine, settings.radius.as_ref())?;
        let ports = aaa::ports(settings.radius.as_ref());
        let (mut sockets, mut arrivals) = Sockets::open(machine, ports)?;
        sockets.ignore_hosts();
        sockets.speak(&mut arrivals, RawSocket::mobility()?, &[])?;
        let own = [settings.machine.address].into_iter();
        let own = own.chain(settings.machine.address_v4.map(IpAddr::from));
        over_v4(&mut sockets, &mut arrivals, own)?;
        let gateways = settings.machine.gateways.iter().map(|gateway| gateway.prefix);
        know(&mut arrivals, gateways, settings.radius.as_ref());
        let counts = aaa::counts(settings.radius.as_ref(), Counts::BehindTunnels);
        let (relay, misses) = relayed::open(&settings.relay, &PORTS, counts)?;
        let counter = relay.counter();
        let relay = (relay, settings.relay.mtu);
        let (mut end, below) = Relayed::new(sockets, relay, arrivals, misses);
        let (pool, mut kept) = (settings.machine.pool.network(), Kept::default());
        let into_relay = Route::on(pool, end.device());
        end.leads(into_relay);
        let lead = [
            into_relay,
            // Remains if a crash removes the device, so that traffic to hosts takes no other route.
            Route::unreachable(pool).metric(LAST_METRIC),
        ];
        for route in lead {
            let put = kept.put(Forward::Route(route));
            put.with_context(|| format!("cannot route {pool} into the relay"))?;
        }
        let forwarding = Forwarding::start(&mut kept, &settings.relay.device, &[pool])?;
        let clamp = Clamp::start(&settings.relay.device);
        let core = Core::new(end, ledger).keeping(kept);
        let listen = |path: &PathBuf| Decisions::listen(path, happens);
        let decisions = settings.decisions.as_ref().map(listen).transpose()?;
        let (began, handovers) = (monotonic(), VecDeque::new());
        let reporting = settings.wants_quality().then(Reporting::default);
        let mih = settings.mih.take().map(|mut mih| {
            mih.interests.extend(reporting.is_some().then(Reporting::interest));
            mih
        });
        let listener = mih.map(Listener::start).transpose()?;
        let daemon = Daemon {
            settings,
            core,
            counter,
            strays: Strays::open()?,
            forwarding,
            decisions,
            listener,
            reporting,
            leaving: Leaving::default(),
            rates: Rates::default(),
            began,
            handovers,
            _clamp: clamp,
        };
        Ok((daemon, below))
    }

    fn core(&mut self) -> &mut Core<Relayed<Node<Lma>>, Words> {
        &mut self.core
    }

    fn apply(&mut self, wish: NodeWish<LmaWish>) -> anyhow::Result<()> {
        let wish = match wish {
            NodeWish::Own(wish) => wish,
            NodeWish::Count { session, prefixes, last } => {
                let volume = aaa::volume(&mut self.counter, &prefixes, last);
                return self.feed(NodeInput::Counted { session, volume });
            }
        };
        match wish {
            LmaWish::Release(key) => {
                self.core.end.release(&key);
                self.tell_of_flow(&key, false);
            }
            LmaWish::Refuse(key) => self.core.end.refuse(&key),
            LmaWish::Inspect(flows) => return self.inspect(&flows),
            LmaWish::Decide(key) => self.tell_of_flow(&key, true),
            LmaWish::Went { key, asked } => self.tell_of_flow(&key, asked),
            LmaWish::Ended(key) => self.tell_of_end(&key),
            LmaWish::Interface { node, link_layer, now } => {
                self.tell_of_interface(&node, &link_layer, now);
            }
            // Handled by the RADIUS client.
            LmaWish::Authorize { .. } | LmaWish::Bound { .. } | LmaWish::Unbound { .. } => {}
        }
        Ok(())
    }

    fn entry(&self, record: LmaRecord) -> anyhow::Result<Entry> {
        records::of_lma(&record)
    }

    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.forwarding.look_after(monotonic());
        self.listener.iter_mut().for_each(Listener::find_hosts);
        self.tell_quality();
        for stray in self.strays.turn() {
            self.core.end.on_event(Came::Datagram(stray));
            self.follow(())?;
        }
        self.feed(NodeInput::Own(LmaInput::TimeOfDay(today())))
    }

    async fn chore(&mut self) -> LinksTold {
        Listener::wait(self.listener.as_mut()).await;
        LinksTold
    }

    /// Takes the reports of links and of hosts that are about to leave.
    fn on_chore(&mut self, LinksTold: LinksTold) -> anyhow::Result<()> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        let events = listener.turn();
        if let Some(reporting) = &mut self.reporting {
            let orders = reporting.turn(monotonic(), listener.machine());
            orders.into_iter().for_each(|order| listener.order(order));
        }
        for event in events {
            let Some(listener) = &self.listener else { break };
            if let What::Parameters(reports) = &event.what {
                let mac = event.station.as_ref().and_then(LinkAddress::as_mac);
                let told = mac.map(LinkLayer::mac).zip(LinkQuality::reported(reports));
                let Some((link_layer, quality)) = told else { continue };
                if listener.machine().is_newest(&event) {
                    self.feed(NodeInput::Own(LmaInput::Link {
                        link_layer: link_layer.clone(),
                        quality,
                    }))?;
                    self.tell_of_link(&link_layer);
                }
                continue;
            }
            let input = match self.leaving.follow(listener.machine(), event) {
                Some(Foretold::GoingDown { station, within }) => {
                    let Some(link_layer) = station.as_mac().map(LinkLayer::mac) else { continue };
                    LmaInput::GoingDown { link_layer, within }
                }
                Some(Foretold::Stays { station }) => {
                    let Some(link_layer) = station.as_mac().map(LinkLayer::mac) else { continue };
                    LmaInput::Stays { link_layer }
                }
                None => continue,
            };
            self.feed(NodeInput::Own(input))?;
        }
        Ok(())
    }

    fn on_report(&mut self, news: &News) -> anyhow::Result<()> {
        let News::Role(report) = news else { return Ok(()) };
        if let Report::Handover { node, cause, from, to, flows, at } = report {
            self.handovers.push_back(HandoverStatus {
                at_s: at.since(self.began).as_secs_f64(),
                mn_id: node.to_string(),
                cause: cause.name().to_owned(),
                from: from.to_string(),
                to: to.to_string(),
                flows: *flows,
                rebinding_ms: monotonic().since(*at).as_millis_f64(),
            });
            if self.handovers.len() > HANDOVERS {
                self.handovers.pop_front();
            }
        }
        if let Report::Silent { .. } | Report::Answers { .. } = report {
            self.tell_quality();
        }
        Ok(())
    }

    fn on_signalling(&mut self, happened: Happened) -> anyhow::Result<()> {
        match happened {
            Happened::Connected(number, to) => {
                let present = self.present();
                if let Some(decisions) = &mut self.decisions {
                    decisions.connected(number, to, present);
                }
                Ok(())
            }
            Happened::Said(number, Ok(order)) => self.ordered(number, order),
            Happened::Said(number, Err(why)) => {
                if let Some(decisions) = &mut self.decisions {
                    decisions.tell_one(number, Told::Refused { why });
                }
                Ok(())
            }
            Happened::Gone(number) => {
                let Some(decisions) = &mut self.decisions else { return Ok(()) };
                decisions.gone(number);
                let anybody = decisions.anybody();
                self.feed(NodeInput::Own(LmaInput::Deciding(anybody)))
            }
        }
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.listener.iter_mut().for_each(Listener::find_hosts);
        let Core { end, trouble, .. } = &mut self.core;
        let over = end.attach(all, &self.settings.common.interfaces, |_| false, trouble);
        self.feed(Input::Interfaces(over.iter().map(|device| device.interface.clone()).collect()))
    }

    fn on_request(&mut self, ask: Ask) -> anyhow::Result<Response<Words>> {
        let Ask::Revoke { mn_id } = ask;
        let lma = self.core.end.sockets.machine.machine();
        let own = lma.sessions().filter(|(.., session)| session.node.to_string() == mn_id);
        let node = own.map(|(.., session)| session.node.clone()).next();
        let Some(node) = node else {
            return Ok(Response::Error(format!("there is no binding of {mn_id}")));
        };
        let before = self.refused(Refusal::Full);
        self.feed(NodeInput::Own(LmaInput::Revoke(node)))?;
        if self.refused(Refusal::Full) > before {
            return Ok(Response::Error("too many revocations wait for gateways: try again".into()));
        }
        Ok(Response::Done(format!("the bindings of {mn_id} are being revoked")))
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> LmaStatus {
        self.listener.iter_mut().for_each(|listener| add(drops, listener.drops()));
        let end = &self.core.end;
        let (lma, now) = (end.sockets.machine.machine(), monotonic());
        let binding = |(_, gateway, until, session): (_, _, Time, &segue_pmip::Session)| {
            let state = match session.state {
                SessionState::Active => "active",
                SessionState::Leaving => "leaving",
            };
            BindingStatus {
                mn_id: session.node.to_string(),
                llid: session.link_layer.to_string(),
                att: att(session),
                prefixes: session.prefixes.iter().map(ToString::to_string).collect(),
                proxy_coa: PeerAddress::to_string(&gateway),
                bid: session.bid,
                state: state.to_owned(),
                lifetime_s: seconds_left(until),
                link: LinkStatus::of(session.link(now)),
            }
        };
        let mut bindings: Vec<BindingStatus> = lma.sessions().take(SHOWN).map(binding).collect();
        bindings.sort_by(|a, b| (&a.mn_id, a.bid).cmp(&(&b.mn_id, b.bid)));
        let tunnels = lma.tunnels().take(SHOWN).map(|(tunnel, gateway)| {
            let carried = end.tunnel_carried(tunnel.number);
            TunnelStatus {
                proxy_coa: gateway.to_string(),
                form: form(tunnel.form),
                packets: [carried.sent_packets, carried.received_packets],
                bytes: [carried.sent_bytes, carried.received_bytes],
                mtu: end.tunnel_size(tunnel.number),
                quality: lma.measured(gateway).map(QualityStatus::of),
            }
        });
        let flows = lma.flows().take(SHOWN).filter_map(|(key, flow)| {
            FlowStatus::of(lma, key, flow, end.traffic_carried(&Traffic::Flow(*key)))
        });
        LmaStatus {
            address: lma.config().address.to_string(),
            pool: lma.config().pool.network().to_string(),
            bindings,
            binding_count: lma.sessions().count(),
            flows: flows.collect(),
            flow_count: lma.flows().count(),
            handovers: self.handovers.iter().cloned().collect(),
            tunnels: tunnels.collect(),
            radius: end.sockets.machine.radius().map(RadiusStatus::of),
            refused: refused(lma.refused()),
        }
    }
}
