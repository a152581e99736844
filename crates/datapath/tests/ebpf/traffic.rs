//! Applications: bulk TCP with every byte compared, and datagrams one by one and in super-packets.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use etherparse::{Ipv4Header, PacketBuilder};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use segue_linux::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends `len` bytes each way over one connection, and checks all of them.
pub(crate) fn bulk_tcp(client: &Netns, server: &Netns, address: IpAddr, len: usize) {
    let listener = server.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    setsockopt(&listener, ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64)).unwrap();
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| both_ways(listener.accept().unwrap().0, len, 1));
        let stream = client.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
        both_ways(stream, len, 2);
    });
}

fn both_ways(stream: TcpStream, len: usize, seed: u8) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&pattern(len, seed)).unwrap());
        let mut got = vec![0; len];
        (&stream).read_exact(&mut got).unwrap();
        assert!(got == pattern(len, 3 - seed), "bytes differ");
    });
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// Sends `count` datagrams of `len` bytes, in super-packets of `batch`, and returns those that arrived.
pub(crate) fn datagrams(
    client: &Netns,
    server: &Netns,
    address: IpAddr,
    count: u32,
    len: usize,
    batch: u32,
) -> BTreeSet<u32> {
    let receiver = server.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = receiver.local_addr().unwrap();
    let any: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let sender = client.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    if batch > 1 {
        segment_by(&sender, len);
    }
    let mut arrived = BTreeSet::new();
    let mut next = 0;
    let mut buffer = vec![0; 65_536];
    while next < count {
        let group: Vec<u32> = (next..count.min(next + batch)).collect();
        let bytes: Vec<u8> = group.iter().flat_map(|i| numbered(*i, len)).collect();
        sender.send_to(&bytes, to).unwrap();
        next += group.len() as u32;
        // In step with the receiver, so that the result does not depend on socket buffers.
        for _ in &group {
            let Ok(n) = receive(&receiver, &mut buffer) else { break };
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            assert!(buffer[..n] == numbered(number, len), "datagram {number} is spoilt");
            arrived.insert(number);
        }
    }
    arrived
}

/// The kernel ends a call with a timeout early when it interrupts the thread, even if no handler ran (signal(7)).
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = pattern(len, number as u8);
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn segment_by(socket: &UdpSocket, len: usize) {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, len as libc::c_int);
}

pub(crate) fn set_option(socket: &UdpSocket, level: i32, option: libc::c_int, value: libc::c_int) {
    // SAFETY: these options read one int, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// An IPv4 packet with a datagram and this class (DSCP and ECN).
pub(crate) fn marked_datagram(from: [u8; 4], to: [u8; 4], port: u16, class: u8) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(from, to, 9).udp(4_000, port);
    builder.write(&mut packet, b"marked").unwrap();
    let (mut head, rest) = Ipv4Header::from_slice(&packet).unwrap();
    head.dscp = (class >> 2).try_into().unwrap();
    head.ecn = (class & 3).try_into().unwrap();
    head.header_checksum = head.calc_header_checksum();
    let mut bytes = Vec::new();
    head.write(&mut bytes).unwrap();
    bytes.extend(rest);
    bytes
}

/// The class of the next datagram; the socket must have requested it (`IP_RECVTOS`).
pub(crate) fn received_class(socket: &UdpSocket) -> u8 {
    let mut bytes = [0; 16];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(u8);
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), flags).unwrap();
    let class = message.cmsgs().unwrap().find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        _ => None,
    });
    class.expect("the type of service")
}
