//! The local mobility anchor: leases prefixes to hosts, and knows the gateway of each of their interfaces.

mod answer;
mod authorize;
mod config;
mod flows;
mod greet;
mod hosts;
mod io;
mod lookup;
mod notify;
mod outlook;
mod quality;
mod register;
mod revoke;
mod state;
mod stored;
mod transport;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::IpAddr;

use segue_clock::{DayClock, Deadline, Machine, Rng, Time, Timers, earlier};
use segue_ip::{Datagram, FlowKey, Input, Output, Prefix, Tunnel};
use segue_mobility::{BindingCache, Leases, Lifetime};
use segue_wire::mobility::body::{BindingRevocation, BindingUpdate, Heartbeat};
use segue_wire::mobility::{BindingUpdateFlags, Body, HeartbeatFlags, Message, Profile};

use crate::heart::{self, Hearts, Pulse};
use crate::message::{Registration, Update, read};
use crate::news::Why;
use crate::peer::Ends;
use crate::{LinkLayer, NodeId, PeerAddress, Refusal, Refused, Report};
pub use config::{Allowed, GreUse, LmaConfig, Nodes, Rated, Schedule, Worth};
pub use flows::DECISION;
use greet::Greeted;
pub use io::{
    Authorization, LmaInput, LmaOutput, LmaRecord, LmaWish, Presence, StoredLease, StoredSession,
};
pub use state::{Flow, LinkQuality, Placed, Session, SessionState};
use state::{
    Host, INSPECTION, Notification, Order, Peer, Revocation, Stage, Unauthorized, Waiting,
};

/// The state machine of an anchor.
pub struct Lma {
    config: LmaConfig,
    /// Bindings by number. The cache's peers are the gateways.
    sessions: BindingCache<u32, PeerAddress, Session>,
    hosts: BTreeMap<NodeId, Host>,
    /// Numbers of the bindings that hold each prefix.
    holders: BTreeMap<Prefix, BTreeSet<u32>>,
    leases: Leases<(NodeId, LinkLayer)>,
    peers: BTreeMap<PeerAddress, Peer>,
    /// Tunnel numbers in use: those of gateways, and those of single bindings.
    tunnels_used: BTreeSet<u32>,
    hearts: Hearts<PeerAddress>,
    /// When the next keepalive to each gateway is due.
    probes: BTreeSet<(Time, PeerAddress)>,
    /// When to check next whether flows should move to another path.
    review_at: Option<Time>,
    /// Registrations that wait for another binding to end, by the time when the wait is over.
    waiting: BTreeMap<(Time, u64), Waiting>,
    /// Registrations that wait for the driver's authorization.
    unauthorized: BTreeMap<(NodeId, LinkLayer), Unauthorized>,
    revocations: BTreeMap<u16, Revocation>,
    notifications: BTreeMap<u16, Notification>,
    /// Numbers of the bindings of each interface.
    by_link_layer: BTreeMap<LinkLayer, BTreeSet<u32>>,
    /// Bindings whose interface is about to leave, by the time when that prediction expires.
    fading: BTreeSet<(Time, u32)>,
    flows: BTreeMap<FlowKey, Flow>,
    by_age: BTreeSet<(Time, FlowKey)>,
    /// When the next flows are inspected; `None` before the first input.
    inspect_at: Option<Time>,
    /// The flow at which the last inspection ended; `None`: the next one begins with the first flow.
    inspected: Option<FlowKey>,
    /// Number of hosts with flows.
    busy: usize,
    /// Number of flows that go to each binding.
    loads: BTreeMap<u32, usize>,
    /// Flows that moved from one gateway to another and are not reported yet.
    gone: BTreeMap<(PeerAddress, PeerAddress), usize>,
    /// Flows that wait for the external scheduler, with the time when the anchor places them itself.
    undecided: Timers<FlowKey>,
    deciding: bool,
    rng: Rng,
    /// The last number given to a binding, tunnel, revocation, waiting registration and notification.
    numbers: [u64; 5],
    /// Start of the current second, and the number of replies to unknown peers in it.
    strangers: (Time, u32),
    /// Unknown gateways that were reported, and when.
    named: BTreeMap<IpAddr, Time>,
    /// All stored records of earlier starts have been restored.
    started: bool,
    greeted: Greeted,
    refused: Refused,
    out: VecDeque<LmaOutput>,
}

impl Lma {
    /// Creates an anchor without bindings.
    #[must_use]
    pub fn new(config: LmaConfig) -> Lma {
        Lma {
            sessions: BindingCache::new(config.capacity),
            hosts: BTreeMap::new(),
            holders: BTreeMap::new(),
            leases: Leases::new(config.pool, config.prefix_hold),
            peers: BTreeMap::new(),
            tunnels_used: BTreeSet::new(),
            hearts: Hearts::default(),
            probes: BTreeSet::new(),
            review_at: None,
            waiting: BTreeMap::new(),
            unauthorized: BTreeMap::new(),
            revocations: BTreeMap::new(),
            notifications: BTreeMap::new(),
            by_link_layer: BTreeMap::new(),
            fading: BTreeSet::new(),
            flows: BTreeMap::new(),
            by_age: BTreeSet::new(),
            inspect_at: None,
            inspected: None,
            busy: 0,
            loads: BTreeMap::new(),
            gone: BTreeMap::new(),
            undecided: Timers::new(),
            deciding: false,
            rng: Rng::new(config.seed),
            // Sequence numbers of messages start at a random value, so that they differ from those of an earlier start.
            numbers: [0, 0, config.seed & 0xffff, 0, config.seed >> 16 & 0xffff],
            strangers: (Time::ZERO, 0),
            named: BTreeMap::new(),
            started: false,
            greeted: Greeted::default(),
            refused: Refused::new(),
            out: VecDeque::new(),
            config,
        }
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &LmaConfig {
        &self.config
    }

    /// All bindings: number, gateway, end of the lifetime, and state.
    pub fn sessions(&self) -> impl Iterator<Item = (u32, PeerAddress, Time, &Session)> {
        self.sessions.iter().map(|(number, at)| (*number, at.peer, at.until, &at.value))
    }

    /// All bindings of a host, as [`Lma::sessions`] returns them.
    pub fn sessions_of(
        &self,
        node: &NodeId,
    ) -> impl Iterator<Item = (u32, PeerAddress, Time, &Session)> {
        let numbers = self.hosts.get(node).into_iter().flat_map(|host| &host.sessions);
        let known = numbers.filter_map(|number| Some((*number, self.sessions.get(number)?)));
        known.map(|(number, at)| (number, at.peer, at.until, &at.value))
    }

    /// The binding with this number.
    #[must_use]
    pub fn session(&self, number: u32) -> Option<&Session> {
        self.sessions.get(&number).map(|at| &at.value)
    }

    /// All tunnels with their gateways: one to each gateway that has bindings, and one for each binding with GRE keys.
    pub fn tunnels(&self) -> impl Iterator<Item = (Tunnel, PeerAddress)> {
        let own = self
            .sessions
            .iter()
            .filter_map(|(_, at)| Some((self.keyed(at.peer, at.value.gre?), at.peer)));
        let shared = self.peers.keys().filter_map(|peer| Some((self.tunnel_to(*peer)?, *peer)));
        shared.chain(own)
    }

    /// Counts of refused messages.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    fn refuse(&mut self, why: Refusal) {
        *self.refused.entry(why).or_default() += 1;
    }

    fn report(&mut self, report: Report) {
        self.out.push_back(Output::Report(report));
    }

    /// Sends a message that depends on no record.
    fn send(&mut self, datagram: Option<Datagram>) {
        self.out.extend(datagram.map(|datagram| Output::Send(datagram, None)));
    }

    /// Sends a message about a host, which waits until the host's records are on disk.
    fn send_about(&mut self, node: Option<&NodeId>, datagram: Option<Datagram>) {
        let after = node.map(NodeId::subject);
        self.out.extend(datagram.map(|datagram| Output::Send(datagram, after)));
    }

    fn allowed(&self, gateway: IpAddr) -> Option<Profile> {
        let fits = self.config.gateways.iter().filter(|a| a.prefix.contains(gateway));
        fits.max_by_key(|allowed| allowed.prefix.len).map(|allowed| allowed.profile)
    }

    fn take(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        if greet::is_of_tunnel(came) {
            return self.stray(now, came);
        }
        let ends = Ends::of(came)?;
        let allowed = self.allowed(ends.peer.0);
        let profile = allowed.unwrap_or(Profile::STRICT);
        let Message { body, options } = read(came, ends, &profile)?;
        if let Body::BindingUpdate(BindingUpdate { sequence, flags, lifetime_4s }) = body {
            if !flags.contains(BindingUpdateFlags::PROXY) {
                return Err(Refusal::NotServed);
            }
            let (mut asked, lifetime) = (Registration::of(&options), Lifetime(lifetime_4s));
            if profile != Profile::STRICT {
                // A non-strict gateway may send only a link-layer identifier, and writes network prefixes with length
                // 128.
                let unnamed = asked.node.is_none() && asked.link_layer.is_known();
                if unnamed {
                    asked.node = Some(NodeId::nai(&alloc::format!("{}", asked.link_layer)));
                }
                let part = |home: &mut Prefix| *home = Prefix::new(home.addr, self.part_length());
                asked.prefixes.iter_mut().filter(|home| home.len == 128).for_each(part);
            }
            let arrived = Time(now.0.saturating_sub(came.waited_ns));
            let update =
                Update { arrived, sequence, flags, lifetime, asked, options, ends, profile };
            self.update(now, update, Stage::Came);
            return Ok(());
        }
        if allowed.is_none() {
            return Err(Refusal::Stranger);
        }
        let told = Registration::of(&options);
        let from = self.peer_of(ends, &told);
        match body {
            Body::Heartbeat(beat) => self.on_beat(now, &beat, &told, from, ends),
            Body::UpdateNotificationAcknowledgement(answer) => self.noticed(now, &answer, from),
            Body::BindingRevocation(BindingRevocation::Acknowledgement(answer)) => {
                self.revoked(now, &answer, from, ends)
            }
            _ => Err(Refusal::NotServed),
        }
    }

    fn on_beat(
        &mut self,
        now: Time,
        beat: &Heartbeat,
        told: &Registration,
        from: PeerAddress,
        ends: Ends,
    ) -> Result<(), Refusal> {
        self.learn(from, ends);
        if !beat.flags.contains(HeartbeatFlags::RESPONSE) {
            let counter = self.config.restart_counter;
            self.send(heart::response(Some(beat.sequence), counter, None, ends, false));
            return Ok(());
        }
        let answered = self.answered(now, from, beat.sequence, told.probe);
        if answered.is_some() && told.restart_counter.is_none() {
            // This gateway sends no restart counters.
            return Ok(());
        }
        // A keepalive's answer reveals a restart as well as a heartbeat's, and earlier, since heartbeats are far apart.
        // It is handled like an unsolicited heartbeat, which brings the next request forward.
        let unasked =
            Heartbeat { flags: HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED, ..*beat };
        let beat = if answered.is_some() { &unasked } else { beat };
        let pulse = self.hearts.on_response(now, from, beat, told.restart_counter);
        self.beat(now);
        match pulse.ok_or(Refusal::Stale)? {
            // The gateway registers its hosts again; otherwise their lifetimes end.
            Some(Pulse::Restarted) => {
                self.report(Report::Restarted { peer: from });
                self.tell_anew(now, from);
            }
            Some(Pulse::Back) if self.config.keepalive.is_none() => {
                self.report(Report::Answers { peer: from });
            }
            Some(Pulse::Back | Pulse::Silent) | None => {}
        }
        Ok(())
    }

    fn beat(&mut self, now: Time) {
        while let Some((gateway, ask, silent)) = self.hearts.beat(now) {
            let ends = self.ends_to(gateway);
            self.send(ask.and_then(|sequence| heart::request(sequence, None, ends, false)));
            // Keepalives, if enabled, have reported this long before.
            if silent && self.config.keepalive.is_none() {
                self.report(Report::Silent { peer: gateway });
            }
        }
    }

    /// Handles everything that is due, apart from inspections of flows.
    fn on_timers(&mut self, now: Time) {
        self.inspect_at.get_or_insert(now + INSPECTION);
        while let Some((number, ended)) = self.sessions.ended(now) {
            let why = match ended.value.state {
                SessionState::Active => Why::Expired,
                SessionState::Leaving => Why::Detached,
            };
            self.ended(now, number, ended, why);
        }
        while let Some(prefix) = self.leases.rested(now) {
            self.out.push_back(Output::Persist(LmaRecord::Lease(prefix, None)));
        }
        self.wait_no_longer(now);
        self.revoke_again(now);
        self.notify_again(now);
        self.decide_alone(now);
        self.fade(now);
        self.beat(now);
        self.probe(now);
        self.review(now);
    }

    /// Length of the prefixes that the anchor leases.
    fn part_length(&self) -> u8 {
        let pool = &self.config.pool;
        pool.part(pool.numbers().start).map_or(0, |part| part.len)
    }

    /// The next number of a kind.
    fn number(&mut self, kind: usize) -> u64 {
        self.numbers[kind] += 1;
        self.numbers[kind]
    }
}

impl Machine for Lma {
    type Input = Input<LmaInput, LmaRecord>;
    type Output = LmaOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        if let Input::Record(record) = input {
            self.restore(now, record);
            return;
        }
        self.greet(now);
        // Timers first: a prefix whose hold time has ended can be leased again.
        self.on_timers(now);
        match input {
            Input::Datagram(came) => {
                if let Err(why) = self.take(now, &came) {
                    self.refuse(why);
                }
            }
            Input::Own(LmaInput::TimeOfDay(day)) => self.config.clock = DayClock::new(now, day),
            Input::Own(LmaInput::Revoke(node)) => self.revoke(now, &node),
            Input::Own(LmaInput::Flow { key, dscp }) => self.on_flow(now, key, dscp),
            Input::Own(LmaInput::LastSent(flows)) => self.last_sent(now, &flows),
            Input::Own(LmaInput::Place { key, bid }) => {
                if !self.place(now, &key, bid) {
                    self.refuse(Refusal::NoBinding);
                }
            }
            Input::Own(LmaInput::Deciding(deciding)) => self.deciding = deciding,
            Input::Own(LmaInput::GoingDown { link_layer, within }) => {
                self.going_down(now, &link_layer, within);
            }
            Input::Own(LmaInput::Stays { link_layer }) => self.recovered(now, &link_layer),
            Input::Own(LmaInput::Link { link_layer, quality }) => {
                self.link_told(now, &link_layer, quality);
            }
            Input::Own(LmaInput::Authorized { node, link_layer, verdict }) => {
                self.authorized(now, (node, link_layer), verdict);
            }
            Input::Interfaces(_) | Input::Link(_) | Input::Record(_) => {}
        }
    }

    fn tick(&mut self, now: Time) {
        self.on_timers(now);
        self.inspect(now);
    }

    fn poll(&mut self) -> Option<LmaOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let end = self.sessions.next_end().map(|at| (at, "a binding ends"));
        let wait = self.waiting.first_key_value().map(|((at, _), _)| (*at, "to wait no longer"));
        let revoke = self.revocations.values().map(|r| r.again.deadline()).min();
        let beat = self.hearts.deadline();
        let probe = self.probes.first().map(|(at, _)| (*at, "a keepalive is due"));
        let review = self.review_at.map(|at| (at, "to look whether flows go where they should"));
        let notify = self.notifications.values().map(|n| n.again.deadline()).min();
        let notify = notify.map(|at| (at, "to notify again"));
        let decide = self.undecided.next().map(|(at, _)| (at, "to place a flow alone"));
        let rested = self.leases.next_rested().map(|at| (at, "a prefix has rested"));
        let first = earlier(earlier(earlier(end, wait), beat), earlier(notify, decide));
        let fade = self.fading.first().map(|(at, _)| (*at, "an interface should have left"));
        let first = earlier(earlier(first, rested), fade);
        let first = earlier(first, earlier(probe, review));
        let inspect = self.inspect_at.filter(|_| !self.flows.is_empty());
        let first = earlier(first, inspect.map(|at| (at, "to look for idle flows")));
        earlier(first, revoke.map(|at| (at, "to revoke again")))
    }
}
