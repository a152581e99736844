//! A watch on interfaces that come and go.
//!
//! [`snapshot`] lists the devices of the caller's network namespace with the addresses and routes
//! that matter for paths; a [`Monitor`] waits for the next list that differs. The notifications of rtnetlink only
//! wake it up, and it always reads the state in full, so a lost notification (a full socket buffer) cannot leave a
//! wrong picture behind. Call from a tokio runtime; a current-thread one is enough.

mod device;
mod reading;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use rtnetlink::MulticastGroup;
use tokio::io::unix::AsyncFd;

pub use device::{Device, physical_candidates};
pub use reading::{MonitorError, snapshot};
use reading::{fail, read_links, with_netlink};

/// Changes come in groups (a link, its addresses, its routes); they are reported together when
/// nothing has come for this long, …
const QUIET: Duration = Duration::from_millis(50);
/// … but at the latest after this long if changes never stop, and at once when a link went down.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits for changes of the interfaces in the network namespace in which it was made.
pub struct Monitor {
    socket: AsyncFd<OwnedFd>,
    last: Vec<Device>,
}

impl Monitor {
    /// Starts to watch; reports every change from here on.
    ///
    /// # Errors
    /// If netlink is unavailable.
    pub async fn new() -> Result<Monitor, MonitorError> {
        let socket = listen().map_err(fail("watch interfaces"))?;
        let last = snapshot().await?;
        Ok(Monitor { socket, last })
    }

    /// The list last reported.
    #[must_use]
    pub fn current(&self) -> &[Device] {
        &self.last
    }

    /// Waits until the interfaces differ from [`Monitor::current`] and returns them. May be dropped
    /// at any point without losing a change.
    ///
    /// # Errors
    /// If netlink fails.
    pub async fn changed(&mut self) -> Result<Vec<Device>, MonitorError> {
        loop {
            // A change that an earlier, dropped call took from the socket shows up here.
            let devices = snapshot().await?;
            if devices != self.last {
                self.last.clone_from(&devices);
                return Ok(devices);
            }
            self.notified().await.map_err(fail("watch interfaces"))?;
            // No delay once a link is down.
            let settled = async {
                while self.all_up().await? {
                    match tokio::time::timeout(QUIET, self.notified()).await {
                        Ok(result) => result.map_err(fail("watch interfaces"))?,
                        Err(_) => break,
                    }
                }
                Ok(())
            };
            if let Ok(result) = tokio::time::timeout(PATIENCE, settled).await {
                result?;
            }
        }
    }

    /// Whether the devices last reported as up still are.
    async fn all_up(&self) -> Result<bool, MonitorError> {
        let links = with_netlink(async |handle| read_links(&handle).await).await?;
        let is_up = |old: &Device| links.get(&old.interface.index).is_some_and(|new| new.up);
        Ok(self.last.iter().filter(|old| old.up).all(is_up))
    }

    /// Waits for notifications and takes all that are there. A full buffer counts as one.
    async fn notified(&self) -> io::Result<()> {
        loop {
            let mut guard = self.socket.readable().await?;
            let mut any = false;
            let mut buffer = [0; 4096];
            let end = loop {
                match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                    Ok(_) | Err(Errno::ENOBUFS) => any = true,
                    Err(Errno::EINTR) => {}
                    Err(error) => break error,
                }
            };
            if end != Errno::EAGAIN {
                return Err(end.into());
            }
            guard.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}

fn listen() -> io::Result<AsyncFd<OwnedFd>> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let mask = groups.iter().fold(0, |mask, group| mask | 1 << (*group as u32 - 1));
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask))?;
    // SAFETY: an `OwnedFd` is open, and stays the same descriptor as long as it is owned.
    Ok(unsafe { AsyncFd::register(fd) }?)
}
