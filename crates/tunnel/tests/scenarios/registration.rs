//! The start of a host.

use crate::stage::{Stage, Way, host_config, ms, secs};

#[test]
fn a_host_registers_over_the_live_interface_though_the_preferred_one_is_dead() {
    let mut stage = Stage::new(1);
    let host = stage.add_host("alice", host_config(3, 60));
    stage.add_link(host, "wifi", ms(10));
    stage.add_link(host, "lte", ms(30));
    stage.set_alive(host, "wifi", Way::Both, false);
    let start = stage.now();
    assert!(stage.run_while_not(secs(1), |stage| stage.is_registered(host)));
    // One round trip for the handshake and one for the registration: nothing waits for the dead path.
    assert!(stage.now().since(start) <= ms(2 * 60 + 1), "{}", stage.now().since(start));
    assert_eq!(stage.host(host).end().machine.signal_interface(), Some("lte"));
    // Bulk, because for voice both paths are equally good.
    let bulk = stage.add_bulk(host);
    assert!(stage.run_while_not(ms(200), |stage| stage.apps[bulk].up.received > 0));

    stage.run_for(secs(2));
    stage.set_alive(host, "wifi", Way::Both, true);
    let hold = host_config(3, 60).steering.hold;
    assert!(
        stage.run_while_not(ms(60) * 10 + hold, |stage| stage.flows_use(bulk, "wifi")),
        "{:?}",
        stage.routes(bulk)
    );
    assert!(stage.load().worst_signals <= 12, "{:?}", stage.load());
}
