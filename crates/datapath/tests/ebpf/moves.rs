//! Flows that move, other tunnels inside, and an end that dies.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp, remove_stale_filters};
use segue_datapath::{Datapath, Role, Via};
use segue_linux::link;
use segue_linux::netns::Netns;

use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{
    End, Family, PORT, Wire, World, anchor_slot, eventually, host_slot, may_run, setup,
};

#[test]
fn the_first_packets_of_a_flow_are_kept_and_the_daemon_is_asked_once() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    let (host, anchor) = (&world.host, &world.anchor);
    let receiver = anchor.ns.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = host.ns.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
    let before = host.misses.load(Ordering::Relaxed);
    {
        // The stand-in daemon cannot decide while this is held, so that all of them must wait.
        let _busy = host.datapath.lock().unwrap();
        for n in 0..30u8 {
            sender.send_to(&[n], receiver.local_addr().unwrap()).unwrap();
        }
    }
    let mut got: Vec<u8> = (0..30)
        .map(|_| {
            let mut byte = [0];
            receiver.recv(&mut byte).unwrap();
            byte[0]
        })
        .collect();
    got.sort_unstable();
    assert_eq!(got, (0..30).collect::<Vec<u8>>());
    assert_eq!(datagrams(&host.ns, &anchor.ns, "10.8.0.2".parse().unwrap(), 50, 100, 1).len(), 50);
    assert!(host.misses.load(Ordering::Relaxed) - before <= 4, "a binding ends the misses");
    assert_eq!(anchor.misses.load(Ordering::Relaxed), 0, "the anchor learned the way back");
}

#[test]
fn via_moves_all_flows_at_once_and_one_way_moves_are_not_learned() {
    if !may_run() {
        return;
    }
    for xdp in [Xdp::Off, Xdp::On] {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(Family::V4, Wire::NoGso, 2, options);
        let receiver = world.anchor.ns.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = world.host.ns.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
        let exchange = || {
            sender.send_to(b"there", receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
            let port = sender.local_addr().unwrap().port();
            let flows = world.anchor.datapath.lock().unwrap().flows();
            flows.iter().find(|f| f.key.dport == port && f.key.protocol == 17).unwrap().slot
        };
        let via = |via| {
            world.host.datapath.lock().unwrap().set_via(host_slot(0), via).unwrap();
        };
        let received = |path| world.anchor.counters(anchor_slot(path)).rx_packets;
        assert_eq!(exchange(), anchor_slot(0));
        via(Some(Via { slot: host_slot(1), one_way: true }));
        let before = received(1);
        assert_eq!(exchange(), anchor_slot(0), "one way: the way back stays");
        assert_eq!(received(1), before + 1);
        via(Some(Via { slot: host_slot(1), one_way: false }));
        assert_eq!(exchange(), anchor_slot(1), "the way back follows");
        via(None);
        assert_eq!(exchange(), anchor_slot(0));
    }
}

fn add_vxlan(end: &End, this: u8) {
    let other = 3 - this;
    let steps = [
        format!(
            "link add sgvx type vxlan id 9 dstport 4789 local 10.8.0.{this} remote 10.8.0.{other} dev segue0"
        ),
        format!("addr add 10.7.0.{this}/24 dev sgvx"),
        "link set sgvx up".into(),
    ];
    for step in steps {
        let done = end.ns.command("ip").args(step.split(' ')).status().unwrap();
        assert!(done.success(), "ip {step}");
    }
}

#[test]
fn a_vxlan_inside_the_tunnel_works_both_ways() {
    if !may_run() {
        return;
    }
    for wire in [Wire::Whole, Wire::NoChecksum] {
        let world = World::ready(Family::V4, wire, 1, EbpfOptions::default());
        add_vxlan(&world.host, 1);
        add_vxlan(&world.anchor, 2);
        bulk_tcp(&world.host.ns, &world.anchor.ns, "10.7.0.2".parse().unwrap(), 1 << 20);
    }
}

const CHILD: &str = "SEGUE_TEST_NAMESPACE";

/// Not a test: the process that the next one kills.
#[test]
#[ignore = "started by the test of a crash"]
fn child_that_will_be_killed() {
    let Ok(namespace) = std::env::var(CHILD) else { return };
    let (namespace, tcx) = namespace.split_once(',').unwrap();
    Netns::open(namespace).unwrap().enter_thread().unwrap();
    let options = EbpfOptions { xdp: Xdp::On, tcx: tcx == "tcx" };
    let setup = setup(Role::Anchor, Family::V4);
    let mut datapath = Ebpf::with_options(&setup, Arc::new(|_| ()), options).unwrap();
    datapath.attach(link::index_of("sg0").unwrap()).unwrap();
    datapath.heartbeat();
    println!("attached");
    for _ in 0..120 {
        std::thread::sleep(Duration::from_millis(500));
        datapath.heartbeat();
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_that_eats_packets() {
    if !may_run() {
        return;
    }
    for tcx in ["tcx", "clsact"] {
        let name = |end| format!("segue-e{}-{tcx}{end}", std::process::id());
        let (a, b) = (Netns::create(&name('a')).unwrap(), Netns::create(&name('b')).unwrap());
        a.run(|| link::create_veth("sg0", "sg0", Some(&b))).unwrap().unwrap();
        for (ns, address) in [(&a, "10.9.0.1/24"), (&b, "10.9.0.2/24")] {
            ns.run(|| {
                link::add_address("sg0", address.parse().unwrap()).unwrap();
                link::set_up("sg0", true).unwrap();
            })
            .unwrap();
        }
        let to: SocketAddr = ([10, 9, 0, 2], PORT).into();
        let receiver = b.run(|| UdpSocket::bind(to)).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let sender = a.run(|| UdpSocket::bind("10.9.0.1:0")).unwrap().unwrap();
        let mut serial = 0u32;
        let mut arrives = || {
            serial += 1;
            sender.send_to(&[&serial.to_be_bytes()[..], &[0; 56]].concat(), to).unwrap();
            let mut bytes = [0; 100];
            // Earlier ones may come late.
            while receiver.recv(&mut bytes).is_ok() {
                if bytes[..4] == serial.to_be_bytes() {
                    return true;
                }
            }
            false
        };
        eventually("packets without a daemon", &mut arrives);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "child_that_will_be_killed"])
            .env(CHILD, format!("{},{tcx}", name('b')))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains("attached"));
        // A child that got no processor for seconds counts as dead; it soon says otherwise.
        let eaten = (0..20).any(|_| !arrives());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ready && eaten, "the child had the port");
        eventually("packets after the crash", &mut arrives);
        assert!(b.run(|| link::index_of("segue0")).unwrap().is_err(), "the TUN device is gone");
        // What stays on kernels without tcx is found and removed by name.
        let index = b.run(|| link::index_of("sg0").unwrap()).unwrap();
        let removed = b.run(|| remove_stale_filters(index)).unwrap();
        assert!(tcx == "tcx" || removed == ["segue_ingress"], "{removed:?}");
        assert!(b.run(|| remove_stale_filters(index)).unwrap().is_empty());
    }
}
