//! The machine's own addresses in the programs' tables, and the watch on addresses and routes that keeps them up to
//! date.

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

/// A descriptor that becomes readable when something changes in the namespace that opened it.
#[derive(Debug)]
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// Watches addresses.
    pub(crate) fn addresses() -> Result<Watch, DatapathError> {
        let groups = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        Watch::open("watch the addresses of this machine", groups)
    }

    /// Watches everything that can change a route lookup: routes, rules, addresses and interfaces.
    pub(crate) fn ways() -> Result<Watch, DatapathError> {
        /// Bit of RTNLGRP_IPV6_RULE.
        const IPV6_RULE: i32 = 1 << 18;
        let routes = libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE;
        let addresses = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let rules = libc::RTMGRP_IPV4_RULE | IPV6_RULE;
        let groups = routes | rules | addresses | libc::RTMGRP_LINK;
        Watch::open("watch the routes of this machine", groups)
    }

    fn open(what: &'static str, groups: i32) -> Result<Watch, DatapathError> {
        let failed = |errno: Errno| DatapathError::Kernel { what, source: errno.into() };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, kind).map_err(failed)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32)).map_err(failed)?;
        Ok(Watch(socket))
    }

    /// Reads the pending notifications; false if there were none. Their content does not matter: the caller reads
    /// everything again, so losing one to a full socket buffer is harmless.
    pub(crate) fn drain(&self) -> bool {
        let mut buffer = [0; 8192];
        let mut some = false;
        while !matches!(
            recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()),
            Err(Errno::EAGAIN | Errno::EBADF) | Ok(0)
        ) {
            some = true;
        }
        some
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The addresses in the calling thread's namespace.
pub(crate) fn present() -> Result<BTreeSet<IpAddr>, DatapathError> {
    let addresses = link::addresses().map_err(|e| DatapathError::Kernel {
        what: "list the addresses of this machine",
        source: e.errno().map_or_else(|| io::Error::other(e.to_string()), Into::into),
    })?;
    Ok(addresses.iter().map(|a| a.prefix.addr).collect())
}
