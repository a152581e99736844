//! The host's paths: offer, grant, probes and state.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_keepalive::{
    Client, ClientInput, ClientOutput, Config as Keepalive, Counted, Source, State, Tau,
};
use segue_steering::{PathId, PathView};
use segue_wire::signal::{FromHost, PathGrant, PathOffer, Timescale};
use segue_wire::{Encapsulation, Mode, Probe, ProbeKey};

use super::Host;
use super::adapt::Following;
use super::outages::Outages;
use crate::planted::fault;
use crate::{
    Cause, HostOutput, PathConfig, PathSetup, ProbeIn, ProbeKind, ProbeOut, Redirect, Report,
};

/// Packets that a path is taken to have carried without loss before it was measured.
const BENEFIT: f64 = 100.0;
/// Steering looks at new samples at most this often.
const EVALUATION: Span = Span::from_millis(50);

/// One interface of the host to one address of the anchor.
pub struct Path {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    pub(super) gateway: Option<IpAddr>,
    pub(super) config: PathConfig,
    pub(super) rx_cookie: u64,
    pub(super) grant: Option<PathGrant>,
    pub(super) client: Option<Client>,
    pub(super) quiet: bool,
    pub(super) following: Option<Box<Following>>,
    /// The operator wants requests on it.
    pub(super) enabled: bool,
    /// There are none, and the anchor has been told.
    pub(super) off: bool,
    /// Since when the anchor has not been shown that this end receives at its address: the answer to a
    /// request from there has to be echoed first.
    pub(super) unshown: Option<Time>,
    pub(super) usable_since: Time,
    /// When to offer it again, after a refusal.
    pub(super) offer_at: Option<Time>,
    /// Outages in the averages of loss, up, down and round trip, once there was one.
    pub(super) outages: Option<Box<[Outages; 3]>>,
    pub(super) via: Option<Redirect>,
    /// When a doubt was told last.
    pub(super) doubt_told: Option<Time>,
    /// When another path last asked on behalf of this one, which was in doubt.
    pub(super) helped: Option<Time>,
    /// Since when it is down.
    pub(super) down_at: Option<Time>,
}

impl Path {
    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Outer source address.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Outer destination.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The measurement; `None` before the anchor has granted the path.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The path that carries this one's packets instead.
    #[must_use]
    pub fn via(&self) -> Option<Redirect> {
        self.via
    }

    /// Answers arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.state() == State::Up)
    }

    /// No requests are sent on it: it counts as up while its interface is there.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        self.off
    }

    /// Answers should arrive and do not.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.state() == State::Down)
    }

    pub(super) fn is_carried(&self) -> bool {
        self.client.as_ref().is_some_and(Client::is_carried)
    }

    pub(super) fn deadline(&self) -> Deadline {
        let client = self.client.as_ref().and_then(Client::deadline);
        let offer = self.offer_at.map(|at| (at, "offer again after a refusal"));
        let following = self.following.as_deref().filter(|_| self.is_set());
        let follow = following.and_then(Following::deadline);
        earlier(earlier(client, offer), follow)
    }

    /// Whether the anchor has granted it, so that the datapath has it.
    pub(super) fn is_set(&self) -> bool {
        self.client.is_some()
    }

    /// Answers arrive, and have for so long.
    pub(super) fn is_up_since(&self, now: Time, hold: Span) -> bool {
        self.is_up() && now.since(self.usable_since) >= hold
    }

    /// How long an outage may go unnoticed: T_Rmax of eq. 1 with the largest RTT seen, where K and T_KA decide; else
    /// from the first packet lost on a path in use, and from the outage on an idle one.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        if let Some((client, doubt)) = self.client.as_ref().zip(self.keepalive().doubt) {
            let in_use = self.following.as_deref().is_some_and(Following::in_use);
            return client.detection_bound(doubt, in_use);
        }
        let rtt = self.client.as_ref().and_then(|c| c.estimates().rtt_max).unwrap_or(Span::ZERO);
        self.keepalive().t_r_max(rtt)
    }

    /// The settings in force: those configured, before the anchor has granted the path.
    #[must_use]
    pub fn keepalive(&self) -> &Keepalive {
        self.client.as_ref().map_or(&self.config.keepalive, Client::config)
    }

    /// Form of the packets: what was granted, else what is wanted.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.grant.as_ref().map_or(self.config.encapsulation, |grant| grant.encapsulation)
    }

    /// Which of the averages is the longest, and its time constant. An idle path has its probes alone to
    /// count: over a short time one lost probe would look like a bad network, so loss is judged over this one.
    pub(super) fn longest(&self) -> (usize, Tau) {
        let taus = self.keepalive().taus.iter().copied().enumerate();
        taus.max_by_key(|(_, tau)| tau.fall).unwrap_or((0, Tau::symmetric(Span::ZERO)))
    }

    /// The longest averages of loss, as far as there are any: up, down, round trip.
    pub(super) fn losses(&self) -> [Option<f64>; 3] {
        let Some(e) = self.client.as_ref().map(Client::estimates) else { return [None; 3] };
        let index = self.longest().0;
        [&e.owl_up, &e.owl_down, &e.rtl].map(|v| v.get(index).or(v.first()).copied())
    }

    fn view(&self, number: u8) -> PathView {
        let estimates = self.client.as_ref().map(Client::estimates);
        let first = |v: &[f64]| v.first().copied();
        let averages = self.losses();
        let outages = estimates.map_or(0, |e| e.transitions);
        // A young path has lost one packet or none: until it has carried some, it gets the benefit
        // of the doubt.
        let loss = |which: usize, packets: Counted| {
            let lost = packets.sent.saturating_sub(packets.received) as f64;
            let cautious = lost / (packets.sent as f64 + BENEFIT);
            // The counts have the packets of an outage, which is not loss: before the first average
            // they say nothing about a path that has been down.
            let unmeasured = if outages > 0 { 0.0 } else { cautious };
            averages[which]
                .map_or(unmeasured, |average| self.without_outages(which, average).min(cautious))
        };
        let (loss_up, loss_down) = match (estimates, self.client.as_ref()) {
            // Nobody knows how it divides: half in each direction, which is right for equal small ones.
            (Some(_), Some(client)) if self.keepalive().mode == Mode::RoundTripLoss => {
                let half = loss(2, client.round_trips()) / 2.0;
                (half, half)
            }
            (Some(e), _) => (loss(0, e.up), loss(1, e.down)),
            (None, _) => (0.0, 0.0),
        };
        PathView {
            id: PathId(number),
            usable: self.is_up(),
            rtt_s: estimates.and_then(|e| first(&e.rtt_ewma)),
            loss_up,
            loss_down,
            // One direction has about half of what a round trip shows.
            jitter_s: estimates.map_or(0.0, |e| e.rtt_jitter / 2.0),
            price: self.config.price,
            since: self.usable_since,
            preference: self.config.preference,
        }
    }
}

/// Whether an input is the answer to a request that left after `since`.
fn answers_since(input: &ClientInput, now: Time, since: Time) -> bool {
    let ClientInput::Response(arrival) = input else { return false };
    let age_us = now.micros32().wrapping_sub(arrival.probe.t_sc);
    u64::from(age_us) <= now.since(since).0 / 1_000
}

/// A time constant as it is signalled: whole milliseconds.
fn timescale(tau: Tau) -> Timescale {
    let ms = |span: Span| u32::try_from(span.0.div_ceil(1_000_000)).unwrap_or(u32::MAX);
    Timescale { rise_ms: ms(tau.rise), fall_ms: ms(tau.fall) }
}

/// The host's settings of a path with the terms of its grant.
fn granted(keepalive: &Keepalive, grant: &PathGrant) -> Keepalive {
    Keepalive { mode: grant.mode, rides: grant.rides, ..keepalive.clone() }
}

impl Host {
    pub(super) fn views(&self) -> Vec<PathView> {
        self.paths.iter().map(|(number, path)| path.view(*number)).collect()
    }

    /// Offers a path to the anchor, if it listens.
    pub(super) fn offer(&mut self, number: u8) {
        if !self.registered() {
            return;
        }
        let Some(path) = self.paths.get(&number) else { return };
        let (wanted, in_force) = (&path.config.keepalive, path.keepalive());
        let offer = PathOffer {
            path: number,
            name: path.name.chars().take(segue_wire::signal::MAX_NAME / 4).collect(),
            index: u32::from(number),
            cookie: path.rx_cookie,
            k: in_force.k,
            t_ka_ms: (in_force.t_ka.0 / 1_000_000).min(u64::from(u16::MAX)) as u16,
            mode: wanted.mode,
            rides: wanted.rides,
            encapsulation: path.config.encapsulation,
            n: u16::try_from(wanted.n).unwrap_or(u16::MAX),
            taus: wanted.probing(path.config.encapsulation).taus.map(timescale),
            follows_use: path.following.is_some(),
        };
        self.out.push_back(HostOutput::Signal(FromHost::AddPath(offer)));
    }

    pub(super) fn on_path_ready(&mut self, now: Time, grant: PathGrant) {
        let number = grant.path;
        let seed = self.secrets.seed();
        let port = self.anchor.map(|anchor| anchor.port());
        let Some(path) = self.paths.get_mut(&number) else { return };
        let secrets = |grant: &PathGrant| (grant.index, grant.cookie, grant.key);
        if path.grant.as_ref().is_some_and(|old| secrets(old) == secrets(&grant)) {
            self.on_terms(now, number, grant);
            return;
        }
        let keepalive = granted(&path.config.keepalive, &grant);
        let index = path.grant.as_ref().filter(|_| fault(7)).map_or(grant.index, |old| old.index);
        path.grant = Some(PathGrant { index, ..grant });
        path.offer_at = None;
        (path.quiet, path.off) = (false, false);
        if let Some(port) = port {
            path.remote.set_port(port);
        }
        path.client = Some(Client::new(keepalive, now, seed));
        path.outages = None;
        path.unshown = Some(now);
        let report = Report::PathAdded { host: String::new(), path: path.name.clone() };
        self.configure(number);
        self.set_via(number, None);
        self.leave(number);
        self.redirect_dead_paths(now);
        self.evaluate(now);
        self.out.push_back(HostOutput::Report(report));
        self.feed(now, number, ClientInput::Tick);
    }

    /// A standing path is granted again, perhaps with other terms.
    fn on_terms(&mut self, now: Time, number: u8, grant: PathGrant) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        // A switch may have missed the anchor while there was no connection.
        let on = !path.off;
        self.out.push_back(HostOutput::Signal(FromHost::Keepalive { path: number, on }));
        if path.grant.as_ref() == Some(&grant) {
            return;
        }
        let keepalive = granted(path.keepalive(), &grant);
        path.grant = Some(grant);
        self.feed(now, number, ClientInput::Reconfigure(keepalive));
        self.configure(number);
    }

    pub(super) fn configure(&mut self, number: u8) {
        let Some(path) = self.paths.get(&number) else { return };
        let Some(grant) = &path.grant else { return };
        let setup = PathSetup {
            tx_index: grant.index,
            tx_cookie: grant.cookie,
            rx_cookie: path.rx_cookie,
            key: ProbeKey(grant.key),
            local: Some(SocketAddr::new(path.local, self.config.port)),
            remote: Some(path.remote),
            ifindex: path.ifindex,
            gateway: path.gateway,
            owner: 0,
            probing: path.keepalive().probing(path.encapsulation()),
        };
        self.out.push_back(HostOutput::SetPath(u32::from(number), setup));
    }

    pub(super) fn on_probe(&mut self, now: Time, probe: &ProbeIn) {
        let Ok(number) = u8::try_from(probe.slot) else { return };
        let input = match probe.kind {
            ProbeKind::Response => ClientInput::Response(probe.arrival),
            ProbeKind::Unsolicited => ClientInput::Unsolicited(probe.arrival),
            ProbeKind::Request => return,
        };
        self.feed(now, number, input);
    }

    pub(super) fn on_reading(&mut self, now: Time, slot: u32, reading: segue_keepalive::Reading) {
        let Ok(number) = u8::try_from(slot) else { return };
        self.feed(now, number, ClientInput::Reading(reading));
    }

    pub(super) fn tick_paths(&mut self, now: Time) {
        let due: Vec<u8> = self
            .paths
            .iter()
            .filter(|(_, path)| path.deadline().is_some_and(|(at, _)| at <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            self.feed(now, number, ClientInput::Tick);
        }
    }

    /// Gives a path's client an input and does what it says.
    pub(super) fn feed(&mut self, now: Time, number: u8, input: ClientInput) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(client) = &mut path.client else { return };
        let was_up = client.state() == State::Up;
        let shows = path.unshown.is_some_and(|since| answers_since(&input, now, since));
        client.handle(now, input);
        let mut outputs = Vec::from(client.take_outputs());
        if shows {
            let asks = |output: &ClientOutput| matches!(output, ClientOutput::SendRequest(_));
            // One that was due already says the same.
            if !outputs.iter().any(asks) {
                client.handle(now, ClientInput::Ask);
                outputs.extend(client.take_outputs());
            }
            // First, so that the anchor has it before the data that follows.
            outputs.sort_by_key(|output| !asks(output));
            path.unshown = None;
        }
        if !was_up && client.state() == State::Up {
            path.usable_since = now;
        }
        path.note_losses(now);
        let mut sampled = false;
        self.help_out(now, number, &outputs);
        for output in outputs {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.align(now, number);
                    self.send_request(now, number, request);
                }
                ClientOutput::State(state) => self.on_path_state(now, number, state),
                ClientOutput::Heard(heard) => self.on_path_heard(now, number, heard),
                ClientOutput::Doubt(doubt) => self.on_doubt(now, number, doubt),
                ClientOutput::Sample(_) => sampled = true,
            }
        }
        if shows && let Some(path) = self.paths.get(&number) {
            self.set_quiet(number, path.is_up());
        }
        self.follow_switch(now, number);
        self.follow(now, number);
        if sampled && now.since(self.evaluated) >= EVALUATION {
            self.evaluate(now);
        }
    }

    fn send_request(&mut self, now: Time, number: u8, request: segue_keepalive::Request) {
        let heard = self
            .paths
            .iter()
            .filter(|(_, path)| path.client.as_ref().is_some_and(Client::heard))
            .fold(0u16, |word, (n, _)| word | 1 << n);
        let age = self.stated_age(now, number);
        let Some(path) = self.paths.get(&number) else { return };
        self.out.push_back(HostOutput::SendProbe(ProbeOut {
            slot: u32::from(number),
            k: path.keepalive().k,
            probe: Probe { heard, ..request.probe },
            held_since: request.held_since,
            report: request.report,
            question: request.question,
            age,
        }));
    }

    /// Puts the path's requests to the instants of another path with the same period, so that one timer
    /// serves both.
    fn align(&mut self, now: Time, number: u8) {
        let Some(t_ka) = self.paths.get(&number).map(|path| path.keepalive().t_ka) else { return };
        let leader = self
            .paths
            .iter()
            .filter(|(_, path)| path.is_set() && path.keepalive().t_ka == t_ka)
            .find_map(|(n, path)| Some((*n, path.client.as_ref()?.next_request()?)));
        if let Some((_, point)) = leader.filter(|(n, _)| *n < number)
            && let Some(client) = self.paths.get_mut(&number).and_then(|path| path.client.as_mut())
        {
            client.align(now, point);
        }
    }

    fn on_path_state(&mut self, now: Time, number: u8, state: State) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let heard = path.client.as_ref().is_some_and(Client::heard);
        let name = path.name.clone();
        let bound = path.detection_bound();
        let silent = path.client.as_ref().map(|client| now.since(client.last_response()));
        let down = silent.filter(|_| state == State::Down);
        let unproven = path.client.as_ref().map(|client| now.since(client.proof()));
        path.note_outage(now, state, silent.unwrap_or_default());
        path.down_at = (state == State::Down).then_some(now);
        if self.config.source == Source::Readings {
            self.out.push_back(HostOutput::SetDown(u32::from(number), down));
        }
        match state {
            State::Down => {
                if heard {
                    self.redirect_dead_paths(now);
                } else {
                    self.move_off(now, number, &name, Cause::Down);
                }
                self.leave_behind(now, number, heard);
            }
            State::Up => {
                let kept = self.paths.get(&number).and_then(|path| path.via).filter(|_| fault(2));
                self.set_via(number, kept);
                self.redirect_dead_paths(now);
                self.evaluate(now);
            }
            State::Starting => {}
        }
        self.set_quiet(number, state == State::Up);
        self.adapt(now, number);
        self.out.push_back(HostOutput::Report(Report::PathState {
            host: String::new(),
            path: name,
            state,
            heard,
            silent: unproven.filter(|_| state == State::Down),
            bound,
        }));
        self.rescue_signal();
    }

    /// The downlink of a path whose uplink was already given up fell silent too, so its flows move
    /// for good; or it is heard again, which changes nothing until answers come.
    fn on_path_heard(&mut self, now: Time, number: u8, heard: bool) {
        let Some(path) = self.paths.get(&number) else { return };
        if !heard && path.via.is_some_and(|via| via.one_way) {
            let name = path.name.to_string();
            self.move_off(now, number, &name, Cause::Down);
        }
    }

    /// Redirects every dead path to the best live one, and ends redirections to paths that died.
    pub(super) fn redirect_dead_paths(&mut self, now: Time) {
        let target = self.best_for_all(now);
        let dead: Vec<(u8, bool)> = self
            .paths
            .iter()
            .filter(|(_, path)| path.is_down() && !(fault(1) && path.via.is_some()))
            .map(|(n, path)| (*n, path.client.as_ref().is_some_and(Client::heard)))
            .collect();
        for (number, heard) in dead {
            let via = target
                .filter(|target| *target != number)
                .map(|target| Redirect { slot: u32::from(target), one_way: heard });
            let before = self.paths.get(&number).and_then(|path| path.via);
            self.set_via(number, via);
            if heard
                && before.is_none()
                && let Some(target) = target
            {
                self.report_move(number, target, Cause::UplinkDown);
            }
        }
    }

    /// The operator's word: whether requests are sent on a path.
    pub(super) fn on_keepalive(&mut self, now: Time, name: &str, on: bool) {
        let Some(number) = self.path_named(name) else { return };
        if let Some(path) = self.paths.get_mut(&number) {
            path.enabled = on;
            self.switched.insert(name.to_string(), on);
        }
        self.follow_switch(now, number);
        self.evaluate(now);
    }

    /// Switches the keepalive of a path on or off as the operator wants. Off only once it is up: a path
    /// that has never been answered is no path, and the anchor learns from requests where this end is.
    fn follow_switch(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set()) else { return };
        let on = path.enabled;
        if on != path.off || !on && (!path.is_up() || path.unshown.is_some()) {
            return;
        }
        path.off = !on;
        self.out.push_back(HostOutput::Signal(FromHost::Keepalive { path: number, on }));
        self.feed(now, number, ClientInput::Switch(on));
    }

    /// Shows the anchor that the path's address changed: a request goes at once, and the next once it has
    /// been answered, also on a path that is not watched.
    pub(super) fn show_endpoint(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set()) else { return };
        path.unshown = Some(now);
        self.set_quiet(number, false);
        let Some(path) = self.paths.get_mut(&number) else { return };
        if !path.off {
            self.feed(now, number, ClientInput::Ask);
            return;
        }
        path.off = false;
        self.out.push_back(HostOutput::Signal(FromHost::Keepalive { path: number, on: true }));
        self.feed(now, number, ClientInput::Switch(true));
    }

    /// Lets a datapath that measures keep probes that say nothing new.
    pub(super) fn set_quiet(&mut self, number: u8, quiet: bool) {
        if self.config.source == Source::Readings
            && let Some(path) = self.paths.get_mut(&number)
            && path.quiet != quiet
        {
            path.quiet = quiet;
            self.out.push_back(HostOutput::SetQuiet(u32::from(number), quiet));
        }
    }

    /// Ends the redirections to a path.
    pub(super) fn leave(&mut self, number: u8) {
        let over = |path: &Path| path.via.is_some_and(|via| via.slot == u32::from(number));
        let numbers: Vec<u8> =
            self.paths.iter().filter(|(_, path)| over(path)).map(|(n, _)| *n).collect();
        for other in numbers {
            self.set_via(other, None);
        }
    }

    pub(super) fn set_via(&mut self, number: u8, via: Option<Redirect>) {
        if let Some(path) = self.paths.get_mut(&number)
            && path.via != via
        {
            path.via = via;
            self.out.push_back(HostOutput::SetVia(u32::from(number), via));
        }
    }
}
