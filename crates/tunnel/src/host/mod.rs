//! The mobile host: finds its anchor, keeps a path over each interface, and decides which flow uses which path.
//!
//! | signalling state | event | action |
//! | --- | --- | --- |
//! | idle | an interface, or the retry time | connects over all interfaces at once |
//! | connecting | `SignalUp` | registers |
//! | up | `Registered` | offers every path; each grant starts that path's probes |
//! | up | the path of its interface dies | moves to the best live path |
//! | up | `SignalDown` | connects again, after a pause that doubles |
//!
//! Moving flows never waits for signalling: bindings and redirections are local, and the anchor
//! learns from the packets and from the `heard` words of the probes.

mod adapt;
mod audit;
mod doubt;
mod filters;
mod flows;
mod following;
mod interfaces;
mod losses;
mod path;
mod paths;
mod questions;
mod sizes;
mod source;
mod sources;
mod table;
mod translation;
mod watch;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_ip::{Input, Interface};
use segue_keepalive::size::Direction;
use segue_mobility::Secrets;
use segue_steering::{Class, Steering};
use segue_wire::FlowKey;
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION};

pub use flows::Flow;
use flows::{Moved, Waiting};
pub use path::Path;
pub use sizes::LEAST_INNER;
pub use source::SourceChoice;
use table::Paths;
pub use watch::Filter;

use crate::maps::SmallMap;
use crate::{HostConfig, HostInput, HostOutput, Order, Output, Report};
use segue_clock::planted::fault;

/// First pause before signalling is tried again.
const RETRY_MIN: Span = Span::from_millis(500);
/// Longest such pause.
const RETRY_MAX: Span = Span::from_secs(8);
/// Pause before the next registration when another machine holds the host's registration.
const HELD_RETRY: Span = Span::from_secs(2);
/// A registered connection that lasted this long is replaced without a pause.
const STOOD: Span = Span::from_secs(2);
/// Timeout of one round of connection attempts.
const CONNECT_TIMEOUT: Span = Span::from_secs(5);

/// The mobile host's machine. The module documentation lists its signalling states.
pub struct Host {
    config: Arc<HostConfig>,
    /// The anchor's addresses in order of preference, with the tunnel port that the anchor stated.
    anchors: Vec<SocketAddr>,
    epoch: u64,
    secrets: Secrets,
    interfaces: Vec<Interface>,
    signal: Signalling,
    retry: Span,
    /// When it last abandoned a connection because no path was up.
    left: Option<Time>,
    /// When it will abandon the current connection, if that was postponed.
    leave_at: Option<Time>,
    anchor: Option<SocketAddr>,
    inner: Vec<IpAddr>,
    /// Paths by number.
    paths: Paths,
    /// The number of each interface seen. An interface that returns gets its number back, so the operator's orders and
    /// the steering's memory still apply.
    numbers: BTreeMap<String, u8>,
    /// The operator's keepalive orders by interface name. They outlive the interface.
    switched: BTreeMap<String, bool>,
    steering: Steering,
    flows: BTreeMap<FlowKey, Flow>,
    /// Flows filtered on a path, by flow and path number.
    filters: BTreeMap<(FlowKey, u8), Filter>,
    /// Number of rounds of flow counts so far.
    rounds: u32,
    /// When the last round began.
    counted_at: Option<Time>,
    waiting: VecDeque<Waiting>,
    /// Why each class moved last.
    decisions: SmallMap<Class, Moved>,
    evaluated: Time,
    /// When a path last looked lossy.
    watched_since: Option<Time>,
    /// The MTU of the tunnel, once a path's size is known.
    mtu: Option<u16>,
    /// The largest packet that the anchor's device takes, once reported.
    anchor_takes: Option<u16>,
    out: VecDeque<Output<HostOutput, Infallible>>,
}

/// The state of signalling.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Signalling {
    /// Nothing to connect over, or pausing until this instant.
    Idle(Time),
    /// Attempts are under way until this instant.
    Connecting(Time),
    /// The connection over this interface is established; `registered` once the anchor confirmed.
    Up { interface: String, registered: bool, since: Time },
    /// The daemon stops.
    Stopped,
}

impl Host {
    /// Creates a host that has seen no input. `seed` must be secret and unique to this start. Many hosts may share one
    /// configuration.
    #[must_use]
    pub fn new(config: impl Into<Arc<HostConfig>>, seed: [u8; 32]) -> Host {
        let config = HostConfig::measured_alike(config.into());
        Host {
            anchors: config.anchor.clone(),
            epoch: config.epoch,
            steering: Steering::new(config.steering.clone()),
            config,
            secrets: Secrets::new(seed),
            interfaces: Vec::new(),
            signal: Signalling::Idle(Time::ZERO),
            retry: RETRY_MIN,
            left: None,
            leave_at: None,
            anchor: None,
            inner: Vec::new(),
            paths: Paths::new(),
            numbers: BTreeMap::new(),
            switched: BTreeMap::new(),
            flows: BTreeMap::new(),
            filters: BTreeMap::new(),
            rounds: 0,
            counted_at: None,
            waiting: VecDeque::new(),
            decisions: SmallMap::new(),
            evaluated: Time::ZERO,
            watched_since: None,
            mtu: None,
            anchor_takes: None,
            out: VecDeque::new(),
        }
    }

    /// Returns whether the anchor has confirmed the registration on the current connection.
    #[must_use]
    pub fn registered(&self) -> bool {
        matches!(self.signal, Signalling::Up { registered: true, .. })
    }

    /// The interface that carries signalling.
    #[must_use]
    pub fn signal_interface(&self) -> Option<&str> {
        match &self.signal {
            Signalling::Up { interface, .. } => Some(interface),
            _ => None,
        }
    }

    /// The inner addresses; empty before the first registration.
    #[must_use]
    pub fn inner(&self) -> &[IpAddr] {
        &self.inner
    }

    /// The anchor's address of the current or last connection.
    #[must_use]
    pub fn anchor(&self) -> Option<SocketAddr> {
        self.anchor
    }

    /// The paths by number.
    pub fn paths(&self) -> impl Iterator<Item = (u8, &Path)> {
        self.paths.iter().map(|(number, path)| (*number, path))
    }

    /// The paths with a timer due at `now`, which need a reading first. If there is one, includes the paths whose
    /// timers sleep while requests ride, because the caller is awake anyway.
    #[must_use]
    pub fn due(&self, now: Time) -> Vec<u32> {
        let due = self.paths.due(now);
        let asked = |n: u8, path: &Path| due & 1 << n != 0 || due != 0 && path.is_carried();
        self.paths.iter().filter(|(n, path)| asked(**n, path)).map(|(n, _)| u32::from(*n)).collect()
    }

    /// The paths whose timers sleep while requests ride. A driver that wakes up for other reasons should supply their
    /// readings, so that steering and planner have recent estimates.
    #[must_use]
    pub fn carried(&self) -> Vec<u32> {
        let carried = self.paths.iter().filter(|(_, path)| path.is_carried());
        carried.map(|(n, _)| u32::from(*n)).collect()
    }

    /// The number of the path over the named interface.
    #[must_use]
    pub fn path_named(&self, name: &str) -> Option<u8> {
        self.paths.iter().find(|(_, path)| path.name() == name).map(|(number, _)| *number)
    }

    /// The flows and their state.
    pub fn flows(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        self.flows.iter()
    }

    /// The state of a flow.
    #[must_use]
    pub fn flow(&self, key: &FlowKey) -> Option<&Flow> {
        self.flows.get(key)
    }

    /// The steering, for its explanations.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    fn connect(&mut self, now: Time) {
        self.leave_at = None;
        let usable = self.interfaces.iter().filter(|interface| self.ends(interface).is_some());
        let mut names: Vec<String> = usable.map(|interface| interface.name.clone()).collect();
        if names.is_empty() {
            self.signal = Signalling::Idle(now + self.retry);
            return;
        }
        let alive = |name: &str| {
            let path = self.paths.values().find(|path| path.name() == name);
            path.is_some_and(|path| path.is_up())
        };
        names.sort_by_key(|name| !alive(name));
        self.signal = Signalling::Connecting(now + CONNECT_TIMEOUT);
        self.out.push_back(Output::own(HostOutput::Connect { interfaces: names }));
    }

    fn on_signal_up(&mut self, now: Time, interface: String, anchor: SocketAddr) {
        if self.signal == Signalling::Stopped {
            return;
        }
        self.leave_at = None;
        self.signal = Signalling::Up { interface, registered: false, since: now };
        self.anchor = Some(anchor);
        self.prefer(now, anchor.ip());
        self.out.push_back(Output::own(HostOutput::Signal(FromHost::Register {
            version: SIGNAL_VERSION,
            epoch: self.epoch,
        })));
    }

    fn on_signal_down(&mut self, now: Time) {
        if self.signal == Signalling::Stopped {
            return;
        }
        if let Signalling::Up { registered: true, since, .. } = self.signal
            && now.since(since) >= STOOD
        {
            self.signal = Signalling::Idle(now);
            return;
        }
        self.signal = Signalling::Idle(now + self.retry);
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    fn on_message(&mut self, now: Time, message: FromAnchor) {
        match message {
            FromAnchor::Registered { inner, anchor, tunnel_port } => {
                self.on_registered(&inner, anchor, tunnel_port);
            }
            FromAnchor::Refused { reason: Refusal::Behind { epoch } } => {
                // Retried at once when the anchor has closed this connection.
                self.epoch = epoch.saturating_add(1);
                self.retry = RETRY_MIN;
            }
            FromAnchor::Refused { reason } => {
                self.out.push_back(Output::report(Report::Refused { host: String::new(), reason }));
                self.retry = if reason == Refusal::Held { HELD_RETRY } else { RETRY_MAX };
                if let Signalling::Up { registered, .. } = &mut self.signal {
                    *registered = false;
                }
            }
            FromAnchor::PathReady(grant) => self.on_path_ready(now, grant),
            FromAnchor::OneByOne { path } => {
                if self.paths.get(&path).is_some_and(|path| path.is_set()) {
                    self.out.push_back(Output::Order(Order::SetOneByOne(u32::from(path))));
                }
            }
            FromAnchor::FlowCounts { round, counts } => self.on_flow_counts(now, round, counts),
            FromAnchor::TooBig { path, mtu } => self.on_hint(now, path, Direction::Down, mtu),
            FromAnchor::Largest { bytes } => self.on_largest(bytes),
            // The driver handles these: it has the keys and the routes.
            FromAnchor::Renew | FromAnchor::Renewed { .. } | FromAnchor::WaysOut(_) => {}
            FromAnchor::PathRefused { path, reason } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.offer_at = Some(now + RETRY_MAX);
                    self.out
                        .push_back(Output::report(Report::Refused { host: String::new(), reason }));
                }
            }
        }
    }

    fn on_registered(&mut self, given: &[IpAddr], anchor: Vec<IpAddr>, tunnel_port: u16) {
        let inner: Vec<IpAddr> = [true, false]
            .into_iter()
            .filter_map(|v4| given.iter().find(|a| a.is_ipv4() == v4 && self.may_be_inner(**a)))
            .copied()
            .collect();
        if inner.is_empty() {
            let (host, reason) = (String::new(), Refusal::NoAddress);
            self.out.push_back(Output::report(Report::Refused { host, reason }));
            return;
        }
        let Signalling::Up { registered, .. } = &mut self.signal else { return };
        *registered = true;
        self.retry = RETRY_MIN;
        if let Some(address) = &mut self.anchor {
            address.set_port(tunnel_port);
        }
        for address in &mut self.anchors {
            address.set_port(tunnel_port);
        }
        if self.inner != inner {
            let gone = self.inner.iter().filter(|old| !inner.contains(old));
            self.out.extend(gone.map(|old| Output::Order(Order::RemoveInner(*old))));
            self.out.extend(inner.iter().map(|own| Output::Order(Order::SetInner(*own, 0))));
            self.inner.clone_from(&inner);
            let addresses = Output::own(HostOutput::Addresses { inner: inner.clone(), anchor });
            self.out.push_back(addresses);
            let report = Report::Registered { host: String::new(), inner };
            self.out.push_back(Output::report(report));
        }
        // The anchor may still have paths that were removed without a connection, or just before one broke.
        let there = |number: &u8| self.paths.contains_key(number) || fault(32);
        let gone = self.numbers.values().filter(|number| !there(number));
        let gone =
            gone.map(|path| Output::own(HostOutput::Signal(FromHost::RemovePath { path: *path })));
        self.out.extend(gone);
        let numbers: Vec<u8> = self.paths.keys().copied().collect();
        for number in numbers {
            self.offer(number);
        }
    }

    /// Returns whether the anchor may assign this address. The host would answer for it, so it must not belong to
    /// another machine on the host's networks.
    fn may_be_inner(&self, address: IpAddr) -> bool {
        let ordinary = match address {
            IpAddr::V4(a) => {
                let special = a.is_loopback() || a.is_link_local() || a.is_multicast();
                !special && !a.is_broadcast() && a.octets()[0] != 0
            }
            IpAddr::V6(a) => {
                let special = a.is_loopback() || a.is_unicast_link_local() || a.is_multicast();
                !special && !a.is_unspecified() && a.to_ipv4_mapped().is_none()
            }
        };
        let outer = |i: &Interface| {
            let own = i.addresses.iter().chain(&i.unusable).chain(&i.gateways);
            own.chain(i.by_source.iter().map(|(_, next)| next)).any(|known| *known == address)
        };
        ordinary
            && !self.interfaces.iter().any(outer)
            && !self.anchors.iter().any(|anchor| anchor.ip() == address)
            && !self
                .interfaces
                .iter()
                .filter_map(|i| self.ends(i))
                .any(|ends| ends.1.ip() == address)
    }

    /// Re-establishes signalling on its own interface if that has returned or changed its address: the old connection
    /// was bound to an address that is gone.
    fn renew_signal(&mut self, new: &[String]) {
        if let Signalling::Up { interface, .. } = &self.signal
            && new.contains(interface)
            && self.may_carry_signal(interface)
        {
            let interface = interface.clone();
            self.out.push_back(Output::own(HostOutput::MoveSignal { interface }));
        }
    }

    /// Moves signalling off an interface whose path is dead or gone, if another path is up. If the connection cannot
    /// move because the other paths use the other address family, connects anew.
    fn rescue_signal(&mut self, now: Time) {
        let Signalling::Up { interface, .. } = &self.signal else { return };
        let path = self.paths.values().find(|path| path.name() == interface);
        let may = |name: &str| self.may_carry_signal(name);
        if path.is_some_and(|path| !path.is_down()) && may(interface) {
            return;
        }
        let best = self.paths.values().find(|path| path.is_up() && may(path.name()));
        let fallback = || {
            let present = self.interfaces.iter().any(|i| i.name == *interface);
            let mut others = self.interfaces.iter().filter(|i| !present && may(&i.name));
            others.next().map(|i| i.name.as_str())
        };
        let next = best.map(|path| path.name()).or_else(fallback).map(String::from);
        let elsewhere = || self.interfaces.iter().any(|i| self.ends(i).is_some());
        match next {
            Some(next) => {
                if let Signalling::Up { interface, .. } = &mut self.signal {
                    interface.clone_from(&next);
                }
                self.out.push_back(Output::own(HostOutput::MoveSignal { interface: next }));
            }
            None if !may(interface) && elsewhere() => self.connect(now),
            None => {}
        }
    }

    /// Returns whether the connection's packets can leave over this interface. They keep the connection's address
    /// family, and an address behind one translator is unreachable through another.
    fn may_carry_signal(&self, name: &str) -> bool {
        let Some(anchor) = self.anchor else { return false };
        let is_own = self.anchors.iter().any(|own| own.ip() == anchor.ip());
        let leads_there = |i: &Interface| {
            let ends = || self.ends(i).is_some_and(|(_, remote, _)| remote.ip() == anchor.ip());
            i.addresses.iter().any(|a| a.is_ipv4() == anchor.is_ipv4()) && (is_own || ends())
        };
        self.interfaces.iter().any(|i| i.name == name && leads_there(i))
    }

    /// Connects when a path comes up: the anchor answers there, so the host does not wait for earlier attempts.
    fn connect_over_live(&mut self, now: Time) {
        match self.signal {
            Signalling::Idle(_) => self.connect(now),
            Signalling::Connecting(until) if until <= now + CONNECT_TIMEOUT - RETRY_MIN => {
                self.connect(now);
            }
            _ => {}
        }
    }

    /// Abandons the connection once no path is up: a restarted anchor does not know it, and the host would need ten
    /// seconds to notice. Reconnects are rate-limited, and a suppressed one becomes due later; otherwise a flapping
    /// path would cause a connection each time.
    fn leave_dead_signal(&mut self, now: Time) {
        self.leave_at = None;
        let lives = self.paths.values().any(|path| path.is_up());
        if lives || !matches!(self.signal, Signalling::Up { .. }) {
            return;
        }
        match self.left.map(|left| left + STOOD).filter(|at| *at > now) {
            Some(at) => self.leave_at = Some(at),
            None => {
                self.left = Some(now);
                self.connect(now);
            }
        }
    }

    fn repeat_offers(&mut self, now: Time) {
        let due = |path: &Path| path.offer_at.is_some_and(|at| at <= now);
        let numbers: Vec<u8> =
            self.paths.iter().filter(|(_, path)| due(path)).map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(path) = self.paths.get_mut(&number) {
                path.offer_at = None;
            }
            self.offer(number);
        }
    }

    fn on_stop(&mut self) {
        if matches!(self.signal, Signalling::Up { .. }) {
            self.out.push_back(Output::own(HostOutput::Signal(FromHost::Leave)));
        }
        self.signal = Signalling::Stopped;
        for key in core::mem::take(&mut self.flows).into_keys() {
            self.out.push_back(Output::Order(Order::Unbind(key)));
        }
        let numbers: Vec<u8> = self.paths.keys().copied().collect();
        for number in numbers {
            self.leave(number);
            if self.paths.remove(&number).is_some_and(|path| path.is_set()) {
                self.out.push_back(Output::Order(Order::RemovePath(u32::from(number))));
            }
        }
        for waiting in self.waiting.drain(..) {
            self.out.push_back(Output::Order(Order::Discard(waiting.ticket)));
        }
    }

    fn on_own(&mut self, now: Time, input: HostInput) {
        match input {
            HostInput::SignalUp { interface, anchor } => self.on_signal_up(now, interface, anchor),
            HostInput::SignalDown => self.on_signal_down(now),
            HostInput::Signal(message) => self.on_message(now, message),
            HostInput::Probe(probe) => self.on_probe(now, &probe),
            HostInput::Reading(slot, reading) => self.on_reading(now, slot, *reading),
            HostInput::Carried(slot, carried) => self.on_carried(now, slot, carried),
            HostInput::Sized(slot, token) => self.on_sized(now, slot, token),
            HostInput::Counted(round, counts) => self.on_counted(now, round, &counts),
            HostInput::Uncut(slot) => self.on_uncut(now, slot),
            HostInput::TooBig(said) => self.on_too_big(now, said),
            HostInput::Anchor(addresses) => self.on_anchor(now, addresses),
            HostInput::Miss { key, dscp, ticket } => self.on_miss(now, key, dscp, ticket),
            HostInput::Flows { seen, last } => self.on_flows(now, &seen, last),
            HostInput::Handover { flow, class, to } => self.on_handover(now, flow, class, to),
            HostInput::Keepalive { path, on } => self.on_keepalive(now, &path, on),
            HostInput::Stop => self.on_stop(),
        }
    }
}

impl Machine for Host {
    type Input = Input<HostInput, Infallible>;
    type Output = Output<HostOutput, Infallible>;

    fn handle(&mut self, now: Time, input: Input<HostInput, Infallible>) {
        match input {
            Input::Interfaces(interfaces) => self.on_interfaces(now, interfaces),
            Input::Own(own) => self.on_own(now, own),
            // The driver owns the connections, and the host's own probes show what a link carries.
            Input::Link(_) | Input::Datagram(_) => {}
            Input::Record(never) => match never {},
        }
    }

    fn tick(&mut self, now: Time) {
        match self.signal {
            Signalling::Idle(at) if at <= now => self.connect(now),
            Signalling::Connecting(until) if until <= now => self.on_signal_down(now),
            _ => {}
        }
        self.tick_paths(now);
        self.tick_sources(now);
        if self.leave_at.is_some_and(|at| at <= now) {
            self.leave_dead_signal(now);
        }
        self.tick_sizes(now);
        self.tick_filters(now);
        self.repeat_offers(now);
        if self.steering.deadline().is_some_and(|at| at <= now) {
            self.evaluate(now);
        }
    }

    fn poll(&mut self) -> Option<Output<HostOutput, Infallible>> {
        match self.out.len() {
            0 => None,
            // Outputs are large: freeing the queue saves memory with very many hosts, each of which would keep its
            // maximum.
            1 => core::mem::take(&mut self.out).pop_front(),
            _ => self.out.pop_front(),
        }
    }

    fn deadline(&self) -> Deadline {
        let signal = match self.signal {
            Signalling::Idle(at) if !self.interfaces.is_empty() => Some((at, "connect")),
            Signalling::Connecting(until) => Some((until, "connection attempts end")),
            _ => None,
        };
        let steering = self.steering.deadline().map(|at| (at, "a better path has held"));
        let path = self.paths.deadline();
        let leave = self.leave_at.map(|at| (at, "the connection is left"));
        let path = earlier(path, self.filters_deadline());
        earlier(path, earlier(leave, earlier(signal, steering)))
    }
}
