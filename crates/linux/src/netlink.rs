//! A blocking rtnetlink client for one request at a time.
//!
//! It opens its socket in the namespace of the calling thread and runs on any thread, also inside an
//! async runtime, where a client that brings its own runtime must not block. Watching for changes is
//! not its business (see [`monitor`](crate::monitor)).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

const HEADER_BYTES: usize = 16;

/// A netlink message under construction; all integers in host order, as netlink has them.
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// A message of type `kind` (`RTM_…`) with `flags` beside `NLM_F_REQUEST`.
    pub(crate) fn new(kind: u16, flags: i32) -> Message {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Message(bytes)
    }

    /// Appends the fixed part that follows the header.
    pub(crate) fn body(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends an attribute.
    pub(crate) fn attr(&mut self, kind: u16, payload: &[u8]) {
        self.nest(kind, |inner| inner.0.extend_from_slice(payload));
    }

    pub(crate) fn attr_u32(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_ne_bytes());
    }

    /// Appends a string attribute with its terminating zero.
    pub(crate) fn attr_str(&mut self, kind: u16, value: &str) {
        self.nest(kind, |inner| {
            inner.0.extend_from_slice(value.as_bytes());
            inner.0.push(0);
        });
    }

    /// Appends an attribute whose payload `fill` writes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        fill(self);
        let len = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends raw bytes inside a nest (a fixed header there).
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// Sends a request and waits for the kernel's acknowledgement.
pub(crate) fn request(message: Message) -> nix::Result<()> {
    request_of(SockProtocol::NetlinkRoute, message)
}

/// The same for another netlink family.
pub(crate) fn request_of(family: SockProtocol, mut message: Message) -> nix::Result<()> {
    let flags = u16::from_ne_bytes([message.0[6], message.0[7]]) | libc::NLM_F_ACK as u16;
    message.0[6..8].copy_from_slice(&flags.to_ne_bytes());
    exchange(family, message, |_, _| ())
}

/// Sends a dump request and calls `each` with type and payload of every answer.
pub(crate) fn dump(message: Message, each: impl FnMut(u16, &[u8])) -> nix::Result<()> {
    exchange(SockProtocol::NetlinkRoute, message, each)
}

fn exchange(
    family: SockProtocol,
    message: Message,
    mut each: impl FnMut(u16, &[u8]),
) -> nix::Result<()> {
    let socket: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, family)?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &message.finish(), &kernel, MsgFlags::empty())?;
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let len = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        if read_datagram(&buffer[..len], &mut each)? {
            return Ok(());
        }
    }
}

/// Walks the messages of one datagram; true when the answer is complete.
fn read_datagram(mut rest: &[u8], each: &mut impl FnMut(u16, &[u8])) -> nix::Result<bool> {
    while rest.len() >= HEADER_BYTES {
        let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        let Some(payload) = rest.get(HEADER_BYTES..len) else { return Err(Errno::EBADMSG) };
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code = payload.first_chunk().map_or(-libc::EBADMSG, |b| i32::from_ne_bytes(*b));
                return if code == 0 { Ok(true) } else { Err(Errno::from_raw(-code)) };
            }
            _ => each(kind, payload),
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The attributes of a payload after its fixed part of `skip` bytes.
pub(crate) fn attrs(payload: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = payload.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]) & 0x3fff;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A native-order integer at `at`, zero where the payload is too short.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_nested_and_read_back() {
        let mut m = Message::new(16, 0).body(&[1, 2, 3, 4]);
        m.attr_str(3, "lo");
        m.nest(18, |n| n.attr_u32(1, 7));
        let bytes = m.finish();
        assert_eq!(bytes.len(), u32_at(&bytes, 0) as usize);
        let all: Vec<_> = attrs(&bytes, HEADER_BYTES + 4).collect();
        assert_eq!(all[0], (3, &b"lo\0"[..]));
        assert_eq!(attrs(all[1].1, 0).collect::<Vec<_>>(), [(1, &7u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn a_truncated_attribute_ends_the_walk() {
        let bytes = [8u8, 0, 1, 0, 1, 2];
        assert_eq!(attrs(&bytes, 0).count(), 0);
        assert_eq!(attrs(&[0, 0, 0, 0], 0).count(), 0);
    }
}
