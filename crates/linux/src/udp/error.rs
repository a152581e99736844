//! Why a socket could not be made.

use std::io;
use std::net::SocketAddr;

/// A socket that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// There is no such interface.
    #[error("there is no interface {name}")]
    NoInterface {
        /// The name that was given.
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
    /// Somebody else has the port.
    #[error("{address} is in use by another program")]
    InUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Everything else that can go wrong.
    #[error("cannot open a UDP socket on {address}: {source}")]
    Io {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}
