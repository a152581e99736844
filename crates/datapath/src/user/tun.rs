//! The TUN device and the event descriptors of its threads.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use segue_wire::Header;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::segment::VnetHeader;
use crate::{DatapathError, Role, Setup};

/// Longest packet, including its virtio header.
pub(super) const MAX_READ: usize = VnetHeader::LEN + 65_536;

/// Creates the device, with offloads, up and non-blocking.
pub(super) fn open(setup: &Setup) -> Result<SyncDevice, DatapathError> {
    let kernel = |what| move |source| DatapathError::Kernel { what, source };
    let mtu = u16::try_from(setup.tun_mtu).map_err(|_| DatapathError::Kernel {
        what: "setting the MTU of the TUN device",
        source: io::ErrorKind::InvalidInput.into(),
    })?;
    let device = DeviceBuilder::new()
        .name(setup.tun_name.as_str())
        .mtu(mtu)
        .offload(true)
        .enable(false)
        .build_sync()
        .map_err(|source| DatapathError::of_device(&setup.tun_name, source))?;
    // Without a link-local address the kernel sends no router solicitations and no group reports on a device that
    // leads to hosts and not to a link. A kernel without IPv6 does not have this setting.
    let key = format!("net/ipv6/conf/{}/addr_gen_mode", setup.tun_name);
    if let Err(error) = segue_linux::link::sysctl(&key, "1") {
        tracing::debug!(%error, "the TUN device may get a link-local address");
    }
    device.enabled(true).map_err(kernel("setting the TUN device up"))?;
    device.set_nonblocking(true).map_err(kernel("creating the TUN device"))?;
    if setup.role == Role::Host
        && let Err(error) = limit_segments(&device, setup.tun_mtu)
    {
        tracing::debug!(%error, "super-packets keep their default size");
    }
    Ok(device)
}

/// Lets the host's own TCP create super-packets that, with a header for each segment, still fit one UDP datagram, so
/// that each leaves in one call. An anchor forwards super-packets that were created elsewhere: the kernel would have
/// to segment larger ones itself, which costs more than a second call.
fn limit_segments(device: &SyncDevice, mtu: u32) -> io::Result<()> {
    let segments = (65_000 / (mtu + Header::LEN as u32)).clamp(1, 64);
    let index = device.if_index()?;
    // struct nlmsghdr, struct ifinfomsg, one attribute IFLA_GSO_MAX_SEGS.
    let mut message = [0u8; 40];
    message[0..4].copy_from_slice(&40u32.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message[32..34].copy_from_slice(&8u16.to_ne_bytes());
    message[34..36].copy_from_slice(&libc::IFLA_GSO_MAX_SEGS.to_ne_bytes());
    message[36..40].copy_from_slice(&segments.to_ne_bytes());
    // SAFETY: plain system call; the result is checked before it is owned.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut answer = [0u8; 64];
    // SAFETY: both buffers live through the calls and have the lengths given.
    let len = unsafe {
        libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0);
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    if len < 20 {
        return Err(io::Error::last_os_error());
    }
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// Reads one packet with its virtio header; does not block.
pub(super) fn read(tun: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let n = unsafe { libc::read(tun, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes one packet, given in pieces.
pub(super) fn write(tun: RawFd, pieces: &[libc::iovec]) -> io::Result<()> {
    // SAFETY: the caller's pieces point at memory it borrows for this call.
    let n = unsafe { libc::writev(tun, pieces.as_ptr(), pieces.len() as i32) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An event descriptor that ends a thread's poll(2).
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Wake> {
        // SAFETY: plain system call; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, has no other owner.
        Ok(Wake(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Ends the current poll, or else the next one.
    pub(super) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes, as an event descriptor wants them.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Resets the descriptor.
    pub(super) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight writable bytes, as an event descriptor wants them.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}
