//! Reused slots in user space: flows bound to the former path do not move to the new one. Needs root; otherwise
//! prints a note and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod user_lab;

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_datapath::{Datapath, DatapathError, LinuxDatapath, PathSetup, Via};
use segue_linux::netns::Netns;
use segue_wire::FlowKey;
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, Lab, OWNER, Offloads, anchor_config, host_config, inner, skipped,
    wait_for,
};

/// A path with different cookies, to the remote end of the first path.
fn later(owner: u32) -> PathSetup {
    let host = host_config(false);
    let rx_cookie = ANCHOR_COOKIE + 1;
    PathSetup { owner, rx_cookie, local: host.remote, remote: host.local, ..anchor_config() }
}

/// A flow of the host whose packets the anchor sends, learned or bound by the daemon.
fn flow(lab: &Lab, v6: bool, learned: bool) -> ([UdpSocket; 2], FlowKey) {
    let bind = |end: u8, ns: &Netns| {
        let socket = ns.run(|| UdpSocket::bind((inner(v6, end), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    };
    let (near, far) = (bind(1, &lab.host.ns), bind(2, &lab.anchor.ns));
    let (near_at, far_at) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    if learned {
        // The kernel takes some time to make an IPv6 address usable.
        wait_for("the first packet", || {
            near.send_to(b"first", far_at).unwrap();
            far.recv(&mut [0; 8]).is_ok()
        });
    }
    far.connect(near_at).unwrap();
    wait_for("the way back", || {
        far.send(b"mine").unwrap();
        near.recv(&mut [0; 8]).is_ok()
    });
    let flows = lab.anchor.with(|u| u.flows());
    let flow = flows.iter().find(|flow| flow.key.dport == near_at.port()).unwrap();
    assert_eq!(flow.slot, ANCHOR_SLOT);
    ([far, near], flow.key)
}

/// Sends packets of the flow until they are reported to the anchor's daemon.
fn expect_misses(lab: &Lab, far: &UdpSocket) {
    let before = lab.anchor.misses.load(Ordering::Relaxed);
    wait_for("a miss", || {
        far.send(b"not yours").unwrap();
        lab.anchor.misses.load(Ordering::Relaxed) > before
    });
}

fn sent(lab: &Lab, slot: u32) -> u32 {
    lab.anchor.with(|u| u.counters(slot).tx_packets)
}

#[test]
fn another_path_in_the_same_slot_gets_none_of_the_former_ones_packets() {
    if skipped() {
        return;
    }
    for (v6, learned, owner) in
        [(false, true, OWNER + 1), (true, false, OWNER + 1), (false, true, OWNER)]
    {
        let lab = Lab::new(false, Offloads::Whole);
        let ([far, _near], key) = flow(&lab, v6, learned);
        lab.anchor.slot.store(u32::MAX, Ordering::Release);
        lab.anchor.with(|u| {
            u.remove_path(ANCHOR_SLOT);
            let refused = u.bind_flow(key, ANCHOR_SLOT);
            assert!(matches!(refused, Err(DatapathError::NoPath { .. })), "{refused:?}");
            u.set_path(ANCHOR_SLOT, &later(owner)).unwrap();
            if owner != OWNER {
                let refused = u.bind_flow(key, ANCHOR_SLOT);
                assert!(matches!(refused, Err(DatapathError::Owner { .. })), "{refused:?}");
            }
        });
        expect_misses(&lab, &far);
        assert_eq!(sent(&lab, ANCHOR_SLOT), 0, "{owner} {v6} {learned}");
    }
}

#[test]
fn a_redirection_ends_where_its_slot_goes_to_another_host() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    let ([far, _near], _) = flow(&lab, false, true);
    let second = ANCHOR_SLOT + 1;
    let via = Some(Via { slot: second, one_way: false });
    lab.anchor.with(|u| {
        u.set_path(second, &later(OWNER)).unwrap();
        u.set_via(ANCHOR_SLOT, via).unwrap();
    });
    far.send(b"round").unwrap();
    wait_for("the way round", || sent(&lab, second) == 1);
    lab.anchor.slot.store(u32::MAX, Ordering::Release);
    lab.anchor.with(|u| {
        u.remove_path(second);
        u.set_path(second, &PathSetup { rx_cookie: 9, ..later(OWNER + 1) }).unwrap();
    });
    expect_misses(&lab, &far);
    assert_eq!(sent(&lab, second), 0);
}
