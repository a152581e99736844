//! Unsolicited netlink notifications of the kernel.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkDeserializable;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::netlink::read_datagram;

/// Maximum length of a datagram. One about a link takes one or two kilobytes. A longer one is unreadable and counts as
/// lost.
const LONGEST: usize = 16 << 10;

/// A socket subscribed to some notification groups.
pub(super) struct Notices(AsyncFd<OwnedFd>);

/// The result of a read.
pub(super) enum Notice<M> {
    /// Parsed messages.
    Messages(Vec<M>),
    /// The socket overflowed, or a datagram is unreadable.
    Lost,
}

impl Notices {
    pub(super) fn of(groups: &[MulticastGroup]) -> io::Result<Notices> {
        let mask = groups.iter().fold(0, |mask, group| mask | 1 << (*group as u32 - 1));
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask))?;
        // SAFETY: an `OwnedFd` is open, and stays the same descriptor as long as it is owned.
        Ok(Notices(unsafe { AsyncFd::register(fd) }?))
    }

    /// Waits until a notification may be available.
    pub(super) async fn wait(&self) -> io::Result<()> {
        self.0.readable().await?.retain_ready();
        Ok(())
    }

    /// Returns the next notification, if one is waiting.
    pub(super) fn next<M>(&self) -> io::Result<Option<Notice<M>>>
    where
        M: NetlinkDeserializable + Debug,
    {
        let mut buffer = [0; LONGEST];
        Ok(self.receive(&mut buffer)?.map(|len| match len {
            Some(len) if len <= LONGEST => {
                let mut messages = Vec::new();
                match read_datagram(&buffer[..len], &mut messages) {
                    Ok(_) if !messages.is_empty() => Notice::Messages(messages),
                    _ => Notice::Lost,
                }
            }
            _ => Notice::Lost,
        }))
    }

    /// Discards all waiting notifications; returns whether there were any.
    pub(super) fn skip(&self) -> io::Result<bool> {
        let mut any = false;
        while self.receive(&mut [])?.is_some() {
            any = true;
        }
        Ok(any)
    }

    /// The length of the next datagram; the inner value is `None` if notifications were lost.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Option<usize>>> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let mut receive = || loop {
            match recv(self.0.as_raw_fd(), buffer, flags) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::ENOBUFS) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(io::Error::from(error)),
            }
        };
        match self.0.try_io(Interest::READABLE, |_| receive()) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
