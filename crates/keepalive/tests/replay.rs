//! Attacks that replay a path's recorded valid packets.

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{
    Arrival, Asking, Client, ClientInput, ClientOutput, Config, Reading, State, Traffic,
};
use segue_wire::Probe;

const T_KA: Span = Span::from_millis(100);
/// Number of answers that the attacker has recorded: more than any window remembers.
const RECORDED: u32 = 200;

fn config() -> Config {
    Config { k: 3, t_ka: T_KA, ..Config::default() }
}

fn drain(client: &mut Client) -> Vec<Probe> {
    let mut requests = Vec::new();
    while let Some(output) = client.poll() {
        if let ClientOutput::SendRequest(request) = output {
            requests.push(request.probe);
        }
    }
    requests
}

fn handle(client: &mut Client, now: Time, input: ClientInput) -> Vec<Probe> {
    client.handle(now, input);
    drain(client)
}

fn arrival(probe: Probe, at: Time) -> Arrival {
    Arrival::new(probe, at, probe.seq)
}

/// Runs all ticks that are due until `until`.
fn idle(client: &mut Client, until: Time) -> Vec<Probe> {
    let mut requests = Vec::new();
    while let Some((at, _)) = client.deadline().filter(|(at, _)| *at <= until) {
        client.tick(at);
        requests.extend(drain(client));
    }
    requests
}

/// A client with an answer to each of its requests, and those answers.
fn alive() -> (Client, Time, Vec<Probe>) {
    alive_with(config())
}

fn alive_with(config: Config) -> (Client, Time, Vec<Probe>) {
    let mut client = Client::new(config, Time::ZERO, 1);
    let mut answers = Vec::new();
    let mut now = Time::ZERO;
    while answers.len() < RECORDED as usize {
        now = client.deadline().map_or(now, |(at, _)| at);
        for request in idle(&mut client, now) {
            now += Span::from_millis(1);
            let answer = Probe { t_sc: now.micros32(), t_ss: 1 + request.seq, ..request };
            handle(&mut client, now, ClientInput::Response(arrival(answer, now)));
            answers.push(answer);
        }
    }
    assert_eq!((client.state(), client.heard()), (State::Up, true));
    (client, now, answers)
}

#[test]
fn recorded_answers_do_not_keep_a_dead_path_up() {
    let (mut client, mut now, answers) = alive();
    for answer in answers.iter().take(50) {
        now += T_KA;
        idle(&mut client, now);
        handle(&mut client, now, ClientInput::Response(arrival(*answer, now)));
    }
    assert_eq!((client.state(), client.heard()), (State::Down, false));
    assert_eq!(client.estimates().received, u64::from(RECORDED));
}

#[test]
fn delayed_answers_keep_a_path_up_and_are_measured_as_late_as_they_come() {
    let (mut client, mut now, _) = alive();
    // Longer than the time-out, so that several are in flight simultaneously.
    let delay = T_KA * 8;
    let (mut under_way, mut seen) = (std::collections::VecDeque::new(), 0);
    for _ in 0..600 {
        now += T_KA.half();
        for request in idle(&mut client, now) {
            under_way.push_back((now + delay, Probe { t_sc: now.micros32(), t_ss: 7, ..request }));
        }
        while under_way.front().is_some_and(|(at, _)| *at <= now) {
            let (_, answer) = under_way.pop_front().unwrap();
            handle(&mut client, now, ClientInput::Response(arrival(answer, now)));
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
    // It goes down once, when the delay begins, and recovers.
    assert_eq!((client.state(), client.estimates().transitions), (State::Up, 2));
    assert_eq!(client.estimates().rtt_last, Some(delay));
}

/// Applications at both ends send, the uplink is dead, and an attacker with the path's cookie sends data to the host
/// with forged ages. `forged` returns the time at which the anchor supposedly last heard the host.
fn with_forged_ages(forged: impl Fn(Time) -> Option<Time>, answers: bool) -> State {
    let doubt = Some(Asking { k: 3, spacing: Span::from_millis(8) });
    let (mut client, start, _) = alive_with(Config { doubt, ..config() });
    let (mut now, mut received) = (start, 0);
    while now < start + Span::from_secs(5) {
        now += Span::from_millis(4);
        received += 1;
        let traffic = Traffic {
            sent_at: Some(now),
            received_at: Some(now),
            heard_back: forged(now),
            received,
            bytes: 100 * u64::from(received),
        };
        let reading = Reading { at: now, traffic, ..Reading::default() };
        let mut asked = handle(&mut client, now, ClientInput::Reading(reading));
        asked.extend(idle(&mut client, now));
        for request in asked.into_iter().filter(|_| answers) {
            let answer = Probe { t_sc: now.micros32(), t_ss: 1 + request.seq, ..request };
            handle(&mut client, now, ClientInput::Response(arrival(answer, now)));
        }
    }
    client.state()
}

#[test]
fn forged_young_ages_hide_a_dead_uplink_and_forged_old_ones_make_questions_that_are_answered() {
    let young = |now: Time| Some(now - Span::from_millis(5));
    assert_eq!(with_forged_ages(young, false), State::Up);
    // Without forged data the outage is detected.
    assert_eq!(with_forged_ages(|_| None, false), State::Down);
    // Old stamps, or none, do not take a path down that answers.
    let old = |now: Time| Some(now - Span::from_secs(1));
    assert_eq!(with_forged_ages(old, true), State::Up);
    assert_eq!(with_forged_ages(|_| None, true), State::Up);
}

#[test]
fn recorded_unsolicited_responses_do_not_keep_a_dead_downlink_heard() {
    let (mut client, mut now, _) = alive();
    let recorded: Vec<Probe> =
        (1..=RECORDED).map(|seq| Probe { seq, t_ss: seq * 100_000, ..Probe::default() }).collect();
    for probe in &recorded {
        now += T_KA;
        idle(&mut client, now);
        handle(&mut client, now, ClientInput::Unsolicited(arrival(*probe, now)));
    }
    assert_eq!((client.state(), client.heard()), (State::Down, true));
    for probe in recorded.iter().take(50) {
        now += T_KA;
        idle(&mut client, now);
        handle(&mut client, now, ClientInput::Unsolicited(arrival(*probe, now)));
    }
    assert!(!client.heard());
}

#[test]
fn a_recording_whose_stamps_have_wrapped_is_no_newer() {
    let (mut client, mut now, _) = alive();
    let newest = Probe { seq: 1_000, t_ss: 5, ..Probe::default() };
    handle(&mut client, now, ClientInput::Unsolicited(arrival(newest, now)));
    // Modulo 2³² µs, a stamp from 40 minutes ago is newer than the current one.
    let old = Probe { seq: 10, t_ss: 5u32.wrapping_sub(40 * 60_000_000), ..Probe::default() };
    now += Span::from_secs(1);
    idle(&mut client, now);
    assert!(!client.heard());
    handle(&mut client, now, ClientInput::Unsolicited(arrival(old, now)));
    assert!(!client.heard());
}
