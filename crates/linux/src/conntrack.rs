//! The connection table of the kernel's NAT. Flushing it takes one message without attributes, so that message is
//! defined here: a dependency for all of ctnetlink would be disproportionate.

use std::convert::Infallible;

use rtnetlink::packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use crate::error::{LinuxError, Result};
use crate::netlink;

/// Deletes every connection of the calling thread's network namespace. Each flow gets a new mapping with its next
/// packet.
///
/// # Errors
/// A kernel without ctnetlink, or no permission.
pub fn flush() -> Result<()> {
    netlink::request_of(NETLINK_NETFILTER, DeleteConnections, 0)
        .map_err(|e| LinuxError::refused("flush the connection table", e))
}

/// `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK` (linux/netfilter/nfnetlink_conntrack.h).
#[derive(Debug)]
struct DeleteConnections;

impl NetlinkSerializable for DeleteConnections {
    fn message_type(&self) -> u16 {
        (1 << 8) | 2
    }

    fn buffer_len(&self) -> usize {
        4
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // struct nfgenmsg: any address family, version 0.
        buffer.fill(0);
    }
}

/// The kernel answers only with an acknowledgement or an error.
impl NetlinkDeserializable for DeleteConnections {
    type Error = Infallible;

    fn deserialize(_: &NetlinkHeader, _: &[u8]) -> std::result::Result<Self, Infallible> {
        Ok(DeleteConnections)
    }
}
