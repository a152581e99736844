//! The client's end of a path: it asks, and judges by the answers.

use alloc::collections::VecDeque;

use segue_clock::{Machine, Rng, Span, Time};
use segue_wire::Probe;

use crate::config::stated_ms;
use crate::estimates::{Measure, Scale};
use crate::rtt::{client_rtt, echo_age};
use crate::seq::{Order, SeqWindow};
use crate::{Arrival, ClientInput, ClientOutput, Config, Estimates, Request, Sample, State};

/// The client of one path (sections 4.1 to 4.3).
///
/// **Requests** go every T_KA, the first at once, on a grid that does not drift; after a late tick
/// the missed ones are left out. Only the distance from the first request to the second is shortened,
/// by up to an eighth of T_KA drawn from the seed, so that clients that begin together do not stay in
/// step.
///
/// **Round trip.** The path is down when no response has come for (K + ½)·T_KA since the last. Eq. 3
/// takes K lost probes as the condition. A timer of exactly K·T_KA would expire at the very moment
/// when the K-th answer is due, and K − 1 losses with a little jitter would do; the half period
/// makes it K losses. Detection after a fault then takes at most (K + ½)·T_KA + RTT, inside eq. 1, and
/// on average K·T_KA + RTT/2, inside eq. 2. Before the first response the time-out is (K + 1)·T_KA
/// from the start. While the path is down requests go on, and `up_after` answers to consecutive
/// requests bring it back.
///
/// **Downlink alone.** When requests do not arrive, the server sends unsolicited responses, the first
/// 1.5·T_KA after the last request. They keep [`heard`](Client::heard) true, whose time-out is the same
/// (K + ½)·T_KA, but at least 2·T_KA so that with K = 1 the first of them comes in time. They say
/// nothing else: the fields that they echo are old.
///
/// **Replays.** Responses repeat the client's own numbers, and a server that begins again has other
/// keys: an old number is a replay, and shows nothing.
///
/// Outputs are at most eight for one input.
#[derive(Clone, Debug)]
pub struct Client {
    config: Config,
    state: State,
    heard: bool,
    /// When this client began: answers to requests from before it are not its own.
    epoch: Time,
    schedule: Schedule,
    /// Number of the last request.
    seq: u32,
    /// What the round-trip time-out counts from.
    alive: Time,
    /// What the downlink's time-out counts from.
    last_heard: Time,
    /// The period that the last unsolicited response stated; zero before any and after a response.
    /// The server keeps to it if a later change of ours cannot reach it.
    unsolicited_t_ka: Span,
    echo: Echo,
    responses: SeqWindow,
    unsolicited: SeqWindow,
    run: Run,
    measure: Measure,
    outputs: VecDeque<ClientOutput>,
}

/// What the next request repeats from the last response.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    t_ss: u32,
    ss: u32,
    r: u32,
    held_since: u32,
}

/// Answers to consecutive requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    last: u32,
    length: u8,
}

impl Run {
    /// Takes the next number; the length of the run that it ends.
    pub(crate) fn push(&mut self, seq: u32) -> u8 {
        let follows = self.length > 0 && seq == self.last.wrapping_add(1);
        self.length = if follows { self.length.saturating_add(1) } else { 1 };
        self.last = seq;
        self.length
    }
}

/// When requests leave.
#[derive(Clone, Debug)]
struct Schedule {
    next: Time,
    last: Option<Time>,
    /// After a change to a longer period: the old one, and how many requests still keep it. They
    /// tell the server about the change before it would miss them.
    announce: Option<(Span, u8)>,
    /// Share of the first interval that is left out, in units of 2⁻¹⁹: less than an eighth.
    phase: u16,
}

impl Client {
    /// A client in [`State::Starting`] that sends its first request at the first tick. The sequence
    /// of a seed is fixed; paths of one host should have different ones.
    #[must_use]
    pub fn new(config: Config, now: Time, jitter_seed: u64) -> Client {
        let config = config.sane();
        let phase = Rng::new(jitter_seed).below(1 << 16) as u16;
        Client {
            config,
            state: State::Starting,
            heard: false,
            epoch: now,
            schedule: Schedule { next: now, last: None, announce: None, phase },
            seq: 0,
            alive: now,
            last_heard: now,
            unsolicited_t_ka: Span::ZERO,
            echo: Echo::default(),
            responses: SeqWindow::new(),
            unsolicited: SeqWindow::new(),
            run: Run::default(),
            measure: Measure::default(),
            outputs: VecDeque::new(),
        }
    }

    /// The state of the round trip.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether anything has arrived within the time-out: the state of the downlink.
    #[must_use]
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// When the last response arrived; the start before any.
    #[must_use]
    pub fn last_response(&self) -> Time {
        self.alive
    }

    /// What this end knows about the path.
    #[must_use]
    pub fn estimates(&self) -> &Estimates {
        &self.measure.estimates
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Leaves what is lost until the next response out of the averages of one-way loss; the counts
    /// have it. For a caller that judges paths by their loss and knows of an outage otherwise: the
    /// path must not look bad for long after it.
    pub fn ignore_outage(&mut self) {
        self.measure.outage();
    }

    fn on_response(&mut self, now: Time, arrival: &Arrival) {
        let probe = &arrival.probe;
        // Never sent: a former client's answer. It shows that the downlink works, nothing else.
        let behind = u64::from(self.seq.wrapping_sub(probe.seq));
        if behind >= self.measure.estimates.sent.min(1 << 31) {
            self.on_heard(now, arrival);
            return;
        }
        let order = self.responses.observe_once(probe.seq);
        self.measure.count(order);
        if matches!(order, Order::Duplicate | Order::Stale) {
            return;
        }
        self.unsolicited_t_ka = Span::ZERO;
        self.on_heard(now, arrival);
        self.alive = self.alive.max(arrival.at.min(now));
        self.on_answer(probe.seq, order);
        let at = arrival.at;
        let scale = Scale { taus: &self.config.taus, t_l: self.config.t_l() };
        let mut sample = Sample {
            at,
            seq: probe.seq,
            rtt: client_rtt(arrival, self.epoch),
            owl_up: None,
            owl_down: None,
            rtl: self.measure.rtl(scale, at),
        };
        if let Some(rtt) = sample.rtt {
            self.measure.rtt(scale, at, rtt);
        }
        if order != Order::Late {
            self.echo = Echo {
                t_ss: probe.t_ss,
                ss: probe.ss,
                r: arrival.received,
                held_since: at.micros32(),
            };
            sample.owl_down = self.measure.down(scale, at, probe.ss, arrival.received);
            if echo_age(at, probe.t_sc, self.epoch).is_some() {
                sample.owl_up = self.measure.up(scale, at, probe.sc, probe.r);
            }
        }
        if !sample.is_empty() {
            self.outputs.push_back(ClientOutput::Sample(sample));
        }
    }

    fn on_unsolicited(&mut self, now: Time, arrival: &Arrival) {
        let probe = &arrival.probe;
        let estimates = &mut self.measure.estimates;
        match self.unsolicited.observe_once(probe.seq) {
            Order::Duplicate => return estimates.duplicates += 1,
            Order::Stale => return estimates.reordered += 1,
            Order::Late => estimates.reordered += 1,
            Order::Newest | Order::Restart => {}
        }
        self.unsolicited_t_ka = Span::from_millis(u64::from(probe.t_ka_ms));
        self.on_heard(now, arrival);
    }

    fn on_heard(&mut self, now: Time, arrival: &Arrival) {
        self.last_heard = self.last_heard.max(arrival.at.min(now));
        if !self.heard {
            self.heard = true;
            self.outputs.push_back(ClientOutput::Heard(true));
        }
    }

    fn on_answer(&mut self, seq: u32, order: Order) {
        let run = if order == Order::Late { 0 } else { self.run.push(seq) };
        match self.state {
            State::Starting => self.enter(State::Up),
            State::Down if run >= self.config.up_after => self.enter(State::Up),
            State::Down | State::Up => {}
        }
    }

    fn enter(&mut self, state: State) {
        if self.state != State::Starting || state == State::Down {
            self.measure.estimates.transitions += 1;
        }
        self.state = state;
        self.run = Run::default();
        self.outputs.push_back(ClientOutput::State(state));
    }

    fn on_reconfigure(&mut self, now: Time, config: Config) {
        let config = config.sane();
        let old_down_at = self.down_at();
        // What the server still expects: an announcement may be under way.
        let told = self.schedule.announce.map_or(self.config.t_ka, |(t_ka, _)| t_ka);
        let slower = config.t_ka > told;
        self.config = config;
        if let Some(old_down_at) = old_down_at {
            self.rebase(now, old_down_at);
        }
        if let Some(last) = self.schedule.last {
            self.schedule.next = self.schedule.next.min(last + self.config.t_ka);
        }
        self.schedule.announce = slower.then_some((told, self.config.k));
    }

    /// After a change to a shorter time-out: the answers on their way still have the old distance,
    /// so the new time-out counts from when the first faster request can be answered. Never later
    /// than the old one would have expired, nor earlier than the new one allows.
    fn rebase(&mut self, now: Time, old_down_at: Time) {
        let Some(down_at) = self.down_at() else { return };
        if down_at >= old_down_at {
            return;
        }
        let rtt = self.measure.estimates.rtt_max.unwrap_or(Span::ZERO);
        let time_out = self.time_out();
        let fair = now + time_out + rtt;
        self.alive = self.alive.max(fair.min(old_down_at) - time_out);
    }

    fn time_out(&self) -> Span {
        let t_ka = self.config.t_ka;
        let periods = t_ka * u64::from(self.config.k);
        if self.state == State::Starting { periods + t_ka } else { periods + t_ka.half() }
    }

    fn down_at(&self) -> Option<Time> {
        (self.state != State::Down).then(|| self.alive + self.time_out())
    }

    fn unheard_at(&self) -> Option<Time> {
        let t_ka = self.config.t_ka.max(self.unsolicited_t_ka);
        let time_out = (t_ka * u64::from(self.config.k) + t_ka.half()).max(t_ka * 2);
        // A change of settings moves `alive` forward, and what answers would do anything may do.
        self.heard.then(|| self.last_heard.max(self.alive) + time_out)
    }

    fn run_timers(&mut self, now: Time) {
        if self.schedule.last.is_some() && self.down_at().is_some_and(|at| now >= at) {
            self.enter(State::Down);
        }
        if self.unheard_at().is_some_and(|at| now >= at) {
            self.heard = false;
            self.outputs.push_back(ClientOutput::Heard(false));
        }
        if now >= self.schedule.next {
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        if self.schedule.last.is_none() {
            self.alive = self.alive.max(now);
        }
        self.schedule.advance(now, self.config.t_ka);
        self.seq = self.seq.wrapping_add(1);
        self.measure.estimates.sent += 1;
        let probe = Probe {
            seq: self.seq,
            t_ss: self.echo.t_ss,
            ss: self.echo.ss,
            r: self.echo.r,
            t_ka_ms: stated_ms(self.config.t_ka),
            ..Probe::default()
        };
        let request = Request { probe, held_since: self.echo.held_since };
        self.outputs.push_back(ClientOutput::SendRequest(request));
    }
}

impl Schedule {
    /// A request leaves at `now`.
    fn advance(&mut self, now: Time, t_ka: Span) {
        let period = match &mut self.announce {
            Some((old, left)) if *left > 1 => {
                *left -= 1;
                *old
            }
            _ => {
                self.announce = None;
                t_ka
            }
        };
        self.next = if self.last.is_none() {
            let left_out = (u128::from(period.0) * u128::from(self.phase)) >> 19;
            now + (period - Span(left_out as u64))
        } else {
            let missed = now.since(self.next).0 / period.0.max(1);
            self.next + period * (missed + 1)
        };
        self.last = Some(now);
    }
}

impl Machine for Client {
    type Input = ClientInput;
    type Output = ClientOutput;

    fn handle(&mut self, now: Time, input: ClientInput) {
        // Arrivals go before timers: a response that came in time is not overruled by a late tick.
        match input {
            ClientInput::Tick => {}
            ClientInput::Response(arrival) => self.on_response(now, &arrival),
            ClientInput::Unsolicited(arrival) => self.on_unsolicited(now, &arrival),
            ClientInput::Reconfigure(config) => self.on_reconfigure(now, config),
        }
        self.run_timers(now);
    }

    fn poll(&mut self) -> Option<ClientOutput> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<(Time, &'static str)> {
        let request = (self.schedule.next, "request due");
        let down = self.down_at().map(|at| (at, "no response within T_TO"));
        let unheard = self.unheard_at().map(|at| (at, "nothing heard within T_TO"));
        [Some(request), down, unheard].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}
