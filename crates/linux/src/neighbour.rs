//! The kernel's neighbour table and its proxy entries.

use std::net::IpAddr;

use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use crate::error::{LinuxError, Result};
use crate::link::{family, is_gone, sysctl};
use crate::netlink;

/// Deletes the link-layer address of a neighbour on the device with this index, and drops the packets queued for it.
/// The kernel would keep these packets for three seconds, and their senders would count them as unsent. A permanent
/// entry set by an operator stays. A missing entry is not an error.
///
/// # Errors
/// The netlink request failed.
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

/// Adds a proxy entry for an address on the device with this index. The kernel answers for it if it forwards packets,
/// and for IPv4 only if the address is routed over another device. For IPv6 this function also sets the device's
/// `proxy_ndp`. The kernel deletes the entry when the device goes down.
///
/// # Errors
/// No such device, or no permission.
pub fn put_proxy(index: u32, address: IpAddr) -> Result<()> {
    let refused = |e| LinuxError::refused(format!("answer for {address}"), e);
    if address.is_ipv6() {
        let name = nix::net::if_::if_indextoname(index).map_err(|e| refused(e.into()))?;
        sysctl(&format!("net/ipv6/conf/{}/proxy_ndp", name.to_string_lossy()), "1")?;
    }
    let message = RouteNetlinkMessage::NewNeighbour(proxy(index, address));
    netlink::request(message, NLM_F_CREATE | NLM_F_REPLACE).map_err(refused)
}

/// Deletes a proxy entry. A missing entry is not an error.
///
/// # Errors
/// No permission.
pub fn take_proxy(index: u32, address: IpAddr) -> Result<()> {
    let message = RouteNetlinkMessage::DelNeighbour(proxy(index, address));
    let taken = netlink::request(message, 0)
        .map_err(|e| LinuxError::refused(format!("answer for {address} no longer"), e));
    match taken {
        Err(error) if is_gone(&error) => Ok(()),
        taken => taken,
    }
}

/// Sets the link-layer address of a neighbour permanently and replaces an existing entry. The kernel deletes the entry
/// when the device goes down.
///
/// # Errors
/// No such device, or no permission.
pub fn put_known(index: u32, address: IpAddr, mac: [u8; 6]) -> Result<()> {
    let message = RouteNetlinkMessage::NewNeighbour(known(index, address, mac));
    netlink::request(message, NLM_F_CREATE | NLM_F_REPLACE)
        .map_err(|e| LinuxError::refused(format!("set the link-layer address of {address}"), e))
}

/// Deletes a permanent link-layer address. A missing entry is not an error.
///
/// # Errors
/// No permission.
pub fn take_known(index: u32, address: IpAddr, mac: [u8; 6]) -> Result<()> {
    let message = RouteNetlinkMessage::DelNeighbour(known(index, address, mac));
    let taken = netlink::request(message, 0)
        .map_err(|e| LinuxError::refused(format!("forget the neighbour {address}"), e));
    match taken {
        Err(error) if is_gone(&error) => Ok(()),
        taken => taken,
    }
}

/// The neighbours with permanent link-layer addresses, each with the index of its device.
///
/// # Errors
/// The netlink request failed.
pub fn known_ones() -> Result<Vec<(u32, IpAddr)>> {
    let all = netlink::dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))
        .map_err(|e| LinuxError::refused("list neighbours", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewNeighbour(entry)
            if entry.header.state == NeighbourState::Permanent =>
        {
            Some((entry.header.ifindex, address_of(&entry)?))
        }
        _ => None,
    };
    Ok(all.into_iter().filter_map(read).collect())
}

/// The addresses of all proxy entries, each with the index of its device.
///
/// # Errors
/// The netlink request failed.
pub fn proxies() -> Result<Vec<(u32, IpAddr)>> {
    let mut question = NeighbourMessage::default();
    question.header.flags = NeighbourFlags::Proxy;
    let all = netlink::dump(RouteNetlinkMessage::GetNeighbour(question))
        .map_err(|e| LinuxError::refused("list the addresses that are answered for", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewNeighbour(entry)
            if entry.header.flags.contains(NeighbourFlags::Proxy) =>
        {
            Some((entry.header.ifindex, address_of(&entry)?))
        }
        _ => None,
    };
    Ok(all.into_iter().filter_map(read).collect())
}

fn proxy(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address.is_ipv6());
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Proxy;
    message.attributes = vec![NeighbourAttribute::Destination(match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    })];
    message
}

fn known(index: u32, address: IpAddr, mac: [u8; 6]) -> NeighbourMessage {
    let mut message = proxy(index, address);
    message.header.flags = NeighbourFlags::empty();
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    message
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
