//! Whole frames of one device, stamped by the kernel, for an emulated link.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, send, setsockopt, sockopt,
};
use segue_clock::Time;

use crate::clock::{monotonic, realtime_ns};
use crate::error::{LinuxError, Result};
use crate::link::index_of;
use crate::option;

/// Receive buffer for a late reader: about one second at 50 Mbit/s.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

/// A packet socket bound to one device. Receives every frame that arrives there, including frames for other stations,
/// but not the frames that it sends.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    name: String,
    control: Vec<u8>,
}

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Length of the frame with its Ethernet header; exceeds the buffer if the frame was truncated.
    pub len: usize,
    /// When the kernel took it from the device, on the monotonic clock.
    pub at: Time,
}

impl PacketSocket {
    /// Opens the device `name` of the calling thread's namespace.
    ///
    /// # Errors
    /// No such device, or no permission (needs `CAP_NET_RAW`).
    pub fn open(name: &str) -> Result<PacketSocket> {
        let index = index_of(name)?;
        let refused = |e: Errno| LinuxError::refused(format!("open a packet socket on {name}"), e);
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0 receives nothing, so no frame of another device arrives before the bind.
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        let fd = Errno::result(fd).map_err(refused)?;
        // SAFETY: a descriptor just made, with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).map_err(refused)?;
        // Exceeding the system's limit requires CAP_NET_ADMIN in the initial user namespace.
        if setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES).map_err(refused)?;
        }
        option::set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32).map_err(refused)?;
        let member = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        option::set(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)
            .map_err(refused)?;
        bind(&fd, index).map_err(refused)?;
        let control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        Ok(PacketSocket { fd, name: name.to_owned(), control })
    }

    /// Returns the next frame, or `None` if none is waiting. A device that is down delivers no frames.
    ///
    /// # Errors
    /// The device was removed.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.fd.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut parts, Some(&mut self.control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(Errno::ENETDOWN) if is_bound(fd) => return Ok(None),
            Err(e) => {
                return Err(LinuxError::refused(format!("receive from {}", self.name), e));
            }
        };
        let stamp = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|c| match c {
                ControlMessageOwned::ScmTimestampns(t) => {
                    Some(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
                }
                _ => None,
            })
        });
        Ok(Some(Received { len: message.bytes, at: on_monotonic(stamp) }))
    }

    /// Sends a whole frame; false if the device had no room for it or is down.
    ///
    /// # Errors
    /// The device was removed.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        match send(self.fd.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR | Errno::ENETDOWN) => Ok(false),
            Err(e) => Err(LinuxError::refused(format!("send on {}", self.name), e)),
        }
    }

    /// Frames lost because the receive buffer was full, since the last call.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        overruns(&self.fd)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the device of a packet socket still exists, given that it is down. The kernel unbinds the socket from a
/// removed device.
fn is_bound(fd: RawFd) -> bool {
    // SAFETY: plain data for which all zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure.
    let result = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut len) };
    result == 0 && address.sll_ifindex > 0
}

/// Converts a realtime stamp to the monotonic clock. Falls back to the current time if the stamp is missing, in the
/// future or more than a second old (the clock was set).
fn on_monotonic(stamp_ns: Option<u64>) -> Time {
    let (now, now_ns) = (monotonic(), realtime_ns());
    let age = stamp_ns.and_then(|s| now_ns.checked_sub(s)).filter(|age| *age < 1_000_000_000);
    now - segue_clock::Span(age.unwrap_or(0))
}

/// Frames that a packet socket lost because its receive buffer was full, since the last call.
#[must_use]
pub fn overruns(socket: &impl AsFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&stats) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if result == 0 { u64::from(stats.tp_drops) } else { 0 }
}

/// Binds a packet socket to the device with this index, for frames of all protocols.
///
/// # Errors
/// No such device, or it is down.
pub fn bind(socket: &impl AsFd, index: u32) -> nix::Result<()> {
    // SAFETY: plain data for which all zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a link-layer address of `len` bytes that outlives the call.
    let result =
        unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(result).map(drop)
}
