//! The machine's own addresses as the programs know them, kept fresh by the kernel's notifications.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use segue_linux::link;

use crate::DatapathError;

/// Becomes readable when an address of the namespace that opened it comes or goes.
#[derive(Debug)]
pub(crate) struct Watch(OwnedFd);

impl Watch {
    pub(crate) fn open() -> Result<Watch, DatapathError> {
        let failed = |errno: Errno| DatapathError::Kernel {
            what: "watch the addresses of this machine",
            source: errno.into(),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, kind).map_err(failed)?;
        let groups = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups)).map_err(failed)?;
        Ok(Watch(socket))
    }

    /// Takes the waiting notifications. Their content does not matter: the addresses are always read in full, so a
    /// lost one (a full socket buffer) does no harm.
    pub(crate) fn drain(&self) {
        let mut buffer = [0; 8192];
        while !matches!(
            recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()),
            Err(Errno::EAGAIN | Errno::EBADF) | Ok(0)
        ) {}
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The addresses of the calling thread's namespace.
pub(crate) fn present() -> Result<BTreeSet<IpAddr>, DatapathError> {
    let addresses = link::addresses().map_err(|e| DatapathError::Kernel {
        what: "list the addresses of this machine",
        source: e.errno().map_or_else(|| io::Error::other(e.to_string()), Into::into),
    })?;
    Ok(addresses.iter().map(|a| a.prefix.addr).collect())
}
