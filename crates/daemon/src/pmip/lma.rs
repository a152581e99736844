//! The daemon of a local mobility anchor.

mod flow;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use segue_clock::{Machine, Time};
use segue_datapath::relay::{Counter, Counts};
use segue_ip::{FlowKey, Form, Forward, Input, Route, Traffic};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_mih::Reporting;
use segue_node::{
    AnchorLinks, Carried, Event, LinkStatus, Node, NodeInput, NodeWish, ProgramInput, QualityStatus,
};
use segue_pmip::{Lma, LmaInput, LmaRecord, LmaWish, PeerAddress, Refusal, Report, SessionState};
use segue_probe::metrics::{Page, names};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::warn;

pub use self::flow::FlowStatus;
use super::aaa::{self, RadiusStatus, Told as News};
use super::decision::{Decisions, Happened};
use super::strays::Strays;
use super::{
    About, PORTS, Uses, day_clock, function, open, records, refused, seconds_left, stored, today,
};
use crate::clamp::Clamp;
use crate::control::{self, Response, Status, Vocabulary};
use crate::engine::Engine;
use crate::forwarding::Forwarding;
use crate::kept::Kept;
use crate::lacks;
use crate::ledger::{Entry, Ledger, StoreTable};
use crate::relayed::{self, Below, Came, OfFlows, Relayed};
use crate::routing::LAST_METRIC;
use crate::run::{self, Core, Role};
pub use crate::settings::Lma as Settings;

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
    began: Time,
    handovers: VecDeque<HandoverStatus>,
    _clamp: Clamp,
}

/// Most bindings, tunnels and flows in the status.
const SHOWN: usize = 1_000;
/// Most handovers in the status.
const HANDOVERS: usize = 100;

impl Daemon {
    /// Reads the traffic of flows.
    fn inspect(&mut self, flows: &[FlowKey]) -> anyhow::Result<()> {
        let carried = |key: &FlowKey| {
            let carried = self.core.end.traffic_carried(&Traffic::Flow(*key));
            let (packets, bytes) = (carried.sent_packets, carried.sent_bytes);
            (*key, Carried { packets, bytes, last_sent: carried.last_sent })
        };
        let carried = flows.iter().map(carried).collect();
        self.feed(NodeInput::Carried(carried))
    }

    /// Sends an event to programs, with the traffic of its flow.
    fn tell(&mut self, to: Option<u64>, mut event: Event) -> anyhow::Result<()> {
        if let Some((key, rate)) = event.carried_mut() {
            let carried = self.core.end.traffic_carried(&Traffic::Flow(key));
            (rate.packets, rate.bytes) = (carried.sent_packets, carried.sent_bytes);
        }
        let closed = self.decisions.as_mut().map(|decisions| decisions.tell(to, &event));
        let mut closed = closed.unwrap_or_default().into_iter();
        closed.try_for_each(|number| self.feed(NodeInput::Program(number, ProgramInput::Gone)))
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
    type Chore = Infallible;

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
        let mut node = aaa::node(machine, settings.radius.as_ref())?;
        let quality = settings.wants_quality();
        if let Some(config) = &mut settings.mih {
            config.interests.extend(quality.then(Reporting::interest));
            node = node.listening(function(config.clone()), AnchorLinks::new(quality));
        }
        let uses = Uses { radius: settings.radius.as_ref(), mih: settings.mih.as_ref() };
        let own = [settings.machine.address].into_iter();
        let own = own.chain(settings.machine.address_v4.map(IpAddr::from));
        let (sockets, mut arrivals) = uses.open(node, own)?;
        let gateways = settings.machine.gateways.iter().map(|gateway| gateway.prefix);
        arrivals.know(uses.known(gateways));
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
        let daemon = Daemon {
            settings,
            core,
            counter,
            strays: Strays::open()?,
            forwarding,
            decisions,
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
            NodeWish::Tell { to, event } => return self.tell(to, event),
        };
        match wish {
            LmaWish::Release(key) => self.core.end.release(&key),
            LmaWish::Refuse(key) => self.core.end.refuse(&key),
            LmaWish::Inspect(flows) => self.inspect(&flows)?,
            // For the RADIUS client, or for programs, which the node has told.
            _ => {}
        }
        Ok(())
    }

    fn entry(&self, record: LmaRecord) -> anyhow::Result<Entry> {
        records::of_lma(&record)
    }

    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.forwarding.look_after(monotonic());
        for stray in self.strays.turn() {
            self.core.end.on_event(Came::Datagram(stray));
            self.follow(())?;
        }
        self.feed(NodeInput::Own(LmaInput::TimeOfDay(today())))
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
        Ok(())
    }

    fn on_signalling(&mut self, happened: Happened) -> anyhow::Result<()> {
        let Some(decisions) = &mut self.decisions else { return Ok(()) };
        let (number, input) = match happened {
            Happened::Connected(number, to) => {
                decisions.connected(number, to);
                (number, ProgramInput::Connected)
            }
            Happened::Said(number, Ok(order)) => (number, ProgramInput::Ordered(order)),
            Happened::Said(number, Err(why)) => {
                return self.tell(Some(number), Event::Refused { why });
            }
            Happened::Gone(number) => {
                decisions.gone(number);
                (number, ProgramInput::Gone)
            }
        };
        self.feed(NodeInput::Program(number, input))
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
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

    async fn stop(mut self) -> anyhow::Result<()> {
        self.feed(NodeInput::Leave)
    }

    fn status(&mut self, _: &mut BTreeMap<String, u64>) -> LmaStatus {
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
