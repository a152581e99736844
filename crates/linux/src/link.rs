//! Devices and their addresses. Every function acts in the calling thread's network namespace, blocks for one exchange
//! with the kernel, and works without an async runtime.

use std::net::IpAddr;

use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use segue_ip::Prefix;

use crate::error::{LinuxError, Result};
use crate::netlink;
use crate::netns::Netns;

pub use crate::ethtool::{Feature, set_feature};
pub use crate::route::{
    add_missing_rule, add_route, add_rule, delete_route, delete_rule, replace_route, routes, rules,
};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique in its namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Has a carrier and is operational.
    pub running: bool,
    /// The loopback device.
    pub loopback: bool,
    /// MTU in bytes.
    pub mtu_bytes: u32,
    /// Link-layer address; all zero if the device has no address of six bytes.
    pub mac: [u8; 6],
    /// The factory address; virtual devices have none.
    pub permanent_mac: Option<[u8; 6]>,
}

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The device's interface index.
    pub index: u32,
    /// Address and prefix length.
    pub prefix: Prefix,
    /// Of link or host scope, or an IPv4 link-local address: not valid beyond the link.
    pub link_local: bool,
    /// Usable as a source: neither tentative, nor a failed duplicate, nor deprecated.
    pub usable: bool,
}

/// Formats a link-layer address: `02:00:00:00:00:01`.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The devices of this namespace, by index.
///
/// # Errors
/// The netlink request failed.
pub fn links() -> Result<Vec<Link>> {
    let all = netlink::dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .map_err(|e| LinuxError::refused("list network interfaces", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(read_link(link)),
        _ => None,
    };
    let mut found: Vec<Link> = all.into_iter().filter_map(read).collect();
    found.sort_by_key(|link| link.index);
    Ok(found)
}

/// The addresses of this namespace in the kernel's order.
///
/// # Errors
/// The netlink request failed.
pub fn addresses() -> Result<Vec<Address>> {
    let all = netlink::dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))
        .map_err(|e| LinuxError::refused("list addresses", e))?;
    let read = |message| match message {
        RouteNetlinkMessage::NewAddress(address) => read_address(&address),
        _ => None,
    };
    Ok(all.into_iter().filter_map(read).collect())
}

/// The interface index of `name`.
///
/// # Errors
/// [`LinuxError::NoSuchDevice`].
pub fn index_of(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name)
        .map_err(|_| LinuxError::NoSuchDevice { name: name.to_owned() })
}

/// Creates a pair of virtual Ethernet devices: `name` here, `peer` here or in `peer_ns`. Both are down.
///
/// # Errors
/// A name exists or is longer than 15 bytes, or no permission.
pub fn create_veth(name: &str, peer: &str, peer_ns: Option<&Netns>) -> Result<()> {
    create_veth_numbered(name, 0, peer, peer_ns)
}

/// Like [`create_veth`], with the interface index of `name`; 0 lets the kernel choose. If a device and its peer happen
/// to have the same index in their namespaces, the kernel reports a lost carrier up to a second late
/// (`linkwatch_urgent_event` in net/core/link_watch.c). An index that the kernel never assigns by itself avoids this
/// for both devices.
///
/// # Errors
/// As for [`create_veth`], or the index is in use.
pub fn create_veth_numbered(
    name: &str,
    index: u32,
    peer: &str,
    peer_ns: Option<&Netns>,
) -> Result<()> {
    check_name(name)?;
    check_name(peer)?;
    let mut other = LinkMessage::default();
    other.attributes.push(LinkAttribute::IfName(peer.to_owned()));
    other.attributes.extend(peer_ns.map(|ns| LinkAttribute::NetNsFd(ns.raw_fd())));
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]),
    ];
    netlink::request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
        .map_err(|e| LinuxError::refused(format!("create the veth pair {name} and {peer}"), e))
}

/// Removes a device (and the peer of a veth).
///
/// # Errors
/// No such device, or no permission.
pub fn delete(name: &str) -> Result<()> {
    netlink::request(RouteNetlinkMessage::DelLink(link_message(name)?), 0)
        .map_err(|e| LinuxError::refused(format!("delete interface {name}"), e))
}

/// Sets a device administratively up or down.
///
/// # Errors
/// No such device, or no permission.
pub fn set_up(name: &str, up: bool) -> Result<()> {
    let mut message = link_message(name)?;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    let what = if up { "up" } else { "down" };
    netlink::request(RouteNetlinkMessage::SetLink(message), 0)
        .map_err(|e| LinuxError::refused(format!("set interface {name} {what}"), e))
}

/// Sets the link-layer address of a device.
///
/// # Errors
/// No such device, an address that it does not accept, or no permission.
pub fn set_mac(name: &str, mac: [u8; 6]) -> Result<()> {
    let mut message = link_message(name)?;
    message.attributes.push(LinkAttribute::Address(mac.to_vec()));
    netlink::request(RouteNetlinkMessage::SetLink(message), 0)
        .map_err(|e| LinuxError::refused(format!("set the link-layer address of {name}"), e))
}

/// Sets the MTU of a device in bytes.
///
/// # Errors
/// No such device, an MTU that it does not accept, or no permission.
pub fn set_mtu(name: &str, mtu_bytes: u32) -> Result<()> {
    let mut message = link_message(name)?;
    message.attributes.push(LinkAttribute::Mtu(mtu_bytes));
    netlink::request(RouteNetlinkMessage::SetLink(message), 0)
        .map_err(|e| LinuxError::refused(format!("set the MTU of {name} to {mtu_bytes}"), e))
}

/// Adds an address to a device, usable immediately (no duplicate address detection). Succeeds if it exists.
///
/// # Errors
/// No such device, or no permission.
pub fn add_address(name: &str, prefix: Prefix) -> Result<()> {
    put_address(index_of(name)?, prefix).map_err(|e| {
        LinuxError::refused_at(format!("add address {prefix} to {name}"), prefix.addr, e)
    })
}

/// Like [`add_address`], by the index of the device.
pub(crate) fn put_address(index: u32, prefix: Prefix) -> std::io::Result<()> {
    let mut message = address_message(index, prefix);
    if prefix.addr.is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    netlink::request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Removes an address from a device.
///
/// # Errors
/// No such device or address, or no permission.
pub fn delete_address(name: &str, prefix: Prefix) -> Result<()> {
    take_address(index_of(name)?, prefix)
        .map_err(|e| LinuxError::refused(format!("delete address {prefix} from {name}"), e))
}

/// Like [`delete_address`], by the index of the device.
pub(crate) fn take_address(index: u32, prefix: Prefix) -> std::io::Result<()> {
    netlink::request(RouteNetlinkMessage::DelAddress(address_message(index, prefix)), 0)
}

/// Writes a kernel setting: `net.ipv4.ip_forward`, or with slashes if a component contains a dot. Settings below `net.`
/// belong to the calling thread's namespace. Does not write a value that is already set, because containers often mount
/// `/proc/sys` read-only.
///
/// # Errors
/// No such setting, or no permission.
pub fn sysctl(key: &str, value: &str) -> Result<()> {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    let path = format!("/proc/sys/{path}");
    if std::fs::read_to_string(&path).is_ok_and(|present| present.trim() == value) {
        return Ok(());
    }
    std::fs::write(path, value).map_err(|e| LinuxError::refused(format!("set {key} to {value}"), e))
}

/// Enables IPv6 on one device, for systems where it is disabled by default.
///
/// # Errors
/// The kernel has no IPv6, or no permission.
pub fn enable_ipv6(name: &str) -> Result<()> {
    sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")
}

pub(crate) fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// Checks the name of a device.
///
/// # Errors
/// The name is empty, too long, or contains a forbidden character.
pub fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "it means a directory",
        _ if name.contains('%') => "the kernel makes a name of a %",
        _ if name.len() >= libc::IFNAMSIZ => "it is longer than 15 bytes",
        _ if name.contains(['/', ':']) || name.contains(char::is_whitespace) => {
            "it contains a slash, a colon or white space"
        }
        _ => return Ok(()),
    };
    Err(LinuxError::BadName { name: name.to_owned(), of: "an interface", why })
}

fn link_message(name: &str) -> Result<LinkMessage> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    Ok(message)
}

fn address_message(index: u32, prefix: Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(prefix.addr.is_ipv6());
    message.header.prefix_len = prefix.len;
    message.header.index = index;
    message.attributes =
        vec![AddressAttribute::Local(prefix.addr), AddressAttribute::Address(prefix.addr)];
    message
}

fn read_link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        loopback: flags.contains(LinkFlags::Loopback),
        mtu_bytes: 0,
        mac: [0; 6],
        permanent_mac: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu_bytes) => link.mtu_bytes = mtu_bytes,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().unwrap_or_default(),
            LinkAttribute::PermAddress(mac) => link.permanent_mac = mac.try_into().ok(),
            _ => (),
        }
    }
    link
}

fn read_address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut other) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(addr) => local = Some(*addr),
            AddressAttribute::Address(addr) => other = Some(*addr),
            AddressAttribute::Flags(all) => flags = *all,
            _ => (),
        }
    }
    let failed = flags.contains(AddressFlags::Dadfailed);
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    // Optimistic addresses are tentative but usable (RFC 4429, 3.3).
    let optimistic = flags.contains(AddressFlags::Optimistic) && !failed;
    let addr = local.or(other)?;
    let scope = u8::from(message.header.scope);
    Some(Address {
        index: message.header.index,
        prefix: Prefix { addr, len: message.header.prefix_len },
        link_local: scope >= u8::from(AddressScope::Link) || is_ipv4_link_local(addr),
        usable: !flags.intersects(unusable) || optimistic,
    })
}

/// Whether the address is in 169.254.0.0/16, which no router forwards (RFC 3927, 2.7). The kernel assigns scopes only
/// to IPv6 addresses. The program that adds an IPv4 address sets its scope, and many programs omit it.
pub(crate) fn is_ipv4_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(a) if a.is_link_local())
}

/// True for errors that mean "already removed".
#[must_use]
pub fn is_gone(error: &LinuxError) -> bool {
    matches!(error, LinuxError::NoSuchDevice { .. } | LinuxError::NoSuchNamespace { .. })
        || matches!(
            error.errno(),
            Some(Errno::ENOENT | Errno::ESRCH | Errno::ENODEV | Errno::EADDRNOTAVAIL)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_cannot_take_are_refused_before_asking_it() {
        for bad in ["", "sixteen-bytes-xx", "a b", "a/b"] {
            let refused = create_veth(bad, "ok", None);
            assert!(matches!(refused, Err(LinuxError::BadName { .. })), "{bad}: {refused:?}");
        }
    }

    #[test]
    fn the_loopback_device_is_listed_with_its_address() {
        let lo = links().unwrap().into_iter().find(|l| l.loopback).unwrap();
        assert_eq!(index_of(&lo.name).unwrap(), lo.index);
        if lo.up {
            let all = addresses().unwrap();
            assert!(all.iter().any(|a| a.index == lo.index && a.prefix.addr.is_loopback()));
        }
        assert!(matches!(index_of("sg-not-there"), Err(LinuxError::NoSuchDevice { .. })));
    }
}
