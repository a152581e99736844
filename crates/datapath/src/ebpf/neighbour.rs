//! Hardware addresses for frames to a neighbour, from the kernel's tables.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::device::hardware_address;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// Permanent, no ARP, delay, stale, probe or reachable: the address may be used.
const NUD_VALID: u16 = 0x80 | 0x40 | 0x08 | 0x04 | 0x10 | 0x02;
/// Bytes of `struct nlmsghdr`, and of that plus `struct ndmsg`.
const HEAD: usize = 16;
const BODY: usize = HEAD + 12;

/// Source and destination address of frames to `next` over a device in the calling thread's
/// namespace; `None` if the neighbour is unknown, or the device has no hardware addresses.
pub(super) fn frame_addresses(ifindex: u32, next: IpAddr) -> io::Result<Option<[[u8; 6]; 2]>> {
    let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
    let socket = socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), &question(ifindex, next.to_canonical()), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let Some(destination) = answered(&answer[..len]) else { return Ok(None) };
    Ok(Some([hardware_address(ifindex)?, destination]))
}

/// RTM_GETNEIGH for one address.
fn question(ifindex: u32, next: IpAddr) -> Vec<u8> {
    let (family, address) = match next {
        IpAddr::V4(a) => (libc::AF_INET as u8, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6 as u8, a.octets().to_vec()),
    };
    let mut message = Vec::with_capacity(BODY + 20);
    message.extend(((BODY + 4 + address.len()) as u32).to_ne_bytes());
    message.extend(libc::RTM_GETNEIGH.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, 0, 0, 0]); // struct ndmsg
    message.extend(ifindex.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(((4 + address.len()) as u16).to_ne_bytes()); // struct rtattr
    message.extend(NDA_DST.to_ne_bytes());
    message.extend(address);
    message
}

/// The hardware address in an RTM_NEWNEIGH, if it may be used.
fn answered(message: &[u8]) -> Option<[u8; 6]> {
    let half = |at: usize| Some(u16::from_ne_bytes(message.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != libc::RTM_NEWNEIGH || half(HEAD + 8)? & NUD_VALID == 0 {
        return None;
    }
    let mut at = BODY;
    while let (Some(len), Some(kind)) = (half(at), half(at + 2)) {
        let len = usize::from(len).max(4);
        if kind == NDA_LLADDR {
            return message.get(at + 4..at + len)?.try_into().ok();
        }
        at += len.next_multiple_of(4);
    }
    None
}
