//! The interface of a probe (`-I`). When it is deleted and created again under the same name, the socket is still bound to
//! the deleted one.

use std::net::SocketAddr;

use nix::net::if_::if_nametoindex;
use segue_linux::udp::{TimestampedSocket, UdpError};

/// An interface with the index that the socket is bound to; 0 if the socket is bound to none yet.
pub(crate) struct Device {
    name: String,
    index: u32,
}

impl Device {
    pub(crate) fn new(name: &str) -> Device {
        Device { name: name.into(), index: if_nametoindex(name).unwrap_or(0) }
    }

    /// Whether the name belongs to another interface.
    pub(crate) fn came_anew(&self) -> bool {
        if_nametoindex(&*self.name).is_ok_and(|index| index != self.index)
    }

    /// True after a failed [`Device::reopen`]: sending would use any interface.
    pub(crate) fn is_unbound(&self) -> bool {
        self.index == 0
    }

    /// Replaces a socket by one on the interface that now has the name, with the same port. (Rebinding the old one requires
    /// root.) The caller sets its options again.
    ///
    /// # Errors
    /// The interface is gone again, or the port is taken.
    pub(crate) fn reopen(&mut self, socket: &mut TimestampedSocket) -> Result<(), UdpError> {
        let local = socket.local_addr().map_err(|source| {
            let address = SocketAddr::from(([0, 0, 0, 0], 0));
            UdpError::Io { address, source }
        })?;
        self.index = 0;
        // This frees the port.
        *socket = TimestampedSocket::bind(SocketAddr::new(local.ip(), 0), None)?;
        let index = if_nametoindex(&*self.name).unwrap_or(0);
        *socket = TimestampedSocket::bind(local, Some(&self.name))?;
        self.index = index;
        Ok(())
    }
}
