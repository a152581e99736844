//! Devices and their addresses. Every function acts in the calling thread's network namespace and
//! blocks for one exchange with the kernel; none needs an async runtime.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use nix::errno::Errno;

use crate::error::{LinuxError, Result};
use crate::netlink::{self, Message, attrs, u32_at};
use crate::netns::Netns;

pub use crate::ethtool::{Feature, set_feature};
pub use crate::route::{
    Route, Rule, add_route, add_rule, delete_route, delete_rule, replace_route, routes, rules,
};

/// An address with the length of its network prefix, `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; host bits may be set.
    pub addr: IpAddr,
    /// Prefix length in bits, at most 32 or 128.
    pub len: u8,
}

impl Prefix {
    /// `addr/len`.
    #[must_use]
    pub fn new(addr: impl Into<IpAddr>, len: u8) -> Prefix {
        Prefix { addr: addr.into(), len }
    }

    /// The single address.
    #[must_use]
    pub fn host(addr: impl Into<IpAddr>) -> Prefix {
        let addr = addr.into();
        Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// 0.0.0.0/0 or ::/0.
    #[must_use]
    pub fn default_of(v6: bool) -> Prefix {
        let addr: IpAddr = if v6 {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        };
        Prefix { addr, len: 0 }
    }

    pub(crate) fn family(&self) -> u8 {
        family_of(self.addr)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Why a text is no [`Prefix`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address with a prefix length, like 10.0.0.1/24 or fd00::1/64")]
pub struct BadPrefix(String);

impl FromStr for Prefix {
    type Err = BadPrefix;
    fn from_str(text: &str) -> std::result::Result<Prefix, BadPrefix> {
        let bad = || BadPrefix(text.to_owned());
        let (addr, len) = text.split_once('/').ok_or_else(bad)?;
        let addr: IpAddr = addr.parse().map_err(|_| bad())?;
        let len: u8 = len.parse().map_err(|_| bad())?;
        if len > Prefix::host(addr).len { Err(bad()) } else { Ok(Prefix { addr, len }) }
    }
}

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
    /// Largest packet in bytes without the link layer's header.
    pub mtu_bytes: u32,
    /// Link-layer address; all zero where the device has none of six bytes.
    pub mac: [u8; 6],
}

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The device's interface index.
    pub index: u32,
    /// Address and prefix length.
    pub prefix: Prefix,
    /// Link-local or host scope: of no use beyond the link.
    pub link_local: bool,
    /// Usable as a source: neither tentative, nor a failed duplicate, nor deprecated.
    pub usable: bool,
}

/// The devices of this namespace in order of their index.
///
/// # Errors
/// When netlink is refused.
pub fn links() -> Result<Vec<Link>> {
    let mut found = Vec::new();
    let message = Message::new(libc::RTM_GETLINK, libc::NLM_F_DUMP).body(&[0; 16]);
    let each = |kind: u16, body: &[u8]| {
        if kind == libc::RTM_NEWLINK {
            found.push(read_link(body));
        }
    };
    netlink::dump(message, each).map_err(|e| LinuxError::refused("list network interfaces", e))?;
    found.sort_by_key(|link: &Link| link.index);
    Ok(found)
}

/// The addresses of this namespace in the kernel's order.
///
/// # Errors
/// When netlink is refused.
pub fn addresses() -> Result<Vec<Address>> {
    let mut found = Vec::new();
    let message = Message::new(libc::RTM_GETADDR, libc::NLM_F_DUMP).body(&[0; 8]);
    let each = |kind: u16, body: &[u8]| {
        if kind == libc::RTM_NEWADDR {
            found.extend(read_address(body));
        }
    };
    netlink::dump(message, each).map_err(|e| LinuxError::refused("list addresses", e))?;
    Ok(found)
}

/// The interface index of `name`.
///
/// # Errors
/// [`LinuxError::NoSuchDevice`].
pub fn index_of(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name)
        .map_err(|_| LinuxError::NoSuchDevice { name: name.to_owned() })
}

/// Makes a pair of virtual Ethernet devices: `name` here, `peer` here or in `peer_ns`. Both are down.
///
/// # Errors
/// A name that is taken or longer than 15 bytes, or no permission.
pub fn create_veth(name: &str, peer: &str, peer_ns: Option<&Netns>) -> Result<()> {
    check_name(name)?;
    check_name(peer)?;
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = Message::new(libc::RTM_NEWLINK, flags).body(&[0; 16]);
    message.attr_str(libc::IFLA_IFNAME, name);
    message.nest(libc::IFLA_LINKINFO, |info| {
        info.attr_str(libc::IFLA_INFO_KIND, "veth");
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.nest(VETH_INFO_PEER, |other| {
                other.raw(&[0; 16]);
                other.attr_str(libc::IFLA_IFNAME, peer);
                if let Some(ns) = peer_ns {
                    other.attr_u32(libc::IFLA_NET_NS_FD, ns.raw_fd() as u32);
                }
            });
        });
    });
    netlink::request(message)
        .map_err(|e| LinuxError::refused(format!("create the veth pair {name} and {peer}"), e))
}

const VETH_INFO_PEER: u16 = 1;

/// Removes a device (with a veth its peer too).
///
/// # Errors
/// No such device, or no permission.
pub fn delete(name: &str) -> Result<()> {
    let message = Message::new(libc::RTM_DELLINK, 0).body(&link_header(index_of(name)?, 0, 0));
    netlink::request(message)
        .map_err(|e| LinuxError::refused(format!("delete interface {name}"), e))
}

/// Sets a device administratively up or down.
///
/// # Errors
/// No such device, or no permission.
pub fn set_up(name: &str, up: bool) -> Result<()> {
    let flag = libc::IFF_UP as u32;
    let header = link_header(index_of(name)?, if up { flag } else { 0 }, flag);
    let message = Message::new(libc::RTM_NEWLINK, 0).body(&header);
    let what = if up { "up" } else { "down" };
    netlink::request(message)
        .map_err(|e| LinuxError::refused(format!("set interface {name} {what}"), e))
}

/// Sets the largest packet of a device, in bytes.
///
/// # Errors
/// No such device, a size it cannot take, or no permission.
pub fn set_mtu(name: &str, mtu_bytes: u32) -> Result<()> {
    let mut message = Message::new(libc::RTM_NEWLINK, 0).body(&link_header(index_of(name)?, 0, 0));
    message.attr_u32(libc::IFLA_MTU, mtu_bytes);
    netlink::request(message)
        .map_err(|e| LinuxError::refused(format!("set the MTU of {name} to {mtu_bytes}"), e))
}

/// Adds an address to a device, usable at once (no duplicate address detection). One that is there
/// already is no error.
///
/// # Errors
/// No such device, or no permission.
pub fn add_address(name: &str, prefix: Prefix) -> Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    netlink::request(address_message(libc::RTM_NEWADDR, flags, index_of(name)?, prefix))
        .map_err(|e| LinuxError::refused(format!("add address {prefix} to {name}"), e))
}

/// Removes an address from a device.
///
/// # Errors
/// No such device or address, or no permission.
pub fn delete_address(name: &str, prefix: Prefix) -> Result<()> {
    netlink::request(address_message(libc::RTM_DELADDR, 0, index_of(name)?, prefix))
        .map_err(|e| LinuxError::refused(format!("delete address {prefix} from {name}"), e))
}

/// Writes a kernel setting, `net.ipv4.ip_forward` or with slashes where a part contains a dot.
/// Those below `net.` belong to the calling thread's namespace.
///
/// # Errors
/// No such setting, or no permission.
pub fn sysctl(key: &str, value: &str) -> Result<()> {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    std::fs::write(format!("/proc/sys/{path}"), value)
        .map_err(|e| LinuxError::refused(format!("set {key} to {value}"), e))
}

pub(crate) fn family_of(addr: IpAddr) -> u8 {
    (if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

pub(crate) fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

pub(crate) fn address_from(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "it is empty",
        _ if name.len() >= libc::IFNAMSIZ => "it is longer than 15 bytes",
        _ if name.contains(['/', ':']) || name.contains(char::is_whitespace) => {
            "it contains a slash, a colon or white space"
        }
        _ => return Ok(()),
    };
    Err(LinuxError::BadName { name: name.to_owned(), of: "an interface", why })
}

fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn address_message(kind: u16, flags: i32, index: u32, prefix: Prefix) -> Message {
    let mut header = [prefix.family(), prefix.len, 0, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut message = Message::new(kind, flags).body(&header);
    message.attr(libc::IFA_LOCAL, &octets(prefix.addr));
    message.attr(libc::IFA_ADDRESS, &octets(prefix.addr));
    if prefix.addr.is_ipv6() && kind == libc::RTM_NEWADDR {
        message.attr_u32(IFA_FLAGS, libc::IFA_F_NODAD);
    }
    message
}

const IFA_FLAGS: u16 = 8;

fn read_link(body: &[u8]) -> Link {
    let flags = u32_at(body, 8) as i32;
    let mut link = Link {
        index: u32_at(body, 4),
        name: String::new(),
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        mtu_bytes: 0,
        mac: [0; 6],
    };
    for (kind, value) in attrs(body, 16) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_MTU => link.mtu_bytes = u32_at(value, 0),
            libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            _ => (),
        }
    }
    link
}

fn read_address(body: &[u8]) -> Option<Address> {
    let [_, len, flags, scope, ..] = *body else { return None };
    let (mut local, mut other, mut flags) = (None, None, u32::from(flags));
    for (kind, value) in attrs(body, 8) {
        match kind {
            libc::IFA_LOCAL => local = address_from(value),
            libc::IFA_ADDRESS => other = address_from(value),
            IFA_FLAGS => flags = u32_at(value, 0),
            _ => (),
        }
    }
    let unusable = libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED | libc::IFA_F_DEPRECATED;
    // Optimistic addresses are tentative and usable all the same (RFC 4429, 3.3).
    let optimistic = flags & libc::IFA_F_OPTIMISTIC != 0 && flags & libc::IFA_F_DADFAILED == 0;
    Some(Address {
        index: u32_at(body, 4),
        prefix: Prefix { addr: local.or(other)?, len },
        link_local: scope >= libc::RT_SCOPE_LINK,
        usable: flags & unusable == 0 || optimistic,
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

/// True for the errors that mean "it is gone already" when something is removed.
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
    fn prefixes_are_read_strictly() {
        assert_eq!("10.0.0.1/24".parse(), Ok(Prefix::new([10, 0, 0, 1], 24)));
        assert_eq!("fd00::1/64".parse::<Prefix>().map(|p| p.len), Ok(64));
        for bad in ["10.0.0.1", "10.0.0.1/33", "x/3", "fd00::/129", "/"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

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
