//! Interfaces without a frame header: two TUN devices, and a thread that carries packets between
//! them like a modem or a user-space tunnel.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_datapath::StampOptions;
use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_ip::Prefix;
use segue_linux::link;
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{Family, OUTER_MTU, Wire, World, anchor_slot, host_slot, may_run};

const STAMP_PORT: u16 = 862;

/// Carries packets until dropped.
struct Carrier {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    fn start(ends: [SyncDevice; 2]) -> Carrier {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut packet = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let mut fds =
                    [&ends[0], &ends[1]].map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
                let _ = poll(&mut fds, PollTimeout::from(100u16));
                for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
                    for _ in 0..64 {
                        let Ok(len) = from.recv(&mut packet) else { break };
                        // A packet that finds no room is lost, as on any link.
                        let _ = to.send(&packet[..len]);
                    }
                }
            }
        });
        Carrier { stop, thread: Some(thread) }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The device `sg0` of one end, without frame headers.
fn device(path: u32, end: u8) -> SyncDevice {
    let name = format!("sg{path}");
    let device =
        DeviceBuilder::new().name(name.clone()).mtu(OUTER_MTU as u16).build_sync().unwrap();
    device.set_nonblocking(true).unwrap();
    for family in Family::BOTH {
        let len = if family == Family::V4 { 24 } else { 64 };
        link::add_address(&name, Prefix::new(family.outer(path, end), len)).unwrap();
    }
    link::set_up(&name, true).unwrap();
    device
}

/// Sends STAMP request 7; returns the number and TTL that the program at the other end received.
fn ask_stamp(to: IpAddr) -> [u8; 2] {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.connect((to, STAMP_PORT)).unwrap();
    let mut request = [0; 44];
    request[3] = 7;
    // On a busy machine the carrier may be delayed beyond the socket's timeout.
    for _ in 0..20 {
        socket.send(&request).unwrap();
        let mut answer = [0; 44];
        if socket.recv(&mut answer).is_ok_and(|len| len == 44) {
            return [answer[27], answer[40]];
        }
    }
    panic!("{to} does not answer STAMP");
}

#[test]
fn interfaces_without_frame_header_carry_probes_and_data() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        // XDP must not be tried there, even if requested.
        let stamp = Some(StampOptions {
            port: STAMP_PORT,
            stateful: true,
            rate: 100,
            source_rate: 100,
            echo_dscp: true,
        });
        let options = EbpfOptions { xdp: Xdp::On, stamp, ..EbpfOptions::default() };
        let world = World::new(outer, Wire::Whole, 0, options);
        let ends = [world.host.ns.run(|| device(0, 1)), world.anchor.ns.run(|| device(0, 2))];
        let _carrier = Carrier::start(ends.map(Result::unwrap));
        world.set_paths(0);
        for seq in 1..=3 {
            let back = world.probe(0, seq);
            assert_eq!(
                (back.arrival.probe.sc, back.arrival.probe.ss, back.arrival.probe.r),
                (seq, seq, seq)
            );
        }
        assert_eq!(world.anchor.counters(anchor_slot(0)).remote, world.host_path(0).local);
        assert_eq!(world.host.ns.run(|| ask_stamp(outer.outer(0, 2))).unwrap(), [7, 64]);
        for inner in Family::BOTH {
            let to = inner.inner(2);
            bulk_tcp(&world.host.ns, &world.anchor.ns, to, 1 << 20);
            let got = datagrams(&world.host.ns, &world.anchor.ns, to, 50, 700, 1);
            assert!(got.len() >= 45, "{outer:?} {inner:?}: {} of 50", got.len());
        }
        let host = world.host.counters(host_slot(0));
        assert!(host.rx_bytes > 2 << 20 && host.tx_bytes > 2 << 20, "{outer:?}: {host:?}");
    }
}
