//! Packets as they arrive on an interface, before the kernel processes them: with outer headers, and super-packets
//! unsegmented.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use segue_linux::packet;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::head::{GRE, IPV4, IPV6, OPTIONS, UDP};
use crate::device::DeviceKind;
use crate::option;
use crate::user::segment::VnetHeader;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of receive buffer: some milliseconds of traffic at 10 Gbit/s.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Most ports that the kernel filters by; with more, all UDP is read here.
const MOST_PORTS: usize = 200;

/// A packet socket on one interface. It receives copies and does not affect what the kernel does with the packets.
pub(super) struct Frames {
    socket: Socket,
    /// Bytes of the frame header.
    link: usize,
}

impl Frames {
    /// Opens the socket for tunnel packets; of UDP, only for these local ports.
    pub(super) fn open(ifindex: u32, ports: &[u16]) -> io::Result<Frames> {
        let link = if DeviceKind::of(ifindex)?.ethernet { ETHERNET } else { 0 };
        // Protocol 0 receives nothing, so no frame of another device slips in before the bind.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), Some(Protocol::from(0)))?;
        option::set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        option::set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // Exceeding the system's limit requires CAP_NET_ADMIN outside any user namespace.
        let forced = libc::SO_RCVBUFFORCE;
        if option::set(&socket, libc::SOL_SOCKET, forced, RECEIVE_BUFFER as i32).is_err() {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        let frames = Frames { socket, link };
        frames.listen_to(ports)?;
        packet::bind(&frames.socket, ifindex)?;
        Ok(frames)
    }

    /// Limits the socket to tunnel packets; of UDP, to these local ports.
    pub(super) fn listen_to(&self, ports: &[u16]) -> io::Result<()> {
        self.socket.attach_filter(&filter(ports))
    }

    /// Reads a packet: its virtio header, relative to the IP packet, and the packet's range in the buffer. `None` if
    /// there is no packet.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Option<(VnetHeader, std::ops::Range<usize>)> {
        loop {
            let len = match self.receive(buffer) {
                Ok(len) => len,
                Err(error) => match error.raw_os_error() {
                    // The interface was set down, or the kernel cannot describe a packet; the next packet may be fine.
                    Some(libc::EINTR | libc::EINVAL | libc::ENETDOWN) => continue,
                    _ => return None,
                },
            };
            let start = VnetHeader::LEN + self.link;
            let vnet = VnetHeader::split(buffer.get(..len).unwrap_or_default());
            if let Some((vnet, _)) = vnet
                && len > start
            {
                let csum_start = vnet.csum_start.saturating_sub(self.link as u16);
                return Some((VnetHeader { csum_start, ..vnet }, start..len));
            }
        }
    }

    /// Packets dropped because the socket buffer was full, since the last call.
    pub(super) fn overflowed(&self) -> u64 {
        packet::overruns(&self.socket)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the kernel writes at most the length given, that of the buffer.
        let len = unsafe { libc::recv(self.socket.as_raw_fd(), at, len, libc::MSG_DONTWAIT) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket filter (Linux, Documentation/networking/filter.rst) for packets of the tunnels' protocols that are untagged
/// and addressed to this station. Offsets are relative to the IP header, so they are the same for every kind of frame.
fn filter(ports: &[u16]) -> Vec<SockFilter> {
    /// Special offsets for the EtherType, the packet type and whether a VLAN tag was stripped (linux/filter.h).
    const PROTOCOL: u32 = (-0x1000i32).cast_unsigned();
    const KIND: u32 = PROTOCOL + 4;
    const TAGGED: u32 = PROTOCOL + 48;
    let v4 = of_family((9, 22), &[IPV4, IPV6, GRE], ports);
    let v6 = of_family((6, 42), &[IPV4, IPV6, GRE, OPTIONS], ports);
    // The parts are too long for the 8-bit offsets of conditional jumps.
    let jump = |over: usize| code(libc::BPF_JMP | libc::BPF_JA, over as u32);
    let load = |at| code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let mut program = vec![
        load(TAGGED),
        equal(0, 1, 0),
        refuse(),
        load(KIND),
        equal(libc::PACKET_OTHERHOST.into(), 0, 1),
        refuse(),
        load(PROTOCOL),
        equal(libc::ETH_P_IP as u32, 0, 1),
        jump(3),
        equal(libc::ETH_P_IPV6 as u32, 0, 1),
        jump(1 + v4.len()),
        refuse(),
    ];
    program.extend(v4);
    program.extend(v6);
    program
}

/// The part for one family: offsets of the protocol and of UDP's destination port, and the protocols other than UDP.
fn of_family(
    (protocol_at, port_at): (u32, u32),
    protocols: &[u8],
    ports: &[u16],
) -> Vec<SockFilter> {
    // Offsets from here on are relative to the IP header (linux/filter.h).
    let ip = |at: u32| (-0x10_0000i32).cast_unsigned() + at;
    let mut program = vec![code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, ip(protocol_at))];
    program.extend(protocols.iter().flat_map(|protocol| accept_if((*protocol).into())));
    program.extend([equal(UDP.into(), 1, 0), refuse()]);
    if ports.len() <= MOST_PORTS {
        program.push(code(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, ip(port_at)));
        program.extend(ports.iter().flat_map(|port| accept_if((*port).into())));
        program.push(refuse());
    } else {
        program.push(accept());
    }
    program
}

fn code(what: u32, value: u32) -> SockFilter {
    SockFilter::new(what as u16, 0, 0, value)
}

/// Skips `yes` instructions if the value is equal, otherwise `no`.
fn equal(value: u32, yes: u8, no: u8) -> SockFilter {
    SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, yes, no, value)
}

/// Accepts the packet if the loaded value equals `value`.
fn accept_if(value: u32) -> [SockFilter; 2] {
    [equal(value, 0, 1), accept()]
}

fn accept() -> SockFilter {
    code(libc::BPF_RET | libc::BPF_K, u32::MAX)
}

fn refuse() -> SockFilter {
    code(libc::BPF_RET | libc::BPF_K, 0)
}
