//! An end that dies.

use std::io::{BufRead, BufReader, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::Ipv4PacketInfo;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt};
use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp, remove_stale_filters};
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, Role};
use segue_linux::link;
use segue_linux::netns::Netns;

use crate::forward::tunnelled;
use crate::world::{Family, KEY, OWNER, PORT, anchor_slot, eventually, may_run, setup};

const CHILD: &str = "SEGUE_TEST_NAMESPACE";

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "started by the test of a crash"]
fn child_that_will_be_killed() {
    let Ok(namespace) = std::env::var(CHILD) else { return };
    let (namespace, tcx) = namespace.split_once(',').unwrap();
    Netns::open(namespace).unwrap().enter_thread().unwrap();
    let options = EbpfOptions { xdp: Xdp::On, tcx: tcx == "tcx", stamp: None };
    let setup = setup(Role::Anchor, Family::V4);
    let mut datapath = Ebpf::with_options(&setup, Arc::new(|_| ()), options).unwrap();
    let path = PathSetup {
        tx_index: 1,
        tx_cookie: 1,
        rx_cookie: 0xa000,
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: OWNER,
        probing: segue_keepalive::Probing::default(),
    };
    datapath.set_path(anchor_slot(0), &path).unwrap();
    datapath.set_inner([10, 8, 0, 1].into(), OWNER).unwrap();
    datapath.attach(link::index_of("sg0").unwrap()).unwrap();
    datapath.heartbeat();
    println!("attached");
    for _ in 0..120 {
        std::thread::sleep(Duration::from_millis(500));
        datapath.heartbeat();
    }
}

/// Two namespaces with a wire between them.
fn pair(what: &str) -> (Netns, Netns) {
    let name = |end| format!("segue-e{}-{what}{end}", std::process::id());
    let (a, b) = (Netns::create(&name('a')).unwrap(), Netns::create(&name('b')).unwrap());
    a.run(|| link::create_veth("sg0", "sg0", Some(&b))).unwrap().unwrap();
    for (ns, address) in [(&a, "10.9.0.1/24"), (&b, "10.9.0.2/24")] {
        ns.run(|| {
            link::sysctl("net.ipv4.conf.all.rp_filter", "0").unwrap();
            link::sysctl("net.ipv4.conf.default.rp_filter", "0").unwrap();
            link::add_address("sg0", address.parse().unwrap()).unwrap();
            link::set_up("sg0", true).unwrap();
        })
        .unwrap();
    }
    (a, b)
}

/// A daemon to kill; true if it has attached.
fn spawn(ns: &Netns, tcx: &str) -> (Child, bool) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "child_that_will_be_killed"])
        .env(CHILD, format!("{},{tcx}", ns.name().unwrap()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("attached"));
    (child, ready)
}

#[test]
fn a_killed_daemon_leaves_nothing_that_eats_packets() {
    if !may_run() {
        return;
    }
    for tcx in ["tcx", "clsact"] {
        let (a, b) = pair(tcx);
        let to: SocketAddr = ([10, 9, 0, 2], PORT).into();
        let receiver = b.run(|| UdpSocket::bind(to)).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let sender = a.run(|| UdpSocket::bind("10.9.0.1:0")).unwrap().unwrap();
        let mut serial = 0u32;
        let mut arrives = || {
            serial += 1;
            sender.send_to(&[&serial.to_be_bytes()[..], &[0; 56]].concat(), to).unwrap();
            let mut bytes = [0; 100];
            // Earlier ones may arrive late.
            while receiver.recv(&mut bytes).is_ok() {
                if bytes[..4] == serial.to_be_bytes() {
                    return true;
                }
            }
            false
        };
        eventually("packets without a daemon", &mut arrives);
        let (mut child, ready) = spawn(&b, tcx);
        // A child that got no processor for seconds counts as dead; it soon shows that it is alive.
        let eaten = (0..20).any(|_| !arrives());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ready && eaten, "the child had the port");
        eventually("packets after the crash", &mut arrives);
        assert!(b.run(|| link::index_of("segue0")).unwrap().is_err(), "the TUN device is gone");
        // Filters that remain on kernels without tcx are found and removed by name.
        let index = b.run(|| link::index_of("sg0").unwrap()).unwrap();
        let removed = b.run(|| remove_stale_filters(index)).unwrap();
        assert!(tcx == "tcx" || removed == ["segue_ingress", "segue_leave"], "{removed:?}");
        assert!(b.run(|| remove_stale_filters(index)).unwrap().is_empty());
    }
}

/// A packet that XDP has stripped must not reach a kernel without the TC program that recognises
/// it.
#[test]
fn a_killed_daemon_lets_no_inner_packet_in_as_if_it_were_plain() {
    if !may_run() {
        return;
    }
    let (a, b) = pair("leak");
    b.run(|| {
        link::set_up("lo", true).unwrap();
        link::add_address("lo", "10.8.0.2/32".parse().unwrap()).unwrap();
    })
    .unwrap();
    let inner = b.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
    setsockopt(&inner, Ipv4PacketInfo, &true).unwrap();
    inner.set_nonblocking(true).unwrap();
    let sender = a.run(|| UdpSocket::bind("10.9.0.1:0")).unwrap().unwrap();
    sender.connect(("10.9.0.2", PORT)).unwrap();
    let packet = tunnelled(inner.local_addr().unwrap().port(), 0);
    let (wire, stop) = (b.run(|| link::index_of("sg0")).unwrap().unwrap(), AtomicBool::new(false));
    let (mut through, mut plain) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Refused while the port has no listener.
                let _ = sender.send(&packet);
            }
        });
        for _ in 0..KILLS {
            let (mut child, ready) = spawn(&b, "tcx");
            let end = Instant::now() + Duration::from_secs(10);
            let before = through;
            while ready && through == before && Instant::now() < end {
                count_arrivals(&inner, wire, &mut through, &mut plain);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            count_arrivals(&inner, wire, &mut through, &mut plain);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{through} through the tunnel, {plain} plain");
    assert!(through > 0 && plain == 0, "{through} through the tunnel, {plain} plain");
}

const KILLS: usize = 8;

/// Reads the pending packets, separated by the interface on which they arrived.
fn count_arrivals(socket: &UdpSocket, wire: u32, through: &mut u64, plain: &mut u64) {
    loop {
        let mut bytes = [0; 16];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(libc::in_pktinfo);
        let (fd, none) = (socket.as_raw_fd(), MsgFlags::empty());
        let Ok(message) = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), none) else {
            return;
        };
        let from = message.cmsgs().unwrap().find_map(|control| match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(info.ipi_ifindex as u32),
            _ => None,
        });
        *if from == Some(wire) { &mut *plain } else { &mut *through } += 1;
    }
}
