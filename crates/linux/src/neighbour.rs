//! The kernel's table of neighbours.

use std::net::IpAddr;

use nix::errno::Errno;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use crate::error::{LinuxError, Result};
use crate::netlink;

/// Forgets the link-layer address of a neighbour on the device with this index, and drops the packets that wait for
/// it: the kernel keeps them for three seconds, and their senders count them as not yet sent. A permanent entry that
/// an operator has set stays; a missing one is no error.
///
/// # Errors
/// When netlink is refused.
pub fn forget(index: u32, address: IpAddr) -> Result<()> {
    let refused = |e| LinuxError::refused(format!("forget the neighbour {address}"), e);
    let all = netlink::dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()));
    for message in all.map_err(refused)? {
        let RouteNetlinkMessage::NewNeighbour(entry) = message else { continue };
        if entry.header.ifindex != index || address_of(&entry) != Some(address) || is_set(&entry) {
            continue;
        }
        match netlink::request(RouteNetlinkMessage::DelNeighbour(entry), 0) {
            Err(e) if e.raw_os_error() != Some(Errno::ENOENT as i32) => return Err(refused(e)),
            _ => {}
        }
    }
    Ok(())
}

fn is_set(entry: &NeighbourMessage) -> bool {
    matches!(entry.header.state, NeighbourState::Permanent | NeighbourState::Noarp)
}

fn address_of(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => Some(IpAddr::V4(*a)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => Some(IpAddr::V6(*a)),
        _ => None,
    })
}
