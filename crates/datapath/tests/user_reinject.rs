//! What left on a path that died is sent again over another, in user space. Needs root; says so and passes otherwise.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod user_lab;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use segue_clock::Time;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, Reinjection};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;
use segue_linux::link;
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, End, HOST_COOKIE, HOST_DEVICE, HOST_SLOT, Lab, Offloads,
    anchor_config, host_config, inner, skipped, wait_for,
};

const APART: Duration = Duration::from_millis(40);

#[test]
fn what_left_on_a_dead_path_arrives_over_another() {
    if skipped() {
        return;
    }
    for (offloads, v6) in
        [(Offloads::Whole, false), (Offloads::NoGso, true), (Offloads::NoChecksum, false)]
    {
        let lab = lab(offloads);
        seldom(&lab, v6);
        stream(&lab, v6);
    }
}

/// A second path beside the first, over the same wire; both follow their use.
fn lab(offloads: Offloads) -> Lab {
    let lab = Lab::new(false, offloads);
    let probing = Probing { follows_use: true, ..Probing::default() };
    lab.probe_as(probing, probing);
    let ifindex = lab.host.ns.run(|| link::index_of(HOST_DEVICE).unwrap()).unwrap();
    let host = PathSetup {
        tx_index: ANCHOR_SLOT + 1,
        tx_cookie: ANCHOR_COOKIE + 1,
        rx_cookie: HOST_COOKIE + 1,
        ifindex,
        probing,
        ..host_config(false)
    };
    lab.set_host_path(HOST_SLOT + 1, &host);
    let anchor = PathSetup {
        tx_index: HOST_SLOT + 1,
        tx_cookie: host.rx_cookie,
        rx_cookie: host.tx_cookie,
        local: host.remote,
        remote: host.local,
        probing,
        ..anchor_config()
    };
    lab.anchor.with(|u| u.set_path(ANCHOR_SLOT + 1, &anchor).unwrap());
    lab
}

/// While it lives, packets over the first path have an index that this end does not know.
fn while_dead<T>(sender: &End, slot: u32, body: impl FnOnce() -> T) -> T {
    let ifindex = sender.ns.run(|| link::index_of(HOST_DEVICE).unwrap_or(0)).unwrap();
    let own = if slot == HOST_SLOT { host_config(false) } else { anchor_config() };
    let own = PathSetup { ifindex, ..own };
    let probing = Probing { follows_use: true, ..Probing::default() };
    let set = |tx_index| {
        let config = PathSetup { tx_index, probing, ..own.clone() };
        sender.ns.run(|| sender.with(|u| u.set_path(slot, &config).unwrap())).unwrap();
    };
    set(15);
    let result = body();
    set(own.tx_index);
    result
}

fn reinject(end: &End, slot: u32, since: Time) -> usize {
    end.with(|u| u.reinject(Reinjection { slot, over: slot + 1, since }))
}

/// Datagrams one by one in both directions.
fn seldom(lab: &Lab, v6: bool) {
    let open = |end: &End, last| {
        let socket = end.ns.run(|| UdpSocket::bind((inner(v6, last), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let (near, far) = (open(&lab.host, 1), open(&lab.anchor, 2));
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    let ends = [(&near, &far, &lab.host, HOST_SLOT), (&far, &near, &lab.anchor, ANCHOR_SLOT)];
    for (from, to, sender, slot) in ends {
        // The kernel takes its time to make an IPv6 address usable.
        wait_for("the first packet", || from.send(b"there").is_ok());
        assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
        while_dead(sender, slot, || {
            from.send(b"known to be lost").unwrap();
            std::thread::sleep(APART);
            let (since, sent) = (monotonic(), || sender.with(|u| u.counters(slot).tx_packets));
            let before = sent();
            for n in 0..3u8 {
                std::thread::sleep(APART);
                from.send(&[n; 100]).unwrap();
            }
            wait_for("three packets", || sent() == before + 3);
            assert_eq!(reinject(sender, slot, since), 3);
            for n in 0..3u8 {
                let mut bytes = [0; 200];
                assert_eq!(to.recv(&mut bytes).unwrap(), 100);
                assert_eq!(bytes[..100], [n; 100], "each once, and in order");
            }
            assert_eq!(reinject(sender, slot, since), 0, "each once");
        });
        // The flow itself has not moved, at either end.
        let port = near.local_addr().unwrap().port();
        let flows = lab.anchor.with(|u| u.flows());
        let flow = flows.iter().find(|flow| flow.key.dport == port && flow.key.protocol == 17);
        assert_eq!(flow.unwrap().slot, ANCHOR_SLOT);
        from.send(b"after").unwrap();
        assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
    }
}

/// Super-packets: the first segment arrives, and the connection goes on with it.
fn stream(lab: &Lab, v6: bool) {
    let listener = lab.anchor.ns.run(|| TcpListener::bind((inner(v6, 2), 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let mut from = lab.host.ns.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let mut at = listener.accept().unwrap().0;
    at.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sent: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
    let mut got = vec![0; sent.len()];
    let first = while_dead(&lab.host, HOST_SLOT, || {
        let since = monotonic();
        std::thread::sleep(APART);
        from.write_all(&sent).unwrap();
        wait_for("a copy", || reinject(&lab.host, HOST_SLOT, since) > 0);
        at.read(&mut got).unwrap()
    });
    assert!(first > 1_000, "{first} bytes");
    at.read_exact(&mut got[first..]).unwrap();
    assert!(got == sent, "bytes differ");
}
