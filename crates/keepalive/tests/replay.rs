//! What an attacker can do who has recorded valid packets of a path and sends them again.

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Arrival, Client, ClientInput, ClientOutput, Config, State};
use segue_wire::Probe;

const T_KA: Span = Span::from_millis(100);
/// Answers that the attacker has recorded: more than any window remembers.
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
    Arrival { probe, at, received: probe.seq, sent_at: None, uncertainty: Span::ZERO }
}

/// Ticks whatever is due until `until`.
fn idle(client: &mut Client, until: Time) -> Vec<Probe> {
    let mut requests = Vec::new();
    while let Some((at, _)) = client.deadline().filter(|(at, _)| *at <= until) {
        requests.extend(handle(client, at, ClientInput::Tick));
    }
    requests
}

/// A client that has had an answer to each of its requests, and those answers.
fn alive() -> (Client, Time, Vec<Probe>) {
    let mut client = Client::new(config(), Time::ZERO, 1);
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
    // Modulo 2³² µs a stamp of 40 minutes ago is newer than that of now.
    let old = Probe { seq: 10, t_ss: 5u32.wrapping_sub(40 * 60_000_000), ..Probe::default() };
    now += Span::from_secs(1);
    idle(&mut client, now);
    assert!(!client.heard());
    handle(&mut client, now, ClientInput::Unsolicited(arrival(old, now)));
    assert!(!client.heard());
}
