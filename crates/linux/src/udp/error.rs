//! Why a socket could not be made.

use std::io;
use std::net::SocketAddr;

/// A socket that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// There is no such interface.
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
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}
