//! The host's paths: offer, grant, probes and state.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{
    Client, ClientInput, ClientOutput, Config as Keepalive, MeasuredBy, Probing, State, Tau,
};
use segue_steering::PathView;
use segue_wire::signal::{FromHost, PathGrant, PathOffer, Timescale};
use segue_wire::{MAX_PATHS, Probe, ProbeKey};

use super::Host;
use super::path::Path;
use super::sizes::prefer_wide;
use crate::{
    Cause, HostOutput, Order, Output, PathSetup, ProbeEvent, ProbeKind, ProbeOrder, Report, Via,
};
use segue_clock::planted::fault;

/// Minimum time between two evaluations of the steering because of new samples.
const EVALUATION: Span = Span::from_millis(50);

/// Returns whether an input is the answer to a request that left after `since`.
fn answers_since(input: &ClientInput, now: Time, since: Time) -> bool {
    let ClientInput::Response(arrival) = input else { return false };
    let age_us = now.micros32().wrapping_sub(arrival.probe.t_sc);
    u64::from(age_us) <= now.since(since).0 / 1_000
}

/// A time constant in signalling: whole milliseconds, rounded up.
fn timescale(tau: Tau) -> Timescale {
    let ms = |span: Span| u32::try_from(span.0.div_ceil(1_000_000)).unwrap_or(u32::MAX);
    Timescale { rise_ms: ms(tau.rise), fall_ms: ms(tau.fall) }
}

/// The host's settings of a path, with the terms of its grant.
fn granted(keepalive: &Keepalive, grant: &PathGrant) -> Keepalive {
    Keepalive { mode: grant.mode, rides: grant.rides, ..keepalive.clone() }
}

impl Host {
    pub(super) fn views(&self) -> Vec<PathView> {
        let views = self.paths.iter().map(|(number, path)| path.view(*number)).collect();
        prefer_wide(views, |number| self.paths.get(&number).is_some_and(|path| path.is_narrow()))
    }

    /// Offers a path to the anchor, if registered.
    pub(super) fn offer(&mut self, number: u8) {
        if !self.registered() {
            return;
        }
        let Some(path) = self.paths.get_mut(&number) else { return };
        path.largest_told = path.offered(self.config.largest);
        let (wanted, in_force) = (&path.settings().keepalive, path.keepalive());
        let offer = PathOffer {
            path: number,
            name: path.name.chars().take(segue_wire::signal::MAX_NAME / 4).collect(),
            index: u32::from(number),
            cookie: path.rx_cookie,
            k: in_force.k,
            t_ka_ms: (in_force.t_ka.0 / 1_000_000).min(u64::from(u16::MAX)) as u16,
            mode: wanted.mode,
            rides: wanted.rides,
            encapsulation: path.settings().encapsulation,
            n: u16::try_from(wanted.n).unwrap_or(u16::MAX),
            taus: wanted.probing(path.settings().encapsulation).taus.map(timescale),
            follows_use: path.following.is_some(),
            largest: path.largest_told,
            v6: path.remote.is_ipv6(),
            checksums: path.wants_checksums(),
        };
        self.out.push_back(Output::own(HostOutput::Signal(FromHost::AddPath(offer))));
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
        let keepalive = granted(&path.settings().keepalive, &grant);
        let index = path.grant.as_ref().filter(|_| fault(7)).map_or(grant.index, |old| old.index);
        path.grant = Some(PathGrant { index, ..grant });
        path.offer_at = None;
        (path.quiet, path.off) = (false, false);
        if let Some(port) = port {
            path.remote.set_port(port);
        }
        path.client = Some(Client::new(keepalive, now, seed).without_samples());
        path.losses = None;
        path.watch = None;
        path.sizes = None;
        path.unshown = Some(now);
        self.await_answer(now, number);
        let Some(path) = self.paths.get(&number) else { return };
        let report = Report::PathAdded { host: String::new(), path: path.name.clone() };
        self.configure(number);
        self.set_via(number, None);
        self.leave(number);
        self.redirect_dead_paths(now);
        self.evaluate(now);
        self.out.push_back(Output::report(report));
        self.tick_path(now, number);
        self.fit();
    }

    /// Handles a repeated grant of an existing path, possibly with other terms.
    fn on_terms(&mut self, now: Time, number: u8, grant: PathGrant) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        // The anchor may have missed a switch of the keepalive while there was no connection.
        let on = !path.off;
        let said = Output::own(HostOutput::Signal(FromHost::Keepalive { path: number, on }));
        self.out.extend((!fault(27)).then_some(said));
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
        let probing = path.keepalive().probing(path.encapsulation());
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
            probing: Probing { checksums: path.checksums(), ..probing },
        };
        self.out.push_back(Output::Order(Order::SetPath(u32::from(number), Box::new(setup))));
    }

    pub(super) fn on_probe(&mut self, now: Time, probe: &ProbeEvent) {
        let Ok(number) = u8::try_from(probe.slot) else { return };
        let answers = probe.kind == ProbeKind::Response && probe.arrival.question;
        if let Some(path) = self.paths.get_mut(&number).filter(|_| answers) {
            path.questions.answer(now, probe.arrival.probe.t_sc);
        }
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
        let due = self.paths.due(now);
        for number in (0..MAX_PATHS as u8).filter(|number| due & 1 << number != 0) {
            self.tick_path(now, number);
        }
    }

    /// Gives a path's client an input and carries out its outputs.
    pub(super) fn feed(&mut self, now: Time, number: u8, input: ClientInput) {
        let Some(path) = self.paths.get(&number) else { return };
        let shows = path.unshown.is_some_and(|since| answers_since(&input, now, since));
        self.drive(now, number, shows, |client| client.handle(now, input));
    }

    /// Ticks a path's client and carries out its outputs.
    fn tick_path(&mut self, now: Time, number: u8) {
        self.drive(now, number, false, |client| client.tick(now));
    }

    /// Calls a path's client and carries out its outputs. With `shows`, the client handles an answer whose echo will
    /// show the anchor that this end receives at its address.
    fn drive(&mut self, now: Time, number: u8, shows: bool, call: impl FnOnce(&mut Client)) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(client) = &mut path.client else { return };
        let was_up = client.state() == State::Up;
        call(client);
        let mut outputs = client.take_outputs();
        if shows {
            let asks = |output: &ClientOutput| matches!(output, ClientOutput::SendRequest(_));
            // A request that is due anyway echoes it too.
            if !outputs.iter().any(asks) {
                client.handle(now, ClientInput::Ask);
                outputs.extend(client.take_outputs());
            }
            // Requests first, so that the anchor receives them before the data that follow.
            outputs.make_contiguous().sort_by_key(|output| !asks(output));
            path.unshown = None;
        }
        if !was_up && client.state() == State::Up {
            path.usable_since = now;
        }
        let sampled = client.take_sampled();
        self.judge_losses(now, number, was_up);
        if !outputs.is_empty() {
            self.help_out(now, number, outputs.make_contiguous());
        }
        for output in outputs {
            match output {
                ClientOutput::SendRequest(request) => {
                    self.align(now, number);
                    self.send_request(now, number, request);
                }
                ClientOutput::State(state) => self.on_path_state(now, number, state),
                ClientOutput::Heard(heard) => self.on_path_heard(now, number, heard),
                ClientOutput::Doubt(doubt) => self.on_doubt(now, number, doubt),
                // It gives none.
                ClientOutput::Sample(_) => {}
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
        let heard = self.heard_word();
        let age = self.stated_age(now, number);
        let Some(path) = self.paths.get_mut(&number) else { return };
        if request.question {
            path.questions.ask(now);
        }
        self.out.push_back(Output::Order(Order::SendProbe(ProbeOrder {
            slot: u32::from(number),
            kind: ProbeKind::Request,
            k: path.keepalive().k,
            probe: Probe { heard, ..request.probe },
            held_since: request.held_since,
            report: request.report,
            question: request.question,
            age,
        })));
    }

    /// A bit for each path that the host hears.
    fn heard_word(&self) -> u16 {
        let heard = |path: &Path| path.client.as_ref().is_some_and(Client::heard);
        let paths = self.paths.iter().filter(|(_, path)| heard(path));
        paths.fold(0, |word, (n, _)| word | 1 << n)
    }

    /// The set of heard paths has changed: updates the word for requests that ride. They repeat the word of the last
    /// ordered request, and while data run there may be no new one.
    pub(super) fn tell_riders(&mut self) {
        let riding = self.paths.iter().filter(|(_, path)| path.is_set() && path.keepalive().rides);
        let slots: Vec<u32> = riding.map(|(number, _)| u32::from(*number)).collect();
        if !slots.is_empty() {
            self.out.push_back(Output::Order(Order::SetHeard(slots, self.heard_word())));
        }
    }

    /// Aligns the path's requests with those of another path of the same period, so that one timer serves both.
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
        path.down_at = (state == State::Down).then_some(now);
        self.await_answer(now, number);
        if self.config.measured_by == MeasuredBy::PacketPath {
            self.out.push_back(Output::Order(Order::SetDown(u32::from(number), down)));
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
                if let Some(path) = self.paths.get_mut(&number) {
                    path.told_to = None;
                }
                self.redirect_dead_paths(now);
                self.evaluate(now);
                self.review_sizes(now, number);
            }
            State::Starting => {}
        }
        self.set_quiet(number, state == State::Up);
        self.adapt(now, number);
        self.out.push_back(Output::report(Report::PathState {
            host: String::new(),
            path: name,
            state,
            heard,
            silent: unproven.filter(|_| state == State::Down),
            bound,
        }));
        self.rescue_signal(now);
        match state {
            State::Down => self.leave_dead_signal(now),
            State::Up => {
                self.leave_at = None;
                self.connect_over_live(now);
            }
            State::Starting => {}
        }
    }

    /// Handles a change of whether a path's downlink is heard. If the downlink of a path with a dead uplink falls
    /// silent too, its flows move for good. If it is heard again, nothing changes until answers arrive.
    fn on_path_heard(&mut self, now: Time, number: u8, heard: bool) {
        self.tell_riders();
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
                .map(|target| Via { slot: u32::from(target), one_way: heard });
            self.set_via(number, via);
            if heard
                && let Some(target) = target.filter(|target| *target != number)
                && let Some(path) = self.paths.get_mut(&number)
                && path.told_to.is_none()
            {
                path.told_to = Some(target);
                self.report_move(number, target, Cause::UplinkDown);
            }
        }
    }

    /// Switches probing of a path at the operator's request.
    pub(super) fn on_keepalive(&mut self, now: Time, name: &str, on: bool) {
        let Some(number) = self.path_named(name) else { return };
        if let Some(path) = self.paths.get_mut(&number) {
            path.enabled = on;
            self.switched.insert(name.to_string(), on);
        }
        self.follow_switch(now, number);
        self.evaluate(now);
    }

    /// Switches a path's keepalive as the operator wants, but off only once the path is up: an unanswered path cannot
    /// be used, and the anchor learns this end's address from requests.
    fn follow_switch(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number).filter(|path| path.is_set()) else { return };
        let on = path.enabled;
        if on != path.off || !on && (!path.is_up() || path.unshown.is_some()) {
            return;
        }
        path.off = !on;
        self.out
            .push_back(Output::own(HostOutput::Signal(FromHost::Keepalive { path: number, on })));
        self.feed(now, number, ClientInput::Switch(on));
    }

    /// Shows the anchor that the path's address has changed: one request leaves at once, the next when that is
    /// answered. This applies to unprobed paths as well.
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
        self.out.push_back(Output::own(HostOutput::Signal(FromHost::Keepalive {
            path: number,
            on: true,
        })));
        self.feed(now, number, ClientInput::Switch(true));
    }

    /// Lets a datapath that measures withhold probes without news.
    pub(super) fn set_quiet(&mut self, number: u8, quiet: bool) {
        if self.config.measured_by == MeasuredBy::PacketPath
            && let Some(path) = self.paths.get_mut(&number)
            && path.quiet != quiet
        {
            path.quiet = quiet;
            self.out.push_back(Output::Order(Order::SetQuiet(u32::from(number), quiet)));
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

    pub(super) fn set_via(&mut self, number: u8, via: Option<Via>) {
        if let Some(path) = self.paths.get_mut(&number)
            && path.via != via
        {
            path.via = via;
            self.out.push_back(Output::Order(Order::SetVia(u32::from(number), via)));
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_keepalive::Arrival;

    use super::*;

    #[test]
    fn an_answer_shows_a_change_only_if_its_request_left_after_it() {
        let change = Time(5_000_000_000);
        let now = change + Span::from_millis(40);
        for (sent_after_us, shows) in [(-30_000i64, false), (-1, false), (0, true), (20_000, true)]
        {
            let t_sc = (change.micros32() as i64 + sent_after_us) as u32;
            let probe = Probe { t_sc, ..Probe::default() };
            let arrival = Arrival::new(probe, now, 1);
            let input = ClientInput::Response(arrival);
            assert_eq!(answers_since(&input, now, change), shows, "{sent_after_us} µs");
        }
        assert!(!answers_since(&ClientInput::Ask, now, change));
    }
}
