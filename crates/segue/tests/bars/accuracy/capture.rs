//! A bare wire between two nodes, with timestamps at both edges.
//!
//! A packet socket sees outgoing packets after the TC egress programs and incoming packets before the TC ingress
//! programs; the kernel timestamps both. So only the wire lies between the timestamps of the two edges, and time added
//! by the measurement itself counts as its error.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, recvmsg, setsockopt, socket, sockopt,
};
use segue_ip::Prefix;
use segue_lab::Lab;
use segue_lab::topology::End;
use segue_linux::netns::Netns;

pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 62, 4, 1);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 62, 4, 2);
pub(super) const NODES: [&str; 2] = ["a", "b"];
pub(super) const DEVICES: [&str; 2] = ["a0", "b0"];
/// Bytes of Ethernet, IPv4 without options, and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Two nodes, client and server, joined by a virtual wire.
pub(super) fn network(tag: &str) -> Lab {
    let mut lab = Lab::new(tag).unwrap();
    let addresses = [CLIENT, SERVER].map(|address| [Prefix::new(IpAddr::V4(address), 24)]);
    NODES.iter().for_each(|node| lab.add_node(node, false).unwrap());
    let end = |i: usize| End { node: NODES[i], device: DEVICES[i], addresses: &addresses[i] };
    lab.connect(end(0), end(1)).unwrap();
    lab
}

/// A UDP packet at one edge of the wire.
struct Seen {
    /// The kernel's timestamp in nanoseconds (time of day).
    at_ns: u64,
    from: Ipv4Addr,
    ports: [u16; 2],
    payload: Vec<u8>,
}

/// Captures at both edges from its creation until [`Capture::end`].
pub(super) struct Capture {
    stop: Arc<AtomicBool>,
    edges: [Option<JoinHandle<Vec<Seen>>>; 2],
}

impl Capture {
    pub(super) fn start(lab: &Lab) -> Capture {
        let stop = Arc::new(AtomicBool::new(false));
        let edges = NODES.map(|node| {
            let socket = open(lab.node(node).unwrap());
            let stop = Arc::clone(&stop);
            Some(std::thread::spawn(move || watch(&socket, &stop)))
        });
        Capture { stop, edges }
    }

    /// The round-trip time in microseconds of each exchange with a server's port: the interval between the timestamps
    /// at the client's edge minus the interval at the server's edge. `number` reads the exchange number from the
    /// payload and returns `None` for packets that belong to no exchange.
    pub(super) fn end(
        mut self,
        port: u16,
        number: impl Fn(&[u8]) -> Option<u32>,
    ) -> BTreeMap<u32, f64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut stamps: BTreeMap<u32, [[Option<u64>; 2]; 2]> = BTreeMap::new();
        for (edge, thread) in self.edges.iter_mut().enumerate() {
            for seen in thread.take().unwrap().join().unwrap() {
                let back = usize::from(seen.from == SERVER);
                let Some(number) = number(&seen.payload).filter(|_| seen.ports[1 - back] == port)
                else {
                    continue;
                };
                // If a number is repeated, its first packet counts.
                stamps.entry(number).or_default()[edge][back].get_or_insert(seen.at_ns);
            }
        }
        let whole = |edge: [Option<u64>; 2]| Some(edge[1]?.wrapping_sub(edge[0]?) as i64);
        let rtt = |edges: [[Option<u64>; 2]; 2]| Some(whole(edges[0])? - whole(edges[1])?);
        let all = stamps.into_iter();
        all.filter_map(|(number, edges)| Some((number, rtt(edges)? as f64 / 1e3))).collect()
    }
}

fn open(node: &Netns) -> OwnedFd {
    let open = || {
        let all = SockProtocol::EthAll;
        let fd =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, all).unwrap();
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).unwrap();
        setsockopt(&fd, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        fd
    };
    node.run(open).unwrap()
}

fn watch(socket: &OwnedFd, stop: &AtomicBool) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut buffer = [0; 256];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    // Drain packets that are already queued when the capture stops.
    loop {
        let last = stop.load(Ordering::Relaxed);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
        {
            Ok(message) => {
                let at_ns = message.cmsgs().unwrap().find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(at) => {
                        Some(at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64)
                    }
                    _ => None,
                });
                let bytes = message.bytes;
                all.extend(at_ns.and_then(|at_ns| read(&buffer[..bytes], at_ns)));
            }
            Err(_) if last => return all,
            // Poll rather than block on the socket: waking a reader would delay the packet before the programs see it.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Parses the frame as UDP over IPv4; `None` if it is something else.
fn read(frame: &[u8], at_ns: u64) -> Option<Seen> {
    let payload = frame.get(HEADERS..)?.to_vec();
    let (ip, udp) = (&frame[14..34], &frame[34..42]);
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    (frame[12..14] == [8, 0] && ip[0] == 0x45 && ip[9] == 17).then(|| Seen {
        at_ns,
        from: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
        ports: [port(0), port(2)],
        payload,
    })
}
