//! The client's end of a path: sends requests and evaluates the answers.

use alloc::collections::VecDeque;

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_wire::{Mode, Probe, ProbeReport};

mod carried;
mod doubt;
mod excuse;
mod lapses;
mod rate;
mod reading;
mod round_trip;
mod schedule;
mod stream;
mod time_outs;

pub use self::carried::LOOK;
use self::doubt::Kept;
pub use self::doubt::SILENCE;
use self::excuse::{Excuse, TimeOut};
pub use self::lapses::Lapses;
use self::schedule::Schedule;
use crate::bursts::Bursts;
use crate::config::{MeasuredBy, stated_ms};
use crate::counts::Run;
use crate::measure::{Measure, Scale};
use crate::rtt::{client_rtt, echo_age};
use crate::seq::{Order, SeqWindow};
use crate::{
    Arrival, ClientInput, ClientOutput, Config, Counted, Estimates, Request, Sample, State,
};
use segue_clock::planted::fault;

/// The client of one path (sections 4.1 to 4.3).
///
/// **Requests** leave every T_KA, the first immediately, on a grid that does not drift. After a late tick, the missed
/// ones are skipped. Only the interval between the first two requests is shorter, by up to an eighth of T_KA drawn from
/// the seed, so that clients that start together do not stay synchronised.
///
/// **Round trip.** The path is down if no response has arrived for (K + ½)·T_KA since the last. Eq. 3 requires K lost
/// probes. A timer of exactly K·T_KA would expire at the very moment when the K-th answer is due, so K − 1 losses with
/// a little jitter would suffice; the half period makes it K losses. Detection after a fault then takes at most
/// (K + ½)·T_KA + RTT, within eq. 1, and on average K·T_KA + RTT/2, within eq. 2. Before the first response the
/// time-out is (K + 1)·T_KA from the start. While the path is down, requests continue, and answers to `up_after`
/// consecutive requests bring it back.
///
/// **Doubt** ([`Config::doubt`]). With doubt, K and T_KA do not decide. Doubt begins when an expected packet does not
/// arrive: an answer to a packet that was sent, or the next packet of a stream. Requests follow until one is answered,
/// or until enough of them are not. T_KA is the time for which a path without data goes unwatched.
///
/// **Rides** ([`Config::rides`], section 5.3, Fig. 15). A bare request leaves at the end of a period only if no request
/// rode on data during it; the driver's [`Reading`](crate::Reading) before the tick reports this. Each period between
/// two points of the grid therefore has one request, anywhere in it, and its response may wait up to T_KA for a ride.
/// The answers to two requests that are K apart then arrive up to (K + 2)·T_KA apart, and the time-out is
/// (K + 2½)·T_KA: again K losses are necessary. No time-out makes K losses sufficient as well, because the distance of
/// two answers varies by up to 3·T_KA; K + 3 losses are sufficient. Detection takes at most [`Config::t_r_max`]. On a
/// path that is not up, requests always leave by themselves: the answer to a ride may go to the address where the
/// server last saw this end, instead of the current one.
///
/// **Watched rides** ([`Reading::watched`](crate::Reading::watched)). While the path is up and requests ride, the
/// client needs no tick at the ends of periods or for its time-outs if the datapath calls the driver as soon as rides
/// cease. The reading that follows the call decides. The client requests a reading [`LOOK`] after the last one, for its
/// estimates and in case a call was lost, and immediately after it receives a response.
///
/// **Readings** ([`MeasuredBy::PacketPath`]). The datapath keeps counts, estimates and the times of the last probes. A
/// response that it passes in addition counts for liveness only.
///
/// **The driver** passes arrivals, and a reading if the datapath measures or rides, before a tick that is due. A
/// response still in the driver's queue during the tick counts as missing.
///
/// **Late ticks.** The path did not lose what a busy host did not send. If the tick of a request is late by more than
/// T_KA/4, time-outs move by the same amount. A time-out that expired before a late tick, or is about to, is deferred
/// once until T_KA/4 after the tick, for answers that wait in a queue.
///
/// **Switched off** ([`ClientInput::Switch`]), the client stops sending once it has received an answer, and the state
/// is frozen.
///
/// **Only the downlink.** If requests do not arrive, the server sends unsolicited responses, the first one 1.5·T_KA
/// after the last request (2.5·T_KA with rides). They keep [`heard`](Client::heard) true. Its time-out is the same but
/// at least 2·T_KA, so that with K = 1 the first one arrives in time. Unsolicited responses carry no other information,
/// because the fields that they echo are old.
///
/// **Replays.** Responses repeat the client's own numbers, and a restarted server has other keys. An old number is
/// therefore a replay and proves nothing.
///
/// There are at most eight outputs per input or tick.
#[derive(Clone, Debug)]
pub struct Client {
    config: Config,
    state: State,
    heard: bool,
    /// Start of this client. Answers to earlier requests belong to a previous client.
    epoch: Time,
    schedule: Schedule,
    /// Time of the next reading while the requests ride and the datapath watches the rides.
    carried: Option<Time>,
    /// Number of the last request.
    seq: u32,
    /// Start of the round-trip time-out.
    alive: Time,
    /// Start of both time-outs after a change of settings deferred them.
    fresh: Time,
    /// Start of the downlink's time-out.
    last_heard: Time,
    /// The period stated by the last unsolicited response; zero before the first one and after a response. The server
    /// keeps it if a later change of settings does not reach it.
    unsolicited_t_ka: Span,
    /// The longest T_KA since the last answer. The server may not know a newer one, and would use this one.
    known_t_ka: Span,
    /// When the settings last changed.
    configured: Time,
    echo: Echo,
    responses: SeqWindow,
    unsolicited: SeqWindow,
    run: Run,
    measure: Measure,
    bursts: Bursts,
    round_trips: Counted,
    /// Counts of the last reading.
    taken: LastCounts,
    excuse: Excuse,
    doubt: Kept,
    on: bool,
    /// Whether any response has ever arrived.
    answered: bool,
    /// The round-trip loss that the next request reports ([`Mode::RoundTripLoss`]).
    unreported: Option<f64>,
    gives_samples: bool,
    sampled: bool,
    outputs: VecDeque<ClientOutput>,
}

/// Fields that the next request echoes from the last response.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    t_ss: u32,
    ss: u32,
    r: u32,
    held_since: u32,
}

/// Counts of the last reading, and their values at the last change of state.
#[derive(Clone, Copy, Debug, Default)]
struct LastCounts {
    sent: u32,
    rode: u32,
    received: u32,
    marked: u32,
}

impl LastCounts {
    /// Starts a new count of consecutive answers.
    fn mark(&mut self) {
        self.marked = self.received;
    }
}

impl Client {
    /// A client in [`State::Starting`] that sends its first request at the first tick. `jitter_seed` fixes the random
    /// shift of its requests; paths of one host should use different seeds.
    #[must_use]
    pub fn new(config: Config, now: Time, jitter_seed: u64) -> Client {
        let config = config.sane();
        Client {
            config,
            state: State::Starting,
            heard: false,
            epoch: now,
            schedule: Schedule::new(now, jitter_seed),
            carried: None,
            seq: 0,
            alive: now,
            fresh: Time::ZERO,
            last_heard: now,
            unsolicited_t_ka: Span::ZERO,
            known_t_ka: Span::ZERO,
            configured: Time::ZERO,
            echo: Echo::default(),
            responses: SeqWindow::new(),
            unsolicited: SeqWindow::new(),
            run: Run::default(),
            measure: Measure::default(),
            bursts: Bursts::new(),
            round_trips: Counted::default(),
            taken: LastCounts::default(),
            excuse: Excuse::default(),
            doubt: Kept::default(),
            on: true,
            answered: false,
            unreported: None,
            gives_samples: true,
            sampled: false,
            outputs: VecDeque::new(),
        }
    }

    /// Disables [`ClientOutput::Sample`], for a caller that needs only the estimates and
    /// [`take_sampled`](Client::take_sampled).
    #[must_use]
    pub fn without_samples(self) -> Client {
        Client { gives_samples: false, ..self }
    }

    /// Whether there was a sample since the last call.
    pub fn take_sampled(&mut self) -> bool {
        core::mem::take(&mut self.sampled)
    }

    /// Notes a sample.
    fn give(&mut self, sample: Sample) {
        self.sampled = true;
        if self.gives_samples {
            self.outputs.push_back(ClientOutput::Sample(sample));
        }
    }

    /// State of the round trip.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// State of the downlink: whether anything has arrived within the time-out.
    #[must_use]
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Arrival time of the last response; the start before the first.
    #[must_use]
    pub fn last_response(&self) -> Time {
        self.alive
    }

    /// This end's estimates of the path.
    #[must_use]
    pub fn estimates(&self) -> &Estimates {
        &self.measure.estimates
    }

    /// Mean length of a burst of lost probes, in probes; `None` after too few bursts.
    #[must_use]
    pub fn burst(&self) -> Option<f64> {
        self.bursts.mean(self.config.t_ka)
    }

    /// Requests up to the last one answered, and answers. The difference was lost in one of the two directions.
    #[must_use]
    pub fn round_trips(&self) -> Counted {
        self.round_trips
    }

    /// Packets of both directions, up and down. If packets are not counted, round trips replace the uplink's count.
    #[must_use]
    pub fn counted(&self) -> [Counted; 2] {
        match self.measure.estimates {
            Estimates { up, down, .. } if up.sent + down.sent > 0 => [up, down],
            _ => [self.round_trips, Counted::default()],
        }
    }

    /// Returns all outputs that [`poll`](Machine::poll) would return one by one. Frees the queue's memory: of a
    /// caller's very many paths, only a few are active at a time.
    #[must_use]
    pub fn take_outputs(&mut self) -> VecDeque<ClientOutput> {
        core::mem::take(&mut self.outputs)
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When the next request is due if none rides before; `None` while switched off.
    #[must_use]
    pub fn next_request(&self) -> Option<Time> {
        self.runs().then_some(self.schedule.next)
    }

    /// Moves the grid of requests to one with a point at `point`, so that the caller wakes once for several paths with
    /// the same period. The next request moves forward by at most half of T_KA, so that it does not overtake the
    /// previous one if the delay varies. Larger shifts take several calls, one per request.
    pub fn align(&mut self, now: Time, point: Time) {
        self.schedule.align(now, point, self.config.t_ka);
    }

    fn on_response(&mut self, now: Time, arrival: &Arrival) {
        self.look(now);
        let probe = &arrival.probe;
        // This client never sent this number: the answer belongs to a previous client. It proves only that the downlink
        // works.
        let behind = u64::from(self.seq.wrapping_sub(probe.seq));
        if !fault(34) && self.numbers() && behind >= self.measure.estimates.sent.min(1 << 31) {
            self.on_heard(now, arrival.at);
            return;
        }
        let order = self.responses.observe_once(probe.seq);
        let readings = self.config.measured_by == MeasuredBy::PacketPath;
        if !readings {
            self.measure.count(order);
        }
        if matches!(order, Order::Duplicate | Order::Stale) {
            return;
        }
        self.unsolicited_t_ka = Span::ZERO;
        self.on_heard(now, arrival.at);
        self.on_alive(arrival.at.min(now));
        let run = if order == Order::Late { 0 } else { self.run.push(probe.seq) };
        self.on_answer(now, run);
        if !readings {
            self.sample(arrival, order);
        }
        if self.state == State::Up {
            self.measure.is_up();
        }
    }

    /// Maximum length of a run of lost probes that counts as a burst; a longer run is an outage.
    fn longest_burst(&self) -> u32 {
        u32::from(self.config.k) * 4
    }

    /// Whether this machine numbers the requests. If requests ride or the datapath measures, the datapath numbers them
    /// and rejects answers to numbers that it never sent.
    fn numbers(&self) -> bool {
        self.config.measured_by == MeasuredBy::Machine && !self.config.rides
    }

    /// Updates the averages from a new response.
    fn sample(&mut self, arrival: &Arrival, order: Order) {
        let (probe, at) = (&arrival.probe, arrival.at);
        let scale = Scale { taus: &self.config.taus, pace: self.config.pace() };
        let mut sample = Sample {
            at,
            seq: probe.seq,
            rtt: client_rtt(arrival, self.epoch),
            owl_up: None,
            owl_down: None,
            rtl: self.measure.rtl(scale, at),
            uncertainty: arrival.uncertainty,
        };
        if let Some(rtt) = sample.rtt {
            self.measure.rtt(scale, at, rtt);
            self.measure.estimates.uncertainty = arrival.uncertainty;
        }
        if sample.rtl.is_some() {
            self.unreported = sample.rtl;
        }
        if order != Order::Late {
            let later = i64::from(self.seq.wrapping_sub(probe.seq).cast_signed());
            let Estimates { sent, received, .. } = self.measure.estimates;
            self.round_trips = Counted { sent: sent.saturating_add_signed(-later), received };
            self.bursts.on_answer(probe.seq, self.longest_burst(), self.config.t_ka);
            self.echo = Echo {
                t_ss: probe.t_ss,
                ss: probe.ss,
                r: arrival.received,
                held_since: at.micros32(),
            };
        }
        if order != Order::Late && self.config.mode != Mode::RoundTripLoss {
            let (question, down) = (arrival.question, (probe.ss, arrival.received));
            sample.owl_down = self.measure.down(scale, (at, at), down, question);
            if echo_age(at, probe.t_sc, self.epoch).is_some() {
                sample.owl_up = self.measure.up(scale, at, (probe.sc, probe.r), question);
            }
        }
        if !sample.is_empty() {
            self.give(sample);
        }
    }

    fn on_unsolicited(&mut self, now: Time, arrival: &Arrival) {
        self.look(now);
        let probe = &arrival.probe;
        let order = self.unsolicited.observe_once(probe.seq);
        if self.config.measured_by == MeasuredBy::Machine {
            self.measure.count_aside(order);
        }
        if matches!(order, Order::Duplicate | Order::Stale) {
            return;
        }
        self.unsolicited_t_ka = Span::from_millis(u64::from(probe.t_ka_ms));
        self.on_heard(now, arrival.at);
    }

    fn on_heard(&mut self, now: Time, at: Time) {
        self.last_heard = self.last_heard.max(at.min(now));
        self.excuse.ends(TimeOut::Unheard);
        if !self.heard {
            self.heard = true;
            self.outputs.push_back(ClientOutput::Heard(true));
        }
    }

    /// A response arrived at `at`.
    fn on_alive(&mut self, at: Time) {
        self.answered = true;
        // An answer to a request sent before the last change proves nothing about the new settings.
        if at.since(self.configured) > self.last_rtt() {
            self.known_t_ka = self.config.t_ka;
        }
        if at > self.alive {
            self.alive = at;
            self.excuse.on_answer(at);
            if !fault(23) {
                self.excuse.ends(TimeOut::Down);
            }
        }
    }

    /// Handles answers to the last `run` consecutive requests.
    fn on_answer(&mut self, now: Time, run: u8) {
        if self.state == State::Down {
            self.on_sign_of_life(now);
        }
        match self.state {
            State::Starting => self.enter(State::Up),
            State::Down if run >= self.config.up_after => self.enter(State::Up),
            State::Down | State::Up => {}
        }
    }

    fn go_down(&mut self, now: Time) {
        self.measure.declare(now);
        self.enter(State::Down);
    }

    fn enter(&mut self, state: State) {
        if self.state != State::Starting || state == State::Down {
            self.measure.estimates.transitions += 1;
        }
        self.state = state;
        self.run = Run::default();
        self.forget_doubt();
        self.taken.mark();
        self.outputs.push_back(ClientOutput::State(state));
    }

    fn on_reconfigure(&mut self, now: Time, config: Config) {
        self.land(now);
        self.excuse_lateness(now);
        let config = config.sane();
        let old_down_at = self.down_at();
        // The period that the server expects: an announcement may be in progress.
        let told = self.schedule.announce.map_or(self.config.t_ka, |(t_ka, _)| t_ka);
        let slower = config.t_ka > told;
        self.known_t_ka = self.known_t_ka.max(self.config.t_ka);
        self.configured = now;
        self.config = config;
        if let Some(old_down_at) = old_down_at {
            self.rebase(now, old_down_at);
        }
        self.schedule.hasten(self.config.t_ka);
        self.schedule.announce = slower.then_some((told, self.config.k));
    }

    /// Whether requests are sent and time-outs run. While switched off, only until the first answer.
    fn runs(&self) -> bool {
        self.on || !self.answered
    }

    fn run_timers(&mut self, now: Time) {
        if !self.runs() || self.carried.is_some() {
            return;
        }
        self.excuse_lateness(now);
        if self.schedule.last.is_some() && self.down_at().is_some_and(|at| now >= at) {
            self.go_down(now);
        }
        if self.unheard_at().is_some_and(|at| now >= at) {
            self.heard = false;
            self.outputs.push_back(ClientOutput::Heard(false));
        }
        if now < self.schedule.next {
        } else if self.config.rides
            && self.state == State::Up
            && self.schedule.rode(now, self.schedule.period(self.config.t_ka))
        {
            self.schedule.advance(now, self.config.t_ka);
        } else {
            self.send(now, false);
        }
        self.run_doubt(now);
    }

    /// Sends a request. A `question` does not move the grid: see [`Request::question`].
    fn send(&mut self, now: Time, question: bool) {
        if self.schedule.last.is_none() {
            self.alive = self.alive.max(now);
        }
        self.evaluate_at_sending(now);
        self.schedule.advance(now, self.config.t_ka);
        self.schedule.last = Some(now);
        self.seq = self.seq.wrapping_add(1);
        if self.config.measured_by == MeasuredBy::Machine {
            self.measure.estimates.sent += 1;
        }
        let probe = Probe {
            seq: self.seq,
            t_ss: self.echo.t_ss,
            ss: self.echo.ss,
            r: self.echo.r,
            t_ka_ms: stated_ms(self.config.t_ka),
            ..Probe::default()
        };
        let report = self.report();
        let probe = report.map_or(probe, |report| report.pack(probe));
        let held_since = self.echo.held_since;
        let request = Request { probe, held_since, report: report.is_some(), question };
        self.outputs.push_back(ClientOutput::SendRequest(request));
    }

    /// The report that the mode requires for the next request; `None` before the first loss interval has ended.
    fn report(&mut self) -> Option<ProbeReport> {
        let e = &self.measure.estimates;
        match self.config.mode {
            Mode::Both | Mode::Client => None,
            Mode::Reports => {
                e.rtl.first().map(|rtl| ProbeReport::new(*rtl, e.rtt_ewma.first().copied()))
            }
            Mode::RoundTripLoss => self.unreported.take().map(|rtl| ProbeReport::new(rtl, None)),
        }
    }

    fn on_ask(&mut self, now: Time) {
        if self.runs() {
            self.excuse_lateness(now);
            self.schedule.hasten_to(now);
            self.send(now, false);
        }
    }

    fn on_switch(&mut self, now: Time, on: bool) {
        self.land(now);
        if on && !self.on {
            self.schedule.restart(now);
            self.alive = self.alive.max(now);
            self.last_heard = self.last_heard.max(now);
            self.excuse = Excuse::default();
            self.run = Run::default();
            self.taken.mark();
        }
        self.forget_doubt();
        self.on = on;
    }
}

impl Machine for Client {
    type Input = ClientInput;
    type Output = ClientOutput;

    fn handle(&mut self, now: Time, input: ClientInput) {
        // Arrivals come before timers: a late tick must not overrule a response that arrived in time.
        match input {
            ClientInput::Response(arrival) => self.on_response(now, &arrival),
            ClientInput::Unsolicited(arrival) => self.on_unsolicited(now, &arrival),
            ClientInput::Reading(reading) => self.on_reading(now, reading),
            ClientInput::Ask => self.on_ask(now),
            ClientInput::Recount => self.on_recount(now),
            ClientInput::Switch(on) => self.on_switch(now, on),
            ClientInput::Reconfigure(config) => self.on_reconfigure(now, config),
        }
        self.run_timers(now);
    }

    fn tick(&mut self, now: Time) {
        self.on_tick(now);
        self.run_timers(now);
    }

    fn poll(&mut self) -> Option<ClientOutput> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Deadline {
        if let Some(look_at) = self.carried {
            return Some((look_at, "a look at what rides"));
        }
        let request = self.runs().then_some((self.schedule.next, "request due"));
        let down = self.down_at().map(|at| (at, "no response within T_TO"));
        let unheard = self.unheard_at().map(|at| (at, "nothing heard within T_TO"));
        earlier(earlier(request, down), earlier(unheard, self.doubt_deadline()))
    }
}
