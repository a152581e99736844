//! Flows that move, and other tunnels inside the tunnel.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_datapath::{Datapath, LinuxDatapath, Via};

use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{End, Family, Wire, World, anchor_slot, eventually, host_slot, may_run};

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
    let (before, start) = (host.misses.load(Ordering::Relaxed), Instant::now());
    {
        // The stand-in daemon cannot decide while this lock is held, so all of them must wait.
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
    // The flow is reported again after 100 ms; a busy machine takes longer to send all of them.
    let asks = 4 + start.elapsed().as_millis() as usize / 100;
    assert!(host.misses.load(Ordering::Relaxed) - before <= asks, "a binding ends the misses");
    assert_eq!(anchor.misses.load(Ordering::Relaxed), 0, "the anchor learned the way back");
}

#[test]
fn packets_that_waited_for_the_daemon_keep_their_order_when_only_a_later_ask_is_answered() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    let (host, anchor) = (&world.host, &world.anchor);
    let receiver = anchor.ns.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    let sender = host.ns.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
    let send = |n: u8| sender.send_to(&[n], receiver.local_addr().unwrap()).unwrap();
    let receive = || {
        let mut byte = [0];
        receiver.recv(&mut byte).map(|_| byte[0])
    };
    let asked = || host.misses.load(Ordering::Relaxed);
    let before = asked();
    let slot = host.bind_to.swap(u32::MAX, Ordering::Relaxed);
    (0..10).for_each(|n| {
        send(n);
    });
    eventually("the first ask", || asked() > before);
    // Longer than the time after which the flow is reported again.
    std::thread::sleep(Duration::from_millis(150));
    host.bind_to.store(slot, Ordering::Relaxed);
    let mut sent = 10;
    let first = loop {
        send(sent);
        sent += 1;
        match receive() {
            Ok(first) => break first,
            Err(error) => assert!(sent < 30, "nothing arrives: {error}"),
        }
    };
    let (mut got, end) = (vec![first], Instant::now() + Duration::from_secs(10));
    while got.last() != Some(&(sent - 1)) && Instant::now() < end {
        got.extend(receive());
    }
    // A reported packet belongs to the daemon, which has discarded all but the last.
    let thrown_away = (asked() - before - 1) as u8;
    assert!(thrown_away >= 1);
    assert_eq!(got, (thrown_away..sent).collect::<Vec<u8>>());
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
        let flow = || {
            let port = sender.local_addr().unwrap().port();
            let flows = world.anchor.datapath.lock().unwrap().flows();
            *flows.iter().find(|f| f.key.dport == port && f.key.protocol == 17).unwrap()
        };
        let exchange = || {
            sender.send_to(b"there", receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
            flow().slot
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
        // Four packets of five bytes, with IP and UDP headers. The return path has moved twice, and its
        // counters carry over.
        let flow = flow();
        assert_eq!((flow.packets, flow.received_packets, flow.received_bytes), (0, 4, 132));
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
    for wire in [Wire::Whole, Wire::NoGso, Wire::NoChecksum] {
        let world = World::ready(Family::V4, wire, 1, EbpfOptions::default());
        add_vxlan(&world.host, 1);
        add_vxlan(&world.anchor, 2);
        bulk_tcp(&world.host.ns, &world.anchor.ns, "10.7.0.2".parse().unwrap(), 1 << 20);
    }
}
