//! The relay on this kernel, with real devices and packets in separate namespaces. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panic, as tests do")]

mod bindings;
mod class;
mod guards;
#[path = "../user_lab/local.rs"]
mod local;
mod optimized;
mod peers;
#[path = "../ebpf/stage.rs"]
mod stage;
#[path = "../ebpf/traffic.rs"]
mod traffic;
mod world;

use segue_ip::Form;
use traffic::{bulk_tcp, datagrams};
use world::{CORRESPONDENT, HOST, Path, TUNNEL, Wire, World, ip, may_run, over_both};

const FORMS: [(Form, bool); 8] = [
    (Form::Ip, true),
    (Form::Gre { send: Some(77), receive: Some(0x1234_5678) }, true),
    (Form::Gre { send: None, receive: None }, true),
    (Form::Udp { local: 4191, remote: 4192 }, true),
    (Form::Ip, false),
    (Form::Gre { send: Some(1), receive: None }, false),
    (Form::Gre { send: None, receive: None }, false),
    (Form::Udp { local: 5437, remote: 5437 }, false),
];

over_both! {
    every_form_carries_everything_with_offloads_whole
    every_form_carries_everything_without_segmentation_offload
    every_form_carries_everything_without_checksum_offload
    super_packets_out_of_a_tunnel_are_cut_for_an_access_without_offloads
}

fn carries_everything(path: Path, core: Wire, access: Wire) {
    if !may_run() {
        return;
    }
    let (form, outer_v6) = FORMS[0];
    let world = World::new(path, core, access, form, outer_v6);
    for (form, outer_v6) in FORMS {
        world.set_tunnel(form, outer_v6);
        println!("{core:?} {access:?} {form:?} over IPv6: {outer_v6}");
        for (from, to) in HOST.iter().zip(CORRESPONDENT) {
            bulk_tcp(&world.host, &world.correspondent, ip(to), 2 << 20);
            for (batch, what) in [(1, "datagrams"), (20, "UDP GSO")] {
                let up = datagrams(&world.host, &world.correspondent, ip(to), 100, 700, batch);
                let drops = [&world.access, &world.anchor]
                    .map(|router| router.relay.lock().unwrap().drops());
                assert_eq!(up.len(), 100, "{form:?}: {what} to {to}: {drops:?}");
                let down = datagrams(&world.correspondent, &world.host, ip(from), 100, 700, batch);
                assert_eq!(down.len(), 100, "{form:?}: {what} to {from}");
            }
        }
    }
    for router in [&world.access, &world.anchor] {
        let drops = router.relay.lock().unwrap().drops();
        assert!(drops.is_empty(), "{drops:?}");
        let carried = router.relay.lock().unwrap().tunnel_carried(TUNNEL);
        println!("{carried:?}");
        assert!(carried.sent_bytes > 16 << 20 && carried.received_bytes > 16 << 20);
    }
}

fn every_form_carries_everything_with_offloads_whole(path: Path) {
    carries_everything(path, Wire::Whole, Wire::Whole);
}

fn every_form_carries_everything_without_segmentation_offload(path: Path) {
    carries_everything(path, Wire::NoGso, Wire::NoGso);
}

fn every_form_carries_everything_without_checksum_offload(path: Path) {
    carries_everything(path, Wire::NoChecksum, Wire::Whole);
}

fn super_packets_out_of_a_tunnel_are_cut_for_an_access_without_offloads(path: Path) {
    carries_everything(path, Wire::Whole, Wire::NoChecksum);
}
