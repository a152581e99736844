//! A device's XDP features, from the kernel's generic netlink family `netdev` (6.3 and later).

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const ACT_NDO_XMIT: u8 = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// Bytes of `struct nlmsghdr` and `struct genlmsghdr`.
const HEADS: usize = 20;

/// True if a device in the calling thread's namespace currently accepts XDP frames; a veth pair does only while
/// its other end can receive them.
pub(super) fn takes_frames(ifindex: u32) -> io::Result<bool> {
    let name = ask(
        GENL_ID_CTRL,
        CTRL_CMD_GETFAMILY,
        (CTRL_ATTR_FAMILY_NAME, b"netdev\0"),
        CTRL_ATTR_FAMILY_ID,
    )?;
    let Some(&[low, high]) = name.get(..2) else { return Ok(false) };
    let features = ask(
        u16::from_ne_bytes([low, high]),
        NETDEV_CMD_DEV_GET,
        (NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes()),
        NETDEV_A_DEV_XDP_FEATURES,
    )?;
    Ok(features.first().is_some_and(|bits| bits & ACT_NDO_XMIT != 0))
}

/// Sends a request with one attribute; returns the bytes of the attribute `wanted` in the reply, or nothing if
/// it is missing.
fn ask(family: u16, command: u8, of: (u16, &[u8]), wanted: u16) -> io::Result<Vec<u8>> {
    let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
    let socket = socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkGeneric)?;
    let mut message = vec![0; 4];
    message.extend(family.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((4 + of.1.len() as u16).to_ne_bytes());
    message.extend(of.0.to_ne_bytes());
    message.extend(of.1);
    message.resize(message.len().next_multiple_of(4), 0);
    let len = (message.len() as u32).to_ne_bytes();
    message[..4].copy_from_slice(&len);
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = &answer[..len];
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4) != Some(family) {
        return Ok(Vec::new()); // an error
    }
    let mut at = HEADS;
    while let (Some(len), Some(kind)) = (half(at), half(at + 2)) {
        let len = usize::from(len).max(4);
        if kind == wanted {
            return Ok(answer.get(at + 4..at + len).unwrap_or_default().to_vec());
        }
        at += len.next_multiple_of(4);
    }
    Ok(Vec::new())
}
