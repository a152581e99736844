//! Arbitrary probes at arbitrary times cause no panic and no value out of its range.

use proptest::prelude::*;
use segue_clock::{Machine, Span, Time};
use segue_keepalive::rtt::MAX_RTT;
use segue_keepalive::{
    Arrival, Asking, Client, ClientInput, ClientOutput, Config, Estimates, MeasuredBy, Reading,
    Sample, Server, ServerInput, ServerOutput, State, Tau, Traffic,
};
use segue_wire::{Mode, Probe};

/// Counters, stamps and numbers: close to each other, close to a wrap, or arbitrary.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..40, any::<u32>(), (u32::MAX - 40)..=u32::MAX, Just(1 << 31)]
}

fn probe() -> impl Strategy<Value = Probe> {
    (
        proptest::array::uniform7(word()),
        any::<u16>(),
        prop_oneof![Just(0u16), Just(50), any::<u16>()],
    )
        .prop_map(|([seq, t_sc, t_ss, dt, sc, ss, r], heard, t_ka_ms)| Probe {
            seq,
            t_sc,
            t_ss,
            dt,
            sc,
            ss,
            r,
            heard,
            t_ka_ms,
        })
}

/// Time from one input to the next, in nanoseconds.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_000_000u64, Just(0), any::<u64>().prop_map(|n| n >> 16), any::<u64>()]
}

/// A probe, its arrival relative to the present (usually the present), a counter, a stamp.
fn arrival() -> impl Strategy<Value = (Probe, Option<u64>, u32, Option<u64>)> {
    (
        probe(),
        prop_oneof![4 => Just(None), 1 => any::<Option<u64>>()],
        word(),
        prop_oneof![3 => Just(None), 1 => any::<Option<u64>>()],
    )
}

fn build(
    (probe, at, received, sent_at): (Probe, Option<u64>, u32, Option<u64>),
    now: Time,
) -> Arrival {
    Arrival { sent_at: sent_at.map(Time), ..Arrival::new(probe, at.map_or(now, Time), received) }
}

fn config() -> impl Strategy<Value = Config> {
    (
        any::<u8>(),
        prop_oneof![0..1_000_000_000u64, any::<u64>()],
        prop_oneof![0u32..20, any::<u32>()],
        proptest::collection::vec((any::<u64>(), 0..2_000_000_000u64), 0..4),
        any::<(u8, bool, bool, Option<(u8, u64)>)>(),
        proptest::sample::select(vec![MeasuredBy::Machine, MeasuredBy::PacketPath]),
        proptest::sample::select(vec![
            Mode::Both,
            Mode::Client,
            Mode::Reports,
            Mode::RoundTripLoss,
        ]),
    )
        .prop_map(
            |(k, t_ka, n, taus, (up_after, rides, follows_use, doubt), measured_by, mode)| Config {
                k,
                t_ka: Span(t_ka),
                n,
                taus: taus.into_iter().map(|(r, f)| Tau { rise: Span(r), fall: Span(f) }).collect(),
                up_after,
                rides,
                measured_by,
                mode,
                doubt: doubt.map(|(k, spacing)| Asking { k, spacing: Span(spacing) }),
                follows_use,
            },
        )
}

fn check_sample(sample: &Sample) -> Result<(), TestCaseError> {
    for loss in [sample.owl_up, sample.owl_down, sample.rtl].into_iter().flatten() {
        prop_assert!((0.0..=1.0).contains(&loss), "{}", loss);
    }
    prop_assert!(sample.rtt.is_none_or(|rtt| rtt <= MAX_RTT));
    Ok(())
}

fn check_estimates(estimates: &Estimates) -> Result<(), TestCaseError> {
    for loss in estimates.owl_up.iter().chain(&estimates.owl_down).chain(&estimates.rtl) {
        prop_assert!((-1e-9..=1.0 + 1e-9).contains(loss), "{}", loss);
    }
    for rtt in &estimates.rtt_ewma {
        prop_assert!((0.0..=MAX_RTT.as_secs_f64() + 1e-9).contains(rtt), "{}", rtt);
    }
    prop_assert!(estimates.rtt_min <= estimates.rtt_max);
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Tick,
    Deadline,
    Arrive(bool, (Probe, Option<u64>, u32, Option<u64>), u8),
    Reconfigure(Config),
    Reading(Box<Reading>),
    Switch(bool),
}

/// Readings, both plausible and impossible.
fn reading() -> impl Strategy<Value = Reading> {
    let at = || prop_oneof![Just(None), pause().prop_map(|at| Some(Time(at)))];
    let span = prop_oneof![Just(None), any::<u64>().prop_map(|ns| Some(Span(ns)))];
    ((pause(), at(), at(), at()), proptest::array::uniform3(word()), any::<(u8, u8)>(), span)
        .prop_map(
            |(
                (now, last_sent, last_received, last_heard),
                [sent, rode, received],
                (run, k),
                t_ka,
            )| {
                let rtt = last_heard.map(|at| Span(at.0.min(MAX_RTT.0)));
                let estimates =
                    Estimates { rtt_last: rtt, rtt_min: rtt, rtt_max: rtt, ..Estimates::default() };
                Reading {
                    at: Time(now),
                    sent,
                    rode,
                    last_sent,
                    received,
                    last_received,
                    last_heard,
                    watched: last_heard.map(|at| Time(at.0 ^ 1 << 27)),
                    traffic: Traffic {
                        sent_at: last_received,
                        received_at: last_sent.map(|at| Time(at.0 ^ 1 << 25)),
                        heard_back: last_heard,
                        received: sent,
                        bytes: u64::from(received) << 8,
                    },
                    run,
                    k,
                    t_ka,
                    estimates,
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Tick),
        3 => Just(Step::Deadline),
        6 => (any::<bool>(), arrival(), any::<u8>()).prop_map(|(a, b, c)| Step::Arrive(a, b, c)),
        1 => config().prop_map(Step::Reconfigure),
        3 => reading().prop_map(|reading| Step::Reading(Box::new(reading))),
        1 => any::<bool>().prop_map(Step::Switch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_client_survives_any_input(
        first in config(), start in pause(), seed in any::<u64>(),
        steps in proptest::collection::vec((pause(), step()), 1..60),
    ) {
        let mut now = Time(start);
        let mut client = Client::new(first, now, seed);
        let (mut state, mut heard) = (client.state(), client.heard());
        for (pause, step) in steps {
            let input = match step {
                Step::Deadline => {
                    now = now.max(client.deadline().map_or(now, |(at, _)| at));
                    None
                }
                other => {
                    now += Span(pause);
                    match other {
                        Step::Arrive(true, a, _) => Some(ClientInput::Response(build(a, now))),
                        Step::Arrive(false, a, _) => Some(ClientInput::Unsolicited(build(a, now))),
                        Step::Reconfigure(config) => Some(ClientInput::Reconfigure(config)),
                        Step::Reading(reading) => Some(ClientInput::Reading(*reading)),
                        Step::Switch(on) => Some(ClientInput::Switch(on)),
                        Step::Tick | Step::Deadline => None,
                    }
                }
            };
            let ticks = input.is_none();
            match input {
                Some(input) => client.handle(now, input),
                None => client.tick(now),
            }
            let outputs: Vec<_> = core::iter::from_fn(|| client.poll()).collect();
            prop_assert!(outputs.len() <= 8);
            let requests = outputs.iter().filter(|o| matches!(o, ClientOutput::SendRequest(_)));
            prop_assert!(requests.count() <= 1, "never a burst");
            for output in outputs {
                match output {
                    ClientOutput::State(new) => {
                        prop_assert_ne!(new, state);
                        state = new;
                    }
                    ClientOutput::Heard(new) => {
                        prop_assert_ne!(new, heard);
                        heard = new;
                    }
                    ClientOutput::Sample(sample) => check_sample(&sample)?,
                    ClientOutput::Doubt(_) => {}
                    ClientOutput::SendRequest(_) => {}
                }
            }
            prop_assert_eq!((state, heard), (client.state(), client.heard()));
            prop_assert!(!client.in_doubt() || state == State::Up);
            check_estimates(client.estimates())?;
            if let Some((at, reason)) = client.deadline() {
                // A due look waits for the tick, which a reading precedes.
                let comes = at > now || at == Time(u64::MAX);
                prop_assert!(comes || !ticks && client.config().doubt.is_some(), "{} is due", reason);
            }
        }
    }

    #[test]
    fn a_server_survives_any_input(
        first in config(), start in pause(), unsolicited in any::<bool>(),
        steps in proptest::collection::vec((pause(), step()), 1..60),
    ) {
        let mut now = Time(start);
        let mut server = Server::new(first, now, unsolicited);
        let mut state = server.state();
        for (pause, step) in steps {
            let input = match step {
                Step::Deadline => {
                    now = now.max(server.deadline().map_or(now, |(at, _)| at));
                    None
                }
                other => {
                    now += Span(pause);
                    match other {
                        Step::Arrive(report, a, k) => {
                            Some(ServerInput::Request { arrival: build(a, now), k, report })
                        }
                        Step::Reconfigure(config) => Some(ServerInput::Reconfigure(config)),
                        Step::Reading(reading) => Some(ServerInput::Reading(*reading)),
                        Step::Switch(on) => Some(ServerInput::Switch(on)),
                        Step::Tick | Step::Deadline => None,
                    }
                }
            };
            match input {
                Some(input) => server.handle(now, input),
                None => server.tick(now),
            }
            let outputs: Vec<_> = core::iter::from_fn(|| server.poll()).collect();
            prop_assert!(outputs.len() <= 4);
            for output in outputs {
                match output {
                    ServerOutput::State(new) => {
                        prop_assert_ne!(new, state);
                        state = new;
                    }
                    ServerOutput::Sample(sample) => check_sample(&sample)?,
                    ServerOutput::SendUnsolicited(_) => prop_assert!(unsolicited),
                }
            }
            prop_assert_eq!(state, server.state());
            check_estimates(server.estimates())?;
            if let Some((at, reason)) = server.deadline() {
                prop_assert!(at > now || at == Time(u64::MAX), "{} is due at once", reason);
            }
        }
    }
}
