//! The anchor's refusals, and their lack of side effects.

use segue_sim::tunnel::signal::Conn;
use segue_tunnel::{AnchorConfig, AnchorInput, Known, Pool, Report};
use segue_wire::FlowKey;
use segue_wire::signal::{FromAnchor, FromHost, PathOffer, Refusal, SIGNAL_VERSION};

use crate::stage::{Stage, anchor_config, host_config, ms, offer, secs, stray};

fn register(epoch: u64) -> FromHost {
    FromHost::Register { version: SIGNAL_VERSION, epoch }
}

fn offered(path: u8, k: u8, t_ka_ms: u16, cookie: u64) -> FromHost {
    FromHost::AddPath(PathOffer { k, t_ka_ms, cookie, ..offer(path) })
}

/// The host's epoch as stored by the anchor.
fn stored(stage: &Stage, name: &str) -> Option<u64> {
    stage.anchor().records().find(|known| known.name == name).map(|known| known.epoch)
}

/// A running host with a voice flow, which must not be affected.
fn bystander(config: AnchorConfig) -> (Stage, usize) {
    let (mut stage, host) = Stage::two_paths_to(9, host_config(3, 60), config);
    stage.add_voice(host);
    stage.run_for(secs(1));
    stage.reset_streams();
    (stage, host)
}

fn expect_undisturbed(stage: &mut Stage, host: usize) {
    stage.run_for(secs(2));
    stage.stop_apps();
    for app in &stage.apps {
        assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        assert!(app.up.worst <= ms(20) && app.down.worst <= ms(20));
    }
    assert!(stage.is_registered(host));
    let alice =
        stage.anchor().end().machine.hosts().find(|h| h.name == "alice").expect("registered");
    let conn = alice.conn.and_then(|conn| stage.anchor().signal().conn(conn));
    assert_eq!((alice.paths.len(), conn.map(Conn::id)), (2, stage.connection(host)));
}

#[test]
fn replays_other_versions_and_messages_out_of_turn_are_refused() {
    let (mut stage, host) = bystander(anchor_config());
    for (message, reason) in [
        (register(0), Refusal::Held),
        (
            FromHost::Register { version: SIGNAL_VERSION + 1, epoch: 99 },
            Refusal::Version { speaks: SIGNAL_VERSION },
        ),
        (offered(0, 3, 60, 1), Refusal::Protocol),
        (FromHost::RemovePath { path: 0 }, Refusal::Protocol),
        (FromHost::Leave, Refusal::Protocol),
    ] {
        let conn = stage.open("alice");
        let answer = stage.say(conn, message);
        assert_eq!(answer, [FromAnchor::Refused { reason }]);
        // The connection is closed: further messages on it are ignored.
        assert_eq!(stage.say(conn, register(100)), []);
    }
    assert_eq!(stored(&stage, "alice"), Some(1));
    expect_undisturbed(&mut stage, host);
}

#[test]
fn paths_out_of_range_senseless_settings_and_floods_are_refused() {
    let mut config = anchor_config();
    config.max_paths = 12;
    let (mut stage, host) = bystander(config);
    let conn = stage.open("mallory");
    assert!(matches!(stage.say(conn, register(1))[..], [FromAnchor::Registered { .. }]));
    for (path, k, t_ka_ms) in [(16, 3, 60), (255, 3, 60), (1, 0, 60), (1, 3, 0), (1, 3, 4)] {
        let answer = stage.say(conn, offered(path, k, t_ka_ms, 1));
        assert_eq!(answer, [FromAnchor::PathRefused { path, reason: Refusal::NoPath }]);
    }
    let mut granted = 0;
    for round in 0..100u64 {
        for path in 0..16 {
            let answer = stage.say(conn, offered(path, 3, 60, round + 1));
            granted += usize::from(matches!(answer[..], [FromAnchor::PathReady(_)]));
        }
    }
    // Slots 1 to 11 except the other host's two, each reused in every round.
    assert_eq!((granted, stage.anchor().end().machine.paths().count()), (900, 11));
    let mallory = stage.anchor().end().machine.hosts().find(|h| h.name == "mallory").unwrap();
    assert_eq!(mallory.paths.len(), 9);
    expect_undisturbed(&mut stage, host);
}

#[test]
fn a_path_refused_for_want_of_room_is_offered_again() {
    let mut config = anchor_config();
    config.max_paths = 3;
    let (mut stage, alice) = bystander(config);
    let bob = stage.add_host("bob", host_config(3, 60));
    stage.add_link(bob, "wifi", ms(10));
    stage.run_for(secs(30));
    assert!(stage.is_registered(bob));
    assert!(stage.host(bob).end().machine.paths().all(|(_, path)| !path.is_up()));
    assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
    stage.set_present(alice, "lte", false);
    stage.run_for(secs(10));
    assert!(stage.host(bob).end().machine.paths().all(|(_, path)| path.is_up()));
}

#[test]
fn a_full_pool_refuses_and_the_others_keep_their_addresses() {
    let mut config = anchor_config();
    config.pool_v4 = Pool::new("10.7.0.0/30".parse().unwrap());
    let (mut stage, host) = bystander(config);
    let conn = stage.open("bob");
    let refused = [FromAnchor::Refused { reason: Refusal::NoAddress }];
    assert_eq!(stage.say(conn, register(1)), refused);
    expect_undisturbed(&mut stage, host);
    assert_eq!(stored(&stage, "bob"), None);
}

#[test]
fn a_newer_start_of_a_host_replaces_the_older_one() {
    let (mut stage, host) = bystander(anchor_config());
    let inner = stage.host(host).end().machine.inner().to_vec();
    let conn = stage.open("alice");
    let answer = stage.say(conn, register(2));
    assert!(
        matches!(&answer[..], [FromAnchor::Registered { inner: again, .. }] if *again == inner)
    );
    // Also over the same connection.
    let answer = stage.say(conn, register(3));
    assert!(
        matches!(&answer[..], [FromAnchor::Registered { inner: again, .. }] if *again == inner)
    );
    let alice = stage.anchor().end().machine.hosts().next().unwrap();
    assert_eq!((alice.conn, alice.paths.len()), (Some(conn), 0));
    // The host with the old epoch learns that another machine uses its credentials, and retries slowly.
    stage.run_for(secs(60));
    assert!(!stage.is_registered(host));
    assert!(stage.load().worst_signals <= 25, "{:?}", stage.load());
    let told = |host: usize| {
        let held =
            |report: &Report| matches!(report, Report::Refused { reason: Refusal::Held, .. });
        stage.host(host).reports().iter().filter(|(_, report)| held(report)).count()
    };
    // One refusal every two seconds.
    assert!((25..=31).contains(&told(host)), "{}", told(host));
    // When the other machine is gone, the host continues from that epoch.
    stage.tell_anchor(AnchorInput::Disconnected { conn });
    assert!(stage.run_while_not(secs(5), |stage| stage.is_registered(host)));
    assert_eq!(stored(&stage, "alice"), Some(4));
    stage.run_for(secs(2));
    stage.reset_streams();
    expect_undisturbed(&mut stage, host);
}

#[test]
fn a_host_whose_clock_was_set_back_goes_on_from_its_last_epoch() {
    let known = Known { name: "alice".into(), epoch: 1 << 60, inner: Vec::new() };
    let mut stage = Stage::with_anchor(9, anchor_config());
    stage.recall(known);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "wifi", ms(10));
    assert!(stage.run_while_not(secs(2), |stage| stage.is_registered(host)));
    assert_eq!(stored(&stage, "alice"), Some((1 << 60) + 1));
    assert!(stage.host(host).reports().iter().all(|(_, r)| !matches!(r, Report::Refused { .. })));
}

#[test]
fn a_connection_that_is_refused_does_not_keep_its_host_from_expiring() {
    let (mut stage, host) = bystander(anchor_config());
    let conn = stage.conn_of("alice").unwrap();
    let answer = stage.say(conn, FromHost::Register { version: 0, epoch: 1 });
    assert_eq!(answer.len(), 1);
    assert_eq!(stage.anchor().end().machine.hosts().next().unwrap().conn, None);
    stage.run_for(ms(100));
    assert!(!stage.is_registered(host));
    // Its paths stay up, and it registers again by itself.
    assert!(stage.run_while_not(secs(10), |stage| stage.is_registered(host)));
    expect_undisturbed(&mut stage, host);
}

/// Finding the oldest flow requires a scan of all flows.
#[test]
fn under_a_flood_of_new_flows_the_host_looks_for_old_ones_once_in_a_thousand() {
    const MOST: u32 = 65_536;
    let (mut stage, host) = bystander(anchor_config());
    let address = |n: u32| core::net::IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
    let counts = stage.at_host_end(host, |end, now, effects| {
        let mut counts = Vec::new();
        for n in 0..MOST + 2_000 {
            let (dport, protocol) = (1 + (n >> 16) as u16, 17);
            let (src, dst) = (address(1), address(n));
            let key = FlowKey { src, dst, sport: 9, dport, protocol, label: 0 };
            end.send(now, stray(now, key, 0), effects);
            if n > MOST - 9 {
                counts.push(end.machine.flows().count() as u32);
            }
        }
        counts
    });
    assert_eq!(counts.iter().max(), Some(&MOST));
    let looks = counts.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(looks, 2);
}

#[test]
fn a_host_that_registers_over_another_connection_has_its_old_one_closed() {
    let (mut stage, host) = bystander(anchor_config());
    let (old, connection) = (stage.conn_of("alice").unwrap(), stage.connection(host));
    // Registering again over the same connection closes nothing.
    assert!(matches!(stage.say(old, register(1))[..], [FromAnchor::Registered { .. }]));
    stage.run_for(ms(100));
    assert_eq!(stage.connection(host), connection);
    let new = stage.open("alice");
    assert!(matches!(stage.say(new, register(1))[..], [FromAnchor::Registered { .. }]));
    let alice = stage.anchor().end().machine.hosts().next().unwrap();
    assert_eq!((alice.conn, alice.paths.len()), (Some(new), 2), "it is the same registration");
    // Further messages on the old connection are ignored: they get no answer, and the host does not leave.
    assert_eq!(stage.say(old, FromHost::Leave), []);
    assert_eq!(stage.say(old, register(2)), []);
    assert_eq!(stage.anchor().end().machine.hosts().next().unwrap().conn, Some(new));
    stage.run_for(ms(100));
    assert_ne!(stage.connection(host), connection, "the host has seen the end of it");
}
