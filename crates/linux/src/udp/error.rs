//! Errors of opening a UDP socket.

use std::io;
use std::net::SocketAddr;

/// Failure to open a UDP socket.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// No such interface.
    #[error("there is no interface {name}")]
    NoInterface {
        /// The requested name.
        name: String,
    },
    /// The kernel does not let this user bind to an interface.
    #[error(
        "no permission to bind to interface {name} (kernels before 5.7 want CAP_NET_RAW for that)"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// Another socket has the port.
    #[error("{address} is in use by another program")]
    InUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// Any other failure.
    #[error("cannot open a UDP socket on {address}: {source}")]
    Io {
        /// The requested address.
        address: SocketAddr,
        /// The error from the kernel.
        #[source]
        source: io::Error,
    },
}
