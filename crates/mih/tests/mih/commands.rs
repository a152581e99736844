//! Parameters, thresholds and actions.

use segue_clock::Span;
use segue_mih::{Action, Command, CommandAnswer, Event, MihfInput, MihfWish, Transport, What};
use segue_wire::mih::codes::{
    CommandList, DeviceStatesRequest, GenericParameter, LinkActionAttributes, LinkActionResult,
    LinkActionType, LinkDescriptorsRequest, LinkStatesRequest, Status, ThresholdAction,
    ThresholdDirection,
};
use segue_wire::mih::link::{
    LinkStatusRequest, ParameterConfiguration, ParameterType, ParameterValue, Threshold,
};

use crate::stage::*;

const SIGNAL: ParameterType = ParameterType::Generic(GenericParameter::SIGNAL_STRENGTH);

fn dbm(value: i16) -> u16 {
    value.cast_unsigned()
}

fn set() -> Stage {
    let mut of_links = sap(&[1, 2], Transport::Udp);
    for link in &mut of_links.links {
        link.commands = link.commands | CommandList::LINK_ACTIONS;
        link.forecasting = None;
    }
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, of_links),
        (GATEWAY, user("mag", Some(1), Transport::Udp)),
    ]);
    stage.run(Span::from_secs(3));
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    stage.news(GATEWAY);
    stage
}

fn signal(stage: &mut Stage, value: i16) {
    let values = vec![(SIGNAL, dbm(value))];
    let (link, station) = (link(1), Some(station(1)));
    stage.give(SAP, MihfInput::Measured { link, station, values });
    stage.run(Span::from_millis(50));
}

fn command(stage: &mut Stage, command: Command) -> CommandAnswer {
    stage.give(GATEWAY, MihfInput::Command { number: 5, command });
    stage.run(Span::from_secs(1));
    let place = stage.wishes.iter().position(|(_, wish)| matches!(wish, MihfWish::Answered { .. }));
    match stage.wishes.remove(place.expect("it is answered")) {
        (_, MihfWish::Answered { number: 5, answer }) => answer,
        other => panic!("{other:?}"),
    }
}

/// The reported values and thresholds, as received by the gateway.
fn reported(stage: &mut Stage) -> Vec<(i16, Option<i16>)> {
    let told = stage.news(GATEWAY).into_iter().flat_map(|event| match event.what {
        What::Parameters(reports) => reports,
        other => panic!("{other:?}"),
    });
    let of = told.map(|report| {
        let ParameterValue::Number(value) = report.parameter.value else { panic!() };
        (value.cast_signed(), report.threshold.map(|threshold| threshold.value.cast_signed()))
    });
    of.collect()
}

fn threshold(value: i16, direction: ThresholdDirection) -> Threshold {
    Threshold { value: dbm(value), direction }
}

fn configuration(action: ThresholdAction, thresholds: Vec<Threshold>) -> Command {
    let (parameter, interval_ms) = (SIGNAL, None);
    let parameters = vec![ParameterConfiguration { parameter, interval_ms, action, thresholds }];
    Command::ConfigureThresholds { link: link(1), parameters }
}

#[test]
fn a_threshold_is_reported_when_it_is_crossed_and_not_before_it_is_again() {
    let mut stage = set();
    let below = threshold(-70, ThresholdDirection::BELOW);
    let above = threshold(-60, ThresholdDirection::ABOVE);
    let answer = command(&mut stage, configuration(ThresholdAction::NORMAL, vec![below, above]));
    let CommandAnswer::Thresholds(all) = answer else { panic!("{answer:?}") };
    assert!(all.len() == 2 && all.iter().all(|one| one.configured), "{all:?}");
    for value in [-65, -71, -75, -69, -72, -59, -50] {
        signal(&mut stage, value);
    }
    let expected = [(-71, Some(-70)), (-72, Some(-70)), (-59, Some(-60))];
    assert_eq!(reported(&mut stage), expected);
    let cancel = vec![threshold(-70, ThresholdDirection::BELOW)];
    command(&mut stage, configuration(ThresholdAction::CANCEL, cancel));
    for value in [-80, -50] {
        signal(&mut stage, value);
    }
    assert_eq!(reported(&mut stage), [(-50, Some(-60))]);
}

#[test]
fn a_one_shot_threshold_is_reported_once() {
    let mut stage = set();
    let below = vec![threshold(-70, ThresholdDirection::BELOW)];
    command(&mut stage, configuration(ThresholdAction::ONE_SHOT, below));
    for value in [-65, -71, -60, -71] {
        signal(&mut stage, value);
    }
    assert_eq!(reported(&mut stage), [(-71, Some(-70))]);
}

#[test]
fn a_parameter_is_reported_at_its_interval() {
    let mut stage = set();
    let parameters = vec![ParameterConfiguration {
        parameter: SIGNAL,
        interval_ms: Some(500),
        action: ThresholdAction::NORMAL,
        thresholds: Vec::new(),
    }];
    command(&mut stage, Command::ConfigureThresholds { link: link(1), parameters });
    signal(&mut stage, -66);
    stage.run(Span::from_millis(2_000));
    let told = reported(&mut stage);
    assert!((3..=6).contains(&told.len()), "{told:?}");
    assert!(told.iter().all(|one| *one == (-66, None)), "{told:?}");
}

#[test]
fn parameters_are_those_measured_last() {
    let mut stage = set();
    signal(&mut stage, -66);
    let status = LinkStatusRequest {
        states: LinkStatesRequest::OPERATION_MODE,
        parameters: vec![SIGNAL],
        descriptors: LinkDescriptorsRequest(0),
    };
    let device = DeviceStatesRequest::DEVICE_INFO;
    let ask = Command::GetParameters { device, links: vec![link(1)], status };
    let answer = command(&mut stage, ask);
    let CommandAnswer::Parameters { links, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(links[0].parameters[0].value, ParameterValue::Number(dbm(-66)));
}

#[test]
fn an_action_is_done_by_the_links_driver_and_its_result_comes_back() {
    let mut stage = set();
    let action = Action {
        link: link(1),
        station: Some(station(1)),
        action: LinkActionType::DISCONNECT,
        attributes: LinkActionAttributes(0),
        after_ms: 0,
    };
    let order = Command::Actions(vec![action.clone()]);
    stage.give(GATEWAY, MihfInput::Command { number: 5, command: order });
    stage.run(Span::from_millis(100));
    let (at, MihfWish::Act { number, action: wished }) = stage.wishes.remove(0) else { panic!() };
    assert_eq!((at, &wished), (ip(SAP), &action));
    stage.give(SAP, MihfInput::Acted { number, result: LinkActionResult::SUCCESS });
    stage.run(Span::from_millis(100));
    let (at, MihfWish::Answered { number: 5, answer }) = stage.wishes.remove(0) else { panic!() };
    let CommandAnswer::Actions(all) = answer else { panic!("{answer:?}") };
    assert_eq!((at, all[0].result), (ip(GATEWAY), LinkActionResult::SUCCESS));
    // A delay of more than ten seconds is refused: it would occupy a slot for too long.
    let late = Action { after_ms: 10_001, ..action };
    let CommandAnswer::Actions(all) = command(&mut stage, Command::Actions(vec![late])) else {
        panic!()
    };
    assert_eq!(all[0].result, LinkActionResult::INCAPABLE);
}

#[test]
fn commands_to_links_that_nobody_has_fail() {
    let mut stage = set();
    let order = Command::ConfigureThresholds { link: link(9), parameters: Vec::new() };
    assert_eq!(command(&mut stage, order), CommandAnswer::Failed(Status::REJECTED));
    // The link is known, but its owner does not answer.
    stage.nodes.remove(&ip(SAP));
    let order = Command::ConfigureThresholds { link: link(1), parameters: Vec::new() };
    stage.give(GATEWAY, MihfInput::Command { number: 5, command: order });
    stage.run(Span::from_secs(20));
    let (_, wish) = stage.wishes.pop().unwrap();
    let failed = CommandAnswer::Failed(Status::NETWORK_ERROR);
    assert_eq!(wish, MihfWish::Answered { number: 5, answer: failed });
}

#[test]
fn a_command_to_a_link_whose_owner_goes_meanwhile_has_failed() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut of_links = sap(&[1], transport);
        of_links.links[0].commands = CommandList::LINK_ACTIONS;
        let gateway = user("mag", Some(1), transport);
        let mut stage = Stage::new(&[(FUNCTION, function()), (SAP, of_links), (GATEWAY, gateway)]);
        stage.run(Span::from_secs(3));
        let action = Action {
            link: link(1),
            station: None,
            action: LinkActionType::POWER_DOWN,
            attributes: LinkActionAttributes(0),
            after_ms: 0,
        };
        let order = Command::Actions(vec![action]);
        stage.give(GATEWAY, MihfInput::Command { number: 5, command: order });
        stage.run(Span::from_millis(100));
        assert!(matches!(stage.wishes.remove(0), (_, MihfWish::Act { .. })), "{transport:?}");
        stage.give(SAP, MihfInput::Leave);
        stage.run(Span::from_millis(500));
        let failed = CommandAnswer::Failed(Status::NETWORK_ERROR);
        let answered = MihfWish::Answered { number: 5, answer: failed };
        assert_eq!(stage.wishes, [(ip(GATEWAY), answered)], "{transport:?}");
    }
}

#[test]
fn a_signal_that_falls_is_told_before_it_is_lost_and_one_that_recovers_too() {
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, sap(&[1], Transport::Udp)),
        (ANCHOR, user("lma", None, Transport::Udp)),
    ]);
    stage.run(Span::from_secs(3));
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    stage.news(ANCHOR);
    let mut value = -60;
    let mut told: Vec<Event> = Vec::new();
    while told.is_empty() {
        value -= 1;
        assert!(value > -85, "it is lost");
        signal(&mut stage, value);
        told = stage.news(ANCHOR);
    }
    let What::GoingDown { within_ms, .. } = told[0].what else { panic!("{told:?}") };
    assert!((1..=500).contains(&within_ms), "{within_ms} at {value} dBm");
    assert_eq!(told[0].station, Some(station(1)));
    for _ in 0..40 {
        signal(&mut stage, -65);
    }
    assert_eq!(stage.news(ANCHOR), [up(1, 1)]);
}

#[test]
fn a_command_whose_frames_come_twice_is_done_once() {
    let mut stage = set();
    stage.faults = (0.0, 1.0);
    let action = Action {
        link: link(1),
        station: Some(station(1)),
        action: LinkActionType::DISCONNECT,
        attributes: LinkActionAttributes(0),
        after_ms: 0,
    };
    stage.give(GATEWAY, MihfInput::Command { number: 5, command: Command::Actions(vec![action]) });
    stage.run(Span::from_secs(1));
    let acts = stage.wishes.iter().filter(|(_, wish)| matches!(wish, MihfWish::Act { .. }));
    assert_eq!(acts.count(), 1);
}

#[test]
fn a_link_that_takes_no_orders_does_nothing() {
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, sap(&[1], Transport::Udp)),
        (GATEWAY, user("mag", Some(1), Transport::Udp)),
    ]);
    stage.run(Span::from_secs(3));
    let action = Action {
        link: link(1),
        station: None,
        action: LinkActionType::POWER_DOWN,
        attributes: LinkActionAttributes(0),
        after_ms: 0,
    };
    let answer = command(&mut stage, Command::Actions(vec![action]));
    let CommandAnswer::Actions(all) = answer else { panic!("{answer:?}") };
    assert_eq!(all[0].result, LinkActionResult::INCAPABLE);
    assert!(!stage.wishes.iter().any(|(_, wish)| matches!(wish, MihfWish::Act { .. })));
}
