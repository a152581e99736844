//! The interface of a probe (`-I`). If it is deleted and created again under the same name, the socket remains bound to
//! the deleted one.

use std::net::SocketAddr;

use nix::net::if_::if_nametoindex;
use segue_linux::udp::{TimestampedSocket, UdpError};

/// An interface with the index that the socket is bound to; 0 if the socket is not bound.
pub(crate) struct Device {
    name: String,
    index: u32,
}

impl Device {
    pub(crate) fn new(name: &str) -> Device {
        Device { name: name.into(), index: if_nametoindex(name).unwrap_or(0) }
    }

    /// True if the name now belongs to a different interface.
    pub(crate) fn came_anew(&self) -> bool {
        if_nametoindex(&*self.name).is_ok_and(|index| index != self.index)
    }

    /// True after a failed [`Device::reopen`]: the socket would send over any interface.
    pub(crate) fn is_unbound(&self) -> bool {
        self.index == 0
    }

    /// Replaces the socket by one on the interface that now has the name, with the same port. (Rebinding the old socket
    /// requires root.) The caller must set the socket's options again.
    ///
    /// # Errors
    /// The interface is gone again, or the port is in use.
    pub(crate) fn reopen(&mut self, socket: &mut TimestampedSocket) -> Result<(), UdpError> {
        let local = socket.local_addr().map_err(|source| {
            let address = SocketAddr::from(([0, 0, 0, 0], 0));
            UdpError::Io { address, source }
        })?;
        self.index = 0;
        // Releases the port.
        *socket = TimestampedSocket::bind(SocketAddr::new(local.ip(), 0), None)?;
        let index = if_nametoindex(&*self.name).unwrap_or(0);
        *socket = TimestampedSocket::bind(local, Some(&self.name))?;
        self.index = index;
        Ok(())
    }
}
