//! The operator moves flows without loss.

use segue_clock::Rng;
use segue_steering::Class;
use segue_tunnel::{Cause, Report};

use crate::stage::{Stage, Way, host_config, ms, secs};

/// Checks that nothing was lost, duplicated or late.
fn expect_nothing_lost(stage: &mut Stage) {
    stage.stop_apps();
    for app in &stage.apps {
        assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        // The longer path takes 20 ms more.
        assert!(app.up.gap(app.interval) <= ms(20) && app.down.gap(app.interval) <= ms(20));
    }
}

#[test]
fn one_flow_a_class_or_all_move_to_an_interface_and_back_without_loss() {
    for seed in 0..50 {
        let (mut stage, host) = Stage::two_paths(seed, host_config(3, 60));
        let (voice, other, bulk) =
            (stage.add_voice(host), stage.add_voice(host), stage.add_bulk(host));
        stage.run_for(secs(3) + ms(Rng::new(seed).below(1_000)));
        let on = |stage: &Stage, app, path| {
            assert!(stage.flows_use(app, path), "{:?}", stage.routes(app))
        };
        let key = Some(stage.apps[voice].key);

        stage.handover(host, key, None, Some("lte"));
        stage.run_for(ms(150));
        on(&stage, voice, "lte");
        on(&stage, other, "wifi");
        stage.handover(host, None, Some(Class::Voice), Some("wifi"));
        stage.run_for(ms(150));
        on(&stage, voice, "wifi");
        stage.handover(host, None, Some(Class::Bulk), Some("lte"));
        stage.run_for(ms(150));
        on(&stage, bulk, "lte");
        on(&stage, voice, "wifi");
        stage.handover(host, None, None, Some("lte"));
        stage.run_for(ms(150));
        for app in [voice, other, bulk] {
            on(&stage, app, "lte");
        }
        stage.run_for(secs(3));
        on(&stage, bulk, "lte");
        stage.handover(host, None, None, None);
        stage.run_for(secs(3));
        on(&stage, bulk, "wifi");
        stage.handover(host, key, None, Some("lte"));
        stage.run_for(secs(3));
        on(&stage, voice, "lte");
        stage.handover(host, key, None, None);
        stage.run_for(secs(3));
        assert_eq!(stage.routes(voice), stage.routes(other));
        expect_nothing_lost(&mut stage);
    }
}

#[test]
fn unknown_names_change_nothing() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.run_for(secs(3));
    let (before, reports) = (stage.routes(voice), stage.host(host).reports().len());
    let mut key = stage.apps[voice].key;
    stage.handover(host, Some(key), None, Some("wlan7"));
    stage.handover(host, None, Some(Class::Voice), Some(""));
    stage.handover(host, None, None, Some("wifi2"));
    key.sport += 1;
    stage.handover(host, Some(key), None, Some("lte"));
    stage.run_for(secs(3));
    assert_eq!((stage.routes(voice), stage.host(host).reports().len()), (before, reports));
    expect_nothing_lost(&mut stage);
}

#[test]
fn an_order_outlives_an_outage_of_its_path_and_the_interface_itself() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let (bulk, voice) = (stage.add_bulk(host), stage.add_voice(host));
    stage.run_for(secs(3));
    let key = Some(stage.apps[voice].key);
    stage.handover(host, None, Some(Class::Bulk), Some("lte"));
    stage.handover(host, key, None, Some("lte"));
    let both = |stage: &Stage, path| stage.flows_use(bulk, path) && stage.flows_use(voice, path);
    stage.run_for(secs(1));
    assert!(both(&stage, "lte"));

    stage.set_alive(host, "lte", Way::Both, false);
    assert!(stage.run_while_not(secs(1), |stage| both(stage, "wifi")));
    stage.set_alive(host, "lte", Way::Both, true);
    assert!(stage.run_while_not(secs(3), |stage| both(stage, "lte")), "{:?}", stage.routes(voice));

    stage.set_present(host, "lte", false);
    assert!(stage.run_while_not(secs(1), |stage| both(stage, "wifi")));
    // Another interface does not inherit the order.
    stage.add_link(host, "usb", ms(40));
    stage.run_for(secs(5));
    assert!(both(&stage, "wifi"), "{:?}", stage.routes(bulk));
    stage.set_present(host, "lte", true);
    assert!(stage.run_while_not(secs(5), |stage| both(stage, "lte")), "{:?}", stage.routes(voice));
}

#[test]
fn a_flow_goes_back_to_its_path_only_once_that_has_been_up_for_a_while() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.run_for(secs(3));
    stage.handover(host, Some(stage.apps[voice].key), None, Some("lte"));
    stage.set_alive(host, "lte", Way::Both, false);
    assert!(stage.run_while_not(secs(1), |stage| stage.flows_use(voice, "wifi")));
    stage.run_for(secs(3));
    stage.set_alive(host, "lte", Way::Both, true);
    let hold = host_config(3, 60).steering.hold;
    let is_up =
        |stage: &Stage| stage.host(host).end().machine.paths().all(|(_, path)| path.is_up());
    assert!(stage.run_while_not(secs(3), is_up));
    let back = |stage: &Stage| stage.flows_use(voice, "lte");
    assert!(!stage.run_while_not(hold - ms(20), back), "{:?}", stage.routes(voice));
    assert!(stage.run_while_not(ms(200), back), "{:?}", stage.routes(voice));
}

#[test]
fn an_order_for_a_path_whose_uplink_is_dead_moves_both_directions() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    stage.add_link(host, "usb", ms(40));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(3));
    stage.set_alive(host, "wifi", Way::Up, false);
    stage.run_for(secs(2));
    assert_eq!(stage.routes(bulk), (Some("lte".into()), Some("wifi".into())));
    stage.handover(host, None, None, Some("usb"));
    stage.run_for(ms(200));
    assert!(stage.flows_use(bulk, "usb"), "{:?}", stage.routes(bulk));
}

/// Class, old path, new path and number of flows of the host's handovers since report number `from`. All must have been
/// requested.
fn ordered(stage: &Stage, host: usize, from: usize) -> Vec<(Option<Class>, String, String, usize)> {
    let reports = stage.host(host).reports()[from..].iter().map(|(_, report)| report);
    let mut seen = Vec::new();
    for report in reports {
        if let Report::Handover { class, from, to, cause, flows, .. } = report {
            assert_eq!(*cause, Cause::Requested, "{report:?}");
            seen.push((*class, from.clone(), to.clone(), *flows));
        }
    }
    seen
}

#[test]
fn an_order_for_a_class_moves_its_flows_alone_and_each_class_is_reported_by_itself() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let (voice, bulk) = (stage.add_voice(host), [stage.add_bulk(host), stage.add_bulk(host)]);
    stage.handover(host, None, None, Some("wifi"));
    stage.run_for(secs(1));
    let entry = |class, from: &str, to: &str, flows| (Some(class), from.into(), to.into(), flows);
    let mut order = |class, to| {
        let before = stage.host(host).reports().len();
        stage.handover(host, None, class, Some(to));
        let up = |app| stage.routes(app).0.unwrap();
        (ordered(&stage, host, before), up(voice), bulk.map(up))
    };
    let (wifi, lte) = (|| String::from("wifi"), || String::from("lte"));
    let (reports, of_voice, of_bulk) = order(Some(Class::Bulk), "lte");
    assert_eq!(reports, [entry(Class::Bulk, "wifi", "lte", 2)]);
    assert_eq!((of_voice, of_bulk), (wifi(), [lte(), lte()]));
    let (reports, of_voice, of_bulk) = order(Some(Class::Voice), "lte");
    assert_eq!(reports, [entry(Class::Voice, "wifi", "lte", 1)]);
    assert_eq!((of_voice, of_bulk), (lte(), [lte(), lte()]));
    let (mut reports, of_voice, of_bulk) = order(None, "wifi");
    reports.sort();
    let mut both =
        vec![entry(Class::Bulk, "lte", "wifi", 2), entry(Class::Voice, "lte", "wifi", 1)];
    both.sort();
    assert_eq!(reports, both);
    assert_eq!((of_voice, of_bulk), (wifi(), [wifi(), wifi()]));
}

#[test]
fn an_order_for_a_class_leaves_the_downlinks_of_the_others_where_they_are() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    stage.add_link(host, "usb", ms(40));
    let (voice, bulk) = (stage.add_voice(host), stage.add_bulk(host));
    stage.handover(host, None, None, Some("wifi"));
    stage.run_for(secs(3));
    stage.set_alive(host, "wifi", Way::Up, false);
    stage.run_for(secs(2));
    let by_detour = (Some("lte".into()), Some("wifi".into()));
    assert_eq!([stage.routes(voice), stage.routes(bulk)], [by_detour.clone(), by_detour.clone()]);
    stage.handover(host, None, Some(Class::Bulk), Some("usb"));
    stage.run_for(ms(200));
    assert!(stage.flows_use(bulk, "usb"), "{:?}", stage.routes(bulk));
    assert_eq!(stage.routes(voice), by_detour);
}
