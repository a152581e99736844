//! How a host begins.

use segue_clock::Span;

use crate::net::{Net, Way, host_config, ms, secs};

#[test]
fn a_host_registers_over_the_live_interface_though_the_preferred_one_is_dead() {
    let mut net = Net::new(1);
    let host = net.add_host("alice", host_config(3, 60));
    net.add_link(host, "wifi", ms(10));
    net.add_link(host, "lte", ms(30));
    net.set_alive(host, "wifi", Way::Both, false);
    net.announce(host);
    let start = net.now;
    assert!(net.run_while_not(secs(1), |net| net.hosts[host].end.machine.registered()));
    // Two round trips of the handshake, one of the registration: nothing waits for the dead path.
    assert!(net.now.since(start) <= ms(3 * 60 + 1), "{}", net.now.since(start));
    assert_eq!(net.hosts[host].end.machine.signal_interface(), Some("lte"));
    // Bulk, since for voice both paths are as good.
    let bulk = net.add_bulk(host);
    assert!(net.run_while_not(ms(200), |net| net.apps[bulk].up.received > 0));

    net.run_for(secs(2));
    net.set_alive(host, "wifi", Way::Both, true);
    let steering_hold: Span = net.hosts[host].config.steering.hold;
    assert!(
        net.run_while_not(ms(60) * 10 + steering_hold, |net| net.flows_use(bulk, "wifi")),
        "{:?}",
        net.routes(bulk)
    );
    assert!(net.load.worst_signals <= 12, "{:?}", net.load);
}
