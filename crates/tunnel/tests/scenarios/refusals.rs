//! What the anchor refuses, and that nothing else changes with it.

use segue_tunnel::{AnchorConfig, AnchorInput, ConnId, Known, Pool, Report};
use segue_wire::FlowKey;
use segue_wire::signal::{FromAnchor, FromHost, PathOffer, Refusal, SIGNAL_VERSION};

use crate::net::{Net, anchor_config, host_config, ms, secs};

fn register(epoch: u64) -> FromHost {
    FromHost::Register { version: SIGNAL_VERSION, epoch }
}

fn offer(path: u8, k: u8, t_ka_ms: u16, cookie: u64) -> FromHost {
    let name = format!("if{path}");
    FromHost::AddPath(PathOffer {
        path,
        name,
        index: u32::from(path),
        cookie,
        k,
        t_ka_ms,
        mode: segue_wire::Mode::Both,
        rides: false,
        encapsulation: segue_wire::Encapsulation::Segue,
        n: 10,
        taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
        follows_use: false,
        largest: 1_456,
    })
}

/// Sends a message by hand; what the anchor answers to it.
fn say(net: &mut Net, conn: ConnId, message: FromHost) -> Vec<FromAnchor> {
    let before = net.said.len();
    net.tell_anchor(AnchorInput::Signal { conn, message });
    net.said[before..].iter().filter(|(to, _)| *to == conn).map(|(_, m)| m.clone()).collect()
}

/// A running host with a voice flow, to see that it does not notice.
fn bystander(config: AnchorConfig) -> (Net, usize) {
    let mut net = Net::with_anchor(9, config);
    let host = net.add_host("alice", host_config(3, 60));
    net.add_link(host, "wifi", ms(10));
    net.add_link(host, "lte", ms(30));
    net.announce(host);
    net.run_for(secs(2));
    net.add_voice(host);
    net.run_for(secs(1));
    net.reset_streams();
    (net, host)
}

fn expect_undisturbed(net: &mut Net, host: usize) {
    net.run_for(secs(2));
    net.stop_apps();
    for app in &net.apps {
        assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        assert!(app.up.worst <= ms(20) && app.down.worst <= ms(20));
    }
    assert!(net.hosts[host].end.machine.registered());
    let alice = net.anchor.machine.hosts().find(|h| h.name == "alice").expect("registered");
    assert_eq!((alice.paths.len(), alice.conn), (2, net.hosts[host].conn));
}

#[test]
fn replays_other_versions_and_messages_out_of_turn_are_refused() {
    let (mut net, host) = bystander(anchor_config());
    for (message, reason) in [
        (register(0), Refusal::Held),
        (
            FromHost::Register { version: SIGNAL_VERSION + 1, epoch: 99 },
            Refusal::Version { speaks: SIGNAL_VERSION },
        ),
        (offer(0, 3, 60, 1), Refusal::Protocol),
        (FromHost::RemovePath { path: 0 }, Refusal::Protocol),
        (FromHost::Leave, Refusal::Protocol),
    ] {
        let conn = net.open(host, "wifi", "alice");
        let answer = say(&mut net, conn, message);
        assert_eq!(answer, [FromAnchor::Refused { reason }]);
        // The connection is closed: what still comes over it is not heard.
        assert_eq!(say(&mut net, conn, register(100)), []);
    }
    assert_eq!(net.persisted["alice"].epoch, 1);
    expect_undisturbed(&mut net, host);
}

#[test]
fn paths_out_of_range_senseless_settings_and_floods_are_refused() {
    let mut config = anchor_config();
    config.max_paths = 12;
    let (mut net, host) = bystander(config);
    net.enrolled.insert("mallory".into());
    let conn = net.open(host, "wifi", "mallory");
    assert!(matches!(say(&mut net, conn, register(1))[..], [FromAnchor::Registered { .. }]));
    for (path, k, t_ka_ms) in [(16, 3, 60), (255, 3, 60), (1, 0, 60), (1, 3, 0), (1, 3, 4)] {
        let answer = say(&mut net, conn, offer(path, k, t_ka_ms, 1));
        assert_eq!(answer, [FromAnchor::PathRefused { path, reason: Refusal::NoPath }]);
    }
    let mut granted = 0;
    for round in 0..100u64 {
        for path in 0..16 {
            let answer = say(&mut net, conn, offer(path, 3, 60, round + 1));
            granted += usize::from(matches!(answer[..], [FromAnchor::PathReady(_)]));
        }
    }
    // Slots 1 to 11 less the two of the other host, each taken anew in every round.
    assert_eq!((granted, net.anchor.machine.paths().count()), (900, 11));
    let mallory = net.anchor.machine.hosts().find(|h| h.name == "mallory").unwrap();
    assert_eq!(mallory.paths.len(), 9);
    expect_undisturbed(&mut net, host);
}

#[test]
fn a_path_refused_for_want_of_room_is_offered_again() {
    let mut config = anchor_config();
    config.max_paths = 3;
    let (mut net, alice) = bystander(config);
    let bob = net.add_host("bob", host_config(3, 60));
    net.add_link(bob, "wifi", ms(10));
    net.announce(bob);
    net.run_for(secs(30));
    assert!(net.hosts[bob].end.machine.registered());
    assert!(net.hosts[bob].end.machine.paths().all(|(_, path)| !path.is_up()));
    assert!(net.load.worst_signals <= 20, "{:?}", net.load);
    net.link(alice, "lte").present = false;
    net.announce(alice);
    net.run_for(secs(10));
    assert!(net.hosts[bob].end.machine.paths().all(|(_, path)| path.is_up()));
}

#[test]
fn a_full_pool_refuses_and_the_others_keep_their_addresses() {
    let mut config = anchor_config();
    config.pool_v4 = Pool::new("10.7.0.0".parse().unwrap(), 30);
    let (mut net, host) = bystander(config);
    net.enrolled.insert("bob".into());
    let conn = net.open(host, "wifi", "bob");
    let refused = [FromAnchor::Refused { reason: Refusal::NoAddress }];
    assert_eq!(say(&mut net, conn, register(1)), refused);
    expect_undisturbed(&mut net, host);
    assert!(!net.persisted.contains_key("bob"));
}

#[test]
fn a_newer_start_of_a_host_replaces_the_older_one() {
    let (mut net, host) = bystander(anchor_config());
    let inner = net.hosts[host].end.machine.inner().to_vec();
    let conn = net.open(host, "wifi", "alice");
    let answer = say(&mut net, conn, register(2));
    assert!(
        matches!(&answer[..], [FromAnchor::Registered { inner: again, .. }] if *again == inner)
    );
    // Also over one and the same connection.
    let answer = say(&mut net, conn, register(3));
    assert!(
        matches!(&answer[..], [FromAnchor::Registered { inner: again, .. }] if *again == inner)
    );
    let alice = net.anchor.machine.hosts().next().unwrap();
    assert_eq!((alice.conn, alice.paths.len()), (Some(conn), 0));
    // The host with the old epoch learns that another machine has its credentials, and does not insist.
    net.run_for(secs(60));
    assert!(!net.hosts[host].end.machine.registered());
    assert!(net.load.worst_signals <= 25, "{:?}", net.load);
    let told = |host: usize| {
        let held =
            |report: &Report| matches!(report, Report::Refused { reason: Refusal::Held, .. });
        net.hosts[host].reports.iter().filter(|(_, report)| held(report)).count()
    };
    // Every two seconds.
    assert!((25..=31).contains(&told(host)), "{}", told(host));
    // When that one is gone it goes on from there.
    net.tell_anchor(AnchorInput::Disconnected { conn });
    assert!(net.run_while_not(secs(5), |net| net.hosts[host].end.machine.registered()));
    assert_eq!(net.persisted["alice"].epoch, 4);
    net.run_for(secs(2));
    net.reset_streams();
    expect_undisturbed(&mut net, host);
}

#[test]
fn a_host_whose_clock_was_set_back_goes_on_from_its_last_epoch() {
    let known = Known { name: "alice".into(), epoch: 1 << 60, inner: Vec::new() };
    let mut net = Net::with_anchor(9, anchor_config());
    net.anchor.recall(net.now, [known]);
    let host = net.add_host("alice", host_config(3, 60));
    net.add_link(host, "wifi", ms(10));
    net.announce(host);
    assert!(net.run_while_not(secs(2), |net| net.hosts[host].end.machine.registered()));
    assert_eq!(net.persisted["alice"].epoch, (1 << 60) + 1);
    assert!(net.hosts[host].reports.iter().all(|(_, r)| !matches!(r, Report::Refused { .. })));
}

#[test]
fn a_connection_that_is_refused_does_not_keep_its_host_from_expiring() {
    let (mut net, host) = bystander(anchor_config());
    let conn = net.hosts[host].conn.unwrap();
    let answer = say(&mut net, conn, FromHost::Register { version: 0, epoch: 1 });
    assert_eq!(answer.len(), 1);
    assert_eq!(net.anchor.machine.hosts().next().unwrap().conn, None);
    net.run_for(ms(100));
    assert!(!net.hosts[host].end.machine.registered());
    // Its paths live on, and it registers again by itself.
    assert!(net.run_while_not(secs(10), |net| net.hosts[host].end.machine.registered()));
    expect_undisturbed(&mut net, host);
}

/// Finding the oldest flow means a look at all of them.
#[test]
fn under_a_flood_of_new_flows_the_host_looks_for_old_ones_once_in_a_thousand() {
    const MOST: u32 = 65_536;
    let (mut net, host) = bystander(anchor_config());
    let address = |n: u32| core::net::IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
    let mut counts = Vec::new();
    for n in 0..MOST + 2_000 {
        let (dport, protocol) = (1 + (n >> 16) as u16, 17);
        let key = FlowKey { src: address(1), dst: address(n), sport: 9, dport, protocol, label: 0 };
        net.miss_at_host(host, key, 0);
        if n > MOST - 9 {
            counts.push(net.hosts[host].end.machine.flows().count() as u32);
        }
    }
    assert_eq!(counts.iter().max(), Some(&MOST));
    let looks = counts.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(looks, 2);
}

#[test]
fn a_host_that_registers_over_another_connection_has_its_old_one_closed() {
    let (mut net, host) = bystander(anchor_config());
    let old = net.hosts[host].conn.unwrap();
    // Over the same connection again nothing ends.
    assert!(matches!(say(&mut net, old, register(1))[..], [FromAnchor::Registered { .. }]));
    net.run_for(ms(100));
    assert_eq!(net.hosts[host].conn, Some(old));
    let new = net.open(host, "lte", "alice");
    assert!(matches!(say(&mut net, new, register(1))[..], [FromAnchor::Registered { .. }]));
    let alice = net.anchor.machine.hosts().next().unwrap();
    assert_eq!((alice.conn, alice.paths.len()), (Some(new), 2), "it is the same registration");
    // What still comes over the old one is not heard: not answered, and the host does not leave.
    assert_eq!(say(&mut net, old, FromHost::Leave), []);
    assert_eq!(say(&mut net, old, register(2)), []);
    assert_eq!(net.anchor.machine.hosts().next().unwrap().conn, Some(new));
    net.run_for(ms(100));
    assert_ne!(net.hosts[host].conn, Some(old), "the host has seen the end of it");
}
