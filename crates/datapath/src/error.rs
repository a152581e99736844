//! Errors of setting up or changing a datapath.

use std::io;
use std::net::IpAddr;

/// A failed operation of the datapath; nothing of it was applied.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// A kernel facility is missing or refused.
    #[error("{what}: {source}")]
    Kernel {
        /// The attempted operation, in plain words.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Another program uses the tunnel device.
    #[error("another program uses the device {device}: give this daemon another `device`")]
    Taken {
        /// The device's name.
        device: String,
    },
    /// A thread that carries packets has ended.
    #[error("no packets are carried any more, the thread {thread} has ended: {why}")]
    Ended {
        /// The thread's name.
        thread: &'static str,
        /// The reason it gave.
        why: String,
    },
    /// A slot outside the table.
    #[error("path slot {slot} is outside the table of {max}")]
    Slot {
        /// The slot.
        slot: u32,
        /// Number of slots.
        max: u32,
    },
    /// A slot without a path.
    #[error("there is no path in slot {slot}")]
    NoPath {
        /// The slot.
        slot: u32,
    },
    /// A flow to an inner address would have taken another host's path.
    #[error("{address} is not an address of the host whose path is in slot {slot}")]
    Owner {
        /// The flow's inner destination.
        address: IpAddr,
        /// The slot.
        slot: u32,
    },
    /// Two tunnels of a relay have the same ends and form: arriving packets could belong to either.
    #[error("tunnel {number} has the ends and the form of another one")]
    SameEnds {
        /// The number of the later tunnel.
        number: u32,
    },
    /// There is no such tunnel.
    #[error("there is no tunnel {number}")]
    NoTunnel {
        /// The tunnel's number.
        number: u32,
    },
    /// A tunnel with home addresses in extension headers, which the user-space relay does not support.
    #[error(
        "tunnel {number} has home addresses in its headers, which only the relay's programs in the kernel carry"
    )]
    HomeAddresses {
        /// The tunnel's number.
        number: u32,
    },
    /// An error from the kernel's routes, rules and links.
    #[error(transparent)]
    Linux(#[from] segue_linux::LinuxError),
    /// A path with UPMT packets, which this datapath does not carry.
    #[error(
        "encapsulation \"upmt\" is carried in user space only: set datapath = \"user\", or use \"segue\""
    )]
    Upmt,
    /// A table in the kernel is full.
    #[error("the {what} table is full")]
    Full {
        /// The name of the table.
        what: &'static str,
    },
}

impl DatapathError {
    /// The error for a TUN device that could not be created.
    pub(crate) fn of_device(device: impl AsRef<[u8]>, source: io::Error) -> DatapathError {
        match source.kind() {
            io::ErrorKind::ResourceBusy => DatapathError::Taken {
                device: String::from_utf8_lossy(device.as_ref()).into_owned(),
            },
            _ => DatapathError::Kernel { what: "create the TUN device", source },
        }
    }
}
