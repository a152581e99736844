//! The connection table of the kernel's NAT.

use nix::sys::socket::SockProtocol;

use crate::error::{LinuxError, Result};
use crate::netlink::{self, Message};

/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE` (linux/netfilter/nfnetlink.h).
const DELETE_CONNECTIONS: u16 = (1 << 8) | 2;

/// Forgets every connection of the calling thread's network namespace: each flow gets a new mapping
/// with its next packet.
///
/// # Errors
/// A kernel without ctnetlink, or no permission.
pub fn flush() -> Result<()> {
    // struct nfgenmsg: any address family, version 0.
    let message = Message::new(DELETE_CONNECTIONS, 0).body(&[0; 4]);
    netlink::request_of(SockProtocol::NetlinkNetFilter, message)
        .map_err(|e| LinuxError::refused("flush the connection table", e))
}
