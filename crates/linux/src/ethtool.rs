//! Switches a device's offloads with the ethtool ioctls: the ethtool netlink crate can read features but not set them.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{LinuxError, Result};
use crate::link::index_of;

/// An offload of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// TCP segmentation by the device.
    Tso,
    /// Segmentation in software, just before the device.
    Gso,
    /// Merging of received packets.
    Gro,
    /// Checksums filled in by the device. When off, every packet leaves with its checksum complete and the device does
    /// no segmentation of any kind.
    TxChecksum,
    /// Checksums verified by the device.
    RxChecksum,
}

impl Feature {
    /// `ETHTOOL_S…` of linux/ethtool.h.
    fn command(self) -> u32 {
        match self {
            Feature::RxChecksum => 0x15,
            Feature::TxChecksum => 0x17,
            Feature::Tso => 0x1f,
            Feature::Gso => 0x24,
            Feature::Gro => 0x2c,
        }
    }
}

/// Switches an offload of the device `name` in the calling thread's namespace. Switching an unsupported offload off
/// succeeds.
///
/// # Errors
/// No such device, switching an unsupported offload on, or no permission.
pub fn set_feature(name: &str, feature: Feature, on: bool) -> Result<()> {
    index_of(name)?;
    let state = if on { "on" } else { "off" };
    let what = || format!("switch {feature:?} of {name} {state}");
    match ioctl(name, feature.command(), u32::from(on)) {
        Err(libc::EOPNOTSUPP) if !on => Ok(()),
        Err(e) => Err(LinuxError::refused(what(), std::io::Error::from_raw_os_error(e))),
        Ok(()) => Ok(()),
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn ioctl(name: &str, command: u32, data: u32) -> std::result::Result<(), i32> {
    let kind = (AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC);
    let socket = socket(kind.0, kind.1, kind.2, None).map_err(|e| e as i32)?;
    let mut value = Value { command, data };
    // SAFETY: `ifreq` is plain data for which all zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The caller has looked the name up, so it is shorter than the field and a zero follows it.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads the ifreq and, for these commands, reads one ethtool_value behind its
    // pointer; both outlive the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(nix::errno::Errno::last_raw()) }
}
