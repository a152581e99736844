//! The server's end of a path: evaluates the requests that arrive.

use alloc::collections::VecDeque;

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_wire::{Mode, Probe, ProbeReport};

mod reading;

use crate::config::{MeasuredBy, stated_ms};
use crate::counts::Run;
use crate::loss::Pace;
use crate::measure::{Measure, Scale};
use crate::rtt::{echo_age, gap_us, server_rtt};
use crate::seq::{Order, SeqWindow};
use crate::{Arrival, Config, Estimates, Request, Sample, ServerInput, ServerOutput, State};
use segue_clock::planted::fault;

/// How long after the last request the server sends unsolicited responses. By then the client has learned about the
/// fault over another path, or is gone.
pub const UNSOLICITED_FOR: Span = Span::from_secs(30);

/// The server of one path. The datapath answers requests; this machine evaluates them.
///
/// **Uplink.** The path is down if no request has arrived for (K + ½)·T_KA. K and T_KA are those of the last request,
/// or the configured ones if it did not state them. Like the client's condition, this means K lost probes, with half a
/// period for jitter. The client's very first request brings the path up; afterwards `up_after` consecutive requests
/// are necessary.
///
/// With rides ([`Config::rides`]) requests are up to 2·T_KA apart, and two requests that are K apart are up to
/// (K + 1)·T_KA apart, so the time-out is (K + 1½)·T_KA.
///
/// **The client's own silence.** A server does not know why no requests arrive. The first request after going down
/// shows it: if fewer than K numbers are missing, and if by its t_Sc the client sent nothing for at least the time-out,
/// the client was silent and the path was not at fault. The server counts these cases (`client_silent`).
///
/// **Modes.** [`Mode::Client`]: the server keeps no estimates and no timer; [`heard`](Server::heard) is true after the
/// first request, and the path never goes down. [`Mode::Reports`]: it has the timer, and adopts the client's averages.
/// [`Mode::RoundTripLoss`]: it measures the RTT, and averages the losses that the client reports.
///
/// **Readings** ([`MeasuredBy::PacketPath`]). As for the client. The datapath fills in the fields that an unsolicited
/// response echoes from the last request.
///
/// **Unsolicited responses.** They start 1.5·T_KA (2.5·T_KA with rides) after the last request, but not within T_KA/4
/// after reading one, and leave every T_KA for at most [`UNSOLICITED_FOR`]. They show a client with a dead uplink that
/// its downlink works.
///
/// There are at most four outputs per input or tick.
#[derive(Clone, Debug)]
pub struct Server {
    config: Config,
    state: State,
    sends_unsolicited: bool,
    gives_samples: bool,
    /// K and T_KA in force.
    k: u8,
    t_ka: Span,
    /// Start of the use of the client's counters and echoes: its first request, or its first one after a restart.
    epoch: Time,
    last: Option<LastRequest>,
    /// Start of the time-out.
    alive: Time,
    next_unsolicited: Option<Time>,
    unsolicited_seq: u32,
    requests: SeqWindow,
    run: Run,
    measure: Measure,
    /// The last reading.
    taken: reading::LastCounts,
    on: bool,
    /// The client reported that it hears nothing.
    deaf: bool,
    outputs: VecDeque<ServerOutput>,
}

/// Fields that an unsolicited response echoes from the last request.
#[derive(Clone, Copy, Debug)]
struct LastRequest {
    at: Time,
    seq: u32,
    t_sc: u32,
    sc: u32,
}

impl Server {
    /// A server in [`State::Starting`]; `unsolicited` enables unsolicited responses.
    #[must_use]
    pub fn new(config: Config, now: Time, unsolicited: bool) -> Server {
        let config = config.sane();
        Server {
            state: State::Starting,
            sends_unsolicited: unsolicited,
            gives_samples: true,
            k: config.k,
            t_ka: config.t_ka,
            config,
            epoch: now,
            last: None,
            alive: now,
            next_unsolicited: None,
            unsolicited_seq: 0,
            requests: SeqWindow::new(),
            run: Run::default(),
            measure: Measure::default(),
            taken: reading::LastCounts::default(),
            on: true,
            deaf: false,
            outputs: VecDeque::new(),
        }
    }

    /// Disables [`ServerOutput::Sample`], for a caller with very many paths that needs only the estimates.
    #[must_use]
    pub fn without_samples(self) -> Server {
        Server { gives_samples: false, ..self }
    }

    /// State of the uplink.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether requests arrive; see [`crate::Client::heard`] for the other direction.
    #[must_use]
    pub fn heard(&self) -> bool {
        self.state == State::Up
    }

    /// Arrival time of the last request; `None` before the first.
    #[must_use]
    pub fn last_request(&self) -> Option<Time> {
        self.last.map(|last| last.at)
    }

    /// This end's estimates of the path.
    #[must_use]
    pub fn estimates(&self) -> &Estimates {
        &self.measure.estimates
    }

    /// Returns all outputs that [`poll`](Machine::poll) would return one by one. Frees the queue's memory: of a
    /// caller's very many paths, only a few are active at a time.
    #[must_use]
    pub fn take_outputs(&mut self) -> VecDeque<ServerOutput> {
        core::mem::take(&mut self.outputs)
    }

    /// This end's settings. The client's K and T_KA override them: [`in_force`](Server::in_force).
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// K and T_KA that the last request stated.
    #[must_use]
    pub fn in_force(&self) -> (u8, Span) {
        (self.k, self.t_ka)
    }

    fn on_request(&mut self, now: Time, arrival: &Arrival, k: u8, report: bool) {
        let probe = &arrival.probe;
        if self.config.mode == Mode::Client {
            self.on_sign_of_any(k, probe.t_ka_ms);
            return;
        }
        let order = self.requests.observe(probe.seq, Some(probe.t_sc));
        let measures = self.config.measured_by == MeasuredBy::Machine;
        if measures {
            self.measure.count(order);
        }
        if matches!(order, Order::Duplicate | Order::Stale) {
            return;
        }
        let first = self.last.is_none();
        if first || order == Order::Restart {
            self.epoch = arrival.at;
            self.measure.restart();
        }
        let at = arrival.at.min(now);
        self.alive = self.alive.max(at);
        if order != Order::Late {
            if self.state == State::Down && order == Order::Newest {
                self.judge_silence(probe);
            }
            self.adopt(k, probe.t_ka_ms);
            self.last = Some(LastRequest { at, seq: probe.seq, t_sc: probe.t_sc, sc: probe.sc });
            self.expect_next(now, at);
        } else if fault(18) {
            self.adopt(k, probe.t_ka_ms);
        }
        let run = if order == Order::Late { 0 } else { self.run.push(probe.seq) };
        self.on_sign_of_life(run, first);
        if measures {
            self.sample(arrival, order, report);
        }
        match self.state {
            State::Up if self.deaf => self.measure.is_up_one_way(),
            State::Up => self.measure.is_up(),
            State::Starting | State::Down => {}
        }
    }

    /// Handles a request if only the client measures: keeps the stated settings and the fact that requests arrive.
    pub(super) fn on_sign_of_any(&mut self, k: u8, t_ka_ms: u16) {
        self.adopt(k, t_ka_ms);
        if self.state != State::Up {
            self.enter(State::Up);
        }
    }

    /// Schedules an unsolicited response in case no request follows the one that arrived at `at`. Never immediately,
    /// even if `at` is long ago: after a late read, more requests may wait in the queue.
    fn expect_next(&mut self, now: Time, at: Time) {
        let wait = self.t_ka + self.t_ka.half() + self.ride_wait();
        let sends = self.on && self.sends_unsolicited;
        self.next_unsolicited = sends.then(|| (at + wait).max(now + Span(self.t_ka.0 / 4)));
    }

    /// How much later requests may arrive with rides.
    fn ride_wait(&self) -> Span {
        if self.config.rides && !fault(16) { self.t_ka } else { Span::ZERO }
    }

    /// Counts the going down that this request ends if the client's own silence caused it.
    fn judge_silence(&mut self, probe: &Probe) {
        let Some(last) = self.last else { return };
        let missing = probe.seq.wrapping_sub(last.seq).saturating_sub(1);
        let Some(gap) = gap_us(probe.t_sc, last.t_sc) else { return };
        if missing < u32::from(self.k) && Span::from_micros(u64::from(gap)) >= self.time_out() {
            self.measure.estimates.client_silent += 1;
        }
    }

    /// Adopts K and T_KA from a request, and the configured ones in place of unstated ones.
    fn adopt(&mut self, k: u8, t_ka_ms: u16) {
        self.k = if k == 0 { self.config.k } else { k };
        self.t_ka = match t_ka_ms {
            0 => self.config.t_ka,
            ms => Span::from_millis(u64::from(ms)),
        };
    }

    /// Handles `run` consecutive requests up to the last one.
    fn on_sign_of_life(&mut self, run: u8, first: bool) {
        match self.state {
            State::Starting => self.enter(State::Up),
            State::Down if first || run >= self.config.up_after => self.enter(State::Up),
            State::Down | State::Up => {}
        }
    }

    fn sample(&mut self, arrival: &Arrival, order: Order, report: bool) {
        let (probe, at) = (&arrival.probe, arrival.at);
        let pace = Pace { t_ka: self.t_ka, ..self.config.pace() };
        let scale = Scale { taus: &self.config.taus, pace };
        let mut sample = Sample {
            at,
            seq: probe.seq,
            rtt: None,
            owl_up: None,
            owl_down: None,
            rtl: None,
            uncertainty: arrival.uncertainty,
        };
        let report = report.then(|| ProbeReport::unpack(probe));
        match (self.config.mode, report) {
            (Mode::Reports, Some(report)) => {
                sample.rtt = self.measure.adopt(report);
                sample.rtl = Some(report.rtl());
            }
            (Mode::Reports | Mode::Client, _) => {}
            (Mode::Both | Mode::RoundTripLoss, _) => {
                sample.rtt = server_rtt(arrival, self.epoch);
                if let Some(rtt) = sample.rtt {
                    self.measure.rtt(scale, at, rtt);
                    self.measure.estimates.uncertainty = arrival.uncertainty;
                }
            }
        }
        if let (Mode::RoundTripLoss, Some(report)) = (self.config.mode, report) {
            self.measure.reported_rtl(scale, at, report.rtl());
            sample.rtl = Some(report.rtl());
        }
        if self.config.mode == Mode::Both && order != Order::Late {
            let up = (probe.sc, arrival.received);
            sample.owl_up = self.measure.up(scale, at, up, arrival.question);
            // Before the first response the client has nothing to echo. Echoes from before the epoch belong to other
            // counters. A report replaces the echo.
            let echoes = report.is_none() && (probe.t_ss != 0 || probe.ss != 0);
            let age = echo_age(at, probe.t_ss, self.epoch).filter(|_| echoes);
            if let Some(age) = age {
                let of = at - age;
                let down = (probe.ss, probe.r);
                sample.owl_down = self.measure.down(scale, (at, of), down, arrival.question);
            }
        }
        if self.gives_samples && !sample.is_empty() {
            self.outputs.push_back(ServerOutput::Sample(sample));
        }
    }

    fn enter(&mut self, state: State) {
        if self.state != State::Starting || state == State::Down {
            self.measure.estimates.transitions += 1;
        }
        self.state = state;
        self.run = Run::default();
        self.taken.mark();
        self.outputs.push_back(ServerOutput::State(state));
    }

    fn on_reconfigure(&mut self, config: Config) {
        self.config = config.sane();
        if self.last.is_none() {
            self.k = self.config.k;
            self.t_ka = self.config.t_ka;
        }
    }

    fn time_out(&self) -> Span {
        let k = if fault(29) { self.k + 2 } else { self.k };
        self.t_ka * u64::from(k) + self.t_ka.half() + self.ride_wait()
    }

    fn down_at(&self) -> Option<Time> {
        let runs = self.on && self.config.mode != Mode::Client && self.state != State::Down;
        runs.then(|| self.alive + self.time_out())
    }

    fn on_switch(&mut self, now: Time, on: bool) {
        if on && !self.on {
            self.alive = self.alive.max(now);
            self.run = Run::default();
            self.taken.mark();
        }
        if !on {
            self.next_unsolicited = None;
        }
        self.on = on;
    }

    fn on_deaf(&mut self, now: Time, deaf: bool) {
        self.deaf = deaf;
        match self.state {
            State::Up if deaf => self.measure.declare_deaf(now),
            State::Up => self.measure.hears(),
            State::Starting | State::Down => {}
        }
    }

    fn run_timers(&mut self, now: Time) {
        if self.down_at().is_some_and(|at| now >= at) {
            self.measure.declare_at_server(now);
            self.enter(State::Down);
        }
        let (Some(due), Some(last)) = (self.next_unsolicited, self.last) else { return };
        if now < due {
            return;
        }
        let missed = now.since(due).0 / self.t_ka.0.max(1);
        let next = due + self.t_ka * (missed + 1);
        let end = last.at + UNSOLICITED_FOR;
        self.next_unsolicited = (next <= end).then_some(next);
        if now <= end {
            self.send_unsolicited(last);
        }
    }

    fn send_unsolicited(&mut self, last: LastRequest) {
        self.unsolicited_seq = self.unsolicited_seq.wrapping_add(1);
        if self.config.measured_by == MeasuredBy::Machine {
            self.measure.estimates.sent += 1;
        }
        let probe = Probe {
            seq: self.unsolicited_seq,
            t_sc: last.t_sc,
            sc: last.sc,
            t_ka_ms: stated_ms(self.t_ka),
            ..Probe::default()
        };
        let request =
            Request { probe, held_since: last.at.micros32(), report: false, question: false };
        self.outputs.push_back(ServerOutput::SendUnsolicited(request));
    }
}

impl Machine for Server {
    type Input = ServerInput;
    type Output = ServerOutput;

    fn handle(&mut self, now: Time, input: ServerInput) {
        match input {
            ServerInput::Request { arrival, k, report } => {
                self.on_request(now, &arrival, k, report);
            }
            ServerInput::Reading(reading) => self.on_reading(now, reading),
            ServerInput::Switch(on) => self.on_switch(now, on),
            ServerInput::Deaf(deaf) => self.on_deaf(now, deaf),
            ServerInput::Reconfigure(config) => self.on_reconfigure(config),
        }
        self.run_timers(now);
    }

    fn tick(&mut self, now: Time) {
        self.run_timers(now);
    }

    fn poll(&mut self) -> Option<ServerOutput> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let down = self.down_at().map(|at| (at, "no request within T_TO"));
        let unsolicited = self.next_unsolicited.map(|at| (at, "unsolicited response due"));
        earlier(down, unsolicited)
    }
}
