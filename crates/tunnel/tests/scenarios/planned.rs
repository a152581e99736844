//! The operator moves flows, and nothing is lost.

use segue_clock::Rng;
use segue_steering::Class;
use segue_tunnel::{Cause, Report};

use crate::net::{Net, Way, host_config, ms, secs};

/// Nothing was lost, sent twice or late.
fn expect_nothing_lost(net: &mut Net) {
    net.stop_apps();
    for app in &net.apps {
        assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        // Over the longer path a packet takes 20 ms more.
        assert!(app.up.gap(app.interval) <= ms(20) && app.down.gap(app.interval) <= ms(20));
    }
}

#[test]
fn one_flow_a_class_or_all_move_to_an_interface_and_back_without_loss() {
    for seed in 0..50 {
        let (mut net, host) = Net::two_paths(seed, host_config(3, 60));
        let (voice, other, bulk) = (net.add_voice(host), net.add_voice(host), net.add_bulk(host));
        net.run_for(secs(3) + ms(Rng::new(seed).below(1_000)));
        let on = |net: &Net, app, path| assert!(net.flows_use(app, path), "{:?}", net.routes(app));
        let key = Some(net.apps[voice].key);

        net.handover(host, key, None, Some("lte"));
        net.run_for(ms(150));
        on(&net, voice, "lte");
        on(&net, other, "wifi");
        net.handover(host, None, Some(Class::Voice), Some("wifi"));
        net.run_for(ms(150));
        on(&net, voice, "wifi");
        net.handover(host, None, Some(Class::Bulk), Some("lte"));
        net.run_for(ms(150));
        on(&net, bulk, "lte");
        on(&net, voice, "wifi");
        net.handover(host, None, None, Some("lte"));
        net.run_for(ms(150));
        for app in [voice, other, bulk] {
            on(&net, app, "lte");
        }
        net.run_for(secs(3));
        on(&net, bulk, "lte");
        net.handover(host, None, None, None);
        net.run_for(secs(3));
        on(&net, bulk, "wifi");
        net.handover(host, key, None, Some("lte"));
        net.run_for(secs(3));
        on(&net, voice, "lte");
        net.handover(host, key, None, None);
        net.run_for(secs(3));
        assert_eq!(net.routes(voice), net.routes(other));
        expect_nothing_lost(&mut net);
    }
}

#[test]
fn unknown_names_change_nothing() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let voice = net.add_voice(host);
    net.run_for(secs(3));
    let (before, reports) = (net.routes(voice), net.hosts[host].reports.len());
    let mut key = net.apps[voice].key;
    net.handover(host, Some(key), None, Some("wlan7"));
    net.handover(host, None, Some(Class::Voice), Some(""));
    net.handover(host, None, None, Some("wifi2"));
    key.sport += 1;
    net.handover(host, Some(key), None, Some("lte"));
    net.run_for(secs(3));
    assert_eq!((net.routes(voice), net.hosts[host].reports.len()), (before, reports));
    expect_nothing_lost(&mut net);
}

#[test]
fn an_order_outlives_an_outage_of_its_path_and_the_interface_itself() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let (bulk, voice) = (net.add_bulk(host), net.add_voice(host));
    net.run_for(secs(3));
    let key = Some(net.apps[voice].key);
    net.handover(host, None, Some(Class::Bulk), Some("lte"));
    net.handover(host, key, None, Some("lte"));
    let both = |net: &Net, path| net.flows_use(bulk, path) && net.flows_use(voice, path);
    net.run_for(secs(1));
    assert!(both(&net, "lte"));

    net.set_alive(host, "lte", Way::Both, false);
    assert!(net.run_while_not(secs(1), |net| both(net, "wifi")));
    net.set_alive(host, "lte", Way::Both, true);
    assert!(net.run_while_not(secs(3), |net| both(net, "lte")), "{:?}", net.routes(voice));

    net.link(host, "lte").present = false;
    net.announce(host);
    assert!(net.run_while_not(secs(1), |net| both(net, "wifi")));
    // Another interface does not inherit the order.
    net.add_link(host, "usb", ms(40));
    net.announce(host);
    net.run_for(secs(5));
    assert!(both(&net, "wifi"), "{:?}", net.routes(bulk));
    net.link(host, "lte").present = true;
    net.announce(host);
    assert!(net.run_while_not(secs(5), |net| both(net, "lte")), "{:?}", net.routes(voice));
}

#[test]
fn a_flow_goes_back_to_its_path_only_once_that_has_been_up_for_a_while() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let voice = net.add_voice(host);
    net.run_for(secs(3));
    net.handover(host, Some(net.apps[voice].key), None, Some("lte"));
    net.set_alive(host, "lte", Way::Both, false);
    assert!(net.run_while_not(secs(1), |net| net.flows_use(voice, "wifi")));
    net.run_for(secs(3));
    net.set_alive(host, "lte", Way::Both, true);
    let hold = net.hosts[host].config.steering.hold;
    let is_up = |net: &Net| net.hosts[host].end.machine.paths().all(|(_, path)| path.is_up());
    assert!(net.run_while_not(secs(3), is_up));
    let back = |net: &Net| net.flows_use(voice, "lte");
    assert!(!net.run_while_not(hold - ms(20), back), "{:?}", net.routes(voice));
    assert!(net.run_while_not(ms(200), back), "{:?}", net.routes(voice));
}

#[test]
fn an_order_for_a_path_whose_uplink_is_dead_moves_both_directions() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    net.add_link(host, "usb", ms(40));
    net.announce(host);
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    net.set_alive(host, "wifi", Way::Up, false);
    net.run_for(secs(2));
    assert_eq!(net.routes(bulk), (Some("lte".into()), Some("wifi".into())));
    net.handover(host, None, None, Some("usb"));
    net.run_for(ms(200));
    assert!(net.flows_use(bulk, "usb"), "{:?}", net.routes(bulk));
}

/// Class, from, to and flows of the handovers that the host has reported since `from`, all ordered.
fn ordered(net: &Net, host: usize, from: usize) -> Vec<(Option<Class>, String, String, usize)> {
    let reports = net.hosts[host].reports[from..].iter().map(|(_, report)| report);
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
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let (voice, bulk) = (net.add_voice(host), [net.add_bulk(host), net.add_bulk(host)]);
    net.handover(host, None, None, Some("wifi"));
    net.run_for(secs(1));
    let entry = |class, from: &str, to: &str, flows| (Some(class), from.into(), to.into(), flows);
    let mut order = |class, to| {
        let before = net.hosts[host].reports.len();
        net.handover(host, None, class, Some(to));
        let up = |app| net.routes(app).0.unwrap();
        (ordered(&net, host, before), up(voice), bulk.map(up))
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
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    net.add_link(host, "usb", ms(40));
    net.announce(host);
    let (voice, bulk) = (net.add_voice(host), net.add_bulk(host));
    net.handover(host, None, None, Some("wifi"));
    net.run_for(secs(3));
    net.set_alive(host, "wifi", Way::Up, false);
    net.run_for(secs(2));
    let by_detour = (Some("lte".into()), Some("wifi".into()));
    assert_eq!([net.routes(voice), net.routes(bulk)], [by_detour.clone(), by_detour.clone()]);
    net.handover(host, None, Some(Class::Bulk), Some("usb"));
    net.run_for(ms(200));
    assert!(net.flows_use(bulk, "usb"), "{:?}", net.routes(bulk));
    assert_eq!(net.routes(voice), by_detour);
}
