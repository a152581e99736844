//! A busy host must not look like a bad path. The client's driver sleeps at random.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::collections::VecDeque;

use common::{at_ms, config, ms};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Config, Estimates, MeasuredBy, Reading, Server,
    ServerInput, State,
};
use segue_wire::Probe;

/// A client on a path without loss that fails at `dies`, with a driver that sometimes sleeps.
struct Host {
    client: Client,
    config: Config,
    rng: Rng,
    rtt: Span,
    dies: Time,
    /// Answers in flight or in the queue, with the kernel's stamps.
    answers: VecDeque<(Time, Probe)>,
    received: u32,
    last: Option<Time>,
    downs: Vec<Time>,
    slept: Span,
    now: Time,
}

impl Host {
    fn new(seed: u64, measured_by: MeasuredBy, dies: Time) -> Host {
        let mut rng = Rng::new(seed);
        let (k, t_ka) = (1 + rng.below(4) as u8, ms(40 + rng.below(400)));
        let config = Config { measured_by, ..config(k, t_ka) };
        Host {
            client: Client::new(config.clone(), Time(0), seed),
            rtt: Span(rng.below(t_ka.0 * 2)),
            config,
            rng,
            dies,
            answers: VecDeque::new(),
            received: 0,
            last: None,
            downs: Vec::new(),
            slept: Span::ZERO,
            now: Time(0),
        }
    }

    /// Runs the driver until `end`. With `sleeps` it sometimes sleeps for 0.1 to 3 s; otherwise it is at most 2 ms
    /// late.
    fn run(&mut self, end: Time, sleeps: bool) {
        while self.now < end {
            let due = self.client.deadline().unwrap().0;
            let answer = self.answers.front().map(|(at, _)| *at);
            let wake = answer.map_or(due, |at| at.min(due)).max(self.now);
            let late = if sleeps && self.rng.chance(0.1) {
                ms(100) + Span(self.rng.below(2_900_000_000))
            } else {
                Span(self.rng.below(2_000_000))
            };
            self.now = wake + late;
            self.slept = self.slept + late;
            self.wake(self.now);
        }
    }

    fn wake(&mut self, now: Time) {
        self.now = now;
        while self.answers.front().is_some_and(|(at, _)| *at <= now) {
            let (at, probe) = self.answers.pop_front().unwrap();
            self.received += 1;
            self.last = Some(at);
            if self.config.measured_by == MeasuredBy::Machine {
                let received = self.received;
                let arrival = Arrival::new(probe, at, received);
                self.handle(now, ClientInput::Response(arrival));
            }
        }
        if self.config.measured_by == MeasuredBy::PacketPath {
            let reading = self.reading(now);
            self.handle(now, ClientInput::Reading(reading));
        }
        self.client.tick(now);
        self.drain(now);
    }

    fn reading(&self, now: Time) -> Reading {
        Reading {
            at: now,
            sent: self.received,
            rode: 0,
            last_sent: None,
            received: self.received,
            last_received: self.last,
            last_heard: self.last,
            watched: None,
            traffic: Default::default(),
            run: self.received.min(255) as u8,
            k: 0,
            t_ka: None,
            estimates: Estimates { rtt_max: self.last.map(|_| self.rtt), ..Estimates::default() },
        }
    }

    fn handle(&mut self, now: Time, input: ClientInput) {
        self.client.handle(now, input);
        self.drain(now);
    }

    fn drain(&mut self, now: Time) {
        while let Some(output) = self.client.poll() {
            match output {
                ClientOutput::SendRequest(request) if now < self.dies => {
                    let probe = Probe { t_sc: now.micros32(), ..request.probe };
                    self.answers.push_back((now + self.rtt, probe));
                }
                ClientOutput::State(State::Down) => self.downs.push(now),
                _ => {}
            }
        }
    }
}

#[test]
fn a_driver_that_sleeps_never_makes_a_living_path_look_down() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..200 {
            let mut host = Host::new(seed, measured_by, Time(u64::MAX));
            host.run(at_ms(120_000), true);
            let (k, t_ka, rtt) = (host.config.k, host.config.t_ka, host.rtt);
            assert!(host.slept > Span::from_secs(5));
            assert_eq!(
                host.downs,
                [],
                "{measured_by:?}, seed {seed}: K {k}, T_KA {t_ka}, RTT {rtt}"
            );
        }
    }
}

#[test]
fn a_dead_path_is_found_by_a_busy_host_later_by_no_more_than_it_slept() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..100 {
            let dies = at_ms(30_000);
            let mut host = Host::new(seed, measured_by, dies);
            host.run(dies - ms(5_000), true);
            let awake = host.now + ms(2_000);
            host.run(awake.max(dies - ms(2_000)), false);
            // The driver falls asleep, and the path fails in the meantime.
            let slept = ms(100) + Span(host.rng.below(2_900_000_000));
            let woken = host.now + slept;
            host.dies = host.now + Span(host.rng.below(slept.0));
            host.wake(woken);
            let bound = host.config.t_r_max(host.rtt);
            host.run(woken + Span::from_secs(60), false);
            assert_eq!(host.downs.len(), 1, "{measured_by:?}, seed {seed}");
            let took = host.downs[0].since(host.dies);
            let late = slept + host.config.t_ka + ms(4);
            assert!(took <= bound + late, "{measured_by:?}, seed {seed}: {took}, {bound}, {slept}");
        }
    }
}

/// Ticks come at multiples of a period other than T_KA, so that requests are always late. After the path fails, ticks
/// either continue like this or become punctual.
#[test]
fn a_driver_that_is_always_late_finds_a_dead_path_after_so_many_requests() {
    let machines = [MeasuredBy::Machine, MeasuredBy::PacketPath];
    for (measured_by, goes_on) in machines.into_iter().flat_map(|m| [(m, false), (m, true)]) {
        for (every, lasts) in [(10, 60_000), (130, 60_000), (150, 600_000), (250, 60_000)] {
            let mut host = Host::new(1, measured_by, at_ms(lasts));
            host.config = config(2, ms(100));
            host.config.measured_by = measured_by;
            host.client = Client::new(host.config.clone(), host.now, 9);
            host.rtt = ms(100);
            while host.now < host.dies {
                host.wake(host.now + ms(every));
            }
            assert_eq!(host.downs, [], "{measured_by:?}, every {every} ms");
            while goes_on && host.now < host.dies + Span::from_secs(10) {
                host.wake(host.now + ms(every));
            }
            host.run(host.dies + Span::from_secs(20), false);
            let took = host.downs.first().map(|at| at.since(host.dies));
            let t_ka = host.config.t_ka.max(ms(every));
            let bound = Config { t_ka, ..host.config.clone() }.t_r_max(host.rtt) + ms(every) * 2;
            let in_time = took.is_some_and(|took| took <= bound);
            assert!(in_time, "{every} ms, goes on {goes_on}: {took:?}, {bound}");
        }
    }
}

/// New settings, or a question, arrive first after a sleep. Requests that were not sent are excused all the same.
#[test]
fn orders_that_come_before_a_late_tick_end_no_excuse() {
    for order in [ClientInput::Reconfigure(config(2, ms(100))), ClientInput::Ask] {
        let mut host = Host::new(1, MeasuredBy::Machine, Time(u64::MAX));
        host.config = config(2, ms(100));
        host.client = Client::new(host.config.clone(), host.now, 9);
        host.rtt = ms(60);
        host.run(at_ms(5_000), false);
        let woken = host.now + ms(1_000);
        host.answers.clear();
        host.handle(woken, order);
        host.now = woken;
        host.run(woken + ms(1_000), false);
        assert_eq!(host.downs, []);
    }
}

#[test]
fn an_answer_that_waits_while_a_late_tick_runs_first_is_still_in_time() {
    let mut client = Client::new(config(1, ms(100)), Time(0), 9);
    let answer = |seq, at| {
        let probe = Probe { seq, ..Probe::default() };
        let received = seq;
        ClientInput::Response(Arrival::new(probe, at, received))
    };
    client.tick(Time(0));
    client.handle(at_ms(10), answer(1, at_ms(10)));
    let second = client.deadline().unwrap().0;
    client.tick(second);
    // The time-out is at 160 ms. The answer arrived 10 ms after the second request, and waits in a queue.
    client.tick(at_ms(190));
    assert_eq!(client.state(), State::Up);
    client.handle(at_ms(190), answer(2, second + ms(10)));
    client.tick(at_ms(200));
    assert_eq!(client.state(), State::Up);
    // The time-out is deferred once, not indefinitely.
    for tick in 21..60 {
        client.tick(at_ms(tick * 10));
    }
    assert_eq!(client.state(), State::Down);
}

/// Passes a request that left at `sent` and arrives at `at`.
fn request(server: &mut Server, seq: u32, sent: Time, at: Time) {
    let probe = Probe { seq, t_sc: sent.micros32(), t_ka_ms: 100, ..Probe::default() };
    let arrival = Arrival::new(probe, at, seq);
    server.handle(at, ServerInput::Request { arrival, k: 3, report: false });
}

#[test]
fn the_first_request_after_a_down_tells_whether_the_client_was_silent() {
    // (number, sending time, arrival) of the first request after the silence; whether the client was silent
    for (seq, sent, at, silent) in [
        (11, 3_000, 3_020, 1), // the client slept
        (12, 3_000, 3_020, 1), // and one request was lost besides
        (31, 3_000, 3_020, 0), // and one request was lost as well
        (11, 1_000, 3_020, 0), // the path held it back
    ] {
        let mut server = Server::new(config(3, ms(100)), Time(0), false);
        for n in 1..=10_u32 {
            let sent = at_ms(u64::from(n) * 100 - 100);
            request(&mut server, n, sent, sent + ms(20));
        }
        server.tick(at_ms(2_500));
        assert_eq!(server.state(), State::Down);
        request(&mut server, seq, at_ms(sent), at_ms(at));
        assert_eq!(server.estimates().client_silent, silent, "request {seq} sent at {sent}");
    }
}
