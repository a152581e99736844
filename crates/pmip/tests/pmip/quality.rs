//! Keepalives between anchor and gateways, and flows that move to the best path.

use segue_clock::{Machine, Span};
use segue_ip::{FlowKey, Input};
use segue_keepalive::{Config, Estimates, State};
use segue_pmip::{
    Cause, LinkQuality, LmaConfig, LmaInput, LmaWish, MagConfig, Placed, Report, Schedule,
    SessionState,
};
use segue_wire::mih::codes::GenericParameter;
use segue_wire::mih::link::{Parameter, ParameterReport, ParameterType, ParameterValue};
use segue_wire::mobility::option::Handoff;
use segue_wire::mobility::{Body, Message, MobilityOption};
use segue_wire::nd::Preference;

use crate::domain::*;
use crate::flows::{first_packet, flow, goes, handovers, of_two, preference, two};

/// A keepalive every 100 ms; three may be lost.
fn measuring() -> LmaConfig {
    let keepalive = Config { k: 3, t_ka: Span::from_millis(100), ..Config::default() };
    LmaConfig { keepalive: Some(keepalive), ..lma_config() }
}

fn by_quality() -> LmaConfig {
    LmaConfig { schedule: Schedule::Quality, ..measuring() }
}

fn slow(delay_ms: u64) -> Way {
    Way { delay: Span::from_millis(delay_ms), ..Way::default() }
}

fn lossy(loses_one_of: u64) -> Way {
    Way { loses_one_of: Some(loses_one_of), ..Way::default() }
}

fn estimates(domain: &Domain, n: usize) -> &Estimates {
    let (state, estimates) = domain.lma.measured(mag(n).into()).unwrap();
    assert_eq!(state, State::Up);
    estimates
}

/// Adds a flow with the DSCP of bulk data (CS1).
fn bulk(domain: &mut Domain, key: FlowKey) {
    domain.at_lma(Input::Own(LmaInput::Flow { key, dscp: 8 }));
}

#[test]
fn an_anchor_measures_the_way_to_each_gateway() {
    let (mut domain, _) = two(measuring());
    domain.ways.insert(mag(0), lossy(10));
    domain.ways.insert(mag(1), slow(40));
    domain.run(s(61.0));
    let first = estimates(&domain, 0);
    assert!((first.rtt_ewma[0] - 0.010).abs() < 1e-6, "{first:?}");
    let (up, down) = (first.owl_up[1], first.owl_down[1]);
    assert!((up - 0.1).abs() < 0.02 && down == 0.0, "one of ten is lost towards it: {up} {down}");
    let second = estimates(&domain, 1);
    assert!((second.rtt_ewma[0] - 0.080).abs() < 1e-3, "{second:?}");
    assert_eq!((second.owl_up[0], second.owl_down[0]), (0.0, 0.0));
    assert_eq!(domain.refused("stale"), 0);
}

#[test]
fn who_is_not_to_measure_sends_no_more_than_heartbeats() {
    let (mut domain, _) = two(lma_config());
    domain.run(s(25.0));
    assert_eq!(domain.lma.measured(mag(0).into()).map(|(state, _)| state), None);
    // One request to each gateway, and one answer to each.
    assert_eq!(domain.sent_by(LMA, |body| matches!(body, Body::Heartbeat(_))).len(), 4);
}

#[test]
fn a_gateway_without_the_option_is_measured_by_round_trips() {
    let (mut domain, _) = two(measuring());
    domain.ways.insert(mag(0), Way { foreign: true, ..lossy(10) });
    domain.run(s(61.0));
    let first = estimates(&domain, 0);
    assert!((first.rtt_ewma[0] - 0.010).abs() < 1e-6, "{first:?}");
    let (up, down) = (first.owl_up[1], first.owl_down[1]);
    assert!(up == 0.0 && (down - 0.1).abs() < 0.02, "both ways together: {up} {down}");
    // This gateway sends no restart counter either.
    assert!(!domain.reports.iter().any(|report| matches!(report, Report::Restarted { .. })));
    let beats = |message: &Message| {
        let is_beat = matches!(message.body, Body::Heartbeat(_));
        is_beat && !message.options.iter().any(|o| matches!(o, MobilityOption::VendorSpecific(_)))
    };
    let to_first = domain.log.iter().filter(|(_, from, message)| *from == LMA && beats(message));
    let count = to_first.count();
    assert!(count <= 12, "a request and a response in half a minute to each: {count}");
}

#[test]
fn a_gateway_that_starts_anew_is_seen_at_its_next_answer() {
    let (mut domain, [first, _]) = two(measuring());
    let mut config = mag_config(0);
    config.restart_counter += 1;
    domain.mags[0] = segue_pmip::Mag::new(config);
    domain.given[1] = Given::default();
    domain.has_link(0);
    domain.run(s(1.5));
    let restarted = Report::Restarted { peer: mag(0).into() };
    assert_eq!(domain.reports.iter().filter(|report| **report == restarted).count(), 1);
    domain.run(s(20.0));
    assert_eq!(estimates(&domain, 0).owl_up[0], 0.0, "counts that begin anew are no losses");
    assert!(domain.asks(first) || domain.leads(first).is_some());
}

#[test]
fn an_anchor_that_starts_anew_measures_anew() {
    let (mut domain, _) = two(measuring());
    domain.run(s(20.0));
    let config = LmaConfig { restart_counter: 2, seed: 5, ..measuring() };
    domain.lma = segue_pmip::Lma::new(config);
    domain.given[0] = Given::default();
    for record in domain.stored.clone().into_values() {
        domain.lma.handle(domain.now, Input::Record(record));
    }
    domain.at_lma(Input::Interfaces(Vec::new()));
    domain.run(s(40.0));
    let first = estimates(&domain, 0);
    assert_eq!((first.owl_up[1], first.owl_down[1], first.duplicates), (0.0, 0.0, 0));
    assert!(first.received > 150, "{first:?}");
}

#[test]
fn each_flow_goes_where_its_class_is_served_best_and_moves_when_that_changes() {
    let (mut domain, [first, _]) = two(by_quality());
    domain.ways.insert(mag(0), slow(40));
    domain.run(s(5.0));
    let key = flow(first, 1);
    assert_eq!(first_packet(&mut domain, key), [LmaWish::Release(key)]);
    assert_eq!(goes(&domain, key), Some(mag(1).into()), "not where its prefix is: 80 ms");
    domain.ways.insert(mag(1), lossy(5));
    domain.run(s(20.0));
    assert_eq!(goes(&domain, key), Some(mag(0).into()), "a fifth is lost there");
    assert_eq!(handovers(&domain), [(Cause::Better, mag(1), mag(0), 1)]);
    assert_eq!(domain.lma.flow(&key).unwrap().why, Placed::Rule);
    // The flow stays there.
    domain.run(s(120.0));
    assert_eq!(handovers(&domain).len(), 1);
}

#[test]
fn flows_that_came_before_a_better_way_was_known_move_along_with_the_first_that_did_not() {
    let (mut domain, [first, _]) = two(by_quality());
    domain.run(s(5.0));
    let before: Vec<FlowKey> = (1..=5).map(|port| flow(first, port)).collect();
    before.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
    domain.ways.insert(mag(0), lossy(5));
    // Each new flow triggers a comparison of the paths, and any of them may move the class.
    for n in 0..100u32 {
        domain.run(s(5.0 + f64::from(n) / 10.0));
        first_packet(&mut domain, flow(first, 1_000 + n as u16));
    }
    domain.run(s(16.0));
    for key in &before {
        assert_eq!(goes(&domain, *key), Some(mag(1).into()));
    }
}

#[test]
fn where_flows_may_not_move_the_best_way_is_their_own() {
    let config = LmaConfig { flow_mobility: false, always_ask: true, ..by_quality() };
    let (mut domain, [first, _]) = two(config);
    domain.ways.insert(mag(0), lossy(5));
    domain.run(s(15.0));
    let key = flow(first, 1);
    first_packet(&mut domain, key);
    assert_eq!(goes(&domain, key), Some(mag(0).into()));
    domain.run(s(30.0));
    assert_eq!(goes(&domain, key), Some(mag(0).into()));
}

#[test]
fn a_better_interface_that_stays_after_all_has_its_flows_again_soon() {
    let (mut domain, [first, _]) = two(by_quality());
    domain.ways.insert(mag(1), slow(40));
    domain.run(s(20.0));
    let key = flow(first, 1);
    bulk(&mut domain, key);
    let (link_layer, within) = (station(1), Span::from_millis(500));
    domain.at_lma(Input::Own(LmaInput::GoingDown { link_layer: station(1), within }));
    assert_eq!(goes(&domain, key), Some(mag(1).into()));
    domain.run(s(20.5));
    domain.at_lma(Input::Own(LmaInput::Stays { link_layer }));
    // The interface counts as newly attached, so half a second suffices where a settled one needs two. The comparison
    // runs twice a second.
    domain.run(s(21.6));
    assert_eq!(goes(&domain, key), Some(mag(0).into()));
}

#[test]
fn what_somebody_has_decided_stays() {
    let (mut domain, [first, _]) = two(by_quality());
    domain.run(s(5.0));
    let key = flow(first, 1);
    first_packet(&mut domain, key);
    let of = |n| domain.lma.sessions().find(|(_, at, ..)| *at == mag(n).into()).unwrap().3.bid;
    let bid = Some(of(0));
    domain.at_lma(Input::Own(LmaInput::Place { key, bid }));
    domain.ways.insert(mag(0), lossy(5));
    domain.run(s(30.0));
    assert_eq!(goes(&domain, key), Some(mag(0).into()));
    domain.at_lma(Input::Own(LmaInput::Place { key, bid: None }));
    assert_eq!(goes(&domain, key), Some(mag(1).into()), "the schedule says so");
}

#[test]
fn a_gateway_that_is_not_reached_has_no_flows_until_it_is() {
    for schedule in [Schedule::Static, Schedule::Quality] {
        let (mut domain, [first, second]) = two(LmaConfig { schedule, ..by_quality() });
        domain.run(s(5.0));
        let keys = [flow(first, 1), flow(second, 2)];
        keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
        domain.ways.insert(mag(0), lossy(1));
        // Three and a half keepalive periods and a round trip.
        domain.run(s(5.5));
        for key in &keys {
            assert_eq!(goes(&domain, *key), Some(mag(1).into()), "{schedule:?}");
        }
        let flows = usize::from(schedule == Schedule::Static);
        let told = handovers(&domain);
        assert!(told.iter().all(|(cause, from, to, _)| {
            (*cause, *from, *to) == (Cause::Unreachable, mag(0), mag(1))
        }));
        assert!(told.iter().map(|told| told.3).sum::<usize>() >= flows, "{told:?}");
        // The host keeps sending into the access whose gateway is unreachable.
        domain.run(s(6.0));
        assert_eq!(preference(&domain, 2), Some(Preference::High));
        let first_at = domain.lma.sessions().find(|(_, at, ..)| *at == mag(0).into()).unwrap().3;
        assert_eq!(first_at.state, SessionState::Active);
        // Longer than three heartbeat intervals.
        domain.run(s(300.0));
        domain.ways.insert(mag(0), Way::default());
        domain.run(s(330.0));
        let told = |report: Report| domain.reports.iter().filter(|told| **told == report).count();
        assert_eq!(told(Report::Silent { peer: mag(0).into() }), 1);
        assert_eq!(told(Report::Answers { peer: mag(0).into() }), 1);
        assert_eq!(preference(&domain, 2), Some(Preference::Medium));
        if schedule == Schedule::Static {
            assert_eq!(goes(&domain, keys[0]), Some(mag(0).into()));
            assert!(handovers(&domain).contains(&(Cause::Back, mag(1), mag(0), 1)));
        }
    }
}

#[test]
fn bulk_data_go_where_the_link_is_said_to_be_fast() {
    let (mut domain, [first, _]) = two(by_quality());
    domain.run(s(5.0));
    let tell = |domain: &mut Domain, n: u8, rate_kbps: u32| {
        let quality = LinkQuality { rate_kbps: Some(rate_kbps), ..LinkQuality::default() };
        domain.at_lma(Input::Own(LmaInput::Link { link_layer: station(n), quality }));
    };
    tell(&mut domain, 1, 500);
    tell(&mut domain, 2, 50_000);
    let key = flow(first, 1);
    bulk(&mut domain, key);
    assert_eq!(goes(&domain, key), Some(mag(1).into()));
    for second in 0..10 {
        tell(&mut domain, 1, 500);
        tell(&mut domain, 2, 100);
        domain.run(s(6.0 + f64::from(second)));
    }
    assert_eq!(goes(&domain, key), Some(mag(0).into()));
    // At another gateway the link is a different one, with no reports yet.
    let rates = |domain: &Domain| {
        let all = domain.lma.sessions().map(|(.., at)| at.link(domain.now).rate_kbps);
        all.collect::<Vec<_>>()
    };
    assert_eq!(rates(&domain), [Some(500), Some(100)]);
    let at = domain.lma.sessions().find(|(.., at)| at.link_layer == station(2)).unwrap().0;
    domain.attach(0, station(2));
    domain.run(s(16.0));
    let link = domain.lma.session(at).unwrap().link(domain.now);
    assert_eq!(link, LinkQuality::default());
    assert_eq!(rates(&domain), [Some(500), None]);
    // Reports about the other link have stopped too, and expire.
    domain.run(s(26.0));
    assert_eq!(rates(&domain), [None, None]);
}

#[test]
fn flows_follow_the_better_interface_to_its_next_gateway() {
    let (mut domain, [first, _]) = of_two(3, by_quality(), |_| {});
    domain.ways.insert(mag(0), slow(40));
    domain.run(s(5.0));
    let key = flow(first, 1);
    first_packet(&mut domain, key);
    assert_eq!(goes(&domain, key), Some(mag(1).into()));
    // Long after the last comparison.
    domain.run(s(8.0));
    domain.attach(2, station(2));
    domain.run(s(12.0));
    assert_eq!(goes(&domain, key), Some(mag(2).into()));
}

#[test]
fn nothing_goes_to_a_gateway_that_is_not_reached_either() {
    let sharing = |config: &mut MagConfig| {
        config.accesses[0].handoff = Handoff::NEW_INTERFACE_SHARING_PREFIXES
    };
    let (mut domain, _) = of_two(2, by_quality(), sharing);
    domain.run(s(5.0));
    domain.ways.insert(mag(0), lossy(1));
    domain.run(s(7.0));
    domain.ways.insert(mag(1), lossy(1));
    domain.run(s(10.0));
    let silent = |n: usize| Report::Silent { peer: mag(n).into() };
    assert!((0..2).all(|n| domain.reports.contains(&silent(n))));
    assert_eq!(handovers(&domain), [(Cause::Unreachable, mag(0), mag(1), 0)]);
}

#[test]
fn the_largest_rate_that_a_report_can_state_is_no_bound() {
    let report = |parameter, value| ParameterReport {
        parameter: Parameter {
            parameter: ParameterType::Generic(parameter),
            value: ParameterValue::Number(value),
        },
        threshold: None,
    };
    let rate = |value| LinkQuality::reported(&[report(GenericParameter::DATA_RATE, value)]);
    assert_eq!(rate(54_000).unwrap().rate_kbps, Some(54_000));
    assert_eq!(rate(65_535).unwrap().rate_kbps, Some(u32::MAX));
    let signal = report(GenericParameter::SIGNAL_STRENGTH, (-61i16).cast_unsigned());
    assert_eq!(LinkQuality::reported(&[signal]).unwrap().signal_dbm, Some(-61));
    assert_eq!(LinkQuality::reported(&[report(GenericParameter::SINR, 12)]), None);
}
