//! Packets that left on a path and may be lost are sent again over another.

use segue_clock::{Machine, Span, Time};
use segue_keepalive::Asking;
use segue_tunnel::{HostInput, Order, Output, Report};
use segue_wire::age;

use crate::stage::{Stage, Way, host_config, ms, secs};

/// A host whose voice flow uses Wi-Fi, which falls silent in both directions at the returned time.
fn silenced() -> (Stage, usize, Time) {
    let mut config = host_config(3, 1_000);
    config.path.keepalive.doubt = Some(Asking { k: 5, spacing: ms(20) });
    let (mut stage, host) = Stage::two_paths(1, config);
    let voice = stage.add_voice(host);
    stage.run_for(secs(5));
    assert!(stage.flows_use(voice, "wifi"));
    stage.set_alive(host, "wifi", Way::Both, false);
    let fault = stage.now();
    (stage, host, fault)
}

/// The doubts about Wi-Fi reported after an instant: for each, its duration if an answer ended it.
fn doubts(stage: &Stage, host: usize, since: Time) -> Vec<Option<Span>> {
    let reports = stage.host(host).reports();
    let doubt = |(at, report): &(Time, Report)| match report {
        Report::PathDoubt { path, ended, .. } if path == "wifi" && *at > since => Some(*ended),
        _ => None,
    };
    reports.iter().filter_map(doubt).collect()
}

#[test]
fn each_doubt_that_is_told_ends_with_an_answer_or_with_the_paths_going_down() {
    let (mut stage, host, fault) = silenced();
    assert!(stage.run_while_not(secs(1), |stage| !doubts(stage, host, fault).is_empty()));
    let doubted = stage.now();
    stage.set_alive(host, "wifi", Way::Both, true);
    stage.run_for(secs(2));
    let told = doubts(&stage, host, fault);
    let [None, Some(ended)] = told[..] else { panic!("{told:?}") };
    assert!(ended > Span::ZERO && ended < stage.now().since(doubted) + ms(1), "{ended}");
    assert!(stage.flows_use(0, "wifi"), "it did not go down");

    let (mut stage, host, fault) = silenced();
    stage.run_for(secs(2));
    assert_eq!(doubts(&stage, host, fault), [None], "it went down");
}

#[test]
fn a_host_in_doubt_sends_what_left_again_and_tells_the_anchor_since_when_it_hears_nothing() {
    let (mut stage, host, fault) = silenced();
    let doubts = |stage: &Stage| {
        let reports = &stage.host(host).reports();
        let doubt = |report: &Report| matches!(report, Report::PathDoubt { .. });
        reports.iter().find(|(at, report)| *at > fault && doubt(report)).map(|(at, _)| *at)
    };
    assert!(stage.run_while_not(secs(1), |stage| doubts(stage).is_some()));
    let doubted = doubts(&stage).unwrap();
    assert!(doubted.since(fault) < ms(100), "{}", doubted.since(fault));

    // Repeat the run up to that moment.
    let (mut stage, host, _) = silenced();
    stage.run_until(doubted - Span(1));
    let number = |stage: &Stage, name| stage.host(host).end().machine.path_named(name).unwrap();
    let (wifi, lte) = (number(&stage, "wifi"), number(&stage, "lte"));
    stage.run_until(doubted - Span(1));
    // As the datapath does: it reports what data did before the tick.
    let outputs: Vec<_> = stage.at_host_end(host, |end, _, _| {
        if let Some(reading) = end.datapath.reading_at(doubted, wifi.into()) {
            end.machine.handle(doubted, HostInput::Reading(wifi.into(), Box::new(reading)).into());
        }
        end.machine.tick(doubted);
        std::iter::from_fn(|| end.machine.poll()).collect()
    });
    let again = outputs.iter().find_map(|output| match output {
        Output::Order(Order::Reinject(again)) => Some(*again),
        _ => None,
    });
    let again = again.unwrap_or_else(|| panic!("{outputs:?}"));
    assert_eq!((again.slot, again.over), (u32::from(wifi), u32::from(lte)));
    let early = fault.since(again.since);
    assert!(again.since <= fault && early < ms(60), "{early} before the fault");

    // The request over LTE states the silence of Wi-Fi at its arrival, which adds half the round trips of both.
    let ages = outputs.iter().filter_map(|output| match output {
        Output::Order(Order::SendProbe(probe)) => Some((probe.slot, probe.age)),
        _ => None,
    });
    let ages: Vec<(u32, u8)> = ages.collect();
    let machine = &stage.host(host).end().machine;
    let (_, path) = machine.paths().find(|(_, path)| path.name() == "wifi").unwrap();
    let silence = doubted.since(path.client().unwrap().heard_at()) + ms(40);
    assert!(ages.contains(&(u32::from(lte), age::encode(silence.0))), "{silence}: {ages:?}");
}
